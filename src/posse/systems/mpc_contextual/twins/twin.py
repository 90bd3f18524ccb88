"""The fixed-point twin: the same bandit on plain integers, on the same coins and the same rounding.

A truncation on shares is floor + carry, where the carry depends on the low bits of a dealt mask. A
twin that knows the masks (it knows all seeds of a simulation) rounds alike, and so pulls the same
arms and ends with the same model, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from posse.core.errors import DataError
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import START, first_guess, line_bits, lines, start_bits
from posse.systems.mpc_contextual.coins import (
    Coins,
    DealerCoins,
    PartyCoins,
    common_key,
    part_of,
    together,
)
from posse.systems.mpc_contextual.program import Layout, root_table
from posse.systems.mpc_contextual.roles.dealer import DealerKeys
from posse.systems.mpc_contextual.terms import DEALER, Terms, check_ranges
from posse.systems.mpc_contextual.twins.kernels import (
    Numbers,
    Places,
    Shape,
    Wholes,
    World,
    in_batches,
    one_by_one,
    overlapped,
)

_CHUNK, _COINS = 128, 1024
"""Steps whose masks, and whose coins, are made at a time."""


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

    def __init__(
        self,
        terms: Terms,
        plan: Plan,
        features: Words,
        units: Wholes,
        coins: Coins,
        seed: int,
        start: Words | None = None,
    ) -> None:
        """Prepare: `units` (steps, arms) are the rewards in units of 2^-24; parties' tapes follow
        from the seed.

        `start` is the model that the run starts from, the sum of all shares.
        """
        layout = Layout(terms.dimension)
        self._terms, self._plan, self._bounds = terms, plan, check_ranges(terms)
        self._keys = list(DealerKeys(terms, seeded(seed, DEALER)).tapes.values())
        self._world = _world(features, units, coins)
        self._fixed = (
            _numbers(terms),
            _places(terms, plan),
            Shape(layout.rows, layout.left, layout.right),
            root_table(terms) if terms.bonus else np.zeros(1),
        )
        self._passes = 0
        self.model = (layout.start(terms.arms, terms.bits) if start is None else start.copy()).view(
            np.int64
        )
        self.arms, self.greedy = np.zeros(terms.steps, np.int64), np.zeros(terms.steps, np.int64)
        self.largest = np.zeros(len(self._bounds))

    @property
    def time(self) -> int:
        """Steps whose arms are chosen."""
        return min(self._passes, self._terms.choices) * self._terms.batch

    def advance(self, steps: int) -> None:
        """Make so many steps more, up to the end of a batch; raises where an intermediate leaves
        its declared range.

        About 50 microseconds a step with 10 arms and 20 features, most of it for the masks.
        """
        batch = self._terms.batch
        end, chunk = (
            min(self._passes - (-steps // batch), self._terms.choices),
            max(1, _CHUNK // batch),
        )
        end += self._terms.lag if end == self._terms.choices else 0
        while self._passes < end:
            self._run(self._passes, min(self._passes + chunk, end))

    def _run(self, first: int, last: int) -> None:
        batch = self._terms.batch
        masks = np.stack([self._plan.free(self._keys, number) for number in range(first, last)])
        steps = slice(first * batch, last * batch)
        met, out = (
            World._make(part[steps] for part in self._world),
            (self.model, self.arms[steps], self.greedy[steps], self.largest),
        )
        if self._terms.overlap:
            overlapped(
                first,
                self._world,
                masks,
                *self._fixed,
                self.model,
                self.arms,
                self.greedy,
                self.largest,
            )
        elif batch == 1:
            one_by_one(met, masks, *self._fixed, *out)
        else:
            in_batches(met, masks, *self._fixed, batch, *out)
        self._passes = last
        for bound, size in zip(self._bounds, self.largest, strict=True):
            if size > bound.largest:
                raise DataError(
                    f"{bound.name} reached {size:g} by step {steps.stop}, and must stay within "
                    f"{bound.largest:g} "
                    f"({bound.why}). Check that contexts have norm at most 1; with few bits take "
                    "fewer steps."
                )

    @property
    def outcome(self) -> FixedRun:
        """What came out so far."""
        done, arms = self.time, self.arms[: self.time]
        largest = {
            bound.name: float(size) for bound, size in zip(self._bounds, self.largest, strict=True)
        }
        return FixedRun(
            arms, self.greedy[:done], self._world.units[np.arange(done), arms], self.model, largest
        )


def run_fixed(
    terms: Terms,
    plan: Plan,
    features: Words,
    units: Wholes,
    coins: Coins,
    seed: int,
    start: Words | None = None,
) -> FixedRun:
    """Run the twin to the end; the arguments are those of `FixedTwin`."""
    twin = FixedTwin(terms, plan, features, units, coins, seed, start)
    twin.advance(terms.steps)
    return twin.outcome


def coins_of(terms: Terms, seed: int) -> Coins:
    """Return the coins of a simulated run, which nobody in it knows."""
    dealer = DealerCoins(terms, DealerKeys(terms, seeded(seed, DEALER)).coins)
    parties = PartyCoins(
        terms,
        common_key(terms, {name: part_of(seeded(seed, name), terms) for name in terms.parties}),
    )
    parts = []
    for first in range(
        0, terms.steps, _COINS
    ):  # tables of coins are larger than what is read of them
        count = min(_COINS, terms.steps - first)
        parts.append(together(dealer.at(first, count), parties.at(first, count)))
    explore, arms, ties = (
        np.concatenate(some) for some in zip(*(part[:3] for part in parts), strict=True)
    )
    normals = [part.normals for part in parts if part.normals is not None]
    return Coins(explore, arms, ties, np.concatenate(normals) if normals else None)


def seeded(seed: int, name: str) -> Secrets:
    """Return the secrets of a role in a simulation: they follow from the seed and protect
    nothing.
    """
    return Secrets(sha256(f"posse simulation {seed} {name}".encode()).digest())


def _world(features: Words, units: Wholes, coins: Coins) -> World:
    normals = np.ones(coins.ties.shape) if coins.normals is None else coins.normals
    return World(
        np.ascontiguousarray(features.view(np.int64)),
        np.ascontiguousarray(units),
        coins.explore,
        coins.arms,
        np.ascontiguousarray(coins.ties),
        np.ascontiguousarray(normals),
    )


def _numbers(terms: Terms) -> Numbers:
    low, bonus = start_bits(terms.bits), bool(terms.bonus)
    if terms.overlap:
        newton, guess = 0, np.concatenate(lines(terms.bits)).tolist()
        low = 2 * terms.bits - line_bits(terms.bits)[0]
    elif terms.batch == 1:
        newton, guess = terms.newton, [round(one * 2 ** (31 - low)) for one in START]
    else:
        constant, slope, newton = first_guess(terms.batch)
        guess = [constant, slope]
    spare = terms.spare_bits if bonus else 0
    cut = sum(line_bits(terms.bits)) - terms.bits
    return Numbers(
        terms.bits,
        terms.early,
        terms.overlap or terms.frozen,
        terms.frozen,
        terms.tie_bits,
        spare,
        bonus,
        newton,
        low,
        cut,
        np.array(guess, np.int64),
    )


def _places(terms: Terms, plan: Plan) -> Places:
    at = {label: place for label, (place, _) in plan.truncations.items()}
    one, learnt = terms.batch == 1, at.get("learnt score and direction", 0)
    if terms.frozen:
        scored, bonus = at.get("scores and directions", 0), at.get("bonus", 0)
        return Places(scored, bonus, 0, 0, 0, np.zeros((0, 2), np.int64), 0, 0, 0)
    names = ("error", "inverse") if one else ("residual", "better")
    newton = [[at[f"{name} {i}"] for name in names] for i in range(1, _numbers(terms).newton + 1)]
    return Places(
        at.get("scores and directions", 0),
        at.get("bonus", 0),
        at["q" if one else "coupling"],
        at.get("rough q", 0),
        at["reciprocal" if terms.overlap else "guess" if one else "first inverse"],
        np.array(newton, np.int64).reshape(-1, 2),
        at["gain"],
        at["model"],
        learnt,
    )
