"""`posse party unit`: how systemd runs a party or a service, and units that use old names."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

import typer

from posse.cli.names import OLD
from posse.cli.operators.service import is_service
from posse.cli.screen import say
from posse.core.files import write_whole
from posse.core.settings import read_toml
from posse.results.database import default_path
from posse.runtime.federation.place import ServiceFile
from posse.runtime.place import PartyFile, address


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
    service = [
        f"User={_escaped(user)}",
        f"ExecStart={_quoted(program)} {command} {_quoted(file.resolve()).replace('$', '$$')}",
        f"WorkingDirectory={_escaped(str(folder))}",
        f"Environment={_quoted(f'POSSE_HOME={home}')}",
        f"ReadWritePaths={' '.join(_quoted(path, '-') for path in writable)}",
        f"AmbientCapabilities={capability}",
        f"CapabilityBoundingSet={capability}",
    ]
    description = f"Posse {command} {_escaped(file.stem)}"
    return _UNIT.format(description=description, service="\n".join(service))


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
