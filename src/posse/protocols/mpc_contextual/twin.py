"""The fixed-point twin: the same bandit on plain integers, on the same coins and the same rounding.

A truncation on shares is floor + carry, where the carry depends on the low bits of a dealt mask. A twin that knows the
masks (it knows all seeds of a simulation) rounds alike, and so pulls the same arms and ends with the same model, bit
for bit. Written from the formulas and not from the protocol: it computes the chosen arm's update only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import loops
from posse.core.errors import DataError
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import START, start_bits
from posse.protocols.mpc_contextual.coins import Coins
from posse.protocols.mpc_contextual.program import Layout
from posse.protocols.mpc_contextual.ranges import check_ranges
from posse.protocols.mpc_contextual.terms import Terms

Wholes = NDArray[np.int64]
_CHUNK = 128


class Numbers(NamedTuple):
    """What the kernel needs to know of the terms."""

    bits: int
    low: int
    newton: int
    constant: int
    linear: int
    quadratic: int


class Places(NamedTuple):
    """Where the masks of each truncation begin in a row of masks."""

    scored: int
    q: int
    rough: int
    guess: int
    newton: Wholes
    """(steps, 2): of the error and of the inverse."""
    gain: int
    model: int


@dataclass(frozen=True, eq=False)
class FixedRun:
    """What came out."""

    arms: Wholes
    greedy: Wholes
    rewards: Wholes
    """In units of 2^-24."""
    model: Wholes
    """(arms, size) as `Layout` lays it out, in units of 2^-bits."""
    largest: dict[str, float]
    """Largest magnitude that every intermediate of `ranges` had, in its own unit of 1."""


def run_fixed(terms: Terms, plan: Plan, features: Words, units: Wholes, coins: Coins, keys: list[bytes]) -> FixedRun:
    """Run the twin: `units` (steps, arms) are the rewards in units of 2^-24, `keys` the seeds of the parties' tapes.

    Raises where an intermediate leaves its declared range. About 50 microseconds a step with 10 arms and 20 features,
    most of it for the masks.
    """
    layout, bounds = Layout(terms.dimension), check_ranges(terms)
    model = layout.start(terms.arms, terms.bits).view(np.int64)
    numbers, places = _numbers(terms), _places(terms, plan)
    arms, greedy = np.zeros(terms.steps, np.int64), np.zeros(terms.steps, np.int64)
    largest = np.zeros(len(bounds))
    signed = np.ascontiguousarray(features.view(np.int64))
    for first in range(0, terms.steps, _CHUNK):
        last = min(first + _CHUNK, terms.steps)
        masks = np.stack([plan.free(keys, number) for number in range(first, last)])
        _steps(
            signed[first:last], units[first:last], coins.explore[first:last], coins.arms[first:last],
            coins.ties[first:last], masks, numbers, places, layout.rows, layout.left, layout.right, model,
            arms[first:last], greedy[first:last], largest,
        )  # fmt: skip
        for bound, found in zip(bounds, largest, strict=True):
            if found > bound.largest:
                raise DataError(
                    f"{bound.name} reached {found:g} by step {last}, and must stay within {bound.largest:g} "
                    f"({bound.why}). Check that contexts have norm at most 1."
                )
    rewards = units[np.arange(terms.steps), arms]
    told = {bound.name: float(found) for bound, found in zip(bounds, largest, strict=True)}
    return FixedRun(arms, greedy, rewards, model, told)


def _numbers(terms: Terms) -> Numbers:
    low = start_bits(terms.bits)
    return Numbers(terms.bits, low, terms.newton, *(round(one * 2 ** (31 - low)) for one in START))


def _places(terms: Terms, plan: Plan) -> Places:
    at = {label: place for label, (place, _) in plan.truncations.items()}
    newton = [[at[f"error {i}"], at[f"inverse {i}"]] for i in range(1, terms.newton + 1)]
    return Places(
        at["scores and directions"], at["q"], at["rough q"], at["guess"],
        np.array(newton, np.int64).reshape(-1, 2), at["gain"], at["model"],
    )  # fmt: skip


@loops
def _cut(x: np.int64, mask: np.uint64, bits: int) -> np.int64:
    """Divide by 2^bits: floor, and 1 more if the low bits of x and of the mask carry."""
    low = (np.int64(1) << np.int64(bits)) - np.int64(1)
    carry = ((x & low) + (np.int64(mask) & low)) >> np.int64(bits)
    return (x >> np.int64(bits)) + carry


@loops
def _seen(largest: NDArray[np.float64], which: int, x: np.int64, bits: int) -> None:
    size = abs(float(x)) / 2.0**bits
    if size > largest[which]:
        largest[which] = size


@loops
def _steps(
    features: Wholes, units: Wholes, explore: NDArray[np.bool_], explored: Wholes, ties: Wholes, masks: Words,
    numbers: Numbers, places: Places, rows: Wholes, left: Wholes, right: Wholes, model: Wholes,
    arms: Wholes, greedy: Wholes, largest: NDArray[np.float64],
) -> None:  # fmt: skip
    """Run some steps; `model` and `largest` go on from where they are."""
    f, low = numbers.bits, numbers.low
    count, dimension = model.shape[0], features.shape[1]
    triangle = len(left)
    scores = np.zeros(count, np.int64)
    k, gain = np.zeros(dimension, np.int64), np.zeros(dimension, np.int64)
    shift = np.int64(24 - f)
    for t in range(features.shape[0]):
        x, mask = features[t], masks[t]
        best = 0
        for a in range(count):
            raw = np.int64(0)
            for j in range(dimension):
                raw += model[a, triangle + j] * x[j]
            _seen(largest, 0, raw, 2 * f)
            scores[a] = _cut(raw, mask[places.scored + a * (dimension + 1) + dimension], f)
            _seen(largest, 2, scores[a], f)
            if scores[a] > scores[best] or (scores[a] == scores[best] and ties[t, a] > ties[t, best]):
                best = a
        a = explored[t] if explore[t] else best
        greedy[t], arms[t] = best, a
        q = np.int64(0)
        for i in range(dimension):
            raw = np.int64(0)
            for j in range(dimension):
                raw += model[a, rows[i, j]] * x[j]
            _seen(largest, 1, raw, 2 * f)
            k[i] = _cut(raw, mask[places.scored + a * (dimension + 1) + i], f)
            q += k[i] * x[i]
        _seen(largest, 3, q, 2 * f)
        exact = _cut(q, mask[places.q + a], f) + (np.int64(1) << np.int64(f))
        rough = _cut(q, mask[places.rough + a], 2 * f - low)
        raw = numbers.quadratic * rough * rough
        raw += (numbers.linear * rough) << np.int64(low)
        raw += np.int64(numbers.constant) << np.int64(2 * low)
        _seen(largest, 4, raw, low + 31)
        y, unit = _cut(raw, mask[places.guess + a], 31), low
        for i in range(numbers.newton):
            raw = exact * y
            _seen(largest, 5, raw, f + unit)
            error = _cut(raw, mask[places.newton[i, 0] + a], unit)
            raw = ((np.int64(2) << np.int64(f)) - np.int64(error)) * y
            _seen(largest, 6, raw, f + unit)
            y, unit = _cut(raw, mask[places.newton[i, 1] + a], unit), f
        y = y << np.int64(f - unit)
        for j in range(dimension):
            raw = k[j] * y
            _seen(largest, 7, raw, 2 * f)
            gain[j] = _cut(raw, mask[places.gain + j], f)
        reward = units[t, a]
        scaled = reward << -shift if shift <= 0 else (reward + (np.int64(1) << shift >> np.int64(1))) >> shift
        at = places.model + a * model.shape[1]
        for e in range(triangle):
            raw = (model[a, e] << np.int64(f)) - k[left[e]] * gain[right[e]]
            _seen(largest, 8, raw, 2 * f)
            model[a, e] = _cut(raw, mask[at + e], f)
        for j in range(dimension):
            raw = (model[a, triangle + j] << np.int64(f)) + (scaled - scores[a]) * gain[j]
            _seen(largest, 9, raw, 2 * f)
            model[a, triangle + j] = _cut(raw, mask[at + triangle + j], f)
