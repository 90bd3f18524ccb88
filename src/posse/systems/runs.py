"""A run that goes forward: one message, one decision, some, or to the end.

A **Run** comes from `System.start`; it can be looked at, recorded and taken back at any moment
between two calls. A run on real roles (`RolesRun`) delivers their messages in one process, one seed
after the other.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.interrupts import half_second_steps
from posse.core.roles import WORLD, Ask, Message, Note, Role, View
from posse.results.record import Progress, Record, Watch
from posse.runtime.memory import Delivery, MemoryRun, Transcript, World, fork

if TYPE_CHECKING:
    from posse.systems.base import RunSettings, System


class Run(ABC):
    """Something that goes forward: one or several seeds of one setting.

    `time` counts decisions (or rounds) over all seeds and `horizon` is how many there will be.
    Between two calls a run can be read (`state`, `view`), recorded and saved. Runs are not safe to
    use from two threads at once.
    """

    unit: ClassVar[str] = "step"
    """The system's own word for what `time` counts."""
    steady: ClassVar[bool] = False
    """Whether a record may be made in another thread while it goes forward: each step puts a new
    state in place.
    """

    def __init__(self, system: System, settings: RunSettings, seeds: Sequence[int] | None) -> None:
        self.system, self.settings = system, settings
        self.seeds = settings.seeds if seeds is None else tuple(seeds)
        self.seconds = 0.0
        """CPU seconds spent going forward; compiling and loading are not in it."""

    # Going forward --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def time(self) -> int:
        """Decisions made, in all seeds together."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Decisions there will be."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is left to do."""

    @abstractmethod
    def _advance(self, n: int) -> None:
        """Make n decisions in each seed under way, or finish what remains."""

    def advance(self, n: int = 1) -> None:
        """Make n decisions at full speed, in each seed that goes side by side with others; fewer
        where it ends.
        """
        check.at_least(1, n=n)
        with self._counted():
            self._advance(n)

    def step(self) -> None:
        """Make one decision."""
        self.advance(1)

    def finish(self, watch: Watch | None = None) -> None:
        """Go to the end; `watch` is called on the way."""
        for steps in half_second_steps(self.stride, self.least):
            if self.done:
                return
            self.advance(steps)
            if watch is not None:
                watch(self.progress)

    @property
    def stride(self) -> int:
        """Decisions between two looks at progress or at Ctrl-C, at most; fewer where they take
        long.
        """
        return max(1, self.horizon // max(1, len(self.seeds)) // 200)

    @property
    def least(self) -> int:
        """Decisions that are made together at least."""
        return 1

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        number = min(len(self.seeds) - 1, self.time * len(self.seeds) // max(1, self.horizon))
        number -= number % self.side_by_side
        return Progress(
            number, len(self.seeds), self.time / max(1, self.horizon), self.side_by_side
        )

    @property
    def side_by_side(self) -> int:
        """Seeds that go forward together."""
        return 1

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Move one message, and `explain` it; None when nothing is left, or so many decisions were
        made before it.
        """
        if self.done:
            return None
        self._refuse("has no messages between roles. Use step().")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - started

    # The world outside ----------------------------------------------------------------------------

    @property
    def asks(self) -> Mapping[int, Ask]:
        """What a world outside must answer before the run goes on, by number."""
        return {}

    def answer(self, number: int, reward: Any) -> None:
        """Answer for the world outside."""
        self._refuse("has its world inside. Start it with world='outside'.")

    # Looking at it --------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return ()

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of role of every party."""
        return {}

    def state(self, party: str) -> dict[str, Any]:
        """Return what an operator standing at a party may see."""
        self._refuse("has no parties: one process sees everything.")

    def view(self, *parties: str) -> View:
        """Return what these parties together saw: their messages, their own secrets, the public
        terms.
        """
        self._refuse("has no parties, and so no views.")

    def tap(self) -> View:
        """Return what somebody sees who holds no party and reads everything that travels between
        them.
        """
        self._refuse("has no messages between roles.")

    def truth(self) -> Mapping[str, Any]:
        """Return what only a simulation knows, to score an attack by."""
        return {}

    @abstractmethod
    def record(self, status: str | None = None) -> Record:
        """Return the record of what has been done so far."""

    def interrupted(self) -> Record:
        """Keep what belongs to the run itself, and return its record."""
        return self.record("interrupted")

    def recorded(self, status: str | None, **fields: Any) -> Record:
        """Make a record of what every system says alike, and of these fields."""
        of = self.system
        settings: Any = self.settings  # of the system's own class, with `config` and `problem`
        return Record(
            kind=of.name,
            config=settings.config(),
            problem=settings.problem(),
            level=of.level_of(settings),
            leaks=of.not_protected(settings),
            status=status or ("finished" if self.done else "running"),
            seconds=self.seconds,
            **fields,
        )

    # Going back -----------------------------------------------------------------------------------

    @abstractmethod
    def save(self) -> Any:
        """Return this moment, to come back to with `load`; in this process only, for it holds
        secrets.
        """

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Come back to a saved moment of this run."""

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"this run of {self.system.name} {why}")


class RolesRun(Run):
    """A run on real roles in one process, one seed after the other.

    A system gives `_make` (the roles of a seed, made anew from the same arguments at every call of
    the function it returns), `_world` (which answers its asks and counts decisions in `reached`),
    `_reply` and `record`.
    """

    def __init__(
        self,
        system: System,
        settings: RunSettings,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
    ) -> None:
        super().__init__(system, settings, seeds)
        self.outside, self._kept = world == "outside", transcript
        self.memories: list[MemoryRun] = []
        """One for each seed begun, the current one last."""
        self.worlds: list[Any] = []
        self._makers: list[Callable[[], list[Role]]] = []
        self._over = False
        self._begin(0)

    @abstractmethod
    def _maker(self, seed: int) -> Callable[[], list[Role]]:
        """Return a function that makes the roles of a seed, always from the same arguments."""

    @abstractmethod
    def _world(self, seed: int) -> Any:
        """Make the simulated world of a seed; its `reached` counts the decisions made."""

    @property
    @abstractmethod
    def _each(self) -> int:
        """Decisions of one seed."""

    def _reply(self, ask: Ask, reward: Any) -> Message:
        """Make a message of what the world outside answers."""
        self._refuse("cannot be answered from outside.")

    def _closed(self, note: Note) -> None:
        """Check what a role says at the end of a seed."""

    @property
    def public(self) -> Mapping[str, Any]:
        """The terms that everybody knows."""
        return {}

    def _begin(self, number: int) -> None:
        seed = self.seeds[number]
        maker, world = self._maker(seed), self._world(seed)
        answering: World | None = None if self.outside else world
        self._makers.append(maker)
        self.worlds.append(world)
        self.memories.append(MemoryRun(maker(), answering, transcript=self._kept))

    @property
    def memory(self) -> MemoryRun:
        """The roles of the current seed."""
        return self.memories[-1]

    @property
    def world(self) -> Any:
        """The simulated world of the current seed."""
        return self.worlds[-1]

    @property
    def horizon(self) -> int:
        """Decisions of all seeds."""
        return self._each * len(self.seeds)

    @property
    def time(self) -> int:
        """Decisions made."""
        return self._each * (len(self.memories) - 1) + int(self.world.reached)

    @property
    def done(self) -> bool:
        """Whether every role of every seed has finished."""
        return self._over

    @property
    def asks(self) -> Mapping[int, Ask]:
        """What the world outside must answer before the run goes on."""
        return self.memory.asks

    def answer(self, number: int, reward: Any) -> None:
        """Answer for the world outside, by the number of the ask."""
        if number not in self.memory.asks:
            raise ConfigError(
                f"there is no open ask {number}. Open: "
                f"{', '.join(map(str, self.memory.asks)) or 'none'}."
            )
        ask = self.memory.asks[number]
        with self._counted():
            self.memory.answer(number, self._reply(ask, reward))
        self.world.answered(ask, reward)

    def _advance(self, n: int) -> None:
        until = min(self._each, int(self.world.reached) + n)
        closing = int(self.world.reached) >= self._each
        for note in self.memory:
            self._look(note)
            if not closing and self.memory.time >= until and until < self._each:
                return
        self._next()

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Move one message; None when the run is over, waits for the world outside, or is at
        `until` before it.
        """

        def enough() -> bool:
            return until is not None and self.time >= until

        with self._counted():
            moved = self.memory.deliver(None if until is None or enough() else enough)
            if moved is None and enough():
                self.memory.time = int(self.world.reached)
                return None
            if moved is None and not self.asks:
                self._next()
                if not self._over:
                    moved = self.memory.deliver()
        if moved is None:
            return None
        for note in moved.notes:
            self._look(note)
        delivery = moved._replace(time=self.time)
        return (
            delivery._replace(explanation=self.system.explain(self, delivery))
            if explain
            else delivery
        )

    def _look(self, note: Note) -> None:
        self.memory.time = int(self.world.reached)
        self._closed(note)

    def _next(self) -> None:
        """Begin the next seed where this one is over."""
        self.memory.time = int(self.world.reached)
        if self.asks:
            return
        if len(self.memories) < len(self.seeds):
            self._begin(len(self.memories))
        else:
            self._over = True

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return tuple(self.memory.roles)

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of role of every party."""
        return {name: role.kind for name, role in self.memory.roles.items()}

    def state(self, party: str) -> dict[str, Any]:
        """Return what an operator standing at a party may see."""
        check.one_of(self.parties, party=party)
        return self.memory.roles[party].state()

    def view(self, *parties: str) -> View:
        """Return what these parties together saw of the current seed."""
        for party in parties:
            check.one_of(self.parties, party=party)
        kept = self._transcript
        secrets = {party: self.memory.roles[party].save() for party in parties}
        return View(tuple(parties), kept.view(*parties), secrets, self._terms, kept.forgotten)

    def thin(self, message: Message) -> Message:
        """Return what an audit keeps of a message: all that attacks on one view read of it."""
        return message

    def tap(self) -> View:
        """Return what travelled between the parties in the current seed, without anybody's
        secrets.
        """
        kept = self._transcript
        return View(
            (), [entry for entry in kept if entry.sender != WORLD], {}, self._terms, kept.forgotten
        )

    @property
    def _transcript(self) -> Transcript:
        kept = self.memory.transcript
        if kept is None:
            self._refuse(
                "keeps no transcript. Start it with posse.start, or give transcript=100000."
            )
        return kept

    @property
    def _terms(self) -> dict[str, Any]:
        return {"system": self.system.name, **self.public}

    def traffic(self, seeds: int | None = None) -> dict[tuple[str, str], list[int]]:
        """Messages and bytes between kinds of role, over all seeds, or over the first ones."""
        hops: dict[tuple[str, str], list[int]] = {}
        for memory in self.memories[:seeds]:
            for hop, moved in memory.hops.items():
                sums = hops.setdefault(hop, [0, 0])
                sums[0] += moved.messages
                sums[1] += moved.bytes
        return hops

    def role_seconds(self, seeds: int | None = None) -> dict[str, float]:
        """CPU seconds by kind of role, over all seeds, or over the first ones."""
        spent: dict[str, float] = {}
        for memory in self.memories[:seeds]:
            for kind, seconds in memory.seconds.items():
                spent[kind] = spent.get(kind, 0.0) + seconds
        return spent

    def save(self) -> Any:
        """Return this moment; finished seeds are shared with it, for they do not change any
        more.
        """
        seeds = tuple(zip(self.memories, self.worlds, self._makers, strict=True))
        return {
            "now": (self._over, self.seconds),
            "seeds": seeds,
            "memory": self.memory.save(),
            "world": fork(self.world),
        }

    def load(self, saved: Any) -> None:
        """Come back to a saved moment of this run, or go on to it."""
        self._over, self.seconds = saved["now"]
        self.memories, self.worlds, self._makers = map(list, zip(*saved["seeds"], strict=True))
        self.memories[-1], self.worlds[-1] = (
            copy(self.memory),
            fork(saved["world"]),
        )  # other moments keep theirs
        self.memory.load(saved["memory"], self._makers[-1](), None if self.outside else self.world)
