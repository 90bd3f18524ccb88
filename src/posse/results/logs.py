"""What other policies would have earned, from a log of decisions with the probabilities of the
chosen arms.

A log is a table with one row per decision: `arm`, `reward`, `probability`, `client` where rows of one
client depend on each other, and any further columns, which are the context: numbers as they are,
words one-hot, dates left out. The estimators are those of `posse.policies.evaluation.offline`.
Doubly robust estimates use a ridge regression of the reward an arm on the context, fitted on one
half of the clients and used on the other, and so does the policy that follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.policies.decisions import Learnt
from posse.policies.evaluation.offline import (
    ESTIMATORS,
    FEWEST,
    Estimate,
    Floats,
    Log,
    ends,
    evaluate,
)
from posse.problems.tables.frames import as_frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Rule, Schema, numbers, read_encoded
from posse.problems.tables.schema import words as words_column
from posse.problems.tables.table import open_table
from posse.results import words
from posse.results.section import Section
from posse.results.values import JSON

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED = ("arm", "reward", "probability")
MOST_ARMS = 200
RIDGE = 1.0
"""Weight of the squared coefficients, relative to the squared errors, on standardised contexts."""


@dataclass(frozen=True, eq=False)
class Logged:
    """A log that was read."""

    name: str
    log: Log
    arms: tuple[str, ...]
    features: tuple[str, ...]
    contexts: Floats
    """(rows, features)"""
    dropped: tuple[str, ...] = ()
    """What was left out of the table, a sentence each."""


LOG_COLUMNS = (
    words_column("arm"),
    words_column("client", optional=True),
    numbers("reward"),
    numbers(
        "probability",
        Rule(lambda chances: (chances > 0) & (chances <= 1), "be above 0 and at most 1"),
    ),
)
"""Columns of a log; the others are the context."""


def read_logs(
    source: Any, features: Sequence[str] = (), options: ReadOptions | None = None
) -> Logged:
    """Read a log from a CSV file or a frame; its contexts as `features` of a model where they are
    given.

    >>> rows = [
    ...     {"arm": a, "reward": r, "probability": 0.5}
    ...     for a, r in (("tea", 1), ("coffee", 0), ("tea", 0))
    ... ]
    >>> read_logs(rows).arms
    ('coffee', 'tea')
    """
    opened = open_table(as_frame(source, "log") or Path(source), options)
    names: tuple[str, ...] = ()
    if len(Schema(*LOG_COLUMNS).find(opened)) < len(opened.header):
        table, names, contexts = read_encoded(opened, LOG_COLUMNS, features=features)
    else:
        table = Schema(*LOG_COLUMNS).read(opened)
        contexts = np.zeros((len(table), 0))
    column = table.words["arm"]
    arms = tuple(
        sorted(
            column.distinct,
            key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name),
        )
    )
    if not 2 <= len(arms) <= MOST_ARMS:
        raise DataError(
            f"{opened.name}: a log needs 2 to {MOST_ARMS} different arms, got {len(arms)}. Check "
            "the column 'arm'.",
            rule="results.arm.wrong-count",
        )
    place = np.array([arms.index(name) for name in column.distinct])
    clients = table.words["client"].code if "client" in table.words else None
    log = Log(
        place[column.code], table.numbers["reward"], table.numbers["probability"], None, clients
    )
    return Logged(opened.name, log, arms, names, contexts, tuple(opened.options.notes))


def predictions(logged: Logged) -> Floats:
    """Predict the reward of every arm on every row, (rows, arms), by the half of the clients that a
    row is not in.
    """
    log = logged.log
    rows = len(log)
    half = (np.arange(rows) if log.clients is None else log.clients) % 2
    if len(np.unique(half)) < 2:
        everything = np.ones(rows, np.bool_)
        return fitted(logged, everything, everything)
    predicted = np.zeros((rows, len(logged.arms)))
    for side in (0, 1):
        predicted[half == side] = fitted(logged, half != side, half == side)
    return predicted


def fitted(logged: Logged, fit: NDArray[np.bool_], use: NDArray[np.bool_]) -> Floats:
    """Predict the reward of every arm on the rows `use` by a ridge regression of the rows `fit`."""
    log = logged.log
    x = logged.contexts
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
    rows = np.concatenate([np.ones((len(log), 1)), x], axis=1)
    shrink = RIDGE * np.eye(rows.shape[1])
    shrink[0, 0] = 1e-9
    predicted = np.zeros((int(use.sum()), len(logged.arms)))
    for arm in range(len(logged.arms)):
        own = fit & (log.arms == arm)
        if not own.any():
            predicted[:, arm] = log.rewards[fit].mean()
            continue
        a = rows[own]
        weights = np.linalg.solve(a.T @ a + shrink, a.T @ log.rewards[own])
        predicted[:, arm] = rows[use] @ weights
    return predicted


@dataclass(frozen=True)
class Evaluated:
    """A policy, and its estimates; or why it cannot be estimated."""

    policy: str
    estimates: Mapping[str, Estimate]
    refused: str = ""

    @property
    def snips(self) -> float:
        """Its value by SNIPS, by which policies are ordered; those without support come last."""
        return self.estimates["snips"].value if self.estimates else -np.inf


def targets(logged: Logged, predicted: Floats, model: Learnt | None = None) -> dict[str, Floats]:
    """Return the chances of policies worth a look: each arm always, any arm, the model of the log,
    a given model.
    """
    rows, arms = predicted.shape
    policies = {
        f"always {name}": np.tile(np.eye(arms)[arm], (rows, 1))
        for arm, name in enumerate(logged.arms)
    }
    policies["any arm"] = np.full((rows, arms), 1 / arms)
    if logged.features:
        policies["best by context"] = np.eye(arms)[predicted.argmax(axis=1)]
    if model is not None:
        policies["the model"] = np.eye(arms)[_chosen_by(model, logged)]
    return policies


def _chosen_by(model: Learnt, logged: Logged) -> NDArray[np.int64]:
    """Return the arm that a model takes on each row."""
    rows = len(logged.log)
    arms = len(logged.arms)
    if len(model.names) != arms:
        raise DataError(
            f"the model has {len(model.names)} arms, and the log {arms}. Take the model of these "
            "arms.",
            rule="results.model.other-arms",
        )
    numbers = np.arange(arms)
    if set(model.names) == set(logged.arms):  # otherwise they are the same arms by number
        numbers = np.array([logged.arms.index(name) for name in model.names])
    if model.weights is None:
        return np.full(rows, numbers[model.decide().arm])
    chosen: NDArray[np.int64] = numbers[model.scores(logged.contexts).argmax(axis=1)]
    return chosen


class Evaluation(NamedTuple):
    """A log, and what policies would have earned on it, the best first; a notebook shows it as a
    table.
    """

    logged: Logged
    results: list[Evaluated]

    def _repr_html_(self) -> str:
        """Return the best policy and the table for a notebook; notes are folded."""
        from posse.results.render import fragment

        section = section_of(self.logged, self.results)
        best = []
        if self.results[0].estimates:
            snips = self.results[0].estimates["snips"]
            interval = ends(snips.simultaneous) or snips.shown
            best = [f"Best: {self.results[0].policy}, {snips.value:.4f} a decision ({interval})"]
        return fragment(section.title, best, [section])


def evaluate_logs(
    source: Any,
    model: Learnt | None = None,
    level: float = 0.95,
    options: ReadOptions | None = None,
) -> Evaluation:
    """Estimate what policies would have earned a decision; the best by SNIPS first, those without
    support last.
    """
    logged = read_logs(source, () if model is None else model.features, options)
    predicted = predictions(logged)
    policies = targets(logged, predicted, model)
    results = []
    for name, target in policies.items():
        try:
            estimates = {
                method: evaluate(
                    logged.log,
                    target,
                    method,
                    predictions=predicted,
                    level=level,
                    policies=len(policies),
                )
                for method in ESTIMATORS
            }
            results.append(Evaluated(name, estimates))
        except DataError as error:
            results.append(Evaluated(name, {}, error.text))
    results.sort(key=lambda result: -result.snips)
    return Evaluation(logged, results)


def section_of(logged: Logged, results: Sequence[Evaluated]) -> Section:
    """Put estimates into a table, with what they rest on."""
    log = logged.log
    estimated = [result for result in results if result.estimates]
    notes = [
        _about(log),
        "Reward per decision. In brackets: 95 % intervals of each policy alone, with clients as "
        f"clusters. A policy with fewer than {FEWEST:.0f} effective rows has no interval.",
    ]
    data = {
        "rows": len(log),
        "arms": list(logged.arms),
        "features": list(logged.features),
        "logged": float(log.rewards.mean()),
        "policies": [_facts(result) for result in results],
        "dropped": list(logged.dropped),
    }
    for result in estimated[:1]:
        best = result.estimates["snips"].simultaneous
        low_high = {"low": best.low, "high": best.high, "level": best.level}
        data["best"] = {"policy": result.policy, **low_high}
        if best.known:
            notes.append(
                f"The best of {len(results)} policies tends to look better than it is. "
                f"{result.policy}: {ends(best)}, in an interval (SNIPS) that allows for the choice."
            )
    notes += [f"{result.policy}: {result.refused}" for result in results if result.refused]
    notes += logged.dropped
    return Section(
        f"What policies would have earned, from {logged.name}",
        ("policy", "IPS", "SNIPS", "DR", "effective rows"),
        tuple(_cells(result) for result in estimated),
        tuple(notes),
        tuple(range(1, 5)),
        data,
    )


def _about(log: Log) -> str:
    decisions = words.count(len(log), "decision")
    earned = f"earned {log.rewards.mean():.4f} each"
    if log.clients is None:
        return (
            f"{decisions} {earned}; without a column 'client' every row counts as its own client."
        )
    return f"{decisions} of {words.count(len(np.unique(log.clients)), 'client')} {earned}."


def _cells(result: Evaluated) -> tuple[str, ...]:
    ips, snips, dr = (result.estimates[method] for method in ESTIMATORS)
    return (
        result.policy,
        f"{ips.value:.3f}",
        _with_interval(snips),
        _with_interval(dr),
        f"{snips.effective:,.0f}",
    )


def _with_interval(estimate: Estimate) -> str:
    return str(estimate.interval) if estimate.interval.known else f"{estimate.value:.3f}"


def _facts(result: Evaluated) -> dict[str, JSON]:
    estimates = {method: estimate.as_dict() for method, estimate in result.estimates.items()}
    return {"policy": result.policy, "refused": result.refused, **estimates}


def figure_of(logged: Logged, results: Sequence[Evaluated]) -> Figure:
    """Draw SNIPS and DR with their intervals, one line per policy, and what the log earned."""
    from posse.results import plots

    estimated = [result for result in results if result.estimates][::-1]
    figure = plots.blank(height=1.6 + 0.36 * len(estimated))
    ax = plots.axes(figure, x="reward a decision", y="", grid="x")
    for shift, (method, mark) in zip((0.12, -0.12), (("snips", "o"), ("dr", "s")), strict=True):
        intervals = [result.estimates[method].interval for result in estimated]
        values = np.array([interval.estimate for interval in intervals])
        ends_of = np.array([(interval.low, interval.high) for interval in intervals])
        reach = np.abs(ends_of.T - values)
        reach[~np.isfinite(reach)] = 0.0
        ax.errorbar(
            values,
            np.arange(len(estimated)) + shift,
            xerr=reach,
            fmt=mark,
            markersize=4,
            label=method.upper(),
        )
    ax.axvline(float(logged.log.rewards.mean()), linestyle="--", linewidth=1, label="logged")
    names = [plots.text(result.policy) for result in estimated]
    ax.set_yticks(range(len(names)), names)
    plots.legend(figure, ax)
    return figure
