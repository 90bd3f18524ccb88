"""The port on which requests come in, and the call that makes one.

    server -> party    the authority's certificate      (TLS 1.3, on a certificate that this authority signed)
    party  -> server   the request
    server -> party    the answer, or a refusal; then it closes

The party accepts only the authority whose fingerprint is in its token, and only if the certificate of the TLS handshake
is signed by it, before it sends anything. Frames have four bytes of length, at most 64 KiB. A connection has 10 s from
the first byte of its handshake to the last of its answer, and there are at most 32 of them.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from posse.core.errors import CertificateError, ConfigError, EnrolmentError, PosseError
from posse.runtime.certificates import files, making
from posse.runtime.certificates.authority import Authority, Clock, private_pem, utc_now
from posse.runtime.certificates.desk import Desk, Reply
from posse.runtime.certificates.party import check_fingerprint
from posse.runtime.certificates.requests import LONGEST, VERSION, Refusal, Refused, sealed
from posse.runtime.certificates.tokens import Token

ALPN = "posse-enrol/1"
PORT = 7710
DEADLINE = 10.0
CONNECTIONS = 32
_LENGTH = 4

Told = Callable[[Reply, str], None]
"""Called with what was decided and the address it went to."""

_CUT_SHORT = (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError, EnrolmentError)


class EnrolmentServer:
    """Takes requests for an authority until it is closed."""

    def __init__(
        self,
        desk: Desk,
        *,
        told: Told = lambda reply, address: None,
        deadline: float = DEADLINE,
        connections: int = CONNECTIONS,
    ) -> None:
        self._desk = desk
        self._told = told
        self._deadline = deadline
        self._most = connections
        self._context = _server_context(desk.authority)
        self._hello = desk.authority.certificate.public_bytes(Encoding.DER)
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def start(self, host: str = "127.0.0.1", port: int = PORT) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns where."""
        try:
            family = (await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))[0][0]
            self._socket = socket.create_server((host, port), family=family, backlog=self._most)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another --bind or --port."
            ) from error
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._socket))
        found = self._socket.getsockname()
        return str(found[0]), int(found[1])

    async def until_used(self, *, every: float = 0.5) -> None:
        """Wait until no token is open any more and everybody has been answered."""
        authority = self._desk.authority
        while self._connections or authority.register.open_tokens(authority.now()):
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Stop listening and drop those that are connected."""
        tasks = [*self._connections, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:  # out of descriptors, or gone before it was accepted
                await asyncio.sleep(0.05)
                continue
            # Counted from here, so that those who never finish a handshake count too.
            if len(self._connections) >= self._most:
                connection.close()
                continue
            task = asyncio.create_task(self._serve(connection, str(address[0])))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Answer one request; whatever a stranger does ends with this connection."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._deadline):
                reader, writer = await self._handshake(connection)
                await _send(writer, self._hello)
                reply = await self._decide(await _receive(reader))
                self._told(reply, address)
                await _send(writer, reply.data)
                writer.close()
                await writer.wait_closed()
        except _CUT_SHORT:
            pass
        finally:
            if writer is not None:
                writer.transport.abort()
            connection.close()

    async def _handshake(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST + _LENGTH)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._deadline,
            ssl_shutdown_timeout=self._deadline,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _decide(self, data: bytes) -> Reply:
        try:
            # In a thread: the register waits for the disk, and for other processes.
            return await asyncio.to_thread(self._desk.answer, data)
        except PosseError as error:
            return Reply(sealed(Refusal(VERSION, b"", Refused.FAILED), None), None, f"{Refused.FAILED}: {error}")


async def ask(token: Token, request: bytes, host: str, port: int, *, now: Clock = utc_now) -> bytes:
    """Send a request to the token's authority, and to nobody else; returns the answer, not yet opened."""
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(2 * DEADLINE):
            reader, writer = await asyncio.open_connection(host, port, ssl=_client_context(), limit=LONGEST + _LENGTH)
            try:
                check_desk(token, _presented(writer), await _receive(reader), now)
                await _send(writer, request)
                return await _receive(reader)
            finally:
                writer.transport.abort()
    except TimeoutError as error:
        raise EnrolmentError(f"{where} did not answer within {2 * DEADLINE:g} s. Try again.", "unreachable") from error
    except ssl.SSLError as error:
        raise EnrolmentError(
            f"{where} does not speak TLS 1.3 as an authority does ({error.reason or error}). Check the address.",
            "unreachable",
        ) from error
    except (OSError, EOFError) as error:
        raise EnrolmentError(
            f"cannot enrol at {where}: {getattr(error, 'strerror', None) or 'it closed the connection'}. Check the "
            "address and that 'posse ca serve' runs there, then try again: the same request counts.",
            "unreachable",
        ) from error


def check_desk(token: Token, presented: bytes, hello: bytes, now: Clock = utc_now) -> None:
    """Raise unless the TLS certificate is the enrolment port's of the authority in the token."""
    try:
        authority = x509.load_der_x509_certificate(hello)
        certificate = x509.load_der_x509_certificate(presented)
    except ValueError as error:
        raise EnrolmentError("no authority answers at that address. Check it.", "wrong-authority") from error
    check_fingerprint(token, authority)
    try:
        certificate.verify_directly_issued_by(authority)
        purposes = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # InvalidSignature, another issuer, extensions that are missing or do not parse
        raise EnrolmentError(
            "the TLS certificate is not of the token's authority. Somebody is in between: check the address.",
            "wrong-authority",
        ) from error
    if purposes != {ExtendedKeyUsageOID.SERVER_AUTH} or names.get_values_for_type(x509.DNSName) != [making.DESK_NAME]:
        raise EnrolmentError("a party answers in the authority's place. Check the address.", "wrong-authority")
    if not certificate.not_valid_before_utc <= now() < certificate.not_valid_after_utc:
        raise EnrolmentError("the enrolment port's certificate is out of date. Set this machine's clock.", "expired")


def _presented(writer: asyncio.StreamWriter) -> bytes:
    tls = writer.get_extra_info("ssl_object")
    return tls.getpeercert(binary_form=True) or b""


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(_LENGTH, "big") + data)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    if not 0 < length <= LONGEST:
        raise EnrolmentError(f"a frame must have 1 to {LONGEST} bytes, got {length}. Check the address.", "frame")
    return await reader.readexactly(length)


def _server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    context.set_alpn_protocols([ALPN])
    key = making.new_key()
    certificate = making.desk_certificate(authority.certificate, authority.key, key.public_key(), authority.now())
    # `ssl` reads files only: the key goes there encrypted, and its password nowhere.
    password = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(dir=authority.folder, prefix=".enrol-") as folder:
        pair = Path(folder) / "pair.pem"
        pem = certificate.public_bytes(Encoding.PEM) + private_pem(key, password.encode())
        files.write_whole(pair, pem, mode=files.PRIVATE)
        try:
            context.load_cert_chain(pair, password=password)
        except ssl.SSLError as error:
            raise CertificateError(f"the enrolment port cannot be made: {error}.", "malformed") from error
    return context


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The authority is known by its key's fingerprint alone: `check_desk` verifies before anything is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context
