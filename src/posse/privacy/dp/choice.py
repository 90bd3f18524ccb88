"""The arm of epsilon-greedy as a private release: what it shows of the scores, in one round and over many.

With K arms and exploration rate e the best arm is pulled with probability 1 - e + e/K and every other with e/K: K-ary
randomised response on which arm is best. Other scores make another arm the best, so one arm is eta-private with

    eta = log((1 - e + e/K) / (e/K)) = log(K/e - K + 1),    delta = 0,

and no smaller figure holds. Scores that tie for the best mix such responses and are no worse. Hannun, Knott, Sengupta,
van der Maaten: Privacy-preserving multi-party contextual bandits, 2019, theorem 1, prove the looser log(K/e).

Over T rounds figures add up: a context changes the scores of its own round and, through the learnt weights, of every
later one. Whatever those scores are, each round is a randomised response given the arms before it, so that T of them on
two different arms are the worst case, and its privacy loss is eta (N_best - N_other): a walk on the lattice eta Z,
which a privacy loss distribution on the grid eta holds without rounding. dp-accounting 0.6 has an event for randomised
response, of the same parameters, and its accountant counts it once however often it is composed; hence the distribution
is composed here and not through `composed_epsilon`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from posse.core import check
from posse.core.extras import require
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.budget import Budget, check_delta

CLOSED = "closed form log(K/e - K + 1)"
BASIC = "basic composition"
HOEFFDING = "Hoeffding's bound on the privacy loss"

LARGEST_WALK = 1 << 18
"""Rounds up to which the privacy loss is composed; beyond, closed forms bound it."""
_ROUNDING = 1e-15
"""Per round, how far the Fourier transform may put delta too low: 15 times what it was measured to."""
_HALVINGS = 50


@dataclass(frozen=True)
class Total:
    """What the arms of several rounds prove together, and by which bound."""

    epsilon: float
    delta: float
    accountant: str


@dataclass(frozen=True)
class ArmChoice:
    """Epsilon-greedy over `arms` arms; `exploration` is the rate that the coin really has, after rounding to its bits.

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
        """What one arm proves for the scores of its round, delta 0; infinity without exploration, 0 without scores."""
        if self.exploration == 0:
            return math.inf
        return math.log1p(self.arms * (1 - self.exploration) / self.exploration)

    @property
    def published_epsilon(self) -> float:
        """The published figure for one arm, log(K/e): true, and above the exact one."""
        return math.inf if self.exploration == 0 else math.log(self.arms) - math.log(self.exploration)

    def total(self, rounds: int, delta: float) -> Total:
        """Return the smallest figure at `delta` that the arms of `rounds` rounds are proved to have together.

        The least of T eta (basic composition), T (1 - e) eta + eta sqrt(2 T log(1/delta)) (the loss of a round lies in
        [-eta, eta] and has mean (1 - e) eta: Hoeffding) and the composed privacy loss distribution.

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
        """Return the rounds that a budget allows; None if any number (exploration 1). Found by doubling and halving.

        >>> ArmChoice(10, 0.1).most_rounds(Budget(10, 1e-5)), ArmChoice(10, 0.99).most_rounds(Budget(10, 1e-5))
        (2, 2076)
        """
        if self.exploration == 1:
            return None
        low, high = 0, 1
        while self._within(high, budget):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._within(middle, budget):
                low = middle
            else:
                high = middle
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
        return Total(rounds * eta, delta, BASIC) if rounds * eta <= bound else Total(bound, delta, HOEFFDING)


def exploration_of(epsilon: float, arms: int) -> float:
    """Return the exploration rate whose arms prove `epsilon` each: K / (e^epsilon + K - 1).

    >>> round(exploration_of(4.51085950651685, 10), 12)
    0.1
    """
    check.at_least(2, arms=arms)
    check.at_least(0, epsilon=epsilon)
    small = math.exp(-epsilon)
    return arms * small / (1 + (arms - 1) * small)


@lru_cache(maxsize=4096)
def _walk(choice: ArmChoice, rounds: int, delta: float, known: float) -> float:
    """Compose the privacy loss of `rounds` randomised responses and halve down to its epsilon, `known` at most."""
    pmf = require("dp_accounting.pld.pld_pmf", extra="dp")
    distribution = require("dp_accounting.pld.privacy_loss_distribution", extra="dp").PrivacyLossDistribution
    losses = {1: choice.best, 0: (choice.arms - 2) * choice.other, -1: choice.other}
    composed = distribution(pmf.create_pmf(losses, choice.epsilon, 0.0, True)).self_compose(rounds)
    if composed.get_delta_for_epsilon(0.0) <= delta:
        return 0.0
    # Its own inversion, get_epsilon_for_delta, overflows for losses about 700; delta at an epsilon never does.
    low, high = 0.0, known
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if composed.get_delta_for_epsilon(middle) <= delta:
            high = middle
        else:
            low = middle
    return high
