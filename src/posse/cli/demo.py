"""`posse demo`: a secure federated bandit over ten data owners, beside its plain twin."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, remark, say
from posse.core.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from posse.results.record import Record

POLICY, OWNERS, BUDGET = "thompson", 10, 10_000
ENOUGH_SECONDS = 45.0
"""When the first level took longer than this, the second is left out: a demo is short."""

Out = Annotated[Path, typer.Option("--out", help="Folder for the report.", metavar="FOLDER")]


def demo(out: Out = Path("posse-demo")) -> None:
    """See it work: ten data owners, no download, half a minute."""
    keeper = Keeper(save=True)
    _make(out)
    say(
        f"Ten owners hold one film each and learn together which is liked most: {BUDGET:,} pulls by Thompson sampling, "
        "on means of MovieLens that ship with Posse. No owner sees the rewards of another."
    )
    with keeper.on_interrupt():
        pairs = _pairs()
    secure = [record for record, _ in pairs]
    records = [*secure, pairs[0][1]]
    with keeper.kept(records):
        _tell(pairs)
        page = _report(records, out / "report.html")
    _end(records, page)


def _pairs() -> list[tuple[Record, Record]]:
    """Run the levels and the plain twin of each, saying what is being done."""
    from posse.cli import work
    from posse.cli.options import samba_settings
    from posse.privacy.crypto.paillier import generate_key

    started = time.monotonic()
    make = samba_settings().make
    settings = make({"policy": POLICY, "owners": OWNERS, "budget": BUDGET})
    remark("1. the plain bandit, without protection (the first time, its code is compiled) ...")
    plain = work.plain(settings)
    remark(f"2. a Paillier key of {settings.paillier_bits} bits ...")
    with Doing("making a key"):
        key = generate_key(settings.paillier_bits)
    remark("3. the federation at level 'standard': every message sealed ...")
    pairs = [(work.secure(settings, key), plain)]
    if time.monotonic() - started < ENOUGH_SECONDS:
        remark("4. the federation at level 'paper': the published protocol ...")
        # Its comp breaks ties by draws of its own, so it has a twin of its own.
        published = settings.model_copy(update={"level": "paper"})
        pairs.append((work.secure(published, key), work.plain(published)))
    return pairs


def _tell(pairs: list[tuple[Record, Record]]) -> None:
    from posse.cli import tables

    secure = [record for record, _ in pairs]
    heading("What was earned, and what security cost")
    tables.earned_and_cost([pairs[0][1], *secure])
    say("")
    for record, twin in pairs:
        say(tables.sameness(record, twin), style="bold")
    tables.protection(secure[0])
    for record in secure[1:]:
        more = [leak for leak in record.leaks if leak not in secure[0].leaks]
        heading(f"Level '{record.level}' leaks all of this, and more")
        bullets(more, style="yellow")


def _make(folder: Path) -> None:
    from posse.core.files import os_reason

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {os_reason(error)}") from error


def _report(records: list[Record], path: Path) -> Path | None:
    """Write the page; without matplotlib the demo has said everything all the same."""
    from posse.results import write_report

    try:
        with Doing("writing the report"):
            return write_report(records, path)
    except MissingExtraError as error:
        remark(f"no report: {error}")
        return None


def _end(records: list[Record], page: Path | None) -> None:
    heading("Next")
    lines = [
        f"posse runs show {records[0].id}",
        "posse run samba --help",
        "posse compare --policy ucb --policy thompson",
    ]
    bullets([f"the report: {page}", *lines] if page else lines)
