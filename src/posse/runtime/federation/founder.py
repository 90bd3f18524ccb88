"""What the founder's service does beside its own part: the queue of runs, renewals, the revocation
list.

    authority/queue/run-<number>.json   a proposal, how far it is, and what every member said of it
    authority/queue/addresses.json      where members listen, as they said last
    authority/queue/restored.json       there while a queue from a backup may lack runs

A run is proposed by the founder, by a member whose certificate says customer, or by one that the
founder's [consent] names. It waits until it is its turn, is shown to everyone it names, and starts
when all have agreed. One that a member refuses, or that fails at one, is dropped for all, with the
reason. It is over when the parts of all are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core import files
from posse.core.errors import (
    BudgetError,
    CertificateError,
    ConfigError,
    JournalError,
    PosseError,
    ProtocolError,
)
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import REVOKED as LIST
from posse.runtime.certificates.authority import Authority
from posse.runtime.certificates.register import CertificateRow
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.member import Member
from posse.runtime.federation.talk import (
    ACCEPTED,
    DROPPED,
    ENDED,
    FAILED,
    OVER,
    PROPOSED,
    QUEUE,
    REFUSED,
    STARTED,
    Line,
    Past,
    Proposal,
    Report,
    Sheet,
    Signed,
)
from posse.runtime.network.connection import printable
from posse.runtime.network.vouching import RESTORED
from posse.runtime.place import address

ADDRESSES = "addresses.json"
QUEUED = "queued"
PROPOSES = "customer"
"""Role whose members may propose runs."""
LARGEST = 100_000
"""Bytes of a proposal that the queue takes."""
MOST_OF_ONE = 20
"""Runs of one member that may be in the queue and not over."""
_FINAL = (OVER, DROPPED)


@dataclass(eq=False)
class Item:
    """One run of the queue."""

    number: int
    signed: Signed
    members: dict[str, str]
    """Role of everyone who takes part, by name."""
    listeners: tuple[str, ...]
    """Those of them that others call."""
    phase: str = QUEUED
    text: str = ""
    """Why it was dropped."""
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What each member last said of it: a state, and why."""
    without: tuple[str, ...] = ()
    proposer: str = ""
    """Member that proposed it; the founder if empty."""
    reads: dict[str, list[str]] = field(default_factory=dict)
    """Members whose certificates a member's part reads, by name."""
    ends_at: str | None = None
    """Member whose part can end it without others."""
    began: bool = False
    """Whether it ever started."""

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.signed.proposal.run

    def state_of(self, member: str) -> str:
        """Return what a member last said."""
        return self.answers.get(member, ("", ""))[0]


class Founder:
    """Keeps the queue, and answers members; `tell` sends the sheet of a member that is
    connected.
    """

    def __init__(self, member: Member, authority: Authority, tell: Callable[[str], None]) -> None:
        self.member, self.authority, self._tell = member, authority, tell
        _ = authority.key  # a passphrase is asked for now
        self.folder = authority.folder / QUEUE
        files.make_private_folder(self.folder)
        self.items: list[Item] = []
        self.addresses: dict[str, str] = {}
        """Where members listen, as they said last."""
        self._list_read = 0
        self._demands: dict[str, Demand | None] = {}
        self._read()

    def _read(self) -> None:
        for path in sorted(self.folder.glob("run-*.json")):
            try:
                kept = json.loads(path.read_text())
                kept["signed"] = Signed.read(kept["signed"])
                kept["answers"] = {
                    name: (state, why) for name, (state, why) in kept["answers"].items()
                }
                kept["listeners"], kept["without"] = (
                    tuple(kept["listeners"]),
                    tuple(kept["without"]),
                )
                self.items.append(Item(**kept))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise JournalError(
                    f"{path} cannot be read: {error}. Restore it from a copy."
                ) from error
        with suppress(OSError, ValueError):
            self.addresses = json.loads((self.folder / ADDRESSES).read_text())
        self.addresses[self.member.name] = self.member.address

    def _keep(self, item: Item) -> None:
        document = {**vars(item), "signed": item.signed.word}
        path = self.folder / f"run-{item.number:06d}.json"
        files.write_whole(path, json.dumps(document).encode(), mode=files.PRIVATE)

    # The queue ------------------------------------------------------------------------------------

    def submit(self, values: Mapping[str, Any]) -> Item:
        """Put a run of the founder's into the queue; the same one again is found there."""
        proposal = Proposal.make(self.member.identity.run, values)
        return self._enter(proposal, "", lambda: Signed.sign(proposal, self.member.identity))

    def propose(self, name: str, signed: Signed) -> Item:
        """Put a run of a member's into the queue, if it may propose one."""
        if len(signed.body) > LARGEST:
            raise ProtocolError(f"a proposal may have {LARGEST:,} bytes, got {len(signed.body):,}.")
        proposal, proposer = signed.check(self.member.identity, self.authority.now())
        if proposer != name:
            raise ProtocolError(f"the proposal is signed by '{proposer}', and '{name}' sent it.")
        consent = self.member.place.consent()
        if self.members().get(name) != PROPOSES and name not in (
            () if consent is None else consent.customers
        ):
            raise BudgetError(
                f"'{name}' may not propose runs: its certificate says no {PROPOSES}, and the "
                "founder's [consent] does "
                "not name it under customers."
            )
        going = sum(item.proposer == name and item.phase not in _FINAL for item in self.items)
        if going >= MOST_OF_ONE and not any(item.run == proposal.run for item in self.items):
            raise BudgetError(
                f"'{name}' has {going} runs in the queue, which takes {MOST_OF_ONE}. Let some end."
            )
        return self._enter(proposal, name, lambda: signed)

    def _enter(self, proposal: Proposal, proposer: str, sign: Callable[[], Signed]) -> Item:
        for item in self.items:
            if item.run == proposal.run:
                earlier = item.signed.proposal
                if (earlier.settings, earlier.system, item.proposer) != (
                    proposal.settings,
                    proposal.system,
                    proposer,
                ):
                    raise ConfigError(
                        f"a run called '{item.run}' was proposed before. Give this one another "
                        "name."
                    )
                return item
        invitation = self.member.systems.invite(proposal.system, proposal.values)
        present = self.members()
        for name, role in invitation.members.items():
            if present.get(name) != role:
                there = f"is {present[name]}" if name in present else "is no member"
                raise ConfigError(
                    f"the run needs {role} '{name}', which {there} of the federation. Members: "
                    f"{', '.join(f'{each} ({kind})' for each, kind in sorted(present.items()))}."
                )
        listeners = tuple(name for name, part in invitation.files.items() if part["listens"])
        number = max((item.number for item in self.items), default=0) + 1
        reads = {
            name: list(part.get("certificates", ())) for name, part in invitation.files.items()
        }
        item = Item(
            number,
            sign(),
            invitation.members,
            listeners,
            proposer=proposer,
            reads=reads,
            ends_at=invitation.ends_at,
        )
        self._keep(item)
        self.items.append(item)
        self.advance()
        return item

    def cancel(self, run: str) -> None:
        """Drop a run that is not over."""
        item = self.find(run)
        if item.phase in _FINAL:
            raise ConfigError(f"run '{run}' is {item.phase} already.")
        self._drop(item, "it was cancelled")
        self.advance()

    def find(self, run: str) -> Item:
        """Return a run of the queue."""
        for item in self.items:
            if item.run == run:
                return item
        raise ConfigError(
            f"there is no run '{run}' in the queue. Known: "
            f"{', '.join(each.run for each in self.items)}."
        )

    def members(self) -> dict[str, str]:
        """Role of every member with a certificate in force, by name."""
        return {row.name: row.role for row in self._in_force()}

    def _in_force(self) -> list[CertificateRow]:
        now = self.authority.now()
        return [
            row
            for row in self.authority.register.certificates()
            if row.revoked is None and now < row.expires
        ]

    def advance(self) -> None:
        """Do what follows from what is known now; whoever is concerned gets a new sheet."""
        present, concerned = self.members(), set[str]()
        for item in self.items:
            before = (item.phase, item.without)
            self._step(item, present)
            if (item.phase, item.without) != before:
                self._keep(item)
                concerned |= set(item.members)
        going = sum(item.phase in (PROPOSED, STARTED) for item in self.items)
        for item in self.items:
            if item.phase == QUEUED and going < self.member.file.at_once:
                item.phase, item.signed = PROPOSED, self._fresh(item)
                self._keep(item)
                concerned |= set(item.members)
                going += 1
        for name in concerned:
            self._tell(name)

    def _fresh(self, item: Item) -> Signed:
        """Return a proposal with its proposer's certificate of today: that of the day it was made
        may have ended.
        """
        if not item.proposer:
            return Signed.sign(item.signed.proposal, self.member.identity)
        before = making.public_key(x509.load_der_x509_certificate(item.signed.certificate))
        rows = [
            row
            for row in self._in_force()
            if (row.name, row.key) == (item.proposer, making.fingerprint(before))
        ]
        newest = max(rows, key=lambda row: row.expires, default=None)
        return (
            item.signed
            if newest is None
            else Signed(item.signed.body, item.signed.signature, newest.certificate)
        )

    def _step(self, item: Item, present: Mapping[str, str]) -> None:
        """Do what follows for one run."""
        if item.phase in _FINAL:
            return
        gone = tuple(
            name for name in item.members if name not in present and item.state_of(name) != OVER
        )
        if gone and item.phase == STARTED and item.ends_at not in (None, *gone):
            item.without = gone
        if why := _why_dropped(item, present, gone):
            self._drop(item, why)
            return
        states = {item.state_of(name) for name in item.members if name not in gone}
        if (
            item.phase == PROPOSED
            and states == {ACCEPTED}
            and all(map(self.addresses.get, item.listeners))
        ):
            item.phase, item.began = STARTED, True
        elif item.phase == STARTED and states == {OVER}:
            item.phase = OVER

    def _drop(self, item: Item, why: str) -> None:
        item.phase, item.text = DROPPED, why
        self._keep(item)
        for name in item.members:
            self._tell(name)

    # Sheets and reports ---------------------------------------------------------------------------

    def sheet(self, name: str) -> Sheet:
        """Return what a member is to know now."""
        shown = {
            row.name: row.certificate
            for row in sorted(self._in_force(), key=lambda row: row.expires)
        }
        lines = [
            Line(
                item.signed,
                item.phase,
                {peer: self.addresses[peer] for peer in item.listeners if self.addresses.get(peer)},
                item.without,
                {
                    peer: shown[peer]
                    for peer in item.reads.get(name, ())
                    if peer in shown and item.phase == PROPOSED
                },
            )
            for item in self.items
            if name in item.members
            and item.phase != QUEUED
            and not (item.phase in _FINAL and item.state_of(name) in ENDED)
        ]
        return Sheet(tuple(lines), self.authority.current_crl().public_bytes(Encoding.DER))

    @property
    def restored(self) -> bool:
        """Whether the queue came from a backup, and its operator has not said yet that it has all
        runs.
        """
        return (self.folder / RESTORED).exists()

    def complete(self) -> None:
        """Take the operator's word that a restored queue has all runs."""
        (self.folder / RESTORED).unlink()
        files.sync_folder(self.folder)

    def history(self, name: str) -> tuple[Past, ...]:
        """Return every run that started with a member in it, what it last said of it and what the
        run asked.
        """
        began = [
            item
            for item in self.items
            if name in item.members and (item.began or item.phase in (STARTED, OVER))
        ]
        return tuple(
            Past(item.run, item.signed.digest, item.state_of(name), self._demand(item))
            for item in began
        )

    def _demand(self, item: Item) -> Demand | None:
        digest, proposal = item.signed.digest, item.signed.proposal
        if digest not in self._demands:
            self._demands[digest] = None
            with suppress(PosseError):
                self._demands[digest] = self.member.systems.invite(
                    proposal.system, proposal.values
                ).demand()
        return self._demands[digest]

    def take(self, name: str, report: Report) -> None:
        """Take what a member says."""
        if report.address and self.addresses.get(name) != report.address:
            address(report.address)
            self.addresses[name] = report.address
            files.write_whole(self.folder / ADDRESSES, json.dumps(self.addresses).encode())
            for item in self.items:
                if item.phase == STARTED and name in item.listeners:
                    for other in item.members:
                        self._tell(other)
        for entry in report.entries:
            for item in self.items:
                if item.signed.digest == entry.digest and name in item.members:
                    answer = (entry.state, printable(entry.text))
                    if item.answers.get(name) != answer:
                        item.answers[name] = answer
                        self._keep(item)
        self.advance()

    # Members --------------------------------------------------------------------------------------

    def renew(self, name: str, certificate: bytes, csr: bytes) -> bytes:
        """Sign a member's key again; a new one only between its runs, whose parties know the old
        one.
        """
        before = making.public_key(x509.load_der_x509_certificate(certificate))
        if making.fingerprint(making.requested_key(csr)) != making.fingerprint(
            before
        ) and self._in_run(name):
            raise CertificateError(
                f"'{name}' is in a run, whose parties know its key. Renew the same key.", "in-run"
            )
        return self.authority.renew(certificate, csr).public_bytes(Encoding.DER)

    def revoke_older(self, name: str, certificate: bytes) -> None:
        """Revoke certificates of a member for keys before the one that it now shows."""
        shown = x509.load_der_x509_certificate(certificate)
        rows = [
            row
            for row in self.authority.register.certificates()
            if row.name == name and row.revoked is None
        ]
        mark = making.fingerprint(making.public_key(shown))
        issued = next(
            (row.issued for row in rows if row.serial == f"{shown.serial_number:x}"), None
        )
        for row in rows:
            if (
                issued is not None
                and row.key != mark
                and row.issued <= issued
                and not self._in_run(name)
            ):
                self.authority.revoke(row.serial)

    def leave(self, name: str) -> None:
        """Let a member go that is in no run."""
        if self._in_run(name):
            raise ConfigError(
                f"'{name}' is in a run. Let it end, or have the founder expel '{name}'."
            )
        self.authority.revoke(name)

    def expel(self, name: str) -> None:
        """Revoke a member; runs that it is in end without it where they can, and are dropped where
        they cannot.
        """
        if name == self.member.name:
            raise ConfigError("the founder cannot expel itself.")
        self.authority.revoke(name)

    def _in_run(self, name: str) -> bool:
        return any(
            item.phase in (PROPOSED, STARTED) and name in item.members for item in self.items
        )

    def list_changed(self) -> bool:
        """Whether the authority's revocation list is another one than at the last look."""
        changed = (self.authority.folder / LIST).stat().st_mtime_ns
        known, self._list_read = self._list_read, changed
        return known != changed

    def overview(self, connected: Collection[str]) -> dict[str, Any]:
        """Return members and runs, for the operator."""
        present = self.members()
        return {
            "members": {
                name: {"role": role, "connected": name in connected or name == self.member.name}
                for name, role in sorted(present.items())
            },
            "runs": [self.shown(item, connected) for item in self.items],
            "queue_restored": self.restored,
        }

    def shown(self, item: Item, connected: Collection[str]) -> dict[str, Any]:
        """Return how far a run is, and who is waited for."""
        wanted = {PROPOSED: (ACCEPTED,), STARTED: (OVER,)}.get(item.phase, ())
        there = [name for name in item.members if name not in item.without]
        pending = [
            name for name in there if wanted and item.state_of(name) not in (*wanted, *ENDED)
        ]
        absent = [name for name in pending if name not in connected and name != self.member.name]
        waiting = dict.fromkeys(absent, "is not connected")
        if item.phase == STARTED:
            halted = {
                name: item.answers[name][1]
                for name in pending
                if name in item.answers and name not in absent
            }
            waiting |= {
                name: f"its part stands still: {why}" for name, why in halted.items() if why
            }
        if item.phase == PROPOSED:
            waiting |= {name: "has not answered" for name in pending if name not in absent}
            missing = [
                name
                for name in item.listeners
                if not self.addresses.get(name) and name not in waiting
            ]
            waiting |= dict.fromkeys(missing, "has not said where it listens")
        return {
            "run": item.run,
            "system": item.signed.proposal.system,
            "phase": item.phase,
            "text": item.text,
            "number": item.number,
            "waiting": waiting,
            "without": list(item.without),
        }


def _why_dropped(item: Item, present: Collection[str], gone: Collection[str]) -> str:
    """Say why a run cannot go on; empty where it can. `gone` are those of it that have left."""
    lacks = f"{', '.join(gone)} is no member any more"
    if item.phase != STARTED:
        if item.proposer and item.proposer not in present:
            return f"{item.proposer}, who proposed it, is no member any more"
        if gone:
            return lacks
    elif gone and item.ends_at in (None, *gone):
        return f"{lacks}, and the run cannot end without"
    for name, (state, why) in item.answers.items():
        if state in (REFUSED, FAILED) and name not in gone:
            return f"{name} {state}: {why}"
    return ""


def open_founder(
    member: Member, passphrase: Callable[[], bytes] | None, tell: Callable[[str], None]
) -> Founder:
    """Open the founder's side of a service whose file names an authority."""
    folder = member.file.authority
    assert folder is not None
    authority = Authority(member.folder / folder, passphrase=passphrase)
    if authority.run != member.identity.run:
        raise ConfigError(
            f"the authority is of federation '{authority.run}', the identity of "
            f"'{member.identity.run}'."
        )
    return Founder(member, authority, tell)
