"""The data owner: it alone sees its arm's rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.random import COIN, MASK, derive_key
from posse.core.roles import WORLD, Action, Message, Pull, Reward, Send, SendMany
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.frames import ClearFrames, Frames
from posse.privacy.crypto.keys import ROOT_BYTES, Identity, Secrets
from posse.systems.samba.kernels import kernels
from posse.systems.samba.levels import owed
from posse.systems.samba.messages import Close, Go, Keys, Masks, Reply, Score, Sum
from posse.systems.samba.roles.draws import Draws, OwnSeeds
from posse.systems.samba.roles.lanes import AnyLane, Arm, PaperLane, PaperSecrets, StrictSecrets
from posse.systems.samba.setup import CONTROLLER, Expected, ParticipantSaved, Peer, paillier_key


class OwnerSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an owner: its arm, where it stands, and the owners' common keys."""

    units: Count
    pulls: Count
    memory: float
    index: Count
    pulling: bool
    listening: bool
    keyed: bool
    keys: bytes
    """k_frame and s_own; empty at the owner that drew them."""
    masks: Masks | None
    early: list[Reply]
    end: Close | None
    """The set of owners that the customer asks for; none at level `paper`."""
    settled: bool
    """Whether the set of owners stands, and the sum is sent or will be after a reward."""


@dataclass(frozen=True)
class OwnerSecrets:
    """What an owner holds and hides."""

    arm: Arm
    memory: float
    """What its policy remembers before the pass that is open."""
    pulling: bool
    exploring: bool
    """Whether the pass that is open explores, at level `paper`."""
    lane: PaperSecrets | StrictSecrets | None
    """None before it has its keys."""


class Owner(Peer):
    """One arm, its variables, and a lane to comp through the controller.

    `world_seed` makes a simulation reproducible: coins, tie order and the owner's own draws derive
    from it. Without it they come from AES-CTR: coins and tie order under the owners' common secret,
    own draws under a key of the owner's own.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        world_seed: int | None,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(name, "owner", identity, customer, expected, secrets=secrets)
        self._policy = expected.policy
        self._world_seed = world_seed
        self._arm = Arm(0, 0)
        self._lane: AnyLane | None = None
        self._masks: Masks | None = None
        self._coins: Draws | None = None
        self._keys: tuple[bytes, bytes] | None = None
        self._index = 0
        self._last = 0
        self._passes, self._shortcut = 1, True
        self._pulling = self._listening = False
        self._early: list[Reply] = []
        self._end: Close | None = None
        self._settled = False
        self._handlers |= {
            Go: self._on_go,
            Keys: self._on_keys,
            Masks: self._on_masks,
        }

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        if type(message) is Reply and sender == CONTROLLER:
            score = self.pass_by(message)
            return self._on_reply(message) if score is None else ((self.name, CONTROLLER, score),)
        if type(message) is Reward and sender == WORLD:
            return self._on_reward(message)
        return super().receive(sender, message)

    @staticmethod
    def receive_all(
        roles: Mapping[str, Owner], sends: Iterable[Send], actions: list[Action]
    ) -> None:
        """Take the replies of a pass for many owners: those that are not chosen go straight on to
        the next pass.
        """
        scores: list[Send] = []
        try:
            for sender, name, message in sends:
                owner = roles[name]
                score = (
                    owner.pass_by(message)
                    if type(message) is Reply and sender == CONTROLLER
                    else None
                )
                if score is not None:
                    scores.append((name, CONTROLLER, score))
                else:
                    actions.extend(owner.receive(sender, message))
        finally:
            if scores:
                actions.append(SendMany(scores))

    def pass_by(self, message: Reply) -> Score | None:
        """Return the score of the next pass if a reply says no, and it is made already."""
        index = self._index
        if message.index != index or index >= self._last or not self._listening:
            return None
        frame = self._lane.pass_by(index, message.reply)  # type: ignore[union-attr]
        if frame is None:
            return None
        self._index = index + 1
        return Score(index + 1, frame)

    # Setup ----------------------------------------------------------------------------------------

    def _on_go(self, message: Go) -> Sequence[Action]:
        self.go(message)
        self._enter()
        return self.to_controller(self.make_keys()) if self._is_first else ()

    @property
    def _is_first(self) -> bool:
        return self.name == self.manifest.owners[0]

    def _enter(self) -> None:
        """Stand before the first pull."""
        owners = self.manifest.owners
        terms = self.manifest.terms
        self._arm = Arm(
            owners.index(self.name), len(owners), memory=self._policy.start(len(owners))
        )
        self._passes, self._shortcut = terms.passes, "shortcut" not in terms.off
        self._index = self._expected.start(self.manifest)
        self._last = (terms.budget + 1) * terms.passes - 1

    def _on_masks(self, message: Masks) -> Sequence[Action]:
        if self._masks is not None:
            raise ProtocolError("mask seeds come once, from the controller.")
        if len(message.masks) != ROOT_BYTES or len(message.coins) != ROOT_BYTES:
            raise ProtocolError(f"the keys of masks and coins must have {ROOT_BYTES} bytes.")
        self._masks = message
        return self._ready()

    def _on_keys(self, message: Keys) -> Sequence[Action]:
        if not self._going or self._keys is not None:
            raise ProtocolError("keys come once, after the start.")
        self._keys = self.open_keys(message)
        return self._ready()

    def _ready(self) -> Sequence[Action]:
        """Open the lane when all secrets are there, and make the first pull (1)."""
        if not self._open_lane():
            return ()
        self._pulling = True
        return (Pull(self.name, 0),)

    def _open_lane(self) -> bool:
        if self._keys is None or self._masks is None:
            return False
        off, seed = self.manifest.terms.off, self._world_seed
        frames, replies = paper_frames(self._keys[0], self._digest, off, self._arm.owners)
        masks = None if "mask" in off else Draws(MASK, seed, self._masks.masks)
        self._coins = Draws(COIN, seed, self._masks.coins)
        self._lane = self._paper_lane(frames, replies, masks)
        return True

    def _paper_lane(
        self, frames: Frames | ClearFrames, replies: Frames | ClearFrames, masks: Draws | None
    ) -> PaperLane:
        return PaperLane(self._arm, self._policy, frames, replies, masks, self._own_seeds())

    def _own_seeds(self) -> OwnSeeds:
        """Return what the policy of this owner draws from."""
        seed = None if self._world_seed is None else derive_key(self._world_seed, self._arm.number)
        return OwnSeeds(seed, self._secrets.key(b"samba own draws", context=self._context()))

    # Steps 2 to 5 ---------------------------------------------------------------------------------

    def _on_reply(self, message: Reply) -> Sequence[Action]:
        """Read a reply; pull if this owner was chosen in the last pass of a step (5), else go
        on.
        """
        index = self._index
        if message.index != index or not self._listening:
            if self._pulling and index <= message.index and self._masks is not None:
                self._early.append(
                    message
                )  # exploring at level `paper` does not wait for a slow reward
            return ()  # a reply to another pass says nothing about this one
        assert self._lane is not None
        chosen = self._lane.read(index, message.reply)
        self._index = index + 1
        if chosen and self._index % self._passes == 0:
            self._pulling, self._listening = True, False
            return (Pull(self.name, self._arm.pulls),)
        return self._next()

    def _on_reward(self, message: Reward) -> Sequence[Action]:
        if not self._pulling or message.number != self._arm.pulls:
            return ()  # an answer that came twice
        if not 0 <= message.units <= REWARD_ONE:
            raise ProtocolError(f"a reward must be in [0, 1], got {message.units / REWARD_ONE}.")
        self._arm.units += message.units
        self._arm.pulls += 1
        self._pulling, self._listening = False, True
        actions = list(self._next())
        early, self._early = self._early, []
        for reply in early:
            # One that is refused is dropped, as it would have been had it come now; the reward and
            # the score stand.
            with suppress(ProtocolError):
                actions.extend(self.receive(CONTROLLER, reply))
        return actions

    def _next(self) -> Sequence[Action]:
        """Send the frame of the current pass (2), or the sum when the budget is spent."""
        if self._index > self._last:
            self._listening = False
            return self._sum_sealed()
        exploring = self._explores()
        if exploring and self._shortcut:
            return ()
        return ((self.name, CONTROLLER, Score(self._index, self._frame(exploring))),)

    def _frame(self, exploring: bool) -> bytes:
        """Give the frame of the pass: the score, or in an exploring step of level `paper` the
        number that all send.
        """
        lane = self._lane
        assert lane is not None
        return (
            lane.equal(self._index)
            if exploring and isinstance(lane, PaperLane)
            else lane.compose(self._index)
        )

    def _explores(self) -> bool:
        """Whether this pass of level `paper` explores; at level `strict` that is inside the
        score.
        """
        if self._coins is None or not self._policy.explores or (self._index + 1) % self._passes:
            return False
        step = self._index // self._passes
        coin = self._coins.at(step)
        return bool(
            kernels(self._policy).exploring(coin, step, self._arm.owners, self._policy.parameters())
        )

    # Step 6 ---------------------------------------------------------------------------------------

    def _sum_sealed(self) -> Sequence[Action]:
        """Send the sum, encrypted for the customer (6)."""
        terms, units = self.manifest.terms, self._arm.units
        if "paillier" in terms.off:
            return self.to_controller(Sum(units.to_bytes(16, "big")))
        return self.to_controller(Sum(paillier_key(terms.paillier_n).encrypt(units).to_bytes()))

    @property
    def reward(self) -> float:
        """What its arm has earned."""
        return self._arm.units / REWARD_ONE

    @property
    def pulls(self) -> int:
        """How often its arm was pulled."""
        return self._arm.pulls

    @property
    def owed(self) -> float | None:
        """What the customer owes it by the terms that all signed; None where a pull has no
        price.
        """
        terms, _ = self.agreed
        return None if terms is None else owed(terms.price, self._arm.number, self.pulls)

    def state(self) -> dict[str, object]:
        """What this owner's operator may see: its own arm."""
        found = {"reward": self.reward, "pulls": self.pulls, "pulling": self._pulling}
        return {
            **self.progress(self._index),
            **found,
            **({} if self.owed is None else {"owed": self.owed}),
        }

    def reveal(self) -> OwnerSecrets:
        """Return its arm, and what hides its scores."""
        return OwnerSecrets(
            replace(self._arm),
            self._memory,
            self._pulling,
            self._explores(),
            None if self._lane is None else self._lane.reveal(),
        )

    @property
    def _memory(self) -> float:
        return self._arm.memory if self._lane is None else self._lane.memory

    def save(self) -> dict[str, Any]:
        """Return the whole state; it holds the arm and the owners' common keys."""
        return pack(OwnerSaved(**self._common()))

    def _common(self) -> dict[str, Any]:
        return {
            **self._saved(),
            "units": self._arm.units,
            "pulls": self._arm.pulls,
            "memory": self._memory,
            "index": self._index,
            "pulling": self._pulling,
            "listening": self._listening,
            "keyed": self._keys is not None,
            "keys": b"" if self._keys is None or self._is_first else b"".join(self._keys),
            "masks": self._masks,
            "early": self._early,
            "end": self._end,
            "settled": self._settled,
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._take_up(self._loaded(saved, OwnerSaved))

    def _take_up(self, read: OwnerSaved) -> None:
        if self._going:
            self._enter()
            if not self._index <= read.index <= self._last + 1:
                raise ProtocolError("it stands outside the run.")
        self._arm.units, self._arm.pulls, self._arm.memory = read.units, read.pulls, read.memory
        self._index, self._masks, self._early = read.index, read.masks, read.early
        self._pulling, self._listening = read.pulling, read.listening
        self._end, self._settled = read.end, read.settled
        if read.keyed:
            if len(read.keys) != (0 if self._is_first else 64):
                raise ProtocolError("its keys have the wrong length.")
            self._keys = self.own_keys() if self._is_first else (read.keys[:32], read.keys[32:])
        ready = self._going and self._open_lane()
        if (self._pulling or self._listening) and not ready:
            raise ProtocolError("it is in a step without the keys for it.")
        if self._listening and self._lane is not None:
            self._lane.resume(self._index)


def paper_frames(
    k_frame: bytes, digest: bytes, off: Sequence[str], owners: int
) -> tuple[Frames | ClearFrames, Frames | ClearFrames]:
    """Score and reply frames of level `paper`."""
    if "aes" in off:
        return ClearFrames(), ClearFrames()
    return Frames(k_frame, digest, b"scores", owners), Frames(k_frame, digest, b"replies", owners)
