"""Compiled kernels of one policy: the plain twin over seeds, and an owner's block of numbers.

The templates below call `score`, `learn`, `explore` and `choose` by name; `kernels` binds these
names to a policy's functions and compiles. Twin and owner evaluate the same expressions on the same
streams, so they compare the same numbers.
"""

# mypy: disable-error-code="no-untyped-def, name-defined, no-untyped-call, no-any-return, assignment"
# ruff: noqa: F821
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from posse.core.compiled import Compiled, compile_template, compile_user_function, compiled_scalar
from posse.core.errors import PolicyError
from posse.core.exact import exp, gumbel
from posse.core.fixed import clip_score, comparable_score, from_units, tie_place
from posse.core.random import (
    COIN,
    EXPLORE,
    GUMBEL,
    MASK,
    SELECT,
    TIE,
    uniform,
    word_to_uniform,
    words64,
)
from posse.policies.arms.base import Policy
from posse.problems.arms.rewards import BETA, reward, simple_reward

ARGMAX, MATCH, CUSTOM = 0, 1, 2
_LN2_UP = 0.6931471805599455


@compiled_scalar
def gumbel_bound(u: float) -> float:
    """Cheap upper bound of `gumbel(u)`: -ln(-ln u) <= -ln(1 - u) <= (1 - e) ln 2 for 1 - u = m 2^e,
    1/2 <= m < 1.
    """
    bits = np.float64(max(1.0 - u - 2.0**-54, 2.0**-54)).view(np.int64)
    return float(1023 - (bits >> 52)) * _LN2_UP


@compiled_scalar
def tossed(key, t, probability):
    """Whether the common coin of step t says to explore; policies that never do draw nothing."""
    return probability > 0.0 and uniform(key, COIN, 0, t, 0) < probability


@compiled_scalar
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


@compiled_scalar
def select_match(values, u):
    """Position drawn with probability proportional to its value. What comp does at level
    `paper`.
    """
    total = 0.0
    for value in values:
        total += value
    reached = 0.0
    for position in range(values.shape[0]):
        reached += values[position]
        if u * total < reached:
            return position
    return values.shape[0] - 1


@compiled_scalar
def paper_value(value, kind, scale, ceiling):
    """What an owner sends at level `paper` before masking: the score, or exp((score - ceiling) /
    scale) to match.
    """
    return exp((value - ceiling) / scale) if kind == MATCH else value


def _numbers(
    t,
    turn,
    count,
    units,
    pulls,
    memory,
    owner,
    owners,
    bits,
    parameters,
    kinds,
    scales,
    coins,
    keys,
    out,
    memories,
):
    """Fill `out` with the integers x of the next `count` passes, as if this owner were chosen in
    none of them.

    `coins` are rows of `CommonDraws`, `keys` of `OwnSeeds`.
    """
    passes = kinds.shape[0]
    total = from_units(units)
    for j in range(count):
        memories[j] = memory
        if turn == passes - 1 and word_to_uniform(coins[j, 0]) < explore(t, owners, parameters):
            value = uniform(keys[j], EXPLORE, turn, t, 0)
        else:
            value = score(t, turn, total, pulls, memory, keys[j], parameters)
            if kinds[turn] == MATCH:
                value += scales[turn] * gumbel(uniform(keys[j], GUMBEL, turn, t, 0))
        out[j] = comparable_score(
            clip_score(value, bits), tie_place(coins[j, 1], coins[j, 2], owner, bits), bits
        )
        memory = learn(turn, False, memory, parameters)
        turn += 1
        if turn == passes:
            turn = 0
            t += 1


def _value(t, turn, units, pulls, memory, own_key, parameters, kinds, scales, ceilings):
    """Return what an owner sends at level `paper`, before masking."""
    raw = score(t, turn, from_units(units), pulls, memory, own_key, parameters)
    return paper_value(raw, kinds[turn], scales[turn], ceilings[turn])


def _learnt(turn, chosen, memory, parameters):
    """Return an owner's memory after a pass."""
    return learn(turn, chosen, memory, parameters)


def _exploring(coin, t, owners, parameters):
    """Return whether step t ignores the scores, by its coin in [0, 1)."""
    return coin < explore(t, owners, parameters)


def _largest(
    t,
    turn,
    passes,
    explores,
    seed,
    keys,
    units,
    pulls,
    memory,
    parameters,
    kind,
    scale,
    ceiling,
    bits,
    permute,
    mask,
    order,
    values,
):
    """Return the arm that a pass of level `strict` selects: the largest integer x."""
    first, second = words64(seed, TIE, 0, t * passes + turn, 0)
    best = np.int64(-9223372036854775808)
    lowest = -1.0e300
    chosen, place = 0, -1
    for i in range(keys.shape[0]):
        if explores:
            value = uniform(keys[i], EXPLORE, turn, t, 0)
        else:
            value = score(t, turn, from_units(units[i]), pulls[i], memory[i], keys[i], parameters)
            if kind == MATCH:
                u = uniform(keys[i], GUMBEL, turn, t, 0)
                if clip_score(value + scale * gumbel_bound(u), bits) < lowest:
                    continue  # it cannot win
                value += scale * gumbel(u)
        value = clip_score(value, bits)
        if value < lowest:
            continue
        x = comparable_score(value, 0, bits)
        if x > best:
            best, chosen, place = x, i, -1
            lowest = value - 2.0**-39  # two units below the best: rounding never hides a winner
        elif x == best:  # the order of ties is computed where there is one
            if place < 0:
                place = tie_place(first, second, chosen, bits)
            other = tie_place(first, second, i, bits)
            if other > place:
                chosen, place = i, other
    return chosen


def _published(
    t,
    turn,
    passes,
    explores,
    seed,
    keys,
    units,
    pulls,
    memory,
    parameters,
    kind,
    scale,
    ceiling,
    bits,
    permute,
    mask,
    order,
    values,
):
    """Return the arm that a pass of level `paper` selects: as its comp does, on masked floats.

    In a simulation ties and draws follow the owners' order, whatever the permutation: no protection
    changes a result.
    """
    index = t * passes + turn
    u = uniform(seed, SELECT, 0, index, 0)
    if explores:
        return int(u * keys.shape[0])
    alpha = 1.0 - uniform(seed, MASK, 0, index, 0) if mask else 1.0
    for i in range(keys.shape[0]):
        raw = score(t, turn, from_units(units[i]), pulls[i], memory[i], keys[i], parameters)
        values[i] = alpha * paper_value(raw, kind, scale, ceiling)
    if kind == ARGMAX:
        return select_argmax(values, u)
    if kind == MATCH:
        return select_match(values, u)
    return choose(values, u)


def _twin(
    world,
    seeds,
    keys,
    units,
    pulls,
    curve,
    lost,
    arms,
    memories,
    earned,
    missed,
    reached,
    first,
    last,
    bits,
    permute,
    mask,
    parameters,
    kinds,
    scales,
    ceilings,
    points,
    gaps,
):
    """Run the plain bandit for every seed from step `first` to `last`; `select` is how a level
    picks the arm.
    """
    runs, owners = keys.shape
    passes = kinds.shape[0]
    for run in range(runs):
        seed = seeds[run]
        memory = memories[run]
        order, values = np.arange(owners), np.empty(owners)
        point = reached[run]
        for t in range(first, last + 1):
            chosen = t - 1
            if t > owners:
                tossed_up = tossed(seed, t, explore(t, owners, parameters))
                for turn in range(passes):
                    explores = tossed_up and turn == passes - 1
                    chosen = select(
                        t,
                        turn,
                        passes,
                        explores,
                        seed,
                        keys[run],
                        units[run],
                        pulls[run],
                        memory,
                        parameters,
                        kinds[turn],
                        scales[turn],
                        ceilings[turn],
                        bits,
                        permute,
                        mask,
                        order,
                        values,
                    )
                    for i in range(owners):
                        memory[i] = learn(turn, i == chosen, memory[i], parameters)
            gain = reward(world, seed, chosen, pulls[run, chosen])
            units[run, chosen] += gain
            pulls[run, chosen] += 1
            earned[run] += gain
            missed[run] += gaps[chosen]
            if arms.shape[0] > 0:
                arms[run, t - 1] = chosen
            if point < points.shape[0] and points[point] == t:
                curve[run, point] = earned[run]
                lost[run, point] = missed[run]
                point += 1
        reached[run] = point


@compiled_scalar
def _no_choice(values, u):
    return 0


@compiled_scalar
def _no_noise(u):
    return 0.0


@compiled_scalar
def _unscaled(value, kind, scale, ceiling):
    return value


_NO_MATCHING = {"gumbel": _no_noise, "gumbel_bound": _no_noise, "paper_value": _unscaled}
"""What the templates call in place of probability matching, where no pass of a policy matches."""


class Kernels:
    """The compiled functions of one policy class, each compiled at its first call."""

    numbers: Callable[..., None]
    value: Callable[..., float]
    learnt: Callable[..., float]
    exploring: Callable[..., bool]

    def __init__(self, policy: type[Policy], choose: Callable[..., int], *, matches: bool) -> None:
        self.built_in = policy.__module__.startswith("posse.policies.") and choose is _no_choice
        """Whether the twins can be interpreted: plain Python gives the same bits."""
        self._name = f"{policy.__module__}.{policy.__qualname__}"
        if not self.built_in:
            self._name += f"_{len(_compiled)}"
        self._functions = {
            "score": compile_user_function(policy.score),
            "learn": compile_user_function(policy.learn),
            "explore": compile_user_function(policy.explore),
            "choose": compile_user_function(choose),
        }
        if not matches:
            self._functions |= _NO_MATCHING
        self._twins: dict[tuple[bool, bool], Compiled[None]] = {}
        self.numbers = self._specialise(_numbers)
        self.value = self._specialise(_value)
        self.learnt = self._specialise(_learnt)
        self.exploring = self._specialise(_exploring)

    def twin(self, *, published: bool, kind: int) -> Compiled[None]:
        """Return the twin for rewards of a kind; `published` is that of level `paper`.

        Beta rewards have a twin of their own, because they take seconds to compile.
        """
        key = (published, kind == BETA)
        if key not in self._twins:
            select = self._specialise(_published if published else _largest)
            draw = reward if kind == BETA else simple_reward
            self._twins[key] = self._specialise(_twin, short=False, select=select, reward=draw)
        return self._twins[key]

    def _specialise(
        self, template: Callable[..., Any], *, short: bool = True, **more: Callable[..., Any]
    ) -> Compiled[Any]:
        name = "_".join([self._name, *(function.__name__ for function in more.values())])
        functions = {**self._functions, **more}
        return compile_template(template, functions, name=name, keep=self.built_in, short=short)


def kernels(policy: Policy) -> Kernels:
    """Compiled functions of a policy; made once for every class of policies."""
    passes = policy.passes()
    choices = {selection.choose for selection in passes if selection.choose is not None}
    if len(choices) > 1:
        raise PolicyError(
            f"policy '{policy.name}' has {len(choices)} 'choose' functions; use the same in all "
            "passes."
        )
    matches = any(selection.kind == "match" for selection in passes)
    key = (type(policy), choices.pop() if choices else _no_choice, matches)
    if key not in _compiled:
        _compiled[key] = Kernels(key[0], key[1], matches=matches)
    return _compiled[key]


_compiled: dict[tuple[type[Policy], Callable[..., int], bool], Kernels] = {}
