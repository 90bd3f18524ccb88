"""The authority of one run, in a folder of the customer: `ca.key`, `ca.crt`, `crl.pem`,
`register.db`.

It is the customer's and not the controller's: whoever holds `ca.key` can pose as any party. The
folder is 0700, the key 0600 and on request encrypted (PKCS#8 with a passphrase); tokens can be made
and lists be read without the key.

Its `Desk` decides on requests, bytes in and bytes out. A token is marked as used, its certificate
recorded and its answer kept in one transaction before the answer is handed out; the same bytes
again get the same answer while the token lasts, everything else is refused and counted.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from posse.core import check, files
from posse.core.errors import CertificateError, ConfigError, DataError, EnrolmentError
from posse.runtime.certificates import making, register, tokens
from posse.runtime.certificates.names import Peer, check_host, check_name
from posse.runtime.certificates.register import (
    EXPIRED,
    OPEN,
    USED,
    CertificateRow,
    Register,
    TokenRow,
    Writing,
)
from posse.runtime.certificates.tokens import Refused, Request, Token

KEY, CERTIFICATE, REVOKED, REGISTER = "ca.key", "ca.crt", "crl.pem", "register.db"

T = TypeVar("T")
Clock = Callable[[], datetime]
Passphrase = Callable[[], bytes]
"""Asked when the key is first needed, and only if it is encrypted."""


def utc_now() -> datetime:
    """Read the clock, to the second: certificates and tokens count no finer."""
    return datetime.now(UTC).replace(microsecond=0)


class Authority:
    """Signs who is who in one run."""

    def __init__(
        self, folder: Path | str, *, passphrase: Passphrase | None = None, now: Clock = utc_now
    ) -> None:
        """Open an authority; `passphrase` is called when the key is first needed and is
        encrypted.
        """
        self.folder = Path(folder)
        self.now = now
        if not (self.folder / CERTIFICATE).exists():
            raise CertificateError(
                f"there is no authority in {self.folder}. Make one with 'posse federation ca init'.",
                "missing",
            )
        files.check_private(self.folder)
        self.certificate = load_certificate(self.folder / CERTIFICATE)
        self.register = Register(self.folder / REGISTER)
        self.run, self.name = self.register.fact("run"), self.register.fact("name")
        self._passphrase = passphrase

    @classmethod
    def init(
        cls,
        folder: Path | str,
        name: str,
        run: str,
        *,
        passphrase: bytes | None = None,
        now: Clock = utc_now,
    ) -> Authority:
        """Make an authority in a new folder, which appears whole or not at all; nothing is ever
        overwritten.
        """
        check_name(name=name)
        check_name(run=run)
        if passphrase is not None and len(passphrase) < 8:
            raise ConfigError(
                f"a passphrase must have at least 8 bytes, got {len(passphrase)}. Choose a longer "
                "one."
            )
        target = Path(folder).absolute()
        part = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.part")
        try:
            if target.exists():
                raise DataError(
                    f"{target} exists and is not overwritten. Choose another place for the "
                    "authority."
                )
            part.mkdir(mode=0o700, parents=True)
            cls._fill(part, name, run, passphrase, now())
            part.rename(target)
            files.sync_folder(target.parent)
        except OSError as error:
            raise DataError(
                f"cannot make {target}: {error.strerror}. Choose a place you may write to."
            ) from error
        finally:
            with suppress(OSError):
                shutil.rmtree(part)
        return cls(target, passphrase=None if passphrase is None else lambda: passphrase, now=now)

    @staticmethod
    def _fill(folder: Path, name: str, run: str, passphrase: bytes | None, now: datetime) -> None:
        key = making.new_key()
        certificate = making.authority_certificate(key, name, run, now)
        files.write_whole(folder / KEY, private_pem(key, passphrase), mode=files.PRIVATE)
        files.write_whole(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM))
        revoked = making.revocation_list(certificate, key, (), 0, now)
        files.write_whole(folder / REVOKED, revoked.public_bytes(Encoding.PEM))
        register.create(folder / REGISTER, name=name, run=run)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the authority's public key, as tokens carry it."""
        return making.fingerprint(making.public_key(self.certificate))

    @cached_property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """The private key, read when first needed."""
        key = load_key(self.folder / KEY, self._passphrase)
        if making.fingerprint(key.public_key()) != self.fingerprint:
            raise CertificateError(
                f"{self.folder / KEY} is not the key of {CERTIFICATE}. Restore it.", "malformed"
            )
        return key

    def token(
        self,
        role: str,
        name: str,
        *,
        minutes: int = tokens.MINUTES,
        hosts: Sequence[str] = (),
        days: float = making.PARTY_DAYS,
        address: str = "",
    ) -> Token:
        """Make a token for one party; a name has one role in a run. `hosts` may stand in its
        certificate.
        """
        peer = Peer(self.run, role, name)
        check.between(1, tokens.MOST_MINUTES, minutes=minutes)
        check.between(making.LEAST_DAYS, making.MOST_DAYS, days=days)
        allowed = tuple(dict.fromkeys(check_host(host) for host in hosts))
        now = self.now()
        token = Token.new(self.fingerprint, peer, now + timedelta(minutes=minutes), address)
        with self.register.writing() as writing:
            writing.expire(now)
            known = writing.role_of(peer.name, now)
            if known not in (None, peer.role):
                raise ConfigError(
                    f"'{peer.name}' is {known} in this run and cannot be {peer.role} too. Choose "
                    "another name, or "
                    f"revoke it first with 'posse federation ca revoke {peer.name}'."
                )
            writing.add_token(token, allowed, days, now)
        return token

    def sign(
        self,
        writing: Writing,
        public: ec.EllipticCurvePublicKey,
        peer: Peer,
        hosts: Sequence[str],
        days: float,
    ) -> x509.Certificate:
        """Sign a party's key, and record the certificate inside a transaction."""
        mark = making.fingerprint(public)
        if mark == self.fingerprint or writing.holder_of(mark) not in (
            None,
            (peer.role, peer.name),
        ):
            raise CertificateError(
                "the key is certified for another party. Enrol with a new key.", "key-in-use"
            )
        now = self.now()
        certificate = making.party_certificate(
            self.certificate, self.key, public, peer, hosts, now, days
        )
        writing.add_certificate(certificate, mark, peer, now)
        return certificate

    def renew(self, certificate_der: bytes, csr: bytes) -> x509.Certificate:
        """Sign the key of a request for the party of a certificate in force: for as many days, with
        the same hosts.

        Who asks has shown on its connection that it holds the certificate. The key may be the same,
        as in a run, whose manifest holds it, or a new one; the certificate before stays in force.
        """
        now = self.now()
        before = x509.load_der_x509_certificate(certificate_der)
        with self.register.writing() as writing:
            row = writing.certificate(f"{before.serial_number:x}")
            if (
                row is None
                or row.revoked is not None
                or row.certificate != certificate_der
                or now >= row.expires
            ):
                raise CertificateError(
                    "the authority does not accept this certificate: it is unknown, revoked, "
                    "replaced or expired. Enrol again with a new token.",
                    "revoked",
                )
            return self.sign(
                writing,
                making.requested_key(csr),
                Peer(self.run, row.role, row.name),
                making.hosts_of(before),
                (row.expires - row.issued) / timedelta(days=1),
            )

    def revoke(self, which: str) -> list[str]:
        """Revoke a serial, or a name with its open tokens; returns the serials, and writes the new
        list.
        """
        key = self.key
        now = self.now()
        with self.register.writing() as writing:
            serials = writing.revoke(which.lower(), now)
            withdrawn = writing.withdraw(which.lower())
            if not serials and not withdrawn:
                raise CertificateError(
                    "nothing to revoke: no certificate in force and no open token has the name or "
                    f"serial {which!r}. "
                    "See 'posse federation ca list'.",
                    "missing",
                )
            self._write_crl(writing, key, now)
        return serials

    def crl(self) -> bytes:
        """Sign the present revocation list (PEM), keep it in the folder and return it."""
        key = self.key
        with self.register.writing() as writing:
            return self._write_crl(writing, key, self.now())

    def _write_crl(self, writing: Writing, key: ec.EllipticCurvePrivateKey, now: datetime) -> bytes:
        number = writing.next_crl_number()
        made = making.revocation_list(self.certificate, key, writing.revoked(), number, now)
        pem = made.public_bytes(Encoding.PEM)
        # Before the commit: a list on the disk may be ahead of the register, never behind it.
        files.write_whole(self.folder / REVOKED, pem)
        return pem

    def current_crl(self) -> x509.CertificateRevocationList:
        """Read the list that was written last."""
        return load_crl(self.folder / REVOKED)

    def list(self) -> tuple[list[TokenRow], list[CertificateRow]]:
        """All tokens and certificates, oldest first."""
        return self.register.tokens(self.now()), self.register.certificates()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an authority does not leave its process")


def private_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    """Write a private key as PKCS#8, encrypted where there is a passphrase."""
    protection = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)


def load_key(path: Path, passphrase: Passphrase | None = None) -> ec.EllipticCurvePrivateKey:
    """Read a P-256 key that nobody else may read."""
    files.check_private(path)
    pem = files.read_credential(path, "the key", "Restore it.")
    given: bytes | None = None
    if b"ENCRYPTED" in pem:
        if passphrase is None:
            raise CertificateError(
                f"{path} is encrypted. Give its passphrase with --passphrase-file.", "passphrase"
            )
        given = passphrase()
    try:
        key = load_pem_private_key(pem, given)
    except (ValueError, TypeError) as error:
        if given is not None:
            raise CertificateError(
                f"the passphrase does not open {path}. Try again.", "passphrase"
            ) from error
        raise CertificateError(
            f"{path} is not a private key in PEM form. Restore it.", "malformed"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(
            f"{path} must be a P-256 key. Make it with 'posse party enrol'.", "malformed"
        )
    return key


def load_certificate(path: Path) -> x509.Certificate:
    """Read a certificate that nobody else may change."""
    return _trusted(
        path, x509.load_pem_x509_certificate, "certificate", ("Restore it.", "Restore it.")
    )


def load_crl(path: Path) -> x509.CertificateRevocationList:
    """Read a revocation list that nobody else may change."""
    return _trusted(
        path,
        x509.load_pem_x509_crl,
        "revocation list",
        ("Get it with 'posse federation ca crl'.", "Get it again with 'posse federation ca crl'."),
    )


def _trusted(path: Path, load: Callable[[bytes], T], what: str, remedies: tuple[str, str]) -> T:
    """Read a PEM file that nobody else may change; remedies are for one that is missing and one
    that is damaged.
    """
    files.check_only_owner_writes(path)
    try:
        return load(files.read_credential(path, f"the {what}", remedies[0]))
    except ValueError as error:
        raise CertificateError(
            f"{path} is not a {what} in PEM form. {remedies[1]}", "malformed"
        ) from error


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
        _ = (
            authority.key
        )  # read now: a passphrase is asked for before the first request, not during it

    def answer(self, data: bytes) -> Reply:
        """Grant or refuse; never raises for what a stranger sent."""
        try:
            request = tokens.read_request(data)
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
                # What is not authenticated is not written down: a stranger must not keep the disk
                # busy.
                if error.reason != Refused.ALTERED:
                    writing.refuse(token.id, error.reason)
                return _refusal(error.reason, request, peer, token.refusal_key)

    def _granted(
        self, writing: Writing, token: TokenRow, peer: Peer, request: Request, data: bytes
    ) -> Reply:
        expired = self.authority.now() >= token.expires
        if (
            token.state == USED
            and token.answer is not None
            and token.request == tokens.digest(data)
        ):
            if expired:
                raise tokens.refused(Refused.EXPIRED)
            if writing.is_revoked(token.serial or ""):
                raise tokens.refused(Refused.WITHDRAWN)
            return Reply(token.answer, peer, repeated=True, serial=token.serial or "")
        _check_state(token, expired=expired)
        if token.request_key is None or token.answer_key is None:
            raise tokens.refused(Refused.USED)
        tokens.check_tag(data, token.request_key)
        _check_whom(request, peer)
        try:
            public = making.requested_key(request.csr)
        except CertificateError as error:
            raise tokens.refused(Refused.BAD_KEY) from error
        try:
            # Read before anything is written: a refusal is committed, and must record no
            # certificate.
            revoked = self.authority.current_crl()
            certificate = self.authority.sign(writing, public, peer, token.hosts, token.days)
        except CertificateError as error:
            raise tokens.refused(
                Refused.KEY_IN_USE if error.reason == Refused.KEY_IN_USE else Refused.FAILED
            ) from error
        serial = f"{certificate.serial_number:x}"
        given = [
            one.public_bytes(Encoding.DER)
            for one in (certificate, self.authority.certificate, revoked)
        ]
        reply = tokens.sealed(
            tokens.Answer(tokens.VERSION, request.nonce, serial, *given), token.answer_key
        )
        writing.use(token.id, tokens.digest(data), reply, serial)
        return Reply(reply, peer, serial=serial)


def _check_state(token: TokenRow, *, expired: bool) -> None:
    if token.state == USED:
        raise tokens.refused(Refused.USED)
    if token.state == EXPIRED or expired:
        raise tokens.refused(Refused.EXPIRED)
    if token.state != OPEN:
        raise tokens.refused(Refused.WITHDRAWN)


def _check_whom(request: Request, peer: Peer) -> None:
    for mine, theirs, reason in (
        (peer.run, request.run, Refused.OTHER_RUN),
        (peer.role, request.role, Refused.OTHER_ROLE),
        (peer.name, request.name, Refused.OTHER_NAME),
    ):
        if mine != theirs:
            raise tokens.refused(reason)


def _refusal(
    reason: str, request: Request | None = None, peer: Peer | None = None, key: bytes | None = None
) -> Reply:
    nonce = b"" if request is None else request.nonce
    return Reply(tokens.sealed(tokens.Refusal(tokens.VERSION, nonce, reason), key), peer, reason)
