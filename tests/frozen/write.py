"""Write or read the fixture of everything that must not change: on the wire, on disk, at the
command line.

    PYTHONPATH=<the release>/src python -m tests.frozen.write FOLDER            write all of it
    PYTHONPATH=<a later one>/src python -m tests.frozen.write FOLDER --read KIND --out FILE

A kind is a function that gives plain values; those that read what another release has left in
FOLDER have one that writes it there. Each kind runs in a process of its own, with fixed randomness,
keys and version (`fixed`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.frozen import fixed

RELEASE = "2a707d9"
"""What wrote the fixture."""


def _messages(folder: Path) -> Any:
    from tests.frozen import messages

    return {**messages.simulated(), **messages.aggregation()}


def _shapes(folder: Path) -> Any:
    from tests.frozen import shapes

    return shapes.shapes()


def _secrets(folder: Path) -> Any:
    from tests.frozen import adapter

    return adapter.secrets()


def _figures(folder: Path) -> Any:
    from tests.frozen import figures

    return figures.figures()


def _commands(folder: Path) -> Any:
    from tests.frozen import commands

    with tempfile.TemporaryDirectory() as place:
        return commands.listed(Path(place))


def _devices(folder: Path) -> Any:
    from tests.frozen import commands

    with tempfile.TemporaryDirectory() as place:
        return commands.listed(Path(place), commands.DEVICES)


def _operators(folder: Path) -> Any:
    from tests.frozen import commands

    with tempfile.TemporaryDirectory() as place:
        return commands.operated(Path(place))


def _parties(folder: Path) -> Any:
    from tests.frozen import folders

    return folders.read(folder / "parties")


def _stored(folder: Path) -> Any:
    from tests.frozen import stored

    return stored.read(folder)


def _services(folder: Path) -> Any:
    from tests.frozen import services

    return services.read(folder)


KINDS: dict[str, Callable[[Path], Any]] = {
    "messages": _messages,
    "shapes": _shapes,
    "secrets": _secrets,
    "figures": _figures,
    "commands": _commands,
    "operators": _operators,
    "parties": _parties,
    "stored": _stored,
    "services": _services,
    "devices": _devices,
}
LONG = {"devices"}
"""Kinds that compile for a long time."""
ARCHIVES = ("parties", "stored", "services")
WITH_REAL_RANDOMNESS = {"parties", "services"}
"""Kinds in which parties talk over TLS, in an order that nobody fixes."""


def prepare(kind: str) -> None:
    """Fix what a kind needs fixed, before the package is imported: the compiler's options are of
    the numbers too.
    """
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    for name in ("POSSE_SYSTEMS", "XLA_FLAGS", "POSSE_DATA"):
        os.environ.pop(name, None)
    fixed.install(randomness=kind not in WITH_REAL_RANDOMNESS)
    if kind not in WITH_REAL_RANDOMNESS:
        from tests.frozen import adapter

        adapter.compile_as_0_1()


def write_archives(folder: Path, kind: str) -> None:
    """Write what a kind reads later."""
    from tests.frozen import folders, services, stored

    place = folder / "parties" if kind == "parties" else folder
    place.mkdir(parents=True, exist_ok=True)
    writers = {"parties": folders.write, "stored": stored.write, "services": services.write}
    for name in writers[kind](place):
        print(f"{name} is written", flush=True)


def read(kind: str, folder: Path, out: Path) -> None:
    """Compute a kind in a process of its own; whatever that starts is stopped with it."""
    words = [
        sys.executable,
        "-m",
        "tests.frozen.write",
        str(folder),
        "--read",
        kind,
        "--out",
        str(out),
    ]
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        words,
        cwd=Path(__file__).parents[2],
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        raise AssertionError(f"reading {kind} failed:\n{output[-2000:]}\n{errors[-6000:]}")


def dump(found: Any) -> str:
    """Write values one to a line, so that a difference shows which one it is of; short lists stay
    on one.
    """
    text = json.dumps(found, indent=1, sort_keys=True)
    return (
        re.sub(r"\[\s+([^][{}]{,100}?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text)
        + "\n"
    )


def main() -> None:
    """Write the fixture, or one kind of what this release makes of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archives", choices=ARCHIVES, help="write only what this kind reads")
    parser.add_argument("--read", choices=KINDS, help="compute one kind")
    parser.add_argument("--out", type=Path, help="file for what --read computes")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if asked.read is not None:
        prepare(asked.read)
        out = asked.out.resolve()
        out.write_text(dump(KINDS[asked.read](folder)))
    elif asked.archives is not None:
        prepare(asked.archives)
        write_archives(folder, asked.archives)
    else:
        for kind in ARCHIVES:
            subprocess.run(
                [sys.executable, "-m", "tests.frozen.write", str(folder), "--archives", kind],
                check=True,
            )
        for kind in KINDS:
            read(kind, folder, folder / f"{kind}.json")
            print(f"{kind} is written", flush=True)


if __name__ == "__main__":
    main()
