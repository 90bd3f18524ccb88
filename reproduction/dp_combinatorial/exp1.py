"""EXP1 (figure 3): regret over rounds, with and without federation, and the published ratios beside
ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posse.core.statistics import Interval
from posse.results import plots, words
from posse.results.record import points_of
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DISTRIBUTIONS,
    FCB,
    PAPER,
    TIGHT,
    Cost,
    Method,
    Runs,
)
from reproduction.kit import Analysis, Table, Watch, write_files

PUBLISHED = {
    "uniform": {"P-FCB, paper noise": 2.36, "alone": 3.33},
    "normal": {"P-FCB, paper noise": 3.35, "alone": 4.94},
}
"""Regret at round 100,000 over that of FCB (section 6.2, EXP1: 136 %, 233 %, 235 % and 394 % more);
other results are printed as pictures only.
"""
PUBLISHED_METHODS = (ALONE, PAPER, FCB)
"""What the paper ran: 3 methods, 2 distributions, 5 instances, 20 runs."""
FILLED = {ALONE, PAPER, TIGHT, FCB}
"""Methods whose intervals are drawn; more would cover each other."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the paper's methods as often as it did, timed for themselves, and the others on the first
    seeds of these.
    """
    size, fewer = (markets.SMALL, markets.SMALL) if small else (markets.FULL, markets.FEWER)
    extra = (
        markets.ALONE_HALF,
        markets.PLACEBO,
        markets.matched(size),
        TIGHT,
        markets.FUSED,
        markets.CLEAR,
        markets.TIGHT_HALF,
    )
    own = len(PUBLISHED_METHODS) * size.runs
    share = own / (own + len(extra) * fewer.runs)
    first = markets.run_markets(size, size.all_places(), PUBLISHED_METHODS, watch, 0.0, share)
    second = markets.run_markets(fewer, fewer.all_places(), extra, watch, share)
    watch("figure and analysis", 1.0)
    every = Runs(fewer, first.first(fewer).outcomes | second.outcomes, second.cost)
    return analyse(first, every, (*PUBLISHED_METHODS, *extra), out)


def analyse(published: Runs, runs: Runs, methods: Sequence[Method], out: Path) -> Analysis:
    """Write rows and figure, and put the published ratios beside ours; `runs` has all methods, on
    fewer seeds.
    """
    compared = comparisons(published)
    rows = published.rows() + [
        row for row in runs.rows() if row["method"] not in {m.name for m in PUBLISHED_METHODS}
    ]
    files = write_files(out, "exp1", rows, regret_figure(runs, methods))
    tables = (
        published_table(compared),
        method_table(runs, methods),
        time_table(published.cost, runs.cost),
    )
    notes = (
        looks.instances_words(published.size),
        f"The published ratios are of {words.count(published.size.runs, 'run')} an instance, as in "
        "the paper; the "
        f"table of all methods and the figure use the first {runs.size.runs}.",
        f"{runs.size.instances} instances are few, here as in the paper: intervals over so few "
        "cover less than 95 %, "
        "are wide, and agree with many values; other samples of five would give other ratios. "
        "`dp-combinatorial/order` draws random samples of five from many instances and shows their "
        "spread.",
        looks.privacy_words(runs.size),
        _honest(runs),
        f"The paper's part: {looks.cost_words(published.cost)}",
    )
    return Analysis(agreement(compared), tables, notes, files, findings(published.size, compared))


# The published numbers, and whether ours agree: whether a number lies in our interval.


@dataclass(frozen=True)
class Comparison:
    """A published ratio beside ours."""

    distribution: str
    method: str
    published: float
    means: Interval
    """Ratio of means over instances: what the paper reports."""
    median: Interval
    """Median over instances of their ratios."""


def comparisons(runs: Runs) -> tuple[Comparison, ...]:
    """Put every published ratio beside ours."""
    made = []
    for distribution in DISTRIBUTIONS:
        places = runs.size.places(distribution)
        for method in (PAPER, ALONE):
            means = markets.ratio_of_means(runs.at_end(places, method), runs.at_end(places, FCB))
            published = PUBLISHED[distribution][method.name]
            made.append(
                Comparison(
                    distribution, method.name, published, means, runs.ratio(places, method, FCB)
                )
            )
    return tuple(made)


def verdict(published: float, ours: Interval) -> str:
    """Say where a published number lies.

    >>> one = Interval(2.0, 1.5, 2.5, level=0.95, resamples=4000, over="instances")
    >>> verdict(2.4, one), verdict(2.6, one), verdict(1.4, one)
    ('inside', 'outside: published is larger', 'outside: published is smaller')
    """
    if not ours.known:
        return "no interval"
    if ours.low <= published <= ours.high:
        return "inside"
    return f"outside: published is {'larger' if published > ours.high else 'smaller'}"


def agreement(compared: Sequence[Comparison]) -> str:
    """Say in one sentence how many published numbers lie in our intervals, and which do not."""
    out = [one for one in compared if verdict(one.published, one.means) != "inside"]
    sentence = (
        f"{len(compared) - len(out)} of {len(compared)} published ratios to FCB lie in our 95 % "
        "intervals (ratios of "
        "means, bootstrap over instances)"
    )
    if not out:
        return f"{sentence}."
    named = "; ".join(
        f"{one.distribution}, {one.method}: published {one.published}, ours {one.means}"
        for one in out
    )
    return f"{sentence}; we disagree on {named}."


def judged(one: Comparison, instances: int) -> Finding:
    """Judge a published ratio: it holds where it lies in our interval and that of the other method
    does not.

    An interval that holds both published numbers cannot tell P-FCB from agents alone.
    """
    text, lies = (
        f"{one.means} times, published {one.published:g}",
        verdict(one.published, one.means),
    )
    if lies != "inside":
        return Finding(one.method, text, UNKNOWN if lies == "no interval" else FAILS, lies)
    name, other = next(
        (name, ratio) for name, ratio in PUBLISHED[one.distribution].items() if name != one.method
    )
    if verdict(other, one.means) != "inside":
        return Finding(one.method, text, HOLDS)
    half, away = math.log(one.means.high / one.means.low) / 2, abs(math.log(other / one.published))
    many = looks.enough(instances, half, away)
    return Finding(
        one.method,
        text,
        UNKNOWN,
        f"the interval also includes {other:g}, the published value of {name}, and {many}",
    )


def findings(size: markets.Size, compared: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Judge the published ratios, and what the published noise proves."""
    made = [
        claims.combined(
            d, [judged(one, size.instances) for one in compared if one.distribution == d]
        )
        for d in DISTRIBUTIONS
    ]
    proved = PAPER.proved(size)
    words_ = f"({proved:g}, {markets.DELTA:g}) is proved for one {markets.UNIT}"
    return (*made, Finding("algorithm2", words_, HOLDS if proved <= 1 else FAILS))


def published_table(compared: Sequence[Comparison]) -> Table:
    """Say for every published ratio whether it lies in our intervals."""
    rows = tuple(
        (
            one.distribution,
            one.method,
            f"{one.published:g}",
            str(one.means),
            verdict(one.published, one.means),
            str(one.median),
            verdict(one.published, one.median),
        )
        for one in compared
    )
    columns = (
        "distribution",
        "method",
        "published",
        "ours, ratio of means",
        "published lies",
        "ours, median of instances",
        "published lies",
    )
    return Table(
        "Regret over that of FCB at the last round, 95 % intervals over instances", columns, rows
    )


# All methods.


def method_table(runs: Runs, methods: Sequence[Method]) -> Table:
    """Every method, with its privacy."""
    rows = []
    for distribution in DISTRIBUTIONS:
        places = runs.size.places(distribution)
        alone, fcb = (runs.at_end(places, method) for method in (ALONE, FCB))
        for method in methods:
            mine = runs.at_end(places, method)
            missed = sum(float(runs.of(place, method).missed.mean()) for place in places) / len(
                places
            )
            share = missed / runs.size.rounds
            rows.append(
                (
                    distribution,
                    method.name,
                    method.privacy(runs.size),
                    words.number(float(mine.mean())),
                    looks.against(mine, alone),
                    "1" if method == FCB else str(markets.ratio_of_means(mine, fcb)),
                    f"{100 * share:.2g} %" if share >= 1e-5 else "below 0.001 %",
                )
            )
    columns = (
        "distribution",
        "method",
        "privacy",
        "regret an agent, mean",
        "FRR, median",
        "over FCB, ratio of means",
        "rounds below the threshold",
    )
    return Table("All methods at the last round", columns, tuple(rows))


def time_table(first: Cost, second: Cost) -> Table:
    """What the paper's part and ours took."""
    rows = tuple(
        (
            part,
            f"{cost.runs:,}",
            f"{cost.agent_rounds:,}",
            words.seconds(cost.wall),
            words.seconds(cost.cpu),
            f"{cost.speed / 1e6:.2f} million",
            f"{cost.cores:.2f}",
        )
        for part, cost in (
            ("the paper's methods: alone, P-FCB, FCB", first),
            ("the other methods", second),
        )
    )
    columns = (
        "part",
        "runs",
        "agent-rounds",
        "wall",
        "CPU",
        "agent-rounds a second of CPU",
        "cores in use",
    )
    return Table("Time", columns, rows)


def _honest(runs: Runs) -> str:
    """Say how the cheapest baseline does beside federation, and what federation adds to it."""
    alone, joined = [], []
    for distribution in DISTRIBUTIONS:
        places = runs.size.places(distribution)
        half, paper, tight, both = (
            runs.at_end(places, m).mean()
            for m in (markets.ALONE_HALF, PAPER, TIGHT, markets.TIGHT_HALF)
        )
        alone.append(
            f"{distribution} {half / paper:.2f} (paper noise) and {half / tight:.2f} (tight noise)"
        )
        joined.append(f"{distribution} {both / half:.2f}")
    return (
        "Nobody needs a federation to explore less: the mean regret of agents alone with "
        "coefficient 0.5 instead of 1, "
        f"over that of P-FCB with coefficient 1, is {'; '.join(alone)}. Where all explore with "
        "0.5, the mean regret of "
        f"P-FCB (tight noise) over that alone is {'; '.join(joined)}."
    )


def regret_figure(runs: Runs, methods: Sequence[Method]) -> plots.Figure:
    """Draw regret over rounds above, and what it is of the regret alone below; means or medians
    over instances.
    """
    size = runs.size
    figure, (above, below) = looks.columns(2, 8.2, share_y=False)
    x = points_of(size.rounds, markets.POINTS) / 1000
    for distribution in DISTRIBUTIONS:
        top, bottom = above[distribution], below[distribution]
        plots.style(top, x="round (thousands)", y="regret an agent, mean (thousands)")
        plots.style(bottom, x="round (thousands)", y="FRR: regret over regret alone, median")
        kit.title(top, f"{distribution}, n = {size.agents}, m = {size.producers}")
        places = size.places(distribution)
        alone = runs.curves(places, ALONE)
        for method in methods:
            mine, style, filled = runs.curves(places, method), looks.line(method), method in FILLED
            looks.curve(
                top, x, markets.band(mine.mean(axis=1) / 1000), style, method.name, filled=filled
            )
            if method != ALONE:
                looks.curve(
                    bottom, x, markets.band_of_ratio(mine, alone), style, method.name, filled=filled
                )
        bottom.axhline(1.0, **looks.line(ALONE))
        bottom.set_ylim(0.0, 1.3)
        top.set_ylim(bottom=0.0)
    note = (
        f"{size.instances} instances, {size.runs} runs each. Bands: 95 % bootstrap intervals over "
        "instances, of the "
        f"paper's methods and tight noise.\n{looks.privacy_note(size, same=True)}"
    )
    kit.legend(figure, above[DISTRIBUTIONS[0]], 3, note)
    return figure


EXP1 = markets.REFERENCE.experiment(
    "exp1", "P-FCB, EXP1 (figure 3): regret over rounds", ("regret", "privacy"), sweep
)
