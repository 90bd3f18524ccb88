"""A budget, or noise, from flags, a file or Python: the settings of `posse budget`."""

from __future__ import annotations

from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.privacy.dp.budget import Budget, check_delta
from posse.privacy.dp.plans import Plan, plan, plan_of_noise
from posse.privacy.dp.schedules import communication_rounds


class BudgetSettings(Settings):
    """What may be spent, for what, and over which messages; or the noise there is, to see what it proves."""

    epsilon: float | None = None
    """Epsilon that may be spent, together with delta (default: 1, unless noise is given)."""
    noise: tuple[float, ...] | None = None
    """Noise there is instead of an epsilon: standard deviation over capacity, one for all messages or one for each,
    such as 2.66 or 10,20,40."""
    delta: float = 0.01
    """Delta that goes with epsilon; below 1."""
    unit: Literal["entry", "round", "history"] = "entry"
    """What is protected: one purchase from one producer in one round, all purchases of a round, or everything an agent
    buys."""
    schedule: Literal["paper", "equal", "tight"] | None = None
    """How the budget becomes noise: as published, the same for all messages, or the least (default: tight)."""
    rounds: int = 100_000
    """Rounds played."""
    start: int = 200
    """Round of the first message; the others follow at twice, four times, ... that round."""
    stop: int = 40_000
    """No messages after this round."""
    producers: int = 30
    """Producers that an agent buys from."""

    def plan(self) -> Plan:
        """Make the plan, or say in one line what is wrong.

        >>> BudgetSettings(epsilon=1).plan().guarantee().figure
        '(1, 0.01)'
        >>> BudgetSettings(noise=[2.66]).plan().guarantee().figure
        '(0.9979, 0.01)'
        """
        check.at_least(1, rounds=self.rounds)
        check.at_least(1, producers=self.producers)
        check_delta(self.delta)
        messages = communication_rounds(self.start, self.stop, self.rounds)
        if self.noise is None:
            budget = Budget(1.0 if self.epsilon is None else self.epsilon, self.delta)
            return plan(
                budget, self.unit, self.schedule or "tight", rounds=messages, producers=self.producers,
                horizon=self.rounds, stop=self.stop,
            )  # fmt: skip
        self._noise_alone()
        return plan_of_noise(self.noise, self.unit, rounds=messages, producers=self.producers, delta=self.delta)

    def _noise_alone(self) -> None:
        """Refuse noise together with what would make noise."""
        for name in ("epsilon", "schedule"):
            if getattr(self, name) is not None:
                raise ConfigError(f"give {name} or noise, not both: noise is what {name} would make.")
