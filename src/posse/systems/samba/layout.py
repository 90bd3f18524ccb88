"""Who takes part in a run of Samba, and what each one's file says: all on one machine, or members
of a federation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.runtime.certificates.identity import CERTIFICATE
from posse.runtime.certificates.names import check_name
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.talk import Invitation
from posse.runtime.local import (
    AUTHORITY,
    Layout,
    check_member,
    each,
    enrol_all,
    source_beside,
    world_beside,
    write_party,
)
from posse.runtime.place import address
from posse.runtime.sources import KnownRewards, SourceSettings
from posse.systems.samba.deploy import (
    SambaOptions,
    check_sync,
    level_of,
    own_policy_beside,
    policy_remarks,
    slot_of,
)
from posse.systems.samba.levels import (
    Switches,
    check_budget,
    check_level,
    check_price,
    check_switches,
)
from posse.systems.samba.setup import COMP, CONTROLLER, CUSTOMER, DEALER, sole
from posse.systems.samba.strict import clock


class OwnerEntry(Settings):
    """One owner of a federation file."""

    name: str
    source: dict[str, Any] | None = None
    slowest_pull: float | None = None


class FederationFile(SambaOptions):
    """A whole federation on one machine (`posse up`)."""

    protocol: Literal["samba"] = "samba"
    run: str
    """Name of the run."""
    listen: str = "127.0.0.1:7400"
    """Where the controller listens."""
    sync: bool = True
    """Wait for the disk before anything that follows from a reward leaves."""
    members: tuple[OwnerEntry, ...] = Field(default=(), alias="owner")
    """The owners ([[owner]] with a name and a source)."""


def layout(values: dict[str, Any], here: Path) -> Layout:
    """Read a federation's file and say what is wrong with it, before anything is written."""
    check_switches(values)
    values = own_policy_beside(
        each(values, "owner", lambda owner: source_beside(owner, here)), here
    )
    values = world_beside(values, here)
    federation = FederationFile.make(values)
    _check(federation)
    return Layout(
        federation,
        lambda folder: lay_out(federation, folder),
        federation.budget,
        CONTROLLER,
        (CONTROLLER, COMP),
        lambda name: name if name in (CONTROLLER, COMP, CUSTOMER, DEALER) else "owner",
        CUSTOMER,
        ("listen", "sync"),
        policy_remarks(federation),
        lambda: _known_rewards(federation),
    )


def _known_rewards(federation: FederationFile) -> dict[str, KnownRewards | None]:
    """Return what the files of the owners have; their paths are absolute."""
    known: dict[str, KnownRewards | None] = {}
    for member in federation.members:
        source = None if federation.world else member.source
        known[member.name] = None
        if source is not None:
            settings = SourceSettings.make(source)
            known[member.name] = settings.known(Path(), federation.threshold)
    return known


def _check(federation: FederationFile) -> None:
    check_name(run=federation.run)
    address(federation.listen)
    names = [member.name for member in federation.members]
    if len(names) < 2:
        raise ConfigError(
            f"a federation needs at least 2 owners, got {len(names)}. Add [[owner]] with a name."
        )
    for member in federation.members:
        check_member(member.name, names, "owner", (CONTROLLER, COMP, CUSTOMER, DEALER, AUTHORITY))
        if federation.world is None and member.source is None:
            raise ConfigError(
                f"owner '{member.name}' has no source of rewards. Give it [owner.source] with a "
                "kind, or give [world]."
            )
        if member.source is not None:
            try:
                if (
                    SourceSettings.make(member.source).kind == "ratings"
                    and federation.threshold is None
                ):
                    raise ConfigError(
                        "ratings need a threshold that all agree on. Add threshold, such as 3."
                    )
            except ConfigError as error:
                raise ConfigError(f"source of owner '{member.name}': {error.text}") from None
    if federation.budget < 1:
        raise ConfigError(
            "budget is needed and was not given. Give the number of pulls, such as budget = 2000."
        )
    check_budget(len(names), federation.budget)
    check_price(federation.price or (), len(names))
    check_level(level_of(federation), Switches(), federation.sound_policy())
    check_sync(federation.sync, level_of(federation))
    for name, slowest in _slowest(federation).items():
        clock.check_slot(slot_of(federation, slowest), slowest, name)


def _slowest(federation: FederationFile) -> dict[str, float | None]:
    """The slowest pull of every owner, where it is given."""
    common = federation.slowest_pull
    return {
        each.name: common if each.slowest_pull is None else each.slowest_pull
        for each in federation.members
    }


def lay_out(federation: FederationFile, folder: Path) -> list[Path]:
    """Make identities and files for all parties of a federation; what exists is kept, so that a run
    can go on.
    """
    owners = tuple(member.name for member in federation.members)
    check_budget(max(2, len(owners)), federation.budget)
    parts = _parts(federation, owners, _slowest(federation))
    enrol_all(folder, federation.run, {name: part["role"] for name, part in parts.items()})
    sources = {
        member.name: None if federation.world else member.source for member in federation.members
    }
    paths = []
    for name, part in parts.items():
        reach = (
            {"listen": federation.listen}
            if part["listens"]
            else {"connect": {CONTROLLER: federation.listen}}
        )
        values = {
            "protocol": "samba",
            "identity": name,
            "role": part["role"],
            "journal": f"{name}/journal",
            "sync": federation.sync,
            **reach,
            "options": part["options"],
            "source": sources.get(name),
            "consent": part["consent"],
        }
        paths.append(write_party(folder / f"{name}.toml", values))
    return paths


def _parts(
    settings: SambaOptions, owners: tuple[str, ...], slowest: dict[str, float | None]
) -> dict[str, Any]:
    """Say of every party, by name, its role and options, whether it listens, and whom it calls."""
    members = {
        **{name: name for name in sole(level_of(settings))},
        **dict.fromkeys(owners, "owner"),
    }
    options = settings.model_dump(
        mode="json", include=set(SambaOptions.model_fields), exclude_none=True
    )
    for name in ("owners", "budget", "authority", "paillier_bits", "slowest_pull"):
        options.pop(name, None)
    if settings.world is not None:
        options["owners"] = list(owners)
    parts: dict[str, Any] = {}
    for name, role in members.items():
        own: dict[str, Any] = dict(options)
        if role != "customer":
            own["customer"] = f"{CUSTOMER}/{CERTIFICATE}"
        if role in ("controller", "customer"):
            own["owners"] = list(owners)
        if slowest.get(name) is not None:
            own["slowest_pull"] = slowest[name]
        if role == "customer":
            own |= {
                "budget": settings.budget,
                "authority": AUTHORITY,
                "paillier_bits": settings.paillier_bits,
            }
        hub = role == "controller"
        # An owner signs no budget beyond the one it was asked for.
        consent = {"budget": settings.budget} if role == "owner" else None
        reach = {"listens": hub, "connect": () if hub else (CONTROLLER,)}
        reads = [each for each in members if each != name] if role == "customer" else [CUSTOMER]
        parts[name] = {
            "role": role,
            "options": own,
            **reach,
            "consent": consent,
            "certificates": reads,
        }
    return parts


def invite(values: dict[str, Any], here: Path) -> Invitation:
    """Read the settings of a run in a federation that lives: options that all share, and the
    owners' names.
    """
    check_switches(values)
    if own := sorted({"customer", "authority", "slowest_pull"} & set(values)):
        raise ConfigError(
            f"{own[0]} belongs to the file of a member, not to that of a run. Remove it."
        )
    settings = SambaOptions.make(values)
    level, policy = level_of(settings), settings.sound_policy()
    if len(settings.owners) < 2:
        raise ConfigError(
            f"a run needs the names of at least 2 owners, got {len(settings.owners)}. Give owners."
        )
    for name in settings.owners:
        check_member(
            name, settings.owners, "owner", (CONTROLLER, COMP, CUSTOMER, DEALER, AUTHORITY)
        )
    if settings.budget < 1:
        raise ConfigError(
            "budget is needed and was not given. Give the number of pulls, such as budget = 2000."
        )
    check_budget(len(settings.owners), settings.budget)
    check_price(settings.price or (), len(settings.owners))
    check_level(level, Switches(), policy)
    # The customer reads the exact total, so that no epsilon is proved.
    demand = Demand(
        "samba", level, policy.name, settings.budget, price=min(settings.price or (0.0,))
    )
    return Invitation(
        settings,
        _parts(settings, settings.owners, {}),
        lambda: demand,
        CUSTOMER,
        settings.world is not None,
        None if level == "paper" else CUSTOMER,
        policy_remarks(settings),
    )
