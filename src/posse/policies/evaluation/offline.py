"""Off-policy evaluation: what another policy would have earned, from logs of (arm, reward,
probability).

With w = pi(a | x) / p, the target's chance of the logged arm over the logged one, and f a model of
rewards:

- `ips`: mean of w r; unbiased where the logs support the target, and of large variance;
- `snips`: sum of w r / sum of w; a bias of order 1/n, a smaller variance, never outside the rewards
  seen;
- `dr` (doubly robust): mean of sum_a pi(a | x) f(x, a) + w (r - f(x, a)); unbiased where the logged
  probabilities are true, and close where f is.

Each is a ratio of sums over clients, A / B. Rows of one client depend on each other, so clients are
clusters: the variance is the delta method's, m / (m - 1) sum_c (A_c - v B_c)^2 / B^2 over m
clients. The interval is Student's with as many degrees of freedom as the effective number of
clients, B^2 / sum_c B_c^2, less 1, which is m - 1 if all clients have the same weight. Large
weights make the estimate skewed, and the interval is extended accordingly
(`core.statistics.skewed_interval`). Below an effective sample size (sum w)^2 / sum w^2 of `FEWEST`
rows there is no interval. docs/benchmarks.md has the measured coverage. Dudik, Erhan, Langford, Li:
Doubly robust policy evaluation and optimization, 2014; Swaminathan, Joachims: The self-normalized
estimator for counterfactual learning, 2015. numpy alone is needed.

A target's choices that the logging policy never made cannot be valued. Where the chance of every
arm was logged, the share without support is the mean of pi's chance on arms of logged chance 0:
exact. Where only the drawn arm's chance was, two things show: a row logged with probability 1 gave
no other arm a chance, so that all of pi elsewhere is without support; and importance weights have
mean 1 where there is support, so that in `ENOUGH` rows a mean far below 1 (`SIGMAS` standard
errors) shows arms that were never drawn, or too rarely for the log to know them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError
from posse.core.statistics import Interval, simultaneous_level, skewed_interval

Floats = NDArray[np.float64]
ESTIMATORS = ("ips", "snips", "dr")
FEWEST = 30.0
"""Effective sample size, in rows, below which there is no interval."""


_COLUMNS = {
    "arms": np.int64,
    "rewards": np.float64,
    "probabilities": np.float64,
    "logging": np.float64,
    "clients": np.int64,
}


@dataclass(frozen=True, eq=False)
class Log:
    """What devices logged: one row a decision.

    `probabilities` are those with which the logged arms were drawn. `logging`, where kept, is the
    chance of every arm, and shows support exactly; `clients` says whose rows belong together (each
    row its own if left out).
    """

    arms: NDArray[np.int64]
    rewards: Floats
    probabilities: Floats
    logging: Floats | None = None
    clients: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name, kind in _COLUMNS.items():
            column = getattr(self, name)
            if column is not None:
                object.__setattr__(self, name, np.asarray(column, kind))
        rows = len(self.arms)
        if not rows:
            raise DataError(
                "a log needs a row, got none. Log some decisions first.",
                rule="policies.log.empty",
            )
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise DataError(
                    f"{name} must have one value per row, got {len(column)} for {rows} rows. Match them.",
                    rule=f"policies.{name}.wrong-length",
                )
        if not np.isfinite(self.rewards).all():
            raise DataError(
                "rewards must be finite numbers, got NaN or infinity. Leave those rows out.",
                rule="policies.rewards.not-finite",
            )
        wrong = np.flatnonzero(~((self.probabilities > 0) & (self.probabilities <= 1)))
        if len(wrong):
            raise DataError(
                f"logged probabilities must be in (0, 1], got {self.probabilities[wrong[0]]} in "
                f"row {wrong[0] + 1}. An arm of probability 0 cannot have been drawn: correct the "
                "log.",
                rule="policies.probabilities.out-of-range",
            )
        self._check_logging()

    def _check_logging(self) -> None:
        """Refuse chances of every arm that are not those with which the arms were drawn."""
        if self.logging is None:
            return
        known = np.flatnonzero((self.arms >= 0) & (self.arms < self.logging.shape[1]))
        chances = self.logging[known, self.arms[known]]
        wrong = known[np.abs(chances - self.probabilities[known]) > 1e-3]
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                "logged probabilities must be those of the logged arms, got "
                f"{self.probabilities[row]:g} and {self.logging[row, self.arms[row]]:g} in row "
                f"{row + 1}. Correct one of them.",
                rule="policies.probabilities.contradict-logging",
            )

    def __len__(self) -> int:
        return len(self.arms)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, and what it rests on."""

    method: str
    interval: Interval
    error: float
    """Standard error."""
    rows: int
    clients: int
    effective: float
    """Effective sample size in rows: (sum w)^2 / sum w^2."""
    simultaneous: Interval
    """Wider: the intervals of all policies that are compared hold together. Use it for the policy
    that looks best.
    """

    @property
    def value(self) -> float:
        """The estimated reward a decision."""
        return self.interval.estimate

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.interval.low

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.interval.high

    @property
    def level(self) -> float:
        """Coverage of the interval."""
        return self.interval.level

    @property
    def shown(self) -> str:
        """The interval in words; none where too few rows count."""
        return ends(self.interval) or f"none: {self.effective:.1f} effective rows"

    def as_dict(self) -> dict[str, str | float]:
        """Return the estimate as `--json` prints it."""
        return {
            "method": self.method,
            "value": self.value,
            "error": self.error,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "rows": self.rows,
            "clients": self.clients,
            "effective": self.effective,
        }


def ends(interval: Interval) -> str:
    """Write the ends of an interval; empty without one."""
    return f"{interval.low:.4f} to {interval.high:.4f}" if interval.known else ""


def evaluate(
    log: Log,
    target: Floats,
    method: str = "snips",
    *,
    predictions: Floats | None = None,
    level: float = 0.95,
    tolerance: float = 0.0,
    policies: int = 1,
) -> Estimate:
    """Estimate what a policy would have earned a decision on the logged contexts. O(rows arms).

    Args:
        log: What was logged.
        target: The chances of the policy, (rows, arms).
        method: "ips", "snips" or "dr".
        predictions: Predicted reward of every arm, (rows, arms); `dr` needs it.
        level: Coverage of the interval.
        tolerance: Logs that leave a larger share of the policy's choices without support are
            refused.
        policies: How many policies are compared, for `simultaneous`.

    >>> log = Log(np.array([0, 1, 1, 0]), np.array([1.0, 0.0, 1.0, 0.0]), np.full(4, 0.5))
    >>> always_one = np.tile([0.0, 1.0], (4, 1))
    >>> evaluate(log, always_one, "ips").value, evaluate(log, always_one, "snips").effective
    (0.5, 2.0)
    """
    check.one_of(ESTIMATORS, method=method)
    check.between(0.5, 0.999999, level=level)
    check.at_least(1, policies=policies)
    check_target(log, target)
    check_support(log, target, tolerance)
    totals = by_client(log, terms(log, target, method, predictions))
    clients = len(totals)
    denominators = totals[:, 1]
    denominator = float(denominators.sum())
    value = float(totals[:, 0].sum()) / denominator if denominator > 0 else math.nan
    residuals = totals[:, 0] - value * denominators
    error = standard_error(float((residuals**2).sum()), denominator, clients)
    effective = effective_size(importance(log, target))
    interval = Interval(value, -math.inf, math.inf, level)
    together = Interval(value, -math.inf, math.inf, simultaneous_level(level, policies))
    if effective >= FEWEST and clients > 1:
        df = degrees(effective_size(denominators))
        interval = skewed_interval(value, error, residuals, df=df, level=level)
        together = skewed_interval(value, error, residuals, df=df, level=together.level)
    return Estimate(method, interval, error, len(log), clients, effective, together)


def gain_over_log(log: Log, target: Floats, *, level: float = 0.95) -> Interval:
    """Estimate how much more per decision a policy would have earned than the log did (SNIPS).

    The policy and the log are compared on the same decisions, so the luck of the rewards cancels in
    part: the interval is shorter than the difference of two intervals.

    Args:
        log: What was logged.
        target: The chances of the policy, (rows, arms).
        level: Coverage of the interval.
    """
    totals = by_client(log, terms(log, target, "snips"))
    own = by_client(log, np.stack([log.rewards, np.ones(len(log))], axis=1))
    weight = max(float(totals[:, 1].sum()), 1e-300)
    value = float(totals[:, 0].sum()) / weight
    earned = float(log.rewards.mean())
    residuals = (totals[:, 0] - value * totals[:, 1]) / weight
    residuals -= (own[:, 0] - earned * own[:, 1]) / len(log)
    clients = len(residuals)
    if effective_size(importance(log, target)) < FEWEST or clients < 2:
        return Interval(value - earned, -math.inf, math.inf, level)
    error = standard_error(float((residuals**2).sum()), 1.0, clients)
    df = degrees(effective_size(totals[:, 1]))
    return skewed_interval(value - earned, error, residuals, df=df, level=level)


def standard_error(squares: float, denominator: float, clients: int) -> float:
    """Return the standard error of a ratio of sums; `squares` is sum_c (A_c - v B_c)^2."""
    if clients < 2 or denominator <= 0:
        return math.inf
    return math.sqrt(clients / (clients - 1) * squares) / denominator


def degrees(effective_clients: float) -> int:
    """Return the degrees of freedom of as many effective clients, at least 1."""
    return max(1, round(effective_clients) - 1)


def importance(log: Log, target: Floats) -> Floats:
    """Give w = pi(a | x) / p a row."""
    return np.asarray(target[np.arange(len(log)), log.arms] / log.probabilities)


def effective_size(weights: Floats) -> float:
    """Give (sum w)^2 / sum w^2: how many rows drawn from the target itself would tell as much.

    >>> round(effective_size(np.array([1.0, 1.0, 0.0, 2.0])), 3)
    2.667
    """
    squares = float((weights * weights).sum())
    return float(weights.sum() ** 2 / squares) if squares > 0 else 0.0


def terms(log: Log, target: Floats, method: str, predictions: Floats | None = None) -> Floats:
    """Give (rows, 2): what a row adds to the numerator and to the denominator."""
    weights = importance(log, target)
    if method == "snips":
        return np.stack([weights * log.rewards, weights], axis=1)
    if method == "ips":
        return np.stack([weights * log.rewards, np.ones(len(log))], axis=1)
    if predictions is None or predictions.shape != target.shape:
        got = "none" if predictions is None else f"shape {predictions.shape}"
        raise DataError(
            f"doubly robust needs predictions of every arm, {target.shape}, got {got}. Pass `predictions`.",
            rule="policies.predictions.wrong-shape",
        )
    if not np.isfinite(predictions).all():
        raise DataError(
            "predictions must be finite numbers, got NaN or infinity. Use a model that converged.",
            rule="policies.predictions.not-finite",
        )
    expected = (target * predictions).sum(axis=1)
    rest = log.rewards - predictions[np.arange(len(log)), log.arms]
    return np.stack([expected + weights * rest, np.ones(len(log))], axis=1)


def by_client(log: Log, rows: Floats) -> Floats:
    """Add the rows of each client."""
    if log.clients is None:
        return rows
    _, code = np.unique(log.clients, return_inverse=True)
    return np.stack([np.bincount(code, rows[:, column]) for column in range(rows.shape[1])], axis=1)


def check_target(log: Log, target: Floats) -> None:
    """Refuse a target that is not one distribution a row."""
    if target.ndim != 2 or len(target) != len(log):
        raise DataError(
            f"a target must be rows x arms, got {target.shape} for {len(log)} rows. Give one row "
            "each.",
            rule="policies.target.wrong-shape",
        )
    if log.arms.min() < 0 or log.arms.max() >= target.shape[1]:
        raise DataError(
            f"logged arms must be in [0, {target.shape[1]}), got {log.arms.min()} to "
            f"{log.arms.max()}. Give the target a column for every arm.",
            rule="policies.arms.out-of-range",
        )
    sums = target.sum(axis=1)
    # Not (>= 0) refuses NaN as well.
    wrong = np.flatnonzero(~((target >= 0).all(axis=1) & (np.abs(sums - 1) < 1e-4)))
    if len(wrong):
        raise DataError(
            f"a target must be chances that add up to 1, got a sum of {sums[wrong[0]]:.6g} in row "
            f"{wrong[0] + 1}. Divide each row by its sum.",
            rule="policies.target.not-chances",
        )


SIGMAS = 5.0
"""Standard errors below 1 at which the mean weight is evidence.

Large weights are rare where arms were rarely drawn. A log that happens to lack them has a small
mean and a small spread, so that logs with support are refused more often than a normal mean would
suggest. In simulations of epsilon-greedy among 4 arms, and a softmax target:

| epsilon | 100 rows | 300 rows | 1,000 rows |
|---|---|---|---|
| 0.4 | 1 in 5,000 | 1 in 30,000 | none of 60,000 |
| 0.2 | 1 in 500 | 1 in 5,000 | 1 in 20,000 |
| 0.1 | 1 in 80 | 1 in 800 | 1 in 15,000 |

Logs with the chances of all arms are not affected.
"""
ENOUGH = 100
"""Rows from which on the mean weight is looked at."""
ROUNDING = 1e-6
"""Share that float32 probabilities may seem to lack."""


@dataclass(frozen=True)
class Support:
    """How much of a target's choices the logs never made."""

    share: float
    """Share of the target's choices without support."""
    rows: int
    """Rows in which some choice has none."""
    exact: bool
    """Whether the chances of all arms were known."""
    mean_weight: float
    """Mean importance weight: 1 in expectation where there is support."""


def support_of(log: Log, target: Floats) -> Support:
    """Measure support.

    >>> support_of(
    ...     Log(np.array([0, 0]), np.zeros(2), np.ones(2)), np.array([[0.5, 0.5], [1.0, 0.0]])
    ... )
    Support(share=0.25, rows=1, exact=False, mean_weight=0.75)
    """
    weights = importance(log, target)
    mean = float(weights.mean())
    if log.logging is not None:
        if log.logging.shape != target.shape:
            shape = log.logging.shape
            raise DataError(
                f"logged chances must be rows x arms like the target {target.shape}, got {shape}. "
                "Give the chance of every arm.",
                rule="policies.logging.wrong-shape",
            )
        lacking = np.where(log.logging > 0, 0.0, target).sum(axis=1)
        return Support(float(lacking.mean()), int((lacking > ROUNDING).sum()), True, mean)
    lacking = np.where(log.probabilities >= 1, 1 - target[np.arange(len(log)), log.arms], 0.0)
    share = float(lacking.mean())
    # About 1, the mean that support would give: weights that are all 0 have no spread about their
    # own.
    error = float(((weights - 1) ** 2).mean() / len(weights)) ** 0.5
    if len(weights) >= ENOUGH and 1 - mean > SIGMAS * error + ROUNDING:
        share = max(share, 1 - mean)
    return Support(share, int((lacking > ROUNDING).sum()), False, mean)


def check_support(log: Log, target: Floats, tolerance: float = 0.0) -> None:
    """Refuse logs that leave more than `tolerance` of the target's choices without support.

    >>> check_support(
    ...     Log(np.array([0, 0]), np.zeros(2), np.ones(2)), np.array([[0.5, 0.5], [1.0, 0.0]])
    ... )
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] the logs must support the policy's choices, got none for 25
    % of them (in 1 of 2
    rows; mean importance weight 0.75). Log with exploration, or evaluate a policy closer to the logged one.
    """
    check.between(0, 1, tolerance=tolerance)
    support = support_of(log, target)
    if support.share > tolerance + ROUNDING:
        raise DataError(
            "the logs must support the policy's choices, got none for "
            f"{100 * support.share:.3g} % of them (in {support.rows} of {len(log)} rows; mean "
            f"importance weight {support.mean_weight:.3g}). Log with exploration, or evaluate a "
            "policy closer to the logged one.",
            rule="policies.log.no-support",
        )
