"""Small tasks and populations that the tests of this folder share."""

from __future__ import annotations

from functools import lru_cache

import jax
import numpy as np

from posse.problems.populations.population import Population, Ragged
from posse.systems.fed_contextual.computing import rounds, tasks
from posse.systems.fed_contextual.computing.models import Tree, linear
from posse.systems.fed_contextual.computing.rounds import Cohort, Data
from posse.systems.fed_contextual.computing.server import Clipping, sgd
from posse.systems.fed_contextual.computing.tasks import Rates, Task

ARMS = ("0", "A", "a")
FEATURES = 5
MODEL = linear(FEATURES, len(ARMS))
SGD = sgd()
TASK = Task(
    MODEL,
    tasks.softmax,
    tasks.pay,
    SGD,
    Clipping(0.05),
    tasks.pay_all,
    batch=4,
)
"""Clips some updates and not others."""
RATES = Rates(0.1, 1.0, explore=(0.3,), pays=(np.eye(3, dtype=np.float32),))


@lru_cache
def population(clients: int = 12, seed: int = 0) -> Population:
    """Clients of 1 to 11 samples of five features, whose label shows in them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = rng.integers(0, len(ARMS), offsets[-1]).astype(np.int32)
    centres = rng.normal(size=(len(ARMS), FEATURES))
    inputs = (centres[labels] + 0.3 * rng.normal(size=(offsets[-1], FEATURES))).astype(np.float32)
    return Population("toy", ARMS, offsets, inputs, labels)


@lru_cache
def questions(clients: int = 10) -> Population:
    """Clients with bags of words and tags."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    words = Ragged.of(
        [rng.choice(20, rng.integers(1, 6), replace=False) for _ in range(offsets[-1])]
    )
    tags = Ragged.of(
        [rng.choice(12, rng.integers(0, 4), replace=False) for _ in range(offsets[-1] - 12)]
        + [[k] for k in range(12)]
    )
    return Population(
        "questions",
        tuple(f"tag-{k}" for k in range(12)),
        offsets,
        words,
        tags,
        vocabulary=tuple(f"word-{k}" for k in range(20)),
    )


def gathered(numbers: list[int], pad: int = 12, present: list[float] | None = None) -> Cohort:
    """A cohort of the toy population."""
    who = np.asarray(numbers, np.int32)
    here = np.ones(len(who), np.float32) if present is None else np.asarray(present, np.float32)
    source = rounds.host(population(), pad, 256)
    assert not isinstance(source, Data)
    return source(who, here, 0)


def close(one: Tree, other: Tree, tolerance: float = 1e-6) -> None:
    """Trees are alike to a tolerance, relative to their largest number."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) <= tolerance * max(1.0, np.abs(b).max(initial=0))


def same(one: Tree, other: Tree) -> None:
    """Trees are alike bit for bit."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


def differs(one: Tree, other: Tree) -> bool:
    """Some number differs."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
