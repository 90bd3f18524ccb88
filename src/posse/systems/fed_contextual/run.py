"""A run of fed-contextual that goes forward: cohorts of simulated devices, one server, one model.

A step is a round. The parties are the server and the cohort: single devices are worked on inside
one compiled program and leave no messages behind, so a view has two entries a round, with the bytes
that a fleet would move. Of the last round the server's view also holds what reached it: every
device's clipped update, or their sum where sums are secure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt
from posse.core.roles import Entry, Message, View
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import Training
from posse.problems.populations.population import Population
from posse.results.record import Progress, Record, Watch
from posse.systems.base import AnySystem
from posse.systems.fed_contextual.computing.cohorts import cohort_of, logs_of
from posse.systems.fed_contextual.computing.models import Model, leaves_of, shape_of, write_model
from posse.systems.fed_contextual.computing.rounds import (
    Observed,
    gather_with_contexts,
    host,
    observed,
)
from posse.systems.fed_contextual.computing.server import State, begin
from posse.systems.fed_contextual.computing.tasks import OwnPay
from posse.systems.fed_contextual.computing.training import train
from posse.systems.fed_contextual.record import Clock, Outcome, labelled, record_of
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.fed_contextual.simulation import (
    Kept,
    Simulation,
    check_finite,
    estimate,
    supervised_rewards,
)
from posse.systems.fed_contextual.study import NOTHING, Own, computing_on
from posse.systems.runs import Run

SERVER, COHORT = PARTIES = ("server", "cohort")
_SUMS = 12
"""Bytes of what a device measured: sums of rewards, probabilities and samples."""


class Order(Message, frozen=True, array_like=True, tag="Order", gc=False):
    """What the server sends to every device of a round: the model, the deployed one where it
    differs, the norm.
    """

    round: int
    deployment: int
    limit: float
    devices: int


class Answers(Message, frozen=True, array_like=True, tag="Answers", gc=False):
    """What the devices of a round send together: clipped updates, and sums of what they
    measured.
    """

    round: int
    devices: int
    samples: int
    reward: float
    probability: float
    within: float
    moved: float
    """Norm of the mean update."""


class Update(Message, frozen=True, array_like=True, tag="Update", gc=False):
    """What one device sends: its clipped update, the arrays of the model in jax's order as
    float32.
    """

    round: int
    device: int
    data: tuple[bytes, ...]


class Total(Message, frozen=True, array_like=True, tag="Total", gc=False):
    """What is left of a round under secure sums: the sum of all updates in units of norm / levels,
    as int32.
    """

    round: int
    data: tuple[bytes, ...]


@dataclass
class Seed:
    """One seed on its way: what its rounds showed, where it stands, and what it may still spend."""

    outcome: Outcome
    state: State
    ledger: Ledger[Training] | None
    before: State | None = None
    """The state before the last call; none where nothing was done yet."""
    observed: Observed | None = None

    @property
    def done(self) -> int:
        """Rounds done."""
        return int(self.state.round)


class FedRun(Run):
    """Rounds of simulated devices; several seeds go side by side on a GPU, and one after the other
    on a CPU.
    """

    unit = "round"
    records_while_running = True
    settings: FedContextual

    def __init__(
        self,
        system: AnySystem,
        settings: FedContextual,
        seeds: Sequence[int] | None = None,
        *,
        population: Population | None = None,
        model: Model | None = None,
        pay: OwnPay | None = None,
        before: OwnPay | None = None,
        first: Callable[[str], bool] | None = None,
    ) -> None:
        """Begin a run.

        `population`, `model` (a pair of functions: parameters from a key, and scores of all arms
        from parameters and contexts; or a module of PyTorch) and `pay` (rewards
        from contexts, labels and arms) are a user's own, instead of the settings'; so are `before`,
        rewards before deployment, and `first`, whether pre-training may draw a client of that name.
        """
        super().__init__(system, settings, seeds)
        if wrong := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise ConfigError(f"seeds must be in [0, 2^32), got {wrong[0]}. Choose others.")
        own = Own(model, pay, before, first)
        if own != NOTHING or population is not None:
            self.settings = settings = settings.customised(own, population)
        self.setup = settings.load()
        with defer_interrupt():
            self.simulation = Simulation(settings, self.setup, len(self.seeds))
            self._kept = (
                None if settings.keep is None else Kept(settings.keep, settings, self.setup)
            )
        self._training = self.setup.training
        self._begun: list[Seed] = []
        self._low, self._closed, self._compiled = 0, False, False
        self._clock = Clock()

    # Going forward --------------------------------------------------------------------------------

    @property
    def time(self) -> int:
        """Rounds done, of all seeds."""
        return sum(one.done for one in self._begun)

    @property
    def horizon(self) -> int:
        """Rounds of all seeds: those asked for, or as many as the privacy budget allows."""
        return self.setup.rounds * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all rounds of all seeds are done."""
        return self._closed and len(self._begun) == len(self.seeds)

    @property
    def most_steps_at_once(self) -> int:
        """Rounds in one call of the compiled program."""
        return self.simulation.together

    @property
    def seeds_at_once(self) -> int:
        """Seeds that go forward together."""
        return len(self._group) or 1

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(
            self._low, len(self.seeds), self.time / max(1, self.horizon), self.seeds_at_once
        )

    @property
    def current(self) -> Seed | None:
        """The seed that was begun last; None before the first one."""
        return self._begun[-1] if self._begun else None

    @property
    def _group(self) -> list[Seed]:
        """The seeds that go side by side now."""
        return self._begun[self._low :]

    def advance(self, n: int = 1) -> None:
        """Do n rounds of the seeds under way. What is compiled first is not counted as their
        time.
        """
        if not self._compiled:
            self.simulation.warm_up()
            self._compiled = True
        super().advance(n)

    def finish(self, watch: Watch | None = None) -> None:
        """Run to the end; what was done is kept, also where `watch` ends it."""
        try:
            while not self.done:
                self.advance(
                    self.most_steps_at_once
                )  # whole calls: another number of rounds compiles again
                if watch is not None:
                    watch(self.progress)
        except BaseException:
            with defer_interrupt():
                self._keep()
            raise

    def _advance(self, n: int) -> None:
        with computing_on(self.simulation.device):
            try:
                self._begin()
                while all(
                    one.done == self.setup.rounds for one in self._group
                ):  # nothing is left of what was kept
                    self._close()
                    if self.done:
                        return
                    self._begin()
                target = min(self.setup.rounds, min(one.done for one in self._group) + n)
                while (done := min(one.done for one in self._group)) < target:
                    with defer_interrupt():  # what rounds did is counted before Ctrl-C is raised
                        self._rounds(done, min(target, self.simulation.until(done)))
                        if self._kept is not None and self._kept.due:
                            self._keep()
                if target == self.setup.rounds:
                    self._close()
            except BaseException:
                with defer_interrupt():
                    self._keep()
                raise

    def _begin(self) -> None:
        """Begin the next seeds where those before are over, each from where it was kept."""
        if self._closed:
            self._low, self._closed = len(self._begun), False
        for seed in self.seeds[len(self._begun) : self._low + self.simulation.side]:
            ledger = None if self._training is None else Ledger(self._training)
            outcome, kept = Outcome(seed), None
            if self._kept is not None:
                with defer_interrupt():
                    kept = self._kept.load(
                        seed, begin(self.simulation.plan.task, seed), self.setup.rounds
                    )
            if kept is None:
                if self.setup.before is not None:  # paid for before anybody is drawn
                    Ledger(self.setup.before.training).spend(times=self.setup.before.rounds)
                self._begun.append(Seed(outcome, self.simulation.first(seed), ledger))
                continue
            outcome.add(kept[1])
            if ledger is not None:
                ledger.spend(times=outcome.rounds)
            self._begun.append(Seed(outcome, kept[0], ledger))

    def _rounds(self, done: int, upto: int) -> None:
        """Do rounds of those seeds that stand at round `done`; seeds that are ahead wait for
        them.
        """
        some = [one for one in self._group if one.done == done]
        for one in some:
            if one.ledger is not None:
                one.ledger.spend(times=upto - done)  # paid for before a cohort is drawn
        began = time.perf_counter()
        after = self.simulation.rounds(
            [one.state for one in some], upto, [one.outcome.seed for one in some]
        )
        for _, seen in after:
            check_finite(seen, upto, self.setup.client_rate, self.setup.server_rate)
        self._clock.wall += time.perf_counter() - began
        self._clock.rounds += (upto - done) * len(some)
        for one, (state, seen) in zip(some, after, strict=True):
            one.before, one.state, one.observed = one.state, state, None
            one.outcome.add(seen)

    def _close(self) -> None:
        """Keep, estimate and write what is asked for at the end of some seeds."""
        self._keep()
        for one in self._group:
            if self.settings.supervised:
                one.outcome.supervised = supervised_rewards(self.simulation, one.outcome.seed)
            if self.settings.evaluate is not None:
                one.outcome.estimated = estimate(self.simulation, one.state, one.outcome.seed)
            if self.settings.model_out is not None:
                write_model(
                    self.settings.model_out,
                    one.state.params,
                    one.done,
                    *labelled(self.setup.population),
                )
        self._closed = True

    def record_interrupted(self) -> Record:
        """Keep the states of the seeds, and return the record."""
        self._keep()
        return super().record_interrupted()

    def _keep(self) -> None:
        """Keep the states of seeds that did something; one that was interrupted while it advanced
        is not whole.
        """
        for one in self._group if self._kept is not None else ():
            state = one.state  # which another thread may replace while this one looks
            if (
                int(state.round)
                and one.outcome.rounds
                and len((seen := one.outcome.seen).reward) == int(state.round)
            ):
                self._kept.save(one.outcome.seed, state, seen)  # type: ignore[union-attr]

    # Looking at it --------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """The server, and all devices of a round together."""
        return PARTIES

    def state(self, party: str) -> dict[str, Any]:
        """Return what an operator at the server, or at the devices, may see of the current seed."""
        check.one_of(PARTIES, party=party)
        if not self._begun:
            return {"round": 0, "rounds": self.setup.rounds}
        one, every = self._begun[-1], self.settings.deploy_every
        state: dict[str, Any] = {
            "round": one.done,
            "rounds": self.setup.rounds,
            "deployed": one.done // every * every,
        }
        if one.outcome.rounds:
            names = ("clients", "samples", "reward", "probability", "within", "moved")
            state |= {f"last_{name}": float(one.outcome.column(name)[-1]) for name in names}
        if party == SERVER:
            state |= {"clip": float(one.state.limit), "parameters": self.setup.parameters}
            return (
                {**state, "rounds_paid": one.ledger.releases} if one.ledger is not None else state
            )
        numbers, present = cohort_of(
            self.simulation.plan.schedule, one.outcome.seed, max(0, one.done - 1)
        )
        pulls = one.outcome.seen.pulls if one.outcome.rounds else None
        if (there := self.simulation.plan.here) is not None:
            here = there(max(0, one.done - 1))
            state["absent_arms"] = [
                arm for at, arm in enumerate(self.setup.population.arms) if not here[at]
            ]
        return {
            **state,
            "last_devices": numbers[present > 0].tolist(),
            "devices": self.setup.population.clients,
            "pulls": None if pulls is None else [int(count) for count in pulls],
        }

    def view(self, *parties: str) -> View:
        """Return what the server, or the devices together, saw of the current seed."""
        for party in parties:
            check.one_of(PARTIES, party=party)
        one = self.current
        entries = [] if one is None or not parties else self._entries(one.outcome)
        if one is not None and SERVER in parties:
            reached = self._reached(len(entries))
            if reached and entries:  # what is left of the last answers are the measured sums
                entries[-1] = entries[-1]._replace(
                    size=_SUMS * int(one.outcome.column("clients")[-1])
                )
            entries += reached
        state = None if one is None else one.state
        secrets = {
            SERVER: {"kind": "server"} | ({} if state is None else _bytes_of(state)),
            COHORT: {"kind": "device"} | ({} if state is None else _bytes_of(state, "deployed")),
        }
        settings = self.settings
        public = {
            "system": self.system.name,
            "shapes": [list(leaf.shape) for leaf in jax.tree.leaves(self._shape())],
            "policy": settings.exploration().describe(),
            "model": self.setup.model,
            "parameters": self.setup.parameters,
            "cohort": settings.cohort,
            "noise": settings.noise,
            "levels": settings.levels,
            "rounds": self.setup.rounds,
        }
        return View(
            tuple(parties), tuple(entries), {party: secrets[party] for party in parties}, public
        )

    @property
    def kinds(self) -> dict[str, str]:
        """The cohort stands for every device."""
        return {SERVER: "server", COHORT: "device"}

    def truth(self) -> dict[str, Any]:
        """What only the simulation knows of the last round: devices, and their contexts, labels,
        arms and rewards.
        """
        last = self.observe()
        if last is None:
            return {}
        return {
            "devices": last.devices,
            "contexts": last.contexts,
            "labels": last.labels,
            "owner": last.owner,
            "arms": last.arms,
            "rewards": last.rewards,
        }

    def observe(self) -> Observed | None:
        """Work through the last round of the current seed once more, device by device; none before
        the first.
        """
        one = self.current
        if one is None or one.before is None or self.settings.centralised:
            return None
        if one.observed is None:
            with computing_on(self.simulation.device), defer_interrupt():
                one.observed = self._observe(one.before, one.done - 1, one.outcome.seed)
        return one.observed

    def _observe(self, state: State, last: int, seed: int) -> Observed:
        plan, setup = self.simulation.plan, self.setup
        while int(state.round) < last:  # a GPU does many rounds in a call
            state, _ = next(train(plan, state, self.simulation.source, seed, together=1))
        numbers, present = cohort_of(plan.schedule, seed, last)
        gather = host(setup.population, plan.schedule.samples, self.settings.cap)
        gather = gather if setup.own.pay is None else gather_with_contexts(gather)
        here = present > 0
        cohort = gather(numbers[here], present[here], last)
        cohort = cohort._replace(logs=logs_of(plan.schedule, seed, last, numbers[here]))
        return observed(plan.task, plan.at(last), state, cohort, seed, setup.population)

    def _reached(self, number: int) -> list[Entry]:
        """What reached the server in the last round, beside the measured sums."""
        last = self.observe()
        if last is None:
            return []
        size = 4 * self.setup.parameters
        if self.settings.levels:
            total = tuple(leaf.sum(axis=0, dtype=np.int32).tobytes() for leaf in last.updates)
            return [
                Entry(
                    number,
                    COHORT,
                    SERVER,
                    Total(last.round, total),
                    size * len(last.devices),
                    last.round,
                )
            ]
        return [
            Entry(
                number + at,
                COHORT,
                SERVER,
                Update(
                    last.round,
                    int(device),
                    tuple(leaf[at].astype(np.float32).tobytes() for leaf in last.updates),
                ),
                size,
                last.round,
            )
            for at, device in enumerate(last.devices)
        ]

    def _shape(self) -> Any:
        return shape_of(self.simulation.plan.task.model)

    def _entries(self, outcome: Outcome) -> list[Entry]:
        """The messages of all rounds, with the bytes of a fleet; a round without devices has
        none.
        """
        columns = ("clients", "limit", "samples", "reward", "probability", "within", "moved")
        size, every, entries = 4 * self.setup.parameters, self.settings.deploy_every, []
        rounds = (
            zip(*(outcome.column(name) for name in columns), strict=True) if outcome.rounds else ()
        )
        for at, (devices, limit, samples, *measured) in enumerate(rounds):
            if not devices:
                continue
            deployment, count = at // every * every, int(devices)
            sent = Order(at, deployment, float(limit), count)
            models = 1 if deployment == at else 2
            came = Answers(at, count, int(samples), *(float(one) for one in measured))
            entries += [
                Entry(2 * at, SERVER, COHORT, sent, count * models * size, at),
                Entry(2 * at + 1, COHORT, SERVER, came, count * size, at),
            ]
        return entries

    def record(self, status: str | None = None) -> Record:
        """Return the record of what was done; of several seeds, of those that came furthest."""
        outcomes = [one.outcome for one in self._begun]
        status = status or ("finished" if self.done else "running")
        params = self._begun[0].state.params if self._begun else None
        explores = self.simulation.plan.explores
        return record_of(self, outcomes, self._clock, status, params, explores)

    # Going back -----------------------------------------------------------------------------------

    def save(self) -> Any:
        """Return this moment."""
        seeds = [_copied(one) for one in self._begun]
        return seeds, self._low, self._closed, replace(self._clock), self.seconds

    def load(self, saved: Any) -> None:
        """Come back to a saved moment."""
        seeds, self._low, self._closed, clock, self.seconds = saved
        self._clock, self._begun = replace(clock), [_copied(one) for one in seeds]


def _copied(one: Seed) -> Seed:
    """Return a copy that goes its own way; arrays are shared, for they never change."""
    ledger = (
        None if one.ledger is None else Ledger.restored(one.ledger.mechanism, one.ledger.state())
    )
    return replace(one, outcome=replace(one.outcome, parts=list(one.outcome.parts)), ledger=ledger)


def _bytes_of(state: State, *names: str) -> dict[str, Any]:
    """Return the arrays of a state as plain values, in jax's order."""
    values: dict[str, Any] = {"round": int(state.round), "limit": float(state.limit)}
    for name in names or ("params", "deployed", "optimiser"):
        leaves = leaves_of(getattr(state, name))
        values[name] = [
            {"shape": list(leaf.shape), "type": str(leaf.dtype), "data": leaf.tobytes()}
            for leaf in leaves
        ]
    return values
