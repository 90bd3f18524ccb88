"""The party's folder while it enrols: key, request, and at the end its certificate.

party.key      private key (0600), drawn here, never sent and never overwritten
enrol.request  the request as it was sent (0600), kept until it is answered: a lost answer is asked for again
ca.crt         the authority's certificate, whose fingerprint stood in the token
crl.pem        what the authority has revoked
party.crt      the party's certificate, written last: where it is, the rest is
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError, DataError, EnrolmentError
from posse.runtime.certificates import files, making
from posse.runtime.certificates.authority import load_key, private_pem
from posse.runtime.certificates.identity import AUTHORITY, CERTIFICATE, KEY, REVOKED, peer_of
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.requests import Answer, make_request, read_answer, read_request
from posse.runtime.certificates.tokens import Token

REQUEST = "enrol.request"


@dataclass(frozen=True)
class Enrolled:
    """What an enrolment gave."""

    folder: Path
    peer: Peer
    serial: str
    expires: datetime
    key_fingerprint: bytes
    authority_fingerprint: bytes


def prepare(token: Token, folder: Path, now: datetime) -> bytes:
    """Draw the key, write the request and return it; called again for the same token, it returns the same bytes."""
    token.check_open(now)
    if (folder / CERTIFICATE).exists():
        raise DataError(f"{folder} holds an identity already. Choose another folder with --out.")
    files.make_folder(folder)
    key = _key(folder)
    pending = _pending(token, folder, key)
    if pending is not None:
        return pending
    request = make_request(token, making.signing_request(key))
    files.write_whole(folder / REQUEST, request, mode=files.PRIVATE)
    return request


def complete(token: Token, folder: Path, answer: bytes, now: datetime) -> Enrolled:
    """Check the answer to this folder's request in every respect, and write the identity."""
    if (folder / CERTIFICATE).exists():
        raise DataError(f"{folder} holds an identity already. Choose another folder with --out.")
    if not (folder / KEY).exists() or not (folder / REQUEST).exists():
        raise EnrolmentError(f"no request was made in {folder}. Make one with 'posse enrol TOKEN --request FILE'.")
    key = load_key(folder / KEY)
    pending = _pending(token, folder, key)
    if pending is None:
        raise EnrolmentError(f"the request in {folder} was made with another token. Use that token.", "other-request")
    opened = read_answer(token, pending, answer)
    certificate, authority, revoked = check_answer(token, key.public_key(), opened, now)
    files.write_whole(folder / AUTHORITY, authority.public_bytes(Encoding.PEM))
    files.write_whole(folder / REVOKED, revoked.public_bytes(Encoding.PEM))
    files.write_whole(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM), replace=False)
    with suppress(OSError):
        (folder / REQUEST).unlink()
    return Enrolled(
        folder,
        token.peer,
        opened.serial,
        certificate.not_valid_after_utc,
        making.fingerprint(key.public_key()),
        token.fingerprint,
    )


def check_answer(
    token: Token, public: ec.EllipticCurvePublicKey, answer: Answer, now: datetime
) -> tuple[x509.Certificate, x509.Certificate, x509.CertificateRevocationList]:
    """Raise unless the answer is the token's authority's, for this party and this key."""
    try:
        certificate = x509.load_der_x509_certificate(answer.certificate)
        authority = x509.load_der_x509_certificate(answer.authority)
        revoked = x509.load_der_x509_crl(answer.revoked)
    except ValueError as error:
        raise EnrolmentError("the answer holds no certificates. Ask again.", "malformed") from error
    check_fingerprint(token, authority)
    try:
        found = peer_of(answer.certificate, authority, revoked, token.peer.run, now)
    except CertificateError as error:
        raise EnrolmentError(f"the answer's certificate is refused: {error.args[0]}", error.reason) from error
    if found != token.peer:
        raise EnrolmentError(f"the answer is for {found}, the token for {token.peer}. Ask for a new token.", "other")
    if making.fingerprint(making.public_key(certificate)) != making.fingerprint(public):
        raise EnrolmentError("the answer's certificate is for another key than this party's. Ask again.", "other-key")
    if answer.serial != f"{certificate.serial_number:x}":
        raise EnrolmentError("the answer's serial is not that of its certificate. Ask again.", "malformed")
    return certificate, authority, revoked


def check_fingerprint(token: Token, authority: x509.Certificate) -> None:
    """Raise unless this is the authority whose fingerprint stands in the token."""
    try:
        making.check_authority(authority)
        found = making.fingerprint(making.public_key(authority))
    except CertificateError as error:
        raise EnrolmentError(f"{error.args[0]} This is not the token's authority.", "wrong-authority") from error
    if found != token.fingerprint:
        raise EnrolmentError(
            f"the authority there has fingerprint {making.spoken(found)}, the token says "
            f"{making.spoken(token.fingerprint)}. Somebody else answers at that address: check it with the customer.",
            "wrong-authority",
        )


def _key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Draw the key, or read one that has no certificate yet: an enrolment that was cut short goes on with it."""
    if not (folder / KEY).exists():
        files.write_whole(folder / KEY, private_pem(making.new_key()), mode=files.PRIVATE, replace=False)
    return load_key(folder / KEY)


def _pending(token: Token, folder: Path, key: ec.EllipticCurvePrivateKey) -> bytes | None:
    """Read the request of this token and key, if it was made."""
    try:
        data = (folder / REQUEST).read_bytes()
        request = read_request(data)
        made_for = making.fingerprint(making.requested_key(request.csr))
    except (OSError, EnrolmentError, CertificateError):
        return None
    return data if request.token == token.id and made_for == making.fingerprint(key.public_key()) else None
