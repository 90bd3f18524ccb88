"""Compiled kernels of one policy: the plain twin over seeds, and an owner's block of frames.

Templates below call `score`, `learn`, `explore` and `choose` by name; `kernels` binds these names to a policy's functions
and compiles. Both twins and the owner use `preference`, so they compare the same numbers.
"""

# mypy: disable-error-code="no-untyped-def, name-defined, no-untyped-call, no-any-return"
# ruff: noqa: F821
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np

from posse.core.compiled import compile_user, elementary, source_digest, specialise
from posse.core.exact import exp, gumbel
from posse.core.fixed import bounded, comparable, from_units, tie_place
from posse.core.random import COIN, EXPLORE, GUMBEL, MASK, ORDER, SELECT, TIE, shuffle, uniform, words
from posse.policies.base import Policy
from posse.privacy.crypto.masks import mask_into
from posse.problems.arms import reward

ARGMAX, MATCH, CUSTOM = 0, 1, 2
_LN2_UP = 0.6931471805599455


@elementary
def gumbel_bound(u: float) -> float:
    """Cheap upper bound of `gumbel(u)`: -ln(-ln u) <= -ln(1 - u) <= (1 - e) ln 2 for 1 - u = m 2^e, 1/2 <= m < 1."""
    bits = np.float64(max(1.0 - u - 2.0**-54, 2.0**-54)).view(np.int64)
    return float(1023 - (bits >> 52)) * _LN2_UP


@elementary
def tossed(key, t, probability):
    """Whether the common coin of step t says to explore; policies that never do draw nothing."""
    return probability > 0.0 and uniform(key, COIN, 0, t, 0) < probability


@elementary
def select_argmax(values, u):
    """Position of the largest value; u picks among equals. What comp does at level `paper`."""
    best = values[0]
    count = 0
    for value in values:
        if value > best:
            best = value
            count = 1
        elif value == best:
            count += 1
    wanted = int(u * count)
    for position in range(values.shape[0]):
        if values[position] == best:
            if wanted == 0:
                return position
            wanted -= 1
    return 0


@elementary
def select_match(values, u):
    """Position drawn with probability proportional to its value. What comp does at level `paper`."""
    total = 0.0
    for value in values:
        total += value
    reached = 0.0
    for position in range(values.shape[0]):
        reached += values[position]
        if u * total < reached:
            return position
    return values.shape[0] - 1


@elementary
def paper_value(value, kind, scale, ceiling):
    """What an owner sends at level `paper` before masking: the score, or exp((score - ceiling) / scale) to match."""
    return exp((value - ceiling) / scale) if kind == MATCH else value


@elementary
def paper_mask(seed, index):
    """Multiplicative mask in (0, 1] of level `paper` in a simulation."""
    return 1.0 - uniform(seed, MASK, 0, index, 0)


def _templates(tag: str | None) -> dict[str, Callable[..., Any]]:
    def frames(t, turn, count, units, pulls, memory, owner, owners, bits, common_key, own_key, parameters, kinds, scales,
               common, own, out, memories):  # fmt: skip
        """Fill `out` with the plaintexts of the next `count` passes, as if this owner were not chosen in any of them."""
        tag  # noqa: B018
        passes = kinds.shape[0]
        total = from_units(units)
        for j in range(count):
            index = t * passes + turn
            memories[j] = memory
            if turn == passes - 1 and tossed(common_key, t, explore(t, owners, parameters)):
                value = uniform(common_key, EXPLORE, owner, t, 0)
            else:
                value = score(t, turn, total, pulls, memory, own_key, parameters)
                if kinds[turn] == MATCH:
                    value += scales[turn] * gumbel(uniform(own_key, GUMBEL, turn, t, 0))
            first, second = words(common_key, TIE, 0, index, 0)
            x = comparable(bounded(value, bits), tie_place(first, second, owner, bits), bits)
            mask_into(x, common[j], own[j], out[j])
            memory = learn(turn, False, memory, parameters)
            turn += 1
            if turn == passes:
                turn = 0
                t += 1

    def value(t, turn, units, pulls, memory, own_key, parameters, kinds, scales, ceilings):
        """Return what an owner sends at level `paper`, before masking."""
        tag  # noqa: B018
        raw = score(t, turn, from_units(units), pulls, memory, own_key, parameters)
        return paper_value(raw, kinds[turn], scales[turn], ceilings[turn])

    def learnt(turn, chosen, memory, parameters):
        """Return an owner's memory after a pass."""
        tag  # noqa: B018
        return learn(turn, chosen, memory, parameters)

    def exploring(common_key, t, owners, parameters):
        """Return whether step t ignores the scores."""
        tag  # noqa: B018
        return tossed(common_key, t, explore(t, owners, parameters))

    def standard(world, seeds, own_keys, budget, bits, parameters, start, kinds, scales, points, gaps, units, pulls,
                 curve, lost, arms):  # fmt: skip
        """Run the plain twin of level `standard`: per seed, the arms that the integers x select."""
        tag  # noqa: B018
        runs, owners = own_keys.shape
        passes = kinds.shape[0]
        for run in numba.prange(runs):
            seed = seeds[run]
            memory = np.full(owners, start)
            point = 0
            earned = 0
            missed = 0.0
            ranked = np.empty(owners)
            xs = np.empty(owners, np.int64)
            for i in range(owners):
                gain = reward(world, seed, i, 0)
                units[run, i] = gain
                pulls[run, i] = 1
                earned += gain
                missed += gaps[i]
                if arms.shape[0] > 0:
                    arms[run, i] = i
                if point < points.shape[0] and points[point] == i + 1:
                    curve[run, point] = earned
                    lost[run, point] = missed
                    point += 1
            for t in range(owners + 1, budget + 1):
                chosen = 0
                explores = tossed(seed, t, explore(t, owners, parameters))
                for turn in range(passes):
                    kind = kinds[turn]
                    scale = scales[turn]
                    last = turn == passes - 1
                    first, second = words(seed, TIE, 0, t * passes + turn, 0)
                    best = np.int64(-9223372036854775808)
                    lowest = -1.0e300
                    for i in range(owners):
                        if last and explores:
                            value = uniform(seed, EXPLORE, i, t, 0)
                        else:
                            own_key = own_keys[run, i]
                            value = score(
                                t, turn, from_units(units[run, i]), pulls[run, i], memory[i], own_key, parameters
                            )
                            if kind == MATCH:
                                u = uniform(own_key, GUMBEL, turn, t, 0)
                                if bounded(value + scale * gumbel_bound(u), bits) < lowest:
                                    continue  # it cannot win
                                value += scale * gumbel(u)
                        value = bounded(value, bits)
                        if kind != CUSTOM and value < lowest:
                            continue
                        x = comparable(value, tie_place(first, second, i, bits), bits)
                        xs[i] = x
                        if x > best:
                            best = x
                            chosen = i
                            # Two units of 2^-40 below the best, so that rounding can never hide a winner.
                            lowest = value - 2.0**-39
                    if kind == CUSTOM:
                        ranked[np.argsort(xs)] = np.arange(owners)
                        chosen = choose(ranked, uniform(seed, SELECT, 0, t * passes + turn, 0))
                    for i in range(owners):
                        memory[i] = learn(turn, i == chosen, memory[i], parameters)
                gain = reward(world, seed, chosen, pulls[run, chosen])
                units[run, chosen] += gain
                pulls[run, chosen] += 1
                earned += gain
                missed += gaps[chosen]
                if arms.shape[0] > 0:
                    arms[run, t - 1] = chosen
                if point < points.shape[0] and points[point] == t:
                    curve[run, point] = earned
                    lost[run, point] = missed
                    point += 1

    def paper(world, seeds, own_keys, budget, permute, mask, parameters, start, kinds, scales, ceilings, points, gaps,
              units, pulls, curve, lost, arms):  # fmt: skip
        """Run the plain twin of level `paper`: per seed, comp's own selection in the order and with the draws it has."""
        tag  # noqa: B018
        runs, owners = own_keys.shape
        passes = kinds.shape[0]
        for run in numba.prange(runs):
            seed = seeds[run]
            memory = np.full(owners, start)
            order = np.arange(owners)
            values = np.empty(owners)
            point = 0
            earned = 0
            missed = 0.0
            for i in range(owners):
                gain = reward(world, seed, i, 0)
                units[run, i] = gain
                pulls[run, i] = 1
                earned += gain
                missed += gaps[i]
                if arms.shape[0] > 0:
                    arms[run, i] = i
                if point < points.shape[0] and points[point] == i + 1:
                    curve[run, point] = earned
                    lost[run, point] = missed
                    point += 1
            for t in range(owners + 1, budget + 1):
                chosen = 0
                explores = tossed(seed, t, explore(t, owners, parameters))
                for turn in range(passes):
                    index = t * passes + turn
                    kind = kinds[turn]
                    if permute:
                        shuffle(seed, ORDER, index, order)
                    u = uniform(seed, SELECT, 0, index, 0)
                    if turn == passes - 1 and explores:
                        chosen = order[int(u * owners)]
                    else:
                        alpha = paper_mask(seed, index) if mask else 1.0
                        for position in range(owners):
                            i = order[position]
                            raw = score(
                                t,
                                turn,
                                from_units(units[run, i]),
                                pulls[run, i],
                                memory[i],
                                own_keys[run, i],
                                parameters,
                            )
                            values[position] = alpha * paper_value(raw, kind, scales[turn], ceilings[turn])
                        if kind == ARGMAX:
                            chosen = order[select_argmax(values, u)]
                        elif kind == MATCH:
                            chosen = order[select_match(values, u)]
                        else:
                            chosen = order[choose(values, u)]
                    for i in range(owners):
                        memory[i] = learn(turn, i == chosen, memory[i], parameters)
                gain = reward(world, seed, chosen, pulls[run, chosen])
                units[run, chosen] += gain
                pulls[run, chosen] += 1
                earned += gain
                missed += gaps[chosen]
                if arms.shape[0] > 0:
                    arms[run, t - 1] = chosen
                if point < points.shape[0] and points[point] == t:
                    curve[run, point] = earned
                    lost[run, point] = missed
                    point += 1

    return {
        "frames": frames,
        "value": value,
        "learnt": learnt,
        "exploring": exploring,
        "standard": standard,
        "paper": paper,
    }


@dataclass(frozen=True)
class Kernels:
    """The compiled functions of one policy class."""

    frames: Callable[..., None]
    value: Callable[..., float]
    learnt: Callable[..., float]
    exploring: Callable[..., bool]
    standard: Callable[..., None]
    paper: Callable[..., None]


@elementary
def _no_choice(values, u):
    return 0


def kernels(policy: Policy) -> Kernels:
    """Compiled functions of a policy; compiled at first use and kept."""
    choices = [selection.choose for selection in policy.passes() if selection.choose is not None]
    return _kernels(type(policy), choices[0] if choices else _no_choice)


@cache
def _kernels(policy: type[Policy], choose: Callable[..., int]) -> Kernels:
    functions = {
        "score": compile_user(policy.score),
        "learn": compile_user(policy.learn),
        "explore": compile_user(policy.explore),
        "choose": compile_user(choose),
    }
    ships = policy.__module__.startswith("posse.")
    tag = f"{policy.__module__}.{policy.__qualname__} {source_digest()}" if ships else None
    made = {
        name: specialise(template, functions, tag=tag, parallel=name in {"standard", "paper"})
        for name, template in _templates(tag).items()
    }
    return Kernels(**made)
