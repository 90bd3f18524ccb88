"""The puller: it learns the arm of every step, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posse.core.agreement import check_digest
from posse.core.errors import DisagreementError, ProtocolError
from posse.core.roles import WORLD, Action, Message, Note
from posse.core.snapshots import VERSION, Snapshot, pack, unpack
from posse.protocols.mpc_contextual.messages import Act, Acted, Choice, Pulled, Reveal, Seed
from posse.protocols.mpc_contextual.program import input_masks
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms


class PullerSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arms of all steps so far, and what has come of this one."""

    seed: Seed | None
    step: int
    passes: int
    arms: bytes
    shares: dict[str, list[bytes]]
    acting: bool


class Puller:
    """Puts the parties' shares of the one-hot vector together, pulls the arm, and returns the vector under a mask."""

    kind = name = PULLER

    def __init__(self, terms: Terms) -> None:
        self.terms, self._digest = terms, terms.digest()
        self.seed: Seed | None = None
        """The dealer's, once it is here."""
        self._arms = np.zeros(terms.steps, np.uint16)
        self.step = 0
        """Steps whose arm was pulled."""
        self._passes = 0
        self._shares: dict[str, list[bytes]] = {party: [] for party in terms.parties}
        self._acting = False

    @property
    def finished(self) -> bool:
        """Whether all arms were pulled."""
        return self.step == self.terms.steps

    @property
    def arms(self) -> np.ndarray:
        """The arms pulled so far."""
        return self._arms[: self.step].astype(np.int64)

    def start(self) -> Sequence[Action]:
        """Wait for the parties."""
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take a seed, a share of an arm, or the world's word that it was pulled."""
        if isinstance(message, Seed) and sender == DEALER and self.seed is None:
            check_digest(self._digest, sender, message.terms)
            if len(message.inputs) != 32:
                raise ProtocolError("a damaged seed of the dealer's.")
            self._check_one_arm({party: held[0] for party, held in self._shares.items() if held})
            self.seed = message
            return self._act()
        if isinstance(message, Reveal) and sender in self._shares:
            held = self._shares[sender]
            expected, size = self._passes + len(held), self.terms.batch * self.terms.arms
            if message.step != expected or len(held) > 1 or len(message.data) != size:
                raise ProtocolError(f"'{sender}' reveals pass {message.step + 1}, expected {expected + 1}.")
            if not held:
                waiting = {party: shares[0] for party, shares in self._shares.items() if shares}
                self._check_one_arm({**waiting, sender: message.data})
            held.append(message.data)
            return self._act()
        if isinstance(message, Acted) and sender == WORLD and self._acting and message.step == self.step:
            return self._pulled()
        raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")

    def _act(self) -> Sequence[Action]:
        """Begin to pull the arms of a pass when all shares are here."""
        if self._acting or self.seed is None or not all(self._shares.values()):
            return ()
        hot = self._hot([held[0] for held in self._shares.values()])
        self._arms[self.step : self.step + self.terms.batch] = hot.argmax(axis=1)
        self._acting = True
        return (Act(self.name, self.step, int(self._arms[self.step])),)

    def _hot(self, shares: Sequence[bytes]) -> np.ndarray:
        """Put shares together: the one-hot vectors of a pass."""
        bits = np.bitwise_xor.reduce([np.frombuffer(share, np.uint8) for share in shares], axis=0)
        return np.asarray(bits.reshape(self.terms.batch, self.terms.arms))

    def _check_one_arm(self, shares: Mapping[str, bytes]) -> None:
        """Refuse the last share of a pass if they do not make one arm each; nothing has changed then."""
        if len(shares) == len(self._shares) and (self._hot(list(shares.values())).sum(axis=1) != 1).any():
            raise DisagreementError(
                f"the shares of pass {self._passes + 1} do not make one arm: a party computes something else. Check "
                "that all have the same version, and begin a new run."
            )

    def _pulled(self) -> Sequence[Action]:
        """Pull the next arm of the pass; after the last one tell the parties, under a mask, and the payee."""
        assert self.seed is not None
        self.step += 1
        note = Note(self.name, "step", self.step)
        if self.step % self.terms.batch:
            return [note, Act(self.name, self.step, int(self._arms[self.step]))]
        number, batch, arms = self._passes, self.terms.batch, self.terms.arms
        hot = (self._arms[self.step - batch : self.step, None] == np.arange(arms)).astype(np.uint64).ravel()
        choice = Choice(number, (hot - input_masks(self.seed.inputs, number, batch * arms)).tobytes())
        for held in self._shares.values():
            held.pop(0)
        self._acting, self._passes = False, number + 1
        actions: list[Action] = [(self.name, party, choice) for party in self.terms.parties]
        return [*actions, (self.name, PAYEE, Pulled(number)), note, *self._act()]

    def state(self) -> dict[str, object]:
        """Return how far it is, and how often each arm was pulled."""
        return {
            "step": self.step,
            "horizon": self.terms.steps,
            "unit": "step",
            "pulls": np.bincount(self.arms, minlength=self.terms.arms).tolist(),
        }

    def save(self) -> dict[str, Any]:
        """Return the state."""
        known = (self._passes + self._acting) * self.terms.batch
        return pack(
            PullerSaved(
                version=VERSION, kind=self.kind, name=self.name, run=self._digest, seed=self.seed, step=self.step,
                passes=self._passes, arms=self._arms[:known].tobytes(), shares=self._shares, acting=self._acting,
            )
        )  # fmt: skip

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned: arms that were chosen stay chosen."""
        state = unpack(saved, PullerSaved, kind=self.kind, name=self.name, run=self._digest)
        arms = np.frombuffer(state.arms, np.uint16)
        self._arms[: len(arms)] = arms
        self.seed, self._acting, self._passes, self.step = state.seed, state.acting, state.passes, state.step
        self._shares = {party: list(state.shares[party]) for party in self.terms.parties}
