"""A run from its settings to its record: cohorts of simulated devices, one server, one model."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax
import numpy as np
from numpy.typing import NDArray

from posse.privacy.dp.sampled import Accountant
from posse.privacy.dp.training_ledger import TrainingLedger
from posse.protocols.fed_contextual.kept import Kept
from posse.protocols.fed_contextual.levels import leaks, level_of, not_covered
from posse.protocols.fed_contextual.offline import estimate
from posse.protocols.fed_contextual.rounds import Measured, begin
from posse.protocols.fed_contextual.settings import PARAMETERS, FedSettings, Setup
from posse.protocols.fed_contextual.simulation import Simulation, check_finite
from posse.protocols.fed_contextual.training import joined
from posse.results.interrupted import Interrupted
from posse.results.points import points_of
from posse.results.progress import Progress, Watch
from posse.results.record import RunRecord
from posse.results.values import JSON, plain_dict

Floats = NDArray[np.float64]
Summary = dict[str, str | float | int]

KIND = "fed-contextual"
WORDS = {"step": "round", "pull": "decision", "party": "device"}


@dataclass
class Outcome:
    """What one run showed, up to where it came."""

    seed: int
    parts: list[Measured] = field(default_factory=list)
    rounds: int = 0
    """Rounds done."""
    estimated: object = None
    """What another policy would earn, or why that cannot be told."""

    def add(self, some: Measured) -> None:
        """Put further rounds behind those that were there."""
        self.parts.append(some)
        self.rounds += len(np.asarray(some.reward))

    @property
    def seen(self) -> Measured:
        """What all rounds showed."""
        self.parts[:] = [joined(self.parts)]
        return self.parts[0]

    def column(self, name: str) -> Floats:
        """One number a round."""
        return np.asarray(getattr(self.seen, name) if self.parts else [], np.float64)


@dataclass
class Clock:
    """Time of rounds, without compiling and pre-training."""

    rounds: int = 0
    wall: float = 0.0


def run_fed(settings: FedSettings, *, watch: Watch | None = None, setup: Setup | None = None) -> RunRecord:
    """Run the bandit of the settings once a seed, and record it; `setup` is what `settings.check()` gave, if at hand.

    >>> record = run_fed(FedSettings(clients=20, rounds=4, cohort=5, deploy_every=2))
    >>> record.steps.tolist(), record.level, record.summary["rounds_done"]
    ([1, 2, 3, 4], 'plain', 4)
    """
    setup = settings.check() if setup is None else setup
    simulation = Simulation(settings, setup)
    outcomes: list[Outcome] = []
    clock = Clock()
    kept = None if settings.keep is None else Kept(settings.keep, settings.resolved(), setup.population.describe())
    with jax.default_device(simulation.device):
        simulation.warm_up()
        started = time.process_time()
        try:
            for number, seed in enumerate(settings.seeds):
                _run(simulation, seed, number, outcomes, clock, kept, watch)
        except KeyboardInterrupt as stop:
            seconds = time.process_time() - started
            raise Interrupted(_record(settings, setup, outcomes, clock, seconds, "interrupted")) from stop
    return _record(settings, setup, outcomes, clock, time.process_time() - started, "finished")


def _run(
    simulation: Simulation, seed: int, number: int, outcomes: list[Outcome], clock: Clock, kept: Kept | None,
    watch: Watch | None,
) -> None:  # fmt: skip
    """Run one seed, from where it was kept; whatever it did stays in `outcomes`, also when interrupted."""
    asked, planned = simulation.settings, simulation.setup.rounds
    outcome = Outcome(seed)
    outcomes.append(outcome)
    found = None if kept is None else kept.load(seed, begin(simulation.task, seed), planned)
    if found is not None:
        outcome.add(found[1])
    state = simulation.first(seed) if found is None else found[0]
    ledger = simulation.setup.ledger()
    if ledger is not None and outcome.rounds:
        ledger.spend(outcome.rounds)
    try:
        while (done := int(state.round)) < planned:
            upto = simulation.until(done)
            if ledger is not None:
                ledger.spend(upto - done)  # paid for before a cohort is drawn
            began = time.perf_counter()
            state, some = simulation.rounds(state, upto, seed)
            check_finite(some, upto, asked)
            clock.wall += time.perf_counter() - began
            clock.rounds += upto - done
            outcome.add(some)
            if kept is not None and kept.due:
                kept.save(seed, state, outcome.seen)
            if watch is not None:
                watch(Progress(number, asked.runs, (number + upto / planned) / asked.runs))
    finally:
        if kept is not None and outcome.rounds and outcome.rounds == int(state.round):
            kept.save(seed, state, outcome.seen)
    if asked.evaluate is not None:
        outcome.estimated = estimate(simulation, state, seed)


def _record(
    settings: FedSettings, setup: Setup, outcomes: list[Outcome], clock: Clock, seconds: float, status: str
) -> RunRecord:
    """Make the record; of an interrupted one only whole runs count, if there are any."""
    if status != "finished":
        whole = [outcome for outcome in outcomes if outcome.rounds == setup.rounds]
        outcomes = whole or [outcome for outcome in outcomes[:1] if outcome.rounds]
    done = min((outcome.rounds for outcome in outcomes), default=0)
    points = points_of(setup.rounds, settings.points)
    points = points[points <= done]
    curves = [outcome.column("reward")[:done].cumsum()[points - 1] for outcome in outcomes]
    config = _config(settings, setup)
    return RunRecord(
        kind=KIND,
        config=config,
        problem={**plain_dict(setup.population.describe(), "problem"), "names": list(setup.population.arms),
                 "words": dict(WORDS)},
        level=level_of(settings.noise, settings.levels),
        leaks=leaks(config),
        seeds=tuple(outcome.seed for outcome in outcomes),
        steps=points,
        reward=np.array(curves).reshape(len(outcomes), len(points)),
        total=tuple(float(outcome.column("reward").sum()) for outcome in outcomes),
        pulls=np.zeros((len(outcomes), 0), np.int64),  # which arms were chosen stays with the devices
        status=status,
        privacy=_privacy(setup, config, done),
        seconds=seconds,
        summary=_summary(settings, setup, outcomes, clock),
    )  # fmt: skip


def _privacy(setup: Setup, config: Mapping[str, JSON], done: int) -> tuple[Mapping[str, JSON], ...]:
    """Return what the rounds of a run prove: by the ledger's accountant, and by RDP where that is another."""
    ledger = setup.ledger()
    if ledger is None or not done:
        return ()
    ledger.spend(done)
    return tuple(_entry(ledger, accountant, config) for accountant in dict.fromkeys((ledger.accountant, "rdp")))


def _entry(ledger: TrainingLedger, accountant: Accountant, config: Mapping[str, JSON]) -> Mapping[str, JSON]:
    made = ledger.mechanism.guarantee(ledger.rounds, ledger.delta, accountant)
    told = replace(made, not_covered=(*made.not_covered, *not_covered(config)))
    counted = {"noise_multiplier": math.floor(ledger.mechanism.noise * 1e4) / 1e4}  # never told as more than it is
    return {**plain_dict(told.entry(), "guarantee"), **counted}


def _config(settings: FedSettings, setup: Setup) -> dict[str, JSON]:
    """Every setting with the value that was used."""
    parameters = {name: getattr(settings.exploration(), name) for name in PARAMETERS[settings.policy]}
    if "mu" in parameters and parameters["mu"] is None:
        parameters["mu"] = len(setup.population.arms) / 5
    return {
        **settings.resolved(),
        "clients": setup.population.clients,
        "model": {"bag": "bag-of-words"}.get(setup.model, setup.model),
        "sampling": setup.sampling,
        "quantile": setup.quantile,
        "pretrained": setup.world.pretrained,
        "budget": setup.rounds,
        "policy": {"name": settings.policy, **parameters},
    }


def _summary(settings: FedSettings, setup: Setup, outcomes: list[Outcome], clock: Clock) -> Summary:
    """Return averages over all runs, and why training stopped where it was before its time."""
    samples = sum(float(outcome.column("samples").sum()) for outcome in outcomes)
    told: Summary = {
        "rounds_done": sum(outcome.rounds for outcome in outcomes),
        "steps_done": sum(outcome.rounds for outcome in outcomes),
        "samples": int(samples),
        "parameters": setup.parameters,
        "bytes_an_update": 4 * setup.parameters,
    }
    if samples:
        rewards, chances = (
            sum(float(one.column(name).sum()) for one in outcomes) for name in ("reward", "probability")
        )  # fmt: skip
        told["average_reward"] = rewards / samples
        told["average_probability"] = chances / samples
        told["average_reward_last_tenth"] = _last_tenth(outcomes)
        told["clip_norm"] = float(np.mean([one.column("limit")[-1] for one in outcomes]))
        told["within_clip"] = float(np.mean([one.column("within").mean() for one in outcomes]))
    if clock.wall:
        told["rounds_a_second"] = clock.rounds / clock.wall
    if setup.rounds < settings.rounds and all(one.rounds == setup.rounds for one in outcomes):
        told["stopped"] = f"privacy budget {setup.budget} spent after {setup.rounds} of {settings.rounds} rounds"
    return {**told, **_estimates(settings, outcomes)}


def _last_tenth(outcomes: list[Outcome]) -> float:
    """Average reward of the last tenth of the rounds: where the model has come to."""
    sums = np.zeros(2)
    for one in outcomes:
        last = max(1, one.rounds // 10)
        sums += [one.column("reward")[-last:].sum(), one.column("samples")[-last:].sum()]
    return float(sums[0] / max(1.0, sums[1]))


def _estimates(settings: FedSettings, outcomes: list[Outcome]) -> Summary:
    """Return what another policy would earn: the mean over runs, and the least sure of their intervals."""
    from posse.policies.evaluation import Estimate

    made = [one.estimated for one in outcomes if isinstance(one.estimated, Estimate)]
    refused = [one.estimated for one in outcomes if isinstance(one.estimated, str)]
    told: Summary = {"evaluated": settings.evaluate} if settings.evaluate and (made or refused) else {}
    if made:
        told["estimated_reward"] = float(np.mean([one.value for one in made]))
        told["estimated_reward_error"] = float(np.max([one.error for one in made]))
    if refused:
        told["estimate_refused"] = refused[0]
    return told
