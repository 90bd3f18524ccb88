"""Pieces of HTML, in which every text is escaped, and the frame of a page that asks nothing of the
network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files


class Safe(str):
    """HTML that is already escaped; any other string is text."""

    __slots__ = ()


def esc(value: object) -> Safe:
    """Escape a text, unless it is `Safe` already.

    >>> esc("<b>"), esc(Safe("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Safe) else Safe(escape(str(value)))


def tag(name: str, *content: object, cls: str = "", **attributes: str) -> Safe:
    """Wrap content in an element.

    >>> tag("p", "a & b", cls="lead")
    '<p class="lead">a &amp; b</p>'
    >>> tag("p", title='"')
    '<p title="&quot;"></p>'
    """
    pairs = {"class": cls, **attributes} if cls else attributes
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in pairs.items()
    )
    return Safe(f"<{name}{head}>{''.join(esc(item) for item in content)}</{name}>")


def join(parts: Iterable[Safe], by: str = "\n") -> Safe:
    """Put pieces one after another."""
    return Safe(by.join(parts))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Iterable[int] = ()
) -> Safe:
    """Make a table; `numeric` columns are set to the right, and a header of empty texts is left
    out.

    On a small screen one of more than three columns becomes a block a row, a line a column, named
    by its header.
    """
    right, wide = set(numeric), len(header) > 3

    def cells(name: str, values: Sequence[object]) -> Safe:
        heads = [
            {"data_label": str(head)} if name == "td" and wide and head else {} for head in header
        ]
        return join(
            (tag(name, v, cls="n" if i in right else "", **heads[i]) for i, v in enumerate(values)),
            "",
        )

    head = tag("thead", tag("tr", cells("th", header))) if any(header) else ""
    body = tag("tbody", join(tag("tr", cells("td", row)) for row in rows))
    return tag(
        "div", tag("table", head, body, cls="wide" if wide else ""), cls="scroll", tabindex="0"
    )


def bullets(items: Iterable[str]) -> Safe:
    """Make a list."""
    return tag("ul", join(tag("li", item) for item in items))


# The policy holds the page to its word: no script runs and nothing is fetched, whatever a record
# may contain.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@cache
def _style(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


def page(title: str, *body: Safe, style: str = "") -> str:
    """Return a whole document, self-contained: style and figures inline, no script, no link."""
    head = Safe(
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, '
        'initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"{tag('title', title)}\n<style>\n{_style('page.css')}{style}</style>"
    )
    main = tag("main", *(Safe(f"\n{part}") for part in body))
    return f'<!doctype html>\n<html lang="en">\n{tag("head", head)}\n{tag("body", main)}\n</html>\n'


def fragment(*body: Safe) -> str:
    """Return a piece of HTML for a notebook, with a style of its own that touches nothing else.

    It takes the colours of the text around it, so that it reads on the light and dark themes of any
    notebook.
    """
    style = Safe(f"<style>\n{_style('fragment.css')}</style>")
    return tag("div", style, *(Safe(f"\n{part}") for part in body), cls="posse")
