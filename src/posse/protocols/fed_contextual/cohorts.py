"""Who takes part in a round: a pure function of (seed, round).

`fixed`: so many clients, drawn without replacement. `poisson`: every client by a coin of its own, which is what the
figures of privacy by sampling speak of; a cohort that does not fit its padding is an error and never cut.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.problems.populations.worlds import Availability

SAMPLINGS = ("fixed", "poisson")
SAMPLE = 0
"""Seed of the random set that a client with more samples than fit takes, the same in all rounds and runs."""
_DRAWS = 0x636F686F7274


class OverflowingCohort(ValueError):
    """More clients were drawn than there is room for."""


class Schedule(NamedTuple):
    """How long, with how many clients, and when models are deployed."""

    rounds: int
    clients: int
    """Clients to draw from."""
    cohort: int = 64
    """Clients of a round; expected, where they are drawn by coins."""
    deploy_every: int = 200
    samples: int = 256
    """Padding: samples of a client at most."""
    sampling: str = "fixed"
    supervised: bool = False
    """Every arm's reward is told, as before a first deployment."""
    among: tuple[int, ...] | None = None
    """Their numbers, where they are not the whole population."""
    answers: Availability | None = None
    """Who answers in a round; all, if left out. An update that is late is lost."""


def room(expected: int, sampling: str) -> int:
    """Places of a cohort: as many as clients, or enough for a Poisson cohort but once in 10^9 rounds."""
    if sampling == "fixed":
        return expected
    return math.ceil((expected + 6.5 * math.sqrt(expected) + 12) / 8) * 8


def draw(
    seed: int, round_: int, clients: int, expected: int, sampling: str, *, supervised: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the numbers of the clients of a round, padded, and which of them are present.

    Supervised rounds are drawn apart from the others. A Poisson cohort is drawn as its size, which is binomial, and so
    many clients without replacement: the same distribution as a coin for every client, at O(cohort).
    """
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}. Choose one.")
    if not 1 <= expected <= clients:
        raise ValueError(f"a cohort of {expected} needs as many clients, got {clients}. Ask for fewer.")
    counter = [0, 0, int(supervised), round_]
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, _DRAWS], counter=counter))
    places = room(expected, sampling)
    if sampling == "fixed":
        return generator.choice(clients, expected, replace=False).astype(np.int32), np.ones(expected, np.float32)
    count = int(generator.binomial(clients, expected / clients))
    if count > places:
        raise OverflowingCohort(
            f"{count} clients were drawn for round {round_ + 1} where there is room for {places}. Take another seed: "
            "cutting the cohort would void the guarantee."
        )
    numbers = np.zeros(places, np.int32)
    numbers[:count] = generator.choice(clients, count, replace=False)
    return numbers, (np.arange(places) < count).astype(np.float32)


def cohort_of(schedule: Schedule, seed: int, round_: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the clients of a round of a schedule, padded, and which are present."""
    numbers, present = draw(
        seed, round_, schedule.clients, schedule.cohort, schedule.sampling, supervised=schedule.supervised
    )
    if schedule.among is not None:
        numbers = np.asarray(schedule.among, np.int32)[numbers]
    if schedule.answers is not None:
        present = present * schedule.answers.in_time(numbers, round_).astype(np.float32)
    return numbers, present
