"""What `posse party` and `posse up` know of each protocol: how a role is built, and how a federation is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.core.errors import ConfigError, PosseError
from posse.core.settings import read_toml

if TYPE_CHECKING:
    from posse.protocols.dp_combinatorial.deploy import MarketFederation
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Build


def build_of(protocol: str) -> Build:
    """Return what makes a party of a protocol."""
    if protocol == "samba":
        from posse.protocols.samba.deploy import build

        return build
    if protocol == "mpc-contextual":
        from posse.protocols.mpc_contextual.deploy import build as build_role

        return build_role
    if protocol == "dp-combinatorial":
        from posse.protocols.dp_combinatorial.deploy import build as build_agent

        return build_agent
    raise ConfigError(f"a party runs the protocol {_KNOWN}, got '{protocol}'.")


def read_federation(file: Path) -> Layout:
    """Read a federation's file, whatever its protocol, and say what is wrong with it."""
    values = read_toml(file)
    protocol = values.get("protocol", "samba")
    if protocol not in _LAYOUTS:
        raise ConfigError(f"posse up knows the protocol {_KNOWN}, got '{protocol}'.")
    return _LAYOUTS[protocol](values, file.resolve().parent)


def _samba(values: dict[str, Any], here: Path) -> Layout:
    from posse.protocols.samba.deploy import layout

    return layout(values, here)


def _contextual(values: dict[str, Any], here: Path) -> Layout:
    from posse.protocols.mpc_contextual.deploy import (
        OUTSIDE,
        ContextualFederation,
        arm_figures,
        check_federation,
        lay_out,
    )
    from posse.protocols.mpc_contextual.terms import PAYEE, PULLER

    values = _each(values, "party", lambda party: _beside(party, here, "features"))
    for name in (PULLER, PAYEE):
        if isinstance(values.get(name), dict):
            values = {**values, name: _source_beside(values[name], here)}
    if isinstance(values.get("world"), dict):
        values = {**values, "world": _world_beside(values["world"], here)}
    federation = ContextualFederation.make(values)
    options = check_federation(federation)
    roles = ("party", *OUTSIDE)
    return Layout(
        federation, lambda folder: lay_out(federation, folder), federation.steps, PULLER, roles,
        lambda name: name if name in OUTSIDE else "party", PAYEE, ("listen", "addresses", "sync", "give_up"),
        arm_figures(options, options.terms(federation.run)),
    )  # fmt: skip


def _market(values: dict[str, Any], here: Path) -> Layout:
    from posse.protocols.dp_combinatorial.deploy import MarketFederation, lay_out

    federation = MarketFederation.make(_each(values, "agent", lambda agent: _beside(agent, here, "own")))
    _check_market(federation)
    return Layout(
        federation, lambda folder: lay_out(federation, folder), federation.rounds, "agent", ("agent",),
        lambda name: "agent", None, ("sync",),
    )  # fmt: skip


_LAYOUTS: Mapping[str, Callable[[dict[str, Any], Path], Layout]] = {
    "samba": _samba,
    "mpc-contextual": _contextual,
    "dp-combinatorial": _market,
}
_KNOWN = "samba, mpc-contextual or dp-combinatorial"


# Paths are relative to the federation's file, and not to the folder of the parties' files ----------------------------


def _each(values: dict[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    members = values.get(name)
    if not isinstance(members, list):
        return values
    return {**values, name: [change(member) if isinstance(member, dict) else member for member in members]}


def _beside(table: dict[str, Any], here: Path, *names: str) -> dict[str, Any]:
    return {**table, **{name: str(here / table[name]) for name in names if isinstance(table.get(name), str)}}


def _source_beside(table: dict[str, Any], here: Path) -> dict[str, Any]:
    source = table.get("source")
    return {**table, "source": _beside(source, here, "file")} if isinstance(source, dict) else table


def _world_beside(world: dict[str, Any], here: Path) -> dict[str, Any]:
    found = _beside(world, here, "data_dir", "rewards")
    if isinstance(found.get("features"), dict):
        found["features"] = _beside(found["features"], here, *found["features"])
    return found


# What is wrong with a file is said before anything is written --------------------------------------------------------


def _check_market(federation: MarketFederation) -> None:
    from posse.protocols.dp_combinatorial.deploy import AgentOptions, DeliverySettings
    from posse.runtime.certificates.names import check_name
    from posse.runtime.network.deployment import address

    check_name(run=federation.run)
    names = [member.name for member in federation.members]
    if len(names) < 2:
        raise ConfigError(f"a mesh needs at least 2 agents, got {len(names)}. Give [[agent]] with a name and listen.")
    for member in federation.members:
        _check_member(member.name, names, "agent", ("authority",))
        address(member.listen)
        if member.own is not None:
            DeliverySettings.make(member.source)
    options = AgentOptions(
        **{name: getattr(federation, name) for name in federation.model_fields_set & _market_fields()}
    )
    if any(member.own is not None for member in federation.members):
        options.plan_and_terms(tuple(names), options.suppliers)
        return
    agents = options.check().market.agents
    if sorted(agents) != sorted(names):
        raise ConfigError(f"the simulated market has agents {', '.join(agents)}, got {', '.join(names)}. Rename them.")


def _market_fields() -> set[str]:
    from posse.protocols.dp_combinatorial.deploy import AgentOptions

    return set(AgentOptions.model_fields)


def _check_member(name: str, names: list[str], what: str, taken: tuple[str, ...]) -> None:
    from posse.runtime.certificates.names import check_name

    try:
        check_name(name=name)
    except ConfigError as error:
        raise ConfigError(f"{what} {_plain(error)}") from None
    if names.count(name) > 1:
        raise ConfigError(f"{what}s must have different names, got '{name}' twice.")
    if name in taken:
        article = "an" if what[0] in "aeiou" else "a"
        raise ConfigError(f"{article} {what} cannot be called '{name}', which is taken. Choose another name.")


def _plain(error: PosseError) -> str:
    return str(error).removeprefix(f"[{error.code}] ")
