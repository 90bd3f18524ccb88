"""The picture of figure 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.problem import EPSILONS
from posse.results import theme
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posse.experiments.mpc_contextual.fig7 import Found

TITLES = {
    "code": "what the authors' code computes",
    "apart": "the attack of the text, rows kept apart",
    "same_source_error": "error of the score, same source",
}


def picture(found: Found) -> Figure:
    """Draw three attacks against the stage of training; the floor of the first is dotted."""
    figure, axes = pictures.panels(3, tuple(TITLES.values()), 4.1, width=10.5, sharex=True, sharey=True)
    x = np.array(found.stages)
    for ax, name in zip(axes, TITLES, strict=True):
        theme.style(ax, x="training steps (logarithmic)", y="advantage (percent points)" if name == "code" else "")
        for number, epsilon in enumerate(EPSILONS):
            means = [found.mean(name, number, j) for j in range(len(x))]
            pictures.line(ax, x, [one.mean for one in means], number, f"ε = {epsilon:g}")
            pictures.band(ax, x, [one.low for one in means], [one.high for one in means], number)
        ax.axhline(0.0, color=INK, linewidth=1.0)
        ax.set_xscale("log")
    floor = [np.mean([found.mean("floor", i, j).mean for i in range(len(EPSILONS))]) for j in range(len(x))]
    axes[0].plot(x, floor, color=INK, linestyle=":", linewidth=1.8, label="its mean without any leak")
    caught = ", ".join(f"{found.control(name).mean:.0f}" for name in TITLES)
    note = (
        f"Means of {len(found.values)} runs; bands: 95 % t intervals. The same three attacks on a model that learnt "
        f"its rows by heart: {caught} percent points."
    )
    pictures.legend(figure, axes[0], 5, note)
    return figure
