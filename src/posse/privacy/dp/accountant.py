"""What releases prove together, computed by dp-accounting; what is costly is computed once and
kept.

Releases are dp-accounting's events; Gaussian ones are made by `gaussian_event`. A PLD is the
distribution of the privacy loss on a grid, rounded so that the figure is never below the true one:
Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the dots: tighter discrete approximations of
privacy loss distributions, PETS 2022. For Gaussian releases the grid is laid to the scale of mu:
the figure stays within a few millionths of the exact one down to delta = 1e-10, and within some per
cent at 1e-15. For sampled Gaussian releases there are figures by Renyi divergences (RDP) as well.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from posse.core.check import require
from posse.privacy.dp.guarantee import check_delta

Sampling = Literal["poisson", "fixed"]

Event: TypeAlias = Hashable
"""An event of dp-accounting (`DpEvent`)."""

_GRID = 1e-4
"""Grid of the privacy loss for events of any kind; under sampling it grows with the loss, as 1 /
noise^2.
"""
_RELATIVE_GRID = 1e-3
_COARSER = 10.0
"""From this mu on the loss is about mu^2 / 2, and the grid grows with it."""
_HOPELESS = 1000.0
"""Beyond this mu epsilon is above 500,000 and the grid overflows."""


def accountant_name() -> str:
    """Name the accountant, as every figure does.

    >>> accountant_name().startswith("dp-accounting ")
    True
    """
    from importlib.metadata import version

    require("dp_accounting", extra="dp")
    return f"dp-accounting {version('dp-accounting')}, PLD"


def gaussian_event(noise_multiplier: float) -> Event:
    """Return the event of one Gaussian release; `noise_multiplier` is sigma over the sensitivity of
    the unit.
    """
    event: Event = require("dp_accounting", extra="dp").GaussianDpEvent(noise_multiplier)
    return event


def composed_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return the epsilon at `delta` that all the events about the same data prove together;
    infinity if none.

    Infinity means that no finite epsilon is proved: a release without noise, so little noise that
    epsilon would be above 500,000, or a delta below 1e-15, under which the accountant's own
    rounding lies. Events in the accountant's own terms: one release about neighbours that differ by
    one sensitivity ("add or remove"); what replacing costs is in the sensitivity. 30 ms for
    Gaussian releases, once for each set of events.

    >>> round(composed_epsilon([gaussian_event(2.66 / math.sqrt(2))], 0.01), 4)
    0.9979
    """
    check_delta(delta)
    counted = Counter(events)
    return _composed(tuple(sorted(counted.items(), key=lambda item: repr(item[0]))), delta)


def largest_epsilon(blocks: Iterable[Iterable[Event]], delta: float) -> float:
    """Return the epsilon of events in blocks of disjoint data: composed within a block, the largest
    over blocks.

    One unit of protection lies in one block (parallel composition; McSherry: Privacy integrated
    queries, SIGMOD 2009). Releases that are all about the same data are one block (sequential
    composition).

    >>> release = gaussian_event(2.0)
    >>> [
    ...     round(largest_epsilon(blocks, 0.01), 3)
    ...     for blocks in ([[release]], [[release]] * 2, [[release] * 2])
    ... ]
    [0.919, 0.919, 1.459]
    """
    check_delta(delta)
    return max((composed_epsilon(events, delta) for events in blocks), default=0.0)


def basic(figures: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Basic composition: epsilons add, and so do deltas.

    >>> basic([(0.5, 0.01), (0.25, 0.01)])
    (0.75, 0.02)
    """
    kept = list(figures)
    return sum(epsilon for epsilon, _ in kept), sum(delta for _, delta in kept)


def advanced(epsilon: float, count: int, slack: float) -> float:
    """Advanced composition: the epsilon of `count` releases of `epsilon` each, for `slack` more
    delta than theirs.

    Dwork and Roth: The algorithmic foundations of differential privacy, 2014, theorem 3.20;
    infinity where it is no number.

    >>> round(advanced(0.01, 10_000, 1e-6), 2)
    6.26
    """
    check_delta(slack)
    try:
        return math.sqrt(2 * count * math.log(1 / slack)) * epsilon + count * epsilon * math.expm1(
            epsilon
        )
    except OverflowError:
        return math.inf


def gaussian_rdp_epsilon(mu: float, count: int, delta: float) -> float:
    """Epsilon by RDP of `count` Gaussian releases of mu each: the divergence of order a is a count
    mu^2 / 2.

    >>> round(gaussian_rdp_epsilon(1.0, 1, 1e-5), 3)
    4.729
    """
    check_delta(delta)
    module = require("dp_accounting.rdp.rdp_privacy_accountant", extra="dp")
    # Below order 2 lie the best ones where noise is small against what it hides.
    orders = (
        [1 + 2.0**k for k in range(-20, 1)]
        + [1 + k / 10 for k in range(11, 100)]
        + list(range(11, 512))
    )
    divergences = [order * count * mu * mu / 2 for order in orders]
    with _without_warnings():
        return float(module.compute_epsilon(orders, divergences, delta)[0])


@lru_cache(maxsize=4096)
def _composed(counted: tuple[tuple[object, int], ...], delta: float) -> float:
    if not counted:
        return 0.0
    grid = _grid(counted)
    if math.isinf(grid):
        return math.inf
    require("dp_accounting", extra="dp")
    accountant = require("dp_accounting.pld", extra="dp").PLDAccountant(
        value_discretization_interval=grid
    )
    for event, count in counted:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _grid(counted: tuple[tuple[Any, int], ...]) -> float:
    """Return the grid for a set of events: to the scale of mu where all are Gaussian; infinity
    where none helps.
    """
    kind = require("dp_accounting", extra="dp").GaussianDpEvent
    if not all(isinstance(event, kind) for event, _ in counted):
        return _GRID
    if any(event.noise_multiplier == 0 for event, _ in counted):
        return math.inf
    mu = math.hypot(*(math.sqrt(count) / event.noise_multiplier for event, count in counted))
    return _RELATIVE_GRID * mu * max(1.0, mu / _COARSER) if mu <= _HOPELESS else math.inf


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep dp-accounting from warning of every order of Renyi's divergence that it leaves out: to
    do so is safe.
    """

    def other(record: logging.LogRecord) -> bool:
        return "Excluding this order" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


@lru_cache(maxsize=256)
def _one_round(kept: tuple[int, int, float, Sampling]) -> tuple[object, Any]:
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
    # Divergences add up over rounds; asking the accountant anew would compute them again for each
    # number of rounds.
    return accountant._orders, accountant._rdp


def rdp_epsilon(kept: tuple[int, int, float, Sampling], rounds: int, delta: float) -> float:
    """Epsilon by RDP of (clients, cohort, noise, sampling): 0.1 s once, and nothing for other
    numbers of rounds.
    """
    orders, divergences = _one_round(kept)
    module = require("dp_accounting.rdp.rdp_privacy_accountant", extra="dp")
    return float(module.compute_epsilon(orders, divergences * rounds, delta)[0])


@lru_cache(maxsize=8)
def _loss(rate: float, noise: float) -> Any:
    """Privacy loss distribution of one round, on a grid to the scale of the loss."""
    module = require("dp_accounting.pld.privacy_loss_distribution", extra="dp")
    grid = _GRID * max(1.0, noise**-2)
    return module.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid
    )


@lru_cache(maxsize=1024)
def pld_epsilon(rate: float, noise: float, rounds: int, delta: float) -> float:
    """Epsilon by PLD under Poisson sampling: 0.5 to 3 s once, and a third of it for each number of
    rounds.
    """
    return float(_loss(rate, noise).self_compose(rounds).get_epsilon_for_delta(delta))
