"""Who takes part in a round, with which deployed model, and which logs it learns from: pure
functions of (seed, round).

`fixed`: so many clients, drawn without replacement. `poisson`: every client by a coin of its own,
which is what the figures of privacy by sampling speak of; a cohort that does not fit its padding is
an error and never cut.

A deployment may reach clients late (`versions`), and clients may keep logs (`logs_of`). Nobody
stores these: all is drawn by (seed, round, client), so that it suffices to know in which round a
log was made, and with which model.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.problems.populations.population import LAG, uniforms
from posse.problems.populations.worlds import Availability

SAMPLINGS = ("fixed", "poisson")
SAMPLE = 0
"""Seed of the random set that a client with more samples than fit takes, the same in all rounds and
runs.
"""
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
    stale: int = 0
    """Rounds by which a deployment reaches a client late, at most."""
    keep_log: int = 0
    """Deployments whose logs a client keeps and learns from; 0: it acts anew in every round."""

    @property
    def logs(self) -> bool:
        """Whether somebody's log may be of another round or model than the newest."""
        return bool(self.stale or self.keep_log)

    @property
    def behind(self) -> int:
        """Deployments that a client may be behind."""
        return -(-self.stale // self.deploy_every)

    @property
    def older(self) -> int:
        """Deployed models before the newest that somebody's log may be of."""
        return self.behind + max(0, self.keep_log - 1)

    @property
    def window(self) -> int:
        """Rounds, this one included, in which logs of a round may have been made."""
        return (self.older + 1) * self.deploy_every if self.keep_log else 1


class Logs(NamedTuple):
    """The logs that clients of a round learn from, (clients, logs): the one of the model they have
    comes first.
    """

    made: NDArray[np.int32]
    """How many rounds ago each was made; 0 in this round, -1 where there is none."""
    age: NDArray[np.int32]
    """How many deployments ago its model was deployed."""


def room(expected: int, sampling: str) -> int:
    """Places of a cohort: as many as clients, or enough for a Poisson cohort but once in 10^9
    rounds.
    """
    if sampling == "fixed":
        return expected
    return math.ceil((expected + 6.5 * math.sqrt(expected) + 12) / 8) * 8


def draw(
    seed: int, round_: int, clients: int, expected: int, sampling: str, *, supervised: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the numbers of the clients of a round, padded, and which of them are present.

    Supervised rounds are drawn apart from the others. A Poisson cohort is drawn as its size, which
    is binomial, and so many clients without replacement: the same distribution as a coin for every
    client, at O(cohort).
    """
    if sampling not in SAMPLINGS:
        raise ValueError(
            f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}. Choose one."
        )
    if not 1 <= expected <= clients:
        raise ValueError(
            f"a cohort of {expected} needs as many clients, got {clients}. Ask for fewer."
        )
    counter = [0, 0, int(supervised), round_]
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, _DRAWS], counter=counter))
    places = room(expected, sampling)
    if sampling == "fixed":
        return generator.choice(clients, expected, replace=False).astype(np.int32), np.ones(
            expected, np.float32
        )
    count = int(generator.binomial(clients, expected / clients))
    if count > places:
        raise OverflowingCohort(
            f"{count} clients were drawn for round {round_ + 1} where there is room for {places}. "
            "Take another seed: "
            "cutting the cohort would void the guarantee."
        )
    numbers = np.zeros(places, np.int32)
    numbers[:count] = generator.choice(clients, count, replace=False)
    return numbers, (np.arange(places) < count).astype(np.float32)


def cohort_of(
    schedule: Schedule, seed: int, round_: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the clients of a round of a schedule, padded, and which are present."""
    numbers, present = draw(
        seed,
        round_,
        schedule.clients,
        schedule.cohort,
        schedule.sampling,
        supervised=schedule.supervised,
    )
    if schedule.among is not None:
        numbers = np.asarray(schedule.among, np.int32)[numbers]
    if schedule.answers is not None:
        present = present * schedule.answers.in_time(numbers, round_).astype(np.float32)
    return numbers, present


def versions(
    schedule: Schedule, seed: int, round_: int, clients: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the deployment that each client acts with in a round: the newest of those that have
    reached it.

    Deployment d is made before round d x deploy_every and reaches a client L rounds later, L from 0
    to `stale`, each alike, a draw for (seed, client, d); all begin with the first one.
    """
    newest = round_ // schedule.deploy_every
    oldest = max(0, newest - schedule.behind)
    found = np.full(len(clients), oldest, np.int64)
    for number in range(oldest + 1, newest + 1):
        lag = np.floor(uniforms(seed, LAG, clients, number) * (schedule.stale + 1))
        found[number * schedule.deploy_every + lag <= round_] = number
    return found


def logs_of(schedule: Schedule, seed: int, round_: int, clients: NDArray[np.int32]) -> Logs | None:
    """Return the logs that the clients of a round learn from; none where all act anew with the
    newest model.

    A client acts once for a deployment that it has, in the first round that it takes part in with
    it, and keeps the logs of the last `keep_log` deployments.
    """
    if not schedule.logs:
        return None
    newest, held = round_ // schedule.deploy_every, versions(schedule, seed, round_, clients)
    if not schedule.keep_log:
        return Logs(
            np.zeros((len(clients), 1), np.int32), (newest - held)[:, None].astype(np.int32)
        )
    first: dict[tuple[int, int], int] = {}
    for at in range(max(0, (newest - schedule.older) * schedule.deploy_every), round_):
        for pair in _took_part(schedule._replace(rounds=0), seed, at):
            first.setdefault(pair, at)
    pairs = list(zip(clients.tolist(), held.tolist(), strict=True))
    for pair in pairs:
        first.setdefault(pair, round_)
    made = [
        [round_ - first.get((one, have - k), round_ + 1) for k in range(schedule.keep_log)]
        for one, have in pairs
    ]
    return Logs(
        np.array(made, np.int32),
        (newest - held)[:, None].astype(np.int32) + np.arange(schedule.keep_log),
    )


class Past(NamedTuple):
    """What lags and kept logs came to in some rounds of a run."""

    parts: int
    """Times that a client took part."""
    behind: int
    """Times that it acted with another model than the newest, or would have."""
    most_behind: int
    """Deployments that a client was behind, at most."""
    most_used: int
    """Rounds that learnt from one log, at most."""


def past(schedule: Schedule, seed: int, rounds: int) -> Past:
    """Count what happened in the first rounds of a run."""
    every = [
        (at // schedule.deploy_every, pair)
        for at in range(rounds)
        for pair in _took_part(schedule._replace(rounds=0), seed, at)
    ]
    ages = [newest - have for newest, (_, have) in every]
    uses = Counter(pair for _, pair in every)
    kept = max(1, schedule.keep_log)
    most = max((sum(uses[who, have + k] for k in range(kept)) for who, have in uses), default=0)
    return Past(
        len(ages),
        sum(age > 0 for age in ages),
        max(ages, default=0),
        most if schedule.keep_log else 1,
    )


@lru_cache(maxsize=2048)
def _took_part(schedule: Schedule, seed: int, round_: int) -> tuple[tuple[int, int], ...]:
    """Return the clients that took part in a round, and the deployment that each had."""
    numbers, present = cohort_of(schedule, seed, round_)
    who = numbers[present > 0]
    return tuple(zip(who.tolist(), versions(schedule, seed, round_, who).tolist(), strict=True))
