"""`data` is one word: a name, a file, a frame or a table of parts, in every kind of problem."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse.policies
import posse.problems
from posse.core.errors import PosseError
from posse.problems.arms.settings import ProblemSettings
from posse.problems.contexts.settings import ContextSettings
from posse.problems.markets.settings import MarketSettings
from posse.problems.populations.settings import PopulationSettings
from posse.problems.tables.frames import as_frame
from tests.kit.rules import refused

RATINGS = {
    "item": ["heat", "alien", "heat", "alien"],
    "rating": [5, 4.5, 2, 1],
    "user": ["a", "a", "b", "b"],
}
CLINIC = {"row": ["ann", "bob"], "age": [0.5, 0.1]}
LAB = {"row": ["ann", "bob"], "iron": [0.2, 0.7]}
PAYS = {"row": ["ann", "bob"], "wait": [0.0, 0.9], "treat": [1.0, 0.3]}
OFFERS = {
    "agent": ["north", "south", "south"],
    "supplier": ["oak", "oak", "elm"],
    "cost": [2.5, 2, 1],
    "capacity": [10, 4, 8],
}
QUALITIES = {"supplier": ["elm", "oak"], "quality": [0.5, 0.9]}
VISITS = {
    "client": ["ann", "bob", "ann"],
    "age": [0.3, 0.7, 0.1],
    "label": ["wait", "treat", "treat"],
}


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


class Bare:
    """Anything with columns and [column] is a frame."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self._values = list(columns), columns

    def __getitem__(self, name: str) -> Any:
        return np.array(self._values[name])


def forms(columns: dict[str, list[Any]]) -> list[Any]:
    """A table in every form."""
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    return [
        columns,
        rows(columns),
        Bare(columns),
        pandas.DataFrame(columns),
        polars.DataFrame(columns, strict=False),
        arrow.table(columns),
    ]


def csv(folder: Path, name: str, columns: dict[str, list[Any]]) -> Path:
    path = folder / f"{name}.csv"
    text = [
        ",".join(columns),
        *(",".join(str(cell) for cell in row.values()) for row in rows(columns)),
    ]
    path.write_text("\n".join(text) + "\n")
    return path


@pytest.mark.parametrize("number", range(6))
def test_a_frame_of_ratings_gives_the_arms_of_its_file(tmp_path: Path, number: int) -> None:
    frame = forms(RATINGS)[number]
    settings = ProblemSettings(data=frame, threshold=3)
    arms, wanted = (
        settings.arms(),
        ProblemSettings(data=csv(tmp_path, "r", RATINGS), threshold=3).arms(),
    )
    assert arms.names == wanted.names
    assert arms.means.tolist() == wanted.means.tolist()
    stored = json.loads(json.dumps(settings.resolved()))["data"]
    assert stored["frame"] == [4, 3]
    assert len(bytes.fromhex(stored["digest"])) == 32
    assert (
        settings == ProblemSettings(data=frame, threshold=3) == pickle.loads(pickle.dumps(settings))
    )
    other = ProblemSettings(data={**RATINGS, "rating": [5, 4.5, 2, 2]}, threshold=3)
    assert settings != other
    assert other.resolved()["data"]["digest"] != stored["digest"]
    with refused("problems.data.frame-of-a-record"):
        ProblemSettings(**settings.resolved())


def test_a_frame_of_means() -> None:
    arms = ProblemSettings(data={"name": ["a", "b", "c"], "mean": [0.1, 0.9, 0.5]}, owners=2).arms()
    assert (arms.names, arms.means.tolist()) == (("b", "c"), [0.9, 0.5])


@pytest.mark.parametrize("number", range(6))
def test_frames_of_features_and_rewards(tmp_path: Path, number: int) -> None:
    parts = {
        "features": {"clinic": forms(CLINIC)[number], "lab": forms(LAB)[number]},
        "rewards": forms(PAYS)[number],
    }
    settings = ContextSettings(data=parts)
    files = {
        name: csv(tmp_path, name, table)
        for name, table in (("clinic", CLINIC), ("lab", LAB), ("pays", PAYS))
    }
    features = {"clinic": files["clinic"], "lab": files["lab"]}
    for same in (
        ContextSettings(data={"features": features, "rewards": files["pays"]}),
        ContextSettings(problem="own", features=features, rewards=files["pays"]),
        ContextSettings(
            features=f"clinic={files['clinic']},lab={files['lab']}", rewards=str(files["pays"])
        ),
        ContextSettings(data={"features": features, "rewards": parts["rewards"]}),
    ):
        assert same.contexts().describe() == settings.contexts().describe()
        assert same.contexts().features.tolist() == settings.contexts().features.tolist()
    assert settings.resolved()["data"]["features"]["lab"]["frame"] == [2, 2]
    assert ContextSettings(
        data={"features": features, "rewards": files["pays"]}
    ).data_files() == tuple(files.values())


@pytest.mark.parametrize("number", range(6))
def test_frames_of_a_market(tmp_path: Path, number: int) -> None:
    settings = MarketSettings(
        data={"offers": forms(OFFERS)[number], "qualities": forms(QUALITIES)[number]}, rho=4
    )
    files = {
        "offers": csv(tmp_path, "offers", OFFERS),
        "qualities": csv(tmp_path, "qualities", QUALITIES),
    }
    for same in (MarketSettings(data=files, rho=4), MarketSettings(**files, rho=4)):
        assert same.market(100).capacity.tolist() == settings.market(100).capacity.tolist()
        assert same.market(100).agents == settings.market(100).agents
    assert settings.data_name == "frame"
    assert MarketSettings(data=files, rho=4).data_name == "offers.csv"


@pytest.mark.parametrize("number", range(6))
def test_a_frame_of_clients(tmp_path: Path, number: int) -> None:
    made = PopulationSettings(data=forms(VISITS)[number]).population()
    file = csv(tmp_path, "visits", VISITS)
    for same in (PopulationSettings(data=file), PopulationSettings(data="own", file=file)):
        assert same.population().describe() == made.describe()
    assert made.sizes().tolist() == [2, 1]


def test_old_words_are_the_same_settings(tmp_path: Path) -> None:
    assert ContextSettings(problem="clusters", arms=5) == ContextSettings(data="clusters", arms=5)
    assert MarketSettings(instance="normal") == MarketSettings(data="normal")
    files = {
        "offers": csv(tmp_path, "offers", OFFERS),
        "qualities": csv(tmp_path, "qualities", QUALITIES),
    }
    assert MarketSettings(**files) == MarketSettings(data=files)
    (tmp_path / "old.toml").write_text(
        f'offers = "{files["offers"]}"\nqualities = "{files["qualities"]}"\n'
    )
    (tmp_path / "new.toml").write_text(
        f'[data]\noffers = "{files["offers"]}"\nqualities = "{files["qualities"]}"\n'
    )
    old, new = (MarketSettings.make(file=tmp_path / name) for name in ("old.toml", "new.toml"))
    assert old == new == MarketSettings(data=files)
    other = csv(tmp_path, "other", QUALITIES)
    over = MarketSettings.make({"qualities": other}, file=tmp_path / "new.toml")
    assert over == MarketSettings(data={**files, "qualities": other})
    assert new.but(qualities=other) == over


def test_problems_are_made_once(tmp_path: Path) -> None:
    settings = ProblemSettings(
        data=csv(tmp_path, "means", {"name": ["a", "b"], "mean": [0.1, 0.9]})
    )
    assert settings.arms() is settings.arms()
    assert ContextSettings(rows=50).contexts() is not ContextSettings(rows=50).contexts()
    market = MarketSettings(agents=2, producers=30)
    assert market.market(10) is market.market(10)
    assert market.but(agents=3).market(10) is not market.market(10)
    population = PopulationSettings(clients=5)
    assert population.population() is population.population()


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (
            {"item": ["a", "b"], "rating": [1, "good"]},
            r"data, row 2, column 'rating': 'good' is not a number",
        ),
        ({"item": ["a", None], "rating": [1, 2]}, r"data, row 2, column 'item': the cell is empty"),
        (
            {"item": ["a", "b"], "rating": [1, float("nan")]},
            r"data, row 2, column 'rating': the cell is empty",
        ),
        (
            {"item": ["a", "b"], "rating": [1, float("inf")]},
            r"data, row 2, column 'rating': 'inf' is not a finite",
        ),
        (
            {"item": ["a", "b"], "rating": [1]},
            "data: columns must be of one length, got item 2, rating 1",
        ),
        (
            {"itm": ["a", "b"], "rating": [1, 2]},
            "data: no column 'item' in the header. Did you mean 'itm'",
        ),
        ({"Item": ["a", "b"], "item": ["a", "b"], "rating": [1, 1]}, "every rating is 1"),
        ({"size": ["a", "b"]}, "data: expected columns item,rating"),
        ({"item": [], "rating": []}, "data has a header and no rows"),
        ([], "data must be a name, a file or a frame, got list"),
        ([1, 2], "data must be a name, a file or a frame, got list"),
        (3, "data must be a name, a file or a frame, got int"),
        (None, "data must be a name, a file or a frame, got NoneType"),
        ("movielense", "there is no data file 'movielense'. Did you mean"),
        ("gone.csv", "there is no data file 'gone.csv'. Give a CSV file"),
        ("embedded:steam", "embedded means are jester or movielens, got 'embedded:steam'"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(frame: Any, says: str) -> None:
    with pytest.raises(PosseError, match=says) as caught:
        ProblemSettings(data=frame, threshold=0.5 if not isinstance(frame, str) else None).arms()
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame([["a", 1, 2]], columns=["item", "rating", "rating"])
    with refused("problems.columns.twice-in-frame"):
        ProblemSettings(data=twice, threshold=1)


def test_a_frame_is_a_copy() -> None:
    columns = {"name": ["a", "b"], "mean": [0.25, 0.5]}
    settings = ProblemSettings(data=columns)
    columns["mean"][0] = 0.75
    assert settings.arms().means.tolist() == [0.25, 0.5]


def test_cells_of_many_kinds_are_text() -> None:
    frame = as_frame(
        [{"a": True, "b": np.float32(0.5), "c": "two\nlines"}, {"b": np.int64(3)}], "data"
    )
    assert frame is not None
    assert frame.text == b"a,b,c\n1,0.5,two lines\n,3,\n"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ProblemSettings(owners=1), "problems.owners.below-two"),
        (
            lambda: ProblemSettings(means=(0.1, 0.2), data="embedded:jester"),
            "problems.means.and-data",
        ),
        (
            lambda: ProblemSettings(threshold=3.5),
            "problems.ratings.none",
        ),
        (lambda: ProblemSettings(means=(0.1, 0.2), owners=3), "problems.owners.not-means"),
        (lambda: ContextSettings(arms=20), "problems.arms.no-effect"),
        (lambda: MarketSettings(alpha=1.5), "problems.alpha.out-of-range"),
        (lambda: MarketSettings(drift=-1.0), "problems.drift.too-small"),
        (lambda: PopulationSettings(part="test"), "problems.part.no-effect"),
        (
            lambda: PopulationSettings(data="digits", scale="standard"),
            "problems.scale.not-own",
        ),
        (lambda: PopulationSettings(scale="standard").population(), "problems.scale.not-own"),
        (lambda: PopulationSettings(late=2.0), "problems.late.out-of-range"),
        (
            lambda: PopulationSettings(drift="labels", drift_share=0.0),
            "problems.drift_share.out-of-range",
        ),
        (
            lambda: PopulationSettings(data="mnist-writer"),
            "problems.data.unknown-name",
        ),
        (
            lambda: PopulationSettings(data={"client": ["a"]}, file="x.csv"),
            "problems.data.and-file",
        ),
    ],
)
def test_wrong_values_are_refused_when_settings_are_made(make: Any, says: str) -> None:
    with refused(says):
        make()


def test_every_public_name_is_there() -> None:
    for package in (posse.policies, posse.problems):
        assert sorted(package.__all__) == sorted(package._HOME)
        for name in package.__all__:
            assert getattr(package, name) is not None
