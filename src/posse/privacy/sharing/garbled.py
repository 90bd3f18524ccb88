"""Which of two private numbers is smaller, in one message: the sender has d, the receiver n and
learns [n < d] alone.

Both have 63 bits, cut into 21 digits of 3. From the lowest digit up a state (0 at first) becomes 1
where n's digit is smaller than d's, 0 where it is larger, and stays where they are equal. The
sender draws two labels for the state before every digit and sends, for each of the 8 values of the
receiver's digit and each of the two states, the label of the next state under two pads: the key in
the state's own label, and a pad of which the receiver has, for every digit, those of one value (an
oblivious transfer that the dealer prepared: Beaver, Precomputing oblivious transfer, CRYPTO 1995).
So it opens one label a digit, and the last is the answer. A label is one bit longer than the next
one: no hash and no assumption, what the receiver sees is uniform but for the answer (a garbled
circuit whose keys are one-time pads: Kolesnikov, Gate evaluation secret sharing and secure
one-round two-party computation, ASIACRYPT 2005).

The receiver chose its values c at random; it sends n XOR c, and the sender writes its entries in
that order. Sent a comparison: 8 bytes, then 504. Dealt: 63 bytes to the receiver, nothing to the
sender, which expands a seed.

Words: 3 of layer 0 (a bit of 8 labels in every byte), then for layers 1 to 20 of 20 to 1 label bits
one word for every four bits: 16 entries a bit, place 2 c + pointer.
"""

# mypy: disable-error-code="no-untyped-call, return-value, assignment"
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_short_loops
from posse.privacy.sharing.fixed import Words

LAYERS = 21
WORDS = 63
"""Words that the sender sends a comparison, and its pads; bytes that the receiver is dealt."""
LABELS = LAYERS - 1
"""Words of the sender's own draws a comparison: two labels each."""
_LOW = np.uint64(2**63 - 1)
_U1 = np.uint64(1)


def _spread(bits: int, lane: int) -> Words:
    """Table: every bit of the index in a lane of its own."""
    return np.array(
        [sum((v >> b & 1) << (b * lane) for b in range(bits)) for v in range(1 << bits)], np.uint64
    )


_BYTES, _NIBBLES = _spread(8, 8), _spread(4, 16)


def _next_states(pointers: int) -> Words:
    """Table over (d, shift, pointer of state 0): bit (place) says whether the next state is 1."""
    found = np.zeros((8, 8, pointers), np.uint64)
    for d, shift, pointer in np.ndindex(8, 8, pointers):
        for c, p in np.ndindex(8, pointers):
            n = c ^ shift
            found[d, shift, pointer] |= np.uint64(
                int(n < d or (n == d and p != pointer)) << (pointers * c + p)
            )
    return found


_FIRST, _NEXT = _next_states(1)[..., 0], _next_states(2)


@compiled_short_loops
def garble(numbers: Words, shifts: Words, pads: Words, draws: Words, out: Words) -> None:
    """Write what the sender sends: `numbers` are its d, with a top bit that flips the answer; a row
    a comparison.
    """
    for i in range(numbers.shape[0]):
        d, shift = numbers[i], shifts[i]
        mask = _FIRST[d & np.uint64(7), shift & np.uint64(7)]
        zero = draws[i, 0] & np.uint64(0x1FFFFF)
        one = (draws[i, 0] >> np.uint64(32)) & np.uint64(0x1FFFFE) | (zero & _U1 ^ _U1)
        for j in range(3):
            at = np.uint64(8 * j)
            same, other = (zero >> at) & np.uint64(255), ((zero ^ one) >> at) & np.uint64(255)
            out[i, j] = pads[i, j] ^ _BYTES[same] * np.uint64(255) ^ _BYTES[other] * mask
        word = 3
        for layer in range(1, LAYERS):
            left = np.uint64(LAYERS - layer)
            pointer = zero & _U1
            first, second = zero >> _U1, one >> _U1
            if pointer:
                first, second = second, first
            place = np.uint64(3 * layer)
            mask = _NEXT[(d >> place) & np.uint64(7), (shift >> place) & np.uint64(7), pointer]
            if layer == LAYERS - 1:
                zero = d >> np.uint64(63)
                one = zero ^ _U1
            else:
                whole = (_U1 << left) - _U1
                zero = draws[i, layer] & whole
                one = (draws[i, layer] >> np.uint64(32)) & (whole ^ _U1) | (zero & _U1 ^ _U1)
            for j in range((LAYERS - layer + 3) // 4):
                at = np.uint64(4 * j)
                out[i, word] = (
                    pads[i, word]
                    ^ _NIBBLES[(first >> at) & np.uint64(15)] * np.uint64(0x5555)
                    ^ _NIBBLES[(second >> at) & np.uint64(15)] * np.uint64(0xAAAA)
                    ^ _NIBBLES[(zero >> at) & np.uint64(15)] * np.uint64(0xFFFF)
                    ^ _NIBBLES[((zero ^ one) >> at) & np.uint64(15)] * mask
                )
                word += 1


@compiled_short_loops
def choose(words: Words, choices: Words, out: NDArray[np.uint8]) -> None:
    """Take from every word the 8 bits that belong to the receiver's choices: what the dealer hands
    out of pads.
    """
    for i in range(words.shape[0]):
        c = choices[i]
        for j in range(3):
            found = (words[i, j] >> (c & np.uint64(7))) & np.uint64(0x0101010101010101)
            out[i, j] = (found * np.uint64(0x0102040810204080)) >> np.uint64(56)
        word = 3
        for layer in range(1, LAYERS):
            place = np.uint64(2) * ((c >> np.uint64(3 * layer)) & np.uint64(7))
            for _ in range((LAYERS - layer + 3) // 4):
                found = (words[i, word] >> place) & np.uint64(0x0003000300030003)
                found |= (
                    (found >> np.uint64(14)) | (found >> np.uint64(28)) | (found >> np.uint64(42))
                )
                out[i, word] = found & np.uint64(255)
                word += 1


@compiled_short_loops
def evaluate(chosen: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Open label after label of what was chosen, its pads taken off; the answers are [n < d] XOR
    the flip.
    """
    for i in range(chosen.shape[0]):
        label = (
            np.uint64(chosen[i, 0])
            | np.uint64(chosen[i, 1]) << np.uint64(8)
            | np.uint64(chosen[i, 2]) << np.uint64(16)
        )
        word = 3
        for layer in range(1, LAYERS):
            pointer, key = label & _U1, label >> _U1
            label = np.uint64(0)
            for j in range((LAYERS - layer + 3) // 4):
                bits = (np.uint64(chosen[i, word]) >> pointer) & np.uint64(0x55)
                bits = (bits | bits >> _U1) & np.uint64(0x33)
                bits = (bits | bits >> np.uint64(2)) & np.uint64(15)
                label |= bits << np.uint64(4 * j)
                word += 1
            label = (label ^ key) & ((_U1 << np.uint64(LAYERS - layer)) - _U1)
        out[i] = label
