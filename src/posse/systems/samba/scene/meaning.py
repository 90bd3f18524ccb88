"""What messages mean to a reader who may see everything: numbers behind masks, pads and seals.

Only a simulation can do this: every number is read off the bytes of the transcript with the keys of
the roles that have them. No key, mask or pad is returned, but for the one mask of a pass at level
`paper`, as the published demo shows it.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np

from posse.core.fixed import REWARD_ONE, SCORE_BITS, tie_bits
from posse.systems.samba.federation import SambaRun, owner_names
from posse.systems.samba.messages import Batch
from posse.systems.samba.scene.code import code
from posse.systems.samba.scene.walks import WalkRun
from posse.systems.samba.setup import COMP, CONTROLLER
from posse.systems.scenes import Code, format_number, join_first, line_numbers


class Score(NamedTuple):
    """One owner's score in a pass."""

    value: float
    """As the owner computed it: a mean, an upper bound, exp(mean / tau)."""
    sent: float
    """What comp reads of it at level `paper`: the value times the mask."""
    tie: int = -1
    """Place among equal scores, at level `strict`."""


class Pass:
    """One pass of a run, for one explanation."""

    def __init__(self, run: SambaRun, index: int = 0) -> None:
        self.run, self.index = run, index
        self.settings, self.setup = run.settings, run.settings.load()
        self.level, self.off, self.policy = (
            run.settings.level,
            self.setup.switches.off,
            self.setup.policy,
        )
        self.roles: dict[str, Any] = run.memory.roles
        self.owners = owner_names(len(self.setup.arms))
        self.selections = self.policy.passes()
        self.step, self.turn = divmod(index, len(self.selections))
        self.digits = 2 if isinstance(run, WalkRun) else 4

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of role of the level."""
        sole = ("controller", "comp", "dealer", "customer") if self.level == "strict" else _SOLE
        return ("owner", *sole)

    @property
    def code(self) -> Code:
        """The code that runs."""
        return self.settings.cached(
            "scene code", lambda: code(self.policy, self.level, self.setup.switches)
        )

    def ran(self, **keys: str) -> dict[str, list[int]]:
        """Return the lines with these keys; several of a role with blanks between."""
        ran = {kind: texts.split() for kind, texts in keys.items()}
        return self.settings.cached(f"scene lines {keys}", lambda: line_numbers(self.code, ran))

    def text(self, value: float) -> str:
        """Write a number."""
        return format_number(value, self.digits)

    def texts(self, values: Any) -> str:
        """Write a list of numbers."""
        return join_first([self.text(float(value)) for value in values])

    # Scores ---------------------------------------------------------------------------------------

    @property
    def matches(self) -> bool:
        """Whether this pass draws an arm by its probability."""
        return self.selections[self.turn].kind == "match"

    def score(self, owner: str, frame: bytes) -> Score:
        """Read an owner's score off its frame of this pass."""
        if self.level == "paper":
            return self.published(owner, self.opened(frame, 1)[0])
        x = (int.from_bytes(frame[:8], "little") + self.pads(owner)[0]) % (1 << 64)
        x -= (1 << 64) * (x >> 63)
        bits = tie_bits(len(self.owners))
        value = (x >> bits) / (1 << SCORE_BITS)
        return Score(value, value, x & ((1 << bits) - 1))

    def secrets(self, party: str) -> Any:
        """Return what a role holds and hides."""
        return self.roles[party].reveal()

    def pads(self, owner: str) -> list[int]:
        """Return the pads of an owner's score and of its reply, at level `strict`."""
        rows = self.secrets(owner).lane.pads.rows(self.index, 1)
        pads: list[int] = rows[0].tolist()
        return pads

    def explores(self, owner: str) -> bool:
        """Whether an owner sends no score but the number that all send (level `paper` without the
        shortcut).
        """
        return bool(self.secrets(owner).exploring)

    def published(self, owner: str, sent: float) -> Score:
        """Take the mask of level `paper` away; the constant factor of a probability is shown with
        the mask.
        """
        return Score(sent / self.mask(owner), sent)

    def mask(self, owner: str) -> float:
        """Return the mask of this pass at level `paper`; 1 where it is off."""
        masks = self.secrets(owner).lane.masks
        selection = self.selections[self.turn]
        constant = math.exp(-selection.ceiling / selection.scale) if self.matches else 1.0
        return float((1.0 if masks is None else 1.0 - masks.at(self.index)) * constant)

    def opened(self, frames: bytes, count: int) -> tuple[float, ...]:
        """Open frames of level `paper` as comp does."""
        body = b"".join(self.secrets(COMP).frames.open_all(self.index, frames, count))
        return struct.unpack(f"<{count}d", body)

    def order(self) -> list[int]:
        """Return the controller's permutation of this pass: place -> number of the owner."""
        found: list[int] = self.secrets(CONTROLLER).order.at(self.index).tolist()
        return found

    def permuted(self) -> tuple[float, ...]:
        """Return what comp had before it at level `paper`, in its order; nothing where the step
        explores.
        """
        answered = self.secrets(COMP).answered
        if not isinstance(answered, Batch) or answered.index != self.index:
            return ()
        return self.opened(answered.frames, len(self.owners))

    # Replies --------------------------------------------------------------------------------------

    def yes(self, owner: str, reply: bytes) -> bool:
        """Say whether a reply chooses its owner."""
        if self.level == "paper":
            replies = self.secrets(owner).lane.replies
            return bool(replies.open(self.index, reply) == b"\x01")
        return bool((int.from_bytes(reply, "little") ^ self.pads(owner)[1]) & 1)

    def chosen(self, replies: bytes) -> tuple[int, str]:
        """Return the place that comp's answers choose, and whose it is."""
        size = len(replies) // len(self.owners)
        for place, owner in enumerate(self.order()):
            if self.yes(self.owners[owner], replies[place * size : (place + 1) * size]):
                return place, self.owners[owner]
        return -1, ""

    def largest(self) -> str:
        """Return the owner of the largest score of a pass that goes on at level `strict`."""
        frames = self.secrets(CONTROLLER).frames
        if len(frames) < len(self.owners):
            return ""
        shares = np.frombuffer(b"".join([frames[name][:8] for name in self.owners]), "<u8")
        pads = np.array([self.pads(name)[0] for name in self.owners], np.uint64)
        return self.owners[int((shares + pads).view(np.int64).argmax())]

    # Sums -----------------------------------------------------------------------------------------

    def earned(self, owner: str) -> list[list[str]]:
        """Return an owner's own numbers."""
        role = self.roles[owner]
        return [["rewards", self.text(role.reward)], ["pulls", str(role.pulls)]]

    @property
    def total(self) -> str:
        """The sum of all rewards."""
        units = sum(self.secrets(name).arm.units for name in self.owners)
        return self.text(units / REWARD_ONE)


_SOLE = ("controller", "comp", "customer")
