"""The picture of EXP1: regret over rounds above, and what it is of the regret alone below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, Method
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, Size
from posse.experiments.dp_combinatorial.statistics import band, band_of_ratio, curves
from posse.experiments.dp_combinatorial.sweep import POINTS, Outcomes
from posse.experiments.dp_combinatorial.wording import privacy_note
from posse.results import theme
from posse.results.record import points_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILLED = {ALONE, PAPER, TIGHT, FCB}
"""Methods whose intervals are drawn; more would cover each other."""


def regret_figure(found: Outcomes, methods: Sequence[Method], size: Size) -> Figure:
    """Draw all methods; every curve is a mean or median over instances."""
    figure, (above, below) = pictures.columns(2, 8.2, share_y=False)
    x = points_of(size.rounds, POINTS) / 1000
    for distribution in DISTRIBUTIONS:
        top, bottom = above[distribution], below[distribution]
        theme.style(top, x="round (thousands)", y="regret an agent, mean (thousands)")
        theme.style(bottom, x="round (thousands)", y="FRR: regret over regret alone, median")
        pictures.title(top, f"{distribution}, n = {size.agents}, m = {size.producers}")
        places = size.places(distribution)
        alone = curves(found, places, ALONE, size)
        for method in methods:
            mine, style = curves(found, places, method, size), styles.line(method)
            filled = method in FILLED
            pictures.curve(top, x, band(mine.mean(axis=1) / 1000), style, method.name, filled=filled)
            if method != ALONE:
                pictures.curve(bottom, x, band_of_ratio(mine, alone), style, method.name, filled=filled)
        bottom.axhline(1.0, **styles.line(ALONE))
        bottom.set_ylim(0.0, 1.3)
        top.set_ylim(bottom=0.0)
    pictures.legend(figure, above[DISTRIBUTIONS[0]], 3, _note(size))
    return figure


def _note(size: Size) -> str:
    return (
        f"{size.instances} instances, {size.runs} runs each. Bands: 95 % bootstrap intervals over instances, of the "
        f"paper's methods and tight noise.\n{privacy_note(size, same=True)}"
    )
