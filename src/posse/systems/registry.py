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

from posse.core.check import nearest
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.results.record import Record, Watch
    from posse.systems.base import RunSettings, System
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
    """Names of all systems, the built-in ones first."""
    return tuple(_modules())


def systems(skip: Collection[str] = ()) -> Iterator[System]:
    """All systems but some; an installed one that cannot be imported is told when it is named, and
    breaks no other.
    """
    for name in (name for name in names() if name not in skip):
        with suppress(*((ConfigError,) if name not in BUILT_IN else ())):
            yield system(name)


def system(name: str) -> System:
    """The system of this name."""
    modules = BUILT_IN if name in BUILT_IN else _modules()
    if name not in modules:
        raise ConfigError(f"unknown system '{name}'.{nearest(name, tuple(modules))}")
    made = _load(modules[name])
    if made.name != name:
        raise ConfigError(
            f"the entry point '{name}' offers a system called '{made.name}'. Its package must give "
            "both one name."
        )
    return made


def system_of(settings: RunSettings) -> System:
    """The system that these settings are of."""
    if isinstance(settings, type) or not hasattr(settings, "system"):
        raise ConfigError(f"expected settings, such as posse.Samba(), got {settings!r}.")
    return system(settings.system)


def _modules() -> dict[str, str]:
    """Module of every system, by the system's name."""
    found = dict(BUILT_IN)
    for name, module in _installed(tuple(sys.path)):
        found.setdefault(name, module)
    for module in filter(None, os.environ.get(VARIABLE, "").split(",")):
        found.setdefault(_load(module.strip()).name, module.strip())
    return found


@cache
def _installed(_: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Systems of installed packages, and their modules; looked for once for each path that packages
    are on.
    """
    return tuple((point.name, point.value.partition(":")[0]) for point in entry_points(group=GROUP))


@cache
def _load(module: str) -> System:
    try:
        found = importlib.import_module(module)
    except Exception as error:
        if module in BUILT_IN.values():
            raise
        from posse.policies.own import explain

        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{module}.".startswith(f"{missing}."):
            raise ConfigError(
                f"the system in '{module}' cannot be imported: {explain(error)}."
            ) from error
        raise ConfigError(
            f"there is no module '{module}' with a system. Check {VARIABLE}, or the package that "
            "was installed for it."
        ) from error
    if not hasattr(found, "SYSTEM"):
        raise ConfigError(f"the module '{module}' has no SYSTEM.")
    made: System = found.SYSTEM
    return made


def start(
    settings: RunSettings,
    *,
    seeds: Sequence[int] | None = None,
    world: Literal["outside"] | None = None,
    transcript: int = TRANSCRIPT,
    **options: Any,
) -> Run:
    """Begin a run that goes forward one message or one decision at a time.

    `world="outside"` leaves what the roles ask of the world to `run.answer`. The last `transcript`
    messages are kept for views. `options` are those of the system's own `start`.
    """
    return system_of(settings).start(
        settings, seeds=seeds, world=world, transcript=transcript, **options
    )


def run(settings: RunSettings, *, watch: Watch | None = None, **options: Any) -> Record:
    """Run the settings to the end, every seed, and return the record.

    Ctrl-C raises `Interrupted`, a `KeyboardInterrupt` that holds the record of what was done.
    """
    from posse.results.record import Interrupted

    going = start(settings, transcript=0, **options)
    try:
        going.finish(watch)
    except KeyboardInterrupt as stop:
        raise Interrupted(going.record("interrupted")) from stop
    return going.record()
