"""Which parameters the published rewards point at, as a check on those in the authors' repository.

Every candidate is replayed in the authors' world at K = 10 and held against the published rewards of all budgets; the
ones that differ by less than three standard errors at every budget fit. Several may: the rewards of one policy at one K
do not determine its parameter. Agreement is then judged on the other K, which this check has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posse.experiments.base import Table
from posse.experiments.samba.agreement import Estimate, estimate, verdict, z_score
from posse.experiments.samba.problem import PARAMETERS, TITLES
from posse.experiments.samba.published import cells
from posse.experiments.samba.replay import replay
from posse.policies import EpsilonDecreasing, EpsilonGreedy, Policy, Pursuit, Softmax
from posse.problems.datasets.published import embedded_arms

ARMS = 10
EPSILONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
TAUS = (0.001, 0.007, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1)
BETAS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
SCHEDULES: dict[str, Policy] = {
    "1 / log2 t": EpsilonDecreasing("inverse-log"),
    "0.5 / log2 t": EpsilonDecreasing("inverse-log", 0.5),
    "2 / log2 t": EpsilonDecreasing("inverse-log", 2.0),
    "10 / t": EpsilonDecreasing("inverse", 10.0),
    "100 / t": EpsilonDecreasing("inverse", 100.0),
    "1 / sqrt t": EpsilonDecreasing("inverse-sqrt", 1.0),
    "5 / sqrt t": EpsilonDecreasing("inverse-sqrt", 5.0),
    "5 K / t": EpsilonDecreasing("inverse-arms", 5.0),
    "50 K / t": EpsilonDecreasing("inverse-arms", 50.0),
}


@dataclass(frozen=True)
class Implied:
    """What the rewards say about one parameter: how far every candidate is off, and the value in the repository."""

    dataset: str
    parameter: str
    worst: dict[str, float]
    """Largest difference over the budgets, in standard errors, by candidate."""
    repository: str

    @property
    def fitting(self) -> tuple[str, ...]:
        """The candidates that agree at every budget, nearest first."""
        ranked = sorted(self.worst, key=lambda candidate: self.worst[candidate])
        return tuple(candidate for candidate in ranked if verdict(self.worst[candidate]) == "agrees")


def candidates(dataset: str, *, small: bool) -> list[tuple[str, str, dict[str, Policy], str]]:
    """Give every parameter with its policy, candidates and repository value."""
    known = PARAMETERS[dataset]
    epsilons: dict[str, Policy] = {f"{e:g}": EpsilonGreedy(e) for e in (EPSILONS[3:] if small else EPSILONS)}
    found = [("epsilon", "epsilon-greedy", epsilons, f"{known['epsilon']:g}")]
    if not small:
        found += [
            ("tau", "softmax", {f"{tau:g}": Softmax(tau) for tau in TAUS}, f"{known['tau']:g}"),
            ("beta", "pursuit", {f"{beta:g}": Pursuit(beta) for beta in BETAS}, f"{known['beta']:g}"),
            ("schedule", "epsilon-decreasing", SCHEDULES, "1 / log2 t"),
        ]
    return found


def imply(dataset: str, budgets: Sequence[int], runs: int, *, small: bool) -> list[Implied]:
    """Replay every candidate at K = 10."""
    means = embedded_arms(dataset, ARMS).means
    found = []
    for parameter, name, policies, repository in candidates(dataset, small=small):
        theirs = [
            Estimate(cell.plain_reward.mean, cell.plain_reward.sd, cell.runs)
            for cell in cells(dataset, name, ARMS, tuple(budgets))
        ]
        worst = {}
        for candidate, policy in policies.items():
            rewards = replay(means, policy, budgets, runs)
            zs = [z_score(estimate(rewards[:, i]), cell) for i, cell in enumerate(theirs)]
            worst[candidate] = max(abs(z) for z in zs)
        found.append(Implied(dataset, parameter, worst, repository))
    return found


def implied_table(found: Sequence[Implied]) -> Table:
    """One row a parameter."""
    rows = []
    for one in found:
        fits = "yes" if one.repository in one.fitting else "no"
        fitting = ", ".join(f"{candidate} ({one.worst[candidate]:.1f})" for candidate in one.fitting) or "none"
        others = ", ".join(
            f"{candidate} ({worst:.3g})" for candidate, worst in one.worst.items() if candidate not in one.fitting
        )
        rows.append((TITLES[one.dataset], one.parameter, one.repository, fits, fitting, others or "none"))
    columns = (
        "data", "parameter", "in the authors' repository", "it fits", "all candidates that fit (largest |z|)",
        "candidates that do not",
    )  # fmt: skip
    return Table("Parameters held against the published rewards at K = 10", columns, tuple(rows))
