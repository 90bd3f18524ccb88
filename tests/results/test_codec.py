import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posse.core.errors import StoreError
from posse.results.store import arrays_of, build, text_of
from posse.results.values import pack, same, unpack
from tests.kit.records import example_record

shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=8)


@given(st.one_of(hnp.arrays(np.float64, shapes), hnp.arrays(np.int64, shapes)))
def test_arrays_come_back_bit_for_bit(array: np.ndarray) -> None:
    back = unpack(pack(array))
    assert same(back, array)


@given(hnp.arrays(np.float64, (3, 4)), st.data())
def test_a_cut_blob_never_reads_as_an_array(array: np.ndarray, data: st.DataObject) -> None:
    blob = pack(array)
    cut = data.draw(st.integers(0, len(blob) - 1))
    with pytest.raises(ValueError):
        unpack(blob[:cut])


def test_big_endian_and_transposed_arrays_are_normalised() -> None:
    array = np.arange(6, dtype=">f8").reshape(2, 3).T
    assert unpack(pack(array)).tolist() == array.tolist()


def test_other_types_are_not_stored() -> None:
    with pytest.raises(TypeError, match="only float64 and int64"):
        pack(np.array([object()]))


@pytest.mark.parametrize(
    "header", [b"posse-array-1 |O8 2", b"posse-array-2 <f8 2", b"posse-array-1 <f8 x", b""]
)
def test_unknown_headers_are_refused(header: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(header + b"\n" + zlib.compress(bytes(16)))


def test_a_blob_that_inflates_past_its_header_is_refused() -> None:
    with pytest.raises(ValueError, match="holds"):
        unpack(b"posse-array-1 <f8 2\n" + zlib.compress(bytes(10_000_000)))


finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(min_size=1, max_size=12)


@given(
    runs=st.integers(0, 4),
    config=st.dictionaries(
        words, st.one_of(st.none(), st.booleans(), st.floats(), words, st.lists(finite))
    ),
    leaks=st.lists(words),
    data=st.data(),
)
def test_records_come_back_equal(
    runs: int, config: dict[str, object], leaks: list[str], data: st.DataObject
) -> None:
    points, arms = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4))
    floats = hnp.arrays(np.float64, (runs, points), elements=finite)
    record = example_record(
        config=config,
        leaks=tuple(leaks),
        steps=np.arange(points),
        reward=data.draw(floats),
        regret=data.draw(st.one_of(st.none(), floats)),
        pulls=data.draw(hnp.arrays(np.int64, (runs, arms), elements=st.integers(0, 2**63 - 1))),
        total=tuple(data.draw(st.lists(finite, min_size=runs, max_size=runs))),
        seeds=tuple(data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=runs, max_size=runs))),
    )
    assert build(text_of(record), arrays_of(record), "it") == record


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"traffic": []}', '{"traffic": [{"hop": 1}]}'])
def test_a_damaged_text_is_told_in_one_line(text: str) -> None:
    with pytest.raises(StoreError, match="run 0a is damaged") as told:
        build(text, arrays_of(example_record()), "run 0a")
    assert "\n" not in str(told.value)
