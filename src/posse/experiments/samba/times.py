"""Times of figure 8 (a) and (b): which points are measured, which are extrapolated, and what is beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posse.experiments.base import Table
from posse.experiments.output import Row
from posse.experiments.samba.problem import TITLES, policy
from posse.experiments.samba.published import published
from posse.experiments.samba.timing import Line, Measured, fit, measure_plain, measure_secure
from posse.problems.datasets.published import embedded_arms

MEASURED, EXTRAPOLATED = "measured", "extrapolated"


@dataclass(frozen=True)
class Point:
    """One time of the figure: extrapolated with the standard error of its line, or measured in a single run."""

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
            "dataset": self.dataset, "policy": self.policy, "K": self.arms, "N": self.budget, "form": self.form,
            "how": self.how, "cpu_seconds": self.seconds, "standard_error": "" if self.error is None else self.error,
            "published_seconds": self.theirs, "published_sd": self.their_sd,
        }  # fmt: skip


@dataclass(frozen=True)
class Series:
    """One policy at one K: the short runs, the line through them, and the points of the figure."""

    dataset: str
    policy: str
    runs: tuple[Measured, ...]
    line: Line
    points: tuple[Point, ...]


def series(
    dataset: str, name: str, arms: int, *, budgets: Sequence[int], ladder: Sequence[int], real: Sequence[int]
) -> Series:
    """Measure one policy at one K.

    Secure runs of the budgets in `ladder` give the line; those in `real` are run in full and take no part in it, so
    that they test it; other budgets are extrapolated. Plain runs are all run in full.
    """
    problem, chosen = embedded_arms(dataset, arms), policy(name, dataset)
    runs = tuple(measure_secure(problem, chosen, budget) for budget in ladder)
    line = fit(runs)
    points = []
    for budget in budgets:
        cell = published(dataset, name, arms, budget)
        secure = cell.secure_time
        assert secure is not None  # every cell of the benchmarks has it
        if budget in real:
            seconds, error, how = measure_secure(problem, chosen, budget).seconds, None, MEASURED
        else:
            seconds, error, how = line.seconds(budget), line.error(budget), EXTRAPOLATED
        points.append(
            Point(dataset, name, arms, budget, "secure", how, seconds, error, secure.mean, secure.sd)
        )  # fmt: skip
        plain = measure_plain(problem, chosen, budget)
        theirs = cell.plain_time
        points.append(Point(dataset, name, arms, budget, "plain", MEASURED, plain, None, theirs.mean, theirs.sd))
    return Series(dataset, name, runs, line, tuple(points))


def time_table(all_series: Sequence[Series]) -> Table:
    """Every point beside the published one; the ratio is between machines and says so."""
    rows = []
    for one in all_series:
        for point in one.points:
            error = "one run" if point.error is None else f"± {point.error:.2g}"
            rows.append((
                TITLES[point.dataset], point.policy, str(point.arms), str(point.budget), point.form, point.how,
                f"{point.seconds:.3g}", error, f"{point.theirs:.4g}", f"{point.theirs / point.seconds:.3g}",
            ))  # fmt: skip
    columns = (
        "data", "policy", "K", "N", "form", "how", "CPU s, this machine", "error", "published s, their machine",
        "published / ours (across machines)",
    )  # fmt: skip
    return Table("Times", columns, tuple(rows))


def line_table(all_series: Sequence[Series]) -> Table:
    """The lines, with Paillier apart."""
    rows = []
    for one in all_series:
        line = one.line
        paillier = sum(run.sum for run in one.runs) / len(one.runs)
        rows.append((
            TITLES[one.dataset], one.policy, str(line.arms), ", ".join(str(run.budget) for run in one.runs),
            f"{1e6 * line.step / line.arms:.2f}", f"{100 * line.step_error / line.step:.1f} %",
            f"{line.fixed - paillier:.2f}", f"{paillier:.2f}",
        ))  # fmt: skip
    columns = (
        "data", "policy", "K", "N of the measured runs", "us a step and owner", "error of it", "set-up s",
        "sum at the end (Paillier) s",
    )  # fmt: skip
    return Table("Lines: seconds = set-up + sum + step (N - K)", columns, tuple(rows))


def held_out(all_series: Sequence[Series]) -> Table:
    """Full-size secure runs beside what the line of shorter runs said before."""
    rows = []
    for one in all_series:
        for point in one.points:
            if point.form == "secure" and point.how == MEASURED:
                said = one.line.seconds(point.budget)
                rows.append((
                    TITLES[point.dataset], point.policy, str(point.arms), str(point.budget), f"{point.seconds:.2f}",
                    f"{said:.2f} ± {one.line.error(point.budget):.2f}", f"{100 * (said / point.seconds - 1):+.1f} %",
                ))  # fmt: skip
    columns = ("data", "policy", "K", "N", "measured s", "line said s", "line off by")
    return Table("Full-size runs, not used by the lines", columns, tuple(rows))


def span(values: Sequence[float], digits: int = 2) -> str:
    """Smallest to largest, for a sentence.

    >>> span([3.14159, 2.71828])
    '2.7 to 3.1'
    """
    return f"{min(values):.{digits}g} to {max(values):.{digits}g}"


def _misses(all_series: Sequence[Series]) -> str:
    """Say how far the lines were off at full size: that, and not the error of a slope, is what they are worth."""
    misses = [
        (100 * abs(one.line.seconds(point.budget) / point.seconds - 1), one.line.error(point.budget) / point.seconds)
        for one in all_series
        for point in one.points
        if point.form == "secure" and point.how == MEASURED
    ]
    if not misses:
        return "No full-size secure run tests the lines here: the error of an extrapolated point is that of its slope."
    off = [miss for miss, _ in misses]
    wider = sum(miss > 300 * error for miss, error in misses)
    return (
        f"At full size the lines were off by {span(off)} % ({len(off)} runs), in {wider} of them by more than three of "
        "the line's own standard errors: a machine's speed drifts, which three short runs in a row do not show. "
        f"Take {max(off):.0f} % as the error of an extrapolated point where its own is smaller."
    )


def time_notes(all_series: Sequence[Series]) -> tuple[str, ...]:
    """What a reader must know about the times."""
    secure = [point for one in all_series for point in one.points if point.form == "secure"]
    measured = sum(point.how == MEASURED for point in secure)
    return (
        f"{measured} of {len(secure)} secure points are measured at full size, one run each; "
        f"{len(secure) - measured} are extrapolated: a line through {all_series[0].line.points} shorter measured runs "
        "of the same policy, data and K, ± one standard error of its slope. All plain points are measured, one run "
        "each.",
        _misses(all_series),
        "Times are CPU seconds of one process at level `standard`, all roles together, without generating the Paillier "
        "key (2048 bits as published). Published times are the authors' means over 50 runs on their machine (Xeon Gold "
        "5118, 2.3 GHz). A ratio between the two is across machines, not a speed-up measured in one place.",
        "The plain twin is compiled and theirs is interpreted Python, so secure / plain ratios do not compare either.",
    )
