"""dp-combinatorial for a page: agents and producers, noisy reports against true ones, money joined
against alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from posse.problems.markets.market import epoch_at
from posse.runtime.memory import Delivery
from posse.systems.dp_combinatorial.agent import Agent
from posse.systems.dp_combinatorial.federation import MarketRun, TwinRun, agents_of
from posse.systems.dp_combinatorial.messages import Hello, Report
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.system import leaks
from posse.systems.dp_combinatorial.twin import Floats, Simulation
from posse.systems.modules import Scenario, Scene
from posse.systems.scenes import (
    Code,
    Part,
    format_number,
    line_numbers,
    line_texts,
    mean_bar,
    message_parts,
)

KINDS = ("agent", "producer")
LABELS = (
    "Corner Grocer",
    "Harbour Market",
    "Mill Kitchen",
    "Station Canteen",
    "Green Basket",
    "Old Town Deli",
    "Lakeside Hotel",
    "Hill Farm Shop",
)
"""What agents of a simulation are called, for whom no file gives a name."""
ROWS = 8
"""Producers of a report that are written out."""

_MARKET = {"agents": 5, "producers": 12, "horizon": 2000, "start": 100}

SCENARIOS = (
    Scenario(
        "Five buyers, noisy reports",
        "Five shops that compete buy from twelve farms and must keep an average quality. After a "
        "few rounds each tells "
        "the others what it bought and how good it was, with noise. Compare the money they make "
        "together with what "
        "each would make alone, and a report with what is true.",
        {**_MARKET, "epsilon": 1.0, "delta": "0.01"},
    ),
    Scenario(
        "The same five, everything in the clear",
        "Every shop tells every other all it bought, after every round: the most that sharing can "
        "earn, and the price.",
        {"agents": 5, "producers": 12, "horizon": 400, "policy": "fcb"},
    ),
    Scenario(
        "A small budget",
        "With epsilon 0.1 the noise is ten times as large: see how little of a report is left, and "
        "that the others "
        "mostly do not accept it.",
        {**_MARKET, "epsilon": 0.1, "delta": "0.01"},
    ),
    Scenario(
        "Reports of noise alone",
        "A control: reports hold nothing of what was bought, so whoever earns more with them has "
        "not learnt from them.",
        {**_MARKET, "policy": "placebo"},
    ),
)

SOURCES = {"agent": "posse.systems.dp_combinatorial.agent:Agent"}


def code(settings: DpCombinatorial) -> Code:
    """Return what an agent does."""
    talks = settings.policy != "alone"
    found = [("hello", "compare the terms with every other agent")] if talks else []
    found += [
        ("loop", f"for t = 1 to {settings.horizon}:"),
        *(
            [("explore", f"  while t <= {settings.explore}: buy one unit of every producer")]
            if settings.explore
            else ()
        ),
        ("bound", "  q ← optimistic quality of every producer, from what it knows"),
        (
            "buy",
            f"  buy the most profitable mix ({settings.oracle}) of average quality alpha or more",
        ),
        ("remember", "  units, good ← what was delivered"),
    ]
    if not talks:
        return {"agent": found}
    always = settings.policy in ("fcb", "naive")
    when = (
        "after every round" if always else f"if t is one of {len(settings.report_rounds())} rounds"
    )
    this = "units and good units of this round"
    what = {"placebo": "noise alone", "fcb": this, "naive": f"{this} + noise"}.get(
        settings.policy,
        "units and good units since the last report" + (" + noise" if settings.noisy else ""),
    )
    rule = {
        "fuse": "weigh it by its variance",
        "accept": "take entries near its own estimate, with a weight",
    }
    learn = "add it up" if always else rule[settings.rule]
    spend = [("spend", "    pay for it from its budget, or refuse")] if settings.noisy else []
    found += [
        ("when", f"  {when}:"),
        *spend,
        ("report", f"    send {what} to every other agent: the same to all"),
        ("receive", "    receive the reports of all others"),
        ("learn", f"    of each report: {learn}"),
    ]
    return {"agent": found}


# Pictures -----------------------------------------------------------------------------------------


def scene(run: MarketRun | TwinRun) -> dict[str, Any]:
    """Return the picture of this moment."""
    setup, settings = run.settings.load(), run.settings
    market, terms = setup.market, setup.terms
    units, good, earned, lost, sent, bought, time = _numbers(run)
    epoch = epoch_at(market.supply, max(1, time))
    quality = market.quality[min(epoch, len(market.quality) - 1)]
    alone = _alone(run, time)
    agents = [
        {
            "name": name,
            "kind": "agent",
            "label": label(name, j, len(market.agents)),
            "weight": round(float(earned[j]), 1),
            "text": f"earned {format_number(earned[j], 0)}"
            + (f", alone {format_number(alone[j], 0)}" if alone is not None else ""),
        }
        for j, name in enumerate(market.agents)
    ]
    producers = [
        {
            "name": name,
            "kind": "producer",
            "label": name,
            "text": f"{int(units[i]):,} units",
            "weight": int(units[i]),
            "bar": mean_bar(float(good[i]), int(units[i]), float(quality[i])),
        }
        for i, name in enumerate(market.producers)
    ]
    total = float(earned.sum())
    curves = {"revenue": total, "best purchases": total + float(lost.sum())}
    if alone is not None:
        curves["alone"] = float(alone.sum())
    return {
        "parties": [*agents, *producers],
        "links": [
            ["agent", "producer"],
            *([["agent", "agent"]] if settings.policy != "alone" else []),
        ],
        "now": {"chosen": [market.producers[i] for i in np.flatnonzero(bought)]},
        "figures": [_money(total, lost, alone), *_budget(settings, sent, terms.planned)],
        "curves": curves,
    }


def label(name: str, position: int, agents: int) -> str:
    """Return what an agent is called: by an invented name where there is one for each."""
    return LABELS[position] if name == f"agent-{position + 1}" and agents <= len(LABELS) else name


def _numbers(run: MarketRun | TwinRun) -> tuple[Floats, Floats, Floats, Floats, int, Floats, int]:
    """Return units and good ones by producer, money and regret by agent, reports sent, the last
    purchase, the round.
    """
    if isinstance(run, TwinRun):
        market = run.markets[0]
        known, curves, terms = market.known, market.curves, run.settings.load().terms
        sent = (
            market.time if terms.always else sum(1 for each in terms.reports if each <= market.time)
        )
        nothing = np.zeros(known.units.shape[1])
        return (
            known.units.sum(0),
            known.good.sum(0),
            curves.earned,
            curves.lost,
            sent,
            nothing,
            market.time,
        )
    agents = agents_of(list(run.memory.roles.values()))
    secrets = [agent.reveal() for agent in agents]
    curves = run.world.curves
    return (
        sum(
            (agent.knowledge.units for agent in agents),
            np.zeros(len(run.settings.load().market.producers)),
        ),
        sum(
            (agent.knowledge.good for agent in agents),
            np.zeros(len(run.settings.load().market.producers)),
        ),
        curves.earned,
        curves.lost,
        min(one.sent for one in secrets),
        sum(
            (one.purchase for one in secrets),
            np.zeros(len(run.settings.load().market.producers)),
        ),
        run.world.reached,
    )


def _alone(run: MarketRun | TwinRun, time: int) -> Floats | None:
    """Return what each agent would have earned alone by now, in the same market: simulated once,
    and read off.
    """
    settings = run.settings
    if settings.policy == "alone" or settings.oracle != "greedy":
        return None
    seed = run.seeds[len(run.memories) - 1] if isinstance(run, MarketRun) else run.seeds[0]

    def make() -> tuple[Floats, Floats]:
        other = settings.instead(policy="alone", path="compiled").load()
        market = Simulation(
            other.market,
            other.terms,
            seed,
            coefficient=settings.coefficient,
            margin=settings.margin,
            points=min(settings.horizon, 2000),
            truth=settings.best_purchases(),
        )
        market.advance(settings.horizon)
        start = np.zeros((1, len(other.market.agents)))
        return np.append(0.0, market.curves.points), np.vstack([start, market.curves.revenue])

    rounds, money = settings.cached(f"alone {seed}", make)
    return np.array([np.interp(time, rounds, money[:, j]) for j in range(money.shape[1])])


def _money(total: float, lost: Floats, alone: Floats | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "revenue", "value": total, "of": total + float(lost.sum())}
    if alone is None:
        return {
            **found,
            "text": f"{format_number(total, 0)} earned; the best purchases earn {format_number(found['of'], 0)}",
        }
    more = total - float(alone.sum())
    words = f"{format_number(abs(more), 0)} {'more' if more >= 0 else 'less'} than alone"
    return {**found, "text": f"{format_number(total, 0)} earned together, {words}"}


def _budget(settings: DpCombinatorial, sent: int, planned: int) -> list[dict[str, Any]]:
    if settings.policy == "alone":
        return []
    text = f"{sent} of {planned} reports sent by each agent"
    if settings.policy != "placebo" and settings.noisy:
        text += (
            f"; all together cost epsilon {settings.epsilon:g} at delta {settings.delta} for unit "
            f"{settings.unit}"
        )
    return [{"name": "budget", "value": sent, "of": planned, "text": text}]


_AGENT = ("Its own costs, capacities and purchases, and how good they were.",)


def knowledge(settings: DpCombinatorial, kind: str) -> dict[str, Sequence[str]]:
    """Say what an agent or a producer knows, can never know and could find out."""
    if kind == "producer":
        could = [text for text in leaks(settings) if "producer" in text.lower()]
        return {
            "knows": ["What each agent buys from it."],
            "never": ["What agents tell each other."],
            "could": could,
        }
    heard = {
        "alone": (),
        "placebo": ("Noise of the others, which says nothing.",),
        "fcb": ("What every other agent bought and how good it was, every round.",),
    }.get(
        settings.policy,
        (
            "Of every other agent a report for each producer"
            + (", with noise." if settings.noisy else ", as it is."),
        ),
    )
    never = ["The costs and capacities of others."]
    if settings.policy in ("alone", "placebo"):
        never.append("What others bought.")
    elif settings.noisy:
        never.append(
            f"What another one bought in one {settings.unit}, better than the budget allows."
        )
    could = [text for text in leaks(settings) if "producers see" not in text.lower()]
    return {"knows": [*_AGENT, *heard], "never": never, "could": could}


# Messages -----------------------------------------------------------------------------------------


def explain(run: MarketRun, delivery: Delivery) -> dict[str, Any]:
    """Explain a greeting or a report."""
    message, settings = delivery.message, run.settings
    a, b = "{" + delivery.sender + "}", "{" + delivery.receiver + "}"
    if isinstance(message, Hello):
        step, name, says = "set-up", "Hello", f"{a} compares its terms with those of {b}."
        clear, ran = [["version", str(message.version)]], {"agent": ["hello"]}
    else:
        assert isinstance(message, Report)
        clear = _compared(run, delivery.sender, message)
        how = (
            "noise alone"
            if settings.policy == "placebo"
            else "with noise"
            if settings.noisy
            else "in the clear"
        )
        says = f"{a} reports to {b} what it bought of every producer and how much was good, {how}."
        if settings.policy == "placebo":
            says = f"{a} sends {b} a report of noise alone."
        step, name = f"report {message.number + 1}", "Report"
        ran = {"agent": ["when", "spend", "report", "receive", "learn"]}
    return {
        "step": step,
        "name": name,
        "says": says,
        "clear": clear,
        "parts": message_parts(message, _describe(run, message), KINDS),
        "lines": line_numbers(code(settings), ran),
        "chosen": None,
    }


def true_report(run: MarketRun, sender: str, report: Report) -> tuple[Floats, Floats]:
    """Return what a report would say without noise: units and good units, one a producer.

    In a simulation the noise is a function of the agent's key, the report and the producer, and is
    taken away again.
    """
    agent = run.memory.roles[sender]
    assert isinstance(agent, Agent)
    secrets = agent.reveal()
    sigma = run.settings.load().terms.multiplier(report.number) * secrets.buyer.capacity
    pairs = [secrets.noise.pair(report.number, i, float(s)) for i, s in enumerate(sigma)]
    noise = np.array(pairs).T
    return np.array(report.units) - noise[0], np.array(report.good) - noise[1]


def _compared(run: MarketRun, sender: str, report: Report) -> list[list[str]]:
    """Write the largest entries: what is true, and what was sent."""
    units, good = true_report(run, sender, report)
    names = run.settings.load().market.producers
    most = np.argsort(-np.abs(np.array(report.units)), kind="stable")[:ROWS]
    return [
        [
            names[i],
            f"true {format_number(good[i], 1)} good of {format_number(units[i], 1)}, "
            f"sent {format_number(report.good[i], 1)} of {format_number(report.units[i], 1)}",
        ]
        for i in most.tolist()
    ]


def _describe(run: MarketRun, message: Any) -> Any:
    names, noisy = (
        run.settings.load().market.producers,
        run.settings.noisy or run.settings.policy == "placebo",
    )
    at: Mapping[str, count[int]] = {field: count() for field in ("units", "good", "sigma")}
    why = (
        "noise of a known size is in it: nobody takes it out again"
        if noisy
        else "everyone who has it reads it"
    )

    def describe(kind: str, field: str, value: Any) -> Sequence[Part] | None:
        if kind == "Hello":
            return (
                [Part("digest of the terms", "clear", len(value), KINDS)]
                if field == "terms"
                else None
            )
        if field in at:
            name = (
                f"{ {'good': 'good units', 'sigma': 'noise'}.get(field, field) } of "
                f"{names[next(at[field])]}"
            )
            hidden = noisy and field != "sigma"
            return [
                Part(
                    name,
                    "noise" if hidden else "clear",
                    0,
                    () if hidden else KINDS,
                    why if hidden else "",
                )
            ]
        return [Part("number of the report", "clear", 0, KINDS)]

    return describe


# Settings to compare ------------------------------------------------------------------------------


def variants(settings: DpCombinatorial) -> list[tuple[str, DpCombinatorial]]:
    """Return the settings, the same without noise, and the other ways to learn together."""
    named_settings = [("as set", settings)]
    if settings.policy == "p-fcb" and settings.noisy:
        named_settings.append(("without noise", settings.instead(noise="none")))
    # The default start of settings without reports is after the end of a short run.
    start = settings.start
    if start > settings.horizon:
        start = max(1, settings.horizon // 10)
    others: dict[str, dict[str, Any]] = {
        "noisy reports": {"policy": "p-fcb", "start": start},
        "everything shared": {"policy": "fcb"},
        "alone": {"policy": "alone"},
    }
    for name, changes in others.items():
        if changes["policy"] != settings.policy:
            named_settings.append((name, settings.instead(**changes)))
    return named_settings


SCENE: Scene[DpCombinatorial, MarketRun | TwinRun] = Scene(
    places={"agent": (0.3, 0.5), "producer": (0.8, 0.5)},
    scenarios=SCENARIOS,
    draw=scene,
    explain=explain,
    pseudocode=lambda settings: line_texts(code(settings)),
    sources=lambda settings: SOURCES,
    knowledge=knowledge,
    variants=variants,
)
