"""`posse audit`: attacks on a stored run, on settings, or on a recorded view, with what each
adversary finds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED, settings_of
from posse.cli.groups import StoredCommand
from posse.cli.help import make_command
from posse.cli.keep import open_store
from posse.cli.progress import Doing, about
from posse.cli.screen import print_json, remark, say, section, table
from posse.cli.systems import system_command
from posse.core.interrupts import save_on_interrupt
from posse.systems.registry import system

if TYPE_CHECKING:
    from typer.core import TyperCommand

    from posse.core.roles import View
    from posse.results.audits import Audit
    from posse.results.record import Record
    from posse.systems.base import AnySystem, RunSettings

All = Annotated[bool, typer.Option("--all", help="Also attacks that need many runs, or a network.")]
Names = Annotated[
    list[str] | None, typer.Option("--attack", help="Only this attack; repeat it.", metavar="NAME")
]
Seed = Annotated[int, typer.Option(help="Seed of the attacks' own draws.", metavar="INTEGER")]
What = Annotated[
    str,
    typer.Argument(
        help="A stored run (id, its beginning, 'last'), or a view that a party recorded.",
        metavar="RUN",
    ),
]
Like = Annotated[
    Path | None,
    typer.Option(
        help="For a recorded view: settings of a run like it, whose data are known.", metavar="FILE"
    ),
]
FINDS = ("finds it out", "a little")
"""Verdicts on attacks that find something."""
MOST_ATTACKS = 9
"""Attacks in the short form; each may take two lines."""
_DONE = "the {} attacks that were done are shown"
NoKeep = Annotated[
    bool, typer.Option("--no-save", help="Do not keep the audit in the run's record.")
]


def settings_audit(protocol: AnySystem) -> TyperCommand:
    """Make `posse audit NAME [SETTINGS]`."""

    def audit(
        context: typer.Context,
        config: flags.Config = None,
        all: All = False,
        attack: Names = None,
        json: flags.Json = False,
        full: flags.Full = False,
    ) -> None:
        settings = settings_of(protocol.Settings, context, config)
        with Doing("reading data and checking"):
            settings.load()
        _audited(settings, all, attack, settings.seed, json, full)

    command = system_command(protocol, "path")
    about = f"Attack runs of {protocol.about.title} with these settings."
    examples = (f"posse audit {protocol.name}", f"posse audit {protocol.name} --attack NAME")
    return make_command(protocol.name, about, examples, command, audit)


def stored_audit() -> TyperCommand:
    """Make `posse audit RUN` and `posse audit FILE`."""

    def audit(
        id: What,
        all: All = False,
        attack: Names = None,
        seed: Seed = 0,
        like: Like = None,
        json: flags.Json = False,
        no_save: NoKeep = False,
        full: flags.Full = False,
    ) -> None:
        from posse.systems.audit import read_view

        if os.sep in id or Path(id).is_file():
            view = read_view(Path(id))
            _audited(view, all, attack, seed, json, full, _like(like, str(view.public["system"])))
            return
        store = open_store()
        record = store.get(id)

        def keep(result: Audit) -> None:
            if result.rows and not no_save:
                audits = (*record.audits, result.plain())
                store.save(record.but(audits=audits), replace=True)

        _audited(record, all, attack, seed, json, full, _like(like, record.kind), keep)

    summary = (
        "Attack a stored run: its settings are simulated again. Of a view that a deployed party "
        "recorded there are "
        "estimates only."
    )
    return make_command("audit", summary, (), StoredCommand, audit)


def _like(file: Path | None, name: str) -> RunSettings | None:
    """Read settings like those of a run whose view was recorded."""
    return None if file is None else system(name).Settings.make(file=file)


def _audited(
    what: RunSettings | Record | View,
    all: bool,
    attacks: list[str] | None,
    seed: int,
    json: bool,
    full: bool,
    like: RunSettings | None = None,
    keep: Callable[[Audit], object] = lambda result: None,
) -> None:
    """Make the attacks with progress, keep and show what they find; Ctrl-C keeps those that are
    done.
    """
    from posse.systems.audit import Auditor

    names = tuple(attacks or ())
    auditor = Auditor(what, attacks=names, all=all, seed=seed, like=like)

    def rescued() -> str:
        result = auditor.result("interrupted")
        keep(result)
        _print(result, json, full)
        return _DONE.format(len(result.rows))

    if auditor.seconds_of_own_runs > 2:
        takes = about(auditor.seconds_of_own_runs).removesuffix(" left")
        remark(f"{len(auditor.chosen)} attacks, some with further runs: {takes}.")
    stopped = False
    with Doing("preparing") as doing:
        try:
            with save_on_interrupt(rescued):
                auditor.run(doing.at)
        except KeyboardInterrupt:
            stopped = True
    result = auditor.result("interrupted") if stopped else auditor.result()
    keep(result)
    _print(result, json, full)
    if stopped:
        remark(f"interrupted; {_DONE.format(len(result.rows))}.")
        raise typer.Exit(INTERRUPTED)


def _print(audit: Audit, json: bool, full: bool) -> None:
    if json:
        print_json(audit.plain())
        sys.stdout.flush()
        return
    say(audit.headline, style="bold")
    if full or audit.view:
        for part in audit.sections():
            section(part)
        return
    rows = sorted(audit.rows, key=lambda row: row.verdict not in FINDS)
    cells = [(row.attack, row.at, row.title, row.verdict) for row in rows[:MOST_ATTACKS]]
    table(("attack", "at", "seeks", "verdict"), cells, spare=("seeks", "at"))
    if len(rows) > MOST_ATTACKS:
        say(f"and {len(rows) - MOST_ATTACKS} more", style="dim")
    say("Scores, intervals and what was left out: --full", style="dim")
