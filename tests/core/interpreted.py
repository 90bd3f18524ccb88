"""Run every short function of the package in plain Python, then compiled, and print which results
differ.

A program of its own: a process that has compiled something interprets nothing any more.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from posse.core import compiled, exact, fixed, random
from posse.policies.arms import registry
from posse.policies.purchase import oracle
from posse.privacy.dp import noise
from posse.privacy.sharing import garbled
from posse.problems.arms import rewards
from posse.problems.contexts import contexts
from posse.problems.markets import instances
from posse.problems.markets import market as supply
from posse.systems.dp_combinatorial import learning, twin
from posse.systems.samba import kernels
from posse.systems.samba.roles import draws
from posse.systems.samba.twin import selections

PARTS = {
    *("_philox_round", "_philox", "words32"),
    *("_no_choice", "_no_noise", "_unscaled"),
}
"""Short functions that only others call."""
Case = tuple[Callable[..., Any], tuple[Any, ...]]


def cases() -> list[Case]:
    """Calls of every short function, each with arguments of its own; arrays that a call writes are
    its results.
    """
    rng = np.random.default_rng(3)

    def words(*shape: int) -> Any:
        return rng.integers(0, 2**64, shape, np.uint64)

    def units(*shape: int) -> Any:
        return rng.random(shape)

    key = np.uint64(rng.integers(0, 2**63))
    found: list[Case] = [
        *(
            (one, (key, random.OWN, 5, 77, 3))
            for one in (random.words64, random.uniforms, random.uniform, random._words64)
        ),
        (random.word_to_uniform, (key,)),
        (random.shuffle, (key, 6, 9, np.zeros(12, np.int64))),
        (exact.normals, (key, random.OWN, 5, 77, 0)),
        (exact._try_gamma, (2.5, 0.3, 0.4)),
        *(
            (exact.beta, (a, b, key, random.OWN, 0, i))
            for i, (a, b) in enumerate(rng.gamma(1.0, 3.0, (12, 2)))
        ),
        *(
            (exact.binomial, (count, 0.3, key, random.PARTIAL, 1, 2))
            for count in (7, 40, 41, 100_000)
        ),
        *((exact.log, (x,)) for x in rng.gamma(0.5, 9.0, 20)),
        *((exact.exp, (x,)) for x in rng.normal(0, 40, 20)),
        *((exact.gumbel, (u,)) for u in (0.0, 1 - 2.0**-53, *units(9))),
        (fixed.to_units, (0.3,)),
        (fixed.from_units, (123456,)),
        *((fixed.tie_place, (*words(2), i, 4)) for i in range(16)),
        *((fixed.clip_score, (score, 4)) for score in (-1e9, 1e9, 0.25)),
        (fixed.comparable_score, (-3.7, 5, 4)),
        (draws._world_rows, (key, 7, 2, np.zeros((9, 3), np.uint64))),
        (noise.whole_noise, (key, 4, 2, 37.5)),
        (contexts.context_reward, (0.5, key, 3, 1)),
        (kernels.gumbel_bound, (0.7,)),
        (kernels.tossed, (key, 9, 0.5)),
        (kernels.select_argmax, (units(9), 0.4)),
        (kernels.select_match, (units(9), 0.4)),
        (kernels.paper_value, (0.3, kernels.MATCH, 0.5, 1.0)),
    ]
    for kind in (rewards.BERNOULLI, rewards.BETA, rewards.TABLE):
        world = rewards.World(kind, units(2) + 0.1, units(2) + 0.1, np.array([0, 4, 9]), units(9))
        found.extend((rewards.reward, (world, key, i % 2, i)) for i in range(6))
        if kind != rewards.BETA:
            found.extend((rewards.simple_reward, (world, key, i % 2, i)) for i in range(6))
    found += market(units) + comparison(words)
    for name in registry.POLICIES:
        found += policy(registry.policy(name), words)
    return found


def policy(made: Any, words: Callable[..., Any]) -> list[Case]:
    """What an owner calls of a policy."""
    kinds, scales, ceilings = selections(made)
    own, parameters = kernels.kernels(made), made.parameters()
    memory = made.start(5)
    found: list[Case] = []
    for t, units, pulls in ((9, 5 << 23, 6), (4000, 900 << 24, 1300)):
        state = (t, 0, 20, units, pulls, memory, 2, 5, 3, parameters, kinds, scales)
        found.append(
            (own.numbers, (*state, words(20, 3), words(20), np.zeros(20, np.int64), np.zeros(20)))
        )
        found.append(
            (
                own.value,
                (t, 0, units, pulls, memory, words(1)[0], parameters, kinds, scales, ceilings),
            )
        )
        found.append((own.exploring, (0.001, t, 5, parameters)))
        found.append((made.score, (t, 0, units / 2**24, pulls, memory, words(1)[0], parameters)))
        found.append((made.explore, (t, 5, parameters)))
    found.extend(
        (one, (0, chosen, memory, parameters))
        for one in (own.learnt, made.learn)
        for chosen in (True, False)
    )
    return found


def market(units: Callable[..., Any]) -> list[Case]:
    """What an agent calls."""
    bought, told = np.floor(50 * units(6)), np.floor(30 * units(6))
    good, told_good = np.floor(bought * units(6)), np.floor(told * units(6))
    cost, capacity, message = units(6), 1.0 + np.floor(50 * units(6)), np.floor(40 * units(2, 6))
    sigma, reach = 9.0 * units(6), oracle.rate.py_func(12, 0.5)  # type: ignore[attr-defined]
    found: list[Case] = [
        (oracle.rate, (12, 0.5)),
        (oracle._sum, (units(11),)),
        (oracle.meets, (-1e-12, 3.0)),
        (oracle.quality_bounds, (reach, good, bought, told_good, told, np.zeros(6))),
        (learning.explore, (capacity, np.zeros(6))),
        (learning.remember, (bought, good, told, told_good)),
        (learning.draw_noise, (7, 3, sigma, np.zeros((2, 6)))),
        (learning.release, (bought, good, told, told_good, message, sigma, np.zeros((2, 6)))),
    ]
    for alpha in (0.0, 0.4, 0.9):
        found.append(
            (oracle.greedy, (units(6), cost, capacity, alpha, 1.0, np.zeros(6), np.zeros(6)))
        )
        found.append((oracle._repair, (units(6), cost, capacity, alpha, 1.0, capacity / 2, 20.0)))
        state = (
            reach,
            good,
            bought,
            told_good,
            told,
            cost,
            capacity,
            alpha,
            1.0,
            np.zeros(6),
            np.zeros(6),
            np.zeros(6),
        )
        found.append((learning.choose, state))
    table = (
        np.array([[[-1, 0, 2], [-1, -1, 5]]]),
        np.arange(8, dtype=np.uint32) << 29,
        np.arange(8, dtype=np.int32) % 2,
    )
    drawn = supply.Supply(units(1, 2), 4, *table, np.zeros(1, np.int64), np.zeros(0))
    none = np.full((1, 2, 1), -1), np.zeros(0, np.uint32), np.zeros(0, np.int32)
    records = supply.Supply(units(1, 2), 4, *none, np.array([0, 4, 9]), np.cumsum(units(11)))
    for one, count in ((drawn, 2), (drawn, 60), (records, 3), (records, 60)):
        found.append((supply.good_units, (one, 7, 1, 1, 9, 5, count)))
        found.append((supply.untabled, (one, 7, 1, 1, 9, 5, count)))
    for one in (drawn, records):
        written = (
            np.array([3.0, 5.0]),
            np.array([2.0, 60.0]),
            np.zeros((4, 1), np.uint64),
            np.zeros(2),
        )
        found.append((twin.deliver, (one, np.uint64(7), 1, 9, *written)))
        found.append(
            (twin._untabled, (one, np.uint64(7), 1, 9, *written[:2], np.array([-1.0, -1.0])))
        )
    found += [(supply.epoch_at, (drawn, 9)), (supply.replayed, (records, 7, 1, 1, 5, 60))]
    found += [(supply.from_word, (drawn, 0, 0, 2, word)) for word in (5, 2**31, 2**32 - 1)]
    found += [(instances._drawn, (7, 1, 2, normal, 0.5, 0.1)) for normal in (True, False)]
    found += [(instances._reflected, (x,)) for x in (-0.3, 1.2, 7.9)]
    found += [
        (instances._draw_qualities, (7, normal, 0.5, 0.1, 0.2, np.zeros((3, 4))))
        for normal in (True, False)
    ]
    found.append(
        (
            instances._draw_offers,
            (7, True, 0.5, 0.1, 50, False, np.zeros((3, 4)), np.zeros((3, 4), np.int64)),
        )
    )
    found.append((instances._draw_places, (7, np.zeros((3, 4)))))
    weights, keep, other = np.zeros(31), np.zeros(31, np.uint32), np.zeros(31, np.int32)
    found += [(supply._weights, (30, q, weights.copy())) for q in (0.0, 0.37, 1.0)]
    found.append((supply._fill, (units(31), keep, other)))
    found.append(
        (supply._tables, (units(1, 1), np.array([[[-1, 0, 2]]]), keep.copy(), other.copy()))
    )
    found.append((contexts._draw_places, (7, 1, np.zeros(9))))
    rows = np.arange(5), np.arange(5) % 2, np.zeros(5, np.int64)
    found.append((contexts._draw_rewards, (units(5, 2), 7, *rows)))
    for rule in (learning.POOL, learning.ACCEPT, learning.FUSE):
        found.append(
            (learning.learn, (rule, 12, 0.5, 0.7, message, sigma, good, bought, told_good, told))
        )
    return found


def comparison(words: Callable[..., Any]) -> list[Case]:
    """What compares two private numbers."""
    rows = 4
    small = (words(rows, garbled.WORDS) & np.uint64(255)).astype(np.uint8)
    return [
        (
            garbled.garble,
            (words(rows), words(rows), *(words(rows, n) for n in (63, 20)), words(rows, 63)),
        ),
        (garbled.choose, (words(rows, 63), words(rows), small.copy())),
        (garbled.evaluate, (small, np.zeros(rows, np.uint8))),
    ]


def results() -> list[Any]:
    """What every call returns and writes, in bytes."""
    found = []
    for function, arguments in cases():
        value = function(*arguments)
        written = [one.tobytes() for one in arguments if isinstance(one, np.ndarray)]
        found.append(
            (function.__name__, type(value).__name__, np.array(value, object).tolist(), written)
        )
    return found


def main() -> None:
    compiled.PATIENCE = 1e9
    plain = results()
    assert "numba" not in sys.modules
    compiled.stop_interpreting()
    print([here for here, there in zip(plain, results(), strict=True) if here != there])
    short = {
        one.__name__ for one in gc.get_objects() if isinstance(one, compiled.Compiled) and one.short
    }
    called = {one.__name__ for one, _ in cases()}
    print(sorted(short - called - PARTS))


if __name__ == "__main__":
    main()
