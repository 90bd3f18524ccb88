"""A whole federation on one machine: identities for all, a file for each, and a process for each.

What a party's process is given is its file and nothing else: each has an identity, a journal and
secrets of its own, as if it were elsewhere. Only the authority is in the same folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posse.core import files
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import complete, prepare
from posse.runtime.certificates.identity import CERTIFICATE
from posse.runtime.certificates.names import check_name
from posse.runtime.sources import KnownRewards

AUTHORITY = "authority"


@dataclass(frozen=True)
class Layout:
    """A federation's file, read and checked by its system; nothing is written yet."""

    settings: Settings
    lay_out: Callable[[Path], list[Path]]
    """Makes identities and files in a folder, and returns the files of the parties."""
    steps: int
    """Decisions there will be."""
    lead: str
    """Role that shows how far the run is."""
    shown: tuple[str, ...]
    """Roles whose steps may be shown: nobody learns from them who was pulled or paid."""
    role_of: Callable[[str], str]
    """Role of a party, by its name."""
    total_at: str | None
    """Party that knows the total at the end; None where each has its own."""
    may_change: tuple[str, ...]
    """Settings that may change while a run goes on."""
    remarks: tuple[str, ...] = ()
    """What the user reads before it begins."""
    known_rewards: Callable[[], Mapping[str, KnownRewards | None]] = lambda: {}
    """Returns what the files of the owners have, by the names of the owners: on one machine they
    can be compared with the result.
    """


def each(
    values: dict[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Change every member of a list of tables in a federation's file."""
    members = values.get(name)
    if not isinstance(members, list):
        return values
    return {
        **values,
        name: [change(member) if isinstance(member, dict) else member for member in members],
    }


def beside(table: dict[str, Any], here: Path, *names: str) -> dict[str, Any]:
    """Make these paths of a table relative to the federation's file, and not to the parties'
    folder.
    """
    return {
        **table,
        **{name: str(here / table[name]) for name in names if isinstance(table.get(name), str)},
    }


def data_beside(table: dict[str, Any], here: Path) -> dict[str, Any]:
    """Make the paths of a table that says where data are relative to a file; names of embedded data
    stay.
    """
    made = beside(table, here, "data_dir", "rewards")
    for name in ("data", "problem", "instance"):
        if isinstance(value := made.get(name), dict):
            made[name] = data_beside(value, here)
        elif isinstance(value, str) and (here / value).is_file():
            made[name] = str(here / value)
    if isinstance(made.get("features"), dict):
        made["features"] = beside(made["features"], here, *made["features"])
    return made


def world_beside(values: dict[str, Any], here: Path) -> dict[str, Any]:
    """Do so in the table [world], where there is one."""
    world = values.get("world")
    return {**values, "world": data_beside(world, here)} if isinstance(world, dict) else values


def source_beside(table: dict[str, Any], here: Path) -> dict[str, Any]:
    """Make the file of a member's source relative to the federation's file."""
    source = table.get("source")
    return {**table, "source": beside(source, here, "file")} if isinstance(source, dict) else table


def check_member(name: str, names: Sequence[str], what: str, reserved: Sequence[str]) -> None:
    """Refuse a member's name that is not one, is given twice, or belongs to another role."""
    try:
        check_name(name=name)
    except ConfigError as error:
        raise ConfigError(f"{what} {error.text}") from None
    if names.count(name) > 1:
        raise ConfigError(f"{what}s must have different names, got '{name}' twice.")
    if name in reserved:
        article = "an" if what[0] in "aeiou" else "a"
        raise ConfigError(
            f"{article} {what} cannot be called '{name}', which is taken. Choose another name."
        )


def enrol_all(folder: Path, run: str, members: Mapping[str, str]) -> Authority:
    """Make an authority, and let every member (role by name) enrol as it would from elsewhere."""
    place = folder / AUTHORITY
    authority = Authority(place) if place.exists() else Authority.init(place, "customer", run)
    desk = Desk(authority)
    for name, role in members.items():
        if not (folder / name / CERTIFICATE).exists():
            token, now = authority.token(role, name), authority.now()
            answer = desk.answer(prepare(token, folder / name, now))
            complete(token, folder / name, answer.data, now)
    return authority


def write_party(path: Path, values: Mapping[str, Any]) -> Path:
    """Write a party's file."""
    files.write_whole(path, to_toml(values).encode())
    return path


def to_toml(values: Mapping[str, Any], table: str = "") -> str:
    """Write plain values as TOML: numbers, booleans, words, lists of them, and tables.

    >>> print(
    ...     to_toml({"listen": "127.0.0.1:7400", "options": {"owners": ["a", "b"], "sync": True}})
    ... )
    listen = "127.0.0.1:7400"
    <BLANKLINE>
    [options]
    owners = ["a", "b"]
    sync = true
    <BLANKLINE>
    """
    plain = {
        key: value
        for key, value in values.items()
        if not isinstance(value, Mapping) and value is not None
    }
    lines = [f"[{table}]"] if table else []
    # JSON's strings, numbers, booleans and flat lists are TOML's.
    lines += [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    parts = ["\n".join([*lines, ""])]
    for key, value in values.items():
        if isinstance(value, Mapping):
            parts.append(to_toml(value, f"{table}.{key}" if table else key))
    return "\n".join(parts)


@dataclass
class Process:
    """One party's process, and where its file, log and journal are."""

    name: str
    file: Path
    log: Path
    handle: subprocess.Popen[bytes]


def start_one(path: Path) -> Process:
    """Start a process for a party's file; what it logs goes beside its file."""
    log = path.with_suffix(".log")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with log.open("ab") as stream:
        handle = subprocess.Popen(
            [sys.executable, "-m", "posse", "party", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )
    return Process(path.stem, path, log, handle)


def stop(processes: Sequence[Process], patience: float = 10.0) -> None:
    """Close what was started gracefully, then force it."""
    for process in processes:
        if process.handle.poll() is None:
            process.handle.send_signal(signal.SIGTERM)
    end = time.monotonic() + patience
    for process in processes:
        try:
            process.handle.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.handle.kill()
            process.handle.wait()
