"""The authority's decision on a request: who may have which certificate, once.

Bytes in, bytes out. A token is marked as used, its certificate recorded and its answer kept in one transaction before
the answer is handed out; the same bytes again get the same answer while the token lasts, everything else is refused
and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError, EnrolmentError
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import Authority
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.register import EXPIRED, OPEN, USED, TokenRow, Writing
from posse.runtime.certificates.requests import (
    VERSION,
    Answer,
    Refusal,
    Refused,
    Request,
    check_tag,
    digest,
    read_request,
    refused,
    sealed,
)


@dataclass(frozen=True)
class Reply:
    """What goes back, and what happened."""

    data: bytes
    peer: Peer | None
    """Whom the token is for; None when the token is unknown."""
    reason: str = ""
    """Why it was refused; empty when it was granted."""
    repeated: bool = False
    """The same request came before and got the same answer."""
    serial: str = ""


class Desk:
    """Takes requests at an authority."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        # Read now: a passphrase is asked for before the first request, not during it.
        self._key: ec.EllipticCurvePrivateKey = authority.key

    def answer(self, data: bytes) -> Reply:
        """Grant or refuse; never raises for what a stranger sent."""
        try:
            request = read_request(data)
        except EnrolmentError as error:
            return _refusal(error.reason)
        with self.authority.register.writing() as writing:
            writing.expire(self.authority.now())
            token = writing.token(request.token)
            if token is None:
                return _refusal(Refused.UNKNOWN, request)
            peer = Peer(self.authority.run, token.role, token.name)
            try:
                return self._granted(writing, token, peer, request, data)
            except EnrolmentError as error:
                # What is not authenticated is not written down: a stranger must not keep the disk busy.
                if error.reason != Refused.ALTERED:
                    writing.refuse(token.id, error.reason)
                return _refusal(error.reason, request, peer, token.refusal_key)

    def _granted(self, writing: Writing, token: TokenRow, peer: Peer, request: Request, data: bytes) -> Reply:
        expired = self.authority.now() >= token.expires
        if token.state == USED and token.answer is not None and token.request == digest(data):
            if expired:
                raise refused(Refused.EXPIRED)
            if writing.is_revoked(token.serial or ""):
                raise refused(Refused.WITHDRAWN)
            return Reply(token.answer, peer, repeated=True, serial=token.serial or "")
        _check_state(token, expired=expired)
        if token.request_key is None or token.answer_key is None:
            raise refused(Refused.USED)
        check_tag(data, token.request_key)
        _check_whom(request, peer)
        public = _key_of(request)
        try:
            # Read before anything is written: a refusal is committed, and must record no certificate.
            revoked = self.authority.current_crl().public_bytes(Encoding.DER)
            certificate, serial = self.authority.sign(writing, self._key, public, peer, token.hosts, token.days)
        except CertificateError as error:
            raise refused(Refused.KEY_IN_USE if error.reason == Refused.KEY_IN_USE else Refused.FAILED) from error
        answer = Answer(
            VERSION,
            request.nonce,
            serial,
            certificate.public_bytes(Encoding.DER),
            self.authority.certificate.public_bytes(Encoding.DER),
            revoked,
        )
        reply = sealed(answer, token.answer_key)
        writing.use(token.id, digest(data), reply, serial)
        return Reply(reply, peer, serial=serial)


def _check_state(token: TokenRow, *, expired: bool) -> None:
    if token.state == USED:
        raise refused(Refused.USED)
    if token.state == EXPIRED or expired:
        raise refused(Refused.EXPIRED)
    if token.state != OPEN:
        raise refused(Refused.WITHDRAWN)


def _check_whom(request: Request, peer: Peer) -> None:
    for mine, asked, reason in (
        (peer.run, request.run, Refused.OTHER_RUN),
        (peer.role, request.role, Refused.OTHER_ROLE),
        (peer.name, request.name, Refused.OTHER_NAME),
    ):
        if mine != asked:
            raise refused(reason)


def _key_of(request: Request) -> ec.EllipticCurvePublicKey:
    try:
        return making.requested_key(request.csr)
    except CertificateError as error:
        raise refused(Refused.BAD_KEY) from error


def _refusal(reason: str, request: Request | None = None, peer: Peer | None = None, key: bytes | None = None) -> Reply:
    nonce = b"" if request is None else request.nonce
    return Reply(sealed(Refusal(VERSION, nonce, reason), key), peer, reason)
