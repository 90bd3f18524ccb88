"""Composition by dp-accounting: figures, infinities, other kinds of events, and the extra that is
missing.
"""

from __future__ import annotations

import math
import subprocess
import sys

import dp_accounting
import pytest

from posse.core.errors import ConfigError, MissingExtraError
from posse.privacy.dp import accountant
from posse.privacy.dp.accountant import (
    accountant_name,
    basic,
    composed_epsilon,
    gaussian_event,
    largest_epsilon,
)
from posse.privacy.dp.gaussian import epsilon_of


def test_nothing_released_costs_nothing() -> None:
    assert composed_epsilon([], 0.01) == 0.0


def test_the_order_does_not_matter() -> None:
    events = [gaussian_event(x) for x in (3.0, 7.0, 5.0, 7.0)]
    assert composed_epsilon(events, 1e-5) == composed_epsilon(events[::-1], 1e-5)


def test_a_set_of_events_is_composed_once() -> None:
    events = [gaussian_event(11.0), gaussian_event(13.0)]
    composed_epsilon(events, 0.02)
    before = accountant._composed.cache_info().misses
    composed_epsilon(events[::-1], 0.02)
    assert accountant._composed.cache_info().misses == before


@pytest.mark.parametrize(
    ("multiplier", "delta"),
    [(0.0, 0.01), (1e-4, 0.01), (1.0, 1e-17)],
    ids=["no noise", "hardly any", "tiny delta"],
)
def test_what_cannot_be_proved_is_infinite(multiplier: float, delta: float) -> None:
    assert composed_epsilon([gaussian_event(multiplier)], delta) == math.inf


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 10.0, 90.0, 990.0])
def test_little_and_much_noise_are_accounted_for_quickly(mu: float) -> None:
    exact = epsilon_of(mu, 1e-8)
    found = composed_epsilon([gaussian_event(1 / mu)], 1e-8)
    assert exact * (1 - 1e-9) <= found <= exact * 1.001


def test_other_events_compose_too() -> None:
    """Poisson-sampled Gaussian releases, and pure differential privacy as Laplace noise."""
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    assert composed_epsilon([sampled] * 3, 1e-3) < composed_epsilon([gaussian_event(1.0)] * 3, 1e-3)
    pure = composed_epsilon([dp_accounting.LaplaceDpEvent(10.0)] * 2, 1e-12)
    assert pure == pytest.approx(0.2, abs=1e-3)


def test_basic_composition() -> None:
    assert basic([]) == (0, 0)
    assert basic([(1.0, 0.1)] * 3) == pytest.approx((3.0, 0.3))


def test_a_bad_delta_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta"):
        composed_epsilon([gaussian_event(1.0)], 1.0)


def test_the_accountant_names_itself() -> None:
    assert accountant_name().startswith("dp-accounting 0.")
    assert accountant_name().endswith(", PLD")


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dp\]'"):
        gaussian_event(1.0)


def test_importing_the_room_imports_no_extra() -> None:
    # numba imports scipy by itself where it is installed.
    code = "import sys, posse.privacy.dp; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EVENT, STRONGER = gaussian_event(2.0), gaussian_event(1.0)


def test_one_block_is_sequential() -> None:
    for count in (1, 2, 3):
        assert largest_epsilon([[EVENT] * count], 0.01) == composed_epsilon([EVENT] * count, 0.01)


def test_blocks_are_parallel() -> None:
    assert largest_epsilon([[EVENT], [STRONGER]], 0.01) == composed_epsilon([STRONGER], 0.01)
    assert largest_epsilon([[EVENT], [STRONGER], [EVENT]], 0.01) == composed_epsilon(
        [STRONGER], 0.01
    )
    assert largest_epsilon([[EVENT, STRONGER], [EVENT]], 0.01) == composed_epsilon(
        [EVENT, STRONGER], 0.01
    )
    assert largest_epsilon([], 0.01) == 0.0


def test_a_bad_delta_of_blocks_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta"):
        largest_epsilon([], 0)
