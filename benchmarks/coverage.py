"""How often intervals hold the truth, and how often a comparison is called clear.

`python -m benchmarks.coverage` prints both tables of docs/benchmarks.md in some minutes. Its seeds
are other than those by which the methods were chosen.

Estimates: logs of epsilon-greedy (0.4) over four arms. Clients differ in how many rows they have and
in what an arm pays to them. The target is a softmax policy, or always one arm. The truth is what the
target earns over all such clients. A width is divided by that of the interval that would be exact:
between the 2.5 % and 97.5 % quantiles of the simulated estimates.

Comparisons: samba with softmax, temperature .1 against .05 and .03. On two arms that pay .3 and .7
the first two have earned the same after 6,000 steps: .1 explores more, and .05 stays with the bad
arm in a few runs. On the first five films of `embedded:movielens` they have after 1,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import posse
from posse.core.statistics import standard_error, t_quantile
from posse.policies.contextual.explorations import epsilon_greedy, softmax
from posse.policies.evaluation.offline import ESTIMATORS, FEWEST, Estimate, Log, evaluate
from posse.results.compare import difference
from posse.results.record import Record

Floats = NDArray[np.float64]

SEED = 20_261_119
ROWS = (100, 500, 3000)
CLIENTS = (10, 20, 50, 100, 200)
REPLICATIONS = 2000
ARMS = 4
PAYS = np.array([0.35, 0.45, 0.5, 0.6])
NORMAL = 1.959964
FEWEST_KNOWN = 0.05
"""Share of the logs that must have an interval for a coverage to be measured."""

PROBLEMS: dict[str, dict[str, Any]] = {
    "two arms": {"means": (0.3, 0.7), "horizon": 6000},
    "five films": {"data": "embedded:movielens", "owners": 5, "horizon": 1000},
}
RUNS = (5, 10, 20, 50)
TEMPERATURES = (0.1, 0.05, 0.03)
POOL = 20_000
"""Runs from which each comparison draws its own."""
FIRST_SEED = 2_000_000


# Estimates ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Logs:
    """A log, and what estimators need of it."""

    log: Log
    target: Floats
    predictions: Floats
    means: Floats


def draw_logs(rng: np.random.Generator, rows: int, clients: int, arm: int | None) -> Logs:
    """Draw the log of one replication; without `arm` the target is a softmax policy."""
    client = draw_clients(rng, rows, clients)
    effects = rng.normal(0, 0.1, (clients, ARMS))
    contexts = rng.uniform(-0.25, 0.25, (rows, ARMS))
    means = np.clip(PAYS + effects[client] + contexts, 0.02, 0.98)
    chances = epsilon_greedy(means + rng.normal(0, 0.3, means.shape), 0.4)
    above = rng.random((rows, 1)) > np.cumsum(chances, axis=1)
    arms = np.minimum(above.sum(axis=1), ARMS - 1)
    each = np.arange(rows)
    rewards = (rng.random(rows) < means[each, arms]).astype(np.float64)
    if arm is None:
        target = softmax(means + 0.3 * rng.normal(size=means.shape), 0.5)
    else:
        target = always(arm, rows)
    log = Log(arms, rewards, chances[each, arms], chances, client)
    return Logs(log, target, 0.7 * means + 0.1, means)


def draw_clients(rng: np.random.Generator, rows: int, clients: int) -> NDArray[np.int64]:
    """Draw the client of every row; everybody has one at least, and some three times as many."""
    share = rng.uniform(0.5, 1.5, clients)
    others = rng.choice(clients, rows - clients, p=share / share.sum())
    return np.concatenate([np.arange(clients), others])


def always(arm: int, rows: int) -> Floats:
    """Return the chances of a policy that always takes one arm."""
    return np.tile(np.eye(ARMS)[arm], (rows, 1))


@dataclass(frozen=True)
class Cell:
    """One cell of the table: a method on logs of a size."""

    rows: int
    clients: int
    method: str
    normal: float
    """Coverage of the normal interval, which 0.1 used."""
    covered: float
    width: float
    """Median width, divided by that of the exact interval."""
    known: float
    """Share of the logs that have an interval."""


def cells(arm: int | None, replications: int = REPLICATIONS) -> Iterator[Cell]:
    """Measure every method on logs of every size."""
    for rows in ROWS:
        for clients in CLIENTS:
            if clients <= rows:
                yield from measure(arm, rows, clients, replications)


def measure(arm: int | None, rows: int, clients: int, replications: int) -> list[Cell]:
    """Measure every method on logs of one size."""
    # Not of the arm: both targets are evaluated on the same logs.
    rng = np.random.default_rng((SEED, rows, clients))
    estimates: dict[str, list[Estimate]] = {method: [] for method in ESTIMATORS}
    truths = []
    for _ in range(replications):
        logs = draw_logs(rng, rows, clients, arm)
        truths.append(float((logs.target * logs.means).sum(axis=1).mean()))
        for method in ESTIMATORS:
            estimate = evaluate(logs.log, logs.target, method, predictions=logs.predictions)
            estimates[method].append(estimate)
    truth = float(np.mean(truths))
    return [_cell(rows, clients, method, estimates[method], truth) for method in ESTIMATORS]


def _cell(rows: int, clients: int, method: str, estimates: list[Estimate], truth: float) -> Cell:
    known = [estimate for estimate in estimates if estimate.interval.known]
    if len(known) < FEWEST_KNOWN * len(estimates):
        return Cell(rows, clients, method, np.nan, np.nan, np.nan, 0.0)
    exact = np.diff(np.quantile([estimate.value for estimate in estimates], [0.025, 0.975]))[0]
    width = np.median([estimate.high - estimate.low for estimate in known])
    return Cell(
        rows,
        clients,
        method,
        normal=float(np.mean([abs(one.value - truth) <= NORMAL * one.error for one in known])),
        covered=float(np.mean([one.low <= truth <= one.high for one in known])),
        width=float(width / exact),
        known=len(known) / len(estimates),
    )


def best_of_arms(rows: int, clients: int, replications: int = REPLICATIONS) -> tuple[float, float]:
    """Return how often the interval of the arm that looks best covers: its own, and the one that
    holds for all arms together.

    All arms pay the same, so the one that looks best is the luckiest.
    """
    rng = np.random.default_rng((SEED, 1, rows, clients))
    own = together = 0
    targets = [always(arm, rows) for arm in range(ARMS)]
    for _ in range(replications):
        client = draw_clients(rng, rows, clients)
        arms = rng.integers(0, ARMS, rows)
        effects = rng.normal(0, 0.1, (clients, ARMS))
        paid = np.clip(0.5 + effects[client, arms], 0, 1)
        rewards = (rng.random(rows) < paid).astype(np.float64)
        log = Log(arms, rewards, np.full(rows, 1 / ARMS), None, client)
        every = [evaluate(log, target, "snips", policies=ARMS) for target in targets]
        best = max((one for one in every if one.interval.known), key=lambda one: one.value)
        own += best.low <= 0.5 <= best.high
        together += best.simultaneous.low <= 0.5 <= best.simultaneous.high
    return own / replications, together / replications


# Comparisons --------------------------------------------------------------------------------------


@cache
def pool(problem: str, temperature: float, runs: int = POOL) -> Record:
    """Run softmax on one of the problems."""
    softmax_runs = posse.Samba(
        path="plain",
        policy="softmax",
        tau=temperature,
        runs=runs,
        seed=FIRST_SEED,
        **PROBLEMS[problem],
    )
    return posse.run(softmax_runs)


def part_of(record: Record, chosen: NDArray[np.int64]) -> Record:
    """Return a record of some of the runs, without their curves."""
    return replace(
        record,
        seeds=tuple(record.seeds[run] for run in chosen),
        total=tuple(record.total[run] for run in chosen),
        pulls=record.pulls[chosen],
        steps=[],
        reward=np.zeros((len(chosen), 0)),
        regret=None,
    )


def clear_share(
    one: Record, other: Record, runs: int, comparisons: int = REPLICATIONS
) -> tuple[float, float]:
    """Return how often a comparison of so many runs is clear: by Student's t as in 0.1, and now."""
    rng = np.random.default_rng((SEED, 2, runs))
    before = now = 0
    for _ in range(comparisons):
        chosen = rng.choice(one.runs, runs, replace=False)
        first = part_of(one, chosen)
        second = part_of(other, chosen)
        differences = np.subtract(first.total, second.total)
        error = standard_error(differences) or 0.0
        before += abs(differences.mean()) > t_quantile(0.95, runs - 1) * error
        now += difference(first, second).clear
    return before / comparisons, now / comparisons


def print_estimates() -> None:
    """Print the table of coverages."""
    for arm, name in ((None, "softmax"), (ARMS - 1, f"always arm {ARMS}")):
        print(f"\n{name}: coverage of nominal 95 %, normal interval -> now (width, logs with one)")
        print(f"{'rows':>6}{'clients':>9}" + "".join(f"{method:>32}" for method in ESTIMATORS))
        line = ""
        for cell in cells(arm):
            if cell.method == ESTIMATORS[0]:
                line = f"{cell.rows:>6,}{cell.clients:>9,}"
            text = f"{cell.normal:.3f} -> {cell.covered:.3f} ({cell.width:.2f}, {cell.known:.0%})"
            line += f"{text if cell.known else 'none':>32}"
            if cell.method == ESTIMATORS[-1]:
                print(line, flush=True)
    print(f"\nthe arm that looks best of {ARMS} equal ones (below {FEWEST:.0f} rows no interval)")
    for rows, clients in ((500, 10), (500, 50), (500, 200), (3000, 10), (3000, 50), (3000, 200)):
        own, together = best_of_arms(rows, clients)
        print(f"{rows:>6,}{clients:>9,}  own {own:.3f}  simultaneous {together:.3f}", flush=True)


def print_comparisons() -> None:
    """Print how often comparisons are clear."""
    for problem in PROBLEMS:
        first, *others = (pool(problem, temperature) for temperature in TEMPERATURES)
        print(f"\n{problem}: comparisons that are clear, by Student's t -> now")
        for record, temperature in zip((first, *others), TEMPERATURES, strict=True):
            print(f"  temperature {temperature:g} earns {np.mean(record.total):,.1f} in a run")
        for runs in RUNS:
            line = f"{runs:>6} runs"
            for other, temperature in zip(others, TEMPERATURES[1:], strict=True):
                before, now = clear_share(first, other, runs)
                line += f"   {TEMPERATURES[0]:g} / {temperature:g}: {before:.1%} -> {now:.1%}"
            print(line, flush=True)


if __name__ == "__main__":
    print_estimates()
    print_comparisons()
