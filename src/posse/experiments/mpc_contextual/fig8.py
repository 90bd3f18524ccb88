"""Figure 8: average reward against the bits of precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.precision import (
    EPSILON,
    KINDS,
    OURS,
    PAPER,
    RECURSIVE,
    Job,
    Kind,
    Result,
    float_reward,
    run,
    words,
)
from posse.experiments.mpc_contextual.private import Check, check, check_table, check_words
from posse.experiments.mpc_contextual.problem import FULL, REFERENCE, SMALL, Place, seeds_of
from posse.experiments.mpc_contextual.statistics import mean_of
from posse.experiments.mpc_contextual.sweep import run_jobs
from posse.experiments.output import write_figure, write_rows
from posse.protocols.mpc_contextual.published import NEWTON
from posse.results import theme
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BITS = (14, 16, 18, 20, 22, 24, 26, 28)
OUR_BITS = (20, 22, 26)
"""Those that Posse allows for so many steps: with fewer, rounding adds up and can break the model."""
"""The protocol takes 12 to 26."""
RUNS = 3
PUBLISHED_BEST, PUBLISHED_LOW, PUBLISHED_HIGH = 20, 18, 22
"""Published: 20 bits are best, with sharp drops below 18 and above 22."""
WHOLE = 0.01
"""A learner works at so many bits if it earns at most so much less than in floats."""


@dataclass(frozen=True, eq=False)
class Found:
    """Everything the sweep found."""

    place: Place
    results: list[Result]
    plain: float
    checks: list[Check]

    def rewards(self, kind: Kind, bits: int) -> list[float]:
        """Rewards of all runs at so many bits; a run that left its range has none."""
        own = [one for one in self.results if (one.job.kind, one.job.bits) == (kind, bits)]
        return [one.reward for one in own if not one.refused]

    def refused(self, kind: Kind, bits: int) -> int:
        """Runs that left their range."""
        return sum(one.refused for one in self.results if (one.job.kind, one.job.bits) == (kind, bits))

    def bits(self, kind: Kind) -> list[int]:
        """Bits that were run."""
        return sorted({one.job.bits for one in self.results if one.job.kind == kind})

    def whole(self, kind: Kind) -> list[int]:
        """Bits at which the mean over runs is within a percent point of floats."""
        return [bits for bits in self.bits(kind) if self._whole(kind, bits)]

    def _whole(self, kind: Kind, bits: int) -> bool:
        if self.refused(kind, bits):
            return False
        return float(np.mean(self.rewards(kind, bits))) > self.plain - WHOLE


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run all forms and truncations, and real roles at two precisions."""
    place, runs, checked = (SMALL, 2, 60) if small else (FULL, RUNS, 500)
    bits, ours, private = ((14, 20, 26), (20, 26), (20, 26)) if small else (BITS, OUR_BITS, (16, 26))
    jobs = [Job(place, kind, b, NEWTON[kind.form], seed) for kind in KINDS for b in bits for seed in seeds_of(runs)]
    jobs += [Job(place, OURS, b, 2, seed) for b in ours for seed in seeds_of(runs)]
    watch("contexts", 0.0)
    plain = float(np.mean([float_reward(place, seed) for seed in seeds_of(runs)]))
    results = run_jobs(jobs, run, words, watch, 0.0, 0.95)
    checks = []
    for b in private:
        watch(f"real roles at {b} bits, {checked} steps", 0.95)
        settings = replace(place, steps=checked).settings(epsilon=str(EPSILON), bits=b)
        checks.append(check(settings, f"{b} bits, run 1", checked))
    watch("figure and analysis", 1.0)
    return analyse(Found(place, results, plain, checks), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say where precision breaks the learner."""
    rows = [one.row() for one in found.results]
    files = (write_rows(out / "fig8.csv", rows), *write_figure(picture(found), out, "fig8"))
    headline = (
        f"Within a percent point of floats ({found.plain:.4f}): {PAPER.label} {_list(found.whole(PAPER))}; "
        f"{RECURSIVE.label} {_list(found.whole(RECURSIVE))}; {OURS.label} {_list(found.whole(OURS))}."
    )
    notes = (
        _agreement(found),
        "Every product is cut back by L bits. The paper's truncation is off by 2^(64 - L) with probability "
        "|x| / 2^64 each time; one such wrap in a weight can end a run's learning, by chance: the spread between runs "
        f"shows it. All at {found.place.steps:,} steps, so a shorter run meets fewer of them. Exact truncation by "
        "dealt pairs never wraps, and the recursive form needs fewer bits. 'Exact' holds while |x| < 2^62: above 26 "
        "bits a score may leave that range.",
        f"Epsilon {EPSILON:g}, runs 1 to {len(found.rewards(PAPER, found.bits(PAPER)[0]))}; the paper tells neither.",
        _refused(found),
        check_words(found.checks),
    )
    return Analysis(headline, (bit_table(found), wrap_table(found.results), check_table(found.checks)), notes, files)


def _agreement(found: Found) -> str:
    """Put the published range beside ours."""
    whole = found.whole(PAPER)
    means = {bits: float(np.mean(found.rewards(PAPER, bits))) for bits in found.bits(PAPER)}
    best = max(means, key=lambda bits: means[bits])
    low, high = (means.get(edge) for edge in (16, 24))
    said = f"Published: best at {PUBLISHED_BEST} bits, sharp drops below {PUBLISHED_LOW} and above {PUBLISHED_HIGH}. "
    said += f"Here the paper's form and truncation is best at {best} bits ({means[best]:.4f}) and whole {_list(whole)}"
    if low is not None and high is not None:
        said += f"; it earns {low:.4f} at 16 bits and {high:.4f} at 24"
    return said + "."


def _refused(found: Found) -> str:
    """Say whether the protocol itself stays in its ranges: its twin checks every one, real roles cannot."""
    out = [f"{found.refused(OURS, bits)} at {bits} bits" for bits in found.bits(OURS) if found.refused(OURS, bits)]
    if not out:
        return "The protocol's twin checks the range of every intermediate: no run left it."
    return (
        "The protocol's twin checks the range of every intermediate, and refuses runs that leave it: "
        f"{', '.join(out)}. Real roles cannot see this."
    )


def _list(bits: Sequence[int]) -> str:
    return "at no L" if not bits else f"at L = {', '.join(map(str, bits))}"


def bit_table(found: Found) -> Table:
    """Mean rewards, with the worst run."""
    kinds = (*KINDS, OURS)
    rows = []
    for bits in found.bits(PAPER):
        cells = []
        for kind in kinds:
            own, refused = found.rewards(kind, bits), found.refused(kind, bits)
            told = f"{mean_of(own).text(3)} (worst {min(own):.3f})" if own else "–"
            cells.append(f"{told}; out of range in {refused} more" if refused else told)
        rows.append((str(bits), *cells))
    return Table(
        f"Average reward, mean over runs ± 95 % t interval (floats: {found.plain:.4f})",
        ("L", *(kind.label for kind in kinds)),
        tuple(rows),
    )


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
    return Table("Truncations that wrapped, run by run", ("L", *(kind.label for kind in KINDS)), tuple(rows))


def picture(found: Found) -> Figure:
    """Draw mean rewards with the range over runs."""
    figure, (ax,) = pictures.panels(1, height=4.6, width=8.0)
    theme.style(ax, x="bits of precision L", y="average reward")
    for number, kind in enumerate((*KINDS, OURS)):
        bits = [b for b in found.bits(kind) if found.rewards(kind, b)]
        own = [found.rewards(kind, b) for b in bits]
        pictures.line(ax, bits, [np.mean(one) for one in own], number, kind.label)
        pictures.band(ax, bits, [min(one) for one in own], [max(one) for one in own], number)
    ax.axhline(found.plain, color=INK, linestyle=":", linewidth=1.4, label="floats")
    ax.set_xticks(found.bits(PAPER))
    ax.set_ylim(0.0, 0.9)
    runs = len(found.rewards(PAPER, found.bits(PAPER)[0]))
    pictures.legend(figure, ax, 2, f"Means of {runs} runs; bands: from the worst run to the best")
    return figure


FIG8 = Experiment(
    id="mpc-contextual/fig8",
    title="Private contextual bandits, figure 8: reward against bits of precision",
    reference=f"{REFERENCE}, figure 8",
    tags=("mpc-contextual", "precision"),
    sweep=sweep,
)
