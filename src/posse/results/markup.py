"""Small pieces of HTML; every text that goes in is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from posse.results.values import JSON


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
    given = {"class": cls, **attributes} if cls else attributes
    head = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in given.items())
    return Safe(f"<{name}{head}>{''.join(esc(item) for item in content)}</{name}>")


def join(parts: Iterable[Safe], by: str = "\n") -> Safe:
    """Put pieces one after another."""
    return Safe(by.join(parts))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Iterable[int] = ()) -> Safe:
    """Make a table that scrolls sideways by itself on a small screen; `numeric` columns are set to the right."""
    right = set(numeric)

    def cells(name: str, values: Sequence[object]) -> Safe:
        return join((tag(name, value, cls="n" if i in right else "") for i, value in enumerate(values)), "")

    head = tag("thead", tag("tr", cells("th", header)))
    body = tag("tbody", join(tag("tr", cells("td", row)) for row in rows))
    return tag("div", tag("table", head, body), cls="scroll", tabindex="0")


def bullets(items: Iterable[str]) -> Safe:
    """Make a list."""
    return tag("ul", join(tag("li", item) for item in items))


def flat(value: JSON, name: str = "") -> list[tuple[str, str]]:
    """Flatten nested values into names and texts, for a table.

    >>> flat({"policy": {"name": "ucb"}, "arms": [1, 2], "seed": None})
    [('policy.name', 'ucb'), ('arms', '1, 2'), ('seed', 'none')]
    """
    if isinstance(value, Mapping) and value:
        return [pair for key, item in value.items() for pair in flat(item, f"{name}.{key}" if name else key)]
    return [(name, words_of(value))]


def words_of(value: JSON) -> str:
    """Write a plain value on one line.

    >>> words_of([0.5, True, {"a": 1}])
    '0.5, yes, {a: 1}'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {words_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(words_of(item) for item in value)
    return str(value)
