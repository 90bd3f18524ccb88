"""Integers to bytes and back."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from tests.conformance.core import Tables

LAYERS = 21  # digits of a comparison
PAIR_BYTES, ANSWER_BYTES = 63, 504  # per comparison: dealt, and answered by comp


def pack(words: Iterable[int], size: int = 8, order: Literal["little", "big"] = "little") -> bytes:
    """Return words as bytes (section 1); places have 2 bytes, residues 16 (5.5 and 9)."""
    return b"".join(word.to_bytes(size, order) for word in words)


def unpack(data: bytes, size: int = 8, order: Literal["little", "big"] = "little") -> list[int]:
    """Return the words in bytes."""
    return [int.from_bytes(data[i : i + size], order) for i in range(0, len(data), size)]


def pack_bits(bits: Sequence[int]) -> bytes:
    """Return bits in bytes, the first bit highest (section 5.3)."""
    return np.packbits(np.array(bits, bool)).tobytes()


def unpack_bits(data: bytes, count: int) -> list[int]:
    """Return the bits in bytes (section 5.3)."""
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).tolist()


def pack_layers(tables: Tables, unit: int) -> list[int]:
    """Return the entries of a comparison as units (section 5.4, layout).

    Bit b of entry e is bit E (b mod U) + e of unit ⌊b/U⌋ of its layer: E entries, U = unit / E.
    All entries go into words of 64 bits; those that the choices select go into bytes.
    """
    units = []
    for layer, entries in enumerate(tables):
        each = unit // len(entries)
        for start in range(0, LAYERS - layer, each):
            bits = (entry >> start + b & 1 for b in range(each) for entry in entries)
            units.append(sum(bit << i for i, bit in enumerate(bits)))
    return units


def unpack_layers(units: Iterable[int], unit: int) -> list[list[int]]:
    """Return the entries of a comparison: of words all, of bytes the selected ones."""
    tables, rest = [], iter(units)
    for layer in range(LAYERS):
        table = [0] * ((8 if unit == 64 else 1) << (layer > 0))
        for start in range(0, LAYERS - layer, unit // len(table)):
            packed = next(rest)
            for i in range(unit):
                table[i % len(table)] |= (packed >> i & 1) << start + i // len(table)
        tables.append(table)
    return tables


def label_draws(words: Sequence[int]) -> list[tuple[int, int]]:
    """Return the draws of L⁰ and L¹ per layer but the last (section 5.4, labels)."""
    masks = [(1 << LAYERS - layer) - 1 for layer in range(len(words))]
    return [(word & mask, word >> 32 & mask) for word, mask in zip(words, masks, strict=True)]
