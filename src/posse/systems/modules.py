"""What a system may offer: optional modules next to its `system.py`, each with one object.

| module | object | what it offers |
|---|---|---|
| `scene` | `SCENE: Scene` | pictures of runs and explanations of messages, for the studio |
| `attacks` | `ATTACKS: Attacks` | attacks for audits, and why a sentence has none |
| `deploy` | `DEPLOY: Parties` | parties between organisations |
| `live` | `LIVE: Live` | decisions on demand, and models that were learnt |
| `commands` | `COMMANDS: Commands` | commands of this system alone |
| `report` | `REPORT: Report` | what to compare a run with, and further tables |

A module is found by its name, so a system lists none of them. The functions of this module, such as
`scene_of`, return the object, or the defaults if the system has no such module. Modules are imported
when they are used.
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
from posse.results.reports.sections import Section
from posse.runtime.memory import Delivery
from posse.systems import base
from posse.systems.base import AnySystem, RoleKind, RunSettings
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
Module = TypeVar("Module")
Picture = Mapping[str, Any]
"""What the studio draws, as JSON has it."""


# Pictures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A named set-up for someone who sees the system for the first time."""

    name: str
    about: str
    """Two or three sentences: who the parties are, what they want, what to look for."""
    settings: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `System.start`, such as the state that the run begins in."""


def _knowledge_of_level(settings: RunSettings, kind: str) -> dict[str, list[str]]:
    """Return the sentences of the level that name a kind of role."""
    system = system_of(settings)
    role = next(role for role in system.roles if role.kind == kind)
    knows = [f"It holds {role.holds}."]
    level = base.level(system, settings)
    if level is not None:
        knows += _naming(role, level.learns(settings))
    could = _naming(role, base.not_protected(system, settings))
    return {"knows": knows, "never": [], "could": could}


def _naming(role: RoleKind, sentences: Iterable[str]) -> list[str]:
    label = role.label.lower()
    words = (role.kind.lower(), label.split()[-1])
    return [text for text in sentences if any(word in text.lower() for word in words)]


def _with_and_without_protection(settings: S) -> Sequence[tuple[str, S]]:
    system = system_of(settings)
    if system.level_of(settings) == "plain":
        return (("as set", settings),)
    return (("as set", settings), ("plain", system.twin(settings)))


@dataclass(frozen=True, kw_only=True)
class Scene(Generic[S, R]):
    """Pictures of runs and explanations of messages."""

    places: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where each kind of role stands, from (0, 0) at the top left to (1, 1)."""
    scenarios: tuple[Scenario, ...] = ()
    """Set-ups to start from."""
    draw: Callable[[R], Picture | None] = lambda run: None
    """Returns who stands where with which numbers; None if there is nothing to draw."""
    explain: Callable[[Any, Delivery], Picture | None] = lambda run, delivery: None
    """Explains a message of a run of roles at the moment it is delivered."""
    pseudocode: Callable[[S], Mapping[str, Sequence[str]]] = lambda settings: {}
    """Returns the pseudocode of each kind of role, by line."""
    sources: Callable[[S], Mapping[str, str]] = lambda settings: {}
    """Returns the class of each kind of role as "module:Class", to show its real source."""
    knowledge: Callable[[S, str], Mapping[str, Sequence[str]]] = _knowledge_of_level
    """Returns what a kind of role knows, can never know, and could infer; by default the sentences
    of the level that name the role.
    """
    visibility: Callable[[S], Picture | None] = lambda settings: None
    """Returns who sees which data, measured on a small run: `columns` (observers), `rows` (`data`
    and `cells`: what hides it from each observer) and `note`.
    """
    preview: Callable[[S], Picture | None] = lambda settings: None
    """Returns what the data contain before a run: `arms` (name, mean and number of ratings),
    `histogram` (value and count) and `note`.
    """
    variants: Callable[[S], Sequence[tuple[str, S]]] = _with_and_without_protection
    """Returns named settings that show what each protection costs, the settings themselves first."""


# Attacks ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attacks:
    """Attacks on runs. Each sentence of a level has one (`Attack.claims`), or a reason why not."""

    attacks: tuple[Attack, ...] = ()
    unattacked: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of sentences that have no attack, each with the reason."""
    similar_settings: Callable[[Mapping[str, Any]], RunSettings | None] = lambda public: None
    """Returns settings of a simulation with the public terms of a recorded view; None if the terms
    are not complete.
    """


# Parties between organisations --------------------------------------------------------------------


@dataclass(frozen=True)
class Parties:
    """How a system runs between organisations."""

    build: Build
    """Makes a party from its file."""
    layout: Callable[[dict[str, Any], Path], Layout]
    """Reads a federation's file (its values, its folder), and lays out a whole federation on one
    machine.
    """
    invite: Callable[[dict[str, Any], Path], Invitation] | None = None
    """Reads the settings of a run in a standing federation; None if the system has no such runs."""
    vocabulary: Vocabulary | None = None
    """Its messages, to read the view that a party recorded; None if none is recorded."""


# Decisions on demand ------------------------------------------------------------------------------


def _refuse_to_serve(settings: RunSettings, *_: Any, **__: Any) -> Serving:
    system = system_of(settings)
    raise ConfigError(
        f"{system.name} does not serve decisions in a process: {live_of(system).reason}",
        rule="systems.live.not-served",
    )


@dataclass(frozen=True, kw_only=True)
class Live:
    """Decisions on demand in this process (`posse.live`), and models that were learnt."""

    serve: Callable[..., Serving] = _refuse_to_serve
    """Called with settings, names of arms (or None), the horizon (or None) and further options."""
    reason: str = "its author has not written it. Use posse.run or posse.start."
    """Why there is no `serve`, and what to use instead."""
    read_model: Callable[[Path], Learnt | None] = lambda path: None
    """Reads a learnt model from a file or folder that a run wrote; None if it is not of this
    system.
    """


# Commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command of one system, such as `budget arms`, which the front doors add to theirs."""

    path: tuple[str, ...]
    """Words of the command; systems may share the first ones."""
    summary: str
    settings: Callable[[], type[Settings]]
    """Imports the model of its flags."""
    run: Callable[[Any], Iterable[str | Section | Record]]
    """Yields what is shown as it comes: remarks, tables, and records to store."""
    positional: tuple[str, ...] = ()
    """Settings that the command line takes without a flag."""
    skip: tuple[str, ...] = ()
    """Settings that have no flag in this command."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of this command that differ from the model's."""
    stopped: str = ""
    """What is printed after Ctrl-C if the command stores what was done."""


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Commands of one system, and its settings that have no flag in any command."""

    commands: tuple[Command, ...] = ()
    without_flag: tuple[str, ...] = ()


# Reports ------------------------------------------------------------------------------------------


def _plain_twin(settings: S) -> Sequence[S]:
    system = system_of(settings)
    return () if system.level_of(settings) == "plain" else (system.twin(settings),)


@dataclass(frozen=True, kw_only=True)
class Report(Generic[S]):
    """What a run is compared with, and tables that only records of this system have."""

    comparisons: Callable[[S], Sequence[S]] = _plain_twin
    """Returns settings to run for comparison: what protection costs, or what joining earns."""
    compared_by_default: bool = True
    """Whether `posse run` runs the comparisons if no flag says otherwise."""
    sections: Callable[[Sequence[Record]], Sequence[Section]] = lambda records: ()
    """Returns tables and notes about records that are shown together, the main one first. What
    concerns a single record is in the record (`base.presentation`).
    """
    workload: Callable[[S], str] = lambda settings: ""
    """Returns what the paper states about calls and messages, with the numbers of the settings."""


# Finding modules ----------------------------------------------------------------------------------


def scene_of(system: AnySystem) -> Scene[Any, Any]:
    """Return the pictures of a system."""
    return _object_or(Scene(), system, "scene")


def attacks_of(system: AnySystem) -> Attacks:
    """Return the attacks on runs of a system."""
    return _object_or(Attacks(), system, "attacks")


def deploy_of(system: AnySystem) -> Parties | None:
    """Return how a system runs between organisations; None if it does not."""
    return _object(system, "deploy", Parties)


def live_of(system: AnySystem) -> Live:
    """Return how a system serves decisions on demand."""
    return _object_or(Live(), system, "live")


def commands_of(system: AnySystem) -> Commands:
    """Return the commands of a system."""
    return _object_or(Commands(), system, "commands")


def report_of(system: AnySystem) -> Report[Any]:
    """Return what reports of a system contain in addition to its records."""
    return _object_or(Report(), system, "report")


def _object_or(default: Module, system: AnySystem, name: str) -> Module:
    declared = _object(system, name, type(default))
    return default if declared is None else declared


def _object(system: AnySystem, name: str, kind: type[Module]) -> Module | None:
    """Return the object of an optional module; None if the system has no such module."""
    module = _module(type(system).__module__, name)
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
def _module(declared_in: str, name: str) -> ModuleType | None:
    """Import the optional module of a system that is declared in a `system.py`.

    Other files in the folder of a single-file system do not belong to it.
    """
    package, _, file = declared_in.rpartition(".")
    if file != "system" or find_spec(f"{package}.{name}") is None:
        return None
    return import_module(f"{package}.{name}")
