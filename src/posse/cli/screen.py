"""Output: results to stdout, messages to stderr, and with `--json` one JSON document.

Colours and widths follow the terminal, NO_COLOR and COLUMNS (rich reads them).
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from posse.results import Record
    from posse.results.document import Document, Protection
    from posse.results.section import Section

LINES = 24
"""Lines of the short form of a document; one more names the records."""
SHORT = ((6, 240), (5, 240), (4, 160), (3, 160), (2, 80), (1, 80))
"""Rows of a table and letters of sentences in the short form; the first that fits is printed."""
WIDE_GAP = 3
"""Columns of the terminal between two columns of a table."""


def console(*, stderr: bool = False) -> Console:
    """Make the console of results, or of everything that is not a result (`stderr`)."""
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


def remark(*texts: str) -> None:
    """Print messages on stderr, one per line."""
    for text in texts:
        _line("", text, "")


def _line(head: str, text: str, style: str) -> None:
    from rich.text import Text

    # Never wrapped by us: a line is what scripts and logs count on.
    console(stderr=True).print(Text.assemble((head, style), " ".join(text.split())), soft_wrap=True)


def in_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def heading(text: str) -> None:
    """Print the heading of a part of the output."""
    say(f"\n{text}", style="bold")


def say(text: str, style: str = "") -> None:
    """Write a paragraph of the output."""
    from rich.text import Text

    console().print(Text(text, style=style))


def bullets(sentences: Iterable[str], style: str = "") -> None:
    """Write sentences one below the other, with a hanging indent."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(style=style)
    for sentence in sentences:
        grid.add_row("  -", sentence)
    console().print(grid)


def table_of(items: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print one row per item, if there are items.

    Args:
        items: What is listed.
        columns: Headings, each with the key of an item's value.
    """
    rows = [[str(item[key] or "") for key in columns.values()] for item in items]
    if rows:
        table(list(columns), rows)


class _Column(NamedTuple):
    """A column of a table: its heading and its cells."""

    texts: Sequence[str]
    right: bool
    """Whether it is aligned to the right."""

    @property
    def width(self) -> int:
        """Width without a line break."""
        from rich.cells import cell_len

        return max(map(cell_len, self.texts))

    @property
    def longest_word(self) -> int:
        """Width without a broken word; longer words, such as addresses, may be broken."""
        from rich.cells import cell_len

        return min(40, max(map(cell_len, " ".join(self.texts).split()), default=0))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
    optional: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table, or one block of lines per row if the terminal is too narrow for whole words.

    Args:
        columns: Headings.
        rows: Cells.
        numeric: Columns that are aligned to the right.
        optional: Columns that are omitted, in this order, if they would make lines wrap.
        spare: Columns that are omitted, in this order, if there would be blocks otherwise.
    """
    terminal = console()
    cells = zip(columns, *rows, strict=True)
    fitting = [_Column(texts, place in numeric) for place, texts in enumerate(cells)]
    for name in optional:
        if _width(fitting, WIDE_GAP) > terminal.width:
            fitting = [column for column in fitting if column.texts[0] != name]
    all_columns = fitting
    for omitted in (None, *spare):
        fitting = [column for column in fitting if column.texts[0] != omitted]
        # A wide gap is easier to read; a narrow one may make the table fit.
        gap = WIDE_GAP if _width(fitting, WIDE_GAP) <= terminal.width else 1
        widths = _widths(fitting, terminal.width - gap * (len(fitting) - 1))
        if widths:
            terminal.print(_grid(fitting, widths, gap))
            return
    headings, *lines = zip(*(column.texts for column in all_columns), strict=True)
    for line in lines:
        terminal.print(_block(headings, line))


def _width(columns: Sequence[_Column], gap: int) -> int:
    """Return the width of a table in which no text wraps."""
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _widths(columns: Sequence[_Column], space: int) -> list[int]:
    """Return widths of columns in which no word is broken; nothing if there is too little space.

    >>> columns = [_Column(("id", "a"), False), _Column(("title", "one two three"), False)]
    >>> _widths(columns, 12), _widths(columns, 6)
    ([2, 10], [])
    """
    widths = [column.width for column in columns]
    least = [column.longest_word for column in columns]
    while sum(widths) > space:
        shrinkable = [i for i, width in enumerate(widths) if width > least[i]]
        if not shrinkable:
            return []
        widest = max(shrinkable, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _grid(columns: Sequence[_Column], widths: list[int], gap: int) -> Table:
    """Make a table without frames: text that is copied from a terminal stays readable."""
    from rich import box
    from rich.table import Table

    # The box itself takes one column between two cells, the padding the rest of the gap.
    padding = (0, (gap - 1) // 2)
    grid = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, padding=padding
    )
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.right else "left"
        grid.add_column(column.texts[0], justify=justify, width=width, overflow="fold")
    for row in zip(*(column.texts[1:] for column in columns), strict=True):
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
    if full:
        _answer(document)
        for note in document.notes:
            say(note)
        for part in document.details:
            section(part)
        return
    for rows, letters in SHORT:
        with redirect_stdout(StringIO()) as text:
            _answer(document, rows, letters)
        if text.getvalue().count("\n") <= lines:
            break
    _answer(document, rows, letters)


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
    tables = [document.table]
    if document.picture is not None:
        tables.insert(0, document.picture.section())
    for part in tables:
        say("")
        _answer_table(part, rows)
    if document.table.notes:
        say(" ".join(document.table.notes), style="dim")
    is_short = rows is not None
    for protection in document.protection[: 1 if is_short else None]:
        _protection(protection, 2 if is_short else 100)


def _answer_table(part: Section, most: int | None) -> None:
    """Print a table of the answer; in the short form its first rows, without the regret."""
    columns = list(part.columns)
    rows = [list(row) for row in part.rows[:most]]
    if most is not None and "regret" in columns:
        place = columns.index("regret")
        for row in (columns, *rows):
            del row[place]
    costs = [name for name in columns if name.startswith(("traffic", "CPU time"))]
    table(columns, rows, numeric=range(1, len(columns)), spare=costs[::-1])
    hidden = len(part.rows) - len(rows)
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
    """Print a level of protection; each of its texts has at most so many lines."""
    heading(f"Protection: {protection.level}")
    if protection.warning:
        say(protection.warning, style="bold red")
    indent = max(len(name) for name, _ in protection.lines) + 2
    width = max(20, console().width - indent)
    for name, text in protection.lines:
        wrapped = textwrap.wrap(
            text, width, break_on_hyphens=False, max_lines=lines, placeholder=" ..."
        )
        say(f"{name:{indent}}" + f"\n{' ' * indent}".join(wrapped))


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
