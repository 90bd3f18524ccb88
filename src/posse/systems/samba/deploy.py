"""Samba between organisations: what a party's file says, and the role it makes of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import field_validator

from posse.core.errors import ConfigError
from posse.core.roles import Ask, Message, Pull, Reward, Role
from posse.core.settings import IMPORTS
from posse.policies.arms.registry import PolicySettings, described
from posse.policies.own import is_own
from posse.privacy.crypto.keys import PRIMITIVES
from posse.privacy.crypto.paillier import DEFAULT_BITS
from posse.problems.arms.settings import ProblemSettings
from posse.results import words
from posse.results.section import Section
from posse.runtime.federation.talk import Invitation
from posse.runtime.local import Layout, world_beside
from posse.runtime.network.deployment import Deployment, Known
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.place import Place
from posse.runtime.sources import SourceSettings, answering
from posse.systems.modules import Deploy
from posse.systems.samba import messages
from posse.systems.samba.admission import ADMITTED, admitted, customer_key, paillier
from posse.systems.samba.levels import (
    Switches,
    check_level,
    check_price,
    leaks,
    learns,
    owed,
    prices,
    refuse_standard,
)
from posse.systems.samba.roles.comp import Comp
from posse.systems.samba.roles.controller import Controller
from posse.systems.samba.roles.customer import Customer
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.setup import (
    COMP,
    CONTROLLER,
    CUSTOMER,
    DEALER,
    Expected,
    Participant,
    Terms,
    named,
    policy_terms,
    sole,
)
from posse.systems.samba.strict import clock
from posse.systems.samba.strict import messages as strict
from posse.systems.samba.strict.comp import Comp as StrictComp
from posse.systems.samba.strict.controller import StrictController
from posse.systems.samba.strict.customer import StrictCustomer
from posse.systems.samba.strict.dealer import Dealer
from posse.systems.samba.strict.owner import StrictOwner

VOCABULARY = Vocabulary(
    (
        messages.Join,
        messages.Proposal,
        messages.Roster,
        messages.Offer,
        messages.Consent,
        messages.Consents,
        messages.Go,
        messages.Keys,
        messages.Masks,
        messages.Score,
        messages.Batch,
        messages.Choice,
        messages.Explore,
        messages.Reply,
        messages.Spent,
        messages.Close,
        messages.Agree,
        messages.Agreed,
        messages.Sum,
        messages.Total,
        messages.Closed,
        messages.End,
        Reward,
        strict.Keyring,
        strict.Stream,
        strict.Streams,
        strict.Seeds,
        strict.Dealing,
        strict.Want,
        strict.Dealt,
        strict.DealtPairs,
        strict.Relayed,
        strict.Ahead,
        strict.Shuffled,
        strict.Compare,
        strict.Compared,
        strict.Found,
        strict.Placed,
        strict.Share,
        strict.Shares,
        strict.Tock,
        strict.Ready,
        strict.Opened,
        strict.Again,
    ),
    (Pull, strict.Tick),
)


class SambaOptions(PolicySettings):
    """The table [options] of a party of Samba; every party says what it expects and signs nothing
    else.
    """

    horizon_setting: ClassVar[str] = "budget"

    policy: Annotated[Any, IMPORTS] = "ucb"
    """How to choose, as in simulations; all parties must agree. A file that names none has UCB, as
    in 0.1, because the terms of a federation must not change with the version.
    """
    level: Literal["strict", "paper"] | None = None
    """Level of protection; it must be given, for at 'strict' the run has one party more, the
    dealer.
    """
    customer: Path | None = None
    """Certificate of the customer; every other party verifies what the customer signs."""
    owners: tuple[str, ...] = ()
    """Names of the owners, in the order of the arms; at the controller and the customer, and in a
    simulated world.
    """
    budget: int = 0
    """Number of pulls; at the customer."""
    authority: Path | None = None
    """Folder of the customer's authority, which knows the certificates of all; at the customer."""
    paillier_bits: int = DEFAULT_BITS
    """Size of the Paillier key; at the customer."""
    slot: float | None = None
    """Seconds that every owner waits before it answers at level 'strict', so that time does not say
    who pulls; 0 for no slots. 0.1 if not given, none in a simulated world.
    """
    slowest_pull: float | None = None
    """Seconds of an owner's slowest pull, at the owner; a shorter slot is refused."""
    threshold: float | None = None
    """A rating above it earns 1, where owners hold ratings (a source of kind 'ratings'); all
    parties must agree.
    """
    price: tuple[float, ...] | None = None
    """What the customer owes an owner for a pull: one number, or one an owner in the order of
    `owners`; all parties must agree.
    """
    world: World | None = None
    """A simulated world ([options.world]): for trying and testing, for whoever knows its seed knows
    every reward.
    """

    _level = field_validator("level", mode="before")(refuse_standard)
    _prices = field_validator("price", mode="before")(prices)


class World(ProblemSettings):
    """A simulated world: every owner pulls the arm of its place in the roster."""

    # As in 0.1: the world of a federation must not change with the version.
    own_minimum: ClassVar[int | None] = 1

    seed: int = 1


SambaOptions.model_rebuild()

NO_LEVEL = (
    'the level of protection is not given. Add level = "strict" to [options] of every party, and '
    "let a party called 'dealer' enrol (role dealer) and connect to the controller."
)
NO_LEVEL_UP = (
    'the level of protection is not given. Add level = "strict" to the file, which adds a dealer.'
)
NO_POLICY = (
    'no policy is given, so "ucb" is used, the default of 0.1. Add policy = "ucb" to keep it, or '
    'policy = "thompson", which usually earns more, to the file of every party.'
)


def policy_remarks(options: SambaOptions) -> tuple[str, ...]:
    """Return a warning if the policy is not given."""
    return () if "policy" in options.model_fields_set else (NO_POLICY,)


def level_of(options: SambaOptions, missing: str = NO_LEVEL_UP) -> str:
    """Return the level of protection, which must be given."""
    if options.level is None:
        raise ConfigError(missing)
    return options.level


def slot_of(options: SambaOptions, slowest: float | None = None) -> float:
    """Return the length of a slot in seconds; 0 for none."""
    given = options.slowest_pull if slowest is None else slowest
    return clock.seconds(
        options.slot, given, level_of(options), simulated=options.world is not None
    )


def build(place: Place) -> Deployment:
    """Make the role that a party's certificate names."""
    given = world_beside(own_policy_beside(place.file.options, place.folder), place.folder)
    options = SambaOptions.make(given)
    level, kind, consent = level_of(options, NO_LEVEL), place.identity.role, place.file.consent
    if kind == "owner" and (consent is None or consent.budget is None):
        raise ConfigError(
            "an owner needs its own limit for the budget that it signs, got none. Add "
            "[consent] with the most pulls that it agrees to, such as budget = 20000."
        )
    limit = None if consent is None else consent.budget
    slot, price = slot_of(options), options.price or ()
    expected = Expected(
        options.sound_policy(), level, Switches(), limit, slot, options.threshold, price
    )
    check_level(level, Switches(), expected.policy)
    check_price(price, len(options.owners) or None)
    known = [each for each in _MAKERS if each != DEALER or level == "strict"]
    if kind not in known:
        raise ConfigError(
            f"samba has no role '{kind}' at level '{level}'. Known: {', '.join(known)}."
        )
    if kind != "owner" and place.identity.name != kind:
        raise ConfigError(
            f"the {kind} of a run must be called '{kind}', the certificate says "
            f"'{place.identity.name}'."
        )
    _check_own(place, options, kind)
    made = _MAKERS[kind](place, options, expected)
    role = made.role
    assert isinstance(role, Participant)
    terms = {**named(expected), "seed": _seed(options)}
    if kind in (CONTROLLER, CUSTOMER):
        terms["owners"] = options.owners
    if kind == CUSTOMER:
        terms["budget"] = options.budget
    inputs = options.model_dump(exclude_defaults=True, exclude={"policy", "customer", "authority"})
    inputs |= {
        "policy": policy_terms(expected.policy),
        **({"slot": expected.slot} if level == "strict" else {}),
    }
    if kind != CUSTOMER:
        inputs["customer"] = customer_key(place, options.customer).hex()
    return replace(
        made,
        terms=terms,
        inputs=inputs,
        limits=True,
        remarks=() if place.begun else policy_remarks(options),
        needs=lambda: role.needs,
        known=lambda: _known(role, expected, place.run),
        costs=partial(_costs, role),
        public=lambda: _public(role, expected),
    )


def _public(role: Participant, expected: Expected) -> dict[str, Any]:
    """The terms that everybody knows, once they are agreed on: the same as of a simulation."""
    terms, owners = role.agreed
    return {
        "owners": len(owners),
        "horizon": 0 if terms is None else terms.budget,
        "policy": expected.policy.describe(),
        "level": expected.level,
        "off": [],
        "names": list(owners),
    }


_OWN = {
    "budget": (CUSTOMER,),
    "authority": (CUSTOMER,),
    "paillier_bits": (CUSTOMER,),
    "slowest_pull": ("owner",),
    "owners": (CONTROLLER, CUSTOMER),
    "customer": (CONTROLLER, COMP, DEALER, "owner"),
}
"""Options that only some roles have."""


def _check_own(place: Place, options: SambaOptions, kind: str) -> None:
    """Refuse a file that was written for another role than the certificate says."""
    for name in sorted(options.model_fields_set & set(_OWN)):
        if kind not in _OWN[name] and not (name == "owners" and options.world is not None):
            raise ConfigError(
                f"{name} belongs to the file of {' or '.join(_OWN[name])}, and the certificate in "
                f"{place.file.identity} says '{kind}'. Correct identity, or remove it."
            )


def own_policy_beside(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Look for a policy of one's own beside the file that names it: `module:Class`, or
    `file.py:Class`.
    """
    given = values.get("policy")
    named = {"name": given} if isinstance(given, str) else given
    if not isinstance(named, dict) or not any(is_own(named.get(key)) for key in ("name", "class")):
        return values
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    near = {
        key: str(folder / where)
        if is_own(where) and where.rpartition(":")[0].endswith(".py")
        else where
        for key, where in named.items()
    }
    return {**values, "policy": near}


def _known(role: Any, expected: Expected, run: str) -> Known:
    """What a party may know: the customer the total, an owner its own arm, the two servers how far
    the run is.
    """
    terms, owners = role.agreed
    config: dict[str, Any] = {
        "run": run,
        "policy": described(expected.policy),
        "level": expected.level,
    }
    if terms is not None:
        config |= {"horizon": terms.budget, "owners": len(owners)}
    facts: dict[str, Any] = {"manifest": role.digest}
    outcome, failure = f"the part of {role.name} is over; the {CUSTOMER} has its answer", ""
    steps, total = role.state().get("step") if role.kind != DEALER else None, None
    pulls: dict[str, int] = {}
    overruns = role.gate.overruns if isinstance(role, StrictController | StrictComp) else None
    if expected.slot:
        own = role.overruns if isinstance(role, StrictOwner) else overruns
        facts |= {"slot": expected.slot} | ({} if own is None else {"overruns": own})
    if isinstance(role, Owner):
        facts |= {} if role.owed is None else {"owed": role.owed}
        total, pulls = role.reward, {role.name: role.pulls}
        outcome += f", and {role.name} earned {total:g} in {words.count(role.pulls, 'pull')}"
    if isinstance(role, Customer) and role.finished:
        total, failure = role.total, role.refused
        counted = (
            "an unknown number of pulls" if role.pulls is None else words.count(role.pulls, "pull")
        )
        outcome = (
            f"total reward {total:g} of {counted}"
            if total is not None
            else f"there is no total: {failure}"
        )
        if role.ended_early is not None:
            facts["ended_early_with"] = list(role.ended_early)
            outcome += f", ended early: of {', '.join(role.ended_early)} only"
    return Known(
        outcome,
        expected.level,
        config,
        steps if isinstance(steps, int) else None,
        total,
        pulls,
        learns=learns(expected.level, expected.switches),
        leaks=leaks(
            expected.level,
            expected.switches,
            len(owners),
            expected.policy,
            slot=expected.slot,
            overruns=overruns,
            price=expected.price,
        ),
        facts=facts,
        failure=failure,
        tables=[table.plain() for table in _found(role, terms)],
    )


def _found(role: Any, terms: Terms | None) -> Iterator[Section]:
    """Say what a party found out: an owner about its own arm, the customer about the whole run; the
    servers nothing.
    """
    if isinstance(role, Owner) and role.pulls and terms is not None:
        rows = (
            ("pulls", f"{role.pulls:,}"),
            ("of the budget", f"{role.pulls / terms.budget:.1%}"),
            ("reward", f"{role.reward:g}"),
            ("average of a pull", f"{role.reward / role.pulls:.4f}"),
        )
        yield Section("Its own arm", ("", "value"), rows, numeric=(1,))
        if role.owed is not None:
            place = role.manifest.owners.index(role.name)
            price = terms.price[place if len(terms.price) > 1 else 0]
            bill = (
                ("pulls", f"{role.pulls:,}"),
                ("price of a pull", f"{price:g}"),
                ("owed", f"{role.owed:,.15g}"),
            )
            said = (
                f"By the terms that all signed ({role.digest}). Who is shown it learns how often "
                "this arm is pulled."
            )
            yield Section("What it is owed", ("", "value"), bill, (said,), (1,))
    if isinstance(role, Customer) and role.finished and role.total is not None and role.pulls:
        whole = (
            ("pulls", f"{role.pulls:,}"),
            ("reward", f"{role.total:g}"),
            ("average", f"{role.total / role.pulls:.4f}"),
            *_bill(role.pulls, role.manifest.terms),
        )
        yield Section("What was bought", ("", "value"), whole, numeric=(1,))


def _costs(role: Participant, calls: Sequence[int], sent: int) -> list[dict[str, Any]]:
    """Put calls of primitives and messages of an owner or the customer beside its part of the
    paper's Theorem 4.
    """
    terms, owners = role.agreed
    if terms is None or not role.finished or not isinstance(role, Owner | Customer):
        return []
    steps, owner = (terms.budget - len(owners)) * terms.passes, isinstance(role, Owner)
    said = (steps, steps, 1, 0, steps + 1) if owner else (0, 0, 0, 1, 0)
    names = (*PRIMITIVES, "encrypted numbers, and messages sent")
    rows = tuple(
        (name, f"{a:,}", f"{b:,}") for name, a, b in zip(names, said, (*calls, sent), strict=True)
    )
    notes = (
        "Theorem 4 is about level 'paper', every step of which asks all owners for a score. "
        "Messages of the set-up and "
        "of the end are among those measured; keys of the set-up are not counted.",
    )
    return [
        Section(
            "Cost in primitives", ("what", "theorem 4, its part", "measured"), rows, notes, (1, 2)
        ).plain()
    ]


def _bill(pulls: int, terms: Terms) -> tuple[tuple[str, str], ...]:
    """Say what the customer owes in all, where every pull costs the same: with other prices that
    would say who was pulled how often, which it may not know.
    """
    if len(terms.price) != 1:
        return ()
    return ("price of a pull", f"{terms.price[0]:g}"), (
        "owed to all owners",
        f"{owed(terms.price, 0, pulls):,.15g}",
    )


def _owner(place: Place, options: SambaOptions, expected: Expected) -> Deployment:
    who = (
        place.identity.name,
        place.identity.signing,
        customer_key(place, options.customer),
        expected,
        _seed(options),
    )
    role: Role = Owner(*who, secrets=place.secrets)
    if expected.level == "strict":
        check_sync(place.file.sync, expected.level)
        clock.check_slot(expected.slot, options.slowest_pull, place.identity.name)
        role = StrictOwner(*who, secrets=place.secrets)  # which are others in a journal begun anew
    source = _source(place, options, place.identity.name)
    if expected.slot:
        source = clock.Clock(source)
    return Deployment(role, VOCABULARY, {CONTROLLER: "controller"}, source)


def _controller(place: Place, options: SambaOptions, expected: Expected) -> Deployment:
    if len(options.owners) < 2:
        raise ConfigError(
            f"the controller needs the names of at least 2 owners, got {len(options.owners)}. Give "
            "owners."
        )
    who = place.identity.signing, customer_key(place, options.customer), expected, options.owners
    alone = {name: name for name in sole(expected.level) if name != CONTROLLER}
    peers = {**dict.fromkeys(options.owners, "owner"), **alone}
    role: Role = Controller(*who, _seed(options), secrets=place.secrets)
    if expected.level == "strict":
        role = StrictController(*who, secrets=place.secrets)
    return Deployment(role, VOCABULARY, peers)


def _comp(place: Place, options: SambaOptions, expected: Expected) -> Deployment:
    who = place.identity.signing, customer_key(place, options.customer), expected
    role: Role = Comp(*who, _seed(options), secrets=place.secrets)
    if expected.level == "strict":
        role = StrictComp(*who, secrets=place.secrets)
    return Deployment(role, VOCABULARY, {CONTROLLER: "controller"})


def _dealer(place: Place, options: SambaOptions, expected: Expected) -> Deployment:
    role = Dealer(
        place.identity.signing,
        customer_key(place, options.customer),
        expected,
        secrets=place.secrets,
    )
    return Deployment(role, VOCABULARY, {CONTROLLER: "controller"})


def _customer_role(place: Place, options: SambaOptions, expected: Expected) -> Deployment:
    if options.authority is None or options.budget < 1:
        raise ConfigError(
            "the customer needs its authority's folder and a budget. Give authority and budget."
        )
    key = None if expected.level == "strict" else paillier(place, options.paillier_bits)
    n = b"" if key is None else key.public_key.n.to_bytes((key.public_key.bits + 7) // 8, "big")
    terms = Terms(
        run=place.run,
        budget=options.budget,
        policy=policy_terms(expected.policy),
        passes=len(expected.policy.passes()),
        level=expected.level,
        off=(),
        paillier_n=n,
        slot=expected.slot,
        threshold=expected.threshold,
        price=expected.price,
    )
    servers = [name for name in sole(expected.level) if name != CUSTOMER]
    keys = admitted(place, place.folder / options.authority, (*options.owners, *servers))
    who = place.identity.signing, expected, terms, keys
    role: Role = Customer(*who, key, secrets=place.secrets)
    if key is None:
        role = StrictCustomer(*who, secrets=place.secrets)

    def end(without: str) -> Message:
        gone = {name.strip() for name in without.split(",") if name.strip()}
        if unknown := sorted(gone - set(options.owners)):
            raise ConfigError(
                f"'{unknown[0]}' is no owner of this run. Owners: {', '.join(options.owners)}."
            )
        return messages.End(tuple(name for name in options.owners if name not in gone))

    kept = {ADMITTED: json.dumps({name: key.hex() for name, key in keys.items()}).encode()}
    return Deployment(
        role, VOCABULARY, {CONTROLLER: "controller"}, commands={"end": end}, keeps=kept
    )


_MAKERS = {
    "owner": _owner,
    "controller": _controller,
    "comp": _comp,
    "dealer": _dealer,
    "customer": _customer_role,
}


def _seed(options: SambaOptions) -> int | None:
    return None if options.world is None else options.world.seed


def _source(place: Place, options: SambaOptions, name: str) -> Source:
    """Where this owner's rewards come from: its arm of a simulated world, or what [source] says."""
    if options.world is not None and place.file.source is not None:
        raise ConfigError(
            "[source] has no effect in a simulated world. Remove it, or [options.world]."
        )
    if options.world is not None:
        arms, seed, number = options.world.arms(), options.world.seed, options.owners.index(name)

        async def simulated(ask: Ask) -> Message:
            assert isinstance(ask, Pull)
            return Reward(ask.number, arms.reward(seed, number, ask.number))

        return simulated
    if place.file.source is None:
        raise ConfigError(
            "an owner needs to know where its rewards come from. Give [source] with a kind."
        )
    draws = place.secrets.number(b"samba source", context=place.run.encode())
    given = SourceSettings.make(place.file.source)
    return answering(given.source(draws, place.folder, options.threshold), place.run)


def check_sync(sync: bool, level: str) -> None:
    """Refuse an owner of level `strict` that does not wait for its disk."""
    if level == "strict" and not sync:
        raise ConfigError(
            "sync must be true for an owner at level 'strict', got false: after a crash one "
            "pad could hide two scores. Remove sync = false."
        )


def _layout(values: dict[str, Any], folder: Path) -> Layout:
    from posse.systems.samba.layout import layout

    return layout(values, folder)


def _invite(values: dict[str, Any], folder: Path) -> Invitation:
    from posse.systems.samba.layout import invite

    return invite(values, folder)


DEPLOY = Deploy(build, _layout, _invite, VOCABULARY)
