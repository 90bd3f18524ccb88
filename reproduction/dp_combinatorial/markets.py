"""The markets of section 6, the methods that are compared on them, and runs of both.

Instances are the seeds 1, 2, ... of `market_instance`, in order, none left out; the paper does not
say that it left any out either. A larger market of the same seed holds the smaller one. Methods are
the paper's three, and what an honest comparison needs beside them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, get_args

import numpy as np

from posse.core.statistics import Interval, Statistic, bootstrap, regret_ratio
from posse.privacy.dp.guarantee import Budget, rounded_up
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.dp.rounds import every_round
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.markets.instances import Distribution, market_instance
from posse.problems.markets.market import Market
from posse.results.record import points_of
from posse.systems.dp_combinatorial.learning import Knowledge
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import Curves, Outcome, Truth, gather, run_once, truth_of
from reproduction.kit import Floats, Paper, Row, Watch, run_jobs, seeds_of

REFERENCE = Paper(
    "dp-combinatorial",
    "Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits "
    "with constraints, "
    "ECML PKDD 2022",
)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
DELTA = 0.01
UNIT = "entry"
"""What every figure of privacy here is about: one agent's purchase from one producer in one
round.
"""


@dataclass(frozen=True)
class Place:
    """One market: a distribution, the seed of the instance, and what varies beside them."""

    distribution: Distribution
    seed: int
    agents: int
    producers: int
    homogeneous: bool = False
    overlap: float = 1.0

    def market(self) -> Market:
        """Draw it.

        >>> Place("uniform", 7, 2, 4).market().quality.round(2).tolist()
        [[0.62, 0.48, 0.4, 0.9]]
        """
        return market_instance(
            self.seed,
            agents=self.agents,
            producers=self.producers,
            distribution=self.distribution,
            homogeneous=self.homogeneous,
            overlap=self.overlap,
        )


@dataclass(frozen=True)
class Size:
    """How large an experiment is: the market, the rounds, when agents report, and how often all is
    repeated.
    """

    agents: int = 10
    producers: int = 30
    rounds: int = 100_000
    start: int = 200
    stop: int = 40_000
    instances: int = 5
    runs: int = 20

    @property
    def seeds(self) -> tuple[int, ...]:
        """World seeds of the runs of an instance, the same for every method."""
        return seeds_of(self.runs)

    def places(
        self,
        distribution: Distribution,
        *,
        agents: int | None = None,
        homogeneous: bool = False,
        overlap: float = 1.0,
    ) -> tuple[Place, ...]:
        """Instances 1, 2, ... of a distribution.

        >>> [place.seed for place in SMALL.places("normal")]
        [1, 2]
        """
        return tuple(
            Place(distribution, seed, agents or self.agents, self.producers, homogeneous, overlap)
            for seed in range(1, self.instances + 1)
        )

    def all_places(self) -> list[Place]:
        """Instances of every distribution."""
        return [place for distribution in DISTRIBUTIONS for place in self.places(distribution)]


FULL = Size()
FEWER = Size(runs=2)
"""For sweeps of many methods or markets: instances make the intervals, and runs of one instance
differ little.
"""
SMALL = Size(agents=4, producers=8, rounds=3000, start=50, stop=1200, instances=2, runs=2)
"""The same work in seconds, to see that everything runs; its numbers mean nothing."""


# Methods.


@dataclass(frozen=True)
class Method:
    """What agents do, and with which noise; `epsilon` is what is asked for, at delta 0.01 for one
    entry.
    """

    name: str
    kind: str
    """Method of the terms."""
    noise: str = ""
    """paper or tight; nothing where no noise is planned."""
    epsilon: float = 0.0
    rule: str = "accept"
    coefficient: float = 1.0
    width: float = 0.1
    weight: float = 10.0
    explore: int = 0
    """Rounds of pure exploration at the start."""

    def terms(self, market: Market, size: Size) -> Terms:
        """Make the agents' terms."""
        who = market.agents, market.producers, size.rounds, self.kind
        if self.kind in ("alone", "fcb"):
            return Terms(*who, explore=self.explore)
        if self.kind == "naive":
            return Terms(*who, multipliers=self.plan(size).multipliers)
        reports = reports_of(size)
        noise = self.plan(size).multipliers if self.noise else (0.0,) * len(reports)
        return Terms(*who, reports, noise, self.rule, self.width, self.weight, self.explore)

    def plan(self, size: Size) -> Plan:
        """Plan the noise; an entry's guarantee does not depend on the number of producers."""
        return _plan(self.kind == "naive", self.noise, self.epsilon, size)

    def proved(self, size: Size) -> float:
        """Epsilon that is proved for one entry at delta 0.01, rounded up."""
        return rounded_up(self.plan(size).guarantee().epsilon)

    def privacy(self, size: Size) -> str:
        """Say what is known of the privacy, with delta and unit.

        >>> PAPER.privacy(Size())
        'claims (1, 0.01), proved (0.1459, 0.01), unit entry'
        """
        if self.kind == "alone":
            return "nothing is sent"
        if self.kind == "placebo":
            return "nothing about purchases is sent"
        if not self.noise:
            return "none: in the clear"
        proved = f"proved {self.plan(size).guarantee().figure}, unit {UNIT}"
        each = " each round" if self.kind == "naive" else ""
        return (
            f"claims {Budget(self.epsilon, DELTA)}{each}, {proved}"
            if self.noise == "paper"
            else proved
        )


def reports_of(size: Size) -> tuple[int, ...]:
    """Rounds after which P-FCB reports."""
    return communication_rounds(size.start, size.stop, size.rounds)


@cache
def _plan(always: bool, noise: str, epsilon: float, size: Size) -> Plan:
    budget = Budget(epsilon, DELTA)
    if always:
        return every_round(budget, UNIT, noise, rounds=size.rounds, producers=size.producers)
    return plan(
        budget,
        UNIT,
        noise,
        rounds=reports_of(size),
        producers=size.producers,
        horizon=size.rounds,
        stop=size.stop,
    )


def paper(epsilon: float) -> Method:
    """P-FCB with the published noise for a claimed epsilon."""
    return Method("P-FCB, paper noise", "p-fcb", "paper", epsilon)


def tight(epsilon: float) -> Method:
    """P-FCB with the least noise that proves epsilon."""
    return Method("P-FCB, tight noise", "p-fcb", "tight", epsilon)


def matched(size: Size) -> Method:
    """P-FCB with the least noise that proves what the published noise for a claimed epsilon of 1
    proves.
    """
    return Method(MATCHED, "p-fcb", "tight", PAPER.proved(size))


MATCHED = "P-FCB, tight noise, proved as paper's"
ALONE = Method("alone", "alone")
ALONE_HALF = Method("alone, coefficient 0.5", "alone", coefficient=0.5)
PAPER = paper(1.0)
TIGHT = tight(1.0)
CLEAR = Method("P-FCB's schedule, no noise", "p-fcb")
PLACEBO = Method("placebo: noise alone", "placebo", "paper", 1.0)
FCB = Method("FCB", "fcb")
TIGHT_HALF = Method("P-FCB, tight noise, coefficient 0.5", "p-fcb", "tight", 1.0, coefficient=0.5)
FUSED = Method("P-FCB, tight noise, fused", "p-fcb", "tight", 1.0, rule="fuse")


# Runs.

Run = tuple[Knowledge, Curves]
POINTS = 200
"""Points of a curve."""


@dataclass(frozen=True)
class Job:
    """One market and one method, `size.runs` times."""

    place: Place
    method: Method
    size: Size

    def __str__(self) -> str:
        place, method = self.place, self.method
        epsilon = f" at epsilon {method.epsilon:g}" if method.noise else ""
        return (
            f"{place.distribution} instance {place.seed}, {place.agents} agents, "
            f"{method.name}{epsilon}"
        )

    def run(self, seed: int) -> Run:
        """Run it for one world seed."""
        market, truth = known_market(self.place)
        terms = self.method.terms(market, self.size)
        return run_once(
            market, terms, seed, coefficient=self.method.coefficient, points=POINTS, truth=truth
        )


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
        """Cores in use on average: below what there are where other programs ran at the same
        time.
        """
        return self.cpu / self.wall


@lru_cache(maxsize=4096)
def known_market(place: Place) -> tuple[Market, Truth]:
    """Draw a market and solve for its best purchases, once."""
    market = place.market()
    return market, truth_of(market)


@dataclass(frozen=True, eq=False)
class Runs:
    """Outcomes by job, all of one size, and what they took; regrets are means over agents."""

    size: Size
    outcomes: dict[Job, Outcome]
    cost: Cost

    def of(self, place: Place, method: Method) -> Outcome:
        """Outcome of one market and method."""
        return self.outcomes[Job(place, method, self.size)]

    def first(self, size: Size) -> Runs:
        """Return the same with the first runs of each job alone, as many as another size has."""
        kept = {
            Job(job.place, job.method, size): Outcome(
                one.seeds[: size.runs],
                one.steps,
                *(getattr(one, field.name)[: size.runs] for field in fields(Outcome)[2:]),
            )
            for job, one in self.outcomes.items()
        }
        return Runs(size, kept, self.cost)

    def curves(self, places: Sequence[Place], method: Method) -> Floats:
        """(instances, runs, points) regret an agent."""
        return np.stack([self.of(place, method).regret / place.agents for place in places])

    def at_end(self, places: Sequence[Place], method: Method) -> Floats:
        """(instances, runs) regret an agent at the last round."""
        return self.curves(places, method)[:, :, -1]

    def ratio(self, places: Sequence[Place], method: Method, to: Method = ALONE) -> Interval:
        """Median over instances of a method's regret over that of another; FRR where the other is
        alone.
        """
        return regret_ratio(self.at_end(places, method), self.at_end(places, to))

    def rows(self) -> list[Row]:
        """Every run as a row of the raw file."""
        return [row for job in self.outcomes for row in self._rows(job)]

    def _rows(self, job: Job) -> list[Row]:
        """The runs of a job as rows: where, how, with which privacy, and what came out at the last
        round.
        """
        place, method, outcome = job.place, job.method, self.outcomes[job]
        noisy = bool(method.noise) and method.kind != "placebo"
        common: dict[str, str | int | float] = {
            "distribution": place.distribution,
            "instance": place.seed,
            "agents": place.agents,
            "producers": place.producers,
            "homogeneous": int(place.homogeneous),
            "overlap": place.overlap,
            "method": method.name,
            "epsilon_asked": method.epsilon if noisy else "",
            "epsilon_proved": method.proved(job.size) if noisy else "",
            "delta": DELTA if noisy else "",
            "unit": UNIT if noisy else "",
            "rounds": job.size.rounds,
            "start": job.size.start,
            "width": method.width,
            "weight": method.weight,
            "explore": method.explore,
        }
        return [
            {
                **common,
                "seed": seed,
                "regret_per_agent": float(outcome.regret[run, -1]) / place.agents,
                "revenue_per_agent": float(outcome.revenue[run, -1]) / place.agents,
                "missed_rounds_per_agent": float(outcome.missed[run].mean()),
                "entries_taken_per_agent": float(outcome.taken[run].mean()),
            }
            for run, seed in enumerate(outcome.seeds)
        ]


def run_markets(
    size: Size,
    places: Iterable[Place],
    methods: Sequence[Method],
    watch: Watch,
    begin: float = 0.0,
    end: float = 0.98,
) -> Runs:
    """Run every method on every market once, on all cores; `watch` gets fractions from `begin` to
    `end`.
    """
    jobs = list(dict.fromkeys(Job(place, method, size) for place in places for method in methods))
    _compile(jobs[0])
    wall, cpu = time.perf_counter(), time.process_time()
    every = [(job, seed) for job in jobs for seed in size.seeds]
    runs = run_jobs(
        every,
        lambda one: one[0].run(one[1]),
        lambda one: str(one[0]),
        watch,
        begin,
        end,
        weight=lambda one: one[0].place.agents,
    )
    agent_rounds = sum(job.place.agents for job in jobs) * size.rounds * size.runs
    cost = Cost(len(every), agent_rounds, time.perf_counter() - wall, time.process_time() - cpu)
    points = points_of(size.rounds, POINTS)
    own = (runs[first : first + size.runs] for first in range(0, len(runs), size.runs))
    return Runs(
        size,
        {job: gather(size.seeds, points, some) for job, some in zip(jobs, own, strict=True)},
        cost,
    )


@dataclass(frozen=True, eq=False)
class Varied:
    """Runs on markets that differ in one trait, `agents` or `overlap`."""

    runs: Runs
    trait: str
    values: tuple[Any, ...]

    def places(self, distribution: Distribution, value: float) -> tuple[Place, ...]:
        """Instances of a distribution at one value."""
        return self.runs.size.places(distribution, **{self.trait: value})  # type: ignore[arg-type]

    def regrets(self, distribution: Distribution, value: float, method: Method) -> Floats:
        """(instances, runs) regret an agent."""
        return self.runs.at_end(self.places(distribution, value), method)

    def ratios(self, distribution: Distribution, method: Method) -> Floats:
        """(instances, values) regret of a method over regret alone, means over runs."""
        each = [
            [self.regrets(distribution, v, m).mean(axis=1) for v in self.values]
            for m in (method, ALONE)
        ]
        ratios: Floats = np.stack(each[0], axis=1) / np.stack(each[1], axis=1)
        return ratios


def run_varied(
    size: Size, trait: str, values: Sequence[float], methods: Sequence[Method], watch: Watch
) -> Varied:
    """Run every method at every value of a trait."""
    traits = [(distribution, {trait: value}) for distribution in DISTRIBUTIONS for value in values]
    places = [place for distribution, one in traits for place in size.places(distribution, **one)]  # type: ignore[arg-type]
    runs = run_markets(size, places, methods, watch)
    watch("figure and analysis", 1.0)
    return Varied(runs, trait, tuple(values))


def _compile(job: Job) -> None:
    """Have everything compiled before the clock starts."""
    market, truth = known_market(job.place)
    terms = Method("", "alone").terms(market, Size(rounds=2))
    run_once(market, terms, 1, points=2, truth=truth)


# Ratios of regrets (instances, runs), with intervals over instances.

Band = tuple[Floats, Floats, Floats]
"""Estimate, low and high at every point."""


def ratio_of_means(above: Floats, below: Floats) -> Interval:
    """Mean of all over mean of all, as a paper's averages give it; instances are resampled in
    pairs.

    >>> print(ratio_of_means(np.array([[2.0], [9.0]]), np.array([[1.0], [3.0]])).estimate)
    2.75
    """
    a, b = above.mean(axis=1), below.mean(axis=1)

    def ratio(numbers: Floats, axis: int) -> object:
        chosen = numbers.astype(np.int64)
        return a[chosen].mean(axis=axis) / b[chosen].mean(axis=axis)

    return bootstrap(np.arange(len(a)), ratio)


def band_of_ratio(above: Floats, below: Floats) -> Band:
    """Median over instances of the ratio of two sets of curves (instances, runs, points), with its
    band.

    Points where an instance has no regret to compare with are NaN.
    """
    base = below.mean(axis=1)
    return band(above.mean(axis=1) / np.where(base > 0, base, np.nan), np.median)


def band(values: Floats, statistic: Statistic = np.mean) -> Band:
    """Estimate, low and high of a statistic over instances (the first axis) at every point.

    The 95 % percentile interval of the bootstrap, with the same 1,000 resamples at all points of a
    curve.

    >>> [part.tolist() for part in band(np.array([[1.0, 2.0], [3.0, 2.0]]))]
    [[2.0, 2.0], [1.0, 2.0], [3.0, 2.0]]
    """
    chosen = np.random.default_rng(0).integers(0, len(values), (1000, len(values)))
    low, high = np.quantile(np.asarray(statistic(values[chosen], axis=1)), [0.025, 0.975], axis=0)
    return np.asarray(statistic(values, axis=0)), low, high
