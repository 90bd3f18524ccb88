"""`posse problems`: where arms, contexts, markets and clients can come from, and whether the files are there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import options
from posse.cli.flags import flags_given, settings_of
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from posse.problems.arms.settings import ProblemSettings

Show = Annotated[
    str | None, typer.Option("--show", help="Print the arms of this one, or of a CSV file.", metavar="NAME")
]


def problem_settings() -> type[ProblemSettings]:
    """Import the settings of problems."""
    from posse.problems.arms.settings import ProblemSettings

    return ProblemSettings


def problems(context: typer.Context, show: Show = None, json: options.Json = False) -> None:
    """List the problems, or show the arms of one (the flags below then say which)."""
    if show is not None:
        _show(context, show, json)
        return
    from posse.problems.contexts.settings import PROBLEMS
    from posse.problems.datasets.published import EMBEDDED, SIZE
    from posse.problems.datasets.ratings import DATASETS
    from posse.problems.markets.instances import INSTANCES
    from posse.problems.populations.settings import POPULATIONS

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
        contexts = [
            {"name": name, "what": what, "reason": _no_contexts(name, folder)} for name, what in PROBLEMS.items()
        ]
    if json:
        rows = [{**one, "ready": not one["reason"], "needs": "", "flag": "--problem"} for one in contexts]
        markets = [
            {"name": name, "ready": True, "what": f"random market: {what}", "needs": "", "flag": "--instance"}
            for name, what in INSTANCES.items()
        ]
        clients = [{"name": name, "what": what, "of": "fed-contextual", "flag": "--data"} for name, what in
                   POPULATIONS.items()]  # fmt: skip
        print_json([*({**one, "flag": "--data"} for one in found), *markets, *rows, *clients])
        return
    table(("--data", "ready", "what it is"), _arms(found))
    away = [one for one in (*found, *contexts) if one.get("reason")]
    if away:
        heading("To get the others")
        for one in away:
            say(f"{one['name']}: {one['reason']}")
    heading("Contexts, for mpc-contextual")
    table(("", "ready", "what it is"), [(f"--problem {one['name']}", _ready(one), one["what"]) for one in contexts])
    heading("Markets")
    table(("", "ready", "what it is"), _markets(INSTANCES))
    heading("Clients, for fed-contextual")
    table(("", "what it is"), [(f"--data {name}", what) for name, what in POPULATIONS.items()])
    say("\nSee the arms: posse problems --show embedded:jester --owners 5", style="dim")


def _arms(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    rows = [(one["name"], "yes" if one["ready"] else "no", one["what"]) for one in found]
    return [*rows, ("FILE.csv", "yours", "columns name,mean, or item,rating with --threshold")]


def _ready(problem: dict[str, Any]) -> str:
    return "yours" if problem["name"] == "own" else "no" if problem["reason"] else "yes"


def _no_contexts(name: str, folder: str | None) -> str:
    """Say why a contextual problem cannot be made; an empty string where it can."""
    from posse.core.extras import require
    from posse.problems.datasets.mnist import HOME, load_mnist

    if name == "mnist" and folder is None and not os.environ.get("POSSE_DATA"):
        return f"get it from {HOME} and set POSSE_DATA (or --data-dir) to the folder that holds it."
    try:
        if name in ("digits", "clusters"):
            require("sklearn", extra="data")
        if name == "mnist":
            load_mnist(folder)
    except (DataError, MissingExtraError) as error:
        return str(error)
    return ""


def _markets(instances: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        *((f"--instance {name}", "yes", f"random: {what}") for name, what in instances.items()),
        ("--offers FILE.csv", "yours", "columns agent,supplier,cost,capacity; and one of the two below"),
        ("--qualities FILE.csv", "yours", "columns supplier,quality: a row a supplier, units are drawn"),
        ("--records FILE.csv", "yours", "columns supplier,quality: a row a past unit, replayed in order"),
    ]


def _missing(name: str, folder: str | None) -> str:
    """Say why a data set cannot be read; an empty string where it can."""
    from posse.problems.datasets.ratings import DATASETS

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
