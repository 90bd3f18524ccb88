"""Output: results to stdout, messages to stderr, and with `--json` one JSON document.

Colours and widths follow the terminal, NO_COLOR and COLUMNS (rich reads them).
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from posse.results.document import Document, Protection
    from posse.results.record import Record
    from posse.results.section import Section

LINES = 24
"""Lines of the short form of a document; one more names the records."""
SHORT = ((6, 240), (5, 240), (4, 160), (3, 160), (2, 80), (1, 80))
"""Rows of a table and letters of sentences in the short form; the first that fits is printed."""


def out() -> Console:
    """Make the console of results."""
    return _console(stderr=False)


def err() -> Console:
    """Make the console of everything that is not a result."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # Imported late: a command that only prints its version needs no tables.
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            # rich calls this where the error is being handled; the root command deals with it.
            raise

    return Quiet(stderr=stderr, highlight=False, markup=False, emoji=False)


def complain(text: str) -> None:
    """Print an error on stderr, in one line."""
    _line("error: ", text, "bold red")


def remark(text: str) -> None:
    """Print a message on stderr."""
    _line("", text, "")


def _line(head: str, text: str, style: str) -> None:
    from rich.text import Text

    # Never wrapped by us: a line is what scripts and logs count on.
    err().print(Text.assemble((head, style), " ".join(text.split())), soft_wrap=True)


def in_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def heading(text: str) -> None:
    """Print the heading of a part of the output."""
    say(f"\n{text}", style="bold")


def say(text: str, style: str = "") -> None:
    """Write a paragraph of the output."""
    from rich.text import Text

    out().print(Text(text, style=style))


def bullets(sentences: Iterable[str], style: str = "") -> None:
    """Write sentences one below the other, with a hanging indent."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(style=style)
    for sentence in sentences:
        grid.add_row("  -", sentence)
    out().print(grid)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
    optional: int = 0,
    spare: Sequence[str] = (),
) -> None:
    """Print a table, or one block of lines per row if the terminal is too narrow for whole words.

    Args:
        columns: Headings.
        rows: Cells.
        numeric: Columns that are aligned to the right.
        optional: Number of last columns that are omitted, one by one, if they would make lines wrap.
        spare: Columns that are omitted, in this order, if there would be blocks otherwise.
    """
    cells = [tuple(columns), *map(tuple, rows)]
    console = out()
    for _ in range(optional):
        width = _natural(cells) + 3 * (len(cells[0]) - 1)
        if width <= console.width:
            break
        cells = [row[:-1] for row in cells]
    chosen = list(range(len(cells[0])))
    for name in (None, *spare):
        chosen = [i for i in chosen if columns[i] != name]
        visible = [tuple(row[i] for i in chosen) for row in cells]
        right = [place for place, i in enumerate(chosen) if i in numeric]
        # A wide gap is easier to read; a narrow one may make the table fit.
        gaps = len(chosen) - 1
        gap = 3 if _natural(visible) + 3 * gaps <= console.width else 1
        if widths := _widths(visible, console.width - gap * gaps):
            console.print(_table(visible[0], visible[1:], widths, right, gap))
            return
    for row in cells[1:]:
        console.print(_block(cells[0], row))


def _natural(rows: Sequence[Sequence[str]]) -> int:
    """Return the width that the cells of a table need so that no text wraps."""
    from rich.cells import cell_len

    return sum(max(map(cell_len, column)) for column in zip(*rows, strict=True))


def _widths(rows: Sequence[Sequence[str]], space: int) -> list[int]:
    """Return widths of columns in which no word is broken; nothing if there is too little space.

    >>> _widths([("id", "title"), ("a", "one two three")], 12)
    [2, 10]
    >>> _widths([("id", "title"), ("a", "one two three")], 6)
    []
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) <= space:
        return widths
    least = []
    for column in zip(*rows, strict=True):
        longest_word = max(map(cell_len, " ".join(column).split()), default=0)
        least.append(min(40, longest_word))  # a longer word, such as an address, may be broken
    while sum(widths) > space:
        shrinkable = [i for i, width in enumerate(widths) if width > least[i]]
        if not shrinkable:
            return []
        widest = max(shrinkable, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: list[int],
    numeric: Sequence[int],
    gap: int,
) -> Table:
    """Make a table without frames: what is copied from a terminal stays readable."""
    from rich import box
    from rich.table import Table

    # The box itself takes one column between two cells, the padding the rest of the gap.
    padding = (0, (gap - 1) // 2)
    grid = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, padding=padding
    )
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if i in numeric else "left"
        grid.add_column(column, justify=justify, width=widths[i], overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def _block(columns: Sequence[str], row: tuple[str, ...]) -> Table:
    """Make a block of one row: its first cell, and below it one line per column."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row(columns[0], row[0], style="bold")
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if cell:
            grid.add_row(column, cell)
    grid.add_row()
    return grid


# Documents ----------------------------------------------------------------------------------------


def show(document: Document, *, full: bool, lines: int = LINES) -> None:
    """Print a document: the answer, what it cost and its protection; `full` adds the details.

    Without `full` it has at most so many lines of 80 columns, by default 24: one more can name the
    records.
    """
    if not full:
        for rows, letters in SHORT:
            with redirect_stdout(StringIO()) as text:
                _answer(document, rows, letters)
            if text.getvalue().count("\n") <= lines:
                break
        _answer(document, rows, letters)
        return
    _answer(document)
    for note in document.notes:
        say(note)
    for part in document.details:
        section(part)


def _answer(document: Document, rows: int | None = None, letters: int | None = None) -> None:
    """Print the answer; tables have at most so many rows, and sentences so many letters."""
    say(document.headline, style="bold")
    say(document.title, style="dim")
    text = ""
    for sentence in document.sentences:
        longer = f"{text} {sentence}".strip()
        if letters is None or len(longer) <= letters:
            text = longer
    if text:
        say(text)
    for warning in document.warnings[:rows]:
        say(f"Warning: {warning}", style="yellow")
    if document.picture is not None:
        say("")
        _answer_table(document.picture.section(), rows)
    say("")
    _answer_table(document.table, rows)
    if document.table.notes:
        say(" ".join(document.table.notes), style="dim")
    levels = document.protection if rows is None else document.protection[:1]
    for protection in levels:
        _protection(protection, 100 if rows is None else 2)


def _answer_table(part: Section, most: int | None) -> None:
    """Print a table of the answer; in the short form its first rows, without the regret."""
    rows = [part.columns, *part.rows[:most]]
    if most is not None:
        places = [i for i, name in enumerate(part.columns) if name != "regret"]
        rows = [tuple(row[i] for i in places) for row in rows]
    table(rows[0], rows[1:], numeric=range(1, len(rows[0])), spare=("traffic", "CPU time"))
    hidden = len(part.rows) - len(rows) + 1
    if hidden:
        say(f"and {hidden} more (--full)", style="dim")


def section(part: Section) -> None:
    """Print a section: heading, table, sentences and notes."""
    if part.heading:
        heading(part.heading)
    if part.rows:
        table(part.columns, part.rows, numeric=part.numeric)
    if part.items:
        bullets(part.items)
    for note in part.notes:
        say(note, style="dim" if part.rows else "")


def _protection(protection: Protection, lines: int) -> None:
    heading(f"Protection: {protection.level}")
    if protection.warning:
        say(protection.warning, style="bold red")
    width = max(len(name) for name, _ in protection.lines)
    for name, text in protection.lines:
        paragraph(f"{name:{width}}  ", text, lines)


def paragraph(head: str, text: str, most: int) -> None:
    """Print a text with a hanging indent; of more than `most` lines the rest is cut."""
    width = max(20, out().width - len(head))
    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = lines[:most]
        lines[-1] = textwrap.shorten(f"{lines[-1]} {'x' * width}", width, placeholder=" ...")
    for i, line in enumerate(lines):
        say((head if i == 0 else " " * len(head)) + line)


def saved(records: Sequence[Record], command: str = "") -> None:
    """Print where records were stored, and the command that prints all details."""
    others = f" and {len(records) - 1} more" if len(records) > 1 else ""
    details(command or f"posse runs show {records[0].id}", f"Saved: {records[0].id}{others}. ")


def details(command: str, before: str = "") -> None:
    """Print the command that prints all details."""
    say(f"{before}Details: {command} --full", style="dim")


def print_json(document: object) -> None:
    """Write one strict JSON document, and nothing else, to stdout."""
    from posse.results.values import plain, strict

    sys.stdout.write(
        json.dumps(strict(plain(document, "output")), ensure_ascii=False, allow_nan=False, indent=1)
        + "\n"
    )
