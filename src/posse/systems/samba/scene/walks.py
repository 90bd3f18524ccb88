"""The worked examples of the paper (sections 4.1.2 and 4.2) as runs that begin in the middle.

Sums, pulls, mask, permutation and comp's draw of the example's step are the printed ones; roles,
messages and bytes are those of any run. After that step the run goes on from the world seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.fixed import REWARD_ONE, from_units
from posse.core.roles import Action, Pull, Reward, Role
from posse.privacy.crypto.frames import ClearFrames, Frames
from posse.problems.arms.rewards import Arms
from posse.systems.base import AnySystem
from posse.systems.samba.federation import SambaRun, SimulatedWorld, prepare
from posse.systems.samba.messages import Masks, Score
from posse.systems.samba.roles.comp import Comp
from posse.systems.samba.roles.controller import Controller, Order
from posse.systems.samba.roles.draws import Draws
from posse.systems.samba.roles.lanes import PaperLane
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.settings import Samba


@dataclass(frozen=True)
class Walk:
    """A moment of a run, and what is drawn in its first passes (by index)."""

    step: int
    sums: tuple[int, ...]
    pulls: tuple[int, ...]
    masks: Mapping[int, float] = field(default_factory=dict)
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    draws: Mapping[int, float] = field(default_factory=dict)
    coins: Mapping[int, float] = field(default_factory=dict)
    """Coins that decide whether a step explores, by step."""
    reward: int | None = None
    """What the first pull pays."""
    decimals: int | None = None
    """Means are rounded to so many decimals before the score of the first step, as in the printed
    example.
    """


WALKS = {
    "ucb-68": Walk(68, (24, 10, 2), (33, 24, 10), {68: 0.5}, {68: (2, 0, 1)}, reward=1),
    "softmax-98": Walk(
        98,
        (49, 9, 1),
        (68, 24, 5),
        {98: 0.15 * math.exp(1 / 0.1)},
        {98: (2, 1, 0)},
        {98: 0.5},
        decimals=2,
    ),  # what is sent is exp((mean - 1) / tau): the constant exp(1 / tau) goes with the mask
    "pursuit-4": Walk(4, (1, 0, 0), (1, 1, 1)),
    "epsilon-greedy-68": Walk(
        68, (24, 10, 2), (33, 24, 10), {68: 0.5}, {68: (2, 0, 1)}, coins={68: 0.7, 69: 0.04}
    ),  # the paper gives two coins of a step: one exploits, "exactly as exemplified for UCB", the other explores
}
"""The worked examples, by policy and first step."""


def check_example(name: str, settings: Samba) -> None:
    """Refuse a worked example anywhere but where the paper has it: three owners, its policy, level
    `paper`.
    """
    check.one_of(tuple(WALKS), example=name)
    policy, step = name.rpartition("-")[0], WALKS[name].step
    place = (settings.level, settings.path, settings.runs, settings.make_policy().name)
    fits = place == ("paper", "roles", 1, policy)
    if not fits or settings.means is None or len(settings.means) != 3 or settings.horizon < step:
        raise ConfigError(
            f"the example '{name}' is of one run of '{policy}' at level 'paper' with three means "
            f"and a horizon of {step} or more, got {settings.make_policy().name} at "
            f"'{settings.level}'. Set these, or begin without an example."
        )


class _Drawn(Draws):
    """Numbers of given indices; all others from where they come."""

    def __init__(self, given: Mapping[int, float], rest: Draws) -> None:
        self._given, self._rest = given, rest

    def at(self, index: int) -> float:
        """Return the number of an index."""
        return self._given[index] if index in self._given else self._rest.at(index)


class _Ordered:
    """Permutations of given indices; all others from where they come."""

    def __init__(self, given: Mapping[int, tuple[int, ...]], rest: Order) -> None:
        self._given, self._rest = given, rest

    def at(self, index: int) -> NDArray[np.int64]:
        """Return the permutation of an index."""
        return (
            np.array(self._given[index], np.int64) if index in self._given else self._rest.at(index)
        )


class WalkLane(PaperLane):
    """A lane that computes the weight of the first step from a rounded mean, if the example does."""

    def __init__(self, *arguments: Any, walk: Walk) -> None:
        super().__init__(*arguments)
        self._walk = walk

    def _score(self, index: int) -> float:
        step, turn = divmod(index, self._passes)
        if self._walk.decimals is None or step != self._walk.step:
            return super()._score(index)
        units, pulls = self._arm.known
        mean = round(from_units(units) / pulls, self._walk.decimals)
        return math.exp((mean - self._ceilings[turn]) / self._scales[turn])


class WalkOwner(Owner):
    """An owner that has pulled before the run begins."""

    def __init__(self, *arguments: Any, walk: Walk, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._walk = walk

    def _enter(self) -> None:
        super()._enter()
        number = self._arm.number
        self._arm.units, self._arm.pulls = (
            self._walk.sums[number] * REWARD_ONE,
            self._walk.pulls[number],
        )
        self._index = self._walk.step * self._passes

    def _ready(self) -> Sequence[Action]:
        if not self._open_lane():
            return ()
        self._listening = True
        return self._next()

    def _open_lane(self) -> bool:
        opened = super()._open_lane()
        if self._coins is not None:
            self._coins = _Drawn(self._walk.coins, self._coins)
        return opened

    def _paper_lane(
        self, frames: Frames | ClearFrames, replies: Frames | ClearFrames, masks: Draws | None
    ) -> PaperLane:
        if masks is not None:
            given = {index: 1.0 - mask for index, mask in self._walk.masks.items()}
            masks = _Drawn(given, masks)
        seeds = self._own_seeds()
        return WalkLane(self._arm, self._policy, frames, replies, masks, seeds, walk=self._walk)


class WalkController(Controller):
    """A controller before a step in the middle, with the permutations of the example."""

    def __init__(self, *arguments: Any, walk: Walk, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._walk = walk

    def _enter(self) -> Masks:
        keys = super()._enter()
        self._index = self._walk.step * self.manifest.terms.passes
        if "permutation" not in self.manifest.terms.off:
            self._order = _Ordered(self._walk.orders, self._order)
        if self._coins is not None:
            self._coins = _Drawn(self._walk.coins, self._coins)
        return keys


class WalkComp(Comp):
    """A comp before a step in the middle, with the draw of the example."""

    def __init__(self, *arguments: Any, walk: Walk, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._walk = walk

    def _enter(self) -> None:
        super()._enter()
        self._index = self._walk.step * self.manifest.terms.passes
        assert self._draws is not None
        self._draws = _Drawn(self._walk.draws, self._draws)


class WalkWorld(SimulatedWorld):
    """A world in which pulls were made before the run begins."""

    def __init__(self, arms: Arms, seed: int, budget: int, walk: Walk) -> None:
        super().__init__(arms, seed, budget)
        self.units[:] = np.array(walk.sums) * REWARD_ONE
        self.pulls[:] = walk.pulls
        self._earned, self._step = int(self.units.sum()), walk.step - 1
        self._first = walk.reward

    def __call__(self, pull: Pull) -> Reward:
        """Pull an owner's arm; the first pull pays what the example says."""
        if self._first is None:
            return super().__call__(pull)
        units, self._first = self._first * REWARD_ONE, None
        self._count(self._number[pull.party], units)
        return Reward(pull.number, units)


class WalkRun(SambaRun):
    """A run that begins at a worked example: the set-up is done, the first scores are about to
    move.
    """

    def __init__(self, system: AnySystem, settings: Samba, example: str, **options: Any) -> None:
        self.walk = WALKS[example]
        super().__init__(system, settings, **options)
        while not isinstance(self._head(), Score):
            self.memory.deliver()

    def _head(self) -> Any:
        """The message that moves next."""
        pending = self.memory.pending
        return pending[0][2] if pending and isinstance(pending[0], tuple) else None

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        walk = self.walk
        kinds: dict[str, Callable[..., Role]] = {
            "owner": WalkOwner,
            "controller": WalkController,
            "comp": WalkComp,
        }
        return prepare(
            self._setup.arms,
            self._setup.policy,
            self.settings.horizon,
            seed=seed,
            level="paper",
            switches=self._setup.switches,
            key=self._key,
            kinds={n: partial(k, walk=walk) for n, k in kinds.items()},
        )

    def _make_world(self, seed: int) -> WalkWorld:
        return WalkWorld(self._setup.arms, seed, self.settings.horizon, self.walk)

    def record(self, status: str | None = None) -> NoReturn:
        """Refuse, because the steps before the example were never run."""
        raise ConfigError(
            "a worked example begins in the middle of a run and is not recorded. Start the run "
            "without an example to record it.",
            rule="samba.example.not-recorded",
        )
