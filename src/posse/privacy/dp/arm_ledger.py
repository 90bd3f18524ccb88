"""The ledger of epsilon-greedy's arms: a round is paid for before its arm is opened.

Two units, and every report tells both. `score` is what theorems about one round speak of: the scores of one round,
all else as it was. Nobody's data is like that, for a context also moves the weights and with them all later scores;
`context` is one row with everything that follows from it: T - t + 1 rounds for the row of round t, T at worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posse.core import check
from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.budget import Budget, check_delta
from posse.privacy.dp.choice import CLOSED, ArmChoice, Total
from posse.privacy.dp.claims import Claim
from posse.privacy.dp.guarantee import SEQUENTIAL, Guarantee, figure

BY_ROUND = "parallel over rounds, whose scores are taken as given"

LATER_ROUNDS = (
    "later rounds: a context moves the learnt weights, and with them the scores of every later round (unit context)"
)
"""What the unit `score` leaves out."""

NEVER_COVERED = (
    "rewards, which the payee sees as they are, and the learnt weights, should they be opened: neither carries noise",
    "what the puller sees besides the arms, such as whom it serves and what came of it",
    "contexts, scores and weights as shares: their secrecy rests on a dealer that colludes with nobody, not on noise",
    "against whoever knows which rounds explore: a dealer of the coins together with a party",
    "other runs on the same rows, which spend for themselves",
    "a simulation: its coins come from the recorded world seed, and whoever has the record can take them off",
)
"""What no unit covers."""


class ArmLedger:
    """Rounds whose arm was opened, and what they prove; refuses a round beyond the budget for one context.

    The rounds that a budget allows are found once, so that a round costs a comparison. `delta` is that of the total
    where there is no budget.

    >>> ledger = ArmLedger(10, 0.1, Budget(10, 1e-5))
    >>> ledger.spend(), ledger.spend(), ledger.left
    (1, 2, 0)
    >>> print(*(f"{made.unit} {made.figure}" for made in ledger.guarantees()))
    score (4.511, 0) context (9.022, 1e-05)
    >>> ledger.spend()
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] the arm of round 3 cannot be opened: with 10 arms and exploration 0.1 one
    context would have spent (13.54, 1e-05) of (10, 1e-05). Explore more, stop here, or plan with a larger budget.
    """

    __slots__ = ("_most", "_rounds", "budget", "choice", "delta")

    def __init__(self, arms: int, exploration: float, budget: Budget | None = None, *, delta: float = 1e-5) -> None:
        check_delta(delta)
        self.choice = ArmChoice(arms, exploration)
        self.budget = budget
        self.delta = delta if budget is None else budget.delta
        accountant_name()  # a run should not end with the news that its accountant is not installed
        self._most = None if budget is None else self.choice.most_rounds(budget)
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Rounds paid for."""
        return self._rounds

    @property
    def left(self) -> int | None:
        """Rounds that the budget still allows; None if any number."""
        return None if self._most is None else self._most - self._rounds

    def spend(self, rounds: int = 1) -> int:
        """Pay for the arm of the next round, or of several, before it is opened; return the rounds paid for.

        Raises `BudgetError` and changes nothing where the total would exceed the budget.
        """
        after = self._rounds + rounds
        if self._most is not None and after > self._most:
            raise BudgetError(self._refusal(after))
        check.at_least(1, rounds=rounds)
        self._rounds = after
        return after

    def total(self) -> Total:
        """Return what the arms opened so far prove for one context."""
        return self.choice.total(self._rounds, self.delta)

    def guarantees(self) -> tuple[Guarantee, Guarantee]:
        """Return what the arms opened so far prove: for the scores of one round, and for one context in all."""
        once, total = self.choice.epsilon if self._rounds else 0.0, self.total()
        return (
            Guarantee(
                once, 0.0, "score", "replace: other scores in one round, those of all other rounds as they are",
                self._rounds, BY_ROUND, CLOSED, "the scores of one round, against whoever sees the arms",
                (LATER_ROUNDS, *NEVER_COVERED),
            ),
            Guarantee(
                total.epsilon, total.delta, "context", "replace: another row in one round, all other rows as they are",
                self._rounds, SEQUENTIAL, total.accountant,
                "one row, its features and what every arm would pay, in its own round and all later ones, against "
                "whoever sees the arms",
                NEVER_COVERED,
            ),
        )  # fmt: skip

    def claims(self) -> tuple[Claim, ...]:
        """Return the figures that could be told of these arms, from the boldest unit to the total; all are true."""
        choice, rounds, total = self.choice, self._rounds, self.total()
        once = (choice.published_epsilon, choice.epsilon) if rounds else (0.0, 0.0)
        return (
            Claim("as published: log(K/e), one arm, unit score", once[0], 0.0, proved=True),
            Claim("log(K/e - K + 1), one arm, unit score", once[1], 0.0, proved=True),
            Claim(f"the published figure added over {rounds} rounds, unit context", rounds * once[0], 0.0, proved=True),
            Claim(f"basic composition over {rounds} rounds, unit context", rounds * once[1], 0.0, proved=True),
            Claim(f"{total.accountant}, {rounds} rounds, unit context", total.epsilon, total.delta, proved=True),
        )

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restored` makes the ledger again."""
        return {"rounds": self._rounds, "kept": self._kept()}

    @classmethod
    def restored(
        cls, arms: int, exploration: float, budget: Budget | None, state: Mapping[str, Any], *, delta: float = 1e-5
    ) -> ArmLedger:
        """Make a ledger from its state, under the arms, exploration and budget it was kept with."""
        ledger = cls(arms, exploration, budget, delta=delta)
        if list(state["kept"]) != ledger._kept():
            raise ConfigError(
                f"the ledger was kept for [arms, exploration, delta, budget] {list(state['kept'])}, got "
                f"{ledger._kept()}. Go on with the former, or begin anew."
            )
        if rounds := int(state["rounds"]):
            ledger.spend(rounds)
        return ledger

    def _kept(self) -> list[Any]:
        """What the figures follow from; kept flat, so that any encoding gives back an equal list."""
        asked = None if self.budget is None else self.budget.epsilon
        return [self.choice.arms, float(self.choice.exploration), self.delta, asked]

    def _refusal(self, rounds: int) -> str:
        spent = figure(self.choice.total(rounds, self.delta).epsilon, self.delta)
        return (
            f"the arm of round {rounds} cannot be opened: with {self.choice.arms} arms and exploration "
            f"{self.choice.exploration:g} one context would have spent {spent} of {self.budget}. "
            "Explore more, stop here, or plan with a larger budget."
        )
