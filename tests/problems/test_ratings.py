"""From ratings to arms: the mean of an item, which items are taken, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.tables import read_ratings
from tests.kit.rules import refused

# heat: 4 ratings, 2 above 3; alien: 2 of 2; brazil: 1 of 2; casino: 0 of 1; '9' and '10': 1 of 2 as
# brazil.
ROWS = {
    "heat": [5.0, 3.0, 3.5, 1.0],
    "alien": [4.0, 5.0],
    "brazil": [3.0, 4.0],
    "casino": [2.0],
    "10": [1.0, 5.0],
    "9": [4.0, 1.0],
}


@pytest.fixture
def films() -> Ratings:
    items = tuple(ROWS)
    item = [i for i, name in enumerate(items) for _ in ROWS[name]]
    value = [v for name in items for v in ROWS[name]]
    return Ratings(items, np.array(item), np.array(value), scale=(1.0, 5.0), source="six films")


def test_mean_is_ratings_strictly_above_over_ratings_received(films: Ratings) -> None:
    assert films.means(3.0).tolist() == [0.5, 1.0, 0.5, 0.0, 0.5, 0.5]
    assert films.means(2.99).tolist() == [0.75, 1.0, 1.0, 0.0, 0.5, 0.5]


def test_mean_from_a_hand_made_file(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\na,heat,4\na,alien,5\nb,heat,3\nc,heat,5\nc,alien,1\n")
    ratings = read_ratings(file)
    # Three users; alien was rated by two of them, and the third does not count.
    assert len(np.unique(ratings.user)) == 3
    assert dict(zip(ratings.items, ratings.means(3).tolist(), strict=True)) == {
        "heat": 2 / 3,
        "alien": 1 / 2,
    }


def test_counts_add_up(films: Ratings) -> None:
    assert films.counts.tolist() == [4, 2, 2, 1, 2, 2]
    assert films.counts.sum() == len(films) == 13


def test_all_items_keep_their_order(films: Ratings) -> None:
    assert films.arms(3.0).names == tuple(ROWS)
    assert films.arms(3.0, minimum=2).names == ("heat", "alien", "brazil", "10", "9")


def test_top_breaks_ties_by_ratings_then_id(films: Ratings) -> None:
    arms = films.arms(3.0, top=5)
    assert arms.names == ("alien", "heat", "9", "10", "brazil")
    assert arms.means.tolist() == [1.0, 0.5, 0.5, 0.5, 0.5]
    assert films.arms(3.0, top=2, minimum=2).names == ("alien", "heat")


def test_named_items_in_the_order_given(films: Ratings) -> None:
    assert films.arms(3.0, items=["casino", "heat"]).means.tolist() == [0.0, 0.5]


def test_items_by_name_or_id_and_ids_win() -> None:
    ratings = Ratings(
        ("1", "2", "3"),
        [0, 1, 2],
        [1.0, 2.0, 3.0],
        (1.0, 3.0),
        "three",
        names=("one", "1", "three"),
    )
    assert ratings.arms(1.5, items=["1", "three"]).names == ("one", "three")


def test_items_of_one_name_are_told_apart_by_id() -> None:
    ratings = Ratings(
        ("1", "2", "3"),
        [0, 1, 2],
        [1.0, 2.0, 3.0],
        (1.0, 3.0),
        "three",
        names=("Emma", "Emma", "Heat"),
    )
    assert ratings.arms(1.5).names == ("Emma [1]", "Emma [2]", "Heat")


def test_rating_rewards_are_scaled_and_keep_the_choice(films: Ratings) -> None:
    arms = films.arms(3.0, top=2, reward="rating")
    assert arms.names == films.arms(3.0, top=2).names
    assert arms.means.tolist() == [
        pytest.approx((0.75 + 1.0) / 2),
        pytest.approx((1.0 + 0.5 + 0.625 + 0.0) / 4),
    ]


def test_source_says_how_the_arms_were_made(films: Ratings) -> None:
    source = films.arms(3.0, top=2).source
    assert "six films" in source
    assert "above 3" in source
    assert "2 items of largest mean" in source


@given(
    data=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10)), min_size=1, max_size=60),
    threshold=st.integers(0, 9),
)
def test_means_match_a_count_by_hand(data: list[tuple[int, int]], threshold: int) -> None:
    item, value = zip(*data, strict=True)
    ratings = Ratings(
        tuple("abcde"), np.array(item), np.array(value, float), (0.0, 10.0), "made up"
    )
    for i, mean in enumerate(ratings.means(threshold)):
        received = [v for j, v in data if j == i]
        if received:
            assert mean == sum(v > threshold for v in received) / len(received)
        else:
            assert np.isnan(mean)


def test_too_many_arms_says_how_many_and_which_minimum(films: Ratings) -> None:
    with refused("problems.owners.too-few-items"):
        films.arms(3.0, minimum=3, top=5)
    assert len(films.arms(3.0, minimum=2, top=5)) == 5
    with refused("problems.owners.too-few-items"):
        films.arms(3.0, minimum=2, top=6)
    with refused("problems.owners.too-few-items"):
        films.arms(3.0, minimum=2, top=7)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"items": ["heat", "allien"]},
            DataError,
            "problems.items.unknown",
        ),
        (
            {"items": ["heat", "casino"], "minimum": 2},
            DataError,
            "problems.items.below-minimum",
        ),
        ({"items": ["heat", "heat"]}, ConfigError, "problems.items.twice"),
        ({"items": "heat"}, ConfigError, "problems.items.not-a-list"),
        ({"items": ["heat"]}, ConfigError, "problems.arms.too-few"),
        ({"top": 1}, ConfigError, "problems.arms.too-few"),
        ({"top": 0}, ConfigError, "problems.top.too-small"),
        ({"minimum": 0}, ConfigError, "problems.minimum.too-small"),
        ({"top": 2, "items": ["heat"]}, ConfigError, "problems.items.and-top"),
        ({"reward": "ratings"}, ConfigError, "problems.reward.unknown"),
        ({"threshold": 5.0}, ConfigError, "problems.threshold.outside-scale"),
        ({"threshold": 0.5}, ConfigError, "problems.threshold.outside-scale"),
        ({"threshold": float("nan")}, ConfigError, "problems.threshold.outside-scale"),
    ],
)
def test_refused(
    films: Ratings, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with refused(message):
        films.arms(**{"threshold": 3.0, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": [0, 2]}, "problems.item.out-of-range"),
        ({"item": [0]}, "problems.ratings.lengths"),
        ({"user": [1, 2, 3]}, "problems.ratings.lengths"),
        ({"items": ("a", "a")}, "problems.items.not-distinct"),
        ({"names": ("a",)}, "problems.items.not-distinct"),
        ({"value": [1.0, float("nan")]}, "problems.rating.outside-scale"),
        ({"value": [1.0, 9.0]}, "problems.rating.outside-scale"),
        ({"scale": (5.0, 1.0)}, "problems.scale.not-finite"),
    ],
)
def test_inconsistent_ratings(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {
        "items": ("a", "b"),
        "item": [0, 1],
        "value": [1.0, 5.0],
        "scale": (1.0, 5.0),
    }
    Ratings(**good, source="good")  # type: ignore[arg-type]
    with refused(message):
        Ratings(**{**good, **change}, source="bad")  # type: ignore[arg-type]


def test_values_stay_what_they_were_and_the_callers_array_is_free(films: Ratings) -> None:
    with pytest.raises(ValueError, match="read-only"):
        films.value[0] = 1.0
    mine = np.array([1.0, 5.0])
    Ratings(("a", "b"), [0, 1], mine, (1.0, 5.0), "mine")
    mine[0] = 2.0


def test_long_lists_suggest_without_listing(films: Ratings) -> None:
    many = Ratings(
        tuple(f"film {n:03}" for n in range(300)),
        range(300),
        [1.0] * 299 + [2.0],
        (1.0, 2.0),
        "many",
    )
    with pytest.raises(DataError) as caught:
        many.arms(1.0, items=["flim 017", "film 001"])
    assert "Did you mean 'film 017'?" in str(caught.value)
    assert len(str(caught.value)) < 120
