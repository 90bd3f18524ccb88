"""The app at the server: sample devices, send models, add clipped updates, take the optimiser's
step, deploy.

Its folder (`out`) holds `state.npz` after every round, from which a run goes on that was stopped;
`progress.jsonl`, a line a round, of which a run that goes on drops those that the state has not
seen; `spent.json`, under noise; every version of the model that was deployed, which is wanted and
who has what (`deployment`); and at the end `model.npz` and `result.json`. What the server sees is
what `client_app` says leaves a device.

Without noise a round with too few answers is done again. Under noise a round is drawn once and
counts as it is, also without any answer: then it is noise alone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from posse.core.errors import BudgetError, DataError, PosseError, ProtocolError
from posse.core.files import write_whole
from posse.systems.fed_contextual.computing.models import Tree, leaves_of
from posse.systems.fed_contextual.computing.server import (
    Measured,
    State,
    advance,
    begin,
    deploy,
    floats,
)
from posse.systems.fed_contextual.computing.tasks import Rates, Task
from posse.systems.fed_contextual.computing.training import average_reward, joined, load, save
from posse.systems.fed_contextual.flower.deployment import (
    Version,
    Versions,
    version_of,
    write_version,
)
from posse.systems.fed_contextual.flower.device import first_model, rates_of, task_of
from posse.systems.fed_contextual.flower.evaluation import evaluate
from posse.systems.fed_contextual.flower.fleet import Fleet, Sum, sum_of
from posse.systems.fed_contextual.flower.noise import Account, drawn, with_noise
from posse.systems.fed_contextual.flower.recording import listed, record_id, write_metrics
from posse.systems.fed_contextual.flower.settings import (
    EVALUATIONS,
    FAILED,
    MODEL,
    PROGRESS,
    RESULT,
    STATE,
    DeviceSettings,
    alone,
    check_begun,
    keep_lines,
    lines_of,
    note_begun,
)

HAIR = 2.0**-20
"""Standard deviation by which a model of a secure run is moved: the first one, and one that a round
left as it was.
"""
TRIES = 5
"""How often a round is done again before the run is given up; under noise, rounds in a row without
an answer.
"""


def make() -> ServerApp:
    """Make the app."""
    app = ServerApp()
    app.main()(main)
    return app


def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    out = Path(str(context.run_config.get("out", "."))).expanduser()
    try:
        run(grid, DeviceSettings.of(dict(context.run_config)), str(context.run_id))
    except Exception as error:
        text = str(error) if isinstance(error, PosseError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            out.mkdir(parents=True, exist_ok=True)
            (out / FAILED).write_text(text)
        raise


def run(grid: Grid, settings: DeviceSettings, run_id: str) -> State:
    """Run the rounds that the folder's state has not seen."""
    out = Path(settings.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        under_way = _Run(grid, settings, run_id, out)
        with listed(settings, out) as beat:
            under_way.train(beat)
        return under_way.state


class _Run:
    """A run whose folder no other process has open."""

    def __init__(self, grid: Grid, settings: DeviceSettings, run_id: str, out: Path) -> None:
        self.settings, self.run_id, self.out = settings, run_id, out
        self.task = task_of(settings)
        self.fleet = Fleet(grid, settings, lambda text: log(WARNING, "%s", text))
        self.state, self.seen = _begun(self.task, settings, out)
        self.account = Account(settings, out, self.done) if settings.noise else None
        if self.account and self.account.over and not self.seen:
            raise BudgetError(
                "the limit was spent on rounds that were never finished. Raise it, or name another "
                "folder."
            )
        self.versions = Versions(out)
        # A run that was stopped in its first round may begin with another model.
        if not self.seen or not self.versions.known():
            self.versions.add(self._version(self.done, self.state.deployed))

    @property
    def done(self) -> int:
        """Rounds done."""
        return int(self.state.round)

    @property
    def spent(self) -> float | None:
        """Epsilon spent so far; none without noise."""
        return None if self.account is None else self.account.epsilon

    def train(self, beat: Callable[[int, int], None]) -> None:
        """Do the rounds that are left, and deploy what they learn."""
        settings, newest = self.settings, self.versions.known()[-1]
        if newest < self.done and self._is_due():
            self._keep()
        while self.done < settings.rounds and not (self.account and self.account.over):
            self._round()
            # Before an evaluation: devices give one vector for a model.
            save(self.out / STATE, self.state, joined(self.seen))
            if self.done % settings.deploy_every == 0:
                self._keep()
            write_metrics(self.out, self.spent)
            beat(self.done, settings.rounds)
        if self.versions.known()[-1] < self.done:
            self._keep()
        self.fleet.spread(self.versions, wait=True)
        write_metrics(self.out, self.spent)
        _finish(self.out, self.fleet, self.state, joined(self.seen), self.account)

    def _is_due(self) -> bool:
        """Whether the run was stopped while its newest version was evaluated or deployed."""
        wanted = self.versions.wanted
        due = self.done % self.settings.deploy_every == 0
        return due or (wanted is not None and wanted.version == self.done)

    def _round(self) -> None:
        began, number = time.monotonic(), self.done
        self.fleet.spread(self.versions)
        if self.account:
            self.account.pay()
        added = (_once if self.account else _until_enough)(self.fleet, self.state, self.run_id)
        sums = jnp.asarray(added.sums, jnp.float32)
        rates = rates_of(self.settings)
        self.state, measured = _advanced(self.task, rates, self.state, added.total, sums)
        if self.fleet.was_unmasked(self.state):
            moved = _by_a_hair(self.state.params, self.settings.seed, self.done)
            self.state = self.state._replace(params=moved)
        self.seen.append(jax.tree.map(np.atleast_1d, measured))
        seconds = time.monotonic() - began
        _report(self.out, number, self.fleet, measured, added, seconds, self.spent)

    def _keep(self) -> None:
        """Keep the newest model as a version and deploy it, if its estimate passes the gate where
        there is one.
        """
        version, passed, estimate = self.done, True, ""
        if self.settings.evaluate:
            passed, estimate = evaluate(
                self.fleet, self.state, version, self.run_id, self.account, self.out
            )
        if passed:
            self.state = deploy(self.state)
        if version % self.settings.deploy_every == 0:
            save(self.out / STATE, self.state, joined(self.seen))
        wanted = self.versions.add(self._version(version, self.state.params), want=passed)
        if estimate:
            level = INFO if wanted.version == version else WARNING
            log(level, "%s: %s", estimate, wanted.said(version))

    def _version(self, number: int, params: Tree) -> Version:
        return version_of(self.settings, record_id(self.out), number, leaves_of(params))


@partial(jax.jit, static_argnames="task")
def _advanced(
    task: Task, rates: Rates, state: State, total: Tree, sums: jax.Array
) -> tuple[State, Measured]:
    return advance(task, rates, state, floats(task, state, total), sums)


def _begun(task: Task, settings: DeviceSettings, out: Path) -> tuple[State, list[Measured]]:
    seed = settings.seed if settings.seed >= 0 else secrets.randbits(31)
    check_begun(settings, out)
    if not (out / STATE).exists():
        note_begun(settings, out)
        (out / PROGRESS).write_text("")
        state = begin(task, seed, first_model(settings))
        if settings.secure and settings.seed < 0:  # another run may have begun from the same model
            state = begin(task, seed, _by_a_hair(state.params, settings.seed, 0))
        return state, []
    try:
        state, seen = load(out / STATE, begin(task, seed))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{out / STATE} is damaged ({error}). Name another folder with 'out'."
        ) from None
    keep_lines(out, PROGRESS, int(state.round))
    keep_lines(out, EVALUATIONS)
    log(INFO, "going on after round %d", int(state.round))
    return state, [seen]


def _by_a_hair(params: Tree, seed: int, round_: int) -> Tree:
    """Make another model of one that devices may have helped with: they give one vector for a
    model.
    """
    leaves, shape = jax.tree.flatten(params)
    numbers = drawn([np.shape(leaf) for leaf in leaves], seed, round_)
    moved = [
        jnp.asarray(
            leaf + HAIR * np.maximum(1, np.abs(leaf)) * one, jnp.float32
        )  # more than the spacing of floats
        for leaf, one in zip(map(np.asarray, leaves), numbers, strict=True)
    ]
    return jax.tree.unflatten(shape, moved)


def _until_enough(fleet: Fleet, state: State, run_id: str) -> Sum:
    """Add up a round, again where too few answered."""
    number = int(state.round)
    for _ in range(TRIES):
        added = sum_of(fleet, fleet.cohort(state), state, run_id)
        if added is not None:
            return added
        log(WARNING, "round %d had too few answers and is done again", number + 1)
    raise ProtocolError(
        f"round {number + 1} had too few answers {TRIES} times; the last trouble was: {fleet.last}"
    )


def _once(fleet: Fleet, state: State, run_id: str) -> Sum:
    """Add up whatever a round gives, nothing too, and add the noise: doing it again would void the
    guarantee.
    """
    settings, number = fleet.settings, int(state.round)
    nodes = fleet.cohort(state)
    plenty = len(nodes) >= settings.enough  # else the coins fell so
    added = sum_of(fleet, nodes, state, run_id) if plenty else None
    fleet.in_vain = fleet.in_vain + 1 if plenty and added is None else 0
    if fleet.in_vain == TRIES:
        raise ProtocolError(
            f"{TRIES} rounds in a row gave no sum; the last trouble was: {fleet.last}"
        )
    if added is None:
        log(
            WARNING,
            "round %d is noise alone: no sum of the %d devices that were drawn",
            number + 1,
            len(nodes),
        )
        kind = np.int32 if settings.rounded_to else np.float32
        added = Sum(jax.tree.map(lambda leaf: np.zeros(leaf.shape, kind), state.params), [0.0] * 5)
    return added._replace(total=with_noise(added.total, settings, state), noise=settings.noise)


def _report(
    out: Path,
    number: int,
    fleet: Fleet,
    measured: Measured,
    added: Sum,
    seconds: float,
    epsilon: float | None,
) -> None:
    """Write the line of a round: what it showed, and how it was protected."""
    samples = max(1.0, float(measured.samples))
    line = {
        "round": number + 1,
        "of": fleet.settings.rounds,
        "clients": list(added.devices),
        "samples": int(measured.samples),
        "reward": float(measured.reward) / samples,
        "probability": float(measured.probability) / samples,
        "within": float(measured.within),
        "limit": float(measured.limit),
        "seconds": round(seconds, 3),
        "masked": added.masked or not added.devices,
        "noise": added.noise,
        "authenticated": fleet.authenticated,
        "sent": fleet.sent,
        "came": fleet.came,
        "lost": sorted(fleet.lost),
        **({} if epsilon is None else {"epsilon": epsilon}),
    }
    fleet.sent, fleet.came, fleet.lost = [0, 0], [0, 0], set()
    with (out / PROGRESS).open("a") as file:
        file.write(json.dumps(line) + "\n")
    log(
        INFO,
        "round %d of %d: %d devices, average reward %.4f",
        number + 1,
        line["of"],
        len(added.devices),
        line["reward"],
    )
    if added.devices and not measured.samples:
        log(
            WARNING,
            "round %d: no device had a sample that it could use; their logs say why",
            number + 1,
        )


def _finish(out: Path, fleet: Fleet, state: State, seen: Measured, account: Account | None) -> None:
    settings = fleet.settings
    write_version(
        out / MODEL, version_of(settings, record_id(out), int(state.round), leaves_of(state.params))
    )
    result = {
        "rounds": int(state.round),
        "average_reward": float(average_reward(seen)[-1]),
        "secure": all(line["masked"] for line in lines_of(out)),
        "reproducible": settings.seed >= 0,
        "model": str(out / MODEL),
        "record": record_id(out),
        "waiting": fleet.waiting(Versions(out)),
        **({} if account is None else _spent(account)),
    }
    write_whole(out / RESULT, json.dumps(result, indent=1).encode())


def _spent(account: Account) -> dict[str, Any]:
    """Return what a run under noise has cost."""
    stopped = {"stopped": "the limit of epsilon allows no further round"} if account.over else {}
    return {"paid_rounds": account.paid, "privacy": account.figures(), **stopped}
