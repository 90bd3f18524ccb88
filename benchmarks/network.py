"""Samba over loopback mutual TLS with journals on: `make bench-network`.

Every party is a process of its own. Beside it, in the same run, a bare fan-out: one hub sends 100 bytes to K processes
over mutual TLS and waits for all to send them back, with nothing else done. Steps are those between two readings of the
controller; compiling and set-up are not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from posse.policies import UCB
from posse.protocols.samba.deploy import FederationFile, build, lay_out
from posse.protocols.samba.federation import warm_up
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.network.deployment import make_party, open_place

TARGETS = {("standard", 10): 500, ("standard", 100): 60, ("strict", 10): 250, ("strict", 100): 30}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def forked(work: Callable[[], None]) -> int:
    """Run work in a process of its own; it shares what is imported, and nothing after."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        work()
        code = 0
    except KeyboardInterrupt:
        code = 0
    finally:
        os._exit(code)


def cpu_of(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def party(path: Path, notes: Path) -> None:
    """Run a party; the controller writes when each step ended, and how much it sent."""
    times: list[float] = []
    place = open_place(path)

    def watch(note: object) -> None:
        if getattr(note, "kind", "") == "step":
            times.append(time.perf_counter())
            if len(times) % 200 == 0:
                told = {"times": times[-4000:], "steps": len(times), "counts": dict(made.counts)}
                notes.with_suffix(".part").write_text(json.dumps(told))
                notes.with_suffix(".part").replace(notes)

    async def go() -> None:
        nonlocal made
        made, _ = make_party(place, build, watch=watch if place.identity.role == "controller" else None)
        await made.run()

    made = None  # type: ignore[assignment]
    asyncio.run(go())


def federation(owners: int, sync: bool, seconds: float, folder: Path, level: str = "standard") -> None:
    """Run a federation for a while and print what it did."""
    values = {
        "run": f"bench-{owners}", "level": level, "listen": f"127.0.0.1:{free_port()}", "budget": 10_000_000,
        "policy": "ucb", "paillier_bits": 2048, "sync": sync, "world": {"seed": 7, "owners": owners},
        "owner": [{"name": f"owner-{i + 1}"} for i in range(owners)],
    }  # fmt: skip
    paths, notes = lay_out(FederationFile.make(values), folder), folder / "notes.json"
    children = {path.stem: forked(lambda path=path: party(path, notes)) for path in paths}  # type: ignore[misc]
    try:
        first = wait_for(notes, 1)
        before = {name: cpu_of(pid) for name, pid in children.items()}
        began = time.monotonic()
        time.sleep(seconds)
        told = wait_for(notes, first["steps"] + 1)
        spent = {name: cpu_of(pid) - before[name] for name, pid in children.items()}
        wall = time.monotonic() - began
    finally:
        for pid in children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    steps = told["steps"] - first["steps"]
    gaps = sorted(b - a for a, b in zip(told["times"], told["times"][1:], strict=False))
    sent = told["counts"].get("bytes out", 0) / told["steps"]
    owner = statistics.mean(spent[f"owner-{i + 1}"] for i in range(owners))
    servers = [name for name in ("controller", "comp", "dealer") if name in spent]
    share = " ".join(f"{name} {spent[name] / steps * 1e6:.0f}" for name in servers)
    rate = steps / wall
    how = "disk waited for" if sync else "disk beside"
    print(
        f"  {level:<8} K={owners:<4} {how:16}{rate:>7.0f} steps/s ({rate / TARGETS[level, owners]:.2f} of target)   "
        f"p50 {gaps[len(gaps) // 2] * 1e3:.2f} ms  p99 {gaps[int(len(gaps) * 0.99)] * 1e3:.2f} ms   "
        f"CPU us a step: {share} owner {owner / steps * 1e6:.0f}   controller sends {sent:.0f} B a step"
    )


def wait_for(notes: Path, steps: int, seconds: float = 300) -> dict[str, object]:
    """Read what the controller wrote, when it has come so far."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if notes.exists():
            told = json.loads(notes.read_text())
            if told["steps"] >= steps:
                return told
        time.sleep(0.05)
    raise TimeoutError(f"no {steps} steps within {seconds} s")


def echo(owners: int, seconds: float, folder: Path) -> float:
    """Rounds a second of a bare fan-out: what TLS and the event loop alone allow."""
    port = free_port()
    server, client = ssl_contexts(PartyIdentity.load(folder / "controller"))

    async def answer() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="")
                break
            except OSError:
                await asyncio.sleep(0.1)
        while True:
            writer.write(await reader.readexactly(100))

    async def hub() -> float:
        peers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        ready, over = asyncio.Event(), asyncio.Event()

        async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append((reader, writer))
            if len(peers) == owners:
                ready.set()
            await over.wait()
            writer.close()

        listening = await asyncio.start_server(arrived, "127.0.0.1", port, ssl=server)
        await ready.wait()
        began, rounds, data = time.monotonic(), 0, bytes(100)
        while time.monotonic() - began < seconds:
            for _, writer in peers:
                writer.write(data)
            for reader, _ in peers:
                await reader.readexactly(100)
            rounds += 1
        rate = rounds / (time.monotonic() - began)
        over.set()
        listening.close()
        await asyncio.sleep(0.1)
        return rate

    children = [forked(lambda: asyncio.run(answer())) for _ in range(owners)]
    try:
        loop = asyncio.new_event_loop()
        rate = loop.run_until_complete(hub())
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return rate


def disk() -> float:
    """Milliseconds until a small write is on the disk, the middle of 50."""
    with tempfile.NamedTemporaryFile(dir=".") as file:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(200))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def main() -> None:
    for level in ("standard", "strict"):
        warm_up(UCB(), level)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    print(
        f"Samba over loopback mutual TLS, journals on; {os.cpu_count()} cores, the disk takes {disk():.2f} ms to sync"
    )
    for owners in (10, 100):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            federation(owners, False, seconds, Path(folder))
            print(f"  K={owners:<4} {'bare echo':16}{echo(owners, min(seconds, 5), Path(folder)):>7.0f} rounds/s")
    for level in ("standard", "strict"):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            federation(10, True, seconds, Path(folder), level)


if __name__ == "__main__":
    main()
