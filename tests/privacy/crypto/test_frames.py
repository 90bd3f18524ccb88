"""Sealed frames: vectors, what makes one fail to open, rekeying, and that none names its sender."""

from __future__ import annotations

import inspect

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import FrameError
from posse.privacy.crypto.frames import (
    FRAMES_PER_KEY,
    NONCE_BYTES,
    OVERHEAD,
    STRETCH,
    ClearFrames,
    Frames,
)

ROOT, RUN = bytes(range(32)), bytes(range(100, 132))
PLAIN = bytes(range(40))


def frames(
    root: bytes = ROOT, run: bytes = RUN, direction: bytes = b"scores", per_index: int = 10
) -> Frames:
    return Frames(root, run, direction, per_index)


def derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, None, info).derive(secret)


def raw_key(epoch: int, direction: bytes = b"scores") -> AESGCM:
    """The key of an epoch by the definition, from `cryptography` alone."""
    return AESGCM(
        derived(
            derived(ROOT, b"posse frames " + direction),
            b"posse epoch" + epoch.to_bytes(8, "little"),
        )
    )


def indices_of_a_key(per_index: int) -> int:
    """How many indices one key serves: whole stretches, and no more than 2^20 frames."""
    return FRAMES_PER_KEY // per_index // STRETCH * STRETCH


def raw_frame(index: int, plaintext: bytes, nonce: bytes) -> bytes:
    sealed = raw_key(index // indices_of_a_key(10)).encrypt(
        nonce, plaintext, RUN + b"scores" + index.to_bytes(8, "little")
    )
    return b"\x01" + nonce + sealed


VECTORS = [
    (0, b"", b"\x00" * 12, "01000000000000000000000000b071e9edf541a573e330daea0fcf1be8"),
    (
        7,
        PLAIN,
        bytes(range(12)),
        "01000102030405060708090a0b7187ef27419a32fb75849f0a9dc102b9509e0ed776a496a7a17711"
        "078fc42ab984371f34d0b1085d39e795621ce0c4acb50bfa10a77cfdfe",
    ),
    (
        2**20,
        b"\xff" * 40,
        b"\xaa" * 12,
        "01aaaaaaaaaaaaaaaaaaaaaaaa10d24ff13f75d27674d8d3beeee194a2fbe4be262e8ec17aa0ef3f"
        "84c5234db2f96504ddff03c31fd16d351706af060fa7b5ecde4b16335d",
    ),
]


@pytest.mark.parametrize(("index", "plaintext", "nonce", "frame"), VECTORS)
def test_a_frame_is_what_it_always_was(
    index: int, plaintext: bytes, nonce: bytes, frame: str
) -> None:
    assert raw_frame(index, plaintext, nonce).hex() == frame
    assert frames().open(index, bytes.fromhex(frame)) == plaintext


@settings(deadline=None)
@given(st.binary(max_size=100), st.integers(0, 2**32))
def test_a_sealed_frame_opens_and_is_the_raw_one(plaintext: bytes, index: int) -> None:
    sealed = frames().seal(index, plaintext)
    assert frames().open(index, sealed) == plaintext
    assert sealed == raw_frame(index, plaintext, sealed[1:13])
    assert len(sealed) == len(plaintext) + OVERHEAD


SEALED = frames().seal(5, PLAIN)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 8 * len(SEALED) - 1))
def test_any_altered_bit_is_refused(bit: int) -> None:
    altered = bytearray(SEALED)
    altered[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        frames().open(5, bytes(altered))


@settings(deadline=None)
@given(st.integers(0, len(SEALED) - 1))
def test_a_truncated_or_lengthened_frame_is_refused(length: int) -> None:
    with pytest.raises(FrameError):
        frames().open(5, SEALED[:length])
    with pytest.raises(FrameError):
        frames().open(5, SEALED + bytes(length + 1))


@pytest.mark.parametrize(
    ("other", "index"),
    [
        (frames(run=bytes(32)), 5),
        (frames(direction=b"replies"), 5),
        (frames(root=bytes(32)), 5),
        (frames(), 4),
        (frames(), 6),
        (frames(), 5 + 2**32),
    ],
    ids=["run", "direction", "key", "index-before", "index-after", "index-far"],
)
def test_a_frame_of_another_run_direction_key_or_index_is_refused(
    other: Frames, index: int
) -> None:
    with pytest.raises(FrameError, match="does not open"):
        other.open(index, SEALED)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_by_name(version: int) -> None:
    with pytest.raises(FrameError, match="expected frames of version 1"):
        frames().open(5, bytes([version]) + SEALED[1:])


def batch(count: int) -> list[bytes]:
    return [frames().seal(5, bytes([i]) * 40) for i in range(count)]


def test_a_batch_opens_in_its_order() -> None:
    sealed = batch(4)
    assert frames().open_all(5, b"".join(sealed), 4) == [bytes([i]) * 40 for i in range(4)]
    assert frames().open_all(5, b"".join(sealed[::-1]), 4) == [
        bytes([i]) * 40 for i in range(3, -1, -1)
    ]


def test_a_frame_sent_twice_in_a_batch_is_refused() -> None:
    first, second, third = batch(3)
    with pytest.raises(FrameError, match="same nonce"):
        frames().open_all(5, first + second + first, 3)
    copied = third[:1] + first[1:13] + third[13:]
    with pytest.raises(FrameError):
        frames().open_all(5, first + second + copied, 3)


def test_a_batch_with_parts_swapped_between_frames_is_refused() -> None:
    first, second = batch(2)
    swapped = first[:13] + second[13:] + second[:13] + first[13:]
    with pytest.raises(FrameError, match="does not open"):
        frames().open_all(5, swapped, 2)
    tags = first[:-16] + second[-16:] + second[:-16] + first[-16:]
    with pytest.raises(FrameError, match="does not open"):
        frames().open_all(5, tags, 2)


def test_a_batch_of_another_count_or_with_one_bad_frame_is_refused() -> None:
    sealed = batch(3)
    for data, count in ((sealed[:2], 3), (sealed, 2), (sealed, 4)):
        with pytest.raises(FrameError):
            frames().open_all(5, b"".join(data), count)
    with pytest.raises(FrameError):
        frames().open_all(5, b"".join([*sealed[:2], frames().seal(6, sealed[2][13:-16])]), 3)
    with pytest.raises(FrameError):
        frames().open_all(5, b"", 3)


def test_sealing_takes_no_sender() -> None:
    """Nothing that names an owner can enter a frame: there is no argument for it."""
    assert list(inspect.signature(Frames.seal).parameters) == ["self", "index", "plaintext"]
    assert list(inspect.signature(Frames.__init__).parameters) == [
        "self",
        "root",
        "run",
        "direction",
        "per_index",
    ]


def test_all_frames_of_a_run_have_one_length_and_different_nonces() -> None:
    sealer = frames()
    sealed = [sealer.seal(index, PLAIN) for index in range(3000)]
    assert {len(frame) for frame in sealed} == {40 + OVERHEAD}
    assert len({frame[1 : 1 + NONCE_BYTES] for frame in sealed}) == 3000
    assert sealer.seal(5, PLAIN) != sealer.seal(5, PLAIN)


@pytest.mark.parametrize("per_index", [1, 10, 100, 4096])
def test_a_key_seals_no_more_than_its_share_and_both_ends_change_it_together(
    per_index: int,
) -> None:
    last = indices_of_a_key(per_index) - 1
    assert (last + 1) * per_index <= FRAMES_PER_KEY
    sealer, opener = frames(per_index=per_index), frames(per_index=per_index)
    before, after = sealer.seal(last, PLAIN), sealer.seal(last + 1, PLAIN)
    assert opener.open(last, before) == opener.open(last + 1, after) == PLAIN
    assert opener.open(last, before) == PLAIN  # a late one of the key before still opens

    def opens(epoch: int, index: int, frame: bytes) -> bool:
        try:
            raw_key(epoch).decrypt(
                frame[1:13], frame[13:], RUN + b"scores" + index.to_bytes(8, "little")
            )
        except InvalidTag:
            return False
        return True

    assert (opens(0, last, before), opens(1, last, before)) == (True, False)
    assert (opens(0, last + 1, after), opens(1, last + 1, after)) == (False, True)


def test_clear_frames_keep_their_shape_and_refuse_sealed_ones() -> None:
    clear = ClearFrames()
    assert clear.open(3, clear.seal(3, PLAIN)) == PLAIN
    assert clear.open_all(3, clear.seal(3, b"ab") + clear.seal(3, b"cd"), 2) == [b"ab", b"cd"]
    with pytest.raises(FrameError):
        clear.open(3, SEALED)
