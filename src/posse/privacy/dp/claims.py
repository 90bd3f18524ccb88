"""Figures that could be claimed for the same noise: the published arithmetic beside what is proved.

The published split is summed in two ways, for the text and the algorithm disagree about the number of messages: rounds
200 * 2^z, or tau = 1, 2, 4, ... as printed, where every power of two up to the stop round is a message. Neither sum
counts that units bought and good units are two releases, and that delta is spent at each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posse.privacy.dp.accountant import basic
from posse.privacy.dp.budget import Budget
from posse.privacy.dp.guarantee import Guarantee, figure
from posse.privacy.dp.schedules import paper_split


@dataclass(frozen=True)
class Claim:
    """A figure, how it comes about, and whether it is proved for the noise at hand."""

    how: str
    epsilon: float
    delta: float
    proved: bool

    @property
    def figure(self) -> str:
        """Epsilon, rounded up, and delta."""
        return figure(self.epsilon, self.delta)


def claims_of(
    schedule: str,
    budget: Budget | None,
    messages: int,
    horizon: int | None,
    last: int,
    proved: Sequence[Guarantee],
) -> tuple[Claim, ...]:
    """List the claims: those of the paper where its schedule made the noise, then the proved figures."""
    published: tuple[Claim, ...] = ()
    if schedule == "paper" and budget is not None and horizon is not None:
        published = paper_claims(budget, horizon, messages, last)
    return published + tuple(
        Claim(f"Gaussian composition, {one.composition}, unit {one.unit}", one.epsilon, one.delta, proved=True)
        for one in proved
    )


def paper_claims(budget: Budget, horizon: int, messages: int, last: int) -> tuple[Claim, ...]:
    """Return the published figures for one entry, as claimed and with the releases counted.

    >>> for claim in paper_claims(Budget(1, 0.01), 100_000, 8, 40_000):
    ...     print(f"{claim.epsilon:.3f} {claim.delta:.2f} {claim.how}")
    1.000 0.01 as published
    0.845 0.01 sum of its split over 8 messages
    1.195 0.01 sum of its split over 16 messages, its algorithm as printed (tau from 1)
    1.691 0.16 basic composition of its own figures, unit entry: two counts a message, delta at each
    """
    split = paper_split(budget.epsilon, horizon, messages)
    printed = last.bit_length()
    epsilon, delta = basic((part, budget.delta) for part in (*split, *split))
    return (
        Claim("as published", budget.epsilon, budget.delta, proved=False),
        Claim(f"sum of its split over {messages} messages", sum(split), budget.delta, proved=False),
        Claim(
            f"sum of its split over {printed} messages, its algorithm as printed (tau from 1)",
            sum(paper_split(budget.epsilon, horizon, printed)), budget.delta, proved=False,
        ),
        Claim(
            "basic composition of its own figures, unit entry: two counts a message, delta at each", epsilon, delta,
            proved=max(split) < 1 and delta < 1,
        ),
    )  # fmt: skip
