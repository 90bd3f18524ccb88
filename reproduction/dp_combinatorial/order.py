"""Must hold: alone > P-FCB > FCB in regret, on fresh instances; and what tight noise is worth
beside the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from posse.core.statistics import Interval, regret_ratio
from posse.results import plots, words
from reproduction import claims, kit
from reproduction.claims import Finding
from reproduction.dp_combinatorial import looks, markets, ranking
from reproduction.dp_combinatorial.exp1 import PUBLISHED
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DELTA,
    FCB,
    PAPER,
    TIGHT,
    UNIT,
    Runs,
    Size,
)
from reproduction.dp_combinatorial.ranking import FIRST, SAVING, SHARE, Break, Fresh, Ranking
from reproduction.kit import Analysis, Floats, Table, Watch, write_files

INSTANCES, RUNS = 30, 2
SMALL_INSTANCES = 3
FIVES = 4000
"""Random fives drawn."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run all methods on the fresh instances, and look closer at those that break the order."""
    full = replace(markets.FULL, instances=INSTANCES, runs=RUNS)
    size = replace(markets.SMALL, instances=SMALL_INSTANCES) if small else full
    instances = [
        ranking.fresh_instances(distribution, size) for distribution in markets.DISTRIBUTIONS
    ]
    places = [place for one in instances for place in one.kept]
    runs = markets.run_markets(size, places, ranking.methods(size), watch, end=0.95)
    watch("instances that break the order", 0.95)
    breaks = [broken for one in instances for broken in ranking.breaks_of(one, runs)]
    watch("figure and analysis", 1.0)
    return analyse(runs, instances, breaks, out)


def analyse(runs: Runs, instances: Sequence[Fresh], breaks: Sequence[Break], out: Path) -> Analysis:
    """Write rows and figure, and say which targets are reached."""
    rankings = [ranking.ranking(one, runs) for one in instances]
    seen = [ranking.near(place, runs) for one in instances for place in one.kept]
    files = write_files(out, "order", runs.rows(), order_figure(rankings, runs.size))
    tables = (
        order_table(rankings),
        noise_table(rankings, runs.size),
        ratio_table(rankings, runs.size),
        fives_table(rankings),
        ranking.near_table(seen),
        *([break_table(breaks)] if breaks else []),
    )
    told = (*notes(instances, breaks, runs), ranking.near_words(seen, rankings))
    return Analysis(headline(rankings), tables, told, files, (ordered(rankings),))


def ordered(rankings: Sequence[Ranking]) -> Finding:
    """Judge the order: both steps of it in the median of each distribution, and in nine of ten
    instances.
    """
    parts = []
    for one in rankings:
        for what, mine, base in (
            ("P-FCB over alone", one.paper, one.alone),
            ("FCB over P-FCB", one.fcb, one.paper),
        ):
            parts.append(
                looks.saves(f"{one.distribution}, {what}", regret_ratio(mine, base), len(one.seeds))
            )
    held = [held for one in rankings for held in one.holds]
    return claims.combined("order", [*parts, looks.share("instances in order", held, SHARE)])


def share_words(holds: Sequence[bool]) -> str:
    """Write a share and whether it reaches the target.

    >>> share_words([True] * 9 + [False]), share_words([True, False])
    ('9 of 10 (90 %): reached', '1 of 2 (50 %): missed')
    """
    share = sum(holds) / len(holds)
    return (
        f"{sum(holds)} of {len(holds)} ({100 * share:.0f} %): "
        f"{'reached' if share >= SHARE else 'missed'}"
    )


def saving_words(ratio: Interval) -> str:
    """Say whether tight noise saves what it should, from regret with tight over regret with paper
    noise.

    >>> saving_words(Interval(0.70, 0.60, 0.85, level=0.95, resamples=1, over="instances"))
    'reached by the median, not by the whole interval'
    """
    if ratio.estimate > 1 - SAVING:
        return "missed"
    return "reached by the " + (
        "whole interval" if ratio.high <= 1 - SAVING else "median, not by the whole interval"
    )


def order_table(rankings: Sequence[Ranking]) -> Table:
    """How often the order holds."""
    rows: list[tuple[str, str, str]] = [
        (
            one.distribution,
            share_words(one.holds),
            ", ".join(
                str(seed) for seed, held in zip(one.seeds, one.holds, strict=True) if not held
            )
            or "none",
        )
        for one in rankings
    ]
    rows.append(("both", share_words([held for one in rankings for held in one.holds]), ""))
    title = f"Regret alone > P-FCB (paper noise) > FCB: target {100 * SHARE:g} % of instances"
    return Table(title, ("distribution", "instances in order", "out of order"), tuple(rows))


def noise_table(rankings: Sequence[Ranking], size: Size) -> Table:
    """Tight noise and paper noise, at the same claimed and at the same proved figure."""
    proved = f"({PAPER.proved(size):g}, {DELTA:g})"
    rows = []
    for one in rankings:
        claimed, same = regret_ratio(one.tight, one.paper), regret_ratio(one.matched, one.paper)
        rows += [
            (
                one.distribution,
                f"claimed (1, {DELTA:g})",
                f"(1, {DELTA:g})",
                proved,
                str(claimed),
                saving_words(claimed),
            ),
            (one.distribution, f"proved {proved}", proved, proved, str(same), "no target"),
        ]
    columns = (
        "distribution",
        "the same",
        "tight noise proves",
        "paper noise proves",
        "regret with tight over with paper, median",
        f"target: {100 * SAVING:g} % less",
    )
    return Table(f"Tight noise and paper noise, unit {UNIT}", columns, tuple(rows))


def ratio_table(rankings: Sequence[Ranking], size: Size) -> Table:
    """FRR and ratios to FCB of every method."""
    rows = []
    for one in rankings:
        regrets = {PAPER: one.paper, TIGHT: one.tight, markets.matched(size): one.matched}
        for method, mine in regrets.items():
            rows.append(
                (
                    one.distribution,
                    method.name,
                    method.privacy(size),
                    str(regret_ratio(mine, one.alone)),
                    str(markets.ratio_of_means(mine, one.fcb)),
                    str(regret_ratio(mine, one.fcb)),
                )
            )
        rows += [
            (
                one.distribution,
                "FCB",
                "none: in the clear",
                str(regret_ratio(one.fcb, one.alone)),
                "1",
                "1",
            ),
            (
                one.distribution,
                "alone",
                "nothing is sent",
                "1",
                str(markets.ratio_of_means(one.alone, one.fcb)),
                str(regret_ratio(one.alone, one.fcb)),
            ),
        ]
    columns = (
        "distribution",
        "method",
        "privacy",
        "FRR, median",
        "over FCB, ratio of means",
        "over FCB, median",
    )
    return Table("Ratios of regret, 95 % intervals over instances", columns, tuple(rows))


def break_table(breaks: Sequence[Break]) -> Table:
    """Every instance out of order."""
    rows = tuple(
        (
            one.distribution,
            str(one.seed),
            words.number(one.alone),
            words.number(one.paper),
            words.number(one.fcb),
            "P-FCB not below alone" if one.paper >= one.alone else "FCB not below P-FCB",
            f"{one.runs} of {one.of}",
            f"{one.worse} of {one.agents}, the worst {one.worst:.2f} times",
            str(one.seen),
        )
        for one in breaks
    )
    columns = (
        "distribution",
        "instance",
        "alone",
        "P-FCB, paper noise",
        "FCB",
        "what breaks",
        "runs out of order",
        "agents that lose by taking part",
        "their estimates at the last round",
    )
    return Table("Instances out of order (regret an agent)", columns, rows)


def headline(rankings: Sequence[Ranking]) -> str:
    """Say which targets are reached."""
    both = [held for one in rankings for held in one.holds]
    each = []
    for one in rankings:
        claimed, proved = regret_ratio(one.tight, one.paper), regret_ratio(one.matched, one.paper)
        each.append(
            f"{one.distribution} {claimed} at the same claimed (1, {DELTA:g}) (target of "
            f"{100 * SAVING:g} % less "
            f"{saving_words(claimed)}), {proved} at the same proved figure"
        )
    return (
        f"The order alone > P-FCB > FCB holds in {share_words(both)}. Regret with tight noise over "
        "that with paper "
        f"noise, unit {UNIT}: {'; '.join(each)}. {published_words(fives(rankings))}"
    )


def notes(instances: Sequence[Fresh], breaks: Sequence[Break], runs: Runs) -> tuple[str, ...]:
    """What a reader must know about the order."""
    size = runs.size
    skipped = "; ".join(
        f"{one.distribution}: {FIRST} to {one.kept[-1].seed} without "
        f"{', '.join(map(str, one.skipped)) or 'exception'}"
        for one in instances
    )
    return (
        "Instances are consecutive seeds, without those whose quality constraint binds "
        f"({skipped}): "
        f"{size.instances} of each distribution, {words.count(size.runs, 'run')} each, the same "
        "seeds for every "
        "method. Whether it binds is known before anything is run.",
        looks.privacy_words(size),
        _why(breaks),
        f"Time: {looks.cost_words(runs.cost)}",
    )


def _why(breaks: Sequence[Break]) -> str:
    if not breaks:
        return "No instance is out of order."
    losing = [one for one in breaks if one.paper >= one.alone]
    seen = [one for one in losing if one.seen.left + one.seen.kept > 0]
    return (
        f"{words.count(len(breaks), 'instance')} out of order, in {len(losing)} because P-FCB has "
        "not less regret than "
        f"alone; in {len(seen)} of these some agent's decision about a producer is wrong at the "
        "last round because "
        "noise that it accepted keeps its estimate away from the true value. Reports count ten times when "
        "accepted, and are "
        "accepted when their ratio is near the agent's own estimate, however large their noise is."
    )


# What a paper with five instances could have found: random fives, drawn from many instances.


@dataclass(frozen=True)
class Five:
    """Where a published ratio lies among those of random fives."""

    distribution: str
    what: str
    low: float
    high: float
    published: float

    @property
    def where(self) -> str:
        """Inside the range of 95 % of random fives, or outside."""
        return "inside" if self.low <= self.published <= self.high else "outside"


def fives(rankings: Sequence[Ranking]) -> list[Five]:
    """Every published ratio; that of P-FCB over alone follows from the two that are printed."""
    made = []
    for one in rankings:
        printed = PUBLISHED[one.distribution]
        paper, alone = printed[PAPER.name], printed[ALONE.name]
        for what, mine, base, published in (
            ("P-FCB over FCB", one.paper, one.fcb, paper),
            ("alone over FCB", one.alone, one.fcb, alone),
            ("P-FCB over alone", one.paper, one.alone, paper / alone),
        ):
            made.append(Five(one.distribution, what, *spread_of_fives(mine, base), published))
    return made


def spread_of_fives(mine: Floats, base: Floats) -> tuple[float, float]:
    """Range that holds 95 % of the ratios of means of random fives, or of all where there are
    fewer.
    """
    a, b = mine.mean(axis=1), base.mean(axis=1)
    rng = np.random.default_rng(0)
    five = min(5, len(a))
    chosen = np.array([rng.choice(len(a), five, replace=False) for _ in range(FIVES)])
    low, high = np.quantile(a[chosen].mean(axis=1) / b[chosen].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def fives_table(rankings: Sequence[Ranking]) -> Table:
    """What a paper with five instances could have found, drawn from ours."""
    rows = tuple(
        (
            five.distribution,
            five.what,
            f"{five.low:.2f} to {five.high:.2f}",
            f"{five.published:.3g}",
            five.where,
        )
        for five in fives(rankings)
    )
    columns = (
        "distribution",
        "ratio of regrets",
        "95 % of random fives",
        "published",
        "published lies",
    )
    return Table("Ratios of means of five instances drawn from ours", columns, rows)


def published_words(made: Sequence[Five]) -> str:
    """Say which published ratios five of our instances would hardly give."""
    out = [
        f"{one.distribution} {one.what} ({one.published:.3g})"
        for one in made
        if one.where == "outside"
    ]
    inside = (
        f"{len(made) - len(out)} of {len(made)} published ratios lie within 95 % of random fives "
        "of our instances"
    )
    return f"{inside}{'; not ' + words.listed(out) if out else ''}."


def order_figure(rankings: Sequence[Ranking], size: Size) -> plots.Figure:
    """Draw FRR of every instance, sorted by that of P-FCB with paper noise."""
    figure, (row,) = looks.columns(1, 4.9)
    for one in rankings:
        _panel(row[one.distribution], one, size)
    note = (
        f"{words.count(size.runs, 'run')} an instance. Circled: out of order (alone > P-FCB with "
        "paper noise > FCB).\n"
        f"{looks.privacy_note(size, same=True)}"
    )
    kit.legend(figure, row[rankings[0].distribution], 3, note)
    return figure


def _panel(ax: plots.Axes, one: Ranking, size: Size) -> None:
    plots.style(
        ax,
        x="instances, sorted by P-FCB with paper noise",
        y="FRR: regret over regret alone",
        grid="y",
    )
    kit.title(ax, f"{one.distribution}, n = {size.agents}, m = {size.producers}")
    alone, paper = one.alone.mean(axis=1), one.paper.mean(axis=1)
    order = np.argsort(paper / alone)
    x = np.arange(len(order))
    regrets = {PAPER: one.paper, markets.matched(size): one.matched, TIGHT: one.tight, FCB: one.fcb}
    for method, regret in regrets.items():
        ax.plot(
            x,
            (regret.mean(axis=1) / alone)[order],
            linestyle="",
            label=method.name,
            **looks.dots(method),
        )
    broken = np.flatnonzero(~np.array(one.holds)[order])
    ring = {"markersize": 12, "markerfacecolor": "none", "color": looks.line(ALONE)["color"]}
    ax.plot(broken, (paper / alone)[order][broken], "o", **ring)
    ax.axhline(1.0, label=ALONE.name, **looks.line(ALONE))
    ax.set_xticks([])
    ax.set_ylim(bottom=0.0)


ORDER = markets.REFERENCE.experiment(
    "order",
    "P-FCB: does the order hold on fresh instances, and what is tight noise worth?",
    ("regret", "privacy", "must-hold"),
    sweep,
)
