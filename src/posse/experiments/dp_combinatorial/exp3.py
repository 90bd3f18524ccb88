"""EXP3 (figure 5): regret an agent against the number of agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.experiments.dp_combinatorial.exp3_picture import agents_figure
from posse.experiments.dp_combinatorial.methods import ALONE, FCB, PAPER, TIGHT, Method
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, FULL, REFERENCE, SMALL, Size
from posse.experiments.dp_combinatorial.rows import rows
from posse.experiments.dp_combinatorial.statistics import Floats, at_end
from posse.experiments.dp_combinatorial.sweep import Cost, Job, Outcomes, run_jobs
from posse.experiments.dp_combinatorial.wording import against, cost_words, instances_words, privacy_words
from posse.experiments.kit import Analysis, Experiment, Table, Watch, write_figure, write_rows
from posse.problems.markets.instances import Distribution
from posse.results import words
from posse.results.statistics import bootstrap

AGENTS = (2, 5, 10, 15, 20)
SMALL_AGENTS = (2, 4)
METHODS = (ALONE, PAPER, TIGHT, FCB)


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    size: Size
    agents: tuple[int, ...]
    outcomes: Outcomes
    cost: Cost

    def regrets(self, distribution: Distribution, agents: int, method: Method) -> Floats:
        """(instances, runs) regret an agent."""
        return at_end(self.outcomes, self.size.places(distribution, agents=agents), method, self.size)

    def first(self, distribution: Distribution, agents: int, method: Method) -> Floats:
        """(instances, runs) regret an agent of those agents that are there at every n."""
        places = self.size.places(distribution, agents=agents)
        found = [self.outcomes[Job(place, method, self.size)].agent_regret for place in places]
        return np.stack([one[:, : self.agents[0]].mean(axis=1) for one in found])


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every method among few and many agents."""
    size, agents = (SMALL, SMALL_AGENTS) if small else (FULL, AGENTS)
    jobs = [
        Job(place, method, size)
        for distribution in DISTRIBUTIONS
        for n in agents
        for place in size.places(distribution, agents=n)
        for method in METHODS
    ]
    outcomes, cost = run_jobs(jobs, watch, 0.0, 0.98)
    watch("figure and analysis", 1.0)
    return analyse(Found(size, agents, outcomes, cost), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say how regret falls with the number of agents."""
    files = (
        write_rows(out / "exp3.csv", rows(found.outcomes)),
        *write_figure(agents_figure(found), out, "exp3"),
    )
    few = found.agents[0]
    notes = (
        f"{instances_words(found.size, found.agents[-1])} That is among {found.agents[-1]} agents.",
        _threshold_words(found),
        f"Instances of one seed share their qualities at every n, and agents 1 to {few} with their costs and "
        f"capacities are in all of them: the last column is about these {few}, where no other agents' costs blur the "
        "fall.",
        privacy_words(found.size),
        "The paper prints figure 5 as a picture and calls the fall approximately linear.",
        f"Time: {cost_words(found.cost)}",
    )
    return Analysis(headline(found), (agents_table(found),), notes, files)


def _threshold_words(found: Found) -> str:
    """Say which agent alone buys below the threshold most often: one such agent rules the mean of its instance."""
    missed = {job: found.outcomes[job].missed.mean(axis=0) for job in found.outcomes if job.method == ALONE}
    job = max(missed, key=lambda one: float(missed[one].max()))
    return (
        f"The agent that buys below the threshold most often does so in {missed[job].max():,.0f} of "
        f"{found.size.rounds:,} rounds alone (agent {int(missed[job].argmax()) + 1} of {job.place.distribution} "
        f"instance {job.place.seed}). Where that is often, it makes most of the mean regret of all agents from the n "
        "on at which it joins, and federation changes little about it."
    )


def agents_table(found: Found) -> Table:
    """Regret and FRR at every n."""
    body = []
    for distribution in DISTRIBUTIONS:
        for method in METHODS:
            for n in found.agents:
                mine, alone = (found.regrets(distribution, n, m) for m in (method, ALONE))
                body.append((
                    distribution, method.name, method.privacy(found.size), str(n),
                    words.number(float(mine.mean())), str(bootstrap(mine)), against(mine, alone),
                    words.number(float(found.first(distribution, n, method).mean())),
                ))  # fmt: skip
    columns = (
        "distribution", "method", "privacy", "agents", "regret an agent, mean", "median of instances", "FRR, median",
        f"agents 1 to {found.agents[0]}, mean",
    )  # fmt: skip
    return Table("Regret an agent at the last round against the number of agents", columns, tuple(body))


def bend(agents: tuple[int, ...], regrets: list[float]) -> float:
    """Slope over the last step over slope over the first: 1 where the fall is linear, near 0 where it has levelled off.

    >>> bend((2, 5, 10), [10.0, 7.0, 2.0]), bend((2, 5, 10), [10.0, 7.0, 6.5])
    (1.0, 0.1)
    """
    first = (regrets[1] - regrets[0]) / (agents[1] - agents[0])
    last = (regrets[-1] - regrets[-2]) / (agents[-1] - agents[-2])
    return last / first if first else float("nan")


def headline(found: Found) -> str:
    """Say how far the regret of the same agents falls, and whether the fall is linear."""
    few, many = found.agents[0], found.agents[-1]
    said = []
    for distribution in DISTRIBUTIONS:
        parts = []
        for method in (PAPER, TIGHT, FCB):
            means = [float(found.first(distribution, n, method).mean()) for n in found.agents]
            bent = f", the last slope {bend(found.agents, means):.2f} of the first" if len(means) > 2 else ""
            parts.append(f"{method.name} to {means[-1] / means[0]:.2f}{bent}")
        said.append(f"{distribution}: {'; '.join(parts)}")
    return (
        f"Regret of the same {few} agents as others join, n = {few} to {many} (1 would be linear for the slopes). "
        f"{'. '.join(said)}."
    )


EXP3 = Experiment(
    id="dp-combinatorial/exp3",
    title="P-FCB, EXP3 (figure 5): regret against the number of agents",
    reference=REFERENCE,
    tags=("dp-combinatorial", "regret", "privacy"),
    sweep=sweep,
)
