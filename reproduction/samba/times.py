"""Times of figure 8 (a) and (b): measured runs, lines through them, and what these say about longer
runs.

All times are CPU seconds of this process. A secure run has three parts: set-up (keys, manifest,
first pulls), the steps, and the sum at the end, which is where Paillier is. Generating the Paillier
key comes before and is not counted; the authors do not count it either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from posse.core.errors import DataError
from posse.policies import Policy
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.problems.arms.rewards import Arms
from posse.problems.datasets.published import embedded_arms
from posse.results import plots
from posse.results.plots import INK
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import SimulatedWorld, federation, warm_up
from posse.systems.samba.levels import Switches
from posse.systems.samba.twin import simulate
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import Row, Table, format_range, legend_entry, mean_of
from reproduction.samba.problem import (
    COLOURS,
    DATASETS,
    MARKERS,
    POLICY_NAMES,
    TITLES,
    policy,
    published,
)

KEY_BITS = 2048
"""As published. The default of the package is 3072, whose sum costs about two and a half times as
much.
"""
FORMS = ("paper", "unprotected", "strict")
"""The published protocol, the same with all protections off (the authors' distributed run), and
level `strict`.
"""


def beside(dataset: str, form: str, arms: int = 10) -> bool:
    """Whether a form is measured there: `strict` stands beside the figure on the first data set
    alone, at K <= 40.
    """
    return form in FORMS[:2] or (dataset == DATASETS[0] and arms <= 40)


PLAIN = "plain"
LINEAR = (0.9, 1.1)
"""Growth is called linear where the 95 % interval of the mean exponent lies between these."""
FADED = 0.35
"""Opacity of what was published, behind what was measured."""


@dataclass(frozen=True)
class Measured:
    """CPU seconds of one secure run, by part and by kind of role."""

    arms: int
    budget: int
    setup: float
    steps: float
    sum: float
    roles: dict[str, float]
    stepping: dict[str, float] = field(default_factory=dict)
    """Of `roles`, what the steps took."""

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.setup + self.steps + self.sum

    def roles_at(self, budget: int) -> dict[str, float]:
        """CPU seconds by kind of role of a run of another length: steps take the more time, set-up
        and sum the same.

        >>> run = Measured(2, 12, 1.0, 10.0, 1.0, {"owner": 6.0}, {"owner": 5.0})
        >>> run.roles_at(102)
        {'owner': 51.0}
        """
        times = (budget - self.arms) / (self.budget - self.arms)
        return {kind: all_ + (times - 1) * self.stepping[kind] for kind, all_ in self.roles.items()}


_warm = cache(warm_up)
"""Once a policy and level: what is compiled stays so."""


@cache
def paillier_key() -> PrivateKey:
    """One key for all runs, as the authors do."""
    return generate_key(KEY_BITS)


def measure_secure(
    arms: Arms, policy: Policy, budget: int, seed: int = 1, form: str = "paper"
) -> Measured:
    """Run the whole federation once and take its time; compiled code is warm before the clock
    starts.

    The last step is not timed but counted as one more of the others: at level `paper` owners
    encrypt their sums in it.
    """
    level = "paper" if form == "unprotected" else form
    switches = Switches(*(False,) * 4) if form == "unprotected" else Switches()
    key = None if level == "strict" else paillier_key()
    _warm(policy, level)
    world = SimulatedWorld(arms, seed, budget)
    roles = federation(arms, policy, budget, seed=seed, level=level, switches=switches, key=key)
    run = MemoryRun(roles, world)
    begun, count = time.process_time(), len(arms)
    first = last = (begun, dict(run.seconds))
    for event in run:
        if event.kind == "step" and event.step in (count + 1, budget - 1):
            last = (time.process_time(), dict(run.seconds))
            first = last if event.step == count + 1 else first
    ended = time.process_time()
    scale = (budget - count) / (budget - 2 - count)
    steps = scale * (last[0] - first[0])
    stepping = {kind: scale * (last[1][kind] - first[1][kind]) for kind in run.seconds}
    before = max(0.0, first[0] - begun - steps / (budget - count))
    return Measured(
        count, budget, before, steps, ended - begun - before - steps, dict(run.seconds), stepping
    )


def measure_plain(arms: Arms, policy: Policy, budget: int, seed: int = 1) -> float:
    """CPU seconds of one run of the plain twin."""
    _warm(policy, "paper")
    begun = time.process_time()
    simulate(arms, policy, budget, [seed])
    return time.process_time() - begun


@dataclass(frozen=True)
class Line:
    """Seconds of a secure run as a line in N: `fixed` (set-up and sum) + `step` (N - K), with the
    error of `step`.
    """

    arms: int
    fixed: float
    step: float
    step_error: float
    points: int

    def seconds(self, budget: int) -> float:
        """Time that the line gives for a budget."""
        return self.fixed + self.step * (budget - self.arms)

    def error(self, budget: int) -> float:
        """One standard error of that time, from the spread of the cost of a step between the
        runs.
        """
        return self.step_error * (budget - self.arms)


def fit(runs: Sequence[Measured]) -> Line:
    """Fit a line to runs of one policy at one K.

    The noise of a run grows with its length, so the cost of a step is the total time over the total
    steps, and its error is the standard error of the runs' own costs: sd / sqrt(number of runs).

    >>> line = fit([Measured(2, 12, 1.0, 10.0, 1.0, {}), Measured(2, 22, 1.0, 20.0, 1.0, {})])
    >>> line.seconds(102), line.error(102)
    (102.0, 0.0)
    """
    if len(runs) < 2 or len({run.arms for run in runs}) != 1:
        raise DataError(
            f"a line needs at least two runs of the same number of arms, got {len(runs)}."
        )
    steps = [run.budget - run.arms for run in runs]
    costs = [run.steps / count for run, count in zip(runs, steps, strict=True)]
    middle = sum(costs) / len(costs)
    spread = math.sqrt(sum((cost - middle) ** 2 for cost in costs) / (len(costs) - 1))
    return Line(
        arms=runs[0].arms,
        fixed=sum(run.setup + run.sum for run in runs) / len(runs),
        step=sum(run.steps for run in runs) / sum(steps),
        step_error=spread / math.sqrt(len(runs)),
        points=len(runs),
    )


MEASURED, EXTRAPOLATED = "measured", "extrapolated"


@dataclass(frozen=True)
class Point:
    """One time of the figure: extrapolated with the standard error of its line, or measured in a
    single run.
    """

    dataset: str
    policy: str
    arms: int
    budget: int
    form: str
    how: str
    seconds: float
    error: float | None
    theirs: float
    their_sd: float

    def row(self) -> Row:
        """The point as a row of the raw file."""
        return {
            "dataset": self.dataset,
            "policy": self.policy,
            "K": self.arms,
            "N": self.budget,
            "form": self.form,
            "how": self.how,
            "cpu_seconds": self.seconds,
            "standard_error": "" if self.error is None else self.error,
            "published_seconds": self.theirs,
            "published_sd": self.their_sd,
        }


@dataclass(frozen=True)
class Series:
    """One policy at one K in one form: the short runs, the line through them, and the points of the
    figure.
    """

    dataset: str
    policy: str
    form: str
    runs: tuple[Measured, ...]
    line: Line
    points: tuple[Point, ...]
    full: tuple[Measured, ...] = ()
    """Runs of full size, which take no part in the line."""


def series(
    dataset: str,
    name: str,
    arms: int,
    form: str = "paper",
    *,
    budgets: Sequence[int],
    ladder: Sequence[int],
    real: Sequence[int] = (),
) -> Series:
    """Measure one policy at one K in one form, and beside level `paper` the plain bandit.

    Runs of roles of the budgets in `ladder` give the line; those in `real` are run in full and take
    no part in it, so that they test it; other budgets are extrapolated. Plain runs are all run in
    full.
    """
    problem, chosen = embedded_arms(dataset, arms), policy(name, dataset)
    runs = tuple(
        measure_secure(problem, chosen, budget, seed, form=form)
        for seed, budget in enumerate(ladder, 1)
    )
    line = fit(runs)
    full = {budget: measure_secure(problem, chosen, budget, form=form) for budget in real}
    points = []
    for budget in budgets:
        cell = published(dataset, name, arms, budget)
        theirs = {"paper": cell.secure_time, "unprotected": cell.distributed_time}.get(form)
        mean, sd = (math.nan, math.nan) if theirs is None else (theirs.mean, theirs.sd)
        if budget in full:
            seconds, error, how = full[budget].seconds, None, MEASURED
        else:
            seconds, error, how = line.seconds(budget), line.error(budget), EXTRAPOLATED
        points.append(Point(dataset, name, arms, budget, form, how, seconds, error, mean, sd))
        if form == "paper":
            own = (
                measure_plain(problem, chosen, budget),
                None,
                cell.plain_time.mean,
                cell.plain_time.sd,
            )
            points.append(Point(dataset, name, arms, budget, PLAIN, MEASURED, *own))
    return Series(dataset, name, form, runs, line, tuple(points), tuple(full.values()))


def linear(exponents: Sequence[float], of: str) -> Finding:
    """Judge "linear in" by exponents, one a line: 1 is linear, and `LINEAR` is how near the mean
    must be.

    >>> linear([0.98, 1.01, 1.0], "K").verdict, linear([0.5, 0.52, 0.51], "K").verdict
    ('holds', 'does not hold')
    """
    (least, most), mean = LINEAR, mean_of(exponents)
    text = (
        f"exponent of {of} {mean.text(3)} over {len(exponents)} lines, {format_range(exponents, '.2f')} (1 "
        "is linear)"
    )
    if least < mean.low and mean.high < most:
        return Finding("linear", text, HOLDS)
    if mean.high < least or mean.low > most:
        return Finding(
            "linear",
            text,
            FAILS,
            "a cost that does not grow with it bends the line" if of == "K" else "",
        )
    return Finding(
        "linear",
        text,
        UNKNOWN,
        f"the interval is not wholly inside or outside {least:g} to {most:g}",
    )


def time_table(all_series: Sequence[Series]) -> Table:
    """Every point beside the published one; the ratio is between machines and says so."""
    rows = []
    for one in all_series:
        for point in one.points:
            error = "one run" if point.error is None else f"± {point.error:.2g}"
            rows.append(
                (
                    TITLES[point.dataset],
                    point.policy,
                    str(point.arms),
                    str(point.budget),
                    point.form,
                    point.how,
                    f"{point.seconds:.3g}",
                    error,
                    *_beside(point),
                )
            )
    columns = (
        "data",
        "policy",
        "K",
        "N",
        "form",
        "how",
        "CPU s, this machine",
        "error",
        "published s, their machine",
        "published / ours (across machines)",
    )
    return Table("Times", columns, tuple(rows))


def _beside(point: Point) -> tuple[str, str]:
    """The published time and its ratio to ours, where it was published."""
    return (
        ("–", "–")
        if math.isnan(point.theirs)
        else (f"{point.theirs:.4g}", f"{point.theirs / point.seconds:.3g}")
    )


def line_table(all_series: Sequence[Series]) -> Table:
    """The lines, with Paillier apart."""
    rows = []
    for one in all_series:
        line = one.line
        paillier = sum(run.sum for run in one.runs) / len(one.runs)
        rows.append(
            (
                TITLES[one.dataset],
                one.policy,
                one.form,
                str(line.arms),
                ", ".join(str(run.budget) for run in one.runs),
                f"{1e6 * line.step / line.arms:.2f}",
                f"{100 * line.step_error / line.step:.1f} %",
                f"{line.fixed - paillier:.2f}",
                f"{paillier:.2f}",
            )
        )
    columns = (
        "data",
        "policy",
        "form",
        "K",
        "N of the measured runs",
        "us a step and owner",
        "error of it",
        "set-up s",
        "sum at the end (Paillier) s",
    )
    return Table("Lines: seconds = set-up + sum + step (N - K)", columns, tuple(rows))


def time_tables(all_series: Sequence[Series]) -> tuple[Table, Table, Table]:
    """All points, the lines, and the runs that test them."""
    return time_table(all_series), line_table(all_series), held_out(all_series)


def _tested(all_series: Sequence[Series]) -> list[tuple[Line, Point]]:
    """Full-size secure runs, each with the line of shorter runs that it tests."""
    every = [(one.line, point) for one in all_series for point in one.points]
    return [(line, point) for line, point in every if point.form != PLAIN and point.how == MEASURED]


def held_out(all_series: Sequence[Series]) -> Table:
    """Full-size secure runs beside what the line of shorter runs said before."""
    rows = tuple(
        (
            TITLES[point.dataset],
            point.policy,
            str(point.arms),
            str(point.budget),
            f"{point.seconds:.2f}",
            f"{line.seconds(point.budget):.2f} ± {line.error(point.budget):.2f}",
            f"{100 * (line.seconds(point.budget) / point.seconds - 1):+.1f} %",
        )
        for line, point in _tested(all_series)
    )
    columns = ("data", "policy", "K", "N", "measured s", "line said s", "line off by")
    return Table("Full-size runs, not used by the lines", columns, rows)


def _misses(all_series: Sequence[Series]) -> str:
    """Say how far the lines were off at full size: that, and not the error of a slope, is what they
    are worth.
    """
    misses = [
        (
            100 * abs(line.seconds(point.budget) / point.seconds - 1),
            line.error(point.budget) / point.seconds,
        )
        for line, point in _tested(all_series)
    ]
    if not misses:
        return (
            "No full-size secure run tests the lines here, and a line through two runs shows "
            "nothing of a machine's "
            "drift: figure 8 (a), whose lines have five runs and a test at full size, shows the "
            "error of such a point."
        )
    off = [miss for miss, _ in misses]
    wider = sum(miss > 300 * error for miss, error in misses)
    return (
        f"At full size the lines were off by {format_range(off)} % ({len(off)} runs), in {wider} of them "
        "by more than three of "
        "the line's own standard errors: a machine's speed drifts, which short runs in a row do "
        "not show. "
        f"Take {max(off):.0f} % as the error of an extrapolated point where its own is smaller."
    )


def time_notes(all_series: Sequence[Series]) -> tuple[str, ...]:
    """What a reader must know about the times."""
    secure = [point for one in all_series for point in one.points if point.form != PLAIN]
    measured = sum(point.how == MEASURED for point in secure)
    runs = dict.fromkeys(str(one.line.points) for one in all_series)
    return (
        f"{measured} of {len(secure)} secure points are measured at full size, one run each; "
        f"{len(secure) - measured} are extrapolated: a line through {' or '.join(runs)} shorter "
        "measured runs "
        "of the same policy, data and K, ± one standard error of its slope. All plain points are "
        "measured, one run "
        "each.",
        _misses(all_series),
        "Times are CPU seconds of one process, all roles together, without generating the Paillier "
        "key (2048 bits as "
        "published). `paper` is the published protocol, `unprotected` the same with all four "
        "protections off. "
        "Published times are the authors' means over 50 runs on their machine (Xeon Gold 5118, 2.3 "
        "GHz). A ratio "
        "between the two is across machines, not a speed-up measured in one place.",
        "The plain twin is compiled and theirs is interpreted Python, so secure / plain ratios do "
        "not compare either.",
    )


def time_figure(done: Sequence[Series], against: Literal["budget", "arms"]) -> plots.Figure:
    """Draw seconds against N or K: a panel a data set, and a row a K where N is the axis."""
    points = [point for one in done for point in one.points]
    datasets = list(dict.fromkeys(point.dataset for point in points))
    rows = sorted({point.arms for point in points}) if against == "budget" else [0]
    figure = plots.blank(1.5 + 2.9 * len(rows), width=4.6 + 3.6 * (len(datasets) - 1) + 1.0)
    grid = figure.subplots(len(rows), len(datasets), squeeze=False)
    for i, arms in enumerate(rows):
        for j, dataset in enumerate(datasets):
            chosen = [p for p in points if p.dataset == dataset and arms in (0, p.arms)]
            _time_panel(
                grid[i][j],
                chosen,
                against,
                f"{TITLES[dataset]}, " + (f"K = {arms}" if arms else "N = 100000"),
            )
    kit.legend(figure, None, 3 if len(datasets) == 1 else 4, extra=_signs(), length=2.2)
    return figure


def _time_panel(
    ax: plots.Axes, points: Sequence[Point], against: Literal["budget", "arms"], title: str
) -> None:
    thousand = 1000 if against == "budget" else 1
    plots.style(
        ax,
        x="budget N (thousands of pulls)" if thousand > 1 else "arms K",
        y="time (s, logarithmic)",
    )
    for name in dict.fromkeys(point.policy for point in points):
        for form, line in (("paper", "-"), ("unprotected", "--"), (PLAIN, ":")):
            own = [point for point in points if (point.policy, point.form) == (name, form)]
            x = [getattr(point, against) / thousand for point in own]
            colour = COLOURS[name]
            ax.plot(x, [p.theirs for p in own], line, color=colour, alpha=FADED, linewidth=3.2)
            ax.plot(x, [p.seconds for p in own], line, color=colour, linewidth=1.4)
            for how, face in ((MEASURED, colour), (EXTRAPOLATED, "white")):
                marked = [
                    (place, point.seconds)
                    for place, point in zip(x, own, strict=True)
                    if point.how == how
                ]
                if marked:
                    ax.plot(
                        *zip(*marked, strict=True),
                        MARKERS[name],
                        color=colour,
                        markersize=4.5,
                        markerfacecolor=face,
                    )
    ax.set_yscale("log")
    kit.title(ax, title)


def _signs() -> list[object]:
    dots = {"color": INK, "marker": "o", "linestyle": "", "markersize": 4.5}
    return [
        *(
            legend_entry(name, color=COLOURS[name], marker=MARKERS[name], markersize=4.5)
            for name in POLICY_NAMES
        ),
        legend_entry("level paper", color=INK, linestyle="-"),
        legend_entry("distributed, unprotected", color=INK, linestyle="--"),
        legend_entry("plain", color=INK, linestyle=":"),
        legend_entry("ours, measured", **dots),
        legend_entry("ours, extrapolated", **dots, markerfacecolor="white"),
        legend_entry("published, their machine", color=INK, alpha=FADED, linewidth=3.2),
    ]
