"""Memory and journals of every role stay as they are, however long a run is."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from pathlib import Path
from statistics import median

import pytest

from posse.core.errors import LinkError
from posse.runtime.network.engine import SNAPSHOT_BYTES
from posse.runtime.network.operate import ask
from posse.systems.registry import run
from posse.systems.samba.settings import Samba
from tests.kit import torment
from tests.kit.federations import laid_out, opened, run_all
from tests.kit.torment import Torment


def journal_bytes(folder, name):
    """Everything a party keeps, its keys included."""
    return sum(
        path.stat().st_size for path in (folder / name / "journal").iterdir() if path.is_file()
    )


def test_heap_links_and_journals_do_not_grow(tmp_path):
    """At level `strict`, which has all roles; a snapshot of its controller holds what was dealt and
    is not used.
    """
    budget, snapshot_bytes = 450, 100_000
    paths = laid_out(tmp_path, budget=budget, level="strict", sync=True)
    samples = []

    async def all_of_them():
        parties = {path.stem: opened(path) for path in paths}
        for party in parties.values():
            party.engine._snapshot_bytes = snapshot_bytes
        running = asyncio.create_task(run_all(list(parties.values()), 540))
        tracemalloc.start()
        try:
            for step in (100, 200, 300, 400):
                while parties["controller"].engine.role.state()["step"] < step:
                    assert not running.done()
                    await asyncio.sleep(0.002)
                gc.collect()
                kept = {
                    f"{name} to {peer}": len(link._kept) + len(link.held)
                    for name, party in parties.items()
                    for peer, link in party.engine.links.items()
                }
                sizes = {name: journal_bytes(tmp_path, name) for name in parties}
                samples.append((tracemalloc.get_traced_memory()[0], kept, sizes))
            await running
        finally:
            tracemalloc.stop()
            running.cancel()
        for party in parties.values():
            party.engine._journal.close()

    asyncio.run(all_of_them())
    heap = [held for held, _, _ in samples]
    # 300 steps are 3,000 messages: what is kept of each would show.
    assert heap[-1] - heap[0] < 150_000, heap
    for _, kept, sizes in samples:
        # A message is forgotten a sync and a word later; heartbeats bring the word where nothing
        # else does.
        assert max(kept.values()) < 400, kept
        assert max(sizes.values()) < 4 * snapshot_bytes, sizes


def resident(pid):
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


@pytest.mark.long
@pytest.mark.parametrize("level", ["strict", "paper"])
def test_a_hundred_thousand_steps(tmp_path, monkeypatch, level):
    monkeypatch.setattr(torment, "PATIENCE", 1_800.0)
    budget, samples, largest = 100_000, {}, {}
    with Torment(
        tmp_path, 1, owners=3, budget=budget, level=level, sync=level == "strict"
    ) as federation:
        began = time.monotonic()
        while all(process.handle.poll() is None for process in federation.running.values()):
            time.sleep(1)
            federation._tick()
            try:
                step = asyncio.run(ask(tmp_path / "controller" / "journal", "status"))["step"]
            except LinkError:
                continue
            for name, process in federation.running.items():
                try:
                    samples.setdefault(name, []).append((step, resident(process.handle.pid)))
                    largest[name] = max(largest.get(name, 0), journal_bytes(tmp_path, name))
                except OSError:  # it has ended, or a snapshot took the place of a log
                    continue
        federation.wait()
        seconds = time.monotonic() - began
    plain = run(Samba(policy="ucb", owners=3, budget=budget, seed=7, level=level).plain())
    assert (federation.result(),) == plain.total
    print(f"\n{budget:,} steps in {seconds:.0f} s")
    for name, rows in samples.items():
        # Not from the start: code is still being loaded, and the first journal has not been
        # replaced yet.
        early = median(size for step, size in rows if 0.2 * budget <= step < 0.4 * budget)
        late = median(size for step, size in rows if 0.8 * budget <= step)
        print(
            f"{name}: {early:.1f} MiB, then {late:.1f} MiB; journal at most "
            f"{largest[name] / 2**20:.1f} MiB"
        )
        assert late < early + 4
        assert largest[name] < 2 * SNAPSHOT_BYTES + (1 << 20)
