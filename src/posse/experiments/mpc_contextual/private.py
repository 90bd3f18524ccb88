"""A private run beside its twins: real roles exchange shares, and must pull what the fixed-point twin pulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.core.fixed import REWARD_ONE
from posse.experiments.base import Table
from posse.experiments.output import Row
from posse.protocols.mpc_contextual import floats
from posse.protocols.mpc_contextual.coins import Coins
from posse.protocols.mpc_contextual.dealer import DealerKeys
from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.protocol import SimulatedWorld, coins_of, federation, seeded
from posse.protocols.mpc_contextual.puller import Puller
from posse.protocols.mpc_contextual.settings import ContextualSettings
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER
from posse.protocols.mpc_contextual.twin import run_fixed
from posse.runtime.memory import MemoryRun


@dataclass(frozen=True)
class Check:
    """The first steps of a private run, beside the same steps of its two twins on the same coins."""

    what: str
    steps: int
    same: int
    """Steps in which the private run and the fixed-point twin pulled the same arm."""
    differs: int
    """Steps without exploration in which the float twin, led along the same arms, has another best arm."""
    gap: float
    """Largest difference of the float scores of the two arms in those steps."""
    reward: float
    plain_reward: float
    """Average reward of the float twin that runs by itself."""

    @property
    def equal(self) -> bool:
        """Whether the private run pulled all the arms of the fixed-point twin."""
        return self.same == self.steps

    def row(self) -> Row:
        """The check as a row of a raw file."""
        return {
            "private_run": self.what, "steps": self.steps, "same_arms_as_fixed_twin": self.same,
            "float_twin_differs": self.differs, "largest_gap": self.gap, "reward": self.reward,
            "float_reward": self.plain_reward,
        }  # fmt: skip


def check(settings: ContextualSettings, what: str, steps: int, seed: int = 1) -> Check:
    """Run real roles in memory for the first `steps` of a run; about 5 ms a step at 10 arms and two parties."""
    setup = settings.check()
    rows, terms = setup.order(seed), setup.terms
    units, encoded, coins = setup.units(seed, rows), setup.encoded(rows), coins_of(terms, seed)
    run = MemoryRun(federation(terms, encoded, seed), SimulatedWorld(lambda step, arm: int(units[step, arm])))
    puller, payee = run.roles[PULLER], run.roles[PAYEE]
    assert isinstance(puller, Puller)
    assert isinstance(payee, Payee)
    for _ in run:
        if payee.step >= steps:
            break
    arms, rewards = puller.arms[:steps].astype(np.int64), payee.rewards[:steps] / REWARD_ONE
    keys = list(DealerKeys(terms, seeded(seed, DEALER)).tapes.values())
    fixed = run_fixed(terms, plan(terms), encoded, units, coins, keys)
    features = setup.features(rows)[:steps]
    along = floats.replay(features, arms, rewards, coins.ties[:steps])
    other = (along.greedy != arms) & ~coins.explore[:steps]
    first = Coins(coins.explore[:steps], coins.arms[:steps], coins.ties[:steps])
    alone = floats.run(features, units[:steps] / REWARD_ONE, first)
    return Check(
        what, steps, int((fixed.arms[:steps] == arms).sum()), int(other.sum()),
        float(along.gaps[other].max(initial=0.0)), float(rewards.mean()), float(alone.rewards.mean()),
    )  # fmt: skip


def check_table(checks: Sequence[Check]) -> Table:
    """Put private runs beside their twins."""
    rows = tuple(
        (
            one.what, f"{one.steps:,}", "yes" if one.equal else f"no: {one.steps - one.same:,} differ",
            f"{one.differs:,}", f"{one.gap:.1e}" if one.differs else "–", f"{one.reward:.4f}",
            f"{one.plain_reward:.4f}",
        )
        for one in checks
    )  # fmt: skip
    columns = (
        "private run", "steps", "all arms as the fixed twin", "float twin has another best arm",
        "largest gap of its scores there", "average reward", "of the float twin by itself",
    )  # fmt: skip
    return Table("Private check: real roles in memory", columns, rows)


def check_words(checks: Sequence[Check]) -> str:
    """Say whether the private runs are what their twins say."""
    equal = sum(one.equal for one in checks)
    steps, differs = sum(one.steps for one in checks), sum(one.differs for one in checks)
    return (
        f"Private check: in {equal} of {len(checks)} runs of real roles all arms are those of the fixed-point twin "
        f"({steps:,} steps). The float twin, led along the same arms, has another best arm in {differs:,} of them."
    )
