"""`posse backup` and `posse restore`: what an operator keeps of a party."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from posse.cli.screen import remark, say

File = Annotated[Path, typer.Argument(help="The party's file.", metavar="FILE")]
Archive = Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")]
Out = Annotated[Path | None, typer.Option(help="Where the backup goes; beside the party's file if not given.")]
WithoutJournal = Annotated[
    bool, typer.Option("--without-journal", help="Restore file and identity only, for the party's next run.")
]


def backup(file: File, out: Out = None) -> None:
    """Write a backup of a party, which may run meanwhile; it is as secret as the party's keys."""
    from posse.runtime.backup import make

    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out = out or file.with_name(f"{file.stem}-{when}.backup")
    made = make(file, out)
    state = "its part is over" if made.finished else "in the middle of its run" if made.begun else "not begun"
    say(f"{out}: {made.role} '{made.party}' of run {made.run}, {state}")
    remark("it holds the party's keys: keep it where only you can read it.")


def restore(archive: Archive, file: File, without_journal: WithoutJournal = False) -> None:
    """Put a party back from a backup, where its file says; in a run, its peers must say that it went no further."""
    from posse.runtime.backup import restore

    made = restore(archive, file, journal=not without_journal)
    say(f"restored {made.role} '{made.party}' of run {made.run}, as it was at {made.made}")
    if without_journal:
        remark("without its journal: it can take part in another run, not in this one.")
    elif made.begun and not made.finished:
        remark("started, it asks every peer whether the run has gone on since, and goes on only if none says so.")
    remark(f"check it with: posse doctor {file}")
