"""Keys and masks of one client in one round.

Client u has two X25519 keys, one to seal shares and one to agree on masks, and a self-mask seed
b_u. It sends, modulo 2^32,

    y_u = x_u + G(b_u) + sum over neighbours v > u of G(k_uv) - sum over neighbours v < u of
    G(k_uv),

where k_uv comes from the masking keys of u and v by HKDF and G is the AES-256-CTR stream read as
little-endian words. In the sum the pairwise masks of two survivors cancel. The server takes off the
self-masks of the survivors and the pairwise masks that dropped clients left behind; for each client
it can learn b_u or the masking key, never both, so a vector that arrives late is still under one of
them.

All secrets derive from the client's root with the digest of the terms in their context: keys of two
rounds, and so their masks, have nothing in common, and a masking key that the server was given says
nothing about another round.

Cost: two agreements a neighbour; one AES stream of the vector's length a neighbour, and one for
itself. Leaks: y_u is uniform to all who lack b_u or one k_uv. References: as in the package; RFC
7748, RFC 5869.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posse.core.errors import FrameError, ProtocolError
from posse.privacy.aggregation.messages import Advertise
from posse.privacy.aggregation.quantise import Ring
from posse.privacy.aggregation.shamir import SHARE_BYTES, share
from posse.privacy.aggregation.terms import Terms
from posse.privacy.crypto.keys import Identity, RunKey, Secrets, commitment, framed, hkdf, verify
from posse.privacy.crypto.pairwise import pair_seed

PURPOSE_KEYS = b"aggregation keys"
PURPOSE_SURVIVORS = b"set of survivors"
FRAME_BYTES = 2 * SHARE_BYTES + 16
"""Two shares, sealed."""
_CHUNK = 1 << 15
"""Bytes of stream made and added together: they stay in the cache."""
_ZEROS = bytes(_CHUNK)
_NONCE = bytes(12)
"""Each sealing key seals one plaintext: it derives from the same secrets, terms and names."""
_ANY_KEY = X25519PrivateKey.from_private_bytes(bytes(32))
"""A key that shows which public keys are points of small order."""

Signs = Iterable[tuple[bytes, int]]
"""Keys of streams, each with +1 or -1."""


class RoundKeys:
    """A client's secrets of one round; nothing here is sent as it is."""

    __slots__ = ("_masking", "_name", "_polynomials", "_roots", "_sealing", "_terms", "self_seed")

    def __init__(self, name: str, terms: Terms, secrets: Secrets) -> None:
        context = terms.digest + name.encode()
        self._name, self._terms = name, terms
        self._sealing = RunKey(secrets.key(b"aggregation sealing key", context=context))
        self._masking = RunKey(secrets.key(b"aggregation masking key", context=context))
        self.self_seed = secrets.key(b"aggregation self mask", context=context)
        self._roots: dict[tuple[str, bytes], bytes] = {}
        self._polynomials = secrets.key(b"aggregation polynomials", 64, context=context)

    def advertise(self, identity: Identity) -> Advertise:
        """Sign the public part."""
        terms, name = self._terms, self._name
        public = (
            self._sealing.public,
            self._masking.public,
            commitment(self.self_seed, self_label(terms, name)),
        )
        return Advertise(
            terms.digest, *public, identity.sign(PURPOSE_KEYS, _signed(terms, name, *public))
        )

    def shares(self, holders: Iterable[str]) -> dict[str, bytes]:
        """Share both secrets: for each holder the share of the self-mask seed, then that of the
        masking key.
        """
        places = {holder: self._terms.place(holder) for holder in holders}
        t, keys = self._terms.plan.threshold, self._polynomials
        seed = share(self.self_seed, places.values(), t, keys[:32])
        key = share(self._masking.private.private_bytes_raw(), places.values(), t, keys[32:])
        return {holder: seed[place] + key[place] for holder, place in places.items()}

    def seal(self, other: str, public: bytes, plaintext: bytes) -> bytes:
        """Seal the shares for another client, under a key that is used for this one frame."""
        return AESGCM(self._way(other, public, self._name, other)).encrypt(
            _NONCE, plaintext, self._terms.digest
        )

    def open(self, other: str, public: bytes, frame: bytes) -> bytes:
        """Open the shares that another client sealed; raise `FrameError` if they are anything
        else.
        """
        try:
            return AESGCM(self._way(other, public, other, self._name)).decrypt(
                _NONCE, frame, self._terms.digest
            )
        except (InvalidTag, ValueError) as error:
            raise FrameError(
                f"the shares of {other} do not open: altered, or of another client or round."
            ) from error

    def _way(self, other: str, public: bytes, sender: str, receiver: str) -> bytes:
        if (other, public) not in self._roots:
            self._roots[other, public] = _agree(
                self._sealing.private, self._name, other, public, self._terms
            )
        names = framed(sender.encode(), receiver.encode())
        return hkdf(self._roots[other, public], b"posse aggregation shares" + names)

    def mask_streams(self, others: Iterable[tuple[str, bytes]]) -> Signs:
        """Keys of all streams that go over this client's vector, given its neighbours' masking
        keys.
        """
        yield self_stream(self.self_seed), 1
        for other, public in others:
            yield pair_stream(self._masking.private, self._name, other, public, self._terms)

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a round do not leave their process")


def check_advertised(name: str, keys: Advertise, terms: Terms) -> None:
    """Raise unless these are keys that others can agree with, and the client of this name signed
    for this round.
    """
    if keys.terms != terms.digest:
        raise ProtocolError(
            f"the keys of {name} are of another round. Give all parties the same terms."
        )
    if {len(keys.sealing), len(keys.masking), len(keys.commitment)} != {
        32
    } or keys.sealing == keys.masking:
        raise ProtocolError(
            f"the keys and the commitment of {name} must be three different strings of 32 bytes."
        )
    signed = _signed(terms, name, keys.sealing, keys.masking, keys.commitment)
    verify(terms.identity(name), PURPOSE_KEYS, signed, keys.signature)
    _check_order(name, keys.sealing)
    _check_order(name, keys.masking)


def _check_order(name: str, public: bytes) -> None:
    """Refuse a point of small order: with every private key it agrees on zeros, so any private key
    shows it.
    """
    try:
        _ANY_KEY.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ProtocolError(
            f"a key of {name} is a point of small order, on which all agree alike."
        ) from None


def self_stream(seed: bytes) -> bytes:
    """Key of the stream of a self-mask."""
    return hkdf(seed, b"posse aggregation self mask")


def pair_stream(
    private: X25519PrivateKey, me: str, other: str, public: bytes, terms: Terms
) -> tuple[bytes, int]:
    """Key of the stream that two neighbours share, and its sign at the first of them."""
    key = hkdf(_agree(private, me, other, public, terms), b"posse aggregation pair mask")
    return key, 1 if me < other else -1


def add_streams(words: Ring, streams: Signs) -> None:
    """Add key streams to a vector, in place: words += sign G(key) modulo 2^32."""
    raw = bytearray(_CHUNK)
    chunk = np.frombuffer(raw, "<u4")
    for key, sign in streams:
        stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        for at in range(0, len(words), len(chunk)):
            stream.update_into(_ZEROS, raw)
            part = words[at : at + len(chunk)]
            (np.add if sign > 0 else np.subtract)(part, chunk[: len(part)], out=part)


def self_label(terms: Terms, name: str) -> bytes:
    """What the commitment to a self-mask seed is bound to: the round and the client."""
    return terms.digest + name.encode()


def _agree(private: X25519PrivateKey, me: str, other: str, public: bytes, terms: Terms) -> bytes:
    peer = X25519PublicKey.from_public_bytes(public)
    return pair_seed(private, peer, me=me, other=other, manifest=terms.digest)


def _signed(terms: Terms, name: str, sealing: bytes, masking: bytes, committed: bytes) -> bytes:
    return terms.digest + sealing + masking + committed + name.encode()
