"""The policies that ship: epsilon-greedy, with epsilon fixed or falling, softmax, UCB, Thompson
sampling and pursuit.

A policy is a score of one arm, the function that stands above its class, and what differs from
`Policy`. To add one, write both here and name the class in `registry`. `revision` holds the digest
of its source when it first shipped; raise its number when the policy computes something else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from posse.core import check
from posse.core.compiled import compiled_scalar
from posse.core.exact import beta, log
from posse.core.random import OWN
from posse.policies.arms.base import ARGMAX, Policy, Selection
from posse.policies.own import Revision, parameter

_LN2 = math.log(2.0)


# Policies on the mean of an arm -------------------------------------------------------------------


@compiled_scalar
def mean(
    t: int,
    turn: int,
    total: float,
    pulls: int,
    memory: float,
    key: int,
    parameters: tuple[float, ...],
) -> float:
    """Empirical mean of one arm."""
    return total / pulls


@compiled_scalar
def fixed(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """Exploration probability: epsilon at every step."""
    return parameters[0]


@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """Pull the arm of largest empirical mean; with probability epsilon a uniform arm."""

    name = "epsilon-greedy"
    revision = Revision(1, "ad8bc1bdfdb34a7663bc37223cb475174a67b5f538d394faf88ee19aead8a030")
    summary = "best mean, or any arm with probability epsilon"
    reference = "Sutton & Barto 2018, section 2.2"
    score = staticmethod(mean)
    explore = staticmethod(fixed)

    epsilon: float = parameter(
        0.1, "exploration rate: how often any arm is taken; no privacy epsilon"
    )

    def __post_init__(self) -> None:
        check.between(0, 1, epsilon=self.epsilon)


SCHEDULES = ("inverse", "inverse-sqrt", "inverse-arms", "inverse-log")
"""scale / t, scale / sqrt t, scale K / t, scale / log2 t (the schedule of the Samba authors' code,
with scale 1).
"""


@compiled_scalar
def decreasing(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """Exploration probability of the schedule with this number in `SCHEDULES`, at most 1."""
    if parameters[1] == 0.0:
        return min(1.0, parameters[0] / t)
    if parameters[1] == 1.0:
        return min(1.0, parameters[0] / math.sqrt(t))
    if parameters[1] == 2.0:
        return min(1.0, parameters[0] * owners / t)
    return min(1.0, parameters[0] * _LN2 / log(float(t)))


@dataclass(frozen=True)
class EpsilonDecreasing(Policy):
    """Epsilon-greedy whose epsilon falls with time by a named schedule."""

    name = "epsilon-decreasing"
    revision = Revision(1, "398fa56aa2eeaa6e576893dea3098684375d54031242a600802c515bfb996fd6")
    summary = "epsilon-greedy with epsilon falling by a named schedule"
    reference = "Auer, Cesa-Bianchi & Fischer 2002, figure 3"
    score = staticmethod(mean)
    explore = staticmethod(decreasing)

    schedule: str = parameter(
        "inverse-arms", f"how the exploration rate falls: {', '.join(SCHEDULES)}"
    )
    scale: float = parameter(1.0, "factor of the exploration rate")

    def __post_init__(self) -> None:
        check.one_of(SCHEDULES, schedule=self.schedule)
        check.positive(scale=self.scale)

    def parameters(self) -> tuple[float, ...]:
        """Scale and schedule number."""
        return (float(self.scale), float(SCHEDULES.index(self.schedule)))


@dataclass(frozen=True)
class Softmax(Policy):
    """Pull arm i with probability proportional to exp(mean_i / tau) (Boltzmann exploration)."""

    name = "softmax"
    revision = Revision(1, "411c281906a8986e7d20757926cf827ee8a00a3f0e436e640add4d65059dca05")
    summary = "probability proportional to exp(mean / tau)"
    reference = "Sutton & Barto 2018, section 2.8; Kuleshov & Precup 2014"
    score = staticmethod(mean)

    tau: float = parameter(0.1, "temperature: small for the best mean, large for any arm")

    def __post_init__(self) -> None:
        check.between(0, 20, open_low=True, tau=self.tau)

    def passes(self) -> tuple[Selection, ...]:
        """One probability matching of temperature tau; a mean is in [0, 1]."""
        return (Selection("match", scale=float(self.tau), floor=0.0, ceiling=1.0),)


# Confidence and posterior -------------------------------------------------------------------------


@compiled_scalar
def bound(
    t: int,
    turn: int,
    total: float,
    pulls: int,
    memory: float,
    key: int,
    parameters: tuple[float, ...],
) -> float:
    """Upper confidence bound mean + sqrt(c ln t / n)."""
    return total / pulls + math.sqrt(parameters[0] * log(float(t)) / pulls)


@dataclass(frozen=True)
class UCB(Policy):
    """Pull the arm of largest mean + sqrt(c ln t / n); c = 2 is UCB1."""

    name = "ucb"
    revision = Revision(1, "3493077bf312b84455cd4961cf2aeea29083641a8221ac430121f7a1e58f7098")
    summary = "largest upper confidence bound"
    reference = "Auer, Cesa-Bianchi & Fischer 2002"
    score = staticmethod(bound)

    coefficient: float = parameter(2.0, "factor c in the width sqrt(c ln t / n)")

    def __post_init__(self) -> None:
        check.positive(coefficient=self.coefficient)


@compiled_scalar
def sample(
    t: int,
    turn: int,
    total: float,
    pulls: int,
    memory: float,
    key: int,
    parameters: tuple[float, ...],
) -> float:
    """Sample of Beta(s + 1, n - s + 1), drawn from the owner's own stream."""
    return beta(total + 1.0, pulls - total + 1.0, key, OWN, turn, t)


@dataclass(frozen=True)
class Thompson(Policy):
    """Sample every arm's posterior Beta(s + 1, n - s + 1) and pull the largest.

    The owners' draws are independent. (The published code lets all owners draw from one stream,
    which correlates them.) For rewards inside [0, 1] the sum s need not be whole; the posterior is
    then a working model.
    """

    name = "thompson"
    revision = Revision(1, "268e5c9b4b5445510d3b7a7f0e9b142d7d0209c5df74de8127e312a736378505")
    summary = "largest sample of the posterior Beta(s + 1, n - s + 1)"
    reference = "Thompson 1933; Russo et al. 2018"
    score = staticmethod(sample)


# Pursuit ------------------------------------------------------------------------------------------

FLOOR = 2.0**-80
"""Probabilities below it are lifted to it: far below what a draw of 53 bits can reach."""


@compiled_scalar
def pursue(
    t: int,
    turn: int,
    total: float,
    pulls: int,
    memory: float,
    key: int,
    parameters: tuple[float, ...],
) -> float:
    """First pass: the mean. Second pass: ln p, p the arm's probability."""
    return total / pulls if turn == 0 else log(max(memory, FLOOR))


@compiled_scalar
def follow(turn: int, chosen: bool, memory: float, parameters: tuple[float, ...]) -> float:
    """After the first pass p moves by beta (1 - p) if the arm has the best mean, by beta (0 - p)
    otherwise.
    """
    if turn != 0:
        return memory
    return memory + parameters[0] * ((1.0 if chosen else 0.0) - memory)


@dataclass(frozen=True)
class Pursuit(Policy):
    """Pull arm i with probability p_i, after moving all p towards the arm of best mean at rate
    beta.
    """

    name = "pursuit"
    revision = Revision(1, "6d92fe8142072c776e9b2ec1cd5b964ff3468cb8c907c12ae46e6d9f73354899")
    summary = "probabilities that move towards the best mean at rate beta (two passes)"
    reference = "Sutton & Barto 1998, section 2.9; Kuleshov & Precup 2014"
    score = staticmethod(pursue)
    learn = staticmethod(follow)

    beta: float = parameter(0.1, "rate at which probabilities move towards the best mean")

    def __post_init__(self) -> None:
        check.between(0, 1, open_low=True, beta=self.beta)

    def passes(self) -> tuple[Selection, ...]:
        """The best mean, then a probability matching on p."""
        return (ARGMAX, Selection("match", scale=1.0, floor=math.log(FLOOR), ceiling=0.0))

    def start(self, owners: int) -> float:
        """Equal probabilities 1 / K."""
        return 1.0 / owners
