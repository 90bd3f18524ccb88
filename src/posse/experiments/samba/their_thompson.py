"""Thompson sampling exactly as the authors' benchmark draws it: one generator for all owners, and Python's sampler.

At step t of a run, every owner seeds Python's generator with the run's beta seed + t and calls `random.betavariate`. So
all owners read the same uniform numbers from their beginning, and turn them into Beta samples by Cheng's gamma method
(Cheng 1977, as in Python's library). How strongly that ties the samples of two arms together depends on the method,
which is why the package's own sampler on one stream is not quite the same.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import elementary
from posse.experiments.samba.replay import their_numbers

DEPTH = 48
"""Numbers kept of each seed; a Beta sample uses four to eight, and forty-eight with a chance below 1e-9."""
SEEDS = (10, 1000)
"""The authors draw a run's beta seed uniformly from these two and what lies between."""

_LOG4 = math.log(4.0)
_MAGIC = 1.0 + math.log(4.5)


@cache
def their_stream(count: int) -> NDArray[np.float64]:
    """First numbers of Python's generator for the seeds 0, ..., count - 1: (count, DEPTH)."""
    table = np.empty((count, DEPTH))
    for seed in range(count):
        draw = random.Random(seed).random
        table[seed] = [draw() for _ in range(DEPTH)]
    return table


@elementary
def _gamma(shape, numbers, used):
    """Gamma sample of a shape >= 1 as `random.gammavariate` draws it, and how many numbers are used after it."""
    if shape == 1.0:
        return -math.log(1.0 - numbers[used]), used + 1
    inverse = math.sqrt(2.0 * shape - 1.0)
    while used + 1 < DEPTH:
        first = numbers[used]
        used += 1
        if not 1e-7 < first < 0.9999999:
            continue
        second = 1.0 - numbers[used]
        used += 1
        v = math.log(first / (1.0 - first)) / inverse
        x = shape * math.exp(v)
        z = first * first * second
        r = shape - _LOG4 + (shape + inverse) * v - x
        if r + _MAGIC - 4.5 * z >= 0.0 or r >= math.log(z):
            return x, used
    return shape, used


@elementary
def their_beta(a, b, numbers):
    """Beta sample of a, b >= 1 as `random.betavariate` draws it from these numbers."""
    x, used = _gamma(a, numbers, 0)
    y, used = _gamma(b, numbers, used)
    return x / (x + y)


@numba.njit(parallel=True)
def _play(world, stream, means, beta_seeds, budgets, out):
    owners = means.shape[0]
    for run in numba.prange(beta_seeds.shape[0]):
        total, pulls = np.zeros(owners), np.zeros(owners)
        earned = 0.0
        point = 0
        for t in range(1, budgets[-1] + 1):
            chosen = t - 1
            if t > owners:
                numbers = stream[beta_seeds[run] + t]
                best = -1.0
                for i in range(owners):
                    value = their_beta(total[i] + 1.0, pulls[i] - total[i] + 1.0, numbers)
                    if value > best:
                        best = value
                        chosen = i
            pulls[chosen] += 1.0
            if world[run + 1 + t] < means[chosen]:
                total[chosen] += 1.0
                earned += 1.0
            if t == budgets[point]:
                out[run, point] = earned
                point += 1


def their_thompson(means: NDArray[np.float64], budgets: Sequence[int], runs: int) -> NDArray[np.float64]:
    """Give the cumulative reward of runs 1, 2, ... at every budget; beta seeds are new ones, drawn as theirs were."""
    chooser = random.Random(runs)
    beta_seeds = np.array([chooser.randint(*SEEDS) for _ in range(runs)], np.int64)
    last = int(budgets[-1])
    out = np.zeros((runs, len(budgets)))
    _play(
        their_numbers(last + runs + 1), their_stream(last + SEEDS[1] + 1), means, beta_seeds,
        np.array(budgets, np.int64), out,
    )  # fmt: skip
    return out
