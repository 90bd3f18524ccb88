"""`posse audit`: attacks on a stored run, on settings, or on a recorded view, with what each
adversary finds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED, settings_of
from posse.cli.help import Command, make_command, text_of
from posse.cli.keep import open_store
from posse.cli.progress import Doing, about
from posse.cli.screen import print_json, remark, say, section, table
from posse.cli.systems import load, system_command
from posse.core.interrupts import save_on_interrupt
from posse.core.roles import View
from posse.results import Record
from posse.results.audits import Audit
from posse.systems.audit import Auditor, read_view
from posse.systems.base import AnySystem
from posse.systems.registry import system

if TYPE_CHECKING:
    from typer.core import TyperCommand


FINDS = ("finds it out", "a little")
"""Verdicts on attacks that find something."""
MOST_ATTACKS = 9
"""Attacks in the short form; each may take two lines."""


def settings_audit(protocol: AnySystem) -> TyperCommand:
    """Make `posse audit NAME [SETTINGS]`."""

    def audit(
        context: typer.Context,
        *,
        config: flags.Config = None,
        all: bool = False,
        attack: list[str] = flags.NONE_GIVEN,
        json: flags.Json = False,
        full: flags.Full = False,
    ) -> None:
        """Attack runs with these settings.

        Options:
            all: Also attacks that need many runs, or a network.
            attack (NAME): Only this attack; repeat it.
        """
        settings = settings_of(protocol.Settings, context, config)
        load(settings)
        auditor = Auditor(settings, attacks=tuple(attack), all=all, seed=settings.seed)
        _audit(auditor, json, full)

    command = system_command(protocol, "path")
    about = f"Attack runs of {protocol.about.title} with these settings."
    examples = (f"posse audit {protocol.name}", f"posse audit {protocol.name} --attack NAME")
    return make_command(protocol.name, command, audit, text_of(about, examples))


def stored_audit() -> TyperCommand:
    """Make `posse audit RUN` and `posse audit FILE`."""

    def audit(
        run: str,
        *,
        all: bool = False,
        attack: list[str] = flags.NONE_GIVEN,
        seed: int = 0,
        like: Path | None = None,
        json: flags.Json = False,
        no_save: bool = False,
        full: flags.Full = False,
    ) -> None:
        """Attack a stored run: its settings are simulated again.

        For a view that a deployed party recorded there are estimates only.

        Options:
            run (RUN): A stored run (id, its beginning, 'last'), or a view that a party recorded.
            all: Also attacks that need many runs, or a network.
            attack (NAME): Only this attack; repeat it.
            seed (INTEGER): Seed of the attacks' own draws.
            like (FILE): For a recorded view: settings of a run like it, whose data are known.
            no_save: Do not keep the audit in the run's record.
        """
        record = None
        target: Record | View
        if os.sep in run or Path(run).is_file():
            target = read_view(Path(run))
            name = str(target.public["system"])
        else:
            target = record = open_store().get(run)
            name = record.kind
        similar = None if like is None else system(name).Settings.make(file=like)
        auditor = Auditor(target, attacks=tuple(attack), all=all, seed=seed, like=similar)

        def keep(result: Audit) -> None:
            if record is not None and result.rows and not no_save:
                audits = (*record.audits, result.plain())
                open_store().save(record.but(audits=audits), replace=True)

        _audit(auditor, json, full, keep)

    return make_command("audit", Command, audit)


def _audit(
    auditor: Auditor,
    json: bool,
    full: bool,
    keep: Callable[[Audit], object] = lambda result: None,
) -> None:
    """Make the attacks with progress, keep and print what they find.

    Ctrl-C keeps those that are done.
    """

    def finish(state: str = "finished") -> str:
        result = auditor.result(state)
        keep(result)
        _print(result, json, full)
        return f"the {len(result.rows)} attacks that were done are shown"

    if auditor.seconds_of_own_runs > 2:
        takes = about(auditor.seconds_of_own_runs).removesuffix(" left")
        remark(f"{len(auditor.chosen)} attacks, some with further runs: {takes}.")
    try:
        with Doing("preparing") as doing, save_on_interrupt(lambda: finish("interrupted")):
            auditor.run(doing.at)
    except KeyboardInterrupt:
        remark(f"interrupted; {finish('interrupted')}.")
        raise typer.Exit(INTERRUPTED) from None
    finish()


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
