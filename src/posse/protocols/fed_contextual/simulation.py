"""A run made from settings: a population, a model and a world on a device, states kept in a folder, and an estimate.

`Simulation` does rounds, `Kept` is a folder of states from which the same command goes on, and `estimate` says what
another policy would earn with the deployed model, from logs of devices that acted with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.core.interrupts import held
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.policies.evaluation.offline import FEWEST, Estimate, Log, evaluate
from posse.protocols.fed_contextual.client import act
from posse.protocols.fed_contextual.cohorts import OverflowingCohort, draw
from posse.protocols.fed_contextual.jobs import Job, Pretraining
from posse.protocols.fed_contextual.models import Model, Tree
from posse.protocols.fed_contextual.rounds import Source, emptied, host, with_contexts
from posse.protocols.fed_contextual.server import Measured, State, begin
from posse.protocols.fed_contextual.settings import FedContextual, Setup
from posse.protocols.fed_contextual.study import Bench, device_of
from posse.protocols.fed_contextual.tasks import ACT, Pay, Policy, key_of, policy_of
from posse.protocols.fed_contextual.training import Plan, Run, load, save, train_many

TOGETHER = {"cpu": 1, "gpu": 50}
"""Rounds in one call. A run can be interrupted and kept between calls: on a CPU, where a call costs little beside a
round, after every round, and one program does for any number of them."""
FORMAT = "posse fed-contextual 1"
HEADER = "run.json"
FREE = ("keep", "rounds", "horizon", "runs", "points", "limit", "evaluate", "model_out")
"""Settings that may change when a run goes on."""
_EVERY = 10.0
"""Seconds between two states that are kept."""
DEVICES = 200
"""Devices whose logs an estimate uses, at most."""

T = TypeVar("T")


class Simulation:
    """A population, a model and a world on a device; runs differ by their seed alone."""

    def __init__(self, settings: FedContextual, setup: Setup, runs: int | None = None) -> None:
        """`runs`: of how many seeds, where not the settings' own number."""
        self.settings, self.setup, self.runs = settings, setup, settings.runs if runs is None else runs
        self.device, self.together = device_of(settings.device), TOGETHER[settings.device]
        self.bench = Bench(setup.population, settings.device, own=setup.own)

    @cached_property
    def job(self) -> Job:
        """The settings as a job of a study."""
        return _job(self.settings, self.setup)

    @cached_property
    def plan(self) -> Plan:
        """The bandit phase."""
        return self.bench.plan(self.job, self.setup.world)

    @cached_property
    def source(self) -> Source:
        """Where cohorts come from."""
        return self.bench.source(self.settings.cap, self.plan.schedule.samples)

    @cached_property
    def side(self) -> int:
        """Runs side by side."""
        return self.bench.side_by_side(self.runs, self.source)

    def first(self, seed: int) -> State:
        """Return the state before the first round: drawn, or pre-trained where the scenario has it so."""
        before = self._pretrained(seed) if self.setup.world.pretrained else None
        with held():
            return begin(self.plan.task, seed, before)

    def rounds(
        self, states: Sequence[State], upto: int, seeds: Sequence[int], source: Source | None = None
    ) -> list[tuple[State, Measured]]:
        """Run rounds of some runs that stand at the same round, up to a number of them and at most `together`.

        Ctrl-C waits until they are done: a compiler must not be cut in the middle.
        """
        plan = self.plan._replace(schedule=self.plan.schedule._replace(rounds=upto))
        runs = [Run(*self.job.pairs[0], seed, state) for seed, state in zip(seeds, states, strict=True)]
        source = self.source if source is None else source
        return _next(train_many(plan, runs, source, side=self.side, together=self.together))

    def until(self, done: int) -> int:
        """Return the round at which the call ends that begins after `done` rounds; the same for every run."""
        return min(self.setup.rounds, (done // self.together + 1) * self.together)

    def warm_up(self) -> None:
        """Compile what rounds call, pre-training included, on clients without samples; Ctrl-C waits for each part."""
        with held():
            empty, planned = emptied(self.source), self.setup.rounds
        for rounds in {min(planned, self.together), planned % self.together} - {0}:
            with held():
                self.rounds([begin(self.plan.task, 0)], rounds, [0], empty)
        if self.setup.world.pretrained:
            with held():
                _next(self._pretraining(self.settings.seed, empty))

    def _pretrained(self, seed: int) -> Tree:
        """Learn from all rewards of some clients, without noise and with sums of floats."""
        with held():
            states = self._pretraining(seed)
        for _ in range(0, self.job.pretraining.rounds, self.together):
            with held():
                state = _next(states)
        return state.params

    def _pretraining(self, seed: int, source: Source | None = None) -> Iterator[State]:
        return self.bench.pretraining(self.plan, self.job, self.setup.world, seed, self.together, source)


def check_finite(seen: Measured, done: int, client_rate: float, server_rate: float) -> None:
    """Refuse to go on with numbers that are none.

    Of an update that is not finite clipping leaves nothing: where that happens to all of a round, nothing is learnt.
    """
    lost = (np.asarray(seen.within) == 0) & (np.asarray(seen.moved) == 0) & (np.asarray(seen.clients) > 0)
    if lost.any() or not all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(seen)):
        raise DataError(
            f"numbers stopped being finite before round {done}: the model diverged. Lower client_rate "
            f"({client_rate:g}) or server_rate ({server_rate:g})."
        )


def _job(asked: FedContextual, made: Setup) -> Job:
    """Return the job that a study would name for these settings."""
    before = Pretraining(
        asked.pretraining, made.world.pretrained or asked.pretrained, made.pretraining_client_rate,
        asked.pretraining_server_rate, asked.pretraining_optimiser,
    )  # fmt: skip
    drift, answers = asked.drifting(len(made.population.arms)), asked.answers()
    same = ("scenario", "loss", "optimiser", "deploy_every", "seeds", "cohort",
            "batch", "cap", "clip", "noise", "levels", "hidden", "channels", "centralised")  # fmt: skip
    return Job(
        "run", policy=asked.exploration(), **{name: getattr(asked, name) for name in same},
        model=made.model if made.own.model is None else "auto", rounds=made.rounds, sampling=made.sampling,
        quantile=made.quantile, client_rate=made.client_rate, server_rate=made.server_rate, pretraining=before,
        drift=None if drift is None else {"kind": asked.drift, **vars(drift)},
        availability=None if answers is None else vars(answers),
    )  # fmt: skip


def _next(rounds: Iterator[T]) -> T:
    try:
        with held():
            return next(rounds)
    except OverflowingCohort as error:
        raise ConfigError(str(error)) from None


class Kept:
    """A folder of states, one file a seed; it belongs to one configuration.

    Custom functions are recorded as present; their code is not compared.
    """

    def __init__(self, folder: Path, settings: FedContextual, setup: Setup) -> None:
        """Open a folder; settings that a run from before them does not name have their defaults."""
        self._folder, self._last = folder, 0.0
        own = [name for name, given in setup.own._asdict().items() if given is not None]
        rates = ("client_rate", "server_rate", "pretraining_client_rate")
        settled = {**{name: getattr(setup, name) for name in rates}, "input_size": setup.input_size or None,
                   **{one.name: one.default for kind in EXPLORATIONS.values() for one in fields(kind)}}  # fmt: skip
        config = {**settings.resolved(), **settled, **settings.parameters(), "own": own}
        defaults = {**FedContextual().resolved(), **settled, "own": []}
        config, usual = ({k: v for k, v in some.items() if k not in FREE} for some in (config, defaults))
        population = setup.population.describe()
        header = json.loads(json.dumps({"format": FORMAT, "settings": config, "population": population}))
        path = folder / HEADER
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            there = path.exists()
            if not there:
                path.write_text(json.dumps(header, indent=1), encoding="utf-8")
        if there:
            found = _read(path)
            _agree({**found, "settings": {**usual, **found.get("settings", {})}}, header, folder)

    def load(self, seed: int, like: State, rounds: int) -> tuple[State, Measured] | None:
        """Return the state of a seed and what its rounds showed; nothing where none was kept."""
        path = self._path(seed)
        if not path.exists():
            return None
        try:
            state, seen = load(path, like)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            raise DataError(
                f"{path} is damaged, or not of a run with these settings. Remove it to begin that run anew."
            ) from None
        if int(state.round) > rounds:
            raise ConfigError(
                f"{path} holds {int(state.round)} rounds, and {rounds} are asked for. Ask for more, or keep elsewhere."
            )
        return state, seen

    def save(self, seed: int, state: State, seen: Measured) -> None:
        """Keep a state."""
        with _writing(self._folder):
            save(self._path(seed), state, seen)
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to keep a state again."""
        return time.monotonic() - self._last >= _EVERY

    def _path(self, seed: int) -> Path:
        return self._folder / f"seed-{seed}.npz"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError(f"a run cannot be kept in {folder}: {why}. Name another folder.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Keep the run in another folder.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{path} is not of a kept run. Keep the run in another folder.")
    return found


def _agree(found: dict[str, Any], header: dict[str, Any], folder: Path) -> None:
    """Name the first setting in which a kept run differs."""
    for part in ("settings", "population"):
        before, now = found.get(part, {}), header[part]
        name = next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
        if name is not None:
            raise ConfigError(
                f"{folder} holds a run with {name} {before.get(name)!r}, got {now.get(name)!r}. Go on with the former, "
                "or keep this one in another folder."
            )


def estimate(simulation: Simulation, state: State, seed: int) -> Estimate | str:
    """Estimate (SNIPS, clients as clusters) the reward a decision of the policy to evaluate, on one more cohort.

    Logs that leave choices of that policy without support give the reason instead of a number.
    """
    asked, made, plan = simulation.settings, simulation.setup, simulation.plan
    assert asked.evaluate is not None
    done, clients, arms = int(state.round), made.population.clients, len(made.population.arms)
    numbers, present = draw(seed, done, clients, min(DEVICES, clients), "fixed")
    gather = host(made.population, plan.schedule.samples, asked.cap)
    gather = gather if made.own.pay is None else with_contexts(gather)
    assert callable(gather)
    pays = plan.rates.pays if plan.pays is None else (jnp.asarray(plan.pays(done), jnp.float32),)
    other = asked.other()
    target, values = policy_of(type(other)), other.values(arms)
    rows: list[list[Any]] = []
    for number in numbers:
        cohort = gather(np.array([number], np.int32), present[:1], done)
        contexts, labels, mask = jax.tree.map(lambda leaf: leaf[0], (cohort.contexts, cohort.labels, cohort.mask))
        key = key_of(seed, ACT, done, int(number))
        with held():
            acted = _logged(
                plan.task.model, plan.task.policy, target, plan.task.pay, state.deployed, contexts, labels, mask, key,
                plan.rates.explore, values, pays,
            )  # fmt: skip
        real = np.asarray(mask) > 0
        rows.append([np.full(real.sum(), number), *(np.asarray(one)[real] for one in acted)])
    who, chosen, rewards, chances, logging, wanted = (np.concatenate(column) for column in zip(*rows, strict=True))
    floats = (np.asarray(one, np.float64) for one in (rewards, chances, logging))
    reward, chance, every = floats
    wanted = np.asarray(wanted, np.float64)
    try:
        log = Log(chosen.astype(np.int64), reward, chance, every, who.astype(np.int64))
        found = evaluate(log, wanted / wanted.sum(axis=1, keepdims=True), "snips")
        if found.effective >= FEWEST:
            return found
        return f"its effective sample size is {found.effective:.1f}, and {FEWEST:.0f} are needed. Explore more."
    except DataError as error:
        return str(error)


@partial(jax.jit, static_argnames=("model", "policy", "target", "pay"))
def _logged(
    model: Model, policy: Policy, target: Policy, pay: Pay, deployed: Any, contexts: Any, labels: Any, mask: jax.Array,
    key: jax.Array, explore: Any, other: Any, pays: Any,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Act once with the deployed model; also the chances of every arm, by both policies."""
    scores = model.scores(deployed, contexts)

    def choose(given: jax.Array) -> jax.Array:
        return policy(given, *explore)

    def paid(given: Any, arms: jax.Array) -> jax.Array:
        return pay(given, arms, *pays)

    log = act(model, deployed, choose, paid, contexts, labels, mask, key)
    return log.arms, log.rewards, log.probabilities, choose(scores), target(scores, *other)
