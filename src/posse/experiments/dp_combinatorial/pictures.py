"""Parts of every figure here: two columns, one a distribution, and a legend above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS
from posse.experiments.dp_combinatorial.statistics import Band, Floats
from posse.problems.markets.instances import Distribution
from posse.results import theme
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INTERVAL = "bands: 95 % intervals over instances"


def columns(rows: int, height: float, *, share_y: bool = True) -> tuple[Figure, list[dict[Distribution, Axes]]]:
    """Make a figure with a column a distribution; each row maps a distribution to its axes."""
    figure = theme.blank(height, width=9.0)
    grid = figure.subplots(rows, len(DISTRIBUTIONS), squeeze=False, sharey="row" if share_y else False)
    made = [dict(zip(DISTRIBUTIONS, row, strict=True)) for row in grid]
    return figure, made


def title(ax: Axes, words: str) -> None:
    """Put a title over a panel."""
    ax.set_title(words, loc="left", color=INK, fontsize=9.5)


def curve(
    ax: Axes, x: Sequence[float] | Floats, band: Band, style: dict[str, Any], label: str,
    *, filled: bool = True,
) -> None:  # fmt: skip
    """Draw an estimate and, where asked for, its interval."""
    middle, low, high = band
    ax.plot(x, middle, label=label, **style)
    if filled:
        ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def legend(figure: Figure, ax: Axes, columns: int = 3, note: str = INTERVAL) -> None:
    """Put the legend above all panels, and what the bands are below them."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=8.5,
        handlelength=2.6, columnspacing=1.4,
    )  # fmt: skip
    if note:
        figure.supxlabel(note, x=0.01, ha="left", color=INK, fontsize=8.5)
