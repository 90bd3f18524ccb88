"""A whole run in one process: all roles, and a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np

from posse.core.roles import Ask, Message, Role
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.fixed import Words
from posse.protocols.mpc_contextual.coins import Coins, DealerCoins, PartyCoins, together
from posse.protocols.mpc_contextual.dealer import DealerKeys, DealerRole
from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.messages import Act, Acted, Earn, Earned
from posse.protocols.mpc_contextual.party import Party, common_key, part_of
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.puller import Puller
from posse.protocols.mpc_contextual.terms import DEALER, Terms

_CHUNK = 1024

Pay = Callable[[int, int], int]
"""Reward of a step and arm, in units of 2^-24."""


def seeded(seed: int, name: str) -> Secrets:
    """Return the secrets of a role in a simulation: they follow from the seed and protect nothing."""
    return Secrets(sha256(f"posse simulation {seed} {name}".encode()).digest())


def federation(terms: Terms, features: Words, seed: int | None = None, *, checkpoint_every: int = 0) -> list[Role]:
    """Make all roles; `features` are everybody's, a row a step, in fixed point."""
    made = plan(terms)

    def secrets(name: str) -> Secrets:
        return Secrets.fresh() if seed is None else seeded(seed, name)

    roles: list[Role] = []
    at = 0
    for party, size in zip(terms.parties, terms.features, strict=True):
        block = features[:, at : at + size]
        roles.append(Party(party, terms, made, block, secrets(party), checkpoint_every=checkpoint_every))
        at += size
    return [*roles, Puller(terms), Payee(terms), DealerRole(terms, made, secrets(DEALER))]


def coins_of(terms: Terms, seed: int) -> Coins:
    """Return the coins of a simulated run, which nobody in it knows."""
    dealer = DealerCoins(terms, DealerKeys(terms, seeded(seed, DEALER)).coins)
    parties = PartyCoins(terms, common_key(terms, {name: part_of(seeded(seed, name), terms) for name in terms.parties}))
    parts = []
    for first in range(0, terms.steps, _CHUNK):  # tables of coins are larger than what is read of them
        count = min(_CHUNK, terms.steps - first)
        parts.append(together(dealer.at(first, count), parties.at(first, count)))
    explore, arms, ties = (np.concatenate(some) for some in zip(*(part[:3] for part in parts), strict=True))
    normals = [part.normals for part in parts if part.normals is not None]
    return Coins(explore, arms, ties, np.concatenate(normals) if normals else None)


class SimulatedWorld:
    """Pays what the arm of a step earns; it is the only one that sees both."""

    def __init__(self, pay: Pay) -> None:
        self._pay = pay
        self._pulled: dict[int, int] = {}

    def __call__(self, ask: Ask) -> Message:
        """Answer the puller or the payee."""
        if isinstance(ask, Act):
            self._pulled[ask.step] = ask.arm
            return Acted(ask.step)
        assert isinstance(ask, Earn)
        return Earned(ask.step, self._pay(ask.step, self._pulled.pop(ask.step)))
