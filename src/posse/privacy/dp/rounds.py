"""Noise in every round: messages that are all alike, and what they add up to by each way of
adding.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from posse.core import check
from posse.privacy.dp import schedules
from posse.privacy.dp.accountant import advanced, composed_epsilon, gaussian_rdp_epsilon
from posse.privacy.dp.gaussian import classical_multiplier, epsilon_of, largest_mu
from posse.privacy.dp.guarantee import PARALLEL, Budget, Claim
from posse.privacy.dp.ledger import Mechanism, Released
from posse.privacy.dp.plans import GIVEN, LARGEST_NOISE, Plan, check_largest, raised, within_budget


@dataclass(frozen=True)
class EveryRound(Plan):
    """A plan whose messages are all alike: one after every round, about that round alone, all with
    `multipliers[0]`.

    An entry lies in one round, so that one message tells of it (parallel composition). What all
    rounds together show, of a habit say, adds up: `claims`.

    >>> every = every_round(Budget(1, 0.01), rounds=10_000, producers=30)
    >>> [claim.figure for claim in every.claims()][1:]
    ['(24160, 0.01)', '(277900, 0.01)', '(1577, 0.01)', '(1541, 0.01)', '(1, 0.01)']
    """

    alike: ClassVar[bool] = True

    @property
    def most(self) -> int | None:
        """One release a round."""
        return len(self.rounds)

    @property
    def messages(self) -> int:
        """Number of messages planned."""
        return len(self.rounds)

    @property
    def everything(self) -> Released:
        """Every message: all have the number 0."""
        return Counter({0: self.messages})

    # All messages are alike, and as many as there are rounds were planned within the budget.
    check = Mechanism.check
    within = Mechanism.within

    def noise_multiplier(self, z: int, unit: str | None = None) -> float:
        """Return sigma over the sensitivity of the unit in one round."""
        return self.multipliers[0] / self._unit(unit).sensitivity(self.producers, 1)

    def epsilon(
        self, released: Released, unit: str | None = None, composition: str | None = None
    ) -> float:
        """Return what so many rounds prove: as much as one of them where rounds are disjoint, or
        all composed.
        """
        block, event = self.event(1, unit, composition)
        return composed_epsilon(
            [event] * (min(1, released.total()) if block else released.total()), self.delta
        )

    def claims(self, released: Released | None = None) -> tuple[Claim, ...]:
        """Return what the rounds add up to by each way of adding, all at the plan's delta in the
        end.
        """
        count, mu = (released or self.everything).total(), 1 / self.noise_multiplier(0)
        asked = (
            self.budget.epsilon if self.budget is not None and self.schedule == "paper" else None
        )
        one, all_, unit = epsilon_of(mu, self.delta), mu * math.sqrt(count), self.unit.name
        more = f"{count:,} rounds, unit {unit}"
        made = (
            (
                f"epsilon of a round times {count:,}, delta counted once",
                count * (asked or one),
                False,
            ),
            (f"basic composition of {more}", count * epsilon_of(mu, self.delta / count), True),
            (
                f"advanced composition of {more}",
                advanced(epsilon_of(mu, self.delta / (2 * count)), count, self.delta / 2),
                True,
            ),
            (
                f"Renyi divergences (RDP) of {more}",
                gaussian_rdp_epsilon(mu, count, self.delta),
                True,
            ),
            (f"Gaussian composition of {more}, sequential", epsilon_of(all_, self.delta), True),
            *(
                [(f"one {unit} lies in one round, {PARALLEL}", one, True)]
                if self.unit.disjoint
                else []
            ),
        )
        return tuple(
            Claim(how, epsilon, self.delta, proved=proved) for how, epsilon, proved in made
        )

    def one(self) -> Plan:
        """Return the plan of a single round."""
        return Plan(
            self.multipliers,
            (1,),
            self.producers,
            self.unit,
            self.schedule,
            self.delta,
            self.budget,
        )

    def refusal(self, party: str, message: int, after: Released, spent: str) -> str:
        """Say why a message is not sent."""
        return (
            f"{party} has sent its {self.messages:,} messages, one a round: another would be of no "
            "round."
        )

    def row(self, message: int) -> dict[str, str | int | float]:
        """Describe the messages for the ledger's table."""
        noise = {"multiplier": self.multipliers[0], "noise_multiplier": self.noise_multiplier(0)}
        return {"message": "every round", "window": 1, **noise, "unit": self.unit.name}

    def identity(self) -> dict[str, object]:
        """Return what the figures follow from."""
        return {**super().identity(), "rounds": self.messages}


def every_round(
    budget: Budget, unit: str = "entry", schedule: str = "tight", *, rounds: int, producers: int
) -> EveryRound:
    """Make the noise of messages after every round.

    `tight` and `equal` prove the budget for all rounds together, as `plan` does; `paper` is the
    textbook's noise for epsilon in each round (section 5.1 of the paper on federated buyers), whose
    sum `claims` tells.
    """
    check.one_of(schedules.SCHEDULES, schedule=schedule)
    check.at_least(1, rounds=rounds)
    about = schedules.unit_named(unit)
    if schedule == "paper":
        noise = classical_multiplier(budget.epsilon, budget.delta)
    else:
        count = 1 if schedule == "tight" and about.disjoint else rounds
        noise = (
            math.sqrt(count)
            * about.sensitivity(producers, 1)
            / largest_mu(budget.epsilon, budget.delta)
        )
    check_largest(noise, budget, unit)
    made = EveryRound(
        (noise,), range(1, rounds + 1), producers, about, schedule, budget.delta, budget
    )
    return within_budget(made, budget) if schedule == "paper" else raised(made, budget)


def noise_every_round(
    noise: float, *, rounds: int, producers: int, delta: float = 1e-5
) -> EveryRound:
    """Account for given noise in every round, sigma / capacity, for unit entry."""
    check.between(0, LARGEST_NOISE, noise=noise)
    about = schedules.unit_named("entry")
    return EveryRound((noise,), range(1, rounds + 1), producers, about, GIVEN, delta)
