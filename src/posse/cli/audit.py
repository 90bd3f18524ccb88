"""`posse audit`: attacks on a stored run, or on settings, with what each adversary finds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import flags, tables
from posse.cli.flags import INTERRUPTED, settings_command, settings_of
from posse.cli.progress import Doing, about
from posse.cli.screen import print_json, remark
from posse.cli.systems import STORED, command_of

if TYPE_CHECKING:
    from posse.protocols.base import RunSettings, System
    from posse.results.audits import Audit
    from posse.results.record import Record

All = Annotated[bool, typer.Option("--all", help="Also attacks that need many runs, or a network.")]
Names = Annotated[list[str] | None, typer.Option("--attack", help="Only this attack; repeat it.", metavar="NAME")]
Seed = Annotated[int, typer.Option(help="Seed of the attacks' own draws.", metavar="INTEGER")]
STORED_FLAGS = ("--all", "--attack", "--seed", "--json", "--no-save", "--help")
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
    """Make `posse audit RUN`."""

    def audit(
        id: flags.One, all: All = False, attack: Names = None, seed: Seed = 0, json: flags.Json = False,
        no_save: NoKeep = False,
    ) -> None:  # fmt: skip
        from posse.results.store import Store

        store = Store()
        record = store.get(id)
        found, stopped = _audited(record, all, attack, seed)
        if found.rows and not no_save:
            kept = replace(record, audits=(*record.audits, found.plain()))
            store.save(kept, replace=True)
        _show(found, stopped, json)

    return command_of(STORED, "Attack a stored run: its settings are simulated again.", typer.core.TyperCommand, audit)


def _audited(what: RunSettings | Record, all: bool, attacks: list[str] | None, seed: int) -> tuple[Audit, bool]:
    """Make the attacks with progress; Ctrl-C keeps those that are done."""
    from posse.protocols.audit import Auditing

    going = Auditing(what, tuple(attacks or ()), all, seed)
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
