"""The text that lets one party enrol once, sent to it by another channel than the network.

    posse1_ + base64url(checksum (4) | msgpack[id (16), secret (32), fingerprint (32), run, role, name, expiry, where])

The secret never travels to the authority: three keys are derived from it, one a purpose,

    k_purpose = HKDF-SHA256(secret, "posse enrol " + purpose),   purpose in request, answer, refusal

and a request, its answer and a refusal are each authenticated with HMAC-SHA256 under theirs. The authority keeps the
three keys of an open token and not its secret. Who steals its database while a token is open can enrol in that party's
place until the token is used or expires, and nothing else: the authority's own key is not there. When the token is
used or has expired, the keys for requests and answers are deleted; the one for refusals stays: it forges refusals only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from datetime import UTC, datetime
from typing import NoReturn, Self

import msgspec

from posse.core.errors import ConfigError, EnrolmentError
from posse.privacy.crypto.keys import hkdf
from posse.runtime.certificates.names import Peer, split_address

VERSION = 1
PREFIX = f"posse{VERSION}_"
MINUTES, MOST_MINUTES = 15, 24 * 60
_LONGEST = 2048
_AGAIN = "Copy it again, whole, from the output of 'posse ca token'."


class Keys(msgspec.Struct, frozen=True):
    """The keys that are derived from a token's secret."""

    request: bytes
    answer: bytes
    refusal: bytes

    @classmethod
    def of(cls, secret: bytes) -> Self:
        """Derive them."""
        return cls(*(hkdf(secret, b"posse enrol " + purpose) for purpose in (b"request", b"answer", b"refusal")))

    def __repr__(self) -> str:
        return "Keys(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys do not leave their process")


class _Wire(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    id: bytes
    secret: bytes
    fingerprint: bytes
    run: str
    role: str
    name: str
    expires: int
    address: str


class Token(msgspec.Struct, frozen=True):
    """A token: whom it enrols, until when, at which authority."""

    id: bytes
    secret: bytes
    fingerprint: bytes
    """SHA-256 of the authority's public key."""
    peer: Peer
    expires: datetime
    address: str = ""
    """Where the authority takes requests, `host:port`; empty when it did not say."""

    @classmethod
    def new(cls, fingerprint: bytes, peer: Peer, expires: datetime, address: str = "") -> Self:
        """Draw a token."""
        if address:
            split_address(address)
        return cls(os.urandom(16), os.urandom(32), fingerprint, peer, expires.replace(microsecond=0), address)

    @property
    def keys(self) -> Keys:
        """The keys for requests, answers and refusals."""
        return Keys.of(self.secret)

    def text(self) -> str:
        """Write it as one word; whoever reads it can enrol."""
        peer = self.peer
        body = msgspec.msgpack.encode(
            _Wire(
                self.id, self.secret, self.fingerprint, peer.run, peer.role, peer.name, int(self.expires.timestamp()),
                self.address,
            )
        )  # fmt: skip
        return PREFIX + _encoded(_checksum(body) + body)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a token, with or without line breaks in it; a typo is told as such."""
        word = "".join(text.split())
        body = _body(word)
        try:
            wire = msgspec.msgpack.decode(body, type=_Wire)
            peer = Peer(wire.run, wire.role, wire.name)
            expires = datetime.fromtimestamp(wire.expires, UTC)
            if wire.address:
                split_address(wire.address)
        except (msgspec.MsgspecError, UnicodeDecodeError, ConfigError, OverflowError, ValueError, OSError) as error:
            raise EnrolmentError(f"the token does not decode. {_AGAIN}", "malformed") from error
        if (len(wire.id), len(wire.secret), len(wire.fingerprint)) != (16, 32, 32):
            raise EnrolmentError(f"the token does not decode. {_AGAIN}", "malformed")
        return cls(wire.id, wire.secret, wire.fingerprint, peer, expires, wire.address)

    def check_open(self, now: datetime) -> None:
        """Raise once the token has expired."""
        if now >= self.expires:
            raise EnrolmentError(
                f"the token for {self.peer} expired at {self.expires:%Y-%m-%d %H:%M} UTC, it is {now:%Y-%m-%d %H:%M} "
                "UTC here. Ask the customer for a new one, or set this machine's clock.",
                "expired",
            )

    def __repr__(self) -> str:
        return f"Token({self.peer}, expires {self.expires:%Y-%m-%d %H:%M} UTC)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token does not leave its process but as text")


def _body(word: str) -> bytes:
    other = re.match(r"posse(\d{1,4})_", word)
    if other and int(other[1]) != VERSION:
        raise EnrolmentError(
            f"the token is of version {other[1]}, this posse reads version {VERSION}. Install the customer's version.",
            "version",
        )
    if not word.startswith(PREFIX) or len(word) > _LONGEST:
        raise EnrolmentError(f"this is not a token: it must begin with '{PREFIX}'. {_AGAIN}", "malformed")
    encoded = word.removeprefix(PREFIX)
    try:
        # Strict: the decoder would skip letters that are not of its alphabet.
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnrolmentError(f"the token has a typo: a letter is wrong or missing. {_AGAIN}", "typo") from error
    # Written back, too: the last letter has bits that decode to nothing.
    if len(raw) <= 4 or raw[:4] != _checksum(raw[4:]) or _encoded(raw) != encoded:
        raise EnrolmentError(f"the token has a typo: its checksum does not match. {_AGAIN}", "typo")
    return raw[4:]


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(b"posse token" + body).digest()[:4]
