"""Runs a list of jobs on all cores: one job is one market, one method, and all its runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from posse.experiments.dp_combinatorial.methods import Method
from posse.experiments.dp_combinatorial.problem import Place, Size
from posse.experiments.kit import Watch
from posse.problems.markets.market import Market
from posse.protocols.dp_combinatorial.learning import Knowledge
from posse.protocols.dp_combinatorial.twin import Curves, Outcome, Truth, gather, run_once, truth_of
from posse.results.record import points_of

Run = tuple[Knowledge, Curves]
POINTS = 200
"""Points of a curve."""


@dataclass(frozen=True)
class Job:
    """One market and one method, `size.runs` times."""

    place: Place
    method: Method
    size: Size

    @property
    def work(self) -> int:
        """Agent-rounds of all its runs."""
        return self.place.agents * self.size.rounds * self.size.runs

    def run(self, seed: int) -> Run:
        """Run it for one world seed."""
        market, truth = known_market(self.place)
        terms = self.method.terms(market, self.size)
        return run_once(market, terms, seed, coefficient=self.method.coefficient, points=POINTS, truth=truth)


@dataclass(frozen=True)
class Cost:
    """What a sweep took."""

    runs: int
    agent_rounds: int
    wall: float
    cpu: float

    @property
    def speed(self) -> float:
        """Agent-rounds a second and core."""
        return self.agent_rounds / self.cpu

    @property
    def cores(self) -> float:
        """Cores in use on average: below what there are where other programs ran at the same time."""
        return self.cpu / self.wall


Outcomes = dict[Job, Outcome]


@lru_cache(maxsize=4096)
def known_market(place: Place) -> tuple[Market, Truth]:
    """Draw a market and solve for its best purchases, once."""
    market = place.market()
    return market, truth_of(market)


def run_jobs(jobs: Sequence[Job], watch: Watch, begin: float = 0.0, end: float = 1.0) -> tuple[Outcomes, Cost]:
    """Run jobs, a thread a core (compiled code runs outside the interpreter's lock); nothing is run twice.

    `watch` hears fractions from `begin` to `end`. An interruption ends it after the runs at hand, a second at most.
    """
    jobs = tuple(dict.fromkeys(jobs))
    _compile(jobs[0])
    wall, cpu = time.perf_counter(), time.process_time()
    outcomes: Outcomes = {}
    total = sum(job.work for job in jobs)
    behind = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            queue = [(job, [pool.submit(job.run, seed) for seed in job.size.seeds]) for job in jobs]
            for job, futures in queue:
                watch(_words(job), begin + (end - begin) * behind / total)
                outcomes[job] = _gathered(job, futures)
                futures.clear()
                behind += job.work
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    runs = sum(job.size.runs for job in jobs)
    return outcomes, Cost(runs, total, time.perf_counter() - wall, time.process_time() - cpu)


def _gathered(job: Job, futures: Sequence[Future[Run]]) -> Outcome:
    runs = [future.result() for future in futures]
    return gather(job.size.seeds, points_of(job.size.rounds, POINTS), runs)


def _compile(job: Job) -> None:
    """Have everything compiled before the clock starts."""
    market, truth = known_market(job.place)
    terms = Method("", "alone").terms(market, Size(rounds=2))
    run_once(market, terms, 1, points=2, truth=truth)


def _words(job: Job) -> str:
    place, method = job.place, job.method
    epsilon = f" at epsilon {method.epsilon:g}" if method.noise else ""
    return f"{place.distribution} instance {place.seed}, {place.agents} agents, {method.name}{epsilon}"
