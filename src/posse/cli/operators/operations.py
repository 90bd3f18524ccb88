"""`posse party backup`, `posse party restore` and `posse party unit`: what an operator keeps of a party, and how a
machine runs it.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from posse.cli.names import OLD
from posse.cli.operators.living import is_service
from posse.cli.screen import remark, say
from posse.core.errors import ConfigError
from posse.core.files import write_whole
from posse.core.settings import read_toml

File = Annotated[Path, typer.Argument(help="The party's file.", metavar="FILE")]
Archive = Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")]
Out = Annotated[
    Path | None, typer.Option(help="Where the backup goes; next to the party's file if not given.")
]
User = Annotated[str, typer.Option(help="The user that runs it; one for each party.")]
Serve = Annotated[
    bool, typer.Option("--serve", help="The file is a service's ('posse party serve').")
]
UnitOut = Annotated[
    Path | None, typer.Option("--out", help="Where the unit goes; stdout if not given.")
]
WithoutJournal = Annotated[
    bool,
    typer.Option(
        "--without-journal", help="Restore file and identity only, for the party's next run."
    ),
]


def backup(file: File, out: Out = None) -> None:
    """Write a backup of a party or a whole service.

    The party may run meanwhile. The backup is as secret as the keys in it.

    Examples:
        posse party backup clinic-b.toml
        posse party backup clinic-b.toml --out clinic-b.backup
    """
    from posse.runtime.backup import make
    from posse.runtime.federation import care

    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out = out or file.with_name(f"{file.stem}-{when}.backup")
    if is_service(file):
        archived = care.backup(file, out)
        say(
            f"{out}: the service of {archived.role} '{archived.party}' in federation {archived.run}, with all "
            "its runs"
        )
        remark("it holds the member's keys: keep it where only you can read it.")
        return
    archived = make(file, out)
    state = "not started"
    if archived.finished:
        state = "its part is over"
    elif archived.begun:
        state = "in the middle of its run"
    say(f"{out}: {archived.role} '{archived.party}' of run {archived.run}, {state}")
    remark("it holds the party's keys: keep it where only you can read it.")


def restore(archive: Archive, file: File, without_journal: WithoutJournal = False) -> None:
    """Restore a party from a backup.

    In a run, its peers must confirm that it went no further.

    Examples:
        posse party restore clinic-b.backup clinic-b.toml
        posse party restore clinic-b.backup clinic-b.toml --without-journal
    """
    from posse.runtime.backup import read, restore
    from posse.runtime.federation import care

    if read(archive)[0].kind == "service":
        if without_journal:
            raise ConfigError(
                "a service is restored with all its runs. Leave --without-journal out.",
                rule="cli.without_journal.of-a-service",
            )
        service, notes = care.restore(archive, file)
        say(
            f"restored the service of {service.role} '{service.party}' in federation "
            f"{service.run}, of {service.made}"
        )
        for note in notes:
            remark(note)
        remark(
            f"check it with 'posse party doctor {file}', start it with: posse party serve {file}"
        )
        return
    archived = restore(archive, file, journal=not without_journal)
    say(
        f"restored {archived.role} '{archived.party}' of run {archived.run}, as it was at {archived.made}"
    )
    if without_journal:
        remark("without its journal: it can take part in another run, not in this one.")
    elif archived.begun and not archived.finished:
        remark(
            "started, it asks every peer whether the run has continued since, and continues only if "
            "none has."
        )
    remark(f"check it with: posse party doctor {file}")


def unit(file: File, user: User = "posse", serve: Serve = False, out: UnitOut = None) -> None:
    """Write a systemd unit for a party or a service.

    The unit has limits, and as few rights as it needs.

    Examples:
        posse party unit clinic-b.toml
        posse party unit clinic-b.toml --user clinic --out clinic-b.service
    """
    from posse.results.store import default_path
    from posse.runtime.federation.place import ServiceFile
    from posse.runtime.place import PartyFile

    # A file that would not start gets no unit.
    if serve or is_service(file):
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
    """Render a unit: what the party writes is its journal, its identity and its store, and nothing
    else.
    """
    from posse.runtime.place import address

    folder = file.resolve().parent
    values = read_toml(file)
    listen = values.get("listen")
    low = isinstance(listen, str) and address(listen)[1] < 1024
    if command == "party serve":
        values = {"runs": "runs", **values}
    names = [name for name in ("identity", "journal", "runs", "authority") if name in values]
    writable = [*(folder / str(values[name]) for name in names), home]
    capability = "CAP_NET_BIND_SERVICE" if low else ""
    lines = {
        "Unit": [
            f"Description=Posse {command} {_plain(file.stem)}",
            "Wants=network-online.target",
            "After=network-online.target time-sync.target",
            "StartLimitIntervalSec=0",
        ],
        "Service": [
            f"User={_plain(user)}",
            f"ExecStart={_quoted(program)} {command} {_quoted(file.resolve()).replace('$', '$$')}",
            f"WorkingDirectory={_plain(str(folder))}",
            f"Environment={_quoted(f'POSSE_HOME={home}')}",
            "Environment=OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1",
            "Restart=on-failure",
            "RestartSec=10",
            "TimeoutStopSec=20",
            f"ReadWritePaths={' '.join(_quoted(path, '-') for path in writable)}",
            f"AmbientCapabilities={capability}",
            f"CapabilityBoundingSet={capability}",
            *_HARDENED,
        ],
        "Install": ["WantedBy=multi-user.target"],
    }
    return "\n".join("\n".join([f"[{name}]", *rows, ""]) for name, rows in lines.items())


UNIT_FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("~/.config/systemd/user"),
)
"""Where units of an operator are."""


def units_with_old_names() -> list[str]:
    """Return one sentence for each unit that can be read and starts Posse by an old name."""
    sentences = []
    for folder in UNIT_FOLDERS:
        with suppress(OSError):
            for unit_file in sorted(folder.expanduser().glob("*.service")):
                sentences += _old_names_in(unit_file)
    return sentences


def _old_names_in(unit_file: Path) -> list[str]:
    try:
        text = unit_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    commands = re.findall(r'^Exec\w+=.*?\bposse"?\s+([a-z]+)\b', text, re.MULTILINE)
    return [
        f"{unit_file} calls 'posse {word}', which works until Posse 0.3. Write 'posse {OLD[word]}'."
        for word in commands
        if word in OLD
    ]


_HARDENED = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RemoveIPC=yes",
    "LockPersonality=yes",
    "UMask=0077",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    "SystemCallErrorNumber=EPERM",
    "LimitNOFILE=4096",
    "LimitCORE=0",
    "TasksMax=64",
    "MemoryMax=1G",
)
"""No MemoryDenyWriteExecute: compiled functions are written to memory and run there."""


def _plain(text: str) -> str:
    """Text of a unit: `%` begins a specifier there, and a line ends it."""
    return " ".join(text.split()).replace("%", "%%")


def _quoted(path: Path | str, prefix: str = "") -> str:
    r"""Quote one word of a unit.

    >>> print(_quoted("/srv/a b/50%"))
    "/srv/a b/50%%"
    """
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{prefix}{text}"'
