"""The published numbers, by cell of the sweep."""

from __future__ import annotations

from functools import cache

from posse.experiments.samba.problem import PUBLISHED_NAMES
from posse.problems.datasets.published import Kind, PublishedResult, published_results

Key = tuple[Kind, str, str, int, int]


@cache
def _cells() -> dict[Key, PublishedResult]:
    return {(r.kind, r.dataset, r.algorithm, r.arms, r.budget): r for r in published_results()}


def published(dataset: str, policy: str, arms: int, budget: int, kind: Kind = "benchmarks") -> PublishedResult:
    """Give the authors' result of one cell; `policy` is our name of it.

    >>> published("movielens", "ucb", 10, 100_000).plain_reward.mean
    52310.22
    """
    return _cells()[kind, dataset, PUBLISHED_NAMES[policy], arms, budget]


def cells(dataset: str, policy: str, arms: int, budgets: tuple[int, ...]) -> tuple[PublishedResult, ...]:
    """Give every published reward of a policy at K arms and these budgets, of both kinds of run."""
    kinds: tuple[Kind, ...] = ("benchmarks", "rewards")
    keys = [(kind, dataset, PUBLISHED_NAMES[policy], arms, budget) for kind in kinds for budget in budgets]
    return tuple(_cells()[key] for key in keys if key in _cells())
