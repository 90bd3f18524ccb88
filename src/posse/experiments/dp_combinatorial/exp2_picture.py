"""The picture of EXP2: FRR against epsilon, as asked for and as proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, ALONE_HALF, CLEAR, FCB, PAPER, TIGHT
from posse.experiments.dp_combinatorial.problem import DELTA, UNIT, Size
from posse.results import theme
from posse.results.statistics import Interval
from posse.results.theme import DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posse.experiments.dp_combinatorial.exp2 import Cell

SHOWN = 0.01
"""Smallest epsilon on the axis; less is proved for the published noise at small budgets."""

TICKS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def budget_figure(cells: Sequence[Cell], levels: dict[tuple[str, str], Interval], size: Size) -> Figure:
    """Draw a panel a distribution."""
    figure, (row,) = pictures.columns(1, 5.0)
    for distribution, ax in row.items():
        theme.style(ax, x=f"epsilon (logarithmic), at delta {DELTA:g}, unit {UNIT}", y="FRR: regret over regret alone")
        pictures.title(ax, f"{distribution}, n = {size.agents}, m = {size.producers}, T = {size.rounds:,}")
        _curves(ax, [cell for cell in cells if cell.distribution == distribution])
        for method in (ALONE_HALF, CLEAR, FCB):
            ax.axhline(levels[distribution, method.name].estimate, label=method.name, **styles.line(method))
        ax.axhline(1.0, label=ALONE.name, **styles.line(ALONE))
        ax.set_xscale("log")
        ticks = [tick for tick in TICKS if tick <= max(cell.epsilon for cell in cells)]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_ylim(bottom=0.0)
    note = f"Medians of {size.instances} instances, {size.runs} runs each; {pictures.INTERVAL}"
    pictures.legend(figure, next(iter(row.values())), 3, note)
    return figure


def _curves(ax: Axes, cells: Sequence[Cell]) -> None:
    x = np.array([cell.epsilon for cell in cells])
    for method, name, words in ((PAPER, "paper", "at what it claims"), (TIGHT, "tight", "at what it proves")):
        found: list[Interval] = [getattr(cell, name) for cell in cells]
        band = (
            np.array([one.estimate for one in found]), np.array([one.low for one in found]),
            np.array([one.high for one in found]),
        )  # fmt: skip
        style = styles.line(method) | styles.dots(method)
        pictures.curve(ax, x, band, style, f"{method.name}, {words}")
    shown = [cell for cell in cells if cell.proved >= SHOWN]
    ax.plot(
        [cell.proved for cell in shown], [cell.paper.estimate for cell in shown],
        label=f"{PAPER.name}, at what it proves", markerfacecolor="white",
        **(styles.line(PAPER) | styles.dots(PAPER) | {"linestyle": DASHES[1]}),
    )  # fmt: skip
