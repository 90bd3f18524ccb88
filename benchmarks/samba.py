"""Samba in one process: microseconds per (step, owner), secure and plain, against the AEAD
floor.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from benchmarks.measure import cpu, line, seal_floor
from benchmarks.plain_loop import LOOPS, run
from posse.policies import POLICIES, Policy
from posse.privacy.crypto.paillier import PrivateKey
from posse.problems import BernoulliArms
from posse.problems.datasets.published import embedded_arms
from posse.runtime.memory import MemoryRun
from posse.systems.live import Bandit, live
from posse.systems.samba.federation import SimulatedWorld, federation, warm_up
from posse.systems.samba.settings import Samba
from posse.systems.samba.twin import simulate

AUTHORS_PLAIN = {"ucb": 1.8, "thompson": 12.0}
"""The authors' plain code, us per (step, arm) at K=100, on a machine of this kind (not measured in
this run).
"""


def secure_seconds(policy: Policy, owners: int, steps: int, key: PrivateKey) -> float:
    """CPU seconds of steps 2 to 5 over `steps` time steps; setting up and Paillier are not in
    it.
    """
    arms = embedded_arms("movielens", owners)
    budget = owners + steps + 1
    notes = iter(
        MemoryRun(
            federation(arms, policy, budget, seed=1, level="paper", key=key),
            SimulatedWorld(arms, 1, budget),
        )
    )
    for note in notes:
        if note.step == owners + 1:
            break
    started = time.thread_time()
    for note in notes:
        if note.step == budget:
            break
    return time.thread_time() - started


def plain_seconds(policy: Policy, owners: int, steps: int, seeds: int) -> float:
    """CPU seconds of the plain twin per seed; all threads count."""
    arms = embedded_arms("movielens", owners)
    started = time.process_time()
    simulate(arms, policy, owners + steps, range(seeds), level="paper")
    return (time.process_time() - started) / seeds


def costs(key: PrivateKey) -> None:
    """The main table: level `paper` against raw seals and the plain twin."""
    print(
        "policy               K   plain ns   secure us   secure/plain   floor us   secure in raw "
        "seals"
    )
    for name, make in POLICIES.items():
        policy = make()
        warm_up(policy, "paper")
        for owners, steps in ((10, 3000), (100, 1000)):
            floor = seal_floor(owners)
            secure = (
                min(secure_seconds(policy, owners, steps, key) for _ in range(3)) / steps / owners
            )
            floor = min(floor, seal_floor(owners))
            plain = plain_seconds(policy, owners, 20_000, 20) / 20_000 / owners
            seals = secure / floor
            print(
                f"{name:<18} {owners:>3} {plain * 1e9:>10.1f} {secure * 1e6:>11.2f} "
                f"{secure / plain:>14.0f} "
                f"{floor * 1e6:>10.3f} {seals:>21.2f}"
            )


def levels(key: PrivateKey) -> None:
    """CPU per (step, owner) of level `strict` beside `paper` and plain, and its set-up time and
    memory in K.
    """
    policy = POLICIES["ucb"]()
    warm_up(policy, "strict")
    print(
        "\nlevels (ucb), us a step and owner: plain  paper  strict  strict/paper  owners, "
        "servers, dealer"
    )
    for owners, steps in ((10, 2000), (100, 400), (1000, 60)):
        arms, budget = BernoulliArms(np.linspace(0.1, 0.9, owners)), owners + steps + 1
        each: dict[str, tuple[float, dict[str, float]]] = {}
        for level in ("paper", "strict"):
            found = [stepped(arms, policy, budget, level, key) for _ in range(3)]
            each[level] = min(
                ((t / steps / owners * 1e6, kinds) for t, kinds, *_ in found),
                key=lambda one: one[0],
            )
        started = time.process_time()
        simulate(arms, policy, owners + 2000, range(4))
        plain = (time.process_time() - started) / 4 / (owners + 2000) / owners * 1e6
        (paper, theirs), (strict, mine) = each["paper"], each["strict"]
        parts = [
            mine[kind] / steps / owners * 1e6 for kind in ("owner", "controller", "comp", "dealer")
        ]
        print(
            f"  K = {owners:<5}                        {plain:>9.3f} {paper:>10.2f} "
            f"{strict:>8.2f} "
            f"{strict / paper:>12.2f}   {parts[0]:.2f} "
            "(paper "
            f"{theirs['owner'] / steps / owners * 1e6:.2f}), {parts[1] + parts[2]:.2f}, "
            f"{parts[3]:.2f}"
        )
    sizes, seconds, memories = [100.0, 1000.0, 3000.0], [], []
    for size in sizes:
        arms = BernoulliArms(np.linspace(0.1, 0.9, int(size)))
        tracemalloc.start()
        *_, memory = stepped(arms, policy, int(size) + 2, "strict", key)
        tracemalloc.stop()
        seconds.append(stepped(arms, policy, int(size) + 2, "strict", key)[2])
        memories.append(memory / 1e6)
    print(
        f"  set-up at K = 100, 1,000, 3,000: {', '.join(f'{s:.2f} s' for s in seconds)}; "
        f"{', '.join(f'{m:.0f} MB' for m in memories)}"
    )
    for what, values in (
        ("ms an owner", [1e3 * s for s in seconds]),
        ("kB an owner", [1e3 * m for m in memories]),
    ):
        slope, intercept, fit = line(sizes, values)
        print(f"    linear: {slope:.2f} {what} + {intercept:.1f}, R^2 = {fit:.5f}")


def stepped(
    arms: BernoulliArms, policy: Policy, budget: int, level: str, key: PrivateKey
) -> tuple[float, dict[str, float], float, int]:
    """Run a level: CPU seconds of the steps after the first, by kind of role, of the set-up, and
    the peak memory.
    """
    started = time.process_time()
    run = MemoryRun(
        federation(arms, policy, budget, seed=1, level=level, key=key),
        SimulatedWorld(arms, 1, budget),
    )
    notes = iter(run)
    for note in notes:
        if note.step == len(arms) + 1:
            break
    before, middle = dict(run.seconds), time.process_time()
    for note in notes:
        if note.step == budget:
            break
    peak = tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else 0
    spent = {kind: seconds - before[kind] for kind, seconds in run.seconds.items()}
    return time.process_time() - middle, spent, middle - started, peak


def simulator() -> None:
    """The plain simulator against a plain Python loop in this run and the authors' published
    cost.
    """
    print("\nplain simulation at K=100, ns per (step, arm)")
    arms = embedded_arms("movielens", 100)
    means = [float(mean) for mean in arms.means]
    for name, loop in LOOPS.items():
        ours = plain_seconds(POLICIES[name](), 100, 20_000, 20) / 20_000 / 100
        python = cpu(lambda loop=loop: run(means, 1100, loop), 2) / 1000 / 100  # type: ignore[misc]
        text = (
            f"  {name:<16} ours {ours * 1e9:>6.1f}   Python loop {python * 1e9:>8.0f}   "
            f"{python / ours:>5.0f} times"
        )
        if name in AUTHORS_PLAIN:
            theirs = AUTHORS_PLAIN[name] * 1e3
            text += (
                f"; authors' code {theirs:.0f} (not in this run): {theirs * 1e-9 / ours:.0f} times"
            )
        print(text)


def in_use(decisions: int = 10_000) -> None:
    """Decisions of `posse.live` on the plain twin, each with its reward, against a plain Python
    loop in this run.
    """
    means = [float(mean) for mean in np.linspace(0.1, 0.9, 10)]
    print(
        f"\nposse.live on the plain twin at K={len(means)}, decisions per CPU second (all threads "
        "count)"
    )
    for name, loop in LOOPS.items():
        bandit = live(
            Samba(policy=name, path="plain"), arms=[f"arm-{number}" for number in range(len(means))]
        )
        decide_and_reward(bandit, means, 200)  # compiling is not deciding
        started = time.process_time()
        decide_and_reward(bandit, means, decisions)
        ours = decisions / (time.process_time() - started)
        python = decisions / cpu(lambda loop=loop: run(means, decisions, loop))  # type: ignore[misc]
        print(
            f"  {name:<16} ours {ours:>8,.0f}   Python loop {python:>8,.0f}   "
            f"{ours / python:>5.2f} times"
        )


def decide_and_reward(bandit: Bandit, means: list[float], decisions: int) -> None:
    """Make decisions, and give each its arm's mean as the reward."""
    for _ in range(decisions):
        decision = bandit.decide()
        bandit.reward(decision.id, means[decision.arm])


def scaling(key: PrivateKey) -> None:
    """Cost is linear in N and in K."""
    policy = POLICIES["ucb"]()
    steps = [500.0, 1000.0, 2000.0, 4000.0]
    times = [min(secure_seconds(policy, 20, int(n), key) for _ in range(2)) for n in steps]
    slope, intercept, fit = line(steps, times)
    print(
        f"\nlinear in N (ucb, K=20):   {slope * 1e6:.1f} us a step + {intercept * 1e3:.1f} ms, R^2 "
        f"= {fit:.5f}"
    )
    owners = [10.0, 25.0, 50.0, 75.0, 100.0]
    times = [min(secure_seconds(policy, int(k), 500, key) for _ in range(2)) / 500 for k in owners]
    slope, intercept, fit = line(owners, times)
    print(
        f"linear in K (ucb):         {slope * 1e6:.2f} us a step and owner + {intercept * 1e6:.1f} "
        "us a step, "
        f"R^2 = {fit:.5f}"
    )


def memory(key: PrivateKey) -> None:
    """Peak memory of the steps, by tracemalloc: without a transcript it does not depend on N."""
    print("\npeak memory of a secure run without transcript (K=10):", end="")
    for budget in (2000, 8000, 32_000):
        arms = embedded_arms("movielens", 10)
        notes = MemoryRun(
            federation(arms, POLICIES["ucb"](), budget, seed=1, key=key),
            SimulatedWorld(arms, 1, budget),
        )
        tracemalloc.start()
        for note in notes:
            if note.step == budget:
                break
        print(f"  N={budget}: {tracemalloc.get_traced_memory()[1] / 1e6:.2f} MB", end="")
        tracemalloc.stop()
    print()
