"""The settings of `posse budget arms`."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from posse.core import check
from posse.core.settings import Settings
from posse.privacy.dp.arms import ArmChoice, Arms
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.protocols.mpc_contextual.terms import exploration


class ArmSettings(Settings):
    """How many arms, how often one is drawn at random, and how often it is told which was pulled."""

    arms: int = 10
    """Number of arms."""
    epsilon: str = "0.1"
    """Exploration rate, a number or a fraction such as 1/3: so often the arm is drawn at random."""
    steps: int = 1
    """Steps whose arm the puller sees."""
    delta: float = 1e-5
    """Delta of the figure for all steps together."""
    limit: float | None = None
    """Largest epsilon (with delta) that one context may cost: tells how many steps that allows."""

    @field_validator("epsilon", mode="before")
    @classmethod
    def _text(cls, given: Any) -> Any:
        """Take numbers as they were written."""
        return repr(given) if isinstance(given, int | float) and not isinstance(given, bool) else given

    def ledger(self) -> Ledger[Arms]:
        """Return a ledger with the steps paid for."""
        check.at_least(1, steps=self.steps)
        few, many = exploration(self.epsilon)
        ledger = Ledger(Arms(ArmChoice(self.arms, few / many), delta=self.delta))
        ledger.spend(times=self.steps)
        return ledger

    def most_steps(self, ledger: Ledger[Arms]) -> int | None:
        """Return the steps that the limit allows; None for any number, or without a limit."""
        return None if self.limit is None else ledger.mechanism.choice.most_rounds(Budget(self.limit, self.delta))
