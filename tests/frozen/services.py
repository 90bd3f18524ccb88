"""A federation that lives, as its services left it: founded, one run made, stopped; then served
again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.frozen import adapter, archive, commands
from tests.frozen.folders import free_ports

RUN = """
protocol = "dp-combinatorial"
run = "{run}"
agents = 2
producers = 4
horizon = 20
start = 5
seed = 5
alpha = 0.2
"""
MEMBER = (
    'identity = "agent-2"\nfounder = "agent-1"\nhome = "127.0.0.1:{port}"\n[consent]\nbudget = '
    "40\nbudget_in_all = 90\n"
)
FOUNDER = "traders/agent-1.toml"
PATIENCE = 240.0


@contextmanager
def _served(*files: str) -> Iterator[None]:
    """Serve members until their founder is connected to all."""
    words = [sys.executable, "-m", "posse", "serve"]
    running = [
        subprocess.Popen(
            [*words, file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for file in files
    ]
    try:
        end = time.monotonic() + PATIENCE
        while not _connected():
            assert time.monotonic() < end
            assert all(each.poll() is None for each in running)
            time.sleep(0.05)
        yield
        for file in files:
            assert commands.call("stop", file)[0] == 0
        for each in running:
            assert each.wait(PATIENCE) == 0
    finally:
        for each in running:
            if each.poll() is None:
                each.kill()
                each.wait()


def _connected() -> bool:
    code, out, _ = commands.call("queue", FOUNDER, "--json")
    return code == 0 and all(each["connected"] for each in json.loads(out)["members"].values())


def write(into: Path) -> Iterator[str]:
    """Found a federation, let a member enrol, make a run and a backup of both, and stop."""
    adapter.lasting()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "services"
        folder.mkdir()
        session = commands.Session(folder)
        ports = free_ports()
        session(
            "found traders --role agent --called agent-1 --days 36000 --listen "
            f"127.0.0.1:{ports['port']} "
            f"--enrol 127.0.0.1:{ports['port2']}"
        )
        own = "--ca traders/authority --role agent --name agent-2 --days 36000"
        session(f"ca token {own} --out token")
        session("enrol --token-file token --request request --out agent-2")
        session("ca sign request --ca traders/authority --out answer")
        session("enrol --token-file token --answer answer --out agent-2")
        (folder / "agent-2.toml").write_text(MEMBER.format(**ports))
        for run in ("one", "two"):
            (folder / f"{run}.toml").write_text(RUN.format(run=run))
        with _served(FOUNDER, "agent-2.toml"):
            session(f"submit one.toml --at {FOUNDER}")
        session("backup agent-2.toml --out agent-2.backup")
        session(f"backup {FOUNDER} --out agent-1.backup")
        assert [each["exit code"] for each in session.found.values()] == [0] * 8, session.found
        archive.pack(folder, into / "services.zip")
        yield "services"


READ = f"""
doctor {FOUNDER} --json
doctor agent-2.toml --json
ca list --ca traders/authority --json
"""
SERVED = f"""
queue {FOUNDER} --json
queue agent-2.toml --json
submit one.toml --at {FOUNDER} --json
submit two.toml --at {FOUNDER} --json
queue agent-2.toml --json
status {FOUNDER} --json
"""


def read(archives: Path) -> dict[str, Any]:
    """Look at both services, put the member back from its backup, and let them make another run."""
    with tempfile.TemporaryDirectory() as place:
        folder = archive.unpack(archives / "services.zip", Path(place) / "services")
        session = commands.Session(folder)
        session.all(READ)
        for path in ("agent-2", "agent-2-runs", "runs"):
            if (folder / path).exists():
                (folder / path).rename(folder / f"{path}-before")
        session("restore agent-2.backup agent-2.toml")
        with _served(FOUNDER, "agent-2.toml"):
            session.all(SERVED)
        return session.found
