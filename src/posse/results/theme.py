"""How every figure looks: no background, one ink, light grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from posse.core.extras import require
from posse.results.palette import INK
from posse.results.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2
LABEL = 72
"""Letters of a label in a legend: a protection that is off is never cut away."""

Grid = Literal["both", "x", "y"]


def blank(height: float = 3.8, width: float = WIDTH) -> Figure:
    """Make an empty figure, without pyplot: nothing is registered, shown or left open."""
    figure: Figure = require("matplotlib.figure", extra="plot").Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.07)
    figure.patch.set_alpha(0.0)
    return figure


def axes(figure: Figure, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Add one styled pair of axes."""
    return style(figure.add_subplot(), x=x, y=y, grid=grid)


def style(ax: Axes, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Style a pair of axes and label them with quantity and unit."""
    ax.patch.set_alpha(0.0)
    ax.set_xlabel(x, color=INK, fontsize=9.5)
    ax.set_ylabel(y, color=INK, fontsize=9.5)
    ax.tick_params(which="both", colors=INK, labelsize=9, length=3)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.8)
    ax.set_axisbelow(True)
    ax.grid(True, axis=grid, color=INK, alpha=0.22, linewidth=0.7)
    return ax


def legend(figure: Figure, ax: Axes, note: str = "") -> None:
    """Put the legend above the axes, where it covers no curve, and what the bands mean below it."""
    handles, labels = ax.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(len(labels), int(102 / (longest + 7))))
    if handles:
        figure.legend(
            handles, labels, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=9,
            handlelength=2.4, columnspacing=1.6,
        )  # fmt: skip
    if note:
        ax.set_title(note, loc="left", color=INK, fontsize=8.5, pad=6)


def text(value: str, limit: int = 36) -> str:
    """Make a name safe for matplotlib: no mathematics in dollars, no hidden label, no control characters, not too long.

    >>> text("_$5 arm$"), text("a" * 50, limit=8)
    ('\\\\$5 arm\\\\$', 'aaaaaaa…')
    """
    shown = "".join(c if c.isprintable() else " " for c in value).lstrip("_ ") or "unnamed"
    shown = shown if len(shown) <= limit else shown[: limit - 1] + "…"
    return shown.replace("$", r"\$")


def unique_labels(records: Sequence[RunRecord], given: Sequence[str] | None = None) -> list[str]:
    """Name each record for a legend; records that share a label are told apart by their ids."""
    labels = list(given) if given is not None else [record.label for record in records]
    shared = {label for label in labels if labels.count(label) > 1}
    return [
        text(label, LABEL) + (f" · {record.id}" if label in shared else "")
        for label, record in zip(labels, records, strict=True)
    ]
