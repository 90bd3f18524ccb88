"""The learner in fixed point: forms, truncations, bits and Newton steps (figures 8 and 9)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from posse.core.errors import DataError
from posse.core.fixed import REWARD_ONE
from posse.experiments.mpc_contextual.problem import Place, world_of
from posse.experiments.output import Row
from posse.privacy.sharing.fixed import FixedPoint
from posse.protocols.mpc_contextual import floats, published
from posse.protocols.mpc_contextual.dealer import DealerKeys
from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.protocol import seeded
from posse.protocols.mpc_contextual.terms import DEALER
from posse.protocols.mpc_contextual.twin import run_fixed

EPSILON = 0.01
"""The default of the authors' code; the paper does not say which it took."""
PROTOCOL = "protocol"
"""The form that the real roles compute, by its fixed-point twin."""


@dataclass(frozen=True)
class Kind:
    """A learner: how it is computed, and how products are cut."""

    form: str
    truncation: str

    @property
    def label(self) -> str:
        """Its name in tables and figures."""
        return LABELS[self.form, self.truncation]


LABELS = {
    ("published", "published"): "paper's form, paper's truncation",
    ("published", "exact"): "paper's form, exact truncation",
    ("recursive", "published"): "recursive form, paper's truncation",
    ("recursive", "exact"): "recursive form, exact truncation",
    (PROTOCOL, "exact"): "Posse's protocol (its twin)",
}
PAPER = Kind("published", "published")
PAPER_EXACT = Kind("published", "exact")
RECURSIVE_SHARE_WISE = Kind("recursive", "published")
RECURSIVE = Kind("recursive", "exact")
OURS = Kind(PROTOCOL, "exact")
KINDS = (PAPER, PAPER_EXACT, RECURSIVE_SHARE_WISE, RECURSIVE)


@dataclass(frozen=True)
class Job:
    """One run of one learner."""

    place: Place
    kind: Kind
    bits: int
    newton: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What a run earned."""

    job: Job
    reward: float
    late: float
    """Average reward of the last tenth."""
    wraps: int
    """Truncations that were off by a multiple of 2^(64 - L)."""
    refused: bool = False
    """The protocol's twin stopped: an intermediate left its range."""

    def row(self) -> Row:
        """The run as a row of a raw file."""
        job = self.job
        return {
            "form": job.kind.form, "truncation": job.kind.truncation, "bits": job.bits, "newton": job.newton,
            "seed": job.seed, "average_reward": self.reward, "last_tenth": self.late, "wraps": self.wraps,
            "refused": int(self.refused),
        }  # fmt: skip


def run(job: Job) -> Result:
    """Run it on the world and coins of its seed, the same for all."""
    world = world_of(job.place, job.seed)
    coins = world.coins(EPSILON)
    wraps = 0
    if job.kind.form == PROTOCOL:
        try:
            rewards = _protocol(job)
        except DataError:
            return Result(job, math.nan, math.nan, 0, refused=True)
    else:
        found = published.simulate(
            world.features, world.rewards, coins, bits=job.bits, form=job.kind.form, truncation=job.kind.truncation,
            newton=job.newton, seed=job.seed,
        )  # fmt: skip
        rewards, wraps = found.rewards, found.wraps
    tail = max(1, len(rewards) // 10)
    return Result(job, float(rewards.mean()), float(rewards[-tail:].mean()), wraps)


def _protocol(job: Job) -> np.ndarray:
    world = world_of(job.place, job.seed)
    settings = job.place.settings(epsilon=str(EPSILON), bits=job.bits, newton=job.newton)
    terms = settings.check().terms
    keys = list(DealerKeys(terms, seeded(job.seed, DEALER)).tapes.values())
    units = np.rint(world.rewards * REWARD_ONE).astype(np.int64)
    features = FixedPoint(job.bits, most=1.0).encode(world.features)
    return run_fixed(terms, plan(terms), features, units, world.coins(EPSILON), keys).rewards / REWARD_ONE


def float_reward(place: Place, seed: int) -> float:
    """Average reward of the float twin on the same world and coins."""
    world = world_of(place, seed)
    return float(floats.run(world.features, world.rewards, world.coins(EPSILON)).rewards.mean())


def words(job: Job) -> str:
    """Say what is being done."""
    return f"{job.kind.label}, {job.bits} bits, {job.newton} Newton steps, run {job.seed}"
