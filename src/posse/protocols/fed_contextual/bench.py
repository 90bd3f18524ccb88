"""Runs a job on a population: pre-training, then the bandit phase, over seeds and rates.

On a GPU runs go side by side; on a CPU one after the other. Both give the same numbers, to rounding.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.problems.drift import Drift
from posse.problems.populations import Population
from posse.problems.scenarios import Rewards, scenario
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.aggregation import Clipping
from posse.protocols.fed_contextual.jobs import Job
from posse.protocols.fed_contextual.resident import Data, many_runs
from posse.protocols.fed_contextual.results import Result
from posse.protocols.fed_contextual.rounds import Measured, Rates, State, Task, begin
from posse.protocols.fed_contextual.server import Optimiser, optimiser
from posse.protocols.fed_contextual.training import Pays, Schedule, Source, cohort_of, train
from posse.protocols.fed_contextual.trees import Tree

DEVICES = ("cpu", "gpu")
_MEMORY = {"cpu": 2 << 30, "gpu": 24 << 30}
"""Bytes of a population that are put on a device whole; of a larger one cohorts are gathered on the host."""
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
    side: int = 8
    """Runs side by side on a GPU."""
    lanes: int | None = None
    """Clients side by side; a cohort on a GPU, 1 on a CPU."""
    resident: bool | None = None
    """Whether the population is put on the device whole; if left out, where it is small enough."""
    _sources: dict[tuple[int, int], Source] = field(default_factory=dict)
    _pretrained: dict[tuple[Any, ...], Tree] = field(default_factory=dict)
    _optimisers: dict[str, Optimiser] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device_of(self.device)

    def source(self, cap: int, samples: int) -> Source:
        """Return where cohorts come from: the device's memory, or the host's disk if that is too small."""
        if (cap, samples) not in self._sources:
            small = sources.resident_bytes(self.population, cap) <= _MEMORY[self.device]
            whole = small if self.resident is None else self.resident
            made = sources.resident(self.population, cap) if whole else sources.host(self.population, samples, cap)
            self._sources[cap, samples] = made
        return self._sources[cap, samples]

    def run(self, job: Job, progress: Progress | None = None) -> Result:
        """Run a job."""
        with jax.default_device(device_of(self.device)):
            return self._run(job, progress)

    def _run(self, job: Job, progress: Progress | None) -> Result:
        began = time.perf_counter()
        world = scenario(job.scenario, self.population, job.pretraining.clients)
        runs = [Run(*one) for one in job.runs]
        if world.pretrained:
            first = {seed: self._first(job, seed) for seed in job.seeds}
            runs = [run._replace(params=first[run.seed]) for run in runs]
        drift = job.drifts(len(self.population.arms))
        pays = None if drift is None else _drifting(world.rewards, drift)
        schedule = self._schedule(job)
        parts, done, total = [], 0, len(runs) * job.rounds
        started = time.perf_counter()
        for part, count in self._phase(job, self._task(job), self._rates(job, world.rewards), runs, schedule, pays):
            parts.append(part)
            done += count
            if progress is not None:
                progress(job, done, total, done / (time.perf_counter() - started))
        seen = _assembled(parts, len(runs))
        shape = (len(job.pairs), len(job.seeds), job.rounds)
        shaped = Measured(*(leaf.reshape(shape) for leaf in seen))
        about = {"device": self.device, "seconds": time.perf_counter() - began, "jax": jax.__version__}
        return Result(json.loads(job.to_json()), shaped, about)

    def _first(self, job: Job, seed: int) -> Tree:
        """Pre-train the model of a seed; jobs that pre-train alike share it."""
        before = job.pretraining
        key = (job.scenario, astuple(before), job.model, job.hidden, job.channels, job.cohort,
               job.batch, job.cap, job.clip, job.quantile, seed)  # fmt: skip
        if key not in self._pretrained:
            world = scenario(job.scenario, self.population, before.clients)
            assert world.before is not None
            seen = None if world.pretrained_arms is None else jnp.asarray(world.pretrained_arms)
            task = self._task(replace(job, optimiser=before.optimiser, learns=True, centralised=False, levels=0))
            rates = Rates(before.client_rate, before.server_rate, pays=(_table(world.before),), seen=seen)
            among = tuple(world.initial(self.population.clients, seed).tolist())
            schedule = self._schedule(job)._replace(
                rounds=before.rounds, clients=before.clients, cohort=min(job.cohort, before.clients), sampling="fixed",
                supervised=True, among=among, deploy_every=before.rounds,
            )  # fmt: skip
            state = begin(task, seed)
            source = self.source(job.cap, schedule.samples)
            together = self._together(before.rounds)
            *_, (last, _) = train(task, rates, state, source, schedule, seed, together=together)
            self._pretrained[key] = last.params
        return self._pretrained[key]

    def _task(self, job: Job) -> Task:
        made = self._optimisers.setdefault(job.optimiser, optimiser(job.optimiser))
        lanes = self.lanes or (job.cohort if self.device == "gpu" else 1)
        model = sources.model_of(self.population, job.model, job.hidden, job.channels)
        return Task(
            model, sources.POLICIES[job.policy], sources.pay, made, Clipping(job.clip, job.quantile), sources.pay_all,
            job.batch, job.loss, lanes, job.levels, job.learns, job.centralised,
        )  # fmt: skip

    def _rates(self, job: Job, rewards: Rewards) -> Rates:
        divisor = float(job.cohort) if job.noise or job.sampling == "poisson" else 0.0
        explore = job.explore(len(self.population.arms))
        return Rates(0.0, 0.0, job.noise, divisor, explore, (_table(rewards),))

    def _schedule(self, job: Job) -> Schedule:
        samples = sources.padding(self.population, job.cap, job.batch)
        return Schedule(
            job.rounds, self.population.clients, job.cohort, job.deploy_every, samples, job.sampling,
            answers=job.answers(),
        )  # fmt: skip

    def _together(self, rounds: int) -> int:
        """Rounds in one call: all calls alike, so that one program does."""
        return max(d for d in range(1, min(_TOGETHER[self.device], rounds) + 1) if rounds % d == 0)

    def _phase(
        self, job: Job, task: Task, rates: Rates, runs: list[Run], schedule: Schedule, pays: Pays | None
    ) -> Iterator[tuple[tuple[slice, Measured], int]]:
        """Run all runs; yields which of them, what some rounds of theirs showed, and how many rounds that were."""
        source = self.source(job.cap, schedule.samples)
        together = self._together(schedule.rounds)
        if self.device == "gpu" and isinstance(source, Data) and len(runs) > 1:
            groups = -(-len(runs) // self.side)
            size = -(-len(runs) // groups)
            for low in range(0, len(runs), size):
                some = runs[low : low + size]
                filled = some + [some[-1]] * (size - len(some))
                for seen in _side_by_side(task, rates, filled, source, schedule, together, pays):
                    kept = Measured(*(np.asarray(leaf)[: len(some)] for leaf in seen))
                    yield (slice(low, low + len(some)), kept), len(some) * kept.reward.shape[1]
            return
        for at, run in enumerate(runs):
            own = rates._replace(client=run.client, server=run.server)
            state = begin(task, run.seed, run.params)
            for _, seen in train(task, own, state, source, schedule, run.seed, together=together, pays=pays):
                kept = Measured(*(np.asarray(leaf)[None] for leaf in seen))
                yield (slice(at, at + 1), kept), kept.reward.shape[1]


def _side_by_side(
    task: Task, rates: Rates, runs: list[Run], data: Data, schedule: Schedule, together: int, pays: Pays | None
) -> Iterator[Measured]:
    """Run runs side by side, some rounds at a time."""
    states = [begin(task, run.seed, run.params) for run in runs]
    state: State = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    client, server, seeds = (jnp.asarray(column) for column in zip(*(run[:3] for run in runs), strict=True))
    for first in range(0, schedule.rounds, together):
        rounds = range(first, first + together)
        drawn = [[cohort_of(schedule, run.seed, at) for at in rounds] for run in runs]
        numbers, present = (jnp.asarray(np.stack([[one[i] for one in run] for run in drawn])) for i in (0, 1))
        tables = None if pays is None else jnp.stack([jnp.asarray(pays(at), jnp.float32) for at in rounds])
        state, seen = many_runs(
            task, rates, client.astype(jnp.float32), server.astype(jnp.float32), state, data, numbers, present,
            seeds.astype(jnp.uint32), jnp.int32(schedule.deploy_every), tables, samples=schedule.samples,
        )  # fmt: skip
        yield seen


def _assembled(parts: list[tuple[slice, Measured]], runs: int) -> Measured:
    """Put parts of runs together: (runs, rounds)."""
    rows: list[list[list[NDArray[Any]]]] = [[[] for _ in Measured._fields] for _ in range(runs)]
    for where, seen in parts:
        for place, run in enumerate(range(where.start, where.stop)):
            for column, leaf in enumerate(seen):
                rows[run][column].append(np.asarray(leaf[place]))
    columns = zip(*([np.concatenate(pieces) for pieces in row] for row in rows), strict=True)
    return Measured(*(np.stack(column) for column in columns))


def _drifting(rewards: Rewards, drift: Drift) -> Pays:
    return lambda round_: rewards.at(drift, round_).table


def _table(rewards: Rewards) -> jax.Array:
    return jnp.asarray(rewards.table, jnp.float32)


def device_of(name: str) -> jax.Device:
    """Return a device by kind, or say that there is none."""
    if name not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {name!r}. Choose one.")
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        raise ConfigError(
            f"JAX {jax.__version__} sees no {name} here, only {jax.default_backend()}. Use --device cpu, or install "
            "JAX for the machine's accelerator: pip install 'jax[cuda12]'."
        ) from None
