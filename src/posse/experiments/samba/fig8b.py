"""Figure 8 (b): time against the number of arms K, at N = 100,000."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.output import write_figure, write_rows
from posse.experiments.samba.pictures import time_figure
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE, TITLES
from posse.experiments.samba.times import Series, held_out, line_table, series, span, time_notes, time_table

BUDGET = BUDGETS[-1]
FIRST = {10: 10_000, 20: 5_000, 40: 3_000, 60: 2_500, 80: 2_000, 100: 2_000}
"""Shortest measured run at each K; the others are two and three times as long."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    datasets = DATASETS[:1] if small else DATASETS
    first = {10: 400, 20: 300} if small else FIRST
    plan = [(dataset, arms, name) for dataset in datasets for arms in first for name in POLICY_NAMES]
    done: list[Series] = []
    for number, (dataset, arms, name) in enumerate(plan):
        watch(f"{dataset}, K = {arms}, {name}", number / len(plan))
        ladder = [first[arms] * times for times in ((1, 2) if small else (1, 2, 3))]
        real = () if small or (arms, name) not in ((10, "ucb"), (40, "ucb")) else (BUDGET,)
        done.append(series(dataset, name, arms, budgets=(BUDGET,), ladder=ladder, real=real))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: list[Series], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    rows = write_rows(out / "fig8b.csv", [point.row() for one in done for point in one.points])
    files = (rows, *write_figure(time_figure(done, "arms"), out, "fig8b"))
    growth = growth_table(done)
    ours = [float(row[3]) for row in growth.rows]
    theirs = [float(row[4]) for row in growth.rows]
    headline = (
        f"At N = {BUDGET}, secure time grows with K to the power {span(ours)} here and {span(theirs)} in the "
        "published times (1 is linear; a cost a step that does not depend on K bends it below 1)."
    )
    return Analysis(headline, (growth, time_table(done), line_table(done), held_out(done)), time_notes(done), files)


def growth_table(done: list[Series]) -> Table:
    """Exponent of K: the slope of log time against log K over all K of the sweep."""
    rows = []
    for dataset, name in dict.fromkeys((one.dataset, one.policy) for one in done):
        points = [
            point
            for one in done
            for point in one.points
            if (one.dataset, one.policy, point.form) == (dataset, name, "secure")
        ]
        arms = [point.arms for point in points]
        ours = exponent(arms, [point.seconds for point in points])
        theirs = exponent(arms, [point.theirs for point in points])
        rows.append((TITLES[dataset], name, f"{min(arms)} to {max(arms)}", f"{ours:.2f}", f"{theirs:.2f}"))
    return Table(
        "Growth with K (secure)", ("data", "policy", "K", "exponent, ours", "exponent, published"), tuple(rows)
    )


def exponent(arms: list[int], seconds: list[float]) -> float:
    """Least-squares slope of log seconds against log arms.

    >>> round(exponent([10, 20, 40], [1.0, 2.0, 4.0]), 6)
    1.0
    """
    return float(np.polyfit(np.log(arms), np.log(seconds), 1)[0])


FIG8B = Experiment(
    id="samba/fig8b",
    title="Samba, figure 8 (b): time against number of arms",
    reference=REFERENCE,
    tags=("samba", "time"),
    sweep=sweep,
)
