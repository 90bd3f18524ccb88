"""The payee: it learns the reward of every step, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posse.core.agreement import check_digest
from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_BITS, REWARD_ONE
from posse.core.roles import WORLD, Action, Message, Note
from posse.core.snapshots import VERSION, Snapshot, pack, unpack
from posse.protocols.mpc_contextual.messages import Earn, Earned, Payoff, Pulled, Seed
from posse.protocols.mpc_contextual.program import input_masks
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms


class PayeeSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rewards of all steps so far, and how many passes were pulled."""

    seed: Seed | None
    units: bytes
    told: int
    asking: bool


def encode_reward(units: int, bits: int) -> int:
    """Round a reward from units of 2^-24 to units of 2^-bits."""
    shift = REWARD_BITS - bits
    return units << -shift if shift <= 0 else (units + (1 << shift >> 1)) >> shift


class Payee:
    """Asks the world what each pull earned, and returns the reward under a mask."""

    kind = name = PAYEE

    def __init__(self, terms: Terms) -> None:
        self.terms, self._digest = terms, terms.digest()
        self.seed: Seed | None = None
        """The dealer's, once it is here."""
        self._units = np.zeros(terms.steps, np.uint32)
        self.step = self.pulled = 0
        """Steps that were paid, and passes that were pulled."""
        self._asking = False

    @property
    def finished(self) -> bool:
        """Whether all rewards are in."""
        return self.step == self.terms.steps

    @property
    def rewards(self) -> np.ndarray:
        """The rewards so far, in units of 2^-24."""
        return self._units[: self.step].astype(np.int64)

    @property
    def total(self) -> float:
        """The sum of the rewards so far."""
        return float(self.rewards.sum()) / REWARD_ONE

    def start(self) -> Sequence[Action]:
        """Wait for the puller."""
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take a seed, the puller's word, or what the world paid."""
        if isinstance(message, Seed) and sender == DEALER and self.seed is None:
            check_digest(self._digest, sender, message.terms)
            if len(message.inputs) != 32:
                raise ProtocolError("a damaged seed of the dealer's.")
            self.seed = message
            return self._ask()
        if isinstance(message, Pulled) and sender == PULLER and message.step == self.pulled < self.terms.passes:
            self.pulled += 1
            return self._ask()
        if isinstance(message, Earned) and sender == WORLD and self._asking and message.step == self.step:
            if not 0 <= message.units <= REWARD_ONE:
                raise ProtocolError(f"a reward must be in [0, 1], got {message.units / REWARD_ONE:g}.")
            return self._earned(message.units)
        raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")

    def _ask(self) -> Sequence[Action]:
        if self._asking or self.seed is None or self.pulled * self.terms.batch == self.step:
            return ()
        self._asking = True
        return (Earn(self.name, self.step),)

    def _earned(self, units: int) -> Sequence[Action]:
        """Take one reward; after the last one of a pass tell the parties, under a mask."""
        assert self.seed is not None
        self._units[self.step] = units
        self._asking, self.step = False, self.step + 1
        actions: list[Action] = [Note(self.name, "step", self.step)]
        batch = self.terms.batch
        if self.step % batch == 0:
            number = self.step // batch - 1
            rewards = [encode_reward(int(one), self.terms.bits) for one in self._units[self.step - batch : self.step]]
            masked = np.array(rewards, np.uint64) - input_masks(self.seed.inputs, number, batch)
            payoff = Payoff(number, masked.tobytes())
            actions += [(self.name, party, payoff) for party in self.terms.parties]
        return [*actions, *self._ask()]

    def state(self) -> dict[str, object]:
        """Return how far it is, and what came in."""
        return {"step": self.step, "horizon": self.terms.steps, "unit": "step", "total": self.total}

    def save(self) -> dict[str, Any]:
        """Return the state."""
        return pack(
            PayeeSaved(
                version=VERSION, kind=self.kind, name=self.name, run=self._digest, seed=self.seed,
                units=self._units[: self.step].tobytes(), told=self.pulled, asking=self._asking,
            )
        )  # fmt: skip

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned: rewards that came in stay as they were."""
        state = unpack(saved, PayeeSaved, kind=self.kind, name=self.name, run=self._digest)
        units = np.frombuffer(state.units, np.uint32)
        self._units[: len(units)] = units
        self.seed, self.pulled, self._asking, self.step = state.seed, state.told, state.asking, len(units)
