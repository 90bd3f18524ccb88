"""How a party enrols: its folder, the call it makes, and the port on which the authority takes it.

The party's folder holds

    party.key      private key (0600), drawn here, never sent and never overwritten
    enrol.request  the request as it was sent (0600), kept until it is answered: a lost answer is asked for again
    ca.crt         the authority's certificate, whose fingerprint stood in the token
    crl.pem        what the authority has revoked
    party.crt      the party's certificate, written last: where it is, the rest is

and over the network

    server -> party    the authority's certificate      (TLS 1.3, on a certificate that this authority signed)
    party  -> server   the request
    server -> party    the answer, or a refusal; then it closes

The party accepts only the authority whose fingerprint is in its token, and only if the certificate
of the TLS handshake is signed by it, before it sends anything. Frames have four bytes of length, at
most 64 KiB. A connection has 10 s for its first byte, and 10 s from there to the last of its
answer; who holds many makes room for others (`Door`).
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from posse.core import files
from posse.core.errors import CertificateError, ConfigError, DataError, EnrolmentError, PosseError
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import (
    Authority,
    Clock,
    Desk,
    Reply,
    load_key,
    private_pem,
    utc_now,
)
from posse.runtime.certificates.identity import AUTHORITY, CERTIFICATE, KEY, REVOKED, peer_of, tls
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.tokens import (
    LONGEST,
    VERSION,
    Answer,
    Refusal,
    Refused,
    Token,
    make_request,
    read_answer,
    read_request,
    sealed,
)
from posse.runtime.door import Door, Limits

REQUEST = "enrol.request"
ALPN = "posse-enrol/1"
PORT = 7710
DEADLINE = 10.0
LIMITS = Limits(served=32, served_each=16, rate=20, burst=100)
_LENGTH = 4
_CUT_SHORT = (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError, EnrolmentError)

# The party's folder -------------------------------------------------------------------------------


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
    """Draw the key, write the request and return it; called again for the same token, it returns
    the same bytes.
    """
    token.check_open(now)
    _check_new(folder)
    files.make_private_folder(folder)
    key = _key(folder)
    pending = _pending(token, folder, key)
    if pending is not None:
        return pending
    request = make_request(token, making.signing_request(key))
    files.write_whole(folder / REQUEST, request, mode=files.PRIVATE)
    return request


def complete(token: Token, folder: Path, answer: bytes, now: datetime) -> Enrolled:
    """Check the answer to this folder's request in every respect, and write the identity."""
    _check_new(folder)
    if not (folder / KEY).exists() or not (folder / REQUEST).exists():
        raise EnrolmentError(
            f"no request was made in {folder}. Make one with 'posse party enrol TOKEN --request FILE'."
        )
    key = load_key(folder / KEY)
    pending = _pending(token, folder, key)
    if pending is None:
        raise EnrolmentError(
            f"the request in {folder} was made with another token. Use that token.", "other-request"
        )
    opened = read_answer(token, pending, answer)
    certificate, authority, revoked = check_answer(token, key.public_key(), opened, now)
    files.write_whole(folder / AUTHORITY, authority.public_bytes(Encoding.PEM))
    files.write_whole(folder / REVOKED, revoked.public_bytes(Encoding.PEM))
    files.write_whole(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM), replace=False)
    with suppress(OSError):
        (folder / REQUEST).unlink()
    mark, expires = making.fingerprint(key.public_key()), certificate.not_valid_after_utc
    return Enrolled(folder, token.peer, opened.serial, expires, mark, token.fingerprint)


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
        peer = peer_of(answer.certificate, authority, revoked, token.peer.run, now)
    except CertificateError as error:
        raise EnrolmentError(
            f"the answer's certificate is refused: {error.args[0]}", error.reason
        ) from error
    if peer != token.peer:
        raise EnrolmentError(
            f"the answer is for {peer}, the token for {token.peer}. Ask for a new token.", "other"
        )
    if making.fingerprint(making.public_key(certificate)) != making.fingerprint(public):
        raise EnrolmentError(
            "the answer's certificate is for another key than this party's. Ask again.", "other-key"
        )
    if answer.serial != f"{certificate.serial_number:x}":
        raise EnrolmentError(
            "the answer's serial is not that of its certificate. Ask again.", "malformed"
        )
    return certificate, authority, revoked


def check_fingerprint(token: Token, authority: x509.Certificate) -> None:
    """Raise unless this is the authority whose fingerprint stands in the token."""
    try:
        making.check_authority(authority)
        fingerprint = making.fingerprint(making.public_key(authority))
    except CertificateError as error:
        raise EnrolmentError(
            f"{error.args[0]} This is not the token's authority.", "wrong-authority"
        ) from error
    if fingerprint != token.fingerprint:
        raise EnrolmentError(
            f"the authority at that address has fingerprint {making.spoken(fingerprint)}, and "
            f"the token says {making.spoken(token.fingerprint)}. Possible man-in-the-middle: "
            "check the address with the customer.",
            "wrong-authority",
        )


def _check_new(folder: Path) -> None:
    if (folder / CERTIFICATE).exists():
        raise DataError(f"{folder} holds an identity already. Choose another folder with --out.")


def _key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Draw the key, or read one that has no certificate yet: an enrolment that was cut short goes
    on with it.
    """
    if not (folder / KEY).exists():
        files.write_whole(
            folder / KEY, private_pem(making.new_key()), mode=files.PRIVATE, replace=False
        )
    return load_key(folder / KEY)


def _pending(token: Token, folder: Path, key: ec.EllipticCurvePrivateKey) -> bytes | None:
    """Read the request of this token and key, if it was made."""
    try:
        data = (folder / REQUEST).read_bytes()
        request = read_request(data)
        made_for = making.fingerprint(making.requested_key(request.csr))
    except (OSError, EnrolmentError, CertificateError):
        return None
    return (
        data
        if request.token == token.id and made_for == making.fingerprint(key.public_key())
        else None
    )


# The port and the call ----------------------------------------------------------------------------

Decided = Callable[[Reply, str], None]
"""Called with what was decided and the address it went to."""


class EnrolmentServer:
    """Takes requests for an authority until it is closed."""

    def __init__(
        self,
        desk: Desk,
        *,
        decided: Decided = lambda reply, address: None,
        deadline: float = DEADLINE,
        limits: Limits = LIMITS,
    ) -> None:
        self._desk, self._decided, self._deadline = desk, decided, deadline
        self._context = _server_context(desk.authority)
        self._hello = desk.authority.certificate.public_bytes(Encoding.DER)
        self._door = Door(self._serve, lambda address, why: None, replace(limits, silence=deadline))

    async def start(self, host: str = "127.0.0.1", port: int = PORT) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns where."""
        try:
            return await self._door.open(host, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another --bind or "
                "--port."
            ) from error

    async def until_used(self, *, every: float = 0.5) -> None:
        """Wait until no token is open any more and everybody has been answered."""
        authority = self._desk.authority
        while self._door.busy or authority.register.open_tokens(authority.now()):
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Stop listening and drop those that are connected."""
        await self._door.closed()

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Answer one request; whatever a stranger does ends with this connection."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._deadline):
                reader, writer = await self._handshake(connection)
                await _send(writer, self._hello)
                reply = await self._decide(await _receive(reader))
                self._decided(reply, address)
                await _send(writer, reply.data)
                writer.close()
                await writer.wait_closed()
        except _CUT_SHORT:
            pass
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _handshake(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST + _LENGTH)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._deadline,
            ssl_shutdown_timeout=1.0,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _decide(self, data: bytes) -> Reply:
        try:
            # In a thread: the register waits for the disk, and for other processes.
            return await asyncio.to_thread(self._desk.answer, data)
        except PosseError as error:
            return Reply(
                sealed(Refusal(VERSION, b"", Refused.FAILED), None),
                None,
                f"{Refused.FAILED}: {error}",
            )


async def ask(token: Token, request: bytes, host: str, port: int, *, now: Clock = utc_now) -> bytes:
    """Send a request to the token's authority, and to nobody else; returns the answer, not yet
    opened.
    """
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(2 * DEADLINE):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=_client_context(), limit=LONGEST + _LENGTH
            )
            try:
                presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
                check_desk(token, presented, await _receive(reader), now)
                await _send(writer, request)
                return await _receive(reader)
            finally:
                writer.transport.abort()
    except TimeoutError as error:
        raise EnrolmentError(
            f"{where} did not answer within {2 * DEADLINE:g} s. Try again.", "unreachable"
        ) from error
    except ssl.SSLError as error:
        raise EnrolmentError(
            f"{where} does not speak TLS 1.3 as an authority does ({error.reason or error}). Check "
            "the address.",
            "unreachable",
        ) from error
    except (OSError, EOFError) as error:
        raise EnrolmentError(
            f"cannot enrol at {where}: "
            f"{getattr(error, 'strerror', None) or 'it closed the connection'}. Check the "
            "address and that 'posse federation ca serve' runs there, then try again: the same request "
            "counts.",
            "unreachable",
        ) from error


def check_desk(token: Token, presented: bytes, hello: bytes, now: Clock = utc_now) -> None:
    """Raise unless the TLS certificate is the enrolment port's of the authority in the token."""
    try:
        authority = x509.load_der_x509_certificate(hello)
        certificate = x509.load_der_x509_certificate(presented)
    except ValueError as error:
        raise EnrolmentError(
            "no authority answers at that address. Check it.", "wrong-authority"
        ) from error
    check_fingerprint(token, authority)
    try:
        certificate.verify_directly_issued_by(authority)
        purposes = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (
        Exception
    ) as error:  # InvalidSignature, another issuer, extensions that are missing or do not parse
        raise EnrolmentError(
            "the TLS certificate at that address is not from the token's authority. Possible "
            "man-in-the-middle: check the address.",
            "wrong-authority",
        ) from error
    if purposes != {ExtendedKeyUsageOID.SERVER_AUTH} or names.get_values_for_type(x509.DNSName) != [
        making.DESK_NAME
    ]:
        raise EnrolmentError(
            "a party answers in the authority's place. Check the address.", "wrong-authority"
        )
    if not certificate.not_valid_before_utc <= now() < certificate.not_valid_after_utc:
        raise EnrolmentError(
            "the enrolment port's certificate is out of date. Set this machine's clock.", "expired"
        )


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(_LENGTH, "big") + data)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    if not 0 < length <= LONGEST:
        raise EnrolmentError(
            f"a frame must have 1 to {LONGEST} bytes, got {length}. Check the address.", "frame"
        )
    return await reader.readexactly(length)


def _server_context(authority: Authority) -> ssl.SSLContext:
    context = tls(ssl.PROTOCOL_TLS_SERVER, ALPN)
    context.num_tickets = 0
    key = making.new_key()
    certificate = making.desk_certificate(
        authority.certificate, authority.key, key.public_key(), authority.now()
    )
    # `ssl` reads files only: the key goes there encrypted, and its password nowhere.
    password = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(dir=authority.folder, prefix=".enrol-") as folder:
        pair = Path(folder) / "pair.pem"
        pem = certificate.public_bytes(Encoding.PEM) + private_pem(key, password.encode())
        files.write_whole(pair, pem, mode=files.PRIVATE)
        try:
            context.load_cert_chain(pair, password=password)
        except ssl.SSLError as error:
            raise CertificateError(
                f"the enrolment port cannot be made: {error}.", "malformed"
            ) from error
    return context


def _client_context() -> ssl.SSLContext:
    context = tls(ssl.PROTOCOL_TLS_CLIENT, ALPN)
    # The authority is known by its key's fingerprint alone: `check_desk` verifies before anything
    # is sent.
    context.verify_mode = ssl.CERT_NONE
    return context
