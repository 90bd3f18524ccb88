"""Figure 8 (a): time against the budget N, at K = 10 and K = 100, at all levels and without
protection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import median

from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import Analysis, Watch, exponent, format_range, mean_of, progress, write_files
from reproduction.samba import problem, times
from reproduction.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE
from reproduction.samba.times import PLAIN, Series

LADDERS = {10: (300, 600, 900, 1_200, 1_500), 100: (150, 300)}
"""Runs of every cell by K, each of another seed and length."""
FULL = {"ucb": BUDGETS[:1]}
"""Full-size runs at level paper on MovieLens with K = 10."""
ORDER = 10.0
"""An order of magnitude."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure, extrapolate, write."""
    ladders = {10: (40, 80, 120)} if small else LADDERS
    budgets = (BUDGETS[0], BUDGETS[-1]) if small else BUDGETS
    forms = ("paper", "unprotected") if small else times.FORMS
    every = product(DATASETS[:1] if small else DATASETS, ladders, POLICY_NAMES, forms)
    plan = [cell for cell in every if times.beside(cell[0], cell[3], cell[1])]
    done = []
    for dataset, arms, name, form in progress(
        plan, lambda c: f"{problem.cell_words(c[:3])}, {c[3]}", watch
    ):
        full = not small and (dataset, arms, form) == ("movielens", 10, "paper")
        real = FULL.get(name, ()) if full else ()
        done.append(
            times.series(
                dataset, name, arms, form, budgets=budgets, ladder=ladders[arms], real=real
            )
        )
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[Series], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    points = [point for one in done for point in one.points]
    files = write_files(
        out, "fig8a", [point.row() for point in points], times.time_figure(done, "budget")
    )
    largest = max(point.arms for point in points)
    top = [p for p in points if (p.form, p.budget, p.arms) == ("paper", BUDGETS[-1], largest)]
    errors = [100 * one.line.step_error / one.line.step for one in done]
    ours, theirs = (
        format_range([p.seconds for p in top], ".3g"),
        format_range([p.theirs for p in top], ".3g"),
    )
    headline = (
        f"Time is linear in N: the cost of a step differs by {format_range(errors)} % (standard error) "
        "between runs of "
        f"different N. At N = 100000 and K = {largest} a run at level paper takes {ours} CPU s "
        "here, and took "
        f"{theirs} s on the authors' machine."
    )
    findings = (
        linear(done),
        overhead(done),
        cryptography(done),
        minutes(done),
        pursuit(done),
        datasets(done),
        hierarchy(done),
    )
    return Analysis(headline, times.time_tables(done), times.time_notes(done), files, findings)


def at_paper(done: Sequence[Series]) -> list[Series]:
    """Series of the published protocol."""
    return [one for one in done if one.form == "paper"]


def linear(done: Sequence[Series]) -> Finding:
    """Judge the exponent of a cell's time in its steps, over short and full-size runs.

    Keys and the sum at the end are left out: they take the same time at every N.
    """
    exponents = []
    for one in at_paper(done):
        runs = (*one.runs, *one.full)
        exponents.append(
            exponent([run.budget - run.arms for run in runs], [run.steps for run in runs])
        )
    return times.linear(exponents, "N")


def seconds(
    done: Sequence[Series], form: str, *, theirs: bool
) -> dict[tuple[str, str, int], float]:
    """Times at N = 100,000 by data set, policy and K."""
    return {
        (p.dataset, p.policy, p.arms): p.theirs if theirs else p.seconds
        for one in done
        for p in one.points
        if (p.form, p.budget) == (form, BUDGETS[-1])
    }


def overhead(done: Sequence[Series]) -> Finding:
    """Judge by the authors' own times: our plain bandit is compiled, theirs is not."""
    ratios = []
    for theirs in (True, False):
        plain, secure = (seconds(done, form, theirs=theirs) for form in (PLAIN, "paper"))
        ratios.append([secure[cell] / plain[cell] for cell in secure])
    text = (
        f"authors' times: {format_range(ratios[0], '.3g')} times; "
        f"here: {format_range(ratios[1], '.3g')} times"
    )
    because = (
        "the verdict uses the authors' times: here the plain bandit is compiled code, and the "
        "protected roles are not"
    )
    return Finding("overhead", text, HOLDS if max(ratios[0]) <= ORDER else FAILS, because)


def cryptography(done: Sequence[Series]) -> Finding:
    """Most of the overhead over plain goes away with the protections."""
    shares = []
    for theirs in (False, True):
        plain, secure, bare = (
            seconds(done, form, theirs=theirs) for form in (PLAIN, "paper", "unprotected")
        )
        shares.append([(secure[cell] - bare[cell]) / (secure[cell] - plain[cell]) for cell in bare])
    text = (
        f"share of the overhead that protections cause: {format_range(shares[0])} here, {format_range(shares[1])} "
        "published"
    )
    own = mean_of(shares[0])
    half = own.low <= 0.5 <= own.high or math.isnan(own.half)
    word = UNKNOWN if half else HOLDS if own.low > 0.5 else FAILS
    return Finding(
        "cryptography", text, word, "the interval of the mean includes one half" if half else ""
    )


def minutes(done: Sequence[Series]) -> Finding:
    """Judge by the authors' own times at the largest K, between 10 and 20 minutes."""
    theirs, ours = (seconds(done, "paper", theirs=them) for them in (True, False))
    largest = max(arms for _, _, arms in theirs)
    said = [theirs[cell] / 60 for cell in theirs if cell[2] == largest]
    here = [ours[cell] for cell in ours if cell[2] == largest]
    text = (
        f"at K = {largest}: {format_range(said, '.3g')} minutes in the authors' files, "
        f"{format_range(here, '.3g')} s here"
    )
    if largest < 100:
        return Finding("minutes", text, UNKNOWN, "K = 100 was not run")
    around = sum(10 <= one <= 20 for one in said)
    return Finding(
        "minutes",
        f"{text}; {around} of {len(said)} of the authors' times are between 10 and 20 minutes",
        HOLDS if 2 * around > len(said) else FAILS,
    )


def pursuit(done: Sequence[Series]) -> Finding:
    """Cost of a step of Pursuit over the mean of the others, over data sets and K."""
    own = at_paper(done)
    cells = dict.fromkeys((one.dataset, one.line.arms) for one in own)
    ratios = []
    for cell in cells:
        steps = {one.policy: one.line.step for one in own if (one.dataset, one.line.arms) == cell}
        others = [step for name, step in steps.items() if name != "pursuit"]
        ratios.append(steps["pursuit"] * len(others) / sum(others))
    ratio = mean_of(ratios)
    text = f"{ratio.text(2)} times the mean of the other policies ({len(ratios)} cells)"
    if math.isnan(ratio.half) or ratio.low < 1.5 <= ratio.high or ratio.low <= 2.5 < ratio.high:
        return Finding("pursuit", text, UNKNOWN, "the interval leaves 1.5 to 2.5, or there is none")
    return Finding("pursuit", text, HOLDS if ratio.low >= 1.5 and ratio.high <= 2.5 else FAILS)


def apart(one: Series, other: Series) -> float:
    """Difference of the costs of a step, in three standard errors: clear above 1 and below -1."""
    gap, error = (
        one.line.step - other.line.step,
        math.hypot(one.line.step_error, other.line.step_error),
    )
    return gap / max(3 * error, 1e-300)


def datasets(done: Sequence[Series]) -> Finding:
    """Compare the order of every two policies on both data sets."""
    own = {(one.dataset, one.line.arms, one.policy): one for one in at_paper(done)}
    sizes = dict.fromkeys(arms for _, arms, _ in own)
    if len({dataset for dataset, _, _ in own}) < 2:
        return Finding("datasets", "one data set", UNKNOWN, "the small form has one data set")
    same = other = 0
    near = []
    for arms, (a, b) in product(sizes, combinations(POLICY_NAMES, 2)):
        first, second = (apart(own[d, arms, a], own[d, arms, b]) for d in DATASETS)
        if min(abs(first), abs(second)) <= 1:
            near.append(min(abs(first), abs(second)))
        else:
            same, other = same + (first * second > 0), other + (first * second < 0)
    text = (
        f"pairs of policies: {same} in the same order, {other} in another order, {len(near)} too close "
        "to decide"
    )
    word = FAILS if other else UNKNOWN if near else HOLDS
    many = math.ceil(max(median(near or [1.0]), 1e-3) ** -2)
    because = (
        f"policies are too close; {many:,} times as many runs would decide half of these pairs"
    )
    return Finding("datasets", text, word, because if word == UNKNOWN else "")


def hierarchy(done: Sequence[Series]) -> Finding:
    """Thompson clearly above, epsilon-greedy clearly below every other policy of one iteration."""
    own = {(one.dataset, one.line.arms, one.policy): one for one in at_paper(done)}
    held = against = pairs = 0
    for dataset, arms in dict.fromkeys(key[:2] for key in own):
        for name in POLICY_NAMES[:-1]:
            for first, second in (("thompson", name), (name, "epsilon-greedy")):
                if first != second:
                    gap = apart(own[dataset, arms, first], own[dataset, arms, second])
                    pairs, held, against = pairs + 1, held + (gap > 1), against + (gap < -1)
    text = f"of {pairs} comparisons {held} clearly agree and {against} clearly disagree"
    word = FAILS if against else UNKNOWN if held < pairs else HOLDS
    return Finding(
        "hierarchy", text, word, "the others are too close to decide" if word == UNKNOWN else ""
    )


FIG8A = REFERENCE.experiment(
    "fig8a", "Samba, figure 8 (a): time against budget", ("time",), sweep, "figure 8 (a)"
)
