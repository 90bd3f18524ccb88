"""How many ratings an arm needs, if nobody says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posse.problems.arms.ratings import ENOUGH, Ratings
from posse.problems.arms.settings import ProblemSettings
from posse.systems.registry import run
from posse.systems.samba.deploy import World
from posse.systems.samba.settings import Samba


def ratings(*counts: int) -> Ratings:
    items = tuple(f"item-{number}" for number in range(len(counts)))
    item = np.repeat(np.arange(len(counts)), counts)
    return Ratings(items, item, np.full(len(item), 4.0), scale=(1.0, 5.0), source="test")


@pytest.mark.parametrize(
    ("counts", "top", "minimum"),
    [
        ((60, 50, 40, 3), None, ENOUGH),
        ((8, 8, 8, 3), None, 4),
        ((3, 3, 2), None, 1),
        ((1, 1), None, 1),
        ((100, 3), None, 3),
        ((60, 50, 40, 3), 3, ENOUGH),
        ((60, 50, 40, 3), 4, 3),
        ((60, 50, 0), None, ENOUGH),
        ((), None, 1),
    ],
)
def test_the_minimum_follows_the_counts_and_leaves_enough_items(
    counts: tuple[int, ...], top: int | None, minimum: int
) -> None:
    assert ratings(*counts).usual_minimum(top) == minimum


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four shops; the one with three ratings has the largest mean."""
    rows = ["item,rating"]
    for shop, count in (("north", 60), ("south", 50), ("east", 40)):
        rows += [f"{shop},{5 if number % 2 else 2}" for number in range(count)]
    rows += ["corner,5"] * 3
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_an_item_with_three_ratings_is_no_arm_and_the_record_says_so(table: Path) -> None:
    given = {"data": table, "threshold": 3, "horizon": 40, "path": "plain"}
    record = run(Samba(**given))
    assert sorted(record.arm_names) == ["east", "north", "south"]
    assert record.config["minimum"] == ENOUGH
    (sentence,) = record.shown("dropped")
    assert sentence.startswith("1 item has fewer than 10 ratings")
    assert "--minimum 1" in sentence
    everything = run(Samba(**given, minimum=1))
    assert "corner" in everything.arm_names
    assert everything.config["minimum"] == 1
    assert not everything.shown("dropped")


def test_named_items_and_the_world_of_a_federation_need_one_rating(table: Path) -> None:
    named = ProblemSettings(data=table, threshold=3, items=("corner", "north"))
    assert named.arms().names == ("corner", "north")
    assert "corner" in World(data=table, threshold=3).arms().names
    assert "corner" not in ProblemSettings(data=table, threshold=3).arms().names
