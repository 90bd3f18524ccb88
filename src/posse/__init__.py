"""Posse: bandits across organisations that will not show each other their data.

Make the settings of a system (`Samba`, `MpcContextual`, `DpCombinatorial`, `FedContextual`), then
`run` them to a `Record`, or `start` them and go step by step; `live` makes a bandit of them that a
program uses, `audit` attacks them. `compare`, `report` and `sweep` work on records; `check` tries a
policy of your own; `Bar` shows progress. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from posse.version import __version__

if TYPE_CHECKING:
    from posse import policies as policies
    from posse import problems as problems
    from posse import systems as systems
    from posse.core.errors import PosseError as PosseError
    from posse.policies.arms.checks import check as check
    from posse.policies.decisions import Decision as Decision
    from posse.results.bar import Bar as Bar
    from posse.results.compare import compare as compare
    from posse.results.record import Record as Record
    from posse.results.render import report as report
    from posse.results.store import Store as Store
    from posse.sweeps import sweep as sweep
    from posse.systems.audit import audit as audit
    from posse.systems.dp_combinatorial.settings import DpCombinatorial as DpCombinatorial
    from posse.systems.fed_contextual.on_device import OnDevice as OnDevice
    from posse.systems.fed_contextual.settings import FedContextual as FedContextual
    from posse.systems.live import live as live
    from posse.systems.mpc_contextual.settings import MpcContextual as MpcContextual
    from posse.systems.registry import run as run
    from posse.systems.registry import start as start
    from posse.systems.samba.settings import Samba as Samba

_HOMES = {
    "Bar": "posse.results.bar",
    "Decision": "posse.policies.decisions",
    "DpCombinatorial": "posse.systems.dp_combinatorial.settings",
    "MpcContextual": "posse.systems.mpc_contextual.settings",
    "FedContextual": "posse.systems.fed_contextual.settings",
    "OnDevice": "posse.systems.fed_contextual.on_device",
    "PosseError": "posse.core.errors",
    "Record": "posse.results.record",
    "Samba": "posse.systems.samba.settings",
    "Store": "posse.results.store",
    "audit": "posse.systems.audit",
    "check": "posse.policies.arms.checks",
    "compare": "posse.results.compare",
    "live": "posse.systems.live",
    "report": "posse.results.render",
    "run": "posse.systems.registry",
    "start": "posse.systems.registry",
    "sweep": "posse.sweeps",
}
_ROOMS = ("policies", "problems", "systems")

__all__ = ["__version__", *_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"posse.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'posse' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
