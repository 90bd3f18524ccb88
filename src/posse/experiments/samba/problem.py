"""The problem of figure 8: the authors' arms, policies and parameters.

The paper prints neither parameters nor the decreasing schedule. They are in the authors' public repository
(github.com/gamarcad/paper-samba-code: `parameters/*.csv`, and the schedule in the code); `inference` checks that the
published rewards point at the same values. The benchmark there sorts the means and takes the K largest, as the paper
says; it does not take the first K of the list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import elementary
from posse.core.exact import log
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson
from posse.policies.epsilon_greedy import mean
from posse.problems.arms import Arms, BernoulliArms
from posse.problems.datasets.embedded import embedded_means

REFERENCE = (
    "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA: a generic framework for secure federated multi-armed bandits, "
    "JAIR 73 (2022), figure 8"
)
DATASETS = ("movielens", "jester")
TITLES = {"movielens": "MovieLens", "jester": "Jester"}
BUDGETS = (50_000, 60_000, 70_000, 80_000, 90_000, 100_000)
ARMS = (10, 20, 40, 60, 80, 100)

POLICY_NAMES = ("epsilon-greedy", "epsilon-log", "softmax", "ucb", "thompson", "pursuit")
PUBLISHED_NAMES = {
    "epsilon-greedy": "e-greedy",
    "epsilon-log": "e-greedy-decreasing",
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

_LN2 = math.log(2.0)


@elementary
def logarithmic(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """Exploration probability min(1, c / log2 t)."""
    return min(1.0, parameters[0] * _LN2 / log(float(t)))


@dataclass(frozen=True)
class EpsilonLog(Policy):
    """Epsilon-greedy with epsilon = min(1, c / log2 t), the authors' decreasing schedule for c = 1.

    It still explores one step in 17 at t = 100,000: its regret is linear but for the logarithm.
    """

    name: ClassVar[str] = "epsilon-log"
    summary: ClassVar[str] = "epsilon-greedy with epsilon = c / log2 t"
    reference: ClassVar[str] = REFERENCE
    score = staticmethod(mean)
    explore = staticmethod(logarithmic)

    scale: float = 1.0

    def parameters(self) -> tuple[float, ...]:
        """The scale c."""
        return (float(self.scale),)


def policy(name: str, dataset: str) -> Policy:
    """Make a policy with the authors' parameters for a data set.

    >>> policy("softmax", "jester")
    Softmax(tau=0.02)
    """
    values = PARAMETERS[dataset]
    makers: dict[str, Policy] = {
        "epsilon-greedy": EpsilonGreedy(epsilon=values["epsilon"]),
        "epsilon-log": EpsilonLog(),
        "softmax": Softmax(tau=values["tau"]),
        "ucb": UCB(),
        "thompson": Thompson(),
        "pursuit": Pursuit(beta=values["beta"]),
    }
    return makers[name]


def top_means(dataset: str, arms: int) -> NDArray[np.float64]:
    """Give the K largest of the embedded means, largest first.

    >>> top_means("movielens", 2).round(3).tolist()
    [0.531, 0.431]
    """
    return np.sort(embedded_means(dataset))[::-1][:arms].copy()


def top_arms(dataset: str, arms: int) -> Arms:
    """Make Bernoulli arms of them."""
    source = f"embedded {dataset}: the {arms} largest of the Samba authors' 100 means"
    return BernoulliArms(top_means(dataset, arms), source=source)
