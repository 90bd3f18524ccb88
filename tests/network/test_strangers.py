"""Strangers, and enrolled peers that behave like them, keep nobody from a run and take little of
its machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl

import pytest

from posse.runtime import door as door_module
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.door import RESERVE, Door, Limits
from posse.runtime.network import connection as connection_module
from tests.kit.federations import laid_out, opened, run_all, until

SMALL = Limits(waiting=16, waiting_each=8, served=6, served_each=3, rate=40, burst=60, silence=30)


def connected(port, at="127.0.0.1"):
    """A connection of a stranger's, from an address of its own."""
    return socket.create_connection(("127.0.0.1", port), source_address=(at, 0))


class Besieged:
    """A federation of which everybody runs but one owner, who comes back while the controller is
    attacked.
    """

    def __init__(self, folder, limits=SMALL):
        self.paths = {path.stem: path for path in laid_out(folder, budget=20)}
        self.late, self.folder, self.limits, self.lines, self.held = (
            "clinic-1",
            folder,
            limits,
            [],
            [],
        )

    async def __aenter__(self):
        self.parties = [self.open(name) for name in self.paths if name != self.late]
        self.controller = self.parties[0]
        self.controller.wiring.limits = self.limits
        self.running = [asyncio.create_task(party.run()) for party in self.parties]
        while not self.controller.port or len(self.controller.connections) < len(self.parties) - 1:
            await asyncio.sleep(0.01)
        return self

    def open(self, name):
        log = (
            (lambda event, **fields: self.lines.append((event, fields)))
            if name == "controller"
            else None
        )
        return opened(self.paths[name], log=log)

    async def __aexit__(self, kind, error, trace):
        if error is None:
            await run_all([self.open(self.late)])  # while the attack goes on
            await asyncio.wait_for(asyncio.gather(*self.running), 240)
            assert all(party.engine.role.finished for party in self.parties)
        for task in self.running:
            task.cancel()
        for one in self.held:
            one.close()

    def at_the_door(self):
        return len(self.controller._open) - len(self.controller.connections)


def test_silent_connections_of_one_address(tmp_path):
    async def go():
        async with Besieged(tmp_path) as run:
            before = len(os.listdir("/proc/self/fd"))
            run.held = [connected(run.controller.port) for _ in range(100)]
            await until(
                lambda: run.controller.counts["refused stranger"] >= 100 - SMALL.waiting_each
            )
            here = len(os.listdir("/proc/self/fd")) - before - len(run.held)
            assert here <= SMALL.waiting_each
            # Five lines a minute, and one that counts the others, however many come.
            assert sum(event == "refused" for event, _ in run.lines) == 5
        (more,) = [fields for event, fields in run.lines if event == "more"]
        assert more["times"] >= 80

    asyncio.run(go())


def test_silent_connections_of_many_addresses(tmp_path):
    async def go():
        async with Besieged(tmp_path) as run:
            run.held = [connected(run.controller.port, f"127.0.0.{2 + i % 50}") for i in range(200)]
            await until(lambda: run.controller.counts["refused stranger"] >= 200 - SMALL.waiting)

    asyncio.run(go())


def test_handshakes_that_are_not_gone_on_with(tmp_path):
    async def go():
        async with Besieged(tmp_path) as run:
            for i in range(50):
                run.held.append(
                    connected(run.controller.port, "127.0.0.2" if i % 2 else "127.0.0.1")
                )
                run.held[-1].sendall(b"\x16\x03\x01\x02\x00")  # the head of a record, and no record
                await asyncio.sleep(0)
            await until(lambda: run.controller.counts["refused stranger"] >= 50 - SMALL.served)

    asyncio.run(go())


def test_an_address_that_calls_without_end_is_served_now_and_then(tmp_path):
    """Its handshakes are work: beyond its rate it is turned away before them, and others are
    not.
    """

    async def go():
        async with Besieged(tmp_path, Limits(rate=1, burst=8)) as run:
            began = asyncio.get_running_loop().time()
            for _ in range(60):  # 8 at once, and one a second
                with connected(run.controller.port, "127.0.0.2") as one:
                    one.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    await asyncio.sleep(0.002)
            refused = 45 - (
                asyncio.get_running_loop().time() - began
            )  # on a busy machine seconds pass meanwhile
            await until(lambda: run.controller.counts["refused stranger"] >= refused)

    asyncio.run(go())


def test_an_enrolled_owner_has_one_connection_and_one_greeting(tmp_path):
    """Before, it could use up all connections for the others."""

    async def go():
        async with Besieged(tmp_path, Limits(rate=100, burst=100)) as run:
            context = ssl_contexts(PartyIdentity.load(tmp_path / "clinic-2"))[1]
            at = ("127.0.0.1", run.controller.port)
            writers = [
                (await asyncio.open_connection(*at, ssl=context, server_hostname=""))[1]
                for _ in range(30)
            ]
            await until(lambda: run.at_the_door() <= 1)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(go())


def test_who_is_refused_is_gone_soon_and_not_when_it_likes(tmp_path, monkeypatch):
    """A refused peer that does not close its side held the connection for half a minute."""
    monkeypatch.setattr(connection_module, "SHUTTING", 0.1)

    async def go():
        async with Besieged(tmp_path) as run:
            context = ssl_contexts(PartyIdentity.load(tmp_path / "clinic-3"))[1]
            admit, run.controller.identify = (
                run.controller.identify,
                lambda certificate: ("owner", "nobody"),
            )
            for _ in range(5):
                run.held.append(connected(run.controller.port))
                with contextlib.suppress(OSError):
                    run.held.append(await asyncio.to_thread(context.wrap_socket, run.held.pop()))
            await until(
                lambda: run.controller.counts["refused certificate"] == 5 and not run.at_the_door()
            )
            run.controller.identify = admit

    asyncio.run(go())


def test_the_last_descriptors_are_for_the_partys_own_files(tmp_path, monkeypatch):
    """With every other descriptor in strangers' hands the journal still opens what it needs."""
    free = [os.dup(0) for _ in range(80)]
    monkeypatch.setattr(door_module, "_descriptors", lambda wanted: free[-1] + RESERVE)
    for each in free:
        os.close(each)
    refusals, held = [], []

    async def go():
        async def serve(one, address):
            raise AssertionError("nobody says anything")

        door = Door(
            serve, lambda address, why: refusals.append(why), Limits(waiting=500, waiting_each=500)
        )
        _, port = await door.open("127.0.0.1", 0)
        held.extend(connected(port) for _ in range(60))  # on this side they count too
        await until(lambda: len(door._waiting) + len(refusals) == 60)
        assert len(door._waiting) < 20
        door.close()

    asyncio.run(go())
    for one in held:
        one.close()
    assert set(refusals) == {"the last descriptors are for the party itself"}
    assert len(refusals) >= 40


def test_descriptors_are_raised_for_the_peers_there_are(monkeypatch):
    given = []
    monkeypatch.setattr(door_module.resource, "getrlimit", lambda what: (256, 4096))
    monkeypatch.setattr(
        door_module.resource, "setrlimit", lambda what, limits: given.append(limits)
    )
    assert door_module._descriptors(100) == 256
    assert door_module._descriptors(1000) == 1000 + 2 * RESERVE
    assert door_module._descriptors(9000) == 4096
    assert given == [(1128, 4096), (4096, 4096)]


def test_a_name_with_two_addresses_is_listened_on_at_both():
    async def go():
        seen = []

        async def serve(one, address):
            seen.append(address)
            one.close()

        door = Door(serve, lambda address, why: None)
        _, port = await door.open("localhost", 0)
        for listening in door._listening:
            with socket.socket(listening.family) as one:
                one.connect((listening.getsockname()[0], port))
                one.send(b"x")
                awaited = len(seen) + 1
                await until(lambda: len(seen) == awaited)  # noqa: B023
        listening = len(door._listening)
        await door.closed()
        return seen, listening

    seen, listening = asyncio.run(go())
    assert len(seen) == listening


@pytest.mark.parametrize("silence", [0.1])
def test_silence_ends(silence):
    async def go():
        why = []
        door = Door(
            lambda one, address: asyncio.sleep(0),
            lambda address, text: why.append(text),
            Limits(silence=silence),
        )
        _, port = await door.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 240)
        writer.transport.abort()
        await door.closed()
        return why

    assert asyncio.run(go()) == ["silent for 0.1 s"]


def test_a_greeting_given_up_keeps_its_descriptor_while_a_transport_has_it():
    """Closed under its transport, its number would go to the next connection, and be read by
    two.
    """

    def context(side):
        made = ssl.SSLContext(side)
        made.maximum_version, made.check_hostname, made.verify_mode = (
            ssl.TLSVersion.TLSv1_2,
            False,
            ssl.CERT_NONE,
        )
        made.set_ciphers("aNULL:@SECLEVEL=0")  # no certificates: this is about descriptors
        return made

    async def go():
        loop, given_up, sound = asyncio.get_running_loop(), [], []

        async def serve(one, address):
            class GivenUp(asyncio.Protocol):
                def connection_made(self, transport):
                    task.cancel()

            task = asyncio.current_task()
            given_up.append((one, one.fileno()))
            await loop.connect_accepted_socket(GivenUp, one, ssl=context(ssl.PROTOCOL_TLS_SERVER))

        door = Door(serve, lambda address, why: None)
        _, port = await door.open("127.0.0.1", 0)
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context(ssl.PROTOCOL_TLS_CLIENT)
            )
        await until(lambda: given_up and not door.busy)
        one, number = given_up[0]
        transport = loop._transports.get(number)
        sound.append(transport is None or transport.is_closing() or one.fileno() == number)
        await until(lambda: one.fileno() == -1)
        writer.transport.abort()
        await door.closed()
        return sound

    assert asyncio.run(go()) == [True]
