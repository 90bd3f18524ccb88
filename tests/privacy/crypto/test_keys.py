"""Keys: the RFC's vector, one purpose a signature, one reader a sealed secret, and private keys
that stay.
"""

from __future__ import annotations

import copy
import pickle

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ProtocolError
from posse.privacy.crypto.keys import (
    Identity,
    RunKey,
    check_commitment,
    commitment,
    fingerprint,
    hkdf,
    seal_to,
    verify,
)

IDENTITY = Identity()
RUN_KEY = RunKey()
SECRET = bytes(range(32))


def test_hkdf_gives_the_answer_of_rfc_5869() -> None:
    """Appendix A.3: SHA-256, no salt, no info."""
    wanted = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    assert hkdf(b"\x0b" * 22, b"", 42).hex() == wanted


def test_hkdf_gives_another_key_for_another_purpose() -> None:
    assert len({hkdf(SECRET, info) for info in (b"", b"a", b"b", b"ab")}) == 4
    assert len(hkdf(SECRET, b"a")) == 32


def test_a_signature_verifies_for_its_purpose_data_and_key_only() -> None:
    signature = IDENTITY.sign(b"consent", b"digest")
    verify(IDENTITY.public, b"consent", b"digest", signature)
    for public, purpose, data in (
        (IDENTITY.public, b"manifest", b"digest"),
        (IDENTITY.public, b"consent", b"another"),
        (Identity().public, b"consent", b"digest"),
    ):
        with pytest.raises(ProtocolError, match="does not verify"):
            verify(public, purpose, data, signature)


def test_purpose_and_data_cannot_be_cut_elsewhere() -> None:
    signature = IDENTITY.sign(b"go", b"ahead")
    with pytest.raises(ProtocolError):
        verify(IDENTITY.public, b"goa", b"head", signature)
    with pytest.raises(ProtocolError):
        verify(IDENTITY.public, b"g", b"oahead", signature)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=80))
def test_rubbish_is_no_signature_and_no_public_key(rubbish: bytes) -> None:
    with pytest.raises(ProtocolError):
        verify(IDENTITY.public, b"consent", b"digest", rubbish)
    with pytest.raises(ProtocolError):
        verify(rubbish, b"consent", b"digest", IDENTITY.sign(b"consent", b"digest"))


def test_a_sealed_secret_opens_for_its_reader_and_purpose_only() -> None:
    sealed = seal_to(RUN_KEY.public, SECRET, b"keys for owner-1")
    assert RUN_KEY.open(sealed, b"keys for owner-1") == SECRET
    assert SECRET not in sealed
    assert sealed != seal_to(RUN_KEY.public, SECRET, b"keys for owner-1")
    for reader, info in (
        (RUN_KEY, b"keys for owner-2"),
        (RUN_KEY, b""),
        (RunKey(), b"keys for owner-1"),
    ):
        with pytest.raises(ProtocolError, match="another party or run"):
            reader.open(sealed, info)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_an_altered_or_truncated_sealed_secret_does_not_open(data: st.DataObject) -> None:
    sealed = seal_to(RUN_KEY.public, SECRET, b"info")
    altered = bytearray(sealed)
    altered[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 6))
    with pytest.raises(ProtocolError):
        RUN_KEY.open(bytes(altered), b"info")
    with pytest.raises(ProtocolError):
        RUN_KEY.open(sealed[: data.draw(st.integers(0, len(sealed) - 1))], b"info")


def test_a_commitment_binds_to_secret_and_label() -> None:
    committed = commitment(SECRET, b"frame")
    check_commitment(SECRET, b"frame", committed)
    assert SECRET not in committed
    for secret, label in (
        (bytes(32), b"frame"),
        (SECRET, b"own"),
        (SECRET[1:], b"frame" + SECRET[:1]),
    ):
        with pytest.raises(ProtocolError, match="commitment"):
            check_commitment(secret, label, committed)
    with pytest.raises(ProtocolError):
        check_commitment(SECRET, b"frame", committed[:-1])


@pytest.mark.parametrize("key", [IDENTITY, RUN_KEY], ids=["identity", "run-key"])
def test_a_private_key_does_not_leave_its_process(key: Identity | RunKey) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="does not leave"):
            pickle.dumps(key, protocol)
    for leave in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave"):
            leave(key)


def test_a_private_key_has_no_secret_in_its_words() -> None:
    raw = RUN_KEY.private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    for words in (
        repr(RUN_KEY),
        str(RUN_KEY),
        repr(RUN_KEY.private),
        repr(IDENTITY),
        str(IDENTITY),
    ):
        assert raw.hex() not in words
        assert repr(raw)[2:-1] not in words
        assert str(int.from_bytes(raw, "big")) not in words
    number = IDENTITY._key.private_numbers().private_value
    assert str(number) not in repr(IDENTITY) + repr(IDENTITY._key)
    assert f"{number:x}" not in repr(IDENTITY) + repr(IDENTITY._key)


def test_a_fingerprint_is_short_and_of_one_key() -> None:
    assert len(fingerprint(IDENTITY.public)) == 16
    assert fingerprint(IDENTITY.public) != fingerprint(Identity().public)
    assert fingerprint(IDENTITY.public) == fingerprint(bytes(IDENTITY.public))
