"""Pairwise masks: cancellation, separation of runs and sets, and the RFC vectors below them."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Sequence

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.pairwise import MODULUS, mask, pair_seed, present_digest

MANIFEST = hashlib.sha256(b"a manifest").digest()
ANOTHER = hashlib.sha256(b"another manifest").digest()

# RFC 7748, section 6.1.
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")

names = st.lists(
    st.text(min_size=1, max_size=8).filter(lambda s: s.isprintable()),
    min_size=2,
    max_size=20,
    unique=True,
)


def seeds_of(me: str, present: Iterable[str], run: bytes = b"") -> dict[str, bytes]:
    """Stand in for the agreements: any function of the unordered pair makes symmetric seeds."""
    return {
        other: hashlib.sha256(repr((*sorted([me, other]), run)).encode()).digest()
        for other in present
        if other != me
    }


def masks(present: Sequence[str], context: bytes, run: bytes = b"") -> dict[str, int]:
    return {me: mask(seeds_of(me, present, run), me, present, context) for me in present}


def agree(me: str = "alice", other: str = "bob", manifest: bytes = MANIFEST) -> bytes:
    alice = X25519PrivateKey.from_private_bytes(ALICE)
    return pair_seed(
        alice, X25519PublicKey.from_public_bytes(BOB_PUBLIC), me=me, other=other, manifest=manifest
    )


@settings(deadline=None)
@given(names, st.binary(min_size=1, max_size=40))
def test_masks_cancel_over_the_present_owners_in_any_order(
    present: list[str], context: bytes
) -> None:
    total = masks(present, context)
    assert all(0 <= value < MODULUS for value in total.values())
    assert sum(total.values()) % MODULUS == 0
    assert masks(present[::-1], context) == {name: total[name] for name in present[::-1]}


@settings(deadline=None)
@given(names, st.data())
def test_the_masked_sum_is_the_sum(present: list[str], data: st.DataObject) -> None:
    numbers = data.draw(
        st.lists(st.integers(0, 2**100), min_size=len(present), max_size=len(present))
    )
    added = masks(present, present_digest(present, MANIFEST))
    sent = [(x + added[name]) % MODULUS for x, name in zip(numbers, present, strict=True)]
    # The integer sum exceeds 2^128; its reader reduces it, as the customer does with the Paillier
    # plaintext.
    assert sum(sent) % MODULUS == sum(numbers) % MODULUS


@settings(deadline=None)
@given(names)
def test_without_one_owner_nothing_cancels(present: list[str]) -> None:
    """A sum of fewer than all masks is 0 with a chance of 2^-128."""
    total = masks(present, b"ctx")
    for absent in present:
        assert sum(value for name, value in total.items() if name != absent) % MODULUS != 0


@pytest.mark.parametrize("count", range(2, 21))
def test_real_agreements_cancel(count: int) -> None:
    present = [f"owner-{i}" for i in range(count)]
    keys = {name: X25519PrivateKey.generate() for name in present}
    context = present_digest(present, MANIFEST)
    total = 0
    for me in present:
        seeds = {
            other: pair_seed(
                keys[me], keys[other].public_key(), me=me, other=other, manifest=MANIFEST
            )
            for other in present
            if other != me
        }
        total += mask(seeds, me, present, context)
    assert total % MODULUS == 0


def test_a_mask_from_its_definition() -> None:
    """Owner b of a, b, c: plus F with c, minus F with a."""

    def part(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    seeds = {"c": bytes(range(32)), "a": bytes(range(32, 64))}
    present = b"".join(map(part, [b"posse/pairwise/present", b"1", bytes(32), b"a", b"b", b"c"]))
    message = b"".join(
        map(part, [b"posse/pairwise/mask", b"1", b"ctx", hashlib.sha256(present).digest()])
    )
    plus, minus = (int(hmac.new(seeds[j], message, "sha256").hexdigest()[:32], 16) for j in "ca")
    assert mask(seeds, "b", ["c", "b", "a"], b"ctx") == (plus - minus) % 2**128
    assert (plus - minus) % 2**128 == 0x2F6F5FCBD33A51F851F3B6C94E6760C1


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


def test_masks_are_refused_outside_their_rule() -> None:
    present = ["a", "b", "c"]
    seeds = seeds_of("a", present)
    with pytest.raises(ProtocolError, match="not among the present"):
        mask(seeds, "d", present, b"ctx")
    with pytest.raises(ProtocolError, match="distinct"):
        mask(seeds, "a", ["a", "b", "b", "c"], b"ctx")
    with pytest.raises(ProtocolError, match="at least 2"):
        mask({}, "a", ["a"], b"ctx")
    with pytest.raises(ProtocolError, match=r"missing: \['c'\]"):
        mask({"b": seeds["b"]}, "a", present, b"ctx")
    with pytest.raises(ProtocolError, match=r"not among them: \['d'\]"):
        mask({**seeds, "d": bytes(32)}, "a", present, b"ctx")
    with pytest.raises(ProtocolError, match=r"not among them: \['a'\]"):
        mask({**seeds, "a": bytes(32)}, "a", present, b"ctx")
    with pytest.raises(ConfigError, match="32 bytes"):
        mask({**seeds, "b": bytes(31)}, "a", present, b"ctx")
    with pytest.raises(ConfigError, match="empty"):
        mask(seeds, "a", present, b"")


def largest_bit_bias(values: Sequence[int]) -> float:
    """The largest |z| over the 128 bits, where z compares a bit's count with a fair coin's."""
    n = len(values)
    counts = [sum(value >> bit & 1 for value in values) for bit in range(128)]
    return max(abs(2 * count - n) / math.sqrt(n) for count in counts)


DRAWS = 4096
LIMIT = 5.0


def test_the_uniformity_check_has_its_power() -> None:
    """A stuck bit, and one that is set in 9 cases of 16, are found."""
    good = [
        value["a"]
        for value in (masks(["a", "b"], i.to_bytes(4, "big")) for i in range(1, DRAWS + 1))
    ]
    assert largest_bit_bias([value | 1 << 77 for value in good]) > LIMIT
    assert largest_bit_bias([value | (i % 8 == 0) << 77 for i, value in enumerate(good)]) > LIMIT


@pytest.mark.parametrize("difference", ["alone", "another set", "another run", "another context"])
def test_masks_and_their_differences_look_uniform(difference: str) -> None:
    """Each of 128 bits is a fair coin, for a mask and for what is left of it after another is
    subtracted.

    4096 draws, |z| <= 5: a false alarm has a chance of 128 * 6e-7 = 7e-5 (the draws are fixed, so
    it is all or never), and a bit that is off by 0.07 gives z = 9 and is missed with a chance of
    4e-5.
    """
    values = []
    for i in range(DRAWS):
        context = b"c" + i.to_bytes(4, "big")
        value = masks(["a", "b", "c"], context)["b"]
        if difference == "another set":
            value -= masks(["a", "b"], context)["b"]
        elif difference == "another run":
            value -= masks(["a", "b", "c"], context, b"again")["b"]
        elif difference == "another context":
            value -= masks(["a", "b", "c"], context + b"'")["b"]
        values.append(value % MODULUS)
    assert len(set(values)) == DRAWS
    assert largest_bit_bias(values) <= LIMIT


def test_masks_of_neighbours_alone_cancel_too() -> None:
    """A ring of six: each masks with the two beside it."""
    present = list("abcdef")
    near = {name: [present[i - 1], present[(i + 1) % 6]] for i, name in enumerate(present)}
    seeds = {
        name: {other: seeds_of(name, present)[other] for other in near[name]} for name in present
    }
    masks = [mask(seeds[name], name, present, b"ctx", near[name]) for name in present]
    assert sum(masks) % MODULUS == 0
    assert len(set(masks)) == 6
    with pytest.raises(ProtocolError, match=r"missing: \['f'\]"):
        mask({"b": seeds["a"]["b"]}, "a", present, b"ctx", near["a"])
