"""Samba in use: decisions when they are wanted, rewards when they come.

An owner *on demand* waits before every step until a decision is wanted (`Turn`, answered by `Now`),
and then scores at once, by the rewards that it has; of those that it waits for it says nothing. So
does the controller before a step of level `paper` that explores. An arm of which no reward has come
scores as if one pull had paid 1 (`lanes.SUPPOSED`).

The twin does the same on the same numbers: for the same rewards in the same order both choose the
same arms, at every level. Without delays these are the arms of a simulation. What is saved are the
arms' numbers: a bandit that is loaded sets up a federation with fresh keys, which goes on at the
next step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from posse.core.errors import ConfigError, ProtocolError
from posse.core.fixed import REWARD_ONE, to_units
from posse.core.roles import WORLD, Action, Ask, Message, Pull, Reward, Role
from posse.policies.arms.registry import PARAMETERS
from posse.privacy.crypto.paillier import PrivateKey
from posse.problems.arms.rewards import EmpiricalArms
from posse.problems.arms.settings import ProblemSettings
from posse.results.record import Traffic
from posse.systems.base import AnySystem, presentation
from posse.systems.live import Choice, Serving
from posse.systems.modules import Live
from posse.systems.registry import system_of
from posse.systems.samba.federation import SambaRun, SimulatedWorld, prepare
from posse.systems.samba.messages import End, Explore, Forgone, Now, Reply, Score, Turn
from posse.systems.samba.roles.controller import Controller
from posse.systems.samba.roles.lanes import SUPPOSED
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.settings import IMPLIED, Samba
from posse.systems.samba.setup import CONTROLLER, CUSTOMER
from posse.systems.samba.strict.owner import StrictOwner
from posse.systems.samba.twin import Twin

LONGEST = (1 << 29) - 1
"""Decisions of a bandit without a horizon: as many as sums stay exact."""


@dataclass
class ArmState:
    """What an arm is after some steps: all that a choice depends on, beside step and seed."""

    units: int = 0
    pulls: int = 0
    """Rewards that came."""
    memory: float = 0.0
    asked: int = 0
    """Pulls that were asked for."""
    pending: list[int] = field(default_factory=list)
    """Those whose reward has not come."""


class OnDemand(Owner):
    """An owner that scores when a decision is wanted, by the rewards that it has."""

    def __init__(
        self, *arguments: Any, states: Mapping[str, ArmState] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._given = None if states is None else states[self.name]
        self._asked = 0
        self._pending: list[int] = []

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        if sender == WORLD and isinstance(message, Now):
            return self._on_now(message)
        if sender == WORLD and isinstance(message, Forgone):
            return self._known(message.number, None)
        return super().receive(sender, message)

    def _ready(self) -> Sequence[Action]:
        """Make the first pull, or go on where an earlier run was."""
        if not self._open_lane():
            return ()
        arm, given = self._arm, self._given
        if given is None or not given.asked:
            return (self._pull(), *self._next())
        arm.units, arm.pulls, arm.memory = given.units, given.pulls, given.memory
        self._asked, self._pending, self._pulling = (
            given.asked,
            list(given.pending),
            bool(given.pending),
        )
        return (*(Pull(self.name, number) for number in self._pending), *self._next())

    def _pull(self) -> Pull:
        number, self._asked = self._asked, self._asked + 1
        self._pending.append(number)
        self._pulling = True
        return Pull(self.name, number)

    def _next(self) -> Sequence[Action]:
        """Wait for a decision to be wanted; at the end of the budget, for the last reward."""
        if self._end is not None or self._index > self._last:
            return () if self._pending else super()._next()
        if self._shortcut and self._explores():
            self._listening = True
            return ()
        if self._index % self._passes:
            return self._score()
        self._listening = False
        return (Turn(self.name, self._index),)

    def _on_now(self, message: Now) -> Sequence[Action]:
        if message.index != self._index or self._listening or self._end is not None:
            return ()
        return self._score()

    def _score(self) -> Sequence[Action]:
        assert self._lane is not None
        self._listening = True
        self._lane.prepare(self._index)
        return self.to_controller(Score(self._index, self._frame(self._explores())))

    def _on_reply(self, message: Reply) -> Sequence[Action]:
        index = self._index
        if message.index != index or not self._listening:
            return ()
        assert self._lane is not None
        chosen = self._lane.read(index, message.reply)
        self._index = index + 1
        if chosen and self._index % self._passes == 0:
            return (self._pull(), *self._next())
        return self._next()

    def _on_reward(self, message: Reward) -> Sequence[Action]:
        if not 0 <= message.units <= REWARD_ONE:
            raise ProtocolError(f"a reward must be in [0, 1], got {message.units / REWARD_ONE}.")
        return self._known(message.number, message.units)

    def _known(self, number: int, units: int | None) -> Sequence[Action]:
        """Count a reward, or give it up; one that came before changes nothing."""
        if number not in self._pending:
            return ()
        self._pending.remove(number)
        self._pulling = bool(self._pending)
        if units is not None:
            self._arm.units += units
            self._arm.pulls += 1
        return self._next() if self._end is not None or self._index > self._last else ()

    @property
    def arm_state(self) -> ArmState:
        """Its arm as it is now."""
        return ArmState(
            self._arm.units, self._arm.pulls, self._memory, self._asked, list(self._pending)
        )

    def save(self) -> dict[str, Any]:
        """Return the whole state, with the pulls that wait for rewards."""
        return {**super().save(), "asked": self._asked, "pending": list(self._pending)}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        rest = {name: value for name, value in saved.items() if name not in ("asked", "pending")}
        self._asked, self._pending = int(saved["asked"]), list(saved["pending"])
        super()._restore(rest)


class StrictOnDemand(OnDemand, StrictOwner):
    """The same at level `strict`."""

    def _counted(self, present: tuple[str, ...]) -> int:
        """Return the pulls that were asked for: the customer compares them with the steps done."""
        return self._asked if len(present) == self._arm.owners else 0


class OnDemandController(Controller):
    """A controller that begins a step without scores (level `paper`, exploring) when a decision is
    wanted.
    """

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        if sender == WORLD and isinstance(message, Now):
            wanted = message.index == self._index and not self._awaited
            return self._explore if wanted else ()
        return super().receive(sender, message)

    @property
    def _explore(self) -> Sequence[Action]:
        return ((CONTROLLER, "comp", Explore(self._index)),)

    def _begin(self) -> Sequence[Action]:
        actions = super()._begin()
        if actions != self._explore:
            return actions
        return (
            (Turn(CONTROLLER, self._index),)
            if self._index % self.manifest.terms.passes == 0
            else actions
        )


class LiveWorld(SimulatedWorld):
    """Counts rewards that came from outside."""

    def answered(self, ask: Ask, reward: float | None) -> None:
        """Count a reward; a turn, and a reward that was given up, are none."""
        if isinstance(ask, Pull) and reward is not None:
            super().answered(ask, reward)


class LiveRun(SambaRun):
    """Owners on demand, servers and customer in one process; a step makes one decision."""

    def __init__(
        self,
        system: AnySystem,
        settings: Samba,
        *,
        states: Sequence[ArmState] | None = None,
        done: int = 0,
        key: PrivateKey | None = None,
    ) -> None:
        self._states, self._steps_done = states, done
        super().__init__(system, settings, key=key, world="outside")

    def _warm_up(self) -> None:
        """Nobody counts the seconds of a bandit in use."""

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        strict, setup = self.settings.level == "strict", self._setup
        states = (
            None
            if self._states is None
            else {f"owner-{i + 1}": one for i, one in enumerate(self._states)}
        )
        owner = partial(StrictOnDemand if strict else OnDemand, states=states)
        return prepare(
            setup.arms,
            setup.policy,
            self.settings.horizon,
            seed=seed,
            level=self.settings.level,
            switches=setup.switches,
            key=self._key,
            kinds={"owner": owner, "controller": OnDemandController},
            done=self._steps_done,
            price=self.settings.price or (),
        )

    def _make_world(self, seed: int) -> LiveWorld:
        world = LiveWorld(
            self._setup.arms, seed, self.settings.horizon, points=self.settings.points
        )
        for arm, state in enumerate(self._states or ()):
            world.units[arm], world.pulls[arm] = state.units, state.pulls
        return world

    def _reply(self, ask: Ask, reward: float | None) -> Message:
        if isinstance(ask, Turn):
            return Now(ask.index)
        return Forgone(ask.number) if reward is None else super()._reply(ask, reward)  # type: ignore[attr-defined]

    def _advance(self, n: int) -> None:
        """Make a decision: let messages move until an owner pulls and everybody waits for the
        world.
        """
        open_pulls = len(self.asks)
        self.settle()
        if any(isinstance(ask, Pull) for ask in list(self.asks.values())[open_pulls:]):
            return  # the first pulls, which all owners make at once
        for number in [number for number, ask in self.asks.items() if isinstance(ask, Turn)]:
            self.answer(number, None)
        self.settle()

    def settle(self) -> None:
        """Let messages move until everybody waits for the world."""
        for note in self.memory:
            self._process_note(note)

    def asked_since(self, number: int) -> list[tuple[int, Pull]]:
        """Return the pulls that were asked for after an ask, in order, with their numbers."""
        found = []
        for asked, ask in reversed(self.memory.asks.items()):
            if asked <= number:
                break
            if isinstance(ask, Pull):
                found.append((asked, ask))
        return found[::-1]

    @property
    def key(self) -> PrivateKey | None:
        """The customer's key, for a run that goes on from this one."""
        return self._key

    @property
    def arm_states(self) -> list[ArmState]:
        """The arms as they are now."""
        return [role.arm_state for role in self.memory.roles.values() if isinstance(role, OnDemand)]

    def close(self) -> None:
        """End the run before its budget is spent, so that the customer has its total; level `paper`
        has no such end.
        """
        self.settle()
        customer = self.memory.roles[CUSTOMER]
        if not customer.finished and self.settings.level != "paper":
            owners = tuple(name for name, kind in self.kinds.items() if kind == "owner")
            self.memory.operate(CUSTOMER, End(owners))
            self.settle()
        self._over = True


class LiveTwin:
    """The plain twin, one decision at a time: the kernel of the simulation, on the rewards that
    came.
    """

    def __init__(
        self, settings: Samba, states: Sequence[ArmState] | None = None, done: int = 0
    ) -> None:
        setup = settings.load()
        count = len(setup.arms)
        nothing = EmpiricalArms(
            [[0.0]] * count, setup.arms.names
        )  # the kernel's own rewards are all 0
        self._twin = Twin(
            nothing,
            setup.policy,
            settings.horizon,
            [settings.seed],
            level=settings.level,
            permute=settings.permutation,
            mask=settings.mask,
            points=2,
        )
        start = setup.policy.start(count)
        self.arm_states = (
            [ArmState(memory=start) for _ in range(count)] if states is None else list(states)
        )
        self._twin.memory[0] = [state.memory for state in self.arm_states]
        self._twin.step = done

    def choose(self) -> tuple[int, int]:
        """Make the next step; return the arm and the number of its pull."""
        known = [
            (state.units, state.pulls) if state.pulls else SUPPOSED for state in self.arm_states
        ]
        self._twin.units[0], self._twin.pulls[0] = zip(*known, strict=True)
        self._twin.advance(1)
        arm = int(np.argmax(self._twin.pulls[0] - [pulls for _, pulls in known]))
        for state, memory in zip(self.arm_states, self._twin.memory[0].tolist(), strict=True):
            state.memory = memory
        state = self.arm_states[arm]
        state.pending.append(state.asked)
        state.asked += 1
        return arm, state.asked - 1

    def reward(self, arm: int, number: int, value: float | None) -> None:
        """Take a reward, or give it up."""
        state = self.arm_states[arm]
        state.pending.remove(number)
        if value is not None:
            state.units += to_units(value)
            state.pulls += 1


class SambaServing(Serving):
    """Decisions of Samba, by its roles or by its twin."""

    settings: Samba

    def __init__(self, settings: Samba, key: PrivateKey | None = None) -> None:
        self._system = system_of(settings)
        self.settings = settings
        self._key = key
        self._steps = 0
        self._roles, self._twin = self._begin(None)

    def _begin(self, states: Sequence[ArmState] | None) -> tuple[LiveRun | None, LiveTwin | None]:
        self._asks: dict[tuple[int, int], int] = {}
        """Pulls that are a decision whose reward has not come, and the numbers of their asks."""
        self._fresh: list[tuple[int, int]] = []
        """Pulls that are not a decision yet."""
        self._seen = 0
        if self.settings.path == "plain":
            return None, LiveTwin(self.settings, states, self._steps)
        run = LiveRun(self._system, self.settings, states=states, done=self._steps, key=self._key)
        self._key = run.key
        return run, None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.settings.load().arms.names

    @property
    def config(self) -> dict[str, Any]:
        """The settings, without those of data and of simulations."""
        left_out = {*ProblemSettings.model_fields, "horizon", "runs", "points", *PARAMETERS}
        return {
            name: value for name, value in self.settings.config().items() if name not in left_out
        }

    def choose(self, context: Any, client: int | None) -> Choice:
        """Choose an arm; nobody knows with which chance."""
        if context is not None or client is not None:
            raise ConfigError(
                "samba decides without context and client. Leave them out, or use fed-contextual."
            )
        key = self._asked_for() if self._twin is None else self._twin.choose()
        self._steps += 1
        return Choice(key[0], None, key)

    def _asked_for(self) -> tuple[int, int]:
        """Return the next pull: of the first ones, which all owners ask for at once, or of the next
        step.
        """
        assert self._roles is not None
        if not self._fresh:
            self._roles.step()
            self._take(self._roles)
        if not self._fresh:
            raise ProtocolError("no owner pulls: this is a defect, please report it.")
        return self._fresh.pop(0)

    def _take(self, run: LiveRun) -> None:
        """Take up the pulls that owners asked for since the last time."""
        for asked, pull in run.asked_since(self._seen):
            key = int(pull.party.removeprefix("owner-")) - 1, pull.number
            self._asks[key], self._seen = asked, asked
            self._fresh.append(key)

    def check_reward(self, value: float) -> None:
        """Rewards are in [0, 1]."""
        if not 0 <= value <= 1:
            raise ConfigError(f"a reward must be from 0 to 1, got {value:g}. Scale it.")

    def reward(self, key: tuple[int, ...], value: float | None) -> None:
        """Hand a reward to the owner of the arm."""
        arm, number = key
        if self._twin is not None:
            self._twin.reward(arm, number, value)
        else:
            assert self._roles is not None
            self._roles.answer(self._asks[arm, number], value)
            del self._asks[arm, number]

    def end_round(self) -> None:
        """Every reward is learnt from when it comes."""

    def finish(self) -> None:
        """Let the customer have its total, which must be what the owners earned."""
        if self._roles is not None:
            for arm, number in list(self._asks):
                self.reward((arm, number), None)
            self._roles.close()

    def record_fields(self) -> dict[str, Any]:
        """Return pulls and costs."""
        settings = self.settings
        run = self._roles
        pulls = [arm.pulls for arm in self._arms]
        show = presentation(
            self._system,
            settings,
            settings.owed(pulls),
            protection=settings.protection,
            implied=IMPLIED,
            learnt={},
        )
        fields: dict[str, Any] = {"pulls": [pulls], "seeds": (settings.seed,), "show": show}
        if run is not None:
            hops = sorted(run.traffic().items())
            fields["traffic"] = tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in hops)
            fields["role_seconds"] = run.role_seconds()
            fields["seconds"] = run.seconds
        return fields

    @property
    def _arms(self) -> list[ArmState]:
        return (self._twin or self._roles).arm_states  # type: ignore[union-attr]

    def save(self) -> Any:
        """Return the numbers of every arm, the same for roles and twin; a first pull that is no
        decision is none.
        """
        arms = [[one.units, one.pulls, one.memory, one.asked, one.pending] for one in self._arms]
        for arm, _ in self._fresh:
            arms[arm][3:] = [0, []]
        return {"steps": self._steps, "arms": arms}

    def load(self, saved: Any) -> None:
        """Go on from there, in a federation with fresh keys."""
        states = [
            ArmState(int(a), int(b), float(c), int(d), [int(n) for n in e])
            for a, b, c, d, e in saved["arms"]
        ]
        if len(states) != len(self.names):
            raise ValueError(f"{len(states)} arms")
        self._steps = int(saved["steps"])
        self._roles, self._twin = self._begin(states)
        if self._roles is not None:
            self._roles.settle()
            self._take(self._roles)
            self._fresh = [key for key in self._fresh if not states[key[0]].asked]


def serve(
    settings: Samba,
    arms: tuple[str, ...] | None,
    horizon: int | None,
    *,
    key: PrivateKey | None = None,
    features: int | None = None,
) -> SambaServing:
    """Serve decisions among named arms, or among those of the settings' data."""
    if features is not None:
        raise ConfigError(
            f"samba decides without context, got features {features}. Leave them out."
        )
    if arms is not None:
        settings = settings.but(means=(0.5,) * len(arms), names=arms, owners=None)
    return SambaServing(settings.but(horizon=LONGEST if horizon is None else horizon), key)


LIVE = Live(serve=serve)
