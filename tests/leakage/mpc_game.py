"""A small federation of `mpc_contextual`: who takes part, what they hold, one run of it, and the
same in plain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core.fixed import REWARD_ONE
from posse.core.roles import Entry, Message
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.runtime.memory import MemoryRun
from posse.systems.mpc_contextual.coins import (
    Coins,
    DealerCoins,
    Dealt,
    PartyCoins,
    common_key,
    part_of,
    together,
)
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.program import Layout
from posse.systems.mpc_contextual.roles.dealer import DealerKeys, DealerRole, dealer_of
from posse.systems.mpc_contextual.roles.party import Party
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, WIDTH_BITS, Terms
from posse.systems.mpc_contextual.twins.twin import seeded

SEED = 7
Floats = NDArray[np.float64]


def terms_of(
    parties: int,
    arms: int,
    steps: int,
    *,
    explore: tuple[int, int] = (1, 4),
    each: int = 2,
    batch: int = 1,
    bonus: str = "",
    overlap: bool = False,
) -> Terms:
    """Return terms for parties that hold `each` features."""
    names = tuple(f"party-{number}" for number in range(1, parties + 1))
    return Terms(
        "views",
        names,
        (each,) * parties,
        arms,
        steps,
        explore,
        batch=batch,
        bonus=bonus,
        overlap=overlap,
    )


@dataclass(frozen=True)
class Data:
    """What a run is about."""

    contexts: Floats
    """(steps, features), each row within norm 1"""
    rewards: NDArray[np.int64]
    """(steps, arms), in units of 2^-24"""

    def words(self, terms: Terms) -> Words:
        """Return the contexts in fixed point."""
        return FixedPoint(terms.bits, 1.0).encode(self.contexts)

    def pay(self, step: int, arm: int) -> int:
        """Return the reward of an arm."""
        return int(self.rewards[step, arm])


def drawn(terms: Terms, seed: int) -> Data:
    """Draw data; every party's block has norm at most 1 / sqrt(parties), so that blocks can be
    exchanged.
    """
    rng = np.random.default_rng(seed)
    blocks = rng.normal(size=(terms.steps, len(terms.parties), terms.features[0]))
    blocks *= rng.uniform(0.5, 1, (*blocks.shape[:2], 1)) / np.linalg.norm(
        blocks, axis=-1, keepdims=True
    )
    blocks /= np.sqrt(len(terms.parties))
    rewards = rng.integers(0, REWARD_ONE + 1, (terms.steps, terms.arms))
    return Data(blocks.reshape(terms.steps, -1), rewards)


def block_of(terms: Terms, party: str) -> slice:
    """Return where a party's features lie."""
    at = terms.parties.index(party)
    return slice(sum(terms.features[:at]), sum(terms.features[: at + 1]))


def dealer_keys(terms: Terms, seed: int = SEED) -> DealerKeys:
    """Return the dealer's seeds in a run."""
    return DealerKeys(terms, seeded(seed, DEALER))


def parts_of(terms: Terms, seed: int = SEED) -> dict[str, bytes]:
    """Return the parts of the parties' common key in a run."""
    return {party: part_of(seeded(seed, party), terms) for party in terms.parties}


def turns_of(
    terms: Terms, seed: int = SEED, parts: Mapping[str, bytes] | None = None
) -> NDArray[np.int64]:
    """Return where the parties read the coins in a run: known to all parties."""
    key = common_key(terms, parts_of(terms, seed) if parts is None else parts)
    return PartyCoins(terms, key).at(0, terms.passes * terms.batch)


def coins_from(terms: Terms, key: bytes) -> Dealt:
    """Return what the dealer draws with a key of coins."""
    return DealerCoins(terms, key).at(0, terms.passes * terms.batch)


class Played:
    """One run in memory, to its end."""

    def __init__(
        self,
        terms: Terms,
        data: Data,
        seed: int = SEED,
        coins: bytes | None = None,
        parts: Mapping[str, bytes] | None = None,
    ) -> None:
        """Run it; everything follows from the seed but `coins` and `parts`.

        `coins` is another key of the dealer's coins, `parts` are other parts of the parties' common
        key.
        """
        keys = dealer_keys(terms, seed)
        self.terms, self.data, self.seed, self.parts = terms, data, seed, parts
        self.coins_key = keys.coins if coins is None else coins
        roles = federation(terms, data.words(terms), seed)
        if coins is not None:
            dealer = roles[-1]
            assert isinstance(dealer, DealerRole)
            dealer._dealer = dealer_of(
                terms, dealer._plan, keys.tapes, keys.inputs, DealerCoins(terms, coins)
            )
        for role in roles if parts is not None else ():
            if isinstance(role, Party):
                role._part = parts[role.name]
                role._parts = {role.name: role._part}
        self.run = MemoryRun(roles, SimulatedWorld(data.pay), transcript=1 << 20)
        self.run.finish()
        assert all(role.finished for role in roles)

    @property
    def coins(self) -> Coins:
        """What the coins came to, which nobody in the run knows."""
        return together(
            coins_from(self.terms, self.coins_key), turns_of(self.terms, self.seed, self.parts)
        )

    @property
    def arms(self) -> list[int]:
        """The arms pulled."""
        return [int(arm) for arm in self.run.roles[PULLER].arms]  # type: ignore[attr-defined]

    @property
    def rewards(self) -> list[int]:
        """The rewards, in units of 2^-24."""
        return [int(units) for units in self.run.roles[PAYEE].rewards]  # type: ignore[attr-defined]

    @property
    def shares(self) -> dict[str, Words]:
        """Every party's share of the model."""
        found = {name: self.run.roles[name] for name in self.terms.parties}
        return {name: role.model for name, role in found.items() if isinstance(role, Party)}

    @property
    def model(self) -> Words:
        """The model, which nobody in the run knows."""
        total: Words = np.sum(list(self.shares.values()), axis=0, dtype=np.uint64)
        return total

    def heard(self, member: str) -> list[tuple[str, Message]]:
        """Return what a role received, in order."""
        return [(entry.sender, entry.message) for entry in self if entry.receiver == member]

    def view(self, members: Collection[str]) -> list[tuple[int, str, str, bytes]]:
        """Return all that these roles received: when (in messages moved), from whom, who, and the
        very bytes.
        """
        encode = msgspec.msgpack.Encoder().encode
        return [
            (at, sender, to, encode(message))
            for at, sender, to, message, *_ in self
            if to in members
        ]

    def __iter__(self) -> Iterator[Entry]:
        assert self.run.transcript is not None
        assert self.run.transcript.forgotten == 0
        return iter(self.run.transcript)


def check_plain(played: Played, tolerance: float = 1e-5) -> None:
    """Check arms and model against recursive least squares in floating point, on the same coins."""
    terms, coins = played.terms, played.coins
    inverses = np.tile(np.eye(terms.dimension), (terms.arms, 1, 1))
    weights = np.zeros((terms.arms, terms.dimension))
    assert len(played.arms) == terms.steps
    used = before = weights.copy(), inverses.copy()
    for step, (x, arm) in enumerate(zip(played.data.contexts, played.arms, strict=True)):
        if (
            step % terms.batch == 0
        ):  # a batch is chosen for with one model, with overlap with that of the step before
            used, before = (weights.copy(), inverses.copy()), used
        assert arm in _right_arms(terms, coins, step, x, *(before if terms.overlap else used))
        units = played.data.pay(step, arm)
        assert played.rewards[step] == units
        gain = inverses[arm] @ x / (1 + x @ inverses[arm] @ x)
        weights[arm] += gain * (units / REWARD_ONE - weights[arm] @ x)
        inverses[arm] -= np.outer(gain, x @ inverses[arm])
    layout = Layout(terms.dimension)
    plain = np.hstack([inverses[:, layout.left, layout.right], weights])
    np.testing.assert_allclose(decoded(played), plain, rtol=0, atol=tolerance)


def _right_arms(
    terms: Terms, coins: Coins, step: int, x: Floats, weights: Floats, inverses: Floats
) -> set[int]:
    """Return the coin's arm; or the best one, and those that rounding and the table of the bonus
    may take for it.
    """
    if coins.explore[step]:
        return {int(coins.arms[step])}
    scores, slack = weights @ x, 1e-6
    if terms.bonus:
        sizes = np.ones(terms.arms) if coins.normals is None else coins.normals[step]
        scores = (
            scores
            + np.sqrt(np.einsum("i,aij,j->a", x, inverses, x)) * sizes * terms.width / 2**WIDTH_BITS
        )
        slack = 2 * 0.032 * float(np.abs(sizes).max())
    tied = np.where(scores == scores.max(), coins.ties[step], -1)
    near = (scores > scores.max() - slack) & (scores < scores.max())
    return {
        int(tied.argmax()),
        *np.flatnonzero(near).tolist(),
        *(np.flatnonzero(tied >= 0) if terms.bonus else []),
    }


def decoded(played: Played) -> Floats:
    """Return the model as numbers."""
    return played.model.view(np.int64).astype(np.float64) / 2.0**played.terms.bits
