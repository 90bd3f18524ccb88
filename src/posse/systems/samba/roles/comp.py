"""Comp: it opens masked scores in permuted order and says which one wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.random import ORDER, SELECT, shuffle
from posse.core.roles import Action
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.frames import ClearFrames, Frames
from posse.privacy.crypto.keys import Identity, Secrets
from posse.systems.samba.kernels import select_argmax, select_match
from posse.systems.samba.messages import Batch, Choice, Explore, Go, Keys
from posse.systems.samba.roles.draws import Draws
from posse.systems.samba.roles.lanes import frame_bytes
from posse.systems.samba.roles.owner import paper_frames
from posse.systems.samba.setup import COMP, Expected, ParticipantSaved, Peer


class CompSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of comp: the frame key, and the set of frames it answered last, from which it makes the
    answer again.
    """

    k_frame: bytes
    index: Count
    answered: Batch | Explore | None


@dataclass(frozen=True)
class CompSecrets:
    """What comp holds and hides."""

    frames: Frames | ClearFrames | None
    """They open the scores; none before it has its key."""
    answered: Batch | Explore | None
    """The set of frames that it answered last."""


class Comp(Peer):
    """Answers one set of frames a pass: the same set again gets the same answer, any other is
    refused.

    (A controller that could ask twice, with one frame exchanged, would learn who was chosen.)
    """

    def __init__(
        self,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        world_seed: int | None,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(COMP, "comp", identity, customer, expected, secrets=secrets)
        self._passes = expected.policy.passes()
        self._world_seed = world_seed
        self._draws: Draws | None = None
        self._k_frame = b""
        self._frames: Frames | ClearFrames | None = None
        self._replies: Frames | ClearFrames = ClearFrames()
        self._owners = 0
        self._index = 0
        self._answered: tuple[Batch | Explore, Choice] | None = None
        self._handlers |= {
            Go: self._on_go,
            Keys: self._on_keys,
            Batch: self._on_batch,
            Explore: self._on_batch,
        }

    def _on_go(self, message: Go) -> Sequence[Action]:
        self.go(message)
        self._enter()
        return ()

    def _enter(self) -> None:
        """Stand before the first pass."""
        # Comp's own draws: a function of the world seed in a simulation, so that the twin can
        # follow.
        key = self._secrets.key(b"samba comp draws", context=self._context())
        self._draws = Draws(SELECT, self._world_seed, key)
        self._owners = len(self.manifest.owners)
        self._index = self._expected.start(self.manifest)

    def _on_keys(self, message: Keys) -> Sequence[Action]:
        if not self._going or self._frames is not None:
            raise ProtocolError("keys come once, after the start.")
        k_frame, _ = self.open_keys(message)
        self._open_frames(k_frame)
        return ()

    def _open_frames(self, k_frame: bytes) -> None:
        self._k_frame = k_frame
        self._frames, self._replies = paper_frames(
            k_frame, self._digest, self.manifest.terms.off, self._owners
        )

    def _on_batch(self, message: Batch | Explore) -> Sequence[Action]:
        if self._answered is not None and message.index == self._answered[0].index:
            if message != self._answered[0]:
                raise ProtocolError(
                    f"pass {message.index} is answered; another set of frames for it is refused."
                )
            return self.to_controller(self._answered[1])
        if self._frames is None or message.index != self._index:
            raise ProtocolError(
                f"expected the frames of pass {self._index}, got those of {message.index}."
            )
        choice = self._choice(message)
        self._answered = (message, choice)
        self._index += 1
        return self.to_controller(choice)

    def _choice(self, message: Batch | Explore) -> Choice:
        """Answer a set: a function of the set, but for nonces."""
        chosen = self._chosen(message)
        seal = self._replies.seal
        bits = [b"\x01" if i == chosen else b"\x00" for i in range(self._owners)]
        return Choice(message.index, b"".join([seal(message.index, bit) for bit in bits]))

    def _chosen(self, message: Batch | Explore) -> int:
        """Return comp's selection, on the masked floats in permuted order.

        In a simulation ties and draws follow the owners' order, which the world seed gives away:
        there no protection changes a result.
        """
        assert self._draws is not None
        u = self._draws.at(message.index)
        order = np.arange(self._owners)
        if self._world_seed is not None and "permutation" not in self.manifest.terms.off:
            shuffle(np.uint64(self._world_seed), ORDER, message.index, order)
        if isinstance(message, Explore):
            return int(np.argsort(order)[int(u * self._owners)])
        values = np.empty(self._owners)
        values[order] = np.frombuffer(self._opened(message), "<f8")
        selection = self._passes[message.index % len(self._passes)]
        select = select_match if selection.kind == "match" else select_argmax
        chosen = int((selection.choose or select)(values, u))
        return int(np.argsort(order)[chosen])

    def _opened(self, message: Batch) -> bytes:
        """Open exactly K frames of the right size, end to end."""
        expected = self._owners * frame_bytes(self.manifest.terms.off)
        if len(message.frames) != expected:
            raise ProtocolError(f"expected {expected} bytes of frames, got {len(message.frames)}.")
        assert self._frames is not None
        return b"".join(self._frames.open_all(message.index, message.frames, self._owners))

    def state(self) -> dict[str, object]:
        """What comp's operator may see: how far the run is."""
        return self.progress(self._index)

    def reveal(self) -> CompSecrets:
        """Return what opens the scores, and what it opened last."""
        return CompSecrets(self._frames, self._last_answered)

    @property
    def _last_answered(self) -> Batch | Explore | None:
        return None if self._answered is None else self._answered[0]

    def save(self) -> dict[str, Any]:
        """Return the whole state; it holds the frame key."""
        return pack(
            CompSaved(
                **self._saved(),
                k_frame=self._k_frame,
                index=self._index,
                answered=self._last_answered,
            )
        )

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, CompSaved)
        if self._going:
            self._enter()
        if read.k_frame:
            if not self._going or len(read.k_frame) != 32:
                raise ProtocolError("its frame key is early, or has the wrong length.")
            self._open_frames(read.k_frame)
        if read.index < self._index or (
            read.answered is not None and read.answered.index != read.index - 1
        ):
            raise ProtocolError("it stands outside the run.")
        self._index = read.index
        if read.answered is not None:
            self._answered = (read.answered, self._choice(read.answered))
