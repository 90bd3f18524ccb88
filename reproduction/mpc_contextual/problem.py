"""The problem of the paper: images as contexts, ten classes or K clusters as arms, and what a run
draws by chance.

Full size is the paper's: MNIST on 20 principal components, rows of norm 1, one sweep of 60,000. It
needs the data (set POSSE_DATA to the folder that holds `mnist`); the small forms use scikit-learn's
digits. Runs are the seeds 1, 2, ... in order, none left out.

Curves come from twins. `check` runs real roles, which exchange shares, for the first steps of a
run: they must pull what the fixed-point twin pulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posse.core.fixed import REWARD_ONE
from posse.problems.contexts.contexts import Contexts
from posse.problems.contexts.images import digits, mnist
from posse.runtime.memory import MemoryRun
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.settings import MpcContextual, Setup
from posse.systems.mpc_contextual.terms import PAYEE, PULLER
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.twin import coins_of, run_fixed
from reproduction.kit import Floats, Paper, Table

REFERENCE = Paper(
    "mpc-contextual",
    "Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, "
    "2019",
)
EPSILONS = (0.01, 0.02, 0.05, 0.1)
"""Exploration rates of figures 2 and 7: four, as in the paper, whose text does not give its
legend.
"""

Base = Literal["digits", "mnist"]
_COINS = 7
"""Purpose of the draws beside the seed."""


@dataclass(frozen=True)
class Place:
    """Where a bandit runs: on which images, with how many clusters as arms (none: the ten classes),
    for how long.
    """

    base: Base
    steps: int
    clusters: int | None = None
    rows: int | None = None
    """Use the first rows only, so that others are held out."""

    def settings(self, **more: Any) -> MpcContextual:
        """Return the settings of a run here.

        >>> Place("digits", 500, clusters=5).settings(epsilon="0.1").load().terms.arms
        5
        """
        common = {"steps": self.steps, "rows": self.rows, **more}
        if self.clusters is None:
            return MpcContextual(data=self.base, **common)
        return MpcContextual(data="clusters", base=self.base, arms=self.clusters, **common)

    def contexts(self) -> Contexts:
        """Return the contexts, made once."""
        return _contexts(self.base, self.clusters, self.rows)

    def held_out(self) -> tuple[Floats, Floats]:
        """Return features and rewards of images that no run meets: MNIST's test set, or what `rows`
        leaves over.
        """
        images = mnist(part="test") if self.base == "mnist" else digits()
        first = 0 if self.base == "mnist" else self.rows or 0
        return images.rows[first:], np.eye(len(images.classes))[images.labels[first:]]


@cache
def _contexts(base: Base, clusters: int | None, rows: int | None) -> Contexts:
    return Place(base, 1, clusters, rows).settings().contexts()


FULL = Place("mnist", 60_000)
SMALL = Place("digits", 1_500)
"""The same work in seconds, to see that everything runs; its numbers mean nothing."""


@dataclass(frozen=True, eq=False)
class World:
    """What one run meets, a row a step; the same for every exploration rate, so that rates are
    compared in pairs.
    """

    features: Floats
    rewards: Floats
    """(steps, arms)"""
    chance: Floats
    """(steps,) it explores where this lies below the rate: a larger rate explores wherever a
    smaller one does.
    """
    drawn: NDArray[np.int64]
    ties: NDArray[np.int64]

    def coins(self, epsilon: float) -> Coins:
        """Return the coins of an exploration rate.

        >>> world = world_of(SMALL, seed=1)
        >>> rates = [world.coins(epsilon).explore for epsilon in (0.0, 0.1, 1.0)]
        >>> [bool(rate.any()) for rate in rates], bool(rates[2].all())
        ([False, True, True], True)
        """
        return Coins(self.chance < epsilon, self.drawn, self.ties)

    def first(self, steps: int) -> World:
        """Keep the first steps only."""
        return World(
            self.features[:steps],
            self.rewards[:steps],
            self.chance[:steps],
            self.drawn[:steps],
            self.ties[:steps],
        )


def world_of(place: Place, seed: int) -> World:
    """Draw a run's order of rows, rewards and coins: a function of the seed."""
    contexts = place.contexts()
    steps, arms = place.steps, len(contexts.arms)
    rows = contexts.order(seed, steps)
    units = contexts.rewards(seed, rows[:, None], np.arange(arms)).reshape(steps, arms)
    rng = np.random.default_rng((seed, _COINS))
    ties = rng.permuted(np.tile(np.arange(arms), (steps, 1)), axis=1)
    return World(
        contexts.features[rows],
        units / REWARD_ONE,
        rng.random(steps),
        rng.integers(0, arms, steps),
        ties,
    )


# Private runs beside their twins.


@dataclass(frozen=True)
class Check:
    """The first steps of a private run, beside the same steps of its two twins on the same
    coins.
    """

    what: str
    steps: int
    same: int
    """Steps in which the private run and the fixed-point twin pulled the same arm."""
    differs: int
    """Steps without exploration in which the float twin, led along the same arms, has another best
    arm.
    """
    gap: float
    """Largest difference of the float scores of the two arms in those steps."""
    reward: float
    plain_reward: float
    """Average reward of the float twin that runs by itself."""

    @property
    def equal(self) -> bool:
        """Whether the private run pulled all the arms of the fixed-point twin."""
        return self.same == self.steps


def private_run(setup: Setup, seed: int) -> MemoryRun:
    """Real roles in memory, at the beginning of a run."""
    rows = setup.order(seed)
    units = setup.units(seed, rows)
    world = SimulatedWorld(lambda step, arm: int(units[step, arm]))
    return MemoryRun(federation(setup.terms, setup.encoded(rows), seed), world)


def check(settings: MpcContextual, what: str, steps: int, seed: int = 1) -> Check:
    """Run real roles in memory for the first `steps` of a run; about 5 ms a step at 10 arms and two
    parties.
    """
    setup = settings.load()
    rows, terms = setup.order(seed), setup.terms
    units, encoded, coins = setup.units(seed, rows), setup.encoded(rows), coins_of(terms, seed)
    run = private_run(setup, seed)
    puller, payee = run.roles[PULLER], run.roles[PAYEE]
    assert isinstance(puller, Puller)
    assert isinstance(payee, Payee)
    for _ in run:
        if payee.step >= steps:
            break
    arms, rewards = puller.arms[:steps].astype(np.int64), payee.rewards[:steps] / REWARD_ONE
    fixed = run_fixed(terms, plan(terms), encoded, units, coins, seed)
    features = setup.features(rows)[:steps]
    along = floats.replay(features, arms, rewards, coins.ties[:steps], lift=terms.lift)
    other = (along.greedy != arms) & ~coins.explore[:steps]
    first = Coins(coins.explore[:steps], coins.arms[:steps], coins.ties[:steps])
    alone = floats.run(features, units[:steps] / REWARD_ONE, first, lift=terms.lift)
    return Check(
        what,
        steps,
        int((fixed.arms[:steps] == arms).sum()),
        int(other.sum()),
        float(along.gaps[other].max(initial=0.0)),
        float(rewards.mean()),
        float(alone.rewards.mean()),
    )


def check_table(checks: Sequence[Check]) -> Table:
    """Put private runs beside their twins."""
    rows = tuple(
        (
            one.what,
            f"{one.steps:,}",
            "yes" if one.equal else f"no: {one.steps - one.same:,} differ",
            f"{one.differs:,}",
            f"{one.gap:.1e}" if one.differs else "–",
            f"{one.reward:.4f}",
            f"{one.plain_reward:.4f}",
        )
        for one in checks
    )
    columns = (
        "private run",
        "steps",
        "all arms as the fixed twin",
        "float twin has another best arm",
        "largest gap of its scores there",
        "average reward",
        "of the float twin alone",
    )
    return Table("Private check: real roles in memory", columns, rows)


def check_words(checks: Sequence[Check]) -> str:
    """Say whether the private runs are what their twins say."""
    equal = sum(one.equal for one in checks)
    steps, differs = sum(one.steps for one in checks), sum(one.differs for one in checks)
    return (
        f"Private check: in {equal} of {len(checks)} runs of real roles all arms are those of the "
        "fixed-point twin "
        f"({steps:,} steps). The float twin, led along the same arms, has another best arm in "
        f"{differs:,} of them."
    )
