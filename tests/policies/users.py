"""Policies as users write them: some that can run in a federation, and the counter-examples that cannot."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np

from posse.core.exact import log
from posse.policies.base import Policy, Selection

Numbers = tuple[float, ...]


# Policies that can run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned(Policy):
    """UCB with a tuned width: plain Python functions, one parameter."""

    name: ClassVar[str] = "tuned"
    width: float = 0.5

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return total / pulls + parameters[0] * math.sqrt(log(float(t)) / pulls)

    def parameters(self) -> Numbers:
        return (self.width,)


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
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
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
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return total / pulls + TABLE[t % 3]


# Reinforcement Comparison: the preference of an arm needs the reference reward over all arms --------------------------


class ComparisonAsked(Runner):
    """It asks for the reference reward."""

    name: ClassVar[str] = "comparison-asked"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers, reference: float
    ) -> float:
        return memory + parameters[0] * (total / pulls - reference)


reference = 0.5


class ComparisonGlobal(Runner):
    """It keeps the reference reward in a global name."""

    name: ClassVar[str] = "comparison-global"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        global reference
        reference = 0.9 * reference + 0.1 * total / pulls
        return total / pulls - reference


REFERENCES = [0.5]


class ComparisonList(Runner):
    """It keeps the reference reward in a list."""

    name: ClassVar[str] = "comparison-list"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        REFERENCES[0] = 0.9 * REFERENCES[0] + 0.1 * total / pulls
        return total / pulls - REFERENCES[0]


ARRAY = np.array([0.5])


def compare(mean: float) -> float:
    ARRAY[0] = 0.9 * ARRAY[0] + 0.1 * mean
    return mean - float(ARRAY[0])


class ComparisonHelper(Runner):
    """It leaves the reference reward to a helper with an array."""

    name: ClassVar[str] = "comparison-helper"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return compare(total / pulls)


class Compiled(Runner):
    """It reads the reference reward from an array, and is compiled already."""

    name: ClassVar[str] = "compiled"

    @staticmethod
    @numba.njit  # type: ignore[untyped-decorator]
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return total / pulls - ARRAY[0]  # type: ignore[no-any-return]


class _Reference:
    """An object that hides the reference reward where no look at the source finds it."""

    def __init__(self) -> None:
        self.value = 0.5

    def __call__(self, mean: float) -> float:
        self.value += 0.1 * (mean - self.value)
        return mean - self.value


hidden = _Reference()


class ComparisonHidden(Runner):
    name: ClassVar[str] = "comparison-hidden"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return hidden(total / pulls)


def closed(kind: str) -> Callable[..., float]:
    """Make a score that keeps the reference reward in its closure."""
    value = 0.5
    cell = {"value": 0.5}

    def rebinding(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        nonlocal value
        value = 0.9 * value + 0.1 * total / pulls
        return total / pulls - value

    def filling(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        cell["value"] = 0.9 * cell["value"] + 0.1 * total / pulls
        return total / pulls - cell["value"]

    return rebinding if kind == "nonlocal" else filling


class ComparisonNonlocal(Runner):
    name: ClassVar[str] = "comparison-nonlocal"
    score = staticmethod(closed("nonlocal"))


class ComparisonClosure(Runner):
    name: ClassVar[str] = "comparison-closure"
    score = staticmethod(closed("dictionary"))


class ComparisonDefault(Runner):
    """It keeps the reference reward in a changeable default."""

    name: ClassVar[str] = "comparison-default"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers,
        seen: list[float] = [0.5],  # noqa: B006
    ) -> float:  # fmt: skip
        seen[0] = 0.9 * seen[0] + 0.1 * total / pulls
        return total / pulls - seen[0]


class NosyLearner(Runner):
    """Its learning asks for everybody's sums."""

    name: ClassVar[str] = "nosy-learner"

    @staticmethod
    def learn(turn: int, chosen: bool, memory: float, parameters: Numbers, all_totals: Numbers) -> float:
        return memory


# The filter by index and by value: no selection that comp can make ----------------------------------------------------


def odd_positions(scores: Any, u: float) -> int:
    """The largest among the arms of odd index."""
    best = 1
    for i in range(1, scores.shape[0], 2):
        if scores[i] > scores[best]:
            best = i
    return best


def good_means(scores: Any, u: float) -> int:
    """The largest among the arms with a mean in [.5, 1], or any arm when there is none."""
    best = -1
    for i in range(scores.shape[0]):
        if 0.5 <= scores[i] <= 1.0 and (best < 0 or scores[i] > scores[best]):
            best = i
    return best if best >= 0 else int(u * scores.shape[0])


def good_means_else_best(scores: Any, u: float) -> int:
    """The same, but the largest of all when there is none: only large values give it away."""
    best = -1
    largest = 0
    for i in range(scores.shape[0]):
        if scores[i] > scores[largest]:
            largest = i
        if 0.5 <= scores[i] <= 1.0 and (best < 0 or scores[i] > scores[best]):
            best = i
    return best if best >= 0 else largest


def alternating(scores: Any, u: float, t: int) -> int:
    """Odd positions at odd steps, even ones at even steps."""
    return t % 2


def proportional(scores: Any, u: float) -> int:
    """In proportion to the values: a match written as a custom selection."""
    total = 0.0
    for i in range(scores.shape[0]):
        total += scores[i]
    reached = 0.0
    for i in range(scores.shape[0]):
        reached += scores[i]
        if u * total < reached:
            return i
    return scores.shape[0] - 1


def out_of_range(scores: Any, u: float) -> int:
    """One position too far when the coin is close to 1."""
    return int(u * scores.shape[0] + 0.5)


def any_position(scores: Any, u: float) -> int:
    """A coin over positions."""
    return int(u * scores.shape[0])


class Filter(Runner):
    choose: ClassVar[Callable[..., int]]

    def passes(self) -> tuple[Selection, ...]:
        return (Selection("custom", choose=type(self).choose),)


class OddFilter(Filter):
    name: ClassVar[str] = "odd-filter"
    choose = staticmethod(odd_positions)


class ValueFilter(Filter):
    name: ClassVar[str] = "value-filter"
    choose = staticmethod(good_means)


class LargeValueFilter(Filter):
    name: ClassVar[str] = "large-value-filter"
    choose = staticmethod(good_means_else_best)


class TimedFilter(Filter):
    name: ClassVar[str] = "timed-filter"
    choose = staticmethod(alternating)


class ProportionalFilter(Filter):
    name: ClassVar[str] = "proportional-filter"
    choose = staticmethod(proportional)


class FarFilter(Filter):
    name: ClassVar[str] = "far-filter"
    choose = staticmethod(out_of_range)


class CoinFilter(Filter):
    name: ClassVar[str] = "coin-filter"
    choose = staticmethod(any_position)


class NoChoose(Runner):
    name: ClassVar[str] = "no-choose"

    def passes(self) -> tuple[Selection, ...]:
        return (Selection("custom"),)


# Other ways to fail ---------------------------------------------------------------------------------------------------


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
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return 1e9 + 1e9 * total / pulls


class Tiny(Runner):
    """Scores whose differences the integers do not hold."""

    name: ClassVar[str] = "tiny"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return 1e-14 * total / pulls


class Dicing(Runner):
    """Draws from a generator of its own."""

    name: ClassVar[str] = "dicing"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return total / pulls + random.random()


class Rounding(Runner):
    """Python's whole numbers have no end, numba's have 64 bits."""

    name: ClassVar[str] = "rounding"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return total / pulls if t * t * t > 0 else 0.0


class Worded(Runner):
    """Uses what numba does not know."""

    name: ClassVar[str] = "worded"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return float(f"{total / pulls:.3f}")


class Dividing(Runner):
    """Divides by zero for an arm that never paid."""

    name: ClassVar[str] = "dividing"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
        return pulls / total


class Endless(Runner):
    """Infinite for an arm that paid every time."""

    name: ClassVar[str] = "endless"

    @staticmethod
    def score(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers) -> float:
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
