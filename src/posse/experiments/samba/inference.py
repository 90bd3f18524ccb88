"""Which parameters the published rewards point at, as a check on those in the authors' repository.

Every candidate is replayed in the authors' world at K = 10 and held against the published rewards of all budgets; the
one with the smallest mean squared difference (in standard errors) is what the rewards imply. Agreement is then judged
on the other K, which the choice has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.experiments.base import Table
from posse.experiments.samba.agreement import Estimate, estimate, z_score
from posse.experiments.samba.problem import PARAMETERS, TITLES, EpsilonLog, top_means
from posse.experiments.samba.published import cells
from posse.experiments.samba.replay import replay
from posse.policies import EpsilonDecreasing, EpsilonGreedy, Policy, Pursuit, Softmax

ARMS = 10
EPSILONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
TAUS = (0.001, 0.007, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1)
BETAS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
SCHEDULES: dict[str, Policy] = {
    "1 / log2 t": EpsilonLog(),
    "0.5 / log2 t": EpsilonLog(0.5),
    "2 / log2 t": EpsilonLog(2.0),
    "10 / t": EpsilonDecreasing("inverse", 10.0),
    "100 / t": EpsilonDecreasing("inverse", 100.0),
    "1 / sqrt t": EpsilonDecreasing("inverse-sqrt", 1.0),
    "5 / sqrt t": EpsilonDecreasing("inverse-sqrt", 5.0),
    "5 K / t": EpsilonDecreasing("inverse-arms", 5.0),
    "50 K / t": EpsilonDecreasing("inverse-arms", 50.0),
}


@dataclass(frozen=True)
class Implied:
    """What the rewards say about one parameter: the misfit of every candidate, and the value in the repository."""

    dataset: str
    parameter: str
    misfit: dict[str, float]
    """Mean squared difference in standard errors, by candidate; about 1 where a candidate fits."""
    repository: str

    @property
    def chosen(self) -> str:
        """The candidate that fits best."""
        return min(self.misfit, key=lambda candidate: self.misfit[candidate])


def candidates(dataset: str, *, small: bool) -> list[tuple[str, str, dict[str, Policy], str]]:
    """Give every parameter with its policy, candidates and repository value."""
    known = PARAMETERS[dataset]
    epsilons: dict[str, Policy] = {f"{e:g}": EpsilonGreedy(e) for e in (EPSILONS[3:] if small else EPSILONS)}
    found = [("epsilon", "epsilon-greedy", epsilons, f"{known['epsilon']:g}")]
    if not small:
        found += [
            ("tau", "softmax", {f"{tau:g}": Softmax(tau) for tau in TAUS}, f"{known['tau']:g}"),
            ("beta", "pursuit", {f"{beta:g}": Pursuit(beta) for beta in BETAS}, f"{known['beta']:g}"),
            ("schedule", "epsilon-log", SCHEDULES, "1 / log2 t"),
        ]
    return found


def imply(dataset: str, budgets: Sequence[int], runs: int, *, small: bool) -> list[Implied]:
    """Replay every candidate at K = 10."""
    means = top_means(dataset, ARMS)
    found = []
    for parameter, name, policies, repository in candidates(dataset, small=small):
        theirs = [
            Estimate(cell.plain_reward.mean, cell.plain_reward.sd, cell.runs)
            for cell in cells(dataset, name, ARMS, tuple(budgets))
        ]
        misfit = {}
        for candidate, policy in policies.items():
            rewards = replay(means, policy, budgets, runs)
            zs = [z_score(estimate(rewards[:, i]), cell) for i, cell in enumerate(theirs)]
            misfit[candidate] = float(np.mean(np.square(zs)))
        found.append(Implied(dataset, parameter, misfit, repository))
    return found


def implied_table(found: Sequence[Implied]) -> Table:
    """One row a parameter, best candidates first."""
    rows = []
    for one in found:
        ranked = sorted(one.misfit, key=lambda candidate: one.misfit[candidate])
        shown = ", ".join(f"{candidate}: {one.misfit[candidate]:.3g}" for candidate in ranked[:4])
        same = "yes" if one.chosen == one.repository else "no"
        rows.append((TITLES[one.dataset], one.parameter, one.repository, one.chosen, same, shown))
    columns = (
        "data", "parameter", "in the authors' repository", "implied by rewards at K = 10", "same",
        "mean squared z of the best candidates",
    )  # fmt: skip
    return Table("Parameters (the paper does not print them)", columns, tuple(rows))
