"""Figure 2: what sharing everything saves, where agents are all alike and where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posse.core.statistics import Interval, regret_ratio
from posse.problems.markets.instances import Distribution
from posse.results import plots, words
from posse.results.record import points_of
from reproduction import claims, kit
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DISTRIBUTIONS,
    FCB,
    FULL,
    REFERENCE,
    SMALL,
    Runs,
)
from reproduction.kit import Analysis, Floats, Table, Watch, write_files

SETTINGS = {"heterogeneous": False, "homogeneous": True}


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
    places = [
        p
        for d in DISTRIBUTIONS
        for same in SETTINGS.values()
        for p in size.places(d, homogeneous=same)
    ]
    runs = markets.run_markets(size, places, (ALONE, FCB), watch)
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def regrets(runs: Runs, distribution: Distribution, homogeneous: bool) -> tuple[Floats, Floats]:
    """Return (instances, runs, points) regret of FCB and alone."""
    places = runs.size.places(distribution, homogeneous=homogeneous)
    return runs.curves(places, FCB), runs.curves(places, ALONE)


def analyse(runs: Runs, out: Path) -> Analysis:
    """Write rows and figure, and compare the settings."""
    ratios = []
    for distribution in DISTRIBUTIONS:
        for setting, homogeneous in SETTINGS.items():
            fcb, alone = (curve[:, :, -1] for curve in regrets(runs, distribution, homogeneous))
            each = fcb.mean(axis=1) / alone.mean(axis=1)
            ratios.append(
                Ratio(
                    distribution, setting, regret_ratio(fcb, alone), tuple(each), float(fcb.mean())
                )
            )
    files = write_files(out, "fig2", runs.rows(), ratio_figure(runs))
    notes = (
        looks.instances_words(runs.size),
        "FCB sends everything after every round, in the clear: no privacy. In the homogeneous "
        "setting all agents have "
        "the costs and capacities of the first agent of the same seed, so the two settings share "
        "qualities.",
        "The paper prints figure 2 as a picture, without numbers in its text. Its theorem bounds "
        "the regret of the "
        "homogeneous setting by O(ln(nT) / n), against O(ln T) alone: a ratio that falls as 1 / "
        "n, here "
        f"{1 / runs.size.agents:g}.",
        f"Time: {looks.cost_words(runs.cost)}",
    )
    settings = {"federation": "heterogeneous", "algorithm1": "homogeneous"}
    findings = tuple(
        claims.combined(
            claim,
            [
                looks.saves(r.distribution, r.frr, len(r.each))
                for r in ratios
                if r.setting == setting
            ],
        )
        for claim, setting in settings.items()
    )
    return Analysis(headline(ratios), (ratio_table(ratios),), notes, files, findings)


def ratio_table(ratios: Sequence[Ratio]) -> Table:
    """FRR at the last round."""
    body = tuple((r.distribution, r.setting, str(r.frr), words.number(r.regret)) for r in ratios)
    columns = (
        "distribution",
        "setting",
        "FRR of FCB, median of instances",
        "regret of FCB an agent, mean",
    )
    return Table("FRR at the last round, 95 % intervals over instances", columns, body)


def headline(ratios: Sequence[Ratio]) -> str:
    """Say how much is saved, and whether it is more among equal agents."""
    said = []
    for distribution in dict.fromkeys(r.distribution for r in ratios):
        mixed, alike = (
            next(r for r in ratios if (r.distribution, r.setting) == (distribution, setting))
            for setting in SETTINGS
        )
        lower = sum(a < b for a, b in zip(alike.each, mixed.each, strict=True))
        said.append(
            f"{distribution} {alike.frr} homogeneous and {mixed.frr} heterogeneous (lower among "
            "agents that are alike "
            f"in {lower} of {len(alike.each)} instances)"
        )
    return f"FRR of FCB at the last round: {'; '.join(said)}."


def ratio_figure(runs: Runs) -> plots.Figure:
    """Draw FRR over rounds, a panel a distribution."""
    size = runs.size
    figure, (row,) = looks.columns(1, 4.4)
    x = points_of(size.rounds, markets.POINTS) / 1000
    for distribution, ax in row.items():
        plots.style(ax, x="round (thousands)", y="FRR: regret of FCB over regret alone")
        kit.title(ax, f"{distribution}, n = {size.agents}, m = {size.producers}")
        for setting, homogeneous in SETTINGS.items():
            style = looks.line(FCB) | (
                {"color": looks.HOMOGENEOUS, "linestyle": (0, (5, 2))} if homogeneous else {}
            )
            band = markets.band_of_ratio(*regrets(runs, distribution, homogeneous))
            looks.curve(ax, x, band, style, f"FCB, {setting} agents")
        ax.set_ylim(0.0, 1.05)
    note = f"Medians of {size.instances} instances, {size.runs} runs each; {looks.INTERVAL}"
    kit.legend(figure, row[DISTRIBUTIONS[0]], 2, note)
    return figure


FIG2 = REFERENCE.experiment(
    "fig2", "P-FCB, figure 2: homogeneous against heterogeneous agents", ("regret",), sweep
)
