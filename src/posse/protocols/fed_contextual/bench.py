"""Runs a job on a population: pre-training, then the bandit phase, over seeds and rates.

On a GPU runs go side by side; on a CPU one after the other. Both give the same numbers, to rounding.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from posse.problems.populations.population import Population
from posse.problems.populations.worlds import Scenario, scenario
from posse.protocols.fed_contextual.jobs import Job
from posse.protocols.fed_contextual.plan import (
    SIDE,
    Plan,
    bandit,
    device_of,
    lanes_of,
    side_of,
    source_of,
    supervised,
)  # fmt: skip
from posse.protocols.fed_contextual.resident import Data
from posse.protocols.fed_contextual.results import Result
from posse.protocols.fed_contextual.rounds import Measured, begin
from posse.protocols.fed_contextual.training import Source, joined, train, train_many
from posse.protocols.fed_contextual.trees import Tree

_TOGETHER = {"cpu": 10, "gpu": 50}
"""Rounds in one call, at most."""

Progress = Callable[[Job, int, int, float], None]
"""Told the job, rounds done of all its runs, rounds in all, and rounds a second."""


class Run(NamedTuple):
    """One run: where it begins, and what is its own."""

    client: float
    server: float
    seed: int
    params: Tree | None = None


@dataclass
class Bench:
    """A population on a device, and what jobs share: data put there once, and first models once pre-trained."""

    population: Population
    device: str = "cpu"
    side: int | None = None
    """Runs side by side; 8 on a GPU, 1 on a CPU."""
    lanes: int | None = None
    """Clients side by side; a cohort on a GPU, 1 on a CPU."""
    resident: bool | None = None
    """Whether the population is put on the device whole; if left out, where it is small enough."""
    _sources: dict[tuple[int, int], Source] = field(default_factory=dict)
    _pretrained: dict[tuple[Any, ...], Tree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device_of(self.device)

    def source(self, cap: int, samples: int) -> Source:
        """Return where cohorts come from: the device's memory, or the host's disk if that is too small."""
        if (cap, samples) not in self._sources:
            self._sources[cap, samples] = source_of(self.population, cap, samples, self.device, self.resident)
        return self._sources[cap, samples]

    def run(self, job: Job, progress: Progress | None = None) -> Result:
        """Run a job."""
        with jax.default_device(device_of(self.device)):
            return self._run(job, progress)

    def _run(self, job: Job, progress: Progress | None) -> Result:
        began = time.perf_counter()
        world = scenario(job.scenario, self.population, job.pretraining.clients)
        plan = bandit(job, self.population, world, self.lanes or lanes_of(job, self.device))
        runs = [Run(*one) for one in job.runs]
        if world.pretrained:
            first = {seed: self._first(plan, job, world, seed) for seed in job.seeds}
            runs = [run._replace(params=first[run.seed]) for run in runs]
        parts: list[list[Measured]] = [[] for _ in runs]
        done, total, started = 0, len(runs) * job.rounds, time.perf_counter()
        for low, some in self._phase(job, plan, runs):
            for at, seen in enumerate(some, low):
                parts[at].append(seen)
                done += len(np.asarray(seen.reward))
            if progress is not None:
                progress(job, done, total, done / (time.perf_counter() - started))
        about = {"device": self.device, "seconds": time.perf_counter() - began, "jax": jax.__version__}
        return Result(json.loads(job.to_json()), _assembled(job, [joined(one) for one in parts]), about)

    def _first(self, plan: Plan, job: Job, world: Scenario, seed: int) -> Tree:
        """Pre-train the model of a seed; jobs that pre-train alike share it."""
        key = (job.scenario, astuple(job.pretraining), job.model, job.hidden, job.channels, job.cohort,
               job.batch, job.cap, job.clip, job.quantile, seed)  # fmt: skip
        if key not in self._pretrained:
            task, rates, schedule, _ = supervised(plan, job, self.population, world, seed)
            source, together = self.source(job.cap, schedule.samples), self._together(schedule.rounds)
            *_, (last, _) = train(task, rates, begin(task, seed), source, schedule, seed, together=together)
            self._pretrained[key] = last.params
        return self._pretrained[key]

    def _together(self, rounds: int) -> int:
        """Rounds in one call: all calls alike, so that one program does."""
        return max(d for d in range(1, min(_TOGETHER[self.device], rounds) + 1) if rounds % d == 0)

    def _phase(self, job: Job, plan: Plan, runs: list[Run]) -> Iterator[tuple[int, list[Measured]]]:
        """Run all runs; yields the number of the first of some, and what some rounds of each showed."""
        task, rates, schedule, pays = plan
        source, together = self.source(job.cap, schedule.samples), self._together(schedule.rounds)
        size = side_of(len(runs), self.side or SIDE[self.device])
        if size > 1 and isinstance(source, Data):
            for low in range(0, len(runs), size):
                some = runs[low : low + size]
                filled = some + [some[-1]] * (size - len(some))
                pairs, seeds = [run[:2] for run in filled], [run.seed for run in filled]
                states = [begin(task, run.seed, run.params) for run in filled]
                for _, seen in train_many(
                    task, rates, pairs, states, source, schedule, seeds, together=together, pays=pays
                ):
                    yield low, seen[: len(some)]
            return
        for at, run in enumerate(runs):
            own = rates._replace(client=run.client, server=run.server)
            state = begin(task, run.seed, run.params)
            for _, one in train(task, own, state, source, schedule, run.seed, together=together, pays=pays):
                yield at, [one]


def _assembled(job: Job, runs: list[Measured]) -> Measured:
    """Put runs together, by pairs of rates and seeds."""
    shape = (len(job.pairs), len(job.seeds), -1)
    return Measured(*(np.stack(column).reshape(shape) for column in zip(*runs, strict=True)))
