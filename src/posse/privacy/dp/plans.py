"""A plan couples noise and its accounting: the same numbers scale the noise and make the events that pay for it.

Calibrated noise is checked against the accountant: its figure is rounded up by about one part in a million, so noise is
raised by as much where it would otherwise say 1.0000001 for an asked 1. The figure of a plan is never above its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.accountant import Event, accountant_name, gaussian_event
from posse.privacy.dp.budget import Budget, check_delta
from posse.privacy.dp.claims import Claim, claims_of
from posse.privacy.dp.guarantee import PARALLEL, SEQUENTIAL, Guarantee
from posse.privacy.dp.schedules import SCHEDULES, calibrated_multipliers, paper_multipliers, windows
from posse.privacy.dp.spending import Spending
from posse.privacy.dp.units import Unit, unit_named

LARGEST_NOISE = 10**12
"""Multiplier beyond which noise is nothing but noise, and arithmetic ends."""

GIVEN = "given"
"""Schedule of a plan whose noise was given, not made from a budget."""


@dataclass(frozen=True)
class Plan:
    """Noise for every message, and the unit and delta under which it is accounted for.

    `multipliers[z]` times the capacity is the standard deviation of the noise of message z = 0, 1, ...
    """

    multipliers: tuple[float, ...]
    rounds: tuple[int, ...]
    producers: int
    unit: Unit
    schedule: str
    delta: float
    budget: Budget | None = None
    horizon: int | None = None
    stop: int | None = None

    @property
    def windows(self) -> tuple[int, ...]:
        """Rounds that each message is about."""
        return windows(self.rounds)

    @property
    def messages(self) -> int:
        """Number of messages planned."""
        return len(self.multipliers)

    def noise_multiplier(self, z: int, unit: str | None = None) -> float:
        """Return sigma over the sensitivity of the unit in window z: what the accounting event is made of."""
        return self.multipliers[z] / self._unit(unit).sensitivity(self.producers, self.windows[z])

    def composition(self, unit: str | None = None) -> str:
        """Say how messages compose for a unit; `equal` leans on no argument about windows."""
        return PARALLEL if self._unit(unit).disjoint and self.schedule != "equal" else SEQUENTIAL

    def event(self, z: int, unit: str | None = None, composition: str | None = None) -> tuple[int, Event]:
        """Return the block of data that message z is about, and its event."""
        parallel = (composition or self.composition(unit)) == PARALLEL
        if parallel and not self._unit(unit).disjoint:
            raise ConfigError(f"unit {self._unit(unit).name} spans all windows: messages about it compose in sequence.")
        return z if parallel else 0, gaussian_event(self.noise_multiplier(z, unit))

    def guarantee(self, unit: str | None = None, composition: str | None = None) -> Guarantee:
        """Return what all messages together prove, for the plan's own unit or for another."""
        spending = Spending(self.delta)
        for z in range(self.messages):
            spending.record(*self.event(z, unit, composition))
        return self.proved(spending, unit, composition)

    def proved(self, spending: Spending, unit: str | None = None, composition: str | None = None) -> Guarantee:
        """Put a figure together with what it covers."""
        about = self._unit(unit)
        return Guarantee(
            spending.epsilon, spending.delta, about.name, about.adjacency, spending.releases,
            composition or self.composition(unit), accountant_name(), about.what, about.not_covered,
        )  # fmt: skip

    def claims(self) -> tuple[Claim, ...]:
        """Return the figures that could be claimed for this noise, from the boldest to the proved ones."""
        proved = [self.guarantee(composition=SEQUENTIAL)]
        if self.unit.disjoint:
            proved.append(self.guarantee(composition=PARALLEL))
        return claims_of(self.schedule, self.budget, self.messages, self.horizon, self._last, proved)

    @property
    def _last(self) -> int:
        """Last round in which a message may be sent: `stop`, or the largest that would give the same rounds."""
        return min(self.stop or 2 * self.rounds[-1] - 1, self.horizon or 2 * self.rounds[-1] - 1)

    def _unit(self, name: str | None) -> Unit:
        return self.unit if name is None else unit_named(name)


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
    """Make the noise that a budget asks for; `horizon` (all rounds, T) is needed for schedule `paper` only.

    >>> made = plan(Budget(1, 0.01), rounds=(200, 400, 800), producers=30)
    >>> round(made.multipliers[0], 2), made.guarantee().epsilon <= 1
    (2.66, True)
    >>> plan(Budget(1, 0.01), "round", "paper", rounds=(200, 400), producers=30, horizon=100_000)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] schedule paper proves (1.526, 0.01) for unit round with 30 producers, which
    is more than the asked (1, 0.01). Use schedule 'tight' or unit 'entry'.
    """
    check.one_of(SCHEDULES, schedule=schedule)
    about, lengths = unit_named(unit), windows(rounds)
    if horizon is not None and rounds[-1] > horizon:
        raise ConfigError(f"communication rounds must end by round {horizon}, got {rounds[-1]}. Drop those beyond.")
    multipliers = (
        paper_multipliers(budget, _needed(horizon), len(lengths))
        if schedule == "paper"
        else calibrated_multipliers(schedule, budget, about, lengths, producers)
    )
    if max(multipliers) > LARGEST_NOISE:
        raise ConfigError(
            f"{budget} for unit {unit} needs noise of {max(multipliers):.3g} capacities, at most {LARGEST_NOISE:.0e} "
            "can be made. Ask for a larger epsilon or delta."
        )
    made = Plan(multipliers, tuple(rounds), producers, about, schedule, budget.delta, budget, horizon, stop)
    return _within(made, budget) if schedule == "paper" else _raised(made, budget)


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
    count = len(windows(rounds))
    given = (multipliers,) if isinstance(multipliers, int | float) else tuple(multipliers)
    for noise in given:
        check.between(0, LARGEST_NOISE, noise=noise)
    if len(given) not in (1, count):
        raise ConfigError(f"noise must be one multiplier or one for each of {count} messages, got {len(given)}.")
    check.at_least(1, producers=producers)
    check_delta(delta)
    return Plan(given * (count if len(given) == 1 else 1), tuple(rounds), producers, unit_named(unit), GIVEN, delta)


def _needed(horizon: int | None) -> int:
    if horizon is None:
        raise ConfigError("schedule paper splits its budget by the number of rounds: give the horizon.")
    return horizon


def _within(made: Plan, budget: Budget) -> Plan:
    """Return a plan of published noise, or refuse one that proves less than was asked for."""
    proved = made.guarantee()
    if proved.epsilon <= budget.epsilon:
        return made
    other = "" if made.unit.name == "entry" else " or unit 'entry'"
    raise ConfigError(
        f"schedule {made.schedule} proves {proved.figure} for unit {made.unit.name} with {made.producers} producers, "
        f"which is more than the asked {budget}. Use schedule 'tight'{other}."
    )


def _raised(made: Plan, budget: Budget) -> Plan:
    """Raise the noise until the accountant proves the budget; epsilon falls at least as fast as the noise grows."""
    for _ in range(100):
        epsilon = made.guarantee().epsilon
        if epsilon <= budget.epsilon:
            return made
        factor = max(epsilon / budget.epsilon, 1 + 1e-12)
        if not factor * max(made.multipliers) <= LARGEST_NOISE:
            break
        made = replace(made, multipliers=tuple(factor * noise for noise in made.multipliers))
    raise ConfigError(
        f"{budget} cannot be accounted for: {accountant_name()} proves figures up to epsilon 500,000 and from delta "
        "1e-15 on, and of epsilon from 1e-9 on. Ask for another epsilon, or a larger delta."
    )
