"""`posse reproduce`: published figures, computed again."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from posse.experiments import Analysis, Experiment, Watch

Ids = Annotated[list[str] | None, typer.Argument(help="Experiments, or patterns such as '*/fig2'.", metavar="[ID]...")]
Small = Annotated[bool, typer.Option("--small", help="A small form of each, in minutes.")]
List = Annotated[bool, typer.Option("--list", help="List what can be reproduced.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for figures and tables.", metavar="FOLDER")]


def reproduce(
    ids: Ids = None,
    small: Small = False,
    listed: List = False,
    out: Out = Path("posse-reproduce"),
    json: options.Json = False,
) -> None:
    """Compute published figures again and say what came out."""
    from posse.experiments import EXPERIMENTS

    if listed or not ids:
        _list(EXPERIMENTS, json, asked=listed)
        return
    chosen = [EXPERIMENTS[id] for id in _matching(ids, tuple(EXPERIMENTS))]
    _make(out)
    done = []
    for experiment in chosen:
        with Doing(experiment.id) as doing:
            # A folder each: experiments name their files alike.
            analysis = experiment.run(small, out / experiment.id, _watch(doing))
        done.append((experiment, analysis))
        if not json:
            _show(experiment, analysis)
    if json:
        print_json([_facts(experiment, analysis) for experiment, analysis in done])


def _watch(doing: Doing) -> Watch:
    def watch(what: str, fraction: float) -> None:
        doing.at(fraction, what)

    return watch


def _matching(wanted: list[str], known: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in wanted:
        matches = [id for id in known if fnmatchcase(id, pattern)]
        if not matches:
            raise ConfigError(f"unknown experiment '{pattern}'.{nearest(pattern, known)}")
        found.update(dict.fromkeys(matches))
    return list(found)


def _make(folder: Path) -> None:
    from posse.core.files import os_reason

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {os_reason(error)}") from error


def _list(experiments: dict[str, Experiment], json: bool, *, asked: bool) -> None:
    if json:
        print_json([
            {"id": e.id, "title": e.title, "reference": e.reference, "tags": list(e.tags)} for e in experiments.values()
        ])  # fmt: skip
        return
    table(("id", "title", "tags"), [(e.id, e.title, ", ".join(e.tags)) for e in experiments.values()])
    for reference in dict.fromkeys(e.reference for e in experiments.values()):
        say(f"\n{reference}", style="dim")
    if not asked:
        say("\nRun one: posse reproduce ID --small (minutes), or without --small for the full size.")


def _show(experiment: Experiment, analysis: Analysis) -> None:
    heading(f"{experiment.id}: {experiment.title}")
    say(analysis.headline)
    for made in analysis.tables:
        heading(made.title)
        table(made.columns, made.rows)
    for note in analysis.notes:
        say(note, style="dim")
    for file in analysis.files:
        say(f"wrote {file}")


def _facts(experiment: Experiment, analysis: Analysis) -> dict[str, object]:
    return {
        "id": experiment.id,
        "headline": analysis.headline,
        "tables": [{"title": t.title, "columns": t.columns, "rows": t.rows} for t in analysis.tables],
        "notes": list(analysis.notes),
        "files": [str(file) for file in analysis.files],
    }
