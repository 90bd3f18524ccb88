"""The ledger: nothing is released before it is paid for, and nothing beyond the budget.

A `Mechanism` couples what is done (noise added to a message, an arm drawn by epsilon-greedy, a
round trained on a sampled cohort) with what it costs: the accounting event of a release and how
releases compose. The ledger counts releases and leaves every figure to the mechanism. There are
three: `Plan` (messages under Gaussian noise), `Arms` (epsilon-greedy) and `Training` (the sampled
Gaussian). The releases of the last two are all alike and about the same data, which is what a
mechanism is by default: the number that a budget allows is computed once, and a release then costs
one comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from posse.core import check
from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.guarantee import Budget, Guarantee, check_delta, figure

Released: TypeAlias = Counter[int]
"""How often each message was released; mechanisms whose releases are all alike have message 0
alone.
"""


class Mechanism(ABC):
    """What is released, what may be spent on it, and what releases prove together.

    A mechanism is a frozen dataclass. Its figures are functions of what was released, so that a
    ledger restored from its state proves what it proved before.
    """

    budget: Budget | None
    """What may be spent; None to count and never refuse."""
    delta: float
    """Delta at which figures are computed: the budget's, where there is one."""
    alike: ClassVar[bool] = False
    """Whether the ledger's table has one row for many releases of one kind."""

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if self.budget is not None:
            object.__setattr__(self, "delta", self.budget.delta)

    @property
    @abstractmethod
    def most(self) -> int | None:
        """Releases that the budget allows in all; None if any number, or if it depends on which
        ones.
        """

    def check(self, message: int) -> None:
        """Raise `ConfigError` for a message that the mechanism does not have."""
        if message:
            raise ConfigError(
                f"all releases are alike and have number 0, got {message}. Give times instead."
            )

    def within(self, released: Released) -> bool:
        """Return whether these releases together stay within the budget."""
        return self.most is None or released.total() <= self.most

    @abstractmethod
    def epsilon(self, released: Released) -> float:
        """Return the epsilon that these releases together prove, at `delta`."""

    @abstractmethod
    def guarantees(self, released: Released) -> tuple[Guarantee, ...]:
        """Return what these releases prove; the unit that the budget is for stands last."""

    @abstractmethod
    def refusal(self, party: str, message: int, after: Released, spent: str) -> str:
        """Say why a release is refused after which `after` would have been released and `spent`
        spent.
        """

    def row(self, message: int) -> dict[str, str | int | float]:
        """Describe a release of a message for the ledger's table."""
        return {}

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """Return, by name, plain values that the figures follow from."""


M = TypeVar("M", bound=Mechanism)


class Ledger(Generic[M]):
    """What one party has released; refuses a release that would exceed the mechanism's budget.

    A message released again, with fresh noise, is one more release about the same data and is
    composed with the first.

    >>> from posse.privacy.dp.plans import plan
    >>> ledger = Ledger(plan(Budget(1, 0.01), rounds=(200, 400), producers=30), "agent-1")
    >>> ledger.spend(0), ledger.spend(1), round(ledger.epsilon, 4)
    (1, 2, 1.0)
    >>> ledger.spend(1)
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] agent-1 cannot send message 2 (round 400) once more: it
    would have spent
    (1.587, 0.01) of (1, 0.01). Send what was sent before, or plan with a larger budget.
    """

    __slots__ = ("_released", "mechanism", "most", "party")

    def __init__(self, mechanism: M, party: str = "") -> None:
        accountant_name()  # a missing accountant must be known before a run, not after it
        self.mechanism = mechanism
        self.party = party
        self.most = mechanism.most
        self._released: list[tuple[int, int]] = []

    @property
    def releases(self) -> int:
        """Releases paid for."""
        return sum(times for _, times in self._released)

    @property
    def left(self) -> int | None:
        """Releases that the budget still allows; None if any number, or if it depends on which
        ones.
        """
        return None if self.most is None else self.most - self.releases

    @property
    def epsilon(self) -> float:
        """What was spent so far, at the mechanism's delta."""
        return self.mechanism.epsilon(self._counted())

    def spend(self, message: int = 0, *, times: int = 1) -> int:
        """Pay for a message, once or several times, before it is released; return the releases paid
        for in all.

        Raises `BudgetError` and changes nothing where the figure would exceed the budget.
        """
        check.at_least(1, times=times)
        self.mechanism.check(message)
        after = self._counted()
        after[message] += times
        if not self.mechanism.within(after):
            spent = (
                f"{figure(self.mechanism.epsilon(after), self.mechanism.delta)} of "
                f"{self.mechanism.budget}"
            )
            raise BudgetError(self.mechanism.refusal(self.party, message, after, spent))
        if self._released and self._released[-1][0] == message:
            times += self._released.pop()[1]
        self._released.append((message, times))
        return after.total()

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what the releases so far prove, for every unit that the mechanism speaks of."""
        return self.mechanism.guarantees(self._counted())

    def guarantee(self) -> Guarantee:
        """Return what the releases so far prove, for the unit that the budget is for."""
        return self.guarantees()[-1]

    def entries(self) -> list[dict[str, str | int | float]]:
        """Return a row for every release, in order, with the epsilon spent after it; one for many
        that are alike.
        """
        rows: list[dict[str, str | int | float]] = []
        sofar: Released = Counter()
        for message, times in self._released:
            for step in [times] if self.mechanism.alike else [1] * times:
                sofar[message] += step
                spent = {"epsilon": self.mechanism.epsilon(sofar), "delta": self.mechanism.delta}
                row = self.mechanism.row(message)
                rows.append({"party": self.party, "release": sofar.total(), **row, **spent})
        return rows

    def state(self) -> dict[str, object]:
        """Return plain data from which `restored` makes the ledger again.

        `released` lists messages in order: a number, or [number, times] where it was paid for
        several times in a row.
        """
        return {
            "party": self.party,
            "released": [
                message if times == 1 else [message, times] for message, times in self._released
            ],
            "plan": list(self.mechanism.identity().values()),
        }

    @classmethod
    def restored(cls, mechanism: M, state: Mapping[str, Any]) -> Ledger[M]:
        """Make a ledger from its state, under the mechanism it was kept with."""
        identity = mechanism.identity()
        for name, before in zip_longest(identity, state["plan"]):
            if (now := identity.get(name)) != before:
                raise ConfigError(
                    f"the ledger was kept for {name} {before}, got {now}. Go on with the former, "
                    "or begin anew."
                )
        ledger = cls(mechanism, str(state["party"]))
        for one in state["released"]:
            message, times = (one, 1) if isinstance(one, int) else one
            ledger.spend(message, times=times)
        return ledger

    def _counted(self) -> Released:
        counted: Released = Counter()
        for message, times in self._released:
            counted[message] += times
        return counted
