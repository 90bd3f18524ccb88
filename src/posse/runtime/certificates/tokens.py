"""Tokens, and the request, answer and refusal that they authenticate: bytes in, bytes out, no
socket and no clock.

A token is the text that lets one party enrol once, sent to it by another channel than the network:

    posse1_ + base64url(checksum (4) | msgpack[id (16), secret (32), fingerprint (32), run, role,
    name, expiry, where])

Its secret never travels to the authority. Three keys are derived from it, one a purpose,

    k_purpose = HKDF-SHA256(secret, "posse enrol " + purpose),   purpose in request, answer, refusal

    request = msgpack[version, token id, CSR, nonce, run, role, name]            | HMAC under k_request
    answer  = msgpack[version, nonce, serial, certificate, authority, revoked]   | HMAC under k_answer
    refusal = msgpack[version, nonce, reason]                                    | HMAC under k_refusal

The authority keeps the three keys of an open token and not its secret. Whoever steals its database
while a token is open can enrol in that party's place until the token is used or expires, and
nothing else: the authority's own key is not there. When the token is used or has expired, the keys
for requests and answers are deleted; the one for refusals stays: it forges refusals only. A refusal
to a token that the authority does not know cannot be authenticated and has 32 zero bytes instead: a
party marks such a refusal as not authenticated.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, NoReturn, Self

import msgspec

from posse.core.errors import ConfigError, EnrolmentError
from posse.privacy.crypto.keys import hkdf
from posse.runtime.certificates.names import Peer, split_address

VERSION = 1
"""Of tokens, requests and answers."""
PREFIX = f"posse{VERSION}_"
MINUTES, MOST_MINUTES = 15, 24 * 60
_LONGEST = 2048
_WIRE = tuple[bytes, bytes, bytes, str, str, str, int, str]
"""Id, secret, fingerprint, run, role, name, expiry and address of a token."""
_AGAIN = "Copy it again, whole, from the output of 'posse federation ca token'."


class Token(msgspec.Struct, frozen=True):
    """A token: which party it enrols, until when, at which authority."""

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
        return cls(
            os.urandom(16),
            os.urandom(32),
            fingerprint,
            peer,
            expires.replace(microsecond=0),
            address,
        )

    def key(self, purpose: Literal["request", "answer", "refusal"]) -> bytes:
        """Derive the key for one purpose."""
        return hkdf(self.secret, f"posse enrol {purpose}".encode())

    def text(self) -> str:
        """Write it as one word; whoever reads it can enrol."""
        peer, expires = self.peer, int(self.expires.timestamp())
        whose = (self.id, self.secret, self.fingerprint, peer.run, peer.role, peer.name)
        body = msgspec.msgpack.encode((*whose, expires, self.address))
        return PREFIX + _encoded(_checksum(body) + body)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a token, with or without line breaks in it; an error says whether it is a typo."""
        word = "".join(text.split())
        body = _body(word)
        try:
            id, secret, fingerprint, run, role, name, seconds, address = msgspec.msgpack.decode(
                body, type=_WIRE
            )
            if (len(id), len(secret), len(fingerprint)) != (16, 32, 32):
                raise ValueError("an id, a secret or a fingerprint of another size")
            peer, expires = Peer(run, role, name), datetime.fromtimestamp(seconds, UTC)
            if address:
                split_address(address)
        except (
            msgspec.MsgspecError,
            UnicodeDecodeError,
            ConfigError,
            OverflowError,
            ValueError,
            OSError,
        ) as error:
            raise EnrolmentError(f"the token does not decode. {_AGAIN}", "malformed") from error
        return cls(id, secret, fingerprint, peer, expires, address)

    def check_open(self, now: datetime) -> None:
        """Raise once the token has expired."""
        if now >= self.expires:
            raise EnrolmentError(
                f"the token for {self.peer} expired at {self.expires:%Y-%m-%d %H:%M} UTC, it is "
                f"{now:%Y-%m-%d %H:%M} "
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
            f"the token is of version {other[1]}, this posse reads version {VERSION}. Install the "
            "customer's version.",
            "version",
        )
    if not word.startswith(PREFIX) or len(word) > _LONGEST:
        raise EnrolmentError(
            f"this is not a token: it must begin with '{PREFIX}'. {_AGAIN}", "malformed"
        )
    encoded = word.removeprefix(PREFIX)
    try:
        # Strict: the decoder would skip letters that are not of its alphabet.
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnrolmentError(
            f"the token has a typo: a letter is wrong or missing. {_AGAIN}", "typo"
        ) from error
    # Written back, too: the last letter has bits that decode to nothing.
    if len(raw) <= 4 or raw[:4] != _checksum(raw[4:]) or _encoded(raw) != encoded:
        raise EnrolmentError(f"the token has a typo: its checksum does not match. {_AGAIN}", "typo")
    return raw[4:]


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(b"posse token" + body).digest()[:4]


TAG = 32
LONGEST = 64 * 1024
"""Bytes of the longest request or answer."""

NO_TAG = bytes(TAG)


class Refused(StrEnum):
    """Why a request was refused, and what a party reads then."""

    text: str

    def __new__(cls, reason: str, text: str = "") -> Self:
        """Make a reason with its text."""
        made = str.__new__(cls, reason)
        made._value_, made.text = reason, text
        return made

    MALFORMED = "malformed", "the request does not decode. Make it again with 'posse party enrol'."
    VERSION = (
        "version",
        "the request is of another version. Install the same version of posse at both ends.",
    )
    UNKNOWN = (
        "unknown",
        "the authority does not know the token. Check that it is the right authority, or ask for "
        "another.",
    )
    ALTERED = (
        "altered",
        "the request was altered on the way, or made with another token's secret. Send it again.",
    )
    EXPIRED = "expired", "the token has expired. Ask the customer for a new one."
    USED = (
        "used",
        "the token was used already, for another request. If that was not you, tell the customer "
        "at once: it must "
        "revoke this name ('posse federation ca revoke') and make a new token.",
    )
    WITHDRAWN = "withdrawn", "the token was withdrawn by the customer. Ask for a new one."
    OTHER_RUN = "other-run", "the token is for another run. Use the token you were sent, unchanged."
    OTHER_ROLE = (
        "other-role",
        "the token is for another role. Use the token you were sent, unchanged.",
    )
    OTHER_NAME = (
        "other-name",
        "the token is for another name. Use the token you were sent, unchanged.",
    )
    BAD_KEY = (
        "bad-key",
        "the request does not prove that you hold a P-256 key. Make it again with 'posse party enrol'.",
    )
    KEY_IN_USE = (
        "key-in-use",
        "the key has a certificate under another name. Enrol with a new key, in another folder.",
    )
    FAILED = (
        "failed",
        "the authority could not sign. Tell the customer to look at its output, then send it "
        "again.",
    )


class Request(
    msgspec.Struct,
    array_like=True,
    forbid_unknown_fields=True,
    frozen=True,
    tag="posse enrol request",
):
    """What a party asks for."""

    version: int
    token: bytes
    csr: bytes
    nonce: bytes
    run: str
    role: str
    name: str


class Answer(
    msgspec.Struct,
    array_like=True,
    forbid_unknown_fields=True,
    frozen=True,
    tag="posse enrol answer",
):
    """What an authority grants, all of it public."""

    version: int
    nonce: bytes
    serial: str
    certificate: bytes
    authority: bytes
    revoked: bytes


class Refusal(
    msgspec.Struct,
    array_like=True,
    forbid_unknown_fields=True,
    frozen=True,
    tag="posse enrol refusal",
):
    """Why an authority grants nothing."""

    version: int
    nonce: bytes
    reason: str


def make_request(token: Token, csr: bytes) -> bytes:
    """Make the request of the token's party for the key in `csr`."""
    peer = token.peer
    request = Request(VERSION, token.id, csr, os.urandom(32), peer.run, peer.role, peer.name)
    return sealed(request, token.key("request"))


def read_request(data: bytes) -> Request:
    """Decode a request; nothing in it is proved until `check_tag`."""
    request: Request | None = _decoded(data, Request)
    if request is None:
        raise refused(Refused.MALFORMED)
    if request.version != VERSION:
        raise refused(Refused.VERSION)
    if len(request.token) != 16 or len(request.nonce) != 32:
        raise refused(Refused.MALFORMED)
    return request


def read_answer(token: Token, request: bytes, data: bytes) -> Answer:
    """Open the answer to a request; a refusal is raised with its reason, and says whether it is
    authentic.
    """
    nonce = read_request(request).nonce
    message: Answer | Refusal | None = _decoded(data, Answer | Refusal)
    if message is None:
        raise EnrolmentError(
            "the answer does not decode: it is damaged, or none. Ask again.", "malformed"
        )
    if isinstance(message, Refusal):
        raise _as_error(
            message, authentic=_is_tagged(data, token.key("refusal")) and message.nonce == nonce
        )
    if not _is_tagged(data, token.key("answer")):
        raise EnrolmentError(
            "the answer was altered on the way, or made without this token. Ask again.", "altered"
        )
    if message.version != VERSION or not hmac.compare_digest(message.nonce, nonce):
        raise EnrolmentError("the answer is to another request. Ask again.", "other-request")
    return message


def sealed(message: Request | Answer | Refusal, key: bytes | None) -> bytes:
    """Encode a message and authenticate it; without a key, the tag is zero."""
    body = msgspec.msgpack.encode(message)
    return body + (NO_TAG if key is None else _tag(body, key))


def check_tag(data: bytes, key: bytes) -> None:
    """Raise unless the message was authenticated with this key."""
    if not _is_tagged(data, key):
        raise refused(Refused.ALTERED)


def refused(reason: Refused) -> EnrolmentError:
    """Say a refusal as an error."""
    return EnrolmentError(reason.text, reason)


def digest(data: bytes) -> bytes:
    """Name a request, tag included: equal digests are equal bytes."""
    return hashlib.sha256(data).digest()


def _as_error(refusal: Refusal, *, authentic: bool) -> EnrolmentError:
    try:
        reason = Refused(refusal.reason)
    except ValueError:
        return EnrolmentError(
            "the authority refused for a reason this posse does not know.", "version"
        )
    doubt = (
        ""
        if authentic
        else " (This refusal is not authenticated: anyone on the way could have sent it.)"
    )
    return EnrolmentError(reason.text + doubt, reason)


def _tag(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")


def _is_tagged(data: bytes, key: bytes) -> bool:
    return hmac.compare_digest(_tag(data[:-TAG], key), data[-TAG:])


def _decoded(data: bytes, kind: Any) -> Any:
    """Decode what stands before the tag; None where it is damaged, or something else."""
    if not TAG < len(data) <= LONGEST:
        return None
    try:
        return msgspec.msgpack.decode(memoryview(data)[:-TAG], type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
