"""The two roles that face the world: the puller learns the arm of every step, the payee the reward,
and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.agreement import check_terms_digest
from posse.core.errors import DisagreementError, ProtocolError
from posse.core.fixed import REWARD_BITS, REWARD_ONE
from posse.core.roles import WORLD, Action, Message, Note
from posse.core.snapshots import VERSION, Snapshot, pack, unpack
from posse.systems.mpc_contextual.program import input_masks
from posse.systems.mpc_contextual.roles import messages
from posse.systems.mpc_contextual.roles.messages import Ending, Pulled, Seed
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms


class FacesWorld(Ending):
    """What both have: the terms, the dealer's seed, and how many steps are behind them."""

    kind: str
    name: str

    def __init__(self, terms: Terms) -> None:
        self.terms, self._digest = terms, terms.digest()
        self.seed: Seed | None = None
        """The dealer's, once it is here."""
        self.step = 0
        """Steps whose arm was pulled, or that were paid."""

    @property
    def finished(self) -> bool:
        """Whether all steps are over."""
        return self.step == self.horizon

    def start(self) -> Sequence[Action]:
        """Wait for the others."""
        return ()

    def _over(self, sender: str, message: messages.Over) -> Sequence[Action]:
        """Take a party's word that no arm is chosen from a pass on."""
        self.ends(sender, message, -(-self.step // self.terms.batch), self.terms.choices)
        return [Note(self.name, "step", self.step)] if self.finished else []

    def _first_seed(self, sender: str, message: Message) -> bool:
        """Whether this is the dealer's seed, which must be for the same terms and comes once."""
        if not isinstance(message, Seed) or sender != DEALER or self.seed is not None:
            return False
        check_terms_digest(self._digest, sender, message.terms)
        if len(message.inputs) != 32:
            raise ProtocolError("a damaged seed of the dealer's.")
        return True

    def _nothing_before(
        self, size: int, kind: type[messages.Choice | messages.Payoff]
    ) -> list[Action]:
        """With overlap, say under a mask that no step comes before the first one."""
        if not self.terms.overlap:
            return []
        nothing = kind(0, self._masked(0, np.zeros(size, np.uint64)))
        return [(self.name, party, nothing) for party in self.terms.parties]

    def _masked(self, number: int, inputs: np.ndarray) -> bytes:
        """Put inputs of a pass under masks that the dealer knows."""
        assert self.seed is not None
        return (inputs - input_masks(self.seed.inputs, number, inputs.size)).tobytes()


class PullerSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arms of all steps so far, and what has come of this one."""

    seed: Seed | None
    step: int
    passes: int
    arms: bytes
    shares: dict[str, list[bytes]]
    acting: bool
    end: int | None = None


@dataclass(frozen=True, eq=False)
class PullerSecrets:
    """What the puller holds and hides."""

    seed: Seed | None
    """Of the masks under which it returns arms."""
    arms: np.ndarray
    """Of every step so far, and of the pass that is being pulled."""


class Puller(FacesWorld):
    """Puts the parties' shares of the one-hot vector together, pulls the arm, and returns the
    vector under a mask.
    """

    kind = name = PULLER

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._arms = np.zeros(terms.steps, np.uint16)
        self._passes = 0
        self._shares: dict[str, list[bytes]] = {party: [] for party in terms.parties}
        self._acting = False

    @property
    def arms(self) -> np.ndarray:
        """The arms pulled so far."""
        return self._arms[: self.step].astype(np.int64)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take a seed, a share of an arm, or the world's word that it was pulled."""
        match message:
            case Seed() if self._first_seed(sender, message):
                self._check_one_arm(self._first_shares())
                self.seed = message
                return [*self._nothing_before(self.terms.arms, messages.Choice), *self._act()]
            case messages.Over():
                return self._over(sender, message)
            case messages.Reveal() if sender in self._shares:
                held = self._shares[sender]
                expected, size = self._passes + len(held), self.terms.batch * self.terms.arms
                if message.step != expected or len(held) > 1 or len(message.data) != size:
                    raise ProtocolError(
                        f"'{sender}' reveals pass {message.step + 1}, expected {expected + 1}."
                    )
                if not held:
                    self._check_one_arm({**self._first_shares(), sender: message.data})
                held.append(message.data)
                return self._act()
            case messages.Acted(step=self.step) if sender == WORLD and self._acting:
                return self._pulled()
        raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")

    def _first_shares(self) -> dict[str, bytes]:
        """Return the shares of the pass that comes next, of the parties that have sent theirs."""
        return {party: held[0] for party, held in self._shares.items() if held}

    def _act(self) -> Sequence[Action]:
        """Begin to pull the arms of a pass when all shares are here."""
        if self._acting or self.seed is None or not all(self._shares.values()):
            return ()
        hot = self._hot(list(self._first_shares().values()))
        self._arms[self.step : self.step + self.terms.batch] = hot.argmax(axis=1)
        self._acting = True
        return (messages.Act(self.name, self.step, int(self._arms[self.step])),)

    def _hot(self, shares: Sequence[bytes]) -> np.ndarray:
        """Put shares together: the one-hot vectors of a pass."""
        bits = np.bitwise_xor.reduce([np.frombuffer(share, np.uint8) for share in shares], axis=0)
        return np.asarray(bits.reshape(self.terms.batch, self.terms.arms))

    def _check_one_arm(self, shares: Mapping[str, bytes]) -> None:
        """Refuse the last share of a pass if they do not make one arm each; nothing has changed
        then.
        """
        if (
            len(shares) == len(self._shares)
            and (self._hot(list(shares.values())).sum(axis=1) != 1).any()
        ):
            raise DisagreementError(
                f"the shares of pass {self._passes + 1} do not make one arm: a party computes "
                "something else. Check "
                "that all have the same version, and begin a new run."
            )

    def _pulled(self) -> Sequence[Action]:
        """Pull the next arm of the pass; after the last one tell the parties, under a mask, and the
        payee.
        """
        self.step += 1
        note = Note(self.name, "step", self.step)
        if self.step % self.terms.batch:
            return [note, messages.Act(self.name, self.step, int(self._arms[self.step]))]
        number, batch = self._passes, self.terms.batch
        learns = number + self.terms.lag
        hot = (
            (self._arms[self.step - batch : self.step, None] == np.arange(self.terms.arms))
            .astype(np.uint64)
            .ravel()
        )
        choice = messages.Choice(learns, self._masked(learns, hot))
        for held in self._shares.values():
            held.pop(0)
        self._acting, self._passes = False, number + 1
        actions: list[Action] = [(self.name, party, choice) for party in self.terms.parties]
        return [*actions, (self.name, PAYEE, Pulled(number)), note, *self._act()]

    def state(self) -> dict[str, object]:
        """Return how far it is, and how often each arm was pulled."""
        pulls = np.bincount(self.arms, minlength=self.terms.arms).tolist()
        return {"step": self.step, "horizon": self.horizon, "unit": "step", "pulls": pulls}

    def reveal(self) -> PullerSecrets:
        """Return all arms that it knows."""
        return PullerSecrets(self.seed, self._known_arms)

    @property
    def _known_arms(self) -> np.ndarray:
        return self._arms[: (self._passes + self._acting) * self.terms.batch]

    def save(self) -> dict[str, Any]:
        """Return the state."""
        return pack(
            PullerSaved(
                version=VERSION,
                kind=self.kind,
                name=self.name,
                run=self._digest,
                seed=self.seed,
                step=self.step,
                passes=self._passes,
                arms=self._known_arms.tobytes(),
                shares=self._shares,
                acting=self._acting,
                end=self.end,
            )
        )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned: arms that were chosen stay chosen."""
        state = unpack(saved, PullerSaved, kind=self.kind, name=self.name, run=self._digest)
        arms = np.frombuffer(state.arms, np.uint16)
        self._arms[: len(arms)] = arms
        self.seed, self._acting, self._passes, self.step = (
            state.seed,
            state.acting,
            state.passes,
            state.step,
        )
        self.end = state.end
        self._shares = {party: list(state.shares[party]) for party in self.terms.parties}


class PayeeSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rewards of all steps so far, and how many passes were pulled."""

    seed: Seed | None
    units: bytes
    told: int
    asking: bool
    end: int | None = None


def encode_reward(units: int, bits: int) -> int:
    """Round a reward from units of 2^-24 to units of 2^-bits."""
    shift = REWARD_BITS - bits
    return units << -shift if shift <= 0 else (units + (1 << shift >> 1)) >> shift


@dataclass(frozen=True, eq=False)
class PayeeSecrets:
    """What the payee holds and hides."""

    seed: Seed | None
    """Of the masks under which it returns rewards."""
    units: np.ndarray
    """The reward of every step of the run, in units of 2^-24; 0 where it has not come."""


class Payee(FacesWorld):
    """Asks the world what each pull earned, and returns the reward under a mask."""

    kind = name = PAYEE

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._units = np.zeros(terms.steps, np.uint32)
        self.pulled = 0
        """Passes whose arms were pulled."""
        self._asking = False

    @property
    def rewards(self) -> np.ndarray:
        """The rewards so far, in units of 2^-24."""
        return self._units[: self.step].astype(np.int64)

    @property
    def total(self) -> float:
        """The sum of the rewards so far."""
        return self.terms.reward_range.total(self.rewards)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take a seed, the puller's word, or what the world paid."""
        match message:
            case Seed() if self._first_seed(sender, message):
                self.seed = message
                return [*self._nothing_before(1, messages.Payoff), *self._ask()]
            case messages.Over():
                return self._over(sender, message)
            case Pulled() if sender == PULLER and message.step == self.pulled < self.choices:
                self.pulled += 1
                return self._ask()
            case messages.Earned(step=self.step) if sender == WORLD and self._asking:
                if not 0 <= message.units <= REWARD_ONE:
                    within = self.terms.reward_range
                    raise ProtocolError(
                        f"a reward must be in {within}, got {float(within.value(message.units)):g}."
                    )
                return self._earned(message.units)
        raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")

    def _ask(self) -> Sequence[Action]:
        if self._asking or self.seed is None or self.pulled * self.terms.batch == self.step:
            return ()
        self._asking = True
        return (messages.Earn(self.name, self.step),)

    def _earned(self, units: int) -> Sequence[Action]:
        """Take one reward; after the last one of a pass tell the parties, under a mask."""
        self._units[self.step] = units
        self._asking, self.step = False, self.step + 1
        actions: list[Action] = [Note(self.name, "step", self.step)]
        batch = self.terms.batch
        if self.step % batch == 0 and not self.terms.frozen:
            number = self.step // batch - 1 + self.terms.lag
            rewards = [
                encode_reward(int(one), self.terms.bits)
                for one in self._units[self.step - batch : self.step]
            ]
            payoff = messages.Payoff(number, self._masked(number, np.array(rewards, np.uint64)))
            actions += [(self.name, party, payoff) for party in self.terms.parties]
        return [*actions, *self._ask()]

    def state(self) -> dict[str, object]:
        """Return how far it is, and what came in."""
        return {"step": self.step, "horizon": self.horizon, "unit": "step", "total": self.total}

    def reveal(self) -> PayeeSecrets:
        """Return all rewards."""
        return PayeeSecrets(self.seed, self._units)

    def save(self) -> dict[str, Any]:
        """Return the state."""
        return pack(
            PayeeSaved(
                version=VERSION,
                kind=self.kind,
                name=self.name,
                run=self._digest,
                seed=self.seed,
                units=self._units[: self.step].tobytes(),
                told=self.pulled,
                asking=self._asking,
                end=self.end,
            )
        )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned: rewards that came in stay as they were."""
        state = unpack(saved, PayeeSaved, kind=self.kind, name=self.name, run=self._digest)
        units = np.frombuffer(state.units, np.uint32)
        self._units[: len(units)] = units
        self.end = state.end
        self.seed, self.pulled, self._asking, self.step = (
            state.seed,
            state.told,
            state.asking,
            len(units),
        )
