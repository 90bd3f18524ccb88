"""What others need: a party's own identity, a peer's certificate checked, and TLS contexts made of
both.

    identity = PartyIdentity.load("clinic-b")
    server, client = ssl_contexts(identity)
    ...                                     # after the handshake:
    peer = peer_of(ssl_object.getpeercert(binary_form=True), identity.authority, identity.crl,
    identity.run, utc_now())

The handshake proves that the peer holds the key of a certificate of this authority; `peer_of` says
whose, and refuses the revoked, the expired and those of other runs. Host names play no part: what a
party is called at some address is not what it may do.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from posse.core import files
from posse.core.errors import CertificateError, ProtocolError
from posse.privacy.crypto.keys import Identity
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import (
    Clock,
    load_certificate,
    load_crl,
    load_key,
    private_pem,
    utc_now,
)
from posse.runtime.certificates.names import SCHEME, Peer, from_uri

KEY, CERTIFICATE, AUTHORITY, REVOKED = "party.key", "party.crt", "ca.crt", "crl.pem"
ALPN = ("posse/3", "posse/1")
"""What a party offers in a handshake, newest first: its own wire version and the one before
(`network.wire`).
"""
NEXT_KEY = "next.key"
"""A new key, until its certificate is here. A crash may come before it takes its name: `load`
finishes that.
"""


class Reason(StrEnum):
    """Why a certificate does not count."""

    MALFORMED = "malformed"
    WRONG_AUTHORITY = "wrong-authority"
    REVOKED = "revoked"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    NO_ROLE = "no-role"
    OTHER_RUN = "other-run"


@dataclass(frozen=True)
class PartyIdentity:
    """A party's key and certificate, the authority that signed it, and what that authority has
    revoked.
    """

    folder: Path
    peer: Peer
    certificate: x509.Certificate = field(repr=False)
    authority: x509.Certificate = field(repr=False)
    crl: x509.CertificateRevocationList = field(repr=False)
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def load(cls, folder: Path | str, *, now: Clock = utc_now) -> PartyIdentity:
        """Read an identity and check that its parts belong together, are in force, and that the key
        is private.
        """
        folder = Path(folder)
        if not (folder / CERTIFICATE).exists():
            raise CertificateError(
                f"there is no identity in {folder}. Make one with 'posse party enrol'.", "missing"
            )
        certificate, authority = (
            load_certificate(folder / CERTIFICATE),
            load_certificate(folder / AUTHORITY),
        )
        if (folder / NEXT_KEY).exists() and _fits(load_key(folder / NEXT_KEY), certificate):
            _settle(folder)
        key = load_key(folder / KEY)
        making.check_authority(authority)
        crl = load_crl(folder / REVOKED)
        peer = _peer_of(certificate, authority, crl, None, now())
        if not _fits(key, certificate):
            raise CertificateError(
                f"{folder / KEY} is not the key of {CERTIFICATE}. Restore it, or enrol again.",
                Reason.MALFORMED,
            )
        return cls(folder, peer, certificate, authority, crl, key)

    @property
    def run(self) -> str:
        """The run this identity is for."""
        return self.peer.run

    @property
    def role(self) -> str:
        """The party's role."""
        return self.peer.role

    @property
    def name(self) -> str:
        """The party's name."""
        return self.peer.name

    @property
    def signing(self) -> Identity:
        """The protocol's identity key: the certificate's own."""
        return Identity(self.key)

    def check(self, certificate_der: bytes | None, now: datetime) -> Peer:
        """Say who a peer of the same run is; see `peer_of`."""
        return peer_of(certificate_der, self.authority, self.crl, self.run, now)

    def request(self, *, new_key: bool = False) -> bytes:
        """Ask for a certificate that ends later: for the same key, or for a new one, which is kept
        beside.
        """
        if not new_key:
            return making.signing_request(self.key)
        path = self.folder / NEXT_KEY
        if not path.exists():
            files.write_whole(
                path, private_pem(making.new_key()), mode=files.PRIVATE, replace=False
            )
        return making.signing_request(load_key(path))

    def renewed(self, certificate_der: bytes, now: datetime) -> PartyIdentity:
        """Check the answer to `request`, keep it, and return the identity with it; a kill leaves
        the old one or it.
        """
        if self.check(certificate_der, now) != self.peer:
            raise CertificateError(
                f"the new certificate is not for {self.peer}. Ask again.", Reason.MALFORMED
            )
        made = x509.load_der_x509_certificate(certificate_der)
        path = self.folder / NEXT_KEY
        fresh = path.exists() and _fits(load_key(path), made)
        if not fresh and not _fits(self.key, made):
            raise CertificateError(
                "the new certificate is for another key than this party's.", Reason.MALFORMED
            )
        files.write_whole(self.folder / CERTIFICATE, made.public_bytes(Encoding.PEM))
        if fresh:
            _settle(self.folder)
        return PartyIdentity.load(self.folder, now=lambda: now)

    def with_crl(self) -> PartyIdentity:
        """Read the revocation list again; one with a smaller number than the present one is
        refused.
        """
        crl = load_crl(self.folder / REVOKED)
        check_crl(crl, self.authority)
        if crl_number(crl) < crl_number(self.crl):
            raise CertificateError(
                f"{self.folder / REVOKED} is number {crl_number(crl)}, number "
                f"{crl_number(self.crl)} was here before. "
                "Get the newest with 'posse federation ca crl'.",
                Reason.MALFORMED,
            )
        return replace(self, crl=crl)

    def adopted(self, revoked: bytes) -> PartyIdentity:
        """Keep a newer revocation list (DER) of the authority's; an older one changes nothing."""
        try:
            crl = x509.load_der_x509_crl(revoked)
        except ValueError as error:
            raise ProtocolError("the revocation list does not parse.") from error
        check_crl(crl, self.authority)
        if crl_number(crl) <= crl_number(self.crl):
            return self
        files.write_whole(self.folder / REVOKED, crl.public_bytes(Encoding.PEM))
        return self.with_crl()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key does not leave its process")


def named(folder: Path) -> Peer:
    """Return whom the certificate of an identity names, in force or not; nothing is written, and no
    key is read.
    """
    return _check_content(load_certificate(folder / CERTIFICATE))


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return making.fingerprint(making.public_key(certificate)) == making.fingerprint(
        key.public_key()
    )


def _settle(folder: Path) -> None:
    """Give a new key its name, now that its certificate is here."""
    (folder / NEXT_KEY).replace(folder / KEY)
    files.sync_folder(folder)


def peer_of(
    certificate_der: bytes | None,
    ca: x509.Certificate,
    crl: x509.CertificateRevocationList,
    run: str,
    now: datetime,
) -> Peer:
    """Say whose certificate this is, or raise `CertificateError` with a `Reason`.

    Authority first: nothing that a stranger wrote is shown or acted on before its signature
    verifies.
    """
    try:
        certificate = x509.load_der_x509_certificate(certificate_der or b"")
    except (
        Exception
    ) as error:  # the parser meets bytes of strangers: whatever it raises is their fault
        raise _bad(
            "does not parse", "Connect with the certificate that 'posse party enrol' wrote."
        ) from error
    return _peer_of(certificate, ca, crl, run, now)


def crl_number(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a revocation list; newer lists have greater ones."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, ValueError) as error:
        raise CertificateError(
            "the revocation list has no number. Get it with 'posse federation ca crl'.", "malformed"
        ) from error


def ssl_contexts(identity: PartyIdentity) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make the contexts of a party as server and as client: TLS 1.3, both sides show certificates
    of the authority.

    Host names are not checked: call `peer_of` on the peer's certificate after every handshake.
    There are no session tickets, so every connection shows its certificate, and no renegotiation.
    """
    server = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    server.num_tickets = 0
    return server, _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def load_pair(identity: PartyIdentity, *contexts: ssl.SSLContext) -> None:
    """Let contexts show the certificate of an identity from the next handshake on; connections that
    stand go on.
    """
    files.check_private(identity.folder / KEY)
    try:
        for context in contexts:
            context.load_cert_chain(identity.folder / CERTIFICATE, identity.folder / KEY)
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(
            f"the identity in {identity.folder} cannot be used: {error}.", "malformed"
        ) from error


def tls(protocol: ssl._SSLMethod, *alpn: str) -> ssl.SSLContext:
    """Make a context of TLS 1.3 without tickets, renegotiation or compression, which looks at no
    host name.
    """
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(alpn)
    return context


def _context(protocol: ssl._SSLMethod, identity: PartyIdentity) -> ssl.SSLContext:
    context = tls(protocol, *ALPN)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=identity.authority.public_bytes(Encoding.DER))
    load_pair(identity, context)
    return context


def _peer_of(
    certificate: x509.Certificate,
    ca: x509.Certificate,
    crl: x509.CertificateRevocationList,
    run: str | None,
    now: datetime,
) -> Peer:
    _check_issuer(certificate, ca)
    check_crl(crl, ca)
    peer = _check_content(certificate)
    if crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
        raise CertificateError(
            f"the certificate of {peer} was revoked. Ask the customer for a new token and enrol "
            "again.",
            Reason.REVOKED,
        )
    _check_time(
        certificate,
        f"the certificate of {peer}",
        "Ask the customer for a new token and enrol again.",
        now,
    )
    _check_time(
        ca, "the authority", "The customer makes a new one with 'posse federation ca init'.", now
    )
    if run is not None and peer.run != run:
        raise CertificateError(
            f"the certificate is for {peer}, this is run '{run}'. Use the identity that was "
            "enrolled for this run.",
            Reason.OTHER_RUN,
        )
    return peer


def _check_issuer(certificate: x509.Certificate, ca: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(ca)
    except (
        Exception
    ) as error:  # InvalidSignature, another issuer's name, a kind of signature that does not fit
        raise CertificateError(
            "the certificate is not signed by this run's authority "
            f"({making.spoken(making.fingerprint(making.public_key(ca)))}). Enrol there with "
            "'posse party enrol'.",
            Reason.WRONG_AUTHORITY,
        ) from error
    if not isinstance(certificate.signature_hash_algorithm, hashes.SHA256):
        raise _bad("is not signed with SHA-256", "Enrol again.")


def check_crl(crl: x509.CertificateRevocationList, ca: x509.Certificate) -> None:
    """Raise unless a revocation list is the authority's."""
    try:
        sound = crl.issuer == ca.subject and crl.is_signature_valid(making.public_key(ca))
    except (InvalidSignature, ValueError, TypeError):
        sound = False
    if not sound:
        raise CertificateError(
            "the revocation list is not signed by this run's authority. Get it again with 'posse "
            "ca crl'.",
            Reason.WRONG_AUTHORITY,
        )


def _check_content(certificate: x509.Certificate) -> Peer:
    public = making.public_key(certificate)
    try:
        extensions = certificate.extensions
        basic = extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        purposes = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound as error:
        raise _no_role() from error
    except Exception as error:  # duplicate or unparsable extensions
        raise _bad("has extensions that do not parse", "Enrol again.") from error
    if any(
        one.critical and isinstance(one.value, x509.UnrecognizedExtension) for one in extensions
    ):
        raise _bad("has a critical extension that posse does not know", "Enrol again.")
    uris = [
        uri
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier)
        if uri.startswith(SCHEME)
    ]
    if not uris:
        raise _no_role()
    peer = from_uri(uris[0])
    if len(uris) != 1 or peer is None:
        raise _bad("does not name one party of one run", "Enrol again.")
    if basic.ca or not usage.digital_signature or usage.key_cert_sign:
        raise _bad("is not one of a party", "Enrol again.")
    if not {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH} <= purposes:
        raise _bad("is not for both ends of a connection", "Enrol again.")
    return replace(peer, public=public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint))


def _check_time(certificate: x509.Certificate, whose: str, remedy: str, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        raise CertificateError(
            f"{whose} begins at {begins:%Y-%m-%d %H:%M} UTC, it is {now:%Y-%m-%d %H:%M} UTC here. "
            "Set the clock of "
            "this machine, or of the authority's.",
            Reason.NOT_YET_VALID,
        )
    if now >= ends:
        raise CertificateError(
            f"{whose} expired at {ends:%Y-%m-%d %H:%M} UTC, it is {now:%Y-%m-%d %H:%M} UTC here. "
            f"{remedy}",
            Reason.EXPIRED,
        )


def _bad(what: str, remedy: str) -> CertificateError:
    return CertificateError(f"the certificate {what}. {remedy}", Reason.MALFORMED)


def _no_role() -> CertificateError:
    return CertificateError(
        "the certificate names no role in a run. Connect with the one that 'posse party enrol' wrote.",
        Reason.NO_ROLE,
    )
