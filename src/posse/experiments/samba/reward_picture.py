"""The picture of figure 8 (c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.core.extras import require
from posse.experiments.samba.agreement import Comparison
from posse.experiments.samba.pictures import COLOURS, MARKERS, outside
from posse.experiments.samba.problem import POLICY_NAMES, TITLES
from posse.results import theme
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reward_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Draw cumulative reward against N at the largest K above, and what it is a pull below, a column a data set."""
    largest = max(one.arms for one in comparisons)
    kind = "rewards" if any(one.kind == "rewards" for one in comparisons) else "benchmarks"
    chosen = [one for one in comparisons if one.arms == largest and one.kind == kind]
    datasets = list(dict.fromkeys(one.dataset for one in chosen))
    figure = theme.blank(7.6, width=9.0)
    grid = figure.subplots(2, len(datasets), squeeze=False, sharex=True)
    for j, dataset in enumerate(datasets):
        own = [one for one in chosen if one.dataset == dataset]
        _panel(grid[0][j], own, per_pull=False)
        _panel(grid[1][j], own, per_pull=True)
        grid[0][j].set_title(f"{TITLES[dataset]}, K = {largest}", loc="left", color=INK, fontsize=9.5)
    line = require("matplotlib.lines", extra="plot").Line2D
    handles = [line([], [], color=COLOURS[n], marker=MARKERS[n], markersize=5, label=n) for n in POLICY_NAMES]
    handles += [
        line([], [], color=INK, linestyle="-", label="ours, independent worlds ± 2 s.e."),
        line([], [], color=INK, linestyle=(0, (5, 2)), label="ours, in the authors' world"),
        line([], [], color=INK, marker="o", markerfacecolor="white", linestyle="", label="published ± 2 s.e."),
    ]  # fmt: skip
    outside(figure, handles, 3)
    return figure


def _panel(ax: Axes, chosen: Sequence[Comparison], *, per_pull: bool) -> None:
    quantity = "reward a pull" if per_pull else "cumulative reward (thousands)"
    theme.style(ax, x="budget N (thousands of pulls)", y=quantity)
    for name in dict.fromkeys(one.policy for one in chosen):
        own = [one for one in chosen if one.policy == name]
        x = [one.budget / 1000 for one in own]
        scale = [one.budget if per_pull else 1000 for one in own]
        colour = COLOURS[name]
        ours = [one.ours.mean / by for one, by in zip(own, scale, strict=True)]
        width = [2 * one.ours.error / by for one, by in zip(own, scale, strict=True)]
        ax.plot(x, ours, "-", color=colour, linewidth=1.5)
        low = [a - b for a, b in zip(ours, width, strict=True)]
        high = [a + b for a, b in zip(ours, width, strict=True)]
        ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
        again = [one.replayed.mean / by for one, by in zip(own, scale, strict=True)]
        ax.plot(x, again, color=colour, linestyle=(0, (5, 2)), linewidth=1.2)
        ax.errorbar(
            x, [one.theirs.mean / by for one, by in zip(own, scale, strict=True)],
            yerr=[2 * one.theirs.error / by for one, by in zip(own, scale, strict=True)], fmt=MARKERS[name],
            color=colour, markerfacecolor="white", markersize=5.5, elinewidth=1.0, capsize=2,
        )  # fmt: skip
