"""Parts of every figure here: lines with bands, one colour and marker a line, and a legend above the panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from posse.core.extras import require
from posse.results import theme
from posse.results.theme import DASHES, INK, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "os^Dvp<>"


def look(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of a line, by its number."""
    return {
        "color": SERIES[number % len(SERIES)], "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }  # fmt: skip


def panels(
    columns: int, titles: Sequence[str] = (), height: float = 4.2, width: float | None = None, **more: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels side by side."""
    figure = theme.blank(height, width=width or (theme.WIDTH if columns == 1 else 9.0))
    axes = list(figure.subplots(1, columns, squeeze=False, **more)[0])
    for ax, words in zip(axes, titles, strict=False):
        ax.set_title(words, loc="left", color=INK, fontsize=9.5)
    return figure, axes


def line(ax: Axes, x: ArrayLike, y: ArrayLike, number: int, label: str, *, marker: bool = True, **more: Any) -> None:
    """Draw a line."""
    style = look(number) | ({} if marker else {"marker": ""}) | more
    ax.plot(np.asarray(x), np.asarray(y), label=label, linewidth=1.6, markersize=4.5, **style)


def band(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, number: int) -> None:
    """Fill between two lines in the colour of a line."""
    ax.fill_between(np.asarray(x), low, high, color=look(number)["color"], alpha=0.15, linewidth=0)


def infinity_axis(ax: Axes, etas: Sequence[float]) -> float:
    """Label an axis of etas, with infinity behind the last of them; return its place."""
    finite = sorted(eta for eta in etas if np.isfinite(eta))
    end = finite[-1] + 1.0
    whole = range(int(np.ceil(finite[0])), int(finite[-1]) + 1)
    ax.set_xticks([*whole, end], [*(str(tick) for tick in whole), "∞"])
    ax.axvline(end - 0.5, color=INK, linewidth=0.8, alpha=0.5, linestyle=DASHES[2])
    return end


def logarithmic(ax: Axes, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, with few ticks that read as plain numbers."""
    low, high = 0.8 * min(values), 1.25 * max(values)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low > 20 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [m * 10.0**k for k in powers for m in steps if low <= m * 10.0**k <= high]
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.set_yticks(ticks, [f"{tick:,.3g}" if tick < 1000 else f"{tick:,.0f}" for tick in ticks])
    ax.set_yticks([], minor=True)


def legend(figure: Figure, ax: Axes, columns: int = 3, note: str = "", extra: Sequence[Any] = ()) -> None:
    """Put the legend above all panels, and a note below them."""
    handles, labels = ax.get_legend_handles_labels()
    handles, labels = [*handles, *extra], [*labels, *(one.get_label() for one in extra)]
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=8.5,
        handlelength=2.6, columnspacing=1.4,
    )  # fmt: skip
    if note:
        figure.supxlabel(note, x=0.01, ha="left", color=INK, fontsize=8.5)


def sign(label: str, **style: Any) -> Any:
    """Make an entry of a legend that belongs to no line."""
    return require("matplotlib.lines", extra="plot").Line2D([], [], label=label, **style)
