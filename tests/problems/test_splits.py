"""Splits: every sample once, mixes as drawn, and a user's own table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import DataError
from posse.problems.populations.splits import (
    Split,
    dirichlet,
    natural,
    population,
    read_population,
    some_clients,
)
from tests.kit.rules import refused


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.floats(1e-6, 1e6),
    st.integers(0, 9),
    st.data(),
)
def test_every_sample_has_one_client(
    labels: list[int], alpha: float, seed: int, data: st.DataObject
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    made = dirichlet(labels, clients, alpha, seed)
    assert sorted(made.order.tolist()) == list(range(len(labels)))
    sizes = np.diff(made.offsets)
    assert len(sizes) == clients
    assert sizes.max() - sizes.min() <= 1
    again = dirichlet(labels, clients, alpha, seed)
    np.testing.assert_array_equal(made.order, again.order)


def test_alpha_says_how_alike_clients_are() -> None:
    labels = np.arange(6000) % 10
    share = {}
    for alpha in (0.01, 1.0, 1e5):
        made = dirichlet(labels, 60, alpha, 3)
        mixes = np.stack(
            [
                np.bincount(labels[part], minlength=10)
                for part in np.split(made.order, made.offsets[1:-1])
            ]
        )
        share[alpha] = float((mixes.max(axis=1) / 100).mean())
    # Dirichlet(1) over 10 labels has an expected largest part of H_10 / 10 = 0.293; 60 clients,
    # standard error 0.012, and a little more from the draw of 100 samples and from labels that are
    # used up.
    assert share[0.01] > 0.85
    assert share[1.0] == pytest.approx(0.293, abs=0.06)
    assert share[1e5] == pytest.approx(0.15, abs=0.03)


def test_bad_splits() -> None:
    with refused("problems.clients.more-than-samples"):
        dirichlet([0, 1, 1], 4, 1.0)
    with refused("problems.alpha.not-positive"):
        dirichlet([0, 1, 1], 2, 0)
    with refused("problems.split.several-labels"):
        dirichlet([[0, 1]], 1, 1.0)
    with refused("problems.split.owners-shape"):
        natural([])
    rows = np.zeros((2, 2), np.uint8)
    with refused("problems.split.not-every-sample"):
        population("x", rows, [0, 1], "ab", natural([1, 1, 2]))
    with refused("problems.labels.number"):
        population("x", rows, [0, 1, 1], "ab", natural([1, 1]))
    with refused("problems.labels.not-whole-numbers"):
        population("x", rows, [0.5, 1], "ab", natural([1, 1]))


def test_some_clients_are_the_first() -> None:
    whole = population(
        "x", np.arange(5, dtype=np.uint8)[:, None], [0, 1, 0, 1, 1], "ab", natural(list("babac"))
    )
    part = some_clients(whole, 2)
    assert (part.clients, part.samples, part.largest, part.client_name(1)) == (2, 4, 2, "b")
    np.testing.assert_array_equal(part.gather([1], pad=2).x, whole.gather([1], pad=2).x)
    with refused("problems.clients.more-than-there-are"):
        some_clients(whole, 4)


def test_dirichlet_clients_have_no_names() -> None:
    assert dirichlet([0, 1], 2, 1.0).names is None
    assert isinstance(natural([2, 1]), Split)


# --- a user's own table ---------------------------------------------------------------------------


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(text)
    return path


def test_own_table(tmp_path: Path) -> None:
    path = table(tmp_path, "patient;x;y;arm\nbob;1;2;treat\nann;3;4;wait\nbob;5;6;treat\n")
    made = read_population(path, "patient", "arm")
    assert (made.arms, [made.client_name(i) for i in range(2)]) == (
        ("treat", "wait"),
        ["ann", "bob"],
    )
    x, y, mask = made.gather([0, 1], pad=2)
    assert isinstance(x, np.ndarray)
    assert x.tolist() == [[[3, 4], [0, 0]], [[1, 2], [5, 6]]]
    assert (y.tolist(), mask.tolist()) == ([[1, 0], [0, 0]], [[True, False], [True, True]])
    drawn = read_population(table(tmp_path, "x,label\n1,a\n2,b\n3,a\n"), None, clients=2, alpha=1.0)
    assert (drawn.clients, drawn.samples) == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("customer,x,label\nann,1,a\n", "row 1: no column 'client' in the header."),
        ("client,x,label\nann,nan,a\nbob,1,b\n", "row 2, column 'x': 'nan' is not a finite number"),
        (
            "client,x,label\nann,one,a\n",
            "column 'x': 'one' is not a number, and the column is not a category",
        ),
        ("client,x,label\n,1,a\n", "row 2, column 'client': the cell is empty"),
        ("client,label\nann,a\n", "no column but 'client' and 'label' in the header"),
        ("client,x,label\nann,1,a\nbob,1,a\n", "a bandit needs at least 2 arms, got 1"),
        ("client,x,label\n", "has a header and no rows"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_population(table(tmp_path, text))
    assert "\n" not in str(caught.value)
