"""Delays, cuts and partitions by a proxy between the parties and the controller: the run is the
plain one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from posse.runtime.network.connection import Timing
from posse.systems.registry import run
from posse.systems.samba.settings import Samba
from tests.kit.federations import laid_out, opened, run_all
from tests.network.proxy import Proxy

TIMING = Timing(
    heartbeat=0.2, patience=1.2, first_wait=0.01, longest_wait=0.2, sync_every=0.005, linger=10.0
)


def disturbed(folder, seed, events, *, budget, power, longest):
    """Run with a proxy before every party; return total, pulls, and what was done."""
    rng, notes, done = random.Random(seed), [], Counter()
    paths = {path.stem: path for path in laid_out(folder, budget=budget)}

    async def all_of_them():
        port = int(paths["controller"].read_text().split("127.0.0.1:")[1].split('"')[0])
        proxies = {name: Proxy(port, rng, power) for name in paths if name != "controller"}
        for name, proxy in proxies.items():
            await proxy.start()
            paths[name].write_text(
                paths[name].read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{proxy.port}")
            )
        parties = {name: opened(path, notes, timing=TIMING) for name, path in paths.items()}
        running = asyncio.create_task(run_all(list(parties.values()), 900))
        try:
            for number in range(events):
                while parties["controller"].engine.role.state()["step"] < number * budget / events:
                    await asyncio.sleep(0.005)
                    assert not running.done()
                proxy = proxies[rng.choice(sorted(proxies))]
                kind = rng.choice(("cut", "partition", "partition and cut"))
                done[kind] += 1
                if kind == "cut":
                    proxy.cut()
                else:
                    await proxy.partition(rng.uniform(0.02, longest), cut=kind != "partition")
            await running
        finally:
            running.cancel()
            for proxy in proxies.values():
                await proxy.stop()
        done["chunks"] = sum(proxy.chunks for proxy in proxies.values())
        done["connections"] = sum(proxy.connections for proxy in proxies.values())
        return parties

    parties = asyncio.run(all_of_them())
    for party in parties.values():
        party.engine._journal.close()
        assert not party.counts["refused message"]
    (total,) = [note.value for note in notes if note.kind == "total"]
    owners = [
        party.engine.role.state()["pulls"]
        for party in parties.values()
        if party.engine.role.kind == "owner"
    ]
    return total, owners, done


def check(found, budget):
    plain = run(Samba(policy="ucb", owners=3, budget=budget, seed=7, level="paper").plain())
    assert plain.total == (found[0],)
    assert plain.pulls.tolist() == [found[1]]


def test_ten_cuts_and_partitions(tmp_path):
    found = disturbed(tmp_path, 1, 10, budget=40, power=8, longest=0.3)
    check(found, 40)
    assert found[2]["connections"] > 5 + found[2]["cut"]  # they did connect again


def test_a_partition_that_outlasts_patience(tmp_path):
    found = disturbed(tmp_path, 5, 2, budget=30, power=12, longest=2.5)
    check(found, 30)


@pytest.mark.long
def test_fifty_partitions_with_delays_of_up_to_200_ms(tmp_path):
    found = disturbed(tmp_path, 3, 75, budget=150, power=1, longest=2.5)
    check(found, 150)
    print(f"\n{dict(found[2])}")
    assert found[2]["partition"] + found[2]["partition and cut"] >= 50 - 5
