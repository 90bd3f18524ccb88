"""What rounds of a run work on, made from settings: the task, its rates, its schedule and where cohorts come from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.policies.probabilities import Exploration
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.aggregation import Clipping
from posse.protocols.fed_contextual.bench import device_of
from posse.protocols.fed_contextual.cohorts import OverflowingCohort, room
from posse.protocols.fed_contextual.jobs import Pretraining
from posse.protocols.fed_contextual.resident import Data
from posse.protocols.fed_contextual.rounds import Cohort, Measured, Rates, State, Task, begin
from posse.protocols.fed_contextual.server import optimiser
from posse.protocols.fed_contextual.settings import FedSettings, Setup
from posse.protocols.fed_contextual.training import Pays, Schedule, Source, train
from posse.protocols.fed_contextual.trees import Number, Tree

_MEMORY = {"cpu": 2 << 30, "gpu": 24 << 30}
"""Bytes of a population that are put on a device whole."""
_TOGETHER = {"cpu": 1, "gpu": 50}
"""Rounds in one call. A run can be interrupted and kept between calls: on a CPU, where a call costs little beside a
round, after every round, and one program does for any number of them."""

_optimiser = lru_cache(optimiser)
"""One object a name: what is compiled depends on it."""


class Simulation:
    """A population, a model and a world on a device; runs differ by their seed alone."""

    def __init__(self, settings: FedSettings, setup: Setup) -> None:
        self.settings, self.setup = settings, setup
        self.device = device_of(settings.device)
        self.together = _TOGETHER[settings.device]

    @cached_property
    def task(self) -> Task:
        """What is learnt and how."""
        asked = self.settings
        model = sources.model_of(self.setup.population, self.setup.model)
        lanes = room(asked.cohort, self.setup.sampling) if asked.device == "gpu" else 1
        return Task(
            model, sources.POLICIES[asked.policy], sources.pay, _optimiser(asked.optimiser),
            Clipping(asked.clip, self.setup.quantile), sources.pay_all, asked.batch, asked.loss, lanes, asked.levels,
            True, asked.centralised,
        )  # fmt: skip

    @cached_property
    def rates(self) -> Rates:
        """Rates, noise, and what arms pay; a sum under noise, or of coins, is divided by the expected cohort."""
        asked = self.settings
        divided = float(asked.cohort) if asked.noise or self.setup.sampling == "poisson" else 0.0
        divided = 0.0 if asked.centralised else divided
        arms = len(self.setup.population.arms)
        return Rates(
            asked.client_rate, asked.server_rate, asked.noise, divided, parameters(asked.exploration(), arms),
            (_table(self.setup.world.rewards.table),),
        )  # fmt: skip

    @cached_property
    def schedule(self) -> Schedule:
        """Rounds, cohorts and deployments."""
        asked, made = self.settings, self.setup
        samples = sources.padding(made.population, asked.cap, asked.batch)
        return Schedule(
            made.rounds, made.population.clients, asked.cohort, asked.deploy_every, samples, made.sampling,
            answers=asked.answers(),
        )  # fmt: skip

    @cached_property
    def source(self) -> Source:
        """Where cohorts come from: the device's memory, or the host's disk if that is too small."""
        population, cap = self.setup.population, self.settings.cap
        if sources.resident_bytes(population, cap) <= _MEMORY[self.settings.device]:
            return sources.resident(population, cap)
        return sources.host(population, self.schedule.samples, cap)

    @cached_property
    def pays(self) -> Pays | None:
        """What arms pay in a round, where the world drifts."""
        drift = self.settings.drifting(len(self.setup.population.arms))
        rewards = self.setup.world.rewards
        return None if drift is None else lambda round_: rewards.at(drift, round_).table

    def first(self, seed: int) -> State:
        """Return the state before the first round: drawn, or pre-trained where the scenario has it so."""
        world = self.setup.world
        return begin(self.task, seed, self._pretrained(seed) if world.pretrained else None)

    def rounds(self, state: State, upto: int, seed: int) -> tuple[State, Measured]:
        """Run rounds up to a number of them, at most `together` of them in one call."""
        return _next(
            train(
                self.task, self.rates, state, self.source, self.schedule._replace(rounds=upto), seed,
                together=self.together, pays=self.pays,
            )
        )  # fmt: skip

    def until(self, done: int) -> int:
        """Return the round at which the call ends that begins after `done` rounds; the same for every run."""
        return min(self.setup.rounds, (done // self.together + 1) * self.together)

    def warm_up(self) -> None:
        """Compile what rounds call, pre-training included, on clients without samples."""
        empty, planned = _emptied(self.source), self.setup.rounds
        for rounds in {min(planned, self.together), planned % self.together} - {0}:
            schedule = self.schedule._replace(rounds=rounds)
            state = begin(self.task, 0)
            _next(train(self.task, self.rates, state, empty, schedule, 0, together=self.together, pays=self.pays))
        if self.setup.world.pretrained:
            task, rates, schedule = self._before(self.settings.seed)
            _next(train(task, rates, begin(task, 0), empty, schedule, 0, together=self.together))

    def _pretrained(self, seed: int) -> Tree:
        """Learn from all rewards of some clients, without noise and with sums of floats."""
        task, rates, schedule = self._before(seed)
        *_, (last, _) = train(task, rates, begin(task, seed), self.source, schedule, seed, together=self.together)
        return last.params

    def _before(self, seed: int) -> tuple[Task, Rates, Schedule]:
        """Return what pre-training does."""
        asked, world = self.settings, self.setup.world
        assert world.before is not None
        before = Pretraining(asked.pretraining, world.pretrained)
        task = self.task._replace(optimiser=_optimiser(before.optimiser), levels=0, centralised=False)
        seen = None if world.pretrained_arms is None else jnp.asarray(world.pretrained_arms)
        rates = Rates(before.client_rate, before.server_rate, pays=(_table(world.before.table),), seen=seen)
        among = tuple(world.initial(self.setup.population.clients, seed).tolist())
        schedule = self.schedule._replace(
            rounds=before.rounds, clients=before.clients, cohort=min(asked.cohort, before.clients), sampling="fixed",
            supervised=True, among=among, deploy_every=before.rounds,
        )  # fmt: skip
        return task, rates, schedule


def parameters(chosen: Exploration, arms: int) -> tuple[Number, ...]:
    """Return a policy's parameters in the order of its function."""
    mu = arms / 5 if chosen.mu is None else chosen.mu
    return {
        "greedy": (), "epsilon-greedy": (chosen.epsilon,), "softmax": (chosen.beta,), "falcon": (mu, chosen.gamma),
    }[chosen.kind]  # fmt: skip


def check_finite(seen: Measured, done: int, settings: FedSettings) -> None:
    """Refuse to go on with numbers that are none.

    Of an update that is not finite clipping leaves nothing: where that befalls all of a round, nothing is learnt.
    """
    lost = (np.asarray(seen.within) == 0) & (np.asarray(seen.moved) == 0) & (np.asarray(seen.clients) > 0)
    if lost.any() or not all(np.isfinite(np.asarray(leaf)).all() for leaf in seen):
        raise DataError(
            f"numbers stopped being finite before round {done}: the model diverged. Lower client_rate "
            f"({settings.client_rate:g}) or server_rate ({settings.server_rate:g})."
        )


def _emptied(source: Source) -> Source:
    """Return a source of clients without samples: the same shapes, and next to no work."""
    if isinstance(source, Data):
        return source._replace(offsets=jnp.zeros_like(source.offsets))

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = source(numbers, present, round_)
        return found._replace(mask=jnp.zeros_like(found.mask))

    return cohort


def _next(rounds: Iterator[tuple[State, Measured]]) -> tuple[State, Measured]:
    try:
        return next(rounds)
    except OverflowingCohort as error:
        raise ConfigError(str(error)) from None


def _table(rewards: Any) -> jax.Array:
    return jnp.asarray(rewards, jnp.float32)
