"""What rounds of a run work on, made from settings: a plan, where cohorts come from, and runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.interrupts import held
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.cohorts import OverflowingCohort
from posse.protocols.fed_contextual.jobs import Job, Pretraining
from posse.protocols.fed_contextual.plan import SIDE, Plan, bandit, device_of, lanes_of, side_of, source_of, supervised
from posse.protocols.fed_contextual.resident import Data
from posse.protocols.fed_contextual.rounds import Cohort, Measured, State, begin
from posse.protocols.fed_contextual.settings import PARAMETERS, FedSettings, Setup
from posse.protocols.fed_contextual.training import Source, train, train_many
from posse.protocols.fed_contextual.trees import Tree

_TOGETHER = {"cpu": 1, "gpu": 50}
"""Rounds in one call. A run can be interrupted and kept between calls: on a CPU, where a call costs little beside a
round, after every round, and one program does for any number of them."""

T = TypeVar("T")


class Simulation:
    """A population, a model and a world on a device; runs differ by their seed alone."""

    def __init__(self, settings: FedSettings, setup: Setup) -> None:
        self.settings, self.setup = settings, setup
        self.device = device_of(settings.device)
        self.together = _TOGETHER[settings.device]

    @cached_property
    def job(self) -> Job:
        """The settings as a job of a study."""
        return _job(self.settings, self.setup)

    @cached_property
    def plan(self) -> Plan:
        """The bandit phase."""
        made = self.setup
        return bandit(self.job, made.population, made.world, lanes_of(self.job, self.settings.device), made.own)

    @cached_property
    def source(self) -> Source:
        """Where cohorts come from: the device's memory, or the host's disk if that is too small."""
        asked, samples = self.settings, self.plan.schedule.samples
        found = source_of(self.setup.population, asked.cap, samples, asked.device)
        return found if self.setup.own.pay is None else sources.with_contexts(found)

    @cached_property
    def side(self) -> int:
        """Runs side by side: one alone does not fill a GPU."""
        most = SIDE[self.settings.device] if isinstance(self.source, Data) else 1
        return side_of(self.settings.runs, most)

    def first(self, seed: int) -> State:
        """Return the state before the first round: drawn, or pre-trained where the scenario has it so."""
        before = self._pretrained(seed) if self.setup.world.pretrained else None
        with held():
            return begin(self.plan.task, seed, before)

    def rounds(self, states: Sequence[State], upto: int, seeds: Sequence[int]) -> list[tuple[State, Measured]]:
        """Run rounds of some runs that stand at the same round, up to a number of them and at most `together`.

        Ctrl-C waits until they are done: a compiler must not be cut in the middle.
        """
        return self._rounds(self.source, states, upto, seeds)

    def until(self, done: int) -> int:
        """Return the round at which the call ends that begins after `done` rounds; the same for every run."""
        return min(self.setup.rounds, (done // self.together + 1) * self.together)

    def warm_up(self) -> None:
        """Compile what rounds call, pre-training included, on clients without samples; Ctrl-C waits for each part."""
        with held():
            empty, planned = _emptied(self.source), self.setup.rounds
        for rounds in {min(planned, self.together), planned % self.together} - {0}:
            with held():
                self._rounds(empty, [begin(self.plan.task, 0)], rounds, [0])
        if self.setup.world.pretrained:
            with held():
                task, rates, schedule, _ = self._before(self.settings.seed)
                _next(train(task, rates, begin(task, 0), empty, schedule, 0, together=self.together))

    def _rounds(
        self, source: Source, states: Sequence[State], upto: int, seeds: Sequence[int]
    ) -> list[tuple[State, Measured]]:
        task, rates, schedule, pays = self.plan
        schedule = schedule._replace(rounds=upto)
        if self.side == 1 or not isinstance(source, Data):
            (state,), (seed,) = states, seeds
            return [_next(train(task, rates, state, source, schedule, seed, together=self.together, pays=pays))]
        # Fewer than usual are filled up, so that one program does for any number.
        missing = self.side - len(states)
        states, seeds = [*states, *[states[-1]] * missing], [*seeds, *[seeds[-1]] * missing]
        after, seen = _next(
            train_many(
                task, rates, [self.job.pairs[0]] * self.side, states, source, schedule, seeds,
                together=self.together, pays=pays,
            )
        )  # fmt: skip
        return list(zip(after, seen, strict=True))[: self.side - missing]

    def _pretrained(self, seed: int) -> Tree:
        """Learn from all rewards of some clients, without noise and with sums of floats."""
        with held():
            task, rates, schedule, _ = self._before(seed)
            state = begin(task, seed)
            rounds = train(task, rates, state, self.source, schedule, seed, together=self.together)
        for _ in range(0, schedule.rounds, self.together):
            with held():
                state, _seen = _next(rounds)
        return state.params

    def _before(self, seed: int) -> Plan:
        made = self.setup
        return supervised(self.plan, self.job, made.population, made.world, seed, made.own)


def check_finite(seen: Measured, done: int, client_rate: float, server_rate: float) -> None:
    """Refuse to go on with numbers that are none.

    Of an update that is not finite clipping leaves nothing: where that befalls all of a round, nothing is learnt.
    """
    lost = (np.asarray(seen.within) == 0) & (np.asarray(seen.moved) == 0) & (np.asarray(seen.clients) > 0)
    if lost.any() or not all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(seen)):
        raise DataError(
            f"numbers stopped being finite before round {done}: the model diverged. Lower client_rate "
            f"({client_rate:g}) or server_rate ({server_rate:g})."
        )


def _job(asked: FedSettings, made: Setup) -> Job:
    """Return the job that a study would name for these settings."""
    before = Pretraining(
        asked.pretraining, made.world.pretrained or asked.pretrained, made.pretraining_client_rate,
        asked.pretraining_server_rate, asked.pretraining_optimiser,
    )  # fmt: skip
    drift, answers = asked.drifting(len(made.population.arms)), asked.answers()
    same = ("scenario", "policy", "server_rate", "loss", "optimiser", "deploy_every", "seeds", "cohort",
            "batch", "cap", "clip", "noise", "levels", "hidden", "channels", "centralised")  # fmt: skip
    return Job(
        "run", **{name: getattr(asked, name) for name in same},
        parameters={name: getattr(asked, name) for name in PARAMETERS[asked.policy]},
        model=made.model if made.own.model is None else "auto", rounds=made.rounds, sampling=made.sampling,
        quantile=made.quantile, client_rate=made.client_rate, pretraining=before,
        drift=None if drift is None else {"kind": asked.drift, **vars(drift)},
        availability=None if answers is None else vars(answers),
    )  # fmt: skip


def _emptied(source: Source) -> Source:
    """Return a source of clients without samples: the same shapes, and next to no work."""
    if isinstance(source, Data):
        return source._replace(offsets=jnp.zeros_like(source.offsets))

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = source(numbers, present, round_)
        return found._replace(mask=jnp.zeros_like(found.mask))

    return cohort


def _next(rounds: Iterator[T]) -> T:
    try:
        with held():
            return next(rounds)
    except OverflowingCohort as error:
        raise ConfigError(str(error)) from None
