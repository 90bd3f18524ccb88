"""Off-policy evaluation without the logs: each client gives six numbers, clipped, and only their
sum is needed.

A client adds up its rows to v = (A, B, rows): numerator, denominator and number of rows. If |v| >
clip, v is scaled down to norm `clip`: its ratio A / B stays, its say falls. For the interval it
also gives (A^2, A B, B^2) of the scaled v. Adding or removing one client then moves the sum of v by
at most `clip` in L2 norm, and all six numbers by at most sqrt(clip^2 + clip^4) (`sensitivity`);
replacing one by at most twice that. Sums add with `+`, in a secure aggregation or under noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.statistics import Interval, student
from posse.policies.evaluation import offline
from posse.policies.evaluation.offline import Floats, Log

FEWEST_CLIENTS = 10.0
"""Effective number of clients below which their sums give no interval."""


@dataclass(frozen=True)
class ClientSums:
    """What one client, or many together, gives.

    >>> one = ClientSums(3.0, 4.0, 0.0, 10.0)
    >>> (one + one).numerator, round(one.sensitivity, 2)
    (6.0, 100.5)
    >>> ClientSums(3.0, 4.0, 0.0, 2.5).clipped().denominator
    2.0
    """

    numerator: float
    denominator: float
    rows: float
    clip: float
    squares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Sums of A^2, A B and B^2 over clients."""
    clients: int = 1

    @property
    def sensitivity(self) -> float:
        """L2 norm by which one client, added or removed, moves (A, B, rows, A^2, A B, B^2)."""
        return math.hypot(self.clip, self.clip**2)

    def clipped(self) -> ClientSums:
        """Scale one client's sums down to the clip, and square them."""
        if self.clients != 1:
            raise ConfigError(
                f"clipping is for one client's sums, got those of {self.clients}. Clip before "
                "adding.",
                rule="policies.clients.not-one",
            )
        norm = math.hypot(self.numerator, self.denominator, self.rows)
        scale = min(1.0, self.clip / max(norm, 1e-300))
        a = self.numerator * scale
        b = self.denominator * scale
        return ClientSums(a, b, self.rows * scale, self.clip, (a * a, a * b, b * b))

    def __add__(self, other: ClientSums) -> ClientSums:
        if self.clip != other.clip:
            raise ConfigError(
                f"sums must have the same clip to add, got {self.clip} and {other.clip}. Agree "
                "on one.",
                rule="policies.clip.differs",
            )
        squares = np.add(self.squares, other.squares).tolist()
        return ClientSums(
            self.numerator + other.numerator,
            self.denominator + other.denominator,
            self.rows + other.rows,
            self.clip,
            (squares[0], squares[1], squares[2]),
            self.clients + other.clients,
        )

    def estimate(
        self, method: str = "snips", level: float = 0.95, noise: float = 0.0
    ) -> offline.Estimate:
        """Return the value and its interval.

        Value and standard error are those of `evaluate` if no client was clipped. The interval is
        Student's without the correction for skewness, for which six numbers are too few. The
        effective size is in clients, (sum B)^2 / sum B^2; below `FEWEST_CLIENTS` there is no
        interval.

        Args:
            method: The estimator of the sums.
            level: Coverage of the interval.
            noise: Standard deviation of the noise that each of the six sums carries.
        """
        check.between(0.5, 0.999999, level=level)
        if self.denominator <= 0:
            raise DataError(
                f"the denominators must add up to more than 0, got {self.denominator:g}. Ask more "
                "clients.",
                rule="policies.denominator.not-positive",
            )
        v = self.numerator / self.denominator
        aa, ab, bb = self.squares
        squares = max(aa - 2 * v * ab + v * v * bb, 0.0)
        # The noise of A and B, and two standard deviations of the noise in the sum of squares.
        squares += noise**2 * (1 + v * v) + 2 * noise * math.sqrt(1 + 4 * v * v + v**4)
        error = offline.standard_error(squares, self.denominator, self.clients)
        effective = self.denominator**2 / bb if bb > 0 else 0.0
        interval = Interval(v, -math.inf, math.inf, level)
        if self.clients < 2:
            effective = 1.0
        elif effective >= FEWEST_CLIENTS:
            df = min(offline.degrees(effective), self.clients - 1)
            interval = student(v, error, df, level)
        rows = round(self.rows)
        return offline.Estimate(method, interval, error, rows, self.clients, effective, interval)


def client_sums(
    log: Log,
    target: Floats,
    clip: float,
    method: str = "snips",
    *,
    predictions: Floats | None = None,
    most_weight: float = math.inf,
) -> ClientSums:
    """Add up one client's own rows, clipped; refused without support, before anything leaves the
    device.

    `most_weight` cuts single importance weights to at most so much: less variance, and a bias
    towards 0 for `ips`.
    """
    check.one_of(offline.ESTIMATORS, method=method)
    check.positive(clip=clip)
    offline.check_target(log, target)
    offline.check_support(log, target)
    if math.isfinite(most_weight):
        check.at_least(1, most_weight=most_weight)
        chosen = target[np.arange(len(log)), log.arms]
        log = Log(log.arms, log.rewards, np.maximum(log.probabilities, chosen / most_weight))
    a, b = offline.terms(log, target, method, predictions).sum(axis=0)
    return ClientSums(float(a), float(b), float(len(log)), clip).clipped()
