"""The dealer of level `strict`: it hands the two servers randomness ahead of time, and sees no
score and no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.roles import Action
from posse.core.snapshots import pack
from posse.privacy.crypto.frames import Frames
from posse.privacy.crypto.keys import Identity, Secrets, hkdf, seal_to
from posse.privacy.sharing.shuffle import Dealer as Shuffle
from posse.systems.samba.messages import Go
from posse.systems.samba.setup import COMP, CONTROLLER, DEALER, Expected, ParticipantSaved, Peer
from posse.systems.samba.strict.messages import Dealing, Dealt, DealtPairs, Seeds, Want

AHEAD = 16
"""Chunks of comparisons that may be asked for at once, beside those that are used; of passes
two.
"""


class DealerSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the dealer: how far it has dealt."""

    passes: int
    pairs: int


def frames_for_comp(seed: bytes, digest: bytes) -> Frames:
    """Frames in which the dealer's chunks go to comp: under a key from comp's seed."""
    return Frames(hkdf(seed, b"posse strict dealt to comp"), digest, b"dealt", 1)


@dataclass(frozen=True)
class DealerSecrets:
    """What the dealer holds and hides: the seeds of the two servers, from which all else follows."""

    controller: bytes
    comp: bytes


class Dealer(Peer):
    """Makes a seed for each server and deals chunks as the controller asks; each chunk once, in
    order.

    It learns the pace of the run, the number of owners and passes, and how many comparisons they
    took.
    """

    def __init__(
        self,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(DEALER, "dealer", identity, customer, expected, secrets=secrets)
        self._shuffle: Shuffle | None = None
        self._frames: Frames | None = None
        self._passes = self._pairs = -1
        self._handlers |= {Go: self._on_go, Want: self._on_want}

    def _on_go(self, message: Go) -> Sequence[Action]:
        self.go(message)
        seeds = self._enter()
        sealed = []
        for name, seed in zip((CONTROLLER, COMP), seeds, strict=True):
            body = seal_to(self.manifest.member(name).run_key, seed, self.info("seed", name))
            sealed.append(Seeds(body, self._identity.sign(b"seed", self.info("seed", name) + body)))
        return self.to_controller(Dealing(*sealed))

    def _seeds(self) -> list[bytes]:
        return [
            self._secrets.key(b"samba strict seed", context=self._context() + name.encode())
            for name in (CONTROLLER, COMP)
        ]

    def _enter(self) -> tuple[bytes, bytes]:
        """Make both seeds, and what deals from them."""
        first, second = self._seeds()
        self._shuffle = Shuffle(len(self.manifest.owners), first, second)
        self._frames = frames_for_comp(second, self._digest)
        return first, second

    def reveal(self) -> DealerSecrets:
        """Return both seeds."""
        return DealerSecrets(*self._seeds())

    def _on_want(self, message: Want) -> Sequence[Action]:
        """Deal what was asked for and not dealt."""
        shuffle, frames = self._shuffle, self._frames
        if shuffle is None or frames is None:
            raise ProtocolError("nothing is dealt before the start.")
        if not (
            self._passes <= message.passes <= self._passes + 2 and self._pairs <= message.pairs
        ):
            raise ProtocolError(
                f"chunks up to {message.passes} and {message.pairs} do not follow those that were "
                "dealt."
            )
        if message.pairs > self._pairs + AHEAD * (1 + len(self.manifest.owners) // 100):
            raise ProtocolError(
                f"{message.pairs - self._pairs} chunks of comparisons are more than a pass can "
                "need."
            )
        actions: list[Action] = []
        for chunk in range(self._passes + 1, message.passes + 1):
            first, second = shuffle.passes(chunk)
            actions.append((self.name, CONTROLLER, Dealt(chunk, first, frames.seal(chunk, second))))
        pairs = range(self._pairs + 1, message.pairs + 1)
        actions += (
            (self.name, CONTROLLER, DealtPairs(chunk, shuffle.pairs(chunk))) for chunk in pairs
        )
        self._passes, self._pairs = message.passes, message.pairs
        return actions

    def state(self) -> dict[str, object]:
        """What the dealer's operator may see: how much was dealt."""
        return {**self.progress(0), "chunks": self._passes + 1, "comparisons": self._pairs + 1}

    def save(self) -> dict[str, Any]:
        """Return the whole state; the seeds derive from the secrets."""
        return pack(DealerSaved(**self._saved(), passes=self._passes, pairs=self._pairs))

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, DealerSaved)
        if self._going:
            self._enter()
        elif read.passes >= 0 or read.pairs >= 0:
            raise ProtocolError("it dealt before the start.")
        self._passes, self._pairs = read.passes, read.pairs
