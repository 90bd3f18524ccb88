"""Seeds of pairs and digests of sets: separation of runs and sets, and the RFC vectors below them."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.pairwise import pair_seed, present_digest

MANIFEST = hashlib.sha256(b"a manifest").digest()
ANOTHER = hashlib.sha256(b"another manifest").digest()

# RFC 7748, section 6.1.
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def agree(me: str = "alice", other: str = "bob", manifest: bytes = MANIFEST) -> bytes:
    alice = X25519PrivateKey.from_private_bytes(ALICE)
    return pair_seed(
        alice, X25519PublicKey.from_public_bytes(BOB_PUBLIC), me=me, other=other, manifest=manifest
    )


def test_seeds_are_symmetric_and_follow_the_rfc_7748_vector() -> None:
    bob = X25519PrivateKey.from_private_bytes(BOB)
    alice_public = X25519PublicKey.from_public_bytes(ALICE_PUBLIC)
    at_bob = pair_seed(bob, alice_public, me="bob", other="alice", manifest=MANIFEST)
    parts = [b"posse/pairwise/seed", b"1", MANIFEST, b"alice", ALICE_PUBLIC, b"bob", BOB_PUBLIC]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    # HKDF by hand from the RFC's shared secret: extract with a zero salt, expand one block.
    extracted = hmac.digest(bytes(32), SHARED, "sha256")
    assert agree() == at_bob == hmac.digest(extracted, info + b"\x01", "sha256")


def test_hkdf_as_used_follows_rfc_5869_case_3() -> None:
    expected = (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )
    assert hkdf(b"\x0b" * 22, b"", 42).hex() == expected


def test_every_part_of_the_info_makes_another_seed() -> None:
    seeds = {
        agree(),
        agree(manifest=ANOTHER),
        agree(other="bo"),
        agree(me="alice2"),
        agree(me="aliceb", other="ob"),
        agree(me="bob", other="alice"),  # swapped names over the same keys
    }
    assert len(seeds) == 6


# Coordinates of points of small order, modulo p = 2^255 - 19: 0, 1, -1, and 0 and 1 written as p
# and p + 1.
@pytest.mark.parametrize("u", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_all_zero_secrets_are_refused(u: int) -> None:
    peer = X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))
    with pytest.raises(ProtocolError, match="all zeros"):
        pair_seed(X25519PrivateKey.generate(), peer, me="a", other="b", manifest=MANIFEST)


def test_seeds_that_protect_nothing_are_refused() -> None:
    key = X25519PrivateKey.generate()
    with pytest.raises(ProtocolError, match="key of its own"):
        pair_seed(key, key.public_key(), me="a", other="b", manifest=MANIFEST)
    with pytest.raises(ProtocolError, match="distinct"):
        agree(me="bob")
    with pytest.raises(ProtocolError, match="distinct"):
        agree(other="")
    with pytest.raises(ConfigError, match="32 bytes, got 0"):
        agree(manifest=b"")


def test_the_present_digest_is_of_a_set_and_of_a_run() -> None:
    digest = present_digest(["ada", "bob", "cy"], MANIFEST)
    assert digest == present_digest(("cy", "ada", "bob"), MANIFEST)
    others = [["ada", "bob"], ["ada", "bobcy"], ["adabob", "cy"], ["ada", "bob", "cy", "dee"]]
    digests = {
        digest,
        present_digest(["ada", "bob", "cy"], ANOTHER),
        *(present_digest(o, MANIFEST) for o in others),
    }
    assert len(digests) == 6
    with pytest.raises(ProtocolError, match="distinct"):
        present_digest(["ada", "ada"], MANIFEST)
    with pytest.raises(ConfigError, match="32 bytes"):
        present_digest(["ada"], b"short")
