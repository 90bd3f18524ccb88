"""Figures of what was earned: returned, never shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.core.errors import DataError
from posse.results import theme
from posse.results.bands import Band, band
from posse.results.frames import several
from posse.results.palette import DASHES, INK, SERIES
from posse.results.record import Ints, RunRecord
from posse.results.vocabulary import common
from posse.results.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY_ARMS = 40
"""Beyond this many arms their names are not legible, and numbers are shown instead."""

Records = RunRecord | Iterable[RunRecord]
Quantiles = tuple[float, float] | None


def reward_curves(records: Records, *, labels: Sequence[str] | None = None, quantiles: Quantiles = None) -> Figure:
    """Draw the mean cumulative reward of each record, with its band (see `band`), one colour a label."""
    drawn = _with_runs(records)
    bands = [record.reward_band(quantiles) for record in drawn]
    return _curves(drawn, bands, labels, common(r.words for r in drawn).cumulative)


def regret_curves(records: Records, *, labels: Sequence[str] | None = None, quantiles: Quantiles = None) -> Figure:
    """Draw the mean cumulative pseudo-regret; records whose true means are not known are refused."""
    drawn = _with_runs(records)
    bands = [record.regret_band(quantiles) for record in drawn]
    said = common(record.words for record in drawn)
    return _curves(drawn, bands, labels, f"cumulative pseudo-regret ({said.money or said.reward})")


def pulls_per_arm(records: Records, *, labels: Sequence[str] | None = None) -> Figure:
    """Draw how often each arm was pulled, the mean over runs, with the band of that mean; the best arm is marked."""
    drawn = _with_runs(records)
    first = drawn[0]
    if any(record.arms != first.arms for record in drawn):
        raise DataError("the records have different numbers of arms. Draw them one by one.")
    said = common(record.words for record in drawn)
    figure = theme.blank(3.6)
    ax = theme.axes(figure, x=said.arm, y=f"{plural(said.pull)} a run (mean)", grid="y")
    width = 0.8 / len(drawn)
    for i, (record, label) in enumerate(zip(drawn, theme.unique_labels(drawn, labels), strict=True)):
        b = band(record.pulls)
        at = np.arange(first.arms) + (i - (len(drawn) - 1) / 2) * width
        ax.bar(at, b.mean, width * 0.92, color=SERIES[i % len(SERIES)], label=label)
        if b.runs > 1:
            ax.errorbar(at, b.mean, yerr=b.high - b.mean, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    _name_arms(ax, first)
    ax.set_ylim(bottom=0)
    theme.legend(figure, ax, f"bars: {_note([band(record.pulls) for record in drawn])}")
    return figure


def draw_band(ax: Axes, steps: Ints, b: Band, index: int, label: str) -> None:
    """Draw one mean curve in the colour and line style of its place, and its band."""
    colour = SERIES[index % len(SERIES)]
    ax.plot(steps, b.mean, color=colour, linestyle=DASHES[index % len(DASHES)], linewidth=1.9, label=label)
    if b.runs > 1:
        ax.fill_between(steps, b.low, b.high, color=colour, alpha=0.18, linewidth=0)


def _curves(records: Sequence[RunRecord], bands: list[Band], labels: Sequence[str] | None, y: str) -> Figure:
    figure = theme.blank()
    ax = theme.axes(figure, x=common(r.words for r in records).step, y=y)
    for i, (record, b, label) in enumerate(zip(records, bands, theme.unique_labels(records, labels), strict=True)):
        draw_band(ax, record.steps, b, i, label)
    ax.margins(x=0.01)
    theme.legend(figure, ax, f"band: {_note(bands)}")
    return figure


def _with_runs(records: Records) -> tuple[RunRecord, ...]:
    chosen = several(records)
    if not chosen:
        raise DataError("a figure needs at least one record.")
    for record in chosen:
        if record.runs == 0:
            raise DataError(f"run {record.id} holds no finished run, so there is nothing to draw. Leave it out.")
    return chosen


def _note(bands: Sequence[Band]) -> str:
    return "; ".join(dict.fromkeys(b.what for b in bands))


def _name_arms(ax: Axes, record: RunRecord) -> None:
    names = [theme.text(name, limit=22) for name in record.arm_names]
    means = record.problem.get("means")
    if isinstance(means, list) and len(means) == record.arms:
        best = int(np.argmax(np.array(means, dtype=np.float64)))
        names[best] += " ★"
        ax.set_xlabel(f"{ax.get_xlabel()} (★ highest true mean)")
    if record.arms <= MANY_ARMS:
        slanted = sum(len(name) for name in names) > 75
        ax.set_xticks(range(record.arms), names, rotation=38 if slanted else 0, ha="right" if slanted else "center")
        if slanted:
            for tick in ax.get_xticklabels():
                tick.set_rotation_mode("anchor")
