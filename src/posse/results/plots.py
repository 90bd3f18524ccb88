"""Figures of what was earned and what it cost, how every figure looks, and SVG for a page.

Figures are returned and never shown.

No background, one ink, a light grid. Every colour of a series has a contrast of at least 3:1 on
white and on the dark page, so one figure serves both.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from posse.core.check import ensure, require
from posse.core.statistics import Band, band
from posse.results import words
from posse.results.compare import identical, times_as_long
from posse.results.naming import distinct, labels
from posse.results.record import CHANCE, Ints, Record, nouns_of, several
from posse.results.values import as_table
from posse.results.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

SERIES = ("#2f7fd6", "#d9662b", "#1f9d6b", "#8b5fd0", "#c2477f", "#b07d12", "#3b8ea5", "#d14b4b")
"""Colours of curves, in order; a legend names them."""

DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
"""Line styles that go with them, so that curves differ without colour and where they overlap."""

INK = "#727a88"
"""Text and axes: readable on white and on the dark page. A report replaces it by the colour of its
own text.
"""

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#10151f"
"""Backgrounds against which the colours were chosen."""

WIDTH = 5.6
LINE = 54
"""Letters of a line in a legend; a longer label continues on the next one."""

RATES = 20
"""Points at most of a curve of rewards per step: fewer than a curve has, so that chance averages
out.
"""

LINES = 3
"""Lines of a label at most."""

UPRIGHT = 28
"""Letters of a line at an axis, which is about as high as 30 of them are wide in the fonts of
browsers.
"""

Grid = Literal["both", "x", "y"]

MANY_ARMS = 40
"""Beyond this many arms their names are not legible, and numbers are shown instead."""

SLANTED = 12
"""Names of arms up to which slanted ones do not overlap; those of more arms are upright."""

Records = Record | Iterable[Record]
Quantiles = tuple[float, float] | None


def reward_curves(
    records: Records, labels: Sequence[str] | None = None, *, quantiles: Quantiles = None
) -> Figure:
    """Draw the mean cumulative reward of each record, with its band (see `band`)."""
    chosen = _drawable(records, "curve")
    bands = [record.reward_band(quantiles) for record in chosen]
    return _curves(chosen, bands, labels, nouns_of(chosen).cumulative)


def regret_curves(
    records: Records, labels: Sequence[str] | None = None, *, quantiles: Quantiles = None
) -> Figure:
    """Draw the mean cumulative pseudo-regret of each record, with its band.

    Raises:
        DataError: The true means of a record are not known.
    """
    chosen = _drawable(records, "curve")
    bands = [record.regret_band(quantiles) for record in chosen]
    nouns = nouns_of(chosen)
    unit = nouns.money or nouns.reward
    return _curves(chosen, bands, labels, f"cumulative pseudo-regret ({unit})")


def shown_curves(records: Records, labels: Sequence[str] | None = None, *, name: str) -> Figure:
    """Draw a further curve of records, by its name."""
    chosen = _drawable(records, "curve")
    bands = []
    for record in chosen:
        curves = {as_table(curve)["name"]: as_table(curve) for curve in record.show_list("curves")}
        bands.append(band(np.array(curves[name]["values"], np.float64)))
    return _curves(chosen, bands, labels, name)


def reward_rates(
    records: Records, labels: Sequence[str] | None = None, *, quantiles: Quantiles = None
) -> Figure:
    """Draw what a step earned over the run, between points of the curve.

    A dotted line is what chance would earn, if that is known.
    """
    chosen = _drawable(records, "curve")
    nouns = nouns_of(chosen)
    figure = blank()
    ax = axes(figure, x=nouns.step, y=f"{nouns.earned} per {nouns.step}")
    bands = []
    for i, (record, label) in enumerate(zip(chosen, legend_labels(chosen, labels), strict=True)):
        points = record.steps.size
        counts = np.linspace(0, points, min(RATES, points) + 1).astype(int)
        edges = np.unique(counts)[1:] - 1
        gained = np.diff(record.reward[:, edges], axis=1, prepend=0.0)
        rates = gained / np.diff(record.steps[edges], prepend=0)
        bands.append(band(rates, quantiles))
        draw_band(ax, record.steps[edges], bands[-1], i, label)
    first = chosen[0]
    chance = first.summary.get(CHANCE)
    same_problem = all(record.problem == first.problem for record in chosen)
    if same_problem and first.arms and isinstance(chance, float):
        each = chance * float(first.pulls.sum()) / max(1, first.steps_done)
        ax.axhline(each, color=INK, linestyle=":", linewidth=1.2, label="chance")
    ax.margins(x=0.01)
    # The band of a few runs may be far wider than what it is of.
    means = np.concatenate([each.mean for each in bands])
    ax.set_ylim(1.3 * min(0.0, float(means.min())), 1.3 * max(float(means.max()), 1e-9))
    legend(figure, ax, _note("band", bands))
    return figure


def pulls_per_arm(records: Records, labels: Sequence[str] | None = None) -> Figure:
    """Draw how often each arm was pulled: the mean over runs, with its band.

    The best arm is marked.
    """
    chosen = _drawable(records, "pulls")
    first = chosen[0]
    ensure(
        all(record.arms == first.arms for record in chosen),
        "the records have different numbers of arms. Draw them one by one.",
        rule="results.arms.different",
    )
    nouns = nouns_of(chosen)
    figure = blank()
    ax = axes(figure, x=nouns.arm, y=f"{plural(nouns.pull)} per run (mean)", grid="y")
    width = 0.8 / len(chosen)
    names = legend_labels(chosen, labels)
    bands = [band(record.pulls) for record in chosen]
    for i, b in enumerate(bands):
        at = np.arange(first.arms) + (i - (len(chosen) - 1) / 2) * width
        ax.bar(at, b.mean, width * 0.92, color=SERIES[i % len(SERIES)], label=names[i])
        if b.runs > 1:
            reach = b.high - b.mean
            ax.errorbar(at, b.mean, reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    _name_arms(ax, first)
    ax.set_ylim(bottom=0)
    legend(figure, ax, _note("bars", bands))
    return figure


def draw_band(ax: Axes, steps: Ints, b: Band, index: int, label: str) -> None:
    """Draw one mean curve in the colour and line style of its place, and its band."""
    colour = SERIES[index % len(SERIES)]
    # Other dashes in the second round of colours: 32 curves look different.
    dashes = DASHES[(index + index // len(SERIES)) % len(DASHES)]
    marker = "o" if len(steps) < 3 else ""  # a line of one point is no line
    ax.plot(
        steps, b.mean, color=colour, linestyle=dashes, linewidth=1.9, label=label, marker=marker
    )
    if b.runs > 1:
        ax.fill_between(steps, b.low, b.high, color=colour, alpha=0.18, linewidth=0)


def _curves(
    records: Sequence[Record], bands: list[Band], labels: Sequence[str] | None, y: str
) -> Figure:
    figure = blank()
    ax = axes(figure, x=nouns_of(records).step, y=y)
    names = legend_labels(records, labels)
    for i, record in enumerate(records):
        draw_band(ax, record.steps, bands[i], i, names[i])
    ax.margins(x=0.01)
    legend(figure, ax, _note("band", bands))
    return figure


def _drawable(records: Records, what: str) -> tuple[Record, ...]:
    """Return the records; raise an error if one has no curve, or no pulls."""
    chosen = several(records)
    ensure(chosen, "a figure needs at least one record.", rule="results.records.none")
    for record in chosen:
        ensure(
            record.runs,
            f"run {record.id} holds no finished run, so there is nothing to draw. Leave it out.",
            rule="results.runs.none",
        )
        ensure(
            record.steps.size if what == "curve" else record.arms,
            f"run {record.id} does not know its {what}, so there is nothing to draw. Leave it out.",
            rule=f"results.{what}.not-known",
        )
    return chosen


def _note(what: str, bands: Sequence[Band]) -> str:
    """Return what the bands are; one run has none."""
    kinds = dict.fromkeys(b.what for b in bands if b.runs > 1)
    return f"{what}: {'; '.join(kinds)}" if kinds else "one run"


def _name_arms(ax: Axes, record: Record) -> None:
    names = [text(name, limit=22) for name in record.arm_names]
    if record.means:
        best = int(np.argmax(record.means))
        names[best] += " ★"
        ax.set_xlabel(f"{ax.get_xlabel()} (★ highest true mean)")
    if record.arms > MANY_ARMS:
        return
    ax.set_xticks(range(record.arms), names)
    if record.arms > SLANTED:
        # Points between two names, less a gap.
        size = min(9.0, 0.8 * 72 * 0.82 * WIDTH / record.arms)
        ax.tick_params(axis="x", rotation=90, labelsize=size)
        figure = cast("Figure", ax.figure)
        figure.set_figheight(figure.get_figheight() + 0.006 * size * max(map(len, names)))
    elif sum(map(len, names)) > 55:
        for tick in ax.get_xticklabels():
            tick.set(rotation=38, ha="right", rotation_mode="anchor")


def role_times(records: Records, labels: Sequence[str] | None = None) -> Figure:
    """Draw CPU time by kind of role.

    One record has one bar per role. Several records have one bar each, with the shares of roles.
    """
    chosen = several(records)
    names = legend_labels(chosen, labels)
    timed = {}
    for name, record in zip(names, chosen, strict=True):
        if sum(record.role_seconds.values()) > 0:
            timed[name] = record
    ensure(
        timed,
        "none of these records holds time by role. Only runs with roles have it, not simulations.",
        rule="results.role_seconds.not-known",
    )
    return _one_time(*timed.values()) if len(timed) == 1 else _time_shares(timed)


def _one_time(record: Record) -> Figure:
    times = dict(sorted(record.role_seconds.items(), key=lambda item: item[1]))
    values = list(times.values())
    figure = blank(0.95 + 0.42 * len(times))
    ax = axes(figure, x="CPU time (s), all runs", y="", grid="x")
    colours = role_colours([record], times)
    names = [text(record.role_label(role)) for role in times]
    bars = ax.barh(names, values, color=[colours[role][0] for role in times], height=0.66)
    notes = [f"{words.seconds(value)} · {value / sum(values):.0%}" for value in values]
    ax.bar_label(bars, notes, padding=5, color=INK, fontsize=9)
    ax.margins(x=0.22)
    ax.set_xlim(left=0)
    return figure


def _time_shares(by_label: Mapping[str, Record]) -> Figure:
    names = list(by_label)
    records = list(by_label.values())
    figure = blank(1.35 + 0.5 * len(records))
    ax = axes(figure, x="share of CPU time (%)", y="", grid="x")
    roles = {role: record.role_label(role) for record in records for role in record.role_seconds}
    colours = role_colours(records, roles)
    seconds = np.array(
        [[record.role_seconds.get(role, 0.0) for role in roles] for record in records]
    )
    shares = 100 * seconds / seconds.sum(axis=1, keepdims=True)
    starts = np.cumsum(shares, axis=1) - shares
    for i, role in enumerate(roles):
        colour = colours[role][0]
        own = shares[:, i]
        bars = ax.barh(
            names, own, left=starts[:, i], height=0.62, color=colour, label=text(roles[role])
        )
        notes = [f"{share:.0f}" if share >= 6 else "" for share in own]
        ax.bar_label(bars, notes, label_type="center", color="white", fontsize=9)
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    legend(figure, ax)
    return figure


def secure_against_plain(
    secure: Record, plain: Record, *, labels: Sequence[str] | None = None
) -> Figure:
    """Draw what protection changes: the reward curves in one pair of axes, the seconds in another.

    The bars are on a logarithmic axis if one is more than twenty times the other.
    """
    nouns = nouns_of(_drawable((secure, plain), "curve"))
    figure = blank(3.4, width=6.4)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
    left = style(figure.add_subplot(grid[0]), x=nouns.step, y=nouns.cumulative)
    # The plain twin goes last, dashed and over the thick line of the protected run: both show where
    # they agree.
    curve = secure.reward_band().mean
    names = legend_labels((secure, plain), labels)
    left.plot(secure.steps, curve, color=SERIES[0], linewidth=5, alpha=0.45, label=names[0])
    draw_band(left, plain.steps, plain.reward_band(), 1, names[1])
    same = identical(secure, plain)
    legend(figure, left, f"identical: every {nouns.pull}, every total" if same else "not identical")
    right = style(figure.add_subplot(grid[1]), x="", y="CPU time (s)", grid="y")
    _time_bars(right, secure, plain)
    return figure


def _time_bars(ax: Axes, secure: Record, plain: Record) -> None:
    times = [secure.seconds, plain.seconds]
    # Names of levels only: the whole labels are in the legend, and would not fit below two bars.
    names = [text(record.level, limit=14) for record in (secure, plain)]
    if secure.off:
        names[0] += f"\n({len(secure.off)} of it off)"
    bars = ax.bar([0, 1], times, color=[SERIES[0], SERIES[1]], width=0.6)
    ax.set_xticks([0, 1], names)
    longer = words.ratio(times_as_long(secure, plain))
    notes = [f"{words.seconds(times[0])}\n{longer}", words.seconds(times[1])]
    ax.bar_label(bars, notes, padding=3, color=INK, fontsize=9)
    ax.set_xlim(-0.6, 1.6)
    if max(times) > 20 * min(times) > 0:
        ax.set_yscale("log")
        ax.set_ylim(min(times) / 3, max(times) * 8)
        ax.set_ylabel("CPU time (s, logarithmic)")
    else:
        ax.margins(y=0.25)


# How every figure looks ---------------------------------------------------------------------------


def role_colours(records: Iterable[Record], kinds: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colours of kinds of role on a light and on a dark page.

    The records' systems declare them. A kind without one gets the next colour of `SERIES` that no
    other kind has.
    """
    chosen = tuple(records)
    order = list(dict.fromkeys(kinds))
    declared: dict[str, tuple[str, str]] = {}
    for record in reversed(chosen):
        for kind in order:
            declared[kind] = record.role_colour(kind) or declared.get(kind, ("", ""))
    free = [colour for colour in SERIES if (colour, colour) not in declared.values()] or [INK]
    others = cycle(free)
    for kind in order:
        if not declared[kind][0]:
            colour = next(others)
            declared[kind] = colour, colour
    return declared


def page_colour(colours: tuple[str, str]) -> str:
    """Write a colour for the style of a page: the light one, and the dark one on a dark page.

    >>> page_colour(("#2f7fd6", "#7db4f2")), page_colour(("#2f7fd6", "#2f7fd6"))
    ('var(--c2f7fd6, #2f7fd6)', '#2f7fd6')
    """
    light, dark = colours
    return light if light == dark else f"var(--c{light[1:].lower()}, {light})"


def dark_style(colours: Iterable[tuple[str, str]]) -> str:
    """Write the style that gives a dark page its own colours."""
    pairs = {light[1:].lower(): dark for light, dark in colours if light != dark}
    names = " ".join(f"--c{light}: {dark};" for light, dark in pairs.items())
    return f"@media (prefers-color-scheme: dark) {{ :root {{ {names} }} }}" if names else ""


def blank(height: float = 3.4, width: float = WIDTH) -> Figure:
    """Make an empty figure, without pyplot: nothing is registered, shown or left open."""
    figure: Figure = require("matplotlib.figure", extra="plot").Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.07)
    figure.patch.set_alpha(0.0)
    # A notebook shows only figures of pyplot without this.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined, unused-ignore]
    return figure


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def axes(figure: Figure, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Add one styled pair of axes."""
    return style(figure.add_subplot(), x=x, y=y, grid=grid)


def style(ax: Axes, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Style a pair of axes, and label them with quantity and unit; a long label has two lines."""
    ax.patch.set_alpha(0.0)
    ax.set_xlabel(x, color=INK, fontsize=9.5)
    if len(y) > UPRIGHT:
        y = y.replace(" (", "\n(")  # a unit in brackets stays whole
    wrapped = []
    for line in y.split("\n"):
        wrapped += textwrap.wrap(line, UPRIGHT, break_on_hyphens=False)
    ax.set_ylabel("\n".join(wrapped), color=INK, fontsize=9.5)
    ax.tick_params(which="both", colors=INK, labelsize=9, length=3)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.8)
    ax.set_axisbelow(True)
    ax.grid(True, axis=grid, color=INK, alpha=0.22, linewidth=0.7)
    return ax


def legend(figure: Figure, ax: Axes, note: str = "") -> None:
    """Put the legend above the axes, where it covers no curve, and what the bands mean below it.

    A figure grows with a long legend, so that the axes keep their size.
    """
    handles, texts = ax.get_legend_handles_labels()
    columns = _columns(texts)
    lines = sum(text.count("\n") + 1 for text in texts[::columns])
    if handles:
        figure.set_figheight(figure.get_figheight() + 0.17 * max(0, lines - 4))
        figure.legend(
            handles,
            texts,
            loc="outside upper left",
            ncols=columns,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
            handlelength=2.4,
            columnspacing=1.6,
        )
    if note:
        ax.set_title(note, loc="left", color=INK, fontsize=8.5, pad=6)


def _columns(texts: Sequence[str]) -> int:
    longest = max((len(line) for text in texts for line in text.split("\n")), default=1)
    return max(1, min(len(texts), math.floor(80 / (longest + 7))))


def text(value: str, limit: int = 36) -> str:
    """Make a name safe for matplotlib: short, without mathematics, hidden labels or control codes.

    >>> text("_$5 arm$"), text("a" * 50, limit=8)
    ('\\\\$5 arm\\\\$', 'aaaaaaa…')
    """
    printable = "".join(c if c.isprintable() else " " for c in value).lstrip("_ ") or "unnamed"
    if len(printable) > limit:
        printable = printable[: limit - 1] + "…"
    return printable.replace("$", r"\$")


def legend_labels(records: Sequence[Record], names: Sequence[str] | None = None) -> list[str]:
    """Return a name for each record in a legend, in short lines; no two are the same."""

    def lines(label: str) -> str:
        parts = textwrap.wrap(
            label, LINE, max_lines=LINES, placeholder=" …", break_on_hyphens=False
        )
        return "\n".join(text(part, LINE) for part in parts) or text(label)

    return distinct(labels(records) if names is None else names, records, lines)


_ROOT = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_REFERENCE = re.compile(r"(\bid=\"|\bhref=\"#|url\(#)")


def inline(
    figure: Figure, *, prefix: str, title: str, colours: Iterable[tuple[str, str]] = ()
) -> str:
    """Return a figure as an `<svg>` element for a page.

    Text stays text, so that it takes the font of the page and can be read aloud and searched. The
    ink becomes `currentColor`, so that light and dark pages both read, and of each pair in
    `colours` a dark page takes the second (`dark_style`). All ids get `prefix`: matplotlib numbers
    them from one in every figure, and on one page a clip path would otherwise be taken from another
    figure.
    """
    matplotlib = require("matplotlib", extra="plot")
    file = io.StringIO()
    # A fixed salt and no date: the same record gives the same bytes.
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "posse"}),
        warnings.catch_warnings(),
    ):
        # A glyph that matplotlib's font lacks is chosen by the browser, in a font that has it.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing")
        no_date = {"Date": None, "Creator": None}
        figure.savefig(file, format="svg", transparent=True, metadata=no_date)
    text = file.getvalue()
    text = _METADATA.sub("", text[text.index("<svg") :]).replace("xlink:href=", "href=")
    # White words are on a bar, which is lighter on a dark page.
    replacements = {INK: "currentColor", "#ffffff": "var(--page, #ffffff)"}
    replacements |= {pair[0].lower(): page_colour(pair) for pair in colours}
    for colour, replacement in replacements.items():
        text = text.replace(colour, replacement)
    text = _REFERENCE.sub(rf"\g<1>{prefix}-", text)
    # A backslash in a replacement pattern would be read as a group.
    label = html.escape(title).replace("\\", r"\\")
    return _ROOT.sub(rf'<svg \1 role="img" aria-label="{label}">', text, count=1).strip()
