"""Section 5.1 and claim 1: noise in every round, what it adds up to and what it costs; estimates
without noise.

The paper's baseline is FCB with noise on what is sent after every round. It is run with the least
noise that proves (1, 0.01) for one entry, which lies in one round; with the least that proves it
for all rounds composed in sequence; and with the textbook's noise for epsilon 0.01 in each round,
the paper's example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from posse.core.statistics import regret_ratio
from posse.privacy.dp.guarantee import Budget, Claim
from posse.privacy.dp.rounds import every_round
from posse.problems.markets.instances import market_instance
from posse.results import plots, words
from posse.results.record import points_of
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import run_once
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding, combined
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DELTA,
    DISTRIBUTIONS,
    FCB,
    PAPER,
    TIGHT,
    UNIT,
    Method,
    Runs,
)
from reproduction.kit import Analysis, Table, Watch, write_files

ROUNDS, RUNS = 20_000, 4
EXAMPLE_ROUNDS, EXAMPLE = 10**6, 0.01
"""The paper's example: so many rounds, with so much epsilon each."""
BOUND = 10**4
"""What the paper says they are bounded by."""
ENTRY = Method("naive, tight noise", "naive", "tight", 1.0)
SEQUENCE = Method("naive, all rounds in sequence", "naive", "equal", 1.0)
EACH = Method("naive, 0.01 each round", "naive", "paper", EXAMPLE)
METHODS = (ALONE, PAPER, TIGHT, FCB, ENTRY, SEQUENCE, EACH)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every method on the same markets."""
    size = markets.SMALL if small else replace(markets.FULL, rounds=ROUNDS, runs=RUNS)
    runs = markets.run_markets(size, size.all_places(), METHODS, watch)
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def example() -> tuple[Claim, ...]:
    """What the paper's example adds up to, by each way of adding."""
    plan = every_round(Budget(EXAMPLE, DELTA), UNIT, "paper", rounds=EXAMPLE_ROUNDS, producers=1)
    return plan.claims()


def seen_changes(seed: int = 1, rounds: int = 200) -> tuple[int, int, int]:
    """Count, for one market, rounds with and without a purchase, and how often an exact estimate
    moved in each.

    An agent alone buys; who sees its exact estimates after every round says "it bought" where one
    moved. Returns purchases that moved the estimate, all purchases, and rounds without one in which
    it moved.
    """
    market = market_instance(seed, agents=3, producers=8)
    terms = Terms(market.agents, market.producers, rounds, "alone")
    bought = run_once(market, terms, seed, trace=True)[1].trace
    right = wrong = purchases = 0
    for j in range(bought.shape[1]):
        for i in range(bought.shape[2]):
            units = good = 0.0
            for t, more in enumerate(bought[:, j, i].tolist(), 1):
                before = good / units if units else None
                good += market.good(seed, j, i, t, int(units), int(more))
                units += more
                moved = units > 0 and good / units != before
                right, wrong = right + (moved and more > 0), wrong + (moved and more == 0)
                purchases += more > 0
    return int(right), int(purchases), int(wrong)


def findings(runs: Runs) -> tuple[Finding, ...]:
    """Judge what noise in every round adds up to, what it costs, and claim 1."""
    ways, size = example(), runs.size
    added, proved = ways[0], next(way for way in ways if "sequential" in way.how)
    text = (
        f"simple sum: {added.epsilon:,.0f} (delta counted once); sequential composition: "
        f"{proved.figure}; one entry, which "
        f"is in one round: {ways[-1].figure}"
    )
    right, purchases, wrong = seen_changes()
    moved = (
        f"{right:,} of {purchases:,} purchases changed the exact estimate; {wrong} rounds "
        "without a purchase changed it"
    )
    worse, helps = [], []
    for d in DISTRIBUTIONS:
        alone, sequence, entry = (
            runs.at_end(size.places(d), method) for method in (ALONE, SEQUENCE, ENTRY)
        )
        judged = looks.saves(d, regret_ratio(alone, sequence), size.instances)
        worse.append(replace(judged, measured=f"FRR {regret_ratio(sequence, alone)}"))
        judged = looks.saves(d, regret_ratio(alone, entry), size.instances)
        helps.append(
            replace(judged, measured=f"FRR {regret_ratio(entry, alone)} at {ENTRY.privacy(size)}")
        )
    return (
        Finding("composition", text, HOLDS if proved.epsilon <= BOUND else FAILS),
        combined("more-noise", worse),
        combined("not-helpful", helps),
        Finding("claim1", moved, HOLDS if right and not wrong else FAILS),
    )


def analyse(runs: Runs, out: Path) -> Analysis:
    """Write rows and figure, and say what noise in every round costs."""
    files = write_files(out, "naive", runs.rows(), naive_figure(runs))
    notes = (
        looks.instances_words(runs.size),
        "Reports of every round are added up as they are, negative ones too: dropping those would "
        "leave a sum that is "
        "too large. A sum of no units counts as nothing known.",
        "The paper adds up the epsilons of all rounds. Its definition of privacy is about one "
        "entry, which lies in one "
        "round and so in one report: for that, rounds do not add up. For what shows over many "
        "rounds they do.",
        f"Messages: {runs.size.rounds:,} reports an agent, where P-FCB has "
        f"{len(markets.reports_of(runs.size))}.",
        looks.privacy_words(runs.size),
        f"Time: {looks.cost_words(runs.cost)}",
    )
    return Analysis(
        headline(runs), (naive_table(runs), sums_table(runs)), notes, files, findings(runs)
    )


def together(method: Method, size: markets.Size) -> str:
    """What all reports of a method prove, composed in sequence."""
    if not method.noise:
        return "none" if method.kind == "fcb" else words.UNKNOWN
    return method.plan(size).guarantee(composition="sequential").figure


def naive_table(runs: Runs) -> Table:
    """Regret and privacy of every method."""
    rows = []
    for d in DISTRIBUTIONS:
        places = runs.size.places(d)
        for method in METHODS:
            mine, alone = (runs.at_end(places, m) for m in (method, ALONE))
            rows.append(
                (
                    d,
                    method.name,
                    method.privacy(runs.size),
                    together(method, runs.size),
                    words.number(float(mine.mean())),
                    looks.against(mine, alone),
                )
            )
    columns = (
        "distribution",
        "method",
        "privacy",
        "all reports in sequence",
        "regret an agent, mean",
        "FRR, median",
    )
    return Table("Noise in every round and noise at a few", columns, tuple(rows))


def sums_table(runs: Runs) -> Table:
    """Every way of adding up, for the paper's example and for the noise that was run."""

    def lines(name: str, made: Sequence[Claim]) -> list[tuple[str, ...]]:
        return [(name, one.how, one.figure, "yes" if one.proved else "no") for one in made]

    rows = lines(f"paper's example, {EXAMPLE:g} each round", example())
    rows += lines(ENTRY.name, ENTRY.plan(runs.size).claims())
    return Table(
        "What noise in every round adds up to",
        ("noise", "how", "(epsilon, delta)", "a proof"),
        tuple(rows),
    )


def headline(runs: Runs) -> str:
    """Say what each kind of noise in every round leaves of the regret."""
    said = []
    for d in DISTRIBUTIONS:
        places = runs.size.places(d)
        parts = [
            f"{m.name} {runs.ratio(places, m).estimate:.2f}" for m in (TIGHT, ENTRY, SEQUENCE, EACH)
        ]
        said.append(f"{d}: {', '.join(parts)}")
    return f"FRR, medians of instances. {'. '.join(said)}."


def naive_figure(runs: Runs) -> plots.Figure:
    """Draw regret over rounds, a panel a distribution."""
    size = runs.size
    figure, (row,) = looks.columns(1, 4.8, share_y=False)
    x = points_of(size.rounds, markets.POINTS) / 1000
    for distribution, ax in row.items():
        plots.style(ax, x="round (thousands)", y="regret an agent, mean (thousands)")
        kit.title(ax, f"{distribution}, n = {size.agents}, m = {size.producers}")
        for method in METHODS:
            mine = runs.curves(size.places(distribution), method).mean(axis=1) / 1000
            looks.curve(ax, x, markets.band(mine), looks.line(method), method.name, filled=False)
        kit.log_axis(
            ax, [float(np.mean(runs.at_end(size.places(distribution), m))) / 1000 for m in METHODS]
        )
    kit.legend(
        figure,
        row[DISTRIBUTIONS[0]],
        4,
        f"{size.instances} instances, {size.runs} runs each.\n{looks.privacy_note(size)}",
    )
    return figure


NAIVE = markets.REFERENCE.experiment(
    "naive", "P-FCB, section 5.1: noise in every round", ("regret", "privacy"), sweep
)
