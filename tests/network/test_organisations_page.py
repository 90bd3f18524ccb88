"""The page about organisations on their own machines, run as written: a folder for each machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.kit.federations import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "organisations.md"
SHOPS = ("harbour", "market", "north")
SERVERS = {"harbour": "controller", "market": "comp", "north": "dealer"}
BUDGET = 60
"""Coupons of the test; the page has 400, and every step waits for a slot."""


class Machines:
    """Folders that stand for machines; their host names become ports of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = folder / "commands"
        self.commands.mkdir()
        self.controller, self.authority = free_port(), free_port()
        self.running: list[subprocess.Popen[str]] = []
        (self.commands / "posse").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m posse "$@"\n', encoding="utf-8"
        )
        (self.commands / "posse").chmod(0o700)
        for name in ("office", *SHOPS):
            (folder / name).mkdir()

    def script(self, machine: str, block: str) -> str:
        """Return a block of the page as one machine runs it here."""
        block = block.replace("harbour.example:7400", f"127.0.0.1:{self.controller}")
        block = block.replace("0.0.0.0:7400", f"127.0.0.1:{self.controller}")
        block = block.replace("office.example:7410", f"127.0.0.1:{self.authority}")
        block = block.replace("--bind 0.0.0.0 --port 7410", f"--port {self.authority}")
        block = block.replace("budget = 400", f"budget = {BUDGET}")
        return block.replace("shop=harbour", f"shop={machine}")

    def start(self, machine: str, block: str) -> subprocess.Popen[str]:
        """Start a block on a machine."""
        path = f"{self.commands}{os.pathsep}{os.environ['PATH']}"
        home = str(self.folder / machine / "home")
        process = subprocess.Popen(
            ["sh", "-euc", self.script(machine, block)],
            cwd=self.folder / machine,
            env={**os.environ, "PATH": path, "POSSE_HOME": home, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, machine: str, block: str) -> None:
        """Run a block on a machine to its end."""
        process = self.start(machine, block)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out

    def send(self, name: str, *machines: str, to: str | None = None) -> None:
        """Copy a file of the office to other machines."""
        for machine in machines:
            shutil.copy(self.folder / "office" / name, self.folder / machine / (to or name))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        if process.stdout is not None and not process.stdout.closed:
            process.communicate(timeout=60)


def blocks() -> list[tuple[list[str], str]]:
    """The blocks of the page, each with the machines that it names in its first line."""
    found = re.findall(
        r"^```sh\n# ([^\n]*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return [(names.split(", "), block) for names, block in found]


def wait_for_listener(port: int) -> None:

    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


def test_four_machines_run_the_federation_of_the_page(machines: Machines) -> None:
    tables = files("posse").joinpath("examples", "coupons")
    for shop in SHOPS:
        table = tables.joinpath(f"{shop}.csv").read_text(encoding="utf-8")
        (machines.folder / shop / f"{shop}.csv").write_text(table, encoding="utf-8")
    last: dict[str, subprocess.Popen[str]] = {}
    for names, block in blocks():
        for machine in names:
            if re.search(r"posse party \S+\.toml", block):
                last[machine] = machines.start(machine, block)
            elif "posse federation ca serve" in block:
                machines.start(machine, block)
                wait_for_listener(machines.authority)
            else:
                machines.run(machine, block)
        if "ca token" in block:
            for shop, server in SERVERS.items():
                machines.send(f"{shop}.token", shop)
                machines.send(f"{server}.token", shop)
        if "--token-file customer.token" in block:
            machines.send("customer/party.crt", *SHOPS, to="customer.crt")
    assert set(last) == {"office", *SHOPS}
    said, _ = last["office"].communicate(timeout=240)
    assert re.search(rf"run coupons: total reward \d+ of {BUDGET} pulls", said), said
    for shop in SHOPS:
        said, _ = last[shop].communicate(timeout=60)
        assert re.search(rf"{shop} earned \d+ in \d+ pulls", said), said
        assert "total reward" not in said


def test_the_page_s_commands_are_those_of_the_machine_that_they_name() -> None:
    machines = {name for names, _ in blocks() for name in names}
    assert machines == {"office", *SHOPS}
