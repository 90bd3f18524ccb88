"""Integers to bytes and back."""

from collections.abc import Iterable, Sequence

from tests.conformance.core import Tables

LAYERS = 21  # digits of a comparison
PAIR_BYTES, ANSWER_BYTES = 63, 504  # per comparison: dealt, and answered by comp


def pack(words: Iterable[int], size: int = 8) -> bytes:
    """Return words (places: of 2 bytes) as bytes, little-endian (sections 1 and 5.5)."""
    return b"".join(word.to_bytes(size, "little") for word in words)


def unpack(data: bytes, size: int = 8) -> list[int]:
    """Return the words (places: of 2 bytes) in bytes (sections 1 and 5.5)."""
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def pack_bits(bits: Sequence[int]) -> bytes:
    """Return bits in bytes, the first bit highest (section 5.3)."""
    data = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        data[i // 8] |= bit << (7 - i % 8)
    return bytes(data)


def unpack_bits(data: bytes, count: int) -> list[int]:
    """Return the bits in bytes (section 5.3)."""
    return [data[i // 8] >> (7 - i % 8) & 1 for i in range(count)]


def pack_residues(pair: tuple[int, int]) -> bytes:
    """Return two residues modulo p, 16 bytes each, big-endian (section 9)."""
    return pair[0].to_bytes(16, "big") + pair[1].to_bytes(16, "big")


def unpack_residues(data: bytes) -> tuple[int, int]:
    """Return the two residues in 32 bytes (section 9)."""
    return int.from_bytes(data[:16], "big"), int.from_bytes(data[16:], "big")


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
