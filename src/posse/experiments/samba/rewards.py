"""The sweep of figure 8 (c): rewards of the plain twin, and of the same policies replayed in the authors' world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.experiments.samba.agreement import Comparison, Estimate, estimate
from posse.experiments.samba.problem import policy, top_arms, top_means
from posse.experiments.samba.published import cells
from posse.experiments.samba.replay import replay
from posse.policies import Thompson
from posse.protocols.samba.plain import simulate

BATCH = 10
"""Runs simulated at a time: the whole curve of each is kept, and memory should not grow with the number of runs."""


def our_rewards(dataset: str, name: str, arms: int, budgets: Sequence[int], runs: int) -> NDArray[np.float64]:
    """Cumulative rewards of the plain twin at the budgets, one row a run.

    Every policy here is told t and never N, so a run of N steps begins with the runs of all smaller budgets.
    """
    problem, chosen = top_arms(dataset, arms), policy(name, dataset)
    parts = []
    for first in range(1, runs + 1, BATCH):
        seeds = range(first, min(first + BATCH, runs + 1))
        outcome = simulate(problem, chosen, budgets[-1], seeds, points=budgets[-1])
        parts.append(outcome.reward[:, [budget - 1 for budget in budgets]])
    return np.concatenate(parts)


def compare_cells(dataset: str, name: str, arms: int, budgets: Sequence[int], runs: int) -> list[Comparison]:
    """Put every published reward of a policy at K arms beside ours."""
    theirs = cells(dataset, name, arms, tuple(budgets))
    ours = our_rewards(dataset, name, arms, budgets, runs)
    again = replay(top_means(dataset, arms), policy(name, dataset), budgets, runs, shared_draws=name == "thompson")
    found = []
    for cell in theirs:
        place = list(budgets).index(cell.budget)
        found.append(
            Comparison(
                cell.kind, dataset, name, arms, cell.budget,
                ours=estimate(ours[:, place]),
                replayed=estimate(again[:, place]),
                theirs=Estimate(cell.plain_reward.mean, cell.plain_reward.sd, cell.runs),
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Variant:
    """Thompson sampling with one or both of the authors' shared streams."""

    dataset: str
    arms: int
    budget: int
    their_world: bool
    shared_draws: bool
    reward: Estimate
    theirs: Estimate


def thompson_variants(known: Comparison) -> list[Variant]:
    """Run Thompson sampling with one of the two shared streams; with neither and with both is known already."""
    means, runs = top_means(known.dataset, known.arms), known.ours.runs

    def variant(their_world: bool, shared: bool, reward: Estimate | None = None) -> Variant:
        if reward is None:
            rewards = replay(
                means, Thompson(), (known.budget,), runs, their_world=their_world, shared_draws=shared
            )  # fmt: skip
            reward = estimate(rewards[:, 0])
        return Variant(known.dataset, known.arms, known.budget, their_world, shared, reward, known.theirs)

    return [
        variant(False, False, known.ours),
        variant(False, True),
        variant(True, False),
        variant(True, True, known.replayed),
    ]


def draw_correlation(shared: bool, *, steps: int = 2_000) -> tuple[float, float]:
    """Smallest and largest correlation between the samples of five arms with fixed posteriors, over steps."""
    posteriors = ((530, 1000), (60, 140), (20, 60), (900, 1700), (5, 15))
    draw = Thompson.score
    keys = [np.uint64(1 if shared else 1 + arm) for arm in range(len(posteriors))]
    samples = np.array([
        [draw(t, 0, float(total), pulls, 0.0, key, (0.0,)) for t in range(1, steps + 1)]
        for (total, pulls), key in zip(posteriors, keys, strict=True)
    ])  # fmt: skip
    pairs = np.corrcoef(samples)[np.triu_indices(len(posteriors), 1)]
    return float(pairs.min()), float(pairs.max())
