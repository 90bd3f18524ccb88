"""`posse demo`: a system at each of its levels, compared with its plain twin."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.keep import Keeper, check_place, make_folder
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, remark, say, show
from posse.cli.systems import go, title
from posse.core.check import require
from posse.core.errors import MissingExtraError
from posse.systems.registry import names, system

if TYPE_CHECKING:
    from posse.results.record import Record
    from posse.systems.base import AnySystem

ENOUGH_SECONDS = 45.0
"""When the first level took longer than this, the others are left out: a demo is short."""

LINES = 21
"""Lines of the result in the short form, which has 25 with what to do next."""

AUDITED = 300
"""Steps of the runs that the demo attacks."""

Name = Annotated[
    str | None,
    typer.Argument(help="A system; the registry's first if not given.", metavar="[SYSTEM]"),
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the report.", metavar="FOLDER")]
Horizon = Annotated[
    int | None, typer.Option("--horizon", help="Steps or rounds of a shorter demo.", min=1)
]


def demo(
    name: Name = None,
    out: Out = Path("posse-demo"),
    horizon: Horizon = None,
    full: flags.Full = False,
) -> None:
    """See it work: no download, half a minute.

    Examples:
        posse demo
        posse demo SYSTEM --horizon 200
    """
    from posse.results import report as write_report

    chosen = system(name or names()[0])
    keeper = Keeper(save=True)
    make_folder(out)
    check_place(out / "report.html")
    remark(chosen.about.demo.story)
    draws = _can_draw()
    pairs: list[tuple[Record, Record]] = []
    records: list[Record] = []
    with keeper.kept(records):
        with keeper.on_interrupt(False):
            for record, twin in _pairs(chosen, keeper, horizon, records):
                pairs.append((record, twin))
        records.append(records.pop(0))  # the twin of the first level goes behind the protected runs
        _tell(chosen, pairs, full)
        if full:
            _attack(chosen, [record.level for record, _ in pairs], min(horizon or AUDITED, AUDITED))
        if draws:
            with Doing("writing the report"):
                page = write_report(records, out / "report.html")
    if draws:
        say(f"The report: {page}")
    say(f"Next: posse runs show {records[0].id} --full; posse run {chosen.name} --help")


def _pairs(
    chosen: AnySystem, keeper: Keeper, horizon: int | None, records: list[Record]
) -> Iterator[tuple[Record, Record]]:
    """Run the levels and the plain twin of each, saying what is being done; the first twin is among
    the records.
    """
    started = time.monotonic()
    settings = chosen.Settings(**chosen.about.demo.settings)
    settings = settings if horizon is None else settings.but(horizon=horizon)
    has_levels = "level" in chosen.Settings.model_fields
    levels = [level.name for level in chosen.levels] if has_levels else [None]
    for number, level in enumerate(levels):
        if number and time.monotonic() - started > ENOUGH_SECONDS:
            return
        variant = settings if level is None else settings.but(level=level)
        remark(
            f"{2 * number + 1}. the plain bandit, without protection (the first time, its code is "
            "compiled) ..."
        )
        twin = go(variant.plain(), keeper)
        if not number:
            records.append(twin)
        remark(f"{2 * number + 2}. {title(variant)} ...")
        records.append(go(variant, keeper))
        yield records[-1], twin


def _tell(chosen: AnySystem, pairs: Sequence[tuple[Record, Record]], full: bool) -> None:
    """Print the document of the protected runs and the plain twin of the first."""
    from posse.results.document import document, sameness

    protected = [record for record, _ in pairs]
    notes = [sameness(*pair) for pair in pairs] if chosen.about.exact else []
    show(document([*protected, *(twin for _, twin in pairs[:1])]), full=full, lines=LINES)
    for note in notes if full else notes[:1]:
        say(note, style="bold")


def _attack(chosen: AnySystem, levels: Sequence[str], horizon: int) -> None:
    """Make one attack at every level that was run, on a short run, and print the findings."""
    from posse.systems.audit import audit

    attack = chosen.about.demo.attack
    if not attack:
        return
    lines = []
    with Doing("attacking short runs"):
        for level in levels:
            settings = chosen.Settings(
                **{**chosen.about.demo.settings, "horizon": horizon, "level": level}
            )
            row = audit(settings, attacks=attack, plantings=1)[attack]
            lines.append(
                f"{level}: {row.at} together seek {row.title}: {row.verdict} ({row.counted})"
            )
    heading("What an attack finds ('posse audit' makes all)")
    bullets(lines)


def _can_draw() -> bool:
    """Return whether there can be a report; without matplotlib the demo prints everything else."""
    try:
        require("matplotlib", extra="plot")
    except MissingExtraError as error:
        remark(f"no report: {error}")
        return False
    return True
