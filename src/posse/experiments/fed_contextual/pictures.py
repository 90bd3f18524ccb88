"""Pictures of all figures: lines over rounds with bands over seeds, one look a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments import kit
from posse.experiments.fed_contextual.lines import LABELS
from posse.experiments.fed_contextual.runs import Floats, Found
from posse.experiments.kit import LEVEL
from posse.results import theme
from posse.results.statistics import t_quantile
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTE = "Mean over {} seeds; bands: 95 % t interval"
REWARD = "running average reward"
_SMOOTH = 0.05
"""Share of the rounds over which a probability is averaged."""
_INIT = LABELS["init"]
_NUMBERS = {"Softmax": 0, "ε-Greedy": 1, "FALCON": 2, "Greedy": 3}


def curves(ax: Axes, found: Sequence[Found], words: Sequence[str] | None = None) -> None:
    """Draw running average rewards; the first rounds, whose averages are of little, set no scale.

    Policies have a look each; lines with words of their own are numbered.
    """
    theme.style(ax, x="round", y=REWARD)
    shown = []
    for number, one in enumerate(found):
        label = one.line.label if words is None else words[number]
        band(ax, one.curves, _NUMBERS.get(label, number), label)
        shown.append(one.curves[:, one.curves.shape[1] // 10 :])
    low, high = min(float(part.min()) for part in shown), max(float(part.max()) for part in shown)
    room = 0.06 * (high - low)
    ax.set_ylim(max(0.0, low - room), high + room)


def band(ax: Axes, values: Floats, number: int, label: str) -> None:
    """Draw the mean of (seeds, rounds) with its t interval."""
    seeds, rounds = values.shape
    x = np.arange(1, rounds + 1)
    middle = values.mean(axis=0)
    half = t_quantile(LEVEL, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)
    if label == _INIT:
        ax.plot(x, middle, color=INK, linewidth=1.2, linestyle=(0, (1, 2)), label=label)
        ax.fill_between(x, middle - half, middle + half, color=INK, alpha=0.12, linewidth=0)
        return
    kit.line(ax, x, middle, number, label, marker=False)
    kit.band(ax, x, middle - half, middle + half, number)


def one_panel(found: Sequence[Found], title: str) -> Figure:
    """Draw one setting."""
    figure, (ax,) = kit.panels(1, (title,))
    curves(ax, found)
    kit.legend(figure, ax, 5, NOTE.format(len(found[0].curves)))
    return figure


def smoothed(values: Floats) -> Floats:
    """Average over the rounds just before, so that the trend is seen."""
    width = max(1, round(_SMOOTH * values.shape[1]))
    sums = np.cumsum(np.pad(values, ((0, 0), (width, 0))), axis=1)
    counts = np.minimum(np.arange(1, values.shape[1] + 1), width)
    averaged: Floats = (sums[:, width:] - sums[:, :-width]) / counts
    return averaged
