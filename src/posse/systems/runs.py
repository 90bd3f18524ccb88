"""A run that moves forward: one message, one decision, several, or to the end.

`System.start` returns a **Run**. It can be read, recorded and saved between any two calls. A run of
real roles (`RolesRun`) delivers their messages in one process, one seed after the other.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.interrupts import half_second_steps
from posse.core.roles import WORLD, Ask, Message, Note, Role, View
from posse.results.record import Progress, Record, Watch
from posse.runtime.memory import Delivery, MemoryRun, Transcript, World, fork

if TYPE_CHECKING:
    from posse.systems.base import RunSettings, System


class Run(ABC):
    """One or several seeds of the same settings.

    `time` counts decisions (or rounds) over all seeds, and `horizon` is their final number. Between
    two calls a run can be read (`state`, `view`), recorded and saved. It must not be used by two
    threads at once.
    """

    unit: ClassVar[str] = "step"
    """The system's word for what `time` counts."""
    records_while_running: ClassVar[bool] = False
    """Whether another thread may make a record during a step, since steps replace the state."""

    def __init__(self, system: System, settings: RunSettings, seeds: Sequence[int] | None) -> None:
        self.system = system
        self.settings = settings
        self.seeds = settings.seeds if seeds is None else tuple(seeds)
        self.seconds = 0.0
        """CPU seconds of all steps, without compiling and loading."""

    # Moving forward -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def time(self) -> int:
        """Number of decisions made, over all seeds."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Number of decisions at the end, over all seeds."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the run is over."""

    @abstractmethod
    def _advance(self, n: int) -> None:
        """Make n decisions in each current seed, or fewer if it ends."""

    def advance(self, n: int = 1) -> None:
        """Make n decisions at full speed in each current seed, or fewer if it ends."""
        check.at_least(1, n=n)
        with self._timed():
            self._advance(n)

    def step(self) -> None:
        """Make one decision."""
        self.advance(1)

    def finish(self, watch: Watch | None = None) -> None:
        """Run to the end, and call `watch` with the progress about every half second."""
        for steps in half_second_steps(self.stride, self.smallest_stride):
            if self.done:
                return
            self.advance(steps)
            if watch is not None:
                watch(self.progress)

    @property
    def stride(self) -> int:
        """The most decisions between two reports of progress."""
        return max(1, self.horizon // max(1, len(self.seeds)) // 200)

    @property
    def smallest_stride(self) -> int:
        """The fewest decisions between two reports of progress."""
        return 1

    @property
    def progress(self) -> Progress:
        """How much of the run is done."""
        horizon = max(1, self.horizon)
        number = min(len(self.seeds) - 1, self.time * len(self.seeds) // horizon)
        number -= number % self.side_by_side
        return Progress(number, len(self.seeds), self.time / horizon, self.side_by_side)

    @property
    def side_by_side(self) -> int:
        """Number of seeds that are run together."""
        return 1

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Move one message, and `explain` it.

        Returns None at the end of the run, or when `until` decisions are made before a message
        moves.
        """
        if self.done:
            return None
        raise ConfigError(
            f"this run of {self.system.name} has no messages between roles. Use step().",
            rule="systems.deliver.no-messages",
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - started

    # The outside world ----------------------------------------------------------------------------

    @property
    def asks(self) -> Mapping[int, Ask]:
        """Open questions to an outside world, by number."""
        return {}

    def answer(self, number: int, reward: Any) -> None:
        """Answer a question in the place of the outside world."""
        raise ConfigError(
            f"this run of {self.system.name} simulates its world. Start it with world='outside'.",
            rule="systems.world.simulated",
        )

    # Reading --------------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return ()

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of role of every party."""
        return {}

    def state(self, party: str) -> dict[str, Any]:
        """Return what the operator of a party may see."""
        raise ConfigError(
            f"this run of {self.system.name} has no parties: one process sees everything.",
            rule="systems.state.no-parties",
        )

    def view(self, *parties: str) -> View:
        """Return what these parties saw together: messages, their secrets and the public terms."""
        raise ConfigError(
            f"this run of {self.system.name} has no parties, and so no views.",
            rule="systems.view.no-parties",
        )

    def tap(self) -> View:
        """Return all messages between parties, as somebody on the network reads them."""
        raise ConfigError(
            f"this run of {self.system.name} has no messages between roles.",
            rule="systems.tap.no-messages",
        )

    def truth(self) -> Mapping[str, Any]:
        """Return what only the simulation knows, to score attacks."""
        return {}

    @abstractmethod
    def record(self, status: str | None = None) -> Record:
        """Return the record of the run so far."""

    def record_interrupted(self) -> Record:
        """Save what an interrupted run writes itself, and return its record."""
        return self.record("interrupted")

    def make_record(self, status: str | None, **fields: Any) -> Record:
        """Make a record from `fields` and from those that all systems share."""
        system = self.system
        settings: Any = self.settings  # a subclass that has `config` and `problem`
        return Record(
            kind=system.name,
            config=settings.config(),
            problem=settings.problem(),
            level=system.level_of(settings),
            leaks=system.not_protected(settings),
            status=status or ("finished" if self.done else "running"),
            seconds=self.seconds,
            **fields,
        )

    # Saved moments --------------------------------------------------------------------------------

    @abstractmethod
    def save(self) -> Any:
        """Return this moment for `load`. It contains secrets, so keep it in this process."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Return to a saved moment of this run."""


class RolesRun(Run):
    """A run of real roles in one process, one seed after the other.

    A system implements `_role_maker`, `_make_world`, `_seed_horizon`, `_reply` and `record`.
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
        self.outside = world == "outside"
        self._transcript_limit = transcript
        self.memories: list[MemoryRun] = []
        """Roles and messages of each seed so far, the current one last."""
        self.worlds: list[Any] = []
        self._makers: list[Callable[[], list[Role]]] = []
        self._over = False
        self._begin_seed(0)

    @abstractmethod
    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        """Return a function that makes the roles of a seed, with the same arguments each time."""

    @abstractmethod
    def _make_world(self, seed: int) -> Any:
        """Make the simulated world of a seed; its `reached` counts the decisions made."""

    @property
    @abstractmethod
    def _seed_horizon(self) -> int:
        """Number of decisions of one seed."""

    @abstractmethod
    def _reply(self, ask: Ask, reward: Any) -> Message:
        """Return the message that gives the outside world's answer to a role."""

    def _check_note(self, note: Note) -> None:
        """Check a result that a role reports."""

    @property
    def public(self) -> Mapping[str, Any]:
        """Terms that all parties know."""
        return {}

    def _begin_seed(self, number: int) -> None:
        seed = self.seeds[number]
        maker = self._role_maker(seed)
        self._makers.append(maker)
        self.worlds.append(self._make_world(seed))
        memory = MemoryRun(maker(), self._answering_world(), transcript=self._transcript_limit)
        self.memories.append(memory)

    def _answering_world(self) -> World | None:
        return None if self.outside else self.world

    @property
    def memory(self) -> MemoryRun:
        """Roles and messages of the current seed."""
        return self.memories[-1]

    @property
    def world(self) -> Any:
        """The simulated world of the current seed."""
        return self.worlds[-1]

    @property
    def horizon(self) -> int:
        """Number of decisions of all seeds."""
        return self._seed_horizon * len(self.seeds)

    @property
    def time(self) -> int:
        """Number of decisions made, over all seeds."""
        return self._seed_horizon * (len(self.memories) - 1) + self._reached

    @property
    def _reached(self) -> int:
        """Number of decisions made in the current seed."""
        return int(self.world.reached)

    @property
    def done(self) -> bool:
        """Whether all roles of all seeds have finished."""
        return self._over

    @property
    def asks(self) -> Mapping[int, Ask]:
        """Open questions to an outside world, by number."""
        return self.memory.asks

    def answer(self, number: int, reward: Any) -> None:
        """Answer a question in the place of the outside world."""
        if number not in self.memory.asks:
            numbers = ", ".join(map(str, self.memory.asks)) or "none"
            raise ConfigError(
                f"there is no open ask {number}. Open: {numbers}.", rule="systems.number.not-open"
            )
        ask = self.memory.asks[number]
        with self._timed():
            self.memory.answer(number, self._reply(ask, reward))
        self.world.answered(ask, reward)

    def _advance(self, n: int) -> None:
        until = self._reached + n
        for note in self.memory:
            self._process_note(note)
            # The messages after the last decision of a seed belong to it.
            if until < self._seed_horizon and self.memory.time >= until:
                return
        self._begin_next_seed()

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Move one message, and `explain` it.

        Returns None when the run is over, waits for the outside world, or reaches `until` before a
        message moves.
        """
        with self._timed():
            delivery = self._move_message(until)
        if delivery is None:
            return None
        for note in delivery.notes:
            self._process_note(note)
        delivery = delivery._replace(time=self.time)
        if not explain:
            return delivery
        return delivery._replace(explanation=self.system.explain(self, delivery))

    def _move_message(self, until: int | None) -> Delivery | None:
        def at_limit() -> bool:
            return until is not None and self.time >= until

        delivery = self.memory.deliver(None if at_limit() else at_limit)
        if delivery is not None:
            return delivery
        if at_limit():
            self.memory.time = self._reached
            return None
        self._begin_next_seed()
        return None if self._over else self.memory.deliver()

    def _process_note(self, note: Note) -> None:
        self.memory.time = self._reached
        self._check_note(note)

    def _begin_next_seed(self) -> None:
        """Begin the next seed, unless the current one waits for the outside world."""
        self.memory.time = self._reached
        if self.asks:
            return
        if len(self.memories) < len(self.seeds):
            self._begin_seed(len(self.memories))
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
        """Return what the operator of a party may see."""
        check.one_of(self.parties, party=party)
        return self.memory.roles[party].state()

    def view(self, *parties: str) -> View:
        """Return what these parties saw together in the current seed."""
        for party in parties:
            check.one_of(self.parties, party=party)
        transcript = self._transcript
        secrets = {party: self.memory.roles[party].save() for party in parties}
        entries = transcript.view(*parties)
        return View(parties, entries, secrets, self._terms, transcript.forgotten)

    def truncate(self, message: Message) -> Message:
        """Return the part of a message that attacks read, so that long audits fit into memory."""
        return message

    def tap(self) -> View:
        """Return all messages between the parties in the current seed, without any secrets."""
        transcript = self._transcript
        entries = [entry for entry in transcript if entry.sender != WORLD]
        return View((), entries, {}, self._terms, transcript.forgotten)

    @property
    def _transcript(self) -> Transcript:
        if self.memory.transcript is None:
            raise ConfigError(
                f"this run of {self.system.name} has no transcript. Start it with posse.start, or "
                "with transcript=100000.",
                rule="systems.transcript.missing",
            )
        return self.memory.transcript

    @property
    def _terms(self) -> dict[str, Any]:
        return {"system": self.system.name, **self.public}

    def traffic(self, seeds: int | None = None) -> dict[tuple[str, str], list[int]]:
        """Return messages and bytes between kinds of role, over all seeds or the first ones."""
        hops: dict[tuple[str, str], list[int]] = {}
        for memory in self.memories[:seeds]:
            for hop, moved in memory.hops.items():
                sums = hops.setdefault(hop, [0, 0])
                sums[0] += moved.messages
                sums[1] += moved.bytes
        return hops

    def role_seconds(self, seeds: int | None = None) -> dict[str, float]:
        """Return CPU seconds by kind of role, over all seeds or the first ones."""
        total: dict[str, float] = {}
        for memory in self.memories[:seeds]:
            for kind, seconds in memory.seconds.items():
                total[kind] = total.get(kind, 0.0) + seconds
        return total

    def save(self) -> Any:
        """Return this moment. It shares finished seeds, which no longer change."""
        return {
            "over": self._over,
            "seconds": self.seconds,
            "makers": list(self._makers),
            "memories": list(self.memories),
            "worlds": list(self.worlds),
            "memory": self.memory.save(),
            "world": fork(self.world),
        }

    def load(self, saved: Any) -> None:
        """Return to a saved moment of this run, earlier or later."""
        self._over = saved["over"]
        self.seconds = saved["seconds"]
        self._makers = list(saved["makers"])
        # Copy the current seed, because other saved moments refer to the same objects.
        self.memories = [*saved["memories"][:-1], copy(saved["memories"][-1])]
        self.worlds = [*saved["worlds"][:-1], fork(saved["world"])]
        self.memory.load(saved["memory"], self._makers[-1](), self._answering_world())
