"""Must hold: alone > P-FCB > FCB in regret, on fresh instances; and what tight noise is worth beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from posse.experiments.dp_combinatorial import order_tables
from posse.experiments.dp_combinatorial.fives import fives_table
from posse.experiments.dp_combinatorial.fresh import Fresh, fresh_instances
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, Method, matched
from posse.experiments.dp_combinatorial.near import all_near, near_table, near_words
from posse.experiments.dp_combinatorial.order_picture import order_figure
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, FULL, REFERENCE, SMALL, Size
from posse.experiments.dp_combinatorial.ranking import Break, Ranking, breaks_of, ranking
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.sweep import Cost, Job, Outcomes, run_jobs
from posse.experiments.kit import Analysis, Experiment, Watch, write_figure, write_rows

INSTANCES, RUNS = 30, 4
SMALL_INSTANCES = 3


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    size: Size
    taken: tuple[Fresh, ...]
    outcomes: Outcomes
    breaks: tuple[Break, ...]
    cost: Cost

    def rankings(self) -> tuple[Ranking, ...]:
        """One a distribution."""
        return tuple(ranking(one, self.outcomes, self.size) for one in self.taken)


def methods(size: Size) -> tuple[Method, ...]:
    """What is compared."""
    return (ALONE, PAPER, TIGHT, matched(size), FCB)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run all methods on the fresh instances, and look closer at those that break the order."""
    size = replace(SMALL, instances=SMALL_INSTANCES) if small else replace(FULL, instances=INSTANCES, runs=RUNS)
    taken = tuple(fresh_instances(distribution, size) for distribution in DISTRIBUTIONS)
    jobs = [Job(place, method, size) for one in taken for place in one.kept for method in methods(size)]
    outcomes, cost = run_jobs(jobs, watch, 0.0, 0.95)
    watch("instances that break the order", 0.95)
    breaks = tuple(found for one in taken for found in breaks_of(one, outcomes, size))
    watch("figure and analysis", 1.0)
    return analyse(Found(size, taken, outcomes, breaks, cost), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say which targets are reached."""
    rankings = found.rankings()
    seen = all_near(found.taken, found.outcomes, found.size)
    files = (
        write_rows(out / "order.csv", rows(found.outcomes)),
        *write_figure(order_figure(rankings, found.size), out, "order"),
    )
    tables = (
        order_tables.order_table(rankings),
        order_tables.noise_table(rankings, found.size),
        order_tables.ratio_table(rankings, found.size),
        fives_table(rankings),
        near_table(seen),
        *([order_tables.break_table(found.breaks)] if found.breaks else []),
    )
    notes = (*order_tables.notes(found.taken, found.breaks, found.size, found.cost), near_words(seen, rankings))
    return Analysis(order_tables.headline(rankings), tables, notes, files)


ORDER = Experiment(
    id="dp-combinatorial/order",
    title="P-FCB: does the order hold on fresh instances, and what is tight noise worth?",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret", "privacy", "must-hold"),
    sweep=sweep,
)
