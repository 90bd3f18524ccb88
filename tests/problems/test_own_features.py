"""Features from a user's own files, and one clear line for each way they can be wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError, PosseError
from posse.problems.contexts.contexts import ids_digest, read_block, read_features, read_rewards
from tests.kit.rules import refused

Write = Callable[[str, str], Path]

CLINIC = "row,age,dose\nann,0.3,0.4\nbob,-0.1,0.2\ncy,0,0\n"
LAB = "row,iron\nann,0.5\nbob,0.25\ncy,-0.5\n"
PAYS = "row,wait,treat\nann,0,1\nbob,0.9,0.3\ncy,0.5,0.5\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str, name: str) -> Path:
        path = tmp_path / f"{name}.csv"
        path.write_text(content, encoding="utf-8")
        return path

    return written


@pytest.fixture
def files(write: Write) -> dict[str, Path]:
    return {
        "clinic": write(CLINIC, "clinic"),
        "lab": write(LAB, "lab"),
        "pays": write(PAYS, "pays"),
    }


def parties(files: dict[str, Path]) -> dict[str, Path]:
    return {name: files[name] for name in ("clinic", "lab")}


# --- one party alone ------------------------------------------------------------------------------


def test_a_block(files: dict[str, Path]) -> None:
    block = read_block(files["clinic"], bound=0.5)
    assert block.ids == ("ann", "bob", "cy")
    assert block.names == ("age", "dose")
    assert block.values.tolist() == [[0.3, 0.4], [-0.1, 0.2], [0.0, 0.0]]
    assert block.bound == 0.5
    assert (
        block.ids_digest
        == read_block(files["lab"], bound=0.5).ids_digest
        == ids_digest(["ann", "bob", "cy"])
    )


@pytest.mark.parametrize(
    "content",
    [
        CLINIC.replace(",", ";"),
        CLINIC.replace(",", "\t"),
        "\ufeff# ours\n" + CLINIC.replace("\n", "\r\n"),
        "age,dose,Row\n0.3,0.4, ann\n\n-0.1,2e-1,bob\n0,0,cy\n",
    ],
)
def test_files_as_programs_write_them(write: Write, files: dict[str, Path], content: str) -> None:
    found, wanted = (
        read_block(write(content, "other"), bound=0.5),
        read_block(files["clinic"], bound=0.5),
    )
    assert (found.ids, found.names) == (wanted.ids, wanted.names)
    assert found.values.tolist() == wanted.values.tolist()


def test_a_row_outside_the_bound_is_refused_or_scaled(write: Write, files: dict[str, Path]) -> None:
    says = (
        r"clinic.csv, row 2 \('ann'\): features must have a norm of at most the bound 0.25, got "
        r"0.5. Scale"
    )
    with pytest.raises(DataError, match=says):
        read_block(files["clinic"], bound=0.25)
    scaled = read_block(files["clinic"], bound=0.25, scale=True).values
    assert scaled == pytest.approx(np.array([[0.15, 0.2], [-0.1, 0.2], [0.0, 0.0]]))
    clinic = write("row,age,dose\nann,3e300,4e300\n", "vast")
    with pytest.raises(DataError, match=r"at most the bound 0.5, got inf"):
        read_block(clinic, bound=0.5)
    assert read_block(clinic, bound=0.5, scale=True).values == pytest.approx(np.array([[0.3, 0.4]]))
    for bound in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="bound must be"):
            read_block(files["clinic"], bound=bound)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("row,age\n", "has a header and no rows"),
        ("row\nann\n", "row 1: no column but 'row' in the header"),
        ("name,age\nann,1\n", "row 1: no column 'row' in the header"),
        ("row,age,\nann,0.1,0.2\n", "row 1: a column has no name"),
        ("row,age,age\nann,0.1,0.2\n", "column 'age' is there more than once"),
        ("row,age\nann,old\n", "column 'age': 'old' is not a number"),
        (
            "row,age,dose\nann,0,0\nbob,0.1,nan\n",
            "row 3, column 'dose': 'nan' is not a finite number",
        ),
        ("row,age\nann,inf\n", "row 2, column 'age': 'inf' is not a finite number"),
        ("row,age\nann,\n", "row 2, column 'age': the cell is empty"),
        ("row,age\n ,0.1\n", "row 2, column 'row': the cell is empty"),
        ("row,age\nann,0.1,0.2\n", "row 2, column 3: expected 2 columns"),
        ("row,age\nann,0.1\nbob,0.2\nann,0.3\n", "row 4, column 'row': 'ann' is on row 2 too"),
    ],
)
def test_broken_files_are_refused_in_one_line(write: Write, content: str, says: str) -> None:
    path = write(content, "clinic")
    with pytest.raises(DataError, match=says) as caught:
        read_block(path, bound=1.0)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    one=st.lists(st.text(max_size=4), max_size=5), other=st.lists(st.text(max_size=4), max_size=5)
)
def test_digests_tell_lists_apart(one: list[str], other: list[str]) -> None:
    assert (ids_digest(one) == ids_digest(other)) == (one == other)


def test_the_digest_is_over_lengths_and_bytes() -> None:
    content = b"\0\0\0\0\0\0\0\x03ann" + b"\0\0\0\0\0\0\0\x02\xc3\xa9"
    assert ids_digest(["ann", "é"]) == hashlib.sha256(content).hexdigest()


# --- all in one place -----------------------------------------------------------------------------


def test_contexts_of_all_files(files: dict[str, Path]) -> None:
    contexts = read_features(parties(files), files["pays"], bounds={"lab": 0.6, "clinic": 0.8})
    assert contexts.parties == ("clinic", "lab")
    assert contexts.features.tolist() == [[0.3, 0.4, 0.5], [-0.1, 0.2, 0.25], [0.0, 0.0, -0.5]]
    assert [(block.columns, block.bound) for block in contexts.blocks] == [
        ((0, 1), 0.8),
        ((2,), 0.6),
    ]
    assert contexts.arms == ("wait", "treat")
    assert contexts.means.tolist() == [[0.0, 1.0], [0.9, 0.3], [0.5, 0.5]]
    assert not contexts.joint_norm_checked


def test_bounds_go_by_the_number_of_features(files: dict[str, Path]) -> None:
    contexts = read_features(parties(files), files["pays"])
    assert [block.bound**2 for block in contexts.blocks] == pytest.approx([2 / 3, 1 / 3])


def test_long_rows_are_scaled_where_asked(files: dict[str, Path]) -> None:
    bounds = {"clinic": 0.8, "lab": 0.3}
    with pytest.raises(
        DataError,
        match=r"lab.csv: 2 of 3 rows .* Row 2 \('ann'\): .* at most the bound 0.3, got 0.5",
    ):
        read_features(parties(files), files["pays"], bounds=bounds)
    contexts = read_features(parties(files), files["pays"], bounds=bounds, scale=True)
    assert contexts.held("lab").ravel() == pytest.approx([0.3, 0.25, -0.3])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "lab",
            LAB.replace("bob", "rob"),
            "clinic.csv, row 3 is 'bob' and .*lab.csv, row 3 is 'rob'",
        ),
        (
            "lab",
            "row,iron\nbob,0.25\nann,0.5\ncy,-0.5\n",
            "clinic.csv, row 2 is 'ann' and .*lab.csv, row 2 is 'bob'",
        ),
        (
            "lab",
            LAB.removesuffix("cy,-0.5\n"),
            "lab.csv ends after 2 rows, and .*clinic.csv, row 4 is 'cy'",
        ),
        ("lab", LAB + "di,0\n", "clinic.csv ends after 3 rows, and .*lab.csv, row 5 is 'di'"),
        (
            "lab",
            "# of us\n" + LAB.replace("cy", "Cy"),
            "clinic.csv, row 4 is 'cy' and .*lab.csv, row 5 is 'Cy'",
        ),
        (
            "pays",
            PAYS.replace("ann", "anna"),
            "clinic.csv, row 2 is 'ann' and .*pays.csv, row 2 is 'anna'",
        ),
        ("pays", PAYS + "di,0,1\n", "clinic.csv ends after 3 rows, and .*pays.csv, row 5 is 'di'"),
    ],
)
def test_files_that_do_not_match_are_named(
    files: dict[str, Path], write: Write, name: str, content: str, says: str
) -> None:
    write(content, name)
    with pytest.raises(DataError, match=f"files do not match: .*{says}") as caught:
        read_features(parties(files), files["pays"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"clinic": 0.8}, "problems.bounds.not-the-parties"),
        ({"clinic": 0.8, "labb": 0.6}, "problems.bounds.not-the-parties"),
        ({}, "problems.bounds.not-the-parties"),
        ({"clinic": 0.8, "lab": 0.61}, "problems.bounds.too-large"),
        ({"clinic": float("nan"), "lab": 0.6}, "problems.bounds.too-large"),
        ({"clinic": -0.5, "lab": 0.6}, "problems.bound.out-of-range"),
    ],
)
def test_wrong_bounds_are_refused(
    files: dict[str, Path], bounds: dict[str, float], says: str
) -> None:
    with refused(says):
        read_features(parties(files), files["pays"], bounds=bounds)


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        ("row,wait\nann,0\n", DataError, "at least 2 arms, got the columns row,wait"),
        (
            PAYS.replace("0.9", "1.2"),
            DataError,
            r"pays.csv, row 3, column 'wait': must be in \[0, 1\], got 1.2",
        ),
        (
            PAYS.replace("0.3", "-1"),
            DataError,
            r"pays.csv, row 3, column 'treat': must be in \[0, 1\], got -1",
        ),
        (PAYS.replace("0.3", "much"), DataError, "row 3, column 'treat': 'much' is not a number"),
    ],
)
def test_wrong_rewards_are_refused(
    write: Write, content: str, kind: type[PosseError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        read_rewards(write(content, "pays"))


def test_one_party_is_none(files: dict[str, Path]) -> None:
    with refused("problems.parties.too-few"):
        read_features({"clinic": files["clinic"]}, files["pays"])
