import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posse.core.errors import ConfigError, DataError
from posse.results import Record, Traffic, band, new_id, standard_error
from tests.kit.records import example_record


def test_ids_are_short_distinct_and_sorted_by_time() -> None:
    ids = [new_id(ms) for ms in range(0, 2**44, 2**38)]
    assert ids == sorted(ids)
    assert len({new_id(5) for _ in range(50)}) > 45
    assert all(len(id) == 14 for id in ids)


def test_arrays_are_copied_typed_and_read_only() -> None:
    given = np.array([[1, 2, 3]] * 4, dtype=np.int32)
    record = example_record(pulls=given)
    given[:] = 9
    assert record.pulls.dtype == np.int64
    assert record.pulls.tolist() == [[1, 2, 3]] * 4
    with pytest.raises(ValueError, match="read-only"):
        record.reward[0, 0] = 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": [1, 1]}, "reward must have shape"),
        ({"steps": [2, 1], "reward": [[0, 1]] * 4, "regret": None}, "steps must increase"),
        ({"pulls": [[1, 2, 3]]}, "pulls must have shape"),
        ({"pulls": [[0.5, 1, 2]] * 4}, "must hold integers"),
        ({"pulls": [[-1, 1, 2]] * 4}, "must not be negative, got -1"),
        ({"regret": [[1.0]]}, "regret must have shape"),
        ({"reward": [1.0, 2.0]}, "2 dimension"),
        ({"total": (1.0, 2.0, 3.0, float("nan"))}, "total must be finite"),
        ({"seeds": (1, 2)}, "expected 4 world seeds"),
        ({"seeds": (-1, 0, 1, 2)}, r"\[0, 2\^64\)"),
        ({"id": "last"}, "not 'last'"),
        ({"id": "../etc"}, "Use new_id"),
        ({"kind": ""}, "kind must not be empty"),
        ({"created": "2024-01-01T00:00:00"}, "time zone"),
        ({"created": "yesterday"}, "ISO time"),
        ({"seconds": -1.0}, "not negative"),
        ({"role_seconds": {"owner": float("inf")}}, "inf for owner"),
        ({"config": {"x": {1, 2}}}, "config.x must be a JSON value"),
        ({"config": {"x": [{3: 1}]}}, r"config.x\[0\] must have strings as keys"),
        ({"problem": {"name": "\ud800"}}, "Unicode"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        example_record(**change).validate()


def test_a_wrong_status_and_nan_in_a_curve_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'finished'"):
        example_record(status="finish").validate()
    reward = example_record().reward.copy()
    reward[1, 3] = np.nan
    with pytest.raises(DataError, match="reward must be finite"):
        example_record(reward=reward)
    with pytest.raises(DataError, match="owner -> comp"):
        Traffic("owner -> comp", -1, 0)


def test_a_failed_run_may_hold_nothing() -> None:
    record = example_record(
        status="failed", seeds=(), steps=[], reward=[], regret=None, total=(), pulls=[]
    )
    assert (record.runs, record.arms, record.total_mean) == (0, 0, None)
    assert record.horizon == 200
    with pytest.raises(DataError, match="at least one run"):
        record.reward_band()


def test_metadata_is_strict_json_and_says_what_follows() -> None:
    record = example_record(summary={"gap": float("inf"), "rounds": np.int64(3)})
    meta = json.loads(json.dumps(record.metadata(), allow_nan=False))
    assert meta["summary"] == {"gap": None, "rounds": 3}
    assert meta["label"] == "ucb (standard)"
    assert meta["bytes"] == sum(hop["bytes"] for hop in meta["traffic"]) > 0
    assert meta["problem"]["names"] == list(record.arm_names)
    assert not {"steps", "reward", "pulls", "regret"} & meta.keys()


def test_names_fall_back_when_nothing_is_given() -> None:
    record = example_record(config={}, problem={})
    assert (record.policy, record.problem_name, record.horizon) == ("clinics", "unnamed", 200)
    assert record.arm_names == ("arm 1", "arm 2", "arm 3")


def test_equality_is_bit_for_bit() -> None:
    same = {"id": "0a", "created": "2024-01-01T00:00:00+00:00"}
    a, b = example_record(**same), example_record(**same)
    assert a == b
    assert hash(a) == hash(b)
    assert a != example_record(**same, reward=a.reward + 1e-12)
    assert a != example_record(**same, regret=None)
    assert a != "a record"


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_band_of_the_mean_holds_the_mean_and_scales(values: list[float]) -> None:
    b = band(np.array(values)[:, None])
    assert b.low[0] <= b.mean[0] <= b.high[0]
    t = stats.t.ppf(0.975, len(values) - 1)
    half = t * np.std(values, ddof=1) / np.sqrt(len(values))
    assert b.high[0] - b.mean[0] == pytest.approx(half, rel=1e-6, abs=1e-6)


def test_quantile_bands_are_of_the_runs_not_the_mean() -> None:
    x = np.arange(101.0)[:, None]
    b = band(x, quantiles=(0.025, 0.975))
    assert (b.low[0], b.high[0]) == (2.5, 97.5)
    assert "quantiles of 101 runs" in b.what
    assert band(x).high[0] < 60
    with pytest.raises(DataError, match="0 <= low <= high <= 1"):
        band(x, quantiles=(0.9, 0.1))


def test_one_run_has_no_width_and_no_standard_error() -> None:
    b = band([[1.0, 4.0]])
    assert b.low.tolist() == b.high.tolist() == [1.0, 4.0]
    assert standard_error([3.0]) is None


def test_regret_that_is_not_known_is_not_drawn_from_nothing() -> None:
    record: Record = example_record(regret=None)
    with pytest.raises(DataError, match="true means"):
        record.regret_band()


def test_a_protection_that_is_off_is_in_every_name() -> None:
    record = example_record(level="paper", show={"off": ["aes", "mask"]})
    assert (record.level, record.label) == ("paper", "ucb (paper, aes and mask off)")
    assert not record.protected
    assert example_record().protected
    assert example_record(level="plain", show={"off": ["aes"]}).off == ()


def test_a_record_is_one_short_line_in_a_notebook() -> None:
    shown = repr(example_record(id="0a", runs=1, total=(120.0,)))
    assert shown == "<Record 0a: ucb (standard), 1 run of 200 steps, earned 120>"
    assert "interrupted after 800 of 800 steps" in repr(example_record(status="interrupted"))
