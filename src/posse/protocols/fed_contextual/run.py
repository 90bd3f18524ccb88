"""A run from its settings to its record: cohorts of simulated devices, one server, one model."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax
import numpy as np
from numpy.typing import NDArray

from posse.core.interrupts import held
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import Accountant, Training
from posse.problems.populations.population import Population
from posse.protocols.fed_contextual.baselines import baselines
from posse.protocols.fed_contextual.kept import Kept, write_model
from posse.protocols.fed_contextual.levels import leaks, level_of, not_covered
from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.offline import estimate
from posse.protocols.fed_contextual.plan import Own
from posse.protocols.fed_contextual.rates import squared_norm
from posse.protocols.fed_contextual.remarks import diverged, large_inputs, not_deployed, wide_clip
from posse.protocols.fed_contextual.rounds import Measured, State, begin
from posse.protocols.fed_contextual.settings import PARAMETERS, FedSettings, Setup
from posse.protocols.fed_contextual.simulation import Simulation, check_finite
from posse.protocols.fed_contextual.sources import OwnPay
from posse.protocols.fed_contextual.training import joined
from posse.results.record import Interrupted, Progress, Record, Watch, points_of
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


@dataclass
class Going:
    """A run on its way: where it stands, and what it may still spend."""

    outcome: Outcome
    state: State
    ledger: Ledger[Training] | None

    @property
    def done(self) -> int:
        """Rounds done."""
        return int(self.state.round)

    def advance(self, state: State, some: Measured) -> None:
        """Go on to a later state."""
        self.state = state
        self.outcome.add(some)


def run_fed(
    settings: FedSettings, *, watch: Watch | None = None, setup: Setup | None = None,
    population: Population | None = None, model: Model | None = None, pay: OwnPay | None = None,
) -> Record:  # fmt: skip
    """Run the bandit of the settings once a seed, and record it.

    `population`, `model` (a pair of functions: parameters from a key, and scores of all arms from parameters and
    contexts) and `pay` (rewards from contexts, labels and arms) are a user's own, instead of the settings'. `setup` is
    what `settings.check()` gave, if at hand.

    >>> record = run_fed(FedSettings(clients=20, rounds=4, cohort=5, deploy_every=2))
    >>> record.steps.tolist(), record.level, record.summary["rounds_done"]
    ([1, 2, 3, 4], 'plain', 4)
    """
    setup = settings.check(Own(model, pay), population) if setup is None else setup
    outcomes: list[Outcome] = []
    clock = Clock()
    with held():
        simulation = Simulation(settings, setup)
        kept = _kept(settings, setup)
    with jax.default_device(simulation.device):
        started = time.process_time()
        try:
            simulation.warm_up()
            started = time.process_time()
            for low in range(0, settings.runs, simulation.side):
                _run(simulation, low, outcomes, clock, kept, watch)
        except KeyboardInterrupt as stop:
            seconds = time.process_time() - started
            raise Interrupted(_record(settings, setup, outcomes, clock, seconds, "interrupted")) from stop
    return _record(settings, setup, outcomes, clock, time.process_time() - started, "finished")


def _kept(settings: FedSettings, setup: Setup) -> Kept | None:
    """Open the folder of states, if there is one. Of functions of a user's own it knows that they are, not which."""
    if settings.keep is None:
        return None
    own = [name for name, given in setup.own._asdict().items() if given is not None]
    rates = {"client_rate": setup.client_rate, "pretraining_client_rate": setup.pretraining_client_rate}
    config, defaults = {**settings.resolved(), **rates, "own": own}, {**FedSettings().resolved(), **rates, "own": []}
    return Kept(settings.keep, config, setup.population.describe(), defaults)


def _run(
    simulation: Simulation, low: int, outcomes: list[Outcome], clock: Clock, kept: Kept | None, watch: Watch | None
) -> None:
    """Run the seeds that go side by side from the one numbered `low`, each from where it was kept.

    Whatever they did stays in `outcomes`, also when interrupted.
    """
    asked = simulation.settings
    group: list[Going] = []
    more = True
    try:
        for seed in asked.seeds[low : low + simulation.side]:
            group.append(_begun(simulation, seed, kept))
            outcomes.append(group[-1].outcome)
        while more:
            with held():  # what rounds did is counted before Ctrl-C is heard
                more = _step(simulation, low, group, clock, kept, watch)
    finally:
        if kept is not None:
            with held():
                _keep(kept, group)
    for one in group:
        if asked.evaluate is not None:
            one.outcome.estimated = estimate(simulation, one.state, one.outcome.seed)
        if asked.model_out is not None:
            write_model(asked.model_out, one.state)


def _step(
    simulation: Simulation, low: int, group: list[Going], clock: Clock, kept: Kept | None, watch: Watch | None
) -> bool:
    """Do the next rounds of runs side by side, and keep and tell where they stand; False where none is left."""
    asked, planned = simulation.settings, simulation.setup.rounds
    done = min(one.done for one in group)
    if done >= planned:
        return False
    _advance(simulation, [one for one in group if one.done == done], clock)  # others wait, or are waited for
    if kept is not None and kept.due:
        _keep(kept, group)
    if watch is not None:
        share = sum(one.done for one in group) / planned
        watch(Progress(low, asked.runs, (low + share) / asked.runs, len(group)))
    return True


def _begun(simulation: Simulation, seed: int, kept: Kept | None) -> Going:
    """Return a run where it was kept, or before its first round."""
    outcome, ledger = Outcome(seed), simulation.setup.ledger()
    with held():
        found = None if kept is None else kept.load(seed, begin(simulation.plan.task, seed), simulation.setup.rounds)
    if found is None:
        return Going(outcome, simulation.first(seed), ledger)
    outcome.add(found[1])
    if ledger is not None:
        ledger.spend(times=outcome.rounds)
    return Going(outcome, found[0], ledger)


def _advance(simulation: Simulation, some: list[Going], clock: Clock) -> None:
    """Do the next rounds of runs that stand at the same one."""
    done = some[0].done
    upto = simulation.until(done)
    for one in some:
        if one.ledger is not None:
            one.ledger.spend(times=upto - done)  # paid for before a cohort is drawn
    began = time.perf_counter()
    found = simulation.rounds([one.state for one in some], upto, [one.outcome.seed for one in some])
    for _, seen in found:
        check_finite(seen, upto, simulation.setup.client_rate, simulation.settings.server_rate)
    clock.wall += time.perf_counter() - began
    clock.rounds += (upto - done) * len(some)
    for one, (state, seen) in zip(some, found, strict=True):
        one.advance(state, seen)


def _keep(kept: Kept, group: list[Going]) -> None:
    """Keep the states of runs that did something; one that was interrupted while it advanced is not whole."""
    for one in group:
        if one.outcome.rounds and one.outcome.rounds == one.done:
            kept.save(one.outcome.seed, one.state, one.outcome.seen)


def _record(
    settings: FedSettings, setup: Setup, outcomes: list[Outcome], clock: Clock, seconds: float, status: str
) -> Record:
    """Make the record; of an interrupted one only the runs that came furthest count."""
    kept = sum(outcome.rounds for outcome in outcomes) if settings.keep is not None else 0
    done = max((outcome.rounds for outcome in outcomes), default=0)
    outcomes = [outcome for outcome in outcomes if outcome.rounds == done > 0]
    points = points_of(setup.rounds, settings.points)
    points = points[points <= done]
    curves = [outcome.column("reward")[:done].cumsum()[points - 1] for outcome in outcomes]
    config = _config(settings, setup)
    return Record(
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
        pulls=_pulls(outcomes),
        status=status,
        privacy=_privacy(setup, config, done),
        seconds=seconds,
        summary={
            **_summary(settings, setup, outcomes, clock), **({"rounds_kept": kept} if kept else {}),
        },
    )  # fmt: skip


def _pulls(outcomes: list[Outcome]) -> NDArray[np.int64]:
    """How often each arm was chosen, (runs, arms); no arms where a run was taken up that had not counted."""
    counts = [outcome.seen.pulls for outcome in outcomes]
    known = [np.asarray(one, np.int64) for one in counts if one is not None]
    return np.array(known) if known and len(known) == len(counts) else np.zeros((len(outcomes), 0), np.int64)


def _privacy(setup: Setup, config: Mapping[str, JSON], done: int) -> tuple[Mapping[str, JSON], ...]:
    """Return what the rounds of a run prove: by the ledger's accountant, and by RDP where that is another."""
    ledger = setup.ledger()
    if ledger is None or not done:
        return ()
    ledger.spend(times=done)
    return tuple(
        _entry(ledger, accountant, config) for accountant in dict.fromkeys((ledger.mechanism.counted_by, "rdp"))
    )


def _entry(ledger: Ledger[Training], accountant: Accountant, config: Mapping[str, JSON]) -> Mapping[str, JSON]:
    training = ledger.mechanism
    made = training.gaussian.guarantee(ledger.releases, training.delta, accountant)
    proved = replace(made, not_covered=(*made.not_covered, *not_covered(config)))
    noise = math.floor(training.gaussian.noise * 1e4) / 1e4  # rounded down: never more than it is
    return {**plain_dict(proved.entry(), "guarantee"), "noise_multiplier": noise}


def _config(settings: FedSettings, setup: Setup) -> dict[str, JSON]:
    """Every setting with the value that was used."""
    parameters = {name: getattr(settings.exploration(), name) for name in PARAMETERS[settings.policy]}
    if "mu" in parameters and parameters["mu"] is None:
        parameters["mu"] = len(setup.population.arms) / 5
    return {
        **settings.resolved(),
        "clients": setup.population.clients,
        "client_rate": setup.client_rate,
        "pretraining_client_rate": setup.pretraining_client_rate,
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
        told |= _each_run(outcomes) | _without_model(settings, setup, outcomes)
        told["clip_norm"] = float(np.mean([one.column("limit")[-1] for one in outcomes]))
        told["within_clip"] = float(np.mean([one.column("within").mean() for one in outcomes]))
    if clock.wall:
        told["rounds_a_second"] = clock.rounds / clock.wall
    if setup.rounds < settings.rounds and all(one.rounds == setup.rounds for one in outcomes):
        told["stopped"] = f"privacy budget {setup.budget} spent after {setup.rounds} of {settings.rounds} rounds"
    return {**told, **_remarks(settings, setup, outcomes), **_estimates(settings, outcomes)}


def _each_run(outcomes: list[Outcome]) -> Summary:
    """Return the smallest and the largest average reward of several runs: a mean hides one that did not learn."""
    if len(outcomes) < 2:
        return {}
    each = [float(one.column("reward").sum() / max(1.0, one.column("samples").sum())) for one in outcomes]
    return {"average_reward_smallest": min(each), "average_reward_largest": max(each)}


def _without_model(settings: FedSettings, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return what is earned without a model; rewards of a user's own are known for chosen arms alone."""
    if setup.own.pay is not None:
        return {}
    drift = settings.drifting(len(setup.population.arms))
    found = baselines(setup.population, setup.world.rewards, drift, outcomes[0].rounds)
    return {"chance_reward": found.chance, "best_fixed_reward": found.best, "best_fixed_arm": found.arm}


def _remarks(settings: FedSettings, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return signs that runs did not do what was meant; of several runs, of the first that shows one."""
    large = large_inputs(squared_norm(setup.population, setup.model), settings.optimiser)
    told: Summary = {} if large is None or not outcomes else {"large_inputs": large}
    pretrained, rates = bool(setup.world.pretrained), {"client_rate": setup.client_rate}
    if pretrained:
        rates["pretraining_client_rate"] = setup.pretraining_client_rate
    for one in outcomes:
        limits, within, clients = (one.column(name) for name in ("limit", "within", "clients"))
        for key, found in (
            ("diverged", diverged(limits, within, setup.quantile, **rates)),
            ("not_deployed", not_deployed(one.rounds, settings.deploy_every, pretrained=pretrained)),
            ("wide_clip", wide_clip(within, clients, settings.noise)),
        ):
            if found is not None:
                told.setdefault(key, found)
    return told


def _last_tenth(outcomes: list[Outcome]) -> float:
    """Average reward of the last tenth of the rounds: where the model has come to."""
    sums = np.zeros(2)
    for one in outcomes:
        last = max(1, one.rounds // 10)
        sums += [one.column("reward")[-last:].sum(), one.column("samples")[-last:].sum()]
    return float(sums[0] / max(1.0, sums[1]))


def _estimates(settings: FedSettings, outcomes: list[Outcome]) -> Summary:
    """Return what another policy would earn: the mean over runs, with the standard error of that mean."""
    from posse.policies.evaluation.offline import Estimate

    made = [one.estimated for one in outcomes if isinstance(one.estimated, Estimate)]
    refused = [one.estimated for one in outcomes if isinstance(one.estimated, str)]
    told: Summary = {"evaluated": settings.evaluate} if settings.evaluate and (made or refused) else {}
    if made:
        told["estimated_reward"] = float(np.mean([one.value for one in made]))
        told["estimated_reward_error"] = math.sqrt(sum(one.error**2 for one in made)) / len(made)
        told["estimated_decisions"] = sum(one.rows for one in made)
        told["estimated_devices"] = max(one.clients for one in made)
        told["estimated_effective"] = float(sum(one.effective for one in made))
    if refused:
        told["estimate_refused"] = refused[0]
    return told
