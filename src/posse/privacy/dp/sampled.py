"""The sampled Gaussian: rounds in which some clients are drawn, their clipped updates added up, and
noise added.

Update vectors are clipped to norm C and noise of standard deviation z C is added to their sum, z
the noise multiplier.

| sampling | cohort | adjacency | accountants |
|---|---|---|---|
| `poisson` | each client by a coin of its own, of rate q = cohort / clients | add or remove: C | RDP, PLD |
| `fixed` | exactly `cohort` clients, without replacement | replace: 2 C, so that noise counts z / 2 | RDP |

With Poisson sampling the sum is divided by the expected cohort, whatever the cohort was.

RDP of the Poisson-sampled Gaussian: Mironov, Talwar, Zhang, 2019; without replacement: Wang, Balle,
Kasiviswanathan: Subsampled Renyi differential privacy, AISTATS 2019, theorem 27 (dp-accounting
offers no PLD for it); PLD: Doroshenko et al., 2022. Who is in a cohort must stay unknown to whoever
the guarantee is against. An epsilon computed by the Poisson formula for cohorts of fixed size, as
is often printed, is not proved.

Adaptive clipping (Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with
adaptive clipping, 2021) also releases how many updates were within the clip, by a sum of bits b -
1/2 with noise sigma_b: one more Gaussian, of noise multiplier 2 sigma_b. Both together count as z
where updates carry z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.accountant import Sampling, accountant_name, pld_epsilon, rdp_epsilon
from posse.privacy.dp.guarantee import SEQUENTIAL, SIMULATION, Budget, Guarantee, check_delta
from posse.privacy.dp.ledger import Mechanism, Released

Accountant = Literal["rdp", "pld"]

SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e6

CLOSE = 1e-3
"""Relative width to which noise is searched; the answer is on the safe side."""

NOT_COVERED = (
    "the server, where it adds the noise itself: it sees the exact sums (and each update, without "
    "secure aggregation)",
    "who is in a cohort: the sampling must be unknown to whoever the guarantee is against",
    "what a device shows by the arms it pulls, and logs that leave it otherwise",
    "choosing hyper-parameters by runs on the same clients",
    SIMULATION,
)
"""What no figure here covers."""


@dataclass(frozen=True)
class SampledGaussian:
    """Rounds of federated training under noise.

    >>> made = SampledGaussian(clients=342_477, cohort=64, noise=0.7)
    >>> round(made.epsilon(1600, 1e-6, "rdp"), 3)
    1.491
    >>> SampledGaussian(1000, 10, 1.0, adaptive=True)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] adaptive clipping under noise also releases a count, got
    no clip_noise for it.
    Give clip_noise (0.05 x cohort is usual: 0.5; above noise / 2), or fix the clip.
    """

    clients: int
    cohort: int
    noise: float
    """Noise multiplier z of a round, all that it releases together."""
    sampling: Sampling = "poisson"
    adaptive: bool = False
    """Whether the clip follows a count of updates within it."""
    clip_noise: float | None = None
    """Standard deviation sigma_b of the noise on that count."""

    def __post_init__(self) -> None:
        check.one_of(("poisson", "fixed"), sampling=self.sampling)
        if not 1 <= self.cohort <= self.clients:
            raise ConfigError(
                f"cohort must be in [1, {self.clients}], the number of clients, got {self.cohort}."
            )
        check.between(0, LARGEST_NOISE, noise=self.noise)
        if self.adaptive and self.noise > 0:
            if self.clip_noise is None:
                usual = max(0.05 * self.cohort, 0.5)
                raise ConfigError(
                    "adaptive clipping under noise also releases a count, got no clip_noise for "
                    "it. Give clip_noise "
                    f"(0.05 x cohort is usual: {usual:g}; above noise / 2), or fix the clip."
                )
            update_noise(self.noise, self.clip_noise)
        elif self.clip_noise is not None and not self.adaptive:
            raise ConfigError(
                f"clip_noise is for adaptive clipping, got {self.clip_noise} for a fixed clip. "
                "Leave it out."
            )

    @property
    def rate(self) -> float:
        """Chance of a client to be in a round."""
        return self.cohort / self.clients

    @property
    def update_noise(self) -> float:
        """Noise multiplier that updates must carry: z, or more where a count is released beside
        them.
        """
        counted = self.clip_noise is not None and self.noise > 0
        return update_noise(self.noise, self.clip_noise or 0.0) if counted else self.noise

    def epsilon(self, rounds: int, delta: float, accountant: Accountant = "pld") -> float:
        """Return the epsilon of all rounds together at `delta`; infinity, for no claim, where noise
        is below 0.05.

        RDP: 0.1 s once, and nothing for other numbers of rounds. PLD: 0.5 to 3 s once, and a third
        of it for each.
        """
        check.at_least(0, rounds=rounds)
        check_delta(delta)
        check.one_of(("rdp", "pld"), accountant=accountant)
        if accountant == "pld" and self.sampling == "fixed":
            raise ConfigError(
                "cohorts of fixed size have a figure by RDP alone, got accountant 'pld'. Use 'rdp'."
            )
        if rounds == 0 or self.noise < SMALLEST_NOISE:
            return math.inf if rounds else 0.0
        if accountant == "rdp":
            return rdp_epsilon(
                (self.clients, self.cohort, self.noise, self.sampling), rounds, delta
            )
        return pld_epsilon(self.rate, self.noise, rounds, delta)

    def most_rounds(self, budget: Budget, accountant: Accountant = "pld") -> int:
        """Return the largest number of rounds whose epsilon is within the budget; 0 if not even one
        is.

        Bracketed by doubling, then found by lines through both ends, with a halving between: the
        figure is nearly straight in the number of rounds, so that some five evaluations suffice.
        PLD starts where RDP ends.
        """

        def spent(rounds: int) -> float:
            return self.epsilon(rounds, budget.delta, accountant)

        start = max(1, self.most_rounds(budget, "rdp")) if accountant == "pld" else 1
        start = start if spent(start) <= budget.epsilon else 1
        if spent(start) > budget.epsilon:
            return 0
        low, high = start, 2 * start
        while spent(high) <= budget.epsilon:
            low, high = high, 2 * high
            if low > 1 << 40:
                return low
        return largest(spent, low, high, budget.epsilon)

    def guarantee(self, rounds: int, delta: float, accountant: Accountant = "pld") -> Guarantee:
        """Return what rounds prove, with everything that goes with it."""
        counted = (
            "" if self.clip_noise is None else f", and a count under noise {self.clip_noise:g}"
        )
        poisson = self.sampling == "poisson"
        return Guarantee(
            self.epsilon(rounds, delta, accountant),
            delta,
            "client",
            "add or remove: one client with all its data, in every round"
            if poisson
            else "replace: another client with any data instead of one, in every round",
            rounds,
            SEQUENTIAL,
            accountant_name().replace("PLD", accountant.upper()),
            "everything one client holds, against whoever sees the model after every "
            f"round{counted}",
            NOT_COVERED,
            f"Poisson, rate {self.rate:.3g} ({self.cohort} expected of {self.clients})"
            if poisson
            else f"{self.cohort} of {self.clients} without replacement",
        )


def update_noise(noise: float, clip_noise: float) -> float:
    """Return z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2): the noise of updates beside a count under
    noise sigma_b.

    >>> round(update_noise(1.0, 5.0), 4)
    1.005
    """
    check.positive(noise=noise)
    check.positive(clip_noise=clip_noise)
    if 2 * clip_noise <= noise:
        raise ConfigError(
            f"clip_noise must be above noise / 2 = {noise / 2:g}, got {clip_noise}: the count "
            "alone would spend all. "
            "Raise clip_noise."
        )
    return float((noise**-2 - (2 * clip_noise) ** -2) ** -0.5)


def noise_for(
    budget: Budget,
    clients: int,
    cohort: int,
    rounds: int,
    sampling: Sampling = "poisson",
    accountant: Accountant = "pld",
) -> float:
    """Return noise, within 0.1 % of the least, whose rounds are within the budget.

    >>> noise = noise_for(Budget(1.5, 1e-6), 342_477, 64, 1600, accountant="rdp")
    >>> 0.69 < noise < 0.71
    True
    """

    def spent(noise: float) -> float:
        return SampledGaussian(clients, cohort, noise, sampling).epsilon(
            rounds, budget.delta, accountant
        )

    check.at_least(1, rounds=rounds)
    low, high = SMALLEST_NOISE, 1.0
    if accountant == "pld" and sampling == "poisson":
        high = noise_for(budget, clients, cohort, rounds, sampling, "rdp")
        low = max(SMALLEST_NOISE, high / 2)
    while spent(low) <= budget.epsilon:
        if low == SMALLEST_NOISE:
            return low
        low, high = max(SMALLEST_NOISE, low / 2), low
    while spent(high) > budget.epsilon:
        low, high = high, 2 * high
        if high > LARGEST_NOISE:
            raise ConfigError(
                f"no noise up to {LARGEST_NOISE:g} keeps {budget} for {rounds} rounds. Ask for "
                "more."
            )
    return least(spent, low, high, budget.epsilon)


def largest(spent: Callable[[int], float], low: int, high: int, limit: float) -> int:
    """Return the largest number with spent(number) <= limit, given spent(low) <= limit <
    spent(high).
    """
    below, above = spent(low), spent(high)
    turn = 0
    while high - low > 1:
        line = low + int((limit - below) / (above - below) * (high - low)) if above > below else low
        # A line that creeps from one end is helped by halving.
        middle = (
            (low + high) // 2 if turn % 3 == 2 else min(max(line + turn % 2, low + 1), high - 1)
        )
        value = spent(middle)
        if value <= limit:
            low, below = middle, value
        else:
            high, above = middle, value
        turn += 1
    return low


def least(spent: Callable[[float], float], low: float, high: float, limit: float) -> float:
    """Return noise with spent(noise) <= limit, within `CLOSE` of the least, given spent(low) >
    limit >= spent(high).

    The logarithm of the figure is nearly straight in that of the noise: lines propose points just
    on either side.
    """
    above, below = spent(low), spent(high)
    turn = 0
    while high / low > 1 + CLOSE:
        share = math.log(above / limit) / math.log(above / below) if above > below > 0 else 0.5
        aside = 0.4 * CLOSE * (1 if turn % 2 else -1)
        middle = math.exp(math.log(low) + share * math.log(high / low) + aside)
        middle = math.sqrt(low * high) if turn % 4 == 3 or not low < middle < high else middle
        value = spent(middle)
        if value <= limit:
            high, below = middle, value
        else:
            low, above = middle, value
        turn += 1
    return high


@dataclass(frozen=True)
class Training(Mechanism):
    """Federated training as a mechanism: a round is paid for before its cohort is drawn, and
    training stops in time.

    All rounds have the same noise and sampling: other noise is another ledger, composed with this
    one by adding epsilons and deltas. `delta` is that of the figures where there is no budget;
    `accountant` is the one that counts, by default PLD for Poisson sampling and RDP for cohorts of
    fixed size.

    >>> from posse.privacy.dp.ledger import Ledger
    >>> ledger = Ledger(
    ...     Training(SampledGaussian(1000, 10, 1.0), Budget(1.1, 1e-5), accountant="rdp")
    ... )
    >>> ledger.left, ledger.spend(), ledger.left
    (31, 1, 30)
    >>> ledger.spend(times=31)
    Traceback (most recent call last):
    ...
    posse.core.errors.BudgetError: [P600] round 32 cannot be trained: 32 rounds with noise 1 would
    have spent
    (1.101, 1e-05) of (1.1, 1e-05). Stop here, or plan with more noise, fewer clients a round or a larger budget.
    """

    gaussian: SampledGaussian
    budget: Budget | None = None
    delta: float = 1e-6
    accountant: Accountant | None = None

    @property
    def counted_by(self) -> Accountant:
        """The accountant that counts."""
        return self.accountant or ("pld" if self.gaussian.sampling == "poisson" else "rdp")

    @cached_property
    def most(self) -> int | None:
        """Rounds that the budget allows; None if any number."""
        return (
            None if self.budget is None else self.gaussian.most_rounds(self.budget, self.counted_by)
        )

    def epsilon(self, released: Released) -> float:
        """Return what the rounds have spent."""
        return self.gaussian.epsilon(released.total(), self.delta, self.counted_by)

    def guarantees(self, released: Released) -> tuple[Guarantee]:
        """Return what the rounds prove."""
        return (self.gaussian.guarantee(released.total(), self.delta, self.counted_by),)

    def refusal(self, party: str, message: int, after: Released, spent: str) -> str:
        """Say why a round is not trained."""
        rounds = after.total()
        return (
            f"round {rounds} cannot be trained: {rounds} rounds with noise {self.gaussian.noise:g} "
            "would have spent "
            f"{spent}. Stop here, or plan with more noise, fewer clients a round or a larger "
            "budget."
        )

    def identity(self) -> dict[str, object]:
        """Return what the figures follow from."""
        made = self.gaussian
        return {
            "clients": made.clients,
            "cohort": made.cohort,
            "noise": float(made.noise),
            "sampling": made.sampling,
            "clip noise": made.clip_noise,
            "delta": self.delta,
            "epsilon": None if self.budget is None else self.budget.epsilon,
            "accountant": self.counted_by,
        }
