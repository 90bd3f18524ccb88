"""Published figures, computed again: `python -m reproduction list | run | claims | prepare`.

| exit code | means |
|---|---|
| 0 | done |
| 2 | a mistake: one line on stderr, with the remedy |
| 130 | interrupted by Ctrl-C |
"""

from __future__ import annotations

import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from posse.cli.flags import INTERRUPTED, Json
from posse.cli.keep import check_place, make_folder
from posse.cli.progress import Doing
from posse.cli.screen import complain, heading, print_json, remark, say, table
from posse.core.check import require, suggestion
from posse.core.errors import ConfigError, PosseError
from reproduction import EXPERIMENTS, Analysis, Experiment, Watch, claims, prepare
from reproduction.claims import Row, pages

Ids = Annotated[
    list[str], typer.Argument(help="Experiments, or patterns such as '*/fig2'.", metavar="ID...")
]
Patterns = Annotated[
    list[str] | None, typer.Argument(help="Beginnings of ids, or patterns.", metavar="[ID]...")
]
Small = Annotated[bool, typer.Option("--small", help="The small form of each, in minutes.")]
Out = Annotated[Path, typer.Option(help="Folder of figures and tables.", metavar="FOLDER")]
Keep = Annotated[
    Path | None,
    typer.Option(
        help="Make the measurements in --out those of record, and write the pages.",
        metavar="PAGE",
    ),
]

OUT = Path("posse-reproduce")
_PLACE = re.compile(r", (figure|table|section|theorem|algorithm)s? .*$")
"""The end of a reference: which part of the paper it is."""

app = typer.Typer(
    name="python -m reproduction",
    help="Compute published figures again and compare them with what the papers claim.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(prepare.app, name="prepare")


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List what can be computed."""
    experiments = EXPERIMENTS.values()
    if json:
        print_json(
            [
                {"id": e.id, "title": e.title, "reference": e.reference, "tags": list(e.tags)}
                for e in experiments
            ]
        )
        return
    table(("id", "title", "tags"), [(e.id, e.title, ", ".join(e.tags)) for e in experiments])
    # Titles name the figure, so each paper is named once.
    for paper in dict.fromkeys(_PLACE.sub("", e.reference) for e in experiments):
        say(f"\n{paper}", style="dim")
    say("\nNext: python -m reproduction run ID --small (minutes), or without --small (full size)")


@app.command()
def run(ids: Ids, small: Small = False, out: Out = OUT, json: Json = False) -> None:
    """Compute figures and write rows, pictures and verdicts."""
    chosen = _matching(ids)
    require("matplotlib", extra="plot")
    make_folder(out)
    check_place(out / "analysis.md")
    done: list[tuple[Experiment, Analysis]] = []
    try:
        for experiment in chosen:
            # One folder each, because file names repeat.
            folder = out / experiment.id
            with Doing(experiment.id) as doing:
                analysis = experiment.run(small, folder, _watch(doing))
            done.append((experiment, analysis))
            if not json:
                _show(experiment, analysis)
    except KeyboardInterrupt:
        remark(f"interrupted; {len(done)} of {len(chosen)} experiments are done, in {out}.")
        sys.stdout.flush()
        # A normal exit waits for the compiled code that runs in threads.
        os._exit(INTERRUPTED)
    if json:
        print_json([_document(experiment, analysis) for experiment, analysis in done])


def _watch(doing: Doing) -> Watch:
    return lambda what, fraction: doing.at(fraction, what)


def _matching(patterns: list[str]) -> list[Experiment]:
    """Return the experiments that the patterns name, each once."""
    chosen: dict[str, Experiment] = {}
    for pattern in patterns:
        matches = {id: each for id, each in EXPERIMENTS.items() if fnmatchcase(id, pattern)}
        if not matches:
            raise ConfigError(
                f"unknown experiment '{pattern}'.{suggestion(pattern, tuple(EXPERIMENTS))}"
            )
        chosen |= matches
    return list(chosen.values())


def _show(experiment: Experiment, analysis: Analysis) -> None:
    heading(f"{experiment.id}: {experiment.title}")
    say(analysis.headline)
    for part in analysis.tables:
        heading(part.title)
        table(part.columns, part.rows)
    for note in analysis.notes:
        say(note, style="dim")
    for file in analysis.files:
        say(f"wrote {file}")


def _document(experiment: Experiment, analysis: Analysis) -> dict[str, object]:
    """Return an analysis as JSON."""
    return {
        "id": experiment.id,
        "headline": analysis.headline,
        "tables": [
            {"title": part.title, "columns": part.columns, "rows": part.rows}
            for part in analysis.tables
        ],
        "notes": analysis.notes,
        "files": [str(file) for file in analysis.files],
    }


@app.command("claims")
def show_claims(
    ids: Patterns = None, out: Out = OUT, keep: Keep = None, json: Json = False
) -> None:
    """Compare what the papers claim with what was measured, for the release and here."""
    if keep is not None:
        changed = pages.write(out, keep)
        say(f"{keep} is written; new measurements: {', '.join(changed) or 'none'}")
        return
    rows = claims.rows(ids or (), out)
    if json:
        print_json([row.data() for row in rows])
        return
    machines, numbered = claims.machines_of(rows)
    for name in dict.fromkeys(row.document for row in rows):
        _show_document(name, [row for row in rows if row.document == name], machines)
    if machines:
        say(f"\n{numbered}")
    say(f"\n{claims.counted(rows)}.")
    say("Next: python -m reproduction run ID, with the first two parts of a claim's id")


def _show_document(name: str, rows: list[Row], machines: list[str]) -> None:
    """Show claims of one document, and its departures where all its claims are shown."""
    document = claims.document(name)
    heading(document.title)
    cells = []
    for row in rows:
        label = claims.LABELS.get(row.verdict, row.verdict)
        verdict = f"{label}: {row.because}" if row.because else label
        when = "–"
        if row.source is not None:
            when = f"{row.source.date}, {machines.index(row.source.machine) + 1}"
        says = f"{row.claim.place}: {row.claim.says}"
        cells.append((row.claim.id, says, row.measured or "–", verdict, when))
    table(("id", "the paper states", "measured", "verdict", "date, machine"), cells)
    if document.departures and len(rows) == len(document.claims):
        say("\nDifferences between the paper and Posse:")
        departures = [(one.paper, one.here, one.why) for one in document.departures]
        table(("the paper", "here", "why"), departures)


def main() -> None:
    """Run a command; a mistake is one line on stderr and an exit code."""
    try:
        app()
    except PosseError as error:
        complain(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
