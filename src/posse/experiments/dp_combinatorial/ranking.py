"""The order of three methods, instance by instance, and the instances that break it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.experiments.dp_combinatorial.fresh import Fresh
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, matched
from posse.experiments.dp_combinatorial.problem import Size
from posse.experiments.dp_combinatorial.spoilt import Spoilt, spoilt
from posse.experiments.dp_combinatorial.statistics import Floats, at_end
from posse.experiments.dp_combinatorial.sweep import Job, Outcomes
from posse.problems.markets.instances import Distribution

SHARE = 0.9
"""Share of instances in which the order must hold."""
SAVING = 0.2
"""What tight noise should save of the regret, at the same claimed figure."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Regrets an agent (instances, runs) of one distribution."""

    distribution: Distribution
    seeds: tuple[int, ...]
    alone: Floats
    paper: Floats
    tight: Floats
    matched: Floats
    fcb: Floats

    @property
    def holds(self) -> tuple[bool, ...]:
        """Whether alone > P-FCB with paper noise > FCB, in the means over runs of each instance."""
        return in_order(self.alone.mean(axis=1), self.paper.mean(axis=1), self.fcb.mean(axis=1))


@dataclass(frozen=True)
class Break:
    """An instance out of order, and what can be seen of the reason."""

    distribution: str
    seed: int
    alone: float
    paper: float
    fcb: float
    runs: int
    """Runs out of order, of `of`."""
    of: int
    worse: int
    """Agents that lose by taking part."""
    agents: int
    worst: float
    """Regret of the agent that loses most, over its regret alone."""
    seen: Spoilt


def in_order(
    alone: Sequence[float] | Floats, paper: Sequence[float] | Floats, fcb: Sequence[float] | Floats
) -> tuple[bool, ...]:
    """Whether alone > paper > fcb, place by place.

    >>> in_order([3.0, 3.0, 3.0], [2.0, 3.0, 1.0], [1.0, 1.0, 2.0])
    (True, False, False)
    """
    return tuple(bool(a > p > f) for a, p, f in zip(alone, paper, fcb, strict=True))


def ranking(taken: Fresh, found: Outcomes, size: Size) -> Ranking:
    """Collect the regrets of a distribution."""
    regrets = (at_end(found, taken.kept, method, size) for method in (ALONE, PAPER, TIGHT, matched(size), FCB))
    return Ranking(taken.distribution, tuple(place.seed for place in taken.kept), *regrets)


def breaks_of(taken: Fresh, found: Outcomes, size: Size) -> list[Break]:
    """Look at every instance that is out of order."""
    ranked = ranking(taken, found, size)
    made = []
    for k, place in enumerate(taken.kept):
        if ranked.holds[k]:
            continue
        job = Job(place, PAPER, size)
        with_, without = (found[Job(place, m, size)].agent_regret.mean(axis=0) for m in (PAPER, ALONE))
        runs = in_order(ranked.alone[k], ranked.paper[k], ranked.fcb[k])
        made.append(
            Break(
                place.distribution, place.seed, float(ranked.alone[k].mean()), float(ranked.paper[k].mean()),
                float(ranked.fcb[k].mean()), runs.count(False), len(runs), int((with_ > without).sum()), place.agents,
                float(np.max(with_ / np.maximum(without, 1e-9))), spoilt(job),
            )
        )  # fmt: skip
    return made
