"""What a system may offer: optional modules next to its `system.py`, each with one object.

| module | object | what it offers |
|---|---|---|
| `scene` | `SCENE: Scene` | pictures of runs and explanations of messages, for the studio |
| `attacks` | `ATTACKS: Attacks` | attacks for audits, and why a sentence of a level has none |
| `deploy` | `DEPLOY: Deploy` | parties at different organisations |
| `live` | `LIVE: Live` | decisions on demand, and learnt models |
| `commands` | `COMMANDS: Commands` | commands that only this system has |
| `report` | `REPORT: Report` | what reports compare a run with, and tables of this system alone |

Modules are found by their names, so a system does not list them. A module is imported when it is
used. For each module there is a function that returns its object, such as `scene_of(system)`. If the
system has no such module, the function returns an object with the defaults of the class. Only
`deploy_of` returns None instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.results.record import Record
from posse.results.section import Section
from posse.runtime.memory import Delivery
from posse.systems.base import AnySystem, RoleKind, RunSettings, level_or_none, not_protected
from posse.systems.registry import system_of
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.policies.decisions import Learnt
    from posse.privacy.leakage.attack import Attack
    from posse.runtime.federation.talk import Invitation
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Build
    from posse.runtime.network.engine import Vocabulary
    from posse.systems.live import Serving

S = TypeVar("S", bound=RunSettings)
R = TypeVar("R", bound=Run)
Declared = TypeVar("Declared")
"""Class of the object that a module declares."""
Picture = Mapping[str, Any]
"""What the studio draws, as values that JSON can store."""


# Pictures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """Settings with a story, for users who see the system for the first time."""

    name: str
    about: str
    """The story, in two or three sentences: who the parties are, what they want, what to watch."""
    settings: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `System.start` that only this system takes, such as a state to begin in."""


def _knowledge_of_level(settings: RunSettings, kind: str) -> dict[str, list[str]]:
    """Return sentences about a kind of role: what it holds, learns and could infer at this level."""
    system = system_of(settings)
    role = next(role for role in system.roles if role.kind == kind)
    knows = [f"It holds {role.holds}."]
    level = level_or_none(system, settings)
    if level is not None:
        knows += _sentences_about(role, level.learns(settings))
    could = _sentences_about(role, not_protected(system, settings))
    # Levels have no sentences about what a role can never know.
    return {"knows": knows, "never": [], "could": could}


def _sentences_about(role: RoleKind, sentences: Iterable[str]) -> list[str]:
    """Return the sentences that name a role by its kind, or by the last word of its label."""
    last_word = role.label.lower().split()[-1]  # "owner" of "data owner"
    names = (role.kind.lower(), last_word)
    return [text for text in sentences if any(name in text.lower() for name in names)]


def _with_and_without_protection(settings: S) -> Sequence[tuple[str, S]]:
    """Return pairs of a name and settings: the settings themselves, and those of the plain twin.

    Settings that are plain have no further twin.
    """
    system = system_of(settings)
    if system.level_of(settings) == "plain":
        return (("as set", settings),)
    return (("as set", settings), ("plain", system.twin(settings)))


@dataclass(frozen=True, kw_only=True)
class Scene(Generic[S, R]):
    """Pictures of runs and explanations of messages."""

    places: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where each kind of role is drawn, from (0, 0) at the top left to (1, 1)."""
    scenarios: tuple[Scenario, ...] = ()
    """What the studio offers to users who begin."""
    draw: Callable[[R], Picture | None] = lambda run: None
    """Returns a picture of the run: its parties and their figures; None if there is none."""
    explain: Callable[[Any, Delivery], Picture | None] = lambda run, delivery: None
    """Returns an explanation of a message that was just delivered; None if there is none."""
    pseudocode: Callable[[S], Mapping[str, Sequence[str]]] = lambda settings: {}
    """Returns the pseudocode of each kind of role, by line."""
    sources: Callable[[S], Mapping[str, str]] = lambda settings: {}
    """Returns "module:Class" for each kind of role; the studio shows the source code of the class."""
    knowledge: Callable[[S, str], Mapping[str, Sequence[str]]] = _knowledge_of_level
    """Returns sentences about a kind of role: what it knows (`knows`), can never know (`never`) and
    could infer (`could`). By default these are the sentences of the level that name the role.
    """
    visibility: Callable[[S], Picture | None] = lambda settings: None
    """Returns who sees which data, measured on a small run; None if this is not known.

    `columns` are the observers, and `note` is a remark. Each of `rows` has the name of some `data`,
    and `cells`: what hides these data from each observer.
    """
    preview: Callable[[S], Picture | None] = lambda settings: None
    """Returns what the data contain, to show it before a run; None if there is nothing to show.

    The entries are `arms` (name, mean and number of ratings), `histogram` (value and count) and
    `note`.
    """
    variants: Callable[[S], Sequence[tuple[str, S]]] = _with_and_without_protection
    """Returns pairs of a name and settings. Runs of all pairs show what each protection costs. The
    first pair has the unchanged settings.
    """


# Attacks ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attacks:
    """Attacks on runs.

    Each sentence of a level has an attack (`Attack.claims`), or a reason why not (`unattacked`).
    """

    attacks: tuple[Attack, ...] = ()
    unattacked: Mapping[str, str] = field(default_factory=dict)
    """Reasons why sentences have no attack, by the beginning of the sentence."""
    similar_settings: Callable[[Mapping[str, Any]], RunSettings | None] = lambda public: None
    """Returns settings whose simulation has the public terms of a recorded view (`View.public`).
    Returns None if a term that the settings need is missing.
    """


# Parties between organisations --------------------------------------------------------------------


@dataclass(frozen=True)
class Deploy:
    """How a system runs between organisations, each with its own party."""

    build: Build
    """Makes a party from its file."""
    layout: Callable[[dict[str, Any], Path], Layout]
    """Checks the file of a federation, to run all its parties on one machine. It is called with the
    values in the file and with the file's folder.
    """
    invite: Callable[[dict[str, Any], Path], Invitation] | None = None
    """Makes the invitation to a run in a standing federation, whose members make many runs. It is
    called with the settings of the run and a folder for relative paths. None if the system has no
    runs in standing federations.
    """
    vocabulary: Vocabulary | None = None
    """The system's messages, to read recorded views; None if parties record no views."""


# Decisions on demand ------------------------------------------------------------------------------


def _refuse_to_serve(settings: RunSettings, *_: Any, **__: Any) -> Serving:
    """Raise an error with the reason why the system serves no decisions (`Live.reason`)."""
    system = system_of(settings)
    raise ConfigError(
        f"{system.name} does not serve decisions in a process: {live_of(system).reason}",
        rule="systems.live.not-served",
    )


@dataclass(frozen=True, kw_only=True)
class Live:
    """How a system decides on demand in this process (`posse.live`), and reads learnt models."""

    serve: Callable[..., Serving] = _refuse_to_serve
    """Returns the object that decides; by default raises an error.

    It is called with the settings, the names of the arms, the horizon, and options that only this
    system takes. If the names are None, the names of the data are used. If the horizon is None,
    there is no limit.
    """
    reason: str = "its author has not written it. Use posse.run or posse.start."
    """Why the system has no `serve`, and what to use instead."""
    read_model: Callable[[Path], Learnt | None] = lambda path: None
    """Reads a learnt model from a file or folder that a run wrote. Returns None if the file or
    folder is from another system.
    """


# Commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command that only one system has, such as `budget arms`. The command line includes it."""

    path: tuple[str, ...]
    """Words of the command. The first one may be a group of Posse (`problems`, `check`, `evaluate`,
    `budget`, `devices`), which the command joins.
    """
    summary: str
    settings: Callable[[], type[Settings]]
    """Imports and returns the command's class of settings. Each flag sets one of the settings."""
    run: Callable[[Any], Iterable[str | Section | Record]]
    """Runs the command. Yields remarks and tables, which are printed at once, and records, which
    are stored.
    """
    positional: tuple[str, ...] = ()
    """Settings whose values the user may write without a flag."""
    skip: tuple[str, ...] = ()
    """Settings that have no flag in this command."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that have another default in this command, with that default."""
    examples: tuple[str, ...] = ()
    """Two commands for the help page."""
    stopped: str = ""
    """What is printed after Ctrl-C, for a command that stores unfinished work; empty for others."""


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Commands that only one system has."""

    commands: tuple[Command, ...] = ()
    without_flag: tuple[str, ...] = ()
    """Names of the system's settings that have no flag in any command."""


# Reports ------------------------------------------------------------------------------------------


def _only_plain_twin(settings: S) -> Sequence[S]:
    """Return the settings of the plain twin, as the only comparison; none for a plain run."""
    system = system_of(settings)
    return () if system.level_of(settings) == "plain" else (system.twin(settings),)


@dataclass(frozen=True, kw_only=True)
class Report(Generic[S]):
    """What a run is compared with, and tables that only this system adds to reports."""

    comparisons: Callable[[S], Sequence[S]] = _only_plain_twin
    """Returns the settings of each run that a run is compared with. The comparison shows what
    protection costs, or what taking part earns. By default a run is compared with its plain twin.
    """
    compared_by_default: bool = True
    """Whether `posse run` makes the comparisons without a flag."""
    sections: Callable[[Sequence[Record]], Sequence[Section]] = lambda records: ()
    """Returns tables and notes about several records that a report shows together. The main record
    comes first. Tables about one record are stored in the record itself (`base.presentation`).
    """
    workload: Callable[[S], str] = lambda settings: ""
    """Returns what the paper states about the number of cryptographic calls and messages, computed
    for these settings; empty if the paper states nothing.
    """


# Finding modules ----------------------------------------------------------------------------------


def scene_of(system: AnySystem) -> Scene[Any, Any]:
    """Return the pictures and explanations of a system; by default a scene that draws nothing."""
    return _load_or_default(Scene(), system, "scene")


def attacks_of(system: AnySystem) -> Attacks:
    """Return the attacks on runs of a system; by default none."""
    return _load_or_default(Attacks(), system, "attacks")


def deploy_of(system: AnySystem) -> Deploy | None:
    """Return how a system runs between organisations; None if the system does not."""
    return _load_or_none(system, "deploy", Deploy)


def live_of(system: AnySystem) -> Live:
    """Return how a system serves decisions on demand; by default its `serve` raises an error."""
    return _load_or_default(Live(), system, "live")


def commands_of(system: AnySystem) -> Commands:
    """Return the commands that only this system has; by default none."""
    return _load_or_default(Commands(), system, "commands")


def report_of(system: AnySystem) -> Report[Any]:
    """Return what runs of a system are compared with, and which tables its reports add.

    By default runs are compared with the plain twin, and no tables are added.
    """
    return _load_or_default(Report(), system, "report")


def _load_or_default(default: Declared, system: AnySystem, name: str) -> Declared:
    """Return the object of the optional module `name`; the default if there is no such module."""
    declared = _load_or_none(system, name, type(default))
    return default if declared is None else declared


def _load_or_none(system: AnySystem, name: str, kind: type[Declared]) -> Declared | None:
    """Return the object of the optional module `name`; None if there is no such module."""
    module = _import_optional(type(system).__module__, name)
    if module is None:
        return None
    declared = vars(module).get(name.upper())
    if not isinstance(declared, kind):
        raise ConfigError(
            f"the module {module.__name__} must have an object {name.upper()} of the class "
            f"{kind.__name__}. Add it, or rename the module.",
            rule="systems.module.no-object",
        )
    return declared


@cache
def _import_optional(system_module: str, name: str) -> ModuleType | None:
    """Import the optional module `name` of the system that is declared in `system_module`.

    Returns None if there is no such module. Only a system in a file `system.py` has modules, next
    to this file. Files next to a system in another file need not belong to the system.
    """
    package, _, file = system_module.rpartition(".")
    if file != "system" or find_spec(f"{package}.{name}") is None:
        return None
    return import_module(f"{package}.{name}")
