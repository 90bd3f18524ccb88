"""EXP1 (figure 3): regret over rounds, with and without federation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posse.experiments.dp_combinatorial import exp1_tables
from posse.experiments.dp_combinatorial.agreement import agreement
from posse.experiments.dp_combinatorial.exp1_picture import regret_figure
from posse.experiments.dp_combinatorial.methods import (
    ALONE,
    ALONE_HALF,
    CLEAR,
    FCB,
    FUSED,
    PAPER,
    PLACEBO,
    TIGHT,
    TIGHT_HALF,
    Method,
    matched,
)
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, FULL, REFERENCE, SMALL, Size
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.sweep import Cost, Job, Outcomes, run_jobs
from posse.experiments.kit import Analysis, Experiment, Watch, write_figure, write_rows

PUBLISHED_METHODS = (ALONE, PAPER, FCB)
"""What the paper ran: 3 methods, 2 distributions, 5 instances, 20 runs."""


@dataclass(frozen=True)
class Found:
    """Everything the sweep found, and what its two parts took."""

    size: Size
    methods: tuple[Method, ...]
    outcomes: Outcomes
    published_cost: Cost
    extra_cost: Cost


def extra_methods(size: Size) -> tuple[Method, ...]:
    """What we ran beside."""
    return (ALONE_HALF, PLACEBO, matched(size), TIGHT, FUSED, CLEAR, TIGHT_HALF)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the paper's methods first, timed for themselves, and then the others."""
    size = SMALL if small else FULL
    extra = extra_methods(size)
    share = len(PUBLISHED_METHODS) / (len(PUBLISHED_METHODS) + len(extra))
    outcomes, first = run_jobs(_jobs(size, PUBLISHED_METHODS), watch, 0.0, share)
    more, second = run_jobs(_jobs(size, extra), watch, share, 0.98)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, (*PUBLISHED_METHODS, *extra), outcomes | more, first, second), out)


def _jobs(size: Size, methods: tuple[Method, ...]) -> list[Job]:
    return [Job(place, method, size) for d in DISTRIBUTIONS for place in size.places(d) for method in methods]


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and put the published ratios beside ours."""
    size, outcomes = found.size, found.outcomes
    comparisons = exp1_tables.comparisons(outcomes, size)
    files = (
        write_rows(out / "exp1.csv", rows(outcomes)),
        *write_figure(regret_figure(outcomes, found.methods, size), out, "exp1"),
    )
    tables = (
        exp1_tables.published_table(comparisons),
        exp1_tables.method_table(outcomes, found.methods, size),
        exp1_tables.time_table(found.published_cost, found.extra_cost),
    )
    notes = exp1_tables.notes(outcomes, size, found.published_cost)
    return Analysis(agreement(comparisons), tables, notes, files)


EXP1 = Experiment(
    id="dp-combinatorial/exp1",
    title="P-FCB, EXP1 (figure 3): regret over rounds",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret", "privacy"),
    sweep=sweep,
)
