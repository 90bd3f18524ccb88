"""The sweep of figure 8 (c): rewards of the plain twin, and of the same policies replayed in the authors' world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.experiments.samba.agreement import Comparison, Estimate, estimate
from posse.experiments.samba.problem import policy
from posse.experiments.samba.published import cells
from posse.experiments.samba.replay import replay
from posse.experiments.samba.their_thompson import their_beta, their_stream, their_thompson
from posse.policies import Thompson
from posse.problems.datasets.published import embedded_arms
from posse.protocols.samba.twin import simulate

STEPS = 2_000
"""Draws from which a correlation is measured: its standard error is .022 where there is none."""
BATCH = 10
"""Runs simulated at a time: the whole curve of each is kept, and memory should not grow with the number of runs."""


def our_rewards(dataset: str, name: str, arms: int, budgets: Sequence[int], runs: int) -> NDArray[np.float64]:
    """Cumulative rewards of the plain twin at the budgets, one row a run.

    Every policy here is told t and never N, so a run of N steps begins with the runs of all smaller budgets.
    """
    problem, chosen = embedded_arms(dataset, arms), policy(name, dataset)
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
    means = embedded_arms(dataset, arms).means
    if name == "thompson":
        again = their_thompson(means, budgets, runs)
    else:
        again = replay(means, policy(name, dataset), budgets, runs)
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
    """Thompson sampling with some of what the authors' code does: its world, one stream for all owners, its sampler."""

    dataset: str
    arms: int
    budget: int
    their_world: bool
    draws: str
    reward: Estimate
    theirs: Estimate


OWN, SHARED, THEIRS = "own streams", "one stream", "one stream, their sampler"


def thompson_variants(known: Comparison) -> list[Variant]:
    """Switch on what the authors' code does one by one; with nothing and with everything is known already."""
    means, runs = embedded_arms(known.dataset, known.arms).means, known.ours.runs

    def again(their_world: bool, shared: bool) -> Estimate:
        budgets = (known.budget,)
        rewards = replay(means, Thompson(), budgets, runs, their_world=their_world, shared_draws=shared)
        return estimate(rewards[:, 0])

    found = [
        (False, OWN, known.ours),
        (False, SHARED, again(False, True)),
        (True, OWN, again(True, False)),
        (True, SHARED, again(True, True)),
        (True, THEIRS, known.replayed),
    ]
    return [Variant(known.dataset, known.arms, known.budget, *one, known.theirs) for one in found]


def draw_correlation(draws: str) -> tuple[float, float]:
    """Smallest and largest correlation between the samples of five arms with fixed posteriors, over steps."""
    posteriors = ((530, 1000), (60, 140), (20, 60), (900, 1700), (5, 15))
    samples = np.array([[_sample(draws, arm, t, *one) for t in range(STEPS)] for arm, one in enumerate(posteriors)])
    pairs = np.corrcoef(samples)[np.triu_indices(len(posteriors), 1)]
    return float(pairs.min()), float(pairs.max())


def _sample(draws: str, arm: int, t: int, total: int, pulls: int) -> float:
    if draws == THEIRS:
        return float(their_beta(total + 1.0, pulls - total + 1.0, their_stream(STEPS)[t]))
    return Thompson.score(t, 0, float(total), pulls, 0.0, np.uint64(1 if draws == SHARED else 1 + arm), (0.0,))
