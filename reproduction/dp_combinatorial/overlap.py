"""Beyond the paper: agents that deal with some of the producers each, and share only a part of
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from posse.core.statistics import regret_ratio
from posse.problems.markets.instances import Distribution, binds
from posse.results import plots, words
from reproduction import claims, kit
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DISTRIBUTIONS,
    FCB,
    PAPER,
    TIGHT,
    Varied,
)
from reproduction.kit import Analysis, Table, Watch, write_files

SHARES = (1.0, 0.7, 0.4, 0.2)
SMALL_SHARES = (1.0, 0.5)
INSTANCES, RUNS = 10, 2
METHODS = (ALONE, PAPER, TIGHT, FCB)


def free(found: Varied, distribution: Distribution, share: float) -> list[int]:
    """Numbers of the instances whose constraint does not bind."""
    return [
        k for k, place in enumerate(found.places(distribution, share)) if not binds(place.market())
    ]


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every method at every share."""
    full = replace(markets.FULL, instances=INSTANCES, runs=RUNS)
    size, shares = (markets.SMALL, SMALL_SHARES) if small else (full, SHARES)
    return analyse(markets.run_varied(size, "overlap", shares, METHODS, watch), out)


def analyse(found: Varied, out: Path) -> Analysis:
    """Write rows and figure, and say what is left of the benefit."""
    files = write_files(out, "overlap", found.runs.rows(), share_figure(found))
    size = found.runs.size
    binding = "; ".join(
        f"{distribution} {share:g}: {size.instances - len(free(found, distribution, share))} of "
        f"{size.instances}"
        for distribution in DISTRIBUTIONS
        for share in found.values
    )
    notes = (
        f"Instances are seeds 1 to {size.instances} of each distribution, in order, none left out; "
        f"{words.count(size.runs, 'run')} each, the same seeds for every method. Each agent deals "
        "with this share of "
        f"the {size.producers} producers, drawn separately for each: of n agents about a share of n "
        "know a producer.",
        f"The quality constraint binds in: {binding}. With few producers an agent is more often "
        "left with a "
        "purchase that it may not make, and regret is then ruled by rounds below the threshold.",
        looks.privacy_words(size),
        "The paper leaves overlapping sets of producers to future work: there is nothing to "
        "compare with.",
        f"Time: {looks.cost_words(found.runs.cost)}",
    )
    least = found.values[-1]
    parts = [
        looks.saves(
            f"FRR, {d}, {least:g} of the producers",
            regret_ratio(*(found.regrets(d, least, m) for m in (PAPER, ALONE))),
            size.instances,
        )
        for d in DISTRIBUTIONS
    ]
    return Analysis(
        headline(found), (share_table(found),), notes, files, (claims.combined("future", parts),)
    )


def share_table(found: Varied) -> Table:
    """Regret and FRR at every share."""
    body = []
    for distribution in DISTRIBUTIONS:
        for method in METHODS:
            for share in found.values:
                mine, alone = (found.regrets(distribution, share, m) for m in (method, ALONE))
                unbinding = free(found, distribution, share)
                unbound = (
                    f"{looks.against(mine[unbinding], alone[unbinding])} "
                    if len(unbinding) > 1
                    else ""
                )
                body.append(
                    (
                        distribution,
                        method.name,
                        method.privacy(found.runs.size),
                        f"{share:g}",
                        words.number(float(mine.mean())),
                        looks.against(mine, alone),
                        f"{unbound}({len(unbinding)} instances)"
                        if unbound
                        else f"{len(unbinding)} instances",
                    )
                )
    columns = (
        "distribution",
        "method",
        "privacy",
        "share of producers",
        "regret an agent, mean",
        "FRR, median",
        "FRR, instances whose constraint does not bind",
    )
    return Table(
        "Regret at the last round against the share of producers an agent deals with",
        columns,
        tuple(body),
    )


def headline(found: Varied) -> str:
    """Say what FRR becomes when little is shared."""
    said = []
    first, last = found.values[0], found.values[-1]
    for distribution in DISTRIBUTIONS:
        parts = []
        for method in METHODS[1:]:
            most, least = (
                regret_ratio(
                    found.regrets(distribution, s, method), found.regrets(distribution, s, ALONE)
                )
                for s in (first, last)
            )
            parts.append(f"{method.name} {most.estimate:.2f} to {least.estimate:.2f}")
        said.append(f"{distribution}: {', '.join(parts)}")
    return f"FRR as agents deal with {first:g} to {last:g} of the producers. {'. '.join(said)}."


def share_figure(found: Varied) -> plots.Figure:
    """Draw FRR against the share, a panel a distribution."""
    size = found.runs.size
    figure, (row,) = looks.columns(1, 4.8)
    for distribution, ax in row.items():
        plots.style(
            ax,
            x="share of producers that an agent deals with",
            y="FRR: regret over regret alone, median",
        )
        kit.title(
            ax, f"{distribution}, n = {size.agents}, m = {size.producers}, T = {size.rounds:,}"
        )
        for method in METHODS[1:]:
            style = looks.line(method) | looks.dots(method)
            ratios = markets.band(found.ratios(distribution, method), np.median)
            looks.curve(ax, found.values, ratios, style, method.name)
        ax.axhline(1.0, label=ALONE.name, **looks.line(ALONE))
        ax.set_ylim(bottom=0.0)
        ax.set_xticks(found.values)
    kit.legend(figure, row[DISTRIBUTIONS[0]], 4, looks.note(size))
    return figure


OVERLAP = markets.REFERENCE.experiment(
    "overlap",
    "P-FCB beyond the paper: agents that share only some producers",
    ("regret", "privacy", "beyond the paper"),
    sweep,
)
