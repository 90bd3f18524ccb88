"""The problem of figure 8: the authors' arms, policies and parameters.

The paper prints neither parameters nor the decreasing schedule. They are in the authors' public repository
(github.com/gamarcad/paper-samba-code: `parameters/*.csv`, and the schedule in the code); `inference` checks that the
published rewards point at the same values. The benchmark there sorts the means and takes the K largest, as the paper
says; it does not take the first K of the list.
"""

from __future__ import annotations

from posse.policies import UCB, EpsilonDecreasing, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson

REFERENCE = (
    "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA: a generic framework for secure federated multi-armed bandits, "
    "JAIR 73 (2022), figure 8"
)
DATASETS = ("movielens", "jester")
TITLES = {"movielens": "MovieLens", "jester": "Jester"}
BUDGETS = (50_000, 60_000, 70_000, 80_000, 90_000, 100_000)
ARMS = (10, 20, 40, 60, 80, 100)

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
