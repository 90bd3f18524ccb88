"""Exploration as probabilities: from the predicted rewards of all arms to the chance of each.

Formulas are over an array namespace `xp` (numpy or jax.numpy) and over any leading axes, so that one source serves a
device, a cohort and a test. The greedy arm is the first of those with the largest score. numpy alone is needed.

| kind | chance of arm a, greedy arm a*, K arms |
|---|---|
| `greedy` | 1 for a*, else 0 |
| `epsilon-greedy` | epsilon / K, and 1 - epsilon more for a* |
| `softmax` | proportional to exp(f(a) / beta) |
| `falcon` | 1 / (mu + gamma (f(a*) - f(a))) for a != a*, the rest for a* |

Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023, algorithm 2; FALCON:
Simchi-Levi, Xu: Bypassing the monster, 2022, with constant mu and gamma as in Foster, Rakhlin: Beyond UCB, 2020. Where
FALCON's chances of other arms add up to more than 1 (mu below K - 1) they are divided by their sum, as the authors do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from posse.core import check
from posse.core.errors import ConfigError

Array: TypeAlias = Any
"""An array of numpy or of jax; neither names the other's type."""

EXPLORATIONS = ("greedy", "epsilon-greedy", "softmax", "falcon")


def greedy(scores: Array, xp: Any = np) -> Array:
    """1 for the first of the largest scores, else 0.

    >>> greedy(np.array([0.1, 0.9, 0.9])).tolist()
    [0.0, 1.0, 0.0]
    """
    return _best(scores, xp).astype(scores.dtype)


def epsilon_greedy(scores: Array, epsilon: float, xp: Any = np) -> Array:
    """Give epsilon / K to every arm and the rest to the greedy one.

    >>> epsilon_greedy(np.array([0.1, 0.9]), 0.2).tolist()
    [0.1, 0.9]
    """
    other = epsilon / scores.shape[-1]
    return xp.where(_best(scores, xp), 1 - epsilon + other, other).astype(scores.dtype)


def softmax(scores: Array, beta: float, xp: Any = np) -> Array:
    """Give exp(f / beta) / sum of those; the largest score is subtracted first, so that nothing overflows.

    >>> softmax(np.array([0.0, np.log(3.0)]), 1.0).round(6).tolist()
    [0.25, 0.75]
    """
    raised = xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) / beta)
    return raised / xp.sum(raised, axis=-1, keepdims=True)


def falcon(scores: Array, mu: float, gamma: float, xp: Any = np) -> Array:
    """Give 1 / (mu + gamma gap) to every other arm, divided by their sum where that is above 1; the rest is greedy.

    >>> falcon(np.array([0.5, 0.25, 0.0]), mu=4.0, gamma=8.0).round(6).tolist()
    [0.708333, 0.166667, 0.125]
    """
    best = _best(scores, xp)
    gap = xp.max(scores, axis=-1, keepdims=True) - scores
    others = xp.where(best, 0.0, 1.0 / (mu + gamma * gap))
    others = others / xp.maximum(1.0, xp.sum(others, axis=-1, keepdims=True))
    # Rounding may leave the sum of the others above 1 by one unit in the last place.
    rest = xp.maximum(1.0 - xp.sum(others, axis=-1, keepdims=True), 0.0)
    return xp.where(best, rest, others).astype(scores.dtype)


def draw(probabilities: Array, u: Array, xp: Any = np) -> tuple[Array, Array]:
    """Draw an arm from each row by a number u in [0, 1) a row; return the arm and its own probability.

    Inverse CDF: the number of arms whose cumulated chance is at most u times the last. An arm of chance 0 is never
    drawn, whatever the rounding of the sums. What is returned is the row's entry of the arm drawn, bit for bit.

    >>> arm, chance = draw(np.array([[0.0, 0.25, 0.75]] * 3), np.array([0.0, 0.3, 0.9999]))
    >>> arm.tolist(), chance.tolist()
    ([1, 2, 2], [0.25, 0.75, 0.75])
    """
    reached = xp.cumsum(probabilities, axis=-1)
    last = reached[..., -1:]
    passed = xp.sum(reached <= u[..., None] * last, axis=-1)
    # u times the last sum may round up to it: then the last arm that has a chance is meant.
    arm = xp.minimum(passed, xp.sum(reached < last, axis=-1))
    return arm, xp.take_along_axis(probabilities, arm[..., None], axis=-1)[..., 0]


@dataclass(frozen=True)
class Exploration:
    """A kind of exploration and its parameters, checked once; hashable, so that a compiled function may depend on it.

    Defaults are the paper's: epsilon 0.05, beta 0.05, gamma 1000, and mu = K / 5 (12 for 62 arms, 10 for 50).

    >>> Exploration("softmax", beta=0.1).probabilities(np.array([0.3, 0.3])).tolist()
    [0.5, 0.5]
    >>> Exploration("falcon", mu=0)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] mu must be a finite number above 0, got 0.
    """

    kind: Literal["greedy", "epsilon-greedy", "softmax", "falcon"] = "softmax"
    epsilon: float = 0.05
    beta: float = 0.05
    mu: float | None = None
    gamma: float = 1000.0

    def __post_init__(self) -> None:
        check.one_of(EXPLORATIONS, exploration=self.kind)
        check.between(0, 1, epsilon=self.epsilon)
        check.positive(beta=self.beta)
        if self.mu is not None:
            check.positive(mu=self.mu)
        check.at_least(0, gamma=self.gamma)

    def probabilities(self, scores: Array, xp: Any = np) -> Array:
        """Give the chance of every arm, (..., K)."""
        if self.kind == "greedy":
            return greedy(scores, xp)
        if self.kind == "epsilon-greedy":
            return epsilon_greedy(scores, self.epsilon, xp)
        if self.kind == "softmax":
            return softmax(scores, self.beta, xp)
        return falcon(scores, self._mu(scores.shape[-1]), self.gamma, xp)

    def weight_scale(self, arms: int, spread: float = 1.0) -> float:
        """Give the least chance of an arm that is not greedy, if scores differ by at most `spread`.

        Importance weights min(1, scale / p) are then at most 1, and in proportion to 1 / p: only where FALCON has a mu
        below K can the greedy arm's chance be smaller still, and its weight is cut to 1. Greedy has no scale.

        >>> Exploration("epsilon-greedy", epsilon=0.05).weight_scale(50)
        0.001
        """
        if self.kind == "greedy" or (self.kind == "epsilon-greedy" and self.epsilon == 0):
            raise ConfigError("greedy logs give no importance weights: other arms have no chance. Explore.")
        if self.kind == "epsilon-greedy":
            return self.epsilon / arms
        if self.kind == "softmax":
            return 1 / (1 + (arms - 1) * float(np.exp(min(spread / self.beta, 700.0))))
        mu = self._mu(arms)
        return 1 / (mu + self.gamma * spread) / max(1.0, (arms - 1) / mu)

    def _mu(self, arms: int) -> float:
        return arms / 5 if self.mu is None else self.mu


def _best(scores: Array, xp: Any) -> Array:
    """Whether an arm is the first of the largest."""
    return xp.arange(scores.shape[-1]) == xp.argmax(scores, axis=-1)[..., None]
