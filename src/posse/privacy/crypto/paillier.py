"""Paillier encryption: anyone adds under encryption, only the holder of the two primes reads.

With n = p q and g = n + 1, E(m; r) = (1 + m n) r^n mod n^2, so E(a) E(b) = E(a + b mod n) and
E(a)^k = E(k a mod n).

What it protects: plaintexts from everyone without p and q, under the decisional composite
residuosity assumption (chosen-plaintext security). What it does not:

* Ciphertexts are malleable by design and carry no proof of origin: move them inside sealed or
  signed messages, and never act as a decryption service.
* A public key is checked for what can be seen on n. That n has exactly two prime factors is not
  proven.
* This is Python, not a side-channel-hardened implementation. The exponentiations with a secret
  exponent (decryption, `Ciphertext * k`) use GMP's `mpz_powm_sec`, whose time and memory accesses
  depend on operand sizes only. Prime search, r^n (public exponent, secret base), gcd, inversion,
  CRT recombination and conversions are not constant-time, and secrets are not wiped from memory.

Reference: P. Paillier, Public-Key Cryptosystems Based on Composite Degree Residuosity Classes,
EUROCRYPT 1999.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

import gmpy2
import msgspec
from gmpy2 import mpz

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.keys import CALLS

DEFAULT_BITS = 3072
MINIMUM_BITS = 2048
# A peer chooses n: without a ceiling, one manifest could keep an owner exponentiating for hours.
MAXIMUM_BITS = 16384
# Each round passes a composite with probability at most 1/4, whatever the composite: error below
# 2^-80 per prime.
MILLER_RABIN_ROUNDS = 40

_VERSION = 1
_SAVED = "posse paillier private key 1"
_FINGERPRINT_BYTES = 8
_SMALLEST_N = 15  # 3 * 5, the smallest product of two distinct odd primes


@dataclass(frozen=True, repr=False)
class PublicKey:
    """The modulus n, under which anyone encrypts and adds integers of [0, n).

    Refused: n even, prime, a perfect power, of fewer than 2048 bits unless
    `insecure_small_keys=True`, or of more than 16384 bits. Leaks nothing that is secret: n is
    public.

    >>> private = generate_key(256, insecure_small_keys=True)
    >>> key = private.public_key
    >>> private.decrypt(key.encrypt(20) + key.encrypt(22))
    42
    """

    n: int
    insecure_small_keys: bool = field(default=False, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        n = operator.index(self.n)
        check_bits(n.bit_length(), insecure_small_keys=self.insecure_small_keys)
        if n < _SMALLEST_N or n % 2 == 0 or gmpy2.is_power(n) or gmpy2.is_prime(n):
            raise ConfigError(
                "a Paillier modulus must be a product of two distinct odd primes, got a number "
                "that is even, prime, "
                "a perfect power or below 15. Ask the key's owner for the n of generate_key()."
            )
        object.__setattr__(self, "n", n)

    @property
    def bits(self) -> int:
        """The bit length of n."""
        return self.n.bit_length()

    @property
    def fingerprint(self) -> str:
        """The SHA-256 digest of n as 64 hexadecimal digits."""
        return hashlib.sha256(self.n.to_bytes((self.bits + 7) // 8, "big")).hexdigest()

    def encrypt(self, plaintext: int) -> Ciphertext:
        """Encrypt one integer of [0, n): c = (1 + m n) r^n mod n^2 with r fresh from the operating
        system.

        Cost: one exponentiation, |n|-bit exponent modulo n^2. Leaks to holders of n alone: which
        key, nothing of m.

        >>> generate_key(256, insecure_small_keys=True).public_key.encrypt(-1)
        Traceback (most recent call last):
        ...
        posse.core.errors.ConfigError: [P100] a plaintext must be in [0, n), got a negative number.
        Reduce it modulo n.
        """
        CALLS.encrypted += 1
        return _encrypt_with(self, plaintext, _unit(self.n))

    def __repr__(self) -> str:
        insecure = ", INSECURE SIZE" if self.bits < MINIMUM_BITS else ""
        return (
            f"PublicKey({self.bits} bits, {self.fingerprint[: 2 * _FINGERPRINT_BYTES]}{insecure})"
        )


@dataclass(frozen=True, repr=False)
class Ciphertext:
    """An encrypted integer that can be added to, scaled and rerandomised by anyone: 0 < c < n^2
    with gcd(c, n) = 1.

    Sums and products are modulo n. Adding costs one multiplication modulo n^2, scaling one
    exponentiation. `+ int` and `* int` draw no randomness, so whoever knows the input recognises
    the output (and `* 0` is 1 for all to see): call `rerandomise` before showing the result to a
    party that saw the input.

    >>> private = generate_key(256, insecure_small_keys=True)
    >>> c = private.public_key.encrypt(5)
    >>> private.decrypt(3 * c + 2)
    17
    """

    key: PublicKey
    value: int

    def __post_init__(self) -> None:
        value = operator.index(self.value)
        if not 0 < value < self.key.n**2 or gmpy2.gcd(value, self.key.n) != 1:
            raise ProtocolError(
                "a Paillier ciphertext must be in (0, n^2) and prime to n, got a value that is "
                "not. "
                "Ask its sender to encrypt again."
            )
        object.__setattr__(self, "value", value)

    def __add__(self, other: Ciphertext | int) -> Ciphertext:
        n, square = self.key.n, mpz(self.key.n) ** 2
        if isinstance(other, Ciphertext):
            if other.key != self.key:
                raise ProtocolError(
                    f"ciphertexts add under one key, got {self.key!r} and {other.key!r}. "
                    "Encrypt both under the key of the party that decrypts."
                )
            return Ciphertext(self.key, int(self.value * mpz(other.value) % square))
        return Ciphertext(
            self.key, int(self.value * (1 + mpz(_in_range(other, n, "plaintext")) * n) % square)
        )

    __radd__ = __add__

    def __mul__(self, scalar: int) -> Ciphertext:
        k = _in_range(scalar, self.key.n, "scalar")
        # The scalar may be a party's secret. powmod_sec takes exponents above 0 only.
        value = int(gmpy2.powmod_sec(self.value, k, self.key.n**2)) if k else 1
        return Ciphertext(self.key, value)

    __rmul__ = __mul__

    def rerandomise(self) -> Ciphertext:
        """Encrypt the same integer under fresh randomness: c r^n mod n^2.

        Cost: one encryption. The result cannot be linked to its input by anyone without the private
        key.
        """
        return self + self.key.encrypt(0)

    def to_bytes(self) -> bytes:
        """Write version (1 byte), head of the key's fingerprint (8), c (big-endian, twice the bytes
        of n): fixed width.

        777 bytes at 3072 bits. The width depends on the key alone, so a length tells nothing of the
        plaintext.
        """
        return _header(self.key) + self.value.to_bytes(_width(self.key), "big")

    @classmethod
    def from_bytes(cls, data: bytes, key: PublicKey) -> Ciphertext:
        """Read what `to_bytes` wrote under this key, or raise `ProtocolError`.

        Another version, key, length, range or a factor of n are refused. Any other alteration is a
        valid ciphertext of some other integer: Paillier is malleable, integrity comes from the
        frame around it.

        >>> key = generate_key(256, insecure_small_keys=True).public_key
        >>> c = key.encrypt(5)
        >>> Ciphertext.from_bytes(c.to_bytes(), key) == c
        True
        """
        header = _header(key)
        expected = len(header) + _width(key)
        if len(data) != expected or data[:1] != header[:1]:
            raise ProtocolError(
                f"expected a Paillier ciphertext of version {_VERSION} and {expected} bytes, got "
                "version "
                f"{data[0] if data else 'none'} and {len(data)} bytes. Use one posse version and "
                "one key on both ends."
            )
        if data[1 : len(header)] != header[1:]:
            raise ProtocolError(
                f"expected a ciphertext for {key!r}, got one for key "
                f"{data[1 : len(header)].hex()}. "
                "Encrypt under the key named in the manifest."
            )
        return cls(key, int.from_bytes(data[len(header) :], "big"))

    def __repr__(self) -> str:
        return f"Ciphertext(under {self.key!r})"


class PrivateKey:
    """The primes p and q, which alone decrypt; nothing prints, copies or pickles them.

    m = CRT(L_p(c^(p-1) mod p^2) h_p mod p, the same for q), with L_p(x) = (x - 1) / p and h_p =
    (-q)^-1 mod p. Required: p, q prime (`MILLER_RABIN_ROUNDS` with random bases), of equal size, |p
    - q| > 2^(|p| - 100), gcd(n, phi(n)) = 1. Cost of a decryption: two exponentiations, |p|-bit
    exponents modulo p^2 and q^2. Leaks: its holder also learns the randomness of every fresh
    ciphertext under the key.

    >>> PrivateKey(293, 433, insecure_small_keys=True)
    PrivateKey(of PublicKey(17 bits, a6cbb7623adcb259, INSECURE SIZE))
    """

    __slots__ = ("_h_p", "_h_q", "_p", "_p_inverse", "_q", "public_key")

    def __init__(self, p: int, q: int, *, insecure_small_keys: bool = False) -> None:
        # The messages give no values: these are secrets, and messages reach logs.
        if p.bit_length() != q.bit_length() or not _well_chosen(p, q):
            raise ConfigError(
                "p and q must be of equal size, far apart and such that gcd(pq, (p-1)(q-1)) = 1; "
                "these are not (values "
                "withheld). Take a key of generate_key()."
            )
        if not (_is_prime(p) and _is_prime(q)):
            raise ConfigError(
                "p and q must be odd primes; these are not (values withheld). Take a key of "
                "generate_key()."
            )
        self._hold(p, q, insecure_small_keys)

    def _hold(self, p: int, q: int, insecure_small_keys: bool) -> None:
        self.public_key = PublicKey(p * q, insecure_small_keys=insecure_small_keys)
        self._p, self._q = mpz(p), mpz(q)
        self._h_p, self._h_q = gmpy2.invert(-self._q, self._p), gmpy2.invert(-self._p, self._q)
        self._p_inverse = gmpy2.invert(self._p, self._q)

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """Read the integer of [0, n) in a ciphertext of this key; refuse one of another key."""
        if ciphertext.key != self.public_key:
            raise ProtocolError(
                f"expected a ciphertext under {self.public_key!r}, got one under "
                f"{ciphertext.key!r}. "
                "Decrypt with the key it was encrypted for."
            )
        CALLS.decrypted += 1
        m_p = _decrypt_modulo(ciphertext.value, self._p, self._h_p)
        m_q = _decrypt_modulo(ciphertext.value, self._q, self._h_q)
        return int(m_p + self._p * ((m_q - m_p) * self._p_inverse % self._q))

    def save(self) -> bytes:
        """Write the two primes, for a file that only the key's owner reads; `load` makes the key
        again.

        >>> key = PrivateKey(239, 211, insecure_small_keys=True)
        >>> PrivateKey.load(key.save(), insecure_small_keys=True)
        PrivateKey(of PublicKey(16 bits, 205e1c664ce18971, INSECURE SIZE))
        """
        primes = (prime.to_bytes((prime.bit_length() + 7) // 8, "big") for prime in self.primes)
        return msgspec.msgpack.encode((_SAVED, *primes))

    @property
    def primes(self) -> tuple[int, int]:
        """The factors of n; whoever has one of them can decrypt."""
        return int(self._p), int(self._q)

    @classmethod
    def load(cls, saved: bytes, *, insecure_small_keys: bool = False) -> PrivateKey:
        """Read what `save` wrote: two primes fit for a key, with a product of twice their size; or
        `ConfigError`.
        """
        try:
            label, *parts = msgspec.msgpack.decode(saved, type=tuple[str, bytes, bytes])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            label, parts = "", []
        if label != _SAVED:
            raise ConfigError(
                "expected a saved Paillier private key, got something else. Take what save() wrote."
            )
        p, q = (int.from_bytes(part, "big") for part in parts)
        if (p * q).bit_length() != 2 * max(p.bit_length(), q.bit_length()):
            raise ConfigError(
                "a saved Paillier key must hold two primes of half the key's size; this does not "
                "(values withheld). "
                "Restore it from a copy."
            )
        check_bits((p * q).bit_length(), insecure_small_keys=insecure_small_keys)
        return cls(p, q, insecure_small_keys=insecure_small_keys)

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.public_key!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Paillier private key is neither pickled nor copied: it would leave its holder with "
            "the next snapshot or "
            "message. Pass public_key instead."
        )


def generate_key(bits: int = DEFAULT_BITS, *, insecure_small_keys: bool = False) -> PrivateKey:
    """Draw a key from the operating system's randomness: p, q uniform primes of bits/2 bits with
    the top two bits set.

    These make n exactly `bits` long. Cost: about 0.35 bits/2 candidates a prime, under a second at
    3072 bits.

    >>> generate_key(1024)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] a Paillier key must have 2048 to 16384 bits, got 1024. Use
    3072; for tests
    alone, say insecure_small_keys=True.
    """
    check_new(bits, insecure_small_keys=insecure_small_keys)
    while True:
        p, q = _random_prime(bits // 2), _random_prime(bits // 2)
        if _well_chosen(p, q):
            made = PrivateKey.__new__(PrivateKey)
            made._hold(p, q, insecure_small_keys)  # they were tested when they were drawn
            return made


def sum_of(ciphertexts: Iterable[Ciphertext]) -> Ciphertext:
    """Add ciphertexts of one key: the product modulo n^2, which encrypts the sum of the plaintexts
    modulo n.

    Cost: one multiplication each. Leaks nothing; one fresh term that the reader has not seen makes
    the sum fresh.

    >>> private = generate_key(256, insecure_small_keys=True)
    >>> private.decrypt(sum_of(private.public_key.encrypt(m) for m in (1, 2, 3)))
    6
    """
    terms = list(ciphertexts)
    if not terms:
        raise ProtocolError(
            "a sum needs at least 1 ciphertext, got 0. Wait for one, or encrypt 0 under the "
            "reader's key."
        )
    return functools.reduce(operator.add, terms)


def _encrypt_with(key: PublicKey, plaintext: int, r: int) -> Ciphertext:
    """Encrypt under given randomness, for `encrypt` and for test vectors: an r used twice shows the
    difference.
    """
    m, square = _in_range(plaintext, key.n, "plaintext"), mpz(key.n) ** 2
    return Ciphertext(key, int((1 + m * mpz(key.n)) * gmpy2.powmod(r, key.n, square) % square))


def _unit(n: int) -> int:
    """Draw r uniformly from the integers of [1, n) that are prime to n."""
    while True:
        r = 1 + secrets.randbelow(n - 1)
        if gmpy2.gcd(r, n) == 1:
            return r


def _decrypt_modulo(c: int, p: int, h_p: int) -> int:
    return int(gmpy2.divexact(gmpy2.powmod_sec(c % p**2, p - 1, p**2) - 1, p) * h_p % p)


def _random_prime(bits: int) -> int:
    """Draw odd candidates until one is prime; taking the next prime instead would favour primes
    after long gaps.

    Nobody chose a candidate, so GMP's test does: Baillie-PSW, and five rounds of Miller-Rabin.
    """
    while True:
        candidate = secrets.randbits(bits) | (0b11 << (bits - 2)) | 1
        if gmpy2.is_prime(candidate, 29):  # 24 rounds stand for Baillie-PSW
            return candidate


def _is_prime(p: int) -> bool:
    """Test p with random bases, so that not even a chosen p passes with probability above
    4^-rounds.
    """
    if p < 5 or not gmpy2.is_prime(p):
        return False
    bases = (2 + secrets.randbelow(p - 3) for _ in range(MILLER_RABIN_ROUNDS))
    return all(gmpy2.is_strong_prp(p, a) for a in bases)


def _well_chosen(p: int, q: int) -> bool:
    # Close primes fall to Fermat's method; the distance is that of FIPS 186-5, A.1.3.
    far_apart = abs(p - q) > 1 << max(p.bit_length() - 100, 0)
    return far_apart and bool(gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1)


def check_bits(bits: int, *, insecure_small_keys: bool = False) -> None:
    """Refuse a size that is not safe, or that no run could bear."""
    if bits > MAXIMUM_BITS or (bits < MINIMUM_BITS and not insecure_small_keys):
        raise ConfigError(
            f"a Paillier key must have {MINIMUM_BITS} to {MAXIMUM_BITS} bits, got {bits}. Use "
            f"{DEFAULT_BITS}; "
            "for tests alone, say insecure_small_keys=True."
        )


def check_new(bits: int, *, insecure_small_keys: bool = False) -> None:
    """Refuse a size that no key is drawn of."""
    check_bits(bits, insecure_small_keys=insecure_small_keys)
    if bits % 2 or bits < 16:
        raise ConfigError(f"bits must be even and at least 16, got {bits}. Use {DEFAULT_BITS}.")


def _in_range(value: int, n: int, name: str) -> int:
    number = operator.index(value)
    if not 0 <= number < n:
        # The number itself is a party's secret, so the message gives its sign or its size only.
        got = "a negative number" if number < 0 else f"a number of {number.bit_length()} bits"
        raise ConfigError(f"a {name} must be in [0, n), got {got}. Reduce it modulo n.")
    return number


def _header(key: PublicKey) -> bytes:
    return bytes([_VERSION]) + bytes.fromhex(key.fingerprint)[:_FINGERPRINT_BYTES]


def _width(key: PublicKey) -> int:
    return 2 * ((key.bits + 7) // 8)
