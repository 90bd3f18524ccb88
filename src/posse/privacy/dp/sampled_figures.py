"""Figures of the sampled Gaussian, computed by dp-accounting: what is costly is computed once and kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

from posse.core.extras import require

Sampling = Literal["poisson", "fixed"]

_GRID = 1e-4
"""Grid of the privacy loss at noise 1 and above; it grows with the loss, as 1 / noise^2."""


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep dp-accounting from warning of every order of Renyi's divergence that it leaves out: to do so is safe."""

    def other(record: logging.LogRecord) -> bool:
        return "Excluding this order" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


@lru_cache(maxsize=256)
def _one_round(kept: tuple[int, int, float, Sampling]) -> tuple[Any, Any]:
    """Orders and Renyi divergences of one round."""
    clients, cohort, noise, sampling = kept
    dp = require("dp_accounting", extra="dp")
    rdp = require("dp_accounting.rdp", extra="dp")
    relation = dp.NeighboringRelation
    if sampling == "poisson":
        accountant = rdp.RdpAccountant(neighboring_relation=relation.ADD_OR_REMOVE_ONE)
        event = dp.PoissonSampledDpEvent(cohort / clients, dp.GaussianDpEvent(noise))
    else:
        accountant = rdp.RdpAccountant(neighboring_relation=relation.REPLACE_ONE)
        event = dp.SampledWithoutReplacementDpEvent(clients, cohort, dp.GaussianDpEvent(noise / 2))
    with _without_warnings():
        accountant.compose(event)
    # Divergences add up over rounds; asking the accountant anew would compute them again for each number of rounds.
    return accountant._orders, accountant._rdp


def rdp_epsilon(kept: tuple[int, int, float, Sampling], rounds: int, delta: float) -> float:
    """Epsilon by RDP of (clients, cohort, noise, sampling): 0.1 s once, and nothing for other numbers of rounds."""
    orders, divergences = _one_round(kept)
    module = require("dp_accounting.rdp.rdp_privacy_accountant", extra="dp")
    return float(module.compute_epsilon(orders, divergences * rounds, delta)[0])


@lru_cache(maxsize=8)
def _loss(rate: float, noise: float) -> Any:
    """Privacy loss distribution of one round, on a grid to the scale of the loss."""
    module = require("dp_accounting.pld.privacy_loss_distribution", extra="dp")
    grid = _GRID * max(1.0, noise**-2)
    return module.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=grid)


@lru_cache(maxsize=1024)
def pld_epsilon(rate: float, noise: float, rounds: int, delta: float) -> float:
    """Epsilon by PLD under Poisson sampling: 0.5 to 3 s once, and a third of it for each number of rounds."""
    return float(_loss(rate, noise).self_compose(rounds).get_epsilon_for_delta(delta))
