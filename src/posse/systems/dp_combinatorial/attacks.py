"""Attacks on dp-combinatorial: what an agent, or several, find out from the reports of another.

| attack | seeks | noise stops it |
|---|---|---|
| `reconstruction` | what every other agent bought of each producer, to the unit | yes |
| `trends` | the same, about | no: reports exist to tell averages |
| `capacities` | capacities, from the deviation of the noise that fused reports carry | no |
| `canaries` | one entry more or less in a window, by all receivers, before and after a restart | as the ledger proves |

`canaries` makes real agents with ledgers and secrets of their own buy an entry or not, by coins.
Every agent is restarted from its snapshot behind each report and makes the report again; two
receivers compare what they got. A report with half the noise, one that is made twice with fresh
noise, one that comes out otherwise after a restart, and noise on units alone (claim 1 of the paper)
all show as guesses that are right more often than the claim allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.roles import WORLD, Action, Entry, SendMany, View
from posse.privacy.crypto.keys import Secrets
from posse.privacy.dp.audit import trials_needed
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.plans import Plan
from posse.privacy.dp.rounds import EveryRound
from posse.privacy.leakage import canaries
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.features import r_squared
from posse.privacy.leakage.scores import hits
from posse.systems.dp_combinatorial.agent import Agent, Buyer
from posse.systems.dp_combinatorial.deviations import DEVIATIONS, stage_without
from posse.systems.dp_combinatorial.messages import Buy, Delivered, Hello, Report
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.terms import AGENT, VERSION, Terms
from posse.systems.modules import Attacks

Floats = NDArray[np.float64]
PRODUCERS = 200
"""Producers of an agent that buys canaries; each is a canary of its own where the unit is an
entry.
"""
CAPACITY = 20.0
MOST = 60_000
"""Canaries of an audit, at most: with fewer than needed its power is said to be what it is."""


# Reading reports ----------------------------------------------------------------------------------


def reported(view: View) -> tuple[tuple[str, ...], Floats, Floats]:
    """Add up the reports of every other agent: their names, units and good units, (agents,
    producers).
    """
    agents, producers = view.public.get("agents"), view.public.get("producers")
    if not agents or not producers or not view.parties:
        raise DataError(
            "this is no view of dp-combinatorial: its public terms lack agents or producers."
        )
    others = tuple(name for name in agents if name not in view.parties)
    sums = np.zeros((2, len(others), len(producers)))
    numbers: dict[str, set[int]] = {name: set() for name in others}
    for entry in view.entries:
        report = entry.message
        if not isinstance(report, Report) or entry.sender not in numbers:
            continue
        if len(report.units) != len(producers) or len(report.good) != len(producers):
            raise DataError(
                f"a report of '{entry.sender}' is about {len(report.units)} of {len(producers)} "
                "producers."
            )
        if report.number in numbers[entry.sender]:  # the same to another receiver
            continue
        numbers[entry.sender].add(report.number)
        sums[:, others.index(entry.sender)] += (report.units, report.good)
    for name, seen in numbers.items():
        if seen != set(range(len(seen))):
            raise DataError(
                f"the view lacks report {min(set(range(max(seen) + 1)) - seen) + 1} of '{name}'."
            )
    return others, sums[0], sums[1]


def sums(view: View, seed: int) -> dict[str, Any]:
    """Estimate what every other agent has bought of each producer, up to its last report."""
    others, units, _ = reported(view)
    return {"agents": others, "units": np.maximum(units, 0.0)}


def _bought(found: Mapping[str, Any], truth: Truth) -> Floats:
    """What these agents bought up to their last report."""
    names = list(truth["agents"])
    rows: Floats = truth["reported"][[names.index(name) for name in found["agents"]]]
    return rows


def _score_exact(found: Sequence[dict[str, Any]], truths: Sequence[Truth]) -> Score:
    true = np.concatenate([_bought(*pair).ravel() for pair in zip(found, truths, strict=True)])
    guessed = np.concatenate([one["units"].ravel() for one in found])
    _, counts = np.unique(true, return_counts=True)
    return hits(
        int((np.rint(guessed) == true).sum()),
        len(true),
        float(counts.max() / len(true)),
        "sums to the unit",
    )


def _score_about(found: Sequence[dict[str, Any]], truths: Sequence[Truth]) -> Score:
    true = np.concatenate([_bought(*pair).ravel() for pair in zip(found, truths, strict=True)])[
        :, None
    ]
    guessed = np.concatenate([one["units"].ravel() for one in found])[:, None]
    return replace(r_squared(guessed, true, true.mean(axis=0)), text=f"{len(true):,} sums of units")


def _in_the_clear(evidence: Evidence, seed: int) -> Evidence:
    """Plant: every other agent sends one report without noise."""
    view, truth = evidence.seen, evidence.truth
    entries = [entry for entry in view.entries if not isinstance(entry.message, Report)]
    for name, row in zip(truth["agents"], truth["reported"], strict=True):
        if name not in view.parties:
            clear = Report(0, tuple(row.tolist()), tuple(row.tolist()))
            entries.append(Entry(len(entries), name, view.parties[0], clear))
    return replace(evidence, seen=replace(view, entries=entries))


def _other_agents(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Exchange purchases between agents and producers."""
    rng = np.random.default_rng((seed, 40))

    def mixed(table: Floats) -> Floats:
        return rng.permutation(table.ravel()).reshape(table.shape)

    return [
        {**truth, "reported": mixed(truth["reported"]), "capacity": mixed(truth["capacity"])}
        for truth in truths
    ]


def capacities(view: View, seed: int) -> dict[str, Any]:
    """Divide the deviation that fused reports carry by the public multiplier of the report."""
    multipliers = view.public.get("multipliers") or ()
    found = {
        entry.sender: np.array(entry.message.sigma) / multipliers[entry.message.number]
        for entry in view.entries
        if isinstance(entry.message, Report)
        and entry.message.sigma
        and entry.sender not in view.parties
    }
    if not found:
        raise DataError(
            "the view holds no report that carries the deviation of its noise: reports are not "
            "fused."
        )
    return {"agents": tuple(found), "units": np.stack(list(found.values()))}


def _carry_deviations(evidence: Evidence, seed: int) -> Evidence:
    """Plant: every report carries the deviation of its noise."""
    view, truth = evidence.seen, evidence.truth
    names, multipliers = list(truth["agents"]), view.public["multipliers"]
    entries = [
        entry._replace(
            message=Report(
                entry.message.number,
                entry.message.units,
                entry.message.good,
                tuple(
                    (
                        truth["capacity"][names.index(entry.sender)]
                        * multipliers[entry.message.number]
                    ).tolist()
                ),
            )
        )
        if isinstance(entry.message, Report)
        else entry
        for entry in view.entries
    ]
    return replace(evidence, seen=replace(view, entries=entries))


def _score_capacities(found: Sequence[dict[str, Any]], truths: Sequence[Truth]) -> Score:
    right = [
        np.abs(
            one["units"]
            - truth["capacity"][[list(truth["agents"]).index(name) for name in one["agents"]]]
        )
        < 0.5
        for one, truth in zip(found, truths, strict=True)
    ]
    every = np.concatenate([truth["capacity"].ravel() for truth in truths])
    _, counts = np.unique(every, return_counts=True)
    shown = np.concatenate([one.ravel() for one in right])
    return hits(int(shown.sum()), len(shown), float(counts.max() / len(every)), "capacities")


# Canaries -----------------------------------------------------------------------------------------

Reports = Callable[[Agent, Callable[[], Agent], Delivered], Sequence[Report]]
"""What receivers see of a window: the agent, how it is made anew from its snapshot before it, and
what it was given.
"""


def honest_reports(
    agent: Agent, restored: Callable[[], Agent], delivered: Delivered
) -> list[Report]:
    """Let the agent report to all receivers, and again after a restart from before the report."""
    again = restored()
    return [
        *reports_in(agent.receive(WORLD, delivered)),
        *reports_in(again.receive(WORLD, delivered)),
    ]


def reports_in(actions: Sequence[Action]) -> list[Report]:
    """Return the reports among what an agent wants done."""
    sends = [send for action in actions if isinstance(action, SendMany) for send in action.sends]
    return [send[2] for send in sends if isinstance(send[2], Report)]


def entry_mu(plan: Plan) -> float:
    """Return mu of the plan's unit in its window of least noise."""
    return max(1 / plan.noise_multiplier(z) for z in range(plan.messages))


def canary_count(plan: Plan) -> int:
    """Canaries that find a window reported twice with probability .95, or the most there may be."""
    mu = entry_mu(plan)
    return min(MOST, math.ceil(2.5 * trials_needed(mu, math.sqrt(2) * mu) / (1 - canaries.KNOWN)))


def _tested(settings: DpCombinatorial) -> Plan | None:
    """Return the plan that canaries test: of noise in every round that of one."""
    plan = settings.load().plan
    return plan.one() if isinstance(plan, EveryRound) else plan


def stage(
    settings: DpCombinatorial, seed: int, reports: Reports = honest_reports
) -> Iterator[Evidence]:
    """Let agents buy canaries, or not, in the windows of least noise, and collect what two
    receivers see.
    """
    plan = _tested(settings)
    assert plan is not None
    yield from canary_reports(plan, canary_count(plan), seed, reports)


def canary_reports(
    plan: Plan, count: int, seed: int, reports: Reports = honest_reports
) -> Iterator[Evidence]:
    """Do the same for a plan, with so many canaries."""
    single = plan.unit.name == "entry"
    producers = PRODUCERS if single else plan.producers
    windows = [
        z for z in range(plan.messages) if plan.multipliers[z] <= min(plan.multipliers) * 1.0001
    ]
    coins = canaries.coins_of(count, seed)
    rows: list[Floats] = []
    at = 0
    while at < count:
        each = len(windows) * (producers if single else 1)
        tossed = np.zeros(each, np.int64)
        tossed[: min(each, count - at)] = coins[at : at + each]
        table = tossed.reshape(len(windows), -1) * np.ones((len(windows), producers))
        rows.append(_agent_reports(plan, producers, windows, table, reports, single))
        at += each
    shift = (CAPACITY if single else CAPACITY * producers) * np.ones(rows[0].shape[1])
    yield canaries.tossed(np.concatenate(rows)[:count], coins, shift, entry_mu(plan), plan.delta)


def _agent_reports(
    plan: Plan,
    producers: int,
    windows: Sequence[int],
    table: Floats,
    reports: Reports,
    single: bool,
) -> Floats:
    """Run one agent through all windows, a round each; return what is seen of each of its
    canaries.
    """
    names = tuple(f"p{i}" for i in range(producers))
    rounds = tuple(range(1, plan.messages + 1))
    terms = Terms(("a", "b", "c"), names, rounds[-1], reports=rounds, multipliers=plan.multipliers)
    short, secrets = replace(plan, rounds=rounds, producers=producers), Secrets.fresh()
    bought = np.zeros(producers)

    def made() -> Agent:
        capacity = np.full(producers, CAPACITY)
        buyer = Buyer(np.zeros(producers), capacity, 0.0, 1.0, oracle=lambda *_: bought)
        return Agent("a", terms, buyer, None, Ledger(short, "a"), secrets=secrets, run="canaries")

    agent, nothing = made(), tuple([0.0] * producers)
    actions: list[Action] = [*agent.start()]
    seen = []
    for number in range(plan.messages):
        bought[:] = CAPACITY * table[windows.index(number)] if number in windows else 0.0
        actions = []
        for other in ("b", "c"):
            given = (
                Hello(VERSION, terms.digest)
                if number == 0
                else Report(number - 1, nothing, nothing)
            )
            actions += agent.receive(other, given)
        (buy,) = (action for action in actions if isinstance(action, Buy))
        kept = agent.save()

        def restored(kept: dict[str, Any] = kept) -> Agent:
            again = made()
            again.load(kept)
            return again

        got = reports(agent, restored, Delivered(buy.round, tuple(map(float, buy.units))))
        if number in windows:
            values = np.array([[report.units, report.good] for report in got])
            flat = values.reshape(-1, producers) if single else values.sum(axis=2).reshape(-1, 1)
            seen.append(flat.T)
    return np.concatenate(seen)


def _no_canaries(settings: DpCombinatorial) -> str:
    if settings.policy not in ("p-fcb", "naive") or not settings.noisy:
        return "reports carry no noise, or nothing else: there is no claim to test."
    if settings.unit == "history":
        return (
            "the unit is a whole history, and canaries of that length would take runs of as many "
            "rounds."
        )
    return ""


def _canary_seconds(settings: DpCombinatorial) -> float:
    plan = _tested(settings)
    return 1.0 + (
        0.0
        if plan is None
        else 2e-4 * canary_count(plan) * (1 if plan.unit.name == "entry" else plan.producers)
    )


SENDS, PAIR = (
    "Every agent sends every other what it bought",
    "Every agent sends every other one noisy pair",
)
RECONSTRUCTION = Attack(
    "reconstruction",
    "what every other agent bought, to the unit",
    (AGENT,),
    ("Everything an agent bought", SENDS, PAIR, "Nothing leaves an agent", "Agents exchange noise"),
    sums,
    _score_exact,
    "share of sums",
    _in_the_clear,
    "reports without noise",
    _other_agents,
    tell=lambda found: f"sums of {found['units'].size} producers and agents",
)
CURIOUS = (
    RECONSTRUCTION,
    Attack(
        "trends",
        "about what every other agent bought",
        (AGENT,),
        ("Trends over many rounds",),
        sums,
        _score_about,
        "R2 of units",
        _in_the_clear,
        "reports without noise",
        _other_agents,
        tell=lambda found: f"sums of {found['units'].size} producers and agents",
    ),
    Attack(
        "capacities",
        "capacities of every other agent",
        (AGENT,),
        ("Reports are fused by their variance",),
        capacities,
        _score_capacities,
        "share of capacities",
        _carry_deviations,
        "reports with their deviation",
        _other_agents,
        missing=lambda settings: (
            "" if settings.rule == "fuse" and settings.noisy else "reports are not fused."
        ),
        tell=lambda found: f"capacities of {len(found['agents'])} agents",
    ),
    Attack(
        "canaries",
        "one entry more or less, against the ledger's claim",
        (AGENT, AGENT),
        (PAIR, "All receivers get the same pair"),
        canaries.guess,
        canaries.claim_score,
        "epsilon, at least",
        canaries.halve_the_noise,
        "half of the noise",
        canaries.toss_again,
        finds=0.0,
        needs="runs",
        stage=stage,
        seconds=_canary_seconds,
        missing=_no_canaries,
        tell=lambda found: f"{int(found.sum()):,} of {len(found):,} canaries called in",
    ),
)
"""Attacks of agents that follow the protocol."""
WITHOUT_NOISE = replace(
    RECONSTRUCTION,
    name="without-noise",
    title="what every other agent bought, by leaving its own noise out",
    claims=(PAIR,),
    needs="runs",
    stage=stage_without,
    seconds=lambda settings: 5.0,
    missing=lambda settings: (
        "" if settings.noisy and settings.policy != "placebo" else "agents add no noise."
    ),
)

ATTACKS = Attacks(
    attacks=(*CURIOUS, *DEVIATIONS, WITHOUT_NOISE),
    unattacked={
        "Who takes part, with which producers": (
            "The terms are public: there is nothing to find out."
        ),
        "Producers see what is bought": (
            "A producer is no party: it is given every purchase of its own goods."
        ),
    },
)
