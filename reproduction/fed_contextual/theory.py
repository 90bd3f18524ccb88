"""Section 6: bounds (8) to (10) and FALCON's beside simulated regret, for 1 to 40 clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.policies.contextual.explorations import EpsilonGreedy, Falcon
from posse.policies.contextual.schedules import C, explores_of
from posse.results import plots
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding, combined
from reproduction.fed_contextual import realizable
from reproduction.fed_contextual.realizable import (
    ARMS,
    CLASS,
    CONSTANTS,
    CONTEXTS,
    DELTA,
    EPSILON,
    EVERY,
    FULL,
    GAP,
    SMALL,
    Size,
    bound8,
    bound9,
    bound10,
    bound_falcon,
)
from reproduction.kit import (
    Analysis,
    Floats,
    Mean,
    Row,
    Table,
    Watch,
    exponent,
    judge,
    mean_of,
    write_files,
)

MARGIN = 0.1
"""Exponents that differ by less are alike."""


@dataclass(frozen=True, eq=False)
class Found:
    """Regret of all runs."""

    size: Size
    late: dict[int, Floats]
    """Epsilon-Greedy by clients: (seeds, 2, periods)."""
    falcons: dict[float, dict[int, Floats]]
    """FALCON by c and clients: the same."""
    central: Floats
    """(2, seeds, decisions)"""
    system: dict[str, dict[int, Floats]]
    """FedAvg by policy and clients: one number a seed."""

    def last(self, lines: dict[int, Floats], row: int = 0) -> Floats:
        """(clients, seeds) regret a decision in the last period."""
        return np.stack([lines[clients][:, row, -1] for clients in self.size.clients])


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run worlds of few and many clients, the same with a model after every decision, and the
    system's own runs.
    """
    size = SMALL if small else FULL
    policies: list[tuple[str, EpsilonGreedy | Falcon]] = [("ε-Greedy", EpsilonGreedy(EPSILON))]
    policies += [(f"FALCON, c = {c:.3g}", Falcon(gamma=c)) for c in CONSTANTS]
    jobs = [(clients, name, policy) for name, policy in policies for clients in size.clients]
    lines: dict[str, dict[int, Floats]] = {}
    for clients, name, policy in kit.progress(
        jobs, lambda job: f"{job[1]}, {job[0]} clients", watch, 0.0, 0.5
    ):
        lines.setdefault(name, {})[clients] = np.stack(
            [realizable.federated(s, clients, size, policy) for s in size.seeds]
        )
    watch("a model after every decision", 0.5)
    steps = max(size.alone[-1], size.decisions * size.periods)
    groups = [size.seeds[low : low + 25] for low in range(0, len(size.seeds), 25)]
    alone = np.concatenate([realizable.central(some, steps) for some in groups], axis=1)
    system: dict[str, dict[int, Floats]] = {}
    own = {"ε-Greedy": {"policy": "epsilon-greedy", "epsilon": EPSILON}}
    own |= (
        {} if small else {"FALCON, c = 1": {"policy": "falcon", "schedule": "falcon", "gamma": 1.0}}
    )
    cells = [(name, clients) for name in own for clients in size.system_clients]
    for name, clients in kit.progress(
        cells, lambda job: f"FedAvg, {job[0]}, {job[1]} clients", watch, 0.6, 0.98
    ):
        system.setdefault(name, {})[clients] = realizable.fedavg(clients, size, own[name])
    watch("figure and analysis", 1.0)
    late, *falcons = lines.values()
    return analyse(
        Found(size, late, dict(zip(CONSTANTS, falcons, strict=True)), alone, system), out
    )


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and picture, and judge the section's bounds."""
    findings = (_epsilon(found), _late(found), _single(found), _falcon(found), _floor(found))
    files = write_files(out, "theory", _rows(found), picture(found))
    ratio = max(
        float(found.late[k][:, 1, i].mean()) / bound8(k * found.size.decisions, i)
        for k in found.size.clients
        for i in range(1, found.size.periods)
    )
    held = sum(one.verdict == HOLDS for one in findings)
    notes = (
        f"{ARMS} arms, {CONTEXTS} contexts, |F| = {CLASS:,} tables of 0.5 or {GAP:g} more or less, "
        "epsilon "
        f"{EPSILON:g}, delta {DELTA:g}; {found.size.periods} periods of {found.size.decisions} "
        "decisions a client; "
        f"seeds {found.size.seeds[0]} to {found.size.seeds[-1]}, each with its own world.",
        "The oracle is exact, so that the bounds' optimisation errors are 0; constants hidden by O "
        "are taken as 1.",
        "At its closest, over clients and periods, the mean regret of the greedy arm is "
        f"{ratio:.2g} of (8).",
        f"FALCON's own c = 1/30 explores nearly evenly at these lengths: gamma is below "
        f"{_gamma(found, C):.2g} with {max(found.size.clients)} clients, and an arm that is "
        f"{GAP:g} worse then has "
        f"{100 / (ARMS + GAP * _gamma(found, C)):.0f} % where chance has {100 / ARMS:.0f} %.",
        f"FedAvg: Posse's own runs in the world of seed 0, {found.size.rounds} rounds, a "
        f"deployment every {EVERY}, "
        f"{found.size.runs} seeds, a linear model of {(CONTEXTS + 1) * ARMS} numbers, default "
        "rates, rewards without "
        "noise. It learns from the logs of one round at a time and its class is all tables: the "
        "section's bounds do "
        "not speak of it.",
    )
    headline = (
        f"{held} of {len(findings)} statements of section 6 hold in a world that has what it "
        "assumes."
    )
    return Analysis(headline, _tables(found), notes, files, findings)


def _gamma(found: Found, c: float) -> float:
    n = max(found.size.clients) * found.size.decisions
    own = explores_of("falcon", Falcon(gamma=c), ARMS, n, math.log(CLASS))
    assert own is not None
    return own(found.size.periods)[1]


def _epsilon(found: Found) -> Finding:
    """(8): in how many runs the greedy arm's regret is above it in some period after the first."""
    above = total = 0
    for clients in found.size.clients:
        limits = [bound8(clients * found.size.decisions, i) for i in range(1, found.size.periods)]
        above += int((found.late[clients][:, 1, 1:] > limits).any(axis=1).sum())
        total += len(found.size.seeds)
    text = f"{above} of {total} runs exceed bound (8) in some period; delta allows a share of {DELTA:g}"
    return Finding("epsilon-greedy", text, HOLDS if above <= DELTA * total else FAILS)


def _ratios(found: Found) -> tuple[int, Floats]:
    """(seeds, 2) cumulative regret with a model a period over that with a model a decision: early,
    and at the end.
    """
    n, periods = found.size.decisions, found.size.periods
    early = max(2, periods // 10)
    late, alone = found.late[1][:, 0].cumsum(axis=1) * n, found.central[0].cumsum(axis=1)
    return early, np.stack([late[:, i - 1] / alone[:, n * i - 1] for i in (early, periods)], axis=1)


def _late(found: Found) -> Finding:
    """(9) and (10) are kept, and what deploying late costs shrinks over time."""
    n, periods = found.size.decisions, found.size.periods
    early, ratios = _ratios(found)
    parts = []
    for name, totals, limit in (
        ("(9)", found.late[1][:, 0].sum(axis=1) * n, bound9(n, periods)),
        ("(10)", found.central[0, :, : n * periods].sum(axis=1), bound10(n * periods)),
    ):
        text = f"regret {mean_of(totals).text(1)}, bound {limit:,.0f}"
        parts.append(Finding(name, text, HOLDS if (totals <= limit).mean() >= 1 - DELTA else FAILS))
    first, last = (mean_of(column).text(2) for column in ratios.T)
    text = f"{first} times the regret after {early} periods, {last} times after {periods}"
    parts.append(
        judge(
            "one model per period, compared with one per decision",
            mean_of(ratios[:, 0] - ratios[:, 1]),
            text,
        )
    )
    return combined("late", parts)


def _single(found: Found) -> Finding:
    """With one period nothing is learnt in time; with a model a decision the greedy arm's regret
    falls, below (10).
    """
    totals, alone = np.maximum(found.central[1].cumsum(axis=1), 1e-9), found.size.alone
    each = np.stack([totals[:, n - 1] / n for n in alone], axis=1)
    fall, first = mean_of([exponent(alone, row) for row in each]), found.late[1][:, 1, 0]
    limits = [bound10(n) / n - EPSILON for n in alone]
    text = (
        f"one period: regret {mean_of(first).text()} per decision for any n; one model per decision: "
        f"{mean_of(each[:, 0]).text()} "
        f"at n = {alone[0]} (bound (10) without epsilon {limits[0]:.2f}), {mean_of(each[:, -1]).text()} "
        f"at {alone[-1]:,} "
        f"(bound {limits[-1]:.2f}), exponent {fall.text(2)}"
    )
    if fall.high < -MARGIN and (each <= limits).mean() >= 1 - DELTA:
        return Finding("one-period", text, HOLDS)
    if fall.low > -MARGIN or (each > limits).mean() > DELTA:
        return Finding("one-period", text, FAILS)
    return Finding(
        "one-period", text, UNKNOWN, kit.runs_needed(Mean(fall.mean + MARGIN, fall.half, fall.runs))
    )


def _falcon(found: Found) -> Finding:
    """Regret over FALCON's bound: bounded as clients grow, and by 1 / c where c is below 1."""
    parts = []
    for c, lines in found.falcons.items():
        limits = np.array(
            [
                [bound_falcon(k * found.size.decisions, found.size.periods)]
                for k in found.size.clients
            ]
        )
        ratios = found.last(lines) / limits
        largest = mean_of(ratios[int(ratios.mean(axis=1).argmax())])
        text = f"regret at most {largest.text(2)} times the bound"
        parts.append(Finding(f"c = {c:.3g}", text, HOLDS if largest.high <= 1 + 1 / c else FAILS))
    return combined("falcon", parts)


def _floor(found: Found) -> Finding:
    """What a fixed epsilon's exploring costs stays as clients grow, and FALCON's regret falls."""
    fixed = mean_of([exponent(found.size.clients, row) for row in _exploring(found).T])
    own = mean_of([exponent(found.size.clients, row) for row in found.last(found.falcons[1.0]).T])
    ends = [mean_of(found.last(lines)[-1]).text() for lines in (found.falcons[1.0], found.late)]
    text = (
        f"exponent of the number of clients: FALCON (c = 1) {own.text(2)}, a fixed epsilon "
        f"{fixed.text(2)}; with "
        f"{found.size.clients[-1]} clients the regret is {ends[0]} and {ends[1]}"
    )
    if own.high < -MARGIN and max(abs(fixed.low), abs(fixed.high)) < MARGIN:
        return Finding("floor", text, HOLDS)
    if own.low > -MARGIN or fixed.high < -MARGIN:
        return Finding("floor", text, FAILS)
    return Finding(
        "floor", text, UNKNOWN, f"an interval includes {MARGIN:g}; more seeds would decide"
    )


def _exploring(found: Found) -> Floats:
    """(clients, seeds) what exploring costs a decision in the last period of epsilon-Greedy."""
    return np.asarray(np.maximum(found.last(found.late) - found.last(found.late, 1), 1e-9))


def _tables(found: Found) -> tuple[Table, ...]:
    size, rows = found.size, []
    for at, clients in enumerate(size.clients):
        n = clients * size.decisions
        rows.append(
            (
                str(clients),
                f"{n * size.periods:,}",
                mean_of(found.last(found.late)[at]).text(),
                mean_of(found.last(found.late, 1)[at]).text(),
                f"{bound8(n, size.periods):.3f}",
                *(mean_of(found.last(lines)[at]).text() for lines in found.falcons.values()),
                f"{bound_falcon(n, size.periods):.3f}",
                *(
                    mean_of(lines[clients]).text() if clients in lines else "-"
                    for lines in found.system.values()
                ),
            )
        )
    columns = (
        "clients",
        "decisions",
        "ε-Greedy",
        "its greedy arm",
        "(8)",
        *(f"FALCON, c = {c:.3g}" for c in found.falcons),
        "FALCON's bound",
        *(f"FedAvg, {name}" for name in found.system),
    )
    n, periods, totals = size.decisions, size.periods, []
    for i in sorted({max(2, periods // 10), max(2, periods // 4), periods}):
        late, alone = (
            found.late[1][:, 0, :i].sum(axis=1) * n,
            found.central[0, :, : n * i].sum(axis=1),
        )
        totals.append(
            (
                str(i),
                mean_of(late).text(1),
                f"{bound9(n, i):,.0f}",
                mean_of(alone).text(1),
                f"{bound10(n * i):,.0f}",
                mean_of(late / alone).text(2),
            )
        )
    return (
        Table(
            "Regret a decision in the last period, mean over seeds ± 95 % t interval",
            columns,
            tuple(rows),
        ),
        Table(
            f"Cumulative regret of one client, {n} decisions a period",
            (
                "periods",
                "a model a period",
                "(9)",
                "a model a decision",
                "(10)",
                "one model per period, compared with one per decision",
            ),
            tuple(totals),
        ),
    )


def _rows(found: Found) -> list[Row]:
    """Regret of every run by period."""
    lines = {"epsilon-greedy": found.late} | {
        f"falcon-{c:.3g}": one for c, one in found.falcons.items()
    }
    return [
        {
            "policy": name,
            "clients": clients,
            "seed": seed,
            "period": period + 1,
            "regret": float(each[at, 0, period]),
            "greedy_regret": float(each[at, 1, period]),
        }
        for name, line in lines.items()
        for clients, each in line.items()
        for at, seed in enumerate(found.size.seeds)
        for period in range(found.size.periods)
    ]


def picture(found: Found) -> plots.Figure:
    """Draw regret against clients beside the bounds, and the cumulative regret of one client, late
    and at once.
    """
    figure, (left, right) = kit.panels(
        2, ("regret a decision, last period", "one client: cumulative regret")
    )
    size, x = found.size, found.size.clients
    plots.style(left, x="clients", y="regret a decision")
    values: list[float] = []
    lines = {"ε-Greedy": found.late} | {
        f"FALCON, c = {c:.3g}": one for c, one in found.falcons.items()
    }
    for number, (name, line) in enumerate(lines.items()):
        means = [mean_of(row) for row in found.last(line)]
        kit.line(left, x, [one.mean for one in means], number, name)
        kit.band(
            left, x, [max(one.low, 1e-6) for one in means], [one.high for one in means], number
        )
        values += [one.mean for one in means]
    limits = {
        "ε + (8)": [EPSILON + bound8(k * size.decisions, size.periods) for k in x],
        "FALCON's bound": [bound_falcon(k * size.decisions, size.periods) for k in x],
    }
    for number, (name, limit) in enumerate(limits.items(), len(lines)):
        kit.line(left, x, limit, number, name, marker=False)
        values += limit
    for number, (name, own) in enumerate(found.system.items(), len(lines) + len(limits)):
        kit.line(
            left, list(own), [float(one.mean()) for one in own.values()], number, f"FedAvg, {name}"
        )
        values += [max(float(one.mean()), 1e-4) for one in own.values()]
    left.set_xscale("log", base=2)
    left.set_xticks(x, [str(k) for k in x])
    kit.log_axis(left, values)
    plots.style(right, x="decisions", y="cumulative regret")
    n, steps = size.decisions, np.arange(1, size.periods + 1) * size.decisions
    late, alone = (
        found.late[1][:, 0].cumsum(axis=1).mean(axis=0) * n,
        found.central[0].cumsum(axis=1).mean(axis=0),
    )
    curves = [
        late,
        alone[steps - 1],
        np.array([bound9(n, i) for i in range(1, size.periods + 1)]),
        np.array([bound10(int(t)) for t in steps]),
    ]
    for number, (name, curve) in enumerate(
        zip(("a model a period", "a model a decision", "(9)", "(10)"), curves, strict=True)
    ):
        kit.line(right, steps, curve, number, name, marker=False)
    kit.log_axis(right, [float(v) for curve in curves for v in curve])
    right.legend(frameon=False, fontsize=8, labelcolor=plots.INK)
    note = (
        f"Means of {len(size.seeds)} worlds; bands: 95 % t interval; constants of the bounds taken "
        "as 1"
    )
    kit.legend(figure, left, 4, note)
    return figure
