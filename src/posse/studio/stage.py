"""One run on the stage: forward and back by message, step or time, with what a page needs to draw
it.

A stage is used by one thread at a time (`Stages` sees to it). It goes back by loading the nearest
save point before the moment that is wanted and going forward from there; roles are deterministic,
so what comes again is the same but for random bytes. Save points are bounded in number: when there
are too many, every other one is dropped.
"""

from __future__ import annotations

import time as clock
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from posse.core.errors import ConfigError
from posse.core.roles import WORLD, Entry
from posse.runtime.memory import Delivery
from posse.studio.catalogue import known
from posse.systems.modules import scene_of
from posse.systems.runs import RolesRun, Run

if TYPE_CHECKING:
    from posse.systems.base import AnySystem, RunSettings

Unit = Literal["message", "step", "time"]
POINTS = 400
"""Points of a curve: where there are more, every other one is dropped."""
SAVES = 32
"""Save points that a stage holds."""
GAP = 256
"""Messages and decisions between two save points, at first."""
KEPT = 50_000
"""Messages that a stage holds."""
EXPLAINED = 2_000
"""Explanations that a stage holds."""
CLOSE = 2
"""Decisions before a moment that is wanted from which on messages are explained."""
WHOLE = "all together"
"""What is said instead of a kind of role where time is not counted by role."""
ALIKE = 200
"""Messages of one move that are named and, on the way to a time, explained."""


class Stage:
    """A run that can be moved both ways."""

    def __init__(self, id: str, system: AnySystem, settings: RunSettings, **options: Any) -> None:
        """`options` are further arguments of the system's `start`."""
        self.id, self.system = id, system
        self._options = options
        self.settings = settings.but(runs=1) if settings.runs != 1 else settings
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self._explained: dict[int, Mapping[str, Any]] = {}
        self._saves: list[tuple[int, int, Any]] = []
        self._gap = GAP
        self._last: list[Delivery] = []
        self._since = 0
        """Messages that had moved when the present time began; -1 where that is not known."""
        self._drawn = -1
        """Time of the last point of the curves."""
        self._every = 1
        """Decisions between two points of the curves."""
        self._run: Run | None = None
        self._kinds: dict[str, str] = {}
        self.known: dict[str, Any] = {}
        """What the roles of this run know, and what is not protected."""

    def open(self) -> None:
        """Begin the run; data are read and keys are made here."""
        self._run = self.system.start(self.settings, transcript=KEPT, **self._options)
        self._kinds = dict(self._run.kinds)
        self.known = known(self.system, self.settings)
        self._keep_point()
        self._save()

    @property
    def run(self) -> Run:
        """The run; `open` begins it."""
        if self._run is None:
            raise ConfigError("this run is still being set up. Try again in a moment.")
        return self._run

    @property
    def message(self) -> int:
        """Messages that have moved."""
        run = self.run
        if isinstance(run, RolesRun):
            return sum(hop.messages for hop in run.memory.hops.values())
        return run.time

    # Forward --------------------------------------------------------------------------------------

    def forward(self, unit: Unit, n: int, seconds: float = 0.05) -> int:
        """Go forward by so many units, for about so many seconds; return how many were made."""
        run, ends, made = self.run, clock.monotonic() + seconds, 0
        before, timed = run.time, unit == "time" or not isinstance(run, RolesRun)
        if timed and n > CLOSE + 1:
            self._skip(before + n - CLOSE, ends)
            made = run.time - before
        while made < n and not run.done and (not made or clock.monotonic() < ends):
            self._one(unit)
            made = run.time - before if timed and run.time < run.horizon else made + 1
        return made

    def aim(self, time: int, message: int | None = None) -> None:
        """Stand before a moment, or at it: where so many decisions are made and so many messages
        have moved.
        """
        run, least = self.run, message or 0
        time = min(time, run.horizon)
        exactly = self._since == self.message if message is None else self.message == message
        if run.time < time or self.message < least or (run.time == time and exactly):
            return
        fit = [one for one in self._saves if one[1] < time or one[0] < least]
        self._restore(fit[-1] if fit else self._saves[0])

    def approach(self, time: int, message: int | None = None, seconds: float = 0.05) -> bool:
        """Go on to the first moment at which that is so, for about so many seconds; whether it is
        reached.
        """
        run, ends, least = self.run, clock.monotonic() + seconds, message or 0
        time = min(time, run.horizon)
        self._skip(time - CLOSE, ends)
        while not run.done and (run.time < time or self.message < least):
            if clock.monotonic() > ends:
                return False
            if isinstance(run, RolesRun):
                self._deliver(run, time if run.time < time else None)
            else:
                self._one("time")
        return True

    def unexplained(self) -> int | None:
        """Return the time of the last message, where it moved at full speed and so nothing explains
        it.
        """
        found = self.entries(None, 1) if isinstance(self.run, RolesRun) and not self._last else []
        return found[0][1].time if found and found[0][2] is None else None

    def _one(self, unit: Unit) -> None:
        run = self.run
        if not isinstance(run, RolesRun):
            run.advance(1)
            self._last, self._since = [], self.message
            self._passed()
            return
        self._last, time = [], run.time
        if unit == "time":
            while not run.done and run.time == time:
                self._deliver(run, time + 1)
            return
        while (moved := self._deliver(run)) is not None:
            following = run.memory.upcoming
            if (
                unit == "message"
                or following is None
                or self._alike(following) != self._alike(moved)
            ):
                return

    def _deliver(self, run: RolesRun, until: int | None = None) -> Delivery | None:
        """Move one message, or none where so many decisions were made before it.

        On the way to a time only the last messages of a crowd are explained.
        """
        time = run.time
        moved = run.deliver(explain=until is None or not run.memory.crowded(ALIKE), until=until)
        if run.time > time:
            self._since = self.message
        if moved is not None:
            number = self.message
            if moved.explanation is not None:
                self._explained[number] = moved.explanation
                if len(self._explained) > EXPLAINED:
                    del self._explained[next(iter(self._explained))]
            if self._last and self._alike(self._last[-1]) != self._alike(moved):
                self._last = []
            self._last.append(moved)
            if until is None and run.memory.upcoming is None and not run.asks:
                run.deliver()  # nothing is left: this closes the run
        self._passed()
        return moved

    def _alike(self, send: Any) -> tuple[str, str, str]:
        """Messages that are alike in this belong to one step of the protocol."""
        return self.kind(send[0]), self.kind(send[1]), type(send[2]).__name__

    def kind(self, party: str) -> str:
        """The kind of role of a party."""
        return self._kinds.get(party, party)

    def _skip(self, time: int, ends: float) -> None:
        """Go forward at full speed to a time, or as far as it goes; nothing is explained on the
        way.
        """
        run = self.run
        while run.time < time and not run.done and clock.monotonic() < ends:
            every = self._every
            while time - run.time > POINTS * every:
                every *= 2
            run.advance(min(time - run.time, every - run.time % every))
            self._last, self._since = [], -1
            self._passed()

    def _passed(self) -> None:
        """Keep what is to be kept of this moment: a point of the curves, a save point."""
        time = self.run.time
        if time % self._every == 0 or self.run.done:
            self._keep_point()
        if self.message + time - sum(self._saves[-1][:2]) >= self._gap:
            self._save()

    def _keep_point(self) -> None:
        """Keep a point of every curve, once a time: pictures of a crowd take long."""
        time = self.run.time
        if self._drawn == time:
            return
        self._drawn = time
        for name, value in (
            (scene_of(self.system).draw(self.run) or {}).get("curves") or {}
        ).items():
            line = self.curves.setdefault(name, [])
            if not line or line[-1][0] < time:
                line.append((time, value))
        if max(map(len, self.curves.values()), default=0) > POINTS:
            self._every *= 2
            for line in self.curves.values():
                line[:] = [
                    point for point in line if point[0] % self._every == 0 or point[0] == time
                ]

    # Back -----------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._saves.append((self.message, self.run.time, self.run.save()))
        if len(self._saves) > SAVES:
            del self._saves[1::2]
            self._gap *= 2

    def _restore(self, chosen: tuple[int, int, Any]) -> None:
        """Load a save point."""
        del self._saves[self._saves.index(chosen) + 1 :]
        self.run.load(chosen[2])
        number, time = self.message, self.run.time
        self._last, self._since = [], number if number == 0 else -1
        self._explained = {at: one for at, one in self._explained.items() if at <= number}
        for line in self.curves.values():
            while line and line[-1][0] > time:
                line.pop()
        self._drawn = max((line[-1][0] for line in self.curves.values() if line), default=-1)

    def before(self, unit: Unit, n: int) -> tuple[int, int | None]:
        """Return the moment so many units ago, as `seek` takes it."""
        run = self.run
        if not isinstance(run, RolesRun) or unit == "time":
            return max(0, run.time - n), None
        if unit == "message":
            return self._moment(max(0, self.message - n))
        number, groups, alike = self.message, 0, None
        for entry in self._backwards():
            this = self._alike(entry[1:4])
            if this != alike:
                groups, alike = groups + 1, this
            if groups > n:
                return self._moment(number)
            number -= 1
        return self._moment(number)

    def _moment(self, message: int) -> tuple[int, int]:
        """Return a message's number with a time that is not behind it."""
        if message == 0:
            return 0, 0
        for number, entry in zip(range(self.message, 0, -1), self._backwards(), strict=False):
            if number == message:
                return entry.time, message
        return 0, message

    # What it shows --------------------------------------------------------------------------------

    def _backwards(self) -> Iterator[Entry]:
        """Messages between parties that are held, the last one first."""
        run = self.run
        if isinstance(run, RolesRun):
            kept = run.memory.transcript
            return (
                entry for entry in reversed(kept.entries if kept else ()) if entry.sender != WORLD
            )
        return iter(reversed(run.view(*run.parties).entries if run.parties else ()))

    def entries(
        self, before: int | None, count: int
    ) -> list[tuple[int, Entry, Mapping[str, Any] | None]]:
        """Return the last messages up to a number with their explanations, the newest last."""
        found: list[tuple[int, Entry, Mapping[str, Any] | None]] = []
        newest = self.message
        last = newest if before is None else min(before, newest)
        for number, entry in zip(range(newest, 0, -1), self._backwards(), strict=False):
            if number <= last:
                found.append((number, entry, self._explanation(number, entry)))
            if len(found) >= count:
                break
        return found[::-1]

    def _explanation(self, number: int, entry: Entry) -> Mapping[str, Any] | None:
        """What a message means; where no roles deliver it, its view says all that there is to
        explain.
        """
        run = self.run
        if isinstance(run, RolesRun):
            return self._explained.get(number)
        return scene_of(self.system).explain(
            run, Delivery(entry.sender, entry.receiver, entry.message, (), entry.time)
        )

    def last(self) -> dict[str, Any] | None:
        """What moved last: the message, its explanation, and all that moved with it and were
        alike.
        """
        if not self._last:
            found = self.entries(None, 1) if isinstance(self.run, RolesRun) else []
            return None if not found else described(*found[-1])
        number, moved = self.message, self._last[-1]
        entry = Entry(number, moved.sender, moved.receiver, moved.message, 0, moved.time)
        kept = next(self._backwards(), entry)
        pairs = [[one.sender, one.receiver] for one in self._last[-ALIKE:]]
        said = described(number, kept, self._explained.get(number))
        return {**said, "moved": pairs, "count": len(self._last)}

    def observers(self) -> list[str]:
        """Who can look at messages: a party that there is one of by its name, several by their
        kind.
        """
        order = [role.kind for role in self.system.roles]
        kinds = {name: self.kind(name) for name in self.run.parties}
        count = Counter(kinds.values())
        sorts = sorted(
            kinds, key=lambda name: order.index(kinds[name]) if kinds[name] in order else len(order)
        )
        return list(
            dict.fromkeys(kinds[name] if count[kinds[name]] > 1 else name for name in sorts)
        )

    def watchers(self) -> dict[str, str]:
        """The party that looks where a kind of several is chosen: the first one."""
        return {
            one: self.watcher(one) or one for one in self.observers() if one not in self.run.parties
        }

    def watcher(self, observer: str) -> str | None:
        """The party that an observer is: a party by its name, or the first one of a kind."""
        parties = self.run.parties
        named = (name for name in parties if name == observer)
        return next(named, next((name for name in parties if self.kind(name) == observer), None))

    def state(self) -> dict[str, Any]:
        """Everything a page shows of this moment; curves are apart."""
        run, time = self.run, self.run.time
        roles = run.role_seconds() if isinstance(run, RolesRun) else {WHOLE: run.seconds}
        hops = run.traffic() if isinstance(run, RolesRun) else {}
        message, scene = self.message, scene_of(self.system).draw(run)
        return {
            "time": time,
            "horizon": run.horizon,
            "unit": run.unit,
            "message": message,
            "messages": message,
            "done": run.done,
            "scene": scene,
            "last": self.last() or (scene or {}).get("last"),
            "observers": self.observers(),
            "watchers": self.watchers(),
            **self.known,
            "costs": [
                {"kind": kind, "seconds": spent, "per_step": spent / time if time else None}
                for kind, spent in roles.items()
            ],
            "traffic": [
                {"from": a, "to": b, "messages": n, "bytes": size}
                for (a, b), (n, size) in hops.items()
            ],
        }


def described(number: int, entry: Entry, explanation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a message: who sent what to whom, in words; its bytes are apart."""
    name = type(entry.message).__name__
    said: dict[str, Any] = {
        "number": number,
        "time": entry.time,
        "sender": entry.sender,
        "receiver": entry.receiver,
        "name": name,
        "says": f"{{{entry.sender}}} sends {name} to {{{entry.receiver}}}.",
        "clear": [],
        "parts": [],
        "lines": {},
        "step": "",
        "chosen": None,
        "size": entry.size,
    }
    return {**said, **(explanation or {})}
