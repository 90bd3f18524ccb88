"""`posse demo`: a system at each of its levels, compared with its plain twin."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from posse.cli import flags
from posse.cli.keep import Keeper, check_place, make_folder
from posse.cli.progress import Doing
from posse.cli.screen import remark, say, show
from posse.cli.systems import go, title
from posse.core.check import require
from posse.core.errors import MissingExtraError
from posse.results import Record
from posse.results import report as write_report
from posse.results.document import document, sameness
from posse.systems.base import AnySystem, RunSettings
from posse.systems.registry import names, system, system_of

ENOUGH_SECONDS = 45.0
"""When the first level took longer than this, the others are left out: a demo is short."""

LINES = 21
"""Lines of the result in the short form, which has 25 with what to do next."""

Horizon = Annotated[
    int | None, typer.Option("--horizon", help="Steps or rounds of a shorter demo.", min=1)
]


def demo(
    name: str | None = None,
    *,
    out: Path = Path("posse-demo"),
    horizon: Horizon = None,
    full: flags.Full = False,
) -> None:
    """See it work: no download, half a minute.

    Options:
        name ([SYSTEM]): A system; the registry's first if not given.
        out (FOLDER): Folder for the report.

    Examples:
        posse demo
        posse demo SYSTEM --horizon 200
    """
    chosen = system(name or names()[0])
    keeper = Keeper(save=True)
    make_folder(out)
    check_place(out / "report.html")
    remark(chosen.about.demo.story)
    draws = _can_draw()
    settings = chosen.Settings(**chosen.about.demo.settings)
    if horizon is not None:
        settings = settings.but(horizon=horizon)
    records: list[Record] = []
    with keeper.keep(records):
        with keeper.on_interrupt():
            pairs = list(_run_levels(settings, keeper, records))
        records.append(records.pop(0))  # the twin of the first level goes behind the protected runs
        _print_records(chosen, pairs, full)
        if draws:
            with Doing("writing the report"):
                page = write_report(records, out / "report.html")
            say(f"The report: {page}")
    say(f"Next: posse runs show {records[0].id} --full; posse audit {records[0].id}")


def _run_levels(
    settings: RunSettings, keeper: Keeper, records: list[Record]
) -> Iterator[tuple[Record, Record]]:
    """Run the levels, each with its plain twin, while there is time.

    All protected records and the first twin are added to `records` as soon as they exist.
    """
    started = time.monotonic()
    variants = [settings]
    if "level" in type(settings).model_fields:
        variants = [settings.but(level=level.name) for level in system_of(settings).levels]
    for number, variant in enumerate(variants):
        if number and time.monotonic() - started > ENOUGH_SECONDS:
            return
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


def _print_records(chosen: AnySystem, pairs: Sequence[tuple[Record, Record]], full: bool) -> None:
    """Print the document of the protected runs and the plain twin of the first."""
    _, first_twin = pairs[0]
    show(document([*(record for record, _ in pairs), first_twin]), full=full, lines=LINES)
    if chosen.about.exact:
        for pair in pairs if full else pairs[:1]:
            say(sameness(*pair), style="bold")


def _can_draw() -> bool:
    """Return whether there can be a report; without matplotlib the demo prints everything else."""
    try:
        require("matplotlib", extra="plot")
    except MissingExtraError as error:
        remark(f"no report: {error}")
        return False
    return True
