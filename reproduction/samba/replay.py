"""The authors' world, replayed: what their benchmark draws for rewards, and how their owners share
one stream.

In the authors' code the reward of arm i at step t of run r is 1 when U(r + t) < mu_i, U(n) being
the first number of Python's generator seeded with n. So all arms of a step are compared with one
number, and run r + 1 sees the rewards of run r one step earlier: their 50 runs are one world, not
50. Both are switches of `replay`, so that each can be compared with the published rewards by
itself. Exploration coins and matching draws are ours: theirs come from seeds that were drawn at
random for every run.

In Thompson sampling every owner seeds Python's generator with the run's beta seed + t at step t and
calls `random.betavariate`. So all owners read the same uniform numbers from their beginning, and
turn them into Beta samples by Cheng's gamma method (Cheng 1977, as in Python's library). How
strongly that ties the samples of two arms together depends on the method, which is why
`their_thompson` has it, and not the package's own sampler on one stream.
"""

# mypy: disable-error-code="no-untyped-def, name-defined, no-untyped-call"
# ruff: noqa: F821
from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from posse.core.compiled import (
    advance_in_threads,
    compile_template,
    compile_user_function,
    compiled_loops,
)
from posse.core.exact import exp
from posse.core.random import COIN, EXPLORE, REWARD, SELECT, derive_key, uniform
from posse.policies import Policy
from posse.systems.samba.kernels import MATCH, select_argmax, select_match
from posse.systems.samba.twin import own_keys, selections
from reproduction.kit import Floats

SHARED_PARTY = 1 << 20
"""Number of no owner: the party whose stream all owners read when draws are shared."""


@cache
def their_numbers(count: int) -> Floats:
    """U(0), ..., U(count - 1).

    >>> import random
    >>> their_numbers(8)[7] == random.Random(7).random()
    np.True_
    """
    return np.array([random.Random(n).random() for n in range(count)])


def _replay(
    numbers,
    own_world,
    means,
    seeds,
    keys,
    parameters,
    start,
    kinds,
    scales,
    budgets,
    out,
):
    """Fill `out` (runs, budgets) with cumulative rewards."""
    owners, passes = means.shape[0], kinds.shape[0]
    for run in range(seeds.shape[0]):
        seed = seeds[run]
        total, pulls = np.zeros(owners), np.zeros(owners, np.int64)
        memory, values = np.full(owners, start), np.empty(owners)
        earned = 0.0
        point = 0
        for t in range(1, budgets[-1] + 1):
            chosen = t - 1
            if t > owners:
                probability = explore(t, owners, parameters)
                explores = probability > 0.0 and uniform(seed, COIN, 0, t, 0) < probability
                for turn in range(passes):
                    if explores and turn == passes - 1:
                        chosen = int(uniform(seed, EXPLORE, 0, t, 0) * owners)
                    else:
                        best = -1.0e300
                        for i in range(owners):
                            values[i] = score(
                                t, turn, total[i], pulls[i], memory[i], keys[run, i], parameters
                            )
                            best = max(best, values[i])
                        coin = uniform(seed, SELECT, turn, t, 0)
                        if kinds[turn] == MATCH:
                            for i in range(owners):
                                values[i] = exp((values[i] - best) / scales[turn])
                            chosen = select_match(values, coin)
                        else:
                            chosen = select_argmax(values, coin)
                    for i in range(owners):
                        memory[i] = learn(turn, i == chosen, memory[i], parameters)
            if own_world:
                u = uniform(seed, REWARD, chosen, pulls[chosen], 0)
            else:
                u = numbers[np.int64(seed) + t]
            pulls[chosen] += 1
            if u < means[chosen]:
                total[chosen] += 1.0
                earned += 1.0
            if t == budgets[point]:
                out[run, point] = earned
                point += 1


@cache
def _kernel(policy: type[Policy]) -> Callable[..., None]:
    functions = {
        name: compile_user_function(getattr(policy, name)) for name in ("score", "learn", "explore")
    }
    # Sources of `experiments` are not in the key of code kept on disk, so what depends on one is
    # compiled every time.
    ships = policy.__module__.startswith("posse.policies.")
    return compile_template(
        _replay, functions, name=f"{policy.__module__}.{policy.__qualname__}", keep=ships
    )


def replay(
    means: Floats,
    policy: Policy,
    budgets: Sequence[int],
    runs: int,
    *,
    their_world: bool = True,
    shared_draws: bool = False,
) -> Floats:
    """Give the cumulative reward at every budget, one row a run; runs are numbered from 1 as the
    authors' are.

    `their_world`: rewards as in the authors' benchmark, else independent ones. `shared_draws`: all
    owners draw their scores from one stream, else each from its own. An argmax breaks ties at
    random.
    """
    seeds = np.arange(1, runs + 1, dtype=np.uint64)
    if shared_draws:
        shared = np.array([[derive_key(int(seed), SHARED_PARTY)] for seed in seeds], np.uint64)
        keys = np.repeat(shared, len(means), axis=1)
    else:
        keys = own_keys([int(seed) for seed in seeds], len(means))
    kinds, scales, _ = selections(policy)
    out = np.zeros((runs, len(budgets)))
    kernel = _kernel(type(policy))  # type: ignore[arg-type]  # classes are hashable
    numbers, start = their_numbers(int(budgets[-1]) + runs + 1), policy.start(len(means))

    def play(cut: slice) -> None:
        kernel(
            numbers,
            not their_world,
            means,
            seeds[cut],
            keys[cut],
            policy.parameters(),
            start,
            kinds,
            scales,
            np.array(budgets, np.int64),
            out[cut],
        )

    advance_in_threads(play, runs)
    return out


# Thompson sampling as the authors' benchmark draws it.

DEPTH = 48
"""Numbers kept of each seed; a Beta sample uses four to eight, and forty-eight with a chance below
1e-9.
"""
SEEDS = (10, 1000)
"""The authors draw a run's beta seed uniformly from these two and what lies between."""

_LOG4 = math.log(4.0)
_MAGIC = 1.0 + math.log(4.5)


@cache
def their_stream(count: int) -> Floats:
    """First numbers of Python's generator for the seeds 0, ..., count - 1: (count, DEPTH)."""
    table = np.empty((count, DEPTH))
    for seed in range(count):
        draw = random.Random(seed).random
        table[seed] = [draw() for _ in range(DEPTH)]
    return table


@compiled_loops
def _gamma(shape, numbers, used):
    """Gamma sample of a shape >= 1 as `random.gammavariate` draws it, and how many numbers are used
    after it.
    """
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


@compiled_loops
def their_beta(a, b, numbers):
    """Beta sample of a, b >= 1 as `random.betavariate` draws it from these numbers."""
    x, used = _gamma(a, numbers, 0)
    y, used = _gamma(b, numbers, used)
    return x / (x + y)


@compiled_loops
def _play(world, stream, means, beta_seeds, budgets, out):
    owners = means.shape[0]
    for run in range(beta_seeds.shape[0]):
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


def their_thompson(means: Floats, budgets: Sequence[int], runs: int) -> Floats:
    """Give the cumulative reward of runs 1, 2, ... at every budget; beta seeds are new ones, drawn
    as theirs were.
    """
    chooser = random.Random(runs)
    beta_seeds = np.array([chooser.randint(*SEEDS) for _ in range(runs)], np.int64)
    last = int(budgets[-1])
    out = np.zeros((runs, len(budgets)))
    world, stream = their_numbers(last + runs + 1), their_stream(last + SEEDS[1] + 1)
    points = np.array(budgets, np.int64)

    def play(cut: slice) -> None:
        _play(world[cut.start :], stream, means, beta_seeds[cut], points, out[cut])

    advance_in_threads(play, runs)
    return out
