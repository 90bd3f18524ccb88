"""Pieces of HTML, in which every text is escaped, and the frame of a page that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


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
    head = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in pairs.items())
    return Safe(f"<{name}{head}>{''.join(esc(item) for item in content)}</{name}>")


def join(parts: Iterable[Safe], by: str = "\n") -> Safe:
    """Put pieces one after another."""
    return Safe(by.join(parts))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Iterable[int] = ()) -> Safe:
    """Make a table that scrolls sideways by itself on a small screen; `numeric` columns are set to the right.

    A header of empty texts is left out.
    """
    right = set(numeric)

    def cells(name: str, values: Sequence[object]) -> Safe:
        return join((tag(name, value, cls="n" if i in right else "") for i, value in enumerate(values)), "")

    head = tag("thead", tag("tr", cells("th", header))) if any(header) else ""
    body = tag("tbody", join(tag("tr", cells("td", row)) for row in rows))
    return tag("div", tag("table", head, body), cls="scroll", tabindex="0")


def bullets(items: Iterable[str]) -> Safe:
    """Make a list."""
    return tag("ul", join(tag("li", item) for item in items))


# The policy holds the page to its word: no script runs and nothing is fetched, whatever a record may contain.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --card: #f5f7fa; --line: #dde2ea; --ink: #1b2230; --soft: #5b6473;
  --accent: #1f66b5; --warn: #a8391f; --warn-card: #fdf1ec; --good: #157a52; --good-card: #e9f6f0; }
@media (prefers-color-scheme: dark) { :root { --page: #10151f; --card: #19202d; --line: #2c3545; --ink: #e6eaf2;
  --soft: #a0a9ba; --accent: #7db4f2; --warn: #f0957c; --warn-card: #2c1c19; --good: #6fcfa4; --good-card: #14281f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0.2rem 0 0.6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 0.7rem; padding-top: 1.1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 0.5rem; overflow-wrap: anywhere; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
.over { color: var(--soft); font-size: 0.82rem; letter-spacing: 0.06em; text-transform: uppercase; margin: 0; }
.lead { font-size: 1.12rem; margin: 0 0 1.4rem; }
.soft { color: var(--soft); font-size: 0.9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: 0.8rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.85rem 1rem;
  min-width: 0; }
.card b { display: block; font-size: 1.35rem; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.card span { display: block; color: var(--soft); font-size: 0.84rem; }
.promises { display: grid; gap: 0.8rem; } .promises .unit { color: var(--ink); font-size: 0.95rem; }
.promises .hollow { color: var(--warn); }
.name { overflow-wrap: break-word; }
.alert { border-left: 3px solid var(--warn); padding-left: 0.8rem; } .alert b { color: var(--warn); }
.card.warn { background: var(--warn-card); border-color: var(--warn); } .card.warn b { color: var(--warn); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; margin: 0.6rem 0; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.45rem 0.8rem; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; background: var(--card); }
td { min-width: 4rem; max-width: 34rem; overflow-wrap: anywhere; }
tbody tr:last-child td { border-bottom: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 0.88em ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
td code { white-space: nowrap; }
.tag { display: inline-block; border-radius: 99px; padding: 0 0.55rem; font-size: 0.8rem; border: 1px solid var(--line);
  background: var(--card); white-space: nowrap; }
td .tag { white-space: normal; overflow-wrap: normal; border-radius: 10px; }
.tag.good { color: var(--good); border-color: var(--good); background: var(--good-card); }
.tag.warn { color: var(--warn); border-color: var(--warn); background: var(--warn-card); }
.dot { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 50%; margin-right: 0.5em; }
figure { margin: 1.1rem 0 1.6rem; } figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 0.3rem; }
figure svg { display: block; width: 100%; max-width: 46rem; height: auto; color: var(--soft); }
figure svg text { font-family: inherit !important; }
details { border: 1px solid var(--line); border-radius: 10px; padding: 0.6rem 1rem; margin: 0.8rem 0; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
@media print { body { font-size: 12px; } h2 { break-after: avoid; }
  figure, .card { break-inside: avoid; } }
"""


def page(title: str, *body: Safe, style: str = "") -> str:
    """Return a whole document, self-contained: style and figures inline, no script, no link."""
    head = Safe(
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"{tag('title', title)}\n<style>{_STYLE}{style}</style>"
    )
    main = tag("main", *(Safe(f"\n{part}") for part in body))
    return f'<!doctype html>\n<html lang="en">\n{tag("head", head)}\n{tag("body", main)}\n</html>\n'


# Colours of the text around it, so that it reads on the light and dark themes of any notebook.
_FRAGMENT = """
.posse { max-width: 60rem; line-height: 1.5; } .posse p { margin: 0.3rem 0; }
.posse h2 { font-size: 1rem; margin: 0.3rem 0; }
.posse .scroll { overflow-x: auto; margin: 0.4rem 0; } .posse table { border-collapse: collapse; }
.posse th, .posse td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; vertical-align: top; background: none;
  border: 0; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
.posse .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.posse .soft { opacity: 0.7; font-size: 0.9em; }
.posse .tag.warn { color: #d9662b; } .posse .tag.good { color: #1f9d6b; }
.posse code { white-space: nowrap; } .posse svg { display: block; width: 100%; max-width: 40rem; height: auto; }
.posse svg text { font-family: inherit !important; } .posse summary { cursor: pointer; }
"""


def fragment(*body: Safe) -> str:
    """Return a piece of HTML for a notebook, with a style of its own that touches nothing else."""
    return tag("div", Safe(f"<style>{_FRAGMENT}</style>"), *(Safe(f"\n{part}") for part in body), cls="posse")
