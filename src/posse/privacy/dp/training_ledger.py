"""The ledger of federated training: a round is paid for before its cohort is drawn, and training stops in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posse.core import check
from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.budget import Budget, check_delta
from posse.privacy.dp.guarantee import Guarantee, figure
from posse.privacy.dp.sampled import Accountant, SampledGaussian


class TrainingLedger:
    """Rounds of training so far and what they prove; refuses a round beyond the budget.

    The rounds that a budget allows are found once, so that a round costs a comparison; a figure is computed when it is
    asked for. All rounds have the same noise and sampling: other noise is another ledger, composed with this one by
    adding epsilons and deltas. Without a budget it counts and never refuses; `delta` is then that of the figures.

    >>> ledger = TrainingLedger(SampledGaussian(1000, 10, 1.0), Budget(1.1, 1e-5), accountant="rdp")
    >>> ledger.left, ledger.spend(), ledger.left
    (31, 1, 30)
    >>> ledger.spend(31)
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] round 32 cannot be trained: 32 rounds with noise 1 would have spent
    (1.101, 1e-05) of (1.1, 1e-05). Stop here, or plan with more noise, fewer clients a round or a larger budget.
    """

    __slots__ = ("_rounds", "accountant", "budget", "delta", "mechanism", "most")

    def __init__(
        self,
        mechanism: SampledGaussian,
        budget: Budget | None = None,
        *,
        delta: float = 1e-6,
        accountant: Accountant | None = None,
    ) -> None:
        check_delta(delta)
        self.mechanism = mechanism
        self.budget = budget
        self.delta = delta if budget is None else budget.delta
        self.accountant: Accountant = accountant or ("pld" if mechanism.sampling == "poisson" else "rdp")
        accountant_name()  # a run should not end with the news that its accountant is not installed
        self.most = None if budget is None else mechanism.most_rounds(budget, self.accountant)
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Rounds paid for."""
        return self._rounds

    @property
    def left(self) -> int | None:
        """Rounds that the budget still allows; None if any number."""
        return None if self.most is None else self.most - self._rounds

    @property
    def epsilon(self) -> float:
        """What the rounds so far have spent, at the ledger's delta."""
        return self.mechanism.epsilon(self._rounds, self.delta, self.accountant)

    def spend(self, rounds: int = 1) -> int:
        """Pay for the next round, or for several, before it is trained; return the rounds paid for.

        Raises `BudgetError` and changes nothing where the total would exceed the budget.
        """
        check.at_least(1, rounds=rounds)
        after = self._rounds + rounds
        if self.most is not None and after > self.most:
            raise BudgetError(self._refusal(after))
        self._rounds = after
        return after

    def guarantee(self) -> Guarantee:
        """Return what the rounds so far prove."""
        return self.mechanism.guarantee(self._rounds, self.delta, self.accountant)

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restored` makes the ledger again."""
        return {"rounds": self._rounds, "kept": self._kept()}

    @classmethod
    def restored(
        cls,
        mechanism: SampledGaussian,
        budget: Budget | None,
        state: Mapping[str, Any],
        *,
        delta: float = 1e-6,
        accountant: Accountant | None = None,
    ) -> TrainingLedger:
        """Make a ledger from its state, under the mechanism and budget it was kept with."""
        ledger = cls(mechanism, budget, delta=delta, accountant=accountant)
        if list(state["kept"]) != ledger._kept():
            raise ConfigError(
                "the ledger was kept for [clients, cohort, noise, sampling, clip noise, delta, epsilon, accountant] "
                f"{list(state['kept'])}, got {ledger._kept()}. Go on with the former, or begin anew."
            )
        if rounds := int(state["rounds"]):
            ledger.spend(rounds)
        return ledger

    def _kept(self) -> list[Any]:
        """What the figures follow from; kept flat, so that any encoding gives back an equal list."""
        made = self.mechanism
        asked = None if self.budget is None else self.budget.epsilon
        return [
            made.clients, made.cohort, float(made.noise), made.sampling, made.clip_noise, self.delta, asked,
            self.accountant,
        ]  # fmt: skip

    def _refusal(self, rounds: int) -> str:
        spent = figure(self.mechanism.epsilon(rounds, self.delta, self.accountant), self.delta)
        return (
            f"round {rounds} cannot be trained: {rounds} rounds with noise {self.mechanism.noise:g} would have spent "
            f"{spent} of {self.budget}. Stop here, or plan with more noise, fewer clients a round or a larger budget."
        )
