"""What the operator of a service looks at and keeps: its doctor, figures for a monitor, its backup.

A backup holds the service's file, its identity, its ledger and every run with its journal; at the
founder the authority and the queue too. It can be made while the service runs. Restoring never
reuses randomness nor passes a limit unasked:

* a journal in the middle of its run is marked, and its party asks its peers whether they have gone
  on (`vouching`);
* entries of the ledger that is there stay; where there is none, the service answers no proposal
  until the founder has said which runs this member was in since;
* a queue that is restored knows no run since its backup, so the founder says nothing of runs until
  its operator has said that the queue has all of them (`posse federation queue FILE --complete`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from posse.core import files
from posse.core.errors import DataError, JournalError, PosseError
from posse.runtime import backup as backups
from posse.runtime import journal as journals
from posse.runtime.certificates.authority import REGISTER, Authority
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.certificates.making import renewal_due
from posse.runtime.door import Door
from posse.runtime.federation.consent import LEDGER, Consent, Ledger
from posse.runtime.federation.listener import NOT_YET
from posse.runtime.federation.place import ServiceFile, ServicePlace, check_whose, open_service
from posse.runtime.federation.talk import ENDED, QUEUE, STARTED
from posse.runtime.metrics import CONTENT_TYPE, Metric, Page, gauge, process, serve, write
from posse.runtime.metrics import folder as folder_figures
from posse.runtime.network import doctor, operate
from posse.runtime.network.doctor import Finding
from posse.runtime.network.health import OF_SERVICE, Status, not_answering
from posse.runtime.network.leaving import waited_for
from posse.runtime.network.vouching import RESTORED, backup_time
from posse.version import __version__

if TYPE_CHECKING:
    from posse.runtime.federation.service import Living

SERVICE = "service.toml"
JOURNAL, RUN = "journal", OF_SERVICE


# Doctor -------------------------------------------------------------------------------------------


def examine(path: Path) -> list[Finding]:
    """Check a service: file, identity, founder, ledger, every run that goes on, ports and process;
    starts nothing.
    """
    try:
        place = open_service(path)
    except PosseError as error:
        return [Finding("file and identity", False, error.text), *_unread(path)]
    file, folder, identity, runs = place.file, place.folder, place.identity, place.runs
    status = doctor.status_of(runs)
    if other := _another(place, status):
        return [other]
    return [
        Finding("version", True, f"posse {__version__}"),
        *_identity(identity, file, status),
        *_consent(place, status),
        *(_authority(folder / file.authority, identity) if file.authority is not None else ()),
        *_runs(runs),
        doctor.disk(runs),
        *_ways(identity, file, status),
        *_process(runs, status),
    ]


def _unread(path: Path) -> Iterator[Finding]:
    try:
        ServiceFile.make(file=path)
    except PosseError:
        yield Finding(
            "consent",
            False,
            "a service that runs with it refuses every proposal until it can be read",
        )


def _another(place: ServicePlace, status: Status) -> Finding | None:
    """Name a folder of runs, or a process, that is another member's: nothing else there says
    anything of this one.
    """
    try:
        place.check_whose()
        place.check_answers(status)
    except PosseError as error:
        return Finding("runs", False, error.text)
    return None


def _consent(place: ServicePlace, status: Status) -> Iterator[Finding]:
    """Say what is in force: [consent] as it is now, and the rest as it was when the service
    started.
    """
    file, given = place.file, place.file.consent or Consent()
    limits = ", ".join(
        f"{name} = {_plain(value)}" for name, value in given if value not in (None, ())
    )
    nothing = "no [consent]: it agrees to nothing but what it proposes itself"
    yield Finding(
        "consent", True, nothing if file.consent is None else limits or "[consent] without a limit"
    )
    if status.get("edited"):
        yield Finding("file", False, status["edited"])
    try:
        place.check_private()
    except PosseError as error:
        yield Finding("file with a password", False, error.text)


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _identity(identity: PartyIdentity, file: ServiceFile, status: Status) -> Iterator[Finding]:
    late = renewal_due(identity.certificate, file.renew, datetime.now(UTC))
    words = f"until {identity.certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
    if late:
        why = status.get("renewal") or "no service runs that renews it"
        words += f", to be renewed: {why}. See that the founder is reached, before it ends"
    yield Finding(
        "identity", True, f"{identity.role} '{identity.name}' of federation {identity.run}"
    )
    yield Finding("certificate", not late, words)
    yield from doctor.authority(identity)


def _authority(folder: Path, identity: PartyIdentity) -> Iterator[Finding]:
    try:
        authority = Authority(folder)
        known = authority.register.certificates()
        waiting = len(list((folder / QUEUE).glob("run-*.json")))
        fine = authority.run == identity.run
        said = f"of federation {authority.run}, {len(known)} certificates, {waiting} runs in all"
        if (folder / QUEUE / RESTORED).exists():
            said += (
                "; of a backup: when these are all runs that there were, say so with 'posse federation queue "
                "FILE --complete'"
            )
        yield Finding(
            "authority's folder",
            fine,
            said if fine else f"{said}: not that of this identity. Correct it",
        )
    except (PosseError, OSError) as error:
        yield Finding("authority's folder", False, str(error))


def _runs(runs: Path) -> Iterator[Finding]:
    try:
        ledger = Ledger(runs) if runs.exists() else None
    except JournalError as error:
        yield Finding("ledger", False, error.text)
        return
    if ledger is None:
        yield Finding("runs", True, "none yet")
        return
    spent = ledger.spent
    words = f"{spent.runs} runs, {spent.decisions:,} decisions"
    if ledger.restored:
        words += (
            "; of a backup: no proposal is answered until the founder has said which runs there "
            "were since"
        )
        words += ", and this member's operator of those that cannot be counted ('posse federation queue FILE')"
    yield Finding("ledger", True, words)
    for path in sorted(runs.glob(f"*/{RUN}")):
        try:
            kept = json.loads(path.read_text())
            if kept["state"] in ENDED:
                continue
            found = journals.look(path.parent / JOURNAL)
            made = backup_time(path.parent / JOURNAL)
            restored = (
                f"; of a backup of {made}: it goes on when all peers say that the run has not"
                if made
                else ""
            )
            why = f": {kept['text']}" if kept["text"] else ""
            yield Finding(
                f"run {path.parent.name}",
                not why,
                f"{kept['state']}, {found.size:,} bytes{restored}{why}",
            )
        except (PosseError, OSError, ValueError, LookupError, TypeError) as error:
            yield Finding(f"run {path.parent.name}", False, f"{error}. Restore it from a copy")


def _ways(identity: PartyIdentity, file: ServiceFile, status: Status) -> Iterator[Finding]:
    what = f"way to {file.founder}"
    home = status.get("home", NOT_YET)
    if file.home is not None and home == "connected":
        yield Finding(what, True, home)
    elif file.home is not None:
        # The founder may take the call and refuse the member: its service has been told so, a look
        # from here is not.
        found = doctor.way(identity, file.founder, file.home, file.proxy, None)
        yield Finding(what, False, home) if found.fine and home != NOT_YET else found
    for name in ("listen", "enrol", "metrics"):
        if (text := getattr(file, name)) is not None:
            yield doctor.listening(name, text, status)


def _process(runs: Path, status: Status) -> Iterator[Finding]:
    if status:
        yield Finding("process", True, f"{status['pid']}, posse {status['version']}")
        for run, part in status["parts"].items():
            if part["state"] == "started":
                yield Finding(f"part in {run}", not part["text"], part["text"] or "goes on")
        return
    frozen = not_answering(runs)
    yield Finding("process", not frozen, frozen or "none; start it with 'posse party serve'")


# Figures for a monitor ----------------------------------------------------------------------------


async def serve_pages(living: Living, host: str, port: int) -> Door:
    """Serve /metrics and /health of a service over plain HTTP; bind it where only a monitor can
    reach it.
    """

    def health() -> Page:
        shown = _health(living)
        fine = "200 OK" if shown["healthy"] else "503 Service Unavailable"
        return Page(json.dumps(shown), "application/json", fine)

    pages = {"/metrics": lambda: Page(figures(living), CONTENT_TYPE), "/health": health}
    return await serve(
        pages, host, port, lambda address, why: living.log("refused", peer=address, why=why)
    )


def _health(living: Living) -> Status:
    """Whether the founder is there, and how far runs are; never whose answer is awaited."""
    member, home = (
        living.member,
        living.founder is not None or living.member.file.founder in living.control.connections,
    )
    runs = {part.run: part.state for part in member.parts.values()}
    halted = [part.run for part in member.parts.values() if part.state == STARTED and part.text]
    waiting = {run: waits for run, party in member.parties.items() if (waits := waited_for(party))}
    return {
        "service": member.name,
        "federation": member.identity.run,
        "version": __version__,
        "healthy": home and not member.ledger.restored and not halted and not waiting,
        "founder": home,
        "runs": runs,
        "halted": halted,
        "waiting": waiting,
    }


def figures(living: Living) -> str:
    """Write a service's own figures, and those of each run that goes on, with its name as a
    label.
    """
    member = living.member
    spent, states = member.ledger.spent, [part.state for part in member.parts.values()]
    labels = {"party": member.name, "role": member.identity.role, "run": ""}
    own = chain(
        gauge(
            "posse_founder_connected",
            "1 while the founder is reached.",
            int(_health(living)["founder"]),
        ),
        gauge(
            "posse_members_connected",
            "Members that are connected, at the founder.",
            None if living.founder is None else len(living.control.connections),
        ),
        (
            Metric(
                "posse_runs",
                "gauge",
                "Runs by their state.",
                tuple(({"state": state}, states.count(state)) for state in sorted(set(states))),
            ),
        )
        if states
        else (),
        gauge("posse_spent_runs", "Runs in the ledger.", spent.runs),
        gauge("posse_spent_decisions", "Decisions that runs have asked in all.", spent.decisions),
        operate.certificate(member.identity.folder),
        folder_figures(member.runs),
        process(),
    )
    of_runs = [(run, list(operate.of_run(party))) for run, party in sorted(member.parties.items())]
    return write(_merged([("", list(own)), *of_runs], labels))


def _merged(
    groups: Iterable[tuple[str, list[Metric]]], labels: Mapping[str, str]
) -> Iterator[Metric]:
    """Put figures of one name together, as the format wants it."""
    found: dict[str, list[Metric]] = {}
    for run, metrics in groups:
        for one in metrics:
            samples = tuple(({**labels, "run": run, **own}, value) for own, value in one.samples)
            found.setdefault(one.name, []).append(Metric(one.name, one.kind, one.help, samples))
    for same in found.values():
        yield Metric(
            same[0].name, same[0].kind, same[0].help, tuple(chain(*(one.samples for one in same)))
        )


# Backup -------------------------------------------------------------------------------------------


def backup(path: Path, out: Path) -> backups.Backup:
    """Write a backup of a service, which may run meanwhile."""
    place = open_service(path)
    place.check_whose()
    file, folder, identity, runs = place.file, place.folder, place.identity, place.runs
    held = {SERVICE: path.read_bytes(), **backups.read_folder(identity.folder, "identity")}
    begun = False
    for each in sorted(each.parent for each in runs.glob(f"*/{RUN}")):
        journal, under = each / JOURNAL, f"runs/{each.name}"
        held |= backups.read_folder(each, under, journal) | backups.read_folder(
            journal, f"{under}/{JOURNAL}"
        )
        copy = journals.copy(journal)
        held |= {f"{under}/{JOURNAL}/{name}": data for name, data in copy.files.items()}
        begun |= copy.first is not None
    if (runs / LEDGER).exists():  # after the runs: it holds all that they have asked
        held[f"runs/{LEDGER}"] = (runs / LEDGER).read_bytes()
    if file.authority is not None:
        held |= _authority_files(folder / file.authority)
    made = backups.Backup(
        identity.name,
        identity.role,
        identity.run,
        datetime.now(UTC).isoformat(timespec="seconds"),
        __version__,
        False,
        begun,
        "service",
    )
    backups.write(out, made, held)
    return made


def _authority_files(folder: Path) -> dict[str, bytes]:
    """Return the files of an authority; its register as one transaction sees it."""
    held = {
        name: data
        for name, data in backups.read_folder(folder, "authority").items()
        if REGISTER not in name
    }
    with closing(sqlite3.connect(f"file:{folder / REGISTER}?mode=ro", uri=True)) as database:
        held[f"authority/{REGISTER}"] = database.serialize()
    return held


def restore(archive: Path, path: Path) -> tuple[backups.Backup, list[str]]:
    """Put a service back where its file says; returns what it is of, and what to know of it."""
    made, held = backups.read(archive)
    if made.kind != "service":
        raise DataError(
            f"{archive} is the backup of a {made.kind}. Give the {made.kind}'s file with it."
        )
    if not path.exists():
        files.write_whole(path, held[SERVICE], mode=files.PRIVATE)
    file, folder = ServiceFile.make(file=path), path.resolve().parent
    runs, identity = folder / file.runs, folder / file.identity
    check_whose(runs, made.run, made.party, path)
    if pid := journals.holder(runs):
        raise JournalError(
            f"process {pid} serves {path}, and a running service needs no backup. Stop it first."
        )
    backups.check_identity(made, identity)
    files.make_private_folder(runs)
    notes = (
        _restore_authority(made, held, folder / file.authority)
        if file.authority is not None
        else []
    )
    for name, data in held.items():
        if name.startswith("identity/"):
            backups.put(identity / name.partition("/")[2], data, keep=True)
    names = {
        name.split("/")[1] for name in held if name.startswith("runs/") and name.count("/") > 1
    }
    for run in sorted(names):
        inside = {
            name.split("/", 2)[2]: data
            for name, data in held.items()
            if name.startswith(f"runs/{run}/")
        }
        notes += _restore_run(made, inside, runs / run)
    kept = json.loads(held.get(f"runs/{LEDGER}", b'{"runs": {}, "started": []}'))
    Ledger(runs).adopt(kept, newest=(runs / LEDGER).exists())
    return made, notes


def _restore_run(made: backups.Backup, held: dict[str, bytes], folder: Path) -> list[str]:
    """Put one run back; a journal that is there and as new stays, and its run with it."""
    begun = any(name.startswith((f"{JOURNAL}/journal-", f"{JOURNAL}/snapshot-")) for name in held)
    marked = begun and json.loads(held[RUN])["state"] not in ENDED
    notes = [
        f"run '{folder.name}': it asks its peers whether they have gone on since, and goes on only "
        "if not"
    ]
    try:
        backups.check_older(held, folder / JOURNAL)
    except JournalError:
        if marked and backups.same_journal(held, folder / JOURNAL):  # it may come from this backup
            backups.mark(made, folder / JOURNAL)
            return notes
        return [f"run '{folder.name}': what is there is as new as the backup, or newer, and stays"]
    if marked:  # first: a restore that is killed leaves no journal without its mark
        backups.mark(made, folder / JOURNAL)
    for name, data in held.items():
        backups.put(folder / name, data)
    return notes if marked else []


def _restore_authority(made: backups.Backup, held: dict[str, bytes], folder: Path) -> list[str]:
    if folder.exists():
        return [f"{folder} is there and stays as it is"]
    backups.mark(made, folder / QUEUE)
    for name, data in held.items():
        if name.startswith("authority/"):
            backups.put(folder / name.partition("/")[2], data)
    return [
        f"the authority is that of {made.made}: revoke again who was expelled since, and members "
        "that enrolled or "
        "renewed since need new tokens",
        "the queue knows no run since: look at it, and say with 'posse federation queue FILE --complete' that "
        "these are all; "
        "restored members and the founder's own ledger wait for that",
    ]
