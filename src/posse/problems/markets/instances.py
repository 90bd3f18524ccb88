"""Random markets: an instance is a pure function of its seed.

Every number has its own address, so that a larger instance holds the smaller one: agent j has
the same costs, capacities and producers for any number of agents, and qualities depend on no
agent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from posse.core import check
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError
from posse.core.exact import normals
from posse.core.random import INSTANCE, uniform
from posse.problems.markets.market import FOREVER, MOST_UNITS, Market, make_market
from posse.problems.requirements import Floats, Ints, Mask

INSTANCES = {
    "uniform": "qualities and costs uniform on [0, 1]",
    "normal": "qualities and costs normal around alpha, clipped to [0, 1]",
}
"""Descriptions of the distributions of a random market."""
Distribution = Literal["uniform", "normal"]

MOST_AGENTS = 100_000
MOST_SEED = 2**63 - 1
MOST_QUALITIES = 10_000_000
"""Most epochs times producers."""

_QUALITY, _COST, _CAPACITY, _DEALS, _STEP, _KINDS = 0, 1, 2, 3, 4, 8


def market_instance(
    seed: int,
    *,
    agents: int = 10,
    producers: int = 30,
    distribution: Distribution = "uniform",
    homogeneous: bool = False,
    overlap: float = 1.0,
    alpha: float = 0.4,
    rho: float = 1.0,
    sd: float = 0.1,
    largest_capacity: int = 50,
    drift: float = 0.0,
    every: int = 1000,
    horizon: int = 100_000,
) -> Market:
    """Draw a market: qualities, costs, capacities (uniform on 1 to `largest_capacity`), and deals.

    uniform: q_i, c_ij ~ U[0, 1]; normal: q_i, c_ij ~ N(alpha, sd), clipped to [0, 1] (Solanki,
    Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits with
    constraints, 2022, section 6.1, where the sd is printed as 0). `homogeneous`: all agents have
    the costs and capacities of the first. `overlap`: each agent deals with round(overlap m) of the
    m producers, at least one, drawn for each; a larger overlap only adds producers. `drift`: after
    each `every` rounds every quality takes a normal step of this sd, reflected at 0 and 1, up to
    round `horizon`; its first epochs do not depend on the horizon.

    >>> few, many = (
    ...     market_instance(7, agents=2, producers=4),
    ...     market_instance(7, agents=5, producers=4),
    ... )
    >>> few.quality.round(2).tolist(), few.capacity.tolist()
    ([[0.62, 0.48, 0.4, 0.9]], [[3, 38, 46, 30], [36, 9, 48, 40]])
    >>> bool((few.quality == many.quality).all() and (few.cost == many.cost[:2]).all())
    True
    """
    check_instance(seed, agents, producers, overlap, alpha, rho, sd, largest_capacity, drift)
    check.one_of(tuple(INSTANCES), distribution=distribution)
    epochs = _epochs(drift, every, horizon, producers)
    key, normal = np.uint64(seed), distribution == "normal"
    quality = np.empty((epochs, producers))
    cost, capacity = np.empty((agents, producers)), np.empty((agents, producers), np.int64)
    _draw_qualities(key, normal, float(alpha), float(sd), float(drift), quality)
    _draw_offers(
        key, normal, float(alpha), float(sd), largest_capacity, homogeneous, cost, capacity
    )
    capacity[~_dealing(key, agents, producers, overlap)] = 0
    traits = [f"{distribution} instance {seed}"]
    traits += ["homogeneous agents"] if homogeneous else []
    traits += [f"overlap {overlap:g}"] if overlap < 1 else []
    traits += [f"drift {drift:g} every {every} rounds"] if drift > 0 else []
    return make_market(
        quality,
        cost,
        capacity,
        alpha=alpha,
        rho=rho,
        every=every if drift > 0 else FOREVER,
        source=", ".join(traits),
    )


def binds(market: Market) -> bool:
    """Return whether the quality constraint stops an agent from a purchase that it would make.

    Without the constraint, an agent buys all it can from every producer with rho q - c > 0. The
    constraint binds if that purchase of some agent in some epoch has an average quality below
    alpha. O(epochs agents producers).

    >>> from posse.problems.markets.market import make_market
    >>> [binds(make_market([0.9, 0.2], [[0.5, 0.1]], [[1, k]], alpha=0.5)) for k in (1, 2)]
    [False, True]
    """
    quality = market.quality
    for cost, capacity in zip(market.cost, market.capacity, strict=True):
        purchase = np.where(market.rho * quality - cost > 0, capacity, 0)
        if ((purchase * (quality - market.alpha)).sum(axis=1) < 0).any():
            return True
    return False


@compiled_scalar
def _drawn(key: int, party: int, index: int, normal: bool, mean: float, sd: float) -> float:
    if normal:
        z, _, _ = normals(key, INSTANCE, party, index, 0)
        return min(max(mean + sd * z, 0.0), 1.0)
    return uniform(key, INSTANCE, party, index, 0)


@compiled_scalar
def _reflected(x: float) -> float:
    """Fold a number back into [0, 1], as a ball between two walls."""
    folded = abs(x)
    folded -= 2.0 * np.floor(folded / 2.0)
    return float(2.0 - folded if folded > 1.0 else folded)


@compiled_scalar
def _draw_qualities(
    key: int, normal: bool, mean: float, sd: float, drift: float, quality: Floats
) -> None:
    for i in range(quality.shape[1]):
        quality[0, i] = _drawn(key, _QUALITY, i, normal, mean, sd)
        for epoch in range(1, quality.shape[0]):
            z, _, _ = normals(key, INSTANCE, _STEP + _KINDS * epoch, i, 0)
            quality[epoch, i] = _reflected(quality[epoch - 1, i] + drift * z)


@compiled_scalar
def _draw_offers(
    key: int,
    normal: bool,
    mean: float,
    sd: float,
    largest: int,
    homogeneous: bool,
    cost: Floats,
    capacity: Ints,
) -> None:
    for j in range(cost.shape[0]):
        agent = 0 if homogeneous else j
        for i in range(cost.shape[1]):
            cost[j, i] = _drawn(key, _COST + _KINDS * agent, i, normal, mean, sd)
            capacity[j, i] = 1 + int(
                uniform(key, INSTANCE, _CAPACITY + _KINDS * agent, i, 0) * largest
            )


@compiled_scalar
def _draw_places(key: int, places: Floats) -> None:
    for j in range(places.shape[0]):
        for i in range(places.shape[1]):
            places[j, i] = uniform(key, INSTANCE, _DEALS + _KINDS * j, i, 0)


def _dealing(key: np.uint64, agents: int, producers: int, overlap: float) -> Mask:
    """Return which pairs deal, (agents, producers): each agent with the producers of smallest draws."""
    deals = np.zeros((agents, producers), bool)
    places = np.empty((agents, producers))
    _draw_places(key, places)
    nearest = places.argsort(axis=1, kind="stable")[:, : max(1, round(overlap * producers))]
    np.put_along_axis(deals, nearest, True, axis=1)
    return deals


def _epochs(drift: float, every: int, horizon: int, producers: int) -> int:
    check.at_least(1, drift_every=every)
    check.at_least(1, horizon=horizon)
    epochs = -(-horizon // every) if drift > 0 else 1
    if epochs * producers > MOST_QUALITIES:
        raise ConfigError(
            f"a drift has at most {MOST_QUALITIES} qualities (epochs x producers), got {epochs} x "
            f"{producers}. "
            "Let it step less often.",
            rule="problems.drift.too-many-epochs",
        )
    return epochs


def check_instance(
    seed: int,
    agents: int,
    producers: int,
    overlap: float,
    alpha: float,
    rho: float,
    sd: float,
    largest: int,
    drift: float,
) -> None:
    """Raise if a setting of a random market is out of range."""
    check.between(0, MOST_SEED, instance_seed=seed)
    check.between(1, MOST_AGENTS, agents=agents)
    check.between(1, MOST_QUALITIES // agents, producers=producers)
    check.between(0, 1, open_low=True, overlap=overlap)
    check.between(0, 1, alpha=alpha)
    check.positive(rho=rho)
    check.at_least(0, drift=drift)
    check.at_least(0, sd=sd)
    check.between(1, MOST_UNITS, largest_capacity=largest)
