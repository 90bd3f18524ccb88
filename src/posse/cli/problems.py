"""`posse problems`: where arms and markets can come from, and whether the files are there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import options
from posse.cli.flags import flags_given, settings_of
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.errors import DataError

if TYPE_CHECKING:
    from posse.problems.settings import ProblemSettings

Show = Annotated[
    str | None, typer.Option("--show", help="Print the arms of this one, or of a CSV file.", metavar="NAME")
]


def problem_settings() -> type[ProblemSettings]:
    """Import the settings of problems."""
    from posse.problems.settings import ProblemSettings

    return ProblemSettings


def problems(context: typer.Context, show: Show = None, json: options.Json = False) -> None:
    """List the problems, or show the arms of one (the flags below then say which)."""
    if show is not None:
        _show(context, show, json)
        return
    from posse.problems.datasets import DATASETS
    from posse.problems.datasets.embedded import EMBEDDED, SIZE
    from posse.problems.instances import INSTANCES

    folder = flags_given(context).get("data_dir")
    found: list[dict[str, Any]] = [
        {"name": f"embedded:{name}", "ready": True, "what": f"{SIZE} means of the Samba authors", "needs": ""}
        for name in EMBEDDED
    ]
    with Doing("reading the data sets"):
        for dataset in DATASETS.values():
            reason = _missing(dataset.name, folder)
            found.append(
                {"name": dataset.name, "ready": not reason, "what": dataset.description, "needs": dataset.source,
                 "reason": reason}
            )  # fmt: skip
    if json:
        markets = [
            {"name": name, "ready": True, "what": f"random market: {what}", "needs": "", "flag": "--instance"}
            for name, what in INSTANCES.items()
        ]
        print_json([*({**one, "flag": "--data"} for one in found), *markets])
        return
    rows = [(one["name"], "yes" if one["ready"] else "no", one["what"]) for one in found]
    rows.append(("FILE.csv", "yours", "columns name,mean, or item,rating with --threshold"))
    table(("--data", "ready", "what it is"), rows)
    away = [one for one in found if not one["ready"]]
    if away:
        heading("To get the others")
        for one in away:
            say(f"{one['name']}: {one['reason']}")
    heading("Markets")
    table(("", "ready", "what it is"), _markets(INSTANCES))
    say("\nSee the arms: posse problems --show embedded:jester --owners 5", style="dim")


def _markets(instances: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        *((f"--instance {name}", "yes", f"random: {what}") for name, what in instances.items()),
        ("--offers FILE.csv", "yours", "columns agent,supplier,cost,capacity; and one of the two below"),
        ("--qualities FILE.csv", "yours", "columns supplier,quality: a row a supplier, units are drawn"),
        ("--records FILE.csv", "yours", "columns supplier,quality: a row a past unit, replayed in order"),
    ]


def _missing(name: str, folder: str | None) -> str:
    """Say why a data set cannot be read; an empty string where it can."""
    from posse.problems.datasets import DATASETS

    if folder is None and not os.environ.get("POSSE_DATA"):
        return f"get it from {DATASETS[name].source} and set POSSE_DATA (or --data-dir) to the folder that holds it."
    try:
        DATASETS[name].loader(folder)
    except DataError as error:
        return str(error)
    return ""


def _show(context: typer.Context, name: str, json: bool) -> None:
    from posse.results import words

    arms = settings_of(problem_settings(), context, data=name).arms()
    if json:
        print_json({"data": name, **arms.describe()})
        return
    heading(f"{name}: {len(arms)} arms, {arms.kind} rewards")
    best = arms.best
    rows = [
        (str(i + 1), arm, f"{mean:.4f}", words.UNKNOWN if mean == best else f"{best - mean:.4f}")
        for i, (arm, mean) in enumerate(zip(arms.names, arms.means.tolist(), strict=True))
    ]
    table(("", "arm", "mean", "below the best"), rows, numeric=(0, 2, 3))
    say(f"\nSource: {arms.source}", style="dim")
