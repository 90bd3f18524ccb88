"""What rounds work on, made from a job: a task, its rates, a schedule and a source. Studies and runs share it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import ConfigError
from posse.problems.populations.population import Population
from posse.problems.populations.worlds import Rewards, Scenario
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.aggregation import Clipping
from posse.protocols.fed_contextual.cohorts import room
from posse.protocols.fed_contextual.jobs import Job
from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.rounds import Rates, Task
from posse.protocols.fed_contextual.server import optimiser
from posse.protocols.fed_contextual.training import Pays, Schedule, Source

DEVICES = ("cpu", "gpu")
MEMORY = {"cpu": 2 << 30, "gpu": 24 << 30}
"""Bytes of a population that are put on a device whole; of a larger one cohorts are gathered on the host."""
SIDE = {"cpu": 1, "gpu": 8}
"""Runs side by side, at most."""

_optimiser = lru_cache(optimiser)
"""One object a name: what is compiled depends on it."""


class Own(NamedTuple):
    """A user's own model and rewards, instead of those of the population and the scenario."""

    model: Model | None = None
    pay: sources.OwnPay | None = None


NOTHING = Own()


def check_own(own: Own, population: Population) -> None:
    """Refuse a model that does not score the arms, and rewards that are not one a sample."""
    gather, pad = sources.host(population, population.largest, population.largest), population.largest
    assert callable(gather)
    one = gather(np.zeros(1, np.int32), np.ones(1, np.float32), 0)
    contexts, labels = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (one.contexts, one.labels))
    if own.model is not None:
        params = jax.eval_shape(own.model.init, jax.random.key(0))
        found = jax.eval_shape(own.model.scores, params, contexts).shape
        if found != (wanted := (pad, len(population.arms))):
            raise ConfigError(f"a model must give scores of shape {wanted}, samples x arms, got {found}. Correct it.")
    if own.pay is not None:
        found = jax.eval_shape(own.pay, contexts, labels, jnp.zeros(pad, jnp.int32)).shape
        if found != (pad,):
            raise ConfigError(f"pay must give one reward a sample, {(pad,)}, got {found}. Correct it.")


class Plan(NamedTuple):
    """All that rounds need beside a state and a source of cohorts."""

    task: Task
    rates: Rates
    schedule: Schedule
    pays: Pays | None = None
    """What arms pay in a round, where the world drifts."""


def bandit(job: Job, population: Population, world: Scenario, lanes: int = 1, own: Own = NOTHING) -> Plan:
    """Plan the bandit phase, with the first pair of rates; a sum under noise, or of coins, has a fixed divisor."""
    arms = len(population.arms)
    model = own.model or sources.model_of(population, job.model, job.hidden, job.channels)
    pay, pay_all = (sources.pay, sources.pay_all) if own.pay is None else sources.paid_by(own.pay, arms)
    task = Task(
        model, sources.POLICIES[job.policy], pay, _optimiser(job.optimiser), Clipping(job.clip, job.quantile), pay_all,
        job.batch, job.loss, lanes, job.levels, job.learns, job.centralised,
    )  # fmt: skip
    expected = (job.noise or job.sampling == "poisson") and not job.centralised
    rates = Rates(
        *job.pairs[0], job.noise, float(job.cohort) if expected else 0.0, job.explore(arms),
        _tables(world.rewards, own),
    )  # fmt: skip
    schedule = Schedule(
        job.rounds, population.clients, job.cohort, job.deploy_every, sources.padding(population, job.cap, job.batch),
        job.sampling, answers=job.answers(),
    )  # fmt: skip
    drift = job.drifts(arms)
    return Plan(task, rates, schedule, None if drift is None else lambda at: world.rewards.at(drift, at).table)


def supervised(plan: Plan, job: Job, population: Population, world: Scenario, seed: int, own: Own = NOTHING) -> Plan:
    """Plan pre-training before a plan's bandit phase: rounds on all rewards of some clients, without noise."""
    assert world.before is not None
    before = job.pretraining
    task = plan.task._replace(optimiser=_optimiser(before.optimiser), levels=0, learns=True, centralised=False)
    seen = None if world.pretrained_arms is None else jnp.asarray(world.pretrained_arms)
    rates = Rates(before.client_rate, before.server_rate, pays=_tables(world.before, own), seen=seen)
    schedule = plan.schedule._replace(
        rounds=before.rounds, clients=before.clients, cohort=min(job.cohort, before.clients), sampling="fixed",
        supervised=True, among=tuple(world.initial(population.clients, seed).tolist()), deploy_every=before.rounds,
    )  # fmt: skip
    return Plan(task, rates, schedule)


def source_of(population: Population, cap: int, samples: int, device: str, whole: bool | None = None) -> Source:
    """Return where cohorts come from: the device's memory where the population is small enough, else the host."""
    if whole is None:
        whole = sources.resident_bytes(population, cap) <= MEMORY[device]
    return sources.resident(population, cap) if whole else sources.host(population, samples, cap)


def lanes_of(job: Job, device: str) -> int:
    """Return how many clients are worked on side by side: a cohort on a GPU, one on a CPU."""
    return room(job.cohort, job.sampling) if device == "gpu" else 1


def side_of(runs: int, most: int) -> int:
    """Return how many runs go side by side, so that all groups are of one size.

    >>> side_of(9, 8), side_of(3, 8), side_of(5, 1)
    (5, 3, 1)
    """
    groups = -(-runs // most)
    return -(-runs // groups)


def device_of(name: str) -> jax.Device:
    """Return a device by kind, or say that there is none."""
    if name not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {name!r}. Choose one.")
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        raise ConfigError(
            f"JAX {jax.__version__} sees no {name} here, only {jax.default_backend()}. Use --device cpu, or install "
            "JAX for the machine's accelerator: pip install 'jax[cuda12]'."
        ) from None


def _tables(rewards: Rewards, own: Own) -> tuple[jax.Array, ...]:
    """Return what `pay` is given beside labels: the table, which a user's own function does without."""
    return () if own.pay is not None else (jnp.asarray(rewards.table, jnp.float32),)
