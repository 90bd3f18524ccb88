"""Units of protection, rounds in which agents talk, and how a budget becomes noise.

A unit is what may change in an agent's history without others noticing. An agent buys l_it units, 0
<= l_it <= k_i, from producer i in round t. A message tells, for each producer, the units bought and
the good ones among them since the last message, each with noise in proportion to the capacity k_i.
One entry l_it moves each of the two by at most k_i, hence both together by sqrt(2) k_i in the L2
norm; m producers by sqrt(2 m), and L rounds by sqrt(2 m) L, in units of k.

| schedule | noise |
|---|---|
| `paper` | as published: epsilon_z = epsilon / (2 ln T) + epsilon / 2^(z+1), textbook noise for each |
| `equal` | the same budget for every message, all composed in sequence: needs no argument about disjoint windows |
| `tight` | the least noise under the unit: where windows are disjoint every message may spend all of the budget |

Noise is given as a multiplier: sigma of producer i of an agent is multiplier_z * k_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.gaussian import classical_multiplier, largest_mu
from posse.privacy.dp.guarantee import Budget

SCHEDULES = ("paper", "equal", "tight")

EVENT_LEVEL = (
    "the agent's own later choices: they depend on what it bought before, and the guarantee holds "
    "the rest of its "
    "history fixed (event level)"
)
"""What no unit smaller than a history covers."""

NEVER_COVERED = (
    "capacities, to which the noise is scaled, and which producers an agent deals with at all",
    "what producers see: the orders themselves",
)
"""What no unit covers."""


@dataclass(frozen=True)
class Unit:
    """A unit of protection; `disjoint` if it lies in one window between two messages, whatever it
    is.
    """

    name: str
    what: str
    adjacency: str
    disjoint: bool
    all_producers: bool
    also_not_covered: tuple[str, ...] = ()

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What a guarantee for this unit says nothing about."""
        return (*self.also_not_covered, *NEVER_COVERED)

    def sensitivity(self, producers: int, rounds: int) -> float:
        """L2 norm, in units of k, by which one unit moves the message about a window of `rounds`
        rounds.

        >>> [round(unit.sensitivity(30, 200), 2) for unit in UNITS.values()]
        [1.41, 7.75, 1549.19]
        """
        check.at_least(1, producers=producers)
        check.at_least(1, rounds=rounds)
        return math.sqrt(2 * (producers if self.all_producers else 1)) * (
            1 if self.disjoint else rounds
        )


def unit_named(name: str) -> Unit:
    """Return a unit by its name, or say which there are."""
    check.one_of(tuple(UNITS), unit=name)
    return UNITS[name]


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "entry",
            "one agent's purchase from one producer in one round",
            "replace: another quantity up to capacity, and other good units among it",
            disjoint=True,
            all_producers=False,
            also_not_covered=(
                "several entries at once: other producers or other rounds of the same agent",
                EVENT_LEVEL,
            ),
        ),
        Unit(
            "round",
            "everything one agent buys in one round, from all producers",
            "replace: another purchase of that round up to capacities, and other good units among "
            "it",
            disjoint=True,
            all_producers=True,
            also_not_covered=("several rounds at once", EVENT_LEVEL),
        ),
        Unit(
            "history",
            "everything one agent buys, from all producers, in all rounds",
            "replace: another history up to capacities, and other good units in it",
            disjoint=False,
            all_producers=True,
        ),
    )
}
"""The units, smallest first."""


def communication_rounds(start: int, stop: int, horizon: int) -> tuple[int, ...]:
    """Return the rounds start, 2 start, 4 start, ... that are at most `stop` and at most `horizon`.

    >>> communication_rounds(200, 40_000, 100_000)
    (200, 400, 800, 1600, 3200, 6400, 12800, 25600)
    """
    check.at_least(1, start=start)
    if stop < start:
        raise ConfigError(
            f"stop must be at least start, got stop {stop} before start {start}. Raise stop."
        )
    if horizon < start:
        raise ConfigError(
            f"the first message is in round {start} and there are {horizon} rounds: nobody would "
            "talk. "
            "Lower start or raise rounds."
        )
    count = (min(stop, horizon) // start).bit_length()
    return tuple(start << z for z in range(count))


def windows(rounds: Sequence[int]) -> tuple[int, ...]:
    """Return how many rounds each message is about: those since the last one, the first from round
    1 on.

    >>> windows((200, 400, 800))
    (200, 200, 400)
    """
    if not rounds:
        raise ConfigError("there must be a communication round, got none.")
    lengths = tuple(b - a for a, b in pairwise((0, *rounds)))
    if min(lengths) < 1:
        raise ConfigError(
            f"communication rounds must start at 1 or later and rise, got {list(rounds)}."
        )
    return lengths


def paper_split(epsilon: float, horizon: int, count: int) -> tuple[float, ...]:
    """Return the published split epsilon_z = epsilon / (2 ln T) + epsilon / 2^(z+1), z = 1 ...
    count.

    Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits with
    constraints, ECML PKDD 2022, section 5.3. The sum is not epsilon: it depends on the number of
    messages.

    >>> round(sum(paper_split(1.0, 100_000, 8)), 3)
    0.845
    """
    check.at_least(2, horizon=horizon)
    return tuple(
        epsilon / (2 * math.log(horizon)) + epsilon / 2 ** (z + 1) for z in range(1, count + 1)
    )


def paper_multipliers(budget: Budget, horizon: int, count: int) -> tuple[float, ...]:
    """Return the published noise: the textbook's for each of the two counts, with the whole delta
    every time.

    >>> [round(x, 2) for x in paper_multipliers(Budget(1, 0.01), 100_000, 8)][::7]
    [10.59, 68.47]
    """
    return tuple(
        classical_multiplier(part, budget.delta)
        for part in paper_split(budget.epsilon, horizon, count)
    )


def calibrated_multipliers(
    schedule: str, budget: Budget, unit: Unit, lengths: Sequence[int], producers: int
) -> tuple[float, ...]:
    """Return the noise of `equal` or `tight`: sensitivity_z sqrt(n) / mu, with the largest mu of
    the budget.

    n is the number of messages that tell about one unit: all of them, or one where `tight` finds
    windows disjoint.

    >>> [
    ...     round(
    ...         calibrated_multipliers(name, Budget(1, 0.01), UNITS["entry"], (200, 200), 30)[0], 2
    ...     )
    ...     for name in ("tight", "equal")
    ... ]
    [2.66, 3.76]
    """
    count = 1 if schedule == "tight" and unit.disjoint else len(lengths)
    noise = math.sqrt(count) / largest_mu(budget.epsilon, budget.delta)
    return tuple(noise * unit.sensitivity(producers, length) for length in lengths)
