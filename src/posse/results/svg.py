"""A figure as SVG that can stand inside an HTML page, beside others."""

from __future__ import annotations

import html
import io
import re
import warnings
from typing import TYPE_CHECKING

from posse.core.extras import require
from posse.results.palette import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROOT = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_REFERENCE = re.compile(r"(\bid=\"|\bhref=\"#|url\(#)")


def inline(figure: Figure, *, prefix: str, title: str) -> str:
    """Return a figure as an `<svg>` element for a page.

    Text stays text, so that it takes the font of the page and can be read aloud and searched. The ink becomes
    `currentColor`, so that light and dark pages both read. All ids get `prefix`: matplotlib numbers them from one in
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
    text = _REFERENCE.sub(rf"\g<1>{prefix}-", text)
    label = html.escape(title)
    return _ROOT.sub(rf'<svg \1 role="img" aria-label="{_literal(label)}">', text, count=1).strip()


def _literal(text: str) -> str:
    # A backslash in a replacement pattern would be read as a group.
    return text.replace("\\", r"\\")
