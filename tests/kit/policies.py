"""Policies as users write them: some that can run in a federation, and some that fail in simple
ways.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from math import sin
from typing import Any, ClassVar

import numpy as np

from posse.core.compiled import elementary
from posse.core.exact import log
from posse.policies.arms.base import Policy, Selection
from posse.policies.arms.shipped import EpsilonGreedy, Softmax
from posse.policies.own import run_horizon

Numbers = tuple[float, ...]


# Policies that can run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned(Policy):
    """UCB with a tuned width: plain Python functions, one parameter."""

    name: ClassVar[str] = "tuned"
    width: float = 0.5

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls + parameters[0] * math.sqrt(log(float(t)) / pulls)

    def parameters(self) -> Numbers:
        return (self.width,)


@dataclass(frozen=True)
class Fading(EpsilonGreedy):
    """Epsilon-greedy with a schedule of one's own: epsilon / (1 + t / half)."""

    name: ClassVar[str] = "fading"
    half: float = 20.0

    @staticmethod
    def explore(t: int, owners: int, parameters: Numbers) -> float:
        return parameters[0] / (1.0 + t / parameters[1])


@dataclass(frozen=True)
class Mixed(Softmax):
    """Softmax that explores in a third of the steps."""

    name: ClassVar[str] = "mixed"

    @staticmethod
    def explore(t: int, owners: int, parameters: Numbers) -> float:
        return 1.0 / 3.0


@dataclass(frozen=True)
class Moss(Policy):
    """Audibert and Bubeck 2009: needs the horizon, and the number of arms in its memory."""

    name: ClassVar[str] = "moss"
    horizon: float = run_horizon()

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        surplus = max(0.0, log(parameters[0] / (memory * pulls)))
        return total / pulls + math.sqrt(surplus / pulls)

    def start(self, owners: int) -> float:
        return float(owners)


def second_best(scores: Any, u: float) -> int:
    """Oblivious: the best arm, or the second best on a coin."""
    best = 0
    for i in range(1, scores.shape[0]):
        if scores[i] > scores[best]:
            best = i
    if u < 0.8:
        return best
    second = 1 if best == 0 else 0
    for i in range(scores.shape[0]):
        if i != best and scores[i] > scores[second]:
            second = i
    return second


class Runner(Policy):
    """The empirical mean, under any custom selection."""

    name: ClassVar[str] = "runner"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls


class SecondBest(Runner):
    name: ClassVar[str] = "second-best"

    def passes(self) -> tuple[Selection, ...]:
        return (Selection("custom", choose=second_best),)


TABLE = np.array([0.1, 0.2, 0.3])
TABLE.setflags(write=False)


class Looked(Runner):
    """Reads a table that nobody can change."""

    name: ClassVar[str] = "looked"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls + TABLE[t % 3]


# Policies whose last bit depends on the machine ----------------------------------------------------


@elementary
def squared(x: float) -> float:
    return x**2


class Inexact(Runner):
    """Takes logarithms and powers from math, numpy and Python, in functions and in methods."""

    name: ClassVar[str] = "inexact"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls + math.sqrt(2.0 * math.log(t) / pulls)

    @staticmethod
    def learn(turn: int, chosen: bool, memory: float, parameters: Numbers) -> float:
        return memory + squared(0.5) / 1e6

    @staticmethod
    def explore(t: int, owners: int, parameters: Numbers) -> float:
        return float(np.exp(-float(t)))

    def start(self, owners: int) -> float:
        return self.wave(owners)

    def wave(self, owners: int) -> float:
        return sin(owners)


# Other ways to fail -------------------------------------------------------------------------------


class Scoreless(Policy):
    name: ClassVar[str] = "scoreless"


class Method(Runner):
    name: ClassVar[str] = "method"

    def score(self, t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def, override]
        return total / pulls


class Huge(Runner):
    """Scores beyond what the integers hold."""

    name: ClassVar[str] = "huge"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return 1e9 + 1e9 * total / pulls


class Tiny(Runner):
    """Scores whose differences the integers do not hold."""

    name: ClassVar[str] = "tiny"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return 1e-14 * total / pulls


class Dicing(Runner):
    """Draws from a generator of its own."""

    name: ClassVar[str] = "dicing"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls + random.random()


class Rounding(Runner):
    """Python's whole numbers have no end, numba's have 64 bits."""

    name: ClassVar[str] = "rounding"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return total / pulls if t * t * t > 0 else 0.0


class Worded(Runner):
    """Uses what numba does not know."""

    name: ClassVar[str] = "worded"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return float(f"{total / pulls:.3f}")


class Dividing(Runner):
    """Divides by zero for an arm that never paid."""

    name: ClassVar[str] = "dividing"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return pulls / total


class Endless(Runner):
    """Infinite for an arm that paid every time."""

    name: ClassVar[str] = "endless"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return math.inf if total == pulls else total / pulls


class Growing(Runner):
    """Its memory has no end."""

    name: ClassVar[str] = "growing"

    @staticmethod
    def learn(turn: int, chosen: bool, memory: float, parameters: Numbers) -> float:
        return 2.0 * memory + 1.0


class Restless(Runner):
    """Explores with a probability above 1."""

    name: ClassVar[str] = "restless"

    @staticmethod
    def explore(t: int, owners: int, parameters: Numbers) -> float:
        return owners / t


class Overflowing(Runner):
    """Matches scores above the ceiling it states."""

    name: ClassVar[str] = "overflowing"

    def passes(self) -> tuple[Selection, ...]:
        return (Selection("match", scale=0.1, ceiling=0.5),)


class Careless(Runner):
    """Loses its parameters on the way to another process."""

    name: ClassVar[str] = "careless"

    def __init__(self, width: float = 1.0) -> None:
        object.__setattr__(self, "width", width)

    def __reduce__(self) -> tuple[type[Careless], tuple[()]]:
        return type(self), ()

    def parameters(self) -> Numbers:
        return (self.width,)  # type: ignore[attr-defined]


class Raising(Runner):
    """Its passes cannot be made."""

    name: ClassVar[str] = "raising"

    def start(self, owners: int) -> float:
        raise RuntimeError("no start")
