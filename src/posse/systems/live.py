"""A bandit in use: decisions now, rewards later, in any order, or never.

`live(settings)` makes a `Bandit` of a system that serves decisions in this process
(`Live.serve`): its plain twin, or its real roles. The world is the caller's program: it asks for
a decision, acts, and says later what it earned.

>>> import posse
>>> bandit = posse.live(posse.Samba(policy="ucb", path="plain"), arms=("red", "blue"))
>>> first = bandit.decide()
>>> first.name, bandit.reward(first.id, 0.5), bandit.reward(first.id, 0.5)
('red', True, False)
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.files import PRIVATE, write_whole
from posse.policies.decisions import Decision
from posse.results import words
from posse.results.record import Record
from posse.systems.base import RunSettings, not_protected
from posse.systems.modules import live_of
from posse.systems.registry import system_of

FORMAT = "posse live 1"
REWARDS = ("wait", "fold")
POINTS = 200
"""Points of a curve, at least; from twice as many on every other one is left out."""


Whole: TypeAlias = int | np.integer[Any]
Real: TypeAlias = int | float | np.integer[Any] | np.floating[Any] | np.bool_


class Choice(NamedTuple):
    """What a system chose: the arm, its chance where that is known, and plain values by which it
    knows the choice.
    """

    arm: int
    probability: float | None
    key: tuple[int, ...]


class Serving(ABC):
    """What a system gives to `live`: it makes choices, and takes the rewards of those that are
    open.

    A choice uses every reward that came before it and none that is open.
    """

    settings: RunSettings
    """The settings in force."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The settings that a choice depends on, as a record keeps them."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""

    @abstractmethod
    def choose(self, context: Any, client: int | None) -> Choice:
        """Choose an arm."""

    @abstractmethod
    def check(self, value: float) -> None:
        """Raise where a reward is outside its range."""

    @abstractmethod
    def reward(self, key: tuple[int, ...], value: float | None) -> None:
        """Take the reward of an open choice; None gives it up."""

    @abstractmethod
    def learn(self) -> None:
        """Learn from what came since the last time, where learning goes in rounds; others have
        learnt already.
        """

    @abstractmethod
    def finish(self) -> None:
        """Do what a protocol does at its end; open choices are given up before."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the fields of a record that the system knows: how often arms were pulled, what
        they earned, costs.
        """

    @abstractmethod
    def save(self) -> Any:
        """Return where it stands as plain values of JSON, without keys or masks."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Go on from there, with fresh keys."""


class Bandit:
    """A bandit in use; not safe to use from two threads at once.

    `rewards="wait"`: one decision at a time; the next one needs the reward of the last, or that it
    is dropped. `rewards="fold"`: decisions do not wait, and use the rewards that have come.
    """

    def __init__(
        self,
        serving: Serving,
        *,
        rewards: Literal["wait", "fold"] = "wait",
        horizon: int | None = None,
    ) -> None:
        self.settings, self.rewards, self.horizon = serving.settings, rewards, horizon
        self._serving = serving
        self._names = (
            serving.names
        )  # a system may look them up in its settings, and every decision has one
        self._made = 0
        self._open: dict[int, tuple[int, ...]] = {}
        self._finished = False
        self._earned, self._answered, self._stride = 0.0, 0, 1
        self._curve: list[tuple[int, float]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self._names

    @property
    def decisions(self) -> int:
        """Decisions made so far."""
        return self._made

    @property
    def pending(self) -> tuple[int, ...]:
        """Decisions whose reward has not come, the oldest first."""
        return tuple(self._open)

    @property
    def total(self) -> float:
        """Sum of the rewards that came."""
        return self._earned

    def __repr__(self) -> str:
        kind, arms = type(self.settings).__name__, len(self.names)
        state = "finished" if self._finished else f"{len(self._open)} open"
        return (
            f"<Bandit of {kind}: {arms} arms, {self._made:,} decisions, {state}, earned "
            f"{self._earned:g}>"
        )

    def decide(self, context: Any = None, *, client: Whole | None = None) -> Decision:
        """Choose an arm, by every reward that has come so far.

        `context` is what is known about this decision, and `client` the number of the device that
        it is made on, for systems that learn from contexts on devices.
        """
        self._check_ready()
        choice = self._serving.choose(context, _whole(client))
        made = Decision(self._made, choice.arm, self.names[choice.arm], choice.probability)
        self._open[made.id], self._made = choice.key, self._made + 1
        return made

    def decide_many(
        self, contexts: Whole | Iterable[Any], *, client: Whole | None = None
    ) -> list[Decision]:
        """Make a batch of decisions: so many, or one a context; with `rewards="fold"`."""
        each = _each(contexts)
        if self.rewards == "wait" and len(each) > 1:
            raise ConfigError(
                f"with rewards='wait' decisions come one at a time, got a batch of {len(each)}. "
                "Make the bandit with "
                "rewards='fold'."
            )
        return [self.decide(context, client=client) for context in each]

    def reward(self, id: Whole, value: Real) -> bool:
        """Take the reward of a decision; return whether it counts.

        Of several rewards for one decision the first counts, and one for a decision that was
        dropped does not.
        """
        id = self._number(id)
        if id not in self._open:
            return False
        if not isinstance(
            value, int | float | np.integer | np.floating | np.bool_
        ) or not math.isfinite(value):
            raise ConfigError(f"a reward must be a finite number, got {value!r}.")
        self._serving.check(float(value))
        self._serving.reward(self._open[id], float(value))
        del self._open[id]
        self._count(float(value))
        return True

    def reward_many(self, rewards: Mapping[Whole, Real]) -> int:
        """Take the rewards of several decisions; return how many count."""
        return sum(self.reward(id, value) for id, value in rewards.items())

    def drop(self, id: Whole) -> bool:
        """Give up the reward of a decision; return whether it was open."""
        id = self._number(id)
        if id not in self._open:
            return False
        self._serving.reward(self._open[id], None)
        del self._open[id]
        return True

    def learn(self) -> None:
        """End a round, where a system learns in rounds; each does so by itself after some
        decisions.
        """
        self._serving.learn()

    def finish(self) -> Record:
        """Give up what is open, end the protocol and return the record."""
        if not self._finished:
            for id in self.pending:
                self.drop(id)
            self._serving.finish()
            self._finished = True
        return self.record("finished")

    def record(self, status: str | None = None) -> Record:
        """Return the record of what was decided and earned so far."""
        settings, system = self.settings, system_of(self.settings)
        points = sorted(
            {
                **dict(self._curve),
                **({self._answered: self._earned} if self._answered else {}),
            }.items()
        )
        own, status = (
            self._serving.fields(),
            status or ("finished" if self._finished else "running"),
        )
        summary = {**own.pop("summary", {}), "steps_done": self._made, "pending": len(self._open)}
        show = {**own.pop("show", {}), "headline": self._headline(), "in_use": self.horizon is None}
        # A step is a decision here, also where a simulation counts rounds.
        nouns = {**system.about.nouns, "step": "decision"}
        return Record(
            kind=system.name,
            level=system.level_of(settings),
            leaks=not_protected(system, settings),
            problem={
                "name": "live",
                "names": list(self.names),
                **own.pop("problem", {}),
                "words": nouns,
            },
            config={
                **self._serving.config,
                "horizon": self.horizon or self._made,
                "rewards": self.rewards,
            },
            steps=np.array([step for step, _ in points], np.int64),
            reward=np.array([[sum_ for _, sum_ in points]]),
            total=(self._earned,),
            status=status,
            summary=summary,
            show=show,
            **own,
        )

    def _headline(self) -> str:
        waiting = f", {len(self._open):,} of them without a reward yet" if self._open else ""
        return (
            f"earned {words.number(self._earned)} in {words.count(self._made, 'decision')}{waiting}"
        )

    def save(self, path: str | Path) -> None:
        """Write where the bandit stands, to a file that only its owner reads: it holds what each
        arm earned.
        """
        state = {
            "format": FORMAT,
            "system": self.settings.system,
            "settings": self._serving.config,
            "arms": list(self.names),
            "rewards": self.rewards,
            "horizon": self.horizon,
            "made": self._made,
            "finished": self._finished,
            "open": [[id, list(key)] for id, key in self._open.items()],
            "curve": [
                self._earned,
                self._answered,
                self._stride,
                [list(point) for point in self._curve],
            ],
            "serving": self._serving.save(),
        }
        write_whole(path, json.dumps(state).encode(), mode=PRIVATE)

    def load(self, path: str | Path) -> Bandit:
        """Go on from a file of `save`, made with the same settings; return this bandit.

        Decisions that were open when it was saved are open again; what came after is as if it had
        not been.
        """
        state = _read(Path(path))
        mine = {"settings": self._serving.config, "arms": list(self.names), "rewards": self.rewards}
        for name, value in json.loads(json.dumps(mine)).items():
            if state.get(name) != value:
                where, there, here = _differs(name, state.get(name), value)
                raise ConfigError(
                    f"{path} is of a bandit with {where} {there!r}, got {here!r}. Make this one "
                    "alike."
                )
        try:
            made, finished = int(state["made"]), bool(state["finished"])
            opened = {int(id): tuple(int(part) for part in key) for id, key in state["open"]}
            earned, answered, stride, curve = state["curve"]
            points = [(int(step), float(sum_)) for step, sum_ in curve]
            self._serving.load(state["serving"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error}). Take an older copy.") from None
        self._made, self._finished, self._open, self._curve = made, finished, opened, points
        self._earned, self._answered, self._stride = float(earned), int(answered), int(stride)
        return self

    def _check_ready(self) -> None:
        if self._finished:
            raise ConfigError("this bandit is finished. Make another one with posse.live.")
        if self.horizon is not None and self._made >= self.horizon:
            raise ConfigError(
                f"the horizon of {self.horizon} decisions is reached. Call finish() for the record."
            )
        if self.rewards == "wait" and self._open:
            id = next(iter(self._open))
            raise ConfigError(
                f"decision {id} waits for its reward. Call reward({id}, value), or drop({id}) if "
                "none will come; with "
                "rewards='fold' decisions do not wait."
            )

    def _number(self, id: Whole) -> int:
        """Return the number of a decision as Python's own; raise where it was never made."""
        if isinstance(id, bool) or not isinstance(id, int | np.integer) or not 0 <= id < self._made:
            raise ConfigError(
                f"there is no decision {id!r}: {self._made} were made. Give the id of a Decision."
            )
        return int(id)

    def _count(self, value: float) -> None:
        self._earned += value
        self._answered += 1
        if self._answered % self._stride:
            return
        self._curve.append((self._answered, self._earned))
        if len(self._curve) >= 2 * POINTS:
            self._curve, self._stride = self._curve[1::2], 2 * self._stride


def live(
    settings: RunSettings,
    *,
    arms: Sequence[str] | None = None,
    features: int | None = None,
    rewards: Literal["wait", "fold"] = "wait",
    horizon: int | None = None,
    **options: Any,
) -> Bandit:
    """Make a bandit that is used from this process.

    `arms` are names instead of those of the settings' data, and `features` the numbers of a context
    where the system takes contexts; `horizon` is the number of decisions, and None goes on for as
    long as it is used (the horizon of the settings is one of simulations). `options` are those of
    the system's own `serve`.
    """
    if not isinstance(settings, RunSettings):
        raise ConfigError(
            f"live takes the settings of a system, got {settings!r}. Give such as posse.Samba()."
        )
    check.one_of(REWARDS, rewards=rewards)
    arms = list(arms) if isinstance(arms, Iterator) else arms
    horizon, features = _whole(horizon), _whole(features)
    if horizon is not None:
        check.at_least(1, horizon=horizon)
    if arms is not None and not _are_names(arms):
        raise ConfigError(
            f"arms must be two or more different names, got {arms!r}. Give such as ('red', 'blue')."
        )
    if settings.runs != 1:
        raise ConfigError(f"a bandit in use is one run, got runs {settings.runs}. Leave runs out.")
    if features is not None:
        options["features"] = features
    serving = live_of(system_of(settings)).serve(
        settings, None if arms is None else tuple(str(name) for name in arms), horizon, **options
    )
    return Bandit(serving, rewards=rewards, horizon=horizon)


def _each(contexts: Any) -> Sequence[Any]:
    """Return the contexts of a batch; so many times none, where a number is given."""
    if isinstance(contexts, int | np.integer) and not isinstance(contexts, bool) and contexts >= 0:
        return [None] * int(contexts)
    if isinstance(contexts, str) or not isinstance(contexts, Iterable):
        raise ConfigError(
            f"a batch is a number of decisions or a list of contexts, got {contexts!r}."
        )
    return list(contexts)


def _whole(number: Any) -> Any:
    """Return a whole number of numpy's as Python's own, which files keep; anything else as it
    is.
    """
    return int(number) if isinstance(number, np.integer) else number


def _are_names(arms: Any) -> bool:
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        return False
    names = list(arms)
    return (
        len(names) > 1
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no saved bandit {path}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"the saved bandit {path} cannot be read: {error}.") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise DataError(f"{path} is not a saved bandit. Take a file that bandit.save wrote.")
    return state


def _differs(name: str, there: Any, here: Any) -> tuple[str, Any, Any]:
    """Return the first setting in which two differ, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
            if there.get(key) != here.get(key):
                return key, there.get(key), here.get(key)
    return name, there, here
