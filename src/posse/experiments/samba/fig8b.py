"""Figure 8 (b): time against the number of arms K, at N = 100,000."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from posse.experiments.kit import Analysis, Table, Watch, exponent, progress, span, write_files
from posse.experiments.samba import times
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE, TITLES, cell_words

BUDGET = BUDGETS[-1]
FIRST = {10: 10_000, 20: 5_000, 40: 3_000, 60: 2_500, 80: 2_000, 100: 2_000}
"""Shortest measured run at each K; the others are two and three times as long."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    first = {10: 80, 20: 60} if small else FIRST
    plan = list(product(DATASETS[:1] if small else DATASETS, first, POLICY_NAMES))
    done = []
    for dataset, arms, name in progress(plan, cell_words, watch):
        ladder = [first[arms] * factor for factor in ((1, 2) if small else (1, 2, 3))]
        real = () if small or (arms, name) not in ((10, "ucb"), (40, "ucb")) else (BUDGET,)
        done.append(times.series(dataset, name, arms, budgets=(BUDGET,), ladder=ladder, real=real))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[times.Series], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    rows = [point.row() for one in done for point in one.points]
    files = write_files(out, "fig8b", rows, times.time_figure(done, "arms"))
    growth = growth_table(done)
    ours = [float(row[3]) for row in growth.rows]
    theirs = [float(row[4]) for row in growth.rows]
    headline = (
        f"At N = {BUDGET}, secure time grows with K to the power {span(ours)} here and {span(theirs)} in the "
        "published times (1 is linear; a cost a step that does not depend on K bends it below 1)."
    )
    return Analysis(headline, (growth, *times.time_tables(done)), times.time_notes(done), files)


def growth_table(done: Sequence[times.Series]) -> Table:
    """Exponent of K: the slope of log time against log K over all K of the sweep."""
    rows = []
    for dataset, name in dict.fromkeys((one.dataset, one.policy) for one in done):
        own = [one for one in done if (one.dataset, one.policy) == (dataset, name)]
        points = [point for one in own for point in one.points if point.form == "secure"]
        arms = [point.arms for point in points]
        ours = exponent(arms, [point.seconds for point in points])
        theirs = exponent(arms, [point.theirs for point in points])
        rows.append((TITLES[dataset], name, f"{min(arms)} to {max(arms)}", f"{ours:.2f}", f"{theirs:.2f}"))
    columns = ("data", "policy", "K", "exponent, ours", "exponent, published")
    return Table("Growth with K (secure)", columns, tuple(rows))


FIG8B = REFERENCE.experiment("fig8b", "Samba, figure 8 (b): time against number of arms", ("time",), sweep)
