"""When agents talk, and how a budget becomes noise.

| schedule | noise |
|---|---|
| `paper` | as published: epsilon_z = epsilon / (2 ln T) + epsilon / 2^(z+1), textbook noise for each |
| `equal` | the same budget for every message, all composed in sequence: needs no argument about disjoint windows |
| `tight` | the least noise under the unit: where windows are disjoint every message may spend all of the budget |

Noise is told as a multiplier: sigma of producer i of an agent is multiplier_z * k_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.budget import Budget
from posse.privacy.dp.gaussian import classical_multiplier, largest_mu
from posse.privacy.dp.units import Unit

SCHEDULES = ("paper", "equal", "tight")


def communication_rounds(start: int, stop: int, horizon: int) -> tuple[int, ...]:
    """Return the rounds start, 2 start, 4 start, ... that are at most `stop` and at most `horizon`.

    >>> communication_rounds(200, 40_000, 100_000)
    (200, 400, 800, 1600, 3200, 6400, 12800, 25600)
    """
    check.at_least(1, start=start)
    if stop < start:
        raise ConfigError(f"stop must be at least start, got stop {stop} before start {start}. Raise stop.")
    if horizon < start:
        raise ConfigError(
            f"the first message is in round {start} and there are {horizon} rounds: nobody would talk. "
            "Lower start or raise rounds."
        )
    count = (min(stop, horizon) // start).bit_length()
    return tuple(start << z for z in range(count))


def windows(rounds: Sequence[int]) -> tuple[int, ...]:
    """Return how many rounds each message is about: those since the last one, the first from round 1 on.

    >>> windows((200, 400, 800))
    (200, 200, 400)
    """
    if not rounds:
        raise ConfigError("there must be a communication round, got none.")
    lengths = tuple(b - a for a, b in pairwise((0, *rounds)))
    if min(lengths) < 1:
        raise ConfigError(f"communication rounds must start at 1 or later and rise, got {list(rounds)}.")
    return lengths


def paper_split(epsilon: float, horizon: int, count: int) -> tuple[float, ...]:
    """Return the published split epsilon_z = epsilon / (2 ln T) + epsilon / 2^(z+1), z = 1 ... count.

    Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits with constraints, ECML
    PKDD 2022, section 5.3. The sum is not epsilon: it depends on the number of messages.

    >>> round(sum(paper_split(1.0, 100_000, 8)), 3)
    0.845
    """
    check.at_least(2, horizon=horizon)
    return tuple(epsilon / (2 * math.log(horizon)) + epsilon / 2 ** (z + 1) for z in range(1, count + 1))


def paper_multipliers(budget: Budget, horizon: int, count: int) -> tuple[float, ...]:
    """Return the published noise: the textbook's for each of the two counts, with the whole delta every time.

    >>> [round(x, 2) for x in paper_multipliers(Budget(1, 0.01), 100_000, 8)][::7]
    [10.59, 68.47]
    """
    return tuple(classical_multiplier(part, budget.delta) for part in paper_split(budget.epsilon, horizon, count))


def calibrated_multipliers(
    schedule: str, budget: Budget, unit: Unit, lengths: Sequence[int], producers: int
) -> tuple[float, ...]:
    """Return the noise of `equal` or `tight`: sensitivity_z sqrt(n) / mu, with the largest mu of the budget.

    n is the number of messages that tell about one unit: all of them, or one where `tight` finds windows disjoint.

    >>> from posse.privacy.dp.units import UNITS
    >>> [round(calibrated_multipliers(name, Budget(1, 0.01), UNITS["entry"], (200, 200), 30)[0], 2)
    ...  for name in ("tight", "equal")]
    [2.66, 3.76]
    """
    count = 1 if schedule == "tight" and unit.disjoint else len(lengths)
    noise = math.sqrt(count) / largest_mu(budget.epsilon, budget.delta)
    return tuple(noise * unit.sensitivity(producers, length) for length in lengths)
