"""EXP2 (figure 4): federated regret ratio (FRR) against the privacy that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from posse.core.statistics import Interval
from posse.privacy.dp.schedules import paper_split
from posse.problems.markets.instances import Distribution
from posse.results import plots, words
from posse.results.plots import DASHES
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DELTA,
    DISTRIBUTIONS,
    PAPER,
    TIGHT,
    UNIT,
    Runs,
)
from reproduction.kit import Analysis, Table, Watch, mean_of, write_files

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SMALL_EPSILONS = (0.5, 2.0)
LEVELS = (markets.ALONE_HALF, markets.CLEAR, markets.FCB)
"""Methods that do not depend on epsilon, as lines to compare with."""
SHOWN = 0.01
"""Smallest epsilon on the axis; less is proved for the published noise at small budgets."""
TICKS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

Levels = dict[tuple[str, str], Interval]
"""FRR of what does not depend on epsilon, by distribution and method."""


@dataclass(frozen=True)
class Cell:
    """FRR of both kinds of noise where the same epsilon is asked for."""

    distribution: str
    epsilon: float
    proved: float
    """Epsilon that is proved for the published noise; for tight noise it is the one asked for."""
    paper: Interval
    tight: Interval


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run both kinds of noise at every epsilon, and the lines."""
    size, epsilons = (markets.SMALL, SMALL_EPSILONS) if small else (markets.FEWER, EPSILONS)
    methods = (
        ALONE,
        *LEVELS,
        *(make(epsilon) for epsilon in epsilons for make in (markets.paper, markets.tight)),
    )
    runs = markets.run_markets(size, size.all_places(), methods, watch)
    watch("figure and analysis", 1.0)
    return analyse(runs, epsilons, out)


def analyse(runs: Runs, epsilons: Sequence[float], out: Path) -> Analysis:
    """Write rows and figure, and say whether regret falls as the budget grows."""
    size, places = runs.size, {d: runs.size.places(d) for d in DISTRIBUTIONS}
    cells = [
        Cell(d, e, paper.proved(size), runs.ratio(places[d], paper), runs.ratio(places[d], tight))
        for d in DISTRIBUTIONS
        for e, paper, tight in ((e, markets.paper(e), markets.tight(e)) for e in epsilons)
    ]
    levels: Levels = {
        (d, method.name): runs.ratio(places[d], method) for d in DISTRIBUTIONS for method in LEVELS
    }
    files = write_files(out, "exp2", runs.rows(), budget_figure(cells, levels, size))
    notes = (
        looks.instances_words(size),
        f"Every epsilon is at delta {DELTA:g} for one {UNIT}. For the published noise `asked` is "
        "what the paper claims "
        "and `proved` is what its noise proves; where that is 0, delta alone covers what can be "
        "told. For tight noise "
        "both are the same.",
        _textbook(size, epsilons),
        "The paper prints figure 4 as a picture, without numbers in its text.",
        f"Time: {looks.cost_words(runs.cost)}",
    )
    body = tuple((distribution, name, str(frr)) for (distribution, name), frr in levels.items())
    table = Table("FRR of what does not depend on epsilon", ("distribution", "method", "FRR"), body)
    return Analysis(
        headline(cells), (budget_table(cells), table), notes, files, findings(cells, runs)
    )


def findings(cells: Sequence[Cell], runs: Runs) -> tuple[Finding, ...]:
    """Judge the fall of FRR with the budget asked for, by the published noise.

    It falls where the regret at the largest budget is below that at the smallest, instance by
    instance. It falls sub-linearly where the slope over the first step of budgets is steeper than
    over the last.
    """
    falls_, bends, small = [], [], []
    count = runs.size.instances
    for distribution in DISTRIBUTIONS:
        own = [cell for cell in cells if cell.distribution == distribution]
        first, last = own[0], own[-1]
        ratio = runs.ratio(
            runs.size.places(distribution),
            markets.paper(last.epsilon),
            markets.paper(first.epsilon),
        )
        text = (
            f"FRR {first.paper} at epsilon {first.epsilon:g} and {last.paper} at {last.epsilon:g}, "
            "ratio of the regrets "
        )
        judged = looks.saves(distribution, ratio, count)
        falls_.append(replace(judged, measured=f"{text}{ratio}"))
        bends.append(bends_down(distribution, [cell.epsilon for cell in own], runs))
        small += [
            looks.saves(f"{distribution}, epsilon {c.epsilon:g}", c.paper, count)
            for c in own
            if c.epsilon < 1
        ]
    made = (("falls", falls_), ("sublinear", bends), ("below-one", small))
    return tuple(claims.combined(name, parts) for name, parts in made)


def bends_down(distribution: Distribution, epsilons: Sequence[float], runs: Runs) -> Finding:
    """Judge that FRR falls faster, a unit of epsilon, over the first step of budgets than over the
    last.
    """
    places = runs.size.places(distribution)
    alone = runs.at_end(places, ALONE).mean(axis=1)
    frr = np.stack(
        [runs.at_end(places, markets.paper(e)).mean(axis=1) / alone for e in epsilons], axis=1
    )
    slopes = -np.diff(frr, axis=1) / np.diff(epsilons)
    first, last, more = (
        mean_of(one) for one in (slopes[:, 0], slopes[:, -1], slopes[:, 0] - slopes[:, -1])
    )
    text = (
        f"FRR falls by {first.text(3)} per unit of epsilon over the first step and by {last.text(3)} "
        "over the last"
    )
    if slopes.shape[1] < 2:
        return Finding(distribution, text, UNKNOWN, "two budgets have one slope")
    if more.low > 0 or more.high < 0:
        return Finding(distribution, text, HOLDS if more.low > 0 else FAILS)
    many = looks.enough(len(places), more.half, abs(more.mean))
    return Finding(
        distribution, text, UNKNOWN, f"the interval of the difference includes 0, and {many}"
    )


def _textbook(size: markets.Size, epsilons: Sequence[float]) -> str:
    """Say at which budgets the published noise leaves the range of the formula it is made with."""
    count = len(markets.reports_of(size))
    beyond = [e for e in epsilons if max(paper_split(e, size.rounds, count)) >= 1]
    where = f"at epsilon {words.listed([f'{e:g}' for e in beyond])}" if beyond else "nowhere here"
    return (
        "The published noise is made with the textbook's formula, which is proved for an epsilon "
        "below 1 a message. "
        f"Its split gives some message more than that {where}; what we say is proved does not rest "
        "on the formula."
    )


def budget_table(cells: Sequence[Cell]) -> Table:
    """FRR at every epsilon."""
    body = tuple(
        (
            c.distribution,
            f"({c.epsilon:g}, {DELTA:g})",
            f"({c.proved:g}, {DELTA:g})",
            str(c.paper),
            str(c.tight),
            f"{c.tight.estimate / c.paper.estimate:.2f}",
        )
        for c in cells
    )
    columns = (
        "distribution",
        f"asked, unit {UNIT}",
        "proved for paper noise",
        "FRR, paper noise",
        "FRR, tight noise",
        "tight over paper",
    )
    return Table("FRR at the last round against the budget, medians of instances", columns, body)


def falls(values: Sequence[float]) -> str:
    """Say at how many steps a sequence falls.

    >>> falls([0.9, 0.8, 0.85])
    '1 of 2'
    """
    return f"{sum(b < a for a, b in pairwise(values))} of {len(values) - 1}"


def headline(cells: Sequence[Cell]) -> str:
    """Say whether regret falls as epsilon grows, as published, and from where to where."""
    said = []
    for distribution in dict.fromkeys(cell.distribution for cell in cells):
        own = [cell for cell in cells if cell.distribution == distribution]
        parts = []
        for name in ("paper", "tight"):
            frr = [getattr(cell, name).estimate for cell in own]
            parts.append(
                f"{name} noise {frr[0]:.2f} to {frr[-1]:.2f}, falling at {falls(frr)} steps"
            )
        said.append(f"{distribution}: {'; '.join(parts)}")
    low, high = cells[0].epsilon, cells[-1].epsilon
    return (
        f"FRR as the epsilon asked for grows from {low:g} to {high:g} (delta {DELTA:g}, unit "
        f"{UNIT}). "
        f"{'. '.join(said)}."
    )


def budget_figure(cells: Sequence[Cell], levels: Levels, size: markets.Size) -> plots.Figure:
    """Draw FRR against epsilon, as asked for and as proved, a panel a distribution."""
    figure, (row,) = looks.columns(1, 5.0)
    for distribution, ax in row.items():
        plots.style(
            ax,
            x=f"epsilon (logarithmic), at delta {DELTA:g}, unit {UNIT}",
            y="FRR: regret over regret alone",
        )
        kit.title(
            ax, f"{distribution}, n = {size.agents}, m = {size.producers}, T = {size.rounds:,}"
        )
        _curves(ax, [cell for cell in cells if cell.distribution == distribution])
        for method in LEVELS:
            ax.axhline(
                levels[distribution, method.name].estimate, label=method.name, **looks.line(method)
            )
        ax.axhline(1.0, label=ALONE.name, **looks.line(ALONE))
        ax.set_xscale("log")
        ticks = [tick for tick in TICKS if tick <= max(cell.epsilon for cell in cells)]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_ylim(bottom=0.0)
    note = f"Medians of {size.instances} instances, {size.runs} runs each; {looks.INTERVAL}"
    kit.legend(figure, row[DISTRIBUTIONS[0]], 3, note)
    return figure


def _curves(ax: plots.Axes, cells: Sequence[Cell]) -> None:
    x = np.array([cell.epsilon for cell in cells])
    for method, name, what in (
        (PAPER, "paper", "at what it claims"),
        (TIGHT, "tight", "at what it proves"),
    ):
        ratios: list[Interval] = [getattr(cell, name) for cell in cells]
        estimate, low, high = np.array([(one.estimate, one.low, one.high) for one in ratios]).T
        style = looks.line(method) | looks.dots(method)
        looks.curve(ax, x, (estimate, low, high), style, f"{method.name}, {what}")
    shown = [cell for cell in cells if cell.proved >= SHOWN]
    ax.plot(
        [cell.proved for cell in shown],
        [cell.paper.estimate for cell in shown],
        label=f"{PAPER.name}, at what it proves",
        markerfacecolor="white",
        **(looks.line(PAPER) | looks.dots(PAPER) | {"linestyle": DASHES[1]}),
    )


EXP2 = markets.REFERENCE.experiment(
    "exp2",
    "P-FCB, EXP2 (figure 4): regret ratio against the privacy budget",
    ("regret", "privacy"),
    sweep,
)
