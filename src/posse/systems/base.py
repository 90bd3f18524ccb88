"""What a system must declare: one object `SYSTEM` in its `system.py`.

A system has the eight members of `System`. It may also have the optional modules that
`posse.systems.modules` describes. The Python functions, the command line, the studio, audits and
reports use only these members and modules, `Run` and `Record`. So they have no code for a
particular system.
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
from posse.results.section import Section
from posse.results.values import JSON
from posse.systems.registry import system_of
from posse.version import __version__

if TYPE_CHECKING:
    from posse.systems.runs import Run


class RunSettings(Settings):
    """What the settings of all systems have in common.

    Each system adds its own settings `policy`, `data` and `horizon`.
    """

    system: ClassVar[str]
    """Name of the system that these settings belong to."""
    writes: ClassVar[tuple[str, ...]] = ()
    """Names of the settings whose values are files or folders that a run writes."""
    defaults_in_version_0_1: ClassVar[Mapping[str, object]] = {}
    """Defaults that version 0.1 had, by the name of the setting; only those that have changed."""

    seed: int = 1
    """World seed: determines rewards, coins, ties and other random draws; kept in the record."""
    runs: int = 1
    """Number of runs, with seeds seed, seed + 1, ..."""
    points: int = 200
    """Points of a curve."""

    @model_validator(mode="after")
    def _check_runs_points_and_seed(self) -> RunSettings:
        check.at_least(1, runs=self.runs)
        check.at_least(2, points=self.points)
        # The last seed, seed + runs - 1, must be below 2^63 too.
        if not 0 <= self.seed < 2**63 - self.runs:
            raise ConfigError(
                f"seed must be in [0, 2^63), got {self.seed}.", rule="systems.seed.out-of-range"
            )
        return self

    @property
    def seeds(self) -> tuple[int, ...]:
        """World seeds of the run: `seed`, `seed` + 1, and so on; `runs` is their number."""
        return tuple(range(self.seed, self.seed + self.runs))

    @property
    def protection(self) -> str:
        """The protection in a few words, as tables show it; by default the name of the level."""
        return system_of(self).level_of(self)

    def plain(self) -> RunSettings:
        """Return the settings of the plain twin: the same bandit and world without protection."""
        twin: RunSettings = system_of(self).twin(self)
        return twin

    def load(self) -> Any:
        """Load the data, check the settings against the data, and return what a run needs.

        Returns None if the system loads nothing. Other systems load only at the first call, and
        keep the result (`Settings.cached`).
        """
        return None

    def config(self) -> dict[str, JSON]:
        """Return the settings as a record stores them."""
        return self.resolved()

    def problem(self) -> dict[str, JSON]:
        """Return a description of the data that a run learns from, as a record stores it."""
        return {}

    def digest(self) -> str:
        """Return a digest of all that a result depends on: settings, data files, and version."""
        text = json.dumps(
            [self.system, self.resolved(), self.data_digest(), __version__],
            sort_keys=True,
            default=str,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def data_digest(self) -> str:
        """Return a digest of the content of the data files (`files`); empty without files."""
        contents = [content(path) for path in self.files()]
        return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""

    def files(self) -> Sequence[Path]:
        """Return the paths in the settings that a run reads: files, and folders of files."""
        return ()


S = TypeVar("S", bound=RunSettings)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What `posse demo` runs."""

    settings: Mapping[str, Any]
    story: str
    """One or two sentences: who takes part, and what they want."""
    attack: str = ""
    """Name of the attack that the demo makes on a short run at each level; empty for none."""


@dataclass(frozen=True, kw_only=True)
class About:
    """A description of a system. It is shown in lists and in help."""

    title: str
    summary: str
    """One sentence: the situation in which the system is used."""
    reference: str
    """The paper."""
    protects: str
    """A few words: what is protected, and by what."""
    demo: Demo
    exact: bool = False
    """Whether the plain twin pulls the same arms and earns the same reward, bit for bit."""
    nouns: Mapping[str, str] = field(default_factory=dict)
    """The system's nouns for step, arm, pull, reward and party (`results.words.Vocabulary`)."""
    policies: str = ""
    """The kind of policies that the system uses (`posse.policies.listing`); empty for none."""
    problems: str = ""
    """The kind of data that the system learns from (`posse.problems.listing`); empty for none."""


@dataclass(frozen=True)
class RoleKind:
    """A kind of role: its name, what it holds, and its colour."""

    kind: str
    """The name in code, such as `owner`."""
    label: str
    """The name for people, such as "data owner"."""
    colour: tuple[str, str]
    """Colour on a light and on a dark page, the same in the studio and in reports."""
    holds: str
    """What such a role knows or has, as the end of the sentence "It holds ..."."""
    sole: bool = False
    """Whether a federation has exactly one party of this kind. This party has the name `kind`."""
    party: bool = True
    """Whether roles of this kind take part in the protocol. A kind that only appears in pictures
    does not. For example, producers, from whom the parties buy, send no messages.
    """


@dataclass(frozen=True)
class Level(Generic[S]):
    """A level of protection of a system, with sentences about what it does and does not protect."""

    name: str
    summary: str
    learns: Callable[[S], tuple[str, ...]]
    """What the roles learn in a run with these settings, one sentence each."""
    not_protected: Callable[[S], tuple[str, ...]]
    """What is not protected in a run with these settings, one sentence each."""
    against: str = ""
    """Whom it protects against; a few words."""
    broken_by: str = ""
    """The smallest group that learns what is protected; a few words."""
    attacks: tuple[str, ...] = ()
    """Names of the attacks that verify `against` and `broken_by`."""
    command: str = ""
    """The command that switches stronger protection on, if this level protects little."""


class System(ABC, Generic[S]):
    """What every system must declare: its name, roles, levels and settings, and how to start a run.

    Help and lists import the module of every system to read these declarations. So that the import
    is fast, such a module imports slow modules only inside the functions that need them.
    """

    name: ClassVar[str]
    about: ClassVar[About]
    roles: ClassVar[tuple[RoleKind, ...]]
    levels: ClassVar[tuple[Level[Any], ...]]
    """The levels at which something is protected; a plain run has none of them."""

    @property
    @abstractmethod
    def Settings(self) -> type[S]:
        """The class of the system's settings."""

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
            world: "outside" if `Run.answer` gives the world's answers; None to simulate the world.
            transcript: Number of the last messages to keep for views; 0 keeps none.
            options: Arguments that only this system takes.
        """

    @abstractmethod
    def twin(self, settings: S) -> S:
        """Return the settings of the plain twin."""


AnySystem: TypeAlias = System[Any]

PLAIN = ("Nothing is protected: this is the plain twin, in which one party sees everything.",)
"""Sentences about what is not protected in a plain run."""
UNPROTECTED_LEVELS = ("plain", "alone", "placebo")
"""Levels at which nothing is protected, or nothing is sent that needs protection."""


def level_or_none(system: System[S], settings: S) -> Level[S] | None:
    """Return the level of protection of these settings; None for a plain run."""
    name = system.level_of(settings)
    return next((level for level in system.levels if level.name == name), None)


def not_protected(system: System[S], settings: S) -> tuple[str, ...]:
    """Return what is not protected in a run with these settings, one sentence each."""
    level = level_or_none(system, settings)
    return PLAIN if level is None else level.not_protected(settings)


def presentation(
    system: System[S], settings: S, sections: Sequence[Section] = (), **more: Any
) -> dict[str, Any]:
    """Return what a record stores only to be shown (`Record.show`).

    Args:
        system: The system.
        settings: The settings of the run.
        sections: Tables that only this system has.
        more: Further entries: `protection` (the level in a few words), `warnings` (sentences about
            what may be wrong with the run), `stopped` (why the run stopped early), `resume` (how to
            continue the run), and `cards` for the top of a report (each card is a pair: a figure
            with its unit, and the meaning of the figure).
    """
    level = level_or_none(system, settings)
    learns = () if level is None else level.learns(settings)
    tables = [table.plain() for table in sections]
    entries = presentation_without_settings(system, level, learns, tables)
    if settings.dropped:
        entries["dropped"] = list(settings.dropped)
    return entries | more


def presentation_without_settings(
    system: AnySystem,
    level: Level[Any] | None,
    learns: Sequence[str],
    tables: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return what a record stores only to be shown (`Record.show`), from a level, not settings.

    This function is for deployed parties, which have no settings. `presentation` calls it for runs
    with settings.

    Args:
        system: The system.
        level: The level of protection; None for a plain run.
        learns: What the roles learn, one sentence each.
        tables: Tables as a record stores them (`Section.plain`).
    """
    roles = {role.kind: {"label": role.label, "colour": list(role.colour)} for role in system.roles}
    entries: dict[str, Any] = {}
    if level is not None and level.against:
        entries["protection_summary"] = {
            "against": level.against,
            "broken_by": level.broken_by,
            "attacks": list(level.attacks),
            "command": level.command,
        }
    return entries | {
        "title": system.about.title,
        "roles": roles,
        "protects": _protection_sentences(system, level),
        "learns": list(learns),
        "sections": list(map(dict, tables)),
    }


def _protection_sentences(system: AnySystem, level: Level[Any] | None) -> list[str]:
    """Return what the system protects, and what the level adds; empty if nothing is protected."""
    if level is None or level.name in UNPROTECTED_LEVELS:
        return []
    protects = system.about.protects  # a few words; they become a sentence
    of_system = f"{protects[:1].upper()}{protects[1:]}."
    return [of_system, f"Level {level.name}: {level.summary}."]


def flatten_built_in_policy(
    values: Any, system: str, policies: Iterable[str], parameters: tuple[str, ...], why: str
) -> Any:
    """Replace the table of a policy by the policy's name, and by one setting for each parameter.

    This is for systems that take only built-in policies. A "before" validator of the settings of
    such a system calls this function with all values, and returns the result.

    Args:
        values: The values of all settings.
        system: Name of the system, for errors.
        policies: Names of the system's policies, for errors.
        parameters: Names of the parameters that a table may have.
        why: Why the system takes no policy of the user, for errors.

    Raises:
        ConfigError: The policy imports code ("module:name"), or has an unknown parameter.

    >>> values = {"policy": {"name": "ucb", "parameters": {"width": 2.0}}}
    >>> flatten_built_in_policy(values, "toy", ("ucb",), ("width",), "it is small.")
    {'policy': 'ucb', 'width': 2.0}
    """
    policy = values.get("policy") if isinstance(values, Mapping) else None
    if policy is None:
        return values
    table = dict(policy) if isinstance(policy, Mapping) else {"name": policy}
    name = table.pop("name", None)
    nested = table.pop("parameters", {})
    if isinstance(nested, Mapping):
        table |= nested
    else:
        # The check of the names below reports `parameters` as an unknown parameter.
        table["parameters"] = nested
    if not isinstance(name, str) or ":" in name:
        raise ConfigError(
            f"{system} takes the policies {', '.join(policies)}, got {name!r}: {why} Choose one of "
            "them.",
            rule="systems.policy.not-shipped",
        )
    # Only parameters are left in the table now.
    for parameter in table:
        check.one_of(parameters, parameter=parameter)
    return {**values, **table, "policy": name}
