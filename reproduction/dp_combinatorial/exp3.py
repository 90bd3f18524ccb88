"""EXP3 (figure 5): regret an agent against the number of agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posse.core.statistics import Interval, bootstrap
from posse.problems.markets.instances import Distribution
from posse.results import plots, words
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    ALONE,
    DISTRIBUTIONS,
    FCB,
    PAPER,
    TIGHT,
    Method,
    Runs,
    Varied,
)
from reproduction.kit import Analysis, Floats, Table, Watch, write_files

AGENTS = (2, 5, 10, 15, 20)
SMALL_AGENTS = (2, 4)
METHODS = (ALONE, PAPER, TIGHT, FCB)
LINEAR = (0.5, 1.5)
"""Last slope over the first, of a fall that is called linear."""


def first_regrets(
    found: Varied, distribution: Distribution, agents: float, method: Method
) -> Floats:
    """(instances, runs) regret an agent of those agents that are there at every n."""
    regrets = [
        found.runs.of(place, method).agent_regret for place in found.places(distribution, agents)
    ]
    return np.stack([one[:, : int(found.values[0])].mean(axis=1) for one in regrets])


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every method among few and many agents."""
    size, agents = (markets.SMALL, SMALL_AGENTS) if small else (markets.FEWER, AGENTS)
    return analyse(markets.run_varied(size, "agents", agents, METHODS, watch), out)


def analyse(found: Varied, out: Path) -> Analysis:
    """Write rows and figure, and say how regret falls with the number of agents."""
    files = write_files(out, "exp3", found.runs.rows(), agents_figure(found))
    few, most = found.values[0], found.values[-1]
    notes = (
        f"{looks.instances_words(found.runs.size, most)} That is among {most} agents.",
        _threshold_words(found.runs),
        f"Instances of one seed share their qualities at every n, and agents 1 to {few} with their "
        "costs and "
        f"capacities are in all of them: the last column is about these {few}, where no other "
        "agents' costs blur the "
        "fall.",
        looks.privacy_words(found.runs.size),
        "The paper prints figure 5 as a picture and calls the fall approximately linear.",
        f"Time: {looks.cost_words(found.runs.cost)}",
    )
    return Analysis(headline(found), (agents_table(found),), notes, files, (linear(found),))


def _threshold_words(runs: Runs) -> str:
    """Say which agent alone buys below the threshold most often: one such agent rules the mean of
    its instance.
    """
    missed = {
        job: outcome.missed.mean(axis=0)
        for job, outcome in runs.outcomes.items()
        if job.method == ALONE
    }
    job = max(missed, key=lambda one: float(missed[one].max()))
    return (
        f"The agent that buys below the threshold most often does so in {missed[job].max():,.0f} "
        "of "
        f"{runs.size.rounds:,} rounds alone (agent {int(missed[job].argmax()) + 1} of "
        f"{job.place.distribution} "
        f"instance {job.place.seed}). Where that is often, it makes most of the mean regret of all "
        "agents from the n "
        "on at which it joins, and federation changes little about it."
    )


def agents_table(found: Varied) -> Table:
    """Regret and FRR at every n."""
    body = []
    for distribution in DISTRIBUTIONS:
        for method in METHODS:
            for n in found.values:
                mine, alone = (found.regrets(distribution, n, m) for m in (method, ALONE))
                body.append(
                    (
                        distribution,
                        method.name,
                        method.privacy(found.runs.size),
                        str(n),
                        words.number(float(mine.mean())),
                        str(bootstrap(mine)),
                        looks.against(mine, alone),
                        words.number(float(first_regrets(found, distribution, n, method).mean())),
                    )
                )
    columns = (
        "distribution",
        "method",
        "privacy",
        "agents",
        "regret an agent, mean",
        "median of instances",
        "FRR, median",
        f"agents 1 to {found.values[0]}, mean",
    )
    return Table(
        "Regret an agent at the last round against the number of agents", columns, tuple(body)
    )


def bend(agents: tuple[int, ...], regrets: Sequence[Any]) -> Any:
    """Slope over the last step over slope over the first: 1 where the fall is linear, near 0 where
    it has levelled off.

    >>> bend((2, 5, 10), [10.0, 7.0, 2.0]), bend((2, 5, 10), [10.0, 7.0, 6.5])
    (1.0, 0.1)
    """
    first = (regrets[1] - regrets[0]) / (agents[1] - agents[0])
    last = (regrets[-1] - regrets[-2]) / (agents[-1] - agents[-2])
    return last / first


def linear(found: Varied) -> Finding:
    """Judge the linear fall: the last slope is between half and one and a half of the first, with
    its interval.
    """
    parts = []
    for distribution in DISTRIBUTIONS:
        each = np.stack(
            [first_regrets(found, distribution, n, PAPER).mean(axis=1) for n in found.values],
            axis=1,
        )
        if each.shape[1] < 3:
            parts.append(
                Finding(distribution, "two numbers of agents", UNKNOWN, "a bend needs three")
            )
            continue
        slope = bent(found.values, each)
        means = each.mean(axis=0)
        text = (
            f"regret falls to {means[-1] / means[0]:.2f} of its first value, the last slope is {slope} "
            "of the first slope"
        )
        if not slope.known:
            parts.append(Finding(distribution, text, UNKNOWN, "too few instances for an interval"))
            continue
        inside, outside = LINEAR[0] <= slope.low <= slope.high <= LINEAR[1], slope.high < LINEAR[0]
        word = HOLDS if inside else FAILS if outside or slope.low > LINEAR[1] else UNKNOWN
        away = min(abs(slope.estimate - end) for end in LINEAR)
        many = (
            looks.enough(len(each), (slope.high - slope.low) / 2, away) if word == UNKNOWN else ""
        )
        parts.append(Finding(distribution, text, word, many))
    return claims.combined("linear", parts)


def bent(agents: tuple[int, ...], each: Floats) -> Interval:
    """Bend of the mean over instances (instances, numbers of agents), with its interval over
    instances.
    """

    def statistic(numbers: Floats, axis: int) -> object:
        means = np.moveaxis(each[numbers.astype(np.int64)].mean(axis=axis), -1, 0)
        return bend(agents, list(means))

    return bootstrap(np.arange(len(each)), statistic)


def headline(found: Varied) -> str:
    """Say how far the regret of the same agents falls, and whether the fall is linear."""
    few, many = found.values[0], found.values[-1]
    said = []
    for distribution in DISTRIBUTIONS:
        parts = []
        for method in METHODS[1:]:
            means = [
                float(first_regrets(found, distribution, n, method).mean()) for n in found.values
            ]
            bent = (
                f", the last slope {bend(found.values, means):.2f} of the first"
                if len(means) > 2
                else ""
            )
            parts.append(f"{method.name} to {means[-1] / means[0]:.2f}{bent}")
        said.append(f"{distribution}: {'; '.join(parts)}")
    return (
        f"Regret of the same {few} agents as others join, n = {few} to {many} (1 would be linear "
        "for the slopes). "
        f"{'. '.join(said)}."
    )


def agents_figure(found: Varied) -> plots.Figure:
    """Draw means of regret and medians of FRR against n, a column a distribution."""
    figure, (above, below) = looks.columns(2, 7.4, share_y=False)
    size = found.runs.size
    for distribution in DISTRIBUTIONS:
        top, bottom = above[distribution], below[distribution]
        plots.style(
            top, x="agents n", y=f"regret of agents 1 to {found.values[0]}, mean (thousands)"
        )
        plots.style(bottom, x="agents n", y="FRR: regret over regret alone, median")
        kit.title(top, f"{distribution}, m = {size.producers}, T = {size.rounds:,}")
        for method in METHODS:
            style = looks.line(method) | looks.dots(method)
            regrets = [
                first_regrets(found, distribution, n, method).mean(axis=1) for n in found.values
            ]
            looks.curve(
                top,
                found.values,
                markets.band(np.stack(regrets, axis=1) / 1000),
                style,
                method.name,
            )
            if method != ALONE:
                ratios = markets.band(found.ratios(distribution, method), np.median)
                looks.curve(bottom, found.values, ratios, style, method.name)
        bottom.axhline(1.0, **looks.line(ALONE))
        for ax in (top, bottom):
            ax.set_ylim(bottom=0.0)
            ax.set_xticks(found.values)
    kit.legend(figure, above[DISTRIBUTIONS[0]], 4, looks.note(size))
    return figure


EXP3 = markets.REFERENCE.experiment(
    "exp3",
    "P-FCB, EXP3 (figure 5): regret against the number of agents",
    ("regret", "privacy"),
    sweep,
)
