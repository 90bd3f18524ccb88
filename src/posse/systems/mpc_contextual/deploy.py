"""A contextual bandit between organisations: what a role's file says, and the role it makes of
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from posse.core import check, files
from posse.core.errors import ConfigError, MissingExtraError
from posse.core.roles import Note, Role
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.problems.contexts.contexts import Contexts, read_block
from posse.problems.tables.options import ReadOptions
from posse.results.section import Section
from posse.runtime.local import world_beside
from posse.runtime.network.deployment import Deployment, Known
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.place import Place
from posse.runtime.sources import FeatureSettings, SourceSettings
from posse.systems.modules import Deploy
from posse.systems.mpc_contextual.layout import (
    MUST_SYNC,
    OF_PARTY,
    OUTSIDE,
    arm_figures,
    check_block,
    checked_plan,
    invite,
    layout,
)
from posse.systems.mpc_contextual.roles import messages
from posse.systems.mpc_contextual.roles.dealer import DealerRole
from posse.systems.mpc_contextual.roles.outside import (
    ActSettings,
    WorldArms,
    earning,
    looking,
    own_share,
    pulling,
    row_order,
    simulated,
    timed,
    write_share,
)
from posse.systems.mpc_contextual.roles.party import CHECKPOINT, STEP_OVER, Party
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.settings import ContextualOptions
from posse.systems.mpc_contextual.terms import DEALER, LEARNS, PAYEE, PULLER, SHARED, Terms, leaks

VOCABULARY = Vocabulary(
    (
        messages.Hello,
        messages.Seed,
        messages.Want,
        messages.Dealt,
        messages.Opening,
        messages.Reveal,
        messages.Choice,
        messages.Pulled,
        messages.Payoff,
        messages.Acted,
        messages.Earned,
        messages.Over,
        messages.Rows,
        messages.End,
        messages.Seen,
    ),
    (messages.Act, messages.Earn, messages.Look),
)
WORLD_ARMS = "world.arms"
"""Beside the files of a simulated federation: the arm of every step."""
ARMS = "arms.csv"
"""Beside the puller's journal, for its own eyes: the arm of every step, written at the end."""


def build(place: Place) -> Deployment:
    """Make the role that a certificate names."""
    options = ContextualOptions.make(world_beside(place.file.options, place.folder))
    name, kind = place.identity.name, place.identity.role
    check.one_of(("party", *OUTSIDE), role=kind)
    if kind in OUTSIDE and name != kind:
        raise ConfigError(
            f"the {kind} of a run must be called '{kind}', the certificate says '{name}'."
        )
    if kind != "party" and (own := sorted(set(OF_PARTY) & options.model_fields_set)):
        raise ConfigError(
            f"{own[0]} belongs to the file of a party, and the certificate in "
            f"{place.file.identity} says '{kind}'. "
            "Correct identity, or remove it."
        )
    terms = options.terms(place.run)
    if kind == "party" and name not in terms.parties:
        raise ConfigError(
            f"'{name}' is not among the parties: {', '.join(terms.parties)}. Correct parties, or "
            "enrol under its name."
        )
    # Everyone refuses a run beyond the limit; only the puller tells the figures, and loads an
    # accountant for them.
    figures = arm_figures(options, terms) if kind == PULLER or options.limit is not None else ()
    planned = checked_plan(terms)
    role, source = _role(place, options, terms, planned)
    everyone = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    peers = {each: part for each, part in everyone.items() if each != name}
    inputs = options.model_dump(exclude_defaults=True, exclude={"features", "start_from"})
    if isinstance(role, Party):
        inputs["features"] = role.inputs_digest
    return Deployment(
        role,
        VOCABULARY,
        peers,
        source,
        _agreed(options, terms),
        inputs,
        watch=partial(_note, place, terms, role),
        grows=kind == PULLER or terms.arriving,
        commands={"end": _end} if kind == "party" else {},
        must_sync=MUST_SYNC,
        needs=lambda: _needs(role, planned),
        remarks=figures if kind == PULLER else (),
        known=lambda: _known(role, options, terms),
        public=lambda: msgspec.structs.asdict(terms),
    )


def _agreed(options: ContextualOptions, terms: Terms) -> dict[str, Any]:
    """What all files must say alike, by the names of the file; the dealer knows nothing of a
    simulated world.
    """
    world = {} if options.world is None else {"seed": options.world.seed}
    return {
        "parties": terms.parties,
        "columns": terms.features,
        "arms": terms.arms,
        "steps": terms.steps,
        "epsilon": "/".join(map(str, terms.explore)),
        "policy": options.policy,
        "width": options.width,
        "batch": terms.batch,
        "overlap": terms.overlap,
        "bits": terms.bits,
        "newton": terms.newton,
        "reward_range": terms.reward_range,
        "start": terms.start,
        "frozen": terms.frozen,
        "slot": terms.slot,
        "jitter": terms.jitter,
        "compared": "scores" if terms.early else "truncated scores",
        "rows": options.rows,
        "bounds": options.norms() if options.rows or options.arriving else (),
        "arriving": options.arriving,
        **world,
    }


def _known(role: Role, options: ContextualOptions, terms: Terms) -> Known:
    """What a role may know: the puller the arms, the payee the total, parties and dealer how far
    the run is.
    """
    state = role.state()
    config = {
        "run": terms.run,
        "policy": options.described(terms),
        "horizon": terms.steps,
        "parties": len(terms.parties),
        "arms": terms.arms,
        "bits": terms.bits,
        "newton": terms.newton,
        "batch": terms.batch,
        "overlap": terms.overlap,
        "reward_range": list(terms.reward_range),
        **({"start": terms.start, "frozen": terms.frozen} if terms.start else {}),
    }
    outcome = f"the part of {role.name} is over; the {PAYEE} has the total"
    total, pulls = None, {}
    privacy: tuple[Mapping[str, Any], ...] = ()
    if isinstance(role, Payee):
        total, outcome = role.total, f"total reward {role.total:g} of {role.step:,} pulls"
    if isinstance(role, Puller):
        counts = np.bincount(role.arms, minlength=terms.arms)
        pulls = {f"arm {arm + 1}": int(count) for arm, count in enumerate(counts)}
        with suppress(MissingExtraError):
            guarantees = (
                options.ledger(terms, len(role.arms)).guarantees()
                if terms.rate and len(role.arms)
                else ()
            )
            privacy = tuple({"party": PULLER, **one.entry()} for one in guarantees)
    return Known(
        outcome,
        SHARED,
        config,
        int(str(state["step"])),
        total,
        pulls,
        privacy,
        LEARNS,
        leaks(terms),
        tables=[table.plain() for table in _found(role, terms)],
    )


def _found(role: Role, terms: Terms) -> Iterator[Section]:
    """Say what a role found out: the puller its arms, the payee its rewards, a party what it
    brought.
    """
    if isinstance(role, Puller) and len(role.arms):
        counts = np.bincount(role.arms, minlength=terms.arms)
        rows = tuple(
            (f"arm {arm + 1}", f"{count:,}", f"{count / len(role.arms):.1%}")
            for arm, count in enumerate(counts)
        )
        yield Section("Arms that it pulled", ("arm", "pulls", "share"), rows, numeric=(1, 2))
    if isinstance(role, Payee) and len(role.rewards):
        rewards = terms.reward_range.value(role.rewards)
        tenth = max(1, len(rewards) // 10)
        parts = {
            "all steps": rewards,
            "first tenth": rewards[:tenth],
            "last tenth": rewards[-tenth:],
        }
        rows = tuple((name, f"{len(some):,}", f"{some.mean():.4f}") for name, some in parts.items())
        yield Section("Rewards that came in", ("", "steps", "average"), rows, numeric=(1, 2))
    if isinstance(role, Party):
        number = terms.features[terms.parties.index(role.name)]
        brought = (("features of its own", str(number)), ("features in all", str(terms.dimension)))
        yield Section("What it brought", ("", "number"), brought, numeric=(1,))


def _role(
    place: Place, options: ContextualOptions, terms: Terms, planned: Plan
) -> tuple[Role, Source | None]:
    kind = place.identity.role
    if kind == PULLER:
        return Puller(terms), timed(_pulls(place, options), terms)
    if kind == PAYEE:
        return Payee(terms), timed(_pays(place, options, terms), terms)
    if kind == DEALER:
        return DealerRole(terms, planned, place.secrets), None
    name = place.identity.name
    features, columns = (
        (None, ()) if terms.arriving else features_of(options, terms, name, place.folder)
    )
    role = Party(
        name,
        terms,
        planned,
        features,
        place.secrets,
        checkpoint_every=options.checkpoint_every,
        start=start_of(options, terms, name, place.folder),
    )
    role.columns = columns
    return role, _looks(place, options, terms) if terms.arriving else None


def _looks(place: Place, options: ContextualOptions, terms: Terms) -> Source:
    """Where this party's contexts arrive from."""
    if options.features is not None:
        raise ConfigError(
            "contexts arrive from a [source], and features is a file of all of them. Remove one."
        )
    if place.file.source is None:
        raise ConfigError(
            "a party needs to know where its contexts arrive from. Give [source] with a kind."
        )
    number = terms.parties.index(place.identity.name)
    source = FeatureSettings.make(place.file.source).features(place.run, place.folder)
    return looking(
        source, terms.bits, terms.features[number], options.norms()[number], scale=options.scale
    )


def _end(without: str) -> messages.End:
    if without.strip():
        raise ConfigError(
            f"a run of mpc-contextual ends for all, got '{without.strip()}'. Leave --without out."
        )
    return messages.End()


def start_of(options: ContextualOptions, terms: Terms, name: str, folder: Path) -> Words | None:
    """Return the share that a party starts from, where the run starts from an earlier one."""
    if options.start_from is not None:
        return own_share(folder / options.start_from, name, terms)
    if terms.start:
        raise ConfigError(
            f"the run starts from earlier shares ({terms.start[:15]}...). Give start_from with "
            "this party's own."
        )
    return None


def features_of(
    options: ContextualOptions, terms: Terms, name: str, folder: Path
) -> tuple[Words, tuple[str, ...]]:
    """Return a party's features in fixed point, a row a step, and their names where they come from
    a table.
    """
    if options.world is not None:
        contexts = _fitting(options.world.contexts(), terms)
        bound = contexts.blocks[contexts.parties.index(name)].bound
        rows = row_order(contexts, options.world.seed, terms)
        return FixedPoint(terms.bits, bound).encode(contexts.held(name)[rows]), ()
    if options.features is None:
        raise ConfigError(
            "a party needs features. Give features with a CSV file of its own, or try with "
            "[options.world]."
        )
    number = terms.parties.index(name)
    bound = options.norms()[number]
    block = read_block(
        folder / options.features,
        bound,
        scale=options.scale,
        options=ReadOptions(encoding=options.encoding, decimal=options.decimal),
    )
    check_block(block, options.rows, terms.features[number], terms.steps)
    return FixedPoint(terms.bits, bound).encode(block.values[: terms.steps]), tuple(block.names)


def _fitting(contexts: Contexts, terms: Terms) -> Contexts:
    sizes = tuple(len(block.columns) for block in contexts.blocks)
    if (contexts.parties, sizes, len(contexts.arms)) != (terms.parties, terms.features, terms.arms):
        raise ConfigError(
            f"the simulated world has {len(contexts.arms)} arms and parties "
            f"{', '.join(contexts.parties)} with "
            f"{', '.join(map(str, sizes))} features; parties, columns and arms say otherwise. "
            "Leave them out."
        )
    return contexts


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
        source = SourceSettings.make(place.file.source).source(
            draws, place.folder, within=terms.reward_range
        )
        return earning(source, place.run, terms.reward_range)
    if options.world is None:
        raise ConfigError(
            "the payee needs to know where its rewards come from. Give [source] with a kind."
        )
    contexts, seed = _fitting(options.world.contexts(), terms), options.world.seed
    return simulated(contexts, seed, terms, WorldArms(place.folder / WORLD_ARMS))


def _needs(role: Role, plan: Plan) -> set[str]:
    """Name the roles that this one needs before it can finish, and when it has, those that need its
    last messages.

    The dealer may leave a few chunks before the end, the puller and other parties in the middle of
    the last step. A party knows what is still to come; the others know from their own step how far
    everyone must be.
    """
    if isinstance(role, Party):
        if not role.finished:
            return role.awaited
        ended = role.choices < role.terms.choices  # then all must know it
        return {*role.terms.parties, PULLER, *((PAYEE, DEALER) if ended else ())} - {role.name}
    if isinstance(role, DealerRole):
        return {*role.terms.parties, PULLER, PAYEE}
    assert isinstance(role, Puller | Payee)
    terms = role.terms
    if role.finished:
        return {*terms.parties, PAYEE} - {role.name}
    names = {*terms.parties, PAYEE if isinstance(role, Puller) else PULLER}
    if isinstance(role, Payee) and role.pulled == role.choices:
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
        assert isinstance(role, Party)
        write_share(
            place.journal,
            terms,
            role.name,
            note.step,
            note.value,
            role.tag(note.step),
            role.columns,
        )
    elif note.kind == STEP_OVER and role.finished:
        if isinstance(role, Party) and not terms.frozen:
            write_share(
                place.journal,
                terms,
                role.name,
                note.step,
                role.model.tobytes(),
                role.tag(note.step),
                role.columns,
            )
        elif isinstance(role, Puller):
            lines = [f"{step},{arm}\n" for step, arm in enumerate(role.arms.tolist())]
            files.write_whole(
                place.journal / ARMS, "".join(["step,arm\n", *lines]).encode(), mode=files.PRIVATE
            )


DEPLOY = Deploy(build, layout, invite, VOCABULARY)
