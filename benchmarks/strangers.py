"""What strangers take of a running federation: `make bench-strangers`.

A federation of Samba runs over loopback mutual TLS, every party a process. It is measured
undisturbed, and then under each attack by one process of its own: steps a second, the most memory
the controller takes, lines it logs, and how long an owner that was killed takes under the attack
until the controller greets it. The attackers need processor time on the same machine, so steps are
compared with those beside the same attack on a listener of nobody's, in turns: what is lost beyond
that is what the controller spends. `core` is how much of a core strangers take of the controller,
by its processor time beyond that of its steps. Everything that is started is stopped by its process
id.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.network import cpu_of, forked, free_port
from posse.core.errors import PosseError
from posse.policies import UCB
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.network.connection import Timing
from posse.runtime.network.operate import ask
from posse.runtime.network.wire import Hello, Reader
from posse.systems.samba.federation import warm_up
from posse.systems.samba.layout import FederationFile, lay_out

OWNERS, THREADS, RATE = 3, 8, 1000
"""Connections a second of an attack, over all its threads."""
Attack = Callable[[int, float], None]


def paced(work: Callable[[int], None], seconds: float, rate: float = RATE) -> None:
    """Call work from a few threads, so often a second in all, for a while."""
    end = time.monotonic() + seconds

    def loop(number: int) -> None:
        turn = 0
        while time.monotonic() < end:
            with suppress(OSError):
                work(number)
            turn += 1
            time.sleep(max(0.0, min(end, began + turn * THREADS / rate) - time.monotonic()))

    began = time.monotonic()
    threads = [threading.Thread(target=loop, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def silent(port: int, seconds: float) -> None:
    """Connect, say nothing, and hold on to it as long as it is held there."""
    held: list[socket.socket] = []

    def connect(number: int) -> None:
        held.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        if len(held) > 17_000:
            held.pop(0).close()

    paced(connect, seconds)


def half(port: int, seconds: float) -> None:
    """Begin a handshake from another address, and do not go on with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    hello, held = out.read(), []

    def begin(number: int) -> None:
        one = socket.create_connection(
            ("127.0.0.1", port), timeout=5, source_address=(f"127.0.0.{2 + number}", 0)
        )
        one.sendall(hello)
        held.append(one)
        if len(held) > 10_000:
            held.pop(0).close()

    paced(begin, seconds)


def junk(port: int, seconds: float) -> None:
    """Send plain HTTP from another address."""

    def send(number: int) -> None:
        with socket.create_connection(
            ("127.0.0.1", port), timeout=5, source_address=("127.0.0.9", 0)
        ) as one:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")

    paced(send, seconds)


def enrolled(folder: Path) -> Attack:
    """An owner of the federation that opens connection after connection, from its own address, and
    says no hello.
    """

    def attack(port: int, seconds: float) -> None:
        context = ssl_contexts(PartyIdentity.load(folder / "owner-2"))[1]
        held: list[ssl.SSLSocket] = []

        def connect(number: int) -> None:
            raw = socket.create_connection(
                ("127.0.0.1", port), timeout=5, source_address=("127.0.0.7", 0)
            )
            held.append(context.wrap_socket(raw))

        paced(connect, seconds, 200)

    return attack


@contextmanager
def attacked(attack: Attack, port: int, seconds: float) -> Iterator[None]:
    """Run an attack in a process of its own."""

    def work() -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        attack(port, seconds)

    child = forked(work)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Nobody:
    """A listener that takes the same connections and does nothing for them, in a process of its
    own.
    """

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(listening.getsockname()[1])

        def work() -> None:
            held: list[socket.socket] = []
            while True:
                held.append(listening.accept()[0])
                if len(held) > 64:
                    held.pop(0).close()

        self.child = forked(work)
        listening.close()

    def stop(self) -> None:
        """End it."""
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


class Federation:
    """Parties as processes, as an operator starts them."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        values = {
            "run": "besieged",
            "level": "paper",
            "listen": f"127.0.0.1:{self.port}",
            "budget": 10_000_000,
            "policy": "ucb",
            "paillier_bits": 2048,
            "sync": False,
            "world": {"seed": 7, "owners": OWNERS},
            "owner": [{"name": f"owner-{i + 1}"} for i in range(OWNERS)],
        }
        self.paths = {path.stem: path for path in lay_out(FederationFile.make(values), folder)}
        self.processes = {name: self.start(name) for name in self.paths}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a party."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "posse", "party", str(self.paths[name])],
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End all parties."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def status(self) -> dict[str, object]:
        """Return what the controller says of itself; nothing before it answers."""
        try:
            return dict(asyncio.run(ask(self.folder / "controller" / "journal", "status")))
        except PosseError:
            return {}

    def until_connected(self, seconds: float = 120) -> float:
        """Wait until the controller misses nobody; return how long it took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            status = self.status()
            if status and not status["missing"] and status.get("step"):
                return time.monotonic() - began
            time.sleep(0.05)
        return float("inf")

    def memory(self) -> float:
        """MiB that the controller has resident."""
        text = Path(f"/proc/{self.processes['controller'].pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def lines(self) -> int:
        """Lines that the controller has logged."""
        return len((self.folder / "controller.log").read_bytes().splitlines())

    def steps(self, seconds: float) -> tuple[int, float, float, float]:
        """Steps in a while, how long it was, the controller's processor seconds, and the most
        memory in it.
        """
        pid, first = self.processes["controller"].pid, int(str(self.status().get("step", 0)))
        began, cpu, most = time.monotonic(), cpu_of(pid), 0.0
        while time.monotonic() - began < seconds:
            most = max(most, self.memory())
            time.sleep(0.25)
        done = int(str(self.status().get("step", 0))) - first
        return done, time.monotonic() - began, cpu_of(pid) - cpu, most

    def returns(self) -> float:
        """Kill an owner and call the controller in its place as a party does, until it says hello;
        return how long.
        """
        process = self.processes["owner-1"]
        process.kill()
        process.wait()
        context, timing = ssl_contexts(PartyIdentity.load(self.folder / "owner-1"))[1], Timing()
        began, wait = time.monotonic(), timing.first_wait
        while time.monotonic() - began < 60:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timing.patience) as raw,
            ):
                greeted = context.wrap_socket(raw)
                if any(isinstance(frame, Hello) for frame in Reader().feed(greeted.recv(4096))):
                    return time.monotonic() - began
            time.sleep(wait)
            wait = min(2 * wait, timing.longest_wait)
        return float("inf")


def measured(
    name: str, make: Callable[[Path], Attack], folder: Path, seconds: float, turns: int = 3
) -> str:
    """Attack a federation and nobody in turns; return a line of the table."""
    federation, nobody = Federation(folder), Nobody()
    try:
        federation.until_connected()
        attack, lines = make(folder), 0
        before = most = federation.steps(2)[3]
        sums = {"attacked": [1e-9, 0.0, 0.0], "beside": [1e-9, 0.0, 0.0]}
        for _ in range(turns):
            for which, port in (("beside", nobody.port), ("attacked", federation.port)):
                logged = federation.lines()
                with attacked(attack, port, 2 * seconds + 5):
                    time.sleep(1)
                    *spent, memory = federation.steps(seconds)
                sums[which] = [one + more for one, more in zip(sums[which], spent, strict=True)]
                most, lines = (
                    max(most, memory),
                    lines + (federation.lines() - logged) * (which == "attacked"),
                )
                time.sleep(1)
        with attacked(attack, federation.port, 70):
            time.sleep(1)
            back = federation.returns()
        rates = {which: steps / took for which, (steps, took, _) in sums.items()}
        kept = rates["attacked"] / rates["beside"]
        steps, took, cpu = sums["attacked"]
        core = max(0.0, cpu - steps * sums["beside"][2] / sums["beside"][0]) / took
        return (
            f"  {name:34}{rates['attacked']:>9.0f}{rates['beside']:>9.0f}{kept:>7.0%}{core:>7.1%}"
            f"{most - before:>6.0f} M{lines:>11,}{back:>7.1f} s"
        )
    finally:
        federation.stop()
        nobody.stop()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    warm_up(UCB(), "paper")
    attacks: list[tuple[str, Callable[[Path], Attack]]] = [
        ("silent connections, held", lambda folder: silent),
        ("handshakes begun, held", lambda folder: half),
        ("plain HTTP", lambda folder: junk),
        ("an enrolled owner's connections", enrolled),
    ]
    print(
        f"{RATE} connections a second by {THREADS} threads (an enrolled owner 200), K={OWNERS}, "
        f"{os.cpu_count()} cores"
    )
    print(
        f"  {'attack':34}{'steps/s':>9}{'beside':>9}{'kept':>7}{'core':>7}{'RSS+':>8}{'log lines':>11}{'returns':>9}"
    )
    for name, make in attacks:
        with tempfile.TemporaryDirectory() as text:
            print(measured(name, make, Path(text).resolve(), seconds), flush=True)


if __name__ == "__main__":
    main()
