"""The problem of figure 8: the authors' arms, policies and parameters, and the numbers they
published.

The paper prints neither parameters nor the decreasing schedule. They are in the authors' public
repository (github.com/gamarcad/paper-samba-code: `parameters/*.csv`, and the schedule in the code);
`agreement` checks that the published rewards point at the same values. The benchmark there sorts
the means and takes the K largest, as the paper says; it does not take the first K of the list.
"""

from __future__ import annotations

from functools import cache

from posse.policies import UCB, EpsilonDecreasing, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson
from posse.results.plots import SERIES
from reproduction.kit import Paper
from reproduction.samba.published import Kind, PublishedResult, published_results

REFERENCE = Paper(
    "samba",
    "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA: a generic framework for secure federated "
    "multi-armed bandits, "
    "JAIR 73 (2022)",
)
DATASETS = ("movielens", "jester")
TITLES = {"movielens": "MovieLens", "jester": "Jester"}
BUDGETS = (50_000, 60_000, 70_000, 80_000, 90_000, 100_000)

POLICY_NAMES = ("epsilon-greedy", "epsilon-decreasing", "softmax", "ucb", "thompson", "pursuit")
PUBLISHED_NAMES = {
    "epsilon-greedy": "e-greedy",
    "epsilon-decreasing": "e-greedy-decreasing",
    "softmax": "boltzmann",
    "ucb": "ucb",
    "thompson": "thompson-sampling",
    "pursuit": "pursuit",
}
"""What the authors' result files call each policy."""
COLOURS = dict(zip(POLICY_NAMES, SERIES, strict=False))
MARKERS = dict(zip(POLICY_NAMES, "os^Dvp", strict=False))

PARAMETERS = {
    "movielens": {"epsilon": 0.1, "tau": 0.06, "beta": 0.1},
    "jester": {"epsilon": 0.1, "tau": 0.02, "beta": 0.2},
}
"""From the authors' repository."""


def policy(name: str, dataset: str) -> Policy:
    """Make a policy with the authors' parameters for a data set.

    >>> policy("softmax", "jester")
    Softmax(tau=0.02)
    """
    values = PARAMETERS[dataset]
    makers: dict[str, Policy] = {
        "epsilon-greedy": EpsilonGreedy(epsilon=values["epsilon"]),
        "epsilon-decreasing": EpsilonDecreasing("inverse-log"),
        "softmax": Softmax(tau=values["tau"]),
        "ucb": UCB(),
        "thompson": Thompson(),
        "pursuit": Pursuit(beta=values["beta"]),
    }
    return makers[name]


def cell_words(cell: tuple[str, int, str]) -> str:
    """Name a cell of the sweep: data set, arms, policy.

    >>> cell_words(("jester", 10, "ucb"))
    'jester, K = 10, ucb'
    """
    dataset, arms, name = cell
    return f"{dataset}, K = {arms}, {name}"


@cache
def _cells() -> dict[tuple[Kind, str, str, int, int], PublishedResult]:
    return {(r.kind, r.dataset, r.algorithm, r.arms, r.budget): r for r in published_results()}


def published(
    dataset: str, policy: str, arms: int, budget: int, kind: Kind = "benchmarks"
) -> PublishedResult:
    """Give the authors' result of one cell; `policy` is our name of it.

    >>> published("movielens", "ucb", 10, 100_000).plain_reward.mean
    52310.22
    """
    return _cells()[kind, dataset, PUBLISHED_NAMES[policy], arms, budget]


def cells(
    dataset: str, policy: str, arms: int, budgets: tuple[int, ...]
) -> tuple[PublishedResult, ...]:
    """Give every published reward of a policy at K arms and these budgets, of both kinds of run."""
    kinds: tuple[Kind, ...] = ("benchmarks", "rewards")
    keys = [
        (kind, dataset, PUBLISHED_NAMES[policy], arms, budget)
        for kind in kinds
        for budget in budgets
    ]
    return tuple(_cells()[key] for key in keys if key in _cells())
