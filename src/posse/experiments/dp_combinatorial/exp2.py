"""EXP2 (figure 4): federated regret ratio against the privacy that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from posse.experiments.dp_combinatorial.exp2_picture import budget_figure
from posse.experiments.dp_combinatorial.methods import ALONE, ALONE_HALF, CLEAR, FCB, paper, reports_of, tight
from posse.experiments.dp_combinatorial.problem import DELTA, DISTRIBUTIONS, FULL, REFERENCE, SMALL, UNIT, Size
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.statistics import at_end
from posse.experiments.dp_combinatorial.sweep import Cost, Job, Outcomes, run_jobs
from posse.experiments.dp_combinatorial.wording import cost_words, instances_words
from posse.experiments.kit import Analysis, Experiment, Table, Watch, write_figure, write_rows
from posse.privacy.dp.schedules import paper_split
from posse.results import words
from posse.results.statistics import Interval, regret_ratio

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SMALL_EPSILONS = (0.5, 2.0)
LEVELS = (ALONE_HALF, CLEAR, FCB)
"""Methods that do not depend on epsilon, as lines to compare with."""


@dataclass(frozen=True)
class Cell:
    """FRR of both kinds of noise where the same epsilon is asked for."""

    distribution: str
    epsilon: float
    proved: float
    """Epsilon that is proved for the published noise; for tight noise it is the one asked for."""
    paper: Interval
    tight: Interval


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    size: Size
    epsilons: tuple[float, ...]
    outcomes: Outcomes
    cost: Cost

    def cells(self) -> tuple[Cell, ...]:
        """One a distribution and epsilon."""
        made = []
        for distribution in DISTRIBUTIONS:
            places = self.size.places(distribution)
            alone = at_end(self.outcomes, places, ALONE, self.size)
            for epsilon in self.epsilons:
                one, other = (
                    regret_ratio(at_end(self.outcomes, places, method, self.size), alone)
                    for method in (paper(epsilon), tight(epsilon))
                )
                made.append(Cell(distribution, epsilon, paper(epsilon).proved(self.size), one, other))
        return tuple(made)

    def levels(self) -> dict[tuple[str, str], Interval]:
        """FRR of what does not depend on epsilon, by distribution and method."""
        made: dict[tuple[str, str], Interval] = {}
        for distribution in DISTRIBUTIONS:
            places = self.size.places(distribution)
            alone = at_end(self.outcomes, places, ALONE, self.size)
            for method in LEVELS:
                made[distribution, method.name] = regret_ratio(at_end(self.outcomes, places, method, self.size), alone)
        return made


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run both kinds of noise at every epsilon, and the lines."""
    size, epsilons = (SMALL, SMALL_EPSILONS) if small else (FULL, EPSILONS)
    methods = (ALONE, *LEVELS, *(make(epsilon) for epsilon in epsilons for make in (paper, tight)))
    jobs = [Job(place, m, size) for d in DISTRIBUTIONS for place in size.places(d) for m in methods]
    outcomes, cost = run_jobs(jobs, watch, 0.0, 0.98)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, epsilons, outcomes, cost), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say whether regret falls as the budget grows."""
    cells, levels = found.cells(), found.levels()
    files = (
        write_rows(out / "exp2.csv", rows(found.outcomes)),
        *write_figure(budget_figure(cells, levels, found.size), out, "exp2"),
    )
    notes = (
        instances_words(found.size),
        f"Every epsilon is at delta {DELTA:g} for one {UNIT}. For the published noise `asked` is what the paper claims "
        "and `proved` is what its noise proves; where that is 0, delta alone covers what can be told. For tight noise "
        "both are the same.",
        _textbook(found),
        "The paper prints figure 4 as a picture, without numbers in its text.",
        f"Time: {cost_words(found.cost)}",
    )
    return Analysis(headline(cells), (budget_table(cells), level_table(levels)), notes, files)


def _textbook(found: Found) -> str:
    """Say at which budgets the published noise leaves the range of the formula it is made with."""
    count = len(reports_of(found.size))
    beyond = [e for e in found.epsilons if max(paper_split(e, found.size.rounds, count)) >= 1]
    where = f"at epsilon {words.listed([f'{e:g}' for e in beyond])}" if beyond else "nowhere here"
    return (
        "The published noise is made with the textbook's formula, which is proved for an epsilon below 1 a message. "
        f"Its split gives some message more than that {where}; what we say is proved does not rest on the formula."
    )


def budget_table(cells: tuple[Cell, ...]) -> Table:
    """FRR at every epsilon."""
    body = tuple(
        (
            c.distribution, f"({c.epsilon:g}, {DELTA:g})", f"({c.proved:g}, {DELTA:g})", str(c.paper), str(c.tight),
            f"{c.tight.estimate / c.paper.estimate:.2f}",
        )
        for c in cells
    )  # fmt: skip
    columns = (
        "distribution", f"asked, unit {UNIT}", "proved for paper noise", "FRR, paper noise", "FRR, tight noise",
        "tight over paper",
    )  # fmt: skip
    return Table("FRR at the last round against the budget, medians of instances", columns, body)


def level_table(levels: dict[tuple[str, str], Interval]) -> Table:
    """FRR of what does not depend on epsilon."""
    body = tuple((distribution, name, str(frr)) for (distribution, name), frr in levels.items())
    return Table("FRR of what does not depend on epsilon", ("distribution", "method", "FRR"), body)


def falls(values: list[float]) -> str:
    """Say at how many steps a sequence falls.

    >>> falls([0.9, 0.8, 0.85])
    '1 of 2'
    """
    return f"{sum(b < a for a, b in pairwise(values))} of {len(values) - 1}"


def headline(cells: tuple[Cell, ...]) -> str:
    """Say whether regret falls as epsilon grows, as published, and from where to where."""
    said = []
    for distribution in dict.fromkeys(cell.distribution for cell in cells):
        own = [cell for cell in cells if cell.distribution == distribution]
        parts = []
        for name in ("paper", "tight"):
            frr = [getattr(cell, name).estimate for cell in own]
            parts.append(f"{name} noise {frr[0]:.2f} to {frr[-1]:.2f}, falling at {falls(frr)} steps")
        said.append(f"{distribution}: {'; '.join(parts)}")
    low, high = cells[0].epsilon, cells[-1].epsilon
    return (
        f"FRR as the epsilon asked for grows from {low:g} to {high:g} (delta {DELTA:g}, unit {UNIT}). "
        f"{'. '.join(said)}."
    )


EXP2 = Experiment(
    id="dp-combinatorial/exp2",
    title="P-FCB, EXP2 (figure 4): regret ratio against the privacy budget",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret", "privacy"),
    sweep=sweep,
)
