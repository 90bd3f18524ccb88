"""The affine mask of level `standard`: an order-preserving mask with dither, 24 bytes.

x' = alpha x + beta + rho + 2^190, where for one step and pass all owners share alpha = a 2^s (a of
64 bits with the top bit set, s uniform in 0..63) and beta uniform below 2^190, and each owner draws
its own rho uniform in [0, alpha). Since x is an integer, x1 > x2 gives x1' > x2'. The dither is
what makes it a mask: from exact multiples of alpha one gcd over a batch gives alpha back. What
remains visible: scores up to an unknown scale and shift.

Numbers are little-endian 64-bit limbs, so that the compiled code builds a whole block of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import elementary

MASK_WORDS = 5
"""Words of the owners' common stream for one step and pass: a, s, three for beta."""
OWN_WORDS = 5
"""Words of an owner's own stream for one step and pass: two tokens, three for the dither."""
FRAME_WORDS = 5
"""Words of a frame's plaintext: three of the masked score, two reply tokens."""

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U32 = np.uint64(32)
_LOW32 = np.uint64(0xFFFFFFFF)
_TOP = np.uint64(1 << 63)
_LOW62 = np.uint64((1 << 62) - 1)
_BIT62 = np.uint64(1 << 62)


@elementary
def _multiply(a: int, b: int) -> tuple[int, int]:
    """128-bit product of two 64-bit words: (high, low)."""
    a = np.uint64(a)  # type: ignore[assignment]
    b = np.uint64(b)  # type: ignore[assignment]
    a0, a1, b0, b1 = a & _LOW32, a >> _U32, b & _LOW32, b >> _U32
    low = a0 * b0
    middle = a1 * b0 + (low >> _U32)
    cross = a0 * b1 + (middle & _LOW32)
    return a1 * b1 + (middle >> _U32) + (cross >> _U32), (cross << _U32) | (low & _LOW32)  # type: ignore[return-value]


@elementary
def _carry(a: int, b: int, carry: int) -> tuple[int, int]:
    """Sum of two words and a carry: (word, carry)."""
    first = np.uint64(a) + np.uint64(b)
    total = first + np.uint64(carry)
    over = (_U1 if first < np.uint64(a) else _U0) | (_U1 if total < first else _U0)
    return total, over  # type: ignore[return-value]


@elementary
def _borrow(a: int, b: int, borrow: int) -> tuple[int, int]:
    """Difference of two words and a borrow: (word, borrow)."""
    first = np.uint64(a) - np.uint64(b)
    total = first - np.uint64(borrow)
    under = (_U1 if np.uint64(a) < np.uint64(b) else _U0) | (
        _U1 if first < np.uint64(borrow) else _U0
    )
    return total, under  # type: ignore[return-value]


@elementary
def mask_into(
    x: int, common: NDArray[np.uint64], own: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """Write the plaintext of a frame: the masked x (three words) and the two reply tokens, which
    differ.
    """
    a = common[0] | _TOP
    s = common[1] & np.uint64(63)
    rest = np.uint64(64) - s
    negative = x < 0
    high, low = _multiply(a, np.uint64(-x if negative else x))
    # rho = floor(a R / 2^128) 2^s + s random bits, R of 128 bits: uniform in [0, alpha) up to
    # 2^-64.
    part, _ = _multiply(a, own[2])
    top, bottom = _multiply(a, own[3])
    _, over = _carry(bottom, part, 0)
    dither = np.uint64(top) + np.uint64(over)
    small = own[4] & ((_U1 << s) - _U1)
    if s == _U0:
        p0, p1, p2 = low, high, _U0
        r0, r1 = dither, _U0
    else:
        p0, p1, p2 = low << s, (high << s) | (low >> rest), high >> rest
        r0, r1 = (dither << s) | small, dither >> rest
    # beta + 2^190, then + or - alpha |x|, then + rho: 2^189 < x' < 2^192.
    y0, y1, y2 = common[2], common[3], (common[4] & _LOW62) + _BIT62
    if negative:
        y0, c = _borrow(y0, p0, 0)
        y1, c = _borrow(y1, p1, c)
        y2, _ = _borrow(y2, p2, c)
    else:
        y0, c = _carry(y0, p0, 0)
        y1, c = _carry(y1, p1, c)
        y2, _ = _carry(y2, p2, c)
    out[0], c = _carry(y0, r0, 0)
    out[1], c = _carry(y1, r1, c)
    out[2], _ = _carry(y2, _U0, c)
    out[3] = own[0]
    out[4] = own[1] if own[1] != own[0] else own[1] ^ _U1


@elementary
def mask_all(
    xs: NDArray[np.int64],
    common: NDArray[np.uint64],
    own: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Write the plaintexts of a block of frames, one a row of `common`."""
    for j in range(common.shape[0]):
        mask_into(xs[j], common[j], own[j], out[j])


@elementary
def largest(frames: NDArray[np.uint64]) -> int:
    """Position of the largest masked score among frames of `FRAME_WORDS` words."""
    best = 0
    for i in range(1, frames.shape[0]):
        if frames[i, 2] != frames[best, 2]:
            greater = frames[i, 2] > frames[best, 2]
        elif frames[i, 1] != frames[best, 1]:
            greater = frames[i, 1] > frames[best, 1]
        else:
            greater = frames[i, 0] > frames[best, 0]
        if greater:
            best = i
    return best


@elementary
def tokens_differ(frames: NDArray[np.uint64]) -> bool:
    """Whether all reply tokens of a set of frames are different."""
    tokens = np.sort(frames[:, 3:5].copy().ravel())
    for i in range(1, tokens.shape[0]):  # noqa: SIM110
        if tokens[i] == tokens[i - 1]:
            return False
    return True


def ranks(frames: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Rank of every masked score, 0 the smallest: all that an order-only selection may see."""
    order = np.lexsort((frames[:, 0], frames[:, 1], frames[:, 2]))
    out = np.empty(len(frames))
    out[order] = np.arange(len(frames))
    return out
