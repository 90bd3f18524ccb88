"""Beyond the paper: agents that deal with some of the producers each, and share only a part of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, Method
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, FULL, REFERENCE, SMALL, Size
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.statistics import Floats, at_end, band
from posse.experiments.dp_combinatorial.sweep import Cost, Job, Outcomes, run_jobs
from posse.experiments.dp_combinatorial.wording import against, cost_words, privacy_note, privacy_words
from posse.experiments.kit import Analysis, Experiment, Table, Watch, write_figure, write_rows
from posse.problems.markets.instances import Distribution, binds
from posse.results import theme, words
from posse.results.statistics import regret_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (1.0, 0.7, 0.4, 0.2)
SMALL_SHARES = (1.0, 0.5)
INSTANCES, RUNS = 10, 5
METHODS = (ALONE, PAPER, TIGHT, FCB)


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    size: Size
    shares: tuple[float, ...]
    outcomes: Outcomes
    cost: Cost

    def regrets(self, distribution: Distribution, share: float, method: Method) -> Floats:
        """(instances, runs) regret an agent."""
        return at_end(self.outcomes, self.size.places(distribution, overlap=share), method, self.size)

    def free(self, distribution: Distribution, share: float) -> list[int]:
        """Places of the instances whose constraint does not bind."""
        places = self.size.places(distribution, overlap=share)
        return [k for k, place in enumerate(places) if not binds(place.market())]


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every method at every share."""
    size, shares = (SMALL, SMALL_SHARES) if small else (replace(FULL, instances=INSTANCES, runs=RUNS), SHARES)
    jobs = [
        Job(place, method, size)
        for distribution in DISTRIBUTIONS
        for share in shares
        for place in size.places(distribution, overlap=share)
        for method in METHODS
    ]
    outcomes, cost = run_jobs(jobs, watch, 0.0, 0.98)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, shares, outcomes, cost), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say what is left of the benefit."""
    files = (
        write_rows(out / "overlap.csv", rows(found.outcomes)),
        *write_figure(share_figure(found), out, "overlap"),
    )
    size = found.size
    notes = (
        f"Instances are seeds 1 to {size.instances} of each distribution, in order, none left out; "
        f"{words.count(size.runs, 'run')} each, the same seeds for every method. Each agent deals with this share of "
        f"the {size.producers} producers, drawn for each by itself: of n agents about a share of n know a producer.",
        f"The quality constraint binds in: {_binding(found)}. With few producers an agent is more often left with a "
        "purchase that it may not make, and regret is then ruled by rounds below the threshold.",
        privacy_words(size),
        "The paper leaves overlapping sets of producers to future work: there is nothing to compare with.",
        f"Time: {cost_words(found.cost)}",
    )
    return Analysis(headline(found), (share_table(found),), notes, files)


def _binding(found: Found) -> str:
    said = []
    for distribution in DISTRIBUTIONS:
        for share in found.shares:
            count = found.size.instances
            said.append(f"{distribution} {share:g}: {count - len(found.free(distribution, share))} of {count}")
    return "; ".join(said)


def share_table(found: Found) -> Table:
    """Regret and FRR at every share."""
    body = []
    for distribution in DISTRIBUTIONS:
        for method in METHODS:
            for share in found.shares:
                mine, alone = (found.regrets(distribution, share, m) for m in (method, ALONE))
                body.append((
                    distribution, method.name, method.privacy(found.size), f"{share:g}",
                    words.number(float(mine.mean())), against(mine, alone),
                    _unbound(mine, alone, found.free(distribution, share)),
                ))  # fmt: skip
    columns = (
        "distribution", "method", "privacy", "share of producers", "regret an agent, mean", "FRR, median",
        "FRR, instances whose constraint does not bind",
    )  # fmt: skip
    return Table("Regret at the last round against the share of producers an agent deals with", columns, tuple(body))


def _unbound(mine: Floats, alone: Floats, free: list[int]) -> str:
    return f"{against(mine[free], alone[free])} ({len(free)} instances)" if len(free) > 1 else f"{len(free)} instances"


def headline(found: Found) -> str:
    """Say what FRR becomes when little is shared."""
    said = []
    for distribution in DISTRIBUTIONS:
        parts = []
        for method in (PAPER, TIGHT, FCB):
            ends = (found.shares[0], found.shares[-1])
            most, least = (
                regret_ratio(found.regrets(distribution, s, method), found.regrets(distribution, s, ALONE))
                for s in ends
            )
            parts.append(f"{method.name} {most.estimate:.2f} to {least.estimate:.2f}")
        said.append(f"{distribution}: {', '.join(parts)}")
    first, last = found.shares[0], found.shares[-1]
    return f"FRR as agents deal with {first:g} to {last:g} of the producers. {'. '.join(said)}."


def share_figure(found: Found) -> Figure:
    """Draw FRR against the share, a panel a distribution."""
    size = found.size
    figure, (row,) = pictures.columns(1, 4.8)
    for distribution in DISTRIBUTIONS:
        ax = row[distribution]
        theme.style(ax, x="share of producers that an agent deals with", y="FRR: regret over regret alone, median")
        pictures.title(ax, f"{distribution}, n = {size.agents}, m = {size.producers}, T = {size.rounds:,}")
        for method in METHODS[1:]:
            ratios = [
                found.regrets(distribution, share, method).mean(axis=1)
                / found.regrets(distribution, share, ALONE).mean(axis=1)
                for share in found.shares
            ]
            style = styles.line(method) | styles.dots(method)
            pictures.curve(ax, found.shares, band(np.stack(ratios, axis=1), np.median), style, method.name)
        ax.axhline(1.0, label=ALONE.name, **styles.line(ALONE))
        ax.set_ylim(bottom=0.0)
        ax.set_xticks(found.shares)
    note = f"{size.instances} instances, {size.runs} runs each; {pictures.INTERVAL}.\n{privacy_note(size)}"
    pictures.legend(figure, row[DISTRIBUTIONS[0]], 4, note)
    return figure


OVERLAP = Experiment(
    id="dp-combinatorial/overlap",
    title="P-FCB beyond the paper: agents that share only some producers",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret", "privacy", "beyond the paper"),
    sweep=sweep,
)
