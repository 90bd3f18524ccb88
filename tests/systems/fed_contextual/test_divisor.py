"""What a sum is divided by: under noise the expected cohort, however many came, or the figures
would not hold.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install 'posse-bandits[contextual]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.fed_contextual.simulation import Simulation
from posse.systems.fed_contextual.study import bandit

QUIET = 1e-9
"""Noise that is counted as such and moves nothing."""


def moved(noise: float, missing: float) -> tuple[float, float]:
    """Norm of what a round without optimiser moves, and the clients that came."""
    settings = FedContextual(
        clients=30,
        cohort=20,
        rounds=1,
        sampling="fixed",
        quantile=0,
        optimiser="sgd",
        server_rate=1.0,
        seed=3,
        noise=noise,
        missing=missing,
        delta=1e-3,
    )
    simulation = Simulation(settings, settings.check())
    ((_, seen),) = simulation.rounds([begin(simulation.plan.task, 3)], 1, [3])
    return float(np.asarray(seen.moved)[0]), float(np.asarray(seen.clients)[0])


def test_under_noise_the_divisor_does_not_tell_how_many_came() -> None:
    plain, came = moved(0.0, 0.5)
    noisy, same = moved(QUIET, 0.5)
    assert came == same < 20
    assert noisy == pytest.approx(plain * came / 20, rel=1e-4)


@pytest.mark.parametrize("changes", [{"noise": 1.0}, {"sampling": "poisson"}])
def test_noise_and_coins_have_the_expected_cohort(changes: dict[str, object]) -> None:
    settings = FedContextual.model_validate(
        {"clients": 30, "cohort": 7, "rounds": 2, "delta": 1e-3, **changes}
    )
    setup = settings.check()
    simulation = Simulation(settings, setup)
    assert bandit(simulation.job, setup.population, setup.world).rates.divisor == 7.0
