"""Paillier against its definition, fixed vectors, another implementation, and what a stranger may
send.
"""

from __future__ import annotations

import copy
import math
import pickle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto import paillier
from posse.privacy.crypto.paillier import Ciphertext, PrivateKey, PublicKey, generate_key, sum_of

# A toy key: 512 bits, primes printed here, fit for vectors and nothing else.
P = 0xDFD82F91F9304B166E5BE1028A16A9405A7073E3CDCE7BA26EB6E879FE583861
Q = 0xDBA82BC4C1581BF87C128B70A1B133B3AC64B00C05A08580CAA4DD5EC4DD9AA1
TOY = PrivateKey(P, Q, insecure_small_keys=True)
OTHER = PrivateKey(293, 433, insecure_small_keys=True)
N = P * Q

# (m, r, c), made by pure Python from c = (1 + m n) r^n mod n^2.
VECTORS = [
    (
        0,
        "1f40fc92da241694750979ee6cf582f2d5d7d28e18335de05abc54d0560e0f53"
        "02860c652bf08d560252aa5e74210546f369fbbbce8c12cfc7957b2652fe9a75",
        "52b825880af61f9325d78ae3ede57c246be0eb2f98198bd56116e008f496ff9c"
        "8171e332f90ab05f6867aa05968b2d72e48b88b4a9063977f10a092f78952338"
        "78d635cb9c556f0991e33ab4684c5342655e76e0651aa3379aa185391af51900"
        "40181a1bb7775ea3f1900d40b2d469eed3d3cc7b91ad6685590605fc8d74b49f",
    ),
    (
        42,
        "5267768822ee624d48fce15ec5ca79cbd602cb7f4c2157a516556991f22ef8c7"
        "b5ef7b18d1ff41c59370efb0858651d44a936c11b7b144c48fe04df3c6a3e8da",
        "0fdf641ba1f4e83ef73f88cd4bf13007473195253eb4f987e6b29af676deb5b7"
        "7c4396eec428075a2125b70789d524b8d2c4b5e105a3f78342acf6148443a527"
        "257549e47f57914c6f22b795c31fbf8378f61c6ab7ae20d46e67862f90994a4b"
        "bf5ff5d89b5c429ea28a8999f61f0c4433b3fb4438c572103a18a69ac4484968",
    ),
    (
        2**128 - 1,
        "acc28db2beb7b42baa1cb0243d401ccb4e3fce44d7b02879a52799aadff54152"
        "2d8822598b2fa664f9d5156c00c924805d75c3868bd56c2acb81d37e98e35adc",
        "7945dd3d36219f7b383037ccf15d5a0cfa258dfce9a1cbc3360e5d6a72bec1c3"
        "947cbc9215b1016ff9a0b49bbd1785f9bb60d00beff718496ab24cae4afe4709"
        "f173852e43f88a280fe3158eaaa393781fd0f913f31b11b7095074db1b7e1170"
        "bf50503ba11573ddeb3b1bd990c8eb9948da1a4429dd653c4d941ce1a3119a85",
    ),
    (
        N - 1,
        "48fb10b15f3d44a09dc82d02b06581e0c0c69478c9fd2cf8f9093659019a1687"
        "baecdbb38c9e72b12169dc4148690f87467f9154f5931c5df665c6496cbfd5f5",
        "66c6f2618927e43ea5b400087a7157446103f7b226766ae3e553dd3921113471"
        "4f80ddaa12dd907d406714525d3429f19eac570ab1b633f6ea3fccb8ea55c4eb"
        "c753a6a185c86f787ed02d96daca3485d12f3e60f14911385b443bfb66ae996c"
        "5cc17540418a4ad58b799e2fcdde62bfd0733984de5f24b56b59c90b9a4050a5",
    ),
]

plaintexts = st.one_of(st.integers(0, N - 1), st.sampled_from([0, 1, N // 2, N - 1]))


@pytest.fixture(scope="module")
def real() -> PrivateKey:
    return generate_key(2048)


def textbook_decrypt(c: int, p: int, q: int) -> int:
    """m = L(c^lambda mod n^2) mu mod n, with lambda = lcm(p-1, q-1) and mu = L(g^lambda mod n^2)^-1
    mod n.
    """
    n, lam = p * q, math.lcm(p - 1, q - 1)
    mu = pow((pow(n + 1, lam, n * n) - 1) // n, -1, n)
    return (pow(c, lam, n * n) - 1) // n * mu % n


# The first by hand: n = 143, n^2 = 20449, 1 + 7 n = 1002, 2^143 mod 20449 = 13670, 1002 * 13670 mod
# 20449 = 16959.
@pytest.mark.parametrize(
    ("p", "q", "m", "r", "c"),
    [
        (11, 13, 7, 2, 16959),
        (11, 13, 142, 100, 11716),
        (293, 433, 521, 9001, 13404603728),
        (65521, 65519, 123456789, 987654321, 6019441400197181987),
    ],
)
def test_the_definition_on_small_primes(p: int, q: int, m: int, r: int, c: int) -> None:
    private, n = PrivateKey(p, q, insecure_small_keys=True), p * q
    assert (
        c
        == (1 + m * n) * pow(r, n, n * n) % (n * n)
        == pow(n + 1, m, n * n) * pow(r, n, n * n) % (n * n)
    )
    ciphertext = paillier._encrypt_with(private.public_key, m, r)
    assert ciphertext.value == c
    assert private.decrypt(ciphertext) == textbook_decrypt(c, p, q) == m


def test_every_plaintext_and_unit_of_a_tiny_key() -> None:
    private = PrivateKey(5, 7, insecure_small_keys=True)
    units = [r for r in range(1, 35) if math.gcd(r, 35) == 1]
    ciphertexts = {
        paillier._encrypt_with(private.public_key, m, r): m for m in range(35) for r in units
    }
    assert len(ciphertexts) == 35 * len(units)  # a bijection onto the units modulo n^2
    assert all(
        private.decrypt(c) == m == textbook_decrypt(c.value, 5, 7) for c, m in ciphertexts.items()
    )


@pytest.mark.parametrize(("m", "r", "c"), VECTORS)
def test_fixed_vectors(m: int, r: str, c: str) -> None:
    ciphertext = paillier._encrypt_with(TOY.public_key, m, int(r, 16))
    assert ciphertext.to_bytes().hex() == "01" + TOY.public_key.fingerprint[:16] + c
    assert TOY.decrypt(ciphertext) == textbook_decrypt(int(c, 16), P, Q) == m


def test_agrees_with_phe_both_ways(real: PrivateKey) -> None:
    phe = pytest.importorskip("phe")
    key = real.public_key
    theirs = phe.PaillierPublicKey(key.n)
    their_private = phe.PaillierPrivateKey(theirs, int(real._p), int(real._q))
    for m in (0, 1, 2**128 - 1, key.n - 1):
        assert their_private.raw_decrypt(key.encrypt(m).value) == m
        assert real.decrypt(Ciphertext(key, int(theirs.raw_encrypt(m)))) == m
        assert paillier._encrypt_with(key, m, 12345).value == theirs.raw_encrypt(m, r_value=12345)
    mixed = key.encrypt(20) + Ciphertext(key, int(theirs.raw_encrypt(22)))
    assert their_private.raw_decrypt(mixed.value) == real.decrypt(mixed) == 42


@settings(deadline=None, max_examples=50)
@given(plaintexts, plaintexts, plaintexts)
def test_homomorphism(a: int, b: int, k: int) -> None:
    key = TOY.public_key
    x, y = key.encrypt(a), key.encrypt(b)
    assert TOY.decrypt(x + y) == (a + b) % N
    assert TOY.decrypt(x + b) == TOY.decrypt(b + x) == (a + b) % N
    assert TOY.decrypt(x * k) == TOY.decrypt(k * x) == a * k % N


@settings(deadline=None, max_examples=30)
@given(st.lists(plaintexts, min_size=1, max_size=4))
def test_sums_of_many(numbers: list[int]) -> None:
    encrypted = [TOY.public_key.encrypt(m) for m in numbers]
    assert TOY.decrypt(sum_of(encrypted)) == sum(numbers) % N
    assert TOY.decrypt(sum(encrypted)) == sum(numbers) % N  # type: ignore[arg-type]


@settings(deadline=None, max_examples=50)
@given(plaintexts)
def test_rerandomising_changes_the_bytes_and_not_the_plaintext(m: int) -> None:
    first, second = TOY.public_key.encrypt(m), TOY.public_key.encrypt(m)
    fresh = first.rerandomise()
    assert len({first.to_bytes(), second.to_bytes(), fresh.to_bytes()}) == 3
    assert [TOY.decrypt(c) for c in (first, second, fresh)] == [m, m, m]


@settings(deadline=None, max_examples=50)
@given(plaintexts)
def test_bytes_round_trip_at_one_width(m: int) -> None:
    ciphertext = TOY.public_key.encrypt(m)
    data = ciphertext.to_bytes()
    assert len(data) == 1 + 8 + 128
    assert Ciphertext.from_bytes(data, TOY.public_key) == ciphertext


@settings(deadline=None, max_examples=200)
@given(plaintexts, st.integers(0, 1 + 8 + 128 - 1), st.integers(1, 255))
def test_an_altered_byte_never_leaves_the_plaintext(m: int, place: int, flip: int) -> None:
    """In the header it is refused. In c it is refused or another plaintext, but for a chance of
    1/n: not a MAC.
    """
    data = bytearray(TOY.public_key.encrypt(m).to_bytes())
    data[place] ^= flip
    if place < 9:
        with pytest.raises(ProtocolError):
            Ciphertext.from_bytes(bytes(data), TOY.public_key)
        return
    try:
        altered = Ciphertext.from_bytes(bytes(data), TOY.public_key)
    except ProtocolError:
        return
    assert TOY.decrypt(altered) != m


@pytest.mark.parametrize("length", [0, 1, 9, 136, 138])
def test_other_lengths_are_refused(length: int) -> None:
    data = (TOY.public_key.encrypt(1).to_bytes() + b"\0")[:length]
    with pytest.raises(ProtocolError, match="137 bytes"):
        Ciphertext.from_bytes(data, TOY.public_key)


@pytest.mark.parametrize("value", [0, -1, P, Q * 5, N, N * N, N * N + 1])
def test_values_that_are_no_ciphertext_are_refused(value: int) -> None:
    with pytest.raises(ProtocolError, match="prime to n"):
        Ciphertext(TOY.public_key, value)
    if 0 <= value < 1 << 1024:
        head = TOY.public_key.encrypt(1).to_bytes()[:9]
        with pytest.raises(ProtocolError, match="prime to n"):
            Ciphertext.from_bytes(head + value.to_bytes(128, "big"), TOY.public_key)


@pytest.mark.parametrize("bad", [-1, N, N + 1])
def test_plaintexts_and_scalars_out_of_range_are_refused_without_showing_them(bad: int) -> None:
    key = TOY.public_key
    for attempt in (
        lambda: key.encrypt(bad),
        lambda: key.encrypt(1) + bad,
        lambda: key.encrypt(1) * bad,
    ):
        with pytest.raises(ConfigError, match=r"in \[0, n\)") as caught:
            attempt()
        assert str(N) not in str(caught.value)
    with pytest.raises(TypeError):
        key.encrypt(0.5)  # type: ignore[arg-type]


def test_scaling_by_zero_is_visible_until_rerandomised() -> None:
    zero = TOY.public_key.encrypt(9) * 0
    assert zero.value == 1
    assert zero.rerandomise().value != 1
    assert TOY.decrypt(zero) == TOY.decrypt(zero.rerandomise()) == 0


def test_keys_do_not_mix() -> None:
    ours, theirs = TOY.public_key.encrypt(1), OTHER.public_key.encrypt(1)
    with pytest.raises(ProtocolError, match="one key"):
        ours + theirs
    with pytest.raises(ProtocolError, match="one key"):
        sum_of([ours, theirs])
    with pytest.raises(ProtocolError, match="Decrypt with the key"):
        TOY.decrypt(theirs)
    twin = PublicKey(
        N + 2 * P, insecure_small_keys=True
    )  # same width as the toy key, other fingerprint
    with pytest.raises(ProtocolError, match="key named in the manifest"):
        Ciphertext.from_bytes(ours.to_bytes(), twin)


def test_sums_need_a_term() -> None:
    with pytest.raises(ProtocolError, match="at least 1"):
        sum_of([])


@pytest.mark.parametrize("n", [-N, 0, 1, 9, 11, 2 * N, P, P * P, P**3])
def test_moduli_that_cannot_be_a_key_are_refused(n: int) -> None:
    with pytest.raises(ConfigError):
        PublicKey(n, insecure_small_keys=True)


def test_small_and_giant_keys_are_refused_unless_said_aloud() -> None:
    for attempt in (lambda: PublicKey(N), lambda: PrivateKey(P, Q), lambda: generate_key(2046)):
        with pytest.raises(ConfigError, match="insecure_small_keys=True"):
            attempt()
    with pytest.raises(ConfigError, match="16384"):
        PublicKey((1 << 16384) + 1)
    with pytest.raises(ConfigError, match="even"):
        generate_key(2049)
    with pytest.raises(ConfigError, match="even"):
        generate_key(8, insecure_small_keys=True)
    least = generate_key(16, insecure_small_keys=True)
    assert least.decrypt(least.public_key.encrypt(5)) == 5
    assert "INSECURE" in repr(TOY.public_key)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (P, P),
        (P, Q + 2),  # composite
        (P, -Q),
        (P, 13),  # of another size
        (5, 11),  # 5 divides 11 - 1
        (2**127 - 1, 2**127 - 25),  # primes of equal size, closer than 2^27
        (2**127 - 1, 2**127 - 1 - 134_217_618),  # and closer by a little
    ],
)
def test_primes_that_make_no_key_are_refused_without_showing_them(p: int, q: int) -> None:
    with pytest.raises(ConfigError, match="withheld") as caught:
        PrivateKey(p, q, insecure_small_keys=True)
    assert not any(str(x) in str(caught.value) for x in (P, Q))


def test_a_carmichael_number_is_no_prime() -> None:
    assert not paillier._is_prime(561)
    assert not paillier._is_prime(3215031751)  # strong pseudoprime to bases 2, 3, 5 and 7
    assert not paillier._is_prime(P * Q)
    assert paillier._is_prime(P)


def test_a_generated_key_has_the_promised_shape(real: PrivateKey) -> None:
    p, q = int(real._p), int(real._q)
    assert real.public_key.n == p * q
    assert real.public_key.bits == 2048
    assert p >> 1022 == q >> 1022 == 0b11
    assert abs(p - q) > 1 << 924
    assert math.gcd(p * q, (p - 1) * (q - 1)) == 1
    assert "INSECURE" not in repr(real)
    assert paillier.DEFAULT_BITS == 3072


def test_generated_small_keys_work_and_differ() -> None:
    keys = [generate_key(128, insecure_small_keys=True) for _ in range(10)]
    assert len({key.public_key.n for key in keys}) == 10
    assert all(
        key.public_key.bits == 128 and key.decrypt(key.public_key.encrypt(7)) == 7 for key in keys
    )


def test_the_final_sum_of_samba_at_a_real_size(real: PrivateKey) -> None:
    masked = [2**128 - 1, 2**127, 5]
    total = sum_of(real.public_key.encrypt(m) for m in masked)
    assert len(total.to_bytes()) == 1 + 8 + 512
    assert real.decrypt(Ciphertext.from_bytes(total.to_bytes(), real.public_key)) == sum(masked)


def test_nothing_prints_or_copies_the_primes() -> None:
    lam = math.lcm(P - 1, Q - 1)
    shown = f"{TOY!r} {TOY} {TOY.public_key!r} {TOY.public_key.encrypt(3)!r}"
    for secret in (P, Q, lam):
        assert str(secret) not in shown
        assert f"{secret:x}" not in shown.lower()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            attempt(TOY)
    assert pickle.loads(pickle.dumps(TOY.public_key)) == TOY.public_key


def test_a_saved_key_is_the_same_key(real: PrivateKey) -> None:
    again = PrivateKey.load(real.save())
    assert again.public_key == real.public_key
    assert again.decrypt(real.public_key.encrypt(12345)) == 12345
    assert again.save() == real.save()
    with pytest.raises(ConfigError, match="2048 to 16384 bits"):
        PrivateKey.load(generate_key(256, insecure_small_keys=True).save())


def saved(*parts: object) -> bytes:
    return msgspec.msgpack.encode(("posse paillier private key 1", *parts))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "something else"),
        (b"\xc1", "something else"),
        (saved(b"\xef"), "something else"),
        (saved(239, 211), "something else"),
        (
            msgspec.msgpack.encode(("posse paillier private key 2", b"\xef", b"\xd3")),
            "something else",
        ),
        (saved(b"", b""), "far apart"),
        (saved(b"\xef", b"\xef"), "far apart"),
        (saved(b"\x83", b"\x95"), "half the key's size"),
        (saved(b"\xef", b"\x01\x01"), "half the key's size"),
        (saved(b"\xef", b"\xd1"), "odd primes"),
        (saved(b"\xff" * 5000, b"\xfd" * 5000), "2048 to 16384 bits"),
    ],
)
def test_what_is_no_saved_key_is_refused_without_showing_it(data: bytes, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        PrivateKey.load(data, insecure_small_keys=True)
    for prime in ("239", "211", "131", "149", "209"):
        assert prime not in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_damaged_key_is_refused(real: PrivateKey, place: int, flip: int) -> None:
    """No flip of a byte gives another key that loads: the chance that the neighbour of a prime is
    prime is .1 %.
    """
    data = bytearray(real.save())
    data[place % len(data)] ^= flip
    try:
        again = PrivateKey.load(bytes(data))
    except ConfigError:
        return
    assert again.public_key != real.public_key  # a prime after all: the customer's n tells
