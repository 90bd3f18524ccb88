"""Folders of parties that stopped in the middle of a run: read again, and taken to their end."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.frozen import adapter, archive, commands
from tests.frozen.shapes import ordered

SAMBA = """
protocol = "samba"
run = "trial-1"
listen = "127.0.0.1:{port}"
sync = {sync}
{terms}
"""
WORLD = "[world]\nseed = 7\nowners = 3\n" + "".join(
    f'\n[[owner]]\nname = "clinic-{n}"\n' for n in (1, 2, 3)
)
OWNER = """
[[owner]]
name = "clinic-{number}"
[owner.source]
kind = "csv"
file = "clinic-{number}.csv"
"""
OWN = "".join(OWNER.format(number=number) for number in range(1, 5))
STRICT = """
level = "strict"
policy = "ucb"
budget = 40
price = [0.02, 0.05, 0.3, 1]
slot = 0.1
slowest_pull = 0.1
"""
SAMBAS = {
    "samba-strict": STRICT,
    "samba-paper": 'level = "paper"\npolicy = "thompson"\nbudget = 40\npaillier_bits = 2048',
    "samba-standard": 'level = "standard"\npolicy = "pursuit"\nbudget = 30\npaillier_bits = 2048',
    "samba-ended": 'level = "strict"\npolicy = "epsilon-greedy"\nepsilon = 0.3\nbudget = 400',
}
MPC = """
protocol = "mpc-contextual"
run = "trial-2"
steps = 24
epsilon = "1/5"
sync = false
checkpoint_every = 8
[addresses]
clinic-1 = "127.0.0.1:{port}"
clinic-2 = "127.0.0.1:{port2}"
puller = "127.0.0.1:{port3}"
payee = "127.0.0.1:{port4}"
[world]
problem = "own"
seed = 9
rewards = "pays.csv"
[world.features]
clinic-1 = "clinic-1.csv"
clinic-2 = "clinic-2.csv"
"""
MARKET = """
protocol = "dp-combinatorial"
run = "trial-3"
sync = false
suppliers = ["north", "south", "west"]
rounds = 24
start = 3
alpha = 0.3
""" + "".join(
    f'\n[[agent]]\nname = "{name}"\nlisten = "127.0.0.1:{{port{n}}}"\nown = "{name}.csv"\n'
    '[agent.source]\nkind = "python"\nfunction = "frozen_deliveries:good"\n'
    for name, n in (("ada", ""), ("bob", "2"), ("eve", "3"))
)
DELIVERIES = """
def good(run, round, units):
    return {name: count - (round + len(name)) % 2 * (count > 0) for name, count in units.items()}
"""
STOPS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "samba-strict": lambda states: states["controller"].get("step", 0) >= 22,
    "samba-paper": lambda states: states["controller"].get("step", 0) >= 22,
    "samba-standard": lambda states: states["controller"].get("step", 0) >= 16,
    "mpc": lambda states: states["puller"].get("step", 0) >= 13,
    "market": lambda states: all(state.get("step", 0) >= 9 for state in states.values()),
}
REFUSED = {"samba-standard"}
"""Folders of what this release does not have any more (`test_removed.py`)."""
BACKUPS = {"samba-paper": ("comp", "clinic-2", "customer")}
"""Parties of which there is a backup beside their folders."""


def free_ports() -> dict[str, int]:
    """Ports on which nobody listens now."""
    held = [socket.socket() for _ in range(4)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return dict(zip(("port", "port2", "port3", "port4"), ports, strict=True))


def _data(folder: Path) -> None:
    """What parties bring: rewards of owners, features, what arms pay, offers."""
    for number in range(1, 5):
        rewards = [
            (7 * row * number + row // 3) % (number + 4) / (number + 3) for row in range(400)
        ]
        (folder / f"clinic-{number}.csv").write_text(
            "\n".join(["reward", *(f"{each:.4f}" for each in rewards), ""])
        )
    for name, cost in (("ada", 0.4), ("bob", 0.5), ("eve", 0.6)):
        rows = ["supplier,cost,capacity", f"north,{cost},9", "south,0.5,8", "west,0.55,7", ""]
        (folder / f"{name}.csv").write_text("\n".join(rows))
    (folder / "frozen_deliveries.py").write_text(DELIVERIES)


def _features(folder: Path) -> None:
    draws = np.random.default_rng(5)
    for number in (1, 2):
        block = draws.normal(size=(40, 2))
        block *= np.sqrt(1 / 2) / np.linalg.norm(block, axis=1, keepdims=True) * 0.999
        lines = [f"p{row},{a!r},{b!r}" for row, (a, b) in enumerate(block.tolist())]
        (folder / f"clinic-{number}.csv").write_text("\n".join(["row,age,dose", *lines, ""]))
    lines = [
        f"p{row},{a},{b},{c}"
        for row, (a, b, c) in enumerate(draws.random((40, 3)).round(3).tolist())
    ]
    (folder / "pays.csv").write_text("\n".join(["row,wait,treat,refer", *lines, ""]))


def write(into: Path) -> Iterator[str]:
    """Write every folder, in the middle of its run, and a backup of every party of it."""
    adapter.lasting()
    for name in (*SAMBAS, "mpc", "market"):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "federation"
            folder.mkdir()
            _write(name, folder)
            archive.pack(folder, into / f"{name}.zip")
            yield name


def _write(name: str, folder: Path) -> None:
    _data(folder)
    if name == "mpc":
        _features(folder)
        text = MPC
    elif name == "market":
        text = MARKET
    else:
        whose = OWN if name in ("samba-strict", "samba-ended") else WORLD
        text = (
            SAMBA.format(
                port="{port}", sync=str("strict" in SAMBAS[name]).lower(), terms=SAMBAS[name]
            )
            + whose
        )
    (folder / "federation.toml").write_text(text.format(**free_ports()))
    os.chdir(folder)
    files = adapter.lay_out(folder / "federation.toml", folder)
    for file in files:
        if file.stem in ("comp", "controller", "puller"):
            file.write_text(file.read_text() + "\n[record]\nview = true\n")
    if name == "samba-ended":
        adapter.end_without(files, "clinic-4", step=12)
    else:
        adapter.resume(files, STOPS[name])
    for party in BACKUPS.get(name, ()):
        assert commands.call("backup", f"{party}.toml", "--out", f"{party}.backup")[0] == 0


def parties(folder: Path) -> list[Path]:
    """Files of the parties in a folder."""
    return [path for path in sorted(folder.glob("*.toml")) if path.stem != "federation"]


def read(archives: Path) -> dict[str, Any]:
    """Read every folder: each party as it stopped, what comes out at the end, and records."""
    found: dict[str, Any] = {}
    for path in sorted(archives.glob("*.zip")):
        if path.stem in REFUSED:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = archive.unpack(path, Path(place) / "federation")
            os.chdir(folder)
            found[path.stem] = {"stopped": {each.stem: _stopped(each) for each in parties(folder)}}
            views = [str(each.relative_to(folder)) for each in sorted(folder.rglob("view.log"))]
            session = commands.Session(folder)
            session.all("\n".join(f"audit {view} --json" for view in views))
            for file in parties(folder):
                session(f"doctor {file.name} --json")
                session(f"status {file.name} --json")
            found[path.stem]["restored"] = {
                name: _restored(folder, name) for name in BACKUPS.get(path.stem, ())
            }
            ends = adapter.resume(parties(folder))
            for row in json.loads(commands.call("runs", "list", "--json")[1]):
                session.ids[row["party"]] = row["id"]
            for party in sorted(session.ids) if path.stem != "samba-ended" else ():
                session(f"runs show {{{party}}} --json")
            found[path.stem]["commands"] = _without_traffic(session.found)
            found[path.stem]["ends"] = _without_traffic(commands.plain(ends))
            found[path.stem]["shares"] = {
                str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest()
                for each in sorted(folder.rglob("*.share"))
            }
    return found


_BY_THE_CLOCK = {"bytes", "messages", "overruns", "leaks"}
"""Signatures are of several sizes, what is sent again depends on who was there first, and slots on
the machine.
"""


def _without_traffic(value: Any) -> Any:
    """Leave out what is not the same in two runs from one folder."""
    if isinstance(value, dict):
        return {
            key: _without_traffic(each) for key, each in value.items() if key not in _BY_THE_CLOCK
        }
    return [_without_traffic(each) for each in value] if isinstance(value, list) else value


def _restored(folder: Path, party: str) -> dict[str, Any]:
    """Put a party back from its backup into another folder; compare its files with those it was
    made of.
    """
    there = folder.parent / "restored" / party
    there.mkdir(parents=True)
    code, _, _ = commands.call("restore", f"{party}.backup", str(there / f"{party}.toml"))
    made = {path.relative_to(there): path for path in sorted(there.rglob("*")) if path.is_file()}
    return {
        "exit code": code,
        "files": {
            str(name): (folder / name).is_file()
            and (folder / name).read_bytes() == path.read_bytes()
            for name, path in made.items()
            if path.suffix != ".toml"
        },
    }


def _stopped(file: Path) -> dict[str, Any]:
    saved, state = adapter.replayed(file)
    data = msgspec.msgpack.encode(ordered(saved), order="sorted")
    return {
        "fields": sorted(saved),
        "sha256": hashlib.sha256(data).hexdigest(),
        "state": json.loads(json.dumps(state)),
    }
