"""Figures of what was earned and what it cost: returned, never shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posse.core.errors import DataError
from posse.results import theme, words
from posse.results.compare import identical, times_as_long
from posse.results.record import Ints, Record, several
from posse.results.statistics import Band, band
from posse.results.theme import DASHES, INK, SERIES
from posse.results.words import common, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY_ARMS = 40
"""Beyond this many arms their names are not legible, and numbers are shown instead."""

Records = Record | Iterable[Record]
Quantiles = tuple[float, float] | None


def reward_curves(records: Records, labels: Sequence[str] | None = None, *, quantiles: Quantiles = None) -> Figure:
    """Draw the mean cumulative reward of each record, with its band (see `band`), one colour a label."""
    drawn = _drawable(records, "curve")
    bands = [record.reward_band(quantiles) for record in drawn]
    return _curves(drawn, bands, labels, common(r.words for r in drawn).cumulative)


def regret_curves(records: Records, labels: Sequence[str] | None = None, *, quantiles: Quantiles = None) -> Figure:
    """Draw the mean cumulative pseudo-regret; records whose true means are not known are refused."""
    drawn = _drawable(records, "curve")
    bands = [record.regret_band(quantiles) for record in drawn]
    nouns = common(record.words for record in drawn)
    return _curves(drawn, bands, labels, f"cumulative pseudo-regret ({nouns.money or nouns.reward})")


def pulls_per_arm(records: Records, labels: Sequence[str] | None = None) -> Figure:
    """Draw how often each arm was pulled, the mean over runs, with the band of that mean; the best arm is marked."""
    drawn = _drawable(records, "pulls")
    first = drawn[0]
    if any(record.arms != first.arms for record in drawn):
        raise DataError("the records have different numbers of arms. Draw them one by one.")
    nouns = common(record.words for record in drawn)
    figure = theme.blank(3.6)
    ax = theme.axes(figure, x=nouns.arm, y=f"{plural(nouns.pull)} a run (mean)", grid="y")
    width = 0.8 / len(drawn)
    for i, (record, label) in enumerate(zip(drawn, theme.legend_labels(drawn, labels), strict=True)):
        b = band(record.pulls)
        at = np.arange(first.arms) + (i - (len(drawn) - 1) / 2) * width
        ax.bar(at, b.mean, width * 0.92, color=SERIES[i % len(SERIES)], label=label)
        if b.runs > 1:
            ax.errorbar(at, b.mean, yerr=b.high - b.mean, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    _name_arms(ax, first)
    ax.set_ylim(bottom=0)
    theme.legend(figure, ax, _note("bars", [band(record.pulls) for record in drawn]))
    return figure


def draw_band(ax: Axes, steps: Ints, b: Band, index: int, label: str) -> None:
    """Draw one mean curve in the colour and line style of its place, and its band."""
    colour = SERIES[index % len(SERIES)]
    # Other dashes in the second round of colours: 32 curves look different.
    dashes = DASHES[(index + index // len(SERIES)) % len(DASHES)]
    ax.plot(steps, b.mean, color=colour, linestyle=dashes, linewidth=1.9, label=label)
    if b.runs > 1:
        ax.fill_between(steps, b.low, b.high, color=colour, alpha=0.18, linewidth=0)


def _curves(records: Sequence[Record], bands: list[Band], labels: Sequence[str] | None, y: str) -> Figure:
    figure = theme.blank()
    ax = theme.axes(figure, x=common(r.words for r in records).step, y=y)
    for i, (record, b, label) in enumerate(zip(records, bands, theme.legend_labels(records, labels), strict=True)):
        draw_band(ax, record.steps, b, i, label)
    ax.margins(x=0.01)
    theme.legend(figure, ax, _note("band", bands))
    return figure


def _drawable(records: Records, what: str) -> tuple[Record, ...]:
    """Return the records; refuse one that has no curve, or no pulls."""
    chosen = several(records)
    if not chosen:
        raise DataError("a figure needs at least one record.")
    for record in chosen:
        if record.runs == 0:
            raise DataError(f"run {record.id} holds no finished run, so there is nothing to draw. Leave it out.")
        if not (record.steps.size if what == "curve" else record.arms):
            raise DataError(f"run {record.id} does not know its {what}, so there is nothing to draw. Leave it out.")
    return chosen


def _note(what: str, bands: Sequence[Band]) -> str:
    """Say what the bands are; one run has none."""
    kinds = dict.fromkeys(b.what for b in bands if b.runs > 1)
    return f"{what}: {'; '.join(kinds)}" if kinds else "one run"


def _name_arms(ax: Axes, record: Record) -> None:
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


def role_times(records: Records, labels: Sequence[str] | None = None) -> Figure:
    """Draw CPU time by kind of role: a bar a role for one record, shares side by side for several."""
    chosen = several(records)
    names = theme.legend_labels(chosen, labels)
    timed = {name: one for name, one in zip(names, chosen, strict=True) if sum(one.role_seconds.values()) > 0}
    if not timed:
        raise DataError("none of these records holds time by role. Only runs with roles have it, not simulations.")
    return _one_time(*timed.values()) if len(timed) == 1 else _time_shares(timed)


def secure_against_plain(secure: Record, plain: Record, *, labels: Sequence[str] | None = None) -> Figure:
    """Draw what protection changes: the reward curves over each other, and the seconds beside each other.

    The bars are on a logarithmic axis when one is more than twenty times the other.
    """
    nouns = common(record.words for record in _drawable((secure, plain), "curve"))
    figure = theme.blank(3.9, width=8.2)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
    left = theme.style(figure.add_subplot(grid[0]), x=nouns.step, y=nouns.cumulative)
    # The plain twin goes last, dashed and over the thick line of the protected run: both show where they agree.
    curve = secure.reward_band().mean
    names = theme.legend_labels((secure, plain), labels)
    left.plot(secure.steps, curve, color=SERIES[0], linewidth=5, alpha=0.45, label=names[0])
    draw_band(left, plain.steps, plain.reward_band(), 1, names[1])
    same = identical(secure, plain)
    theme.legend(figure, left, f"identical: every {nouns.pull}, every total" if same else "not identical")
    right = theme.style(figure.add_subplot(grid[1]), x="", y="CPU time (s)", grid="y")
    _time_bars(right, secure, plain)
    return figure


def _one_time(record: Record) -> Figure:
    times = sorted(record.role_seconds.items(), key=lambda item: item[1])
    whole = sum(record.role_seconds.values())
    figure = theme.blank(0.95 + 0.42 * len(times))
    ax = theme.axes(figure, x="CPU time (s), all runs", y="", grid="x")
    colours = theme.role_colours([record], record.role_seconds)
    names = [theme.text(record.role_label(role)) for role, _ in times]
    bars = ax.barh(names, [value for _, value in times], color=[colours[role][0] for role, _ in times], height=0.66)
    notes = [f"{words.seconds(value)} · {value / whole:.0%}" for _, value in times]
    ax.bar_label(bars, notes, padding=5, color=INK, fontsize=9)
    ax.margins(x=0.22)
    ax.set_xlim(left=0)
    return figure


def _time_shares(named: Mapping[str, Record]) -> Figure:
    names, records = list(named), list(named.values())
    figure = theme.blank(1.35 + 0.5 * len(records))
    ax = theme.axes(figure, x="share of CPU time (%)", y="", grid="x")
    roles = {role: record.role_label(role) for record in records for role in record.role_seconds}
    colours = theme.role_colours(records, roles)
    left = [0.0] * len(records)
    for role, label in roles.items():
        shares = [100 * record.role_seconds.get(role, 0.0) / sum(record.role_seconds.values()) for record in records]
        bars = ax.barh(names, shares, left=left, height=0.62, color=colours[role][0], label=theme.text(label))
        ax.bar_label(
            bars, [f"{s:.0f}" if s >= 6 else "" for s in shares], label_type="center", color="white", fontsize=9
        )
        left = [a + b for a, b in zip(left, shares, strict=True)]
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    theme.legend(figure, ax)
    return figure


def _short(record: Record) -> str:
    name = theme.text(record.level, limit=14)
    return f"{name}\n({len(record.off)} of it off)" if record.off else name


def _time_bars(ax: Axes, secure: Record, plain: Record) -> None:
    times = [secure.seconds, plain.seconds]
    # Names of levels only: the whole labels are in the legend, and would not fit below two bars.
    names = [_short(record) for record in (secure, plain)]
    bars = ax.bar([0, 1], times, color=[SERIES[0], SERIES[1]], width=0.6)
    ax.set_xticks([0, 1], names)
    ratio = times_as_long(secure, plain)
    longer = "" if ratio is None else f"\n{words.ratio(ratio)}"
    notes = [words.seconds(times[0]) + longer, words.seconds(times[1])]
    ax.bar_label(bars, notes, padding=3, color=INK, fontsize=9)
    ax.set_xlim(-0.6, 1.6)
    if min(times) > 0 and max(times) > 20 * min(times):
        ax.set_yscale("log")
        ax.set_ylim(min(times) / 3, max(times) * 8)
        ax.set_ylabel("CPU time (s, logarithmic)")
    else:
        ax.margins(y=0.25)
