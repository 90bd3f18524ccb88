"""Files of reviews as published: Python literals and JSON, gzipped, streamed, never evaluated."""

from __future__ import annotations

import ast
import gzip
import json
import random
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.problems.arms.settings import ProblemSettings
from posse.problems.datasets import reviews
from posse.problems.datasets.ratings import DATASETS, load
from posse.problems.datasets.reviews import fields, read_reviews, records
from posse.systems.modules import scene_of
from posse.systems.samba.settings import Samba
from posse.systems.samba.system import SYSTEM
from tests.kit.rules import refused

STEAM = [
    {
        "username": "Ann",
        "hours": 0.1,
        "products": 41,
        "product_id": "725280",
        "page_order": 0,
        "date": "2017-12-17",
        "text": 'it\'s {not} "good"\\ \n [at all], é',
        "early_access": False,
        "page": 1,
    },
    {
        "username": "Bob",
        "hours": 51.1,
        "products": 27,
        "product_id": "328100",
        "text": "fine",
        "early_access": True,
        "page": 1,
        "compensation": "Product received for free",
        "user_id": "7656",
    },
    {
        "username": "Cem",
        "products": 3,
        "product_id": "328100",
        "text": "no hours",
        "page": 2,
        "early_access": False,
    },
    {
        "username": "Ann",
        "hours": 7.0,
        "product_id": "328100",
        "text": "",
        "page": 2,
        "early_access": False,
    },
]
GOOGLE_2018 = [
    {
        "rating": 3.0,
        "reviewerName": "an lam",
        "reviewText": "Ch\u1ea5t l\u01b0\u1ee3ng",
        "categories": ["Caf\xe9"],
        "gPlusPlaceId": "108103314380004200232",
        "unixReviewTime": 1372686659,
        "gPlusUserId": "100000010817154263736",
    },
    {
        "rating": 5.0,
        "reviewerName": "HALIL",
        "reviewText": None,
        "categories": None,
        "gPlusPlaceId": "102194128241608748649",
        "unixReviewTime": None,
        "gPlusUserId": "100000013500285534661",
    },
]
GOOGLE_2021 = [
    {
        "user_id": "101463350189962023774",
        "name": "J. A.",
        "time": 1627750414677,
        "rating": 5,
        "text": "Cool place",
        "pics": [{"url": ["https://example.org/a"]}],
        "resp": None,
        "gmap_id": "0x80c2c778e3b73d33:0xbdc5",
    },
    {
        "user_id": "2",
        "name": "K",
        "time": 1,
        "rating": 2,
        "text": None,
        "pics": None,
        "resp": {"time": 1, "text": "x"},
        "gmap_id": "0x80c2c778e3b73d33:0xbdc5",
    },
    {
        "user_id": "2",
        "name": "K",
        "time": 1,
        "rating": None,
        "text": "",
        "pics": None,
        "gmap_id": "0x1:0x2",
    },
]


def python2(record: dict[str, Any]) -> str:
    """Write a record as Python 2 printed it: text with a u in front."""
    return (
        "{"
        + ", ".join(
            f"u'{key}': {'u' if isinstance(value, str) else ''}{value!a}"
            for key, value in record.items()
        )
        + "}"
    )


def write(path: Path, lines: list[str], packed: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(body) if packed else body)
    return path


@pytest.mark.parametrize("packed", [True, False])
def test_steam_reviews(tmp_path: Path, packed: bool) -> None:
    name = "steam_reviews.json.gz" if packed else "steam_reviews.json"
    write(tmp_path / "steam-reviews" / name, [python2(record) for record in STEAM], packed)
    games = [{"app_name": "Ironbound", "id": "328100"}, {"title": "Other", "id": "1"}]
    write(tmp_path / "steam-reviews" / "steam_games.json.gz", [python2(game) for game in games])
    found = load("steam-reviews", tmp_path)
    assert found.items == ("725280", "328100")
    assert found.names == ("725280", "Ironbound")
    assert found.value.tolist() == [0.1, 51.1, 7.0]
    assert found.user is not None
    assert found.user.tolist() == [0, 1, 0]
    assert "(hours) of steam_reviews.json" in found.source
    assert "1 without a value left out" in found.source
    assert found.means(5.0).tolist() == [0.0, 1.0]


def test_google_local_of_2018(tmp_path: Path) -> None:
    write(
        tmp_path / "google-local" / "reviews.clean.json.gz",
        [python2(record) for record in GOOGLE_2018],
    )
    place = {
        "name": "Caf\xe9 X",
        "price": None,
        "closed": False,
        "gPlusPlaceId": "108103314380004200232",
        "gps": [1, 2],
    }
    write(tmp_path / "google-local" / "places.clean.json.gz", [python2(place)])
    found = load("google-local", tmp_path)
    assert found.names == ("Caf\xe9 X", "102194128241608748649")
    assert found.scale == (1.0, 5.0)
    assert found.value.tolist() == [3.0, 5.0]


@pytest.mark.parametrize("file", ["review-Vermont.json.gz", "review-New_York_10.json.gz"])
def test_google_local_of_a_state(tmp_path: Path, file: str) -> None:
    write(tmp_path / "google-local" / file, [json.dumps(record) for record in GOOGLE_2021])
    state = file.removeprefix("review-").removesuffix(".json.gz").removesuffix("_10")
    meta = {"name": "Cool Place", "gmap_id": "0x80c2c778e3b73d33:0xbdc5"}
    write(tmp_path / "google-local" / f"meta-{state}.json.gz", [json.dumps(meta)])
    found = load("google-local", tmp_path)
    assert found.names == ("Cool Place",)
    assert found.value.tolist() == [5.0, 2.0]
    assert "1 without a value left out" in found.source


def test_several_states_must_be_named(tmp_path: Path) -> None:
    for state in ("Vermont", "Maine"):
        write(tmp_path / "google-local" / f"review-{state}.json.gz", [json.dumps(GOOGLE_2021[0])])
    with refused("problems.data_dir.several-states"):
        load("google-local", tmp_path)


def test_a_file_of_reviews_is_data(tmp_path: Path) -> None:
    """By its path, whatever it is called; arms, means, ratings and a histogram follow the
    threshold.
    """
    draw = random.Random(1)
    made = [
        {"rating": draw.randint(1, 5), "gmap_id": f"0x{place}:0x0", "user_id": str(n)}
        for n in range(200)
        for place in range(3)
    ]
    path = write(tmp_path / "upload", [json.dumps(record) for record in made])
    for threshold in (2.0, 4.0):
        given_ = Samba(data=str(path), threshold=threshold, policy="ucb", horizon=50)
        preview = scene_of(SYSTEM).preview(given_)
        assert preview is not None
        assert sum(bar["count"] for bar in preview["histogram"]) == 600
        assert [bar["value"] for bar in preview["histogram"]] == [1, 2, 3, 4, 5]
        assert [bar["pays"] for bar in preview["histogram"]] == [
            value > threshold for value in (1, 2, 3, 4, 5)
        ]
        above = {
            f"0x{place}:0x0": np.mean(
                [one["rating"] > threshold for one in made if one["gmap_id"] == f"0x{place}:0x0"]
            )
            for place in range(3)
        }
        assert {arm["name"]: arm["mean"] for arm in preview["arms"]} == pytest.approx(above)
        assert all(arm["ratings"] == 200 for arm in preview["arms"])
        assert preview["threshold"] == threshold
    with refused("problems.threshold.needed"):
        Samba(data=str(path), horizon=50).load()


def test_it_is_read_once_while_a_threshold_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "steam_reviews.json.gz", [python2(record) for record in STEAM])
    first = read_reviews(path)
    monkeypatch.setattr(reviews, "records", lambda *_: pytest.fail("read again"))
    assert read_reviews(path) is first


def test_it_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come one by one: the first is there although the file ends in the middle of a gzip
    stream.
    """
    body = gzip.compress("\n".join(python2(STEAM[0]) for _ in range(5000)).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(body[: len(body) // 2])
    stream = records(path, ("hours",))
    assert next(stream) == (1, {"hours": 0.1})
    with refused("problems.reviews.not-gzip"):
        list(stream)
    monkeypatch.setattr(reviews, "LONGEST", 64)
    with refused("problems.reviews.line-too-long"):
        next(records(path, ("hours",)))


# Literals -----------------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_a_record_is_read_as_python_would_read_it(record: dict[str, Any]) -> None:
    scalars = {key: value for key, value in record.items() if not isinstance(value, list | dict)}
    for text in (repr(record), ascii(record)):
        found = fields(text, tuple(record))
        assert found.keys() == scalars.keys()
        for key, value in scalars.items():
            assert found[key] == value
            assert ast.literal_eval(text)[key] == value


@pytest.mark.parametrize(
    "line",
    [
        "{'hours': __import__('os').system('true')}",
        "{'hours': 1 + 1}",
        "{'hours': open}",
        "[1, 2]",
        "'text'",
        "12",
        "{'hours': 1",
        "{'hours': 1}}",
        "{'hours': 1} 2",
        "{'a' 'b': 1}",
        "{'a': 1 2}",
        "{1: 2}",
        "{[1]: 2}",
        "",
        "{",
        "{'hours': (1]}",
        "{'hours': f'{1}'}",
        "{'hours': lambda: 1}",
        "{'hours': 'open}",
    ],
)
def test_what_is_no_record_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = write(
        tmp_path / "steam_reviews.json", [python2(STEAM[0]), line, python2(STEAM[1])], packed=False
    )
    if not line:
        assert len(list(records(path, ("hours",)))) == 2
        return
    with refused("problems.reviews.not-a-record"):
        read_reviews(path)


def test_deep_nesting_costs_no_stack() -> None:
    assert fields("{'deep': " + "[" * 100_000 + "]" * 100_000 + ", 'hours': 2}", ("hours",)) == {
        "hours": 2.0
    }


def test_noise_is_refused_and_never_crashes(tmp_path: Path) -> None:
    draw = random.Random(7)
    for _ in range(2000):
        line = "".join(
            draw.choice("{}[]():,'\"\\u0 eE.-+NoneTruabc" + string.digits)
            for _ in range(draw.randint(1, 40))
        )
        try:
            assert isinstance(fields(line, ("a", "hours")), dict)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "x"}, "problems.reviews.unknown-form"),
        ({"gmap_id": "a", "rating": 9}, "problems.reviews.out-of-range"),
        ({"product_id": "1", "hours": -2.0}, "problems.reviews.out-of-range"),
        ({"product_id": "1"}, "problems.reviews.none"),
    ],
)
def test_other_records_are_refused(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    with refused(message):
        read_reviews(write(tmp_path / "some.json", [json.dumps(record)], packed=False))


# Names, and people --------------------------------------------------------------------------------


def test_the_old_name_of_hours_played_names_the_new_one() -> None:
    for make in (lambda: ProblemSettings(data="steam"), lambda: load("steam")):
        with refused("problems.data.renamed"):
            make()
    assert {"steam-hours", "steam-reviews", "google-local"} <= set(DATASETS)


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    with refused("problems.file.missing"):
        read_reviews(tmp_path / "none.json")
    with refused("problems.file.not-readable"):
        read_reviews(tmp_path)
    with refused("problems.data_dir.file-missing"):
        load("steam-reviews", tmp_path)
    with refused("problems.data_dir.file-missing"):
        load("google-local", tmp_path)


def test_a_filter_on_people_keeps_their_ratings(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text(
        "user,age,neighbourhood,item,rating\na,25,Harbour,shop,5\nb,60,Harbour,shop,1\na,25,Harbour,cafe,2\n"
        "c,25,Mill,cafe,5\nd,25,Mill,shop,1\n"
    )

    def means(where: str | None) -> dict[str, float]:
        arms = ProblemSettings(data=str(path), threshold=3, where=where).arms()
        return dict(zip(arms.names, arms.means.tolist(), strict=True))

    assert means(None) == {"shop": pytest.approx(1 / 3), "cafe": 0.5}
    assert means("age<30") == {"shop": 0.5, "cafe": 0.5}
    assert means("age<30, neighbourhood=harbour") == {"shop": 1.0, "cafe": 0.0}
    assert means("neighbourhood!=Harbour") == {"shop": 0.0, "cafe": 1.0}
    people = ProblemSettings(data=str(path), threshold=3).people()
    assert people is not None
    assert (people.rows, people.users, people.alone, people.columns) == (
        5,
        4,
        2,
        ("age", "neighbourhood"),
    )
    for where, message in (
        ("age~3", "problems.where.not-a-test"),
        ("age<old", "problems.where.not-a-number"),
        ("age>99", "problems.where.no-rows"),
        ("size=3", "problems.columns.missing"),
    ):
        with refused(message):
            means(where)
    with refused("problems.where.no-columns"):
        ProblemSettings(data="movielens", where="age<3")
    with refused("problems.ratings.none"):
        ProblemSettings(means=(0.1, 0.2), where="age<3")


def test_invented_people_show_what_one_place_would_see() -> None:
    given_ = Samba(data="invented:stores", where="age<40", policy="ucb", horizon=100)
    preview = scene_of(SYSTEM).preview(given_)
    assert preview is not None
    assert len(preview["arms"]) == 8
    central = preview["central"]
    assert central["columns"] == ["user", "age", "neighbourhood", "item", "rating"]
    assert all(int(row[1]) < 40 for row in central["sample"])
    assert 0 < central["alone"] < central["users"] < 320
    assert f"{central['alone']:,} of {central['users']:,} people" in central["note"]
    whole = scene_of(SYSTEM).preview(given_.but(where=None))
    assert whole is not None
    assert whole["central"]["rows"] > central["rows"]
    plain = scene_of(SYSTEM).preview(Samba())
    assert plain is not None
    assert plain["histogram"] == []
    assert "central" not in plain


def test_a_filter_keeps_reviews_by_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "steam_reviews.json"
    write(path, list(map(python2, STEAM)), packed=False)
    everyone = read_reviews(path)
    early = read_reviews(path, "early_access = 0")
    assert 0 < len(early) < len(everyone)
    long = read_reviews(path, "hours>=7, products<100")
    assert long.value.min() >= 7
    assert long.source.startswith("Steam reviews (hours) of steam_reviews.json where hours>=7")
    settings = ProblemSettings(data=str(path), threshold=5, where="hours>=7")
    assert settings.ratings() is not None
    with refused("problems.where.no-rows"):
        read_reviews(path, "hours>1e9")
    folder = tmp_path / "steam"
    folder.mkdir()
    path.rename(folder / "steam_reviews.json")
    by_name = ProblemSettings(data="steam-reviews", data_dir=tmp_path, where="hours>=7", owners=2)
    filtered = by_name.ratings()
    assert filtered is not None
    assert filtered.value.min() >= 7
