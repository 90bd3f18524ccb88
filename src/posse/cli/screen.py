"""Where words go: tables to stdout, everything said on the way to stderr, one JSON document when
asked.

Colours and widths follow the terminal, NO_COLOR and COLUMNS (rich reads them).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
    """Say on stderr, in one line, what went wrong."""
    _line("error: ", text, "bold red")


def remark(text: str) -> None:
    """Say something on stderr that is not a result."""
    _line("", text, "")


def _line(head: str, text: str, style: str) -> None:
    from rich.text import Text

    # Never wrapped by us: a line is what scripts and logs count on.
    err().print(Text.assemble((head, style), " ".join(text.split())), soft_wrap=True)


def heading(text: str) -> None:
    """Begin a part of the output."""
    from rich.text import Text

    out().print(Text(f"\n{text}", style="bold"))


def say(text: str, style: str = "") -> None:
    """Write a paragraph of the output."""
    from rich.text import Text

    out().print(Text(text, style=style))


def bullets(sentences: Iterable[str], style: str = "") -> None:
    """Write sentences one below the other, with a hanging indent."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row(Text("  -", style=style), Text(sentence))
    out().print(grid)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
    optional: int = 0,
    spare: Sequence[str] = (),
) -> None:
    """Print a table, or a block of lines a row where the terminal is too narrow for whole words.

    Columns whose number is in `numeric` are aligned to the right; the last `optional` columns are
    left out, one by one, where they would make lines wrap. Columns named in `spare` are left out,
    in this order, where there would be blocks else.
    """
    kept = [tuple(row) for row in rows]
    console = out()
    for _ in range(optional):
        if _natural([columns, *kept]) + 3 * (len(columns) - 1) <= console.width:
            break
        columns, kept = columns[:-1], [row[:-1] for row in kept]
    chosen = list(range(len(columns)))
    for name in (None, *spare):
        chosen = [i for i in chosen if columns[i] != name]
        cells = [[row[i] for i in chosen] for row in (columns, *kept)]
        # A wide gap reads better; a narrow one may be what makes the table fit.
        for gap in (3, 1):
            if widths := _widths(cells, console.width - gap * (len(chosen) - 1)):
                right = [at for at, i in enumerate(chosen) if i in numeric]
                console.print(_table(cells[0], cells[1:], widths, right, gap))
                return
    for row in kept:
        console.print(_block(columns, row))


def _natural(rows: Sequence[Sequence[str]]) -> int:
    """Width of the cells of a table in which nothing wraps."""
    from rich.cells import cell_len

    return sum(max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True))


def _widths(rows: Sequence[Sequence[str]], space: int) -> list[int]:
    """Share the space out among columns so that no word is broken; nothing where that cannot be.

    >>> _widths([("id", "title"), ("a", "one two three")], 12)
    [2, 10]
    >>> _widths([("id", "title"), ("a", "one two three")], 6)
    []
    """
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    # A word longer than 40, such as an address, may be broken.
    least = [
        min(40, max(cell_len(word) for cell in col for word in (cell.split() or [""])))
        for col in zip(*rows, strict=True)
    ]
    while sum(widths) > space:
        room = [width - low for width, low in zip(widths, least, strict=True)]
        if max(room) <= 0:
            return []
        widest = max((i for i, spare in enumerate(room) if spare > 0), key=lambda i: widths[i])
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
    from rich.text import Text

    # The box itself takes one column between two cells, the padding the rest of the gap.
    padding = (0, (gap - 1) // 2)
    made = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, padding=padding
    )
    for i, column in enumerate(columns):
        made.add_column(
            column, justify="right" if i in numeric else "left", width=widths[i], overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def _block(columns: Sequence[str], row: tuple[str, ...]) -> Table:
    """Make a block of one row: its first cell, and below it a line a column."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row(Text(columns[0], style="bold"), Text(row[0], style="bold"))
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if cell:
            grid.add_row(Text(column), Text(cell))
    grid.add_row()
    return grid


def print_json(document: object) -> None:
    """Write one strict JSON document, and nothing else, to stdout."""
    from posse.results.values import plain, strict

    sys.stdout.write(
        json.dumps(strict(plain(document, "output")), ensure_ascii=False, allow_nan=False, indent=1)
        + "\n"
    )
