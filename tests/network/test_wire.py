"""Frames on a connection: strict, bounded, and indifferent to how the stream is cut."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.runtime.network.wire import (
    LARGEST_FRAME,
    Data,
    Hello,
    Kept,
    Missing,
    Reader,
    Refused,
    WireError,
    pack,
)

NUMBERS, WORDS = st.integers(0, 2**63 - 1), st.text(max_size=9)
FRAMES = st.one_of(
    st.builds(
        Hello,
        NUMBERS,
        WORDS,
        WORDS,
        NUMBERS,
        WORDS,
        WORDS,
        NUMBERS,
        NUMBERS,
        st.dictionaries(WORDS, WORDS),
    ),
    st.builds(Data, NUMBERS, st.binary(max_size=200)),
    st.builds(Kept, NUMBERS),
    st.builds(Refused, st.text(max_size=50)),
    st.builds(Missing, st.dictionaries(WORDS, WORDS), st.booleans()),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_survive_any_cutting_of_the_stream(frames, cuts):
    stream, reader, found, at = b"".join(map(pack, frames)), Reader(LARGEST_FRAME), [], 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        found += reader.feed(stream[at : at + size])
        at += size
    assert found == frames


def test_a_length_above_the_cap_is_refused_before_anything_is_held():
    reader = Reader(100)
    with pytest.raises(WireError, match="largest allowed is 100"):
        list(reader.feed(struct.pack("<I", 101)))
    assert list(Reader(100).feed(pack(Kept(1)))) == [Kept(1)]


def mutations(frame, data):
    """One of: a byte changed, cut short, made longer, another number of fields, another type."""
    body = bytearray(pack(frame)[4:])
    kind = data.draw(st.sampled_from(["change", "cut", "grow", "field", "type"]))
    if kind == "change":
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    elif kind == "grow":
        body += data.draw(st.binary(min_size=1, max_size=20))
    elif isinstance(frame, Data | Kept):
        body = bytearray(msgspec.msgpack.encode([type(frame).__name__, *frame]))
    else:
        fields = msgspec.to_builtins(frame, builtin_types=(bytes,))
        fields = [*fields, 1] if kind == "field" else [fields[0], *([None] * (len(fields) - 1))]
        body = bytearray(msgspec.msgpack.encode(fields))
    return bytes(body)


@settings(deadline=None, max_examples=1500)
@given(FRAMES, st.data())
def test_what_is_not_a_frame_is_refused_or_is_another_frame(frame, data):
    body = mutations(frame, data)
    reader = Reader(LARGEST_FRAME)
    try:
        (found,) = reader.feed(struct.pack("<I", len(body)) + body)
    except WireError:
        return
    assert isinstance(found, Hello | Data | Kept | Missing | Refused)
    if isinstance(found, Data | Kept):
        assert pack(found)[4:] == body
    else:
        assert msgspec.msgpack.decode(pack(found)[4:]) == msgspec.msgpack.decode(body)


def test_frames_of_messages_of_one_size_have_one_size():
    sizes = {
        len(pack(Data(number, b"score")))
        for number in (0, 1, 127, 128, 255, 256, 65_535, 1 << 40, (1 << 64) - 1)
    }
    assert sizes == {4 + 9 + 5}
    assert len({len(pack(Kept(number))) for number in (0, 127, 128, 1 << 40)}) == 1


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=300))
def test_noise_never_breaks_the_reader(noise):
    reader = Reader(1 << 12)
    try:
        list(reader.feed(noise))
    except WireError:
        return
    assert len(reader._buffer) <= (1 << 12) + 4
