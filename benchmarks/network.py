"""Samba over loopback mutual TLS with journals on: `make bench-network`.

Every party is a process of its own. Beside it, in the same run, a bare fan-out: one hub sends 100
bytes to K processes over mutual TLS and waits for all to send them back, with nothing else done.
Steps are those between two readings of the controller; compiling and set-up are not counted.
`python -m benchmarks.network memory [steps [owners [level]]]` prints what every party holds in
memory and on the disk over a long run.
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
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from posse.core.errors import PosseError
from posse.core.files import sync_data
from posse.policies import UCB
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.network.deployment import make_party
from posse.runtime.place import open_place
from posse.systems.samba.deploy import build
from posse.systems.samba.federation import warm_up
from posse.systems.samba.layout import FederationFile, lay_out

CAPACITY = (("paper", 5), ("paper", 20), ("strict", 5), ("strict", 20))
TARGETS = {("strict", 10): 250, ("strict", 100): 30}


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
    except PosseError as error:
        print(error, file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def end(children: dict[str, int]) -> None:
    for pid in children.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def check_alive(children: dict[str, int]) -> None:
    """Raise if a party has ended; it said itself why."""
    gone = [name for name, pid in children.items() if os.waitpid(pid, os.WNOHANG)[0]]
    for name in gone:
        del children[name]
    if gone:
        raise RuntimeError(f"{', '.join(gone)} ended before the run did.")


def cpu_of(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Megabytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def party(path: Path, notes: Path) -> None:
    """Run a party; the controller writes when each step ended, and what went over its links."""
    times: deque[float] = deque(maxlen=4000)
    place, written_at, steps = open_place(path), 0.0, 0

    def watch(note: object) -> None:
        nonlocal written_at, steps
        if getattr(note, "kind", "") == "step":
            times.append(time.perf_counter())
            steps += 1
            if times[-1] - written_at > 0.5:
                written_at = times[-1]
                links = {
                    name: (link.sent, link.received, link.bytes_sent, link.bytes_received)
                    for name, link in made.engine.links.items()
                }
                written = {"times": list(times), "steps": steps, "links": links}
                notes.with_suffix(".part").write_text(json.dumps(written))
                notes.with_suffix(".part").replace(notes)

    async def go() -> None:
        nonlocal made
        made, _ = make_party(
            place, build, watch=watch if place.identity.role == "controller" else None
        )
        await made.run()

    made = None  # type: ignore[assignment]
    asyncio.run(go())


@dataclass
class Measured:
    """What a federation did between two readings of its controller."""

    steps: int
    gaps: list[float]
    """Seconds between the ends of steps, sorted."""
    spent: dict[str, float]
    """CPU seconds a step, by party."""
    links: dict[str, list[float]]
    """Messages and bytes that the controller sent to and received from each party, a step: sent,
    received, bytes of both.
    """
    memory: tuple[dict[str, float], dict[str, float]]
    """Resident megabytes of every party, early and late."""

    @property
    def rate(self) -> float:
        """Steps a second."""
        return len(self.gaps) / sum(self.gaps)

    @property
    def middle(self) -> float:
        """Seconds of the middle step."""
        return self.gaps[len(self.gaps) // 2]

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 steps end."""
        return self.gaps[int(len(self.gaps) * 0.99)]

    @property
    def shares(self) -> str:
        """CPU microseconds a step, by kind of party; and how many steps a second two cores would do
        of that.
        """
        owners = [seconds for name, seconds in self.spent.items() if name.startswith("owner-")]
        servers = ("controller", "comp", "dealer")
        parts = [f"{name} {self.spent[name] * 1e6:.0f}" for name in servers if name in self.spent]
        parts.append(f"owner {statistics.mean(owners) * 1e6:.0f}")
        return f"{' '.join(parts)}; two cores at most {2 / sum(self.spent.values()):.0f} steps/s"


def values_of(owners: int, given: dict[str, object]) -> dict[str, Any]:
    """Return a federation's file."""
    return {
        "run": f"bench-{owners}",
        "level": "strict",
        "listen": f"127.0.0.1:{free_port()}",
        "budget": 10_000_000,
        "policy": "ucb",
        "paillier_bits": 2048,
        "sync": True,
        "world": {"seed": 7, "owners": owners},
        "owner": [{"name": f"owner-{i + 1}"} for i in range(owners)],
        **given,
    }


def federation(
    owners: int,
    seconds: float,
    folder: Path,
    *,
    delay: float = 0.0,
    far: tuple[str, ...] = ("comp",),
    **given: object,
) -> Measured:
    """Run a federation for a while; with `delay`, what travels between the controller and those
    `far` takes so long.

    No name in `far` stands for everyone.
    """
    values = values_of(owners, given)
    listen = values["listen"]
    paths, notes = lay_out(FederationFile.make(values), folder), folder / "notes.json"
    children: dict[str, int] = {}
    if delay:
        port = free_port()
        for path in paths:
            if path.stem in far or (not far and path.stem != "controller"):
                path.write_text(path.read_text().replace(listen, f"127.0.0.1:{port}"))
        children["delay"] = forked(
            lambda: asyncio.run(delayed(port, int(listen.rpartition(":")[2]), delay))
        )
    children |= {path.stem: forked(lambda path=path: party(path, notes)) for path in paths}  # type: ignore[misc]
    try:
        first = just_written(notes, 2 if values.get("slot") or delay else 200, children)
        before = {name: (cpu_of(pid), resident(pid)) for name, pid in children.items()}
        time.sleep(seconds)
        last = just_written(notes, first["steps"] + 1, children)
        after = {name: (cpu_of(pid), resident(pid)) for name, pid in children.items()}
    finally:
        end(children)
    steps = last["steps"] - first["steps"]
    times = last["times"][-steps - 1 :]
    links = {
        name: [
            (now - then) / steps
            for now, then in zip(last["links"][name], first["links"][name], strict=True)
        ]
        for name in last["links"]
    }
    return Measured(
        steps,
        sorted(b - a for a, b in pairwise(times)),
        {name: (after[name][0] - before[name][0]) / steps for name in after if name != "delay"},
        links,
        ({name: before[name][1] for name in before}, {name: after[name][1] for name in after}),
    )


async def delayed(port: int, target: int, seconds: float) -> None:
    """Carry connections to another port; every chunk arrives so many seconds later, and none waits
    for another.
    """
    loop = asyncio.get_running_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # who is killed at the end hangs up in the middle
            while data := await reader.read(1 << 16):
                loop.call_later(seconds, writer.write, data)
        loop.call_later(seconds, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, other = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, other), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


def wait_for(
    notes: Path, steps: int, children: dict[str, int], seconds: float = 300
) -> dict[str, Any]:
    """Read what the controller wrote, when it has come so far."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if notes.exists():
            told = json.loads(notes.read_text())
            if told["steps"] >= steps:
                return told
        check_alive(children)
        time.sleep(0.05)
    raise TimeoutError(f"no {steps} steps within {seconds} s")


def just_written(
    notes: Path, steps: int, children: dict[str, int], seconds: float = 300
) -> dict[str, Any]:
    """Read what the controller wrote, when it writes next."""
    return wait_for(notes, wait_for(notes, steps, children, seconds)["steps"] + 1, children)


def echo(owners: int, seconds: float, folder: Path) -> float:
    """Rounds a second of a bare fan-out: what TLS and the event loop alone allow."""
    port = free_port()
    server, client = ssl_contexts(PartyIdentity.load(folder / "controller"))

    async def answer() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=client, server_hostname=""
                )
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
        end({f"{pid}": pid for pid in children})
    return rate


def disk() -> float:
    """Milliseconds until a small write is on the disk, the middle of 50."""
    with tempfile.NamedTemporaryFile(dir=".") as file:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(200))
            sync_data(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def levels(seconds: float) -> None:
    """Steps a second and CPU by level, beside a bare echo."""
    for level, owners, sync in (
        ("paper", 10, False),
        ("paper", 100, False),
        ("paper", 10, True),
        ("strict", 10, True),
        ("strict", 100, True),
    ):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            found = federation(owners, seconds, Path(folder), level=level, sync=sync)
            bare = (
                ""
                if sync
                else f"; bare echo {echo(owners, min(seconds, 5), Path(folder)):.0f} rounds/s"
            )
        target = TARGETS.get((level, owners))
        met = "" if target is None else f"({found.rate / target:.2f} of target)"
        print(
            f"  {level:<8} K={owners:<4} "
            f"{'disk waited for' if sync else 'disk beside':16}{found.rate:>5.0f} steps/s "
            f"{met}   p50 {found.middle * 1e3:.2f} ms  "
            f"p99 {found.p99 * 1e3:.2f} ms   CPU us a step: {found.shares}{bare}"
        )


def strict(seconds: float) -> None:
    """Level `strict`, K = 10: what travels, memory, slots, and servers that are far apart."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        found = federation(10, 2 * seconds, Path(folder), level="strict")
    print(
        f"\nlevel strict, K = 10; a step, p50 {found.middle * 1e3:.2f} ms, p99 "
        f"{found.p99 * 1e3:.2f} ms:"
    )
    for name in ("comp", "dealer", "owner-1"):
        sent, received, out, back = found.links[name]
        print(
            f"  controller -> {name}: {sent:.2f} messages, {out:.0f} B; back: {received:.2f} "
            f"messages, {back:.0f} B"
        )
    early, late = found.memory
    names = ("controller", "comp", "dealer", "customer", "owner-1", "owner-10")
    grown = ", ".join(f"{name} {early[name]:.1f} -> {late[name]:.1f}" for name in names)
    print(f"  memory after the first steps and {found.steps} later, MB: {grown}")
    base = found.middle
    print("  slot s   steps/s   at most   a step beyond its slot, ms")
    for slot in (0.02, 0.05, 0.1, 0.2):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            found = federation(
                10, seconds, Path(folder), level="strict", slot=slot, slowest_pull=slot
            )
        print(
            f"  {slot:<6} {found.rate:>9.1f} {1 / slot:>9.0f} {(found.middle - slot) * 1e3:>12.1f}"
        )
    print(
        "  20 ms one way between the servers: messages one after the other, predicted and measured "
        "ms a step"
    )
    for slot, messages in ((0.0, 4), (0.1, 6)):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            found = federation(
                10, seconds, Path(folder), delay=0.02, level="strict", slot=slot, slowest_pull=slot
            )
        predicted = base + slot + messages * 0.02
        ratio = found.middle / predicted
        print(
            f"  slot {slot:<4} {messages:>8} {predicted * 1e3:>12.1f} {found.middle * 1e3:>10.1f} "
            f"({ratio:.2f})"
        )


def memory(steps: int, owners: int, level: str) -> None:
    """Resident megabytes of every party, and bytes of its journal, at ten points of a long run."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        notes = folder / "notes.json"
        paths = lay_out(FederationFile.make(values_of(owners, {"level": level})), folder)
        children = {path.stem: forked(lambda path=path: party(path, notes)) for path in paths}  # type: ignore[misc]
        print(f"level {level}, K = {owners}: MB resident / MB of journal")
        try:
            for tenth in range(1, 11):
                at = just_written(notes, steps * tenth // 10, children, 3600)["steps"]
                sizes = (
                    (name, resident(pid), journal_megabytes(folder / name))
                    for name, pid in children.items()
                )
                print(
                    f"  {at:>9,}: "
                    + ", ".join(f"{name} {size:.1f} / {kept:.1f}" for name, size, kept in sizes)
                )
        finally:
            end(children)


def journal_megabytes(folder: Path) -> float:
    """Megabytes of a party's journal; a snapshot may take the place of a log meanwhile."""
    size = 0
    for path in (folder / "journal").iterdir():
        with suppress(OSError):
            size += path.stat().st_size
    return size / 1e6


def capacity(seconds: float) -> None:
    """Steps a second by the time of one way between the controller and everyone else, by level and
    owners.
    """
    print(
        "\none way ms    " + "".join(f"{f'{level}, K={owners}':>18}" for level, owners in CAPACITY)
    )
    for delay in (0.0, 0.01, 0.05):
        rates = []
        for level, owners in CAPACITY:
            with tempfile.TemporaryDirectory(dir=".") as folder:
                rates.append(
                    federation(owners, seconds, Path(folder), delay=delay, far=(), level=level).rate
                )
        print(
            f"  {delay * 1e3:>8.0f}    " + "".join(f"{rate:>18.1f}" for rate in rates), flush=True
        )


def main() -> None:
    for level in ("paper", "strict"):
        warm_up(UCB(), level)
    if "memory" in sys.argv[1:2]:  # memory [steps [owners [level]]]
        steps, owners, level = [*sys.argv[2:], *("100000", "10", "strict")[len(sys.argv) - 2 :]]
        memory(int(steps), int(owners), level)
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    print(
        f"Samba over loopback mutual TLS, journals on; {os.cpu_count()} cores, the disk takes "
        f"{disk():.2f} ms to sync"
    )
    if "capacity" in sys.argv[2:]:
        capacity(seconds)
        return
    if "strict" not in sys.argv[2:]:
        levels(seconds)
    strict(seconds)


if __name__ == "__main__":
    main()
