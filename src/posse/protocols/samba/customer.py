"""The data customer: it pays the budget, admits the parties, and alone reads the total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posse.core.errors import DisagreementError, JournalError, ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import OPERATOR, Action, Message, Note
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.keys import Identity, Secrets, verify
from posse.privacy.crypto.paillier import Ciphertext, PrivateKey
from posse.protocols.samba.messages import Close, Consents, End, Go, Offer, Proposal, Roster, Spent, Total
from posse.protocols.samba.owner import MODULUS, SLOT, close_bytes
from posse.protocols.samba.setup import (
    CONTROLLER,
    CUSTOMER,
    Expected,
    Handlers,
    Participant,
    ParticipantSaved,
    Terms,
    check_members,
    join_bytes,
    make_manifest,
)


class CustomerSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the customer."""

    closed: bool
    early: list[str] | None
    """Owners that were left when the run was ended early."""
    pulls: Count
    total: float | None


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
        self._key = key
        self._closed = False
        self._early: tuple[str, ...] | None = None
        self.pulls = 0
        """Pulls that the total is of."""
        self.total: float | None = None
        self._handlers: Handlers = {Roster: self._on_roster, Consents: self._on_consents, Spent: self._on_spent,
                          Total: self._on_total}  # fmt: skip

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
        names = [join.name for join in joins]
        if sorted(names) != sorted(expected):
            missing = sorted(set(expected) - set(names)) or "none"
            raise DisagreementError(
                f"expected {len(expected)} parties, got {len(names)} (missing: {missing}). Give controller and "
                "customer the same owners."
            )
        check_members(joins, self._terms.level)
        for join in joins:
            if join.identity != expected[join.name]:
                raise ProtocolError(f"'{join.name}' joins with an identity that was not admitted.")
            verify(join.identity, b"join", join_bytes(join.name, join.kind, join.run_key), join.signature)
        body = msgspec.msgpack.encode(make_manifest(self._terms, joins))
        offer = Offer(body, self._identity.sign(b"manifest", body))
        self.consider(offer)
        return self.to_controller(offer)

    def _on_consents(self, message: Consents) -> Sequence[Action]:
        """Start when everyone signed this manifest."""
        consents = {consent.name: consent for consent in message.consents}
        for member in self.manifest.members:
            if member.name == CUSTOMER:
                continue
            if member.name not in consents:
                raise ProtocolError(f"'{member.name}' has not signed the manifest.")
            verify(member.identity, b"consent", self._digest, consents[member.name].signature)
        go = Go(self._identity.sign(b"go", self._digest))
        self.go(go)
        return self.to_controller(go)

    def _on_spent(self, message: Spent) -> Sequence[Action]:
        """Ask the owners that are present for their sums, once."""
        if self._closed or not self._going or self.manifest.terms.level == "paper":
            raise ProtocolError("the sums are asked for once, after the budget is spent.")
        if sorted(message.present) != sorted(self.manifest.owners):
            raise ProtocolError(f"expected {len(self.manifest.owners)} owners at the end, got {len(message.present)}.")
        self._closed = True
        signed = self._identity.sign(b"close", close_bytes(message.present, self._digest))
        return self.to_controller(self._asked(Close(message.present, signed)))

    def _asked(self, close: Close) -> Close:
        """Remember what was asked for."""
        return close

    def _on_end(self, message: End) -> Sequence[Action]:
        """End the run before its budget is spent, with the owners that are left; what the others earned is absent."""
        owners, present = self.manifest.owners, tuple(sorted(set(message.present)))
        if self._closed or not self._going or self.manifest.terms.level == "paper":
            raise ProtocolError("a run can be ended early once, while it is going on, not at level 'paper'.")
        least = min(3, len(owners))
        if not set(present) <= set(owners) or len(present) < least:
            raise ProtocolError(f"a run ends with at least {least} of its owners, got {', '.join(present) or 'none'}.")
        self._closed, self._early = True, present
        signed = self._identity.sign(b"close", close_bytes(present, self._digest, early=True))
        return self.to_controller(self._asked(Close(present, signed, early=True)))

    def _on_total(self, message: Total) -> Sequence[Action]:
        """Decrypt, and check the pull count and the range (7)."""
        terms = self.manifest.terms
        if self.total is not None or not (self._closed if terms.level != "paper" else self._going):
            raise ProtocolError("the total is known already, or was not asked for yet.")
        if "paillier" in terms.off:
            plaintext = int.from_bytes(message.ciphertext, "big")
        else:
            assert self._key is not None
            plaintext = self._key.decrypt(Ciphertext.from_bytes(message.ciphertext, self._key.public_key))
        if terms.level == "paper":
            return self._settle(plaintext, terms.budget)
        return self._settle(*divmod(plaintext % MODULUS, SLOT))

    def _settle(self, units: int, pulls: int) -> Sequence[Action]:
        """Check the pull count and the range, and know the total."""
        terms, self.pulls = self.manifest.terms, pulls
        if self.pulls > terms.budget or (self._early is None and self.pulls != terms.budget):
            raise ProtocolError(f"expected {terms.budget} pulls in the total, got another number: a sum was altered.")
        if not 0 <= units <= self.pulls * REWARD_ONE:
            raise ProtocolError("the total is outside its range: a sum was altered.")
        self.total = units / REWARD_ONE
        return (Note(self.name, "total", self.pulls, self.total),)

    @property
    def ended_early(self) -> tuple[str, ...] | None:
        """The owners over which the total is, where the run was ended before its budget was spent."""
        return self._early

    @property
    def finished(self) -> bool:
        """Whether the total is known."""
        return self.total is not None

    def state(self) -> dict[str, object]:
        """What the customer may see: the total, when there is one."""
        done = {} if self.total is None else {"step": self.pulls}
        return {"horizon": self._terms.budget, "unit": "pull", "total": self.total, **done}

    def save(self) -> dict[str, Any]:
        """Return the whole state."""
        return pack(CustomerSaved(**self._common()))

    def _common(self) -> dict[str, Any]:
        early = None if self._early is None else list(self._early)
        return {**self._saved(), "closed": self._closed, "early": early, "pulls": self.pulls, "total": self.total}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._take_up(self._loaded(saved, CustomerSaved))

    def _take_up(self, read: CustomerSaved) -> None:
        if self._manifest is not None and self._manifest.terms != self._terms:
            raise JournalError(
                f"the snapshot of the customer is of run {self._manifest.terms.run}, this is run {self._terms.run}. "
                "Give each run a journal of its own."
            )
        self._closed, self.total, self.pulls = read.closed, read.total, read.pulls
        self._early = None if read.early is None else tuple(read.early)
