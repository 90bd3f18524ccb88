"""The root of a party's secrets: vectors, independent purposes, and no way out but the one that is
asked for.
"""

from __future__ import annotations

import copy
import hmac
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.privacy.crypto.keys import LARGEST_KEY, Secrets

ROOT = bytes(range(32))
SECRETS = Secrets(ROOT)


def by_definition(root: bytes, purpose: bytes, context: bytes, size: int) -> bytes:
    """RFC 5869 written out: extract with a salt of zeros, expand with a counter."""
    parts = (b"posse/secrets/1", purpose, context, size.to_bytes(4, "big"))
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    key, block, out = hmac.digest(bytes(32), root, "sha256"), b"", b""
    while len(out) < size:
        block = hmac.digest(key, block + info + bytes([len(out) // 32 + 1]), "sha256")
        out += block
    return out[:size]


@pytest.mark.parametrize(
    ("purpose", "size", "context", "wanted"),
    [
        (b"tokens", 32, b"", "2b9b14ea1fade5b605eb2ca240360ef0dcfd119ce1032cd5791ee2e1bbb20bb1"),
        (b"tokens", 8, b"", "1fcccc9851d648ef"),
    ],
)
def test_vectors(purpose: bytes, size: int, context: bytes, wanted: str) -> None:
    """A change here would make every kept root useless."""
    assert SECRETS.key(purpose, size, context=context).hex() == wanted
    assert SECRETS.number(b"tokens", context=b"run") == 12075992347412323253


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=1, max_size=40), st.binary(max_size=40), st.integers(1, 200))
def test_definition(purpose: bytes, context: bytes, size: int) -> None:
    assert SECRETS.key(purpose, size, context=context) == by_definition(
        ROOT, purpose, context, size
    )


def test_purposes_contexts_sizes_and_roots_are_independent() -> None:
    asked = [
        (b"ab", b"c"),
        (b"a", b"bc"),
        (b"abc", b""),
        (b"ab", b"c\0"),
        (b"ab\0", b"c"),
        (b"a", b""),
    ]
    keys = {
        Secrets(root).key(purpose, size, context=context)[:8]
        for root in (ROOT, bytes(32))
        for purpose, context in asked
        for size in (8, 16, 32, 33, 64)
    }
    assert len(keys) == 2 * 6 * 5  # and no key is the beginning of a longer one


def test_fresh_roots_differ_and_are_exported_on_request() -> None:
    first, second = Secrets.fresh(), Secrets.fresh()
    assert first.export() != second.export()
    assert Secrets(first.export()).key(b"a") == first.key(b"a") != second.key(b"a")


def test_the_root_does_not_leave_by_accident() -> None:
    for words in (repr(SECRETS), str(SECRETS), f"{SECRETS}", repr([SECRETS])):
        assert "withheld" in words
        assert ROOT.hex() not in words
        assert repr(ROOT)[2:-1] not in words
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            pickle.dumps(SECRETS, protocol)
    for leave in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            leave(SECRETS)
    assert not hasattr(SECRETS, "__dict__")
    assert not hasattr(SECRETS, "root")


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_root_has_32_bytes(size: int) -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        Secrets(bytes(size))


@pytest.mark.parametrize(
    ("purpose", "size"), [(b"", 32), (b"a", 0), (b"a", -1), (b"a", LARGEST_KEY + 1)]
)
def test_keys_that_cannot_be(purpose: bytes, size: int) -> None:
    with pytest.raises(ConfigError, match="a key needs a purpose"):
        SECRETS.key(purpose, size)
    assert len(SECRETS.key(b"a", LARGEST_KEY)) == LARGEST_KEY
