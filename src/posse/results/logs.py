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
from posse.policies.evaluation.offline import ESTIMATORS, FEWEST, Estimate, Floats, Log, evaluate
from posse.problems.datasets.columns import other_columns, read_columns
from posse.problems.datasets.encoded import read_encoded
from posse.problems.datasets.frames import as_frame, read_table
from posse.problems.datasets.reading import current, must
from posse.results import words
from posse.results.section import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED = ("arm", "reward", "probability")
MOST_ARMS = 200
RIDGE = 1.0
"""Weight of the squared coefficients against the squared errors, on standardised contexts."""


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


def read_logs(source: Any, features: Sequence[str] = ()) -> Logged:
    """Read a log from a CSV file or a frame; its contexts as `features` of a model where they are
    given.

    >>> rows = [
    ...     {"arm": a, "reward": r, "probability": 0.5}
    ...     for a, r in (("tea", 1), ("coffee", 0), ("tea", 0))
    ... ]
    >>> read_logs(rows).arms
    ('coffee', 'tea')
    """
    document = read_table(as_frame(source, "log") or Path(source))
    delimiter, rest = other_columns(document, ["arm"])
    known = {name.strip().lower(): name for name in rest}
    named, numbers = ["arm", *(["client"] if "client" in known else [])], ["reward", "probability"]
    rules = [
        must(
            "probability",
            lambda chances: (chances > 0) & (chances <= 1),
            "be above 0 and at most 1",
        )
    ]
    if any(name not in (*NEEDED, "client") for name in known):
        table, names, contexts = read_encoded(
            document, named, delimiter, numbers=numbers, features=features, rules=rules
        )
    else:
        table, names = read_columns(document, named, numbers, delimiter=delimiter, rules=rules), ()
        contexts = np.zeros((len(table.line), 0))
    column = table.words["arm"]
    arms = tuple(
        sorted(
            column.distinct,
            key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name),
        )
    )
    if not 2 <= len(arms) <= MOST_ARMS:
        raise DataError(
            f"{document.name}: a log needs 2 to {MOST_ARMS} different arms, got {len(arms)}.",
            rule="results.arm.wrong-number",
        )
    place = np.array([arms.index(name) for name in column.distinct])
    clients = table.words["client"].code if "client" in table.words else None
    log = Log(
        place[column.code], table.numbers["reward"], table.numbers["probability"], None, clients
    )
    return Logged(document.name, log, arms, names, contexts, tuple(current().dropped))


def predictions(logged: Logged) -> Floats:
    """Predict the reward of every arm on every row, (rows, arms), by the half of the clients that a
    row is not in.
    """
    log = logged.log
    half = (np.arange(len(log)) if log.clients is None else log.clients) % 2
    predicted = np.zeros((len(log), len(logged.arms)))
    for side in (0, 1):
        use = half == side if (half != side).any() else np.ones(len(log), bool)
        fit = half != side if (half != side).any() else use
        predicted[use] = fitted(logged, fit, use)
    return predicted


def fitted(logged: Logged, fit: NDArray[np.bool_], use: NDArray[np.bool_]) -> Floats:
    """Predict the reward of every arm on the rows `use` by a ridge regression of the rows `fit`."""
    log, x = logged.log, logged.contexts
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
        predicted[:, arm] = rows[use] @ np.linalg.solve(a.T @ a + shrink, a.T @ log.rewards[own])
    return predicted


@dataclass(frozen=True)
class Evaluated:
    """A policy, and what each estimator says of it; or why it cannot be estimated."""

    policy: str
    estimates: Mapping[str, Estimate]
    refused: str = ""


def targets(logged: Logged, predicted: Floats, model: Learnt | None = None) -> dict[str, Floats]:
    """Return the chances of policies worth a look: each arm always, any arm, the model of the log,
    a given model.
    """
    rows, arms = predicted.shape
    chances = {
        f"always {name}": np.tile(np.eye(arms)[at], (rows, 1))
        for at, name in enumerate(logged.arms)
    }
    chances["any arm"] = np.full((rows, arms), 1 / arms)
    if logged.features:
        chances["best by context"] = np.eye(arms)[predicted.argmax(axis=1)]
    if model is not None:
        if len(model.names) != arms:
            raise DataError(
                f"the model has {len(model.names)} arms, and the log {arms}. Take the model of "
                "these arms.",
                rule="results.model.other-arms",
            )
        if model.weights is not None:
            chosen = model.scores(logged.contexts).argmax(axis=1)
        else:
            chosen = np.full(rows, model.decide().arm)
        if set(model.names) == set(logged.arms):  # else they are the same arms by number
            chosen = np.array([logged.arms.index(name) for name in model.names])[chosen]
        chances["the model"] = np.eye(arms)[chosen]
    return chances


class Evaluation(NamedTuple):
    """A log, and what policies would have earned on it, the best first; a notebook shows it as a
    table.
    """

    logged: Logged
    found: list[Evaluated]

    def _repr_html_(self) -> str:
        """Return the best policy and the table for a notebook; notes are folded."""
        from posse.results.render import fragment

        table = section_of(self.logged, self.found)
        best = []
        for each in self.found[:1]:
            if each.estimates:
                snips = each.estimates["snips"]
                best = [f"Best: {each.policy}, {snips.value:.4f} a decision ({snips.shown})"]
        return fragment(table.title, best, [table])


def evaluate_logs(source: Any, model: Learnt | None = None, level: float = 0.95) -> Evaluation:
    """Estimate what policies would have earned a decision; the best by SNIPS first, those without
    support last.
    """
    logged = read_logs(source, () if model is None else model.features)
    predicted = predictions(logged)
    policies = []
    for name, target in targets(logged, predicted, model).items():
        try:
            each = {
                how: evaluate(logged.log, target, how, predictions=predicted, level=level)
                for how in ESTIMATORS
            }
            policies.append(Evaluated(name, each))
        except DataError as error:
            policies.append(Evaluated(name, {}, error.text))
    policies.sort(key=lambda one: -one.estimates["snips"].value if one.estimates else np.inf)
    return Evaluation(logged, policies)


def section_of(logged: Logged, policies: Sequence[Evaluated]) -> Section:
    """Return the estimates as a table, with notes about the log."""
    log = logged.log
    rows = []
    for one in (one for one in policies if one.estimates):
        ips, snips, dr = (one.estimates[how] for how in ESTIMATORS)
        shown = [f"{value:.4f}" for value in (ips.value, snips.value)]
        rows.append(
            (
                one.policy,
                *shown,
                snips.shown,
                f"{dr.value:.4f}",
                dr.shown,
                f"{snips.effective:,.0f}",
            )
        )
    count = len(log) if log.clients is None else len(np.unique(log.clients))
    about = (
        f"{words.count(len(log), 'decision')} of {words.count(count, 'client')} earned "
        f"{log.rewards.mean():.4f} each."
        if log.clients is not None
        else f"{words.count(len(log), 'decision')} earned {log.rewards.mean():.4f} each; without a column 'client' "
        "every row counts as one client."
    )
    notes = [
        about,
        "Reward a decision; 95 % intervals with clients as clusters. They need many clients; below "
        "an "
        f"effective sample size of {FEWEST:.0f} there is none.",
    ]
    notes += [f"{one.policy}: {one.refused}" for one in policies if one.refused] + [*logged.dropped]
    columns = ("policy", "IPS", "SNIPS", "interval", "DR", "interval ", "effective rows")
    facts = [
        {
            "policy": one.policy,
            "refused": one.refused,
            **{how: vars(estimate) for how, estimate in one.estimates.items()},
        }
        for one in policies
    ]
    data = {
        "rows": len(log),
        "arms": list(logged.arms),
        "features": list(logged.features),
        "logged": float(log.rewards.mean()),
        "policies": facts,
        "dropped": list(logged.dropped),
    }
    return Section(
        f"What policies would have earned, from {logged.name}",
        columns,
        tuple(rows),
        tuple(notes),
        tuple(range(1, 7)),
        data,
    )


def figure_of(logged: Logged, policies: Sequence[Evaluated]) -> Figure:
    """Draw SNIPS and DR with their intervals, one line per policy, and the mean of the log."""
    from posse.results import plots

    shown = [one for one in policies if one.estimates][::-1]
    figure = plots.blank(height=1.6 + 0.36 * len(shown))
    ax = plots.axes(figure, x="reward a decision", y="", grid="x")
    for shift, (how, mark) in zip((0.12, -0.12), (("snips", "o"), ("dr", "s")), strict=True):
        made = [one.estimates[how] for one in shown]
        values = np.array([each.value for each in made])
        reach = np.array(
            [each.high - each.value if np.isfinite(each.high) else 0.0 for each in made]
        )
        ax.errorbar(
            values,
            np.arange(len(shown)) + shift,
            xerr=reach,
            fmt=mark,
            markersize=4,
            label=how.upper(),
        )
    ax.axvline(float(logged.log.rewards.mean()), linestyle="--", linewidth=1, label="logged")
    ax.set_yticks(range(len(shown)), [plots.text(one.policy) for one in shown])
    plots.legend(figure, ax)
    return figure
