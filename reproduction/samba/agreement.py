"""Whether our mean rewards agree with the published ones, and which parameters these point at.

Three differences are taken, in standard errors. `z` counts the published runs as independent. They
are not (see `replay`): they share one world, so their mean is uncertain by that world's luck as
well. `z_world` adds it: N numbers that all runs are paid by, of which a share p pays, vary by
sqrt(N p (1 - p)). `z_replay` instead replays our policies in their world, where that luck cancels.

Parameters are those of the authors' repository. As a check, every candidate is replayed in the
authors' world at K = 10 and compared with the published rewards of all budgets; the ones that
differ by less than three standard errors at every budget fit. Several may: the rewards of one
policy at one K do not determine its parameter. Agreement is then judged on the other K, which this
check has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posse.policies import EpsilonDecreasing, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson
from posse.problems.datasets.published import embedded_arms
from posse.systems.samba.twin import simulate
from reproduction.kit import Floats, Row, Table
from reproduction.samba.problem import PARAMETERS, TITLES, cells, policy
from reproduction.samba.published import PublishedResult
from reproduction.samba.replay import replay, their_beta, their_stream, their_thompson

LIMIT = 3.0
"""Differences below so many standard errors count as agreement."""
BEYOND = math.erfc(LIMIT / math.sqrt(2.0))
"""Chance of a difference beyond the limit between numbers that do agree."""


@dataclass(frozen=True)
class Estimate:
    """A mean over runs."""

    mean: float
    sd: float
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the mean of independent runs."""
        return self.sd / math.sqrt(self.runs)

    def __str__(self) -> str:
        return f"{self.mean:.0f} ± {self.error:.0f}"


def estimate(rewards: ArrayLike) -> Estimate:
    """Mean and sample standard deviation of the rewards of runs.

    >>> estimate([1.0, 3.0])
    Estimate(mean=2.0, sd=1.4142135623730951, runs=2)
    """
    values = np.asarray(rewards, np.float64)
    return Estimate(float(values.mean()), float(values.std(ddof=1)), len(values))


def published_estimate(cell: PublishedResult) -> Estimate:
    """The plain reward that the authors published."""
    return Estimate(cell.plain_reward.mean, cell.plain_reward.sd, cell.runs)


def z_score(ours: Estimate, theirs: Estimate, *, world: float = 0.0) -> float:
    """(ours - theirs) / sqrt(error_ours^2 + error_theirs^2 + world^2), world the sd of a luck that
    their runs share.

    >>> z_score(Estimate(10.0, 3.0, 9), Estimate(8.0, 4.0, 4))
    0.8944271909999159
    """
    return (ours.mean - theirs.mean) / math.sqrt(ours.error**2 + theirs.error**2 + world**2)


def runs_to_tell(one: Estimate, other: Estimate) -> int:
    """How many runs would make a difference of this size clear.

    >>> runs_to_tell(Estimate(10.0, 3.0, 9), Estimate(8.0, 3.0, 9))
    41
    """
    z = abs(z_score(one, other))
    return math.ceil(one.runs * (LIMIT / z) ** 2) if z else 0


def world_sd(theirs: Estimate, budget: int) -> float:
    """Luck of a world that all runs share: sqrt(N p (1 - p)), p their reward a pull.

    >>> world_sd(Estimate(20.0, 1.0, 50), 100)
    4.0
    """
    share = theirs.mean / budget
    return math.sqrt(budget * share * (1.0 - share))


def verdict(z: float) -> str:
    """The word for a difference."""
    return "agrees" if abs(z) < LIMIT else "differs"


@dataclass(frozen=True)
class Comparison:
    """One cell of the published rewards beside ours, in our world and replayed in theirs."""

    kind: str
    dataset: str
    policy: str
    arms: int
    budget: int
    ours: Estimate
    replayed: Estimate
    theirs: Estimate

    @property
    def z(self) -> float:
        """Our world against theirs, their runs counted as independent."""
        return z_score(self.ours, self.theirs)

    @property
    def z_world(self) -> float:
        """Our world against theirs, with the luck of their one world in the error."""
        return z_score(self.ours, self.theirs, world=world_sd(self.theirs, self.budget))

    @property
    def z_replay(self) -> float:
        """Our policies in their world against their rewards."""
        return z_score(self.replayed, self.theirs)

    def row(self) -> Row:
        """The comparison as a row of the raw file."""
        row: dict[str, str | int | float] = {
            "kind": self.kind,
            "dataset": self.dataset,
            "policy": self.policy,
            "K": self.arms,
            "N": self.budget,
        }
        for name, one in (
            ("ours", self.ours),
            ("replayed", self.replayed),
            ("published", self.theirs),
        ):
            row |= {f"{name}_mean": one.mean, f"{name}_sd": one.sd, f"{name}_runs": one.runs}
        for name, z in (("z", self.z), ("z_world", self.z_world), ("z_replay", self.z_replay)):
            row |= {name: z, f"{name}_verdict": verdict(z)}
        return row


# Rewards of the plain twin, and of the same policies replayed in the authors' world.

BATCH = 10
"""Runs simulated at a time: the whole curve of each is kept, and memory should not grow with the
number of runs.
"""


def our_rewards(dataset: str, name: str, arms: int, budgets: Sequence[int], runs: int) -> Floats:
    """Cumulative rewards of the plain twin at the budgets, one row a run.

    Every policy here knows t and not N, so a run of N steps begins with the runs of all smaller
    budgets.
    """
    problem, chosen = embedded_arms(dataset, arms), policy(name, dataset)
    parts = []
    for first in range(1, runs + 1, BATCH):
        seeds = range(first, min(first + BATCH, runs + 1))
        outcome = simulate(problem, chosen, budgets[-1], seeds, points=budgets[-1])
        parts.append(outcome.reward[:, [budget - 1 for budget in budgets]])
    return np.concatenate(parts)


def compare_cells(
    dataset: str, name: str, arms: int, budgets: Sequence[int], runs: int
) -> list[Comparison]:
    """Put every published reward of a policy at K arms beside ours."""
    theirs = cells(dataset, name, arms, tuple(budgets))
    ours = our_rewards(dataset, name, arms, budgets, runs)
    means = embedded_arms(dataset, arms).means
    if name == "thompson":
        again = their_thompson(means, budgets, runs)
    else:
        again = replay(means, policy(name, dataset), budgets, runs)
    compared = []
    for cell in theirs:
        place = list(budgets).index(cell.budget)
        rewards = estimate(ours[:, place]), estimate(again[:, place]), published_estimate(cell)
        compared.append(Comparison(cell.kind, dataset, name, arms, cell.budget, *rewards))
    return compared


@dataclass(frozen=True)
class Variant:
    """Thompson sampling with some of what the authors' code does: its world, one stream for all
    owners, its sampler.
    """

    dataset: str
    arms: int
    budget: int
    their_world: bool
    draws: str
    reward: Estimate
    theirs: Estimate


OWN, SHARED, THEIRS = "own streams", "one stream", "one stream, their sampler"
STEPS = 2_000
"""Draws from which a correlation is measured: its standard error is .022 where there is none."""


def thompson_variants(known: Comparison) -> list[Variant]:
    """Switch on what the authors' code does one by one; with nothing and with everything is known
    already.
    """
    means, runs = embedded_arms(known.dataset, known.arms).means, known.ours.runs

    def again(their_world: bool, shared: bool) -> Estimate:
        budgets = (known.budget,)
        rewards = replay(
            means, Thompson(), budgets, runs, their_world=their_world, shared_draws=shared
        )
        return estimate(rewards[:, 0])

    variants = [
        (False, OWN, known.ours),
        (False, SHARED, again(False, True)),
        (True, OWN, again(True, False)),
        (True, SHARED, again(True, True)),
        (True, THEIRS, known.replayed),
    ]
    return [
        Variant(known.dataset, known.arms, known.budget, *one, known.theirs) for one in variants
    ]


def draw_correlation(draws: str) -> tuple[float, float]:
    """Smallest and largest correlation between the samples of five arms with fixed posteriors, over
    steps.
    """
    posteriors = ((530, 1000), (60, 140), (20, 60), (900, 1700), (5, 15))
    samples = np.array(
        [[_sample(draws, arm, t, *one) for t in range(STEPS)] for arm, one in enumerate(posteriors)]
    )
    pairs = np.corrcoef(samples)[np.triu_indices(len(posteriors), 1)]
    return float(pairs.min()), float(pairs.max())


def _sample(draws: str, arm: int, t: int, total: int, pulls: int) -> float:
    if draws == THEIRS:
        return float(their_beta(total + 1.0, pulls - total + 1.0, their_stream(STEPS)[t]))
    return Thompson.score(
        t, 0, float(total), pulls, 0.0, np.uint64(1 if draws == SHARED else 1 + arm), (0.0,)
    )


# Parameters that the published rewards point at.

CHECKED_ARMS = 10
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
    """What the rewards say about one parameter: how far every candidate is off, and the value in
    the repository.
    """

    dataset: str
    parameter: str
    worst: dict[str, float]
    """Largest difference over the budgets, in standard errors, by candidate."""
    repository: str

    @property
    def fitting(self) -> tuple[str, ...]:
        """The candidates that agree at every budget, nearest first."""
        ranked = sorted(self.worst, key=lambda candidate: self.worst[candidate])
        return tuple(
            candidate for candidate in ranked if verdict(self.worst[candidate]) == "agrees"
        )


def candidates(dataset: str, *, small: bool) -> list[tuple[str, str, dict[str, Policy], str]]:
    """Give every parameter with its policy, candidates and repository value."""
    known = PARAMETERS[dataset]
    epsilons: dict[str, Policy] = {
        f"{e:g}": EpsilonGreedy(e) for e in (EPSILONS[3:] if small else EPSILONS)
    }
    found = [("epsilon", "epsilon-greedy", epsilons, f"{known['epsilon']:g}")]
    if not small:
        found += [
            ("tau", "softmax", {f"{tau:g}": Softmax(tau) for tau in TAUS}, f"{known['tau']:g}"),
            (
                "beta",
                "pursuit",
                {f"{beta:g}": Pursuit(beta) for beta in BETAS},
                f"{known['beta']:g}",
            ),
            ("schedule", "epsilon-decreasing", SCHEDULES, "1 / log2 t"),
        ]
    return found


def imply(dataset: str, budgets: Sequence[int], runs: int, *, small: bool) -> list[Implied]:
    """Replay every candidate at K = 10."""
    means = embedded_arms(dataset, CHECKED_ARMS).means
    found = []
    for parameter, name, policies, repository in candidates(dataset, small=small):
        theirs = [
            published_estimate(cell) for cell in cells(dataset, name, CHECKED_ARMS, tuple(budgets))
        ]
        worst = {}
        for candidate, one in policies.items():
            rewards = replay(means, one, budgets, runs)
            zs = [z_score(estimate(rewards[:, i]), cell) for i, cell in enumerate(theirs)]
            worst[candidate] = max(abs(z) for z in zs)
        found.append(Implied(dataset, parameter, worst, repository))
    return found


def implied_table(found: Sequence[Implied]) -> Table:
    """One row a parameter."""
    rows = []
    for one in found:
        fits = "yes" if one.repository in one.fitting else "no"
        fitting = (
            ", ".join(f"{candidate} ({one.worst[candidate]:.1f})" for candidate in one.fitting)
            or "none"
        )
        others = ", ".join(
            f"{candidate} ({worst:.3g})"
            for candidate, worst in one.worst.items()
            if candidate not in one.fitting
        )
        rows.append(
            (TITLES[one.dataset], one.parameter, one.repository, fits, fitting, others or "none")
        )
    columns = (
        "data",
        "parameter",
        "in the authors' repository",
        "it fits",
        "all candidates that fit (largest |z|)",
        "candidates that do not",
    )
    return Table("Parameters held against the published rewards at K = 10", columns, tuple(rows))
