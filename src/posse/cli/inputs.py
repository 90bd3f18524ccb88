"""What runs take in: tables of the user (`posse check`), logs of decisions (`posse evaluate`,
`posse predict`), and what ships with Posse (`posse policies`, `posse problems`).
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from posse.cli import flags
from posse.cli.keep import Keeper, check_place, open_store
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, remark, say, section, table
from posse.core.check import suggestion
from posse.core.errors import ConfigError, DataError
from posse.core.files import write_whole
from posse.core.listing import Listing
from posse.core.statistics import wilson
from posse.policies.arms import checks
from posse.policies.arms.registry import policy as load_policy
from posse.policies.decisions import Learnt
from posse.policies.listing import listing as list_policies
from posse.problems.listing import listing as list_problems
from posse.problems.recognise import TITLES
from posse.problems.summary import ArmSummary, Summary, as_flags, summarise
from posse.problems.tables.mapping import read_columns_setting
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Schema, numbers, other_columns, read_encoded
from posse.problems.tables.table import open_table
from posse.results.logs import evaluate_logs, figure_of, section_of
from posse.results.words import listed
from posse.systems.base import AnySystem
from posse.systems.modules import live_of
from posse.systems.registry import systems

if TYPE_CHECKING:
    from numpy.typing import NDArray


Encoding = Annotated[
    str, typer.Option(help="Encoding of the file where it is not UTF-8, such as latin-1.")
]
Decimal = Annotated[
    str, typer.Option(help="Decimal mark of the file: . or a comma.", metavar="MARK")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Drop rows that cannot be read, with a warning.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Names of columns in the file: arm=variant,reward=sold.", metavar="TEXT"),
]

SHOWN = 12
"""Arms that are listed; the best ones."""
NO_FEATURES = ("client", "label", "row")
"""Columns of tables to learn from that are no features: a model decides on such a table too."""


def evaluate(
    logs: Path,
    *,
    model: str | None = None,
    figure: Path | None = None,
    encoding: Encoding = "",
    decimal: Decimal = ".",
    skip_bad: SkipBad = False,
    columns: Columns = None,
    json: flags.Json = False,
) -> None:
    """Estimate from a log what other policies would have earned (IPS, SNIPS, DR).

    Options:
        logs (FILE): CSV: client, context columns, arm, reward, probability.
        model (MODEL): Evaluate this model or run too.
        figure (PATH): Draw the intervals: .png, .svg or .pdf.

    Examples:
        posse evaluate log.csv
        posse evaluate log.csv --model model.npz --figure intervals.svg
    """
    Keeper(save=False, figure=figure)
    learnt = None if model is None else _learnt(model)

    options = _options(encoding, decimal, skip_bad, columns)
    evaluation = evaluate_logs(logs, learnt, options=options)
    logged, results = evaluation
    estimates = section_of(logged, results)
    if figure is not None:
        picture = io.BytesIO()
        figure_of(logged, results).savefig(picture, format=figure.suffix[1:].lower())
        write_whole(figure, picture.getvalue())
        remark(f"drew {figure}")
    if json:
        print_json(estimates.data)
    else:
        say(evaluation.headline, style="bold")
        section(estimates)


def _options(encoding: str, decimal: str, skip_bad: bool, columns: str | None) -> ReadOptions:
    return ReadOptions(encoding, decimal, skip_bad, columns=read_columns_setting(columns))


def predict(
    model: str,
    rows: Path,
    *,
    out: Path | None = None,
    encoding: Encoding = "",
    decimal: Decimal = ".",
    skip_bad: SkipBad = False,
    columns: Columns = None,
    json: flags.Json = False,
) -> None:
    """Choose the arm of largest predicted reward for every row.

    Options:
        model (MODEL): A model (.npz), a folder with all parties' shares, or a run's id.
        rows (FILE): CSV: the columns that the model learnt from, or one column per feature in
            order.
        out (-o FILE): Write the decisions as CSV.

    Examples:
        posse predict model.npz rows.csv
        posse predict last rows.csv --out decisions.csv
    """
    if out is not None:
        check_place(out)
    learnt = _learnt(model)
    options = _options(encoding, decimal, skip_bad, columns)
    lines, contexts = _contexts(rows, learnt, options)
    scores = learnt.scores(contexts)
    facts: list[dict[str, object]] = []
    for row, arm in enumerate(scores.argmax(axis=1).tolist()):
        fact = {"row": row + 1}
        if skip_bad:
            fact["line"] = lines[row]  # rows are missing before it
        reward = float(scores[row, arm])
        facts.append({**fact, "arm": arm, "name": learnt.names[arm], "predicted": reward})
    remark(*(f"warning: {sentence}" for sentence in options.notes))
    if json:
        print_json({"dropped": options.notes, "decisions": facts} if skip_bad else facts)
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, [*facts[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(facts)
    if out is None:
        typer.echo(text.getvalue(), nl=False)
    else:
        write_whole(out, text.getvalue().encode())
        remark(f"wrote {len(facts)} decisions to {out}")


def _contexts(
    rows: Path, learnt: Learnt, options: ReadOptions
) -> tuple[list[int], NDArray[np.float64]]:
    """Read rows by the names of a model's features, with their lines; without names, as numbers in
    their order.
    """
    # Features are found by the names in the header, so the header gets the names of the model.
    features = {column: name for name, column in options.columns.items()}
    table = open_table(rows, replace(options, columns={}))
    table.header = tuple(features.get(name, name) for name in table.header)
    if learnt.features:
        encoded = read_encoded(table, [], features=learnt.features, ignored=NO_FEATURES)
        return encoded.records.line.tolist(), encoded.values
    names = other_columns(table, [])
    if learnt.weights is not None and len(names) != len(learnt.weights):
        raise DataError(
            f"{table.name} has {len(names)} columns, and the model takes {len(learnt.weights)} "
            "numbers. Give these columns alone, in the order in which it learnt them.",
            rule="cli.rows.other-columns",
        )
    records = Schema(*map(numbers, names)).read(table)
    return records.line.tolist(), np.stack([records.numbers[name] for name in names], axis=1)


def _learnt(model: str) -> Learnt:
    """Read a model by its place, or what a stored run learnt."""
    place = Path(model).expanduser()
    if place.exists() or place.suffix or len(place.parts) > 1:
        for system in systems():
            learnt = live_of(system).read_model(place)
            if learnt is not None:
                return learnt
        there = "is not a model of a run" if place.exists() else "does not exist"
        raise DataError(
            f"{model} {there}. Take a file of --model-out, or a folder with the shares of all "
            "parties.",
            rule="cli.model.not-a-model",
        )

    record = open_store().get(model)
    if record.policy.learnt is None:
        raise ConfigError(
            f"run {record.id} keeps no learnt policy: its system has none in the clear, or its "
            "model is too large. Let the run write its model to a file; the option is in the help of "
            "the run.",
            rule="cli.model.not-kept",
        )
    return record.policy.learnt


# A table of the user ------------------------------------------------------------------------------


def check(files: list[Path], *, columns: str | None = None, json: flags.Json = False) -> None:
    """Print what Posse understands of a table, and the command that runs on it.

    Options:
        files (FILE...): A table (CSV, Parquet, Arrow), or one per owner.
        columns (TEXT): Names of columns in the table: item=shop,rating=stars.
    """
    summary = summarise(files, read_columns_setting(columns))
    if json:
        print_json(_document(summary))
    else:
        _show(files, summary)


def _document(summary: Summary) -> dict[str, object]:
    return {
        "kind": summary.kind,
        "settings": dict(summary.flags),
        "rows": summary.rows,
        "threshold": summary.threshold,
        "arms": list(map(_arm, summary.arms)),
        "dropped": list(summary.dropped),
        "similar": [list(names) for names in summary.similar],
        "command": shlex.join(summary.command),
    }


def _arm(arm: ArmSummary) -> dict[str, Any]:
    """Return what is known of an arm; no interval without rows, or for rewards beyond [0, 1]."""
    interval = None
    if arm.count and 0 <= arm.mean <= 1:
        interval = wilson(arm.mean * arm.count, arm.count)
    return {"name": arm.name, "rows": arm.count, "mean": arm.mean, "interval": interval}


def _show(files: list[Path], summary: Summary) -> None:
    name = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    say(f"{name}: {TITLES[summary.kind]}", style="bold")
    facts = f"{len(summary.arms)} arms"
    if summary.rows:
        facts = f"{summary.rows:,} rows; {facts}"
    if summary.flags:
        facts += f"; read with {shlex.join(as_flags(summary.flags))}"
    say(facts)
    for names in summary.similar:
        quoted = ", ".join(map(repr, names))
        say(
            f"{quoted} differ only in case or spaces, and are different arms. Correct the file if "
            "they are the same.",
            style="bold red",
        )
    value = "mean"
    if summary.kind == "clients":
        value = "share of samples"
    elif summary.threshold is not None:
        value = f"share above {summary.threshold:g}"
    rows = []
    for arm in map(_arm, summary.arms[:SHOWN]):
        count = "" if arm["rows"] is None else f"{arm['rows']:,}"
        interval = "{:.3f} to {:.3f}".format(*arm["interval"]) if arm["interval"] else ""
        rows.append((arm["name"], count, f"{arm['mean']:.3f}", interval))
    table(("arm", "rows", value, "95 % interval"), rows, numeric=(1, 2, 3))
    if len(summary.arms) > SHOWN:
        say(f"and {len(summary.arms) - SHOWN} more arms")
    _show_rivals(summary)
    if summary.dropped:
        bullets(summary.dropped, style="yellow")
    typer.echo(f"\n{shlex.join(summary.command)}")  # one line, to be copied


def _show_rivals(summary: Summary) -> None:
    """Print which arms may be the best one, if the intervals of several arms overlap."""
    intervals = {arm["name"]: arm["interval"] for arm in map(_arm, summary.arms)}
    known = {name: interval for name, interval in intervals.items() if interval}
    if not known:
        return
    highest_low = max(low for low, _ in known.values())
    rivals = [name for name, (_, high) in known.items() if high >= highest_low]
    if len(rivals) > 1:
        say(f"These rows do not tell which is best: {listed(rivals[:SHOWN])}. Intervals overlap.")


# What ships with Posse ----------------------------------------------------------------------------

Lists = Mapping[str, Listing]


def policies(*, check: str | None = None, json: flags.Json = False) -> None:
    """List the policies of every system, or check your own.

    Options:
        check (MODULE:CLASS): Check your own policy: module:Class or file.py:Class.

    Examples:
        posse policies
        posse policies --check mine.py:Mine
    """
    if check is not None:
        _check(check, json)
        return
    _show_lists("policies", _lists(lambda system: list_policies(system.about.policies)), json)
    if not json:
        say(
            "\nYour own: subclass posse.policies.Policy, then: posse policies --check "
            "file.py:Class",
            style="dim",
        )


def _check(where: str, json: bool) -> None:
    policy = load_policy(where)
    with Doing(f"checking {where}"):
        report = checks.check(policy)
    if json:
        results = [
            {"name": each.name, "passed": each.passed, "reason": each.reason}
            for each in report.results
        ]
        print_json(
            {
                "policy": where,
                "passed": report.passed,
                "results": results,
                "warnings": report.warnings,
            }
        )
    else:
        verdict = "may run in a federation" if report.passed else "refused"
        heading(f"{type(policy).__name__}: {verdict}")
        rows = []
        for each in report.results:
            rows.append((each.name, "ok" if each.passed else f"FAILED: {each.reason}"))
        table(("check", "result"), rows)
        for warning in report.warnings:
            say(f"Warning: {warning}")
    if not report.passed:
        raise typer.Exit(1)


def problems(*, data: str = "", data_dir: Path | None = None, json: flags.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there.

    Options:
        data (NAME): Only data with this in their name, such as movielens.
        data_dir (PATH): Folder of the data sets; else the one that POSSE_DATA names.

    Examples:
        posse problems --data movielens
        posse problems show embedded:movielens
    """
    with Doing("reading the data sets"):
        lists = _lists(lambda system: list_problems(system.about.problems, data_dir))
    if data:
        lists = _named_like(data, lists)
    _show_lists("data", lists, json)


def _named_like(data: str, lists: Lists) -> Lists:
    """Return the rows whose name contains a word; refuse a word that no name contains."""
    matches = {}
    choices_of_all: list[str] = []
    for system, listing in lists.items():
        choices_of_all += ", ".join(row[0] for row in listing.rows).split(", ")
        match = listing.named_like(data)
        if match.rows:
            matches[system] = match
    if not matches:
        choices = tuple(dict.fromkeys(choices_of_all))
        raise ConfigError(
            f"no data set '{data}'.{suggestion(data, choices)}", rule="cli.data.unknown"
        )
    return matches


def _lists(listing_of: Callable[[AnySystem], Listing | None]) -> Lists:
    """Return the list of each system that has one, by the name of the system."""
    lists = {}
    for system in systems():
        listing = listing_of(system)
        if listing is not None:
            lists[system.name] = listing
    return lists


def _show_lists(what: str, lists: Lists, json: bool) -> None:
    if json:
        print_json({system: {what: listing.entries} for system, listing in lists.items()})
        return
    for system, listing in lists.items():
        heading(f"{listing.title} ({system})")
        table(listing.columns, listing.rows, numeric=listing.numeric)
        for note in listing.notes:
            say(note, style="dim")
