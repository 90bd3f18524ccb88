"""Contexts: who holds what, norms that are kept, and a world that is a function of the seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError, PosseError
from posse.core.fixed import REWARD_ONE
from posse.core.random import REWARD, uniform
from posse.problems.contexts.contexts import (
    SLACK,
    Block,
    Contexts,
    check_bounds,
    party_names,
    row_norms,
    scale_blocks,
    scale_to_bound,
    split,
)
from tests.kit.rules import refused

ROWS = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])
MEANS = np.array([[0.1, 0.9], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
NAMES = ("clinic", "lab")


def contexts(**changes: Any) -> Contexts:
    values: dict[str, Any] = {
        "name": "four",
        "features": ROWS,
        "blocks": split(3, NAMES),
        "arms": ("wait", "treat"),
        "means": MEANS,
        "joint_norm_checked": True,
    }
    return Contexts(**{**values, **changes})


def many(rows: int, arms: int = 3) -> Contexts:
    draw = np.random.default_rng(5)
    means = draw.random((rows, arms))
    return contexts(features=draw.random((rows, 3)) / 2, means=means, arms=tuple("abcdef"[:arms]))


# --- rewards and order ----------------------------------------------------------------------------


def test_a_reward_is_a_draw_at_its_own_address() -> None:
    problem = many(200)
    for row in range(0, 200, 7):
        for arm in range(3):
            drawn = uniform(np.uint64(42), REWARD, arm, row, 0)
            assert problem.reward(42, row, arm) == (
                REWARD_ONE if drawn < problem.means[row, arm] else 0
            )


def test_many_rewards_are_the_single_ones() -> None:
    problem, draw = many(50), np.random.default_rng(1)
    rows, arms = draw.integers(0, 50, 300), draw.integers(0, 3, 300)
    found = problem.rewards(9, rows, arms)
    assert found.dtype == np.int64
    assert found.tolist() == [
        problem.reward(9, int(row), int(arm)) for row, arm in zip(rows, arms, strict=True)
    ]
    assert problem.rewards(9, np.arange(50), 2).tolist() == [
        problem.reward(9, row, 2) for row in range(50)
    ]


@pytest.mark.parametrize(("row", "arm"), [(50, 0), (-1, 0), (0, 3), (0, -1)])
def test_many_rewards_stay_inside_the_table(row: int, arm: int) -> None:
    with pytest.raises(IndexError):
        many(50).rewards(9, [0, row], [0, arm])


def test_rewards_have_the_means() -> None:
    """60,000 draws: a deviation of 5 standard errors has a chance below 1e-6."""
    problem = contexts(
        features=np.zeros((20_000, 3)),
        means=np.tile([0.25, 0.7, 0.02], (20_000, 1)),
        arms=tuple("abc"),
    )
    for arm, mean in enumerate((0.25, 0.7, 0.02)):
        found = problem.rewards(3, np.arange(20_000), arm).mean() / REWARD_ONE
        assert abs(found - mean) < 5 * math.sqrt(mean * (1 - mean) / 20_000)


def test_sure_rewards_are_sure() -> None:
    problem = contexts()
    for seed in range(50):
        assert problem.reward(seed, 1, 1) == problem.reward(seed, 2, 0) == REWARD_ONE
        assert problem.reward(seed, 1, 0) == problem.reward(seed, 2, 1) == 0


@given(rows=st.integers(1, 40), steps=st.integers(1, 130), seed=st.integers(0, 2**64 - 1))
@settings(max_examples=40, deadline=None)
def test_every_sweep_is_a_permutation(rows: int, steps: int, seed: int) -> None:
    problem = many(rows)
    order = problem.order(seed, steps)
    assert order.shape == (steps,)
    assert order.dtype == np.int64
    for low in range(0, steps, rows):
        sweep = order[low : low + rows].tolist()
        assert len(set(sweep)) == len(sweep)
        assert set(sweep) <= set(range(rows))
    assert problem.order(seed, steps + rows)[:steps].tolist() == order.tolist()


def test_orders_differ_by_sweep_and_by_seed() -> None:
    problem = many(100)
    order = problem.order(1, 300)
    sweeps = {tuple(order[low : low + 100].tolist()) for low in (0, 100, 200)}
    assert len(sweeps) == 3
    assert tuple(problem.order(2, 100).tolist()) not in sweeps


def test_the_order_does_not_depend_on_what_the_rows_hold() -> None:
    assert (
        many(30).order(8, 90).tolist()
        == contexts(features=np.zeros((30, 3)), means=np.zeros((30, 2))).order(8, 90).tolist()
    )


def test_first_places_are_uniform() -> None:
    """Each of 4 rows comes first in a quarter of 2,000 orders, within 5 standard errors."""
    problem = contexts()
    counts = np.bincount([problem.order(seed, 1)[0] for seed in range(2000)], minlength=4)
    assert (np.abs(counts - 500) < 5 * math.sqrt(2000 * 0.25 * 0.75)).all()


def test_an_order_needs_a_step() -> None:
    with refused("problems.steps.too-small"):
        contexts().order(1, 0)


# --- what a problem keeps -------------------------------------------------------------------------


def test_what_a_record_keeps() -> None:
    assert contexts().describe() == {
        "name": "four",
        "rows": 4,
        "features": 3,
        "arms": ["wait", "treat"],
        "best": (0.9 + 1 + 1 + 0.5) / 4,
        "parties": [
            {"name": "clinic", "features": 2, "bound": 1.0},
            {"name": "lab", "features": 1, "bound": 1.0},
        ],
        "joint_norm_checked": True,
    }


def test_a_party_holds_its_columns() -> None:
    blocks = (Block("clinic", (2, 0), 1.0), Block("lab", (1,), 1.0))
    problem = contexts(blocks=blocks)
    assert problem.held("clinic").tolist() == ROWS[:, [2, 0]].tolist()
    assert problem.held("lab").tolist() == ROWS[:, [1]].tolist()
    with refused("problems.party.unknown"):
        problem.held("labb")


def test_first_rows() -> None:
    problem = contexts().first(2)
    assert len(problem) == 2
    assert problem.features.tolist() == ROWS[:2].tolist()
    assert problem.joint_norm_checked
    for rows in (0, 5):
        with pytest.raises(DataError, match=rf"rows must be in \[1, 4\], .* got {rows}"):
            contexts().first(rows)


def test_arrays_cannot_be_changed_and_the_caller_s_own_can() -> None:
    given_rows = ROWS.copy()
    problem = contexts(features=given_rows)
    given_rows[0, 0] = 0.0
    assert problem.features[0, 0] == 0.6
    for array in (problem.features, problem.means):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0.0


# --- what is refused ------------------------------------------------------------------------------


def changed(table: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    table = table.copy()
    table[row, column] = value
    return table


DECLARED = (Block("clinic", (0, 1), 0.8), Block("lab", (2,), 0.6))


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        (
            {"features": changed(ROWS, 2, 1, np.nan)},
            DataError,
            "problems.contexts.not-finite",
        ),
        (
            {"features": changed(ROWS, 3, 0, np.inf)},
            DataError,
            "problems.contexts.not-finite",
        ),
        (
            {"means": changed(MEANS, 1, 1, np.nan)},
            DataError,
            "problems.contexts.not-finite",
        ),
        (
            {"means": changed(MEANS, 1, 1, 1.5)},
            DataError,
            "problems.contexts.out-of-range",
        ),
        (
            {"means": changed(MEANS, 0, 0, -0.1)},
            DataError,
            "problems.contexts.out-of-range",
        ),
        (
            {"means": MEANS[:3]},
            DataError,
            "problems.contexts.shape",
        ),
        ({"features": ROWS[0]}, DataError, "problems.contexts.not-a-table"),
        ({"features": ROWS[:0]}, DataError, "problems.contexts.not-a-table"),
        (
            {"features": changed(ROWS, 2, 2, 0.8)},
            DataError,
            "problems.contexts.norm-too-large",
        ),
        (
            {"features": changed(ROWS, 0, 2, 0.8001)},
            DataError,
            "problems.contexts.norm-too-large",
        ),
        ({"arms": ("one",), "means": MEANS[:, :1]}, DataError, "problems.contexts.too-few-arms"),
        ({"arms": ("one", "one")}, DataError, "problems.contexts.arms-twice"),
        ({"blocks": (Block("clinic", (0, 1, 2), 1.0),)}, ConfigError, "problems.parties.too-few"),
        ({"blocks": ()}, ConfigError, "problems.parties.too-few"),
        (
            {"blocks": (Block("a", (0, 1), 1.0), Block("a", (2,), 1.0))},
            ConfigError,
            "problems.parties.names-twice",
        ),
        (
            {"blocks": (Block("a", (0, 1), 1.0), Block("b", (1, 2), 1.0))},
            DataError,
            "problems.blocks.column-twice",
        ),
        (
            {"blocks": (Block("a", (0, 0), 1.0), Block("b", (1, 2), 1.0))},
            DataError,
            "problems.blocks.column-twice",
        ),
        (
            {"blocks": (Block("a", (0,), 1.0), Block("b", (2,), 1.0))},
            DataError,
            "problems.blocks.column-without-party",
        ),
        (
            {"blocks": (Block("a", (0, 1), 1.0), Block("b", (3,), 1.0))},
            DataError,
            "problems.blocks.column-out-of-range",
        ),
        ({"joint_norm_checked": False}, ConfigError, "problems.bounds.too-large"),
        (
            {"blocks": DECLARED, "joint_norm_checked": False},
            DataError,
            "problems.bounds.exceeded",
        ),
    ],
)
def test_wrong_contexts_are_refused_in_one_line(
    changes: dict[str, Any], kind: type[PosseError], says: str
) -> None:
    with refused(says) as caught:
        contexts(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("party", "columns", "bound", "says"),
    [
        ("", (0,), 1.0, "problems.parties.without-name"),
        ("a", (), 1.0, "problems.parties.without-feature"),
        ("a", (0,), 0.0, "problems.bounds.out-of-range"),
        ("a", (0,), 1.1, "problems.bounds.out-of-range"),
        ("a", (0,), math.nan, "problems.bounds.out-of-range"),
    ],
)
def test_wrong_blocks_are_refused(
    party: str, columns: tuple[int, ...], bound: float, says: str
) -> None:
    with refused(says):
        Block(party, columns, bound)


def test_rounding_is_no_offence() -> None:
    unit = np.full((1, 3), 1 / math.sqrt(3)) * (1 + 1e-12)
    assert contexts(features=unit, means=MEANS[:1]).features.shape == (1, 3)
    check_bounds({name: math.sqrt(1 / 7) for name in "abcdefg"})


# --- the split ------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=8),
    even=st.booleans(),
    bounds=st.sampled_from(["joint", "declared"]),
)
@settings(deadline=None)
def test_a_split_gives_every_column_once(sizes: list[int], even: bool, bounds: Any) -> None:
    names, total = party_names(len(sizes)), sum(sizes)
    blocks = split(total, names, None if even else sizes, bounds)
    assert tuple(block.party for block in blocks) == names
    assert [column for block in blocks for column in block.columns] == list(range(total))
    found = [len(block.columns) for block in blocks]
    if even:
        assert max(found) - min(found) <= 1
        assert found == sorted(found, reverse=True)
    else:
        assert found == sizes
    squares = math.fsum(block.bound**2 for block in blocks)
    assert squares == (len(sizes) if bounds == "joint" else pytest.approx(1.0, abs=SLACK))


@given(
    data=st.data(),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    power=st.integers(-1000, 1000),
)
@settings(deadline=None)
def test_scaled_blocks_make_valid_contexts(
    data: st.DataObject, sizes: list[int], power: int
) -> None:
    """Whatever the numbers, declared bounds and local scaling give a joint norm of at most 1."""
    width = sum(sizes)
    numbers = st.lists(st.floats(-1, 1), min_size=width, max_size=width)
    rows = np.array(data.draw(st.lists(numbers, min_size=1, max_size=5))) * 2.0**power
    blocks = split(width, party_names(len(sizes)), sizes, "declared")
    scaled = scale_blocks(rows, blocks)
    made = Contexts("any", scaled, blocks, ("a", "b"), np.zeros((len(rows), 2)))
    assert np.linalg.norm(made.features, axis=1).max() <= 1 + SLACK
    for block in blocks:
        before, after = rows[:, block.columns], scaled[:, block.columns]
        kept = row_norms(before) <= block.bound
        assert after[kept].tobytes() == before[kept].tobytes()
        assert (np.sign(after) * np.sign(before) >= 0).all()


def test_scaling_keeps_the_direction() -> None:
    rows = np.array([[30.0, 40.0], [0.0, 0.0]])
    assert scale_to_bound(rows, 0.5).tolist() == pytest.approx(np.array([[0.3, 0.4], [0.0, 0.0]]))
    assert scale_to_bound(rows * 1e300, 0.5)[0] == pytest.approx([0.3, 0.4])
    with refused("problems.bound.out-of-range"):
        scale_to_bound(rows, 0.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((3, ("a",)), "problems.parties.too-few"),
        ((1, ("a", "b")), "problems.columns.not-counts"),
        ((3, ("a", "b"), (1, 1)), "problems.columns.not-counts"),
        ((3, ("a", "b"), (3, 0)), "problems.columns.not-counts"),
        ((3, ("a", "b"), (1, 1, 1)), "problems.columns.not-counts"),
        ((3, ("a", "b"), None, "declare"), "problems.bounds.unknown"),
    ],
)
def test_wrong_splits_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with refused(says):
        split(*arguments)


def test_parties_are_numbered_from_one() -> None:
    assert party_names(3) == ("party-1", "party-2", "party-3")
    with refused("problems.parties.too-few"):
        party_names(1)
