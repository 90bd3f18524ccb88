"""The dealer: it hands out correlated randomness ahead of time and sees no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.roles import Action, Message
from posse.core.snapshots import VERSION, Snapshot, pack, unpack
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.dealing import Dealer, Plan
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.tape import Shape
from posse.privacy.sharing.values import Shared
from posse.systems.mpc_contextual.coins import DealerCoins
from posse.systems.mpc_contextual.program import Deals, Layout, blind, input_masks
from posse.systems.mpc_contextual.roles.messages import AHEAD, Dealt, Ending, Over, Seed, Want
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms


class DealerSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far each party has been dealt to."""

    dealt: dict[str, int]
    end: int | None = None


class DealerKeys:
    """The seeds that the dealer hands out, and its own: all from its root, different for other
    terms.
    """

    def __init__(self, terms: Terms, secrets: Secrets) -> None:
        digest = terms.digest()

        def key(purpose: bytes, name: str) -> bytes:
            return secrets.key(purpose, context=digest + name.encode())

        self.tapes = {party: key(b"mpc tape", party) for party in terms.parties}
        self.inputs = {name: key(b"mpc input", name) for name in (*terms.parties, PULLER, PAYEE)}
        self.coins = key(b"mpc coins", DEALER)


@dataclass(frozen=True)
class DealerSecrets:
    """What the dealer holds and hides: all that it deals follows from it."""

    keys: DealerKeys
    coins: DealerCoins


class DealerRole(Ending):
    """Sends every role its seed, and every party its corrections as it asks for them; each chunk
    once.
    """

    kind = name = DEALER

    def __init__(
        self,
        terms: Terms,
        plan: Plan,
        secrets: Secrets,
        *,
        coins: type[DealerCoins] = DealerCoins,
    ) -> None:
        self.terms, self._plan, self._digest = terms, plan, terms.digest()
        self._keys = DealerKeys(terms, secrets)
        self._coins = coins(terms, self._keys.coins)
        self._dealer = dealer_of(terms, plan, self._keys.tapes, self._keys.inputs, self._coins)
        self._dealt = dict.fromkeys(terms.parties, -1)

    @property
    def _chunks(self) -> int:
        return -(-self.passes // self._plan.passes)

    @property
    def finished(self) -> bool:
        """Whether every party has been dealt to the end."""
        return all(chunk >= self._chunks - 1 for chunk in self._dealt.values())

    def start(self) -> Sequence[Action]:
        """Send the seeds."""
        keys = self._keys
        return [
            (self.name, name, Seed(self._digest, keys.tapes.get(name, b""), inputs))
            for name, inputs in keys.inputs.items()
        ]

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Deal a party the chunks it asks for, of those that are its turn; or take its word that
        the run ends.
        """
        if isinstance(message, Over):
            self.ends(sender, message, 0, self.terms.choices)
            return ()
        if not isinstance(message, Want) or sender not in self._dealt:
            raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")
        dealt = self._dealt[sender]
        if not dealt < message.chunk <= dealt + AHEAD + 1:
            raise ProtocolError(
                f"'{sender}' wants chunks up to {message.chunk} and has been dealt up to {dealt}."
            )
        actions: list[Action] = [
            (self.name, sender, Dealt(chunk, self._dealer.deal(chunk)))
            for chunk in range(dealt + 1, min(message.chunk, self._chunks - 1) + 1)
            if self._dealer.receiver(chunk) == sender
        ]
        self._dealt[sender] = message.chunk
        return actions

    def state(self) -> dict[str, object]:
        """Return how far it has dealt."""
        dealt = min(self._dealt.values()) + 1
        return {
            "step": min(self.terms.steps, dealt * self._plan.passes * self.terms.batch),
            "horizon": self.terms.steps,
            "unit": "step",
        }

    def reveal(self) -> DealerSecrets:
        """Return the seeds that it hands out, and its coins."""
        return DealerSecrets(self._keys, self._coins)

    def save(self) -> dict[str, Any]:
        """Return the state."""
        dealt = {party: chunk + 1 for party, chunk in self._dealt.items()}
        return pack(
            DealerSaved(
                version=VERSION,
                kind=self.kind,
                name=self.name,
                run=self._digest,
                dealt=dealt,
                end=self.end,
            )
        )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned."""
        state = unpack(saved, DealerSaved, kind=self.kind, name=self.name, run=self._digest)
        self.end = state.end
        self._dealt = {party: state.dealt[party] - 1 for party in self.terms.parties}


def dealer_of(
    terms: Terms,
    plan_: Plan,
    tapes: Mapping[str, bytes],
    inputs: Mapping[str, bytes],
    coins: DealerCoins,
) -> Dealer:
    """Make the dealer: `tapes` are the parties' seeds, `inputs` the seeds of everyone who brings
    inputs.
    """
    layout = Layout(terms.dimension)

    def program(s: Session, first: int) -> Rounds[Shared]:
        count = s.lead[0]

        def masks(owner: str, shape: Shape) -> Words:
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            drawn = np.stack([input_masks(inputs[owner], first + i, size) for i in range(count)])
            return drawn.reshape(count, *shape)

        drawn = coins.at(first * terms.batch, count * terms.batch).batched(terms.batch)
        return blind(s, terms, layout, Deals(drawn, masks))

    return Dealer(program, plan_, tapes)
