from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posse.privacy.aggregation.quantise import from_ring


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_the_ring_keeps_every_integer_of_32_bits(numbers):
    z = np.array(numbers, np.int64)
    assert (from_ring(z.astype(np.uint32)) == z).all()
