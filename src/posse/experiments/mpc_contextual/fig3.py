"""Figure 3: average reward against eta, for several numbers of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from posse.experiments.base import Analysis, Experiment, Watch
from posse.experiments.mpc_contextual.eta import HELPS, Line, benefit_table, eta_table, grid, name, rewards_of
from posse.experiments.mpc_contextual.eta_picture import picture
from posse.experiments.mpc_contextual.private import Check, check, check_table, check_words
from posse.experiments.mpc_contextual.problem import FULL, REFERENCE, SMALL, Floats, Place, seeds_of
from posse.experiments.mpc_contextual.statistics import mean_of
from posse.experiments.mpc_contextual.sweep import run_jobs
from posse.experiments.output import write_figure, write_rows

GROUPS = (((1_000, 3_000, 10_000), 600), ((30_000, 60_000), 50))
"""T and runs: the paper draws three T, which its text does not tell. Short runs differ more, and cost less."""
SMALL_GROUPS = (((200, 600), 8), ((1_500,), 6))
PUBLISHED_RUNS = 5
ARMS = 10


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run the float twin at every eta, all lengths from one run each."""
    place, groups, checked = (SMALL, SMALL_GROUPS, 60) if small else (FULL, GROUPS, 500)
    etas = grid(ARMS, 3.0, 9.0, 2.0 if small else 0.5)
    watch("contexts", 0.0)
    place.contexts()
    lines: list[Line] = []
    for number, (lengths, runs) in enumerate(groups):
        found = _group(replace(place, steps=lengths[-1]), etas, lengths, runs, watch, 0.45 * number)
        lines += [Line(f"T = {t:,}", ARMS, t, etas, found[:, :, i]) for i, t in enumerate(lengths)]
    watch(f"real roles, {checked} steps", 0.9)
    made = check(replace(place, steps=checked).settings(epsilon="0.02"), "epsilon 0.02, run 1", checked)
    watch("figure and analysis", 1.0)
    return analyse(lines, made, out)


def _group(
    place: Place, etas: Sequence[float], lengths: Sequence[int], runs: int, watch: Watch, begin: float
) -> Floats:
    """Rewards (runs, etas, lengths)."""
    found = run_jobs(
        seeds_of(runs), lambda seed: rewards_of(place, etas, lengths, seed),
        lambda seed: f"T = {place.steps:,}, run {seed}", watch, begin, begin + 0.45,
    )  # fmt: skip
    return np.stack(found)


def analyse(lines: Sequence[Line], made: Check, out: Path) -> Analysis:
    """Write rows and figure, and say where exploring helps."""
    rows = [row for line in lines for row in line.rows()]
    files = (write_rows(out / "fig3.csv", rows), *write_figure(picture(lines), out, "fig3"))
    tables = (benefit_table(lines, "T"), eta_table(lines, "T"), check_table([made]))
    notes = (
        f"The paper (5 runs) says that at certain levels of privacy the private learner earns more than the one that "
        f"never explores, for three T that its text does not tell. {_agreement(lines)}",
        few_words(lines),
        f"Runs: {_runs(lines)}. Within a group a longer T is the same run continued. Rates are compared on the same "
        "contexts and the same chance numbers. The gain is that of an eta chosen in one half of the runs, measured in "
        "the other.",
        "eta is the published log(|A| / epsilon); the exact figure, log(|A| / epsilon - |A| + 1), is smaller by less "
        "than epsilon / (1 - epsilon). Both are for one step.",
        check_words([made]),
    )
    return Analysis(headline(lines), tables, notes, files)


def _runs(lines: Sequence[Line]) -> str:
    return ", ".join(f"{len(line.rewards)} at {line.label}" for line in lines)


def headline(lines: Sequence[Line]) -> str:
    """Say what exploring earns at each T."""
    parts = [
        f"T = {line.steps:,}: {line.benefit[1].text(2, 100, sign=True)} at eta {name(line.benefit[0])}"
        for line in lines
    ]  # fmt: skip
    return f"Gain of exploring over eta = infinity, percent points: {'; '.join(parts)}."


def _agreement(lines: Sequence[Line]) -> str:
    said = [f"{line.label}: {line.verdict}" for line in lines]
    helped = sum(line.verdict == HELPS for line in lines)
    how = "everywhere" if helped == len(lines) else "nowhere" if not helped else f"at {helped} of {len(lines)} T"
    return f"Here that holds {how} ({'; '.join(said)})."


def few_words(lines: Sequence[Line]) -> str:
    """Say what 5 runs, as in the paper, would have shown at the largest T, and how far they spread."""
    line = lines[-1]
    few = line.rewards[:PUBLISHED_RUNS]
    best = int(few[:, :-1].mean(axis=0).argmax())
    return (
        f"With {len(few)} runs, as in the paper, the best finite eta at {line.label} is {name(line.etas[best])}, "
        f"{mean_of(few[:, best] - few[:, -1]).text(2, 100, sign=True)} percent points from infinity."
    )


FIG3 = Experiment(
    id="mpc-contextual/fig3",
    title="Private contextual bandits, figure 3: reward against eta and T",
    reference=f"{REFERENCE}, figure 3",
    tags=("mpc-contextual", "reward", "privacy"),
    sweep=sweep,
)
