"""Figure 8 (a): time against the budget N, at K = 10 and K = 100."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from posse.experiments.kit import Analysis, Watch, progress, span, write_files
from posse.experiments.samba import times
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE, cell_words

LADDERS = {10: (15_000, 30_000, 45_000), 100: (4_000, 8_000, 12_000)}
REAL_POLICIES = ("epsilon-greedy", "ucb", "pursuit")
"""At K = 100 these are also run in full on MovieLens: the cheapest, a usual one and the most expensive."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    ladders = {10: (100, 200, 300)} if small else LADDERS
    budgets = (BUDGETS[0], BUDGETS[-1]) if small else BUDGETS
    plan = list(product(DATASETS[:1] if small else DATASETS, ladders, POLICY_NAMES))
    done = []
    for dataset, arms, name in progress(plan, cell_words, watch):
        full = not small and (arms == 10 or (dataset == "movielens" and name in REAL_POLICIES))
        real = BUDGETS[-1:] if full else ()
        done.append(times.series(dataset, name, arms, budgets=budgets, ladder=ladders[arms], real=real))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[times.Series], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    points = [point for one in done for point in one.points]
    files = write_files(out, "fig8a", [point.row() for point in points], times.time_figure(done, "budget"))
    largest = max(point.arms for point in points)
    top = [p for p in points if (p.form, p.budget, p.arms) == ("secure", BUDGETS[-1], largest)]
    errors = [100 * one.line.step_error / one.line.step for one in done]
    measured = sum(point.how == times.MEASURED for point in top)
    ours, theirs = span([p.seconds for p in top], ".3g"), span([p.theirs for p in top], ".3g")
    headline = (
        f"Secure time is linear in N: the cost of a step differs by {span(errors)} % (standard error) between runs of "
        f"different N. At N = 100000 and K = {largest} a secure run takes {ours} CPU s here ({measured} measured, "
        f"{len(top) - measured} extrapolated), and took {theirs} s on the authors' machine."
    )
    return Analysis(headline, times.time_tables(done), times.time_notes(done), files)


FIG8A = REFERENCE.experiment("fig8a", "Samba, figure 8 (a): time against budget", ("time",), sweep)
