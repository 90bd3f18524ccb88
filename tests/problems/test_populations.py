"""Populations: cohorts as a client-by-client loop would gather them, and one clear line for each
bad input.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.random import words64 as scalar_words
from posse.problems.populations import population as draws
from posse.problems.populations.population import Bag, Ragged, names_of
from tests.kit.rules import refused
from tests.kit.statistics import chi_square_limit
from tests.problems.populations import images, texts

# --- cohorts --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=9), st.data())
def test_a_cohort_is_what_its_clients_hold(sizes: list[int], data: st.DataObject) -> None:
    whole = images(sizes)
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=6))
    pad = data.draw(st.integers(max(sizes), 8))
    x, y, mask = whole.gather(chosen, pad)
    assert isinstance(x, np.ndarray)
    assert (x.shape, y.shape, mask.shape) == (
        (len(chosen), pad, 3, 2),
        (len(chosen), pad),
        (len(chosen), pad),
    )
    for row, client in enumerate(chosen):
        low, high = whole.offsets[client : client + 2]
        count = high - low
        np.testing.assert_array_equal(x[row, :count], whole.inputs[low:high])
        np.testing.assert_array_equal(y[row, :count], whole.labels[low:high])
        assert mask[row].tolist() == [True] * count + [False] * (pad - count)
        assert not x[row, count:].any()
        assert not y[row, count:].any()


def test_bags_have_norm_one_and_no_weight_in_the_padding() -> None:
    x, y, mask = texts().gather([1, 0], pad=2)
    assert isinstance(x, Bag)
    assert x.words.tolist() == [[[0, 2, 4], [0, 0, 0]], [[3, 1, 0], [0, 0, 0]]]
    norms = np.sqrt((x.weights**2).sum(axis=-1))
    np.testing.assert_allclose(
        norms, [[1, 0], [1, 0]], atol=1e-6
    )  # the third question has no known word
    np.testing.assert_allclose(x.weights[1, 0], np.array([1, 2, 0]) / np.sqrt(5), rtol=1e-6)
    assert y.tolist() == [[[0, 1, 0], [0, 0, 0]], [[1, 0, 1], [0, 0, 0]]]
    assert mask.tolist() == [[True, False], [True, True]]
    assert texts().gather([0], pad=2, width=5).x.words.shape == (1, 2, 5)  # type: ignore[union-attr]
    with refused("problems.ragged.too-wide"):
        texts().gather([0], pad=2, width=1)


def test_a_client_too_large_is_an_error_and_never_cut_unasked() -> None:
    whole = images([2, 5, 3])
    with refused("problems.pad.too-small"):
        whole.gather([0, 1], pad=4)
    first = whole.gather([0, 1], pad=4, cap=4)
    np.testing.assert_array_equal(first.x[1], whole.inputs[2:6])  # type: ignore[index]
    assert first.mask.sum(axis=1).tolist() == [2, 4]
    with refused("problems.pad.out-of-range"):
        whole.gather([0], pad=3, cap=4)


def test_a_seeded_cap_depends_on_client_and_seed_alone() -> None:
    sizes = [30, 40, 30]
    whole = images(sizes, inputs=np.arange(100, dtype=np.float32)[:, None])
    kept = {seed: whole.gather([0, 1, 2], pad=10, cap=8, seed=seed) for seed in (1, 2)}
    alone = whole.gather([1], pad=8, cap=8, seed=1)
    np.testing.assert_array_equal(alone.x[0], kept[1].x[1, :8])  # type: ignore[index]
    rows = kept[1].x[1, :8, 0]  # type: ignore[index]
    assert len(set(rows.tolist())) == 8
    assert rows.min() >= 30
    assert rows.max() < 70
    assert (np.diff(rows) > 0).all()
    assert kept[1].x.tolist() != kept[2].x.tolist()  # type: ignore[union-attr]


def test_seeded_caps_are_fair() -> None:
    # 2,000 seeds keep 3 of 12 samples each. Counts of a draw without replacement vary 9 / 11 as
    # much as independent ones; chi-square with 11 degrees of freedom, a false alarm in 1,000. A
    # sample that was favoured by a fifth (600 instead of 500) would be seen 7 times in 10.
    whole = images([12], inputs=np.arange(12, dtype=np.float32)[:, None])
    counts = np.zeros(12)
    for seed in range(2000):
        x = whole.gather([0], pad=3, cap=3, seed=seed).x
        counts[np.asarray(x).ravel().astype(int)] += 1
    assert ((counts - 500) ** 2 / (500 * 9 / 11)).sum() < chi_square_limit(11)


def test_names() -> None:
    assert [texts().client_name(i) for i in range(2)] == ["é", "bob"]
    assert images([1]).client_name(0) == "client-1"
    assert texts().describe()["inputs"] == "bags of words"
    assert images([2, 1]).describe()["inputs"] == [3, 2]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": np.array([0, 3, 1], np.int32)},
            "problems.population.out-of-range",
        ),
        (
            {"labels": np.array([0, -1, 1], np.int32)},
            "problems.population.out-of-range",
        ),
        ({"labels": np.array([0.0, 1.0, 1.0])}, "problems.population.not-whole-numbers"),
        (
            {"offsets": np.array([0, 3, 3])},
            "problems.population.client-without-sample",
        ),
        ({"offsets": np.array([0, 2, 1, 3])}, "problems.ragged.falling"),
        (
            {"offsets": np.array([0, 2])},
            "problems.population.lengths",
        ),
        (
            {"inputs": np.array([[1], [np.nan], [2]], np.float32)},
            "problems.population.not-finite",
        ),
        (
            {"inputs": np.ones((3, 2), np.float64)},
            "problems.population.wrong-type",
        ),
        ({"arms": ("a",)}, "problems.population.too-few-arms"),
        ({"arms": ("a", "b", "a")}, "problems.population.arms-twice"),
        ({"names": names_of(["x"])}, "problems.population.names-number"),
        (
            {"inputs": Ragged.of([[0], [1], [9]]), "vocabulary": ("x", "y")},
            "problems.population.out-of-range",
        ),
        ({"inputs": Ragged.of([[0], [1], [1]])}, "problems.population.no-vocabulary"),
    ],
)
def test_bad_populations(changes: dict[str, Any], message: str) -> None:
    with refused(message) as caught:
        images([2, 1], **changes)
    assert "\n" not in str(caught.value)


def test_unknown_clients() -> None:
    with refused("problems.clients.out-of-population"):
        images([2, 1]).gather([0, 2], pad=2)


def test_a_checked_population_is_not_read_again() -> None:
    wrong = np.array([7, 7, 7], np.int32)
    trusted = dataclasses.replace(images([2, 1]), labels=wrong, checked=True)
    with refused("problems.population.out-of-range"):
        trusted.check()


# --- draws ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**24 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_array_draws_are_the_scalar_ones(key: int, party: int, index: int, attempt: int) -> None:
    first, second = draws.words(key, draws.LATE, [party], index, attempt)
    wanted = scalar_words(np.uint64(key), draws.LATE, party, index, attempt)
    assert (int(first[0]), int(second[0])) == tuple(int(word) for word in wanted)


def test_offsets_of_rows() -> None:
    with refused("problems.ragged.not-to-end"):
        Ragged(np.array([0, 2]), np.array([1, 2, 3]))
    rows = Ragged.of([[1, 2], [], [3]])
    assert [rows.take([2, 0]).row(i).tolist() for i in range(2)] == [[3], [1, 2]]
    assert rows.part(1, 3).offsets.tolist() == [0, 0, 1]
