"""An audit: run a mechanism on two adjacent histories many times and see whether they can be told
apart too well.

Noise of mu = sensitivity / sigma lets nobody guess which of two adjacent histories was used, each
with chance 1/2, with accuracy above Phi(mu / 2). So the audit guesses: a linear statistic of each
release against a threshold, both fixed on trials of their own, and then counts how often it is
right. Of 2 n guesses at most Binomial(2 n, Phi(mu / 2)) are right under the claim (n of each
history is no worse: Hoeffding, Ann. Math. Stat. 1956), so the Clopper-Pearson bound of one binomial
is a valid test for every mechanism and every n. A two-sample t-test of the same statistic needs a
third fewer trials, but holds only if the noise is normal, which is what an audit must not take on
trust; bounds on false and true positives apart (Nasr et al.: Tight auditing of differentially
private machine learning, USENIX Security 2023) are as general, and need more trials still. Nothing
is taken from the mechanism but its outputs.

>>> import numpy as np
>>> rng = np.random.default_rng(1)
>>> def release(counts, trials):  # half of the noise that mu = 0.53 needs
...     return counts + rng.normal(0, 1.33, (trials, 2))
>>> canary = Canary(np.zeros(2), np.ones(2), direction=np.ones(2))
>>> result = audit(release, canary, claimed_mu=0.53, trials=trials_needed(0.53, 1.06))
>>> result.passed, result.mu_low > 0.53
(False, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.check import require
from posse.core.errors import ConfigError
from posse.privacy.dp.gaussian import epsilon_of
from posse.privacy.dp.guarantee import check_delta

H = TypeVar("H")
Floats = NDArray[np.float64]
_NORMAL = NormalDist()
_MARGIN = 1.05


@dataclass(frozen=True)
class Canary(Generic[H]):
    """Two adjacent histories, as far apart as the unit allows: entry 0 against entry k, all good.

    `direction` is the difference of the two messages without noise, where it is known; else it is
    learnt from trials of its own, which costs some power.
    """

    without: H
    within: H
    direction: Floats | None = None


@dataclass(frozen=True)
class AuditResult:
    """How well two adjacent histories were told apart, with bounds that hold with probability 1 -
    significance.
    """

    claimed_mu: float
    guesses: int
    right: int
    significance: float
    accuracy_low: float

    @property
    def mu_low(self) -> float:
        """Lower bound on mu: accuracy <= Phi(mu / 2)."""
        return max(0.0, 2 * _NORMAL.inv_cdf(self.accuracy_low)) if self.accuracy_low > 0 else 0.0

    @property
    def passed(self) -> bool:
        """Whether the claim stands; a true one does with probability 1 - significance at least."""
        return self.mu_low <= self.claimed_mu

    def epsilon_low(self, delta: float) -> float:
        """Lower bound on epsilon for any mechanism: accuracy <= (e^epsilon + delta) / (1 +
        e^epsilon).
        """
        check_delta(delta)
        odds = (self.accuracy_low - delta) / (1 - self.accuracy_low)
        return max(0.0, math.log(odds)) if odds > 0 else 0.0

    def gaussian_epsilon_low(self, delta: float) -> float:
        """Lower bound on epsilon if the noise is Gaussian: the epsilon of `mu_low`; much the larger
        one.
        """
        return epsilon_of(self.mu_low, delta) if self.mu_low > 0 else 0.0

    def sentence(self) -> str:
        """Say what came out."""
        verdict = "no more than" if self.passed else "MORE than"
        return (
            f"{self.right:,} of {self.guesses:,} guesses right: mu is at least {self.mu_low:.3f} "
            "(confidence "
            f"{1 - self.significance:g}), {verdict} the claimed {self.claimed_mu:.3f}."
        )


def audit(
    release: Callable[[H, int], Floats],
    canary: Canary[H],
    claimed_mu: float,
    trials: int,
    significance: float = 0.01,
) -> AuditResult:
    """Test the claim that a mechanism's distinguishability is at most `claimed_mu`.

    `release(history, trials)` returns an array (trials, values): everything the adversary sees of
    each trial, a second message about the same window included. Each history is released `trials`
    times to be guessed, after a quarter as many (at least 50) for the statistic.
    """
    check.positive(claimed_mu=claimed_mu)
    check.at_least(10, trials=trials)
    _check_share(significance=significance)
    pilot = max(50, -(-trials // 4))
    guess = rule(
        _seen(release, canary.without, pilot),
        _seen(release, canary.within, pilot),
        canary.direction,
    )
    wrong = guess(_seen(release, canary.without, trials)).sum()
    right = int(trials - wrong + guess(_seen(release, canary.within, trials)).sum())
    low = lower_bound(right, 2 * trials, significance)
    return AuditResult(claimed_mu, 2 * trials, right, significance, low)


def lower_bound(right: int, guesses: int, significance: float) -> float:
    """Clopper and Pearson's one-sided lower bound on a chance, exact: a quantile of Beta(right,
    wrong + 1).

    >>> round(lower_bound(60, 100, 0.01), 4)
    0.4789
    """
    if right == 0:
        return 0.0
    return float(
        require("scipy.special", extra="dp").betaincinv(right, guesses - right + 1, significance)
    )


def trials_needed(
    claimed_mu: float, true_mu: float, power: float = 0.95, significance: float = 0.01
) -> int:
    """Return the trials of each history that find `true_mu` out with chance `power`, the direction
    being known.

    N = ((z_a sqrt(p q) + z_b sqrt(p' q')) / (p' - p))^2 guesses with p = Phi(mu / 2), and Fleiss'
    correction for counts: N/4 (1 + sqrt(1 + 2 / (N (p' - p))))^2; 5 % more for the threshold, which
    is not quite at its best place. A direction that must be learnt takes a quarter more (four
    values). Halved noise doubles mu; a window released twice has sqrt(2) mu.

    >>> trials_needed(0.53, 2 * 0.53), trials_needed(0.53, math.sqrt(2) * 0.53)
    (203, 1137)
    """
    check.positive(claimed_mu=claimed_mu)
    _check_share(power=power)
    _check_share(significance=significance)
    if not true_mu > claimed_mu:
        raise ConfigError(
            f"true_mu must be above claimed_mu {claimed_mu}, got {true_mu}: nothing is to be found "
            "out."
        )
    claimed, true = _NORMAL.cdf(claimed_mu / 2), _NORMAL.cdf(true_mu / 2)
    spread = _NORMAL.inv_cdf(1 - significance) * math.sqrt(claimed * (1 - claimed))
    spread += _NORMAL.inv_cdf(power) * math.sqrt(true * (1 - true))
    guesses = (spread / (true - claimed)) ** 2
    corrected = guesses / 4 * (1 + math.sqrt(1 + 2 / (guesses * (true - claimed)))) ** 2
    return max(10, math.ceil(_MARGIN * corrected / 2))


def _seen(release: Callable[[H, int], Floats], history: H, trials: int) -> Floats:
    values = np.asarray(release(history, trials), np.float64)
    if values.ndim != 2 or values.shape[0] != trials:
        raise ConfigError(
            f"a release must give an array of shape ({trials}, values), got {values.shape}."
        )
    return values


def rule(
    without: Floats, within: Floats, direction: Floats | None = None
) -> Callable[[Floats], NDArray[np.bool_]]:
    """Make the guess from trials of both histories: is the projection nearer to the mean with the
    canary?
    """
    along = _learnt(without, within) if direction is None else np.asarray(direction, np.float64)
    threshold = float((without @ along).mean() + (within @ along).mean()) / 2
    return lambda values: values @ along > threshold


def _learnt(without: Floats, within: Floats) -> Floats:
    """Fisher's direction S^-1 (m_1 - m_0), S the pooled covariance; where there is no noise,
    whatever gives it away.
    """
    covariance = np.atleast_2d(np.cov(without.T) + np.cov(within.T)) / 2
    variances, axes = np.linalg.eigh(covariance)
    shift: Floats = within.mean(axis=0) - without.mean(axis=0)
    floor = max(
        1e-12 * float(variances[-1]), 1e-12 * float(shift @ shift), np.finfo(np.float64).tiny
    )
    return np.asarray(axes @ ((axes.T @ shift) / np.maximum(variances, floor)))


def _check_share(**values: float) -> None:
    ((name, value),) = values.items()
    if not 0 < value < 1:
        raise ConfigError(f"{name} must be above 0 and below 1, got {value}.")
