"""The authors' world, replayed: what their benchmark draws for rewards, and how their owners share one stream.

In the authors' code the reward of arm i at step t of run r is 1 when U(r + t) < mu_i, U(n) being the first number of
Python's generator seeded with n. So all arms of a step are compared with one number, and run r + 1 sees the rewards of
run r one step earlier: their 50 runs are one world, not 50. And all owners sample their Beta from one generator, seeded
with the step. Both are switches here, so that each can be held against the published rewards by itself.

Exploration coins and matching draws are ours: theirs come from seeds that were drawn at random for every run.
"""

# mypy: disable-error-code="no-untyped-def, name-defined, no-untyped-call"
# ruff: noqa: F821
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compile_user, specialise
from posse.core.exact import exp
from posse.core.random import COIN, EXPLORE, REWARD, SELECT, derive, uniform
from posse.policies import Policy
from posse.protocols.samba.kernels import MATCH, select_argmax, select_match
from posse.protocols.samba.twin import own_keys, selections

SHARED_PARTY = 1 << 20
"""Number of no owner: the party whose stream all owners read when draws are shared."""


@cache
def their_numbers(count: int) -> NDArray[np.float64]:
    """U(0), ..., U(count - 1).

    >>> import random; their_numbers(8)[7] == random.Random(7).random()
    np.True_
    """
    return np.array([random.Random(n).random() for n in range(count)])


def _replay(
    numbers, own_world, means, seeds, keys, parameters, start, kinds, scales, budgets, out,
):  # fmt: skip
    """Fill `out` (runs, budgets) with cumulative rewards."""
    owners, passes = means.shape[0], kinds.shape[0]
    for run in numba.prange(seeds.shape[0]):
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
                            values[i] = score(t, turn, total[i], pulls[i], memory[i], keys[run, i], parameters)
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
    functions = {name: compile_user(getattr(policy, name)) for name in ("score", "learn", "explore")}
    # Sources of `experiments` are not in the key of code kept on disk, so what depends on one is compiled every time.
    ships = policy.__module__.startswith("posse.policies.")
    return specialise(_replay, functions, name=f"{policy.__module__}.{policy.__qualname__}", keep=ships, parallel=True)


def replay(
    means: NDArray[np.float64],
    policy: Policy,
    budgets: Sequence[int],
    runs: int,
    *,
    their_world: bool = True,
    shared_draws: bool = False,
) -> NDArray[np.float64]:
    """Give the cumulative reward at every budget, one row a run; runs are numbered from 1 as the authors' are.

    `their_world`: rewards as in the authors' benchmark, else independent ones. `shared_draws`: all owners draw their
    scores from one stream, else each from its own. Only level `standard` is meant: an argmax breaks ties at random.
    """
    seeds = np.arange(1, runs + 1, dtype=np.uint64)
    if shared_draws:
        shared = np.array([[derive(int(seed), SHARED_PARTY)] for seed in seeds], np.uint64)
        keys = np.repeat(shared, len(means), axis=1)
    else:
        keys = own_keys([int(seed) for seed in seeds], len(means))
    kinds, scales, _ = selections(policy)
    out = np.zeros((runs, len(budgets)))
    kernel = _kernel(type(policy))  # type: ignore[arg-type]  # classes are hashable
    kernel(
        their_numbers(int(budgets[-1]) + runs + 1), not their_world, means, seeds, keys, policy.parameters(),
        policy.start(len(means)), kinds, scales, np.array(budgets, np.int64), out,
    )  # fmt: skip
    return out
