"""Who takes part in a contextual bandit on shares, and what each one's file says: on one machine,
or in a federation.

Everybody talks to everybody: each role listens and calls those before it in the roster, which is
the parties, the puller, the payee and the dealer; so the dealer listens nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from posse.core import check
from posse.core.errors import ConfigError, DataError, DisagreementError, MissingExtraError
from posse.core.settings import Settings
from posse.privacy.sharing.dealing import Plan
from posse.problems.contexts.contexts import FeatureBlock, read_block
from posse.problems.data import ENCODING
from posse.problems.tables.options import ReadOptions, check_encoding
from posse.runtime.certificates.names import check_name
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.talk import Invitation
from posse.runtime.local import (
    AUTHORITY,
    Layout,
    beside,
    each,
    enrol_all,
    source_beside,
    world_beside,
    write_party,
)
from posse.runtime.network.wire import LARGEST_FRAME
from posse.runtime.place import address
from posse.runtime.sources import FeatureSettings, SourceSettings
from posse.systems.mpc_contextual.program import Layout as ModelLayout
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.outside import (
    ActSettings,
    check_fits,
    gathered,
    share_file,
)
from posse.systems.mpc_contextual.settings import ContextualOptions
from posse.systems.mpc_contextual.terms import (
    DEALER,
    PAYEE,
    PULLER,
    SHARED,
    Terms,
    check_parties,
    check_start,
)

MUST_SYNC = (
    "after a power cut, a party that does not wait for its disk could send two values under one "
    "mask"
)
"""Why `sync = false` is refused."""
OUTSIDE = (PULLER, PAYEE, DEALER)
OF_PARTY = ("features", "start_from", "scale", "encoding", "decimal")
"""Options that say where a party's own features are and how they are read."""
_HEAD = 1024
"""Bytes of a message beside its data, at most."""


class PartyEntry(Settings):
    """One party of a federation file."""

    name: str
    features: Path | None = None
    """CSV file of its own features."""
    source: dict[str, Any] | None = None
    """Where its contexts arrive from, in place of a file ([party.source])."""
    columns: int | None = None
    """Number of its features, where contexts arrive."""
    bound: float | None = None
    """Largest norm of its part of a row; by its share of the features if left out."""
    scale: bool = False
    """Scale longer rows down to the bound, instead of refusing them."""
    encoding: Annotated[str, ENCODING] = ""
    """Encoding of its file where it is not UTF-8 (or UTF-16 with its mark), such as latin-1."""
    decimal: Literal[".", ","] = "."
    """Decimal mark of its file."""

    def block(self, bound: float, scale: bool) -> FeatureBlock:
        """Read its file."""
        check_encoding(self.encoding)
        if self.features is None:
            raise ConfigError(
                f"party '{self.name}' has no features. Give it a file, or arriving contexts a "
                "source."
            )
        options = ReadOptions(encoding=self.encoding, decimal=self.decimal)
        return read_block(self.features, bound, scale=scale, options=options)


class OutsideEntry(Settings):
    """The puller or the payee of a federation file."""

    source: dict[str, Any]


class ContextualFederation(ContextualOptions):
    """A whole federation on one machine (`posse up`): a simulated [world], or parties with files of
    their own.
    """

    protocol: Literal["mpc-contextual"] = "mpc-contextual"
    run: str
    """Name of the run."""
    listen: str = "127.0.0.1:7500"
    """Where the first of the roster listens; the next ones listen at the ports behind it."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Where some roles listen instead, by name."""
    sync: bool = True
    """Wait for the disk before anything that follows from a pull or a reward leaves."""
    give_up: float = 60.0
    """Seconds after which a role stops that misses another one; 0 to wait for ever."""
    members: tuple[PartyEntry, ...] = Field(default=(), alias="party")
    """The parties ([[party]] with a name and features)."""
    puller: OutsideEntry | None = None
    """Where arms go ([puller.source]); not in a simulated world."""
    payee: OutsideEntry | None = None
    """Where rewards come from ([payee.source]); not in a simulated world."""


def layout(values: dict[str, Any], here: Path) -> Layout:
    """Read a federation's file and say what is wrong with it, before anything is written."""
    values = each(
        values, "party", lambda party: source_beside(beside(party, here, "features"), here)
    )
    for name in (PULLER, PAYEE):
        if isinstance(values.get(name), dict):
            values = {**values, name: source_beside(values[name], here)}
    values = world_beside(beside(values, here, "start_from"), here)
    federation = ContextualFederation.make(values)
    options = check_federation(federation)
    terms = options.terms(federation.run)
    return Layout(
        federation,
        lambda folder: lay_out(federation, folder),
        terms.steps,
        PULLER,
        ("party", *OUTSIDE),
        lambda name: name if name in OUTSIDE else "party",
        PAYEE,
        ("listen", "addresses", "sync", "give_up"),
        arm_figures(options, terms),
    )


def check_federation(federation: ContextualFederation) -> ContextualOptions:
    """Say what is wrong with a federation's file before anything is written; return the terms for
    everyone.
    """
    check_name(run=federation.run)
    if not federation.sync:
        raise ConfigError(f"sync must be true: {MUST_SYNC}. Remove sync = false.")
    if federation.give_up:
        check.positive(give_up=federation.give_up)
    for name in ("parties", "columns", "bounds", "rows", "start", *OF_PARTY):
        if name != "start_from" and name in federation.model_fields_set:
            raise ConfigError(
                f"a federation's file has {name} from its parties. Give [[party]], or [world]."
            )
    if federation.frozen and federation.start_from is None:
        check_start("", federation.frozen, federation.overlap)
    made = _common(federation)
    terms = made.terms(federation.run)
    if federation.start_from is not None:
        check_fits(next(iter(gathered(federation.start_from).values())).terms, terms)
    for name in terms.parties:
        check_name(name=name)
        if name == AUTHORITY:
            raise ConfigError(
                f"a party cannot be called '{name}', which is taken. Choose another name."
            )
    unknown = sorted(set(federation.addresses) - {*terms.parties, *OUTSIDE})
    if unknown:
        raise ConfigError(f"addresses names '{unknown[0]}', which has no part here.")
    for text in _addresses(federation, terms).values():
        address(text)
    checked_plan(terms)
    return made


def check_block(block: FeatureBlock, rows: str, size: int, steps: int) -> None:
    """Refuse a file whose rows, features or length are not those of the terms."""
    if not rows:
        raise ConfigError(
            f"all must agree on the rows of the parties' files. For {block.file} give rows = "
            f'"{block.ids_digest}" to '
            "everyone, and compare it with the other parties."
        )
    if block.ids_digest != rows:
        raise DisagreementError(
            f"the rows of {block.file} have the digest {block.ids_digest[:12]}, the terms say "
            f"{rows[:12]}. Put the "
            "same rows in the same order in the files of all parties."
        )
    if len(block.names) != size:
        raise DataError(
            f"{block.file} has {len(block.names)} features, the terms say {size}. Correct one of "
            "them."
        )
    if len(block.ids) < steps:
        raise DataError(
            f"{block.file} has {len(block.ids)} rows for {steps} steps. Add rows, or take fewer "
            "steps."
        )


def checked_plan(terms: Terms) -> Plan:
    """Make the plan; refuse terms whose messages no party would take, as far as the terms show it
    before.
    """
    _check_size(8 * terms.arms * ModelLayout(terms.dimension).size)
    planned = plan(terms)
    rounds = [each.shares + sum(each.inputs.values()) for each in planned.rounds]
    _check_size(max(*rounds, planned.passes * planned.sizes.dealt_bytes) + _HEAD)
    return planned


def _check_size(largest: int) -> None:
    if largest > LARGEST_FRAME:
        raise ConfigError(
            f"so many arms and features need messages of {largest / 2**20:.0f} MiB, the largest "
            "allowed is "
            f"{LARGEST_FRAME >> 20}. Take fewer arms or features."
        )


def arm_figures(options: ContextualOptions, terms: Terms) -> tuple[str, ...]:
    """Say what the arms show, of one step and of all: never one without the other; refuses a run
    beyond the limit.
    """
    if not terms.rate and options.limit is None:
        return ("epsilon is 0: the arms carry no privacy guarantee at all.",)
    try:
        once, total = options.ledger(terms).guarantees()
    except MissingExtraError as error:
        if options.limit is not None:
            raise
        return (f"what the arms show of the contexts is not known: {error.text}",)
    return (
        f"what the arms show: {once.figure} of the scores of one step, {total.figure} of one "
        "context over all "
        f"{terms.before + terms.steps:,} steps{' with those before' if terms.before else ''}; "
        "rewards and weights "
        "carry no noise.",
    )


def _common(federation: ContextualFederation) -> ContextualOptions:
    values = {name: getattr(federation, name) for name in ContextualOptions.model_fields}
    if federation.start_from is not None:
        values["start"] = next(iter(gathered(federation.start_from).values())).start
    if federation.world is not None:
        for name in ("members", "puller", "payee", "arms"):
            if name in federation.model_fields_set:
                given = {"members": "[[party]]"}.get(name, name)
                raise ConfigError(
                    f"a simulated world has {given} of its own. Leave {given} out, or [world]."
                )
        return ContextualOptions(**values).of_world()
    members = federation.members
    check_parties([member.name for member in members])
    _check_source(PULLER, federation.puller, ActSettings)
    _check_source(PAYEE, federation.payee, SourceSettings)
    if federation.arriving:
        return _arriving(federation, values)
    blocks = [member.block(1.0, scale=True) for member in members]
    sizes = tuple(len(block.names) for block in blocks)
    bounds = tuple(
        math.sqrt(size / sum(sizes)) if member.bound is None else member.bound
        for member, size in zip(members, sizes, strict=True)
    )
    for member, bound, size in zip(members, bounds, sizes, strict=True):
        block = member.block(bound, member.scale)
        check_block(block, blocks[0].ids_digest, size, federation.steps)
    names = tuple(member.name for member in members)
    own = {"parties": names, "columns": sizes, "bounds": bounds, "rows": blocks[0].ids_digest}
    return ContextualOptions(**{**values, **own})


def _arriving(federation: ContextualFederation, values: dict[str, Any]) -> ContextualOptions:
    """Give everyone the terms of contexts that arrive."""
    for member in federation.members:
        if member.features is not None or not member.columns:
            raise ConfigError(
                f"contexts arrive at party '{member.name}' from a source with a number of columns, "
                "not from a file. "
                "Give source and columns, and no features."
            )
        _check_source(
            f"party '{member.name}'", OutsideEntry(source=member.source or {}), FeatureSettings
        )
    sizes = tuple(member.columns or 0 for member in federation.members)
    bounds = tuple(
        math.sqrt(size / sum(sizes)) if member.bound is None else member.bound
        for member, size in zip(federation.members, sizes, strict=True)
    )
    names = tuple(member.name for member in federation.members)
    return ContextualOptions(**{**values, "parties": names, "columns": sizes, "bounds": bounds})


def _check_source(name: str, entry: OutsideEntry | None, kind: type[Settings]) -> None:
    if entry is None:
        raise ConfigError(
            f"the {name} has no source. Give [{name}.source] with a kind, or give [world]."
        )
    try:
        kind.make(entry.source)
    except ConfigError as error:
        raise ConfigError(
            f"source of the {name}: {str(error).removeprefix(f'[{error.code}] ')}"
        ) from None


def _addresses(federation: ContextualFederation, terms: Terms) -> dict[str, str]:
    """Say where everyone but the dealer listens."""
    host, port = address(federation.listen)
    shown = f"[{host}]" if ":" in host else host
    roster = [*terms.parties, PULLER, PAYEE]
    return {
        name: federation.addresses.get(name, f"{shown}:{port + number}")
        for number, name in enumerate(roster)
    }


def lay_out(federation: ContextualFederation, folder: Path) -> list[Path]:
    """Make identities and files for all roles; what exists is kept, so that a run can go on."""
    common = check_federation(federation)
    terms = common.terms(federation.run)
    members = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    enrol_all(folder, federation.run, members)
    listens = _addresses(federation, terms)
    shared = common.model_dump(mode="json", exclude_none=True, exclude={*OF_PARTY, "world"})
    paths = []
    for number, name in enumerate(members):
        values = {
            "protocol": "mpc-contextual",
            "identity": name,
            "role": members[name],
            "journal": f"{name}/journal",
            "sync": federation.sync,
            "give_up": federation.give_up or None,
            "listen": listens.get(name),
            "connect": {other: listens[other] for other in list(members)[:number]},
            "options": {**shared, **dict(_own(federation, name, common.start))},
            "source": _source_of(federation, name),
        }
        paths.append(write_party(folder / f"{name}.toml", values))
    return paths


def _own(federation: ContextualFederation, name: str, start: str) -> Iterator[tuple[str, Any]]:
    """Give what only this role's file says."""
    if federation.world is not None and name != DEALER:
        yield (
            "world",
            federation.world.model_dump(mode="json", exclude_none=True, exclude_unset=True),
        )
    if federation.start_from is not None and name not in OUTSIDE:
        yield "start_from", str(share_file(federation.start_from, name, start).resolve())
    for member in federation.members:
        if member.name == name:
            if member.features is not None:
                yield "features", str(member.features.resolve())
            yield from member.model_dump(
                include={"scale", "encoding", "decimal"}, exclude_defaults=True
            ).items()


def _source_of(federation: ContextualFederation, name: str) -> dict[str, Any] | None:
    entry = {PULLER: federation.puller, PAYEE: federation.payee}.get(name)
    own = {member.name: member.source for member in federation.members}.get(name)
    return own if entry is None else entry.source


def invite(values: dict[str, Any], here: Path) -> Invitation:
    """Read the settings of a run in a federation that lives: the terms, which are the same for
    everyone.
    """
    if own := sorted(set(OF_PARTY) & set(values)):
        raise ConfigError(
            f"{own[0]} belongs to the file of a member, not to that of a run. Remove it."
        )
    settings = ContextualOptions.make(values)
    if settings.world is not None:
        raise ConfigError(
            "a simulated world is of one machine: puller and payee share its arms. Use 'posse up'."
        )
    if not settings.rows and not settings.arriving:
        raise ConfigError(
            "all must agree on the rows of the parties' files. Give rows with their digest."
        )
    for name in settings.parties:
        check_name(name=name)
    terms = settings.terms("invitation")
    checked_plan(terms)
    roster = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    options = settings.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    names = list(roster)
    files = {
        name: {
            "role": role,
            "options": options,
            "listens": name != DEALER,
            "connect": tuple(names[:number]),
        }
        for number, (name, role) in enumerate(roster.items())
    }

    def demand() -> Demand:
        asked = "mpc-contextual", SHARED, settings.policy, terms.steps
        if not terms.rate:
            return Demand(*asked)
        total = settings.ledger(terms).guarantee()
        return Demand(*asked, total.epsilon, total.delta)

    return Invitation(settings, files, demand, PAYEE)
