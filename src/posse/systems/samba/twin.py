"""The plain twin: the same bandit without federation or protection, vectorised over seeds.

It draws from the same counter-based streams as the secure run and selects by the same integers, so
for one seed both give the same arm at every step and the same sum, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import advance_in_threads
from posse.core.fixed import REWARD_ONE, tie_bits
from posse.core.interrupts import defer_interrupt, half_second_steps
from posse.core.random import derive_key
from posse.policies.arms.base import Policy
from posse.problems.arms.rewards import Arms
from posse.results.record import Record, points_of
from posse.runtime.memory import fork
from posse.systems.base import AnySystem, presentation
from posse.systems.runs import Run
from posse.systems.samba.kernels import ARGMAX, CUSTOM, MATCH, kernels
from posse.systems.samba.levels import Switches, check_budget, check_level
from posse.systems.samba.settings import IMPLIED, Samba

SCORES = 20_000_000
"""Scores that are computed between two looks at Ctrl-C, at most: about a second."""
INTERPRETED = 20_000
"""Scores of a run up to which interpreting it takes less time than loading numba and its code."""
PATIENCE = 0.5
"""Seconds that a process spends on interpreting the twin of one policy before it compiles it."""
KINDS = {"argmax": ARGMAX, "match": MATCH, "custom": CUSTOM}


@dataclass(frozen=True)
class Outcome:
    """What plain runs gave: one row a seed."""

    seeds: tuple[int, ...]
    steps: NDArray[np.int64]
    reward: NDArray[np.float64]
    """Cumulative reward at `steps`."""
    regret: NDArray[np.float64]
    """Cumulative pseudo-regret at `steps`: the best mean less the mean of the arm pulled, added
    up.
    """
    units: NDArray[np.int64]
    """Sum of rewards of every arm, in units of 2^-24."""
    pulls: NDArray[np.int64]
    arms: NDArray[np.int32] | None
    """The arm pulled at every step, when asked for."""

    @property
    def total(self) -> tuple[float, ...]:
        """Cumulative reward of every run."""
        return tuple(float(units) / REWARD_ONE for units in self.units.sum(axis=1))


def own_keys(seeds: Sequence[int], owners: int) -> NDArray[np.uint64]:
    """Every owner's own stream in a simulated world: (seeds, owners)."""
    return np.array(
        [[derive_key(seed, owner) for owner in range(owners)] for seed in seeds], np.uint64
    )


def selections(
    policy: Policy,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Kind, scale and ceiling of every pass, as the kernels read them."""
    passes = policy.passes()
    return (
        np.array([KINDS[selection.kind] for selection in passes], np.int64),
        np.array([selection.scale for selection in passes]),
        np.array([selection.ceiling for selection in passes]),
    )


class Twin:
    """The plain bandit for every seed side by side, from step to step.

    `level` names the secure level whose twin this is: the twin of `paper` selects as its comp does,
    in permuted order. Cost: about N K evaluations of the score a seed; memory does not grow with N
    unless `keep_arms`.
    """

    def __init__(
        self,
        arms: Arms,
        policy: Policy,
        budget: int,
        seeds: Sequence[int],
        *,
        level: str = "strict",
        permute: bool = True,
        mask: bool = True,
        points: int = 200,
        keep_arms: bool = False,
    ) -> None:
        owners, runs = len(arms), len(seeds)
        check_budget(owners, budget)
        check_level(level, Switches(), policy)
        self.seeds, self.budget, self.step = tuple(seeds), budget, 0
        self.steps = points_of(budget, points)
        self.units, self.pulls = np.zeros((2, runs, owners), np.int64)
        self._curve, self._lost = (
            np.zeros((runs, len(self.steps)), np.int64),
            np.zeros((runs, len(self.steps))),
        )
        self._arms = np.zeros((runs, budget) if keep_arms else (0, 0), np.int32)
        self.memory = np.full((runs, owners), policy.start(owners))
        self._earned, self._missed, self._point = (
            np.zeros(runs, np.int64),
            np.zeros(runs),
            np.zeros(runs, np.int64),
        )
        compiled = kernels(policy)
        self._kernel = compiled.twin(published=level == "paper", kind=arms.world.kind)
        scores = runs * budget * owners * len(policy.passes())
        self.interprets = (
            compiled.built_in
            and scores <= INTERPRETED
            and not self._kernel.is_compiled
            and self._kernel.seconds_interpreted < PATIENCE
        )
        """Whether plain Python computes this run: it gives the same bits as compiled code."""
        self._world, self._rows = (
            arms.world,
            (np.array(list(seeds), np.uint64), own_keys(seeds, owners)),
        )
        self._fixed = (
            tie_bits(owners),
            permute,
            mask,
            policy.parameters(),
            *selections(policy),
            self.steps,
            arms.best - arms.means,
        )

    def advance(self, n: int) -> None:
        """Make n steps in every seed, or as many as are left."""
        first, self.step = self.step + 1, min(self.budget, self.step + n)
        self._play(first, self.step)

    def compile(self) -> None:
        """Compile now what `advance` calls, so that compiling is not counted as running."""
        self.interprets = False
        self._play(self.step + 1, self.step)

    def _play(self, first: int, last: int) -> None:
        rows = (
            *self._rows,
            self.units,
            self.pulls,
            self._curve,
            self._lost,
            self._arms,
            self.memory,
            self._earned,
            self._missed,
            self._point,
        )

        def play(cut: slice) -> None:
            self._kernel(self._world, *(row[cut] for row in rows), first, last, *self._fixed)

        if self.interprets:
            with defer_interrupt():
                self._kernel.interpret(self._world, *rows, first, last, *self._fixed)
        else:
            advance_in_threads(play, len(self.seeds))

    @property
    def outcome(self) -> Outcome:
        """What the runs gave so far; curves end where they are."""
        reached = int(np.searchsorted(self.steps, self.step, side="right"))
        arms = self._arms[:, : self.step] if self._arms.size else None
        return Outcome(
            self.seeds,
            self.steps[:reached],
            self._curve[:, :reached] / REWARD_ONE,
            self._lost[:, :reached].copy(),
            self.units.copy(),
            self.pulls.copy(),
            arms,
        )


def simulate(
    arms: Arms, policy: Policy, budget: int, seeds: Sequence[int], **options: Any
) -> Outcome:
    """Run the plain bandit for every seed to the end; `options` are those of `Twin`.

    >>> from posse.policies import UCB
    >>> from posse.problems import BernoulliArms
    >>> outcome = simulate(BernoulliArms([0.2, 0.8]), UCB(), budget=1000, seeds=[1, 2, 3])
    >>> [int(pulls[1]) for pulls in outcome.pulls]
    [958, 976, 977]
    """
    twin = Twin(arms, policy, budget, seeds, **options)
    for steps in half_second_steps(
        max(1, SCORES // (len(seeds) * len(arms) * len(policy.passes())))
    ):
        twin.advance(steps)
        if twin.step >= budget:
            break
    return twin.outcome


class SambaTwinRun(Run):
    """The plain bandit, all seeds side by side."""

    settings: Samba

    def __init__(self, system: AnySystem, settings: Samba, seeds: Sequence[int] | None) -> None:
        super().__init__(system, settings, seeds)
        setup = settings.load()
        self.twin = Twin(
            setup.arms,
            setup.policy,
            settings.horizon,
            self.seeds,
            level=settings.level,
            permute=settings.permutation,
            mask=settings.mask,
            points=settings.points,
        )
        if not self.twin.interprets:
            self.twin.compile()
        self._scores = len(self.seeds) * len(setup.arms) * len(setup.policy.passes())

    @property
    def time(self) -> int:
        """Pulls made in all runs."""
        return self.twin.step * len(self.seeds)

    @property
    def horizon(self) -> int:
        """Pulls of all runs."""
        return self.settings.horizon * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all pulls are made."""
        return self.twin.step >= self.settings.horizon

    @property
    def seeds_at_once(self) -> int:
        """All runs go forward together."""
        return len(self.seeds)

    @property
    def most_steps_at_once(self) -> int:
        """Steps between two looks: about a second of work."""
        return max(1, min(self.settings.horizon, SCORES // self._scores))

    def _advance(self, n: int) -> None:
        self.twin.advance(n)

    def record(self, status: str | None = None) -> Record:
        """Return the record of what was done."""
        settings, outcome = self.settings, self.twin.outcome
        return self.make_record(
            status,
            seeds=outcome.seeds,
            steps=outcome.steps,
            reward=outcome.reward,
            regret=outcome.regret,
            total=outcome.total,
            pulls=outcome.pulls,
            summary={"twin_of": settings.level, **settings.yardsticks()},
            show=presentation(
                self.system,
                settings,
                settings.owed(outcome.pulls.sum(axis=0).tolist()),
                protection=settings.protection,
                implied=IMPLIED,
                learnt={},
                **settings.rating_counts(),
            ),
        )

    def save(self) -> Any:
        """Return this moment."""
        return fork(self.twin), self.seconds

    def load(self, saved: Any) -> None:
        """Come back to a saved moment."""
        self.twin, self.seconds = fork(saved[0]), saved[1]
