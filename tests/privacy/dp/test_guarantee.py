"""A figure is never told alone, and never looks smaller than it is."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.privacy.dp.guarantee import PARALLEL, Budget, Guarantee, figure, rounded_up


def made(epsilon: float) -> Guarantee:
    return Guarantee(
        epsilon,
        0.01,
        "entry",
        "replace: one",
        3,
        PARALLEL,
        "dp-accounting 0.6.0, PLD",
        "it",
        ("that",),
    )


def test_the_sentence_says_everything() -> None:
    sentence = made(0.5).sentence()
    for part in (
        "(0.5, 0.01)",
        "entry",
        "replace: one",
        "3 releases",
        PARALLEL,
        "dp-accounting 0.6.0",
        "sampling none",
    ):
        assert part in sentence
    assert sentence.endswith("Not covered: that.")


def test_no_finite_figure_is_said() -> None:
    assert made(math.inf).sentence().startswith("no finite epsilon at delta 0.01 for it")
    assert made(math.inf).entry()["epsilon"] is None


def test_the_entry_is_json() -> None:
    entry = json.loads(json.dumps(made(0.25).entry(), allow_nan=False))
    assert (entry["epsilon"], entry["delta"], entry["not_covered"]) == (0.25, 0.01, ["that"])
    assert set(entry) == {*Guarantee.__dataclass_fields__, "sentence"}


@given(st.floats(1e-12, 1e12))
def test_rounding_is_up_and_little(value: float) -> None:
    assert value <= rounded_up(value) <= value * 1.0011


@pytest.mark.parametrize(
    ("epsilon", "said"), [(1.00001, "(1.001, 0.01)"), (0.99999, "(1, 0.01)"), (0, "(0, 0.01)")]
)
def test_figures(epsilon: float, said: str) -> None:
    assert figure(epsilon, 0.01) == said


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_epsilon_is_finite_and_above_zero(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be a"):
        Budget(epsilon, 0.01)


@pytest.mark.parametrize("delta", [0, -0.1, 1, 1.5, math.nan, math.inf])
def test_delta_is_between_zero_and_one(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta must be above 0 and below 1"):
        Budget(1, delta)


def test_both_are_always_said() -> None:
    assert f"{Budget(0.5, 1e-5)}" == "(0.5, 1e-05)"
