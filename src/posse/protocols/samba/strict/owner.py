"""The data owner of level `strict`: one word a pass, its score less a pad that comp knows."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posse.core.roles import Action
from posse.policies.arms.base import Policy
from posse.privacy.crypto.keys import Identity, Secrets, seal_to
from posse.privacy.crypto.pairwise import present_digest
from posse.protocols.samba.draws import CommonDraws, OwnSeeds
from posse.protocols.samba.lanes import AnyLane, Arm, BlockLane
from posse.protocols.samba.messages import Go, Sum
from posse.protocols.samba.owner import Owner
from posse.protocols.samba.setup import COMP, Expected
from posse.protocols.samba.strict import sums
from posse.protocols.samba.strict.comp import pads
from posse.protocols.samba.strict.messages import Keyring, Stream

_ONE = np.uint64(1)


class StrictLane(BlockLane):
    """Level `strict`: x less a pad modulo 2^64; the reply is another pad, or that pad with its lowest bit flipped.

    Pads are two words a pass of an AES-256-CTR stream that this owner and comp know, of this run and start alone.
    """

    __slots__ = ("_pads",)

    def __init__(self, arm: Arm, policy: Policy, stream: bytes, coins: CommonDraws, seeds: OwnSeeds) -> None:
        super().__init__(arm, policy, coins, seeds)
        self._pads = pads(stream)

    def compose(self, index: int) -> bytes:
        """Return the frame of a pass."""
        if self._at == len(self._plain):
            self._block(index)
        return self._plain[self._at]

    def pass_by(self, index: int, reply: bytes) -> bytes | None:
        """Return the next pass's frame if the reply to pass `index` says no and the block goes on, else None."""
        at = self._at
        if reply == self._no[at]:
            at += 1
            if at < len(self._plain):
                self._at = at
                return self._plain[at]
        return None

    def _dress(self, index: int, numbers: NDArray[np.int64]) -> None:
        drawn = self._pads.rows(index, len(numbers))
        count = len(drawn)
        each, replies = "8s" * count, drawn[:, 1]
        self._plain = struct.unpack(each, (numbers[:count].view(np.uint64) - drawn[:, 0]).tobytes())
        self._no, self._yes = struct.unpack(each, replies.tobytes()), struct.unpack(each, (replies ^ _ONE).tobytes())


class StrictOwner(Owner):
    """One arm. `epoch` tells starts with the same secrets apart.

    In a deployment it stays 0: secrets derive from a nonce that is drawn and synced with the journal. A journal begun
    anew has other pads, and one that goes on repeats the frames it sent, byte for byte.
    """

    def __init__(
        self, name: str, identity: Identity, customer: bytes, expected: Expected, world_seed: int | None,
        *, secrets: Secrets | None = None, epoch: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(name, identity, customer, expected, world_seed, secrets=secrets)
        self._epoch = epoch

    def _on_go(self, message: Go) -> Sequence[Action]:
        """Send comp the key of this owner's pads; the first owner also draws the owners' common keys."""
        self.go(message)
        self._enter()
        info = self.info("stream", self.name)
        sealed = seal_to(self.manifest.member(COMP).run_key, self._stream(), info)
        actions = list(self.to_controller(Stream(sealed, self._identity.sign(b"stream", info + sealed))))
        if self._is_first:
            actions += self.to_controller(Keyring(self.make_keyring()))
        return actions

    def _stream(self) -> bytes:
        """Return the stream key of this run and start, and the number of the start."""
        epoch = self._epoch.to_bytes(8, "big")
        return self._secrets.key(b"samba strict stream", context=self._context() + epoch) + epoch

    def _make_lane(self, k_frame: bytes, s_own: bytes, coins: CommonDraws, seeds: OwnSeeds) -> AnyLane:
        return StrictLane(self._arm, self._policy, self._stream(), coins, seeds)

    def _sum(self, present: tuple[str, ...]) -> Sequence[Action]:
        """Send the controller's share of the sum, of the pull count if nobody is left out, and of their tag."""
        assert self._keys is not None
        share = sums.share(
            self._arm.units, self._counted(present), key=self._keys[0], stream=self._stream(),
            present=present_digest(present, self._digest), owner=self.name,
        )  # fmt: skip
        return self.to_controller(Sum(share))
