"""A run from its settings to its record: secure in one process, or its plain twin."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from posse.core.errors import ConfigError, ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.policies.arms.base import Policy
from posse.policies.arms.registry import PARAMETERS, PolicySettings
from posse.privacy.crypto.paillier import DEFAULT_BITS, MINIMUM_BITS, PrivateKey, generate_key
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.arms.settings import ProblemSettings
from posse.protocols.samba.levels import Switches, check_level, leaks
from posse.protocols.samba.plain import check_budget, simulate
from posse.protocols.samba.protocol import SimulatedWorld, federation
from posse.results.record import Interrupted, Record, Traffic, points_of
from posse.results.values import JSON
from posse.runtime.memory import MemoryRun


class SambaSettings(ProblemSettings, PolicySettings):
    """Everything a run of Samba needs to know."""

    budget: int = 10_000
    """Number of pulls N."""
    level: Literal["standard", "paper"] = "standard"
    """Level of protection: 'standard', or 'paper' as published."""
    aes: bool = True
    """AES-GCM on what owners send (can be off at level paper only)."""
    paillier: bool = True
    """Paillier on the sums (can be off at level paper only)."""
    permutation: bool = True
    """Permute the owners before comp sees scores (can be off at level paper only)."""
    mask: bool = True
    """Mask the scores that comp compares (can be off at level paper only)."""
    seed: int = 1
    """World seed: rewards, coins, ties and own draws of the simulation; kept in the record."""
    runs: int = 1
    """Number of runs, with seeds seed, seed + 1, ..."""
    points: int = 200
    """Points of a curve."""
    paillier_bits: int = DEFAULT_BITS
    """Size of the Paillier key."""

    def check(self) -> tuple[Arms, Policy, Switches]:
        """Check everything before anything starts, and return what it makes."""
        policy = self.make_policy()
        switches = Switches(self.aes, self.paillier, self.permutation, self.mask)
        check_level(self.level, switches, policy)
        if self.runs < 1 or self.points < 2:
            raise ConfigError(f"runs must be at least 1 and points at least 2, got {self.runs} and {self.points}.")
        if not 0 <= self.seed < 2**63 - self.runs:
            raise ConfigError(f"seed must be in [0, 2^63), got {self.seed}.")
        if self.owners is not None and self.budget < self.owners:
            check_budget(self.owners, self.budget)  # before a data set is read
        arms = self.arms()
        check_budget(len(arms), self.budget)
        return arms, policy, switches

    @property
    def seeds(self) -> tuple[int, ...]:
        """One world seed a run."""
        return tuple(range(self.seed, self.seed + self.runs))


@dataclass(frozen=True)
class Progress:
    """How far a record is: the number of the run (from 0), its step, and the budget."""

    run: int
    runs: int
    step: int
    budget: int


Watch = Callable[[Progress], None]


def run_secure(settings: SambaSettings, *, watch: Watch | None = None, key: PrivateKey | None = None) -> Record:
    """Run the whole federation in this process, once a seed, and record it.

    >>> from posse.privacy.crypto.paillier import generate_key
    >>> settings = SambaSettings(policy="ucb", owners=3, budget=200, seed=4)
    >>> record = run_secure(settings, key=generate_key(2048))
    >>> record.total == run_plain(settings).total
    True
    """
    arms, policy, switches = settings.check()
    summary: dict[str, str | float | int] = {}
    if key is None:
        started = time.process_time()
        key = generate_key(settings.paillier_bits)
        summary["key_seconds"] = time.process_time() - started
    summary["paillier_bits"] = key.public_key.bits
    warm_up(policy, settings.level, secure=True)
    started = time.process_time()
    tally = _Tally(settings, arms, policy, switches, summary)
    try:
        for number, seed in enumerate(settings.seeds):
            world = SimulatedWorld(arms, seed, settings.budget, points=settings.points)
            roles = federation(
                arms, policy, settings.budget, seed=seed, level=settings.level, switches=switches, key=key
            )
            run = MemoryRun(roles, world)
            tally.begin(seed, world, run)
            for event in run:
                if watch is not None and event.kind == "step":
                    watch(Progress(number, settings.runs, event.step, settings.budget))
                if event.kind == "total":
                    tally.end(event.value)
    except KeyboardInterrupt as stop:
        raise Interrupted(tally.record("interrupted", time.process_time() - started)) from stop
    return tally.record("finished", time.process_time() - started)


def warm_up(policy: Policy, level: str, *, secure: bool = False) -> None:
    """Compile what a plain or a secure run will call, so that compiling is not counted as running."""
    arms = BernoulliArms([0.5, 0.5])
    budget = 4
    simulate(arms, policy, budget, [0], level=level)
    if not secure:
        return
    key = generate_key(MINIMUM_BITS)  # it ends before the sums: no number is ever encrypted under this key
    switches = Switches(paillier=level != "paper")
    roles = federation(arms, policy, budget, seed=0, level=level, switches=switches, key=key)
    for event in MemoryRun(roles, SimulatedWorld(arms, 0, budget)):
        if event.step == budget:
            return


class _Tally:
    """Adds up the runs of one record."""

    def __init__(
        self,
        settings: SambaSettings,
        arms: Arms,
        policy: Policy,
        switches: Switches,
        summary: dict[str, str | float | int],
    ) -> None:
        self._settings, self._arms, self._policy = settings, arms, policy
        self._switches, self._summary = switches, summary
        self._worlds: list[SimulatedWorld] = []
        self._runs: list[MemoryRun] = []
        self._seeds: list[int] = []

    def begin(self, seed: int, world: SimulatedWorld, run: MemoryRun) -> None:
        self._seeds.append(seed)
        self._worlds.append(world)
        self._runs.append(run)

    def end(self, total: object) -> None:
        """Take the customer's total; it must be what the world paid."""
        world = self._worlds[-1]
        if total != int(world.units.sum()) / REWARD_ONE:
            raise ProtocolError(
                "the decrypted total is not what the owners earned: this is a defect, please report it."
            )

    def record(self, status: str, seconds: float) -> Record:
        settings, arms = self._settings, self._arms
        # Curves of an interrupted record end where its shortest run ended.
        reached = min((len(world.curve) for world in self._worlds), default=0)
        steps = points_of(settings.budget, settings.points)[:reached]
        role_seconds: dict[str, float] = {}
        hops: dict[tuple[str, str], list[int]] = {}
        for run in self._runs:
            for kind, spent in run.seconds.items():
                role_seconds[kind] = role_seconds.get(kind, 0.0) + spent
            for hop, traffic in run.hops.items():
                sums = hops.setdefault(hop, [0, 0])
                sums[0] += traffic.messages
                sums[1] += traffic.bytes
        earned = [float(world.units.sum()) / REWARD_ONE for world in self._worlds]
        regrets = [world.regret[:reached] for world in self._worlds]
        return Record(
            kind="samba",
            config=_config(settings, arms),
            problem=_problem(settings, arms),
            level=settings.level,
            leaks=leaks(settings.level, self._switches, len(arms), self._policy),
            seeds=tuple(self._seeds),
            steps=steps,
            reward=np.array([world.curve[:reached] for world in self._worlds]).reshape(len(self._worlds), reached),
            regret=np.array(regrets).reshape(len(self._worlds), reached),
            total=tuple(earned),
            pulls=np.array([world.pulls for world in self._worlds]).reshape(len(self._worlds), len(arms)),
            status=status,
            role_seconds=role_seconds,
            traffic=tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in sorted(hops.items())),
            seconds=seconds,
            summary=self._summary,
        )


def run_plain(settings: SambaSettings, *, watch: Watch | None = None, batch: int = 16) -> Record:
    """Run the plain twin for every seed, `batch` seeds at a time so that progress can be shown."""
    arms, policy, switches = settings.check()
    warm_up(policy, settings.level)
    started = time.process_time()
    outcomes = []
    status = "finished"
    try:
        for first in range(0, settings.runs, batch):
            seeds = settings.seeds[first : first + batch]
            outcomes.append(
                simulate(
                    arms,
                    policy,
                    settings.budget,
                    seeds,
                    level=settings.level,
                    permute=switches.permutation,
                    mask=switches.mask,
                    points=settings.points,
                )
            )
            if watch is not None:
                watch(Progress(min(first + batch, settings.runs) - 1, settings.runs, settings.budget, settings.budget))
    except KeyboardInterrupt:
        status = "interrupted"
    seconds = time.process_time() - started

    def stacked(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
        return np.concatenate(rows) if rows else np.zeros((0, width))

    steps = points_of(settings.budget, settings.points)
    record = Record(
        kind="simulate",
        config=_config(settings, arms),
        problem=_problem(settings, arms),
        level="plain",
        leaks=("Nothing is protected: this is the plain twin, in which one party sees everything.",),
        seeds=tuple(seed for outcome in outcomes for seed in outcome.seeds),
        steps=steps,
        reward=stacked([outcome.reward for outcome in outcomes], len(steps)),
        regret=stacked([outcome.regret for outcome in outcomes], len(steps)),
        total=tuple(total for outcome in outcomes for total in outcome.total),
        pulls=stacked([outcome.pulls for outcome in outcomes], len(arms)).astype(np.int64),
        status=status,
        seconds=seconds,
        summary={"twin_of": settings.level},
    )
    if status == "interrupted":
        raise Interrupted(record)
    return record


def _config(settings: SambaSettings, arms: Arms) -> dict[str, JSON]:
    """Every setting with the value that was used; the parameters of the policy stand under `policy`."""
    given = {name: value for name, value in settings.resolved().items() if name not in PARAMETERS}
    return {**given, **settings.used(arms), "policy": settings.make_policy().describe()}


def _problem(settings: SambaSettings, arms: Arms) -> dict[str, JSON]:
    return {"name": settings.data if settings.means is None else "means given", **arms.describe()}
