"""What a run costs: measured runs, and what a line through them says about longer ones.

All times are CPU seconds of this process. A secure run has three parts: set-up (keys, manifest, first pulls), the
steps, and the sum at the end, which is where Paillier is. Generating the Paillier key comes before and is not counted;
the authors do not count it either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from posse.core.errors import DataError
from posse.policies import Policy
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.problems.arms.rewards import Arms
from posse.protocols.samba.federation import SimulatedWorld, federation, warm_up
from posse.protocols.samba.twin import simulate
from posse.runtime.memory import MemoryRun

KEY_BITS = 2048
"""As published. The default of the package is 3072, whose sum costs about two and a half times as much."""
LEVEL = "standard"


@dataclass(frozen=True)
class Measured:
    """CPU seconds of one secure run, by part and by kind of role."""

    arms: int
    budget: int
    setup: float
    steps: float
    sum: float
    roles: dict[str, float]

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.setup + self.steps + self.sum


@cache
def paillier_key() -> PrivateKey:
    """One key for all runs, as the authors do."""
    return generate_key(KEY_BITS)


def measure_secure(arms: Arms, policy: Policy, budget: int, seed: int = 1) -> Measured:
    """Run the whole federation once and take its time; compiled code is warm before the clock starts."""
    key = paillier_key()
    warm_up(policy, LEVEL)
    world = SimulatedWorld(arms, seed, budget)
    run = MemoryRun(federation(arms, policy, budget, seed=seed, level=LEVEL, key=key), world)
    begun = time.process_time()
    first = last = begun
    for event in run:
        if event.kind == "step":
            if first == begun:
                first = time.process_time()
            if event.step == budget:
                last = time.process_time()
    ended = time.process_time()
    return Measured(len(arms), budget, first - begun, last - first, ended - last, dict(run.seconds))


def measure_plain(arms: Arms, policy: Policy, budget: int, seed: int = 1) -> float:
    """CPU seconds of one run of the plain twin."""
    warm_up(policy, LEVEL)
    begun = time.process_time()
    simulate(arms, policy, budget, [seed])
    return time.process_time() - begun


@dataclass(frozen=True)
class Line:
    """Seconds of a secure run as a line in N: `fixed` (set-up and sum) + `step` (N - K), with the error of `step`."""

    arms: int
    fixed: float
    step: float
    step_error: float
    points: int

    def seconds(self, budget: int) -> float:
        """Time that the line gives for a budget."""
        return self.fixed + self.step * (budget - self.arms)

    def error(self, budget: int) -> float:
        """One standard error of that time, from the spread of the cost of a step between the runs."""
        return self.step_error * (budget - self.arms)


def fit(runs: Sequence[Measured]) -> Line:
    """Fit a line to runs of one policy at one K.

    The noise of a run grows with its length, so the cost of a step is the total time over the total steps, and its
    error is the standard error of the runs' own costs: sd / sqrt(number of runs).

    >>> line = fit([Measured(2, 12, 1.0, 10.0, 1.0, {}), Measured(2, 22, 1.0, 20.0, 1.0, {})])
    >>> line.seconds(102), line.error(102)
    (102.0, 0.0)
    """
    if len(runs) < 2 or len({run.arms for run in runs}) != 1:
        raise DataError(f"a line needs at least two runs of the same number of arms, got {len(runs)}.")
    steps = [run.budget - run.arms for run in runs]
    costs = [run.steps / count for run, count in zip(runs, steps, strict=True)]
    middle = sum(costs) / len(costs)
    spread = math.sqrt(sum((cost - middle) ** 2 for cost in costs) / (len(costs) - 1))
    return Line(
        arms=runs[0].arms,
        fixed=sum(run.setup + run.sum for run in runs) / len(runs),
        step=sum(run.steps for run in runs) / sum(steps),
        step_error=spread / math.sqrt(len(runs)),
        points=len(runs),
    )
