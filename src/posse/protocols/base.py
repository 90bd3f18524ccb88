"""What a system declares about itself, and a run that goes forward.

Everything on top of the four systems (Python, the command line, the studio, audits, reports) is written against the two
classes here and against `Record`, and knows the name of no system.

A **System** is one object in `protocols/<name>/system.py`. A **Run** comes from `System.start` and goes forward one
message (`deliver`), one decision (`step`), some (`advance`) or to the end (`finish`); it can be looked at, recorded and
taken back at any moment between two of them.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from pydantic import model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.roles import Ask, Message, Note, Role, View
from posse.core.settings import Settings
from posse.protocols.registry import system_of
from posse.results.record import Progress, Record, Watch
from posse.results.sections import Section
from posse.runtime.memory import MemoryRun, World, fork
from posse.version import __version__

if TYPE_CHECKING:
    from posse.privacy.leakage.attack import Attack
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Build


class RunSettings(Settings):
    """What the settings of all systems share; each gives `policy`, `data` and `horizon` a meaning and a default."""

    system: ClassVar[str]
    """Name of the system these are the settings of."""

    seed: int = 1
    """World seed: rewards, coins, ties and own draws of the simulation; kept in the record."""
    runs: int = 1
    """Number of runs, with seeds seed, seed + 1, ..."""
    points: int = 200
    """Points of a curve."""

    @model_validator(mode="after")
    def _check_runs(self) -> RunSettings:
        check.at_least(1, runs=self.runs)
        check.at_least(2, points=self.points)
        if not 0 <= self.seed < 2**63 - self.runs:
            raise ConfigError(f"seed must be in [0, 2^63), got {self.seed}.")
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        """One world seed a run."""
        return tuple(range(self.seed, self.seed + self.runs))

    def plain(self) -> RunSettings:
        """Return the settings of the plain twin: the same bandit in the same world, without protection."""
        return system_of(self).twin(self)

    def load(self) -> Any:
        """Check what needs the data and return what the settings make; once, however often it is called."""
        return None

    def digest(self) -> str:
        """Digest of everything a result depends on: settings, the content of data files, the version."""
        text = json.dumps([self.system, self.resolved(), self.data_digest(), __version__], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def data_digest(self) -> str:
        """Digest of the files the data come from; empty where they come from the package or from the seed."""
        digest, found = hashlib.sha256(), False
        for path in self.files():
            digest.update(path.read_bytes())
            found = True
        return digest.hexdigest() if found else ""

    def files(self) -> Sequence[Path]:
        """Files that the settings name and a run reads."""
        return ()


@dataclass(frozen=True)
class RoleKind:
    """A kind of party: how it is called, what it holds, and how it is drawn."""

    kind: str
    label: str
    colour: tuple[str, str]
    """On a light and on a dark page; one colour a kind of role, everywhere."""
    holds: str
    place: tuple[float, float] = (0.5, 0.5)
    """Where it stands in a picture, from (0, 0) at the top left to (1, 1)."""


@dataclass(frozen=True)
class Level:
    """A level of protection: what every role learns at it, and what is not protected, for given settings."""

    name: str
    summary: str
    learns: Callable[[Any], tuple[str, ...]]
    not_protected: Callable[[Any], tuple[str, ...]]


@dataclass(frozen=True)
class Action:
    """A command of a system's own, such as `budget arms`; front doors mount it without knowing it."""

    path: tuple[str, ...]
    """Words of the command; the first ones may be shared with other systems' actions."""
    summary: str
    settings: Callable[[], type[Settings]]
    """Gives the model of its flags; imported when it is needed."""
    run: Callable[[Any], Iterable[str | Section | Record]]
    """Does it, giving what is to be shown as it comes: remarks on the way, tables, records to keep."""
    positional: tuple[str, ...] = ()
    """Settings that stand on the command line without a flag."""
    skip: tuple[str, ...] = ()
    """Settings that have no flag in this command."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of this command where they differ from the model's."""
    stopped: str = ""
    """What is said after Ctrl-C; what was done is kept where the action keeps it."""


@dataclass(frozen=True)
class Parties:
    """How a system runs between organisations: a party from its file, a whole federation laid out on one machine."""

    build: Build
    layout: Callable[[dict[str, Any], Path], Layout]
    """Reads and checks a federation's file (its values, the folder it lies in)."""


class System(ABC):
    """What a protocol declares about itself.

    Help and lists read it without running anything, so its module imports what is heavy where it is used.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    """One sentence: the setting it is for."""
    reference: ClassVar[str]
    protects: ClassVar[str]
    """A few words: what is protected, and by what."""
    levels: ClassVar[tuple[Level, ...]]
    roles: ClassVar[tuple[RoleKind, ...]]
    words: ClassVar[Mapping[str, str]] = {}
    """Its own nouns for step, arm, pull, reward and party (`results.words.Vocabulary`)."""
    attacks: tuple[Attack, ...] = ()
    actions: tuple[Action, ...] = ()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named set-ups, as settings; "demo" is what `posse demo` runs."""
    story: ClassVar[str] = ""
    """What the demo is about, in a sentence or two."""
    exact: ClassVar[bool] = False
    """Whether its plain twin pulls the same arms and earns the same reward, bit for bit."""
    beside_by_default: ClassVar[bool] = True
    """Whether `posse run` runs what `beside` names unless it is told not to."""
    skip: ClassVar[tuple[str, ...]] = ()
    """Settings without a flag on the command line."""

    @property
    @abstractmethod
    def Settings(self) -> type[RunSettings]:
        """The model of its settings."""

    @abstractmethod
    def start(
        self, settings: Any, *, seeds: Sequence[int] | None = None, world: Literal["outside"] | None = None,
        transcript: int = 0, **options: Any,
    ) -> Run:  # fmt: skip
        """Begin a run in this process; `world="outside"` leaves what roles ask of the world to `Run.answer`."""

    @abstractmethod
    def twin(self, settings: Any) -> RunSettings:
        """Return the settings of the plain twin."""

    @abstractmethod
    def level_of(self, settings: Any) -> str:
        """Return the name of the protection that these settings give; "plain" where there is none."""

    def beside(self, settings: Any) -> Sequence[RunSettings]:
        """Return what is worth running beside these settings, to see what protection costs or joining earns."""
        return () if self.level_of(settings) == "plain" else (self.twin(settings),)

    def remarks(self, records: Sequence[Record]) -> Sequence[Section]:
        """Return tables and notes about records that are shown together, the first of them the one that was asked for.

        What concerns one record alone stands in its own `show["sections"]`.
        """
        return ()

    def policies(self) -> Section | None:
        """List the policies it ships, for `posse policies`; `data` says the same for programs."""
        return None

    def problems(self, folder: Path | None) -> Section | None:
        """List the data it can learn from, and whether the files are there, for `posse problems`."""
        return None

    @property
    def deployment(self) -> Parties | None:
        """How it runs between organisations; None where it does not, or on another engine."""
        return None

    def level(self, settings: Any) -> Level | None:
        """Return the level of these settings, or None for a plain run."""
        name = self.level_of(settings)
        return next((level for level in self.levels if level.name == name), None)

    def not_protected(self, settings: Any) -> tuple[str, ...]:
        """What is not protected in a run with these settings, one sentence each."""
        level = self.level(settings)
        return PLAIN if level is None else level.not_protected(settings)

    def show(self, settings: Any, sections: Sequence[Section] = (), **more: Any) -> dict[str, Any]:
        """Return what a record of this system carries for whoever shows it (`Record.show`).

        `more`: `protection` (the level in a few words), `warnings` (sentences: a run did not do what was meant),
        `stopped` (why it stopped early), `resume` (how an interrupted one goes on).
        """
        level = self.level(settings)
        return {
            "title": self.title,
            "roles": {role.kind: {"label": role.label, "colour": list(role.colour)} for role in self.roles},
            "learns": [] if level is None else list(level.learns(settings)),
            "sections": [section.plain() for section in sections],
            **more,
        }

    def pseudocode(self, settings: Any) -> Mapping[str, Sequence[str]]:
        """Return the code of each kind of role by line; empty where nobody has written it down yet."""
        return {}

    def scene(self, run: Run) -> Mapping[str, Any] | None:
        """Return who stands where with which numbers, for a picture of the run; None where there is none."""
        return None

    def explain(self, run: Run, delivery: Delivery) -> Mapping[str, Any] | None:
        """Explain a message at the moment it is delivered; None where there is no explanation."""
        return None


PLAIN = ("Nothing is protected: this is the plain twin, in which one party sees everything.",)


@dataclass(frozen=True)
class Delivery:
    """One message that was delivered, and what became known with it."""

    sender: str
    receiver: str
    message: Message
    notes: tuple[Note, ...]
    time: int
    explanation: Mapping[str, Any] | None = None


class Run(ABC):
    """Something that goes forward: one or several seeds of one setting.

    `time` counts decisions (or rounds) over all seeds and `horizon` is how many there will be. Between two calls a run
    can be read (`state`, `view`), recorded and saved. Runs are not safe to use from two threads at once.
    """

    unit: ClassVar[str] = "step"
    """The system's own word for what `time` counts."""

    def __init__(self, system: System, settings: RunSettings, seeds: Sequence[int] | None) -> None:
        self.system, self.settings = system, settings
        self.seeds = settings.seeds if seeds is None else tuple(seeds)
        self.seconds = 0.0
        """CPU seconds spent going forward; compiling and loading are not in it."""

    # Going forward ----------------------------------------------------------------------------------------------------

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
        """Make n decisions at full speed, in each seed that goes side by side with others; fewer where it ends."""
        check.at_least(1, n=n)
        with self._counted():
            self._advance(n)

    def step(self) -> None:
        """Make one decision."""
        self.advance(1)

    def finish(self, watch: Watch | None = None) -> None:
        """Go to the end; `watch` is called on the way."""
        while not self.done:
            self.advance(self.stride)
            if watch is not None:
                watch(self.progress)

    @property
    def stride(self) -> int:
        """Decisions between two looks at progress or at Ctrl-C."""
        return max(1, self.horizon // max(1, len(self.seeds)) // 200)

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        number = min(len(self.seeds) - 1, self.time * len(self.seeds) // max(1, self.horizon))
        return Progress(number, len(self.seeds), self.time / max(1, self.horizon), self.side_by_side)

    @property
    def side_by_side(self) -> int:
        """Seeds that go forward together."""
        return 1

    def deliver(self) -> Delivery | None:
        """Move one message; None when nothing is left. A run without messages between roles moves one decision."""
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

    # The world outside ------------------------------------------------------------------------------------------------

    @property
    def asks(self) -> Mapping[int, Ask]:
        """What a world outside must answer before the run goes on, by number."""
        return {}

    def answer(self, number: int, reward: Any) -> None:
        """Answer for the world outside."""
        self._refuse("has its world inside. Start it with world='outside'.")

    # Looking at it ----------------------------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return ()

    def state(self, party: str) -> dict[str, Any]:
        """Return what an operator standing at a party may see."""
        self._refuse("has no parties: one process sees everything.")

    def view(self, *parties: str) -> View:
        """Return what these parties together saw: their messages, their own secrets, the public terms."""
        self._refuse("has no parties, and so no views.")

    def truth(self) -> Mapping[str, Any]:
        """Return what only a simulation knows, to score an attack by."""
        return {}

    @abstractmethod
    def record(self, status: str | None = None) -> Record:
        """Return the record of what has been done so far."""

    # Going back -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def save(self) -> Any:
        """Return this moment, to come back to with `load`; in this process only, for it holds secrets."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Come back to a saved moment of this run."""

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"this run of {self.system.name} {why}")


class RolesRun(Run):
    """A run on real roles in one process, one seed after the other.

    A system gives `_make` (the roles of a seed, made anew from the same arguments at every call of the function it
    returns), `_world` (which answers its asks and counts decisions in `reached`), `_reply` and `record`.
    """

    def __init__(
        self, system: System, settings: RunSettings, *, seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None, transcript: int = 0,
    ) -> None:  # fmt: skip
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
                f"there is no open ask {number}. Open: {', '.join(map(str, self.memory.asks)) or 'none'}."
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

    def deliver(self) -> Delivery | None:
        """Move one message; None when the run is over, or waits for the world outside."""
        with self._counted():
            moved = self.memory.deliver()
            if moved is None and not self.asks:
                self._next()
                if not self._over:
                    moved = self.memory.deliver()
        if moved is None:
            return None
        for note in moved.events:
            self._look(note)
        delivery = Delivery(moved.sender, moved.receiver, moved.message, moved.events, self.time)
        explained = self.system.explain(self, delivery)
        return delivery if explained is None else Delivery(**{**vars(delivery), "explanation": explained})

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

    def state(self, party: str) -> dict[str, Any]:
        """Return what an operator standing at a party may see."""
        check.one_of(self.parties, party=party)
        return self.memory.roles[party].state()

    def view(self, *parties: str) -> View:
        """Return what these parties together saw of the current seed."""
        for party in parties:
            check.one_of(self.parties, party=party)
        kept = self.memory.transcript
        if kept is None:
            self._refuse("keeps no transcript. Start it with posse.start, or give transcript=100000.")
        secrets = {party: self.memory.roles[party].save() for party in parties}
        return View(tuple(parties), kept.view(*parties), secrets, self.public, kept.forgotten)

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
        """Return this moment; finished seeds are shared with it, for they do not change any more."""
        now = (len(self.memories), self._over, self.seconds)
        return {"now": now, "memory": self.memory.save(), "world": fork(self.world)}

    def load(self, saved: Any) -> None:
        """Come back to a saved moment of this run."""
        begun, self._over, self.seconds = saved["now"]
        del self.memories[begun:], self.worlds[begun:], self._makers[begun:]
        self.worlds[-1] = fork(saved["world"])
        self.memory.load(saved["memory"], self._makers[-1](), None if self.outside else self.world)
