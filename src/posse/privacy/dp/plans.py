"""A plan couples noise and its accounting: the same numbers scale the noise and make the events
that pay for it.

Calibrated noise is checked against the accountant: its figure is rounded up by about one part in a
million, so noise is raised by as much where it would otherwise say 1.0000001 for an asked 1. The
figure of a plan is never above its budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.privacy.dp import schedules
from posse.privacy.dp.accountant import (
    Event,
    accountant_name,
    basic,
    gaussian_event,
    largest_epsilon,
)
from posse.privacy.dp.guarantee import PARALLEL, SEQUENTIAL, Budget, Claim, Guarantee, check_delta
from posse.privacy.dp.ledger import Mechanism, Released
from posse.privacy.dp.schedules import Unit

LARGEST_NOISE = 10**12
"""Multiplier beyond which noise is nothing but noise, and arithmetic ends."""

GIVEN = "given"
"""Schedule of a plan whose noise was given, not made from a budget."""

P = TypeVar("P", bound="Plan")


@dataclass(frozen=True)
class Plan(Mechanism):
    """Noise for every message, and the unit and delta under which it is accounted for.

    `multipliers[z]` times the capacity is the standard deviation of the noise of message z = 0, 1,
    ...
    """

    multipliers: tuple[float, ...]
    rounds: Sequence[int]
    producers: int
    unit: Unit
    schedule: str
    delta: float
    budget: Budget | None = None
    horizon: int | None = None
    stop: int | None = None

    @property
    def most(self) -> int | None:
        """No number: what the budget allows depends on which messages are released."""
        return None

    @property
    def everything(self) -> Released:
        """Every message, once."""
        return Counter(range(self.messages))

    @property
    def windows(self) -> tuple[int, ...]:
        """Rounds that each message is about."""
        return schedules.windows(self.rounds)

    @property
    def messages(self) -> int:
        """Number of messages planned."""
        return len(self.multipliers)

    def noise_multiplier(self, z: int, unit: str | None = None) -> float:
        """Return sigma over the sensitivity of the unit in window z: what the accounting event is
        made of.
        """
        return self.multipliers[z] / self._unit(unit).sensitivity(self.producers, self.windows[z])

    def composition(self, unit: str | None = None) -> str:
        """Say how messages compose for a unit; `equal` leans on no argument about windows."""
        return PARALLEL if self._unit(unit).disjoint and self.schedule != "equal" else SEQUENTIAL

    def event(
        self, z: int, unit: str | None = None, composition: str | None = None
    ) -> tuple[int, Event]:
        """Return the block of data that message z is about, and its event."""
        parallel = (composition or self.composition(unit)) == PARALLEL
        if parallel and not self._unit(unit).disjoint:
            raise ConfigError(
                f"unit {self._unit(unit).name} spans all windows: messages about it compose in "
                "sequence."
            )
        return z if parallel else 0, gaussian_event(self.noise_multiplier(z, unit))

    def check(self, message: int) -> None:
        """Raise for a message that is not planned."""
        if not 0 <= message < self.messages:
            raise ConfigError(
                f"the plan has {self.messages} messages, numbered from 0; got {message}."
            )

    def within(self, released: Released) -> bool:
        """Return whether the messages released stay within the budget."""
        return self.budget is None or self.epsilon(released) <= self.budget.epsilon

    def epsilon(
        self, released: Released, unit: str | None = None, composition: str | None = None
    ) -> float:
        """Return what the messages released prove, for the plan's own unit or for another."""
        blocks: dict[int, list[Event]] = {}
        for z, times in released.items():
            block, event = self.event(z, unit, composition)
            blocks.setdefault(block, []).extend([event] * times)
        return largest_epsilon(blocks.values(), self.delta)

    def guarantees(self, released: Released) -> tuple[Guarantee]:
        """Return what the messages released prove, for the plan's own unit."""
        return (self.guarantee(released=released),)

    def guarantee(
        self,
        unit: str | None = None,
        composition: str | None = None,
        released: Released | None = None,
    ) -> Guarantee:
        """Return what all messages together prove, or those released, for the plan's own unit or
        for another.
        """
        about, released = self._unit(unit), self.everything if released is None else released
        return Guarantee(
            self.epsilon(released, unit, composition),
            self.delta,
            about.name,
            about.adjacency,
            released.total(),
            composition or self.composition(unit),
            accountant_name(),
            about.what,
            about.not_covered,
        )

    def claims(self) -> tuple[Claim, ...]:
        """Return the figures that could be claimed for this noise, from the boldest to the proved
        ones.
        """
        proved = [self.guarantee(composition=SEQUENTIAL)]
        if self.unit.disjoint:
            proved.append(self.guarantee(composition=PARALLEL))
        published: tuple[Claim, ...] = ()
        if self.schedule == "paper" and self.budget is not None and self.horizon is not None:
            # The last round in which a message may be sent: `stop`, or the largest that would give
            # the same rounds.
            last = min(self.stop or 2 * self.rounds[-1] - 1, self.horizon)
            published = paper_claims(self.budget, self.horizon, self.messages, last)
        return published + tuple(
            Claim(
                f"Gaussian composition, {one.composition}, unit {one.unit}",
                one.epsilon,
                one.delta,
                proved=True,
            )
            for one in proved
        )

    def refusal(self, party: str, message: int, after: Released, spent: str) -> str:
        """Say why a message is not sent."""
        again = " once more" if after[message] > 1 else ""
        remedy = (
            "Send what was sent before, or plan with a larger budget."
            if again
            else "Plan with a larger budget."
        )
        return (
            f"{party} cannot send message {message + 1} (round {self.rounds[message]}){again}: it "
            "would have spent "
            f"{spent}. {remedy}"
        )

    def row(self, message: int) -> dict[str, str | int | float]:
        """Describe a message for the ledger's table."""
        return {
            "message": message + 1,
            "round": self.rounds[message],
            "window": self.windows[message],
            "multiplier": self.multipliers[message],
            "noise_multiplier": self.noise_multiplier(message),
            "unit": self.unit.name,
        }

    def identity(self) -> dict[str, object]:
        """Return what the figures follow from; under another plan they would be other figures."""
        return {
            "multipliers": list(self.multipliers),
            "rounds": list(self.rounds),
            "producers": self.producers,
            "unit": self.unit.name,
            "schedule": self.schedule,
            "delta": self.delta,
            "budget": None if self.budget is None else [self.budget.epsilon, self.budget.delta],
        }

    def _unit(self, name: str | None) -> Unit:
        return self.unit if name is None else schedules.unit_named(name)


def plan(
    budget: Budget,
    unit: str = "entry",
    schedule: str = "tight",
    *,
    rounds: Sequence[int],
    producers: int,
    horizon: int | None = None,
    stop: int | None = None,
) -> Plan:
    """Make the noise that a budget asks for; `horizon` (all rounds, T) is needed for schedule
    `paper` only.

    >>> made = plan(Budget(1, 0.01), rounds=(200, 400, 800), producers=30)
    >>> round(made.multipliers[0], 2), made.guarantee().epsilon <= 1
    (2.66, True)
    >>> plan(Budget(1, 0.01), "round", "paper", rounds=(200, 400), producers=30, horizon=100_000)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] schedule paper proves (1.526, 0.01) for unit round with 30
    producers, which
    is more than the asked (1, 0.01). Use schedule 'tight' or unit 'entry'.
    """
    check.one_of(schedules.SCHEDULES, schedule=schedule)
    about, lengths = schedules.unit_named(unit), schedules.windows(rounds)
    if horizon is not None and rounds[-1] > horizon:
        raise ConfigError(
            f"communication rounds must end by round {horizon}, got {rounds[-1]}. Drop those "
            "beyond."
        )
    if schedule != "paper":
        multipliers = schedules.calibrated_multipliers(schedule, budget, about, lengths, producers)
    elif horizon is None:
        raise ConfigError(
            "schedule paper splits its budget by the number of rounds: give the horizon."
        )
    else:
        multipliers = schedules.paper_multipliers(budget, horizon, len(lengths))
    check_largest(max(multipliers), budget, unit)
    made = Plan(
        multipliers, tuple(rounds), producers, about, schedule, budget.delta, budget, horizon, stop
    )
    return within_budget(made, budget) if schedule == "paper" else raised(made, budget)


def plan_of_noise(
    multipliers: float | Sequence[float],
    unit: str = "entry",
    *,
    rounds: Sequence[int],
    producers: int,
    delta: float = 1e-5,
) -> Plan:
    """Account for given noise, sigma / capacity: one multiplier for every message, or one for each.

    >>> plan_of_noise(2.66, rounds=(200, 400), producers=30, delta=0.01).guarantee().figure
    '(0.9979, 0.01)'
    """
    count = len(schedules.windows(rounds))
    given = (multipliers,) if isinstance(multipliers, int | float) else tuple(multipliers)
    for noise in given:
        check.between(0, LARGEST_NOISE, noise=noise)
    if len(given) not in (1, count):
        raise ConfigError(
            f"noise must be one multiplier or one for each of {count} messages, got {len(given)}."
        )
    check.at_least(1, producers=producers)
    return Plan(
        given * (count if len(given) == 1 else 1),
        tuple(rounds),
        producers,
        schedules.unit_named(unit),
        GIVEN,
        delta,
    )


def check_largest(noise: float, budget: Budget, unit: str) -> None:
    """Refuse noise beyond what arithmetic can make."""
    if noise > LARGEST_NOISE:
        raise ConfigError(
            f"{budget} for unit {unit} needs noise of {noise:.3g} capacities, at most "
            f"{LARGEST_NOISE:.0e} "
            "can be made. Ask for a larger epsilon or delta."
        )


def within_budget(made: P, budget: Budget) -> P:
    """Return a plan of published noise, or refuse one that proves less than was asked for."""
    proved = made.guarantee()
    if proved.epsilon <= budget.epsilon:
        return made
    other = "" if made.unit.name == "entry" else " or unit 'entry'"
    raise ConfigError(
        f"schedule {made.schedule} proves {proved.figure} for unit {made.unit.name} with "
        f"{made.producers} producers, "
        f"which is more than the asked {budget}. Use schedule 'tight'{other}."
    )


def raised(made: P, budget: Budget) -> P:
    """Raise the noise until the accountant proves the budget; epsilon falls at least as fast as the
    noise grows.
    """
    for _ in range(100):
        epsilon = made.guarantee().epsilon
        if epsilon <= budget.epsilon:
            return made
        factor = max(epsilon / budget.epsilon, 1 + 1e-12)
        if not factor * max(made.multipliers) <= LARGEST_NOISE:
            break
        made = replace(made, multipliers=tuple(factor * noise for noise in made.multipliers))
    raise ConfigError(
        f"{budget} cannot be accounted for: {accountant_name()} proves figures up to epsilon "
        "500,000 and from delta "
        "1e-15 on, and of epsilon from 1e-9 on. Ask for another epsilon, or a larger delta."
    )


def paper_claims(budget: Budget, horizon: int, messages: int, last: int) -> tuple[Claim, ...]:
    """Return the published figures for one entry, as claimed and with the releases counted.

    The published split is summed in two ways, because text and algorithm disagree about the number
    of messages: rounds 200 * 2^z, or tau = 1, 2, 4, ... as printed, where every power of two up to
    the stop round is a message. Neither sum counts that units bought and good units are two
    releases, and that delta is spent at each.

    >>> for claim in paper_claims(Budget(1, 0.01), 100_000, 8, 40_000):
    ...     print(f"{claim.epsilon:.3f} {claim.delta:.2f} {claim.how}")
    1.000 0.01 as published
    0.845 0.01 sum of its split over 8 messages
    1.195 0.01 sum of its split over 16 messages, its algorithm as printed (tau from 1)
    1.691 0.16 basic composition of its own figures, unit entry: two counts a message, delta at each
    """
    split = schedules.paper_split(budget.epsilon, horizon, messages)
    printed = last.bit_length()
    epsilon, delta = basic((part, budget.delta) for part in (*split, *split))
    return (
        Claim("as published", budget.epsilon, budget.delta, proved=False),
        Claim(f"sum of its split over {messages} messages", sum(split), budget.delta, proved=False),
        Claim(
            f"sum of its split over {printed} messages, its algorithm as printed (tau from 1)",
            sum(schedules.paper_split(budget.epsilon, horizon, printed)),
            budget.delta,
            proved=False,
        ),
        Claim(
            "basic composition of its own figures, unit entry: two counts a message, delta at each",
            epsilon,
            delta,
            proved=max(split) < 1 and delta < 1,
        ),
    )


class BudgetSettings(Settings):
    """What may be spent, for what, and over which messages; or the noise there is, to see what it
    proves.
    """

    epsilon: float | None = None
    """Epsilon that may be spent, together with delta (default: 1, unless noise is given)."""
    noise: tuple[float, ...] | None = None
    """Noise there is instead of an epsilon: standard deviation over capacity, one for all messages
    or one for each, such as 2.66 or 10,20,40.
    """
    delta: float = 0.01
    """Delta that goes with epsilon; below 1."""
    unit: Literal["entry", "round", "history"] = "entry"
    """What is protected: one purchase from one producer in one round, all purchases of a round, or
    everything an agent buys.
    """
    schedule: Literal["paper", "equal", "tight"] | None = None
    """How the budget becomes noise: as published, the same for all messages, or the least (default:
    tight).
    """
    rounds: int = 100_000
    """Rounds played."""
    start: int = 200
    """Round of the first message; the others follow at twice, four times, ... that round."""
    stop: int = 40_000
    """No messages after this round."""
    producers: int = 30
    """Producers that an agent buys from."""

    def plan(self) -> Plan:
        """Make the plan, or say in one line what is wrong.

        >>> BudgetSettings(epsilon=1).plan().guarantee().figure
        '(1, 0.01)'
        >>> BudgetSettings(noise=[2.66]).plan().guarantee().figure
        '(0.9979, 0.01)'
        """
        check.at_least(1, rounds=self.rounds)
        check.at_least(1, producers=self.producers)
        check_delta(self.delta)
        messages = schedules.communication_rounds(self.start, self.stop, self.rounds)
        if self.noise is None:
            budget = Budget(1.0 if self.epsilon is None else self.epsilon, self.delta)
            return plan(
                budget,
                self.unit,
                self.schedule or "tight",
                rounds=messages,
                producers=self.producers,
                horizon=self.rounds,
                stop=self.stop,
            )
        for name in ("epsilon", "schedule"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"give {name} or noise, not both: noise is what {name} would make."
                )
        return plan_of_noise(
            self.noise, self.unit, rounds=messages, producers=self.producers, delta=self.delta
        )
