"""Agents of a market between organisations: what an agent's file says, and the role it makes of it.

A mesh: every agent talks to every other. Terms are public and the same for all; costs and
capacities stay in the agent's own file. In a federation file of one machine, each agent listens and
calls those before it in the roster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from pydantic import Field

from posse.core.errors import ConfigError, DataError
from posse.core.random import derive_key
from posse.core.roles import Ask, Message
from posse.core.settings import IMPORTS, Settings
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import SeededNoise
from posse.privacy.dp.plans import Plan
from posse.problems.markets.settings import OFFERED
from posse.problems.tables.schema import Schema
from posse.problems.tables.table import open_table
from posse.results import words
from posse.results.section import Section
from posse.runtime.certificates.names import check_name
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.talk import Invitation
from posse.runtime.local import (
    AUTHORITY,
    Layout,
    beside,
    check_member,
    data_beside,
    each,
    enrol_all,
    write_party,
)
from posse.runtime.network.deployment import Deployment, Known
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.place import ONE_LISTENS, Place, address
from posse.runtime.sources import load_function
from posse.systems.dp_combinatorial import twin
from posse.systems.dp_combinatorial.agent import Agent, Buyer
from posse.systems.dp_combinatorial.messages import Buy, Delivered, Hello, Offers, Report
from posse.systems.dp_combinatorial.remarks import large_noise, sums_of_rounds
from posse.systems.dp_combinatorial.settings import TALK, DpCombinatorial, Setup
from posse.systems.dp_combinatorial.system import leaks, learns
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import offers_of
from posse.systems.modules import Deploy

VOCABULARY = Vocabulary((Hello, Report, Delivered, Offers), (Buy,))


class AgentOptions(DpCombinatorial):
    """The table [options] of an agent: the terms, the same for everyone, and where its own offers
    are.

    `roster` and `suppliers` name agents and producers in the order that all agree on. `own` is a
    CSV file with columns supplier,cost,capacity that stays with this agent. Without it the market
    is the simulated one of the other settings: for trying and testing.
    """

    roster: tuple[str, ...] = ()
    """Names of the agents, in the order of the terms."""
    suppliers: tuple[str, ...] = ()
    """Names of the producers, in the order of the terms."""
    own: Path | None = None
    """CSV file of this agent's own offers: columns supplier,cost,capacity."""


class DeliverySettings(Settings):
    """Where deliveries come from ([source])."""

    kind: Literal["python"] = "python"
    function: Annotated[str, IMPORTS]
    """module:function, called with (run, round, units by supplier); gives good units by
    supplier.
    """


def build(place: Place) -> Deployment:
    """Make the agent that the certificate names."""
    options = AgentOptions.make(data_beside(place.file.options, place.folder))
    name = place.identity.name
    if place.identity.role != "agent":
        raise ConfigError(
            "every party of dp-combinatorial must have the role agent, got "
            f"'{place.identity.role}' in the certificate. Enrol with the role agent."
        )
    return _simulated(place, options, name) if options.own is None else _own(place, options, name)


def _simulated(place: Place, options: AgentOptions, name: str) -> Deployment:
    """An agent of a simulated market: everything, its noise included, follows from the world
    seed.
    """
    if place.file.source is not None:
        raise ConfigError(
            "[source] has no effect in a simulated market. Remove it, or give own offers with own."
        )
    setup = options.load()
    j, offers = _place_in(setup.market.agents, name), offers_of(setup.market, options.margin)
    buyer = Buyer(offers.cost[j], offers.capacity[j], offers.alpha, offers.rho, options.coefficient)
    agent = Agent(
        name, setup.terms, buyer, SeededNoise(derive_key(options.seed, j)), _ledger(setup, name)
    )
    words, good = (
        np.zeros((4, (len(setup.market.producers) + 3) // 4), np.uint64),
        np.zeros(len(offers.cost[j])),
    )

    async def deliver(ask: Ask) -> Message:
        assert isinstance(ask, Buy)
        purchase, before = np.array(ask.units, np.float64), agent.knowledge.units
        twin.deliver(
            setup.market.supply,
            np.uint64(options.seed),
            j,
            ask.round,
            before,
            purchase,
            words,
            good,
        )
        return Delivered(ask.round, tuple(good.tolist()))

    return _deployed(agent, options, setup.terms, place.run, deliver)


def _own(place: Place, options: AgentOptions, name: str) -> Deployment:
    """An agent with offers of its own; its noise comes from its secrets."""
    for field in ("roster", "suppliers"):
        if not getattr(options, field):
            raise ConfigError(
                f"an agent with its own offers needs {field}. Give the same {field} to all agents."
            )
    _place_in(options.roster, name)
    assert options.own is not None
    cost, capacity = _read_own(place.folder / options.own, options.suppliers)
    plan, terms = options.plan_and_terms(options.roster, options.suppliers)
    buyer = Buyer(cost, capacity, options.alpha + options.margin, options.rho, options.coefficient)
    ledger = None if plan is None or options.policy == "placebo" else Ledger(plan, name)
    agent = Agent(name, terms, buyer, None, ledger, secrets=place.secrets, run=place.run)
    made = _deployed(agent, options, terms, place.run, _source(place, options))

    def change(_: str) -> Message:
        assert options.own is not None
        cost, capacity = _read_own(place.folder / options.own, options.suppliers)
        return Offers(tuple(cost.tolist()), tuple(capacity.tolist()))

    return replace(made, commands={"change": change})


def _deployed(
    agent: Agent, options: AgentOptions, terms: Terms, run: str, source: Source
) -> Deployment:
    others = {other: "agent" for other in terms.agents if other != agent.name}
    planned = {
        name: getattr(terms, name) for name in ("agents", "producers", "reports", "multipliers")
    }
    agreed = {
        **_used(options, len(terms.agents)),
        **planned,
        "seed": options.seed if options.own is None else None,
    }
    # Its own offers are journalled by themselves: they may change (`Agent.brings`).
    inputs = options.model_dump(exclude_defaults=True, exclude={"own"})
    return Deployment(
        agent,
        VOCABULARY,
        others,
        source,
        agreed,
        inputs,
        needs=lambda: agent.needs,
        known=lambda: _known(agent, options, terms, run),
        public=lambda: msgspec.structs.asdict(terms),
    )


def _used(options: AgentOptions, agents: int) -> dict[str, Any]:
    """Return the public settings that have an effect; delta as the number it is, however it is
    written.
    """
    names = ("policy", "horizon", "explore", *TALK)
    used = {name: getattr(options, name) for name in names if name not in options.unused}
    return {**used, "delta": options.asked(agents).delta} if "delta" in used else used


def _known(agent: Agent, options: AgentOptions, terms: Terms, run: str) -> Known:
    """What an agent may know: its own purchases and revenue, and what its reports have spent of its
    privacy.
    """
    market = {"agents": len(terms.agents), "producers": len(terms.producers)}
    config = {
        "run": run,
        **_used(options, len(terms.agents)),
        "policy": options.described(),
        **market,
    }
    rounds = int(str(agent.state()["step"]))
    bought = dict(zip(terms.producers, map(int, agent.knowledge.units), strict=True))
    privacy: tuple[Mapping[str, Any], ...] = ()
    if agent.ledger is not None and (releases := agent.ledger.entries()):
        proved = agent.ledger.guarantee()
        privacy = (
            {
                "party": agent.name,
                **(proved.simulated() if options.own is None else proved).entry(),
            },
            *releases,
        )
    money = {"money": options.currency} if options.currency else {}
    tables = (
        _producers(agent, terms),
        *([_money(agent, terms)] if agent.finished else []),
        *sums_of_rounds([] if agent.ledger is None else [agent.ledger]),
    )
    return Known(
        f"the part of {agent.name} is over: it earned {agent.revenue:g} in {rounds:,} rounds",
        options.level,
        config,
        rounds,
        agent.revenue,
        bought,
        privacy,
        learns(options),
        leaks(options),
        {"entries_learnt": agent.taken},
        money,
        tables=[table.plain() for table in tables],
        warnings=large_noise(terms, *agent.first, "its first report"),
    )


def _producers(agent: Agent, terms: Terms) -> Section:
    """Say what the agent bought of each producer, and which quality it has learnt."""
    known = agent.knowledge
    rows = tuple(
        (name, f"{int(units):,}", f"{int(good):,}", "" if np.isnan(quality) else f"{quality:.3f}")
        for name, units, good, quality in zip(
            terms.producers, known.units, known.good, agent.qualities, strict=True
        )
    )
    notes = ("The quality is the share of good units, of its own and of what others reported.",)
    return Section(
        "What it bought",
        ("producer", "units", "good ones", "learnt quality"),
        rows,
        notes,
        (1, 2, 3),
    )


def _money(agent: Agent, terms: Terms) -> Section:
    """Compare what the agent earned with what it would have earned alone."""
    earned, alone = agent.revenue, agent.revenue if terms.method == "alone" else agent.alone()
    rows = (
        ("earned", words.number(earned)),
        ("alone (estimate)", words.number(alone)),
        ("more than alone (estimate)", words.number(earned - alone)),
    )
    notes = (
        "Alone is an estimate from this agent's own knowledge: it buys as long at its present "
        "prices, learns from its "
        "own units only, and qualities are those it has learnt.",
    )
    return Section("Money", ("", "money"), rows, notes, (1,))


def _ledger(setup: Setup, name: str) -> Ledger[Plan] | None:
    return (
        None if setup.plan is None or setup.terms.method == "placebo" else Ledger(setup.plan, name)
    )


def _place_in(roster: tuple[str, ...], name: str) -> int:
    if name not in roster:
        raise ConfigError(
            f"'{name}' is not in the roster: {', '.join(roster)}. Correct roster, or enrol under "
            "its name."
        )
    return roster.index(name)


def _read_own(path: Path, suppliers: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Read an agent's own offers; suppliers without a row are not dealt with."""
    table = Schema(*OFFERED).read(open_table(path))
    table.check_distinct("supplier")
    cost, capacity = np.zeros(len(suppliers)), np.zeros(len(suppliers))
    for row, supplier in enumerate(table.words["supplier"].distinct):
        if supplier not in suppliers:
            raise DataError(
                f"{table.place(row, 'supplier')}: '{supplier}' is not among the suppliers of the "
                "terms."
            )
        i = suppliers.index(supplier)
        cost[i], capacity[i] = table.numbers["cost"][row], table.numbers["capacity"][row]
    return cost, capacity


def _source(place: Place, options: AgentOptions) -> Source:
    """Ask the agent's own function what was delivered; it must answer the same when asked again."""
    if place.file.source is None:
        raise ConfigError(
            "an agent needs to know what was delivered. Give [source] with function = "
            "module:function."
        )
    function: Callable[[str, int, dict[str, int]], Awaitable[dict[str, float]]] = load_function(
        DeliverySettings.make(place.file.source).function, place.folder
    )

    async def deliver(ask: Ask) -> Message:
        assert isinstance(ask, Buy)
        bought = {
            name: units for name, units in zip(options.suppliers, ask.units, strict=True) if units
        }
        good = await function(place.run, ask.round, bought)
        unknown = sorted(set(good) - set(bought))
        if unknown:
            raise DataError(
                f"the source reports good units of '{unknown[0]}', of which nothing was bought. "
                "Correct the source."
            )
        return Delivered(ask.round, tuple(float(good.get(name, 0.0)) for name in options.suppliers))

    return deliver


class AgentEntry(Settings):
    """One agent of a federation file."""

    name: str
    listen: str = ""
    """host:port where agents behind it in the roster call."""
    own: Path | None = None
    source: dict[str, Any] | None = None


class MarketFederation(AgentOptions):
    """A whole mesh on one machine (`posse up`)."""

    protocol: Literal["dp-combinatorial"] = "dp-combinatorial"
    run: str
    """Name of the run."""
    sync: bool = True
    """Wait for the disk before anything that follows from a delivery leaves."""
    members: tuple[AgentEntry, ...] = Field(default=(), alias="agent")
    """The agents ([[agent]] with a name, an address, own offers and a source)."""


def layout(values: dict[str, Any], here: Path) -> Layout:
    """Read a federation's file and say what is wrong with it, before anything is written."""
    values = data_beside(each(values, "agent", lambda agent: beside(agent, here, "own")), here)
    federation = MarketFederation.make(values)
    _check(federation)
    return Layout(
        federation,
        lambda folder: lay_out(federation, folder),
        federation.horizon,
        "agent",
        ("agent",),
        lambda name: "agent",
        None,
        ("sync",),
    )


def _check(federation: MarketFederation) -> None:
    check_name(run=federation.run)
    names = [member.name for member in federation.members]
    if len(names) < 2:
        raise ConfigError(
            f"a mesh needs at least 2 agents, got {len(names)}. Give [[agent]] with a name and "
            "listen."
        )
    for member in federation.members:
        check_member(member.name, names, "agent", (AUTHORITY,))
        if not member.listen:
            raise ConfigError(f"agent '{member.name}' has no listen address. {ONE_LISTENS}")
        address(member.listen)
        if member.own is not None:
            DeliverySettings.make(member.source)
    options = AgentOptions(**_shared(federation))
    if any(member.own is not None for member in federation.members):
        options.plan_and_terms(tuple(names), options.suppliers)
        return
    agents = options.load().market.agents
    if sorted(agents) != sorted(names):
        raise ConfigError(
            f"the simulated market has agents {', '.join(agents)}, got {', '.join(names)}. Rename "
            "them."
        )


def _shared(federation: MarketFederation) -> dict[str, Any]:
    """The options that a federation's file gives to all agents."""
    given = federation.model_fields_set & set(AgentOptions.model_fields)
    return {name: getattr(federation, name) for name in AgentOptions.model_fields if name in given}


def lay_out(federation: MarketFederation, folder: Path) -> list[Path]:
    """Make identities and files for all agents; what exists is kept, so that a run can go on."""
    members = federation.members
    enrol_all(folder, federation.run, {member.name: "agent" for member in members})
    wanted = set(_shared(federation)) - {"roster"}
    shared = federation.model_dump(mode="json", exclude_none=True, include=wanted)
    if any(member.own is not None for member in members):
        shared["roster"] = [member.name for member in members]
    paths = []
    for number, member in enumerate(members):
        own = {} if member.own is None else {"own": str(member.own.resolve())}
        values = {
            "protocol": "dp-combinatorial",
            "identity": member.name,
            "role": "agent",
            "journal": f"{member.name}/journal",
            "sync": federation.sync,
            "listen": member.listen,
            "options": {**shared, **own},
            "source": member.source,
            "connect": {other.name: other.listen for other in members[:number]},
        }
        paths.append(write_party(folder / f"{member.name}.toml", values))
    return paths


def invite(values: dict[str, Any], here: Path) -> Invitation:
    """Read the settings of a run in a federation that lives: the terms, which are the same for all
    agents.
    """
    if "own" in values:
        raise ConfigError("own belongs to the file of a member, not to that of a run. Remove it.")
    settings = AgentOptions.make(values)
    simulated = not settings.suppliers
    if simulated:
        setup = settings.load()
        agents, plan = setup.market.agents, setup.plan
    else:
        agents = settings.roster
        plan, _ = settings.plan_and_terms(agents, settings.suppliers)
    if len(agents) < 2:
        raise ConfigError(f"a run needs at least 2 agents, got {len(agents)}. Give roster.")
    for name in agents:
        check_member(name, agents, "agent", (AUTHORITY,))
    options = settings.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    files = {
        name: {
            "role": "agent",
            "options": options,
            "listens": number + 1 < len(agents),
            "connect": agents[:number],
        }
        for number, name in enumerate(agents)
    }

    def demand() -> Demand:
        asked = "dp-combinatorial", settings.level, settings.policy, settings.horizon
        if settings.policy in (
            "alone",
            "placebo",
        ):  # which send nothing that depends on what they bought
            return Demand(*asked, 0.0)
        if plan is None:
            return Demand(*asked)
        proved = plan.guarantee()
        return Demand(*asked, proved.epsilon, proved.delta)

    return Invitation(settings, files, demand, simulated=simulated)


DEPLOY = Deploy(build, layout, invite, VOCABULARY)
