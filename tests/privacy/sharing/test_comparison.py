"""One-time tables, comparison of all pairs, and 'all of them', against Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.core.errors import ProtocolError
from posse.privacy.sharing.comparison import every, less
from posse.privacy.sharing.values import Bits
from tests.privacy.sharing.engine import (
    EDGES,
    HARD_MASKS,
    LARGEST,
    PARTIES,
    in_range,
    parties,
    repeated,
    run,
    seeds,
    shared,
    shared_bits,
    some,
    streams,
    table_sizes,
    watch,
    xored,
)


def packed(entries: np.ndarray, width: int) -> np.ndarray:
    """Entries of so many bits along the last axis as bytes, from the low bit up: one bit at a
    time.
    """
    bits = (entries.astype(np.uint8)[..., None] >> np.arange(width, dtype=np.uint8)) & np.uint8(1)
    return np.packbits(bits.reshape(*entries.shape[:-1], -1), axis=-1, bitorder="little")


def looking_up(function: np.ndarray, x: np.ndarray, inputs: int, outputs: int, seed: int = 0):
    """The program that applies a function, given as the list of its values, to numbers of so many
    bits.
    """
    places = np.arange(2**inputs, dtype=np.uint16)

    def program(s):
        found = s.look_up(
            shared_bits(s, x, inputs, seed),
            lambda mask: packed(function[mask[..., None] ^ places], outputs),
            outputs,
        )
        yield
        return found.bits

    return program


@pytest.mark.parametrize("inputs", range(1, 12))
@pytest.mark.parametrize("outputs", [1, 2, 4, 8])
def test_every_mask_of_a_table(inputs: int, outputs: int) -> None:
    """Up to 6 bits every input meets every mask; above that every mask and every input comes once
    or more.
    """
    random = np.random.default_rng(100 * inputs + outputs)
    size = 2**inputs
    function = random.integers(0, 2**outputs, size)
    masks = np.repeat(np.arange(size), size) if inputs <= 6 else np.arange(size)
    x = np.tile(np.arange(size), size) if inputs <= 6 else random.permutation(size)
    raw = (masks.astype("<u2").view(np.uint8) if inputs > 8 else masks.astype(np.uint8)).tobytes()
    keys: list[bytes] = []

    def masks_and_more(key: bytes, counter: int, length: int) -> bytes:
        """The first party's free bytes are the masks, the others' are 0; their tables are
        random.
        """
        if key not in keys:
            keys.append(key)
        free = raw if key == keys[0] else bytes(len(raw))
        free += bytes(-len(free) % 16)
        return free + np.random.default_rng(counter + keys.index(key)).bytes(length - len(free))

    for n in (1, 2, 3):
        keys.clear()
        with streams(masks_and_more):
            seen = watch(looking_up(function, x, inputs, outputs), n)
        assert xored(seen.results).tolist() == function[x].tolist()
        assert seen.sessions[0].seen[0].tolist() == (x ^ masks).tolist()
        assert seen.broadcast == [[len(raw)] * n]
        assert seen.plan.sizes.table == len(x) * max(1, outputs * size // 8)
        assert seen.plan.sizes.bits == len(raw)


@some
@given(parties, seeds, st.integers(1, 11), st.sampled_from([1, 2, 4, 8]), st.integers(1, 12))
def test_tables_with_masks_as_they_come(
    n: int, seed: int, inputs: int, outputs: int, rows: int
) -> None:
    random = np.random.default_rng(seed)
    function, x = (
        random.integers(0, 2**outputs, 2**inputs),
        random.integers(0, 2**inputs, (rows, 3)),
    )
    done = run(looking_up(function, x, inputs, outputs, seed), n, seed)
    assert xored(done.results).tolist() == function[x].tolist()
    assert (done.rounds, done.sent) == (1, 3 * rows * (1 if inputs <= 8 else 2))


@some
@given(parties, seeds, st.sampled_from([1, 2, 4, 8]), st.integers(1, 5))
def test_shared_tables_are_read_at_public_places(n: int, seed: int, width: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    entries = random.integers(0, 2**width, (rows, 3, 32))
    places = random.integers(0, 32, (rows, 3))
    places.flat[0], places.flat[-1] = 0, 31
    data = packed(entries, width)

    def program(s):
        tables = s.dealt_bytes(data.shape, lambda: data)
        yield from ()
        return s.unknown_bits(places.shape, width) if s.deals else s.read(tables, places, width)

    done = run(program, n, seed)
    wanted = np.take_along_axis(entries, places[..., None], axis=-1)[..., 0]
    assert xored(done.results).tolist() == wanted.tolist()
    assert (done.rounds, done.sent, done.plan.sizes.table) == (0, 0, data.size)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_place_beyond_the_end_of_a_table_is_refused(width: int) -> None:
    """A party that opens something else makes such places; it must not crash the others."""
    data, places = packed(np.zeros((1, 32), int), width), np.array([32])

    def program(s):
        tables = s.dealt_bytes(data.shape, lambda: data)
        yield from ()
        return s.unknown_bits(places.shape, width) if s.deals else s.read(tables, places, width)

    with pytest.raises(ProtocolError, match="beyond the end of a table"):
        run(program, 2, 0)


def comparing(x, seed: int = 0):
    def program(s):
        masked = s.mask(shared(s, x, seed))
        yield
        return (yield from less(s, masked))

    return program


def smaller(row: list[int]) -> list[int]:
    return [int(a < b) for a, b in itertools.combinations(row, 2)]


CLOSE = [
    0,
    1,
    -1,
    15,
    16,
    17,
    2**31,
    2**32 - 1,
    2**32,
    -(2**32),
    LARGEST,
    LARGEST - 1,
    -LARGEST,
    1 - LARGEST,
]


@some
@given(parties, seeds, st.lists(in_range, min_size=2, max_size=14))
@example(2, 0, CLOSE)
@example(3, 1, [LARGEST, -LARGEST, LARGEST, -LARGEST, 0])
@example(5, 2, [7] * 6)
@example(1, 0, [-LARGEST, LARGEST])
@example(2, 3, EDGES[:40])
def test_all_pairs(n: int, seed: int, x: list[int]) -> None:
    """Two rounds after the masking; 5 bytes opened and 352 dealt a pair. Equal numbers are not
    smaller.
    """
    done = run(comparing(x, seed), n, seed)
    assert xored(done.results).tolist() == smaller(x)
    count = len(x) * (len(x) - 1) // 2
    assert (done.rounds, done.sent) == (3, 8 * len(x) + 5 * count)
    assert [one.shares for one in done.plan.rounds] == [8 * len(x), 4 * count, count]
    assert (done.plan.sizes.table, done.plan.sizes.bits) == (352 * count, 5 * count)
    assert done.plan.sizes.wide == done.plan.sizes.narrow == 0


@pytest.mark.parametrize("n", PARTIES)
def test_neighbours_of_every_size_in_both_orders(n: int) -> None:
    rows = [[x, x + by] for x in EDGES for by in (-1, 0, 1) if abs(x + by) <= LARGEST]
    rows += [[a, b] for a in CLOSE for b in CLOSE]
    rows += [[b, a] for a, b in rows]
    done = run(comparing(rows), n, seed=n)
    assert xored(done.results)[:, 0].tolist() == [int(a < b) for a, b in rows]


@pytest.mark.parametrize("masks", HARD_MASKS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_masks_at_the_edges(n: int, masks: tuple[bytes, ...]) -> None:
    rows = [[a, b] for a in CLOSE for b in CLOSE]

    same = repeated(*masks)

    def apart(key: bytes, counter: int, length: int) -> bytes:
        """The two numbers of a pair have different masks: the second one's are turned around."""
        data = np.frombuffer(same(key, counter, length), np.uint8).copy()
        numbers = data[: length // 16 * 16].reshape(-1, 2, 8)
        numbers[:, 1] = numbers[:, 1, ::-1]
        return data.tobytes()

    for pattern in (repeated(*masks), apart):
        with streams(pattern):
            seen = watch(comparing(rows), n)
        assert xored(seen.results)[:, 0].tolist() == [int(a < b) for a, b in rows]


@pytest.mark.parametrize("n", [1, 2])
def test_only_plain_masks_are_compared(n: int) -> None:
    """Of what was truncated the hidden part depends on a sign that the dealer does not know."""

    def program(s):
        cut = s.truncate(shared(s, [5, 6]), 1)
        yield
        return (yield from less(s, cut))

    with pytest.raises(AssertionError):
        run(program, n)


def all_of(rows, seed: int = 0):
    def program(s):
        return (yield from every(s, shared_bits(s, rows, 1, seed)))

    return program


@pytest.mark.parametrize("count", range(1, 131))
def test_all_of_them(count: int) -> None:
    """All ones, one zero at every place, all zeros, and random bits; bytes and rounds as stated."""
    rows = np.vstack([np.ones(count), 1 - np.eye(count), np.zeros(count), np.eye(count)[0]]).astype(
        int
    )
    n = PARTIES[count % 5]
    done = run(all_of(rows, seed=count), n, seed=count)
    assert xored(done.results).tolist() == [int(row.all()) for row in rows]
    sizes = table_sizes(count)
    assert done.rounds == len(sizes) == (1 if count <= 11 else 2 if count <= 121 else 3)
    opened = sum(tables * (1 if size <= 8 else 2) for tables, size in sizes)
    dealt = sum(tables * (2 ** (size - 3) if size >= 3 else 1) for tables, size in sizes)
    assert (done.sent, done.plan.sizes.table) == (len(rows) * opened, len(rows) * dealt)


@some
@given(parties, seeds, st.lists(st.booleans(), min_size=1, max_size=60))
def test_all_of_random_bits(n: int, seed: int, bits: list[bool]) -> None:
    assert xored(run(all_of([bits], seed), n, seed).results).tolist() == [int(all(bits))]


def test_bits_that_were_looked_up_go_on() -> None:
    """A result of a table is the input of another one."""
    rows = [[1] * 30, [1] * 29 + [0]]

    def program(s):
        one = yield from every(s, shared_bits(s, rows))
        both = Bits(s, one.share[..., None]) ^ 1
        return (yield from every(s, both.join(both)))

    assert xored(run(program, 3).results).tolist() == [0, 1]
