"""(I + S)^-1: accuracy against exact rational inverses, rounds and bytes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from posse.privacy.sharing.fixed import LIMIT
from posse.privacy.sharing.reciprocal import first_guess, identity, inverse
from posse.privacy.sharing.session import Session
from tests.privacy.sharing.engine import (
    HARD_MASKS,
    PARTIES,
    added,
    repeated,
    run,
    shared,
    streams,
    watch,
)

SIZES = [1, 2, 3, 4, 8]


def inverting(matrix: list[list[int]], bits: int):
    def program(s):
        masked = s.mask(shared(s, matrix))
        yield
        return (yield from inverse(s, masked, bits)).shared

    return program


def matrices(size: int, bits: int, seed: int) -> list[list[list[int]]]:
    """Gram matrices of rows of norm at most 1, in units: none, all the same, all apart, few
    directions, random.
    """
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(size, size))
    few = drawn[:, : max(1, size // 2)]
    rows = [
        np.zeros((size, 1)),
        np.ones((size, 1)),
        np.eye(size),
        few,
        drawn,
        drawn * random.random((size, 1)),
    ]
    rows = [a / np.maximum(1, np.linalg.norm(a, axis=1, keepdims=True)) for a in rows]
    return [[[round(x * 2**bits) for x in row] for row in a @ a.T] for a in rows]


def exact_inverse(matrix: list[list[int]], bits: int) -> list[list[Fraction]]:
    """(I + S)^-1 by elimination, in fractions; I + S is positive, so no pivot is 0."""
    size = len(matrix)
    rows = [
        [Fraction(x, 2**bits) + (i == j) for j, x in enumerate(row)]
        + [Fraction(i == j) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in set(range(size)) - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]


def check_inverse(found: np.ndarray, matrix: list[list[int]], bits: int) -> None:
    """1e-8, a unit of the last truncation, and at most sqrt(b) of the one before it; one is left
    for products of those.

    Rows of the inverse have norm at most 1, so an error of a unit in every entry of a column adds
    up to sqrt(b) units.
    """
    bound = 1e-8 + (2 + math.sqrt(len(matrix))) / 2**bits
    for row, exact in zip(found.tolist(), exact_inverse(matrix, bits), strict=True):
        assert max(abs(Fraction(x, 2**bits) - y) for x, y in zip(row, exact, strict=True)) < bound


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bits", [12, 20, 26])
def test_accuracy_rounds_and_bytes(size: int, bits: int) -> None:
    steps = first_guess(size)[2]
    for which, matrix in enumerate(matrices(size, bits, seed=size)):
        done = run(inverting(matrix, bits), PARTIES[which % 5], seed=which)
        check_inverse(added(done.results), matrix, bits)
        assert done.rounds == 1 + 1 + 2 * steps
        assert done.sent == 8 * size**2 * (1 + 1 + 2 * steps)


@pytest.mark.parametrize("masks", HARD_MASKS)
def test_masks_at_the_edges(masks: tuple[bytes, ...]) -> None:
    """Truncations that always, or never, round up."""
    for matrix in matrices(4, 26, seed=9)[1:]:
        with streams(repeated(*masks)):
            check_inverse(added(watch(inverting(matrix, 26), 2).results), matrix, 26)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_the_guess_is_as_good_as_a_linear_one_can_be(size: int) -> None:
    """x y(x) is off 1 by the same on alternate sides three times on [1, 1 + b]; its powers 2^steps
    reach 1e-8.
    """
    constant, slope, steps = (one / 2**20 for one in first_guess(size))
    x = np.linspace(1, 1 + size, 100_001)
    error = x * (constant + slope * (x - 1)) - 1
    peak = float(np.abs(error).max())
    ends = [float(error[0]), float(error[error.argmax()]), float(error[-1])]
    assert ends == pytest.approx([-peak, peak, -peak], abs=2e-5 * size)
    count = round(steps * 2**20)
    assert peak**2**count < 1.1e-8
    assert peak**2 ** (count - 1) > 0.9e-8


def test_the_identity_in_units() -> None:
    assert identity(2, 5).tolist() == [[32, 0], [0, 32]]


class Ranges(Session):
    """A session of one party, which sees the numbers themselves."""

    largest = 0.0

    def truncate(self, x, bits, label=""):
        if not self.deals:
            Ranges.largest = max(
                Ranges.largest, float(np.abs(x.share.view(np.int64).astype(float)).max())
            )
        return super().truncate(x, bits, label)


def test_everything_truncated_is_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.privacy.sharing.engine.Session", Ranges)
    monkeypatch.setattr(Ranges, "largest", 0.0)
    for size in (1, 8, 32):
        for matrix in matrices(size, 26, seed=2):
            run(inverting(matrix, 26), 1)
    assert 2.0**52 <= Ranges.largest < 2.0 ** (2 * 26 + 6) < 2.0**LIMIT
