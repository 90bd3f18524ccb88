"""The wall clock may be moved by a day while a federation runs: nothing changes.

Clocks that a running party reads: the event loop's, which only runs forward, for heartbeats,
deadlines and waits; and the wall clock in two places, for the validity of certificates
(`deployment`) and the time of a log line (`operate`). OpenSSL looks at the wall clock in a
handshake by itself, where no test can inject another.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import posse
from posse.runtime.certificates.authority import Authority
from posse.runtime.network.operate import json_log
from posse.systems.registry import run
from posse.systems.samba.settings import Samba
from tests.kit.federations import laid_out, opened, run_all, until

BUDGET = 40
DAY = timedelta(days=1)
WALL = re.compile(r"\btime\.(time|localtime|gmtime|ctime)(_ns)?\(|\.(now|utcnow|today)\((UTC)?\)")
ANY = re.compile(
    WALL.pattern
    + r"|\b(monotonic|perf_counter)(_ns)?\(|\.time\(\)|call_later|asyncio\.(sleep|wait_for)"
)


def readers(pattern, *places):
    root = Path(posse.__file__).parent
    files = [
        path
        for place in places
        for path in ((root / place).rglob("*.py") if (root / place).is_dir() else [root / place])
    ]
    return {str(path.relative_to(root)) for path in files if pattern.search(path.read_text())}


def test_which_clocks_are_read_at_all():
    # `doctor` looks at the validity of a certificate, `local` makes certificates; both are no part
    # of a run.
    assert readers(
        WALL, "runtime/network", "runtime/journal.py", "runtime/sources.py", "runtime/local.py"
    ) == {
        "runtime/local.py",
        "runtime/network/deployment.py",
        "runtime/network/doctor.py",
        "runtime/network/operate.py",
    }
    # What decides (roles, engine, links, journal, frames) reads no clock of any kind; the clock of
    # slots answers asks, as a source of rewards does. An attack on arrival times stages the network
    # that it watches. Whether a function is interpreted or compiled depends on time, and so does
    # how long a process waits for another one that compiles it; no result depends on that
    # (tests/core/interpreted.py, tests/core/test_compiled.py).
    decides = ("links", "engine", "wire")
    assert readers(
        ANY,
        "systems/samba",
        "core",
        "policies",
        "privacy/crypto",
        "runtime/journal.py",
        *(f"runtime/network/{name}.py" for name in decides),
    ) == {
        "systems/samba/strict/clock.py",
        "systems/samba/attacks/network.py",
        "core/compiled.py",
        "core/interrupts.py",
        "core/machine_code.py",
    }


class Shifted:
    """The wall clock and what a test adds to it."""

    def __init__(self):
        self.by = timedelta()

    def __call__(self, tz=UTC):
        return datetime.now(UTC) + self.by


def run_shifted(folder, clock, moves, monkeypatch):
    """Run; at points of the run let `moves` change the clock and the controller's connections
    break.
    """
    notes, lines, counts = [], [], Counter()
    paths = laid_out(folder, budget=BUDGET)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + clock.by.total_seconds())
    moving = type("Moving", (datetime,), {"now": classmethod(lambda cls, tz=None: clock())})
    monkeypatch.setattr("posse.runtime.network.operate.datetime", moving)
    log = json_log(
        "somebody", type("Lines", (), {"write": lambda _, text: lines.append(text), "flush": int})()
    )

    async def all_of_them():
        parties = [opened(path, notes, log=log, now=clock) for path in paths]
        running = asyncio.create_task(run_all(parties))
        try:
            for number, move in enumerate(moves, start=1):
                while parties[0].engine.role.state()["step"] < number * BUDGET / (len(moves) + 1):
                    assert not running.done()
                    await asyncio.sleep(0.002)
                clock.by = move[0]
                for connection in list(parties[0].connections.values()):
                    connection.hang_up("the test says so")
                if len(move) > 1:
                    await move[1](parties)
            await running
        finally:
            running.cancel()
        return parties

    parties = asyncio.run(all_of_them())
    for party in parties:
        party.engine._journal.close()
        counts += party.counts
    (total,) = [note.value for note in notes if note.kind == "total"]
    pulls = [
        party.engine.role.state()["pulls"] for party in parties if party.engine.role.kind == "owner"
    ]
    plain = run(Samba(policy="ucb", owners=3, budget=BUDGET, seed=7, level="paper").plain())
    assert plain.total == (total,)
    assert plain.pulls.tolist() == [pulls]
    return counts, lines


@pytest.fixture
def old_certificates(monkeypatch):
    """Certificates that were made three days ago."""

    def then():
        return datetime.now(UTC).replace(microsecond=0) - 3 * DAY

    class Old(Authority):
        def __init__(self, folder, **how):
            super().__init__(folder, **{**how, "now": then})

        @classmethod
        def init(cls, folder, name, run):
            return super().init(folder, name, run, now=then)

    monkeypatch.setattr("posse.runtime.local.Authority", Old)


@pytest.mark.usefixtures("old_certificates")
def test_a_day_forth_and_back(tmp_path, monkeypatch):
    clock = Shifted()
    moves = [(DAY,), (-DAY,), (2 * DAY,), (timedelta(),)]
    counts, lines = run_shifted(tmp_path, clock, moves, monkeypatch)
    assert not counts["refused certificate"]
    assert counts["connections"] >= 2 * 5 * 4  # everyone connected again after each move
    days = {line.split('"')[3][:10] for line in lines if line.startswith('{"time"')}
    assert len(days) >= 3  # the log shows that the clock did move


def test_certificates_of_today_wait_where_the_clock_goes_back(tmp_path, monkeypatch):
    """A certificate that seems not to have begun is refused; the run waits and goes on when the
    clock is set.
    """
    clock, seen = Shifted(), []

    async def wait(parties):
        before = parties[0].engine.role.state()["step"]
        await until(lambda: sum(party.counts["refused certificate"] for party in parties) >= 5)
        seen.append((before, parties[0].engine.role.state()["step"]))
        clock.by = timedelta()

    counts, _ = run_shifted(tmp_path, clock, [(-2 * DAY, wait)], monkeypatch)
    assert counts["refused certificate"]
    ((before, after),) = seen
    assert after <= before + 1
