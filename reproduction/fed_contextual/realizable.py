"""Bounds (8) to (10) of section 6 and FALCON's, and a world that has all that the section assumes.

The class F is finite and holds the truth: |F| tables of rewards over contexts and arms, each entry
0.5 or `GAP` above or below. Clients see contexts in their own proportions (Dirichlet), and every
seed draws tables, truth and clients anew. The regression oracle is exact: least squares over F on
all data so far, so that its error is 0. Regret is expected, by the known truth. Constants that O
hides are taken as 1. FedAvg stands beside it: the system itself on such a world, with a linear
model of one number a context and arm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.policies.contextual.explorations import EpsilonGreedy, Falcon, epsilon_greedy, greedy
from posse.policies.contextual.schedules import C, explores_of
from reproduction.kit import Floats

ARMS, CONTEXTS, CLASS, GAP = 5, 32, 1024, 0.15
EPSILON, DELTA, SPREAD = 0.05, 0.05, 0.3
"""Epsilon of the paper's experiments, the chance that a bound may fail, and Dirichlet's parameter
of clients.
"""
CONSTANTS = (C, 1.0)
"""FALCON's c: that of its proof, and 1."""


@dataclass(frozen=True)
class Size:
    """How many clients, decisions of each in a period, periods and seeds; and the same of FedAvg's
    runs.
    """

    clients: tuple[int, ...] = (1, 2, 5, 10, 20, 40)
    decisions: int = 50
    periods: int = 40
    seeds: tuple[int, ...] = tuple(range(1, 101))
    alone: tuple[int, ...] = (50, 200, 800, 3200)
    """Decisions of a single period."""
    rounds: int = 200
    system_clients: tuple[int, ...] = (1, 2, 5, 10, 20, 40)
    runs: int = 5


FULL = Size()
SMALL = Size((1, 40), 50, 8, tuple(range(1, 7)), (50, 400), 20, (1,), 2)
EVERY = 5
"""Rounds of a period, and samples of a client, in FedAvg's runs: 5 rounds of 10 samples are 50
decisions.
"""


# Bounds, as printed.


def bound8(n: int, i: int, epsilon: float = EPSILON) -> float:
    """Regret of the greedy policy after i periods of n samples.

    >>> round(bound8(2000, 40), 3)
    0.184
    """
    return math.sqrt(2 * ARMS / epsilon * math.log(CLASS * i / DELTA) / (n * i))


def bound9(n: int, periods: int, epsilon: float = EPSILON) -> float:
    """Cumulative regret after some periods of n decisions, a model each."""
    each = 2 * ARMS / epsilon * n * math.log(CLASS * periods / DELTA)
    return epsilon * n * periods + n + sum(math.sqrt(each / (i - 1)) for i in range(2, periods + 1))


def bound10(steps: int, epsilon: float = EPSILON) -> float:
    """Cumulative regret after so many decisions, with a new model after each."""
    each = 2 * ARMS / epsilon * math.log(CLASS * steps / DELTA)
    return epsilon * steps + 1 + float(np.sqrt(each / np.arange(1, steps)).sum())


def bound_falcon(n: int, periods: int) -> float:
    """Regret a decision of FALCON after some periods of n samples."""
    return math.sqrt(ARMS * math.log(CLASS * periods / DELTA) / (n * periods))


# The world, and runs in it.


@dataclass(frozen=True, eq=False)
class World:
    """Tables of rewards, which of them is true, how often contexts are seen, and the draws that
    follow.
    """

    tables: Floats
    """(class, contexts, arms)"""
    truth: Floats
    first: int
    """The model before there are data."""
    contexts: Floats
    draws: np.random.Generator

    @property
    def lost(self) -> Floats:
        """(contexts, arms) regret of every arm."""
        return np.asarray(self.truth.max(axis=1, keepdims=True) - self.truth)

    def regret(self, chances: Floats) -> float:
        """Expected regret a decision of a policy."""
        return float(self.contexts @ (chances * self.lost).sum(axis=1))


def world_of(seed: int, clients: int) -> World:
    """Draw a world; those of a seed have the same tables, truth and first clients."""
    draws = np.random.Generator(np.random.Philox(seed))
    tables: Floats = np.asarray(
        0.5 + GAP * draws.integers(-1, 2, (CLASS, CONTEXTS, ARMS)), np.float64
    )
    true, first = draws.choice(CLASS, 2, replace=False)
    seen = draws.dirichlet(np.full(CONTEXTS, SPREAD), max(FULL.clients))[:clients].mean(axis=0)
    return World(
        tables,
        tables[true],
        int(first),
        seen,
        np.random.Generator(np.random.Philox([seed, clients])),
    )


def federated(seed: int, clients: int, size: Size, policy: EpsilonGreedy | Falcon) -> Floats:
    """Return (2, periods): expected regret a decision of the policy deployed in each period, and of
    its greedy arm.

    Counts and sums of rewards by context and arm are all that least squares needs.
    """
    world, n = world_of(seed, clients), clients * size.decisions
    own = (
        explores_of("falcon", policy, ARMS, n, math.log(CLASS))
        if isinstance(policy, Falcon)
        else None
    )
    flat = world.tables.reshape(CLASS, -1)
    squares, counts, sums = flat**2, np.zeros(CONTEXTS * ARMS), np.zeros(CONTEXTS * ARMS)
    chosen, found = world.first, np.zeros((2, size.periods))
    for period in range(size.periods):
        values = policy.values(ARMS) if own is None else own(period + 1)
        chances = np.asarray(type(policy).formula(world.tables[chosen], *values))
        found[:, period] = (
            world.regret(chances),
            world.regret(np.asarray(greedy(world.tables[chosen]))),
        )
        pulls = world.draws.multinomial(world.draws.multinomial(n, world.contexts), chances)
        counts += pulls.ravel()
        sums += world.draws.binomial(pulls, world.truth).ravel()
        chosen = int(np.argmin(squares @ counts - 2 * (flat @ sums)))
    return found


def central(seeds: Sequence[int], steps: int) -> Floats:
    """Return (2, seeds, steps): the same for one client of epsilon-Greedy with a new model after
    every decision.
    """
    worlds = [world_of(seed, 1) for seed in seeds]
    tables = np.stack([one.tables for one in worlds])
    first = np.array([one.first for one in worlds])
    uniforms = np.stack([one.draws.random((3, steps)) for one in worlds], axis=1)
    places = np.stack([one.draws.choice(CONTEXTS, steps, p=one.contexts) for one in worlds])
    every, losses, found = (
        np.arange(len(seeds)),
        np.zeros((len(seeds), CLASS)),
        np.zeros((2, len(seeds), steps)),
    )
    lost, often = np.stack([one.lost for one in worlds]), np.stack([one.contexts for one in worlds])
    truth = np.stack([one.truth for one in worlds])
    for step in range(steps):
        chosen = first if step == 0 else losses.argmin(axis=1)
        scores = tables[every, chosen]
        best = np.asarray(greedy(scores))
        chances = np.asarray(epsilon_greedy(scores, EPSILON))
        for row, given in enumerate((chances, best)):
            found[row, :, step] = np.einsum("sx,sxa->s", often, given * lost)
        x = places[:, step]
        u, v, w = uniforms[:, :, step]
        arm = np.where(u < EPSILON, (v * ARMS).astype(int), best[every, x].argmax(axis=1))
        reward = w < truth[every, x, arm]
        losses += (tables[every, :, x, arm] - reward[:, None]) ** 2
    return found


def fedavg(clients: int, size: Size, policy: dict[str, Any]) -> Floats:
    """Return regret a decision in the last period of the system's own runs, one a seed."""
    import jax.numpy as jnp

    from posse.problems.populations.population import Population
    from posse.systems.fed_contextual.settings import FedContextual
    from posse.systems.fed_contextual.system import SYSTEM

    world, samples = world_of(0, clients), size.decisions // EVERY
    places = world.draws.choice(CONTEXTS, clients * samples, p=world.contexts)
    inputs, truth = (
        np.eye(CONTEXTS, dtype=np.float32)[places],
        jnp.asarray(world.truth, jnp.float32),
    )
    offsets, labels = np.arange(0, len(places) + 1, samples), np.zeros(len(places), np.int32)
    population = Population(
        "section-6", tuple(f"arm-{a}" for a in range(1, ARMS + 1)), offsets, inputs, labels
    )

    def pay(contexts: Any, labels: Any, arms: Any) -> Any:
        return truth[jnp.argmax(contexts, axis=-1), arms]

    settings = FedContextual(
        **policy,
        horizon=size.rounds,
        points=size.rounds,
        cohort=clients,
        deploy_every=EVERY,
        runs=size.runs,
        seed=1,
    )
    run = SYSTEM.start(settings, population=population, pay=pay)
    run.finish()
    curves: Any = run.record().show["curves"]
    lost = np.array(
        next(
            one["values"]
            for one in curves
            if one["name"].startswith("cumulative regret to the best")
        )
    )
    return np.asarray((lost[:, -1] - lost[:, -1 - EVERY]) / (EVERY * clients * samples))
