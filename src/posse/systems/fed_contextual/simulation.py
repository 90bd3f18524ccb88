"""A run made from settings: a population, a model and a world on a device, states kept in a folder,
and an estimate.

`Simulation` does rounds, `Kept` is a folder of states from which the same command goes on, and
`estimate` says what another policy would earn with the deployed model, from logs of devices that
acted with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import jax
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.interrupts import defer_interrupt, run_interruptibly
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.policies.evaluation.offline import FEWEST, Estimate, Log, evaluate
from posse.problems.populations.worlds import Scenario
from posse.systems.fed_contextual import study
from posse.systems.fed_contextual.computing.client import act
from posse.systems.fed_contextual.computing.client import rows as rows_of
from posse.systems.fed_contextual.computing.cohorts import OverflowingCohort, draw, versions
from posse.systems.fed_contextual.computing.models import HEADER, Contexts, Labels, Model, Tree
from posse.systems.fed_contextual.computing.rounds import (
    Source,
    emptied,
    gather_with_contexts,
    host,
)
from posse.systems.fed_contextual.computing.server import Measured, State, begin, models_of
from posse.systems.fed_contextual.computing.tasks import (
    ACT,
    Pay,
    Policy,
    Rates,
    greedy,
    key_of,
    policy_of,
)
from posse.systems.fed_contextual.computing.training import (
    Plan,
    Run,
    joined,
    load,
    save,
    train,
    train_many,
)
from posse.systems.fed_contextual.jobs import Job, Pretraining
from posse.systems.fed_contextual.settings import FedContextual, Setup
from posse.systems.fed_contextual.study import Bench, computing_on, device_of

TOGETHER = {"cpu": 1, "gpu": 50}
"""Rounds in one call. A run can be interrupted and kept between calls: on a CPU, where a call costs
little beside a round, after every round, and one program does for any number of them.
"""
FORMAT = "posse fed-contextual 1"
FREE = (
    "keep",
    "rounds",
    "horizon",
    "runs",
    "points",
    "limit",
    "evaluate",
    "model_out",
    "supervised",
)
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
        self.settings, self.setup, self.runs = (
            settings,
            setup,
            settings.runs if runs is None else runs,
        )
        self.device, self.together = device_of(settings.device), TOGETHER[settings.device]
        self.bench = Bench(setup.population, settings.device, own=setup.own, cores=settings.cores)

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
        """Return the state before the first round: drawn, or pre-trained where the scenario has it
        so.
        """
        before = self._pretrained(seed) if self.setup.world.pretrained else None
        with defer_interrupt():
            return begin(self.plan.task, seed, before)

    def rounds(
        self, states: Sequence[State], upto: int, seeds: Sequence[int], source: Source | None = None
    ) -> list[tuple[State, Measured]]:
        """Run rounds of some runs that stand at the same round, up to a number of them and at most
        `together`.

        Ctrl-C waits until they are done: a compiler must not be cut in the middle.
        """
        plan = self.plan._replace(schedule=self.plan.schedule._replace(rounds=upto))
        runs = [
            Run(*self.job.pairs[0], seed, state) for seed, state in zip(seeds, states, strict=True)
        ]
        source = self.source if source is None else source
        cores = self.bench.spread
        return _next(
            train_many(plan, runs, source, side=self.side, together=self.together, cores=cores)
        )

    def until(self, done: int) -> int:
        """Return the round at which the call ends that begins after `done` rounds; the same for
        every run.
        """
        return min(self.setup.rounds, (done // self.together + 1) * self.together)

    def warm_up(self) -> None:
        """Compile what rounds call, pre-training included, on clients without samples; Ctrl-C waits
        for none of it.
        """
        run_interruptibly(self._compile)

    def _compile(self) -> None:
        with computing_on(self.device):  # of this thread alone
            empty, planned = emptied(self.source), self.setup.rounds
            for rounds in {min(planned, self.together), planned % self.together} - {0}:
                self.rounds([begin(self.plan.task, 0)], rounds, [0], empty)
            if self.setup.world.pretrained:
                _next(self._pretraining(self.settings.seed, empty))

    def _pretrained(self, seed: int) -> Tree:
        """Learn from all rewards of some clients, without noise and with sums of floats."""
        with defer_interrupt():
            states = self._pretraining(seed)
        for _ in range(0, self.job.pretraining.rounds, self.together):
            with defer_interrupt():
                state = _next(states)
        return state.params

    def _pretraining(self, seed: int, source: Source | None = None) -> Iterator[State]:
        return self.bench.pretraining(
            self.plan, self.job, self.setup.world, seed, self.together, source
        )


def check_finite(seen: Measured, done: int, client_rate: float, server_rate: float) -> None:
    """Refuse to go on with numbers that are none.

    Of an update that is not finite clipping leaves nothing: where that happens to all of a round,
    nothing is learnt.
    """
    lost = (
        (np.asarray(seen.within) == 0)
        & (np.asarray(seen.moved) == 0)
        & (np.asarray(seen.clients) > 0)
    )
    if lost.any() or not all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(seen)):
        raise DataError(
            f"numbers stopped being finite before round {done}: the model diverged. Lower "
            "client_rate "
            f"({client_rate:g}) or server_rate ({server_rate:g})."
        )


def _job(asked: FedContextual, made: Setup) -> Job:
    """Return the job that a study would name for these settings."""
    before = Pretraining(
        asked.pretraining,
        made.world.pretrained or asked.pretrained,
        made.pretraining_client_rate,
        asked.pretraining_server_rate,
        asked.pretraining_optimiser,
        *(
            ()
            if made.before is None
            else (asked.update_noise(made.before.gaussian), asked.count_noise, made.sampling)
        ),
    )
    drift, answers = asked.drifting(len(made.population.arms)), asked.answers()
    same = (
        "scenario",
        "loss",
        "optimiser",
        "deploy_every",
        "seeds",
        "cohort",
        "batch",
        "cap",
        "levels",
        "hidden",
        "channels",
        "centralised",
        "schedule",
        "stale",
        "keep_log",
        "available",
    )
    noise = 0.0 if made.mechanism is None else asked.update_noise(made.mechanism)
    return Job(
        "run",
        policy=asked.exploration(),
        **{name: getattr(asked, name) for name in same},
        model=made.model if made.own.model is None else "auto",
        rounds=made.rounds,
        sampling=made.sampling,
        quantile=made.quantile,
        clip=asked.norm,
        noise=noise,
        clip_noise=asked.count_noise,
        pretraining=before,
        client_rate=made.client_rate,
        server_rate=made.server_rate,
        drift=None if drift is None else {"kind": asked.drift, **vars(drift)},
        availability=None if answers is None else vars(answers),
    )


def _next(rounds: Iterator[T]) -> T:
    try:
        with defer_interrupt():
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
        settled = {
            **{name: getattr(setup, name) for name in rates},
            "input_size": setup.input_size or None,
            "scale": setup.scale,
            **{one.name: one.default for kind in EXPLORATIONS.values() for one in fields(kind)},
        }
        config = {**settings.resolved(), **settled, **settings.parameters(), "own": own}
        defaults = {**FedContextual().resolved(), **settled, "scale": "none", "own": []}
        config, usual = (
            {k: v for k, v in some.items() if k not in FREE} for some in (config, defaults)
        )
        population = setup.population.describe()
        if (
            scaling := setup.population.scaling
        ) is not None:  # kept models are of contexts that were scaled so
            population["scaling"] = scaling._asdict()
        header = json.loads(
            json.dumps({"format": FORMAT, "settings": config, "population": population})
        )
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
            if len(seen.reward) != int(state.round):
                raise ValueError("rounds that it does not show would not be paid for")
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            raise DataError(
                f"{path} is damaged, or not of a run with these settings. Remove it to begin that "
                "run anew."
            ) from None
        if int(state.round) > rounds:
            raise ConfigError(
                f"{path} already holds {int(state.round)} rounds, got a run of {rounds}. Run more "
                "rounds, or keep the run in another folder."
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
        raise DataError(
            f"{path} cannot be read ({error}). Keep the run in another folder."
        ) from None
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
                f"{folder} holds a run with {name} {before.get(name)!r}, got {now.get(name)!r}. Go "
                "on with the former, "
                "or keep this one in another folder."
            )


def supervised_rewards(simulation: Simulation, seed: int) -> NDArray[np.float64]:
    """Return what a supervised model of the same class earns in every round of a run, on the
    devices of that round.

    It learns from all rewards of all devices in as many rounds as the run has, with pre-training's
    rates, and then chooses the best arm by its scores: the policy that federated regret is measured
    against.
    """
    asked, made, plan, bench = (
        simulation.settings,
        simulation.setup,
        simulation.plan,
        simulation.bench,
    )
    rewards, clients = made.world.rewards, made.population.clients
    world = Scenario("init", rewards, clients, rewards, np.ones(len(made.population.arms), bool))
    job = replace(
        simulation.job,
        pretraining=Pretraining(
            made.rounds,
            clients,
            made.pretraining_client_rate,
            asked.pretraining_server_rate,
            asked.pretraining_optimiser,
        ),
    )
    learns = study.supervised(
        plan, job, made.population, world, seed, made.own._replace(before=None)
    )
    source = bench.source(asked.cap, learns.schedule.samples)
    *_, (taught, _) = train(
        learns, begin(learns.task, seed), source, seed, together=simulation.together
    )
    acts = plan._replace(
        task=plan.task._replace(learns=False, policy=greedy, levels=0),
        rates=plan.rates._replace(explore=(), noise=0.0),
        explores=None,
    )
    first = begin(acts.task, seed, taught.params)
    parts = [seen for _, seen in train(acts, first, source, seed, together=simulation.together)]
    return np.asarray(joined(parts).reward, np.float64)


def estimate(simulation: Simulation, state: State, seed: int) -> Estimate | str:
    """Estimate (SNIPS, clients as clusters) the reward a decision of the policy to evaluate, on one
    more cohort.

    A device acts with the deployed model that it has. Logs that leave choices of that policy
    without support give the reason instead of a number.
    """
    asked, made, plan = simulation.settings, simulation.setup, simulation.plan
    assert asked.evaluate is not None
    done, clients, arms = int(state.round), made.population.clients, len(made.population.arms)
    numbers, present = draw(seed, done, clients, min(DEVICES, clients), "fixed")
    ages = done // plan.schedule.deploy_every - versions(plan.schedule, seed, done, numbers)
    models = models_of(state)
    gather = host(made.population, plan.schedule.samples, asked.cap)
    gather = gather if made.own.pay is None else gather_with_contexts(gather)
    today = plan.at(done)
    if plan.here is not None:  # the run is over: the arms of its last round
        today = today._replace(here=plan.at(max(0, done - 1)).here)
    other = asked.other()
    target, values = policy_of(type(other)), other.values(arms)
    rows: list[list[Any]] = []
    for number, age in zip(numbers, ages, strict=True):
        cohort = gather(np.array([number], np.int32), present[:1], done)
        contexts, labels, mask = jax.tree.map(
            lambda leaf: leaf[0], (cohort.contexts, cohort.labels, cohort.mask)
        )
        key, then = key_of(seed, ACT, done, int(number)), today.then(0, age)
        with defer_interrupt():
            acted = _logged(
                plan.task.model,
                plan.task.policy,
                target,
                plan.task.pay,
                rows_of(models, int(age)),
                state.deployed,
                contexts,
                labels,
                mask,
                key,
                then,
                values,
            )
        real = np.asarray(mask) > 0
        rows.append([np.full(real.sum(), number), *(np.asarray(one)[real] for one in acted)])
    who, chosen, rewards, chances, logging, wanted = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    reward, chance, every, likely = (
        np.asarray(one, np.float64) for one in (rewards, chances, logging, wanted)
    )
    try:
        log = Log(chosen.astype(np.int64), reward, chance, every, who.astype(np.int64))
        found = evaluate(log, likely / likely.sum(axis=1, keepdims=True), "snips")
        if found.effective >= FEWEST:
            return found
        return (
            f"its effective sample size is {found.effective:.1f}, and {FEWEST:.0f} are needed. "
            "Explore more."
        )
    except DataError as error:
        return str(error)


@partial(jax.jit, static_argnames=("model", "policy", "target", "pay"))
def _logged(
    model: Model,
    policy: Policy,
    target: Policy,
    pay: Pay,
    held: Tree,
    deployed: Tree,
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    key: jax.Array,
    rates: Rates,
    other: tuple[float, ...],
) -> tuple[jax.Array, ...]:
    """Act once with the model that a device has; also the chances of every arm, by its policy and
    by the target.
    """

    def paid(given: Labels, arms: jax.Array) -> jax.Array:
        return pay(given, arms, *rates.pays)

    choose = partial(rates.chances, policy)
    log, scores = (
        act(model, held, choose, paid, contexts, labels, mask, key),
        model.scores(deployed, contexts),
    )
    chances = choose(model.scores(held, contexts))
    return log.arms, log.rewards, log.probabilities, chances, rates.chances(target, scores, other)
