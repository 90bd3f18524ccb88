"""`posse party`: run one party, and what an operator asks of a running party."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.groups import OLD
from posse.cli.operators import service
from posse.cli.operators.watch import (
    cannot_listen,
    failing_source,
    outcome_line,
    status_of,
    wait_for,
)
from posse.cli.screen import print_json, remark, say, table
from posse.core.errors import ConfigError, LinkError, PosseError, UnconfirmedError
from posse.core.files import forbid_core_dumps, write_whole
from posse.core.settings import read_toml
from posse.results.store import default_path
from posse.runtime import backup as backups
from posse.runtime.federation import care
from posse.runtime.federation.place import ServiceFile
from posse.runtime.network import health, operate
from posse.runtime.network.deployment import Deployment
from posse.runtime.network.doctor import Finding, examine
from posse.runtime.network.health import Status
from posse.runtime.place import ONE_LISTENS, PartyFile, Place, address, open_place
from posse.systems import parties
from posse.version import __version__

STOPPING = 12.0
"""Seconds that `posse party stop` waits for the end of the party."""


def start(file: Path, *, record_view: bool = False) -> None:
    """Run one party until its part is over.

    Started again, it continues where it was.

    Options:
        file (FILE): The party's file.
        record_view: Record what this party sees, for 'posse audit'; pass the flag at every start.

    Examples:
        posse party clinic-b.toml
        posse party clinic-b.toml --record-view
    """
    forbid_core_dumps()
    place = open_place(file)
    if record_view:
        record = place.file.record.model_copy(update={"view": True})
        place = replace(place, file=place.file.model_copy(update={"record": record}))
    log = operate.json_log(place.identity.name, least=place.file.log)
    try:
        log("started", role=place.identity.role, run=place.run, version=__version__)
        if parties.read_result(place.journal):
            remark(
                "its part was over before; it stays a few seconds for others that miss its last "
                "messages."
            )
        result = asyncio.run(parties.run_and_record(place, _reachable, remark))
    except UnconfirmedError:
        say(outcome_line(parties.read_result(place.journal)))
        raise
    except KeyboardInterrupt:
        remark(f"interrupted; continue with: posse party {file}")
        raise typer.Exit(INTERRUPTED) from None
    except PosseError as error:
        log("failed", code=error.code, why=error.text)
        raise
    except OSError as error:
        cannot_listen(error, file)
    if result:
        log("finished")
        say(outcome_line(result))
    else:
        log("stopped")
        say(f"stopped before the end; continue with: posse party {file}")


def _reachable(place: Place, deployment: Deployment) -> Deployment:
    """Refuse a file with which the party would wait forever for a peer."""
    unreachable = sorted(set(deployment.peers) - set(place.file.connect))
    if unreachable and place.file.listen is None:
        raise ConfigError(
            f"neither listen nor [connect] gives a way to '{unreachable[0]}'. {ONE_LISTENS}",
            rule="cli.listen.no-way-to-peer",
        )
    remark(*deployment.remarks)
    return deployment


# A running party ----------------------------------------------------------------------------------


def _journal(file: Path) -> Path:
    return file.resolve().parent / PartyFile.make(file=file).journal


def _command(file: Path, command: str) -> Status:
    """Ask a running party; an error names the outcome of a party that has finished."""
    journal = _journal(file)
    try:
        answer: Status = asyncio.run(operate.ask(journal, command))
    except LinkError:
        result = parties.read_result(journal)
        if result and not health.not_answering(journal):
            raise LinkError(
                f"it does not run any more: {outcome_line(result)}.", rule="cli.party.not-running"
            ) from None
        raise
    return answer


def status(file: Path, *, json: flags.Json = False) -> None:
    """Show how far a party is, and for whom it waits.

    Of a service it shows what 'posse federation queue' shows.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party status clinic-b.toml
        posse party status clinic-b.toml --json
    """
    if service.is_service(file):
        service.queue(file, json=json)
        return
    try:
        answer = _command(file, "status")
    except LinkError as error:
        _print_status_at_rest(file, error, json)
        return
    if json:
        print_json({"running": True, **answer})
    else:
        _print_status(file, answer)


def _print_status(file: Path, answer: Status) -> None:
    leaves = "; it leaves when others have its last messages" if answer["finished"] else ""
    manifest = answer.get("digest", "")
    if manifest:
        manifest += " (all parties must see the same: compare by telephone)"
    facts = {
        "state": f"{health.words(answer)}{leaves}",
        "progress": health.progress(answer),
        **{name: str(answer[name]) for name in ("role", "run", "version", "pid")},
        "manifest": manifest,
    }
    table(("party", answer["party"]), [(name, text) for name, text in facts.items() if text])
    for peer, why in answer["waiting"].items():
        say(f"waiting for: {peer} ({why})", style="yellow")
    source = answer.get("source")
    if source:
        say(failing_source(answer["party"], source, file), style="yellow")
    if answer["over"]:
        say(f"over for: {', '.join(answer['over'])}")


def _print_status_at_rest(file: Path, error: LinkError, json: bool) -> None:
    """Print what the folder of a party has that does not answer; a finished party is no error."""
    journal = _journal(file)
    resting = health.at_rest(journal)
    result = parties.read_result(journal)
    is_finished = bool(result) and not resting["running"]
    if not json:
        if not is_finished:
            raise error
        say(f"finished, and does not run any more: {outcome_line(result)}")
        return
    if is_finished:
        print_json({**resting, "finished": True, "state": "finished", "result": result})
        return
    state = "not answering" if resting["running"] else "not running"
    print_json({**resting, "finished": False, "state": state})
    raise typer.Exit(1)


def pause(file: Path) -> None:
    """Hold a running party; the others wait for it.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party pause clinic-b.toml
        posse party resume clinic-b.toml
    """
    _command(file, "pause")
    say(f"paused, and the run with it; continue with: posse party resume {file}")


def resume(file: Path) -> None:
    """Let a paused party continue.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party resume clinic-b.toml
    """
    _command(file, "resume")
    say("resumed")


def end(file: Path, *, without: str = "") -> None:
    """End a run early, with the parties that are left.

    Only some parties may do this. What absent parties earned is not in the result. Until all that
    are left have acknowledged it, another end corrects it.

    Options:
        file (FILE): The party's file.
        without (NAME,...): Parties that are gone, with commas between.

    Examples:
        posse party end customer.toml
        posse party end customer.toml --without clinic-b,clinic-c
    """
    try:
        _command(file, f"end {without}")
    except LinkError as error:
        if operate.NO_COMMAND not in error.text:
            raise
        role = _command(file, "status")["role"]
        raise ConfigError(
            f"the part of this {role} cannot end the run. Ask the operator of a party that can: "
            "the deployment page of the system names it.",
            rule="cli.party.cannot-end",
        ) from None
    answer = "asked to end; it ends when all that are left have acknowledged"
    if without:
        answer += ", and a total over some of them is labelled so"
        remark(
            "if another party is gone after all, correct it with: posse party end "
            f"{file} --without NAME,..."
        )
    say(answer)


def update(file: Path) -> None:
    """Take changed files in a run, such as a price list.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party update producer-1.toml
    """
    try:
        _command(file, "change")
    except LinkError:
        if asyncio.run(status_of(file)):
            raise
        parties.reread_inputs(file)
    say("taken: the files hold from the next decision on")


def stop(file: Path) -> None:
    """Stop a running party or service.

    Started again, it continues where it was.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party stop clinic-b.toml
    """
    if service.is_service(file):
        service.stop_service(file)
        return
    _command(file, "stop")
    if not wait_for(lambda: not asyncio.run(status_of(file)), STOPPING):
        raise LinkError(
            f"the party was asked to stop and still answers after {STOPPING:g} s. See its log.",
            rule="cli.party.not-stopped",
        )
    command = health.starts(_journal(file))
    # A party that a service runs is started by that service.
    whose = str(file) if command == "posse party" else "with the file of its service"
    say(f"stopped; continue with: {command} {whose}")


def doctor(file: Path, *, json: flags.Json = False) -> None:
    """Check a party or service, and print what to fix.

    It looks at the file, identity, journal, peers, source and systemd units.

    Options:
        file (FILE): The party's file.

    Examples:
        posse party doctor clinic-b.toml
        posse party doctor clinic-b.toml --json
    """
    is_service = file.exists()
    result: Status = {}
    # A file that cannot be read is a finding, and so is what follows for a service.
    with suppress(PosseError):
        is_service = is_service and service.is_service(file)
        result = {} if is_service else parties.read_result(_journal(file))
    if is_service:
        findings = care.examine(file)
    else:
        findings = examine(
            file, lambda name: parties.deploy_by_name(name).build, is_over=bool(result)
        )
    findings += [Finding("systemd", False, text) for text in units_with_old_names()]
    if json:
        print_json([{"what": each.what, "fine": each.fine, "said": each.said} for each in findings])
    else:
        marks = {True: "ok", False: "FIX"}
        table(
            ("", "what", "finding"),
            [(marks[each.fine], each.what, each.said) for each in findings],
        )
    if not all(each.fine for each in findings):
        raise typer.Exit(1)


# Backups ------------------------------------------------------------------------------------------


def backup(file: Path, *, out: Path | None = None) -> None:
    """Write a backup of a party or a whole service.

    The party may run meanwhile. The backup is as secret as the keys in it.

    Options:
        file (FILE): The party's file.
        out (-o PATH): Where the backup goes; next to the party's file if not given.

    Examples:
        posse party backup clinic-b.toml
        posse party backup clinic-b.toml --out clinic-b.backup
    """
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out = out or file.with_name(f"{file.stem}-{when}.backup")
    if service.is_service(file):
        archived = care.backup(file, out)
        of = f"the service of {archived.role} '{archived.party}' in federation {archived.run}"
        state = "with all its runs"
    else:
        archived = backups.make(file, out)
        of = f"{archived.role} '{archived.party}' of run {archived.run}"
        state = "in the middle of its run" if archived.begun else "not started"
        if archived.finished:
            state = "its part is over"
    say(f"{out}: {of}, {state}")
    remark("it holds private keys: keep it where only you can read it.")


def restore(archive: Path, file: Path, *, without_journal: bool = False) -> None:
    """Restore a party from a backup.

    In a run, its peers must confirm that it went no further.

    Options:
        archive (BACKUP): The backup.
        file (FILE): The party's file.
        without_journal: Restore file and identity only, for the party's next run.

    Examples:
        posse party restore clinic-b.backup clinic-b.toml
        posse party restore clinic-b.backup clinic-b.toml --without-journal
    """
    check = f"check it with: posse party doctor {file}"
    if backups.read(archive)[0].kind == "service":
        if without_journal:
            raise ConfigError(
                "a service is restored with all its runs. Leave --without-journal out.",
                rule="cli.without_journal.of-a-service",
            )
        archived, notes = care.restore(archive, file)
        of = f"the service of {archived.role} '{archived.party}' in federation {archived.run}"
        notes = [*notes, f"{check}; start it with: posse party serve {file}"]
    else:
        archived = backups.restore(archive, file, journal=not without_journal)
        of = f"{archived.role} '{archived.party}' of run {archived.run}"
        notes = [check]
        if without_journal:
            notes.insert(0, "without its journal, it can take part only in another run.")
        elif archived.begun and not archived.finished:
            notes.insert(
                0,
                "once started, it asks every peer whether the run has continued since the backup, "
                "and continues only if it has not.",
            )
    say(f"restored {of}, as it was at {archived.made}")
    remark(*notes)


# systemd ------------------------------------------------------------------------------------------


def unit(file: Path, *, user: str = "posse", serve: bool = False, out: Path | None = None) -> None:
    """Write a systemd unit for a party or a service.

    The unit has limits, and as few rights as it needs.

    Options:
        file (FILE): The party's file.
        user (TEXT): The user that runs it; one per party.
        serve: The file is a service's ('posse party serve').
        out (-o PATH): Where the unit goes; stdout if not given.

    Examples:
        posse party unit clinic-b.toml
        posse party unit clinic-b.toml --user clinic --out clinic-b.service
    """
    # A file that would not start gets no unit.
    if serve or service.is_service(file):
        command = "party serve"
        ServiceFile.make(file=file)
    else:
        command = "party start"
        PartyFile.make(file=file)
    program = Path(sys.executable).with_name("posse")
    text = unit_text(file, user, command, program, default_path().parent)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_whole(out, text.encode(), replace=False)
    say(
        f"{out}; check it with 'systemd-analyze verify {out}', then: systemctl enable --now "
        f"{out.name}"
    )


def unit_text(file: Path, user: str, command: str, program: Path, home: Path) -> str:
    """Render a unit. The party may write its journal, its identity and its store, nothing else."""
    folder = file.resolve().parent
    values = read_toml(file)
    listen = values.get("listen")
    capability = ""
    if isinstance(listen, str) and address(listen)[1] < 1024:
        capability = "CAP_NET_BIND_SERVICE"
    if command == "party serve":
        values = {"runs": "runs", **values}
    names = {"identity", "journal", "runs", "authority"} & values.keys()
    writable = [*(folder / str(values[name]) for name in sorted(names)), home]
    lines = [
        f"User={_escaped(user)}",
        f"ExecStart={_quoted(program)} {command} {_quoted(file.resolve()).replace('$', '$$')}",
        f"WorkingDirectory={_escaped(str(folder))}",
        f"Environment={_quoted(f'POSSE_HOME={home}')}",
        f"ReadWritePaths={' '.join(_quoted(path, '-') for path in writable)}",
        f"AmbientCapabilities={capability}",
        f"CapabilityBoundingSet={capability}",
    ]
    description = f"Posse {command} {_escaped(file.stem)}"
    return _UNIT.format(description=description, service="\n".join(lines))


_UNIT = """[Unit]
Description={description}
Wants=network-online.target
After=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
{service}
Environment=OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
Restart=on-failure
RestartSec=10
TimeoutStopSec=20
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
UMask=0077
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
LimitNOFILE=4096
LimitCORE=0
TasksMax=64
MemoryMax=1G

[Install]
WantedBy=multi-user.target
"""
"""No MemoryDenyWriteExecute: compiled functions are written to memory and run there."""


def _escaped(text: str) -> str:
    """Return a text of a unit: `%` begins a specifier there, and a new line ends the value."""
    return " ".join(text.split()).replace("%", "%%")


def _quoted(path: Path | str, prefix: str = "") -> str:
    r"""Quote one word of a unit.

    >>> print(_quoted("/srv/a b/50%"))
    "/srv/a b/50%%"
    """
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{prefix}{text}"'


UNIT_FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("~/.config/systemd/user"),
)
"""Where units of an operator are."""
_CALL = re.compile(r'^Exec\w+=.*?\bposse"?\s+([a-z]+)\b', re.MULTILINE)


def units_with_old_names() -> list[str]:
    """Return one sentence for each unit that can be read and starts Posse by an old name."""
    sentences = []
    for folder in UNIT_FOLDERS:
        for unit_file in sorted(folder.expanduser().glob("*.service")):
            with suppress(OSError):
                text = unit_file.read_text(encoding="utf-8", errors="replace")
                sentences += [
                    f"{unit_file} calls 'posse {word}', which works until Posse 0.3. Write "
                    f"'posse {OLD[word]}'."
                    for word in _CALL.findall(text)
                    if word in OLD
                ]
    return sentences
