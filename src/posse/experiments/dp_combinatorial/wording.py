"""Sentences that several analyses share."""

from __future__ import annotations

import numpy as np

from posse.experiments.dp_combinatorial.methods import PAPER
from posse.experiments.dp_combinatorial.problem import DELTA, DISTRIBUTIONS, UNIT, Size
from posse.experiments.dp_combinatorial.statistics import Floats
from posse.experiments.dp_combinatorial.sweep import Cost
from posse.problems.markets.instances import binds
from posse.results import words
from posse.results.statistics import regret_ratio


def instances_words(size: Size, agents: int | None = None) -> str:
    """Say which instances were taken, and in how many the quality constraint binds (among so many agents)."""
    places = [place for distribution in DISTRIBUTIONS for place in size.places(distribution, agents=agents)]
    bound = [f"{place.distribution} {place.seed}" for place in places if binds(place.market())]
    return (
        f"Instances are seeds 1 to {size.instances} of each distribution, in order, none left out; the quality "
        f"constraint binds in {len(bound)} of {len(places)}{': ' + ', '.join(bound) if bound else ''}. "
        f"{words.count(size.runs, 'run')} each, the same seeds for every method."
    )


def privacy_words(size: Size) -> str:
    """Say what the figures of privacy are about, and what is proved for the published noise."""
    return (
        f"Privacy is told for one {UNIT} (one agent's purchase from one producer in one round) at delta {DELTA:g}. The "
        f"published noise claims (1, {DELTA:g}); what is proved for it is ({PAPER.proved(size):g}, {DELTA:g}). Tight "
        "noise is the least that proves what it says."
    )


def privacy_note(size: Size, *, same: bool = False) -> str:
    """Say the same in a line below a figure; `same` where tight noise is drawn at paper's proved figure as well."""
    return (
        f"Unit {UNIT}: paper noise claims (1, {DELTA:g}) and proves ({PAPER.proved(size):g}, {DELTA:g}); tight noise "
        f"proves (1, {DELTA:g}){', or where said the same as paper noise' if same else ''}."
    )


def cost_words(cost: Cost) -> str:
    """Say what a sweep took."""
    return (
        f"{words.count(cost.runs, 'run')} in {words.seconds(cost.wall)} with {cost.cores:.1f} cores in use on average; "
        f"{words.seconds(cost.cpu)} of CPU, {cost.speed / 1e6:.2f} million agent-rounds a second of it: "
        f"{words.seconds(cost.cpu / 2)} on two cores that do nothing else. Compilation is not counted."
    )


def against(mine: Floats, base: Floats) -> str:
    """Write the median over instances of mine / base with its interval; 1 where both are the same."""
    return "1" if np.array_equal(mine, base) else str(regret_ratio(mine, base))
