"""Figure 2: what sharing everything saves, where agents are all alike and where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, FCB
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, FULL, REFERENCE, SMALL, Size
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.statistics import Floats, band_of_ratio, curves
from posse.experiments.dp_combinatorial.sweep import POINTS, Cost, Job, Outcomes, run_jobs
from posse.experiments.dp_combinatorial.wording import cost_words, instances_words
from posse.experiments.kit import Analysis, Experiment, Table, Watch, write_figure, write_rows
from posse.problems.markets.instances import Distribution
from posse.results import theme, words
from posse.results.record import points_of
from posse.results.statistics import Interval, regret_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = {"heterogeneous": False, "homogeneous": True}


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    size: Size
    outcomes: Outcomes
    cost: Cost

    def regrets(self, distribution: Distribution, homogeneous: bool) -> tuple[Floats, Floats]:
        """Return (instances, runs, points) regret of FCB and alone."""
        places = self.size.places(distribution, homogeneous=homogeneous)
        return curves(self.outcomes, places, FCB, self.size), curves(self.outcomes, places, ALONE, self.size)


@dataclass(frozen=True)
class Ratio:
    """FRR of FCB in one setting at the end."""

    distribution: str
    setting: str
    frr: Interval
    each: tuple[float, ...]
    """FRR of every instance."""
    regret: float


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run FCB and alone in both settings."""
    size = SMALL if small else FULL
    jobs = [
        Job(place, method, size)
        for distribution in DISTRIBUTIONS
        for homogeneous in SETTINGS.values()
        for place in size.places(distribution, homogeneous=homogeneous)
        for method in (ALONE, FCB)
    ]
    outcomes, cost = run_jobs(jobs, watch, 0.0, 0.98)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, outcomes, cost), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and compare the settings."""
    ratios = []
    for distribution in DISTRIBUTIONS:
        for setting, homogeneous in SETTINGS.items():
            fcb, alone = (curve[:, :, -1] for curve in found.regrets(distribution, homogeneous))
            each = fcb.mean(axis=1) / alone.mean(axis=1)
            ratios.append(Ratio(distribution, setting, regret_ratio(fcb, alone), tuple(each), float(fcb.mean())))
    files = (
        write_rows(out / "fig2.csv", rows(found.outcomes)),
        *write_figure(ratio_figure(found), out, "fig2"),
    )
    notes = (
        instances_words(found.size),
        "FCB sends everything after every round, in the clear: no privacy. In the homogeneous setting all agents have "
        "the costs and capacities of the first agent of the same seed, so the two settings share qualities.",
        "The paper prints figure 2 as a picture, without numbers in its text. Its theorem bounds the regret of the "
        f"homogeneous setting by O(ln(nT) / n), against O(ln T) alone: a ratio that falls as 1 / n, here "
        f"{1 / found.size.agents:g}.",
        f"Time: {cost_words(found.cost)}",
    )
    return Analysis(headline(ratios), (ratio_table(ratios),), notes, files)


def ratio_table(ratios: Sequence[Ratio]) -> Table:
    """FRR at the last round."""
    body = tuple((r.distribution, r.setting, str(r.frr), words.number(r.regret)) for r in ratios)
    columns = ("distribution", "setting", "FRR of FCB, median of instances", "regret of FCB an agent, mean")
    return Table("FRR at the last round, 95 % intervals over instances", columns, body)


def headline(ratios: Sequence[Ratio]) -> str:
    """Say how much is saved, and whether it is more among agents that are alike."""
    said = []
    for distribution in dict.fromkeys(r.distribution for r in ratios):
        mixed, alike = (
            next(r for r in ratios if (r.distribution, r.setting) == (distribution, setting)) for setting in SETTINGS
        )
        lower = sum(a < b for a, b in zip(alike.each, mixed.each, strict=True))
        said.append(
            f"{distribution} {alike.frr} homogeneous and {mixed.frr} heterogeneous (lower among agents that are alike "
            f"in {lower} of {len(alike.each)} instances)"
        )
    return f"FRR of FCB at the last round: {'; '.join(said)}."


def ratio_figure(found: Found) -> Figure:
    """Draw FRR over rounds, a panel a distribution."""
    size = found.size
    figure, (row,) = pictures.columns(1, 4.4)
    x = points_of(size.rounds, POINTS) / 1000
    for distribution, ax in row.items():
        theme.style(ax, x="round (thousands)", y="FRR: regret of FCB over regret alone")
        pictures.title(ax, f"{distribution}, n = {size.agents}, m = {size.producers}")
        for setting, homogeneous in SETTINGS.items():
            style = styles.line(FCB) | ({"color": styles.HOMOGENEOUS, "linestyle": (0, (5, 2))} if homogeneous else {})
            band = band_of_ratio(*found.regrets(distribution, homogeneous))
            pictures.curve(ax, x, band, style, f"FCB, {setting} agents")
        ax.set_ylim(0.0, 1.05)
    note = f"Medians of {size.instances} instances, {size.runs} runs each; {pictures.INTERVAL}"
    pictures.legend(figure, row[DISTRIBUTIONS[0]], 2, note)
    return figure


FIG2 = Experiment(
    id="dp-combinatorial/fig2",
    title="P-FCB, figure 2: homogeneous against heterogeneous agents",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret"),
    sweep=sweep,
)
