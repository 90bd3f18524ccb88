"""Request, answer and refusal: bytes in, bytes out, no socket and no clock.

    request = msgpack[version, token id, CSR, nonce, run, role, name]            | HMAC under k_request
    answer  = msgpack[version, nonce, serial, certificate, authority, revoked]   | HMAC under k_answer
    refusal = msgpack[version, nonce, reason]                                    | HMAC under k_refusal

A refusal to a token that the authority does not know cannot be authenticated and has 32 zero bytes instead: a party
tells such a refusal apart and believes it less.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from enum import StrEnum

import msgspec

from posse.core.errors import EnrolmentError
from posse.runtime.certificates.tokens import Token

VERSION = 1
TAG = 32
LONGEST = 64 * 1024
"""Bytes of the longest request or answer."""

NO_TAG = bytes(TAG)


class Refused(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    VERSION = "version"
    UNKNOWN = "unknown"
    ALTERED = "altered"
    EXPIRED = "expired"
    USED = "used"
    WITHDRAWN = "withdrawn"
    OTHER_RUN = "other-run"
    OTHER_ROLE = "other-role"
    OTHER_NAME = "other-name"
    BAD_KEY = "bad-key"
    KEY_IN_USE = "key-in-use"
    FAILED = "failed"


_WORDS = {
    Refused.MALFORMED: "the request does not decode. Make it again with 'posse enrol'.",
    Refused.VERSION: "the request is of another version. Install the same version of posse at both ends.",
    Refused.UNKNOWN: "the authority does not know the token. Check that it is the right authority, or ask for another.",
    Refused.ALTERED: "the request was altered on the way, or made with another token's secret. Send it again.",
    Refused.EXPIRED: "the token has expired. Ask the customer for a new one.",
    Refused.USED: "the token was used already, for another request. If that was not you, tell the customer at once: it "
    "must revoke this name ('posse ca revoke') and make a new token.",
    Refused.WITHDRAWN: "the token was withdrawn by the customer. Ask for a new one.",
    Refused.OTHER_RUN: "the token is for another run. Use the token you were sent, unchanged.",
    Refused.OTHER_ROLE: "the token is for another role. Use the token you were sent, unchanged.",
    Refused.OTHER_NAME: "the token is for another name. Use the token you were sent, unchanged.",
    Refused.BAD_KEY: "the request does not prove that you hold a P-256 key. Make it again with 'posse enrol'.",
    Refused.KEY_IN_USE: "the key has a certificate under another name. Enrol with a new key, in another folder.",
    Refused.FAILED: "the authority could not sign. Tell the customer to look at its output, then send it again.",
}  # fmt: skip


class Request(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, tag="posse enrol request"):
    """What a party asks for."""

    version: int
    token: bytes
    csr: bytes
    nonce: bytes
    run: str
    role: str
    name: str


class Answer(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, tag="posse enrol answer"):
    """What an authority grants, all of it public."""

    version: int
    nonce: bytes
    serial: str
    certificate: bytes
    authority: bytes
    revoked: bytes


class Refusal(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, tag="posse enrol refusal"):
    """Why an authority grants nothing."""

    version: int
    nonce: bytes
    reason: str


def make_request(token: Token, csr: bytes) -> bytes:
    """Make the request of the token's party for the key in `csr`."""
    peer = token.peer
    request = Request(VERSION, token.id, csr, os.urandom(32), peer.run, peer.role, peer.name)
    return sealed(request, token.keys.request)


def read_request(data: bytes) -> Request:
    """Decode a request; nothing in it is proved until `check_tag`."""
    if not TAG < len(data) <= LONGEST:
        raise refused(Refused.MALFORMED)
    try:
        request = msgspec.msgpack.decode(memoryview(data)[:-TAG], type=Request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused(Refused.MALFORMED) from error
    if request.version != VERSION:
        raise refused(Refused.VERSION)
    if len(request.token) != 16 or len(request.nonce) != 32:
        raise refused(Refused.MALFORMED)
    return request


def read_answer(token: Token, request: bytes, data: bytes) -> Answer:
    """Open the answer to a request; a refusal is raised with its reason, and says whether it is authentic."""
    nonce = read_request(request).nonce
    message = _decode_answer(data)
    if isinstance(message, Refusal):
        raise _as_error(message, authentic=_is_tagged(data, token.keys.refusal) and message.nonce == nonce)
    if not _is_tagged(data, token.keys.answer):
        raise EnrolmentError("the answer was altered on the way, or made without this token. Ask again.", "altered")
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
    return EnrolmentError(_WORDS[reason], reason)


def digest(data: bytes) -> bytes:
    """Name a request, tag included: equal digests are equal bytes."""
    return hashlib.sha256(data).digest()


def _as_error(refusal: Refusal, *, authentic: bool) -> EnrolmentError:
    try:
        reason = Refused(refusal.reason)
    except ValueError:
        return EnrolmentError("the authority refused for a reason this posse does not know.", "version")
    doubt = "" if authentic else " (This refusal is not authenticated: anyone on the way could have sent it.)"
    return EnrolmentError(_WORDS[reason] + doubt, reason)


def _tag(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")


def _is_tagged(data: bytes, key: bytes) -> bool:
    return hmac.compare_digest(_tag(data[:-TAG], key), data[-TAG:])


def _decode_answer(data: bytes) -> Answer | Refusal:
    if not TAG < len(data) <= LONGEST:
        raise EnrolmentError("the answer does not decode: it is damaged, or none. Ask again.", "malformed")
    try:
        return msgspec.msgpack.decode(memoryview(data)[:-TAG], type=Answer | Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EnrolmentError("the answer does not decode: it is damaged, or none. Ask again.", "malformed") from error
