"""`posse runs`: the records on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.screen import details, print_json, remark, say, table
from posse.cli.screen import show as show_document
from posse.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from posse.results.export import Row, Scalar
    from posse.results.record import Record
    from posse.results.store import RunRow, Store

app = typer.Typer(
    help="List, show, delete, export and report the runs on this machine.",
    callback=flags.help_when_alone,
    invoke_without_command=True,
)

Limit = Annotated[int, typer.Option(help="At most this many; 0 for all.", min=0, metavar="INTEGER")]
Kind = Annotated[str | None, typer.Option(help="Only runs of this system.", metavar="TEXT")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Only where this holds: policy=ucb, horizon>=1000, label~trial. Repeat it.",
        metavar="CONDITION",
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(help="Sort by columns: NAME,NAME,...; -NAME the largest first.", metavar="NAMES"),
]
Group = Annotated[
    str | None,
    typer.Option(help="One row a group: NAME,NAME,...; numbers are means.", metavar="NAMES"),
]
Shown = Annotated[
    str | None, typer.Option("--columns", help="Show these columns: NAME,NAME,...", metavar="NAMES")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parties = Annotated[
    bool, typer.Option("--parties", help="What each party earned, not the curves (.csv, .parquet).")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="File: .csv, .parquet, .json or .html.", metavar="FILE")
]
Page = Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.", metavar="FILE")]

LISTED = (
    "system",
    "policy",
    "level",
    "horizon",
    "runs",
    "data",
    "party",
    "version",
    "status",
    "seeds",
)
"""What a list shows in columns of its own, or not at all."""
STORED = (
    "record",
    "kind",
    "policy",
    "level",
    "arms",
    "horizon",
    "runs",
    "total_mean",
    "party",
    "label",
    "data",
    "created",
)
"""What these columns are called where they are filtered (`results.export.ALSO`)."""
MOST = 4
"""Further settings that it shows at most, where they differ."""
QUIET = 10.0
"""Seconds without a heartbeat after which it says so."""


@app.command("list")
def list_runs(
    limit: Limit = 20,
    kind: Kind = None,
    where: Where = None,
    sort: Sort = None,
    group: Group = None,
    shown: Shown = None,
    json: flags.Json = False,
) -> None:
    """List the runs, the last one first; those that are running too, and settings in which they
    differ.
    """
    from posse.results.store import Store

    store = Store()
    # A pair is saved so that its protected run is 'last'; in the list the newer of the two comes
    # first.
    rows = sorted(
        store.list(None if where or sort else limit or None, kind),
        key=lambda row: (row.created, row.id),
        reverse=True,
    )
    if group or shown:
        _query(store, store.list(None, kind), limit, where or (), sort, group, shown, json)
    elif where or sort:
        _filtered(store, rows, limit, where or (), sort, json)
    elif json:
        heads = store.heads(row.id for row in rows)
        figures = {row["record"]: row for row in _figures(store, heads)}
        print_json(
            [{**_facts(row, heads.get(row.id)), "figures": figures.get(row.id, {})} for row in rows]
        )
    elif not rows:
        kinds = ", ".join(sorted({row.kind for row in store.list()}))
        none = f"No runs of '{kind}' in {store.path}. It has runs of: {kinds}."
        say(none if kinds else f"No runs yet in {store.path}. Make one with: posse demo")
    else:
        _print_list(rows, store.heads(row.id for row in rows))
        if len(rows) == limit < len(store):
            remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")


def _print_list(
    rows: Sequence[RunRow], heads: Mapping[str, Record], asked: Mapping[str, Row] | None = None
) -> None:
    """Print a line a run; `heads` lack damaged ones, and `asked` has further columns that were
    asked for, by id.
    """
    from posse.results import differences, words
    from posse.results.export import data_of
    from posse.results.words import Vocabulary, common

    settings = dict(zip(heads, differences(heads.values()), strict=True))
    further = list(dict.fromkeys(name for one in (asked or {}).values() for name in one))
    names = [
        name
        for name in dict.fromkeys(name for one in settings.values() for name in one)
        if name not in (*LISTED, *further)
    ][:MOST]
    nouns = {row.id: heads[row.id].words if row.id in heads else Vocabulary() for row in rows}
    also = [
        what
        for what in ("party", "label")
        if any(_facts(row, heads.get(row.id))[what] for row in rows)
    ]
    system = ["system"] if len({row.kind for row in rows}) > 1 else []
    lines = []
    for row in rows:
        facts, own, head = (
            _facts(row, heads.get(row.id)),
            settings.get(row.id, {}),
            heads.get(row.id),
        )
        lines.append(
            (
                row.id,
                *(row.kind for _ in system),
                row.policy,
                _level(row, str(facts["protection"]), str(facts["state"])),
                f"{row.arms or words.UNKNOWN}",
                f"{row.horizon:,}",
                f"{row.runs or words.UNKNOWN}",
                nouns[row.id].priced(words.number(row.total_mean)),
                *(_cell((asked or {}).get(row.id, {}).get(name)) for name in further),
                *(str(facts[what]) for what in also),
                *(own.get(name, "") for name in names),
                row.problem if head is None else data_of(head),
                row.created[:16].replace("T", " "),
            )
        )
    more = _told_apart({row.id: line[1:-1] for row, line in zip(rows, lines, strict=True)}, heads)
    if more:
        lines = [(*line[:-1], more.get(line[0], ""), line[-1]) for line in lines]
    shared = common(nouns.values())
    arms = words.plural(shared.arm)
    columns = [
        "id",
        *system,
        "policy",
        "level",
        arms,
        words.plural(shared.step),
        "runs",
        "earned",
        *further,
        *also,
    ]
    columns += [name.removeprefix("policy.") for name in names]
    columns += ["data", "more", "made (UTC)"] if more else ["data", "made (UTC)"]
    first, optional = columns.index(arms), 2 + len(names) + bool(more)
    table(columns, lines, numeric=range(first, first + 4), optional=optional, spare=(arms, "runs"))


def _told_apart(
    shown: Mapping[str, tuple[str, ...]], heads: Mapping[str, Record]
) -> dict[str, str]:
    """Say in what runs differ of which a list shows the same; empty where it shows of none the
    same.
    """
    from posse.results import differences

    alike: dict[tuple[str, ...], list[str]] = {}
    for id in heads:
        alike.setdefault(shown[id], []).append(id)
    several = [ids for ids in alike.values() if len(ids) > 1]
    found = {
        id: ", ".join(
            f"{name.removeprefix('policy.')} {value}"
            for name, value in own.items()
            if name not in LISTED
        )
        for ids in several
        for id, own in zip(ids, differences([heads[id] for id in ids]), strict=True)
    }
    return {id: text for id, text in found.items() if text}


def _figures(store: Store, heads: Mapping[str, Record]) -> list[Row]:
    """Load runs and give a row each: every setting and every figure; of damaged curves, what the
    head says.
    """
    from posse.results.export import aligned, summary_rows

    records = dict(heads)
    for id in heads:
        with suppress(StoreError):
            records[id] = store.get(id)
    return aligned(summary_rows(records.values()))


def _filtered(
    store: Store,
    rows: Sequence[RunRow],
    limit: int,
    where: Sequence[str],
    sort: str | None,
    json: bool,
) -> None:
    """Print the list, filtered and sorted as a frame would be; the limit is on what is left."""
    from posse.results import words
    from posse.results.export import column, filtered, ordered, split

    heads = store.heads(row.id for row in rows)
    also = _headings(heads)
    figures = _figures(store, heads)
    found = filtered(figures, where, also)
    found = ordered(found, _names(sort), also) if sort else found
    many, found = len(found), found[: limit or None]
    if json:
        print_json(found)
        return
    by_id = {row.id: row for row in rows}
    wanted = [split(one)[0] for one in where] + [
        name.removeprefix("-") for name in _names(sort or "")
    ]
    stored = [
        name
        for name in dict.fromkeys(column(name, figures, also) for name in wanted)
        if name not in STORED
    ]
    chosen = [str(row["record"]) for row in found]
    extra = {str(row["record"]): {name: row.get(name) for name in stored} for row in found}
    if chosen:
        _print_list([by_id[id] for id in chosen], {id: heads[id] for id in chosen}, extra)
    _counted(words.count(len(found), "row"), many - len(found), many)


def _query(
    store: Store,
    listed: Sequence[RunRow],
    limit: int,
    where: Sequence[str],
    sort: str | None,
    group: str | None,
    shown: str | None,
    json: bool,
) -> None:
    """Group the runs, or show columns of one's own; the limit is on what is left."""
    from posse.results import words
    from posse.results.export import column, filtered, grouped, ordered

    heads = store.heads(row.id for row in listed)  # damaged ones are left out
    also = _headings(heads)
    rows = filtered(_figures(store, heads), where, also)
    rows = grouped(rows, _names(group), also) if group else rows
    rows = ordered(rows, _names(sort), also) if sort else rows
    many, rows = len(rows), rows[: limit or None]
    if shown:
        columns = {column(name, rows, also): name for name in _names(shown)}
    else:
        columns = _of_groups(rows, sort, also)
    if json:
        print_json([{name: row.get(name) for name in columns} if shown else row for row in rows])
        return
    numeric = [
        i
        for i, name in enumerate(columns)
        if all(isinstance(row.get(name), int | float) for row in rows)
    ]
    # A heading is the word that was given for a column, or its own longer name.
    names = [word if word in also else name for name, word in columns.items()]
    table(names, [[_cell(row.get(name)) for name in columns] for row in rows], numeric=numeric)
    _counted(words.count(len(rows), "row"), many - len(rows), many)


def _cell(value: Scalar) -> str:
    from posse.results import words

    if value is None:
        return words.UNKNOWN
    return words.words_of(value) if isinstance(value, str | bool) else words.number(value)


def _counted(shown: str, left: int, many: int) -> None:
    remark(f"{shown}{f' of {many:,}; --limit 0 lists all' if left else ''}.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _headings(heads: Mapping[str, Record]) -> dict[str, str]:
    """Return the words for columns: headings of a list, which name steps and arms as the systems of
    its runs do.
    """
    from posse.results.export import ALSO
    from posse.results.words import plural

    nouns = [head.words for head in heads.values()]
    steps, arms = (
        {plural(getattr(one, what)): name for one in nouns}
        for what, name in (("step", "horizon"), ("arm", "arms"))
    )
    return {**steps, **arms, **ALSO}


def _of_groups(rows: Sequence[Row], sort: str | None, also: Mapping[str, str]) -> dict[str, str]:
    """Choose columns of groups, each with its heading: what they are of, what they were sorted by,
    what they earned.
    """
    from posse.results.export import ALSO, column

    keys = list(rows[0]) if rows else []
    words = {name: word for word, name in ALSO.items()}
    first = keys[: keys.index("records") + 1] if keys else ["records"]
    asked = [column(name.removeprefix("-"), rows, also) for name in _names(sort or "")]
    wanted = (*first, *asked, "total_mean", "total_error", "seconds")
    return {name: words.get(name, name) for name in wanted if any(name in row for row in rows)}


def _facts(row: RunRow, head: Record | None) -> dict[str, object]:
    """Give a row with what its record adds; a damaged one adds nothing."""
    if head is None:
        return {
            **asdict(row),
            "label": "",
            "protection": row.level,
            "state": row.status,
            "settings": {},
        }
    state = head.state if row.time is None else f"{row.status}, {row.progress}"
    names = {"label": head.own_label, "protection": head.protection, "state": state}
    return {**asdict(row), **names, "settings": head.settings()}


def _level(row: RunRow, protection: str, state: str) -> str:
    from posse.results.words import seconds

    if row.status == "finished":
        return protection
    quiet = (
        f", last heartbeat {seconds(row.age)} ago"
        if row.age is not None and row.age > QUIET
        else ""
    )
    return f"{protection} ({state}{quiet})"


@app.command()
def show(id: flags.One, json: flags.Json = False, full: flags.Full = False) -> None:
    """Show one run: what was earned, what it cost, how it was protected."""
    from posse.results.document import document
    from posse.results.store import Store

    record = Store().get(id)
    if json:
        print_json(record.document())
        return
    names = {
        "": record.id,
        "label": record.own_label,
        "party": record.party,
        "run": record.run_id if record.run_id != record.id else "",
        "made": record.created,
    }
    say(" · ".join(f"{name} {value}".strip() for name, value in names.items() if value))
    show_document(document(record), full=full)
    if not full:
        details(f"posse runs show {record.id}")
    if view := record.summary.get("view"):
        say(f"View recorded: {view} (what it shows: posse audit {record.id})")


@app.command()
def delete(ids: flags.Ids, yes: Yes = False) -> None:
    """Delete runs; one unknown id, and none is deleted."""
    from posse.results import words
    from posse.results.store import Store

    store = Store()
    # Resolved before asking, so that the question names what would go.
    names = list(dict.fromkeys(store.get(id).id for id in ids)) if not yes else ids
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError(
                "delete asks before it deletes, and this is not a terminal. Pass --yes to delete."
            )
        if not typer.confirm(f"Delete {', '.join(names)}?", err=True):
            remark("nothing was deleted.")
            raise typer.Exit(1)
    remark(f"deleted {words.count(store.delete(names), 'run')}.")


@app.command()
def export(ids: flags.Ids, out: Out, parties: Parties = False) -> None:
    """Write runs to a file; its suffix says how."""
    from posse.results import export as export_records
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {export_records([store.get(id) for id in ids], out, parties=parties)}")


@app.command()
def report(ids: flags.Ids, out: Page = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several."""
    from posse.results import report as write_report
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {write_report([store.get(id) for id in ids], out)}")
