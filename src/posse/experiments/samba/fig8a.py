"""Figure 8 (a): time against the budget N, at K = 10 and K = 100."""

from __future__ import annotations

from pathlib import Path

from posse.experiments.base import Analysis, Experiment, Watch
from posse.experiments.output import write_figure, write_rows
from posse.experiments.samba.pictures import time_figure
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE
from posse.experiments.samba.times import (
    MEASURED,
    Point,
    Series,
    held_out,
    line_table,
    series,
    span,
    time_notes,
    time_table,
)

LADDERS = {10: (15_000, 30_000, 45_000), 100: (4_000, 8_000, 12_000)}
REAL_POLICIES = ("epsilon-greedy", "ucb", "pursuit")
"""At K = 100 these are also run in full on MovieLens: the cheapest, a usual one and the dearest."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    datasets = DATASETS[:1] if small else DATASETS
    ladders = {10: (500, 1_000, 1_500)} if small else LADDERS
    budgets = (BUDGETS[0], BUDGETS[-1]) if small else BUDGETS
    plan = [(dataset, arms, name) for dataset in datasets for arms in ladders for name in POLICY_NAMES]
    done: list[Series] = []
    for number, (dataset, arms, name) in enumerate(plan):
        watch(f"{dataset}, K = {arms}, {name}", number / len(plan))
        real = () if small else _real(dataset, arms, name)
        done.append(series(dataset, name, arms, budgets=budgets, ladder=ladders[arms], real=real))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def _real(dataset: str, arms: int, name: str) -> tuple[int, ...]:
    if arms == 10 or (dataset == "movielens" and name in REAL_POLICIES):
        return (BUDGETS[-1],)
    return ()


def _how(points: list[Point]) -> str:
    measured = sum(point.how == MEASURED for point in points)
    return f"{measured} measured, {len(points) - measured} extrapolated"


def analyse(done: list[Series], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    rows = write_rows(out / "fig8a.csv", [point.row() for one in done for point in one.points])
    files = (rows, *write_figure(time_figure(done, "budget"), out, "fig8a"))
    largest = max(point.arms for one in done for point in one.points)
    top = [
        point
        for one in done
        for point in one.points
        if point.form == "secure" and point.budget == BUDGETS[-1] and point.arms == largest
    ]
    errors = [100 * one.line.step_error / one.line.step for one in done]
    headline = (
        f"Secure time is linear in N: the cost of a step differs by {span(errors)} % (standard error) between runs of "
        f"different N. At N = 100000 and K = {largest} a secure run takes {span([p.seconds for p in top], 3)} CPU s "
        f"here ({_how(top)}), and took {span([p.theirs for p in top], 3)} s on the authors' machine."
    )
    tables = (time_table(done), line_table(done), held_out(done))
    return Analysis(headline, tables, time_notes(done), files)


FIG8A = Experiment(
    id="samba/fig8a",
    title="Samba, figure 8 (a): time against budget",
    reference=REFERENCE,
    tags=("samba", "time"),
    sweep=sweep,
)
