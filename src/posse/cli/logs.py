"""`posse evaluate` and `posse predict`: what other policies would have earned, and what a learnt
model decides.
"""

from __future__ import annotations

import csv
import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.keep import Keeper, check_place
from posse.cli.screen import print_json, remark, section
from posse.core.errors import ConfigError, DataError
from posse.core.files import write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from posse.policies.decisions import Learnt
    from posse.problems.datasets.reading import Reading

Logs = Annotated[
    Path,
    typer.Argument(help="CSV: client, context columns, arm, reward, probability.", metavar="FILE"),
]
Model = Annotated[
    str,
    typer.Argument(
        help="A model (.npz), a folder with all parties' shares, or a run's id.", metavar="MODEL"
    ),
]
With = Annotated[
    str | None, typer.Option("--model", help="Evaluate this model or run too.", metavar="MODEL")
]
Rows = Annotated[
    Path,
    typer.Argument(
        help="CSV: the columns that it learnt from, or a column a feature in order.", metavar="FILE"
    ),
]
Picture = Annotated[
    Path | None, typer.Option("--figure", help="Draw the intervals: .png, .svg or .pdf.")
]
Encoding = Annotated[
    str, typer.Option(help="Encoding of the file where it is not UTF-8, such as latin-1.")
]
Decimal = Annotated[
    str, typer.Option(help="Decimal mark of the file: . or a comma.", metavar="MARK")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Drop rows that cannot be read, and say so.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write the decisions as CSV.", metavar="FILE")
]

BESIDE = ("client", "label", "row")
"""Columns of tables to learn from that are no features: a model decides on such a table too."""


def evaluate(
    logs: Logs,
    model: With = None,
    figure: Picture = None,
    encoding: Encoding = "",
    decimal: Decimal = ".",
    skip_bad: SkipBad = False,
    json: flags.Json = False,
) -> None:
    """Estimate from a log what other policies would have earned (IPS, SNIPS, DR)."""
    Keeper(save=False, figure=figure)
    learnt = None if model is None else _learnt(model)
    from posse.results.logs import evaluate_logs, figure_of, section_of

    with _reading(encoding, decimal, skip_bad):
        logged, found = evaluate_logs(logs, learnt)
    made = section_of(logged, found)
    if figure is not None:
        drawn = io.BytesIO()
        figure_of(logged, found).savefig(drawn, format=figure.suffix[1:].lower())
        write_whole(figure, drawn.getvalue())
        remark(f"drew {figure}")
    if json:
        print_json(made.data)
    else:
        section(made)


def predict(
    model: Model,
    rows: Rows,
    out: Out = None,
    encoding: Encoding = "",
    decimal: Decimal = ".",
    skip_bad: SkipBad = False,
    json: flags.Json = False,
) -> None:
    """Decide by what was learnt: the arm of largest predicted reward for every row."""
    check_place(out)
    learnt = _learnt(model)
    with _reading(encoding, decimal, skip_bad) as read:
        lines, contexts = _contexts(rows, learnt)
    scores = learnt.scores(contexts)
    facts: list[dict[str, object]] = [
        {
            "row": row + 1,
            "arm": arm,
            "name": learnt.names[arm],
            "predicted": float(scores[row, arm]),
        }
        for row, arm in enumerate(scores.argmax(axis=1).tolist())
    ]
    if skip_bad:  # rows are then told by where they stand in the file
        facts = [
            {"row": one["row"], "line": line, **one} for one, line in zip(facts, lines, strict=True)
        ]
    for sentence in read.dropped:
        remark(f"warning: {sentence}")
    if json:
        print_json({"dropped": read.dropped, "decisions": facts} if skip_bad else facts)
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


def _reading(encoding: str, decimal: str, skip_bad: bool) -> AbstractContextManager[Reading]:
    from posse.problems.datasets.reading import check_encoding, reading

    check_encoding(encoding)
    if decimal not in (".", ","):
        raise ConfigError(f"decimal must be . or a comma, got {decimal!r}.")
    return reading(encoding, decimal, skip_bad)


def _contexts(rows: Path, learnt: Learnt) -> tuple[list[int], NDArray[np.float64]]:
    """Read rows by the names of a model's features, with their lines; without names, as numbers in
    their order.
    """
    import numpy as np

    from posse.problems.datasets.columns import other_columns, read_columns
    from posse.problems.datasets.encoded import read_encoded
    from posse.problems.datasets.frames import read_table

    document = read_table(rows)
    if learnt.features:
        read, _, contexts = read_encoded(document, [], features=learnt.features, ignored=BESIDE)
        return read.line.tolist(), contexts
    delimiter, names = other_columns(document, [])
    if learnt.weights is not None and len(names) != len(learnt.weights):
        raise DataError(
            f"{document.name} has {len(names)} columns, and the model takes {len(learnt.weights)} "
            "numbers. Give these "
            "columns alone, in the order in which it learnt them."
        )
    table = read_columns(document, (), names, delimiter=delimiter)
    return table.line.tolist(), np.stack([table.numbers[name] for name in names], axis=1)


def _learnt(model: str) -> Learnt:
    """Read a model by its place, or what a stored run learnt."""
    from posse.systems.modules import live_of
    from posse.systems.registry import systems

    place = Path(model).expanduser()
    if place.exists() or place.suffix or len(place.parts) > 1:
        for system in systems():
            learnt = live_of(system).read_model(place)
            if learnt is not None:
                return learnt
        there = "is no model that a run wrote" if place.exists() else "does not exist"
        raise DataError(
            f"{model} {there}. Take a file of --model-out, or a folder with the shares of all "
            "parties."
        )
    from posse.results.store import Store

    record = Store().get(model)
    if record.policy.learnt is None:
        raise ConfigError(
            f"run {record.id} keeps no learnt policy: its system has none in the clear, or its "
            "model is too large. "
            "Keep the model in a file with --model-out."
        )
    return record.policy.learnt
