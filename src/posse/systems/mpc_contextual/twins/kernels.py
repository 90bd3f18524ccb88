"""Compiled loops of the fixed-point twin: steps one by one, overlapped, and in batches, on plain
integers.

They are written from the formulas and not from the protocol, and compute the chosen arm's update
only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_loops
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import LINE_GRID
from posse.systems.mpc_contextual.program import GRID
from posse.systems.mpc_contextual.terms import LIFT

Wholes = NDArray[np.int64]


class Numbers(NamedTuple):
    """What the kernels need to know of the terms."""

    bits: int
    early: bool
    """Whether scores are compared before they are truncated."""
    apart: bool
    """Whether choosing is apart from learning: with overlap, or where nothing is learnt."""
    frozen: bool
    ties: int
    spare: int
    bonus: bool
    newton: int
    """Newton steps, of the reciprocal or of the inverse of a batch."""
    low: int
    """Bits of the first guess of the reciprocal; with overlap those of what a line neglects."""
    cut: int
    """With overlap, bits that a reciprocal by lines has too many."""
    guess: Wholes
    """Its coefficients; constant and slope for a batch; with overlap the values of lines, and
    behind them slopes.
    """


class Places(NamedTuple):
    """Where the masks of each truncation begin in a row of masks."""

    scored: int
    bonus: int
    q: int
    """Of the variance, or of the coupling of a batch."""
    rough: int
    guess: int
    newton: Wholes
    """(steps, 2): of the error and of the inverse."""
    gain: int
    model: int
    learnt: int
    """With overlap, of the score and direction of the context before."""


class World(NamedTuple):
    """What the steps of a chunk meet, a row a step."""

    features: Wholes
    units: Wholes
    explore: NDArray[np.bool_]
    explored: Wholes
    ties: Wholes
    normals: NDArray[np.float64]
    """All 1 for LinUCB."""


class Shape(NamedTuple):
    """Where the model lies."""

    rows: Wholes
    left: Wholes
    right: Wholes


@compiled_loops
def _cut(x: np.int64, mask: np.uint64, bits: int) -> np.int64:
    """Divide by 2^bits: floor, and 1 more if the low bits of x and of the mask carry."""
    low = (np.int64(1) << np.int64(bits)) - np.int64(1)
    carry = ((x & low) + (np.int64(mask) & low)) >> np.int64(bits)
    return (x >> np.int64(bits)) + carry


@compiled_loops
def _seen(largest: NDArray[np.float64], which: int, x: np.int64, bits: int) -> None:
    size = abs(float(x)) / 2.0**bits
    if size > largest[which]:
        largest[which] = size


@compiled_loops
def _slack(dimension: int, f: int) -> np.int64:
    """How far rounding of k takes x.k below 0: a unit an entry, and the entries of x add up to at
    most sqrt(D).
    """
    return np.int64(math.sqrt(dimension) * 2.0 ** (f + 1))


@compiled_loops
def _direction(
    model: Wholes,
    a: int,
    x: Wholes,
    mask: Words,
    at: int,
    rows: Wholes,
    f: int,
    k: Wholes,
    largest: NDArray[np.float64],
) -> None:
    """Compute P_a x; `at` is where the masks of this context and arm begin."""
    for i in range(len(x)):
        raw = np.int64(0)
        for j in range(len(x)):
            raw += model[a, rows[i, j]] * x[j]
        _seen(largest, 1, raw, 2 * f)
        k[i] = _cut(raw, mask[at + i], f)


@compiled_loops
def _dot(x: Wholes, y: Wholes) -> np.int64:
    total = np.int64(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@compiled_loops
def _choose(
    world: World,
    t: int,
    mask: Words,
    b: int,
    numbers: Numbers,
    places: Places,
    shape: Shape,
    root: NDArray[np.float64],
    model: Wholes,
    scores: Wholes,
    k: Wholes,
    largest: NDArray[np.float64],
) -> int:
    """Score every arm for step t, the b-th of its pass, and return the best."""
    x, f, count = world.features[t], numbers.bits, model.shape[0]
    dimension, triangle = len(x), len(shape.left)
    best, top = 0, np.int64(0)
    each = 1 if numbers.apart and not numbers.bonus else dimension + 1
    for a in range(count):
        at = places.scored + (b * count + a) * each
        raw = _dot(model[a, triangle:], x)
        _seen(largest, 0, raw, 2 * f)
        scores[a] = raw if numbers.early and numbers.apart else _cut(raw, mask[at + each - 1], f)
        ranked = raw if numbers.early else scores[a]
        rank = ((ranked << np.int64(numbers.ties)) + world.ties[t, a]) << np.int64(numbers.spare)
        if numbers.bonus:
            _direction(model, a, x, mask, at, shape.rows, f, k, largest)
            v = _cut(_dot(k, x), mask[places.bonus + b * count + a], 2 * f - GRID)
            rank += np.int64(
                np.rint(root[v & np.int64((2 << GRID) - 1)] * world.normals[t, a])
            ) << np.int64(32)
        _seen(largest, 2, rank, (2 * f if numbers.early else f) + numbers.ties + numbers.spare)
        if a == 0 or rank > top:
            best, top = a, rank
    return best


@compiled_loops
def _reward(units: np.int64, f: int) -> np.int64:
    """Round a reward from units of 2^-24 to units of 2^-f."""
    shift = np.int64(24 - f)
    if shift <= 0:
        return units << -shift
    return (units + (np.int64(1) << shift >> np.int64(1))) >> shift


@compiled_loops
def one_by_one(
    world: World,
    masks: Words,
    numbers: Numbers,
    places: Places,
    shape: Shape,
    root: NDArray[np.float64],
    model: Wholes,
    arms: Wholes,
    greedy: Wholes,
    largest: NDArray[np.float64],
) -> None:
    """Run some steps; `model` and `largest` go on from where they are."""
    f, low, dimension = numbers.bits, numbers.low, world.features.shape[1]
    lift, slack = np.int64(1) << np.int64(f - LIFT), _slack(dimension, f)
    scores = np.zeros(model.shape[0], np.int64)
    k, gain = np.zeros(dimension, np.int64), np.zeros(dimension, np.int64)
    constant, linear, quadratic = numbers.guess
    for t in range(len(arms)):
        x, mask = world.features[t], masks[t]
        best = _choose(world, t, mask, 0, numbers, places, shape, root, model, scores, k, largest)
        a = world.explored[t] if world.explore[t] else best
        greedy[t], arms[t] = best, a
        if numbers.frozen:
            continue
        _direction(
            model, a, x, mask, places.scored + a * (dimension + 1), shape.rows, f, k, largest
        )
        q = _dot(k, x)
        _seen(largest, 3, q, 2 * f)
        if q < -slack:
            largest[3] = np.inf
        exact = _cut(q, mask[places.q + a], f) + (np.int64(1) << np.int64(f))
        rough = _cut(q, mask[places.rough + a], 2 * f - low)
        raw = (
            quadratic * rough * rough
            + ((linear * rough) << np.int64(low))
            + (constant << np.int64(2 * low))
        )
        _seen(largest, 4, raw, low + 31)
        y, unit = _cut(raw, mask[places.guess + a], 31), low
        for i in range(numbers.newton):
            raw = exact * y
            _seen(largest, 5, raw, f + unit)
            error = _cut(raw, mask[places.newton[i, 0] + a], unit)
            raw = ((np.int64(2) << np.int64(f)) - error) * y
            _seen(largest, 6, raw, f + unit)
            y, unit = _cut(raw, mask[places.newton[i, 1] + a], unit), f
        y = y << np.int64(f - unit)
        for j in range(dimension):
            raw = k[j] * y
            _seen(largest, 7, raw, 2 * f)
            gain[j] = _cut(raw, mask[places.gain + j], f)
        error = _reward(world.units[t, a], f) - scores[a]
        _learn(model, a, k, gain, error, mask, places, shape, f, lift, largest, 8)


@compiled_loops
def overlapped(
    first: int,
    world: World,
    masks: Words,
    numbers: Numbers,
    places: Places,
    shape: Shape,
    root: NDArray[np.float64],
    model: Wholes,
    arms: Wholes,
    greedy: Wholes,
    largest: NDArray[np.float64],
) -> None:
    """Run some passes from `first` on: each chooses for one step, and then learns from the step
    before.
    """
    f, low, steps, dimension = (
        numbers.bits,
        numbers.low,
        world.features.shape[0],
        world.features.shape[1],
    )
    triangle, lift, slack = len(shape.left), np.int64(1) << np.int64(f - LIFT), _slack(dimension, f)
    scores, free = np.zeros(model.shape[0], np.int64), np.zeros(dimension, np.int64)
    k, gain = np.zeros(dimension, np.int64), np.zeros(dimension, np.int64)
    bits, count = 2 * f - LINE_GRID, len(numbers.guess) // 2
    below = (np.int64(1) << np.int64(bits)) - np.int64(1)
    for p in range(masks.shape[0]):
        t, mask = first + p, masks[p]
        if t < steps:
            best = _choose(
                world, t, mask, 0, numbers, places, shape, root, model, scores, free, largest
            )
            greedy[t], arms[t] = best, world.explored[t] if world.explore[t] else best
        if t == 0:
            continue
        a, x = arms[t - 1], world.features[t - 1]
        _direction(model, a, x, mask, places.learnt, shape.rows, f, k, largest)
        raw = _dot(model[a, triangle:], x)
        _seen(largest, 0, raw, 2 * f)
        error = _reward(world.units[t - 1, a], f) - _cut(raw, mask[places.learnt + dimension], f)
        q = _dot(k, x)
        _seen(largest, 3, q, 2 * f)
        if q < -slack:
            largest[3] = np.inf
        drawn = mask[places.q]
        place = _cut(q, drawn, bits) & np.int64(count - 1)
        rest = (((q + np.int64(drawn)) & below) >> np.int64(low)) - (
            (np.int64(drawn) & below) >> np.int64(low)
        )
        raw = numbers.guess[place] + numbers.guess[count + place] * rest
        _seen(largest, 4, raw, numbers.cut + f)
        y = _cut(raw, mask[places.guess], numbers.cut)
        for j in range(dimension):
            raw = k[j] * y
            _seen(largest, 5, raw, 2 * f)
            gain[j] = _cut(raw, mask[places.gain + j], f)
        _learn(model, a, k, gain, error, mask, places, shape, f, lift, largest, 6)


@compiled_loops
def _learn(
    model: Wholes,
    a: int,
    k: Wholes,
    gain: Wholes,
    error: np.int64,
    mask: Words,
    places: Places,
    shape: Shape,
    f: int,
    lift: np.int64,
    largest: NDArray[np.float64],
    which: int,
) -> None:
    """Change the model of one arm."""
    at, triangle = places.model + a * model.shape[1], len(shape.left)
    for e in range(triangle):
        raw = (model[a, e] << np.int64(f)) - k[shape.left[e]] * gain[shape.right[e]]
        if shape.left[e] == shape.right[e]:
            raw += lift
        _seen(largest, which, raw, 2 * f)
        model[a, e] = _cut(raw, mask[at + e], f)
    for j in range(len(k)):
        raw = (model[a, triangle + j] << np.int64(f)) + error * gain[j]
        _seen(largest, which + 1, raw, 2 * f)
        model[a, triangle + j] = _cut(raw, mask[at + triangle + j], f)


@compiled_loops
def in_batches(
    world: World,
    masks: Words,
    numbers: Numbers,
    places: Places,
    shape: Shape,
    root: NDArray[np.float64],
    batch: int,
    model: Wholes,
    arms: Wholes,
    greedy: Wholes,
    largest: NDArray[np.float64],
) -> None:
    """Run some passes of `batch` steps each, with one model, which then learns from all of them at
    once.
    """
    f, count, dimension = numbers.bits, model.shape[0], world.features.shape[1]
    triangle, lift, slack = len(shape.left), np.int64(1) << np.int64(f - LIFT), _slack(dimension, f)
    scores, free = np.zeros(count, np.int64), np.zeros(dimension, np.int64)
    k, gain = np.zeros((batch, dimension), np.int64), np.zeros((batch, dimension), np.int64)
    errors = np.zeros(batch, np.int64)
    s, y = np.zeros((batch, batch), np.int64), np.zeros((batch, batch), np.int64)
    residual, better = np.zeros((batch, batch), np.int64), np.zeros((batch, batch), np.int64)
    one = np.int64(1) << np.int64(f)
    for p in range(masks.shape[0]):
        mask, first = masks[p], p * batch
        for j in range(batch):
            t = first + j
            best = _choose(
                world, t, mask, j, numbers, places, shape, root, model, scores, free, largest
            )
            a = world.explored[t] if world.explore[t] else best
            greedy[t], arms[t] = best, a
            if numbers.frozen:
                continue
            at = places.scored + (j * count + a) * (dimension + 1)
            _direction(model, a, world.features[t], mask, at, shape.rows, f, k[j], largest)
            errors[j] = _reward(world.units[t, a], f) - scores[a]
        if numbers.frozen:
            continue
        for i in range(batch):
            for j in range(batch):
                s[i, j] = 0
                if arms[first + i] == arms[first + j]:
                    raw = _dot(world.features[first + i], k[j])
                    _seen(largest, 3, raw, 2 * f)
                    if i == j and raw < -slack:
                        largest[3] = np.inf
                    s[i, j] = _cut(
                        raw, mask[places.q + (i * batch + j) * count + arms[first + j]], f
                    )
        for i in range(batch):
            for j in range(batch):
                raw = s[i, j] * numbers.guess[1] + (one * numbers.guess[0] if i == j else 0)
                _seen(largest, 4, raw, f + 20)
                y[i, j] = _cut(raw, mask[places.guess + i * batch + j], 20)
                s[i, j] += one if i == j else 0
        for n in range(numbers.newton):
            for i in range(batch):
                for j in range(batch):
                    raw = _dot(s[i], y[:, j])
                    _seen(largest, 5, raw, 2 * f)
                    residual[i, j] = (2 * one if i == j else 0) - _cut(
                        raw, mask[places.newton[n, 0] + i * batch + j], f
                    )
            for i in range(batch):
                for j in range(batch):
                    raw = _dot(y[i], residual[:, j])
                    _seen(largest, 6, raw, 2 * f)
                    better[i, j] = _cut(raw, mask[places.newton[n, 1] + i * batch + j], f)
            y[:] = better
        for j in range(batch):
            for d in range(dimension):
                raw = _dot(k[:, d], y[j])
                _seen(largest, 7, raw, 2 * f)
                gain[j, d] = _cut(raw, mask[places.gain + j * dimension + d], f)
        for a in range(count):
            at = places.model + a * model.shape[1]
            for e in range(model.shape[1]):
                raw = model[a, e] << np.int64(f)
                for j in range(batch):
                    if arms[first + j] == a:
                        if e < triangle:
                            raw -= k[j, shape.left[e]] * gain[j, shape.right[e]]
                            if shape.left[e] == shape.right[e]:
                                raw += lift
                        else:
                            raw += errors[j] * gain[j, e - triangle]
                _seen(largest, 8 if e < triangle else 9, raw, 2 * f)
                model[a, e] = _cut(raw, mask[at + e], f)
