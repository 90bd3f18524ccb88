"""Over the wire, on loopback: strangers, slow ones, liars, kills; and that it works."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError, ConfigError, EnrolmentError
from posse.runtime.certificates import enrolment, making
from posse.runtime.certificates.authority import Authority, Desk, Reply, private_pem, utc_now
from posse.runtime.certificates.enrolment import EnrolmentServer, ask, check_desk
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.certificates.tokens import LONGEST, Token, read_answer
from posse.runtime.door import Limits
from tests.kit.certificates import RUN, issue, request_for


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority of today: TLS reads the clock by itself."""
    return Authority.init(tmp_path / "ca", "acme", RUN)


@asynccontextmanager
async def served(
    authority: Authority, **options: Any
) -> AsyncIterator[tuple[int, EnrolmentServer, list[Reply]]]:
    replies: list[Reply] = []
    server = EnrolmentServer(
        Desk(authority), decided=lambda reply, address: replies.append(reply), **options
    )
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port, server, replies
    finally:
        await server.close()


def run(coroutine: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(240):
            await coroutine

    asyncio.run(limited())


async def enrol(token: Token, folder: Path, port: int) -> None:
    request = enrolment.prepare(token, folder, utc_now())
    enrolment.complete(token, folder, await ask(token, request, "127.0.0.1", port), utc_now())


def test_parties_enrol_at_once_and_the_server_ends(authority: Authority, tmp_path: Path) -> None:
    tokens = [authority.token("owner", f"clinic-{i}") for i in range(3)]

    async def body() -> None:
        async with served(authority) as (port, server, replies):
            ending = asyncio.create_task(server.until_used(every=0.02))
            await asyncio.sleep(0.1)
            assert not ending.done()
            await asyncio.gather(
                *(enrol(token, tmp_path / token.peer.name, port) for token in tokens)
            )
            await ending
            assert sorted(str(reply.peer and reply.peer.name) for reply in replies) == [
                f"clinic-{i}" for i in range(3)
            ]

    run(body())
    for token in tokens:
        assert PartyIdentity.load(tmp_path / token.peer.name).peer == token.peer
    assert sorted(path.name for path in authority.folder.iterdir()) == [
        "ca.crt",
        "ca.key",
        "crl.pem",
        "register.db",
    ]


def test_it_ends_when_tokens_expire(tmp_path: Path) -> None:
    offset = [0.0]
    authority = Authority.init(tmp_path / "ca", "acme", RUN)
    authority.now = lambda: utc_now() + making.timedelta(minutes=offset[0])
    authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority) as (_, server, _):
            ending = asyncio.create_task(server.until_used(every=0.02))
            await asyncio.sleep(0.1)
            assert not ending.done()
            offset[0] = 15
            await ending

    run(body())


def test_one_token_for_many_at_once(authority: Authority, tmp_path: Path) -> None:
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority) as (port, _, replies):
            done = await asyncio.gather(
                *(enrol(token, tmp_path / f"{i}", port) for i in range(5)), return_exceptions=True
            )
            lost = [one for one in done if one is not None]
            assert len(lost) == 4
            assert all(isinstance(one, EnrolmentError) and one.reason == "used" for one in lost)
            assert sorted(reply.reason for reply in replies) == ["", *["used"] * 4]

    run(body())
    assert len(authority.list()[1]) == 1


def test_the_client_sends_nothing_to_another_authority(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority.init(tmp_path / "other", "acme", RUN)
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(other) as (port, _, replies):
            with pytest.raises(
                EnrolmentError, match="Possible man-in-the-middle: check the address"
            ) as caught:
                await ask(token, request_for(token), "127.0.0.1", port)
            assert caught.value.reason == "wrong-authority"
            await asyncio.sleep(0.05)
            assert replies == []

    run(body())


async def impostor(
    tmp_path: Path,
    certificate: bytes,
    key: bytes,
    hello: bytes,
    check: Callable[[int], Awaitable[None]],
) -> bytes:
    """Serve a hello with a TLS certificate of one's choice; returns what the client sent after
    it.
    """
    (tmp_path / "pair.pem").write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(len(hello).to_bytes(4, "big") + hello)
        try:
            got.set_result(await reader.read(10))
        except OSError:
            got.set_result(b"")
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    await check(listening.sockets[0].getsockname()[1])
    listening.close()
    await listening.wait_closed()
    return await got


def test_a_man_in_the_middle_with_the_true_hello(authority: Authority, tmp_path: Path) -> None:
    """The authority's certificate is public: showing it proves nothing, the TLS certificate must be
    signed by it.
    """
    token = authority.token("owner", "clinic-b")
    request = request_for(token)
    hello = authority.certificate.public_bytes(Encoding.DER)
    key = making.new_key()
    selfsigned = making.authority_certificate(key, "acme", RUN, utc_now())
    # Signed by an authority of the same name, for the right purpose and name: only the signature
    # gives it away.
    alike = making.desk_certificate(selfsigned, key, key.public_key(), utc_now())
    a_party = issue(authority, "controller", "controller", key)
    posing = issue(authority, "controller", "controller", key, hosts=[making.DESK_NAME])
    for certificate, says in (
        (selfsigned, "Possible man-in-the-middle"),
        (alike, "Possible man-in-the-middle"),
        (a_party, "a party answers"),
        (posing, "a party answers"),
    ):

        async def check(port: int, says: str = says) -> None:
            with pytest.raises(EnrolmentError, match=says):
                await ask(token, request, "127.0.0.1", port)

        async def body(certificate: Any = certificate) -> None:
            sent = await impostor(
                tmp_path, certificate.public_bytes(Encoding.PEM), private_pem(key), hello, check
            )
            assert sent == b"", "the request was sent to an impostor"

        run(body())


def test_a_port_certificate_out_of_date(authority: Authority) -> None:
    token = authority.token("owner", "clinic-b")
    key = making.new_key().public_key()
    shown = making.desk_certificate(
        authority.certificate, authority.key, key, utc_now()
    ).public_bytes(Encoding.DER)
    hello = authority.certificate.public_bytes(Encoding.DER)
    check_desk(token, shown, hello)
    with pytest.raises(EnrolmentError, match="out of date"):
        check_desk(token, shown, hello, lambda: utc_now() + making.timedelta(days=8))
    for shown_, hello_ in ((b"", hello), (shown, b""), (shown, b"junk")):
        with pytest.raises(EnrolmentError, match="no authority answers"):
            check_desk(token, shown_, hello_)


async def closes(reader: asyncio.StreamReader, within: float) -> float:
    """Wait until the server closes; seconds it took."""
    begun = time.monotonic()
    async with asyncio.timeout(within):
        try:
            while await reader.read(1000):
                pass
        except OSError:
            pass
    return time.monotonic() - begun


async def tls_to(port: int, context: ssl.SSLContext | None = None) -> Any:
    return await asyncio.open_connection(
        "127.0.0.1", port, ssl=context or enrolment._client_context()
    )


def test_oversized_and_empty_frames(authority: Authority) -> None:
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority) as (port, _, replies):
            for length in (LONGEST + 1, 0, 2**32 - 1):
                reader, writer = await tls_to(port)
                writer.write(length.to_bytes(4, "big") + b"x" * 1000)
                await closes(reader, 240)
                writer.transport.abort()
            assert replies == []
            read_answer(
                token, (request := request_for(token)), await ask(token, request, "127.0.0.1", port)
            )

    run(body())


def test_a_client_meets_an_oversized_frame(authority: Authority, tmp_path: Path) -> None:
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority) as (port, server, _):
            server._hello = bytes(LONGEST + 1)
            with pytest.raises(
                EnrolmentError, match="a frame must have 1 to 65536 bytes, got 65537"
            ):
                await ask(token, request_for(token), "127.0.0.1", port)

    run(body())


def test_slow_peers_are_dropped_at_the_deadline(authority: Authority) -> None:
    authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority, deadline=0.4) as (port, server, _):
            silent = await asyncio.open_connection("127.0.0.1", port)
            after_tls = await tls_to(port)
            dripping = await tls_to(port)

            async def drip() -> None:
                for byte in b"\0\0\1\0" + bytes(200):
                    dripping[1].write(bytes([byte]))
                    await asyncio.sleep(0.05)

            drops = asyncio.create_task(drip())
            for reader, _ in (silent, after_tls, dripping):
                await closes(reader, 240)
            assert not drops.done()  # it would have gone on for ten seconds
            drops.cancel()
            for _, writer in (silent, after_tls, dripping):
                writer.transport.abort()
            async with asyncio.timeout(240):
                while server._door.busy:
                    await asyncio.sleep(0.01)

    run(body())


@pytest.mark.parametrize("begin", [False, True])
def test_who_says_nothing_keeps_nobody_out(authority: Authority, begin: bool) -> None:
    """Silent connections, and handshakes that are not gone on with: the oldest make room."""
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority, limits=Limits(8, 4, 3, 2)) as (port, server, _):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            if begin:
                for _, writer in idle:
                    writer.write(b"\x16\x03\x01\x02\x00")  # the head of a record, and no record
            await asyncio.sleep(0.05)
            assert len(server._door._waiting) <= 4
            assert len(server._door._served) <= 2
            request = request_for(token)
            read_answer(token, request, await ask(token, request, "127.0.0.1", port))
            for _, writer in idle:
                writer.transport.abort()

    run(body())


def test_one_request_a_connection(authority: Authority) -> None:
    token, other = authority.token("owner", "clinic-b"), authority.token("owner", "clinic-c")

    async def body() -> None:
        async with served(authority) as (port, _, replies):
            reader, writer = await tls_to(port)
            for one in (token, other):
                request = request_for(one)
                writer.write(len(request).to_bytes(4, "big") + request)
            await closes(reader, 240)
            writer.transport.abort()
            assert [reply.peer for reply in replies] == [token.peer]

    run(body())


def test_plaintext_and_old_tls(authority: Authority) -> None:
    token = authority.token("owner", "clinic-b")

    async def body() -> None:
        async with served(authority) as (port, _, replies):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            request = request_for(token)
            writer.write(b"GET / HTTP/1.0\r\n\r\n" + len(request).to_bytes(4, "big") + request)
            await closes(reader, 240)
            writer.transport.abort()
            old = enrolment._client_context()
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await tls_to(port, old)
            assert replies == []
            await ask(token, request, "127.0.0.1", port)

    run(body())


def test_a_client_meets_plaintext_silence_and_nobody(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = authority.token("owner", "clinic-b")
    request = request_for(token)
    monkeypatch.setattr(enrolment, "DEADLINE", 0.2)

    async def body() -> None:
        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            await reader.read(2000)
            writer.close()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        for handler, says in (
            (http, "does not speak TLS 1.3"),
            (silent, "did not answer within 0.4 s"),
        ):
            listening = await asyncio.start_server(handler, "127.0.0.1", 0)
            with pytest.raises(EnrolmentError, match=says):
                await ask(token, request, "127.0.0.1", listening.sockets[0].getsockname()[1])
            listening.close()
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        with pytest.raises(EnrolmentError, match=r"cannot enrol at .* Check the address"):
            await ask(token, request, "127.0.0.1", port)

    run(body())


def test_a_failing_register_is_a_refusal(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = authority.token("owner", "clinic-b")

    def broken(self: Desk, data: bytes) -> Reply:
        raise CertificateError("the disk is full.")

    monkeypatch.setattr(Desk, "answer", broken)

    async def body() -> None:
        async with served(authority) as (port, _, replies):
            request = request_for(token)
            with pytest.raises(EnrolmentError, match="the authority could not sign"):
                read_answer(token, request, await ask(token, request, "127.0.0.1", port))
            assert "the disk is full" in replies[0].reason

    run(body())


def test_a_port_that_is_taken(authority: Authority) -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = EnrolmentServer(Desk(authority))
            with pytest.raises(ConfigError, match="cannot listen on"):
                await server.start("127.0.0.1", taken.getsockname()[1])
            await server.close()

    run(body())


KILLED = """
import asyncio, os, signal, sys
from posse.runtime.certificates.authority import Authority
from posse.runtime.certificates.authority import Desk
from posse.runtime.certificates.enrolment import EnrolmentServer

class Dying(Desk):
    def answer(self, data):
        super().answer(data)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    server = EnrolmentServer(Dying(Authority(sys.argv[1])))
    print((await server.start("127.0.0.1", 0))[1], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_killed_between_marking_and_answering(authority: Authority, tmp_path: Path) -> None:
    token = authority.token("owner", "clinic-b")
    folder = tmp_path / "b"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(authority.folder)], stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdout is not None
        port = int(dying.stdout.readline())

        async def lost() -> None:
            with pytest.raises(EnrolmentError, match="the same request counts"):
                await enrol(token, folder, port)

        run(lost())
        assert dying.wait(20) == -signal.SIGKILL
    ((row,), (certificate,)) = authority.list()
    assert row.state == "used"
    assert not (folder / "party.crt").exists()

    async def again() -> None:
        async with served(authority) as (port, _, replies):
            with pytest.raises(EnrolmentError, match="used already"):
                await enrol(token, tmp_path / "thief", port)
            await enrol(token, folder, port)
            assert [(reply.reason, reply.repeated) for reply in replies] == [
                ("used", False),
                ("", True),
            ]

    run(again())
    assert f"{PartyIdentity.load(folder).certificate.serial_number:x}" == certificate.serial
    assert len(authority.list()[1]) == 1


def test_the_ports_key_is_nowhere_on_the_disk(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    write = enrolment.files.write_whole
    monkeypatch.setattr(
        enrolment.files,
        "write_whole",
        lambda path, data, **mode: (written.append(data), write(path, data, **mode)),
    )
    EnrolmentServer(Desk(authority))
    (pair,) = written
    assert b"ENCRYPTED PRIVATE KEY" in pair
    assert not [
        path for path in authority.folder.rglob("*") if path.name.startswith((".enrol", "pair"))
    ]


def test_tampering_with_a_token_in_transit(authority: Authority, tmp_path: Path) -> None:
    token = authority.token("owner", "clinic-b")
    raised = msgspec.structs.replace(token, peer=enrolment.Peer(RUN, "comp", "comp"))

    async def body() -> None:
        async with served(authority) as (port, _, _):
            with pytest.raises(EnrolmentError) as caught:
                await enrol(Token.read(raised.text()), tmp_path / "comp", port)
            assert caught.value.reason == "other-role"

    run(body())
    assert not (tmp_path / "comp" / "party.crt").exists()
    assert os.listdir(tmp_path / "comp")
