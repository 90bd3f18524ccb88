"""The audit of real noise: false alarms, power against halved noise and doubled releases, what it
must not trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.privacy.dp.audit import AuditResult, Canary, Floats, audit, lower_bound, trials_needed
from posse.privacy.dp.gaussian import epsilon_of, largest_mu
from posse.privacy.dp.noise import whole_noise

K = 10.0
MU = largest_mu(1, 0.01)
SIGMA = math.sqrt(2) * K / MU
RUNS = 600
Release = Callable[[Floats, int], Floats]


@numba.njit
def _draw(first: int, sigma: float, out: NDArray[np.float64]) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1] // 2):
            out[i, 2 * j], out[i, 2 * j + 1] = whole_noise(first + i, 0, j, sigma)


def mechanism(factor: float = 1.0, copies: int = 1, seed: int = 0) -> Release:
    """Counts of a window with `factor` times the noise, sent `copies` times; a key a trial."""
    keys = count(seed * 2**40, 2**24)

    def release(counts: Floats, trials: int) -> Floats:
        noise = np.empty((trials, 2 * copies))
        _draw(next(keys), factor * SIGMA, noise)
        return np.tile(counts, copies) + noise

    return release


def canary(copies: int = 1, known: bool = True) -> Canary[Floats]:
    """An entry of 0 against an entry of k, all good."""
    return Canary(np.zeros(2), np.full(2, K), np.ones(2 * copies) if known else None)


def alarms(release: Release, pair: Canary[Floats], trials: int, runs: int = RUNS) -> float:
    return float(np.mean([not audit(release, pair, MU, trials).passed for _ in range(runs)]))


def test_false_alarms_stay_below_the_significance() -> None:
    """Rate .01 over 2,000 audits: .0173 is the upper .001 point."""
    assert alarms(mechanism(seed=1), canary(), trials_needed(MU, 2 * MU), runs=2000) < 0.0173


def test_more_noise_than_claimed_is_never_accused() -> None:
    assert alarms(mechanism(2.0, seed=2), canary(), 200, runs=200) == 0


@pytest.mark.parametrize("factor", [0.5], ids=["halved noise"])
def test_halved_noise_is_found(factor: float) -> None:
    assert alarms(mechanism(factor, seed=3), canary(), trials_needed(MU, MU / factor)) >= 0.95


def test_a_window_released_twice_is_found() -> None:
    assert (
        alarms(mechanism(copies=2, seed=4), canary(2), trials_needed(MU, math.sqrt(2) * MU)) >= 0.95
    )


def test_a_direction_that_must_be_learnt_takes_a_quarter_more() -> None:
    trials = math.ceil(1.25 * trials_needed(MU, math.sqrt(2) * MU))
    assert alarms(mechanism(copies=2, seed=5), canary(2, known=False), trials) >= 0.95
    assert alarms(mechanism(seed=6), canary(known=False), trials, runs=300) < 0.03


def test_shared_noise_is_found_by_a_learnt_direction() -> None:
    """The same noise on both counts: where no unit is good, their difference tells the units
    bought.
    """
    inner = mechanism(seed=7)

    def release(counts: Floats, trials: int) -> Floats:
        noise = inner(np.zeros(2), trials)
        return counts + noise[:, :1]

    result = audit(release, Canary(np.zeros(2), np.array([K, 0.0])), MU, 200)
    assert not result.passed
    assert result.right == result.guesses


def test_the_bounds() -> None:
    """With many trials the bounds come near the truth, from below."""
    result = audit(mechanism(seed=8), canary(), MU, 100_000)
    assert 0.96 * MU < result.mu_low < MU
    assert 0.9 < result.gaussian_epsilon_low(0.01) <= epsilon_of(MU, 0.01) + 1e-9
    assert 0 < result.epsilon_low(0.01) < result.gaussian_epsilon_low(0.01)
    assert "no more than the claimed" in result.sentence()


def test_the_bound_is_exact() -> None:
    """Chance of 60 or more right of 100 is the significance at the bound."""
    low = lower_bound(60, 100, 0.01)
    tail = sum(math.comb(100, i) * low**i * (1 - low) ** (100 - i) for i in range(60, 101))
    assert tail == pytest.approx(0.01)
    assert lower_bound(0, 100, 0.01) == 0


def test_guesses_that_are_no_better_than_chance() -> None:
    none = AuditResult(MU, 100, 0, 0.01, 0.0)
    assert (none.mu_low, none.epsilon_low(0.01), none.gaussian_epsilon_low(0.01)) == (0, 0, 0)
    assert none.passed


def test_the_number_of_trials_shrinks_with_the_gap() -> None:
    assert (
        trials_needed(MU, 4 * MU)
        < trials_needed(MU, 2 * MU)
        < trials_needed(MU, math.sqrt(2) * MU)
        < 1500
    )
    assert trials_needed(MU, 2 * MU, power=0.99) > trials_needed(MU, 2 * MU)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: trials_needed(MU, MU), "true_mu must be above claimed_mu"),
        (lambda: trials_needed(MU, 2 * MU, power=1), "power must be above 0 and below 1"),
        (
            lambda: audit(mechanism(), canary(), 0, 100),
            "claimed_mu must be a finite number above 0",
        ),
        (lambda: audit(mechanism(), canary(), MU, 5), "trials must be at least 10"),
        (lambda: audit(mechanism(), canary(), MU, 100, 0), "significance must be above 0"),
        (lambda: audit(lambda counts, trials: counts, canary(), MU, 100), "an array of shape"),
    ],
)
def test_mistakes(call: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call()  # type: ignore[operator]
