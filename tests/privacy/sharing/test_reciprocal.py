"""1 / (1 + q): accuracy against exact fractions, rounds and bytes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.privacy.sharing.fixed import LIMIT, MOST_BITS
from posse.privacy.sharing.reciprocal import START, reciprocal, start_bits
from posse.privacy.sharing.session import Session
from tests.privacy.sharing.engine import (
    HARD_MASKS,
    added,
    parties,
    repeated,
    run,
    seeds,
    shared,
    some,
    streams,
    watch,
)

ALL_BITS = range(12, 27)


def inverting(q: list[int], bits: int, steps: int, seed: int = 0):
    def program(s):
        y = yield from reciprocal(s, shared(s, q, seed), bits, steps)
        return y.shared

    return program


def check_inverse(found: list[int], q: list[int], bits: int, steps: int) -> None:
    bound = Fraction(12, 1000) ** 2**steps + Fraction(4, 2**bits)
    for number, y in zip(q, found, strict=True):
        exact = 1 / (1 + Fraction(number, 4**bits))
        assert abs(Fraction(y, 2**bits) - exact) < bound, (number, y)


def some_q(bits: int, seed: int) -> list[int]:
    """0, 1, their neighbours in every unit that comes up, an even grid, random ones and powers of
    two.
    """
    one = 4**bits
    random = np.random.default_rng(seed)
    near = [
        by * 2**place
        for place in (0, 1, bits - 1, bits, 2 * bits - start_bits(bits))
        for by in (0, 1, 2)
    ]
    grid = [one * i // 97 for i in range(98)]
    return [
        *near,
        *(one - by for by in near),
        *grid,
        *(one >> i for i in range(2 * bits)),
        *(int(a) for a in random.integers(0, one + 1, 100)),
    ]


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_accuracy_rounds_and_bytes(bits: int, steps: int) -> None:
    q = some_q(bits, seed=steps)
    done = run(inverting(q, bits, steps), 1 + (bits + steps) % 5, seed=steps)
    check_inverse(added(done.results).tolist(), q, bits, steps)
    assert done.rounds == 2 + 2 * steps
    assert done.sent == 8 * (3 + 2 * steps) * len(q)


@some
@given(parties, seeds, st.sampled_from(ALL_BITS), st.integers(0, 3), st.data())
def test_any_q(n: int, seed: int, bits: int, steps: int, data: st.DataObject) -> None:
    q = data.draw(st.lists(st.integers(0, 4**bits), min_size=1, max_size=20))
    check_inverse(
        added(run(inverting(q, bits, steps, seed), n, seed).results).tolist(), q, bits, steps
    )


@pytest.mark.parametrize("masks", HARD_MASKS)
def test_masks_at_the_edges(masks: tuple[bytes, ...]) -> None:
    """Truncations that always, or never, round up."""
    for bits in (12, 20, 21, 26):
        for steps in (0, 2):
            q = some_q(bits, seed=1)
            with streams(repeated(*masks)):
                check_inverse(
                    added(watch(inverting(q, bits, steps), 2).results).tolist(), q, bits, steps
                )


def test_each_step_squares_the_error() -> None:
    """Until the units are reached: at 26 bits and q = 0 the guess is 1e-2 off, then 1e-4, then a
    few units.
    """
    off = []
    for steps in range(3):
        (y,) = added(run(inverting([0], 26, steps), 2).results).tolist()
        off.append(abs(y / 2**26 - 1))
    assert 0.009 < off[0] < 0.012
    assert 0.8 * off[0] ** 2 < off[1] < 1.2 * off[0] ** 2
    assert off[2] < 1e-7


def test_the_guess_has_the_least_relative_error() -> None:
    """(1 + q) times the quadratic is 1/99 off 1 at most, and four times, on alternate sides: none
    does better.
    """
    q = np.linspace(0, 1, 100_001)
    error = (1 + q) * (START[0] + START[1] * q + START[2] * q * q) - 1
    assert np.abs(error).max() == pytest.approx(1 / 99, rel=1e-5)
    peaks = [
        float(part[np.abs(part).argmax()])
        for part in np.split(error, np.flatnonzero(np.diff(np.sign(error))) + 1)
    ]
    assert peaks == pytest.approx([-1 / 99, 1 / 99, -1 / 99, 1 / 99], rel=1e-4)


class Ranges(Session):
    """A session of one party, which sees the numbers themselves."""

    largest = 0.0

    def truncate(self, x, bits, label=""):
        if not self.deals:
            Ranges.largest = max(
                Ranges.largest, float(np.abs(x.share.view(np.int64).astype(float)).max())
            )
        return super().truncate(x, bits, label)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_everything_truncated_is_in_range(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.privacy.sharing.engine.Session", Ranges)
    monkeypatch.setattr(Ranges, "largest", 0.0)
    run(inverting(some_q(bits, 0), bits, 3), 1)
    assert 2.0 ** (2 * bits - 1) < Ranges.largest < 2.0**54 < 2.0**LIMIT
    assert 2 * bits - start_bits(bits) <= MOST_BITS
