"""What a system must declare: one object `SYSTEM` in its `system.py`.

A system has the eight members of `System`. It may also have the optional modules that
`posse.systems.modules` describes. Everything on top of the systems (Python, the command line, the
studio, audits, reports) is written against these, `Run` and `Record`, and knows the name of no
system.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from pydantic import model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.problems.datasets.files import content
from posse.results.reports.sections import Section
from posse.results.values import JSON
from posse.systems.registry import system_of
from posse.version import __version__

if TYPE_CHECKING:
    from posse.systems.runs import Run


class RunSettings(Settings):
    """What the settings of all systems share.

    Each system adds `policy`, `data` and `horizon`, and defines their meanings and defaults.
    """

    system: ClassVar[str]
    """Name of the system that these settings belong to."""
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
            raise ConfigError(
                f"seed must be in [0, 2^63), got {self.seed}.", rule="systems.seed.out-of-range"
            )
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        """One world seed per run."""
        return tuple(range(self.seed, self.seed + self.runs))

    @property
    def protection(self) -> str:
        """The protection in a few words, as tables show it; by default the name of the level."""
        return system_of(self).level_of(self)

    def plain(self) -> RunSettings:
        """Return the settings of the plain twin: the same bandit in the same world, without
        protection.
        """
        twin: RunSettings = system_of(self).twin(self)
        return twin

    def load(self) -> Any:
        """Check what needs the data, and return what the settings make; computed once."""
        return None

    def config(self) -> dict[str, JSON]:
        """Return the settings as a record stores them."""
        return self.resolved()

    def problem(self) -> dict[str, JSON]:
        """Describe what a run learns from, as a record stores it."""
        return {}

    def digest(self) -> str:
        """Return a digest of what a result depends on: settings, content of data files, version."""
        text = json.dumps(
            [self.system, self.resolved(), self.data_digest(), __version__],
            sort_keys=True,
            default=str,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def data_digest(self) -> str:
        """Return a digest of the data files; empty if the data come from the package or the seed."""
        contents = [content(path) for path in self.files()]
        return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""

    def files(self) -> Sequence[Path]:
        """Return the files, and folders of files, that the settings name and a run reads."""
        return ()


S = TypeVar("S", bound=RunSettings)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What `posse demo` runs."""

    settings: Mapping[str, Any]
    story: str
    """One or two sentences: who takes part, and what they want."""
    attack: str = ""
    """An attack that the demo makes at each level, on a short run; empty for none."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a system says about itself: plain data that lists and help show."""

    title: str
    summary: str
    """One sentence: the setting it is for."""
    reference: str
    """The paper."""
    protects: str
    """A few words: what is protected, and by what."""
    demo: Demo
    exact: bool = False
    """Whether the plain twin pulls the same arms and earns the same reward, bit for bit."""
    nouns: Mapping[str, str] = field(default_factory=dict)
    """Its own nouns for step, arm, pull, reward and party (`results.words.Vocabulary`)."""
    policies: str = ""
    """The kind of policies it uses (`posse.policies.listing`); empty if none are listed."""
    problems: str = ""
    """The kind of data it learns from (`posse.problems.listing`); empty if none are listed."""


@dataclass(frozen=True)
class RoleKind:
    """A kind of party: its name, what it holds, and its colour."""

    kind: str
    label: str
    colour: tuple[str, str]
    """On a light and on a dark page; one colour for each kind, in the studio and in reports."""
    holds: str
    sole: bool = False
    """Whether a federation has one party of this kind, which has the name of the kind."""
    party: bool = True
    """Whether it sends messages. A producer, from which others only buy, does not."""


@dataclass(frozen=True)
class Level(Generic[S]):
    """A level of protection: what every role learns, and what is not protected."""

    name: str
    summary: str
    learns: Callable[[S], tuple[str, ...]]
    """What the roles learn in a run with these settings, one sentence each."""
    not_protected: Callable[[S], tuple[str, ...]]
    """What is not protected in a run with these settings, one sentence each."""


class System(ABC, Generic[S]):
    """What a protocol must declare about itself.

    Help and lists read it without running anything. Its module therefore imports what is heavy
    inside the functions that need it.
    """

    name: ClassVar[str]
    about: ClassVar[About]
    roles: ClassVar[tuple[RoleKind, ...]]
    levels: ClassVar[tuple[Level[Any], ...]]

    @property
    @abstractmethod
    def Settings(self) -> type[S]:
        """The model of its settings."""

    @abstractmethod
    def level_of(self, settings: S) -> str:
        """Return the name of the level of these settings; "plain" if nothing is protected."""

    @abstractmethod
    def start(
        self,
        settings: S,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run in this process.

        Args:
            settings: What to run.
            seeds: World seeds; by default those of the settings.
            world: "outside" leaves what roles ask of the world to `Run.answer`.
            transcript: Number of messages to keep for views.
            options: What this system alone takes.
        """

    @abstractmethod
    def twin(self, settings: S) -> S:
        """Return the settings of the plain twin."""


AnySystem: TypeAlias = System[Any]

PLAIN = ("Nothing is protected: this is the plain twin, in which one party sees everything.",)
UNPROTECTED_LEVELS = ("plain", "alone", "placebo")
"""Levels at which nothing is protected, or nothing is sent that needs protection."""


def level(system: System[S], settings: S) -> Level[S] | None:
    """Return the level of these settings; None for a plain run."""
    name = system.level_of(settings)
    return next((level for level in system.levels if level.name == name), None)


def not_protected(system: System[S], settings: S) -> tuple[str, ...]:
    """Return what is not protected in a run with these settings, one sentence each."""
    settings_level = level(system, settings)
    return PLAIN if settings_level is None else settings_level.not_protected(settings)


def presentation(
    system: System[S], settings: S, sections: Sequence[Section] = (), **more: Any
) -> dict[str, Any]:
    """Return what a record stores for those who show it (`Record.show`).

    Args:
        system: The system.
        settings: The settings of the run.
        sections: Tables of this system.
        more: Further entries: `protection` (the level in a few words), `warnings` (sentences: a run
            did not do what was meant), `stopped` (why it stopped early), `resume` (how to continue
            it), `cards` (pairs for the top of a report: a figure with its unit, its meaning).
    """
    settings_level = level(system, settings)
    learns = () if settings_level is None else settings_level.learns(settings)
    tables = [section.plain() for section in sections]
    shown = presentation_at(system, settings_level, learns, tables)
    if settings.dropped:
        shown["dropped"] = list(settings.dropped)
    return shown | more


def presentation_at(
    system: AnySystem,
    level: Level[Any] | None,
    learns: Sequence[str],
    tables: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the same for a deployed party, which has no settings of a run."""
    return {
        "title": system.about.title,
        "roles": {
            role.kind: {"label": role.label, "colour": list(role.colour)} for role in system.roles
        },
        "protects": _protected_at(system, level),
        "learns": list(learns),
        "sections": [dict(table) for table in tables],
    }


def _protected_at(system: AnySystem, level: Level[Any] | None) -> list[str]:
    if level is None or level.name in UNPROTECTED_LEVELS:
        return []
    protects = system.about.protects
    return [
        f"{protects[:1].upper()}{protects[1:]}.",
        f"Level {level.name}: {level.summary}.",
    ]


def shipped(
    values: Any, system: str, policies: Iterable[str], parameters: tuple[str, ...], why: str
) -> Any:
    """Read a policy given as a table with its parameters; refuse a custom one with the reason.

    A validator of settings calls it with all values, and continues with what it returns.
    """
    if not isinstance(values, Mapping) or values.get("policy") is None:
        return values
    policy = values["policy"]
    table = dict(policy) if isinstance(policy, Mapping) else {"name": policy}
    name = table.pop("name", None)
    nested = table.pop("parameters", {})
    if isinstance(nested, Mapping):
        table |= nested
    else:
        table["parameters"] = nested
    if not isinstance(name, str) or ":" in name:
        raise ConfigError(
            f"{system} takes the policies {', '.join(policies)}, got {name!r}: {why} Choose one of "
            "them.",
            rule="systems.policy.not-shipped",
        )
    for parameter in table:
        check.one_of(parameters, parameter=parameter)
    return {**values, **table, "policy": name}
