"""How a party is built and a federation's file is read: what the system that the file names declares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from posse.core.errors import ConfigError
from posse.core.settings import read_toml

if TYPE_CHECKING:
    from posse.protocols.base import Parties
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Build


def build_of(protocol: str) -> Build:
    """Return what makes a party of a system."""
    return _deployment(protocol, "a party runs").build


def read_federation(file: Path) -> Layout:
    """Read a federation's file, whatever its system, and say what is wrong with it."""
    from posse.protocols.registry import names

    values = read_toml(file)
    return _deployment(values.get("protocol", names()[0]), "posse up knows").layout(values, file.resolve().parent)


def _deployment(protocol: str, who: str) -> Parties:
    from posse.protocols.registry import names, system

    made = system(protocol).deployment if protocol in names() else None
    if made is None:
        known = [name for name in names() if system(name).deployment is not None]
        raise ConfigError(f"{who} the protocol {', '.join(known[:-1])} or {known[-1]}, got '{protocol}'.")
    return made
