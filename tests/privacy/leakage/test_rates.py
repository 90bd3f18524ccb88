"""Rates and the interval of their difference, against published figures and exact coverage."""

from __future__ import annotations

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.leakage import Membership, difference_interval


@pytest.mark.parametrize(
    ("counts", "published"),
    [((56, 70, 48, 80), (0.0524, 0.3339)), ((9, 10, 3, 10), (0.1705, 0.8090)), ((10, 10, 0, 20), (0.6791, 1.0))],
)
def test_the_published_examples(counts: tuple[int, int, int, int], published: tuple[float, float]) -> None:
    """Newcombe 1998, table II, method 10."""
    assert difference_interval(*counts) == pytest.approx(published, abs=6e-5)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.02, 0.02), (0.99, 0.01)])
def test_coverage(p: float, q: float) -> None:
    """Nominal .95; counted over 4,000 draws of 200 and 100 rows, and never below .92."""
    rng = np.random.default_rng(1)
    draws = zip(rng.binomial(200, p, 4000), rng.binomial(100, q, 4000), strict=True)
    edges = [difference_interval(int(a), 200, int(b), 100) for a, b in draws]
    assert np.mean([low <= p - q <= high for low, high in edges]) > 0.92


def test_the_sentence_says_everything() -> None:
    made = Membership("an attack", "so", 1000, 700, 2000, 200, apart=True, confidence=0.99)
    assert made.advantage == pytest.approx(0.6)
    for part in (
        "an attack (member if so)",
        "0.600 [",
        "confidence 0.99",
        "700 of 1,000 members",
        "200 of 2,000 others",
    ):
        assert part in made.sentence()


def test_what_is_no_verdict() -> None:
    for found, confidence in ((11, 0.95), (-1, 0.95), (5, 1.0)):
        with pytest.raises(ConfigError):
            Membership("a", "r", 10, found, 10, 0, apart=True, confidence=confidence)
    with pytest.raises(ConfigError, match="others must be at least 1"):
        Membership("a", "r", 10, 0, 0, 0, apart=True)
