"""A federation of real processes whose parties are killed with kill -9 and started again."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import msgspec

from posse.core.errors import UnconfirmedError
from posse.core.roles import Reward
from posse.runtime import local
from posse.runtime.journal import _MARK, split
from tests.kit.federations import laid_out, opened

PATIENCE = 240.0
"""Seconds without an end after which a test gives up."""
LINGER = 15.0
"""Seconds after which a party that has ended is started again for those that have not: what an
operator would do.
"""


class Torment:
    """Starts the parties of a federation, kills them at points of its progress, and looks at what
    they leave.
    """

    def __init__(
        self, folder: Path, seed: int, *, owners: int, budget: int, **values: object
    ) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.paths = {
            path.stem: path for path in laid_out(folder, owners=owners, budget=budget, **values)
        }
        # A step is one frame an owner and comp's answers in the controller's journal; at level
        # `strict` comp answers all pairs, and with slots once more.
        answers = 260 * owners * (owners - 1) if values.get("level") == "strict" else 0
        self.expected_bytes = budget * (80 * owners + 60 + answers)
        self.running: dict[str, local.Process] = {}
        self.kills: Counter[str] = Counter()
        self.early_kills = self.restarts_for_others = self.unconfirmed = 0
        self.seen: list[tuple[str, bytes]] = []
        """What a journal held when its party was killed."""
        self._end = time.monotonic() + PATIENCE

    def __enter__(self) -> Torment:
        for name in self.paths:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        local.stop(list(self.running.values()))

    def start(self, name: str) -> None:
        self.running[name] = local.start_one(self.paths[name])

    def log_of(self, name: str) -> bytes:
        path = self.folder / name / "journal" / "journal-00000000.log"
        return path.read_bytes() if path.exists() else b""

    def kill(self, name: str) -> bool:
        """Kill a party; False if it has ended by itself."""
        process = self.running[name].handle
        if process.poll() is not None:
            self._check(name)
            return False
        process.kill()
        if process.wait() != -9:
            self._check(name)
            return False
        self.kills[name] += 1
        self.seen.append((name, self.log_of(name)))
        self.killed(name)
        return True

    def killed(self, name: str) -> None:
        """Hear of a death, before the party is started again."""

    def until(self, size: float) -> None:
        """Wait until the controller's journal has so many bytes, or its part is over."""
        while (
            len(self.log_of("controller")) < size
            and self.running["controller"].handle.poll() is None
        ):
            self._tick()

    def go(
        self, events: int, names: tuple[str, ...] = (), *, at_once: int = 1, again: float = 0.25
    ) -> None:
        """Kill parties in turn at `events` points of the run, some twice in their first second, and
        see it end.
        """
        names = names or tuple(self.paths)
        turn: list[str] = []
        for size in sorted(self.rng.uniform(0, self.expected_bytes) for _ in range(events)):
            self.until(size)
            time.sleep(self.rng.uniform(0, 0.05))
            turn += self.rng.sample(names, len(names)) if len(turn) < at_once else []
            victims, turn = list(dict.fromkeys(turn[:at_once])), turn[at_once:]  # one dies once
            victims = [name for name in victims if self.kill(name)]
            for name in victims:
                self.start(name)
            if victims and self.rng.random() < again:
                time.sleep(self.rng.uniform(0.05, 1.0))  # while it starts and recovers
                for name in victims:
                    self.early_kills += self.kill(name)
                    if self.running[name].handle.poll() is not None:
                        self.start(name)
        self.wait()

    def wait(self) -> None:
        """Wait until everyone has ended, and everyone well."""
        ended: dict[str, float] = {}
        while len(ended) < len(self.paths):
            self._tick()
            for name, process in list(self.running.items()):
                if process.handle.poll() is None:
                    continue
                if self._check(name) == UnconfirmedError.exit_code:  # it asks to be started again
                    self.unconfirmed += 1
                    self.start(name)
                else:
                    ended.setdefault(name, time.monotonic())
            if (
                ended
                and len(ended) < len(self.paths)
                and time.monotonic() - max(ended.values()) > LINGER
            ):
                for name in ended:
                    self.restarts_for_others += 1
                    self.start(name)
                ended.clear()

    def _tick(self) -> None:
        time.sleep(0.01)
        if time.monotonic() > self._end:
            tails = {name: self.tail(name) for name in self.paths}
            raise AssertionError(
                f"not finished after {PATIENCE:g} s; kills {dict(self.kills)}; logs {tails}"
            )

    def tail(self, name: str) -> str:
        path = self.paths[name].with_suffix(".log")
        return path.read_text(errors="replace")[-600:] if path.exists() else ""

    def _check(self, name: str) -> int:
        """Return how a party ended: well, or well and without the word of a peer that has its last
        messages.
        """
        code = int(self.running[name].handle.returncode)
        assert code in (0, UnconfirmedError.exit_code), (
            f"'{name}' ended with {code}: {self.tail(name)}"
        )
        return code

    # What is left ---------------------------------------------------------------------------------

    def check_journals(self) -> None:
        """What a killed party had journalled begins its journal to the end: nothing was lost or
        replaced.
        """
        for name, seen in self.seen:
            whole, _ = split(seen)
            log = self.log_of(name)
            final, size = split(log)
            assert size == len(log)
            assert final[: len(whole)] == whole, name
        for name in self.paths:
            assert "Traceback" not in self.paths[name].with_suffix(".log").read_text(), self.tail(
                name
            )

    def states(self) -> dict[str, dict[str, object]]:
        """The state of every role, from its journal."""
        found = {}
        for name, path in self.paths.items():
            party = opened(path)
            found[name] = dict(party.engine.role.state())
            assert party.engine.role.finished
            party.engine._journal.close()
        return found

    def result(self) -> float:
        """The total that the customer's process wrote."""
        return float(
            msgspec.json.decode(
                (self.folder / "customer" / "journal" / "result.json").read_bytes()
            )["total"]
        )

    def rewards(self, name: str) -> list[Reward]:
        """The rewards in an owner's journal, in order."""
        records, _ = split(self.log_of(name))
        found = [
            msgspec.msgpack.decode(record, type=tuple[int, str, int, bytes])
            for record in records
            if not record.startswith(_MARK)
        ]
        return [
            msgspec.msgpack.decode(body, type=Reward) for kind, _, _, body in found if kind == 2
        ]
