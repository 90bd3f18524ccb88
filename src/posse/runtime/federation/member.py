"""A member's service: it answers proposals, takes part in runs, and keeps its certificate in force.

    runs/member.json, lock      whose runs these are, and which process serves (`place`)
    runs/ledger.json            what all runs have asked of this member
    runs/<run>/run.json         the proposal, and what this member made of it
    runs/<run>/party.toml       the party's file: the proposal's options, and this member's own
    runs/<run>/journal          its journal, as of any party

Each run is a party of its own in this process, with a journal of its own. Killed and started again,
the service reads run.json of every run, and goes on with those that have started, exactly.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core import files
from posse.core.errors import ConfigError, JournalError, PosseError, ProtocolError, UnconfirmedError
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import utc_now
from posse.runtime.certificates.identity import CERTIFICATE, KEY, load_pair, ssl_contexts
from posse.runtime.federation.consent import Consent, Ledger
from posse.runtime.federation.place import open_service
from posse.runtime.federation.talk import (
    ACCEPTED,
    DROPPED,
    ENDED,
    FAILED,
    OVER,
    PROPOSED,
    REFUSED,
    STARTED,
    Entry,
    Invite,
    Line,
    Past,
    Report,
    Sheet,
    Signed,
)
from posse.runtime.local import AUTHORITY, to_toml
from posse.runtime.network.connection import printable
from posse.runtime.network.deployment import Build, Checker, Deployment, Service, check_effect
from posse.runtime.network.health import OF_SERVICE
from posse.runtime.network.links import BehindError
from posse.runtime.network.party import Party
from posse.runtime.place import ONE_LISTENS, Place, open_place

RUN, FILE = OF_SERVICE, "party.toml"
_PART = ".part-"
"""Begins the name of a run's folder until this member has agreed."""
_RETRY, _LONGEST_RETRY = 1.0, 60.0


@dataclass(frozen=True)
class Systems:
    """What a service asks of the systems, by name."""

    invite: Invite
    build: Callable[[str], Build]
    run: Callable[[Place, Service], Awaitable[Mapping[str, Any]]]
    """Runs a party and keeps its record; returns its result, empty where it was stopped."""


@dataclass(eq=False)
class Part:
    """What this member made of one run."""

    signed: Signed
    state: str
    text: str = ""
    """Why it refused or failed; of one that has started, why its party stands still."""
    began: bool = False
    """Whether it ever started: what it asked of this member is then spent."""
    ended_without: tuple[str, ...] = ()
    """Parties without which this member has asked the run to end."""
    party: Party | None = field(default=None, repr=False)
    made: Deployment | None = field(default=None, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    again: bool = False
    """Whether its party is to be started again when it has stopped."""
    public_text: str = ""
    """What the founder reads in place of `text`, if `text` has the value of a limit."""

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.signed.proposal.run


class Member:
    """Takes part in runs: the founder's sheets say which, and its reports say what became of
    them.
    """

    def __init__(self, path: Path, systems: Systems, log: Callable[..., None]) -> None:
        """Take the folder of runs, which no other process may have open, and read it."""
        self.place = place = open_service(path)
        place.check_private()
        self.file, self.folder, self.identity, self.runs = (
            place.file,
            place.folder,
            place.identity,
            place.runs,
        )
        self.systems, self.log, self.stopping = systems, log, False
        self.contexts: tuple[ssl.SSLContext, ssl.SSLContext] = ssl_contexts(self.identity)
        self.check = Checker(self.identity, utc_now)
        self.parts: dict[str, Part] = {}
        self.parties: dict[str, Party] = {}
        """Parties that run now, by run."""
        self.uncounted: tuple[str, ...] = ()
        """Runs since a backup of which the founder cannot say what they asked."""
        self._refused: dict[Signed, Part] = {}
        self._lock: int | None = place.take()
        try:
            self.ledger = Ledger(self.runs)
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the folder of runs."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def name(self) -> str:
        """Name of this member."""
        return self.identity.name

    @property
    def busy(self) -> bool:
        """Whether it is in a run, or has agreed to one."""
        return any(part.state not in ENDED for part in self.parts.values())

    # What is on the disk --------------------------------------------------------------------------

    def _read(self) -> None:
        for folder in self.runs.glob(f"{_PART}*"):
            shutil.rmtree(folder)  # a kill came while a proposal was looked at
        for path in sorted(self.runs.glob(f"*/{RUN}")):
            try:
                kept = json.loads(path.read_text())
                signed = Signed.read(kept["signed"])
                part = Part(
                    signed, kept["state"], kept["text"], kept["began"], tuple(kept["ended_without"])
                )
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise JournalError(
                    f"{path} cannot be read: {error}. Restore it from a copy."
                ) from error
            if part.state == DROPPED and not part.began:
                self._forget(part)  # a kill came between
            else:
                self.parts[signed.digest] = part

    def _keep(self, part: Part, folder: Path | None = None) -> None:
        """Write what was made of a run; it counts when it is on the disk."""
        document = {
            "signed": part.signed.word,
            "state": part.state,
            "text": part.text,
            "began": part.began,
            "ended_without": part.ended_without,
        }
        path = (folder or self.runs / part.run) / RUN
        files.write_whole(path, json.dumps(document).encode(), mode=files.PRIVATE)

    def _forget(self, part: Part) -> None:
        """Give back what a run would have asked that never started, and remove its folder."""
        self.ledger.release(part.signed.digest)
        shutil.rmtree(self.runs / part.run, ignore_errors=True)
        self.parts.pop(part.signed.digest, None)

    def recalled(self, runs: Iterable[Past]) -> None:
        """Enter in a restored ledger what the founder knows of, and end parts that ended after the
        backup.
        """
        spent, uncounted = {}, []
        for past in runs:
            part, demand = self.parts.get(past.digest), past.demand
            if demand is not None and min(demand.decisions, demand.epsilon, demand.delta) >= 0:
                spent[past.digest] = demand
            elif self.ledger.knows(past.digest):
                self.ledger.start(past.digest)
            else:  # this member's operator is asked
                uncounted.append(printable(past.run))
            if part is not None and part.state not in ENDED and past.state in ENDED:
                part.state, part.began, part.text = (
                    past.state,
                    True,
                    "it ended after the backup it was restored from",
                )
                self._keep(part)
                if part.party is not None:
                    part.party.stop()
        self.ledger.recall(spent, whole=not uncounted)
        self.uncounted = tuple(uncounted)

    # Sheets and reports ---------------------------------------------------------------------------

    async def take(self, sheet: Sheet) -> Report:
        """Do what a sheet says, and return what was made of every run on it."""
        await asyncio.to_thread(self.adopt, sheet.revoked)
        self.cut_revoked()
        return Report(self.address, tuple([await self._line(line) for line in sheet.lines]))

    @property
    def address(self) -> str:
        """Where others reach this member."""
        return self.file.address or self.file.listen or ""

    async def _line(self, line: Line) -> Entry:
        digest = line.signed.digest
        part = self.parts.get(digest)
        if part is None:
            if line.phase != PROPOSED:
                self.ledger.release(digest)
                return Entry(
                    digest,
                    REFUSED if line.phase == STARTED else DROPPED,
                    "it was not agreed to here",
                )
            if line.signed not in self._refused:
                part = await asyncio.to_thread(self._decide, line)
            part = part or self._refused[line.signed]
        elif part.state == ACCEPTED and line.phase == STARTED:
            await asyncio.to_thread(self._write_file, part, line)
            self.ledger.start(digest)
            part.state, part.began = STARTED, True
            self._keep(part)
            self.launch(part)
        elif part.state == ACCEPTED and line.phase in (DROPPED, OVER):
            part.state = DROPPED
            self._keep(part)
            self._forget(part)
        elif part.state == STARTED and line.phase == DROPPED:
            part.state = DROPPED
            self._keep(part)
            if part.party is not None:
                part.party.stop()
        elif part.state == STARTED:
            await self._go_on(part, line)
        return Entry(
            digest,
            part.state,
            part.public_text or part.text if part.state in (STARTED, REFUSED, FAILED) else "",
        )

    async def _go_on(self, part: Part, line: Line) -> None:
        """Follow a peer that has moved, and end a run without those that were expelled where this
        party may.
        """
        if await asyncio.to_thread(self._write_file, part, line) and part.party is not None:
            part.again = True
            part.party.stop()
        end = None if part.made is None else part.made.commands.get("end")
        if (
            end is not None
            and part.party is not None
            and set(line.without) - set(part.ended_without)
        ):
            try:
                part.party.instruct(end(",".join(line.without)))
                part.ended_without = line.without
            except BehindError:
                return  # the next sheet tries again
            except PosseError as error:
                part.state, part.text = (
                    FAILED,
                    f"it cannot end without {', '.join(line.without)}: {error.text}",
                )
                part.party.stop()
            self._keep(part)

    def _decide(self, line: Line) -> Part:
        """Agree to a proposal, or say why not; what it asks is in the ledger before this
        returns.
        """
        signed, made = line.signed, Part(line.signed, REFUSED)
        try:
            proposal, proposer = signed.check(self.identity, utc_now())
            if (
                any(other.run == proposal.run for other in self.parts.values())
                or (self.runs / proposal.run).exists()
            ):
                raise ConfigError(
                    f"a run called '{proposal.run}' was here before. Give it another name."
                )
            own = proposer == self.name
            limits = self._limits(own)
            demand = self.systems.invite(proposal.system, proposal.values).demand()
            limits.check(demand, proposer, self.file.founder)
            folder = self.runs / f"{_PART}{proposal.run}"
            try:
                self._write_file(made, line, folder)
                self._try(folder / FILE, proposal.system)
                # Read again: to build a party takes its time, and a file that is just written may
                # have half its limits.
                self.ledger.reserve(
                    signed.digest, demand, self._limits(own), proposer, self.file.founder
                )
                made.state = ACCEPTED
                self._keep(made, folder)
                folder.rename(self.runs / proposal.run)
                files.sync_folder(self.runs)
            except BaseException:
                self.ledger.release(signed.digest)
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self.parts[signed.digest] = made
        except (PosseError, OSError) as error:
            made.state, made.text = (
                REFUSED,
                error.text if isinstance(error, PosseError) else str(error),
            )
            if isinstance(error, PosseError):
                made.public_text = error.public_text
            self._refused[signed] = made
        self.log(made.state, run=_run_of(signed), why=made.text)
        return made

    def _limits(self, own: bool) -> Consent:
        """Return what this member agrees to now; its own proposals too are within its limits."""
        limits = self.place.consent()
        if limits is None and not own:
            raise ConfigError(
                "this member has no [consent] in its file, and so agrees to no run of others. "
                "Add [consent]."
            )
        consent = limits or Consent()
        return (
            consent.model_copy(update={"customers": (*consent.customers, self.name)})
            if own
            else consent
        )

    def _try(self, path: Path, system: str) -> None:
        """Build the party once, to see what is wrong with it before the run has begun."""
        place = open_place(path)
        place.journal.mkdir(mode=0o700, exist_ok=True)
        check_effect(place.file, self.systems.build(system)(place))

    def _write_file(self, part: Part, line: Line, folder: Path | None = None) -> bool:
        """Write the party's file of a run: what the proposal says for this party, and what is its
        own.
        """
        proposal = line.signed.proposal
        invitation = self.systems.invite(proposal.system, proposal.values)
        mine = invitation.files.get(self.name)
        if mine is None or mine["role"] != self.identity.role:
            raise ConfigError(
                f"the run has no part for '{self.name}' with the role {self.identity.role}. Name "
                "it in the run, or correct its role."
            )
        if mine["listens"] and self.file.listen is None:
            raise ConfigError(
                f"the {mine['role']} of a run listens, and the file of this service has no listen. "
                f"{ONE_LISTENS}"
            )
        options, own = dict(mine["options"]), self.place.absolute(self.file.options)
        if other := next(
            (name for name in sorted(own) if name in options and options[name] != own[name]), None
        ):
            raise ConfigError(
                f"{other} is {options[other]} in the run, and {own[other]} in the file of "
                f"'{self.name}'. Change one of them."
            )
        if (
            options.get("authority") == AUTHORITY
        ):  # one that is not the founder has the certificates beside its file
            folder_of = self.file.authority
            options["authority"] = (
                "." if folder_of is None else str((self.folder / folder_of).resolve())
            )
        known = {**line.addresses, **self.file.connect}
        source = (
            None
            if invitation.simulated or self.file.source is None
            else self.place.absolute(self.file.source)
        )
        values = {
            "protocol": proposal.system,
            "identity": str((self.folder / self.file.identity).resolve()),
            "role": mine["role"],
            "run": proposal.run,
            "journal": "journal",
            "sync": self.file.sync,
            "listen": self.file.listen if mine["listens"] else None,
            "proxy": self.file.proxy,
            "options": {**options, **own},
            "source": source,
            "connect": {peer: known[peer] for peer in mine["connect"] if peer in known},
            "consent": mine.get("consent"),
        }
        folder, text = folder or self.runs / proposal.run, to_toml(values).encode()
        unknown = set(mine["connect"]) - set(
            known
        )  # the founder has just started, and its members have not called yet
        if (folder / FILE).exists() and ((folder / FILE).read_bytes() == text or unknown):
            return False
        files.make_private_folder(folder)
        for name, certificate in line.certificates.items():
            peer = self.identity.check(certificate, utc_now())
            if (peer.name, peer.role) != (name, invitation.members.get(name)):
                raise ConfigError(f"the certificate of '{name}' is that of {peer}.")
            files.make_private_folder(folder / name)
            pem = x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
            files.write_whole(folder / name / CERTIFICATE, pem)
        files.write_whole(folder / FILE, text, mode=files.PRIVATE)
        return True

    # Runs -----------------------------------------------------------------------------------------

    def launch(self, part: Part) -> None:
        """Run the party of a run, if it does not run."""
        if part.task is None or part.task.done():
            part.task = asyncio.get_running_loop().create_task(self._take_part(part))

    def absent(self, run: str) -> str:
        """Say why a run has no party here; one that is over comes back for a peer that misses its
        last messages.
        """
        part = next((each for each in self.parts.values() if each.run == run), None)
        if part is None:
            return f"run '{run}' is not known"
        if part.state == OVER:
            self.launch(part)
        return f"'{self.name}' has {part.state} run '{run}'"

    async def _take_part(self, part: Part) -> None:
        """Run a party to its end; what an operator can mend is tried again."""
        wait = _RETRY
        service = Service(self.contexts, partial(self._began, part), self.log)
        while True:
            part.again, failure = False, ""
            try:
                result = await self.systems.run(open_place(self.runs / part.run / FILE), service)
            except UnconfirmedError as error:
                self.log("unfinished", run=part.run, why=error.text)
                if self.stopping:
                    return
                continue
            except ProtocolError as error:  # with a disagreement among them
                result, failure = {}, error.text
            except (PosseError, OSError) as error:
                part.text = error.text if isinstance(error, PosseError) else str(error)
                self.log("stopped", run=part.run, why=part.text)
                self.changed()
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_RETRY)
                if self.stopping or part.state in (
                    DROPPED,
                    FAILED,
                ):  # it was dropped while it stood still
                    return
                continue
            finally:
                self.parties.pop(part.run, None)
                part.party = part.made = None
            if part.again and not self.stopping:
                continue
            if part.state == STARTED and (result or failure):
                part.state, part.text = (FAILED, failure) if failure else (OVER, "")
                self._keep(part)
                self.log(part.state, run=part.run, why=failure)
                self.changed()
            return

    def changed(self) -> None:
        """Called when something is to be reported; replaced by who reports it."""

    def _began(self, part: Part, party: Party, made: Deployment) -> None:
        part.party, part.made = party, made
        if part.text:
            part.text = ""
            self.changed()
        self.parties[part.run] = party

    async def stop(self) -> None:
        """Stop all parties cleanly: what they are at is in their journals."""
        self.stopping = True
        for party in list(self.parties.values()):
            party.stop()
        tasks = [
            part.task
            for part in self.parts.values()
            if part.task is not None and not part.task.done()
        ]
        for task in (await asyncio.wait(tasks, timeout=8))[1] if tasks else ():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # Certificates ---------------------------------------------------------------------------------

    def adopt(self, revoked: bytes) -> None:
        """Keep a newer revocation list of the authority's."""
        crl = self.identity.adopted(revoked).crl
        self.identity = replace(
            self.identity, crl=crl
        )  # beside the loop, where it may have been renewed meanwhile

    def cut_revoked(self) -> None:
        """Hang up on peers whose certificates were revoked since they connected."""
        for party in self.parties.values():
            for connection in list(party.connections.values()):
                shown = connection.certificate
                serial = x509.load_der_x509_certificate(shown).serial_number if shown else 0
                if (
                    serial
                    and self.identity.crl.get_revoked_certificate_by_serial_number(serial)
                    is not None
                ):
                    connection.hang_up("its certificate was revoked")

    @property
    def renewal_due(self) -> bool:
        """Whether the certificate is to be renewed now."""
        return making.renewal_due(self.identity.certificate, self.file.renew, utc_now())

    def request(self, *, new_key: bool | None = None) -> bytes:
        """Ask for a new certificate: for the same key while in a run, else for a new one where the
        key is old.
        """
        age = utc_now().timestamp() - (self.identity.folder / KEY).stat().st_mtime
        wanted = age > self.file.key_days * 86_400 if new_key is None else new_key
        if new_key and self.busy:
            raise ConfigError(
                "this member cannot change its key during a run, whose parties know the key. "
                "Renew the same key, or wait until the run is over."
            )
        return self.identity.request(new_key=wanted and not self.busy)

    def renewed(self, certificate: bytes) -> None:
        """Take a new certificate; connections that stand go on, the next ones show it."""
        self.identity = self.identity.renewed(certificate, utc_now())
        load_pair(self.identity, *self.contexts)
        self.log("renewed", until=self.identity.certificate.not_valid_after_utc.isoformat())


def _run_of(signed: Signed) -> str:
    with suppress(PosseError):
        return signed.proposal.run
    return "?"
