"""What a system declares about itself: one object in `systems/<name>/system.py`.

Everything on top of the systems (Python, the command line, the studio, audits, reports) is written
against `System`, `Run` and `Record`, and knows the name of no system.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.problems.datasets.files import content
from posse.results.record import Record
from posse.results.reports.sections import Section
from posse.systems.registry import system_of
from posse.version import __version__

if TYPE_CHECKING:
    from posse.policies.decisions import Learnt
    from posse.privacy.leakage.attack import Attack
    from posse.runtime.federation.talk import Invitation
    from posse.runtime.local import Layout
    from posse.runtime.memory import Delivery
    from posse.runtime.network.deployment import Build
    from posse.runtime.network.engine import Vocabulary
    from posse.systems.live import Serving
    from posse.systems.runs import Run


class RunSettings(Settings):
    """What the settings of all systems share; each gives `policy`, `data` and `horizon` a meaning
    and a default.
    """

    system: ClassVar[str]
    """Name of the system these are the settings of."""
    writes: ClassVar[tuple[str, ...]] = ()
    """Settings that name what a run writes."""

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
        """Return the settings of the plain twin: the same bandit in the same world, without
        protection.
        """
        return system_of(self).twin(self)

    def load(self) -> Any:
        """Check what needs the data and return what the settings make; once, however often it is
        called.
        """
        return None

    def digest(self) -> str:
        """Digest of everything a result depends on: settings, the content of data files, the
        version.
        """
        text = json.dumps(
            [self.system, self.resolved(), self.data_digest(), __version__],
            sort_keys=True,
            default=str,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def data_digest(self) -> str:
        """Digest of the files the data come from; empty where they come from the package or from
        the seed.
        """
        found = [content(path) for path in self.files()]
        return hashlib.sha256(b"".join(found)).hexdigest() if found else ""

    def files(self) -> Sequence[Path]:
        """Files, and folders of files, that the settings name and a run reads."""
        return ()


def shipped(
    values: Any, system: str, policies: Iterable[str], parameters: tuple[str, ...], why: str
) -> Any:
    """Read a policy given as a table with its parameters; refuse one of the user's own, with the
    reason.
    """
    given = values.get("policy") if isinstance(values, Mapping) else None
    if given is None:
        return values
    table = dict(given) if isinstance(given, Mapping) else {"name": given}
    name, nested = table.pop("name", None), table.pop("parameters", {})
    table |= nested if isinstance(nested, Mapping) else {"parameters": nested}
    if not isinstance(name, str) or ":" in name:
        raise ConfigError(
            f"{system} takes the policies {', '.join(policies)}, got {name!r}: {why} Choose one of "
            "them."
        )
    for parameter in table:
        check.one_of(parameters, parameter=parameter)
    return {**values, **table, "policy": name}


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
    sole: bool = False
    """Whether a federation has one party of this kind, which goes by its name."""
    party: bool = True
    """Whether it is a party at all: what others only buy from sends no message."""


@dataclass(frozen=True)
class Level:
    """A level of protection: what every role learns at it, and what is not protected, for given
    settings.
    """

    name: str
    summary: str
    learns: Callable[[Any], tuple[str, ...]]
    not_protected: Callable[[Any], tuple[str, ...]]


@dataclass(frozen=True)
class Action:
    """A command of a system's own, such as `budget arms`; front doors mount it without knowing
    it.
    """

    path: tuple[str, ...]
    """Words of the command; the first ones may be shared with other systems' actions."""
    summary: str
    settings: Callable[[], type[Settings]]
    """Gives the model of its flags; imported when it is needed."""
    run: Callable[[Any], Iterable[str | Section | Record]]
    """Does it, giving what is to be shown as it comes: remarks on the way, tables, records to
    keep.
    """
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
    """How a system runs between organisations: a party from its file, a whole federation laid out
    on one machine.
    """

    build: Build
    layout: Callable[[dict[str, Any], Path], Layout]
    """Reads and checks a federation's file (its values, the folder it lies in)."""
    invite: Callable[[dict[str, Any], Path], Invitation] | None = None
    """Reads and checks the settings of a run in a federation that lives; None where a system has no
    such runs.
    """
    vocabulary: Vocabulary | None = None
    """Its messages, to read the view that a party recorded; None where none is recorded."""


@dataclass(frozen=True)
class Scenario:
    """A named set-up for someone who sees the system for the first time."""

    name: str
    about: str
    """Two or three sentences: who the parties are, what they want, what to look for."""
    settings: Mapping[str, Any]


class System(ABC):
    """What a protocol declares about itself.

    Help and lists read it without running anything, so its module imports what is heavy where it is
    used.
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
    actions: tuple[Action, ...] = ()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named set-ups, as settings; "demo" is what `posse demo` runs."""
    story: ClassVar[str] = ""
    """What the demo is about, in a sentence or two."""
    demo_attack: ClassVar[str] = ""
    """An attack that the demo makes at each level, on a short run; none where none is
    named.
    """
    exact: ClassVar[bool] = False
    """Whether its plain twin pulls the same arms and earns the same reward, bit for bit."""
    beside_by_default: ClassVar[bool] = True
    """Whether `posse run` runs what `beside` names unless it is told not to."""
    skip: ClassVar[tuple[str, ...]] = ()
    """Settings without a flag on the command line."""
    pictures: ClassVar[str] = ""
    """A module with what a picture of a run needs, imported when it is used: any of `SCENARIOS`,
    `SOURCES` and the functions `code`, `scene`, `explain` and `knowledge`. A system that needs more
    overrides the methods below.
    """
    unserved: ClassVar[str] = "its author has not written it. Use posse.run or posse.start."
    """Why `live` refuses it, where it has no `serve`, and what to use instead."""

    @property
    @abstractmethod
    def Settings(self) -> type[RunSettings]:
        """The model of its settings."""

    @property
    def unattacked(self) -> Mapping[str, str]:
        """Beginnings of sentences of its levels that no attack stands behind, each with the reason
        why.
        """
        return {}

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Attacks on its runs, imported when they are used; each sentence of a level names one
        (`Attack.claims`).
        """
        return ()

    def like(self, public: Mapping[str, Any]) -> RunSettings | None:
        """Return settings of a simulation with the public terms of a view, its data invented; None
        where none are.
        """
        return None

    @abstractmethod
    def start(
        self,
        settings: Any,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run in this process; `world="outside"` leaves what roles ask of the world to
        `Run.answer`.
        """

    def serve(
        self, settings: Any, arms: tuple[str, ...] | None, horizon: int | None, **options: Any
    ) -> Serving:
        """Serve decisions in this process, for `live`; a system that does not says why in
        `unserved`.
        """
        raise ConfigError(f"{self.name} does not serve decisions in a process: {self.unserved}")

    def learnt(self, place: Path) -> Learnt | None:
        """Read a learnt model from a file or folder that a run of this system wrote; None where it
        is none of its.
        """
        return None

    @abstractmethod
    def twin(self, settings: Any) -> RunSettings:
        """Return the settings of the plain twin."""

    @abstractmethod
    def level_of(self, settings: Any) -> str:
        """Return the name of the protection that these settings give; "plain" where there is
        none.
        """

    def beside(self, settings: Any) -> Sequence[RunSettings]:
        """Return what is worth running beside these settings, to see what protection costs or
        joining earns.
        """
        return () if self.level_of(settings) == "plain" else (self.twin(settings),)

    def remarks(self, records: Sequence[Record]) -> Sequence[Section]:
        """Return tables and notes about records that are shown together, the first of them the one
        that was asked for.

        What concerns one record alone stands in its own `show["sections"]`.
        """
        return ()

    def policies(self) -> Section | None:
        """List the policies it ships, for `posse policies`; `data` says the same for programs."""
        return None

    def problems(self, folder: Path | None) -> Section | None:
        """List the data it can learn from, and whether the files are there, for `posse
        problems`.
        """
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

        `more`: `protection` (the level in a few words), `warnings` (sentences: a run did not do
        what was meant), `stopped` (why it stopped early), `resume` (how an interrupted one goes
        on), `cards` (pairs for the top of a report: a figure with its unit, what it is).
        """
        level = self.level(settings)
        return {
            "title": self.title,
            "roles": {
                role.kind: {"label": role.label, "colour": list(role.colour)} for role in self.roles
            },
            "protects": self.protected_at(level),
            "learns": [] if level is None else list(level.learns(settings)),
            "sections": [section.plain() for section in sections],
            **({"dropped": list(dropped)} if (dropped := getattr(settings, "dropped", ())) else {}),
            **more,
        }

    def protected_at(self, level: Level | None) -> list[str]:
        """Say what is protected at a level; nothing where nothing is."""
        if level is None or level.name in ("plain", "alone", "placebo"):
            return []
        return [
            f"{self.protects[:1].upper()}{self.protects[1:]}.",
            f"Level {level.name}: {level.summary}.",
        ]

    # What a picture of a run needs ----------------------------------------------------------------

    def _picture(self, name: str, default: Any) -> Any:
        return getattr(import_module(self.pictures), name, default) if self.pictures else default

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Set-ups to start from on a page."""
        found: tuple[Scenario, ...] = self._picture("SCENARIOS", ())
        return found

    def pseudocode(self, settings: Any) -> Mapping[str, Sequence[str]]:
        """Return the code of each kind of role by line; empty where nobody has written it down
        yet.
        """
        from posse.systems.scenes import written

        code = self._picture("code", None)
        return {} if code is None else written(code(settings))

    def sources(self, settings: Any) -> Mapping[str, str]:
        """Return the class of each kind of role as "module:Class", to show its real source."""
        found: Mapping[str, str] = self._picture("SOURCES", {})
        return found

    def scene(self, run: Run) -> Mapping[str, Any] | None:
        """Return who stands where with which numbers, for a picture of the run; None where there is
        none.
        """
        found: Mapping[str, Any] | None = self._picture("scene", lambda run: None)(run)
        return found

    def explain(self, run: Run, delivery: Delivery) -> Mapping[str, Any] | None:
        """Explain a message at the moment it is delivered; None where there is no explanation."""
        found: Mapping[str, Any] | None = self._picture("explain", lambda run, delivery: None)(
            run, delivery
        )
        return found

    def knowledge(self, settings: Any, kind: str) -> Mapping[str, Sequence[str]]:
        """Say what a kind of role knows, can never know, and could find out, in sentences.

        By default what the level says about it: sentences of `learns` and `not_protected` that name
        the role.
        """
        if (found := self._picture("knowledge", None)) is not None:
            return found(settings, kind, self.not_protected(settings))  # type: ignore[no-any-return]
        level = self.level(settings)
        label = next((role.label for role in self.roles if role.kind == kind), kind)
        words = {kind.lower(), label.lower(), label.lower().split()[-1]}

        def about(sentences: Iterable[str]) -> list[str]:
            return [text for text in sentences if any(word in text.lower() for word in words)]

        holds = [
            f"It holds {role.holds}." for role in self.roles if role.kind == kind and role.holds
        ]
        learns = () if level is None else level.learns(settings)
        return {
            "knows": [*holds, *about(learns)],
            "never": [],
            "could": about(self.not_protected(settings)),
        }

    def sees(self, settings: Any) -> Mapping[str, Any] | None:
        """Return who sees what, measured on a small run with these settings; None where nobody has
        written it down.

        `columns`: observers; `rows`: `data` and `cells`, what hides this piece of data from each;
        `note`: a sentence.
        """
        return None

    def preview(self, settings: Any) -> Mapping[str, Any] | None:
        """Return what the data give before anything runs; None where there is nothing to show.

        `arms`: name, mean and number of ratings of each; `histogram`: value and count; `note`: a
        sentence.
        """
        return None

    def variants(self, settings: Any) -> Sequence[tuple[str, Any]]:
        """Return settings that show what each protection costs: a name and settings each, these
        settings first.
        """
        if self.level_of(settings) == "plain":
            return (("as set", settings),)
        return (("as set", settings), ("plain", self.twin(settings)))

    def workload(self, settings: Any) -> str:
        """Say in a sentence what its paper states of calls and messages, with these settings'
        numbers; else nothing.
        """
        return ""


PLAIN = ("Nothing is protected: this is the plain twin, in which one party sees everything.",)
