"""When to talk (section 5.1 and the discussion): the first report early to late, and the regret
that comes of it.

The paper wants noise a magnitude below what is reported, about round 200: earlier reports hold too
little, later ones come too late. Both halves are judged, instance by instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from posse.core.statistics import Interval, regret_ratio
from posse.problems.markets.instances import Distribution
from posse.results import plots
from reproduction import claims, kit
from reproduction.claims import Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DISTRIBUTIONS,
    PAPER,
    Method,
    Runs,
    Size,
)
from reproduction.kit import Analysis, Floats, Table, Watch, write_files

STARTS = (1, 10, 50, 200, 1000, 5000, 20_000)
SMALL_STARTS = (1, 50, 800)
METHODS = (PAPER,)


@dataclass(frozen=True, eq=False)
class Found:
    """Runs by the round of the first report, and those of agents alone."""

    size: Size
    by_start: Mapping[int, Runs]
    alone: Runs

    @property
    def published(self) -> int:
        """The first report that is published: round 200."""
        return self.size.start

    @property
    def early(self) -> int:
        """The earliest first report."""
        return min(self.by_start)

    @property
    def late(self) -> int:
        """The late first report that is judged: the one before the last, or the last of few."""
        return sorted(self.by_start)[-2 if len(self.by_start) > 3 else -1]

    def regret(self, distribution: Distribution, start: int, method: Method) -> Floats:
        """(instances, runs) regret an agent."""
        runs = self.by_start[start]
        return runs.at_end(runs.size.places(distribution), method)

    def frr(self, distribution: Distribution, start: int, method: Method) -> Interval:
        """Regret over that alone."""
        alone = self.alone.at_end(self.size.places(distribution), ALONE)
        return regret_ratio(self.regret(distribution, start, method), alone)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the published noise for every first report, and agents alone."""
    size, starts = (markets.SMALL, SMALL_STARTS) if small else (markets.FEWER, STARTS)
    alone = markets.run_markets(size, size.all_places(), (ALONE,), watch, 0.0, 0.05)
    by_start = {}
    for number, start in enumerate(starts):
        own, ends = (
            replace(size, start=start),
            [0.05 + 0.93 * k / len(starts) for k in (number, number + 1)],
        )
        by_start[start] = markets.run_markets(own, own.all_places(), METHODS, watch, *ends)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, by_start, alone), out)


def findings(found: Found) -> tuple[Finding, ...]:
    """Judge early and late first reports against the published one, by the published noise; four
    tests together.
    """
    parts = []
    for d in DISTRIBUTIONS:
        base = found.regret(d, found.published, PAPER)
        for what, start in (("early", found.early), ("late", found.late)):
            # Above 1 in the text, so below 0 in the logarithm of its inverse.
            mean = looks.log_ratio(base, found.regret(d, start, PAPER), 2 * len(DISTRIBUTIONS))
            text = (
                f"{looks.times(replace(mean, mean=-mean.mean))} times the regret of a start in round "
                f"{found.published:,}"
            )
            parts.append(looks.below(f"{d}, {what} (round {start:,})", mean, 0.0, text, ratio=True))
    return (claims.combined("start", parts),)


def share(size: Size, start: int, method: Method) -> float:
    """Noise of the first report over the most that it can be about: every round at full
    capacity.
    """
    return method.plan(replace(size, start=start)).multipliers[0] / start


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say which first report leaves least regret."""
    rows = [row for runs in (found.alone, *found.by_start.values()) for row in runs.rows()]
    files = write_files(out, "when", rows, start_figure(found))
    notes = (
        looks.instances_words(found.size),
        "Reports follow at twice, four times, ... the first round, up to round "
        f"{found.size.stop:,}. From round 1 on "
        "it is the schedule as Algorithm 2 prints it.",
        "Noise over what is reported is that of an agent which buys all it can in every round: of "
        "others it is larger.",
        looks.privacy_words(found.size),
    )
    return Analysis(headline(found), (start_table(found),), notes, files, findings(found))


def start_table(found: Found) -> Table:
    """FRR for every first report."""
    rows = tuple(
        (
            d,
            method.name,
            f"{start:,}",
            str(len(markets.reports_of(replace(found.size, start=start)))),
            f"{share(found.size, start, method):.2g}",
            str(found.frr(d, start, method)),
        )
        for d in DISTRIBUTIONS
        for method in METHODS
        for start in found.by_start
    )
    columns = (
        "distribution",
        "method",
        "first report",
        "reports",
        "its noise over what is reported",
        "FRR, median",
    )
    return Table("Regret over regret alone by the round of the first report", columns, rows)


def best(found: Found, distribution: Distribution, method: Method) -> tuple[int, Interval]:
    """First report with the least median FRR."""
    every: Sequence[tuple[int, Interval]] = [
        (s, found.frr(distribution, s, method)) for s in found.by_start
    ]
    return min(every, key=lambda one: one[1].estimate)


def headline(found: Found) -> str:
    """Say what comes of early, published and late first reports."""
    said = []
    for d in DISTRIBUTIONS:
        three = [
            f"{found.frr(d, s, PAPER).estimate:.2f}"
            for s in (found.early, found.published, found.late)
        ]
        start, ratio = best(found, d, PAPER)
        said.append(
            f"{d} {three[0]}, {three[1]} and {three[2]} (least at round {start:,}: "
            f"{ratio.estimate:.2f})"
        )
    return (
        f"FRR of P-FCB with paper noise whose first report comes after round {found.early:,}, "
        f"{found.published:,} and "
        f"{found.late:,}: {'; '.join(said)}."
    )


def start_figure(found: Found) -> plots.Figure:
    """Draw FRR against the first report, a panel a distribution."""
    figure, (row,) = looks.columns(1, 4.6)
    size = found.size
    for distribution, ax in row.items():
        plots.style(
            ax,
            x="round of the first report (logarithmic)",
            y="FRR: regret over regret alone, median",
        )
        kit.title(
            ax, f"{distribution}, n = {size.agents}, m = {size.producers}, T = {size.rounds:,}"
        )
        alone = found.alone.at_end(size.places(distribution), ALONE).mean(axis=1)
        for method in METHODS:
            each = [
                found.regret(distribution, s, method).mean(axis=1) / alone for s in found.by_start
            ]
            band = markets.band(np.stack(each, axis=1), np.median)
            looks.curve(
                ax, list(found.by_start), band, looks.line(method) | looks.dots(method), method.name
            )
        ax.axhline(1.0, label=ALONE.name, **looks.line(ALONE))
        ax.set_xscale("log")
        ax.set_ylim(bottom=0.0)
    kit.legend(figure, row[DISTRIBUTIONS[0]], 3, looks.note(size))
    return figure


WHEN = markets.REFERENCE.experiment(
    "when", "P-FCB: when should the first report come?", ("regret", "privacy"), sweep
)
