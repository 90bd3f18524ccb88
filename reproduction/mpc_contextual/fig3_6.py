"""Figures 3 and 6: reward against eta = log(|A| / epsilon), with eta = infinity (no exploration) at
its end.

Figure 3 has a line for each of several numbers of steps T, figure 6 for each of several numbers of
arms |A|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posse.core.statistics import bootstrap
from posse.results import plots
from posse.results.plots import DASHES, INK
from posse.systems.mpc_contextual.twins import floats
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import (
    Analysis,
    Floats,
    Mean,
    Row,
    Table,
    Watch,
    mean_of,
    run_jobs,
    seeds_of,
    write_files,
)
from reproduction.mpc_contextual import problem
from reproduction.mpc_contextual.problem import FULL, SMALL, Check, Place

HELPS, HARMS = "exploring earns more", "exploring earns less"
BELOW = 4.0
"""Percent points below 0 at which the right panel is cut: much exploration costs far more."""


def rate(eta: float, arms: int) -> float:
    """Return the exploration rate of a published eta: |A| exp(-eta).

    >>> rate(math.inf, 10), round(rate(math.log(100), 10), 12)
    (0.0, 0.1)
    """
    return arms * math.exp(-eta)


def grid(arms: int, low: float, high: float, step: float) -> tuple[float, ...]:
    """Etas from low to high whose rate is at most 1/2, and infinity.

    >>> grid(10, 2.0, 4.0, 0.5)
    (3.0, 3.5, 4.0, inf)
    """
    count = round((high - low) / step) + 1
    finite = (low + step * i for i in range(count))
    return (*(eta for eta in finite if rate(eta, arms) <= 0.5), math.inf)


def rewards_of(place: Place, etas: Sequence[float], lengths: Sequence[int], seed: int) -> Floats:
    """Average rewards (etas, lengths) of one seed: a run of T steps begins with the runs of all
    smaller T.
    """
    world = problem.world_of(place, seed)
    arms = world.rewards.shape[1]
    averages = np.empty((len(etas), len(lengths)))
    for i, eta in enumerate(etas):
        sums = floats.run(
            world.features, world.rewards, world.coins(rate(eta, arms))
        ).rewards.cumsum()
        averages[i] = [sums[length - 1] / length for length in lengths]
    return averages


@dataclass(frozen=True, eq=False)
class Line:
    """One line of the figure: what it is of, and the average reward of every run at every eta."""

    label: str
    arms: int
    steps: int
    etas: tuple[float, ...]
    rewards: Floats
    """(runs, etas)"""

    @cached_property
    def means(self) -> Floats:
        """Mean over runs at every eta."""
        means: Floats = self.rewards.mean(axis=0)
        return means

    @property
    def best(self) -> int:
        """Number of the eta that earns most over all runs, infinity included."""
        return int(self.means.argmax())

    @property
    def near(self) -> tuple[float, ...]:
        """Etas that are not clearly below the best: the interval of the paired difference reaches
        0.
        """
        gaps = [
            mean_of(self.rewards[:, self.best] - self.rewards[:, i]) for i in range(len(self.etas))
        ]
        return tuple(eta for eta, gap in zip(self.etas, gaps, strict=True) if not gap.low > 0)

    @cached_property
    def benefit(self) -> tuple[float, Mean]:
        """The finite eta that earns most in the first half of the runs, and what it earns above
        infinity in the others.

        Chosen and tested on different runs: the largest of a dozen means is above the rest by
        chance alone.
        """
        half = len(self.rewards) // 2
        chosen = int(self.rewards[:half, :-1].mean(axis=0).argmax())
        return self.etas[chosen], mean_of(self.rewards[half:, chosen] - self.rewards[half:, -1])

    @property
    def verdict(self) -> str:
        """Whether exploring helps here."""
        return kit.verdict(self.benefit[1], HELPS, HARMS)

    def rows(self) -> list[Row]:
        """Every run at every eta."""
        return [
            {
                "arms": self.arms,
                "steps": self.steps,
                "seed": seed + 1,
                "eta": eta,
                "epsilon": rate(eta, self.arms),
                "average_reward": float(self.rewards[seed, i]),
            }
            for seed in range(len(self.rewards))
            for i, eta in enumerate(self.etas)
        ]


def benefit_table(lines: Sequence[Line], first: str) -> Table:
    """Say for every line where it earns most, and whether exploring beats not exploring."""
    rows = []
    for line in lines:
        chosen, gain = line.benefit
        rows.append(
            (
                line.label,
                mean_of(line.rewards[:, -1]).text(),
                name(line.etas[line.best]),
                mean_of(line.rewards[:, line.best]).text(),
                _span(line.near),
                name(chosen),
                gain.text(2, 100, sign=True),
                line.verdict,
            )
        )
    columns = (
        first,
        "reward at eta = infinity",
        "eta of the best mean",
        "reward there",
        "etas not clearly below it",
        "eta chosen in half the runs",
        "its gain over infinity in the others, percent points",
        "so",
    )
    return Table(
        "Does exploring earn more? Means over runs ± 95 % t interval", columns, tuple(rows)
    )


def eta_table(lines: Sequence[Line], first: str) -> Table:
    """Mean reward at every eta."""
    etas = sorted({eta for line in lines for eta in line.etas})
    rows = []
    for line in lines:
        at = dict(zip(line.etas, line.means, strict=True))
        rows.append((line.label, *(f"{at[eta]:.4f}" if eta in at else "–" for eta in etas)))
    return Table("Mean reward at every eta", (first, *(name(eta) for eta in etas)), tuple(rows))


def name(eta: float) -> str:
    """Write an eta.

    >>> name(5.5), name(math.inf)
    ('5.5', 'infinity')
    """
    return "infinity" if math.isinf(eta) else f"{eta:g}"


def _span(etas: Sequence[float]) -> str:
    return name(etas[0]) if len(etas) == 1 else f"{name(etas[0])} to {name(etas[-1])}"


def picture(lines: Sequence[Line]) -> plots.Figure:
    """Draw reward against eta, and beside it what is gained over infinity; the best of a line is
    ringed.
    """
    figure, (left, right) = kit.panels(2, ("average reward", "gain over η = ∞, same runs"), 4.4)
    label = "η = log(|A| / ε): less private →"
    plots.style(left, x=label, y="average reward")
    plots.style(right, x=label, y="percent points")
    everything = sorted({eta for line in lines for eta in line.etas})
    end = _infinity_axis(left, everything)
    for number, line in enumerate(lines):
        x = np.array([eta if np.isfinite(eta) else end for eta in line.etas])
        gains = [mean_of(line.rewards[:, i] - line.rewards[:, -1]) for i in range(len(x) - 1)]
        kit.line(left, x[:-1], line.means[:-1], number, line.label)
        kit.line(left, x[-1:], line.means[-1:], number, "_")
        kit.line(right, x[:-1], [100 * gain.mean for gain in gains], number, line.label)
        kit.band(right, x[:-1], [100 * g.low for g in gains], [100 * g.high for g in gains], number)
        ring = {
            "markersize": 10,
            "marker": "o",
            "markerfacecolor": "none",
            "color": kit.line_style(number)["color"],
        }
        left.plot([x[line.best]], [line.means[line.best]], **ring)
    right.axhline(0.0, color=INK, linewidth=1.0)
    most = max(float((line.means[:-1] - line.means[-1]).max()) for line in lines)
    right.set_ylim(-BELOW, max(2.0, 140 * most))
    ring_sign = kit.legend_entry(
        "best mean", color=INK, marker="o", linestyle="", markerfacecolor="none", markersize=9
    )
    runs = sorted({len(line.rewards) for line in lines}, reverse=True)
    note = (
        f"Means of {' or '.join(map(str, runs))} runs; bands: 95 % t intervals over runs. The "
        "right panel is cut "
        f"{BELOW:g} below 0."
    )
    kit.legend(figure, left, 6, note, [ring_sign])
    return figure


def _infinity_axis(ax: plots.Axes, etas: Sequence[float]) -> float:
    """Label an axis of etas, with infinity behind the last of them; return its place."""
    finite = sorted(eta for eta in etas if np.isfinite(eta))
    end = finite[-1] + 1.0
    whole = range(int(np.ceil(finite[0])), int(finite[-1]) + 1)
    ax.set_xticks([*whole, end], [*(str(tick) for tick in whole), "∞"])
    ax.axvline(end - 0.5, color=INK, linewidth=0.8, alpha=0.5, linestyle=DASHES[2])
    return end


def _outputs(
    lines: Sequence[Line], first: str, made: Check, out: Path, figure: str
) -> tuple[tuple[Table, ...], tuple[Path, ...]]:
    """Write the rows and the picture of a figure, and make its tables."""
    files = write_files(out, figure, [row for line in lines for row in line.rows()], picture(lines))
    return (
        benefit_table(lines, first),
        eta_table(lines, first),
        problem.check_table([made]),
    ), files


# Figure 3.

GROUPS = (((1_000, 3_000, 10_000), 600), ((30_000, 60_000), 50))
"""T and runs: the paper draws three T, which its text does not give. Short runs differ more, and
cost less.
"""
SMALL_GROUPS = (((200, 600), 8), ((1_500,), 6))
PUBLISHED_RUNS = 5
ARMS = 10


def steps_sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the float twin at every eta, all lengths from one run each."""
    place, groups, checked = (SMALL, SMALL_GROUPS, 60) if small else (FULL, GROUPS, 500)
    etas = grid(ARMS, 3.0, 9.0, 2.0 if small else 0.5)
    watch("contexts", 0.0)
    place.contexts()
    lines: list[Line] = []
    for number, (lengths, runs) in enumerate(groups):
        at = replace(place, steps=lengths[-1])
        rewards = np.stack(
            run_jobs(
                seeds_of(runs),
                partial(rewards_of, at, etas, lengths),
                f"T = {at.steps:,}, run {{}}".format,
                watch,
                0.45 * number,
                0.45 * number + 0.45,
            )
        )
        lines += [
            Line(f"T = {t:,}", ARMS, t, etas, rewards[:, :, i]) for i, t in enumerate(lengths)
        ]
    watch(f"real roles, {checked} steps", 0.9)
    made = problem.check(
        replace(place, steps=checked).settings(epsilon="0.02"), "epsilon 0.02, run 1", checked
    )
    watch("figure and analysis", 1.0)
    return analyse_steps(lines, made, out)


def analyse_steps(lines: Sequence[Line], made: Check, out: Path) -> Analysis:
    """Write rows and figure, and say where exploring helps."""
    tables, files = _outputs(lines, "T", made, out, "fig3")
    runs = ", ".join(f"{len(line.rewards)} at {line.label}" for line in lines)
    notes = (
        "The paper (5 runs) states that at certain levels of privacy the private learner earns more "
        "than the one that "
        f"never explores, for three T that its text does not tell. {_agreement(lines)}",
        few_words(lines),
        f"Runs: {runs}. Within a group a longer T is the same run continued. Rates are compared on "
        "the same "
        "contexts and the same chance numbers. The gain is that of an eta chosen in one half of "
        "the runs, measured in "
        "the other.",
        "eta is the published log(|A| / epsilon); the exact figure, log(|A| / epsilon - |A| + 1), "
        "is smaller by less "
        "than epsilon / (1 - epsilon). Both are for one step.",
        problem.check_words([made]),
    )
    return Analysis(headline(lines), tables, notes, files, (helps(lines), too_much(lines[-1])))


def helps(lines: Sequence[Line]) -> Finding:
    """Judge that exploring earns more somewhere; intervals hold together for all T."""
    gains = [kit.bonferroni(line.benefit[1], len(lines)) for line in lines]
    parts = zip(lines, gains, strict=True)
    text = "; ".join(
        f"{line.label}: {gain.text(2, 100, sign=True)} percentage points" for line, gain in parts
    )
    if any(gain.low > 0 for gain in gains):
        return Finding("exploring-helps", text, HOLDS)
    if all(gain.high < 0 for gain in gains):
        return Finding("exploring-helps", text, FAILS)
    best = max(gains, key=lambda gain: gain.mean)
    return Finding("exploring-helps", text, UNKNOWN, kit.runs_needed(best))


def too_much(line: Line) -> Finding:
    """Judge that the most private rate earns less than the best."""
    gap = mean_of(line.rewards[:, line.best] - line.rewards[:, 0])
    return kit.judge(
        "too-much",
        gap,
        f"{line.label}: eta {name(line.etas[0])} earns {gap.text(4)} less than the best",
    )


def headline(lines: Sequence[Line]) -> str:
    """Say what exploring earns at each T."""
    parts = [
        f"T = {line.steps:,}: {line.benefit[1].text(2, 100, sign=True)} at eta "
        f"{name(line.benefit[0])}"
        for line in lines
    ]
    return f"Gain of exploring over eta = infinity, percent points: {'; '.join(parts)}."


def _agreement(lines: Sequence[Line]) -> str:
    said = [f"{line.label}: {line.verdict}" for line in lines]
    helped = sum(line.verdict == HELPS for line in lines)
    how = (
        "everywhere"
        if helped == len(lines)
        else "nowhere"
        if not helped
        else f"at {helped} of {len(lines)} T"
    )
    return f"Here that holds {how} ({'; '.join(said)})."


def few_words(lines: Sequence[Line]) -> str:
    """Say what 5 runs, as in the paper, would have shown at the largest T, and how far they
    spread.
    """
    line = lines[-1]
    few = line.rewards[:PUBLISHED_RUNS]
    best = int(few[:, :-1].mean(axis=0).argmax())
    return (
        f"With {len(few)} runs, as in the paper, the best finite eta at {line.label} is "
        f"{name(line.etas[best])}, "
        f"{mean_of(few[:, best] - few[:, -1]).text(2, 100, sign=True)} percent points from "
        "infinity."
    )


FIG3 = problem.REFERENCE.experiment(
    "fig3",
    "Private contextual bandits, figure 3: reward against eta and T",
    ("reward", "privacy"),
    steps_sweep,
    "figure 3",
)


# Figure 6.

ARM_COUNTS = (5, 10, 20, 40, 100)
RUNS = 20
CHECKED = 20
"""Arms of the private run."""


def arms_sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the float twin on clusters of the images."""
    place, runs, checked = (SMALL, 4, 40) if small else (FULL, RUNS, 300)
    sizes = (5, 20) if small else ARM_COUNTS
    places = [replace(place, clusters=arms) for arms in sizes]
    run_jobs(places, Place.contexts, lambda at: f"clusters, |A| = {at.clusters}", watch, 0.0, 0.3)
    jobs = [(at, seed) for at in places for seed in seeds_of(runs)]
    etas = {at: grid(at.clusters or 0, 3.0, 11.0, 2.0 if small else 0.5) for at in places}
    rewards = run_jobs(
        jobs,
        lambda job: rewards_of(job[0], etas[job[0]], (place.steps,), job[1])[:, 0],
        lambda job: f"|A| = {job[0].clusters}, run {job[1]}",
        watch,
        0.3,
        0.9,
    )
    lines = []
    for at in places:
        own = np.stack([one for one, job in zip(rewards, jobs, strict=True) if job[0] == at])
        lines.append(Line(f"|A| = {at.clusters}", at.clusters or 0, at.steps, etas[at], own))
    watch(f"real roles, {checked} steps", 0.9)
    where = replace(place, clusters=CHECKED, steps=checked)
    made = problem.check(
        where.settings(epsilon="0.05"), f"|A| = {CHECKED}, epsilon 0.05, run 1", checked
    )
    watch("figure and analysis", 1.0)
    return analyse_arms(lines, made, out)


def analyse_arms(lines: Sequence[Line], made: Check, out: Path) -> Analysis:
    """Write rows and figure, and say how the best eta moves."""
    tables, files = _outputs(lines, "arms", made, out, "fig6")
    best = [line.etas[line.best] for line in lines]
    helped = [line.label for line in lines if line.verdict == HELPS]
    headline = (
        "Eta of the best mean reward: "
        + "; ".join(f"{line.label}: {name(eta)}" for line, eta in zip(lines, best, strict=True))
        + f". Exploring earns clearly more than eta = infinity {'for ' + ', '.join(helped) if helped else 'nowhere'}."
    )
    found = slightly(lines)
    notes = (
        "The paper states that the best eta only tends to increase slightly with the number of arms. "
        "Here a run is "
        f"{found.measured}.",
        "Arms are K-means clusters of the images, clustered once (seed 1); arm a pays 1 with "
        "probability "
        "exp(-|c_a - x|^2 / (2 sigma)), sigma = 1/2, not normalised. The paper writes "
        "'proportional to', and its text "
        "tells neither the factor nor the numbers of arms, steps and runs.",
        problem.check_words([made]),
    )
    return Analysis(headline, tables, notes, files, (found,))


ALIKE = 0.01
"""Rewards that differ by less are taken as alike."""


def enough_eta(line: Line, runs: NDArray[np.int64]) -> float:
    """Smallest eta, between those run, from which the mean over some runs is within a percent point
    of the best.
    """
    means = line.rewards[runs].mean(axis=0)
    wanted = float(means.max()) - ALIKE
    first = int((means >= wanted).argmax())
    if first == 0 or math.isinf(line.etas[first]):
        return line.etas[max(0, first - 1)]
    low, high = line.etas[first - 1], line.etas[first]
    return low + (high - low) * float(
        (wanted - means[first - 1]) / (means[first] - means[first - 1])
    )


def slightly(lines: Sequence[Line]) -> Finding:
    """Judge that the eta that earns about the best rises with the arms, by less than 1 a unit of ln
    |A|.

    1 would keep epsilon as it is: eta = ln |A| - ln epsilon. Intervals are bootstrapped over runs,
    the same for all.
    """
    arms = np.log([line.arms for line in lines])
    centred = arms - arms.mean()

    def slope_of(some: NDArray[np.int64]) -> float:
        etas = np.array([enough_eta(line, some) for line in lines])
        # Less the first one, so that the slope of equal etas is exactly 0 on every machine.
        return float(centred @ (etas - etas[0]) / (centred @ centred))

    def slope(numbers: Floats, axis: int) -> object:
        return [slope_of(some) for some in numbers.astype(np.int64)]

    runs = np.arange(len(lines[0].rewards))
    rise = bootstrap(runs, slope, resamples=1000)
    each = ", ".join(f"{enough_eta(line, runs):.2f} for {line.label}" for line in lines)
    text = (
        f"smallest eta within one percentage point of the best: {each}; it rises by {rise} per unit of "
        "ln |A|"
    )
    if rise.low > 0 and rise.high < 1:
        return Finding("slightly", text, HOLDS)
    if rise.high < 0 or rise.low > 1:
        return Finding("slightly", text, FAILS)
    away = min(abs(rise.estimate), abs(rise.estimate - 1))
    half = (rise.high - rise.low) / 2
    many = (
        f"about {math.ceil(len(runs) * (half / away) ** 2):,} runs would decide"
        if away
        else "no number of runs would decide"
    )
    return Finding(
        "slightly", text, UNKNOWN, f"the interval includes {0 if rise.low <= 0 else 1}, and {many}"
    )


FIG6 = problem.REFERENCE.experiment(
    "fig6",
    "Private contextual bandits, figure 6: reward against eta and |A|",
    ("reward", "privacy"),
    arms_sweep,
    "figure 6",
)
