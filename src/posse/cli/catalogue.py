"""What ships with Posse: `posse policies`, `posse problems`, and published figures, computed again
by `reproduce`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.keep import check_place, make_folder
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, remark, say, table
from posse.cli.tables import section
from posse.core.check import nearest, require
from posse.core.errors import ConfigError
from posse.core.interrupts import save_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from posse.experiments import Analysis, Experiment, Watch
    from posse.results.reports.sections import Section

_FIGURE = re.compile(r", (figure|table|section|theorem|algorithm)s? .*$")

Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        help="Check a policy of yours: module:Class or file.py:Class.",
        metavar="MODULE:CLASS",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data sets; else the one that POSSE_DATA names."),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", help="Only data whose name holds this, such as movielens.", metavar="NAME"
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Experiments, or patterns such as '*/fig2'.", metavar="[ID]..."),
]
Small = Annotated[bool, typer.Option("--small", help="A small form of each, in minutes.")]
List = Annotated[bool, typer.Option("--list", help="List what can be reproduced.")]
Claims = Annotated[
    bool, typer.Option("--claims", help="What the papers claim beside what was measured.")
]
Out = Annotated[
    Path, typer.Option("--out", help="Folder for figures and tables.", metavar="FOLDER")
]


def policies(check: Check = None, json: flags.Json = False) -> None:
    """List the policies of every system, or check your own."""
    from posse.systems.registry import systems

    if check is not None:
        _check(check, json)
        return
    _show_lists({system.name: system.policies() for system in systems()}, json)
    if not json:
        say(
            "\nYour own: subclass posse.policies.Policy, then: posse policies --check "
            "file.py:Class",
            style="dim",
        )


def _check(where: str, json: bool) -> None:
    from posse.policies.arms.registry import policy as made

    policy = made(where)
    with Doing(f"checking {where}"):
        from posse.policies.arms.checks import check

        report = check(policy)
    if json:
        results = [{"name": r.name, "passed": r.passed, "reason": r.reason} for r in report.results]
        print_json({"policy": where, "passed": report.passed, "results": results})
    else:
        heading(
            f"{type(policy).__name__}: {'may run in a federation' if report.passed else 'refused'}"
        )
        table(
            ("check", "result"),
            [(r.name, "ok" if r.passed else f"FAILED: {r.reason}") for r in report.results],
        )
    if not report.passed:
        raise typer.Exit(1)


def problems(data: Data = None, folder: Folder = None, json: flags.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there."""
    from posse.systems.registry import systems

    with Doing("reading the data sets"):
        lists = {system.name: system.problems(folder) for system in systems()}
    _show_lists(lists if data is None else _named_like(data, lists), json)


def _named_like(data: str, lists: Mapping[str, Section | None]) -> dict[str, Section | None]:
    """Keep the rows whose name holds a word; refuse one that none holds."""
    kept: dict[str, Section | None] = {}
    for name, one in lists.items():
        if one is not None and (
            rows := tuple(row for row in one.rows if data.lower() in row[0].lower())
        ):
            facts = (one.data or {}).get("data", ())
            own = [fact for fact in facts if data.lower() in str(fact.get("name", "")).lower()]
            notes = tuple(
                note for note in one.notes if any(note.startswith(f"{row[0]}:") for row in rows)
            )
            kept[name] = replace(
                one, rows=rows, notes=notes, data={**one.data, "data": own} if one.data else None
            )
    if not kept:
        named = [row[0] for one in lists.values() if one is not None for row in one.rows]
        known = tuple(
            dict.fromkeys(name for names in named for name in names.split(", "))
        )  # some name several files
        raise ConfigError(f"no data set '{data}'.{nearest(data, known)}")
    return kept


def _show_lists(lists: Mapping[str, Section | None], json: bool) -> None:
    listed = {name: one for name, one in lists.items() if one is not None}
    if json:
        print_json({name: one.data or one.plain() for name, one in listed.items()})
        return
    for one in listed.values():
        section(one)


def reproduce(
    ids: Ids = None,
    small: Small = False,
    listed: List = False,
    claimed: Claims = False,
    out: Out = Path("posse-reproduce"),
    json: flags.Json = False,
) -> None:
    """Compute published figures again and say what came out."""
    if claimed:
        _show_claims(ids or [], out, json)
        return
    from posse.experiments import EXPERIMENTS

    if listed or not ids:
        _list_experiments(EXPERIMENTS, json, asked=listed)
        return
    chosen = [EXPERIMENTS[id] for id in _matching(ids, tuple(EXPERIMENTS))]
    require("matplotlib", extra="plot")
    make_folder(out)
    check_place(out / "analysis.md")
    done: list[tuple[Experiment, Analysis]] = []

    def kept() -> str:
        return f"{len(done)} of {len(chosen)} experiments are done{f', in {out}' if done else ''}"

    try:
        with save_on_interrupt(kept):
            for experiment in chosen:
                with Doing(experiment.id) as doing:
                    # A folder each: experiments name their files alike.
                    analysis = experiment.run(small, out / experiment.id, _watch(doing))
                done.append((experiment, analysis))
                if not json:
                    _show_analysis(experiment, analysis)
    except KeyboardInterrupt:
        remark(f"interrupted; {kept()}.")
        raise typer.Exit(flags.INTERRUPTED) from None
    if json:
        print_json(
            [
                {
                    "id": experiment.id,
                    "headline": analysis.headline,
                    "tables": [
                        {"title": t.title, "columns": t.columns, "rows": t.rows}
                        for t in analysis.tables
                    ],
                    "notes": analysis.notes,
                    "files": [str(file) for file in analysis.files],
                }
                for experiment, analysis in done
            ]
        )


def _show_claims(ids: list[str], out: Path, json: bool) -> None:
    """Show every claim, with what was measured by those who ship Posse or, below `out`, by the
    user.
    """
    from posse.experiments import claims

    rows = claims.rows(ids, out)
    if json:
        print_json([row.data() for row in rows])
        return
    machines, numbered = claims.machines_of(rows)
    for name in dict.fromkeys(row.document for row in rows):
        own, said = [row for row in rows if row.document == name], claims.document(name)
        heading(said.title)
        shown = [
            (
                row.claim.id,
                f"{row.claim.place}: {row.claim.says}",
                row.measured or "–",
                f"{row.verdict}: {row.because}" if row.because else row.verdict,
                "–"
                if row.source is None
                else f"{row.source.date}, {machines.index(row.source.machine) + 1}",
            )
            for row in own
        ]
        table(("id", "it says", "measured", "verdict", "date, machine"), shown)
        if said.departures and len(own) == len(said.claims):
            say("\nDepartures from it:")
            table(
                ("the paper", "here", "why"),
                [(one.paper, one.here, one.why) for one in said.departures],
            )
    if machines:
        say(f"\n{numbered}")
    say(
        f"\n{claims.counted(rows)}. Run one again: posse reproduce ID (the first two parts of its "
        "id)."
    )


def _watch(doing: Doing) -> Watch:
    return lambda what, fraction: doing.at(fraction, what)


def _matching(wanted: list[str], known: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in wanted:
        matches = [id for id in known if fnmatchcase(id, pattern)]
        if not matches:
            raise ConfigError(f"unknown experiment '{pattern}'.{nearest(pattern, known)}")
        found.update(dict.fromkeys(matches))
    return list(found)


def _list_experiments(experiments: dict[str, Experiment], json: bool, *, asked: bool) -> None:
    if json:
        print_json(
            [
                {"id": e.id, "title": e.title, "reference": e.reference, "tags": list(e.tags)}
                for e in experiments.values()
            ]
        )
        return
    table(
        ("id", "title", "tags"), [(e.id, e.title, ", ".join(e.tags)) for e in experiments.values()]
    )
    # A title says which figure it is; the paper is named once.
    for reference in dict.fromkeys(_FIGURE.sub("", e.reference) for e in experiments.values()):
        say(f"\n{reference}", style="dim")
    if not asked:
        say(
            "\nRun one: posse reproduce ID --small (minutes), or without --small for the full size."
        )


def _show_analysis(experiment: Experiment, analysis: Analysis) -> None:
    heading(f"{experiment.id}: {experiment.title}")
    say(analysis.headline)
    for made in analysis.tables:
        heading(made.title)
        table(made.columns, made.rows)
    for note in analysis.notes:
        say(note, style="dim")
    for file in analysis.files:
        say(f"wrote {file}")
