"""A contextual bandit between organisations: a role from its file, and a whole federation on one machine (`posse up`).

Everybody talks to everybody: each role listens and calls those before it in the roster, which is the parties, the
puller, the payee and the dealer; so the dealer listens nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from posse.core import check, files
from posse.core.errors import ConfigError, DataError, DisagreementError, MissingExtraError
from posse.core.roles import Note, Role
from posse.core.settings import Settings
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.problems.contexts.contexts import Contexts
from posse.problems.contexts.features import FeatureBlock, read_block
from posse.protocols.mpc_contextual import messages
from posse.protocols.mpc_contextual.dealer import DealerRole
from posse.protocols.mpc_contextual.outside import ActSettings, WorldArms, earning, pulling, simulated, write_share
from posse.protocols.mpc_contextual.party import CHECKPOINT, STEP_OVER, Party
from posse.protocols.mpc_contextual.program import Layout as ModelLayout
from posse.protocols.mpc_contextual.program import plan
from posse.protocols.mpc_contextual.puller_and_payee import Payee, Puller
from posse.protocols.mpc_contextual.settings import ContextualOptions
from posse.protocols.mpc_contextual.terms import DEALER, LEARNS, PAYEE, PULLER, SHARED, Terms, check_parties, leaks
from posse.runtime.certificates.names import check_name
from posse.runtime.local import AUTHORITY, Layout, beside, each, enrol_all, source_beside, world_beside, write_party
from posse.runtime.network.deployment import Deployment, Known, Place, address
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.network.wire import LARGEST_FRAME
from posse.runtime.sources import SourceSettings

VOCABULARY = Vocabulary(
    (
        messages.Hello, messages.Seed, messages.Want, messages.Dealt, messages.Opening, messages.Reveal,
        messages.Choice, messages.Pulled, messages.Payoff, messages.Acted, messages.Earned,
    ),
    (messages.Act, messages.Earn),
)  # fmt: skip
OUTSIDE = (PULLER, PAYEE, DEALER)
WORLD_ARMS = "world.arms"
"""Beside the files of a simulated federation: the arm of every step."""
ARMS = "arms.csv"
"""Beside the puller's journal, for its own eyes: the arm of every step, written at the end."""
_HEAD = 1024
"""Bytes of a message beside its data, at most."""


# One role -----------------------------------------------------------------------------------------------------------


def build(place: Place) -> Deployment:
    """Make the role that a certificate names."""
    options = ContextualOptions.make(world_beside(place.file.options, place.folder))
    name, kind = place.identity.name, place.identity.role
    check.one_of(("party", *OUTSIDE), role=kind)
    if kind in OUTSIDE and name != kind:
        raise ConfigError(f"the {kind} of a run must be called '{kind}', the certificate says '{name}'.")
    if kind != "party" and (own := sorted({"features", "scale"} & options.model_fields_set)):
        raise ConfigError(
            f"{own[0]} belongs to the file of a party, and the certificate in {place.file.identity} says '{kind}'. "
            "Correct identity, or remove it."
        )
    terms = options.terms(place.run)
    if kind == "party" and name not in terms.parties:
        raise ConfigError(
            f"'{name}' is not among the parties: {', '.join(terms.parties)}. Correct parties, or enrol under its name."
        )
    # Everyone refuses a run beyond the limit; only the puller tells the figures, and loads an accountant for them.
    figures = arm_figures(options, terms) if kind == PULLER or options.limit is not None else ()
    planned = checked_plan(terms)
    role, source = _role(place, options, terms, planned)
    everyone = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    peers = {each: part for each, part in everyone.items() if each != name}
    inputs = options.model_dump(exclude_defaults=True, exclude={"features"})
    if isinstance(role, Party):
        inputs["features"] = role.inputs_digest
    return Deployment(
        role, VOCABULARY, peers, source, _agreed(options, terms), inputs, watch=partial(_note, place, terms, role),
        needs=lambda: _needs(role, planned), remarks=figures if kind == PULLER else (),
        known=lambda: _known(role, options, terms),
    )  # fmt: skip


def _agreed(options: ContextualOptions, terms: Terms) -> dict[str, Any]:
    """What all files must say alike, by the names of the file; the dealer knows nothing of a simulated world."""
    world = {} if options.world is None else {"seed": options.world.seed}
    return {
        "parties": terms.parties, "columns": terms.features, "arms": terms.arms, "steps": terms.steps,
        "epsilon": "/".join(map(str, terms.explore)), "policy": options.policy, "width": options.width,
        "batch": terms.batch, "bits": terms.bits, "newton": terms.newton, "rows": options.rows,
        "bounds": options.norms() if options.rows else (), **world,
    }  # fmt: skip


def _known(role: Role, options: ContextualOptions, terms: Terms) -> Known:
    """What a role may know: the puller the arms, the payee the total, parties and dealer how far the run is."""
    state = role.state()
    config = {
        "run": terms.run, "policy": options.described(terms), "horizon": terms.steps,
        "parties": len(terms.parties), "arms": terms.arms, "bits": terms.bits, "newton": terms.newton,
        "batch": terms.batch,
    }  # fmt: skip
    outcome = f"the part of {role.name} is over; the {PAYEE} has the total"
    total, pulls = None, {}
    privacy: tuple[Mapping[str, Any], ...] = ()
    if isinstance(role, Payee):
        total, outcome = role.total, f"total reward {role.total:g} of {terms.steps:,} pulls"
    if isinstance(role, Puller):
        counts = np.bincount(role.arms, minlength=terms.arms)
        pulls = {f"arm {arm + 1}": int(count) for arm, count in enumerate(counts)}
        with suppress(MissingExtraError):
            guarantees = options.ledger(terms, len(role.arms)).guarantees() if terms.rate and len(role.arms) else ()
            privacy = tuple({"party": PULLER, **one.entry()} for one in guarantees)
    return Known(outcome, SHARED, config, int(str(state["step"])), total, pulls, privacy, LEARNS, leaks(terms))


def _role(place: Place, options: ContextualOptions, terms: Terms, planned: Plan) -> tuple[Role, Source | None]:
    kind = place.identity.role
    if kind == PULLER:
        return Puller(terms), _pulls(place, options)
    if kind == PAYEE:
        return Payee(terms), _pays(place, options, terms)
    if kind == DEALER:
        return DealerRole(terms, planned, place.secrets), None
    features = features_of(options, terms, place.identity.name, place.folder)
    role = Party(
        place.identity.name, terms, planned, features, place.secrets, checkpoint_every=options.checkpoint_every
    )
    return role, None


def features_of(options: ContextualOptions, terms: Terms, name: str, folder: Path) -> Words:
    """Return a party's features in fixed point, a row a step."""
    if options.world is not None:
        contexts = _fitting(options.world.contexts(), terms)
        bound = contexts.blocks[contexts.parties.index(name)].bound
        rows = contexts.order(options.world.seed, terms.steps)
        return FixedPoint(terms.bits, bound).encode(contexts.held(name)[rows])
    if options.features is None:
        raise ConfigError(
            "a party needs features. Give features with a CSV file of its own, or try with [options.world]."
        )
    number = terms.parties.index(name)
    bound = options.norms()[number]
    block = read_block(folder / options.features, bound, scale=options.scale)
    check_block(block, options.rows, terms.features[number], terms.steps)
    return FixedPoint(terms.bits, bound).encode(block.values[: terms.steps])


def check_block(block: FeatureBlock, rows: str, size: int, steps: int) -> None:
    """Refuse a file whose rows, features or length are not those of the terms."""
    if not rows:
        raise ConfigError(
            f'all must agree on the rows of the parties\' files. For {block.file} give rows = "{block.ids_digest}" to '
            "everyone, and compare it with the other parties."
        )
    if block.ids_digest != rows:
        raise DisagreementError(
            f"the rows of {block.file} have the digest {block.ids_digest[:12]}, the terms say {rows[:12]}. Put the "
            "same rows in the same order in the files of all parties."
        )
    if len(block.names) != size:
        raise DataError(f"{block.file} has {len(block.names)} features, the terms say {size}. Correct one of them.")
    if len(block.ids) < steps:
        raise DataError(f"{block.file} has {len(block.ids)} rows for {steps} steps. Add rows, or take fewer steps.")


def _fitting(contexts: Contexts, terms: Terms) -> Contexts:
    sizes = tuple(len(block.columns) for block in contexts.blocks)
    if (contexts.parties, sizes, len(contexts.arms)) != (terms.parties, terms.features, terms.arms):
        raise ConfigError(
            f"the simulated world has {len(contexts.arms)} arms and parties {', '.join(contexts.parties)} with "
            f"{', '.join(map(str, sizes))} features; parties, columns and arms say otherwise. Leave them out."
        )
    return contexts


def checked_plan(terms: Terms) -> Plan:
    """Make the plan; refuse terms whose messages no party would take, as far as the terms show it before."""
    _check_size(8 * terms.arms * ModelLayout(terms.dimension).size)
    planned = plan(terms)
    rounds = [each.shares + sum(each.inputs.values()) for each in planned.rounds]
    _check_size(max(*rounds, planned.passes * planned.sizes.dealt_bytes) + _HEAD)
    return planned


def _check_size(largest: int) -> None:
    if largest > LARGEST_FRAME:
        raise ConfigError(
            f"so many arms and features need messages of {largest / 2**20:.0f} MiB, the largest allowed is "
            f"{LARGEST_FRAME >> 20}. Take fewer arms or features."
        )


def arm_figures(options: ContextualOptions, terms: Terms) -> tuple[str, ...]:
    """Say what the arms show, of one step and of all: never one without the other; refuses a run beyond the limit."""
    if not terms.rate and options.limit is None:
        return ("epsilon is 0: the arms carry no privacy guarantee at all.",)
    try:
        once, total = options.ledger(terms).guarantees()
    except MissingExtraError as error:
        if options.limit is not None:
            raise
        return (f"what the arms show of the contexts is not known: {error.text}",)
    return (
        f"what the arms show: {once.figure} of the scores of one step, {total.figure} of one context over all "
        f"{terms.steps:,} steps; rewards and weights carry no noise.",
    )


def _pulls(place: Place, options: ContextualOptions) -> Source:
    """Where this puller's arms go: a simulated world, or what [source] says."""
    if place.file.source is not None:
        return pulling(ActSettings.make(place.file.source).pull(place.run, place.folder))
    if options.world is None:
        raise ConfigError("the puller needs to know where its arms go. Give [source] with a kind.")
    return pulling(WorldArms(place.folder / WORLD_ARMS).pull)


def _pays(place: Place, options: ContextualOptions, terms: Terms) -> Source:
    """Where this payee's rewards come from: a simulated world, or what [source] says."""
    if place.file.source is not None:
        draws = place.secrets.number(b"mpc source", context=place.run.encode())
        return earning(SourceSettings.make(place.file.source).source(draws, place.folder), place.run)
    if options.world is None:
        raise ConfigError("the payee needs to know where its rewards come from. Give [source] with a kind.")
    contexts, seed = _fitting(options.world.contexts(), terms), options.world.seed
    return simulated(contexts, seed, terms.steps, WorldArms(place.folder / WORLD_ARMS))


def _needs(role: Role, plan: Plan) -> set[str]:
    """Name the roles that this one needs before it can finish, and when it has, those that need its last messages.

    The dealer may leave a few chunks before the end, the puller and other parties in the middle of the last step. A
    party knows what is still to come; the others know from their own step how far everyone must be.
    """
    if isinstance(role, Party):
        return {*role.terms.parties, PULLER} - {role.name} if role.finished else role.awaited
    if isinstance(role, DealerRole):
        return {*role.terms.parties, PULLER, PAYEE}
    assert isinstance(role, Puller | Payee)
    terms = role.terms
    if role.finished:
        return {*terms.parties, PAYEE} - {role.name}
    names = {*terms.parties, PAYEE if isinstance(role, Puller) else PULLER}
    if isinstance(role, Payee) and role.pulled == terms.passes:
        names.discard(PULLER)
    # Parties are at most a pass ahead of the puller, and ask the dealer for a few chunks ahead.
    ahead = (role.step // terms.batch + 1) // plan.passes + messages.AHEAD
    if role.seed is None or ahead < (terms.passes - 1) // plan.passes:
        names.add(DEALER)
    return names


def _note(place: Place, terms: Terms, role: Role, note: Note) -> None:
    """Write a share when it is time, and at the end; the puller writes its arms at the end."""
    if note.kind == CHECKPOINT:
        assert isinstance(note.value, bytes)
        write_share(place.journal, terms, role.name, note.step, note.value)
    elif note.kind == STEP_OVER and role.finished:
        if isinstance(role, Party):
            write_share(place.journal, terms, role.name, note.step, role.model.tobytes())
        elif isinstance(role, Puller):
            lines = [f"{step},{arm}\n" for step, arm in enumerate(role.arms.tolist())]
            files.write_whole(place.journal / ARMS, "".join(["step,arm\n", *lines]).encode(), mode=files.PRIVATE)


# A federation's file -------------------------------------------------------------------------------------------------


class PartyEntry(Settings):
    """One party of a federation file."""

    name: str
    features: Path
    """CSV file of its own features."""
    bound: float | None = None
    """Largest norm of its part of a row; by its share of the features if left out."""
    scale: bool = False
    """Scale longer rows down to the bound, instead of refusing them."""


class OutsideEntry(Settings):
    """The puller or the payee of a federation file."""

    source: dict[str, Any]


class ContextualFederation(ContextualOptions):
    """A whole federation on one machine (`posse up`): a simulated [world], or parties with files of their own."""

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
    values = each(values, "party", lambda party: beside(party, here, "features"))
    for name in (PULLER, PAYEE):
        if isinstance(values.get(name), dict):
            values = {**values, name: source_beside(values[name], here)}
    values = world_beside(values, here)
    federation = ContextualFederation.make(values)
    options = check_federation(federation)
    return Layout(
        federation, lambda folder: lay_out(federation, folder), federation.steps, PULLER, ("party", *OUTSIDE),
        lambda name: name if name in OUTSIDE else "party", PAYEE, ("listen", "addresses", "sync", "give_up"),
        arm_figures(options, options.terms(federation.run)),
    )  # fmt: skip


def check_federation(federation: ContextualFederation) -> ContextualOptions:
    """Say what is wrong with a federation's file before anything is written; return the terms for everyone."""
    check_name(run=federation.run)
    if federation.give_up:
        check.positive(give_up=federation.give_up)
    for name in ("parties", "columns", "bounds", "rows", "features", "scale"):
        if name in federation.model_fields_set:
            raise ConfigError(f"a federation's file has {name} from its parties. Give [[party]], or [world].")
    made = _common(federation)
    terms = made.terms(federation.run)
    for name in terms.parties:
        check_name(name=name)
        if name == AUTHORITY:
            raise ConfigError(f"a party cannot be called '{name}', which is taken. Choose another name.")
    unknown = sorted(set(federation.addresses) - {*terms.parties, *OUTSIDE})
    if unknown:
        raise ConfigError(f"addresses names '{unknown[0]}', which has no part here.")
    for text in _addresses(federation, terms).values():
        address(text)
    checked_plan(terms)
    return made


def _common(federation: ContextualFederation) -> ContextualOptions:
    values = {name: getattr(federation, name) for name in ContextualOptions.model_fields}
    if federation.world is not None:
        for name in ("members", "puller", "payee", "arms"):
            if name in federation.model_fields_set:
                given = {"members": "[[party]]"}.get(name, name)
                raise ConfigError(f"a simulated world has {given} of its own. Leave {given} out, or [world].")
        return ContextualOptions(**values).of_world()
    members = federation.members
    check_parties([member.name for member in members])
    _check_source(PULLER, federation.puller, ActSettings)
    _check_source(PAYEE, federation.payee, SourceSettings)
    blocks = [read_block(member.features, 1.0, scale=True) for member in members]
    sizes = tuple(len(block.names) for block in blocks)
    bounds = tuple(
        math.sqrt(size / sum(sizes)) if member.bound is None else member.bound
        for member, size in zip(members, sizes, strict=True)
    )
    for member, bound, size in zip(members, bounds, sizes, strict=True):
        block = read_block(member.features, bound, scale=member.scale)
        check_block(block, blocks[0].ids_digest, size, federation.steps)
    names = tuple(member.name for member in members)
    own = {"parties": names, "columns": sizes, "bounds": bounds, "rows": blocks[0].ids_digest}
    return ContextualOptions(**{**values, **own})


def _check_source(name: str, entry: OutsideEntry | None, kind: type[Settings]) -> None:
    if entry is None:
        raise ConfigError(f"the {name} has no source. Give [{name}.source] with a kind, or give [world].")
    try:
        kind.make(entry.source)
    except ConfigError as error:
        raise ConfigError(f"source of the {name}: {str(error).removeprefix(f'[{error.code}] ')}") from None


def _addresses(federation: ContextualFederation, terms: Terms) -> dict[str, str]:
    """Say where everyone but the dealer listens."""
    host, port = address(federation.listen)
    shown = f"[{host}]" if ":" in host else host
    roster = [*terms.parties, PULLER, PAYEE]
    return {name: federation.addresses.get(name, f"{shown}:{port + number}") for number, name in enumerate(roster)}


def lay_out(federation: ContextualFederation, folder: Path) -> list[Path]:
    """Make identities and files for all roles; what exists is kept, so that a run can go on."""
    common = check_federation(federation)
    terms = common.terms(federation.run)
    members = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    enrol_all(folder, federation.run, members)
    listens = _addresses(federation, terms)
    shared = common.model_dump(mode="json", exclude_none=True, exclude={"features", "scale", "world"})
    paths = []
    for number, name in enumerate(members):
        values = {
            "protocol": "mpc-contextual", "identity": name, "role": members[name],
            "journal": f"{name}/journal", "sync": federation.sync,
            "give_up": federation.give_up or None, "listen": listens.get(name),
            "connect": {other: listens[other] for other in list(members)[:number]},
            "options": {**shared, **dict(_own(federation, name))},
            "source": _source_of(federation, name),
        }  # fmt: skip
        paths.append(write_party(folder / f"{name}.toml", values))
    return paths


def _own(federation: ContextualFederation, name: str) -> Iterator[tuple[str, Any]]:
    """Give what only this role's file says."""
    if federation.world is not None and name != DEALER:
        yield "world", federation.world.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    for member in federation.members:
        if member.name == name:
            yield "features", str(member.features.resolve())
            yield "scale", member.scale


def _source_of(federation: ContextualFederation, name: str) -> dict[str, Any] | None:
    entry = {PULLER: federation.puller, PAYEE: federation.payee}.get(name)
    return None if entry is None else entry.source
