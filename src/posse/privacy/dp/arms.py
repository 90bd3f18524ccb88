"""The arm of epsilon-greedy as a private release: what it shows of the scores, in one round and
over many.

With K arms and exploration rate e the best arm is pulled with probability 1 - e + e/K and every
other with e/K: K-ary randomised response on which arm is best. Other scores make another arm the
best, so one arm is eta-private with

    eta = log((1 - e + e/K) / (e/K)) = log(K/e - K + 1),    delta = 0,

and no smaller figure holds. Scores that tie for the best mix such responses and are no worse.
Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, 2019,
theorem 1, prove the looser log(K/e).

Over T rounds figures add up: a context changes the scores of its own round and, through the learnt
weights, of every later one. Whatever those scores are, each round is a randomised response given
the arms before it, so that T of them on two different arms are the worst case, and its privacy loss
is eta (N_best - N_other): a walk on the lattice eta Z, which a privacy loss distribution on the
grid eta holds without rounding. dp-accounting 0.6 has an event for randomised response, of the same
parameters, and its accountant counts it once however often it is composed; hence the distribution
is composed here and not through `composed_epsilon`.

A ledger of `Arms` reports two units. `score` is what theorems about one round speak of: the scores
of one round, all else as it was. Nobody's data is like that, for a context also moves the weights
and with them all later scores; `context` is one row with everything that follows from it: T - t + 1
rounds for the row of round t, T at worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from posse.core import check
from posse.core.check import require
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.guarantee import SEQUENTIAL, Budget, Claim, Guarantee, check_delta
from posse.privacy.dp.ledger import Mechanism, Released

CLOSED = "closed form log(K/e - K + 1)"
BASIC = "basic composition"
HOEFFDING = "Hoeffding's bound on the privacy loss"

LARGEST_WALK = 1 << 18
"""Rounds up to which the privacy loss is composed; beyond, closed forms bound it."""
_ROUNDING = 1e-15
"""Per round, how far the Fourier transform may put delta too low: 15 times what it was measured
to.
"""
_HALVINGS = 50


@dataclass(frozen=True)
class Total:
    """What the arms of several rounds prove together, and by which bound."""

    epsilon: float
    delta: float
    accountant: str


@dataclass(frozen=True)
class ArmChoice:
    """Epsilon-greedy over `arms` arms; `exploration` is the rate that the coin really has, after
    rounding to its bits.

    >>> ArmChoice(10, 0.1).epsilon, ArmChoice(10, 0.1).published_epsilon
    (4.51085950651685, 4.605170185988092)
    """

    arms: int
    exploration: float

    def __post_init__(self) -> None:
        check.at_least(2, arms=self.arms)
        check.between(0, 1, exploration=self.exploration)

    @property
    def other(self) -> float:
        """Probability of an arm that is not the best: e/K."""
        return self.exploration / self.arms

    @property
    def best(self) -> float:
        """Probability of the best arm: 1 - e + e/K."""
        return 1 - self.exploration + self.other

    @property
    def epsilon(self) -> float:
        """What one arm proves for the scores of its round, delta 0; infinity without exploration, 0
        without scores.
        """
        if self.exploration == 0:
            return math.inf
        return math.log1p(self.arms * (1 - self.exploration) / self.exploration)

    @property
    def published_epsilon(self) -> float:
        """The published figure for one arm, log(K/e): true, and above the exact one."""
        return (
            math.inf if self.exploration == 0 else math.log(self.arms) - math.log(self.exploration)
        )

    def total(self, rounds: int, delta: float) -> Total:
        """Return the smallest figure at `delta` that the arms of `rounds` rounds are proved to have
        together.

        The least of T eta (basic composition), T (1 - e) eta + eta sqrt(2 T log(1/delta)) (the loss
        of a round lies in [-eta, eta] and has mean (1 - e) eta: Hoeffding) and the composed privacy
        loss distribution.

        >>> made = ArmChoice(10, 0.1).total(60_000, 1e-5)
        >>> round(made.epsilon), round(60_000 * ArmChoice(10, 0.1).epsilon)
        (245133, 270652)
        """
        check.at_least(0, rounds=rounds)
        check_delta(delta)
        known = self._closed(rounds, delta)
        slack = rounds * _ROUNDING
        if not 0 < known.epsilon < math.inf or rounds > LARGEST_WALK or delta <= 2 * slack:
            return known
        composed = _walk(self, rounds, delta - slack, known.epsilon)
        return Total(composed, delta, accountant_name()) if composed < known.epsilon else known

    def most_rounds(self, budget: Budget) -> int | None:
        """Return the rounds that a budget allows; None if any number (exploration 1). Found by
        doubling and halving.

        >>> (
        ...     ArmChoice(10, 0.1).most_rounds(Budget(10, 1e-5)),
        ...     ArmChoice(10, 0.99).most_rounds(Budget(10, 1e-5)),
        ... )
        (2, 2076)
        """
        if self.exploration == 1:
            return None
        low, high = 0, 1
        while self._within(high, budget):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._within(middle, budget) else (low, middle)
        return low

    def _within(self, rounds: int, budget: Budget) -> bool:
        # The closed forms answer most of the search, and cost nothing.
        if self._closed(rounds, budget.delta).epsilon <= budget.epsilon:
            return True
        return self.total(rounds, budget.delta).epsilon <= budget.epsilon

    def _closed(self, rounds: int, delta: float) -> Total:
        eta = self.epsilon
        if rounds == 0 or eta == 0 or math.isinf(eta):
            return Total(eta if rounds else 0.0, delta, CLOSED)
        mean = rounds * (1 - self.exploration) * eta
        bound = mean + eta * math.sqrt(2 * rounds * -math.log(delta))
        return (
            Total(rounds * eta, delta, BASIC)
            if rounds * eta <= bound
            else Total(bound, delta, HOEFFDING)
        )


@lru_cache(maxsize=4096)
def _walk(choice: ArmChoice, rounds: int, delta: float, known: float) -> float:
    """Compose the privacy loss of `rounds` randomised responses and halve down to its epsilon,
    `known` at most.
    """
    pmf = require("dp_accounting.pld.pld_pmf", extra="dp")
    distribution = require(
        "dp_accounting.pld.privacy_loss_distribution", extra="dp"
    ).PrivacyLossDistribution
    losses = {1: choice.best, 0: (choice.arms - 2) * choice.other, -1: choice.other}
    composed = distribution(pmf.create_pmf(losses, choice.epsilon, 0.0, True)).self_compose(rounds)
    if composed.get_delta_for_epsilon(0.0) <= delta:
        return 0.0
    # Its own inversion, get_epsilon_for_delta, overflows for losses about 700; delta at an epsilon
    # never does.
    low, high = 0.0, known
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if composed.get_delta_for_epsilon(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


BY_ROUND = "parallel over rounds, whose scores are taken as given"

LATER_ROUNDS = (
    "later rounds: a context moves the learnt weights, and with them the scores of every later "
    "round (unit context)"
)
"""What the unit `score` leaves out."""

NEVER_COVERED = (
    "rewards, which the payee sees as they are, and the learnt weights, should they be opened: "
    "neither carries noise",
    "what the puller sees besides the arms, such as whom it serves and what came of it",
    "contexts, scores and weights as shares: their secrecy rests on a dealer that colludes with "
    "nobody, not on noise",
    "against whoever knows which rounds explore: a dealer of the coins together with a party",
    "other runs on the same rows, which spend for themselves",
)
"""What no unit covers."""

SIMULATED_COINS = (
    "a simulation: its coins come from the recorded world seed, and whoever has the record can "
    "take them off"
)
"""What is not covered where coins follow from a seed."""


@dataclass(frozen=True)
class Arms(Mechanism):
    """Epsilon-greedy's arms as a mechanism: every round opens one arm, under a budget for one
    context.

    `delta` is that of the total where there is no budget.

    >>> from posse.privacy.dp.ledger import Ledger
    >>> ledger = Ledger(Arms(ArmChoice(10, 0.1), Budget(10, 1e-5)))
    >>> ledger.spend(), ledger.spend(), ledger.left
    (1, 2, 0)
    >>> print(*(f"{made.unit} {made.figure}" for made in ledger.guarantees()))
    score (4.511, 0) context (9.022, 1e-05)
    >>> ledger.spend()
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] the arm of round 3 cannot be opened: with 10 arms and
    exploration 0.1 one
    context would have spent (13.54, 1e-05) of (10, 1e-05). Explore more, stop here, or plan with a larger budget.
    """

    choice: ArmChoice
    budget: Budget | None = None
    delta: float = 1e-5

    @cached_property
    def most(self) -> int | None:
        """Rounds that the budget allows; None if any number."""
        return None if self.budget is None else self.choice.most_rounds(self.budget)

    def epsilon(self, released: Released) -> float:
        """Return what the arms opened prove for one context."""
        return self.choice.total(released.total(), self.delta).epsilon

    def guarantees(self, released: Released) -> tuple[Guarantee, Guarantee]:
        """Return what the arms opened prove: for the scores of one round, and for one context in
        all.
        """
        rounds = released.total()
        once, total = self.choice.epsilon if rounds else 0.0, self.choice.total(rounds, self.delta)
        return (
            Guarantee(
                once,
                0.0,
                "score",
                "replace: other scores in one round, those of all other rounds as they are",
                rounds,
                BY_ROUND,
                CLOSED,
                "the scores of one round, against whoever sees the arms",
                (LATER_ROUNDS, *NEVER_COVERED),
            ),
            Guarantee(
                total.epsilon,
                total.delta,
                "context",
                "replace: another row in one round, all other rows as they are",
                rounds,
                SEQUENTIAL,
                total.accountant,
                "one row, its features and what every arm would pay, in its own round and all "
                "later ones, against "
                "whoever sees the arms",
                NEVER_COVERED,
            ),
        )

    def claims(self, rounds: int) -> tuple[Claim, ...]:
        """Return the figures that could be claimed for `rounds` arms, from the boldest unit to the
        total; all true.
        """
        total = self.choice.total(rounds, self.delta)
        once = (self.choice.published_epsilon, self.choice.epsilon) if rounds else (0.0, 0.0)
        times = f"{rounds} round{'' if rounds == 1 else 's'}"
        return (
            Claim("as published: log(K/e), one arm, unit score", once[0], 0.0, proved=True),
            Claim("log(K/e - K + 1), one arm, unit score", once[1], 0.0, proved=True),
            Claim(
                f"the published figure added over {times}, unit context",
                rounds * once[0],
                0.0,
                proved=True,
            ),
            Claim(
                f"basic composition over {times}, unit context", rounds * once[1], 0.0, proved=True
            ),
            Claim(
                f"{total.accountant}, {times}, unit context",
                total.epsilon,
                total.delta,
                proved=True,
            ),
        )

    def refusal(self, party: str, message: int, after: Released, spent: str) -> str:
        """Say why the arm of a round is not opened."""
        return (
            f"the arm of round {after.total()} cannot be opened: with {self.choice.arms} arms and "
            "exploration "
            f"{self.choice.exploration:g} one context would have spent {spent}. "
            "Explore more, stop here, or plan with a larger budget."
        )

    def identity(self) -> dict[str, object]:
        """Return what the figures follow from."""
        return {
            "arms": self.choice.arms,
            "exploration": float(self.choice.exploration),
            "delta": self.delta,
            "budget": None if self.budget is None else self.budget.epsilon,
        }
