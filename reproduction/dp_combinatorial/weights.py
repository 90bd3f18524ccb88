"""The two weights of what is learnt from reports: does only their product matter, and is the
published one the best?

The discussion says that a larger width of acceptance can be used if the weight is decreased, and
that it is optimal to keep the product. Pairs of the published product are judged for equality,
pairs of others for having more regret.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from posse.problems.markets.instances import Distribution
from posse.results import plots, words
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import ALONE, DISTRIBUTIONS, PAPER, Method, Runs
from reproduction.kit import Analysis, Table, Watch, write_files

SAME = ((1.0, 1.0), (0.01, 100.0), (10.0, 0.1))
"""Width and weight of the published product, 1, beside the published (0.1, 10)."""
OTHER = ((0.1, 1.0), (0.01, 10.0), (0.1, 100.0), (1.0, 10.0))
"""Products of a tenth and of ten."""
ALIKE = 0.1
"""Logarithm of a ratio of regrets up to which two pairs count as equal: a tenth."""


def weighted(pair: tuple[float, float]) -> Method:
    """P-FCB with published noise and these weights.

    >>> weighted((1.0, 1.0)).name
    'P-FCB, width 1, weight 1'
    """
    width, weight = pair
    return replace(
        PAPER, name=f"P-FCB, width {width:g}, weight {weight:g}", width=width, weight=weight
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every pair on the same markets."""
    size = markets.SMALL if small else markets.FEWER
    methods = (ALONE, PAPER, *map(weighted, (*SAME, *OTHER)))
    runs = markets.run_markets(size, size.all_places(), methods, watch)
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def apart(
    runs: Runs, distribution: Distribution, pair: tuple[float, float], tests: int
) -> kit.Mean:
    """Mean over instances of ln of the published pair's regret over that of another."""
    places = runs.size.places(distribution)
    return looks.log_ratio(runs.at_end(places, PAPER), runs.at_end(places, weighted(pair)), tests)


def findings(runs: Runs) -> tuple[Finding, ...]:
    """Judge both halves, each as one family of tests."""
    only, best = [], []
    for d in DISTRIBUTIONS:
        for pair in SAME:
            mean = apart(runs, d, pair, len(SAME) * len(DISTRIBUTIONS))
            text = f"{looks.times(replace(mean, mean=-mean.mean))} times the regret of (0.1, 10)"
            inside, outside = (
                -ALIKE < mean.low <= mean.high < ALIKE,
                mean.high < -ALIKE or mean.low > ALIKE,
            )
            word = HOLDS if inside else FAILS if outside else UNKNOWN
            many = "" if word != UNKNOWN else "too few instances for an interval"
            if word == UNKNOWN and not np.isnan(mean.half):
                away = abs(abs(mean.mean) - ALIKE)
                many = (
                    f"the interval includes a tenth, and {looks.enough(mean.runs, mean.half, away)}"
                )
            only.append(Finding(f"{d}, ({pair[0]:g}, {pair[1]:g})", text, word, many))
        for pair in OTHER:
            mean = apart(runs, d, pair, len(OTHER) * len(DISTRIBUTIONS))
            text = f"{looks.times(replace(mean, mean=-mean.mean))} times the regret of (0.1, 10)"
            best.append(
                looks.below(f"{d}, ({pair[0]:g}, {pair[1]:g})", mean, 0.0, text, ratio=True)
            )
    return claims.combined("product", best), claims.combined("only", only)


def analyse(runs: Runs, out: Path) -> Analysis:
    """Write rows and figure, and say what each pair leaves of the regret."""
    files = write_files(out, "weights", runs.rows(), weight_figure(runs))
    notes = (
        looks.instances_words(runs.size),
        "All pairs use the published noise. Intervals of a claim hold together (Bonferroni); equal "
        "means within a "
        "tenth of each other.",
        looks.privacy_words(runs.size),
        f"Time: {looks.cost_words(runs.cost)}",
    )
    return Analysis(headline(runs), (weight_table(runs),), notes, files, findings(runs))


def _pairs() -> list[tuple[tuple[float, float], Method]]:
    published = ((PAPER.width, PAPER.weight), PAPER)
    return [published, *((pair, weighted(pair)) for pair in (*SAME, *OTHER))]


def weight_table(runs: Runs) -> Table:
    """FRR of every pair."""
    rows = []
    for d in DISTRIBUTIONS:
        places = runs.size.places(d)
        for (width, weight), method in _pairs():
            taken = float(np.mean([runs.of(place, method).taken.mean() for place in places]))
            rows.append(
                (
                    d,
                    f"{width:g}",
                    f"{weight:g}",
                    f"{width * weight:g}",
                    str(runs.ratio(places, method)),
                    words.number(taken),
                )
            )
    columns = (
        "distribution",
        "width",
        "weight",
        "product",
        "FRR, median",
        "entries learnt from, an agent",
    )
    return Table("Regret over regret alone by the two weights", columns, tuple(rows))


def headline(runs: Runs) -> str:
    """Say which pair leaves least regret."""
    said = []
    for d in DISTRIBUTIONS:
        places = runs.size.places(d)
        frr = {pair: runs.ratio(places, method).estimate for pair, method in _pairs()}
        pair = min(frr, key=lambda one: frr[one])
        own = frr[PAPER.width, PAPER.weight]
        said.append(
            f"{d} {own:.2f} at (0.1, 10), {frr[1.0, 1.0]:.2f} at (1, 1), least {frr[pair]:.2f} at "
            f"{pair}"
        )
    return f"FRR by (width, weight), medians of instances: {'; '.join(said)}."


def weight_figure(runs: Runs) -> plots.Figure:
    """Draw FRR of every pair against the product, a panel a distribution."""
    figure, (row,) = looks.columns(1, 4.4)
    for distribution, ax in row.items():
        plots.style(ax, x="width and weight", y="FRR: regret over regret alone, median", grid="y")
        kit.title(
            ax,
            f"{distribution}, n = {runs.size.agents}, m = {runs.size.producers}, T = "
            f"{runs.size.rounds:,}",
        )
        places = runs.size.places(distribution)
        pairs = sorted(_pairs(), key=lambda one: (round(one[0][0] * one[0][1], 6), one[0]))
        for at, (_, method) in enumerate(pairs):
            ratio = runs.ratio(places, method)
            style = looks.dots(PAPER) | ({} if method == PAPER else {"markerfacecolor": "white"})
            ends = (
                [[ratio.estimate - ratio.low], [ratio.high - ratio.estimate]]
                if ratio.known
                else None
            )
            ax.errorbar([at], [ratio.estimate], yerr=ends, linestyle="", capsize=3, **style)
        ax.set_xticks(range(len(pairs)), [f"{w:g}, {v:g}" for (w, v), _ in pairs], rotation=40)
        ax.axhline(1.0, label=ALONE.name, **looks.line(ALONE))
        ax.set_ylim(bottom=0.0)
    shown = (
        f"{runs.size.instances} instances, {runs.size.runs} runs each; bars: intervals over "
        "instances."
    )
    note = (
        "By product: a tenth, 1, ten; filled: as published. "
        f"{shown}\n{looks.privacy_note(runs.size)}"
    )
    kit.legend(figure, row[DISTRIBUTIONS[0]], 3, note)
    return figure


WEIGHTS = markets.REFERENCE.experiment(
    "weights", "P-FCB: does only the product of the two weights matter?", ("regret",), sweep
)
