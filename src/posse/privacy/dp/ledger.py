"""One agent's ledger: nothing is released before it is paid for.

Other protocols keep ledgers of their own over `Spending`, with their own blocks and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.guarantee import Guarantee, figure
from posse.privacy.dp.plans import Plan
from posse.privacy.dp.spending import Spending


class Ledger:
    """What one party has released under a plan; refuses a release that would exceed the plan's budget.

    A window released again, with fresh noise, is one more release about the same data and is composed with the first. A
    plan without a budget is counted and never refused.

    >>> from posse.privacy.dp.budget import Budget
    >>> from posse.privacy.dp.plans import plan
    >>> ledger = Ledger(plan(Budget(1, 0.01), rounds=(200, 400), producers=30), "agent-1")
    >>> round(ledger.spend(0), 4), round(ledger.spend(1), 4)
    (1.0, 1.0)
    >>> ledger.spend(1)
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] agent-1 cannot send message 2 (round 400) once more: it would have spent
    (1.587, 0.01) of (1, 0.01). Send what was sent before, or plan with a larger budget.
    """

    __slots__ = ("_figures", "_released", "_spending", "party", "plan")

    def __init__(self, plan: Plan, party: str) -> None:
        self.plan = plan
        self.party = party
        self._spending = Spending(plan.delta)
        self._released: list[int] = []
        self._figures: list[float] = []

    @property
    def epsilon(self) -> float:
        """What was spent so far, at the plan's delta."""
        return self._spending.epsilon

    def spend(self, z: int) -> float:
        """Pay for message z = 0, 1, ... before it is released, and return the epsilon spent so far.

        Raises `BudgetError` and changes nothing where the figure would exceed the budget.
        """
        block, event = self.plan.event(self._known(z))
        epsilon = self._spending.quote(block, event)
        if self.plan.budget is not None and epsilon > self.plan.budget.epsilon:
            raise BudgetError(self._refusal(z, epsilon))
        self._spending.record(block, event)
        self._released.append(z)
        self._figures.append(epsilon)
        return epsilon

    def guarantee(self) -> Guarantee:
        """Return what the releases so far prove."""
        return self.plan.proved(self._spending)

    def entries(self) -> list[dict[str, str | int | float]]:
        """Return a row for every release, in the order of release."""
        return [
            {
                "party": self.party,
                "release": number,
                "message": z + 1,
                "round": self.plan.rounds[z],
                "window": self.plan.windows[z],
                "multiplier": self.plan.multipliers[z],
                "noise_multiplier": self.plan.noise_multiplier(z),
                "unit": self.plan.unit.name,
                "epsilon": epsilon,
                "delta": self.plan.delta,
            }
            for number, (z, epsilon) in enumerate(zip(self._released, self._figures, strict=True), start=1)
        ]

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restored` makes the ledger again."""
        return {
            "party": self.party,
            "released": list(self._released),
            "plan": _kept(self.plan),
        }

    @classmethod
    def restored(cls, plan: Plan, state: Mapping[str, Any]) -> Ledger:
        """Make a ledger from its state, under the plan it was kept with."""
        if list(state["plan"]) != _kept(plan):
            raise ConfigError(
                "the ledger was kept under another plan: noise, rounds, unit or budget differ. Resume it."
            )
        ledger = cls(plan, str(state["party"]))
        released: Sequence[int] = state["released"]
        for z in released:
            ledger.spend(z)
        return ledger

    def _known(self, z: int) -> int:
        if not 0 <= z < self.plan.messages:
            raise ConfigError(f"the plan has {self.plan.messages} messages, numbered from 0; got {z}.")
        return z

    def _refusal(self, z: int, epsilon: float) -> str:
        again = " once more" if z in self._released else ""
        remedy = "Send what was sent before, or plan with a larger budget." if again else "Plan with a larger budget."
        return (
            f"{self.party} cannot send message {z + 1} (round {self.plan.rounds[z]}){again}: it would have spent "
            f"{figure(epsilon, self.plan.delta)} of {self.plan.budget}. {remedy}"
        )


def _kept(plan: Plan) -> list[Any]:
    """What a ledger's figures follow from; another plan would read them otherwise."""
    budget = None if plan.budget is None else [plan.budget.epsilon, plan.budget.delta]
    noise = [list(plan.multipliers), list(plan.rounds), plan.producers]
    return [*noise, plan.unit.name, plan.schedule, plan.delta, budget]
