"""The app at the server: sample devices, send models, add clipped updates, take the optimiser's step, deploy.

Its folder (`out`) holds `state.npz` after every round, from which a run goes on that was stopped; `progress.jsonl`, a
line a round; `spent.json`, under noise; and at the end `model.npz` and `result.json`. What the server sees is what
`client_app` says leaves a device.

Without noise a round with too few answers is done again. Under noise a round is drawn once and counts as it is, also
without any answer: then it is noise alone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from posse.core.errors import BudgetError, PosseError, ProtocolError
from posse.protocols.fed_contextual.flower import carry
from posse.protocols.fed_contextual.flower.account import Account, check_folder
from posse.protocols.fed_contextual.flower.advance import Leaves, advanced, check_update, total_of
from posse.protocols.fed_contextual.flower.first import first_model
from posse.protocols.fed_contextual.flower.fleet import Fleet, Node
from posse.protocols.fed_contextual.flower.noise import with_noise
from posse.protocols.fed_contextual.flower.places import FAILED, PROGRESS, RESULT, STATE
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.flower.tasks import rates_of, task_of
from posse.protocols.fed_contextual.rounds import Measured, State, Task, begin, deploy
from posse.protocols.fed_contextual.training import average_reward, joined, load, save
from posse.protocols.fed_contextual.trees import size

MODEL = "model.npz"
MOST = 1e30
"""Rewards of a device, added up, are smaller."""
TRIES = 5
"""How often a round is done again before the run is given up; under noise, rounds in a row without an answer."""
Sum = tuple[Any, list[float], list[Any]]
"""A sum of updates, what was measured, and who is in it."""


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


def run(grid: Any, settings: DeviceSettings, run_id: str) -> State:
    """Run the rounds that the folder's state has not seen."""
    out = Path(settings.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    task, fleet = task_of(settings), Fleet(grid, settings, lambda text: log(WARNING, "%s", text))
    state, seen = _begun(task, settings, out)
    account = _account(settings, state, out)
    if account and account.over and not seen:
        raise BudgetError("the limit was spent on rounds that were never finished. Raise it, or name another folder.")
    while int(state.round) < settings.rounds and not (account and account.over):
        began, number = time.monotonic(), int(state.round)
        if account:
            account.pay()
        total, told, who = (_once if account else _until_enough)(fleet, state, run_id)
        state, measured = advanced(task, rates_of(settings), state, total, jnp.asarray(told, jnp.float32))
        if (number + 1) % settings.deploy_every == 0:
            state = deploy(state)
        seen.append(jax.tree.map(np.atleast_1d, measured))
        save(out / STATE, state, joined(seen))
        _tell(out, number, settings, measured, who, time.monotonic() - began)
    _finish(out, settings, state, joined(seen), account)
    return state


def _account(settings: DeviceSettings, state: State, out: Path) -> Account | None:
    check_folder(settings, out)
    return Account(settings, size(state.params), out, int(state.round)) if settings.noise else None


def _begun(task: Task, settings: DeviceSettings, out: Path) -> tuple[State, list[Measured]]:
    seed = settings.seed if settings.seed >= 0 else secrets.randbits(31)
    if not (out / STATE).exists():
        (out / PROGRESS).write_text("")
        return begin(task, seed, first_model(settings)), []
    try:
        state, seen = load(out / STATE, begin(task, seed))
    except ValueError as error:
        raise ProtocolError(f"{error} Or name another folder with 'out'.") from error
    log(INFO, "going on after round %d", int(state.round))
    return state, [seen]


def _until_enough(fleet: Fleet, state: State, run_id: str) -> Sum:
    """Add up a round, again where too few answered."""
    number = int(state.round)
    for _ in range(TRIES):
        found = _sum(fleet, fleet.cohort(number), state, run_id)
        if found is not None:
            return found
        log(WARNING, "round %d had too few answers and is done again", number + 1)
    raise ProtocolError(f"round {number + 1} had too few answers {TRIES} times; the last trouble was: {fleet.last}")


def _once(fleet: Fleet, state: State, run_id: str) -> Sum:
    """Add up whatever a round gives, nothing too, and add the noise: doing it again would void the guarantee."""
    settings, number = fleet.settings, int(state.round)
    nodes = fleet.cohort(number)
    drawn = len(nodes) >= settings.enough  # else the coins fell so
    found = _sum(fleet, nodes, state, run_id) if drawn else None
    fleet.in_vain = fleet.in_vain + 1 if drawn and found is None else 0
    if fleet.in_vain == TRIES:
        raise ProtocolError(f"{TRIES} rounds in a row gave no sum; the last trouble was: {fleet.last}")
    if found is None:
        log(WARNING, "round %d is noise alone: no sum of the %d devices that were drawn", number + 1, len(nodes))
        kind = np.int32 if settings.rounded_to else np.float32
        found = jax.tree.map(lambda leaf: np.zeros(leaf.shape, kind), state.params), [0.0] * 5, []
    total, told, who = found
    return with_noise(total, settings, state), told, who


def _sum(fleet: Fleet, nodes: Sequence[Node], state: State, run_id: str) -> Sum | None:
    """Ask devices for their updates and add them; None where too few answered."""
    settings, number = fleet.settings, int(state.round)
    sent = carry.order_of(state, number // settings.deploy_every * settings.deploy_every)
    if not settings.secure:
        return _plain_sum(fleet, nodes, state, sent)
    from posse.protocols.fed_contextual.flower.secure_server import secure_sum

    return secure_sum(fleet, nodes, number, sent, run_id, carry.shape_of(settings))


def _plain_sum(fleet: Fleet, nodes: Sequence[Node], state: State, sent: RecordDict) -> Sum | None:
    """Add updates in the order of the draw."""
    like, number = carry.shape_of(fleet.settings), int(state.round)
    updates, told, who = [], np.zeros(5, np.float32), []
    for node, reply in fleet.ask(dict.fromkeys(nodes, sent), number).items():
        try:
            update, said, client = _read(reply, fleet.settings, jax.tree.leaves(like), float(state.limit))
        except Exception as error:  # whatever one device sends, it ends no run
            fleet.say(f"round {number + 1}: {node.name or node.id} sent what does not belong to the round: {error}")
            continue
        updates.append(update)
        who.append(client)
        told += said
    if len(updates) < fleet.settings.least:
        return None
    return carry.tree_of(total_of(updates), like), told.tolist(), who


def _read(
    reply: RecordDict, settings: DeviceSettings, like: list[Any], limit: float
) -> tuple[Leaves, NDArray[np.float32], int]:
    """Read a device's answer: its update, what it measured, its number; what no honest device sends is refused."""
    metrics: Any = reply[carry.TOLD]
    known: Any = reply[carry.ROUND]
    update = carry.unpacked(reply[carry.UPDATE])
    check_update(update, like, limit, settings.rounded_to)
    reward, samples, probability, within = (
        float(metrics[name]) for name in ("reward", "samples", "probability", "within")
    )
    if not (0 <= probability <= samples + 1 <= settings.samples + 1 and 0 <= within <= 1 and abs(reward) < MOST):
        raise ProtocolError("what is measured must be of at most as many samples as a device has.")
    return update, np.array([reward, samples, probability, 1.0, within], np.float32), int(known["client"])


def _tell(
    out: Path, number: int, settings: DeviceSettings, measured: Measured, who: list[Any], seconds: float
) -> None:  # fmt: skip
    samples = max(1.0, float(measured.samples))
    line = {
        "round": number + 1, "of": settings.rounds, "clients": who, "samples": int(measured.samples),
        "reward": float(measured.reward) / samples, "probability": float(measured.probability) / samples,
        "within": float(measured.within), "limit": float(measured.limit), "seconds": round(seconds, 3),
    }  # fmt: skip
    with (out / PROGRESS).open("a") as file:
        file.write(json.dumps(line) + "\n")
    log(INFO, "round %d of %d: %d devices, average reward %.4f", number + 1, settings.rounds, len(who), line["reward"])


def _finish(out: Path, settings: DeviceSettings, state: State, seen: Measured, account: Account | None) -> None:
    leaves = {f"leaf{at}": leaf for at, leaf in enumerate(carry.leaves_of(state.params))}
    np.savez(out / MODEL, allow_pickle=False, deployment=np.array(int(state.round)), **leaves)
    result = {
        "rounds": int(state.round), "average_reward": float(average_reward(seen)[-1]), "secure": settings.secure,
        "reproducible": settings.seed >= 0, "model": str(out / MODEL), **({} if account is None else _spent(account)),
    }  # fmt: skip
    part = out / f"{RESULT}.part"
    part.write_text(json.dumps(result, indent=1))
    part.replace(out / RESULT)


def _spent(account: Account) -> dict[str, Any]:
    """Return what a run under noise has cost."""
    stopped = {"stopped": "the limit of epsilon allows no further round"} if account.over else {}
    return {"paid_rounds": account.paid, "privacy": account.figures(), **stopped}
