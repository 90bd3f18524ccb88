"""An owner's side of a pass at level `strict`: numbers made in blocks, each less a pad."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.core.fixed import tie_bits
from posse.policies.arms.base import Policy
from posse.systems.samba.kernels import kernels
from posse.systems.samba.roles.draws import CommonDraws, OwnSeeds
from posse.systems.samba.roles.lanes import Arm, StrictSecrets
from posse.systems.samba.strict.comp import pads
from posse.systems.samba.twin import selections

SHORTEST_BLOCK, LONGEST_BLOCK = 8, 128
_ONE = np.uint64(1)


class StrictLane:
    """Level `strict`: x less a pad modulo 2^64; the reply is another pad, or that pad with its
    lowest bit flipped.

    Pads are two words a pass of an AES-256-CTR stream that this owner and comp know, of this run
    and start alone.

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
        "_pads",
        "_parameters",
        "_passes",
        "_plain",
        "_scales",
        "_seeds",
        "_since",
        "_size",
        "_yes",
    )

    def __init__(
        self, arm: Arm, policy: Policy, stream: bytes, coins: CommonDraws, seeds: OwnSeeds
    ) -> None:
        compiled = kernels(policy)
        self._arm = arm
        self._fill, self._learnt = compiled.numbers, compiled.learnt
        self._learns = policy.learns
        self._kinds, self._scales, _ = selections(policy)
        self._parameters = policy.parameters()
        self._passes = len(self._kinds)
        self._bits = tie_bits(arm.owners)
        self._coins, self._seeds = coins, seeds
        self._pads = pads(stream)
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

    def compose(self, index: int) -> bytes:
        """Return the frame of a pass."""
        if self._at == len(self._plain):
            self._block(index)
        return self._plain[self._at]

    def pass_by(self, index: int, reply: bytes) -> bytes | None:
        """Return the next pass's frame if the reply to pass `index` says no and the block goes on,
        else None.
        """
        at = self._at
        if reply == self._no[at]:
            at += 1
            if at < len(self._plain):
                self._at = at
                return self._plain[at]
        return None

    def read(self, index: int, reply: bytes) -> bool:
        """Return whether this owner is chosen in the pass it last composed; raise on a reply that
        is neither yes nor no.
        """
        at = self._at
        if reply == self._no[at]:
            self._at = at + 1
            if self._at == len(self._plain):
                self._remember(index, at, False)
            return False
        if reply != self._yes[at]:
            raise ProtocolError("a reply was altered, and the run must not go on.")
        self._remember(index, at, True)
        self._at, self._plain = 0, ()
        self._size = min(max((index - self._since) * 9 // 8, SHORTEST_BLOCK), LONGEST_BLOCK)
        self._since = index
        return True

    def reveal(self) -> StrictSecrets:
        """Return what it hides scores with (`Role.reveal`)."""
        if self._at == len(self._plain):
            return StrictSecrets(self._pads)
        return StrictSecrets(self._pads, int(self._numbers[self._at]), self._yes[self._at])

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
        self._hide(index, self._numbers[:count])
        self._at = 0
        self._size = min(2 * self._size, LONGEST_BLOCK)

    def _hide(self, index: int, numbers: NDArray[np.int64]) -> None:
        """Make what is sent of as many numbers as there are pads, and the two replies to each."""
        drawn = self._pads.rows(index, len(numbers))
        count = len(drawn)
        each, replies = "8s" * count, drawn[:, 1]
        self._plain = struct.unpack(each, (numbers[:count].view(np.uint64) - drawn[:, 0]).tobytes())
        self._no, self._yes = (
            struct.unpack(each, replies.tobytes()),
            struct.unpack(each, (replies ^ _ONE).tobytes()),
        )
