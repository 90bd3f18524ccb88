"""Figures of what it cost: time by role, and protected against plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posse.core.errors import DataError
from posse.results import theme, words
from posse.results.compare import identical, times_as_long
from posse.results.frames import several
from posse.results.palette import INK, SERIES, role_colour
from posse.results.plots import Records, draw_band
from posse.results.record import RunRecord
from posse.results.vocabulary import common

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def role_times(records: Records) -> Figure:
    """Draw CPU time by kind of role: a bar a role for one record, shares side by side for several."""
    timed = [record for record in several(records) if sum(record.role_seconds.values()) > 0]
    if not timed:
        raise DataError("none of these records holds time by role. Only runs with roles have it, not simulations.")
    return _one_time(timed[0]) if len(timed) == 1 else _time_shares(timed)


def secure_against_plain(secure: RunRecord, plain: RunRecord) -> Figure:
    """Draw what protection changes: the reward curves over each other, and the seconds beside each other.

    The bars are on a logarithmic axis when one is more than twenty times the other.
    """
    if not secure.runs or not plain.runs:
        raise DataError("both records need at least one finished run.")
    said = common([secure.words, plain.words])
    figure = theme.blank(3.9, width=8.2)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
    left = theme.style(figure.add_subplot(grid[0]), x=said.step, y=said.cumulative)
    # The plain twin goes last, dashed and over the thick line of the protected run: both show where they agree.
    curve = secure.reward_band().mean
    left.plot(
        secure.steps, curve, color=SERIES[0], linewidth=5, alpha=0.45, label=theme.text(secure.label, theme.LABEL)
    )
    draw_band(left, plain.steps, plain.reward_band(), 1, theme.text(plain.label, theme.LABEL))
    same = identical(secure, plain)
    theme.legend(figure, left, f"identical: every {said.pull}, every total" if same else "not identical")
    right = theme.style(figure.add_subplot(grid[1]), x="", y="CPU time (s)", grid="y")
    _time_bars(right, secure, plain)
    return figure


def _one_time(record: RunRecord) -> Figure:
    times = sorted(record.role_seconds.items(), key=lambda item: item[1])
    whole = sum(record.role_seconds.values())
    figure = theme.blank(0.95 + 0.42 * len(times))
    ax = theme.axes(figure, x="CPU time (s), all runs", y="", grid="x")
    bars = ax.barh(
        [theme.text(role) for role, _ in times],
        [value for _, value in times],
        color=[role_colour(role) for role, _ in times],
        height=0.66,
    )
    notes = [f"{words.seconds(value)} · {value / whole:.0%}" for _, value in times]
    ax.bar_label(bars, notes, padding=5, color=INK, fontsize=9)
    ax.margins(x=0.22)
    ax.set_xlim(left=0)
    return figure


def _time_shares(records: list[RunRecord]) -> Figure:
    figure = theme.blank(1.35 + 0.5 * len(records))
    ax = theme.axes(figure, x="share of CPU time (%)", y="", grid="x")
    names = theme.unique_labels(records)
    roles = list(dict.fromkeys(role for record in records for role in record.role_seconds))
    left = [0.0] * len(records)
    for role in roles:
        shares = [100 * record.role_seconds.get(role, 0.0) / sum(record.role_seconds.values()) for record in records]
        bars = ax.barh(names, shares, left=left, height=0.62, color=role_colour(role), label=theme.text(role))
        ax.bar_label(
            bars, [f"{s:.0f}" if s >= 6 else "" for s in shares], label_type="center", color="white", fontsize=9
        )
        left = [a + b for a, b in zip(left, shares, strict=True)]
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    theme.legend(figure, ax)
    return figure


def _short(record: RunRecord) -> str:
    name = theme.text(record.level, limit=14)
    return f"{name}\n({len(record.off)} of it off)" if record.off else name


def _time_bars(ax: Axes, secure: RunRecord, plain: RunRecord) -> None:
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
