"""Live bandits: decide now, and receive rewards later, in any order, or never.

`live(settings)` makes a `Bandit`. The caller's program asks it for a decision, acts, and reports
the reward later. The decisions come from the plain twin of a system, or from its roles, in this
process.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from functools import partial
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
"""Format of saved bandits."""
POINTS = 200
"""Number of points of a curve after every other point was removed (`RewardCurve.add`)."""

Integer: TypeAlias = int | np.integer[Any]
Number: TypeAlias = int | float | np.integer[Any] | np.floating[Any] | np.bool_
_NUMBER_TYPES = (int, float, np.integer, np.floating, np.bool_)


class Choice(NamedTuple):
    """An arm that a system chose."""

    arm: int
    probability: float | None
    """Probability with which the system chose this arm; None if it is unknown."""
    key: tuple[int, ...]
    """Identifies the choice for the system: `Bandit` passes it on with the reward."""


class Serving(ABC):
    """What a system implements for `live`: it chooses arms, and learns from rewards.

    `Bandit` checks the user's calls before it calls these methods. A choice is *open* until its
    reward arrives, or the user drops it. Each choice uses all rewards that arrived before.
    """

    settings: RunSettings
    """The settings in use, with all values that the system has filled in."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The settings that a choice depends on, as a record stores them."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""

    @abstractmethod
    def choose(self, context: Any, client: int | None) -> Choice:
        """Choose an arm.

        Args:
            context: The features of this decision; None for systems without contexts.
            client: Number of the device that decides; None for systems without devices.
        """

    @abstractmethod
    def check_reward(self, value: float) -> None:
        """Raise an error if the value of a reward is outside the range of rewards."""

    @abstractmethod
    def reward(self, key: tuple[int, ...], value: float | None) -> None:
        """Receive the reward of the open choice `key`; None if the reward will never arrive."""

    @abstractmethod
    def end_round(self) -> None:
        """End the current round of learning. Does nothing if the system learns from each reward."""

    @abstractmethod
    def finish(self) -> None:
        """End the protocol. `Bandit` calls this method when no choice is open."""

    @abstractmethod
    def record_fields(self) -> dict[str, Any]:
        """Return fields that the system adds to the record, such as pulls and costs."""

    @abstractmethod
    def save(self) -> Any:
        """Return the state as plain JSON values, without keys or masks."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Continue from a state that `save` returned, with new keys."""


@dataclass
class RewardCurve:
    """The sum of rewards over time, with a limited number of points."""

    total: float = 0.0
    count: int = 0
    """Number of rewards."""
    stride: int = 1
    """Number of rewards between two points."""
    points: list[tuple[int, float]] = field(default_factory=list)
    """Pairs (n, sum of the first n rewards)."""

    def add(self, reward: float) -> None:
        """Add a reward. If the curve then has too many points, remove every other point."""
        self.total += reward
        self.count += 1
        if self.count % self.stride == 0:
            self.points.append((self.count, self.total))
        if len(self.points) >= 2 * POINTS:
            # Points are at stride, 2 stride, 3 stride, ...; keep the points at even multiples.
            self.points = self.points[1::2]
            self.stride *= 2

    def sums(self) -> dict[int, float]:
        """Return the sum of rewards at each point and at the end, by the number of rewards."""
        sums = dict(self.points)
        if self.count:
            sums[self.count] = self.total
        return sums


class Bandit:
    """A bandit that decides now and receives the rewards later.

    With `rewards="wait"`, the reward of a decision must arrive, or be dropped, before the next
    decision. With `rewards="fold"`, a decision does not wait: it uses (folds in) the rewards that
    have arrived. Two threads must not use a bandit at the same time.
    """

    def __init__(
        self,
        serving: Serving,
        *,
        rewards: Literal["wait", "fold"] = "wait",
        horizon: int | None = None,
        make_serving_with_old_defaults: Callable[[], Serving] | None = None,
    ) -> None:
        self.settings = serving.settings
        self.rewards = rewards
        """"wait" or "fold": whether a decision waits for the reward of the previous one."""
        self.horizon = horizon
        """Largest number of decisions; None if there is no limit."""
        self._serving = serving
        # Used by `load` if version 0.1, which had other defaults, saved the bandit.
        self._make_serving_with_old_defaults = make_serving_with_old_defaults
        # Every decision needs a name, and `serving.names` may search the data. So read it once.
        self.names = serving.names
        """Names of the arms."""
        self.decisions = 0
        """Number of decisions so far."""
        # `Choice.key` of each open choice, by the id of the decision.
        self._open: dict[int, tuple[int, ...]] = {}
        self._finished = False
        self._curve = RewardCurve()

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the decisions that wait for a reward, the oldest first."""
        return tuple(self._open)

    @property
    def total(self) -> float:
        """Sum of the rewards so far."""
        return self._curve.total

    def __repr__(self) -> str:
        kind = type(self.settings).__name__
        state = "finished" if self._finished else f"{len(self._open)} open"
        return (
            f"<Bandit of {kind}: {len(self.names)} arms, {self.decisions:,} decisions, {state}, "
            f"earned {self.total:g}>"
        )

    def decide(self, context: Any = None, *, client: Integer | None = None) -> Decision:
        """Choose an arm. The choice uses all rewards that have arrived.

        Args:
            context: The features of this decision, for systems that learn from contexts.
            client: Number of the device that decides, for systems that learn on devices.

        Raises:
            ConfigError: The bandit is finished, its horizon is reached, or the reward of the
                previous decision is missing (`rewards="wait"`).
        """
        self._check_can_decide()
        choice = self._serving.choose(context, _python_integer(client))
        number = self.decisions
        self._open[number] = choice.key
        self.decisions += 1
        return Decision(number, choice.arm, self.names[choice.arm], choice.probability)

    def decide_many(
        self, contexts: Integer | Iterable[Any], *, client: Integer | None = None
    ) -> list[Decision]:
        """Make several decisions at once. More than one needs `rewards="fold"`.

        Args:
            contexts: One context for each decision. For systems without contexts, the number of
                decisions.
            client: Number of the device that decides, for systems that learn on devices.
        """
        batch = _batch_contexts(contexts)
        if self.rewards == "wait" and len(batch) > 1:
            raise ConfigError(
                f"with rewards='wait' decisions come one at a time, got a batch of {len(batch)}. "
                "Make the bandit with rewards='fold'.",
                rule="systems.rewards.batch-must-wait",
            )
        return [self.decide(context, client=client) for context in batch]

    def reward(self, id: Integer, value: Number) -> bool:
        """Receive the reward of a decision; return whether the decision waited for its reward.

        A decision waits until its first reward arrives, or until `drop`. Later rewards of the same
        decision have no effect.

        Raises:
            ConfigError: There is no such decision, or the reward is outside its range.
        """
        number = self._checked_id(id)
        if number not in self._open:
            return False
        if not isinstance(value, _NUMBER_TYPES) or not math.isfinite(value):
            raise ConfigError(
                f"a reward must be a finite number, got {value!r}.",
                rule="systems.reward.not-finite",
            )
        amount = float(value)
        self._serving.check_reward(amount)
        # If the next line raises an error, the decision still waits.
        self._serving.reward(self._open[number], amount)
        del self._open[number]
        self._curve.add(amount)
        return True

    def reward_many(self, rewards: Mapping[Integer, Number]) -> int:
        """Receive several rewards, by the ids of their decisions.

        Returns how many of these decisions waited for their reward.
        """
        waited = [self.reward(id, value) for id, value in rewards.items()]
        return waited.count(True)

    def drop(self, id: Integer) -> bool:
        """Stop waiting for the reward of a decision; return whether the decision waited for it."""
        number = self._checked_id(id)
        if number not in self._open:
            return False
        self._serving.reward(self._open[number], None)
        del self._open[number]
        return True

    def learn(self) -> None:
        """End the current round of learning now, for systems that learn in rounds.

        A round also ends without this call. In systems that learn from each reward, the call does
        nothing.
        """
        self._serving.end_round()

    def finish(self) -> Record:
        """Drop the decisions that wait for a reward, end the protocol, and return the record.

        A second call only returns the record.
        """
        if not self._finished:
            for id in self.pending:
                self.drop(id)
            self._serving.finish()
            self._finished = True
        return self.record("finished")

    def record(self, status: str | None = None) -> Record:
        """Return the record of all decisions and rewards so far.

        By default the status of the record is "finished" after `finish`, and "running" before.
        """
        system = system_of(self.settings)
        fields = self._serving.record_fields()
        # `problem`, `summary` and `show` have entries of the system and entries of every bandit.
        problem = {
            "name": "live",
            "names": list(self.names),
            **fields.pop("problem", {}),
            # A step of a live bandit is a decision, even if a step of the system's runs is a round.
            "words": {**system.about.nouns, "step": "decision"},
        }
        summary = fields.pop("summary", {})
        show = fields.pop("show", {})
        # If the bandit has no horizon, the record has the number of decisions so far.
        horizon = self.horizon or self.decisions
        sums = self._curve.sums()
        return Record(
            kind=system.name,
            level=system.level_of(self.settings),
            leaks=not_protected(system, self.settings),
            problem=problem,
            config=self._serving.config | {"horizon": horizon, "rewards": self.rewards},
            steps=np.array(list(sums), np.int64),
            reward=np.array([list(sums.values())]),
            total=(self.total,),
            status=status or ("finished" if self._finished else "running"),
            summary={**summary, "steps_done": self.decisions, "pending": len(self._open)},
            show={**show, "headline": self._headline(), "in_use": self.horizon is None},
            **fields,
        )

    def _headline(self) -> str:
        decisions = words.count(self.decisions, "decision")
        text = f"earned {words.number(self.total)} in {decisions}"
        if self._open:
            text += f", {len(self._open):,} of them without a reward yet"
        return text

    def save(self, path: str | Path) -> None:
        """Write the state to a file. A bandit with the same settings can `load` the file.

        Only the owner of the file may read it, because it contains the sum of the rewards of each
        arm.
        """
        state = {
            "format": FORMAT,
            "system": self.settings.system,
            "settings": self._serving.config,
            "arms": list(self.names),
            "rewards": self.rewards,
            "horizon": self.horizon,
            "made": self.decisions,
            "finished": self._finished,
            "open": list(self._open.items()),
            "curve": astuple(self._curve),
            "serving": self._serving.save(),
        }
        write_whole(path, json.dumps(state).encode(), mode=PRIVATE)

    def _setup_with(self, serving: Serving) -> dict[str, Any]:
        """Return what a file must contain, so that this bandit can load the file with `serving`."""
        setup = {**serving.config, "arms": list(self.names), "rewards": self.rewards}
        # A file has JSON, in which tuples are lists. Convert the values to compare them with a file.
        return dict(json.loads(json.dumps(setup)))

    def load(self, path: str | Path) -> Bandit:
        """Continue from a file that `save` of a bandit with the same settings wrote.

        A decision that waited for its reward when the file was saved waits again. Decisions that
        were made later are forgotten. If the file was saved with the defaults of version 0.1, the
        bandit takes these defaults for settings that were left out. Returns this bandit.

        Raises:
            ConfigError: The file belongs to a bandit with other settings.
            DataError: The file cannot be read, or is damaged.
        """
        state = _read_state(Path(path))
        try:
            serving = self._matching_serving(state, path)
            decisions = int(state["made"])
            finished = bool(state["finished"])
            open_keys = {int(id): tuple(map(int, key)) for id, key in state["open"]}
            total, count, stride, pairs = state["curve"]
            points = [(int(step), float(value)) for step, value in pairs]
            curve = RewardCurve(float(total), int(count), int(stride), points)
            serving.load(state["serving"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} is damaged ({error}). Take an older copy.", rule="systems.saved.damaged"
            ) from None
        self._serving = serving
        self.settings = serving.settings
        self.decisions = decisions
        self._finished = finished
        self._open = open_keys
        self._curve = curve
        return self

    def _matching_serving(self, state: Mapping[str, Any], path: str | Path) -> Serving:
        """Return the `Serving` with the settings of a saved state.

        This is the present one, or one with the defaults of version 0.1.

        Raises:
            ConfigError: The state, which was read from `path`, belongs to a bandit with other
                settings.
        """
        name = self._different_setting(state, self._serving)
        if name is None:
            return self._serving
        # Version 0.1 may have saved the state. It had other defaults for settings that were left out.
        if self._make_serving_with_old_defaults is not None:
            serving = self._make_serving_with_old_defaults()
            if self._different_setting(state, serving) is None:
                return serving
        saved = _saved_setup(state)
        expected = self._setup_with(self._serving)
        raise ConfigError(
            f"{path} was saved with {name} {saved.get(name)!r}, got {expected.get(name)!r}. Make "
            "this bandit with the same settings.",
            rule="systems.saved.other-settings",
            field=name,
        )

    def _different_setting(self, state: Mapping[str, Any], serving: Serving) -> str | None:
        """Return the name of the first setting whose values in a state and in `serving` differ.

        Returns None if all values are equal.
        """
        saved = _saved_setup(state)
        expected = self._setup_with(serving)
        for name in saved | expected:  # a setting may be in only one of the two
            if saved.get(name) != expected.get(name):
                return name
        return None

    def _check_can_decide(self) -> None:
        """Raise an error if no decision can be made now."""
        if self._finished:
            raise ConfigError(
                "this bandit is finished. Make another one with posse.live.",
                rule="systems.bandit.finished",
            )
        if self.horizon is not None and self.decisions >= self.horizon:
            raise ConfigError(
                f"the horizon of {self.horizon} decisions is reached. Call finish() for the "
                "record.",
                rule="systems.horizon.reached",
            )
        if self.rewards == "wait" and self._open:
            id = self.pending[0]
            raise ConfigError(
                f"decision {id} waits for its reward. Call reward({id}, value), or drop({id}) if "
                "none will come; with rewards='fold' decisions do not wait.",
                rule="systems.rewards.pending",
            )

    def _checked_id(self, id: Integer) -> int:
        """Return the id of a decision as a Python integer; raise an error for any other value."""
        number = _integer_or_none(id)
        if number is None or not 0 <= number < self.decisions:
            raise ConfigError(
                f"there is no decision {id!r}: {self.decisions} were made. Give the id of a "
                "Decision.",
                rule="systems.id.unknown",
            )
        return number


def live(
    settings: RunSettings,
    *,
    arms: Iterable[str] | None = None,
    features: int | None = None,
    rewards: Literal["wait", "fold"] = "wait",
    horizon: int | None = None,
    **options: Any,
) -> Bandit:
    """Make a bandit that decides in this process.

    Args:
        settings: Settings of a system that serves decisions.
        arms: Names of the arms; by default those of the data in the settings.
        features: Number of features of a context, for systems that learn from contexts.
        rewards: Whether each decision waits for the reward of the previous one ("wait"), or uses
            the rewards that have arrived ("fold").
        horizon: Largest number of decisions; by default there is no limit. The horizon of the
            settings is only for simulations.
        options: Options that only this system takes (`Live.serve`).
    """
    if not isinstance(settings, RunSettings):
        raise ConfigError(
            f"live takes the settings of a system, such as posse.Samba(), got {settings!r}.",
            rule="systems.settings.wrong-type",
        )
    check.one_of(("wait", "fold"), rewards=rewards)
    horizon = _python_integer(horizon)
    if horizon is not None:
        check.at_least(1, horizon=horizon)
    names = _checked_arm_names(arms)
    if settings.runs != 1:
        raise ConfigError(
            f"a live bandit is one run, got runs={settings.runs}. Remove the setting 'runs'.",
            rule="systems.runs.more-than-one",
        )
    if features is not None:
        options["features"] = _python_integer(features)
    serve = live_of(system_of(settings)).serve
    make_serving_with_old_defaults = None
    old_settings = _settings_with_old_defaults(settings)
    if old_settings is not None:
        make_serving_with_old_defaults = partial(serve, old_settings, names, horizon, **options)
    return Bandit(
        serve(settings, names, horizon, **options),
        rewards=rewards,
        horizon=horizon,
        make_serving_with_old_defaults=make_serving_with_old_defaults,
    )


def _settings_with_old_defaults(settings: RunSettings) -> RunSettings | None:
    """Return the settings with the defaults of version 0.1 for all settings that were left out.

    A bandit that version 0.1 saved may have these defaults. Returns None if no setting that was left
    out had another default.
    """
    old_defaults = {
        name: value
        for name, value in settings.defaults_in_version_0_1.items()
        if name not in settings.model_fields_set
    }
    return settings.but(**old_defaults) if old_defaults else None


def _integer_or_none(value: object) -> int | None:
    """Return an integer of Python or numpy as a Python integer; None for any other value."""
    # In Python, a bool is an int.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return int(value)


def _python_integer(value: Any) -> Any:
    """Return an integer of numpy as one of Python, for JSON; any other value unchanged."""
    return int(value) if isinstance(value, np.integer) else value


def _batch_contexts(contexts: Integer | Iterable[Any]) -> list[Any]:
    """Return a list with one context for each decision of a batch; None for one without context."""
    count = _integer_or_none(contexts)
    if count is not None and count >= 0:
        return [None] * count
    if isinstance(contexts, str) or not isinstance(contexts, Iterable):
        raise ConfigError(
            f"a batch is a number of decisions or a list of contexts, got {contexts!r}.",
            rule="systems.contexts.not-a-batch",
        )
    return list(contexts)


def _checked_arm_names(arms: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of arms; raise an error unless they are two or more different texts.

    None means the names of the arms in the data; it is returned unchanged.
    """
    if arms is None:
        return None
    # A text would be taken for a list of its letters.
    is_list = isinstance(arms, Iterable) and not isinstance(arms, str)
    names = tuple(arms) if is_list else ()
    different_texts = {name for name in names if isinstance(name, str)}
    if len(names) < 2 or len(different_texts) < len(names):
        raise ConfigError(
            f"arms must be two or more different names, got {arms!r}. Example: ('red', 'blue').",
            rule="systems.arms.not-names",
        )
    return names


def _saved_setup(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings and arguments of the bandit that saved a state (`_setup_with`)."""
    return {**state["settings"], "arms": state["arms"], "rewards": state["rewards"]}


def _read_state(path: Path) -> dict[str, Any]:
    """Read a file that `Bandit.save` wrote; raise an error for any other file."""
    try:
        state = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise DataError(
            f"the saved bandit {path} cannot be read: {error}.", rule="systems.saved.unreadable"
        ) from None
    if state.get("format") != FORMAT:
        raise DataError(
            f"{path} is not a saved bandit. Use a file that bandit.save wrote.",
            rule="systems.saved.not-a-bandit",
        )
    return state
