"""The paper's two counter-examples as users would write them: policies that no federation can
run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numba
import numpy as np

from posse.policies.arms.base import Selection
from tests.kit.policies import Numbers, Runner

# Reinforcement Comparison: the preference of an arm needs the reference reward over all arms ------


class ComparisonAsked(Runner):
    """It asks for the reference reward."""

    name: ClassVar[str] = "comparison-asked"

    @staticmethod
    def score(
        t: int,
        turn: int,
        total: float,
        pulls: int,
        memory: float,
        key: int,
        parameters: Numbers,
        reference: float,
    ) -> float:
        return memory + parameters[0] * (total / pulls - reference)


reference = 0.5


class ComparisonGlobal(Runner):
    """It keeps the reference reward in a global name."""

    name: ClassVar[str] = "comparison-global"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        global reference
        reference = 0.9 * reference + 0.1 * total / pulls
        return total / pulls - reference


REFERENCES = [0.5]


class ComparisonList(Runner):
    """It keeps the reference reward in a list."""

    name: ClassVar[str] = "comparison-list"

    @staticmethod
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
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
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return compare(total / pulls)


class Compiled(Runner):
    """It reads the reference reward from an array, and is compiled already."""

    name: ClassVar[str] = "compiled"

    @staticmethod
    @numba.njit  # type: ignore[untyped-decorator]
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
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
    def score(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        return hidden(total / pulls)


def closed(kind: str) -> Callable[..., float]:
    """Make a score that keeps the reference reward in its closure."""
    value = 0.5
    cell = {"value": 0.5}

    def rebinding(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
        nonlocal value
        value = 0.9 * value + 0.1 * total / pulls
        return total / pulls - value

    def filling(
        t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: Numbers
    ) -> float:
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
        t: int,
        turn: int,
        total: float,
        pulls: int,
        memory: float,
        key: int,
        parameters: Numbers,
        seen: list[float] = [0.5],  # noqa: B006
    ) -> float:
        seen[0] = 0.9 * seen[0] + 0.1 * total / pulls
        return total / pulls - seen[0]


class NosyLearner(Runner):
    """Its learning asks for everybody's sums."""

    name: ClassVar[str] = "nosy-learner"

    @staticmethod
    def learn(
        turn: int, chosen: bool, memory: float, parameters: Numbers, all_totals: Numbers
    ) -> float:
        return memory


# The filter by index and by value: no selection that comp can make --------------------------------


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
