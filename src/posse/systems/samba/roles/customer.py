"""The data customer: it pays the budget, admits the parties, and alone reads the total."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from posse.core.errors import DisagreementError, JournalError, ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import DURABLE, OPERATOR, Action, Message, Note
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.keys import Identity, Secrets, verify
from posse.privacy.crypto.paillier import Ciphertext, PrivateKey
from posse.systems.samba.messages import (
    Close,
    Closed,
    Consent,
    Consents,
    End,
    Go,
    Offer,
    Proposal,
    Roster,
    Total,
)
from posse.systems.samba.setup import (
    CONTROLLER,
    CUSTOMER,
    Expected,
    Handlers,
    Manifest,
    Member,
    Participant,
    ParticipantSaved,
    Terms,
    check_members,
    join_bytes,
    read_manifest,
    sole,
)
from posse.version import MANIFEST_VERSION, NAMED_ITSELF, PROTOCOL_VERSION


class CustomerSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the customer."""

    end: Close | None
    """Without its signature, which nobody needs again; none at level `paper`."""
    settled: bool
    steps: Count
    pulls: Count | None
    total: float | None
    refused: str


@dataclass(frozen=True)
class CustomerSecrets:
    """What the customer holds and hides."""

    key: PrivateKey | None
    """It opens the total of level `paper`."""
    tag: bytes
    """The key of the owners' tag at level `strict`."""


class Customer(Participant):
    """Proposes the terms (0), signs the manifest, and decrypts the total (7)."""

    def __init__(
        self,
        identity: Identity,
        expected: Expected,
        terms: Terms,
        admitted: Mapping[str, bytes],
        key: PrivateKey | None,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(CUSTOMER, "customer", identity, identity.public, expected, secrets=secrets)
        self._terms = terms
        self._admitted = dict(admitted)
        self._key, self._tag = key, b""
        self._end: Close | None = None
        self._settled = False
        """Whether the set of owners stands."""
        self._steps = 0
        self.pulls: int | None = None
        """Pulls that the total is of; unknown where an owner was left out."""
        self.total: float | None = None
        self.refused = ""
        """Why the total was refused."""
        self._handlers: Handlers = {
            Roster: self._on_roster,
            Consents: self._on_consents,
            Total: self._on_total,
        }

    def start(self) -> Sequence[Action]:
        """Say what is wanted (0)."""
        return self.to_controller(Proposal(msgspec.msgpack.encode(self._terms)))

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        if type(message) is End and sender == OPERATOR:
            return self._on_end(message)
        handler = self._handlers.get(type(message))
        if handler is None or sender != CONTROLLER:
            return self.unexpected(sender, message)
        return handler(message)

    def _on_roster(self, message: Roster) -> Sequence[Action]:
        """Admit exactly the identities the customer knows, and sign the manifest."""
        if self._manifest is not None:
            raise ProtocolError("the roster is closed.")
        joins = (*message.joins, self.join())
        expected = {**self._admitted, CUSTOMER: self._identity.public}
        names, alone = [join.name for join in joins], sole(self._terms.level)
        if sorted(names) != sorted(expected):
            missing = sorted(set(expected) - set(names)) or "none"
            raise DisagreementError(
                f"expected {len(expected)} parties, got {len(names)} (missing: {missing}). Give "
                "controller and "
                "customer the same owners."
            )
        check_members(joins, self._terms.level)
        if len(self._terms.price) > 1 and [name for name in names if name not in alone] != [
            name for name in expected if name not in alone
        ]:
            raise DisagreementError(
                "the controller names the owners in another order than the customer, and prices go "
                "by the order. Give "
                "both the same owners in one order."
            )
        for join in joins:
            if join.identity != expected[join.name]:
                raise DisagreementError(
                    f"'{join.name}' joins with an identity that was not admitted. Let it enrol "
                    "with this run's "
                    "authority, and start it with that identity."
                )
            verify(
                join.identity,
                b"join",
                join_bytes(join.name, join.kind, join.run_key),
                join.signature,
            )
        members = tuple(Member(join.name, join.kind, join.identity, join.run_key) for join in joins)
        body = msgspec.msgpack.encode(
            Manifest(MANIFEST_VERSION, PROTOCOL_VERSION, self._terms, members)
        )
        offer = Offer(body, self._identity.sign(b"manifest", body))
        self.consider(offer)
        return self.to_controller(offer)

    def _on_consents(self, message: Consents) -> Sequence[Action]:
        """Start when everyone signed this manifest."""
        consents = {consent.name: consent for consent in message.consents}
        try:
            self._check_signed(consents, self._digest)
        except ProtocolError:
            # Release 0.1.1 named itself in manifests. A customer that is upgraded from it in a run
            # makes its manifest again from its journal.
            earlier = msgspec.msgpack.encode(
                msgspec.structs.replace(self.manifest, version=NAMED_ITSELF)
            )
            _, digest = read_manifest(earlier)
            self._check_signed(consents, digest)
            self._accept(earlier)
        go = Go(self._identity.sign(b"go", self._digest))
        self.go(go)
        return self.to_controller(go)

    def _check_signed(self, consents: Mapping[str, Consent], digest: bytes) -> None:
        """Raise unless everyone else signed the manifest of this digest."""
        for member in self.manifest.members:
            if member.name == CUSTOMER:
                continue
            if member.name not in consents:
                raise ProtocolError(f"'{member.name}' has not signed the manifest.")
            verify(member.identity, b"consent", digest, consents[member.name].signature)

    def _on_end(self, message: End) -> Sequence[Action]:
        """Refuse to end the run early."""
        raise ProtocolError("a run at level 'paper' ends when its budget is spent, not earlier.")

    def _on_total(self, message: Total) -> Sequence[Action]:
        """Decrypt (7)."""
        if not self._going:
            raise ProtocolError("the total was not asked for yet.")
        terms = self.manifest.terms
        self._settled, self._steps = True, terms.budget

        def opened() -> tuple[int, int]:
            if "paillier" in terms.off:
                return int.from_bytes(message.ciphertext, "big"), terms.budget
            assert self._key is not None
            ciphertext = Ciphertext.from_bytes(message.ciphertext, self._key.public_key)
            return self._key.decrypt(ciphertext), terms.budget

        return self._conclude(opened)

    def _conclude(self, opened: Callable[[], tuple[int, int]]) -> Sequence[Action]:
        """Take the one total of a run: know it, or refuse it for good; the others learn only that
        there is an answer.

        The pull count must be the steps done where nobody was left out, and absent where somebody
        was.
        """
        if not self._settled or self.finished:
            raise ProtocolError("the total is known already, or was not asked for yet.")
        whole = self._end is None or len(self._end.present) == len(self.manifest.owners)
        try:
            units, pulls = opened()
            if pulls != (self._steps if whole else 0):
                raise ProtocolError(
                    "the total has another number of pulls than steps were done: a sum was altered."
                )
            if not 0 <= units <= self._steps * REWARD_ONE:
                raise ProtocolError("the total is outside its range: a sum was altered.")
        except ProtocolError as error:
            self.refused = error.text
        else:
            self.pulls, self.total = pulls if whole else None, units / REWARD_ONE
        note = (
            ("total", self._steps, self.total)
            if not self.refused
            else ("refused", self._steps, self.refused)
        )
        closed = Closed(self._identity.sign(b"closed", self._digest))
        return (
            Note(self.name, *note),
            Note(self.name, DURABLE, self._steps),
            *self.to_controller(closed),
        )

    @property
    def ended_early(self) -> tuple[str, ...] | None:
        """The owners over which the total is, where the run was ended before its budget was
        spent.
        """
        return None if self._end is None or self._end.number == 0 else self._end.present

    @property
    def finished(self) -> bool:
        """Whether the total is known, or was refused."""
        return self.total is not None or bool(self.refused)

    @property
    def needs(self) -> tuple[str, ...]:
        """The controller: it hands the others the word that the run is over."""
        return (CONTROLLER,)

    def state(self) -> dict[str, object]:
        """What the customer may see: the total, when there is one."""
        done = {"step": self._steps} if self.finished else {}
        return {"horizon": self._terms.budget, "unit": "pull", "total": self.total, **done}

    def reveal(self) -> CustomerSecrets:
        """Return the keys of the total."""
        return CustomerSecrets(self._key, self._tag)

    def save(self) -> dict[str, Any]:
        """Return the whole state."""
        return pack(CustomerSaved(**self._common()))

    def _common(self) -> dict[str, Any]:
        unsigned = None if self._end is None else Close(self._end.present, self._end.number, b"")
        return {
            **self._saved(),
            "end": unsigned,
            "settled": self._settled,
            "steps": self._steps,
            "pulls": self.pulls,
            "total": self.total,
            "refused": self.refused,
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._take_up(self._loaded(saved, CustomerSaved))

    def _take_up(self, read: CustomerSaved) -> None:
        if self._manifest is not None and self._manifest.terms != self._terms:
            raise JournalError(
                f"the snapshot of the customer is of run {self._manifest.terms.run}, this is run "
                f"{self._terms.run}. "
                "Give each run a journal of its own."
            )
        self._end, self._settled, self._steps = read.end, read.settled, read.steps
        self.pulls, self.total, self.refused = read.pulls, read.total, read.refused
