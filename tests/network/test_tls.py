"""TLS of the parties: what is written arrives once and in order, and every end of a connection is
one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from posse.runtime.door import Door
from posse.runtime.network import tls
from posse.runtime.network.calling import call
from posse.runtime.network.connection import why_no_tls
from tests.kit.federations import until


def context(side):
    """Without certificates: this is about bytes."""
    made = ssl.SSLContext(side)
    made.maximum_version, made.check_hostname, made.verify_mode = (
        ssl.TLSVersion.TLSv1_2,
        False,
        ssl.CERT_NONE,
    )
    made.set_ciphers("aNULL:@SECLEVEL=0")
    return made


class End(asyncio.Protocol):
    """Keeps what happened."""

    def __init__(self):
        self.data, self.lost, self.paused, self.transport = b"", [], 0, None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def pause_writing(self):
        self.paused += 1

    def resume_writing(self):
        self.paused -= 1

    def connection_lost(self, error):
        self.lost.append(error)


async def both(within=5.0):
    """Return the two ends of a connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    loop, (host, port) = asyncio.get_running_loop(), listening.getsockname()
    calling = loop.create_task(
        tls.call(End, context(ssl.PROTOCOL_TLS_CLIENT), shutting=1.0, host=host, port=port)
    )
    one, _ = await loop.sock_accept(listening)
    server = await tls.accept(
        End, one, context(ssl.PROTOCOL_TLS_SERVER), within=within, shutting=1.0
    )
    listening.close()
    return await calling, server


def test_bytes_arrive_once_and_in_order():
    async def go():
        client, server = await both()
        sent = [
            bytes([number]) * size
            for number, size in enumerate((1, 20, 16_384, 16_385, 200_000, 3))
        ]
        for data in sent:
            client.transport.write(data)
            server.transport.write(data)
        whole = b"".join(sent)
        await until(lambda: len(client.data) == len(server.data) == len(whole))
        client.transport.close()
        client.transport.write(b"behind the end")
        await until(lambda: client.lost and server.lost)
        return client, server, whole

    client, server, whole = asyncio.run(go())
    assert client.data == server.data == whole
    assert client.lost == server.lost == [None]


def test_what_was_written_before_the_end_arrives():
    async def go():
        client, server = await both()
        client.transport.write(b"why" * 20_000)
        client.transport.close()
        await until(lambda: client.lost and server.lost)
        return server.data

    assert asyncio.run(go()) == b"why" * 20_000


def test_a_paused_end_takes_nothing_until_it_goes_on():
    async def go():
        client, server = await both()
        server.transport.pause_reading()
        size = 0
        while not client.paused:
            client.transport.write(bytes(100_000))
            size += 100_000
            await asyncio.sleep(0)
        held = len(server.data)
        server.transport.resume_reading()
        await until(lambda: len(server.data) == size and not client.paused)
        server.transport.pause_reading()
        server.transport.close()  # which reads on, for the other's goodbye
        await until(lambda: client.lost and server.lost)
        return held, client.lost, server.lost

    assert asyncio.run(go()) == (0, [None], [None])


def test_small_messages_do_not_wait_at_either_end_of_a_link():
    """Nagle's algorithm is off where a party calls, and on the connections that its listener
    accepts.
    """

    async def go():
        served = asyncio.get_running_loop().create_future()

        async def serve(opened, address):
            served.set_result(
                await tls.accept(
                    End, opened, context(ssl.PROTOCOL_TLS_SERVER), within=5.0, shutting=1.0
                )
            )

        door = Door(serve, lambda address, why: None)
        host, port = await door.open("127.0.0.1", 0)
        client = await call(End, host, port, context(ssl.PROTOCOL_TLS_CLIENT))
        ends = (client, await served)
        sockets = [end.transport.get_extra_info("socket") for end in ends]
        options = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets]
        for end in ends:
            end.transport.close()
        await until(lambda: all(end.lost for end in ends))
        await door.closed()
        return options

    assert all(asyncio.run(go()))


def test_an_end_at_once():
    async def go():
        client, server = await both()
        client.transport.abort()
        client.transport.abort()
        client.transport.close()
        await until(lambda: client.lost and server.lost)
        return client.lost

    assert asyncio.run(go()) == [None]


def test_a_peer_that_never_says_goodbye_is_not_waited_for():
    async def go():
        client, server = await both()
        client.transport._shutting = 0.05
        server.transport.pause_reading()
        client.transport.close()
        await until(lambda: client.lost)
        server.transport.abort()
        await until(lambda: server.lost)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks plain HTTP"),
        (b"\x16", "the handshake took too long"),
        (b"", "it hung up"),
    ],
)
def test_a_handshake_that_fails(says, why):
    """Nothing is made of it, and its socket is closed."""

    async def go():
        here, there = socket.socketpair()
        here.setblocking(False)
        there.send(says)
        if not says:
            there.close()
        made = []
        make = lambda: made.append(End()) or made[0]  # noqa: E731
        within = 0.1 if "too long" in why else 60.0
        with pytest.raises((OSError, TimeoutError)) as found:
            await tls.accept(
                make, here, context(ssl.PROTOCOL_TLS_SERVER), within=within, shutting=1.0
            )
        await until(lambda: here.fileno() == -1)
        there.close()
        return made, why_no_tls(found.value)

    made, found = asyncio.run(go())
    assert not made
    assert found.startswith(why)


def test_a_greeting_that_is_given_up_closes_its_socket():
    async def go():
        here, there = socket.socketpair()
        here.setblocking(False)
        task = asyncio.create_task(
            tls.accept(End, here, context(ssl.PROTOCOL_TLS_SERVER), within=60, shutting=1.0)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: here.fileno() == -1)
        there.close()
        return task.cancelled()

    assert asyncio.run(go())
