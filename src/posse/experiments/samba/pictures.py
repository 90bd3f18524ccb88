"""The pictures of figure 8, drawn as the paper does: solid lines for secure runs, dotted ones for plain runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from posse.core.extras import require
from posse.experiments.samba.problem import POLICY_NAMES, TITLES
from posse.results import role_colour, theme
from posse.results.theme import INK, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posse.experiments.samba.fig8d import Shares
    from posse.experiments.samba.times import Point, Series

COLOURS = dict(zip(POLICY_NAMES, SERIES, strict=False))
MARKERS = dict(zip(POLICY_NAMES, "os^Dvp", strict=False))
FADED = 0.35
"""Opacity of what was published, behind what was measured."""


def time_figure(done: Sequence[Series], against: Literal["budget", "arms"]) -> Figure:
    """Draw seconds against N or K: a panel a data set, and a row a K where N is the axis."""
    points = [point for one in done for point in one.points]
    datasets = list(dict.fromkeys(point.dataset for point in points))
    rows = sorted({point.arms for point in points}) if against == "budget" else [0]
    figure = theme.blank(1.5 + 2.9 * len(rows), width=4.6 + 3.6 * (len(datasets) - 1) + 1.0)
    grid = figure.subplots(len(rows), len(datasets), squeeze=False)
    for i, arms in enumerate(rows):
        for j, dataset in enumerate(datasets):
            chosen = [p for p in points if p.dataset == dataset and arms in (0, p.arms)]
            _time_panel(grid[i][j], chosen, against, f"{TITLES[dataset]}, " + (f"K = {arms}" if arms else "N = 100000"))
    _legend(figure, 3 if len(datasets) == 1 else 4)
    return figure


def _time_panel(ax: Axes, points: Sequence[Point], against: Literal["budget", "arms"], title: str) -> None:
    thousand = 1000 if against == "budget" else 1
    theme.style(ax, x="budget N (thousands of pulls)" if thousand > 1 else "arms K", y="time (s, logarithmic)")
    for name in dict.fromkeys(point.policy for point in points):
        for form, line in (("secure", "-"), ("plain", ":")):
            own = [point for point in points if (point.policy, point.form) == (name, form)]
            x = [getattr(point, against) / thousand for point in own]
            colour = COLOURS[name]
            ax.plot(x, [p.theirs for p in own], line, color=colour, alpha=FADED, linewidth=3.2)
            ax.plot(x, [p.seconds for p in own], line, color=colour, linewidth=1.4)
            for place, point in zip(x, own, strict=True):
                full = point.how == "measured"
                ax.plot(
                    [place], [point.seconds], MARKERS[name], color=colour, markersize=4.5,
                    markerfacecolor=colour if full else "white",
                )  # fmt: skip
    ax.set_yscale("log")
    ax.set_title(title, loc="left", color=INK, fontsize=9.5)


def _legend(figure: Figure, columns: int) -> None:
    line = require("matplotlib.lines", extra="plot").Line2D
    handles = [line([], [], color=COLOURS[n], marker=MARKERS[n], markersize=4.5, label=n) for n in POLICY_NAMES]
    dots = {"color": INK, "marker": "o", "linestyle": "", "markersize": 4.5}
    handles += [
        line([], [], color=INK, linestyle="-", label="secure"),
        line([], [], color=INK, linestyle=":", label="plain"),
        line([], [], **dots, label="ours, measured"),
        line([], [], **dots, markerfacecolor="white", label="ours, extrapolated"),
        line([], [], color=INK, alpha=FADED, linewidth=3.2, label="published, their machine"),
    ]  # fmt: skip
    outside(figure, handles, columns)


def outside(figure: Figure, handles: list[object], columns: int) -> None:
    """Put a legend above all panels, where it covers no curve."""
    figure.legend(
        handles=handles, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=8.5,
        handlelength=2.2, columnspacing=1.4,
    )  # fmt: skip


def share_figure(done: Sequence[Shares]) -> Figure:
    """Draw stacked shares: ours and the published one of each policy side by side, a panel a data set and K."""
    cells = list(dict.fromkeys((one.dataset, one.arms) for one in done))
    datasets, sizes = list(dict.fromkeys(d for d, _ in cells)), list(dict.fromkeys(k for _, k in cells))
    figure = theme.blank(0.9 + 3.7 * len(sizes), width=4.9 + 4.2 * (len(datasets) - 1))
    grid = figure.subplots(len(sizes), len(datasets), squeeze=False, sharex=True)
    for i, arms in enumerate(sizes):
        for j, dataset in enumerate(datasets):
            chosen = [one for one in done if (one.dataset, one.arms) == (dataset, arms)]
            _share_panel(grid[i][j], chosen, f"{TITLES[dataset]}, K = {arms}", names=j == 0)
    patch = require("matplotlib.patches", extra="plot").Patch
    roles = ("owner", "controller", "comp", "customer")
    words = {"owner": "all owners"}
    outside(figure, [patch(color=role_colour(role), label=words.get(role, role)) for role in roles], 4)
    return figure


def _share_panel(ax: Axes, chosen: Sequence[Shares], title: str, *, names: bool) -> None:
    theme.style(ax, x="share of CPU time (%)", y="", grid="x")
    # Two bars a policy, close to each other, and room before the next policy.
    places = [i + i // 2 * 0.5 for i in range(len(chosen))]
    left = [0.0] * len(chosen)
    for role in ("owner", "controller", "comp", "customer"):
        widths = [one.percent[role] for one in chosen]
        bars = ax.barh(places, widths, left=left, height=0.88, color=role_colour(role))
        for bar, one in zip(bars, chosen, strict=True):
            bar.set_alpha(1.0 if one.source == "ours" else 0.6)
        shown = [f"{width:.0f}" if width >= 6 else "" for width in widths]
        ax.bar_label(bars, shown, label_type="center", color="white", fontsize=8)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    labels = [f"{one.policy}, ours" if one.source == "ours" else "published" for one in chosen]
    ax.set_yticks(places, labels if names else [""] * len(places))
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_title(title, loc="left", color=INK, fontsize=9.5)
