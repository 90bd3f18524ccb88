"""Markets: what they hold, what they tell, and one clear line for each way they can be wrong."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.problems.markets.market import FOREVER, make_market
from tests.kit.rules import refused


def made(**changes: Any) -> Any:
    """A market of two agents and three producers, with changes."""
    values: dict[str, Any] = {
        "quality": [0.9, 0.5, 0.2],
        "cost": [[0.5, 0.3, 0.1], [0.6, 0.2, 0.1]],
        "capacity": [[10, 20, 0], [5, 5, 5]],
        "alpha": 0.4,
        **changes,
    }
    return make_market(**values)


def test_a_market_holds_what_it_was_made_of() -> None:
    market = made(rho=2, producers=["a", "b", "c"], agents=["x", "y"], source="a test")
    assert market.quality.tolist() == [[0.9, 0.5, 0.2]]
    assert (market.supply.every, market.rho, market.alpha) == (FOREVER, 2.0, 0.4)
    assert market.capacity.dtype == np.int64
    assert market.describe() == {
        "names": ["a", "b", "c"],
        "means": [0.9, 0.5, 0.2],
        "agents": ["x", "y"],
        "alpha": 0.4,
        "rho": 2.0,
        "epochs": 1,
        "source": "a test",
    }
    assert "Supply" not in repr(market)


def test_names_are_numbers_unless_told() -> None:
    market = made()
    assert market.producers == ("producer-1", "producer-2", "producer-3")
    assert market.agents == ("agent-1", "agent-2")


def test_what_a_market_was_made_of_may_change_afterwards_and_the_market_not() -> None:
    cost, capacity, quality = np.full((1, 2), 0.1), np.full((1, 2), 5), np.array([0.5, 0.6])
    market = make_market(quality, cost, capacity, alpha=0.1)
    for array in (cost, capacity, quality):
        array[...] = 0
    assert (market.cost[0, 0], market.capacity[0, 0], market.quality[0, 0]) == (0.1, 5, 0.5)
    for frozen in (market.cost, market.capacity, market.quality):
        with pytest.raises(ValueError, match="read-only"):
            frozen[0, 0] = 1


def test_epochs_are_rows_of_quality() -> None:
    market = made(quality=[[0.9, 0.5, 0.2], [0.1, 0.5, 0.2]], every=100)
    assert (market.supply.every, market.describe()["epochs"], market.describe()["means"]) == (
        100,
        2,
        [0.9, 0.5, 0.2],
    )


def test_records_make_the_quality() -> None:
    market = made(quality=None, records=[[1, 1, 0, 1], [0.5], [0, 0.25]])
    assert market.quality.tolist() == [[0.75, 0.5, 0.125]]
    assert market.good(1, 0, 0, 1, 0, 400) == 300


def test_a_purchase_of_nothing_delivers_nothing() -> None:
    assert made().good(1, 0, 0, 1, 0, 0) == 0.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"alpha": 0.95},
            "problems.alpha.out-of-reach",
        ),
        (
            {"alpha": 0.95, "quality": [[0.9, 0.1, 0.1], [0.1, 0.93, 0.1]]},
            "problems.alpha.out-of-reach",
        ),
        (
            {"quality": [0.3, 0.3, 0.99], "capacity": [[1, 1, 0]] * 2},
            "problems.alpha.out-of-reach",
        ),
        ({"capacity": np.zeros((2, 3))}, "problems.capacity.all-zero"),
        ({"alpha": 1.1}, "problems.alpha.out-of-range"),
        ({"alpha": math.nan}, "problems.alpha.not-a-number"),
        ({"rho": 0}, "problems.rho.not-positive"),
        ({"rho": math.inf}, "problems.rho.not-positive"),
        ({"every": 0}, "problems.every.too-small"),
        ({"quality": [0.9, 0.5]}, "problems.quality.number"),
        ({"quality": [0.9, 0.5, 1.5]}, "problems.quality.out-of-range"),
        ({"quality": [0.9, 0.5, math.nan]}, "problems.quality.out-of-range"),
        (
            {"quality": np.full((1, 1, 3), 0.5)},
            "problems.quality.not-a-table",
        ),
        ({"quality": []}, "problems.quality.not-a-table"),
        ({"quality": None}, "problems.quality.and-records"),
        ({"records": [[1]] * 3}, "problems.quality.and-records"),
        ({"quality": None, "records": [[1], [], [1]]}, "problems.records.empty"),
        ({"quality": None, "records": []}, "problems.records.empty"),
        (
            {"quality": None, "records": [[1], [2], [1]]},
            "problems.quality.out-of-range",
        ),
        ({"quality": None, "records": [[1], [1]]}, "problems.quality.number"),
        ({"cost": [[0.1, 0.1]]}, "problems.cost.not-a-table"),
        (
            {"cost": [[0.1, -2, 0.1]] * 2},
            "problems.cost.negative",
        ),
        ({"cost": [[0.1, math.inf, 0.1]] * 2}, "problems.cost.negative"),
        (
            {"capacity": [[1, 1, 1], [1, 1, -1]]},
            "problems.capacity.negative",
        ),
        (
            {"capacity": [[1, 1, 1], [1, 2.5, 1]]},
            "problems.capacity.fraction",
        ),
        (
            {"capacity": [[1, 1, 2 * 10**9]] * 2},
            "problems.capacity.too-large",
        ),
        (
            {"cost": [[0.1, 0.1, 0.1], [0.1]]},
            "problems.cost.not-numbers",
        ),
        ({"quality": ["good", "bad", 1]}, "problems.quality.not-numbers"),
        ({"producers": ["a", "b"]}, "problems.producer.names-number"),
        ({"agents": ["a", "a"]}, "problems.agent.names-twice"),
    ],
)
def test_wrong_markets_are_refused_in_one_line(changes: dict[str, Any], says: str) -> None:
    with refused(says) as caught:
        made(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("best", [0.38219, 0.99999, 0.123456789, 0.00004])
def test_the_threshold_that_is_suggested_is_within_reach(best: float) -> None:
    with pytest.raises(ConfigError) as caught:
        make_market([best, best / 2], [[0, 0]], [[1, 1]], alpha=1.0)
    found = re.search(r"at or below ([\d.e-]+)\.$", str(caught.value))
    assert found is not None
    assert make_market([best, best / 2], [[0, 0]], [[1, 1]], alpha=float(found[1])).alpha <= best


def test_one_epoch_within_reach_is_enough() -> None:
    assert len(made(quality=[[0.1, 0.1, 0.1], [0.1, 0.5, 0.1]], every=10).quality) == 2
