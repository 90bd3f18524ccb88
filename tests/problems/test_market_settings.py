"""Settings of a market: what they make, and none of them left unheard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import ConfigError
from posse.problems.markets.instances import market_instance
from posse.problems.markets.settings import MarketSettings


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
        ({"agents": 5}, "agents must be those of the offers, got 5 for 3. Leave agents out"),
        ({"agents": 10}, "agents must be those of the offers, got 10 for 3"),
        ({"producers": 5}, "producers must be those of the offers, got 5 for 2"),
        ({"instance": "normal"}, "instance is another word for data, got offers too. Give one"),
        ({"homogeneous": True}, "homogeneous applies to a random market"),
        ({"overlap": 0.5}, "overlap applies to a random market, .* got 0.5"),
        ({"sd": 0.3}, "sd applies to a random market"),
        ({"largest_capacity": 9}, "largest_capacity applies to a random market"),
        ({"drift": 0.1}, "drift applies to a random market"),
        ({"drift_every": 5}, "drift_every applies to a random market"),
        ({"instance_seed": 5}, "instance_seed applies to a random market"),
        ({"qualities": None}, "neither qualities nor records"),
    ],
)
def test_settings_beside_offers_are_refused(
    files: dict[str, Path], changes: dict[str, Any], says: str
) -> None:
    values = {"offers": files["offers"], "qualities": files["qualities"], **changes}
    with pytest.raises(ConfigError, match=says) as caught:
        MarketSettings(**values).market(100)
    assert "\n" not in str(caught.value)


def test_qualities_and_records_exclude_each_other(files: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="got both"):
        MarketSettings(**files).market(100)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"qualities": "q.csv"}, "qualities needs offers, got 'q.csv' alone. Give both files"),
        ({"records": "r.csv"}, "records needs offers, got 'r.csv' alone. Give both files"),
        (
            {"sd": 0.2},
            "sd applies to a normal instance, and this one is uniform, got 0.2. Leave sd out",
        ),
        ({"drift_every": 10}, "drift_every applies to a drift, and there is none, got 10"),
        ({"drift": 0.1, "drift_every": 0}, "drift_every must be at least 1, got 0"),
        ({"instance_seed": -1}, "instance_seed must be in .* got -1"),
        ({"agents": 0}, r"agents must be in \[1, .*, got 0"),
        ({"producers": 0}, r"producers must be in \[1, .*, got 0"),
        ({"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1.5"),
        ({"rho": -1.0}, "rho must be a finite number above 0, got -1.0"),
        ({"overlap": 0.0}, r"overlap must be in \(0, 1\], got 0.0"),
        ({"largest_capacity": 0}, "largest_capacity must be in .* got 0"),
        ({"drift": -0.5}, "drift must be at least 0, got -0.5"),
        ({"instance": "normal", "sd": -0.5}, "sd must be at least 0, got -0.5"),
        ({"instance": "uniforn"}, "unknown data 'uniforn'. Did you mean 'uniform'"),
        ({"data": {"qualities": "q.csv"}}, "qualities needs offers, got 'q.csv' alone"),
        ({"data": {}}, "a market of your own needs offers"),
        ({"data": {"offer": "o.csv"}}, "data has no part 'offer'. Did you mean 'offers'"),
        ({"data": {"offers": "o.csv"}}, "neither qualities nor records"),
        (
            {"data": {"offers": "o.csv"}, "offers": "o.csv"},
            "offers is a part of data, got both. Give one",
        ),
        ({"agent": 4}, "unknown setting 'agent'. Did you mean 'agents'"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        MarketSettings(**values).market(100)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(MarketSettings.model_fields))
def test_every_setting_says_what_it_is(name: str) -> None:
    assert (MarketSettings.model_fields[name].description or "").strip()
