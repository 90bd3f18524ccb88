"""A run from its settings to its record: cohorts of simulated devices, one server, one model."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

import jax

from posse.core.interrupts import held
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import Training
from posse.problems.populations.population import Population
from posse.protocols.fed_contextual.models import Model, write_model
from posse.protocols.fed_contextual.record import Clock, Outcome, record_of
from posse.protocols.fed_contextual.server import Measured, State, begin
from posse.protocols.fed_contextual.settings import FedSettings, Setup
from posse.protocols.fed_contextual.simulation import Kept, Simulation, check_finite, estimate
from posse.protocols.fed_contextual.study import Own
from posse.protocols.fed_contextual.tasks import OwnPay
from posse.results.record import Interrupted, Progress, Record, Watch


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
            raise Interrupted(record_of(settings, setup, outcomes, clock, seconds, "interrupted")) from stop
    return record_of(settings, setup, outcomes, clock, time.process_time() - started, "finished")


def _kept(settings: FedSettings, setup: Setup) -> Kept | None:
    """Open the folder of states, if there is one. Of functions of a user's own it knows that they are, not which."""
    if settings.keep is None:
        return None
    own = [name for name, given in setup.own._asdict().items() if given is not None]
    rates = {"client_rate": setup.client_rate, "pretraining_client_rate": setup.pretraining_client_rate}
    usual = {one.name: one.default for kind in EXPLORATIONS.values() for one in fields(kind)}
    config = {**settings.resolved(), **rates, **usual, **settings.parameters(), "own": own}
    defaults = {**FedSettings().resolved(), **rates, **usual, "own": []}
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
            write_model(asked.model_out, one.state.params, one.done)


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
    outcome, ledger = Outcome(seed), _ledger(simulation)
    with held():
        found = None if kept is None else kept.load(seed, begin(simulation.plan.task, seed), simulation.setup.rounds)
    if found is None:
        return Going(outcome, simulation.first(seed), ledger)
    outcome.add(found[1])
    if ledger is not None:
        ledger.spend(times=outcome.rounds)
    return Going(outcome, found[0], ledger)


def _ledger(simulation: Simulation) -> Ledger[Training] | None:
    """Return a new ledger for a run; none without noise."""
    made = simulation.setup.mechanism
    return None if made is None else simulation.settings.ledger(made)


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
