"""Figure 6: average reward against eta, for several numbers of arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from posse.experiments.base import Analysis, Experiment, Watch
from posse.experiments.mpc_contextual.eta import HELPS, Line, benefit_table, eta_table, grid, name, rewards_of
from posse.experiments.mpc_contextual.eta_picture import picture
from posse.experiments.mpc_contextual.private import Check, check, check_table, check_words
from posse.experiments.mpc_contextual.problem import FULL, REFERENCE, SMALL, Place, seeds_of
from posse.experiments.mpc_contextual.sweep import run_jobs
from posse.experiments.output import write_figure, write_rows

ARMS = (5, 10, 20, 40, 100)
RUNS = 20
CHECKED = 20
"""Arms of the private run."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the float twin on clusters of the images."""
    place, runs, checked = (SMALL, 4, 40) if small else (FULL, RUNS, 300)
    sizes = (5, 20) if small else ARMS
    places = [replace(place, clusters=arms) for arms in sizes]
    run_jobs(places, Place.contexts, lambda at: f"clusters, |A| = {at.clusters}", watch, 0.0, 0.3)
    jobs = [(at, seed) for at in places for seed in seeds_of(runs)]
    etas = {at: grid(at.clusters or 0, 3.0, 11.0, 2.0 if small else 0.5) for at in places}
    found = run_jobs(
        jobs, lambda job: rewards_of(job[0], etas[job[0]], (place.steps,), job[1])[:, 0],
        lambda job: f"|A| = {job[0].clusters}, run {job[1]}", watch, 0.3, 0.9,
    )  # fmt: skip
    lines = []
    for at in places:
        own = np.stack([one for one, job in zip(found, jobs, strict=True) if job[0] == at])
        lines.append(Line(f"|A| = {at.clusters}", at.clusters or 0, at.steps, etas[at], own))
    watch(f"real roles, {checked} steps", 0.9)
    where = replace(place, clusters=CHECKED, steps=checked)
    made = check(where.settings(epsilon="0.05"), f"|A| = {CHECKED}, epsilon 0.05, run 1", checked)
    watch("figure and analysis", 1.0)
    return analyse(lines, made, out)


def analyse(lines: Sequence[Line], made: Check, out: Path) -> Analysis:
    """Write rows and figure, and say how the best eta moves."""
    rows = [row for line in lines for row in line.rows()]
    files = (write_rows(out / "fig6.csv", rows), *write_figure(picture(lines), out, "fig6"))
    tables = (benefit_table(lines, "arms"), eta_table(lines, "arms"), check_table([made]))
    best = [line.etas[line.best] for line in lines]
    helped = [line.label for line in lines if line.verdict == HELPS]
    headline = (
        "Eta of the best mean reward: "
        + "; ".join(f"{line.label}: {name(eta)}" for line, eta in zip(lines, best, strict=True))
        + f". Exploring earns clearly more than eta = infinity {'for ' + ', '.join(helped) if helped else 'nowhere'}."
    )
    notes = (
        f"The paper says that the best eta only tends to increase slightly with the number of arms. {moves(lines)}",
        "Arms are K-means clusters of the images, clustered once (seed 1); arm a pays 1 with probability "
        "exp(-|c_a - x|^2 / (2 sigma)), sigma = 1/2, not normalised. The paper writes 'proportional to', and its text "
        "tells neither the factor nor the numbers of arms, steps and runs.",
        check_words([made]),
    )
    return Analysis(headline, tables, notes, files)


def moves(lines: Sequence[Line]) -> str:
    """Say how the smallest eta that is not clearly below the best moves: where all earn alike, the best is chance."""
    lowest = [line.near[0] for line in lines]
    told = ", ".join(f"{name(eta)} for {line.label}" for line, eta in zip(lines, lowest, strict=True))
    up = sum(b > a for a, b in pairwise(lowest))
    down = sum(b < a for a, b in pairwise(lowest))
    word = "We agree" if up and not down else "It stays" if not up and not down else "We disagree"
    return f"Here the smallest eta that is not clearly below the best is {told}. {word}."


FIG6 = Experiment(
    id="mpc-contextual/fig6",
    title="Private contextual bandits, figure 6: reward against eta and |A|",
    reference=f"{REFERENCE}, figure 6",
    tags=("mpc-contextual", "reward", "privacy"),
    sweep=sweep,
)
