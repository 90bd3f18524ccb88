"""How near the order is to breaking: the instances and agents that gain least from taking part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.experiments.dp_combinatorial.fresh import Fresh
from posse.experiments.dp_combinatorial.methods import ALONE, PAPER
from posse.experiments.dp_combinatorial.problem import Place, Size
from posse.experiments.dp_combinatorial.ranking import Ranking, in_order
from posse.experiments.dp_combinatorial.sweep import Job, Outcomes
from posse.experiments.kit import Table
from posse.results import words

SHOWN = 4
"""Instances of a distribution in the table."""
LITTLE = 0.9
"""FRR above which joining gains little."""


@dataclass(frozen=True)
class Near:
    """One instance: P-FCB with paper noise beside no federation."""

    distribution: str
    seed: int
    frr: float
    missed_alone: float
    """Rounds below the threshold, the mean over agents and runs."""
    missed: float
    losing: int
    """Agents whose regret, the mean over runs, is not lower than alone."""
    agents: int
    worst: float
    """Largest regret of an agent over its regret alone."""


def near(place: Place, found: Outcomes, size: Size) -> Near:
    """Look at one instance."""
    alone, paper = (found[Job(place, method, size)] for method in (ALONE, PAPER))
    ratios = paper.agent_regret.mean(axis=0) / alone.agent_regret.mean(axis=0)
    return Near(
        place.distribution, place.seed, float(paper.regret[:, -1].mean() / alone.regret[:, -1].mean()),
        float(alone.missed.mean()), float(paper.missed.mean()), int((ratios >= 1).sum()), place.agents,
        float(ratios.max()),
    )  # fmt: skip


def all_near(taken: Sequence[Fresh], found: Outcomes, size: Size) -> list[Near]:
    """Look at every instance."""
    return [near(place, found, size) for one in taken for place in one.kept]


def near_table(seen: Sequence[Near]) -> Table:
    """The instances of each distribution with the largest FRR."""
    rows = []
    for distribution in dict.fromkeys(one.distribution for one in seen):
        own = sorted((one for one in seen if one.distribution == distribution), key=lambda one: -one.frr)
        rows += [
            (
                one.distribution, str(one.seed), f"{one.frr:.2f}", f"{one.missed_alone:,.1f}", f"{one.missed:,.1f}",
                f"{one.losing} of {one.agents}", f"{one.worst:.2f}",
            )
            for one in own[:SHOWN]
        ]  # fmt: skip
    columns = (
        "distribution", "instance", "FRR, paper noise", "rounds below the threshold an agent, alone",
        "with P-FCB", "agents that lose by taking part", "regret over alone, the worst agent",
    )  # fmt: skip
    return Table("Nearest to breaking the order", columns, tuple(rows))


def near_words(seen: Sequence[Near], rankings: Sequence[Ranking]) -> str:
    """Say how many agents and single runs do not follow the order that the means of instances follow."""
    losing, agents = sum(one.losing for one in seen), sum(one.agents for one in seen)
    runs = [
        held
        for one in rankings
        for a, p, f in zip(one.alone, one.paper, one.fcb, strict=True)
        for held in in_order(a, p, f)
    ]
    return (
        f"The order is one of instances. Of single agents, {losing:,} of {agents:,} lose by taking part in P-FCB with "
        f"paper noise (means over runs); of single runs, {runs.count(False):,} of {len(runs):,} are out of order. "
        f"{_threshold_words(seen)}"
    )


def _threshold_words(seen: Sequence[Near]) -> str:
    """Say whether instances in which joining gains little are those in which the threshold is often missed."""
    little = [one for one in seen if one.frr > LITTLE]
    rest = [one.missed_alone for one in seen if one.frr <= LITTLE]
    if not little or not rest:
        return f"FRR is {max(one.frr for one in seen):.2f} at most."
    least, most = min(one.missed_alone for one in little), max(one.missed_alone for one in little)
    return (
        f"In the {words.count(len(little), 'instance')} with FRR above {LITTLE:g} an agent alone buys below the "
        f"threshold in {least:,.1f} to {most:,.1f} rounds, in the others in {np.median(rest):,.1f} (median): where the "
        "constraint almost binds, such rounds make much of the regret."
    )
