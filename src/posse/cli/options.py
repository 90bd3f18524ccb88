"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option(help="TOML file with settings; flags win over it.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report here.", metavar="FILE")]
Figure = Annotated[Path | None, typer.Option(help="Write a figure here (.svg, .png or .pdf).", metavar="FILE")]
NoSave = Annotated[bool, typer.Option("--no-save", help="Do not keep the run in the store.")]
Label = Annotated[str | None, typer.Option(help="A name of yours for the run.", metavar="TEXT")]
Ids = Annotated[list[str], typer.Argument(help="Ids, beginnings of ids, or 'last'.", metavar="ID...")]
One = Annotated[str, typer.Argument(help="An id, the beginning of one, or 'last'.", metavar="ID")]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
