"""Runs jobs on a prepared population, one file of results a job: numpy and jax are all it needs.

    python -m posse.systems.fed_contextual.study --data prepared.npz --jobs jobs.json --out
    results --device gpu

Seeds and rates of a grid run side by side on a GPU and one after the other on a CPU; both give the
same numbers, to rounding. A job whose results are there is skipped, so that a study that was
stopped is started again by the same command.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import ConfigError, PosseError
from posse.policies.contextual.schedules import explores_of
from posse.policies.own import explain
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import load
from posse.problems.populations.worlds import Presence, Rewards, Scenario, periods_of, scenario
from posse.systems.fed_contextual.computing import tasks
from posse.systems.fed_contextual.computing.cohorts import Schedule, room
from posse.systems.fed_contextual.computing.models import Model, Tree, model_of, shape_of, size_of
from posse.systems.fed_contextual.computing.rounds import (
    Data,
    Source,
    host,
    padding,
    source_of,
    with_contexts,
)
from posse.systems.fed_contextual.computing.server import (
    Clipping,
    Measured,
    State,
    begin,
    optimiser,
)
from posse.systems.fed_contextual.computing.tasks import OwnPay, Rates, Task, policy_of
from posse.systems.fed_contextual.computing.training import Plan, Run, joined, train, train_many
from posse.systems.fed_contextual.jobs import Job, Result, job_of, read, read_jobs, write

DEVICES = ("cpu", "gpu")
SIDE = {"cpu": 1, "gpu": 8}
"""Runs side by side, at most."""
TOGETHER = {"cpu": 10, "gpu": 50}
"""Rounds in one call, at most."""
CHECKED = 1000
"""Deployments whose exploration is checked before the first round."""

Progress = Callable[[Job, int, int, float], None]
"""Called with the job, rounds done of all its runs, rounds in all, and rounds a second."""

_optimiser = lru_cache(optimiser)
"""One object a name: what is compiled depends on it."""


class Own(NamedTuple):
    """A user's own model and rewards, instead of those of the population and the scenario."""

    model: Model | None = None
    pay: OwnPay | None = None
    before: OwnPay | None = None
    """Rewards before deployment."""
    first: Callable[[str], bool] | None = None
    """Whether pre-training may draw a client, by its name."""


NOTHING = Own()


@dataclass
class Bench:
    """A population on a device, and what jobs share: data put there once, and first models once
    pre-trained.
    """

    population: Population
    device: str = "cpu"
    side: int | None = None
    """Runs side by side; 8 on a GPU, 1 on a CPU."""
    lanes: int | None = None
    """Clients side by side; a cohort on a GPU, 1 on a CPU."""
    resident: bool | None = None
    """Whether the population is put on the device whole; if left out, where it is small enough."""
    own: Own = NOTHING
    """A user's own model and rewards."""
    cores: int | None = None
    """CPU cores over which large rounds are divided, 0 for all; in one piece if left out."""
    _sources: dict[tuple[int, int], Source] = field(default_factory=dict)
    _pretrained: dict[tuple[Any, ...], Tree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device_of(self.device)
        self.spread = (
            (self.cores or cores_here()) if self.cores is not None and self.device == "cpu" else 0
        )

    def source(self, cap: int, samples: int) -> Source:
        """Return where cohorts come from: the device's memory, or the host's disk if that is too
        small.
        """
        if (cap, samples) not in self._sources:
            made = source_of(self.population, cap, samples, self.device, self.resident)
            self._sources[cap, samples] = made if self.own.pay is None else with_contexts(made)
        return self._sources[cap, samples]

    def plan(self, job: Job, world: Scenario) -> Plan:
        """Plan the bandit phase of a job."""
        return bandit(
            job, self.population, world, self.lanes or lanes_of(job, self.device), self.own
        )

    def pretraining(
        self,
        plan: Plan,
        job: Job,
        world: Scenario,
        seed: int,
        together: int,
        source: Source | None = None,
    ) -> Iterator[State]:
        """Pre-train the model of a seed on all rewards of some clients; yields states, some rounds
        apart.
        """
        before = supervised(plan, job, self.population, world, seed, self.own)
        source = self.source(job.cap, before.schedule.samples) if source is None else source
        if self.own.before is not None and self.own.pay is None:
            source = with_contexts(source)
        first, spread = begin(before.task, seed), self.spread
        return (
            state
            for state, _ in train(before, first, source, seed, together=together, cores=spread)
        )

    def side_by_side(self, runs: int, source: Source) -> int:
        """Return how many runs go side by side: one alone does not fill a GPU."""
        return side_of(runs, self.side or SIDE[self.device]) if isinstance(source, Data) else 1

    def run(self, job: Job, progress: Progress | None = None) -> Result:
        """Run a job."""
        device = device_of(self.device)
        with computing_on(device):
            return self._run(job, progress, device.device_kind)

    def _run(self, job: Job, progress: Progress | None, machine: str) -> Result:
        began = time.perf_counter()
        world = scenario(job.scenario, self.population, job.pretraining.clients)
        plan = self.plan(job, world)
        first = {
            seed: self._first(plan, job, world, seed) if world.pretrained else None
            for seed in job.seeds
        }
        parts: list[list[Measured]] = [[] for _ in job.runs]
        done, total, started = 0, len(parts) * job.rounds, time.perf_counter()
        source, together = (
            self.source(job.cap, plan.schedule.samples),
            self._together(plan.schedule.rounds),
        )
        side = self.side_by_side(len(parts), source)
        for low in range(0, len(parts), side):
            runs = [
                Run(*one, begin(plan.task, one[2], first[one[2]]))
                for one in job.runs[low : low + side]
            ]
            for after in train_many(
                plan, runs, source, side=side, together=together, cores=self.spread
            ):
                for at, (_, seen) in enumerate(after, low):
                    parts[at].append(seen)
                    done += len(np.asarray(seen.reward))
                if progress is not None:
                    progress(job, done, total, done / (time.perf_counter() - started))
        taken = time.perf_counter() - began
        about = {
            "device": self.device,
            "machine": machine,
            "seconds": taken,
            "jax": jax.__version__,
        }
        return Result(
            json.loads(job.to_json()), _assembled(job, [joined(one) for one in parts]), about
        )

    def _first(self, plan: Plan, job: Job, world: Scenario, seed: int) -> Tree:
        """Pre-train the model of a seed; jobs that pre-train alike share it."""
        key = (
            job.scenario,
            astuple(job.pretraining),
            job.model,
            job.hidden,
            job.channels,
            job.cohort,
            job.batch,
            job.cap,
            job.clip,
            job.quantile,
            seed,
        )
        if key not in self._pretrained:
            together = self._together(job.pretraining.rounds)
            *_, last = self.pretraining(plan, job, world, seed, together)
            self._pretrained[key] = last.params
        return self._pretrained[key]

    def _together(self, rounds: int) -> int:
        """Rounds in one call: all calls alike, so that one program does."""
        return max(d for d in range(1, min(TOGETHER[self.device], rounds) + 1) if rounds % d == 0)


def _assembled(job: Job, runs: list[Measured]) -> Measured:
    """Put runs together, by pairs of rates and seeds."""
    shape = (len(job.pairs), len(job.seeds), -1)
    columns: Iterator[Any] = zip(*runs, strict=True)
    made: list[Any] = [
        None if column[0] is None else np.stack(column).reshape(shape) for column in columns
    ]
    return Measured(*made)


# What rounds work on, from a job ------------------------------------------------------------------


def check_own(own: Own, population: Population) -> None:
    """Refuse a model that does not score the arms, and rewards that are not one a sample."""
    pad = population.largest
    gather = host(population, pad, pad)
    one = gather(np.zeros(1, np.int32), np.ones(1, np.float32), 0)
    contexts, labels = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (one.contexts, one.labels))
    if own.model is not None:
        shape = jax.eval_shape(own.model.scores, shape_of(own.model), contexts).shape
        if shape != (wanted := (pad, len(population.arms))):
            raise ConfigError(
                f"a model must give scores of shape {wanted}, samples x arms, got {shape}. Correct "
                "it."
            )
    for name in ("pay", "before"):
        if (function := getattr(own, name)) is not None:
            try:
                shape = jax.eval_shape(function, contexts, labels, jnp.zeros(pad, jnp.int32)).shape
            except Exception as error:
                raise ConfigError(f"{name} fails on {pad} samples: {explain(error)}.") from error
            if shape != (pad,):
                raise ConfigError(
                    f"{name} must give one reward a sample, {(pad,)}, got {shape}. Correct it."
                )


def bandit(
    job: Job, population: Population, world: Scenario, lanes: int = 1, own: Own = NOTHING
) -> Plan:
    """Plan the bandit phase, with the first pair of rates; a sum under noise, or of coins, has a
    fixed divisor.
    """
    arms, explore = len(population.arms), job.exploration()
    model = own.model or model_of(population, job.model, job.hidden, job.channels)
    pay, pay_all = (tasks.pay, tasks.pay_all) if own.pay is None else tasks.paid_by(own.pay, arms)
    schedule = Schedule(
        job.rounds,
        population.clients,
        job.cohort,
        job.deploy_every,
        padding(population, job.cap, job.batch),
        job.sampling,
        answers=job.answers(),
        stale=job.stale,
        keep_log=job.keep_log,
    )
    task = Task(
        model,
        policy_of(type(explore)),
        pay,
        _optimiser(job.optimiser),
        Clipping(job.clip, job.quantile),
        pay_all,
        job.batch,
        job.loss,
        lanes,
        job.levels,
        job.learns,
        job.centralised,
        schedule.older,
    )
    decisions = (
        float(np.minimum(population.sizes(), job.cap).mean()) * job.cohort * job.deploy_every
    )
    varies = explores_of(job.schedule, explore, arms, decisions, size_of(model))
    expected = (job.noise or job.sampling == "poisson") and not job.centralised
    rates = Rates(
        *job.pairs[0],
        job.noise,
        float(job.cohort) if expected else 0.0,
        explore.values(arms) if varies is None else varies(1),
        _tables(world.rewards, own),
        job.clip_noise,
    )
    drift = job.drifts(arms)
    pays = None if drift is None else lambda at: world.rewards.at(drift, at).table
    if varies is not None:
        for deployment in range(1, 2 + min(CHECKED, job.rounds // job.deploy_every)):
            varies(deployment)
    here = Presence(population.arms, periods_of(job.available)).here if job.available else None
    return Plan(task, rates, schedule, pays, varies, here)


def supervised(
    plan: Plan, job: Job, population: Population, world: Scenario, seed: int, own: Own = NOTHING
) -> Plan:
    """Plan pre-training before a plan's bandit phase: rounds on all rewards of some clients."""
    assert world.before is not None
    before = job.pretraining
    task = plan.task._replace(
        optimiser=_optimiser(before.optimiser), levels=0, learns=True, centralised=False, older=0
    )
    pays = _tables(world.before, own)
    if own.before is not None:
        task, pays = task._replace(pay_all=tasks.paid_by(own.before, len(population.arms))[1]), ()
    elif own.pay is not None and world.name == "init-shift":
        task, pays = task._replace(pay_all=tasks.pay_labels), _tables(world.before, NOTHING)
    seen = None if world.pretrained_arms is None else jnp.asarray(world.pretrained_arms)
    cohort = min(job.cohort, before.clients)
    rates = Rates(
        before.client_rate,
        before.server_rate,
        before.noise,
        float(cohort) if before.noise else 0.0,
        pays=pays,
        counted=before.clip_noise,
        seen=seen,
    )
    schedule = plan.schedule._replace(
        rounds=before.rounds,
        clients=before.clients,
        cohort=cohort,
        sampling=before.sampling,
        supervised=True,
        among=tuple(world.initial(population.clients, seed).tolist()),
        deploy_every=before.rounds,
        stale=0,
        keep_log=0,
    )
    return Plan(task, rates, schedule)


def lanes_of(job: Job, device: str) -> int:
    """Return how many clients are worked on side by side: a cohort on a GPU, one on a CPU."""
    return room(job.cohort, job.sampling) if device == "gpu" else 1


def side_of(runs: int, most: int) -> int:
    """Return how many runs go side by side, so that all groups are of one size.

    >>> side_of(9, 8), side_of(3, 8), side_of(5, 1)
    (5, 3, 1)
    """
    groups = -(-runs // most)
    return -(-runs // groups)


def device_of(name: str) -> jax.Device:
    """Return a device by kind, or say that there is none."""
    if name not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {name!r}. Choose one.")
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        raise ConfigError(
            f"JAX {jax.__version__} sees no {name} here, only {jax.default_backend()}. Use "
            "--device cpu, or install "
            "JAX for the machine's accelerator: pip install 'jax[cuda12]'."
        ) from None


def cores_here() -> int:
    """Return how many cores this process may use: those it is bound to, and no more than
    OMP_NUM_THREADS says.
    """
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    most = os.environ.get("OMP_NUM_THREADS", "")
    return min(bound, int(most)) if most.isdigit() and int(most) else bound


def keep_compiled(home: Path | None = None) -> None:
    """Keep what jax compiles between processes, in a folder of this user, of this processor and of
    this jax.

    A folder that the user has given to jax (JAX_COMPILATION_CACHE_DIR) stays; an empty one there
    keeps nothing.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    home = home or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posse"
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    )
    parts = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    made_for = hashlib.sha256(
        "\n".join([platform.machine(), jax.__version__, *parts]).encode()
    ).hexdigest()[:16]
    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(home / f"jax-{made_for}"))
    update("jax_persistent_cache_min_compile_time_secs", 0.2)
    update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextmanager
def computing_on(device: jax.Device) -> Iterator[None]:
    """Compute on a device, in whole 32-bit numbers unless JAX_DEFAULT_MATMUL_PRECISION says
    otherwise.

    A GPU left to itself multiplies matrices in 19 bits, and one round's update is then 2 % off a
    CPU's.
    """
    own = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    precision = own or (None if device.platform == "cpu" else "highest")
    with jax.default_device(device), jax.default_matmul_precision(precision):
        yield


def _tables(rewards: Rewards, own: Own) -> tuple[jax.Array, ...]:
    """Return what `pay` is given beside labels: the table, which a user's own function does
    without.
    """
    return () if own.pay is not None else (jnp.asarray(rewards.table, jnp.float32),)


# From the command line ----------------------------------------------------------------------------


def run_jobs(
    bench: Bench, jobs: Iterable[Job], out: Path, progress: Progress | None = None
) -> Iterator[Path]:
    """Run jobs that have no result in a folder yet; yields every job's file as it is there."""
    out.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        path = out / f"{job.name}.npz"
        if not path.exists():
            write(path, bench.run(job, progress))
        elif job_of(read(path).job).to_json() != job.to_json():
            raise ConfigError(
                f"{path} is the result of another job of that name. Rename the job, or remove the "
                "file."
            )
        yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m posse.systems.fed_contextual.study", description=__doc__
    )
    parser.add_argument(
        "--data", required=True, help="a prepared population: an .npz file or a folder"
    )
    parser.add_argument("--jobs", required=True, type=Path, help="a JSON list of jobs")
    parser.add_argument("--out", required=True, type=Path, help="folder of results")
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument("--side", type=int, help="runs side by side; 8 on a GPU, 1 on a CPU")
    parser.add_argument(
        "--cores", type=int, help="cores of a CPU that a round is divided over, 0 for all"
    )
    given = parser.parse_args(arguments)
    try:
        bench = Bench(load(given.data), given.device, given.side, cores=given.cores)
        for path in run_jobs(bench, read_jobs(given.jobs), given.out, _print_progress):
            _print_result(path)
    except PosseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _print_progress(job: Job, done: int, total: int, rate: float) -> None:
    print(f"{job.name}: {done} of {total} rounds, {rate:.3g} rounds/s", flush=True)


def _print_result(path: Path) -> None:
    result = read(path)
    last = result.averages[..., -1].mean(axis=1)
    shown = ", ".join(f"{value:.4f}" for value in last)
    print(
        f"{path}: average reward {shown} over {len(result.job['seeds'])} seeds, "
        f"{result.about['seconds']:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
