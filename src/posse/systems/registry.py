"""All systems by name, and functions that run any system.

Built-in systems are listed here with their modules, and imported when they are used. Systems of
other packages are found by the entry point `posse.systems`. A system under development needs no
entry point: name its module in the environment variable POSSE_SYSTEMS (several modules are
separated by commas). The module of a system has an object `SYSTEM`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from posse.core.check import suggestion
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.results.record import Record, Watch
    from posse.systems.base import AnySystem, RunSettings
    from posse.systems.runs import Run

BUILT_IN = {
    "samba": "posse.systems.samba.system",
    "mpc-contextual": "posse.systems.mpc_contextual.system",
    "dp-combinatorial": "posse.systems.dp_combinatorial.system",
    "fed-contextual": "posse.systems.fed_contextual.system",
}
ACTIONS = {
    "budget": "Plan the noise of a privacy budget, or see what noise proves.",
    "devices": "Deploy a model on devices, or try a fleet on this machine.",
    "export": "Write a learnt model with its policy as an ONNX graph.",
}
"""First word and summary of the commands that only one built-in system has. With this dict, a list
of all commands imports no system. Commands in a group of Posse, such as `problems show`, are not in
the dict.
"""
GROUP = "posse.systems"
"""Group of the entry points of systems."""
VARIABLE = "POSSE_SYSTEMS"
"""Environment variable with the modules of further systems."""
TRANSCRIPT = 100_000
"""Number of the last messages that a run keeps for views if `start` began it. A run that `run` began
keeps none.
"""


def names() -> tuple[str, ...]:
    """Return the names of all systems, the built-in ones first."""
    return tuple(_module_names())


def systems(skip: Collection[str] = ()) -> Iterator[AnySystem]:
    """Yield all systems, except those whose names are in `skip`.

    A system of another package that cannot be imported is left out. For such a system,
    `system(name)` raises the error.
    """
    for name in names():
        if name in skip:
            continue
        try:
            declared = system(name)
        except ConfigError:
            if name in BUILT_IN:
                raise
            continue
        yield declared


def system(name: str) -> AnySystem:
    """Return the system of this name.

    Raises:
        ConfigError: There is no such system, or it cannot be imported.
    """
    # To search other packages takes time, and a built-in system does not need it.
    modules = BUILT_IN if name in BUILT_IN else _module_names()
    if name not in modules:
        raise ConfigError(
            f"unknown system '{name}'.{suggestion(name, tuple(modules))}",
            rule="systems.system.unknown",
        )
    declared = _import_system(modules[name])
    if declared.name != name:
        raise ConfigError(
            f"the entry point '{name}' offers a system called '{declared.name}'. Its package must "
            "use the same name for both.",
            rule="systems.entry-point.other-name",
        )
    return declared


def system_of(settings: RunSettings) -> AnySystem:
    """Return the system that these settings belong to."""
    # A class of settings also has the attribute `system`, but only its instances are settings.
    if isinstance(settings, type) or not hasattr(settings, "system"):
        raise ConfigError(
            f"expected settings, such as posse.Samba(), got {settings!r}.",
            rule="systems.settings.not-settings",
        )
    return system(settings.system)


def _module_names() -> dict[str, str]:
    """Return the name of every system's module, by the system's name."""
    # If several modules have a system of the same name, the first module counts.
    modules = dict(BUILT_IN)
    for name, module in _modules_of_installed_systems(tuple(sys.path)).items():
        modules.setdefault(name, module)
    for module in os.environ.get(VARIABLE, "").split(","):
        if module:
            modules.setdefault(_import_system(module.strip()).name, module.strip())
    return modules


@cache
def _modules_of_installed_systems(sys_path: tuple[str, ...]) -> Mapping[str, str]:
    """Return the module of every system in an installed package, by the system's name.

    `sys_path` is only the key of the cache: after a change of sys.path, packages are read again.
    """
    points = tuple(entry_points(group=GROUP))
    # The value of an entry point is "module:SYSTEM". Of two entry points with the same name, the
    # first one counts: in reversed order it is added last, and replaces the other one.
    return {point.name: point.value.partition(":")[0] for point in reversed(points)}


@cache
def _import_system(module: str) -> AnySystem:
    """Import a module and return its object `SYSTEM`."""
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        if module in BUILT_IN.values():
            raise  # a defect of Posse: the user needs the traceback to report it
        raise _import_failure(module, error) from error
    if not hasattr(imported, "SYSTEM"):
        raise ConfigError(
            f"the module '{module}' has no SYSTEM. Assign an instance of its system to SYSTEM.",
            rule="systems.module.no-system",
        )
    declared: AnySystem = imported.SYSTEM
    return declared


def _import_failure(module: str, error: Exception) -> ConfigError:
    """Return the error for a system that cannot be imported.

    Either its module does not exist, or an exception was raised while the module was imported.
    """
    from posse.policies.own import explain

    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    # Is the missing module this one, or a package around it? Any other missing module is one that
    # the system imports, so this module exists.
    if missing is not None and f"{module}.".startswith(f"{missing}."):
        return ConfigError(
            f"there is no module '{module}' with a system. Check {VARIABLE}, or the package that "
            "was installed for it.",
            rule="systems.module.missing",
        )
    return ConfigError(
        f"the system in '{module}' cannot be imported: {explain(error)}.",
        rule="systems.module.import-fails",
    )


def start(
    settings: RunSettings,
    *,
    seeds: Sequence[int] | None = None,
    world: Literal["outside"] | None = None,
    transcript: int = TRANSCRIPT,
    **options: Any,
) -> Run:
    """Begin a run, and return it. The caller then advances it by messages or decisions.

    Args:
        settings: What to run.
        seeds: World seeds; by default those of the settings.
        world: "outside" if the caller gives the world's answers (`Run.answer`); None to simulate
            the world.
        transcript: Number of the last messages to keep for views; 0 keeps none.
        options: Arguments that only this system takes (`System.start`).
    """
    return system_of(settings).start(
        settings, seeds=seeds, world=world, transcript=transcript, **options
    )


def run(settings: RunSettings, *, watch: Watch | None = None, **options: Any) -> Record:
    """Run every seed of the settings to the end, and return the record.

    Args:
        settings: What to run.
        watch: Called with the progress about every half second.
        options: Further arguments of `start`.

    Raises:
        Interrupted: Ctrl-C was pressed. It is a `KeyboardInterrupt` with the record so far.
    """
    from posse.results.record import Interrupted

    started = start(settings, transcript=0, **options)
    try:
        started.finish(watch)
    except KeyboardInterrupt as stop:
        raise Interrupted(started.record("interrupted")) from stop
    return started.record()
