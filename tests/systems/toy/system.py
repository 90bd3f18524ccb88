"""A toy system: one folder, two roles, one message, one level, one attack, one action.

A teller pulls the arms of a small bandit in turn and tells every reward to a listener, who adds
them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from posse.core.fixed import REWARD_ONE, to_units
from posse.core.roles import Action as Done
from posse.core.roles import Ask, Message, Note, Pull, Reward, Role, View
from posse.core.settings import Settings
from posse.privacy.leakage.attack import Attack, Score
from posse.privacy.leakage.scores import hits
from posse.problems.arms.rewards import BernoulliArms
from posse.results.record import Record, Traffic, points_of
from posse.results.reports.sections import Section
from posse.runtime.local import Layout, enrol_all, write_party
from posse.runtime.network.deployment import Deployment
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.place import Place
from posse.systems.base import Action, Level, Parties, RoleKind, RunSettings, System
from posse.systems.runs import RolesRun, Run

TELLER, LISTENER = "teller", "listener"


class Tell(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The one message: what a pull earned."""

    step: int
    units: int


class Toy(RunSettings):
    """Settings of the toy."""

    system: ClassVar[str] = "toy"
    aliases: ClassVar[Mapping[str, str]] = {"budget": "horizon"}

    horizon: int = 20
    """Number of pulls."""
    means: tuple[float, ...] = (0.2, 0.8)
    """Means of the arms."""
    path: Literal["roles", "plain"] = "roles"
    """roles: the two exchange messages; plain: one adds up."""

    def load(self) -> BernoulliArms:
        """Make the arms once."""
        return self.once("arms", lambda: BernoulliArms(self.means))


@dataclass(frozen=True)
class ToySecrets:
    """What a role of the toy knows of the rewards so far."""

    units: int


class Teller:
    """Pulls the arms in turn and tells what they pay."""

    kind = name = TELLER

    def __init__(self, horizon: int) -> None:
        self._horizon, self._step, self._total = horizon, 0, 0

    def start(self) -> Sequence[Done]:
        return (Pull(TELLER, 0),)

    def receive(self, sender: str, message: Message) -> Sequence[Done]:
        assert isinstance(message, Reward)
        self._step += 1
        self._total += message.units
        told: list[Done] = [
            (TELLER, LISTENER, Tell(self._step, message.units)),
            Note(TELLER, "step", self._step),
        ]
        return [*told, Pull(TELLER, self._step)] if self._step < self._horizon else told

    @property
    def finished(self) -> bool:
        return self._step >= self._horizon

    def state(self) -> dict[str, object]:
        return {"step": self._step, "horizon": self._horizon}

    def reveal(self) -> ToySecrets:
        return ToySecrets(self._total)

    def save(self) -> dict[str, Any]:
        return {"step": self._step, "total": self._total}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._step, self._total = saved["step"], saved["total"]


class Listener(Teller):
    """Adds up what it is told."""

    kind = name = LISTENER

    def start(self) -> Sequence[Done]:
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Done]:
        assert isinstance(message, Tell)
        self._step, self._total = message.step, self._total + message.units
        return (Note(LISTENER, "total", self._step, self.total),) if self.finished else ()

    @property
    def total(self) -> float:
        return self._total / REWARD_ONE

    @property
    def pulls(self) -> int:
        return self._step


class World:
    """Pays for the arms in turn."""

    def __init__(self, arms: BernoulliArms, seed: int) -> None:
        self._arms, self._seed, self.rewards = arms, seed, list[int]()

    def __call__(self, pull: Pull) -> Reward:
        arms = len(self._arms)
        self.rewards.append(self._arms.reward(self._seed, pull.number % arms, pull.number // arms))
        return Reward(pull.number, self.rewards[-1])

    def answered(self, ask: Ask, reward: float) -> None:
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
        return {"total": sum(self.world.rewards) / REWARD_ONE}

    def record(self, status: str | None = None) -> Record:
        hops = tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in self.traffic().items())
        return record_of(self, self.worlds, status, traffic=hops, role_seconds=self.role_seconds())


class ToyTwin(Run):
    """The same in one place."""

    settings: Toy

    def __init__(self, system: System, settings: Toy, seeds: Sequence[int] | None) -> None:
        super().__init__(system, settings, seeds)
        self._worlds = [World(settings.load(), seed) for seed in self.seeds]

    @property
    def time(self) -> int:
        return sum(world.reached for world in self._worlds)

    @property
    def horizon(self) -> int:
        return self.settings.horizon * len(self.seeds)

    @property
    def done(self) -> bool:
        return self.time >= self.horizon

    def _advance(self, n: int) -> None:
        for world in self._worlds:
            for _ in range(min(n, self.settings.horizon - world.reached)):
                world(Pull(TELLER, world.reached))

    def record(self, status: str | None = None) -> Record:
        return record_of(self, self._worlds, status)

    def save(self) -> Any:
        return [list(world.rewards) for world in self._worlds]

    def load(self, saved: Any) -> None:
        for world, rewards in zip(self._worlds, saved, strict=True):
            world.rewards = list(rewards)


def record_of(run: Run, worlds: Sequence[World], status: str | None, **more: Any) -> Record:
    """Make the record of either run."""
    settings = run.settings
    assert isinstance(settings, Toy)
    arms, reached = len(settings.means), min(world.reached for world in worlds)
    steps = points_of(settings.horizon, settings.points)
    steps = steps[steps <= reached]
    curves = np.array(
        [np.cumsum(world.rewards)[steps - 1] / REWARD_ONE for world in worlds]
    ).reshape(len(worlds), -1)
    return Record(
        kind="toy",
        config=settings.resolved(),
        problem={"name": "toy arms", "means": list(settings.means)},
        level=run.system.level_of(settings),
        leaks=run.system.not_protected(settings),
        seeds=run.seeds[: len(worlds)],
        steps=steps,
        reward=curves,
        total=tuple(sum(world.rewards) / REWARD_ONE for world in worlds),
        pulls=[[len(world.rewards[arm::arms]) for arm in range(arms)] for world in worlds],
        status=status or ("finished" if run.done else "running"),
        seconds=run.seconds,
        show=run.system.show(settings),
        **more,
    )


class Greeting(Settings):
    """Settings of the action."""

    name: str = "world"
    """Whom to greet."""


def greet(settings: Greeting) -> Iterator[str | Section]:
    """The action."""
    yield "thinking"
    yield Section(
        "A greeting", ("to", "text"), ((settings.name, "hello"),), data={"to": settings.name}
    )


def build(place: Place) -> Deployment:
    """Make a party from its file."""
    horizon, kind = place.file.options["horizon"], place.identity.role
    vocabulary = Vocabulary((Tell, Reward), (Pull,))
    if kind == LISTENER:
        return Deployment(Listener(horizon), vocabulary, {TELLER: TELLER}, terms=place.file.options)
    arms = BernoulliArms(tuple(place.file.options["means"]))
    world = World(arms, place.file.options["seed"])

    async def source(ask: Ask) -> Message:
        assert isinstance(ask, Pull)
        return world(ask)

    answering: Source = source
    return Deployment(
        Teller(horizon), vocabulary, {LISTENER: LISTENER}, answering, place.file.options
    )


class ToyFederation(Settings):
    """A federation's file."""

    protocol: str
    run: str
    listen: str
    horizon: int = 20
    means: tuple[float, ...] = (0.2, 0.8)
    seed: int = 1


def layout(values: dict[str, Any], here: Path) -> Layout:
    """Read a federation's file."""
    federation = ToyFederation.make(values)

    def lay_out(folder: Path) -> list[Path]:
        enrol_all(folder, federation.run, {TELLER: TELLER, LISTENER: LISTENER})
        options = federation.model_dump(mode="json", include={"horizon", "means", "seed"})
        reach = {
            LISTENER: {"listen": federation.listen},
            TELLER: {"connect": {LISTENER: federation.listen}},
        }
        return [
            write_party(
                folder / f"{name}.toml",
                {
                    "protocol": "toy",
                    "identity": name,
                    "journal": f"{name}/journal",
                    "options": options,
                    **reach[name],
                },
            )
            for name in (LISTENER, TELLER)
        ]

    return Layout(
        federation,
        lay_out,
        federation.horizon,
        LISTENER,
        (LISTENER,),
        lambda name: name,
        LISTENER,
        ("listen",),
    )


def right(guesses: Sequence[float], truths: Sequence[Mapping[str, Any]]) -> Score:
    """How many totals were added up right."""
    return hits(
        sum(guess == truth["total"] for guess, truth in zip(guesses, truths, strict=True)),
        len(truths),
        0.001,
        "runs",
    )


def add_up(view: View, seed: int) -> float:
    """The attack: a listener adds up what it was told."""
    return (
        sum(entry.message.units for entry in view.entries if isinstance(entry.message, Tell))
        / REWARD_ONE
    )


class ToySystem(System):
    """The toy."""

    name, title = "toy", "Toy"
    summary = "A teller tells a listener what it earned."
    reference = "none"
    protects = "nothing"
    exact = True
    roles = (
        RoleKind(TELLER, "teller", ("#0a58ca", "#6ea8fe"), "the arms"),
        RoleKind(LISTENER, "listener", ("#b02a37", "#ea868f"), "what it is told"),
    )
    levels = (
        Level(
            "open",
            "told in the clear",
            lambda _: ("The listener learns every reward.",),
            lambda _: ("The listener learns the total.",),
        ),
    )
    attacks = (
        Attack(
            "add-up",
            "the total",
            (LISTENER,),
            ("The listener learns",),
            add_up,
            right,
            "runs right",
        ),
    )
    actions = (
        Action(("greet",), "Greet somebody.", lambda: Greeting, greet, positional=("name",)),
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {"demo": {"horizon": 40}}

    @property
    def Settings(self) -> type[Toy]:
        return Toy

    def start(self, settings: Toy, *, seeds: Sequence[int] | None = None, **options: Any) -> Run:
        if settings.path == "plain":
            return ToyTwin(self, settings, seeds)
        return ToyRun(self, settings, seeds=seeds, **options)

    def twin(self, settings: Toy) -> Toy:
        return settings.but(path="plain")

    def level_of(self, settings: Toy) -> str:
        return "plain" if settings.path == "plain" else "open"

    @property
    def deployment(self) -> Parties:
        return Parties(build, layout)


SYSTEM = ToySystem()
