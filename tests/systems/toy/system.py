"""The toy: the smallest whole system, as an example for authors of others.

A teller pulls coins in turn and tells every reward to a listener, who adds them up. The modules
beside this one (`attacks`, `commands`, `deploy`, `scene`) are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from posse.core import check
from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE, from_units, to_units
from posse.core.roles import Action, Ask, Message, Note, Pull, Reward, Role
from posse.core.settings import External
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.results.record import Record, Traffic, points_of
from posse.systems import base
from posse.systems.base import About, Demo, Level, RoleKind, RunSettings, System
from posse.systems.runs import RolesRun, Run

TELLER = "teller"
LISTENER = "listener"
COINS = {"two-coins": (0.2, 0.8), "three-coins": (0.2, 0.5, 0.8)}
"""Chances of the coins of each data set."""


class Toy(RunSettings):
    """Settings of the toy."""

    system: ClassVar[str] = "toy"
    aliases: ClassVar[Mapping[str, str]] = {"budget": "horizon"}

    policy: Literal["in-turn"] = "in-turn"
    """How the teller chooses: every coin in its turn."""
    data: Annotated[Literal["two-coins", "three-coins"], External.except_for(COINS)] = "two-coins"
    """The arms: coins that pay 0 or 1."""
    horizon: int = 20
    """Number of pulls."""
    path: Literal["roles", "plain"] = "roles"
    """roles: teller and listener exchange messages; plain: the twin, in one place."""

    @model_validator(mode="before")
    @classmethod
    def _read_policy(cls, values: Any) -> Any:
        """Also take the policy as a record stores it."""
        return base.flatten_built_in_policy(
            values, "toy", ("in-turn",), (), "the listener expects no other."
        )

    @model_validator(mode="after")
    def _check_horizon(self) -> Toy:
        check.at_least(1, horizon=self.horizon)
        return self

    def load(self) -> Arms:
        return self.cached("arms", lambda: BernoulliArms(COINS[self.data]))

    def config(self) -> dict[str, Any]:
        return {**self.resolved(), "policy": {"name": self.policy, "parameters": {}}}

    def problem(self) -> dict[str, Any]:
        return {"name": "toy arms", **self.load().describe()}


class Tell(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The only message: what a pull paid, in units of 2^-24."""

    step: int
    units: int


@dataclass(frozen=True)
class ToySecrets:
    """What a role of the toy knows of the rewards so far."""

    units: int


class Teller:
    """Pulls the coins in turn and tells what they pay."""

    kind = name = TELLER

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.pulls = 0
        self.units = 0

    def start(self) -> Sequence[Action]:
        return (Pull(TELLER, 0),)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if not isinstance(message, Reward) or message.number != self.pulls:
            raise ProtocolError(f"expected the reward of pull {self.pulls}, got {message}.")
        self.pulls += 1
        self.units += message.units
        tell = (TELLER, LISTENER, Tell(self.pulls, message.units))
        note = Note(TELLER, "step", self.pulls)
        return (tell, note) if self.finished else (tell, note, Pull(TELLER, self.pulls))

    @property
    def finished(self) -> bool:
        return self.pulls >= self.horizon

    @property
    def total(self) -> float:
        return from_units(self.units)

    def state(self) -> dict[str, object]:
        return {"step": self.pulls, "horizon": self.horizon}

    def reveal(self) -> ToySecrets:
        return ToySecrets(self.units)

    def save(self) -> dict[str, Any]:
        return {"pulls": self.pulls, "units": self.units}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.pulls = saved["pulls"]
        self.units = saved["units"]


class Listener(Teller):
    """Adds up what it is told."""

    kind = name = LISTENER

    def start(self) -> Sequence[Action]:
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if not isinstance(message, Tell) or message.step != self.pulls + 1:
            raise ProtocolError(f"expected step {self.pulls + 1}, got {message}.")
        self.pulls += 1
        self.units += message.units
        return (Note(LISTENER, "total", self.pulls, self.total),) if self.finished else ()


class World:
    """Pays for the coins in turn."""

    def __init__(self, arms: Arms, seed: int) -> None:
        self._arms = arms
        self._seed = seed
        self.rewards: list[int] = []

    def __call__(self, ask: Ask) -> Reward:
        assert isinstance(ask, Pull)
        turn, arm = divmod(ask.number, len(self._arms))
        self.rewards.append(self._arms.reward(self._seed, arm, turn))
        return Reward(ask.number, self.rewards[-1])

    def answered(self, ask: Ask, reward: float) -> None:
        """Count a reward that came from outside."""
        self.rewards.append(to_units(reward))

    @property
    def reached(self) -> int:
        return len(self.rewards)


class ToyRun(RolesRun):
    """Teller and listener in one process."""

    settings: Toy

    @property
    def _seed_horizon(self) -> int:
        return self.settings.horizon

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        return lambda: [Teller(self.settings.horizon), Listener(self.settings.horizon)]

    def _make_world(self, seed: int) -> World:
        return World(self.settings.load(), seed)

    def _reply(self, ask: Ask, reward: float) -> Message:
        assert isinstance(ask, Pull)
        return Reward(ask.number, to_units(reward))

    def truth(self) -> dict[str, Any]:
        """Return what attacks are scored by."""
        return {"total": from_units(sum(self.world.rewards))}

    def record(self, status: str | None = None) -> Record:
        hops = self.traffic().items()
        traffic = tuple(Traffic(f"{kind} -> {other}", *sums) for (kind, other), sums in hops)
        return _record(self, status, traffic=traffic, role_seconds=self.role_seconds())


class ToyTwin(Run):
    """The same bandit in one place."""

    settings: Toy

    def __init__(self, system: ToySystem, settings: Toy, seeds: Sequence[int] | None) -> None:
        super().__init__(system, settings, seeds)
        self.worlds = [World(settings.load(), seed) for seed in self.seeds]

    @property
    def time(self) -> int:
        return sum(world.reached for world in self.worlds)

    @property
    def horizon(self) -> int:
        return self.settings.horizon * len(self.seeds)

    @property
    def done(self) -> bool:
        return self.time >= self.horizon

    def _advance(self, n: int) -> None:
        for world in self.worlds:
            for number in range(world.reached, min(world.reached + n, self.settings.horizon)):
                world(Pull(TELLER, number))

    def record(self, status: str | None = None) -> Record:
        return _record(self, status)

    def save(self) -> Any:
        return [list(world.rewards) for world in self.worlds]

    def load(self, saved: Any) -> None:
        for world, rewards in zip(self.worlds, saved, strict=True):
            world.rewards = list(rewards)


def _record(run: ToyRun | ToyTwin, status: str | None, **costs: Any) -> Record:
    worlds: Sequence[World] = run.worlds
    arms = len(run.settings.load())
    steps = points_of(run.settings.horizon, run.settings.points)
    steps = steps[steps <= min(world.reached for world in worlds)]
    curves = [np.cumsum(world.rewards)[steps - 1] / REWARD_ONE for world in worlds]
    return run.make_record(
        status,
        seeds=run.seeds[: len(worlds)],
        steps=steps,
        reward=np.array(curves).reshape(len(worlds), len(steps)),
        total=tuple(from_units(sum(world.rewards)) for world in worlds),
        pulls=[[len(world.rewards[arm::arms]) for arm in range(arms)] for world in worlds],
        show=base.presentation(run.system, run.settings),
        **costs,
    )


class ToySystem(System[Toy]):
    """The toy."""

    name = "toy"
    about = About(
        title="Toy",
        summary="A teller tells a listener what it earned.",
        reference="none",
        protects="nothing",
        exact=True,
        demo=Demo(
            settings={"horizon": 40},
            story="A teller pulls two coins in turn, and a listener adds up what they pay.",
            attack="add-up",
        ),
    )
    roles = (
        RoleKind(TELLER, "teller", ("#0a58ca", "#6ea8fe"), "the coins", sole=True),
        RoleKind(LISTENER, "listener", ("#b02a37", "#ea868f"), "what it is told", sole=True),
    )
    levels = (
        Level(
            "open",
            "told in the clear",
            learns=lambda settings: ("The listener learns every reward.",),
            not_protected=lambda settings: ("The listener learns the total.",),
        ),
    )
    Settings = Toy

    def level_of(self, settings: Toy) -> str:
        return "plain" if settings.path == "plain" else "open"

    def start(self, settings: Toy, *, seeds: Sequence[int] | None = None, **options: Any) -> Run:
        if settings.path == "plain":
            return ToyTwin(self, settings, seeds)
        return ToyRun(self, settings, seeds=seeds, **options)

    def twin(self, settings: Toy) -> Toy:
        return settings.but(path="plain")


SYSTEM = ToySystem()
