"""What several parties derive from the same keys (sections 5.3, 5.4, 5.7 and 9)."""

from collections.abc import Iterable

from tests.conformance import codec, core, primitives

PRIME = (1 << 127) - 1  # p of section 9
PAIRS_PER_CHUNK = 512  # section 5.7


def passes_per_chunk(owners: int) -> int:
    """Return how many passes are dealt at once (section 5.7)."""
    return max(1, min(64, 131_072 // (8 * owners)))


class Tapes:
    """What a server and the dealer expand from r_1 or r_2."""

    def __init__(self, seed: bytes, owners: int) -> None:
        self.owners = owners
        self.passes = primitives.hkdf(seed, b"posse shuffle tape")
        self.comparisons = primitives.hkdf(seed, b"posse shuffle comparisons")

    def controller(self, number: int) -> core.ControllerTape:
        """Return the controller's tape of a pass, from r_1 (section 5.3)."""
        k = self.owners
        words = primitives.stream_words(self.passes, 3 * k * number, 3 * k)
        return core.ControllerTape(core.order(words[:k]), words[k : 2 * k], words[2 * k :])

    def comp(self, number: int) -> core.CompTape:
        """Return comp's tape of a pass, from r_2 (section 5.3)."""
        k = self.owners
        width = 3 * k + (k + 7) // 8
        words = primitives.stream_words(self.passes, width * number, width)
        flags = codec.pack(words[3 * k :])[:k]
        bits = [flag & 1 for flag in flags], [flag >> 1 & 1 for flag in flags]
        return core.CompTape(core.order(words[:k]), words[k : 2 * k], words[2 * k : 3 * k], *bits)

    def choices(self, comparison: int) -> int:
        """Return c of a comparison, from r_1 (section 5.4)."""
        return primitives.stream_words(self.comparisons, comparison, 1)[0] % (1 << 63)

    def pads(self, comparison: int) -> list[list[int]]:
        """Return the pads of a comparison, from r_2 (section 5.4)."""
        words = primitives.stream_words(self.comparisons, 63 * comparison, 63)
        return codec.unpack_layers(words, 64)


def tag_numbers(tag_key: bytes, mark: bytes, names: Iterable[str]) -> tuple[int, list[int]]:
    """Return a and the b of the names (section 9)."""
    root = primitives.hkdf(tag_key, b"posse strict tag" + mark)
    infos = [b"a", *(b"b" + name.encode() for name in names)]
    key, *offsets = (int.from_bytes(primitives.hkdf(root, info), "big") % PRIME for info in infos)
    return key, offsets


def sum_pads(stream_key: bytes, mark: bytes) -> tuple[int, int]:
    """Return (f, f') of an owner (section 9)."""
    key = primitives.hkdf(stream_key, b"posse strict sum" + mark)
    first, second = codec.unpack(primitives.key_stream(key, 0, 64), 32, "big")
    return first % PRIME, second % PRIME
