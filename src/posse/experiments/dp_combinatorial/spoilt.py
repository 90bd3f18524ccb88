"""Why federation can cost an agent: estimates that accepted noise has spoilt.

An accepted report counts ten times. Where its noise was large the interval around an agent's estimate then is narrow
and beside the truth, and the agent buys from a producer that it should leave, or leaves one that it should buy from,
for as long as it takes to learn otherwise. Which entries are wrong at the last round can be counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posse.experiments.dp_combinatorial.sweep import Job, known_market
from posse.policies.purchase.oracle import rate
from posse.protocols.dp_combinatorial.learning import Knowledge


@dataclass(frozen=True)
class Spoilt:
    """Means over runs, of all agents together, at the last round."""

    beside: float
    """Entries (agent and producer) whose interval does not hold the true quality."""
    left: float
    """Of these, producers worth buying from that the agent leaves."""
    kept: float
    """Of these, producers not worth their price that the agent buys from."""
    cost: float
    """What the wrong ones cost in a round, an agent."""

    def __str__(self) -> str:
        return (
            f"{self.beside:.1f} intervals beside the truth a run; {self.left:.1f} good producers left, {self.kept:.1f} "
            f"bad ones bought from, {self.cost:.2g} a round and agent"
        )


def spoilt(job: Job) -> Spoilt:
    """Run a job again and count what is wrong at its end; binding constraints are not looked at."""
    counts = np.array([wrong_entries(job, job.run(seed)[0]) for seed in job.size.seeds])
    return Spoilt(*(float(x) for x in counts.mean(axis=0)))


def wrong_entries(job: Job, known: Knowledge) -> tuple[float, float, float, float]:
    """Count entries beside the truth, wrongly left and wrongly bought from, and what these cost in a round."""
    market, _ = known_market(job.place)
    units = known.units + known.told_units
    seen = units > 0
    safe = np.where(seen, units, 1.0)
    estimate = np.where(seen, (known.good + known.told_good) / safe, 1.0)
    radius = np.where(seen, np.sqrt(rate(job.size.rounds, job.method.coefficient) / safe), np.inf)
    quality = market.quality[-1]
    beside = np.abs(estimate - quality) > radius
    worth = market.rho * quality - market.cost
    bought = market.rho * np.minimum(1.0, estimate + radius) - market.cost > 0
    dealt = market.capacity > 0
    left, kept = beside & dealt & (worth > 0) & ~bought, beside & dealt & (worth < 0) & bought
    cost = (market.capacity * np.abs(worth))[left | kept].sum() / job.place.agents
    return float(beside.sum()), float(left.sum()), float(kept.sum()), float(cost)
