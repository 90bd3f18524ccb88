"""Where words go: tables to stdout, everything said on the way to stderr, one JSON document when asked.

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

    from posse.results.record import RunRecord
    from posse.results.values import JSON


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = ()) -> None:
    """Print a table; columns whose number is in `numeric` are aligned to the right."""
    out().print(make_table(columns, rows, numeric=numeric))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = ()) -> Table:
    """Make a table without frames: what is copied from a terminal stays readable."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for i, column in enumerate(columns):
        # Folded, never cut: a narrow terminal costs lines, not letters.
        made.add_column(column, justify="right" if i in numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def print_json(document: object) -> None:
    """Write one strict JSON document, and nothing else, to stdout."""
    from posse.results.values import plain, strict

    sys.stdout.write(
        json.dumps(strict(plain(document, "output")), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    )


def record_json(record: RunRecord) -> dict[str, JSON]:
    """Give a record with its arrays, as `posse runs export` writes it to a .json file."""
    from posse.results.record import ARRAYS
    from posse.results.values import plain

    return {**record.metadata(), **{name: plain(getattr(record, name), name) for name in ARRAYS}}
