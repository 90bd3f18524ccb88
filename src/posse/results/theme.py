"""How every figure looks: colours, no background, one ink, a light grid; and a figure as SVG inside a page.

Every colour has a contrast of at least 3:1 on white and on the dark page, so one figure serves both.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from posse.core.check import require
from posse.results.naming import Named, distinct, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("#2f7fd6", "#d9662b", "#1f9d6b", "#8b5fd0", "#c2477f", "#b07d12", "#3b8ea5", "#d14b4b")
"""Colours of curves, in order; a legend names them."""

DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
"""Line styles that go with them, so that curves differ without colour and where they overlap."""

INK = "#727a88"
"""Text and axes: readable on white and on the dark page. A report replaces it by the colour of its own text."""

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#10151f"
"""Backgrounds against which the colours were chosen."""

WIDTH = 7.2
LINE = 72
"""Letters of a line in a legend; a longer label goes on in the next one."""

LINES = 3
"""Lines of a label at most."""

Grid = Literal["both", "x", "y"]


def role_colours(records: Iterable[Named], kinds: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colours of kinds of role on a light and on a dark page: those that the records' systems give them.

    A kind without one gets the next colour of `SERIES` that no other has.
    """
    chosen = tuple(records)
    colours = {kind: next(filter(None, (one.role_colour(kind) for one in chosen)), None) for kind in kinds}
    free = [colour for colour in SERIES if (colour, colour) not in colours.values()] or [INK]
    unnamed = [kind for kind, pair in colours.items() if pair is None]
    colours |= {kind: (free[i % len(free)],) * 2 for i, kind in enumerate(unnamed)}
    return {kind: pair for kind, pair in colours.items() if pair is not None}


def page_colour(colours: tuple[str, str]) -> str:
    """Write a colour for the style of a page: the light one, or the dark one where the page is dark (`dark_style`).

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


def blank(height: float = 3.8, width: float = WIDTH) -> Figure:
    """Make an empty figure, without pyplot: nothing is registered, shown or left open."""
    figure: Figure = require("matplotlib.figure", extra="plot").Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.07)
    figure.patch.set_alpha(0.0)
    return figure


def axes(figure: Figure, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Add one styled pair of axes."""
    return style(figure.add_subplot(), x=x, y=y, grid=grid)


def style(ax: Axes, *, x: str, y: str, grid: Grid = "both") -> Axes:
    """Style a pair of axes and label them with quantity and unit."""
    ax.patch.set_alpha(0.0)
    ax.set_xlabel(x, color=INK, fontsize=9.5)
    ax.set_ylabel(y, color=INK, fontsize=9.5)
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
            handles, texts, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK, fontsize=9,
            handlelength=2.4, columnspacing=1.6,
        )  # fmt: skip
    if note:
        ax.set_title(note, loc="left", color=INK, fontsize=8.5, pad=6)


def _columns(texts: Sequence[str]) -> int:
    longest = max((len(line) for text in texts for line in text.split("\n")), default=1)
    return max(1, min(len(texts), math.floor(102 / (longest + 7))))


def text(value: str, limit: int = 36) -> str:
    """Make a name safe for matplotlib: no mathematics in dollars, no hidden label, no control characters, not too long.

    >>> text("_$5 arm$"), text("a" * 50, limit=8)
    ('\\\\$5 arm\\\\$', 'aaaaaaa…')
    """
    shown = "".join(c if c.isprintable() else " " for c in value).lstrip("_ ") or "unnamed"
    shown = shown if len(shown) <= limit else shown[: limit - 1] + "…"
    return shown.replace("$", r"\$")


def legend_labels(records: Sequence[Named], names: Sequence[str] | None = None) -> list[str]:
    """Name each record for a legend, in short lines; no two are called the same."""

    def lines(label: str) -> str:
        parts = textwrap.wrap(label, LINE, max_lines=LINES, placeholder=" …", break_on_hyphens=False)
        return "\n".join(text(part, LINE) for part in parts) or text(label)

    return distinct(labels(records) if names is None else names, records, lines)


_ROOT = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_REFERENCE = re.compile(r"(\bid=\"|\bhref=\"#|url\(#)")


def inline(figure: Figure, *, prefix: str, title: str, colours: Iterable[tuple[str, str]] = ()) -> str:
    """Return a figure as an `<svg>` element for a page.

    Text stays text, so that it takes the font of the page and can be read aloud and searched. The ink becomes
    `currentColor`, so that light and dark pages both read, and of each pair in `colours` a dark page takes the second
    (`dark_style`). All ids get `prefix`: matplotlib numbers them from one in
    every figure, and on one page a clip path would otherwise be taken from another figure.
    """
    matplotlib = require("matplotlib", extra="plot")
    file = io.StringIO()
    # A fixed salt and no date: the same record gives the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "posse"}), warnings.catch_warnings():
        # A glyph that matplotlib's font lacks is drawn by the browser, in a font that has it.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing")
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = _METADATA.sub("", text[text.index("<svg") :]).replace("xlink:href=", "href=").replace(INK, "currentColor")
    for pair in set(colours):
        text = text.replace(pair[0].lower(), page_colour(pair))
    text = _REFERENCE.sub(rf"\g<1>{prefix}-", text)
    label = html.escape(title)
    return _ROOT.sub(rf'<svg \1 role="img" aria-label="{_literal(label)}">', text, count=1).strip()


def _literal(text: str) -> str:
    # A backslash in a replacement pattern would be read as a group.
    return text.replace("\\", r"\\")
