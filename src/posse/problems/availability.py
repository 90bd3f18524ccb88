"""Clients that are late, missing, or never come: a function of (seed, client, round), whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.problems.counters import LATE, MISSING, NEVER, uniforms

IN_TIME = 0
AWAY = -1


@dataclass(frozen=True)
class Availability:
    """How clients that were asked answer.

    A share `never` of clients never answers; another misses a round with chance `missing`, each round anew; one that
    answers is late with chance `late`, by 1 to `delay` rounds, each alike. Late updates were computed on the model of
    the round they were asked in.

    >>> Availability(missing=0.2, late=0.3, delay=4, seed=1).status(np.arange(8), round_number=5).tolist()
    [0, -1, 0, 4, 0, 0, -1, 0]
    """

    missing: float = 0.0
    late: float = 0.0
    delay: int = 1
    never: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check.between(0, 1, missing=self.missing)
        check.between(0, 1, late=self.late)
        check.between(0, 1, never=self.never)
        check.at_least(1, delay=self.delay)
        if self.never == 1 or self.missing == 1:
            raise ConfigError("somebody must answer, got never or missing of 1. Lower it.")

    def status(self, clients: ArrayLike, round_number: int) -> NDArray[np.int64]:
        """Give for each client 0 if it answers in time, -1 if it is away, else by how many rounds it is late."""
        asked = np.atleast_1d(np.asarray(clients, np.int64))
        out = np.zeros(len(asked), np.int64)
        lateness = uniforms(self.seed, LATE, asked, round_number)
        late = lateness < self.late
        if late.any():
            # The same draw again, spread over [0, 1): which of the delays.
            out[late] = 1 + np.minimum((lateness[late] / self.late * self.delay).astype(np.int64), self.delay - 1)
        away = uniforms(self.seed, MISSING, asked, round_number) < self.missing
        away |= uniforms(self.seed, NEVER, asked) < self.never
        out[away] = AWAY
        return out

    def in_time(self, clients: ArrayLike, round_number: int) -> NDArray[np.bool_]:
        """Which of the clients answer in the round they are asked in."""
        return np.asarray(self.status(clients, round_number) == IN_TIME)
