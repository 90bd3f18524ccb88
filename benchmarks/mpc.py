"""The contextual bandit on shared features over loopback mutual TLS, journals on: `make bench-mpc`.

Parties, puller, payee and dealer are processes of their own, on two cores. Contexts are synthetic
unit vectors; the puller's and the payee's own systems answer at once. Steps are those between two
readings; starting is not counted. `--long` runs 60,000 steps and looks at memory; `--only delay`
puts so many milliseconds between all roles, and compares the ways to need fewer rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import cpu
from benchmarks.network import cpu_of, delayed, disk, forked, free_port
from posse.privacy.sharing.fixed import FixedPoint
from posse.runtime.memory import MemoryRun
from posse.runtime.network.connection import Connection
from posse.runtime.network.deployment import make_party
from posse.runtime.place import open_place
from posse.systems.mpc_contextual.deploy import build
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.layout import ContextualFederation, lay_out
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms

FEATURES, ARMS = 20, 10
TARGET_MS, TARGET_ROUNDS, TARGET_BYTES = 30.0, 15, 150e3
PUBLISHED = (561.0, 681.0)
"""Milliseconds an iteration of the published code at the same size, measured on a comparable
machine of two cores.
"""
SYSTEMS = """
async def pull(run, step, arm):
    return None

async def reward(run, number):
    return (number % 7) / 6
"""
WARM = 30
"""Steps that are not counted."""


def contexts(rows: int, parties: int) -> list[np.ndarray]:
    """Unit vectors, in which every party's block has its share of the norm."""
    rng, sizes = np.random.default_rng(1), even(parties)
    blocks = [rng.normal(size=(rows, size)) for size in sizes]
    norms = [np.linalg.norm(block, axis=1, keepdims=True) for block in blocks]
    scales = [np.sqrt(size / FEATURES) * (1 - 1e-9) for size in sizes]
    return [block / norm * scale for block, norm, scale in zip(blocks, norms, scales, strict=True)]


def even(parties: int) -> tuple[int, ...]:
    return tuple(FEATURES // parties + (i < FEATURES % parties) for i in range(parties))


def names(parties: int) -> tuple[str, ...]:
    return tuple(f"party-{i + 1}" for i in range(parties))


# In one process -----------------------------------------------------------------------------------


def plain_step(arms: int, steps: int = 3_000) -> float:
    """CPU seconds of a step of the same bandit in numpy, one process and no protection."""
    rows = np.hstack(contexts(steps, 2))
    inverse, weights = (
        np.broadcast_to(np.eye(FEATURES), (arms, FEATURES, FEATURES)).copy(),
        np.zeros((arms, FEATURES)),
    )
    rng = np.random.default_rng(2)

    def run() -> None:
        for number, x in enumerate(rows):
            scores = weights @ x
            arm = int(rng.integers(arms)) if rng.random() < 0.1 else int(scores.argmax())
            k = inverse[arm] @ x
            gain = k / (1 + x @ k)
            inverse[arm] -= np.outer(k, gain)
            weights[arm] += gain * ((number % 7) / 6 - scores[arm])

    return cpu(run, 3) / steps


def in_memory(arms: int, parties: int, steps: int = 60) -> dict[str, float]:
    """CPU seconds a step of each kind of role, all in one process."""
    terms = Terms("bench", names(parties), even(parties), arms, steps, (1, 10))
    features = FixedPoint(terms.bits, 1.0).encode(np.hstack(contexts(steps, parties)))
    run = MemoryRun(
        federation(terms, features, 1), SimulatedWorld(lambda step, arm: (step % 7 << 24) // 6)
    )
    run.finish()
    return {kind: seconds / steps for kind, seconds in run.seconds.items()}


# As processes -------------------------------------------------------------------------------------


class NoDisk:
    """A disk that keeps nothing: what journals cost is the difference."""

    def take(self, folder: Path) -> int:
        folder.mkdir(parents=True, exist_ok=True)  # the root of secrets lies there
        return 0

    def names(self, folder: Path) -> list[str]:
        return []

    def read(self, path: Path) -> bytes:
        return b""

    def open(self, path: Path, flags: int) -> int:
        return 0

    def write(self, file: int, data: bytes) -> int:
        return len(data)

    def sync(self, file: int) -> None: ...

    def truncate(self, file: int, size: int) -> None: ...

    def close(self, file: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...


def role(path: Path, journals: bool) -> None:
    """Run one role, and write now and then how far it is and what went over its connections."""
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    write, take = Connection.write, Connection.data_received

    def counted_write(self: Connection, data: bytes) -> None:
        sent[self.peer or ""] += len(data)
        write(self, data)

    def counted_take(self: Connection, data: bytes) -> None:
        received[self.peer or ""] += len(data)
        take(self, data)

    Connection.write, Connection.data_received = counted_write, counted_take  # type: ignore[method-assign]

    async def go() -> None:
        party, _ = make_party(open_place(path), build, disk=None if journals else NoDisk())
        told = path.with_suffix(".told")

        async def tell() -> None:
            while True:
                state = {
                    "step": party.engine.role.state()["step"],
                    "at": time.monotonic(),
                    "sent": sent,
                    "received": received,
                }
                told.with_suffix(".part").write_text(json.dumps(state))
                told.with_suffix(".part").replace(told)
                await asyncio.sleep(0.1)

        telling = asyncio.create_task(tell())
        await party.run()
        telling.cancel()

    asyncio.run(go())


@dataclass
class Processes:
    """A federation that runs, and what its processes tell."""

    paths: list[Path]
    children: dict[str, int]

    def told(self, name: str) -> dict[str, Any]:
        path = next(path for path in self.paths if path.stem == name).with_suffix(".told")
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return {"step": 0, "at": time.monotonic(), "sent": {}, "received": {}}
        return found

    def until(self, step: int, seconds: float = 7_200) -> dict[str, Any]:
        """Wait until the puller has come so far, or all have ended."""
        end = time.monotonic() + seconds
        while (told := self.told(PULLER))["step"] < step:
            if time.monotonic() > end or os.waitpid(self.children[PULLER], os.WNOHANG)[0]:
                raise RuntimeError(f"step {step} was not reached; the puller is at {told['step']}")
            time.sleep(0.05)
        return told

    def memory(self) -> dict[str, float]:
        """Resident memory of every role in MiB."""
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        return {
            name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
            for name, pid in self.children.items()
        }

    def spent(self) -> dict[str, float]:
        return {name: cpu_of(pid) for name, pid in self.children.items()}


@contextmanager
def processes(
    arms: int, parties: int, steps: int, *, journals: bool = True, delay: float = 0.0, **terms: Any
) -> Iterator[Processes]:
    """Start a federation with files of features, of which every message takes `delay` seconds; it
    is killed at the end.

    Further terms, such as `overlap`, stand in the file as they are.
    """
    with tempfile.TemporaryDirectory(dir=".") as made:
        folder = Path(made).resolve()
        entries = []
        for name, block in zip(names(parties), contexts(steps, parties), strict=True):
            head = ",".join(["row", *(f"x{i}" for i in range(block.shape[1]))])
            lines = [
                f"r{number}," + ",".join(map(repr, row))
                for number, row in enumerate(block.tolist())
            ]
            (folder / f"{name}.csv").write_text("\n".join([head, *lines, ""]))
            entries.append({"name": name, "features": str(folder / f"{name}.csv")})
        (folder / "bench_systems.py").write_text(SYSTEMS)
        values = {
            "run": "bench",
            "steps": steps,
            "arms": arms,
            "epsilon": 0.1,
            "party": entries,
            "puller": {"source": {"kind": "python", "function": "bench_systems:pull"}},
            "payee": {"source": {"kind": "python", "function": "bench_systems:reward"}},
            "addresses": {
                name: f"127.0.0.1:{free_port()}" for name in (*names(parties), PULLER, PAYEE)
            },
            **terms,
        }
        paths = lay_out(ContextualFederation.make(values), folder)
        relays = (
            [_relay(paths, text, delay) for text in values["addresses"].values()] if delay else []
        )
        children = {path.stem: forked(lambda path=path: role(path, journals)) for path in paths}  # type: ignore[misc]
        try:
            yield Processes(paths, children)
        finally:
            for pid in (*children.values(), *relays):
                with suppress(
                    ProcessLookupError, ChildProcessError
                ):  # one may have ended by itself
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def _relay(paths: list[Path], listens: str, delay: float) -> int:
    """Stand between a role that listens and all that call it; returns the relay's process."""
    port, target = free_port(), int(listens.rpartition(":")[2])
    for path in paths:
        lines = path.read_text().splitlines()
        called = [
            line if line.startswith("listen") else line.replace(listens, f"127.0.0.1:{port}")
            for line in lines
        ]
        path.write_text("\n".join([*called, ""]))
    return forked(lambda: asyncio.run(delayed(port, target, delay)))


@dataclass
class Reading:
    """What a federation did between two readings, a step."""

    ms: float
    cpu_ms: dict[str, float]
    sent: float
    """Bytes that a party sends to other parties, puller and payee."""
    received: float
    """Bytes that a party receives from them."""
    dealt: float
    """Bytes that a party receives from the dealer, on average over the parties."""
    memory: dict[str, float]


def measured(arms: int, parties: int, seconds: float, **how: Any) -> Reading:
    """Run a federation for a while."""
    with processes(arms, parties, 15_000, **how) as running:
        first = running.until(WARM)
        before, talked = running.spent(), {name: running.told(name) for name in names(parties)}
        time.sleep(seconds)
        last = running.until(first["step"] + 1)
        after, told = running.spent(), {name: running.told(name) for name in names(parties)}
        memory = running.memory()
    steps = last["step"] - first["step"]

    def bytes_of(way: str, chosen: Callable[[str], bool]) -> float:
        found = 0.0
        for name in told:
            each = told[name]["step"] - talked[name]["step"]
            found += (
                sum(
                    size - talked[name][way].get(peer, 0)
                    for peer, size in told[name][way].items()
                    if chosen(peer)
                )
                / each
            )
        return found / len(told)

    return Reading(
        (last["at"] - first["at"]) / steps * 1e3,
        {name: (after[name] - before[name]) / steps * 1e3 for name in after},
        bytes_of("sent", lambda peer: peer != DEALER),
        bytes_of("received", lambda peer: peer != DEALER),
        bytes_of("received", lambda peer: peer == DEALER),
        memory,
    )


def rounds(arms: int, parties: int) -> int:
    return len(plan(Terms("bench", names(parties), even(parties), arms, 1000, (1, 10))).rounds)


def shown(values: dict[str, float], digits: int = 2) -> str:
    return "  ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


# What is printed ----------------------------------------------------------------------------------


def headline(seconds: float) -> None:
    plain = plain_step(ARMS) * 1e3
    memory = in_memory(ARMS, 2)
    print(
        f"{ARMS} arms, {FEATURES} features, 2 parties, puller, payee and dealer as five processes, "
        "mutual TLS"
    )
    full = measured(ARMS, 2, seconds)
    total = full.sent + full.received + full.dealt
    low, high = (each / full.ms for each in PUBLISHED)
    print(
        f"  an iteration             {full.ms:8.2f} ms    target {TARGET_MS:g}: "
        f"{TARGET_MS / full.ms:.1f}x better"
    )
    print(
        f"  the published code       {low:.0f} to {high:.0f} times as long (561 to 681 ms, "
        "elsewhere, no TLS)"
    )
    print(f"  rounds                   {rounds(ARMS, 2):8d}       target {TARGET_ROUNDS}")
    print(
        f"  bytes of a party         {total / 1e3:8.1f} KB    target {TARGET_BYTES / 1e3:g}: "
        f"sent {full.sent / 1e3:.1f}, received {full.received / 1e3:.1f}, from the dealer "
        f"{full.dealt / 1e3:.1f} "
        "(before TLS)"
    )
    print(
        f"  CPU ms of each role      {shown(full.cpu_ms)}  together {sum(full.cpu_ms.values()):.2f}"
    )
    print(f"  plain bandit in numpy    {plain:8.4f} ms    slowdown {full.ms / plain:.0f}x")
    print(
        "  in memory, CPU ms        "
        f"{shown({kind: value * 1e3 for kind, value in memory.items()})}  (all parties)"
    )
    print(f"  resident MiB             {shown(full.memory, 0)}")
    other = measured(ARMS, 2, seconds, journals=False)
    spent = sum(other.cpu_ms.values())
    print(
        f"  {'no journals at all':28}{other.ms:5.2f} ms, CPU ms {spent:.2f}: "
        f"journals cost {full.ms - other.ms:+.2f} ms, CPU {sum(full.cpu_ms.values()) - spent:+.2f} "
        "ms"
    )


def growth(seconds: float) -> None:
    print(
        "\ngrowth           rounds   ms a step   CPU ms: party   dealer   in memory   KB a party   "
        "KB dealt"
    )
    for arms, parties in [
        *((arms, 2) for arms in (10, 20, 50, 100, 200)),
        *((ARMS, each) for each in (3, 4, 5)),
    ]:
        memory = sum(in_memory(arms, parties, 24).values()) * 1e3
        one = measured(arms, parties, seconds)
        party = sum(one.cpu_ms[name] for name in names(parties)) / parties
        print(
            f"  {arms:>3} arms, {parties} "
            f"{'parties':9}{rounds(arms, parties):>4}{one.ms:>12.2f}{party:>16.2f}"
            f"{one.cpu_ms[DEALER]:>9.2f}{memory:>12.2f}{(one.sent + one.received) / 1e3:>13.1f}{one.dealt / 1e3:>11.1f}"
        )


def far_apart(seconds: float) -> None:
    """One way between any two roles takes so long: rounds, and time a step."""
    ways: dict[str, dict[str, Any]] = {
        "one by one": {},
        "overlap": {"overlap": True},
        "batches of 8": {"batch": 8},
        "linucb": {"policy": "linucb"},
        "linucb, overlap": {"policy": "linucb", "overlap": True},
    }
    print(
        "\none way ms   way                rounds a step   ms a step   of rounds x one way   "
        "steps/s"
    )
    for delay in (0.005, 0.02, 0.05):
        for name, how in ways.items():
            bonus = {"bonus": "ucb"} if "linucb" in name else {}
            terms = {key: value for key, value in how.items() if key != "policy"}
            made = Terms("bench", names(2), even(2), ARMS, 15_000, (1, 10), **terms, **bonus)
            each = len(plan(made).rounds) / made.batch
            one = measured(ARMS, 2, seconds, delay=delay, **how)
            least = each * delay * 1e3
            print(
                f"  {delay * 1e3:>8.0f}   "
                f"{name:18}{each:>10.2f}{one.ms:>15.1f}{one.ms / least:>15.2f}"
                f"{1e3 / one.ms:>18.1f}",
                flush=True,
            )


def long_run(steps: int = 60_000) -> None:
    print(f"\n{steps:,} steps over the network: resident MiB")
    began = time.monotonic()
    with processes(ARMS, 2, steps) as running:
        running.until(WARM)
        print(f"    0 %  {shown(running.memory(), 1)}", flush=True)
        for percent in (10, 25, 50, 75, 99):
            running.until(steps * percent // 100)
            print(
                f"  {percent:>3} %  {shown(running.memory(), 1)}   {time.monotonic() - began:,.0f} "
                "s",
                flush=True,
            )
        taken = time.monotonic() - began
    print(f"  {taken / 60:.1f} minutes, {taken / steps * 1e3:.2f} ms a step")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float, nargs="?", default=12.0, help="of each measurement")
    parser.add_argument("--long", action="store_true", help="60,000 steps, and memory on the way")
    parser.add_argument("--only", choices=("headline", "growth", "long", "delay"), help="one part")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    print(
        f"{len(cores)} cores, load {os.getloadavg()[0]:.1f} before the start, the disk takes "
        f"{disk():.2f} ms to sync\n"
    )
    if given.only in (None, "headline"):
        headline(given.seconds)
    if given.only in (None, "growth"):
        growth(min(given.seconds, 8.0))
    if given.only in (None, "delay"):
        far_apart(min(given.seconds, 8.0))
    if given.long or given.only == "long":
        long_run()


if __name__ == "__main__":
    main()
