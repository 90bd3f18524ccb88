"""The picture of the order: every instance, regret over regret alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, matched
from posse.experiments.dp_combinatorial.problem import Size
from posse.experiments.dp_combinatorial.ranking import Ranking
from posse.experiments.dp_combinatorial.wording import privacy_note
from posse.results import theme, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def order_figure(rankings: Sequence[Ranking], size: Size) -> Figure:
    """Draw FRR of every instance, sorted by that of P-FCB with paper noise."""
    figure, (row,) = pictures.columns(1, 4.9)
    for one in rankings:
        _panel(row[one.distribution], one, size)
    note = (
        f"{words.count(size.runs, 'run')} an instance. Circled: out of order (alone > P-FCB with paper noise > FCB).\n"
        f"{privacy_note(size, same=True)}"
    )
    pictures.legend(figure, row[rankings[0].distribution], 3, note)
    return figure


def _panel(ax: Axes, one: Ranking, size: Size) -> None:
    theme.style(ax, x="instances, sorted by P-FCB with paper noise", y="FRR: regret over regret alone", grid="y")
    pictures.title(ax, f"{one.distribution}, n = {size.agents}, m = {size.producers}")
    alone, paper = one.alone.mean(axis=1), one.paper.mean(axis=1)
    order = np.argsort(paper / alone)
    x = np.arange(len(order))
    regrets = {PAPER: one.paper, matched(size): one.matched, TIGHT: one.tight, FCB: one.fcb}
    for method, regret in regrets.items():
        ax.plot(x, (regret.mean(axis=1) / alone)[order], linestyle="", label=method.name, **styles.dots(method))
    broken = np.flatnonzero(~np.array(one.holds)[order])
    ax.plot(
        broken,
        (paper / alone)[order][broken],
        "o",
        markersize=12,
        markerfacecolor="none",
        color=styles.COLOURS[ALONE.name],
    )
    ax.axhline(1.0, label=ALONE.name, **styles.line(ALONE))
    ax.set_xticks([])
    ax.set_ylim(bottom=0.0)
