"""The picture of EXP3: regret of the agents that are there at every n above, and FRR of all agents below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.dp_combinatorial import pictures, styles
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS
from posse.experiments.dp_combinatorial.statistics import band
from posse.experiments.dp_combinatorial.wording import privacy_note
from posse.results import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posse.experiments.dp_combinatorial.exp3 import Found


def agents_figure(found: Found) -> Figure:
    """Draw means of regret and medians of FRR against n, a column a distribution."""
    figure, (above, below) = pictures.columns(2, 7.4, share_y=False)
    size = found.size
    for distribution in DISTRIBUTIONS:
        top, bottom = above[distribution], below[distribution]
        theme.style(top, x="agents n", y=f"regret of agents 1 to {found.agents[0]}, mean (thousands)")
        theme.style(bottom, x="agents n", y="FRR: regret over regret alone, median")
        pictures.title(top, f"{distribution}, m = {size.producers}, T = {size.rounds:,}")
        alone = np.stack([found.regrets(distribution, n, ALONE).mean(axis=1) for n in found.agents], axis=1)
        for method in (ALONE, PAPER, TIGHT, FCB):
            mine = np.stack([found.regrets(distribution, n, method).mean(axis=1) for n in found.agents], axis=1)
            style = styles.line(method) | styles.dots(method)
            same = np.stack([found.first(distribution, n, method).mean(axis=1) for n in found.agents], axis=1)
            pictures.curve(top, found.agents, band(same / 1000), style, method.name)
            if method != ALONE:
                pictures.curve(bottom, found.agents, band(mine / alone, np.median), style, method.name)
        bottom.axhline(1.0, **styles.line(ALONE))
        for ax in (top, bottom):
            ax.set_ylim(bottom=0.0)
            ax.set_xticks(found.agents)
    note = f"{size.instances} instances, {size.runs} runs each; {pictures.INTERVAL}.\n{privacy_note(size)}"
    pictures.legend(figure, above[DISTRIBUTIONS[0]], 4, note)
    return figure
