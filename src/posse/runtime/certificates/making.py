"""Certificates, requests for them and revocation lists, as values: P-256, SHA-256, DER.

An authority signs parties directly (path length 0). What a party is stands in one place, the URI
among its alternative names; subjects are for people and are never read back.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from posse.core.errors import CertificateError
from posse.runtime.certificates.names import Peer

AUTHORITY_DAYS = 5 * 365
PARTY_DAYS = 90
LEAST_DAYS, MOST_DAYS = 1 / 1440, 825
DESK_DAYS = 7
SKEW = timedelta(hours=25)
"""How far back a certificate begins: clocks of parties differ, and one set back by a day must not
stop a run.
"""

DESK_NAME = "enrolment.posse.invalid"
"""DNS name of the certificate on the enrolment port; it is no party and has no role."""

_BOTH = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)


def lifetime(certificate: x509.Certificate) -> float:
    """Return the seconds for which a certificate was made, less the time by which it begins
    early.
    """
    return (
        certificate.not_valid_after_utc - certificate.not_valid_before_utc - SKEW
    ).total_seconds()


def renewal_due(certificate: x509.Certificate, days: float, now: datetime) -> bool:
    """Whether these days, or a third of its time where that is less, are left of a certificate."""
    left = (certificate.not_valid_after_utc - now).total_seconds()
    return left < min(days * 86_400, lifetime(certificate) / 3)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Draw a P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def fingerprint(public: ec.EllipticCurvePublicKey) -> bytes:
    """SHA-256 of a public key (SubjectPublicKeyInfo, DER)."""
    return hashlib.sha256(
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()


def spoken(fingerprint: bytes) -> str:
    """128 bits of a fingerprint in groups, to compare by telephone.

    >>> spoken(bytes(range(32)))
    '0001-0203-0405-0607-0809-0a0b-0c0d-0e0f'
    """
    return fingerprint[:16].hex("-", 2)


def public_key(
    certificate: x509.Certificate | x509.CertificateSigningRequest,
) -> ec.EllipticCurvePublicKey:
    """Return the key of a certificate or request; it must be on P-256."""
    try:
        key = certificate.public_key()
    except Exception as error:  # a key of a kind or curve that the library does not know
        raise CertificateError(
            "a key must be on P-256, got one of an unknown kind.", "malformed"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(f"a key must be on P-256, got {type(key).__name__}.", "malformed")
    return key


def authority_certificate(
    key: ec.EllipticCurvePrivateKey, name: str, run: str, now: datetime
) -> x509.Certificate:
    """Sign the authority's own certificate: five years, parties directly below it, nothing but
    signing.
    """
    subject = _subject(f"{name} (authority)", run)
    return (
        _builder(
            subject,
            subject,
            key.public_key(),
            key.public_key(),
            now,
            now + timedelta(days=AUTHORITY_DAYS),
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def party_certificate(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    peer: Peer,
    hosts: Sequence[str],
    now: datetime,
    days: float,
) -> x509.Certificate:
    """Sign a party's certificate: its URI, the hosts it was allowed, and both ends of TLS."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(peer.uri), *map(_host, hosts)]
    return _leaf(authority, key, public, _subject(peer.name, peer.run), names, _BOTH, now, days)


def desk_certificate(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
) -> x509.Certificate:
    """Sign the certificate of the enrolment port: no role, server only, a week."""
    return _leaf(
        authority,
        key,
        public,
        _subject("enrolment", "posse"),
        [x509.DNSName(DESK_NAME)],
        (ExtendedKeyUsageOID.SERVER_AUTH,),
        now,
        DESK_DAYS,
    )


def revocation_list(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    revoked: Iterable[tuple[int, datetime]],
    number: int,
    now: datetime,
) -> x509.CertificateRevocationList:
    """Sign the list of revoked serials. It has a number that only grows, and no date after which it
    counts for less.
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - SKEW)
        .next_update(max(authority.not_valid_after_utc, now))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key(authority)),
            critical=False,
        )
    )
    for serial, at in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256())


def signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Sign a request for a certificate: the key proves itself; who it is for is the token's to
    say.
    """
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "posse")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.DER)


def requested_key(csr: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key that a request proves to hold; everything else in the request is ignored."""
    try:
        request = x509.load_der_x509_csr(csr)
        sound = request.is_signature_valid
    except (
        Exception
    ) as error:  # the parser meets bytes of strangers: whatever it raises is their fault
        raise CertificateError(
            "a request for a certificate does not parse. Make it again.", "malformed"
        ) from error
    if not sound:
        raise CertificateError(
            "a request for a certificate is not signed with its own key.", "malformed"
        )
    return public_key(request)


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the hosts that a party's certificate allows."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def check_authority(certificate: x509.Certificate) -> None:
    """Raise unless a certificate is that of an authority, signed by itself."""
    try:
        certificate.verify_directly_issued_by(certificate)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (
        InvalidSignature,
        ValueError,
        TypeError,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
    ) as error:
        raise CertificateError(
            "the authority's certificate is not one that signs itself.", "malformed"
        ) from error
    public_key(certificate)
    if not (basic.ca and usage.key_cert_sign and usage.crl_sign):
        raise CertificateError(
            "the authority's certificate may not sign certificates.", "malformed"
        )


def _subject(name: str, run: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, run),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:64]),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _leaf(
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    subject: x509.Name,
    names: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    now: datetime,
    days: float,
) -> x509.Certificate:
    end = min(now + timedelta(days=days), authority.not_valid_after_utc)
    if end <= now:
        raise CertificateError(
            "the authority has expired. Make a new one with 'posse federation ca init'.", "expired"
        )
    return (
        _builder(subject, authority.subject, public, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
