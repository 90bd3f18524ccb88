"""Figure 8 (b): time against the number of arms K, at N = 100,000."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from reproduction.claims import Finding
from reproduction.kit import (
    Analysis,
    Table,
    Watch,
    exponent,
    format_range,
    judge,
    mean_of,
    progress,
    write_files,
)
from reproduction.samba import times
from reproduction.samba.problem import (
    BUDGETS,
    DATASETS,
    POLICY_NAMES,
    REFERENCE,
    TITLES,
    cell_words,
)

BUDGET = BUDGETS[-1]
FIRST = {10: 400, 20: 250, 40: 150, 100: 110}
"""Shortest measured run at each K; the other is twice as long."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    first = {10: 40, 20: 40} if small else FIRST
    forms = ("paper",) if small else ("paper", *times.FORMS[2:])
    every = product(DATASETS[:1] if small else DATASETS, first, POLICY_NAMES, forms)
    plan = [cell for cell in every if times.beside(cell[0], cell[3], cell[1])]
    done = []
    for dataset, arms, name, form in progress(
        plan, lambda c: f"{cell_words(c[:3])}, {c[3]}", watch
    ):
        done.append(
            times.series(
                dataset, name, arms, form, budgets=(BUDGET,), ladder=[first[arms], 2 * first[arms]]
            )
        )
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
        f"At N = {BUDGET}, secure time grows with K to the power {format_range(ours)} here and "
        f"{format_range(theirs)} in the "
        "published times (1 is linear; a cost a step that does not depend on K bends it below 1)."
    )
    return Analysis(
        headline, (growth, *times.time_tables(done)), times.time_notes(done), files, findings(done)
    )


def findings(done: Sequence[times.Series]) -> tuple[Finding, ...]:
    """Exponents of K at level paper, over data sets and policies, and beside those of N."""
    slopes, gaps = [], []
    for dataset, name in dict.fromkeys((one.dataset, one.policy) for one in done):
        own = [
            one for one in done if (one.dataset, one.policy, one.form) == (dataset, name, "paper")
        ]
        lines = [one.line for one in own]
        slopes.append(
            exponent([line.arms for line in lines], [line.seconds(BUDGET) for line in lines])
        )
        budgets = (BUDGETS[0], BUDGET)
        gaps.append(
            slopes[-1] - exponent(budgets, [lines[-1].seconds(budget) for budget in budgets])
        )
    gap = mean_of(gaps)
    return times.linear(slopes, "K"), judge(
        "steeper", gap, f"exponent of K minus exponent of N: {gap.text(2, sign=True)}"
    )


def growth_table(done: Sequence[times.Series]) -> Table:
    """Exponent of K: the slope of log time against log K over all K of the sweep."""
    rows = []
    for dataset, name in dict.fromkeys((one.dataset, one.policy) for one in done):
        own = [one for one in done if (one.dataset, one.policy) == (dataset, name)]
        points = [point for one in own for point in one.points if point.form == "paper"]
        arms = [point.arms for point in points]
        ours = exponent(arms, [point.seconds for point in points])
        theirs = exponent(arms, [point.theirs for point in points])
        rows.append(
            (TITLES[dataset], name, f"{min(arms)} to {max(arms)}", f"{ours:.2f}", f"{theirs:.2f}")
        )
    columns = ("data", "policy", "K", "exponent, ours", "exponent, published")
    return Table("Growth with K (level paper)", columns, tuple(rows))


FIG8B = REFERENCE.experiment(
    "fig8b", "Samba, figure 8 (b): time against number of arms", ("time",), sweep, "figure 8 (b)"
)
