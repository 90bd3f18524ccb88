"""Figures 8 and 9: average reward against the bits of precision, and against the Newton steps of
the reciprocal.

The learner runs in fixed point: in the paper's form and in the recursive one, with products cut by
the paper's truncation or exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posse.core.errors import DataError
from posse.core.fixed import REWARD_ONE
from posse.privacy.sharing.fixed import FixedPoint
from posse.results import plots
from posse.results.plots import INK
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.twin import run_fixed
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import (
    Analysis,
    Row,
    Table,
    Watch,
    mean_of,
    run_jobs,
    seeds_of,
    write_files,
)
from reproduction.mpc_contextual import problem, published
from reproduction.mpc_contextual.problem import (
    FULL,
    SMALL,
    Check,
    Place,
    check_table,
    check_words,
    world_of,
)
from reproduction.mpc_contextual.published import NEWTON

EPSILON = 0.01
"""The default of the authors' code; the paper does not say which it took."""
PROTOCOL = "protocol"
"""The form that the real roles compute, by its fixed-point twin."""
RUNS = 3
WHOLE = 0.01
"""A learner works if it earns at most so much less than it should."""


@dataclass(frozen=True)
class Kind:
    """A learner: how it is computed, and how products are cut."""

    form: str
    truncation: str

    @property
    def label(self) -> str:
        """Its name in tables and figures."""
        return LABELS[self.form, self.truncation]


LABELS = {
    ("published", "published"): "paper's form, paper's truncation",
    ("published", "exact"): "paper's form, exact truncation",
    ("recursive", "published"): "recursive form, paper's truncation",
    ("recursive", "exact"): "recursive form, exact truncation",
    (PROTOCOL, "exact"): "Posse's protocol (its twin)",
}
PAPER = Kind("published", "published")
PAPER_EXACT = Kind("published", "exact")
RECURSIVE_SHARE_WISE = Kind("recursive", "published")
RECURSIVE = Kind("recursive", "exact")
OURS = Kind(PROTOCOL, "exact")
KINDS = (PAPER, PAPER_EXACT, RECURSIVE_SHARE_WISE, RECURSIVE)


@dataclass(frozen=True)
class Job:
    """One run of one learner."""

    place: Place
    kind: Kind
    bits: int
    newton: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What a run earned."""

    job: Job
    reward: float
    late: float
    """Average reward of the last tenth."""
    wraps: int
    """Truncations that were off by a multiple of 2^(64 - L)."""
    refused: bool = False
    """The protocol's twin stopped: an intermediate left its range."""

    def row(self) -> Row:
        """The run as a row of a raw file."""
        job = self.job
        return {
            "form": job.kind.form,
            "truncation": job.kind.truncation,
            "bits": job.bits,
            "newton": job.newton,
            "seed": job.seed,
            "average_reward": self.reward,
            "last_tenth": self.late,
            "wraps": self.wraps,
            "refused": int(self.refused),
        }


def run(job: Job) -> Result:
    """Run it on the world and coins of its seed, the same for all."""
    world = world_of(job.place, job.seed)
    coins = world.coins(EPSILON)
    wraps = 0
    if job.kind.form == PROTOCOL:
        try:
            rewards = _protocol(job)
        except DataError:
            return Result(job, math.nan, math.nan, 0, refused=True)
    else:
        simulated = published.simulate(
            world.features,
            world.rewards,
            coins,
            bits=job.bits,
            form=job.kind.form,
            truncation=job.kind.truncation,
            newton=job.newton,
            seed=job.seed,
        )
        rewards, wraps = simulated.rewards, simulated.wraps
    tail = max(1, len(rewards) // 10)
    return Result(job, float(rewards.mean()), float(rewards[-tail:].mean()), wraps)


def _protocol(job: Job) -> np.ndarray:
    world = world_of(job.place, job.seed)
    settings = job.place.settings(epsilon=str(EPSILON), bits=job.bits, newton=job.newton)
    terms = settings.load().terms
    units = np.rint(world.rewards * REWARD_ONE).astype(np.int64)
    features = FixedPoint(job.bits, most=1.0).encode(world.features)
    return (
        run_fixed(terms, plan(terms), features, units, world.coins(EPSILON), job.seed).rewards
        / REWARD_ONE
    )


@dataclass(frozen=True, eq=False)
class Found:
    """Results of all learners along an axis: the bits (figure 8) or the Newton steps (figure 9)."""

    axis: Literal["bits", "newton"]
    place: Place
    results: list[Result]
    plain: float
    """Average reward of the float twin on the same worlds and coins."""
    checks: list[Check]

    def of(self, kind: Kind, value: int) -> list[Result]:
        """Runs of a learner at one value of the axis."""
        return [
            one
            for one in self.results
            if (one.job.kind, getattr(one.job, self.axis)) == (kind, value)
        ]

    def values(self, kind: Kind) -> list[int]:
        """Values of the axis at which a learner was run."""
        return sorted({getattr(one.job, self.axis) for one in self.results if one.job.kind == kind})

    def rewards(self, kind: Kind, value: int) -> list[float]:
        """Rewards of all runs at one value; a run that left its range has none."""
        return [one.reward for one in self.of(kind, value) if not one.refused]

    def refused(self, kind: Kind, value: int) -> int:
        """Runs that left their range."""
        return sum(one.refused for one in self.of(kind, value))

    def means(self, kind: Kind) -> dict[int, float]:
        """Mean reward at every value of which no run left its range."""
        return {
            v: float(np.mean(self.rewards(kind, v)))
            for v in self.values(kind)
            if not self.refused(kind, v)
        }

    def whole(self, kind: Kind) -> list[int]:
        """Values at which the mean over runs is within a percent point of floats."""
        return [value for value, mean in self.means(kind).items() if mean > self.plain - WHOLE]

    def enough(self, kind: Kind) -> int | None:
        """Fewest steps from which on the mean reward is within a percent point of what most steps
        give.
        """
        means = self.means(kind)
        last = [abs(mean - list(means.values())[-1]) < WHOLE for mean in means.values()]
        return next((step for i, step in enumerate(means) if all(last[i:])), None)


def explored(
    axis: Literal["bits", "newton"],
    jobs: Sequence[Job],
    private: Mapping[str, dict[str, Any]],
    steps: int,
    watch: Watch,
) -> Found:
    """Run all jobs, the float twin, and the first steps of real roles with some settings."""
    place, seeds = jobs[0].place, sorted({job.seed for job in jobs})
    watch("contexts", 0.0)
    worlds = [world_of(place, seed) for seed in seeds]
    plain = [
        float(floats.run(w.features, w.rewards, w.coins(EPSILON)).rewards.mean()) for w in worlds
    ]
    results = run_jobs(
        jobs,
        run,
        lambda job: f"{job.kind.label}, {job.bits} bits, {job.newton} Newton steps, run {job.seed}",
        watch,
        0.0,
        0.95,
    )
    checks = []
    for what, settings in private.items():
        watch(f"real roles with {what}, {steps} steps", 0.95)
        made = replace(place, steps=steps).settings(epsilon=str(EPSILON), **settings)
        checks.append(problem.check(made, f"{what}, run 1", steps))
    watch("figure and analysis", 1.0)
    return Found(axis, place, results, float(np.mean(plain)), checks)


def reward_table(found: Found, first: str, labels: Mapping[Kind, str]) -> Table:
    """Mean rewards, with the worst run."""
    rows = []
    for value in found.values(PAPER):
        cells = []
        for kind in labels:
            own, refused = found.rewards(kind, value), found.refused(kind, value)
            cell = f"{mean_of(own).text(3)} (worst {min(own):.3f})" if own else "–"
            cells.append(f"{cell}; out of range in {refused} more" if refused else cell)
        rows.append((str(value), *cells))
    title = f"Average reward, mean over runs ± 95 % t interval (floats: {found.plain:.4f})"
    return Table(title, (first, *labels.values()), tuple(rows))


def picture(
    found: Found,
    x: str,
    labels: Mapping[Kind, str],
    height: float = 4.2,
    width: float | None = None,
) -> plots.Figure:
    """Draw mean rewards with the range over runs."""
    figure, (ax,) = kit.panels(1, height=height, width=width)
    plots.style(ax, x=x, y="average reward")
    for number, (kind, label) in enumerate(labels.items()):
        values = [value for value in found.values(kind) if found.rewards(kind, value)]
        own = [found.rewards(kind, value) for value in values]
        kit.line(ax, values, [np.mean(one) for one in own], number, label)
        kit.band(ax, values, [min(one) for one in own], [max(one) for one in own], number)
    ax.axhline(found.plain, color=INK, linestyle=":", linewidth=1.4, label="floats")
    ticks = found.values(PAPER)
    ax.set_xticks(ticks)
    ax.set_ylim(0.0, 0.9)
    runs = len(found.rewards(PAPER, ticks[0]))
    kit.legend(figure, ax, 2, f"Means of {runs} runs; bands: from the worst run to the best")
    return figure


# Figure 8: bits.

BITS = (14, 16, 18, 20, 22, 24, 26, 28)
OUR_BITS = (20, 22, 26)
"""Those that Posse allows for so many steps: with fewer, rounding adds up and can break the
model.
"""
PUBLISHED_BEST, PUBLISHED_LOW, PUBLISHED_HIGH = 20, 18, 22
"""Published: 20 bits are best, with sharp drops below 18 and above 22."""


def bits_sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run all forms and truncations, and real roles at two precisions."""
    place, runs, checked = (SMALL, 2, 60) if small else (FULL, RUNS, 500)
    bits, ours, private = (
        ((14, 20, 26), (20, 26), (20, 26)) if small else (BITS, OUR_BITS, (16, 26))
    )
    jobs = [
        Job(place, kind, b, NEWTON[kind.form], seed)
        for kind in KINDS
        for b in bits
        for seed in seeds_of(runs)
    ]
    jobs += [Job(place, OURS, b, 2, seed) for b in ours for seed in seeds_of(runs)]
    return analyse_bits(
        explored("bits", jobs, {f"{b} bits": {"bits": b} for b in private}, checked, watch), out
    )


def analyse_bits(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say where precision breaks the learner."""
    labels = {kind: kind.label for kind in (*KINDS, OURS)}
    drawn = picture(found, "bits of precision L", labels, 4.6, 8.0)
    files = write_files(out, "fig8", [one.row() for one in found.results], drawn)
    headline = (
        f"Within a percent point of floats ({found.plain:.4f}): {PAPER.label} "
        f"{_list(found.whole(PAPER))}; "
        f"{RECURSIVE.label} {_list(found.whole(RECURSIVE))}; {OURS.label} "
        f"{_list(found.whole(OURS))}."
    )
    notes = (
        _agreement(found),
        "Every product is cut back by L bits. The paper's truncation is off by 2^(64 - L) with "
        "probability "
        "|x| / 2^64 each time; one such wrap in a weight can end a run's learning, by chance: the "
        "spread between runs "
        f"shows it. All at {found.place.steps:,} steps, so a shorter run meets fewer of them. "
        "Exact truncation by "
        "dealt pairs never wraps, and the recursive form needs fewer bits. 'Exact' holds while |x| "
        "< 2^62: above 26 "
        "bits a score may leave that range.",
        f"Epsilon {EPSILON:g}, runs 1 to {len(found.rewards(PAPER, found.values(PAPER)[0]))}; the "
        "paper tells neither.",
        _refused(found),
        check_words(found.checks),
    )
    tables = (
        reward_table(found, "L", labels),
        wrap_table(found.results),
        check_table(found.checks),
    )
    return Analysis(headline, tables, notes, files, (best_bits(found),))


def best_bits(found: Found) -> Finding:
    """Judge the published range: best at 20 bits, a percent point and more is lost at 16 and at
    24.
    """
    means = found.means(PAPER)
    text = "; ".join(f"{bits} bits {mean:.4f}" for bits, mean in means.items())
    if not {16, PUBLISHED_BEST, 24} <= set(means):
        return Finding("best", text, UNKNOWN, "16, 20 and 24 bits were not all run")
    top = means[PUBLISHED_BEST]
    held = max(means.values()) - top < WHOLE and min(top - means[16], top - means[24]) > WHOLE
    return Finding("best", text, HOLDS if held else FAILS)


def _agreement(found: Found) -> str:
    """Put the published range beside ours."""
    whole = found.whole(PAPER)
    means = found.means(PAPER)
    best = max(means, key=lambda bits: means[bits])
    low, high = (means.get(edge) for edge in (16, 24))
    said = (
        f"Published: best at {PUBLISHED_BEST} bits, sharp drops below {PUBLISHED_LOW} and above "
        f"{PUBLISHED_HIGH}. "
    )
    said += (
        f"Here the paper's form and truncation is best at {best} bits ({means[best]:.4f}) and "
        f"whole {_list(whole)}"
    )
    if low is not None and high is not None:
        said += f"; it earns {low:.4f} at 16 bits and {high:.4f} at 24"
    return said + "."


def _refused(found: Found) -> str:
    """Say whether the protocol itself stays in its ranges: its twin checks every one, real roles
    cannot.
    """
    out = [
        f"{found.refused(OURS, bits)} at {bits} bits"
        for bits in found.values(OURS)
        if found.refused(OURS, bits)
    ]
    if not out:
        return "The protocol's twin checks the range of every intermediate: no run left it."
    return (
        "The protocol's twin checks the range of every intermediate, and refuses runs that leave "
        "it: "
        f"{', '.join(out)}. Real roles cannot see this."
    )


def _list(bits: Sequence[int]) -> str:
    return "at no L" if not bits else f"at L = {', '.join(map(str, bits))}"


def wrap_table(results: Sequence[Result]) -> Table:
    """How often truncations wrapped."""
    bits = sorted({one.job.bits for one in results})
    rows = []
    for b in bits:
        cells = []
        for kind in KINDS:
            own = [one.wraps for one in results if (one.job.kind, one.job.bits) == (kind, b)]
            cells.append(", ".join(f"{count:,}" for count in own))
        rows.append((str(b), *cells))
    return Table(
        "Truncations that wrapped, run by run", ("L", *(kind.label for kind in KINDS)), tuple(rows)
    )


FIG8 = problem.REFERENCE.experiment(
    "fig8",
    "Private contextual bandits, figure 8: reward against bits of precision",
    ("precision",),
    bits_sweep,
    "figure 8",
)


# Figure 9: Newton steps.

STEPS = tuple(range(9))
LINES = {PAPER: 20, PAPER_EXACT: 20, RECURSIVE: 26}
"""Bits of each learner: the paper's, and ours."""
PUBLISHED_ENOUGH = 3


def newton_sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the paper's form and ours, and real roles with two numbers of Newton steps."""
    place, runs, checked = (SMALL, 2, 60) if small else (FULL, RUNS, 500)
    steps = (0, 1, 2, 3, 7) if small else STEPS
    jobs = [
        Job(place, kind, bits, n, seed)
        for kind, bits in LINES.items()
        for n in steps
        for seed in seeds_of(runs)
    ]
    private = {f"{newton} Newton steps, 26 bits": {"newton": newton} for newton in (0, 2)}
    return analyse_newton(explored("newton", jobs, private, checked, watch), out)


def analyse_newton(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say how many steps suffice."""
    drawn = picture(
        found,
        "Newton steps of the reciprocal",
        {k: f"{k.label}, L = {b}" for k, b in LINES.items()},
    )
    files = write_files(out, "fig9", [one.row() for one in found.results], drawn)
    enough = {kind: found.enough(kind) for kind in LINES}
    ours, paper = enough[RECURSIVE], enough[PAPER_EXACT]
    notes = (
        f"Published: {PUBLISHED_ENOUGH} Newton steps suffice. Here the paper's form needs {paper}, "
        "from its guess "
        "3 exp(1/2 - d) + 0.003, which itself costs eight squarings; "
        + (
            "we agree."
            if paper == PUBLISHED_ENOUGH
            else f"the paper's {PUBLISHED_ENOUGH} suffice here too."
            if paper is not None and paper < PUBLISHED_ENOUGH
            else "we disagree."
        ),
        f"Ours needs {ours}: contexts have norm at most 1, so the denominator lies in [1, 2], and "
        "a quadratic guess is "
        "already within 1 % (1/99). Its default is 2 (relative error 1e-8), which costs 4 of the "
        "rounds that argmax "
        "takes at the same time.",
        "Suffices: within a percent point of the largest number of steps, and so from there on. "
        "The paper's own "
        "truncation at 20 bits wraps in some runs with any number of Newton steps (figure 8): its line "
        "is drawn with the "
        f"one with exact truncation. Floats earn {found.plain:.4f}.",
        check_words(found.checks),
    )
    each = "; ".join(
        f"{kind.label} ({LINES[kind]} bits): {steps}" for kind, steps in enough.items()
    )
    table = reward_table(
        found, "Newton steps", {kind: f"{kind.label}, {bits} bits" for kind, bits in LINES.items()}
    )
    held = paper is not None and paper <= PUBLISHED_ENOUGH
    finding = Finding("three", f"steps that suffice: {each}", HOLDS if held else FAILS)
    tables = (table, check_table(found.checks))
    return Analysis(f"Newton steps that suffice: {each}.", tables, notes, files, (finding,))


FIG9 = problem.REFERENCE.experiment(
    "fig9",
    "Private contextual bandits, figure 9: reward against Newton steps",
    ("precision",),
    newton_sweep,
    "figure 9",
)
