"""The pictures of figures 3 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.eta import Line
from posse.experiments.mpc_contextual.statistics import mean_of
from posse.results import theme
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BELOW = 4.0
"""Percent points below 0 at which the right panel is cut: much exploration costs far more."""


def picture(lines: Sequence[Line]) -> Figure:
    """Draw reward against eta, and beside it what is gained over infinity; the best of a line is ringed."""
    figure, (left, right) = pictures.panels(2, ("average reward", "gain over η = ∞, same runs"), 4.4)
    label = "η = log(|A| / ε): less private →"
    theme.style(left, x=label, y="average reward")
    theme.style(right, x=label, y="percent points")
    everything = sorted({eta for line in lines for eta in line.etas})
    end = pictures.infinity_axis(left, everything)
    for number, line in enumerate(lines):
        x = np.array([eta if np.isfinite(eta) else end for eta in line.etas])
        gains = [mean_of(line.rewards[:, i] - line.rewards[:, -1]) for i in range(len(x) - 1)]
        pictures.line(left, x[:-1], line.means[:-1], number, line.label)
        pictures.line(left, x[-1:], line.means[-1:], number, "_")
        pictures.line(right, x[:-1], [100 * gain.mean for gain in gains], number, line.label)
        pictures.band(right, x[:-1], [100 * g.low for g in gains], [100 * g.high for g in gains], number)
        ring = {"markersize": 10, "marker": "o", "markerfacecolor": "none", "color": pictures.look(number)["color"]}
        left.plot([x[line.best]], [line.means[line.best]], **ring)
    right.axhline(0.0, color=INK, linewidth=1.0)
    most = max(float((line.means[:-1] - line.means[-1]).max()) for line in lines)
    right.set_ylim(-BELOW, max(2.0, 140 * most))
    ring_sign = pictures.sign("best mean", color=INK, marker="o", linestyle="", markerfacecolor="none", markersize=9)
    runs = sorted({len(line.rewards) for line in lines}, reverse=True)
    note = (
        f"Means of {' or '.join(map(str, runs))} runs; bands: 95 % t intervals over runs. The right panel is cut "
        f"{BELOW:g} below 0."
    )
    pictures.legend(figure, left, 6, note, [ring_sign])
    return figure
