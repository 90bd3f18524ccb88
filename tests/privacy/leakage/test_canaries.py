"""Canaries against a claim: false alarms, power, and what a second release adds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.dp.gaussian import epsilon_of
from posse.privacy.leakage.attack import Evidence
from posse.privacy.leakage.canaries import (
    Canaries,
    claim_score,
    coins_of,
    guess,
    halve_the_noise,
    power_of,
    toss_again,
    tossed,
)

MU, DELTA = 0.53, 0.01
SIGMA = math.sqrt(2) / MU


def released(
    count: int, seed: int, *, noise: float = 1.0, copies: int = 1, units_only: bool = False
) -> Evidence:
    """Pairs of counts, both moved by 1 where a canary is in."""
    rng = np.random.default_rng((seed, 1))
    coins = coins_of(count, seed)
    values = coins[:, None] + noise * SIGMA * rng.normal(size=(count, 2 * copies))
    if units_only:
        values[:, 1] = coins
    return tossed(values, coins, np.ones(2 * copies), MU, DELTA)


def scored(evidence: Evidence) -> object:
    return claim_score([guess(evidence.seen, 0)], [evidence.truth])


def test_honest_noise_is_accused_no_more_often_than_said_and_its_bound_stays_below() -> None:
    """400 audits: a bound above the claim with probability .01 each; 13 is the upper .001 point."""
    made = [scored(released(600, seed)) for seed in range(400)]
    assert sum(one.value > one.baseline for one in made) <= 13
    assert sum(one.above(0.01) for one in made) <= 13
    assert made[0].baseline == epsilon_of(MU, DELTA)


@pytest.mark.parametrize(
    ("fault", "count"),
    [({"noise": 0.5}, 700), ({"copies": 2}, 4000), ({"units_only": True}, 700)],
    ids=["halved", "twice", "units alone"],
)
def test_faults_are_found(fault: dict[str, object], count: int) -> None:
    """Each with probability .95 at least; of 20 fewer than 14 with probability 1e-4."""
    assert sum(scored(released(count, seed, **fault)).above(0.01) for seed in range(20)) >= 14


def test_a_release_that_comes_again_as_it_was_adds_nothing() -> None:
    once = released(600, 5)
    again = Canaries(np.hstack([once.seen.values, once.seen.values]), once.seen.known)
    np.testing.assert_array_equal(guess(once.seen, 0), guess(again, 0))


def test_the_power_is_as_it_says() -> None:
    """Of 200 audits with half of the noise the share that is found is within 4 standard errors of
    the power.
    """
    found = np.mean([scored(released(500, seed, noise=0.5)).above(0.01) for seed in range(200)])
    power = power_of(MU, 400)
    assert 0.85 < power < 0.95
    assert abs(found - power) < 4 * math.sqrt(power * (1 - power) / 200)


def test_controls() -> None:
    evidence = released(2000, 7)
    planted = halve_the_noise(evidence, 0)
    assert scored(planted).above(0.01)
    assert not claim_score([guess(planted.seen, 0)], toss_again([planted.truth], 0)).above(0.01)
    np.testing.assert_array_equal(guess(evidence.seen, 0), guess(evidence.seen, 0))


def test_mistakes_are_said() -> None:
    with pytest.raises(ConfigError, match="needs canaries"):
        guess({"reports": []}, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="known ones of both kinds"):
        guess(Canaries(np.ones((5, 2)), np.full(5, -1)), 0)
