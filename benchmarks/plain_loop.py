"""A plain Python loop of the same bandits, as one would write it in an afternoon: the baseline of
the simulator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

Scores = Callable[[int, Sequence[float], Sequence[int]], list[float]]


def ucb(t: int, sums: Sequence[float], pulls: Sequence[int]) -> list[float]:
    return [s / n + math.sqrt(2 * math.log(t) / n) for s, n in zip(sums, pulls, strict=True)]


def thompson(t: int, sums: Sequence[float], pulls: Sequence[int]) -> list[float]:
    return [random.betavariate(s + 1, n - s + 1) for s, n in zip(sums, pulls, strict=True)]


def greedy(t: int, sums: Sequence[float], pulls: Sequence[int]) -> list[float]:
    return [s / n for s, n in zip(sums, pulls, strict=True)]


LOOPS: dict[str, Scores] = {"ucb": ucb, "thompson": thompson, "epsilon-greedy": greedy}


def run(means: Sequence[float], budget: int, scores: Scores, epsilon: float = 0.0) -> float:
    """Return the cumulative reward of one run."""
    sums = [float(random.random() < mean) for mean in means]
    pulls = [1] * len(means)
    for t in range(len(means) + 1, budget + 1):
        if random.random() < epsilon:
            arm = random.randrange(len(means))
        else:
            values = scores(t, sums, pulls)
            arm = values.index(max(values))
        sums[arm] += random.random() < means[arm]
        pulls[arm] += 1
    return sum(sums)
