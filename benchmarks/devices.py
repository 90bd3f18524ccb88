"""Federated rounds of one reward model on many devices: seconds a round, and memory. `make
bench-devices`.

    python -m benchmarks.devices [linear] [memory] [cnn] [cores] [gpu]

Times on a CPU are CPU seconds of the process over all its threads, so that they are those of one
core on any machine; those of several cores are by the clock on the wall, one core and several in
turns. The linear round is timed beside the same round as a loop over clients and batches in numpy,
in the same run; a loop in PyTorch beside the network, where PyTorch is installed. Ratios are of
such pairs alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.problems.populations.population import Population, Ragged
from posse.problems.populations.prepared import Writer, load
from posse.systems.fed_contextual.computing import tasks
from posse.systems.fed_contextual.computing.cohorts import Schedule
from posse.systems.fed_contextual.computing.models import bag_of_words, cnn
from posse.systems.fed_contextual.computing.rounds import Cohort, bandit_round
from posse.systems.fed_contextual.computing.server import Clipping, State, adam, begin, sgd
from posse.systems.fed_contextual.computing.tasks import Rates, Task
from posse.systems.fed_contextual.computing.training import Plan, train
from posse.systems.fed_contextual.jobs import Job
from posse.systems.fed_contextual.study import Bench, cores_here

WORDS, TAGS, WIDTH = 10_000, 50, 32
STACKOVERFLOW = 342_477
EMNIST_CLIENTS, EMNIST_SAMPLES = 3400, 197


def one_round(task: Task, rates: Rates, cohort: Cohort, repeat: int) -> float:
    """Least CPU seconds of a round, after it was compiled."""
    do = jax.jit(bandit_round, static_argnames="task")
    state: State = begin(task, 0)
    state, _ = jax.block_until_ready(do(task, rates, state, cohort, jnp.uint32(0)))
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        state, _ = jax.block_until_ready(do(task, rates, state, cohort, jnp.uint32(0)))
        best = min(best, time.process_time() - began)
    return best


def texts_round(clients: int = 64) -> tuple[Task, Rates, Cohort, tuple[Any, Any, Any]]:
    """A round of the linear model with texts, and these as they are in numpy."""
    rng = np.random.default_rng(0)
    samples = 256
    words = rng.integers(0, WORDS, (clients, samples, WIDTH)).astype(np.int32)
    weights = np.full(words.shape, WIDTH**-0.5, np.float32)
    tags = (rng.random((clients, samples, TAGS)) < 0.04).astype(np.uint8)
    contexts = jnp.asarray(words), jnp.asarray(weights)
    cohort = Cohort(
        contexts,
        jnp.asarray(tags),
        jnp.ones((clients, samples)),
        jnp.arange(clients),
        jnp.ones(clients),
    )
    task = Task(
        bag_of_words(WORDS, TAGS), tasks.softmax, tasks.pay, adam(), Clipping(1.0, 0.8), batch=16
    )
    return (
        task,
        Rates(1.0, 0.01, explore=(0.05,), pays=(jnp.eye(TAGS),)),
        cohort,
        (words, weights, tags),
    )


def linear() -> None:
    task, rates, cohort, arrays = texts_round()
    took = one_round(task, rates, cohort, 5)
    clients, samples = cohort.mask.shape
    print(
        f"\nLinear, {clients} clients x {samples} texts of {WIDTH} words, {WORDS} words x {TAGS} "
        "tags"
    )
    began = time.process_time()
    numpy_round(*arrays)
    loop = time.process_time() - began
    print(f"  {took:.3f} s a round (inference included)")
    print(f"  a loop in numpy, dense: {loop:.2f} s, {loop / took:.0f} times as long")


def numpy_round(words: Any, weights: Any, tags: Any) -> None:
    """The same round as one would write it: per client dense rows of its words, softmax, and one
    epoch in batches.
    """
    rng, model = np.random.default_rng(1), np.zeros((WORDS, TAGS), np.float32)
    total = np.zeros_like(model)
    for numbers, share, paid in zip(words, weights, tags, strict=True):
        x = np.zeros((len(numbers), WORDS), np.float32)
        np.add.at(x, (np.arange(len(numbers))[:, None], numbers), share)
        scores = x @ model / 0.05
        chances = np.exp(scores - scores.max(axis=1, keepdims=True)).cumsum(axis=1)
        arms = (chances < rng.random((len(x), 1)) * chances[:, -1:]).sum(axis=1)
        rewards, own = paid[np.arange(len(x)), arms].astype(np.float32), model.copy()
        for at in rng.permutation(len(x)).reshape(-1, 16):
            slope = 2 / 16 * ((x[at] * own[:, arms[at]].T).sum(axis=1) - rewards[at])
            gradient = np.zeros_like(own)
            np.add.at(gradient.T, arms[at], slope[:, None] * x[at])
            own -= gradient
        update = own - model
        total += update * min(1.0, 1.0 / max(float(np.linalg.norm(update)), 1e-12))


def memory() -> None:
    """Rounds over populations of two sizes, each in a process of its own that maps it from disk."""
    print("\nMemory: rounds of 64 clients gathered from a mapped folder")
    print("  clients     samples   folder MB   peak MB   s/round")
    peaks = []
    for clients in (STACKOVERFLOW // 100, STACKOVERFLOW):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "population")
            samples = synthetic_texts(folder, clients)
            size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
            told = subprocess.run(
                [sys.executable, "-m", "benchmarks.devices", "--rounds-of", str(folder)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
        peaks.append(float(told[0]))
        print(
            f"  {clients:>7} {samples:>11} {size:>11.0f} {peaks[-1]:>9.0f} {float(told[1]):>9.2f}"
        )
    print(f"  100 times the clients: {peaks[1] / peaks[0]:.2f} times the memory")


def synthetic_texts(folder: Path, clients: int, samples: int = 10, words: int = 12) -> int:
    """Write clients of so many texts each; the whole never lies in memory."""
    rng = np.random.default_rng(0)
    tags = tuple(f"tag-{k}" for k in range(TAGS))
    with Writer(folder, "synthetic", tags, tuple(f"word-{k}" for k in range(WORDS))) as out:
        for low in range(0, clients, 4096):
            count = min(4096, clients - low)
            rows = count * samples
            bags = Ragged(
                np.arange(rows + 1) * words, rng.integers(0, WORDS, rows * words).astype(np.int32)
            )
            labels = Ragged(np.arange(rows + 1), rng.integers(0, TAGS, rows).astype(np.int32))
            out.add(np.full(count, samples), bags, labels)
    return clients * samples


def rounds_of(folder: str) -> None:
    """Print the peak of memory in MB and the seconds a round."""
    bench = Bench(load(folder), resident=False)
    rounds = 40
    began = time.perf_counter()
    bench.run(Job("rounds", rounds=rounds))
    took = (time.perf_counter() - began) / rounds
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, took)


def images_round(clients: int) -> tuple[Task, Rates, Cohort]:
    """A round of the network with clients of random images."""
    samples = -(-EMNIST_SAMPLES // 16) * 16
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients, samples, 28, 28)).astype(np.uint8)
    labels = rng.integers(0, 62, (clients, samples)).astype(np.int32)
    mask = np.tile(np.arange(samples) < EMNIST_SAMPLES, (clients, 1)).astype(np.float32)
    task = Task(cnn(62), tasks.softmax, tasks.pay, adam(), Clipping(1.0, 0.8), batch=16)
    rates = Rates(0.1, 0.002, explore=(0.05,), pays=(jnp.eye(62),))
    numbers = jnp.arange(clients), jnp.ones(clients)
    return (
        task,
        rates,
        Cohort(jnp.asarray(images), jnp.asarray(labels), jnp.asarray(mask), *numbers),
    )


def network() -> None:
    clients, part = 64, 2
    task, rates, cohort = images_round(part)
    images = np.array(cohort.contexts)
    scale = clients / part
    took = one_round(task, rates, cohort, 3) * scale
    only = one_round(task._replace(learns=False), rates, cohort, 3) * scale
    print(
        f"\nNetwork of 1.2 million parameters, {clients} clients x {EMNIST_SAMPLES} images",
        end=": ",
    )
    print(f"{part} clients timed, times {scale:.0f}")
    print(
        f"  Posse    {took:5.1f} s a round: {only:.1f} s of inference, {took - only:.1f} s of "
        "training"
    )
    try:
        act, train = torch_loop(images[:, :EMNIST_SAMPLES])
    except ImportError:
        print("  PyTorch is not installed")
        return
    act, train = act * scale, train * scale
    print(
        f"  PyTorch  {act + train:5.1f} s a round: {act:.1f} s of inference, {train:.1f} s of "
        "training"
    )
    print(
        f"  {(act + train) / took:.2f} times as fast as PyTorch; training alone "
        f"{train / (took - only):.2f} times"
    )


def torch_loop(images: Any) -> tuple[float, float]:
    """CPU seconds of inference and of training for some clients, as one would write it."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 62),
    )
    net = net.to(memory_format=torch.channels_last)
    start = [leaf.detach().clone() for leaf in net.parameters()]
    data = [
        torch.from_numpy(one).float().div(255)[:, None].to(memory_format=torch.channels_last)
        for one in images
    ]

    def act() -> None:
        with torch.no_grad():
            for one in data:
                for low in range(0, len(one), 64):
                    torch.softmax(net(one[low : low + 64]) / 0.05, dim=1).multinomial(1)

    def train() -> None:
        for one in data:
            with torch.no_grad():
                for leaf, first in zip(net.parameters(), start, strict=True):
                    leaf.copy_(first)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for at in torch.randperm(len(one)).split(16):
                optimiser.zero_grad()
                torch.square(net(one[at])[:, 0] - 1).mean().backward()
                optimiser.step()

    return timed(act), timed(train)


def timed(work: Callable[[], object], repeat: int = 3) -> float:
    """Least CPU seconds, after a first call."""
    work()
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


@contextmanager
def bound_to(count: int) -> Iterator[None]:
    """Keep all threads of this process on so many of its cores, where the system can."""
    here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []

    def bind(some: list[int]) -> None:
        for thread in os.listdir("/proc/self/task") if some else ():
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread), some)

    bind(here[:count])
    try:
        yield
    finally:
        bind(here)


def cores(pairs: int = 7) -> None:
    """A round in one piece on one core and over all cores, in turns; the ratio of every pair of
    rounds.
    """
    most = cores_here()
    print(
        f"\nDevices of a round over {most} cores, {pairs} pairs of rounds on the wall; load "
        f"{os.getloadavg()[0]:.1f}"
    )
    rounds = (
        ("texts", texts_round()[:3]),
        ("texts", texts_round(256)[:3]),
        ("network", images_round(16)),
    )
    for name, (task, rates, cohort) in rounds:
        clients, samples = cohort.mask.shape
        cohort = jax.tree.map(np.asarray, cohort)  # as `rounds.host` gathers it
        plan = Plan(task, rates, Schedule(1, clients, clients, samples=samples))
        first = begin(task, 0)

        def once(count: int) -> tuple[float, State]:
            with bound_to(count or 1):
                began = time.perf_counter()
                state, _ = next(train(plan, first, lambda *_: cohort, 0, together=1, cores=count))  # noqa: B023
                jax.block_until_ready(state)
                return time.perf_counter() - began, state

        same = all(map(np.array_equal, jax.tree.leaves(once(1)[1]), jax.tree.leaves(once(most)[1])))
        once(0)  # compiles the round in one piece, which is the faster one on one core
        took = np.array([(once(0)[0], once(most)[0]) for _ in range(pairs)])
        ratios, (one, all_) = took[:, 0] / took[:, 1], np.median(took, axis=0)
        print(
            f"  {name}, {clients} clients: {one:.3f} s on one core, {all_:.3f} s on {most}",
            end=": ",
        )
        print(
            f"{np.median(ratios):.2f} times as fast ({ratios.min():.2f} to {ratios.max():.2f})",
            end="; ",
        )
        print(f"the bits of --cores 1: {same}")


def gpu() -> None:
    try:
        name = jax.devices("gpu")[0].device_kind
    except RuntimeError:
        print("\nGPU: JAX sees none here")
        return
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.normal(EMNIST_SAMPLES, 60, EMNIST_CLIENTS), 20, 256).astype(int)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    images = rng.integers(0, 256, (offsets[-1], 28, 28)).astype(np.uint8)
    labels = rng.integers(0, 62, offsets[-1]).astype(np.int32)
    arms = tuple(f"arm-{k}" for k in range(62))
    bench = Bench(Population("synthetic", arms, offsets, images, labels, checked=True), "gpu")
    print(
        f"\n{name}: the network, {EMNIST_CLIENTS} clients, 64 a round, padded to 256 images, "
        "inference included"
    )
    for seeds, rounds in (((0,), 800), ((0, 1, 2, 3), 100)):
        marks: list[tuple[float, int]] = []
        began = time.perf_counter()
        bench.run(
            Job("gpu", rounds=rounds, seeds=seeds),
            lambda job, done, total, rate: marks.append((time.perf_counter(), done)),  # noqa: B023
        )
        took = time.perf_counter() - began
        (first, early), (last, done) = marks[0], marks[-1]
        rate = (done - early) / (last - first)
        print(
            f"  {len(seeds)} seeds side by side: {rounds} rounds in {took:.1f} s with compilation; "
            f"{rate:.1f} rounds/s"
        )
    agreement()


def agreement(device: str = "gpu") -> None:
    """One round from one state on a GPU, against the same on a CPU."""
    task, rates, cohort = images_round(8)
    task = task._replace(optimiser=sgd(), lanes=8)
    rates = rates._replace(server=1.0)
    do = jax.jit(bandit_round, static_argnames="task")

    def moved(where: str, precision: str) -> tuple[Any, float]:
        with jax.default_device(jax.devices(where)[0]), jax.default_matmul_precision(precision):
            before = begin(task, 0)
            after, seen = do(
                task, *jax.device_put((rates, before, cohort), jax.devices(where)[0]), jnp.uint32(0)
            )
            pairs = zip(jax.tree.leaves(after.params), jax.tree.leaves(before.params), strict=True)
            return np.concatenate([np.ravel(one) - np.ravel(other) for one, other in pairs]), float(
                seen.reward
            )

    exact, earned = moved("cpu", "highest")
    for precision in ("default", "highest"):
        own, reward = moved(device, precision)
        apart = float(np.linalg.norm(own - exact) / np.linalg.norm(exact))
        print(
            f"  {device}, precision {precision}: the update is {apart:.1e} of its size from the "
            "CPU's",
            end="; ",
        )
        print(f"rewards {reward:g} and {earned:g}")


PARTS = {"linear": linear, "memory": memory, "cnn": network, "cores": cores, "gpu": gpu}


def main() -> None:
    asked = sys.argv[1:]
    if asked[:1] == ["--rounds-of"]:
        rounds_of(asked[1])
        return
    for name in asked or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
