"""An owner's side of a pass: compose a frame, read the reply. One lane per level; that of `strict`
is in `strict.lane`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.policies.arms.base import Policy
from posse.privacy.crypto.frames import OVERHEAD, ClearFrames, Frames
from posse.privacy.crypto.streams import Words
from posse.systems.samba.kernels import MATCH, kernels
from posse.systems.samba.roles.draws import Draws, OwnSeeds
from posse.systems.samba.twin import selections

SCORE_BYTES = 8


def frame_bytes(off: Sequence[str]) -> int:
    """Size of an owner's frame: the same for every owner, step and score."""
    return SCORE_BYTES + (1 if "aes" in off else OVERHEAD)


def reply_bytes(off: Sequence[str]) -> int:
    """Size of comp's answer to one owner, a bit in a frame."""
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


@dataclass(frozen=True)
class PaperSecrets:
    """What a lane of level `paper` hides its scores with."""

    masks: Draws | None
    """One an index, as 1 less the factor; none where masks are off."""
    replies: Frames | ClearFrames


@dataclass(frozen=True)
class StrictSecrets:
    """What a lane of level `strict` hides its scores with."""

    pads: Words
    """Two a pass: for the score and for the reply."""
    number: int = 0
    """The score of the pass that is open, as a number; 0 between two passes."""
    yes: bytes = b""
    """The reply to that pass that says that this owner is chosen."""


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

    def reveal(self) -> PaperSecrets | StrictSecrets:
        """Return what it hides scores with (`Role.reveal`)."""


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
        alpha = 1.0 if self._masks is None else 1.0 - self._masks.at(index)
        return self._frames.seal(index, struct.pack("<d", alpha * self._score(index)))

    def _score(self, index: int) -> float:
        """Return the score of a pass without its mask."""
        arm = self._arm
        return self._value(
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

    def reveal(self) -> PaperSecrets:
        """Return what it hides scores with (`Role.reveal`)."""
        return PaperSecrets(self._masks, self._replies)
