"""What other policies would have earned, from a log of decisions with their probabilities.

A log is a table with one row per decision: `arm`, `reward`, `probability`, `client` where rows of one
client depend on each other, and any further columns, which are the context: numbers as they are,
words one-hot, dates left out. The estimators are those of `posse.policies.evaluation.offline`.
Doubly robust estimates use a ridge regression of the reward of each arm on the context, fitted on one
half of the clients and used on the other, and so does the policy that follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.statistics import Interval, simultaneous_level
from posse.policies.decisions import Learnt
from posse.policies.evaluation.offline import (
    ESTIMATORS,
    FEWEST,
    Estimate,
    Floats,
    Log,
    evaluate,
    gain_over_log,
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

MOST_ARMS = 200
"""Arms of a log at most."""
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
    """What was left out of the table, one sentence each."""


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
    source: object, features: Sequence[str] = (), options: ReadOptions | None = None
) -> Logged:
    """Read a log from a CSV file or a frame.

    Args:
        source: A file, or a frame.
        features: Features of a model, in whose order the contexts are read.
        options: How the file is written.

    >>> rows = [
    ...     {"arm": a, "reward": r, "probability": 0.5}
    ...     for a, r in (("tea", 1), ("coffee", 0), ("tea", 0))
    ... ]
    >>> read_logs(rows).arms
    ('coffee', 'tea')
    """
    opened = open_table(as_frame(source, "log") or Path(str(source)), options)
    names: tuple[str, ...] = ()
    if len(Schema(*LOG_COLUMNS).find(opened)) < len(opened.header):
        table, names, contexts = read_encoded(opened, LOG_COLUMNS, features=features)
    else:
        table = Schema(*LOG_COLUMNS).read(opened)
        contexts = np.zeros((len(table), 0))
    column = table.words["arm"]
    arms = tuple(sorted(column.distinct, key=_natural_order))
    if not 2 <= len(arms) <= MOST_ARMS:
        raise DataError(
            f"{opened.name}: a log needs 2 to {MOST_ARMS} different arms, got {len(arms)}. Check "
            "the column 'arm'.",
            rule="results.arm.wrong-count",
        )
    place = np.array([arms.index(name) for name in column.distinct])
    clients = table.words["client"].code if "client" in table.words else None
    rewards = table.numbers["reward"]
    log = Log(place[column.code], rewards, table.numbers["probability"], None, clients)
    return Logged(opened.name, log, arms, names, contexts, tuple(opened.options.notes))


def _natural_order(name: str) -> tuple[bool, int, str]:
    """Return a key that sorts numbers by their size, and before names."""
    is_number = name.isdigit()
    return not is_number, int(name) if is_number else 0, name


def predictions(logged: Logged) -> Floats:
    """Predict the reward of every arm on every row, (rows, arms).

    The model of a row is fitted on the half of the clients that the row is not in.
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
    # An arm without rows to fit is predicted to pay what the others pay.
    predicted = np.full((int(use.sum()), len(logged.arms)), log.rewards[fit].mean())
    for arm in np.unique(log.arms[fit]):
        own = fit & (log.arms == arm)
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
    gain: Interval | None = None
    """How much more than the log it earns per decision; the intervals of all policies hold
    together.
    """

    @property
    def snips(self) -> float:
        """Its value by SNIPS, by which policies are ordered; those without support come last."""
        return self.estimates["snips"].value if self.estimates else -np.inf


def targets(logged: Logged, predicted: Floats, model: Learnt | None = None) -> dict[str, Floats]:
    """Return the chances of policies worth a look.

    They are each arm always, any arm, the model of the log, and a model that was given.
    """
    rows, arms = predicted.shape
    one_arm = np.eye(arms)
    policies = {}
    for arm, name in enumerate(logged.arms):
        policies[f"always {name}"] = np.tile(one_arm[arm], (rows, 1))
    policies["any arm"] = np.full((rows, arms), 1 / arms)
    if logged.features:
        policies["best by context"] = one_arm[predicted.argmax(axis=1)]
    if model is not None:
        policies["the model"] = one_arm[_chosen_by(model, logged)]
    return policies


def _chosen_by(model: Learnt, logged: Logged) -> NDArray[np.int64]:
    """Return the arm that a model takes on each row."""
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
        return np.full(len(logged.log), numbers[model.decide().arm])
    chosen: NDArray[np.int64] = numbers[model.scores(logged.contexts).argmax(axis=1)]
    return chosen


class Evaluation(NamedTuple):
    """A log, and what policies would have earned on it, the best first."""

    logged: Logged
    results: list[Evaluated]

    @property
    def headline(self) -> str:
        """Which policy would have earned most, and how much more than the log's own."""
        best = self.results[0]
        if best.gain is None:
            return "No policy can be estimated from this log: see the notes."
        answer = f"{best.policy} would have earned most: {best.snips:.3g} per decision"
        gain = best.gain
        if not gain.known:
            return f"{answer}. The log has too few rows for an interval."
        if gain.low > 0:
            return f"{answer}, {gain.low:.2g} to {gain.high:.2g} more than the log's policy."
        if gain.high < 0:
            less = f"{-gain.high:.2g} to {-gain.low:.2g} less"
            return f"The log's policy earned most. Next, {best.policy}: {less} per decision."
        return (
            f"{answer}, but not clearly more than the log's policy: the difference is "
            f"{gain.low:.2g} to {gain.high:.2g}."
        )

    def _repr_html_(self) -> str:
        """Return the answer and the table for a notebook; notes are folded."""
        from posse.results.render import fragment

        section = section_of(self.logged, self.results)
        return fragment(section.title, [self.headline], [section])


def evaluate_logs(
    source: object,
    model: Learnt | None = None,
    level: float = 0.95,
    options: ReadOptions | None = None,
) -> Evaluation:
    """Estimate what policies would have earned per decision.

    The best policy by SNIPS comes first, and policies without support come last.
    """
    logged = read_logs(source, () if model is None else model.features, options)
    predicted = predictions(logged)
    policies = targets(logged, predicted, model)
    together = simultaneous_level(level, len(policies))
    results = []
    for name, target in policies.items():
        estimates = {}
        try:
            for method in ESTIMATORS:
                estimates[method] = evaluate(
                    logged.log,
                    target,
                    method,
                    predictions=predicted,
                    level=level,
                    policies=len(policies),
                )
        except DataError as error:
            results.append(Evaluated(name, {}, error.text))
        else:
            gain = gain_over_log(logged.log, target, level=together)
            results.append(Evaluated(name, estimates, gain=gain))
    results.sort(key=lambda result: -result.snips)
    return Evaluation(logged, results)


def section_of(logged: Logged, results: Sequence[Evaluated]) -> Section:
    """Put estimates into a table, with notes on how to read it."""
    log = logged.log
    decisions = words.count(len(log), "decision")
    if log.clients is not None:
        decisions += f" of {words.count(len(np.unique(log.clients)), 'client')}"
    notes = [
        f"The log: {decisions}, {log.rewards.mean():.4f} per decision.",
        "Rewards are per decision. [ ] 95 % interval; those of 'more than the log' hold together "
        f"for all {len(results)} policies. A policy with fewer than {FEWEST:.0f} effective rows has "
        "no interval.",
    ]
    if log.clients is None:
        notes.append("Without a column 'client' every row counts as its own client.")
    notes += [f"{result.policy}: {result.refused}" for result in results if result.refused]
    rows = []
    for result in results:
        if result.gain is not None:
            snips = result.estimates["snips"]
            cells = (_text_of(snips.interval), _text_of(result.gain))
            doubly_robust = f"{result.estimates['dr'].value:.3f}"
            rows.append((result.policy, *cells, doubly_robust, f"{snips.effective:,.0f}"))
    return Section(
        f"What policies would have earned, from {logged.name}",
        ("policy", "SNIPS", "more than the log", "DR", "effective rows"),
        tuple(rows),
        (*notes, *logged.dropped),
        tuple(range(1, 5)),
        _facts(logged, results),
    )


def _text_of(interval: Interval) -> str:
    return str(interval) if interval.known else f"{interval.estimate:.3f}"


def _facts(logged: Logged, results: Sequence[Evaluated]) -> dict[str, JSON]:
    """Return estimates as plain values for programs."""
    facts: dict[str, JSON] = {
        "rows": len(logged.log),
        "arms": list(logged.arms),
        "features": list(logged.features),
        "logged": float(logged.log.rewards.mean()),
        "dropped": list(logged.dropped),
    }
    policies: list[JSON] = []
    for result in results:
        estimates = {method: each.as_dict() for method, each in result.estimates.items()}
        policies.append({"policy": result.policy, "refused": result.refused, **estimates})
    facts["policies"] = policies
    best = results[0]
    if best.gain is not None:
        interval = best.estimates["snips"].simultaneous
        facts["best"] = {
            "policy": best.policy,
            "low": interval.low,
            "high": interval.high,
            "level": interval.level,
            "more_than_log": best.gain.estimate,
            "more_than_log_low": best.gain.low,
            "more_than_log_high": best.gain.high,
        }
    return facts


def figure_of(logged: Logged, results: Sequence[Evaluated]) -> Figure:
    """Draw SNIPS and DR with their intervals, one line per policy, and what the log earned."""
    from posse.results import plots

    estimated = [result for result in reversed(results) if result.estimates]
    figure = plots.blank(height=1.6 + 0.36 * len(estimated))
    ax = plots.axes(figure, x="reward per decision", y="", grid="x")
    places = np.arange(len(estimated))
    for method, mark, shift in (("snips", "o", 0.12), ("dr", "s", -0.12)):
        intervals = [result.estimates[method].interval for result in estimated]
        values = np.array([interval.estimate for interval in intervals])
        ends = np.array([(interval.low, interval.high) for interval in intervals])
        # Without an interval its ends are infinite, and no bar is drawn.
        reach = np.nan_to_num(np.abs(ends.T - values), posinf=0.0)
        ax.errorbar(
            values, places + shift, xerr=reach, fmt=mark, markersize=4, label=method.upper()
        )
    ax.axvline(float(logged.log.rewards.mean()), linestyle="--", linewidth=1, label="logged")
    names = [plots.text(result.policy) for result in estimated]
    ax.set_yticks(range(len(names)), names)
    plots.legend(figure, ax)
    return figure
