"""Settings of a market: what they make, and none of them left unheard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from posse.problems.markets.instances import market_instance
from posse.problems.markets.settings import MarketSettings
from tests.kit.rules import refused


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "offers": "agent,supplier,cost,capacity\nnorth,oak,2.5,10\nsouth,elm,1,8\nwest,oak,2,4\n",
        "qualities": "supplier,quality\noak,0.9\nelm,0.5\n",
        "records": "supplier,quality\noak,1\noak,0\nelm,1\nelm,1\n",
    }
    paths = {name: tmp_path / f"{name}.csv" for name in contents}
    for name, path in paths.items():
        path.write_text(contents[name], encoding="utf-8")
    return paths


def test_the_defaults_are_those_of_the_paper() -> None:
    market, instance = MarketSettings().market(100_000), market_instance(1)
    assert market.source == instance.source
    assert market.cost.tobytes() == instance.cost.tobytes()
    assert (len(market.agents), len(market.producers), market.alpha, market.rho) == (
        10,
        30,
        0.4,
        1.0,
    )
    defaults = {name: field.default for name, field in MarketSettings.model_fields.items()}
    assert (defaults["sd"], defaults["largest_capacity"], defaults["drift_every"]) == (
        0.1,
        50,
        1000,
    )


def test_every_setting_is_heard() -> None:
    settings = MarketSettings(
        instance="normal",
        agents=4,
        producers=6,
        alpha=0.3,
        rho=2.0,
        homogeneous=True,
        overlap=0.5,
        sd=0.2,
        largest_capacity=9,
        drift=0.1,
        drift_every=50,
        instance_seed=8,
        currency="EUR",
    )
    made = settings.market(200)
    wanted = market_instance(
        8,
        agents=4,
        producers=6,
        distribution="normal",
        homogeneous=True,
        overlap=0.5,
        alpha=0.3,
        rho=2.0,
        sd=0.2,
        largest_capacity=9,
        drift=0.1,
        every=50,
        horizon=200,
    )
    assert made.describe() == wanted.describe()
    for part in ("quality", "cost", "capacity"):
        assert getattr(made, part).tobytes() == getattr(wanted, part).tobytes()
    assert made.supply.every == 50


def test_settings_are_text_too() -> None:
    """As flags give them."""
    assert MarketSettings.make({"agents": "3", "overlap": "0.5", "homogeneous": "true"}).agents == 3


@pytest.mark.parametrize("name", ["qualities", "records"])
def test_files_make_a_market(files: dict[str, Path], name: str) -> None:
    settings = MarketSettings(offers=files["offers"], alpha=0.5, rho=4.0, **{name: files[name]})
    market = settings.market(100)
    assert market.producers == ("oak", "elm")
    assert market.rho == 4.0
    assert settings.used(market) == {"agents": 3, "producers": 2}
    # What a record keeps can be given again.
    again = MarketSettings(**{**settings.resolved(), **settings.used(market)})
    assert again.market(100).cost.tobytes() == market.cost.tobytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"agents": 5}, "problems.agents.not-the-offers"),
        ({"agents": 10}, "problems.agents.not-the-offers"),
        ({"producers": 5}, "problems.producers.not-the-offers"),
        ({"instance": "normal"}, "problems.data.named-twice"),
        ({"homogeneous": True}, "problems.homogeneous.no-effect"),
        ({"overlap": 0.5}, "problems.overlap.no-effect"),
        ({"sd": 0.3}, "problems.sd.no-effect"),
        ({"largest_capacity": 9}, "problems.largest_capacity.no-effect"),
        ({"drift": 0.1}, "problems.drift.no-effect"),
        ({"drift_every": 5}, "problems.drift_every.no-effect"),
        ({"instance_seed": 5}, "problems.instance_seed.no-effect"),
        ({"qualities": None}, "problems.qualities.missing"),
    ],
)
def test_settings_beside_offers_are_refused(
    files: dict[str, Path], changes: dict[str, Any], says: str
) -> None:
    values = {"offers": files["offers"], "qualities": files["qualities"], **changes}
    with refused(says) as caught:
        MarketSettings(**values).market(100)
    assert "\n" not in str(caught.value)


def test_qualities_and_records_exclude_each_other(files: dict[str, Path]) -> None:
    with refused("problems.qualities.and-records"):
        MarketSettings(**files).market(100)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"qualities": "q.csv"}, "problems.offers.not-given"),
        ({"records": "r.csv"}, "problems.offers.not-given"),
        (
            {"sd": 0.2},
            "problems.sd.no-effect",
        ),
        ({"drift_every": 10}, "problems.drift_every.no-effect"),
        ({"drift": 0.1, "drift_every": 0}, "problems.drift_every.too-small"),
        ({"instance_seed": -1}, "problems.instance_seed.out-of-range"),
        ({"agents": 0}, "problems.agents.out-of-range"),
        ({"producers": 0}, "problems.producers.out-of-range"),
        ({"alpha": 1.5}, "problems.alpha.out-of-range"),
        ({"rho": -1.0}, "problems.rho.not-positive"),
        ({"overlap": 0.0}, "problems.overlap.out-of-range"),
        ({"largest_capacity": 0}, "problems.largest_capacity.out-of-range"),
        ({"drift": -0.5}, "problems.drift.too-small"),
        ({"instance": "normal", "sd": -0.5}, "problems.sd.too-small"),
        ({"instance": "uniforn"}, "problems.data.unknown-name"),
        ({"data": {"qualities": "q.csv"}}, "problems.offers.not-given"),
        ({"data": {}}, "problems.offers.missing"),
        ({"data": {"offer": "o.csv"}}, "problems.data.unknown-part"),
        ({"data": {"offers": "o.csv"}}, "problems.qualities.missing"),
        (
            {"data": {"offers": "o.csv"}, "offers": "o.csv"},
            "problems.data.named-twice",
        ),
        ({"agent": 4}, "problems.settings.unknown"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with refused(says) as caught:
        MarketSettings(**values).market(100)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(MarketSettings.model_fields))
def test_every_setting_says_what_it_is(name: str) -> None:
    assert (MarketSettings.model_fields[name].description or "").strip()
