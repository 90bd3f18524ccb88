"""An owner's side of a pass: compose a frame, read the reply. One lane a level."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE, tie_bits
from posse.policies.arms.base import Policy
from posse.privacy.crypto.frames import OVERHEAD, ClearFrames, Frames
from posse.privacy.crypto.masks import FRAME_WORDS, MASK_WORDS, OWN_WORDS, mask_all
from posse.privacy.crypto.streams import Words
from posse.systems.samba.kernels import MATCH, kernels
from posse.systems.samba.roles.draws import CommonDraws, Draws, OwnSeeds
from posse.systems.samba.twin import selections

FRAME_BYTES = 8 * FRAME_WORDS
PAPER_BYTES = 8
SHORTEST_BLOCK, LONGEST_BLOCK = 8, 128


def frame_bytes(level: str, off: Sequence[str]) -> int:
    """Size of an owner's frame: the same for every owner, step and score."""
    if level != "paper":
        return FRAME_BYTES + OVERHEAD
    return PAPER_BYTES + (1 if "aes" in off else OVERHEAD)


def reply_bytes(level: str, off: Sequence[str]) -> int:
    """Size of comp's answer to one owner: a token, or a bit in a frame."""
    if level != "paper":
        return 8
    return 1 + (1 if "aes" in off else OVERHEAD)


@dataclass
class Arm:
    """An owner's variables: number, sum of rewards in units, pulls, and what the policy
    remembers.
    """

    number: int
    owners: int
    units: int = 0
    pulls: int = 0
    memory: float = 0.0

    @property
    def known(self) -> tuple[int, int]:
        """Sum and pulls that a score is made of; without any reward, `SUPPOSED` ones."""
        return (self.units, self.pulls) if self.pulls else SUPPOSED


SUPPOSED = REWARD_ONE, 1
"""Sum and pulls of an arm of which no reward has come: it is taken for a good one, and so tried
again.
"""


class AnyLane(Protocol):
    """What an owner does with a lane."""

    @property
    def memory(self) -> float:
        """What the policy remembers."""

    def resume(self, index: int) -> None:
        """Expect the reply to a frame that was sent before this lane was made."""

    def prepare(self, index: int) -> None:
        """Make the frame of a pass alone, of the arm as it is now."""

    def compose(self, index: int) -> bytes:
        """Return the frame of a pass."""

    def pass_by(self, index: int, reply: bytes) -> bytes | None:
        """Return the next pass's frame if the reply says no and nothing else is to be done, else
        None.
        """

    def read(self, index: int, reply: bytes) -> bool:
        """Return whether this owner is chosen; raise on a reply that is neither yes nor no."""


class BlockLane:
    """An owner's numbers x, made in blocks; what a level makes of them is in its own lane.

    While this owner is not chosen its next scores depend on the step alone, so a whole block of
    numbers is made in one compiled call; being chosen discards the rest of it. A block is a little
    longer than the time between the last two choices, and doubles until the next, within 8 to 128
    passes. Where blocks begin changes no number.
    """

    __slots__ = (
        "_arm",
        "_at",
        "_bits",
        "_coins",
        "_fill",
        "_kinds",
        "_learns",
        "_learnt",
        "_memories",
        "_no",
        "_numbers",
        "_parameters",
        "_passes",
        "_plain",
        "_scales",
        "_seeds",
        "_since",
        "_size",
        "_yes",
    )

    def __init__(self, arm: Arm, policy: Policy, coins: CommonDraws, seeds: OwnSeeds) -> None:
        compiled = kernels(policy)
        self._arm = arm
        self._fill, self._learnt = compiled.numbers, compiled.learnt
        self._learns = policy.learns
        self._kinds, self._scales, _ = selections(policy)
        self._parameters = policy.parameters()
        self._passes = len(self._kinds)
        self._bits = tie_bits(arm.owners)
        self._coins, self._seeds = coins, seeds
        self._numbers = np.zeros(LONGEST_BLOCK, np.int64)
        self._memories = np.zeros(LONGEST_BLOCK)
        self._plain: tuple[bytes, ...] = ()
        self._no: tuple[bytes, ...] = ()
        self._yes: tuple[bytes, ...] = ()
        self._at = 0
        self._size = SHORTEST_BLOCK
        self._since = 0

    @property
    def memory(self) -> float:
        """What the policy remembers before the pass that is open; inside a block the arm's own is
        that of its start.
        """
        return float(self._memories[self._at]) if self._at < len(self._plain) else self._arm.memory

    def resume(self, index: int) -> None:
        """Expect the reply to a frame that was sent before this lane was made."""
        self._block(index)

    def prepare(self, index: int) -> None:
        """Make the frame of a pass alone, of the arm as it is now."""
        self._size = 1
        self._block(index)

    def read(self, index: int, reply: bytes) -> bool:
        """Return whether this owner is chosen in the pass it last composed; raise on a token it
        never sent.
        """
        at = self._at
        if reply == self._no[at]:
            self._at = at + 1
            if self._at == len(self._plain):
                self._remember(index, at, False)
            return False
        if reply != self._yes[at]:
            raise ProtocolError(
                "a reply token is unknown: the reply was altered, and the run must not go on."
            )
        self._remember(index, at, True)
        self._at, self._plain = 0, ()
        self._size = min(max((index - self._since) * 9 // 8, SHORTEST_BLOCK), LONGEST_BLOCK)
        self._since = index
        return True

    def _remember(self, index: int, at: int, chosen: bool) -> None:
        if not self._learns:
            return
        memory = float(self._memories[at])
        self._arm.memory = self._learnt(index % self._passes, chosen, memory, self._parameters)

    def _block(self, index: int) -> None:
        """Make the numbers of the next passes, and what is sent of them."""
        arm = self._arm
        coins, seeds = self._coins.rows(index, self._size), self._seeds.rows(index, self._size)
        count = min(len(coins), len(seeds))
        self._fill(
            index // self._passes,
            index % self._passes,
            count,
            *arm.known,
            arm.memory,
            arm.number,
            arm.owners,
            self._bits,
            self._parameters,
            self._kinds,
            self._scales,
            coins,
            seeds,
            self._numbers,
            self._memories,
        )
        self._dress(index, self._numbers[:count])
        self._at = 0
        self._size = min(2 * self._size, LONGEST_BLOCK)

    def _dress(self, index: int, numbers: NDArray[np.int64]) -> None:
        """Make what is sent (`_plain`), and the two replies to each, of as many numbers as it
        can.
        """
        raise NotImplementedError


class StandardLane(BlockLane):
    """Level `standard`: affine mask with dither, reply tokens, sealed frames.

    `s_own` is the owners' common secret, `private` this owner's own, of this run alone: it makes
    tokens and dither.
    """

    __slots__ = ("_common", "_frames", "_own", "_words")

    def __init__(
        self,
        arm: Arm,
        policy: Policy,
        frames: Frames,
        s_own: bytes,
        private: bytes,
        coins: CommonDraws,
        seeds: OwnSeeds,
    ) -> None:
        super().__init__(arm, policy, coins, seeds)
        self._frames = frames
        self._common = Words(s_own, b"posse masks", MASK_WORDS)
        self._own = Words(private, b"posse tokens and dither", OWN_WORDS)
        self._words = np.zeros((LONGEST_BLOCK, FRAME_WORDS), np.uint64)

    def compose(self, index: int) -> bytes:
        """Return the sealed frame of a pass."""
        if self._at == len(self._plain):
            self._block(index)
        return self._frames.seal(index, self._plain[self._at])

    def pass_by(self, index: int, reply: bytes) -> bytes | None:
        """Return the next pass's frame if the reply to pass `index` says no and the block goes on,
        else None.
        """
        at = self._at
        if reply == self._no[at]:
            at += 1
            if at < len(self._plain):
                self._at = at
                return self._frames.seal(index + 1, self._plain[at])
        return None

    def _dress(self, index: int, numbers: NDArray[np.int64]) -> None:
        common, own = self._common.rows(index, len(numbers)), self._own.rows(index, len(numbers))
        count = min(len(common), len(own))
        mask_all(numbers, common[:count], own[:count], self._words)
        raw = self._words[:count].tobytes()
        self._plain = struct.unpack(f"{FRAME_BYTES}s" * count, raw)
        self._no, self._yes = (
            struct.unpack("24x8s8x" * count, raw),
            struct.unpack("32x8s" * count, raw),
        )


class PaperLane:
    """Level `paper`: one float multiplied by the pass's mask; the reply is a sealed bit."""

    __slots__ = (
        "_arm",
        "_ceilings",
        "_frames",
        "_kinds",
        "_learnt",
        "_masks",
        "_parameters",
        "_passes",
        "_replies",
        "_scales",
        "_seeds",
        "_value",
    )

    def __init__(
        self,
        arm: Arm,
        policy: Policy,
        frames: Frames | ClearFrames,
        replies: Frames | ClearFrames,
        masks: Draws | None,
        seeds: OwnSeeds,
    ) -> None:
        compiled = kernels(policy)
        self._arm = arm
        self._value, self._learnt = compiled.value, compiled.learnt
        self._kinds, self._scales, self._ceilings = selections(policy)
        self._passes = len(self._kinds)
        self._parameters = policy.parameters()
        self._frames, self._replies = frames, replies
        self._masks, self._seeds = masks, seeds

    @property
    def memory(self) -> float:
        """What the policy remembers."""
        return self._arm.memory

    def resume(self, index: int) -> None:
        """Nothing is prepared ahead at this level."""

    prepare = resume

    def compose(self, index: int) -> bytes:
        """Return the sealed frame of a pass."""
        arm = self._arm
        value = self._value(
            index // self._passes,
            index % self._passes,
            *arm.known,
            arm.memory,
            self._seeds.rows(index, 1)[0],
            self._parameters,
            self._kinds,
            self._scales,
            self._ceilings,
        )
        alpha = 1.0 if self._masks is None else 1.0 - self._masks.at(index)
        return self._frames.seal(index, struct.pack("<d", alpha * value))

    def equal(self, index: int) -> bytes:
        """Return the sealed frame of an exploring step: 0, or a weight of 1, at all owners; it
        needs no mask.
        """
        return self._frames.seal(
            index, struct.pack("<d", float(self._kinds[index % self._passes] == MATCH))
        )

    def pass_by(self, index: int, reply: bytes) -> bytes | None:
        """Nothing is prepared ahead at this level."""
        return None

    def read(self, index: int, reply: bytes) -> bool:
        """Return whether the sealed bit is set."""
        bit = self._replies.open(index, reply)
        if bit not in (b"\x00", b"\x01"):
            raise ProtocolError(
                f"a pulling bit must be 0 or 1, got {len(bit)} bytes of something else."
            )
        chosen = bit == b"\x01"
        self._arm.memory = self._learnt(
            index % self._passes, chosen, self._arm.memory, self._parameters
        )
        return chosen
