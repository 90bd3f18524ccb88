"""`posse audit`: attacks on a stored run, on settings, or on a recorded view, with what each adversary finds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import flags, tables
from posse.cli.flags import INTERRUPTED, settings_command, settings_of
from posse.cli.progress import Doing, about
from posse.cli.screen import print_json, remark
from posse.cli.systems import STORED, command_of

if TYPE_CHECKING:
    from posse.core.roles import View
    from posse.protocols.base import RunSettings, System
    from posse.results.audits import Audit
    from posse.results.record import Record

All = Annotated[bool, typer.Option("--all", help="Also attacks that need many runs, or a network.")]
Names = Annotated[list[str] | None, typer.Option("--attack", help="Only this attack; repeat it.", metavar="NAME")]
Seed = Annotated[int, typer.Option(help="Seed of the attacks' own draws.", metavar="INTEGER")]
STORED_FLAGS = ("--all", "--attack", "--seed", "--json", "--no-save", "--like", "--help", "-h")
What = Annotated[
    str,
    typer.Argument(help="A stored run (id, its beginning, 'last'), or a view that a party recorded.", metavar="RUN"),
]
Like = Annotated[
    Path | None,
    typer.Option(help="For a recorded view: settings of a run like it, whose data are known.", metavar="FILE"),
]
NoKeep = Annotated[bool, typer.Option("--no-save", help="Do not keep the audit in the run's record.")]


def settings_audit(known: System) -> Any:
    """Make `posse audit NAME [SETTINGS]`."""

    def audit(
        context: typer.Context, config: flags.Config = None, all: All = False, attack: Names = None,
        json: flags.Json = False,
    ) -> None:  # fmt: skip
        settings = settings_of(known.Settings, context, config)
        with Doing("reading data and checking"):
            settings.load()
        _show(*_audited(settings, all, attack, settings.seed), json)

    command = settings_command(lambda: known.Settings, skip=(*known.skip, "path"))
    return command_of(known.name, f"Attack runs of {known.title} with these settings.", command, audit)


def stored_audit() -> Any:
    """Make `posse audit RUN` and `posse audit FILE`."""

    def audit(
        id: What, all: All = False, attack: Names = None, seed: Seed = 0, like: Like = None, json: flags.Json = False,
        no_save: NoKeep = False,
    ) -> None:  # fmt: skip
        from posse.protocols.audit import read_view
        from posse.results.store import Store

        if os.sep in id or Path(id).is_file():
            view = read_view(Path(id))
            _show(*_audited(view, all, attack, seed, _like(like, str(view.public["system"]))), json)
            return
        store = Store()
        record = store.get(id)
        found, stopped = _audited(record, all, attack, seed, _like(like, record.kind))
        if found.rows and not no_save:
            kept = replace(record, audits=(*record.audits, found.plain()))
            store.save(kept, replace=True)
        _show(found, stopped, json)

    summary = (
        "Attack a stored run: its settings are simulated again. Of a view that a deployed party recorded there are "
        "estimates only."
    )
    return command_of(STORED, summary, typer.core.TyperCommand, audit)


def _like(file: Path | None, name: str) -> RunSettings | None:
    """Read settings like those of a run whose view was recorded."""
    from posse.protocols.registry import system

    return None if file is None else system(name).Settings.make(file=file)


def _audited(
    what: RunSettings | Record | View, all: bool, attacks: list[str] | None, seed: int, like: RunSettings | None = None
) -> tuple[Audit, bool]:
    """Make the attacks with progress; Ctrl-C keeps those that are done."""
    from posse.protocols.audit import Auditing

    going = Auditing(what, tuple(attacks or ()), all, seed, like=like)
    if going.seconds > 2:
        takes = about(going.seconds).removesuffix(" left")
        remark(f"{len(going.chosen)} attacks, some with runs of their own: {takes}.")
    with Doing("preparing") as doing:
        try:
            for _ in going.rows(doing.at):
                pass
        except KeyboardInterrupt:
            return going.audit("interrupted"), True
    return going.audit(), False


def _show(found: Audit, stopped: bool, json: bool) -> None:
    if json:
        print_json(found.plain())
    else:
        for section in found.sections():
            tables.section(section)
    if stopped:
        remark(f"interrupted; the {len(found.rows)} attacks that were done are shown.")
        raise typer.Exit(INTERRUPTED)
