"""Figure 2: average reward during training, for four exploration rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.core.fixed import REWARD_ONE
from posse.privacy.dp.arms import ArmChoice
from posse.results import plots, words
from posse.results.record import points_of
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.twin import coins_of
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import (
    Analysis,
    Floats,
    Row,
    Table,
    Watch,
    mean_of,
    run_jobs,
    seeds_of,
    write_files,
)
from reproduction.mpc_contextual import problem
from reproduction.mpc_contextual.problem import (
    EPSILONS,
    FULL,
    REFERENCE,
    SMALL,
    Check,
    Place,
    check,
)

POINTS = 300
CHECKED = 0.05
"""The rate of the private run."""


@dataclass(frozen=True)
class Found:
    """Average rewards so far of every run, at `steps`."""

    place: Place
    steps: np.ndarray
    curves: dict[float, Floats]
    """(runs, points) by exploration rate."""
    shares: dict[float, Floats]
    """(runs,) share of steps in which the best arm was pulled, by exploration rate."""
    checks: list[Check]


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the float twin on the coins of the protocol, and real roles for the first steps of one
    run.
    """
    place, runs, checked = (SMALL, 3, 120) if small else (FULL, 10, 2_000)
    jobs = [(epsilon, seed) for epsilon in EPSILONS for seed in seeds_of(runs)]
    watch("contexts", 0.0)
    place.contexts()
    steps = points_of(place.steps, POINTS)
    rewards = run_jobs(
        jobs,
        lambda job: curve(place, steps, *job),
        lambda job: f"epsilon {job[0]:g}, run {job[1]}",
        watch,
        0.0,
        0.6,
    )
    own = {
        e: [made for made, job in zip(rewards, jobs, strict=True) if job[0] == e] for e in EPSILONS
    }
    curves = {e: np.stack([c for c, _ in made]) for e, made in own.items()}
    shares = {e: np.array([share for _, share in made]) for e, made in own.items()}
    watch(f"real roles, {checked:,} steps", 0.6)
    rates = (CHECKED,) if small else EPSILONS
    checks = [
        check(place.settings(epsilon=str(e)), f"epsilon {e:g}, run 1", checked) for e in rates
    ]
    watch("figure and analysis", 1.0)
    return analyse(Found(place, steps, curves, shares, checks), out)


def curve(place: Place, steps: np.ndarray, epsilon: float, seed: int) -> tuple[Floats, float]:
    """Return the average reward so far after these steps, and how often the best arm was pulled.

    That is what `posse run mpc-contextual --path float` does.
    """
    setup = place.settings(epsilon=str(epsilon)).load()
    rows = setup.order(seed)
    run = floats.run(
        setup.features(rows), setup.units(seed, rows) / REWARD_ONE, coins_of(setup.terms, seed)
    )
    average: Floats = run.rewards.cumsum() / np.arange(1, place.steps + 1)
    return average[steps - 1], float((run.arms == run.greedy).mean())


def theorem1(found: Found, arms: int) -> Finding:
    """Judge eta = log(|A| / epsilon) by how often the best arm was pulled."""
    parts = []
    for epsilon, shares in found.shares.items():
        eta = mean_of(np.log(shares * (arms - 1) / (1 - shares)))
        said = math.log(arms / epsilon)
        word = HOLDS if eta.low <= said else FAILS
        parts.append(Finding(f"epsilon {epsilon:g}", f"eta {eta.text(3)}, bound {said:.3f}", word))
    return claims.combined("theorem1", parts)


def same(found: Found) -> Finding:
    """Judge that private and plain rewards are the same."""
    parts = [
        Finding(
            one.what,
            f"private {one.reward:.4f}, plain {one.plain_reward:.4f} over {one.steps:,} steps",
            HOLDS
            if abs(one.reward - one.plain_reward) * one.steps <= max(one.differs, 0) + 0.5
            else FAILS,
        )
        for one in found.checks
    ]
    return claims.combined("same", parts)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say what is earned."""
    raw: list[Row] = [
        {"epsilon": epsilon, "seed": seed, "step": int(step), "average_reward": float(value)}
        for epsilon, curves in found.curves.items()
        for seed, one in zip(seeds_of(len(curves)), curves, strict=True)
        for step, value in zip(found.steps, one, strict=True)
    ]
    files = write_files(out, "fig2", raw, picture(found))
    ends = {epsilon: mean_of(curves[:, -1]) for epsilon, curves in found.curves.items()}
    low, high = (ends[edge].mean for edge in (EPSILONS[-1], EPSILONS[0]))
    headline = (
        f"Average reward after {found.place.steps:,} steps: {low:.3f} at epsilon {EPSILONS[-1]:g} "
        f"to {high:.3f} at "
        f"{EPSILONS[0]:g}, the mean of {len(found.curves[EPSILONS[0]])} runs."
    )
    notes = (
        problem.check_words(found.checks),
        "The paper states that private and plain rewards are the same for a range of epsilon; "
        + (
            "so they are here, arm by arm."
            if all(one.equal for one in found.checks)
            else "here arms DIFFER: the private run is wrong."
        ),
        "The curves show the float twin, on the coins that the private run of the same seed "
        "would have. Figure 2 is "
        "printed as a picture: its epsilons and rewards are not in the text, so no number can be "
        "compared with ours. An "
        "axis of its appendix D, on the same task, is marked at 0.85.",
        f"One step costs eta = log(|A| / epsilon - |A| + 1) for its context; {found.place.steps:,} "
        "steps together, at "
        "delta 1e-5, cost what the table says: no meaningful guarantee for the run. Rewards and "
        "weights carry none.",
    )
    equal, steps = sum(one.same for one in found.checks), sum(one.steps for one in found.checks)
    pulled = f"{equal:,} of {steps:,} arms equal those of the fixed-point twin"
    findings = (
        Finding("algorithm1", pulled, HOLDS if equal == steps else FAILS),
        theorem1(found, len(found.place.contexts().arms)),
        same(found),
    )
    return Analysis(
        headline, (reward_table(found), problem.check_table(found.checks)), notes, files, findings
    )


def reward_table(found: Found) -> Table:
    """Rewards of stages of training, with the privacy of the arm."""
    stages = sorted(
        {int(found.steps[round(share * (len(found.steps) - 1))]) for share in (0.02, 0.1, 0.5, 1.0)}
    )
    at = [int(np.searchsorted(found.steps, stage)) for stage in stages]
    arms = len(found.place.contexts().arms)
    rows = []
    for epsilon, curves in found.curves.items():
        choice = ArmChoice(arms, epsilon)
        rows.append(
            (
                f"{epsilon:g}",
                *(mean_of(curves[:, place]).text() for place in at),
                f"{choice.epsilon:.2f}",
                words.number(choice.total(found.place.steps, 1e-5).epsilon, 3),
            )
        )
    columns = (
        "epsilon",
        *(f"step {stage:,}" for stage in stages),
        "eta a step",
        "eta of all steps, delta 1e-5",
    )
    return Table("Average reward so far, mean over runs ± 95 % t interval", columns, tuple(rows))


def picture(found: Found) -> plots.Figure:
    """Draw the curves with their spread."""
    figure, (ax,) = kit.panels(1)
    plots.style(ax, x="iteration (thousands)", y="average reward so far")
    x = found.steps / 1000
    for number, (epsilon, curves) in enumerate(found.curves.items()):
        middle, spread = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        kit.line(ax, x, middle, number, f"ε = {epsilon:g}", marker=False)
        kit.band(ax, x, middle - spread, middle + spread, number)
    runs = len(found.curves[EPSILONS[0]])
    ax.set_ylim(0.0, 0.9)
    kit.legend(figure, ax, 4, f"Mean of {runs} runs; bands: one standard deviation over runs")
    return figure


FIG2 = REFERENCE.experiment(
    "fig2",
    "Private contextual bandits, figure 2: reward during training",
    ("reward", "privacy"),
    sweep,
    "figure 2",
)
