"""Which systems there are, and runs of any of them.

Built-in systems are named here by their module and imported when they are used; others are found by
the entry point `posse.systems` or, while they are being written, by the variable POSSE_SYSTEMS
(modules, with commas between). Each module has a `SYSTEM`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
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
    "arms": "List the arms that data give, with their means.",
    "budget": "Plan the noise of a privacy budget, or see what given noise proves.",
    "ranges": "Print how large every intermediate of mpc-contextual can become, and run nothing.",
    "devices": "Deploy a model on devices, or try a fleet on this machine.",
    "export": "Write a learnt model with its policy as an ONNX graph, which phones and pages run.",
    "rates": "Rank learning rates by what their models would earn, from a log of decisions.",
}
"""First words of the built-in systems' own commands, so that a list of all commands imports no
system.
"""
GROUP = "posse.systems"
VARIABLE = "POSSE_SYSTEMS"
TRANSCRIPT = 100_000
"""Messages that a run of `start` keeps for views; a run of `run` keeps none."""


def names() -> tuple[str, ...]:
    """Return the names of all systems, the built-in ones first."""
    return tuple(_modules())


def systems(skip: Collection[str] = ()) -> Iterator[AnySystem]:
    """Yield all systems, except those in `skip`.

    An installed system that cannot be imported is left out. Naming it raises the error.
    """
    for name in names():
        if name in skip:
            continue
        if name in BUILT_IN:
            yield system(name)
            continue
        with suppress(ConfigError):
            yield system(name)


def system(name: str) -> AnySystem:
    """Return the system of this name."""
    modules = BUILT_IN if name in BUILT_IN else _modules()
    if name not in modules:
        raise ConfigError(
            f"unknown system '{name}'.{suggestion(name, tuple(modules))}",
            rule="systems.system.unknown",
        )
    declared = _load(modules[name])
    if declared.name != name:
        raise ConfigError(
            f"the entry point '{name}' offers a system called '{declared.name}'. Its package must "
            "give both one name.",
            rule="systems.entry-point.other-name",
        )
    return declared


def system_of(settings: RunSettings) -> AnySystem:
    """Return the system that these settings belong to."""
    if isinstance(settings, type) or not hasattr(settings, "system"):
        raise ConfigError(
            f"expected settings, such as posse.Samba(), got {settings!r}.",
            rule="systems.settings.not-settings",
        )
    return system(settings.system)


def _modules() -> dict[str, str]:
    """Return the module of every system, by the system's name."""
    modules = dict(BUILT_IN)
    for name, module in _installed(tuple(sys.path)):
        modules.setdefault(name, module)
    for module in os.environ.get(VARIABLE, "").split(","):
        if module:
            modules.setdefault(_load(module.strip()).name, module.strip())
    return modules


@cache
def _installed(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the systems of installed packages with their modules, read once per search path."""
    return tuple((point.name, point.value.partition(":")[0]) for point in entry_points(group=GROUP))


@cache
def _load(module: str) -> AnySystem:
    """Import a module and return its `SYSTEM`."""
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        if module in BUILT_IN.values():
            raise
        raise _import_refusal(module, error) from error
    if not hasattr(imported, "SYSTEM"):
        raise ConfigError(
            f"the module '{module}' has no SYSTEM. Assign an instance of its system to SYSTEM.",
            rule="systems.module.no-system",
        )
    declared: AnySystem = imported.SYSTEM
    return declared


def _import_refusal(module: str, error: Exception) -> ConfigError:
    from posse.policies.own import explain

    missing = error.name if isinstance(error, ModuleNotFoundError) else None
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
    """Begin a run that advances by one message or one decision at a time.

    Args:
        settings: What to run.
        seeds: World seeds; by default those of the settings.
        world: "outside" leaves what roles ask of the world to `run.answer`.
        transcript: Number of the last messages to keep for views.
        options: What the system's own `start` takes.
    """
    return system_of(settings).start(
        settings, seeds=seeds, world=world, transcript=transcript, **options
    )


def run(settings: RunSettings, *, watch: Watch | None = None, **options: Any) -> Record:
    """Run the settings to the end, every seed, and return the record.

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
