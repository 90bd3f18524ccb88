"""Labels: whatever differs between records shown together stands in them, and no two are the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.results import (
    Record,
    compare,
    differences,
    labels,
    render_report,
    reward_curves,
    summary_rows,
    to_pandas,
)
from posse.results.words import words_of
from tests.kit.records import example_market_record, example_record

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.none(),
    st.lists(st.integers(0, 9), max_size=40),
)
NAMES = st.sampled_from(
    [
        "policy.tau",
        "policy.alpha",
        "horizon",
        "budget",
        "seed",
        "runs",
        "data",
        "level",
        "owners",
        "party",
        "version",
        "status",
        "mask",
        "system",
        "noise.sigma",
        "other.sigma",
    ]
)


def small(config: Mapping[str, Any], **changes: Any) -> Record:
    """Make a record of a configuration with dotted names; it holds next to nothing, for it is its
    names that count.
    """
    table: dict[str, Any] = {"policy": {"name": "softmax"}, "horizon": 100, "seed": 3}
    for name, value in config.items():
        outer, _, inner = name.rpartition(".")
        (table.setdefault(outer, {}) if outer else table)[inner] = value
    return Record(
        kind="clinics", level="standard", config=table, problem={"name": "three clinics"}, **changes
    )


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), st.data())
def test_no_two_records_of_a_sweep_over_any_two_settings_have_one_label(
    names: list[str], data: st.DataObject
) -> None:
    values = [data.draw(st.lists(SCALARS, min_size=1, max_size=4, unique_by=repr)) for _ in names]
    records = [small(dict(zip(names, pair, strict=True))) for pair in product(*values)]
    made = labels(records)
    assert len(set(made)) == len(records)
    assert len({row["label"] for row in summary_rows(records)}) == len(records)


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), st.data())
def test_the_first_setting_that_differs_is_in_every_label(
    names: list[str], data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(10**6, 10**9), min_size=2, max_size=3, unique=True)
    values = [data.draw(numbers) for _ in names]
    if set(names) == {"horizon", "budget"}:
        return  # two words for one thing: the first counts, the other is a setting of its own
    pairs = list(product(*values))
    records = [small(dict(zip(names, pair, strict=True))) for pair in pairs]
    order = list(differences(records)[0])
    for pair, label in zip(pairs, labels(records), strict=True):
        by_name = dict(zip(names, pair, strict=True))
        first = min(names, key=lambda name: [name in key for key in order].index(True))
        assert str(by_name[first]) in label.replace(",", ""), label
    alone = [small({names[0]: value}) for value in values[0]]
    for value, label in zip(values[0], labels(alone), strict=True):
        assert str(value) in label.replace(",", ""), label


@given(
    st.lists(
        st.fixed_dictionaries({"policy.tau": SCALARS, "seed": SCALARS}), min_size=1, max_size=8
    )
)
def test_equal_records_are_told_apart_by_their_ids(configs: list[dict[str, Any]]) -> None:
    records = [small(config) for config in configs]
    assert len(set(labels(records + records))) == 2 * len(records)


def test_a_users_label_comes_first_then_what_differs() -> None:
    mine = {"label": "my run"}
    records = [
        example_record(summary=mine),
        example_record(summary=mine, level="plain"),
        example_record(summary=mine, horizon=100),
    ]
    assert labels(records) == [
        "my run, ucb (standard), 200 steps",
        "my run, ucb (plain)",
        "my run, ucb (standard), 100 steps",
    ]
    assert labels(records[:1]) == ["my run"]


def test_parties_versions_and_unfinished_runs_are_named() -> None:
    whole = example_record(run_id="0r")
    assert labels([whole, example_record(party="comp", run_id="0r")]) == [
        "ucb (standard)",
        "ucb (standard), comp",
    ]
    assert labels([whole, example_record(version="9.9")])[1] == "ucb (standard), version 9.9"
    assert labels([whole, example_record(status="interrupted")]) == [
        "ucb (standard)",
        "ucb (standard), interrupted",
    ]


def test_settings_are_compared_within_a_system_and_parameters_within_a_policy() -> None:
    clinics, towns = example_record(), example_market_record()
    assert labels([clinics, towns]) == ["Clinics: ucb (standard)", "Towns: p-fcb (tight)"]
    softmax = example_record(
        config={"policy": {"name": "softmax", "tau": 0.1}, "horizon": 200, "owners": 3}
    )
    assert labels([clinics, softmax]) == ["ucb (standard)", "softmax (standard)"]


def test_two_parameters_of_one_name_keep_their_tables() -> None:
    records = [small({"noise.sigma": a, "other.sigma": b}) for a, b in ((1, 2), (3, 4))]
    assert labels(records)[0] == "softmax (standard), noise.sigma 1"
    assert differences(records)[1] == {"noise.sigma": "3", "other.sigma": "4"}


def test_a_protection_that_is_off_is_named_once() -> None:
    records = [
        small({"mask": False}, show={"off": ["mask"]}),
        small({"mask": True}),
    ]
    assert labels(records) == ["softmax (standard, mask off)", "softmax (standard)"]


def test_very_many_differences_name_those_that_tell_apart() -> None:
    records = [
        small({f"setting-{i}": (number + 1) * i for i in range(1, 30)}) for number in range(3)
    ]
    made = labels(records)
    assert made == [f"softmax (standard), setting-1 {number}" for number in (1, 2, 3)]


def test_legends_tables_and_frames_say_the_same() -> None:
    records = [
        example_record(config={"policy": {"name": "softmax", "tau": tau}, "horizon": 200})
        for tau in (0.1, 0.5)
    ]
    wanted = ["softmax (standard), tau 0.1", "softmax (standard), tau 0.5"]
    assert labels(records) == wanted
    assert [line.get_label() for line in reward_curves(records).axes[0].lines] == wanted
    assert [row.label for row in compare(records).rows] == wanted
    assert all(render_report(records).count(label) >= 4 for label in wanted)
    frame = to_pandas(records)
    assert frame.groupby("policy.tau")["label"].unique().map(list).to_dict() == {
        0.1: wanted[:1],
        0.5: wanted[1:],
    }


def test_a_long_label_goes_over_lines_in_a_legend_and_stays_distinct() -> None:
    records = [example_record(summary={"label": "word " * 60 + end}) for end in ("a", "b")]
    names = [line.get_label() for line in reward_curves(records).axes[0].lines]
    assert len(set(names)) == 2
    assert all(name.count("\n") == 2 for name in names)


@pytest.mark.parametrize("value", [True, 3, 0.5, "text", None, [1, 2]])
def test_one_column_a_parameter(value: Any) -> None:
    records = [small({"policy.tau": value}, total=(1.0,), steps=[1], reward=[[1.0]]), small({})]
    (first, second) = summary_rows(records)
    assert first["policy.tau"] == (words_of(value) if isinstance(value, list) else value)
    assert second["policy.tau"] is None
    assert (first["horizon"], first["seed"]) == (100, 3)
    frame = to_pandas(records)
    assert frame["config.seed"].tolist() == [3]
    assert frame["policy"].tolist() == ["softmax"]


def test_a_policy_that_the_version_before_wrote_is_called_the_same() -> None:
    """Its parameters stood beside its name."""
    rest = {"horizon": 100, "width": 2.0}
    before = small({"policy.width": 2.0, **rest}).settings()
    nested = {"policy": {"name": "softmax", "parameters": {"width": 2.0}}, **rest, "seed": 3}
    now = Record(
        kind="clinics", level="standard", config=nested, problem={"name": "three clinics"}
    ).settings()
    assert now == before == {"policy": "softmax", "policy.width": 2.0, "horizon": 100, "seed": 3}


def test_long_values_that_differ_in_the_middle_are_told_apart_by_it() -> None:
    paths = [
        f"/data/of/our/organisation/{part}/and/much/deeper/ratings.csv"
        for part in ("north", "south", "south-2")
    ]
    shown = [table["data"] for table in differences([small({"data": path}) for path in paths])]
    assert len(set(shown)) == 3
    for part, text in zip(("north", "south/", "south-2"), shown, strict=True):
        assert part in text
        assert len(text) <= 33
    tables = [[0.5] * 30 + [last] + [0.5] * 30 for last in (0.25, 0.75)]
    assert ["0.25" in text for text in labels([small({"means": table}) for table in tables])] == [
        True,
        False,
    ]


def test_many_long_values_that_differ_by_a_place_alone_have_different_labels() -> None:
    tables = [[0.5] * at + [0.7] + [0.5] * (200 - at) for at in range(0, 200, 7)]
    assert len(set(labels([small({"means": table}) for table in tables]))) == len(tables)


def test_twins_of_several_levels_are_told_apart_by_the_level() -> None:
    def twin(level: str) -> Record:
        shown = {"protection": "plain"} if level != "paper" else {}
        return replace(small({}), level="plain", summary={"twin_of": level}, show=shown)

    assert labels([twin("standard"), twin("strict"), twin("paper")]) == [
        "softmax (plain), twin of standard",
        "softmax (plain), twin of strict",
        "softmax (plain, twin of paper)",
    ]
    assert labels([twin("standard"), twin("paper")]) == [
        "softmax (plain)",
        "softmax (plain, twin of paper)",
    ]
