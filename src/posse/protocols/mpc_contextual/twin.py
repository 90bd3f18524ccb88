"""The fixed-point twin: the same bandit on plain integers, on the same coins and the same rounding.

A truncation on shares is floor + carry, where the carry depends on the low bits of a dealt mask. A twin that knows the
masks (it knows all seeds of a simulation) rounds alike, and so pulls the same arms and ends with the same model, bit
for bit. Written from the formulas and not from the protocol: it computes the chosen arm's update only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import loops
from posse.core.errors import DataError
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import START, first_guess, start_bits
from posse.protocols.mpc_contextual.coins import Coins, DealerCoins, PartyCoins, together
from posse.protocols.mpc_contextual.dealer import DealerKeys
from posse.protocols.mpc_contextual.party import common_key, part_of
from posse.protocols.mpc_contextual.program import GRID, Layout, root_table
from posse.protocols.mpc_contextual.terms import DEALER, LIFT, Terms, check_ranges

Wholes = NDArray[np.int64]
_CHUNK, _COINS = 128, 1024
"""Steps whose masks, and whose coins, are made at a time."""


class Numbers(NamedTuple):
    """What the kernels need to know of the terms."""

    bits: int
    ties: int
    spare: int
    bonus: bool
    newton: int
    """Newton steps, of the reciprocal or of the inverse of a batch."""
    low: int
    """Bits of the first guess of the reciprocal."""
    guess: Wholes
    """Its coefficients; constant and slope for a batch."""


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


class FixedTwin:
    """The twin of one seed, which goes forward by whole batches."""

    def __init__(self, terms: Terms, plan: Plan, features: Words, units: Wholes, coins: Coins, seed: int) -> None:
        """Prepare: `units` (steps, arms) are the rewards in units of 2^-24; parties' tapes follow from the seed."""
        layout = Layout(terms.dimension)
        self._terms, self._plan, self._bounds = terms, plan, check_ranges(terms)
        self._keys = list(DealerKeys(terms, seeded(seed, DEALER)).tapes.values())
        self._world = _world(features, units, coins)
        self._fixed = (
            _numbers(terms), _places(terms, plan), Shape(layout.rows, layout.left, layout.right),
            root_table(terms) if terms.bonus else np.zeros(1),
        )  # fmt: skip
        self._passes = 0
        self.model = layout.start(terms.arms, terms.bits).view(np.int64)
        self.arms, self.greedy = np.zeros(terms.steps, np.int64), np.zeros(terms.steps, np.int64)
        self.largest = np.zeros(len(self._bounds))

    @property
    def time(self) -> int:
        """Steps that are over."""
        return self._passes * self._terms.batch

    def advance(self, steps: int) -> None:
        """Make so many steps more, up to the end of a batch; raises where an intermediate leaves its declared range.

        About 50 microseconds a step with 10 arms and 20 features, most of it for the masks.
        """
        batch = self._terms.batch
        end, chunk = min(self._passes - (-steps // batch), self._terms.passes), max(1, _CHUNK // batch)
        while self._passes < end:
            self._run(self._passes, min(self._passes + chunk, end))

    def _run(self, first: int, last: int) -> None:
        batch = self._terms.batch
        masks = np.stack([self._plan.free(self._keys, number) for number in range(first, last)])
        steps = slice(first * batch, last * batch)
        met, out = _cut_out(self._world, steps), (self.model, self.arms[steps], self.greedy[steps], self.largest)
        if batch == 1:
            _steps(met, masks, *self._fixed, *out)
        else:
            _batches(met, masks, *self._fixed, batch, *out)
        self._passes = last
        for bound, size in zip(self._bounds, self.largest, strict=True):
            if size > bound.largest:
                raise DataError(
                    f"{bound.name} reached {size:g} by step {steps.stop}, and must stay within {bound.largest:g} "
                    f"({bound.why}). Check that contexts have norm at most 1; with few bits take fewer steps."
                )

    @property
    def outcome(self) -> FixedRun:
        """What came out so far."""
        done, arms = self.time, self.arms[: self.time]
        largest = {bound.name: float(size) for bound, size in zip(self._bounds, self.largest, strict=True)}
        return FixedRun(arms, self.greedy[:done], self._world.units[np.arange(done), arms], self.model, largest)


def run_fixed(terms: Terms, plan: Plan, features: Words, units: Wholes, coins: Coins, seed: int) -> FixedRun:
    """Run the twin to the end; the arguments are those of `FixedTwin`."""
    twin = FixedTwin(terms, plan, features, units, coins, seed)
    twin.advance(terms.steps)
    return twin.outcome


def coins_of(terms: Terms, seed: int) -> Coins:
    """Return the coins of a simulated run, which nobody in it knows."""
    dealer = DealerCoins(terms, DealerKeys(terms, seeded(seed, DEALER)).coins)
    parties = PartyCoins(terms, common_key(terms, {name: part_of(seeded(seed, name), terms) for name in terms.parties}))
    parts = []
    for first in range(0, terms.steps, _COINS):  # tables of coins are larger than what is read of them
        count = min(_COINS, terms.steps - first)
        parts.append(together(dealer.at(first, count), parties.at(first, count)))
    explore, arms, ties = (np.concatenate(some) for some in zip(*(part[:3] for part in parts), strict=True))
    normals = [part.normals for part in parts if part.normals is not None]
    return Coins(explore, arms, ties, np.concatenate(normals) if normals else None)


def seeded(seed: int, name: str) -> Secrets:
    """Return the secrets of a role in a simulation: they follow from the seed and protect nothing."""
    return Secrets(sha256(f"posse simulation {seed} {name}".encode()).digest())


def _world(features: Words, units: Wholes, coins: Coins) -> World:
    normals = np.ones(coins.ties.shape) if coins.normals is None else coins.normals
    return World(
        np.ascontiguousarray(features.view(np.int64)), np.ascontiguousarray(units), coins.explore, coins.arms,
        np.ascontiguousarray(coins.ties), np.ascontiguousarray(normals),
    )  # fmt: skip


def _cut_out(world: World, steps: slice) -> World:
    parts: list[Any] = [part[steps] for part in world]
    return World(*parts)


def _numbers(terms: Terms) -> Numbers:
    low, bonus = start_bits(terms.bits), bool(terms.bonus)
    if terms.batch == 1:
        newton, guess = terms.newton, [round(one * 2 ** (31 - low)) for one in START]
    else:
        constant, slope, newton = first_guess(terms.batch)
        guess = [constant, slope]
    spare = terms.spare_bits if bonus else 0
    return Numbers(terms.bits, terms.tie_bits, spare, bonus, newton, low, np.array(guess, np.int64))


def _places(terms: Terms, plan: Plan) -> Places:
    at = {label: place for label, (place, _) in plan.truncations.items()}
    one = terms.batch == 1
    names = ("error", "inverse") if one else ("residual", "better")
    newton = [[at[f"{name} {i}"] for name in names] for i in range(1, _numbers(terms).newton + 1)]
    return Places(
        at["scores and directions"], at.get("bonus", 0), at["q" if one else "coupling"], at.get("rough q", 0),
        at["guess" if one else "first inverse"], np.array(newton, np.int64).reshape(-1, 2), at["gain"], at["model"],
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
def _slack(dimension: int, f: int) -> np.int64:
    """How far rounding of k takes x.k below 0: a unit an entry, and the entries of x add up to at most sqrt(D)."""
    return np.int64(math.sqrt(dimension) * 2.0 ** (f + 1))


@loops
def _direction(
    model: Wholes, a: int, x: Wholes, mask: Words, at: int, rows: Wholes, f: int, k: Wholes,
    largest: NDArray[np.float64],
) -> None:  # fmt: skip
    """Compute P_a x; `at` is where the masks of this context and arm begin."""
    for i in range(len(x)):
        raw = np.int64(0)
        for j in range(len(x)):
            raw += model[a, rows[i, j]] * x[j]
        _seen(largest, 1, raw, 2 * f)
        k[i] = _cut(raw, mask[at + i], f)


@loops
def _dot(x: Wholes, y: Wholes) -> np.int64:
    total = np.int64(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@loops
def _choose(
    world: World, t: int, mask: Words, b: int, numbers: Numbers, places: Places, shape: Shape,
    root: NDArray[np.float64], model: Wholes, scores: Wholes, k: Wholes, largest: NDArray[np.float64],
) -> int:  # fmt: skip
    """Score every arm for step t, the b-th of its pass, and return the best."""
    x, f, count = world.features[t], numbers.bits, model.shape[0]
    dimension, triangle = len(x), len(shape.left)
    best, top = 0, np.int64(0)
    for a in range(count):
        at = places.scored + (b * count + a) * (dimension + 1)
        raw = _dot(model[a, triangle:], x)
        _seen(largest, 0, raw, 2 * f)
        scores[a] = _cut(raw, mask[at + dimension], f)
        rank = ((scores[a] << np.int64(numbers.ties)) + world.ties[t, a]) << np.int64(numbers.spare)
        if numbers.bonus:
            _direction(model, a, x, mask, at, shape.rows, f, k, largest)
            v = _cut(_dot(k, x), mask[places.bonus + b * count + a], 2 * f - GRID)
            rank += np.int64(np.rint(root[v & np.int64((2 << GRID) - 1)] * world.normals[t, a])) << np.int64(32)
        _seen(largest, 2, rank, f + numbers.ties + numbers.spare)
        if a == 0 or rank > top:
            best, top = a, rank
    return best


@loops
def _reward(units: np.int64, f: int) -> np.int64:
    """Round a reward from units of 2^-24 to units of 2^-f."""
    shift = np.int64(24 - f)
    if shift <= 0:
        return units << -shift
    return (units + (np.int64(1) << shift >> np.int64(1))) >> shift


@loops
def _steps(
    world: World, masks: Words, numbers: Numbers, places: Places, shape: Shape, root: NDArray[np.float64],
    model: Wholes, arms: Wholes, greedy: Wholes, largest: NDArray[np.float64],
) -> None:  # fmt: skip
    """Run some steps; `model` and `largest` go on from where they are."""
    f, low, dimension = numbers.bits, numbers.low, world.features.shape[1]
    triangle, lift, slack = len(shape.left), np.int64(1) << np.int64(f - LIFT), _slack(dimension, f)
    scores = np.zeros(model.shape[0], np.int64)
    k, gain = np.zeros(dimension, np.int64), np.zeros(dimension, np.int64)
    constant, linear, quadratic = numbers.guess
    for t in range(len(arms)):
        x, mask = world.features[t], masks[t]
        best = _choose(world, t, mask, 0, numbers, places, shape, root, model, scores, k, largest)
        a = world.explored[t] if world.explore[t] else best
        greedy[t], arms[t] = best, a
        _direction(model, a, x, mask, places.scored + a * (dimension + 1), shape.rows, f, k, largest)
        q = _dot(k, x)
        _seen(largest, 3, q, 2 * f)
        if q < -slack:
            largest[3] = np.inf
        exact = _cut(q, mask[places.q + a], f) + (np.int64(1) << np.int64(f))
        rough = _cut(q, mask[places.rough + a], 2 * f - low)
        raw = quadratic * rough * rough + ((linear * rough) << np.int64(low)) + (constant << np.int64(2 * low))
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
        at = places.model + a * model.shape[1]
        for e in range(triangle):
            raw = (model[a, e] << np.int64(f)) - k[shape.left[e]] * gain[shape.right[e]]
            if shape.left[e] == shape.right[e]:
                raw += lift
            _seen(largest, 8, raw, 2 * f)
            model[a, e] = _cut(raw, mask[at + e], f)
        for j in range(dimension):
            raw = (model[a, triangle + j] << np.int64(f)) + error * gain[j]
            _seen(largest, 9, raw, 2 * f)
            model[a, triangle + j] = _cut(raw, mask[at + triangle + j], f)


@loops
def _batches(
    world: World, masks: Words, numbers: Numbers, places: Places, shape: Shape, root: NDArray[np.float64], batch: int,
    model: Wholes, arms: Wholes, greedy: Wholes, largest: NDArray[np.float64],
) -> None:  # fmt: skip
    """Run some passes of `batch` steps each, with one model, which then learns from all of them at once."""
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
            best = _choose(world, t, mask, j, numbers, places, shape, root, model, scores, free, largest)
            a = world.explored[t] if world.explore[t] else best
            greedy[t], arms[t] = best, a
            at = places.scored + (j * count + a) * (dimension + 1)
            _direction(model, a, world.features[t], mask, at, shape.rows, f, k[j], largest)
            errors[j] = _reward(world.units[t, a], f) - scores[a]
        for i in range(batch):
            for j in range(batch):
                s[i, j] = 0
                if arms[first + i] == arms[first + j]:
                    raw = _dot(world.features[first + i], k[j])
                    _seen(largest, 3, raw, 2 * f)
                    if i == j and raw < -slack:
                        largest[3] = np.inf
                    s[i, j] = _cut(raw, mask[places.q + (i * batch + j) * count + arms[first + j]], f)
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
