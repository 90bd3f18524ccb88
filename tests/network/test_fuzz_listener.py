"""What strangers and admitted peers may throw at the listeners: none is taken, nothing breaks,
memory stays small.

Frames over TLS cost a handshake each, since a refusal ends the connection; the bulk is therefore
given to the same `Connection` objects over a transport that is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
import struct
import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from posse.core.errors import LinkError, ProtocolError
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import EnrolmentServer, complete, prepare
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.door import Limits
from posse.runtime.journal import _MARK, split
from posse.runtime.network.connection import Connection
from posse.runtime.network.operate import SOCKET, Control, ask, party_commands, serve_metrics
from posse.runtime.network.wire import (
    LARGEST_FRAME,
    WIRE_VERSION,
    Data,
    Hello,
    Kept,
    Reader,
    Refused,
    WireError,
    pack,
)
from posse.runtime.place import open_place
from posse.systems.registry import run
from posse.systems.samba.deploy import VOCABULARY, build
from posse.systems.samba.settings import Samba
from posse.version import PROTOCOL_VERSION
from tests.kit.federations import journalled_secrets, laid_out, opened, until
from tests.network.toy_parties import Nowhere

BUDGET = 40
ANY_RATE = Limits(rate=1e6, burst=1e6, silence=0.3)
PEER = "clinic-1"
KINDS = ("mutated", "truncated", "oversize", "replayed", "cross-run", "gap", "out of turn", "lying")


def hello(durable=0, received=None, **other):
    given = {
        "wire": WIRE_VERSION,
        "posse": "0",
        "protocol": "samba",
        "protocol_version": PROTOCOL_VERSION,
        "run": "trial-1",
        "name": PEER,
        "received": durable if received is None else received,
        "durable": durable,
    }
    return Hello(**{**given, **other})


def log_of(folder):
    return folder / "controller" / "journal" / "journal-00000000.log"


def bodies_of(folder, peer=PEER):
    """What a peer really sent, from the controller's journal."""
    records = [
        record for record in split(log_of(folder).read_bytes())[0] if not record.startswith(_MARK)
    ]
    found = [msgspec.msgpack.decode(record, type=tuple[int, str, int, bytes]) for record in records]
    return [body for kind, name, _, body in found if kind == 1 and name == peer]


class Fuzz:
    """Makes bytes of every kind that must not be taken; `link` is the controller's end, `bodies`
    what was sent.
    """

    def __init__(self, seed, link, bodies):
        self.rng, self.link, self.bodies = random.Random(seed), link, bodies

    def greeting(self):
        """A hello that the controller takes: it claims no more than it was told before."""
        return pack(hello(self.link.durable_there))

    def bytes_of(self, kind):
        """Bytes behind a hello, or instead of it."""
        return getattr(self, f"_{kind.replace(' ', '_').replace('-', '_')}")()

    def _number(self):
        """A number that is not the next: old, far ahead, or no number of a message."""
        old = self.rng.randint(1, self.link.received) if self.link.received else 0
        return self.rng.choice(
            (old, old, self.link.received + self.rng.randint(2, 99), 0, 2**63, 2**64 - 1)
        )

    def _honest(self):
        body = self.rng.choice(self.bodies)
        kept = Kept(self.link.durable_there)
        return pack(self.rng.choice((Data(self._number(), body), hello(), kept)))

    def _mutated(self):
        while True:
            data = bytearray(self._honest())
            for _ in range(self.rng.randint(1, 4)):
                how, at = self.rng.randrange(4), self.rng.randrange(4, len(data))
                if how == 0:
                    data[at] ^= 1 << self.rng.randrange(8)
                elif how == 1:
                    data[at] = self.rng.randrange(256)
                elif how == 2:
                    data.insert(at, self.rng.randrange(256))
                elif len(data) > 5:
                    del data[at]
            struct.pack_into("<I", data, 0, len(data) - 4)
            if not self._may_be_taken(bytes(data)):
                return bytes(data)

    def _may_be_taken(self, data):
        """Whether a mutation hit upon what this peer might have said: then it is no bad frame."""
        with contextlib.suppress(WireError):
            for frame in Reader(LARGEST_FRAME).feed(data):
                if isinstance(frame, Kept):
                    return frame.durable < self.link.unsent
                if isinstance(frame, Data):
                    return frame.number == self.link.received + 1
        return False

    def _truncated(self):
        whole = self._honest()
        return whole[: self.rng.randrange(1, len(whole))]

    def _oversize(self):
        return struct.pack(
            "<I", self.rng.choice((LARGEST_FRAME + 1, 2**31, 2**32 - 1))
        ) + self.rng.randbytes(64)

    def _replayed(self):
        old = list(range(1, self.link.received + 1)) or [0]
        frames = [
            pack(Data(self.rng.choice(old), self.rng.choice(self.bodies)))
            for _ in range(self.rng.randint(1, 3))
        ]
        return b"".join(frames)

    def _cross_run(self):
        return pack(
            hello(
                self.link.durable_there,
                **self.rng.choice(
                    (
                        {"run": "trial-2"},
                        {"name": "clinic-2"},
                        {"protocol": "dp-combinatorial"},
                        {"wire": 9},
                        {"run": ""},
                        {"protocol_version": PROTOCOL_VERSION + 1},
                    )
                ),
            )
        )

    def _gap(self):
        number = self.link.received + self.rng.choice((2, 3, 1000, 2**62))
        return pack(Data(number, self.rng.choice(self.bodies)))

    def _out_of_turn(self):
        """The next number with a message that was taken before, or with no message at all; hello in
        one breath.
        """
        return pack(hello(self.link.durable_there)) + self._gap()

    def _lying(self):
        """A claim to have on disk what was never sent."""
        durable = self.link.unsent + self.rng.choice((0, 1, 1000, 2**62))
        return pack(Kept(durable))


def stopped_midway(folder):
    """Run a federation for a while and stop it; return the files of its parties, the controller's
    first.
    """
    paths = laid_out(folder, budget=BUDGET)

    async def a_while():
        parties = [opened(path) for path in paths]
        running = asyncio.gather(*(party.run() for party in parties))
        while parties[0].engine.role.state()["step"] < 12:
            await asyncio.sleep(0.002)
        for party in parties:
            party.stop()
        await running
        for party in parties:
            party.engine._journal.close()

    asyncio.run(a_while())
    return paths


def finish(paths):
    """Let everyone go on to the end, and check the result."""
    notes = []

    async def to_the_end():
        parties = [opened(path, notes) for path in paths]
        await asyncio.wait_for(asyncio.gather(*(party.run() for party in parties)), 240)
        return parties

    parties = asyncio.run(to_the_end())
    for party in parties:
        party.engine._journal.close()
    plain = run(Samba(policy="ucb", owners=3, budget=BUDGET, seed=7, level="paper").plain())
    assert {(note.value,) for note in notes if note.kind == "total"} == {plain.total}
    pulls = [
        party.engine.role.state()["pulls"] for party in parties if party.engine.role.kind == "owner"
    ]
    assert plain.pulls.tolist() == [pulls]


# An admitted peer ---------------------------------------------------------------------------------


def fed(paths, frames, seed):
    """Give bad bytes of every kind to connections of a stopped controller; return what became of
    them.
    """
    sent, refused, silent, largest = Counter(), Counter(), Counter(), 0

    async def feed():
        nonlocal largest
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        engine = party.engine
        engine.begin()
        link = engine.links[PEER]
        fuzz = Fuzz(seed, link, bodies_of(paths[0].parent))
        role, received, log = (
            engine.role.save(),
            link.received,
            log_of(paths[0].parent).read_bytes(),
        )
        tracemalloc.start()
        try:
            for number in range(frames):
                kind = KINDS[number % len(KINDS)]
                connection, transport = Connection(party), Nowhere()
                connection.connection_made(transport)
                data = (b"" if kind == "cross-run" else fuzz.greeting()) + fuzz.bytes_of(kind)
                cut = fuzz.rng.randrange(len(data))
                for part in (data[:cut], data[cut:]):  # however TCP cuts it
                    connection.data_received(part)
                sent[kind] += 1
                (refused if transport.closed else silent)[kind] += 1
                if transport.closed:
                    (told,) = [
                        frame
                        for frame in Reader(1 << 20).feed(bytes(transport.told))
                        if type(frame) is Refused
                    ]
                    assert told.reason
                assert link.received == received
                connection.connection_lost(None)
                if number % 500 == 0:
                    assert engine.role.save() == role
                    await asyncio.sleep(0)
            largest = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert engine.role.save() == role
        assert not party.connections
        assert not engine.refusals
        engine._journal.close()
        assert log_of(paths[0].parent).read_bytes() == log

    asyncio.run(feed())
    return sent, refused, silent, largest


def check_fed(found):
    sent, refused, silent, largest = found
    for kind in ("oversize", "cross-run", "gap", "out of turn", "lying"):
        assert refused[kind] == sent[kind], kind
    # Half a frame is waited for; what was here before is dropped without a word, for a peer may
    # send it twice.
    assert set(silent) <= {"mutated", "truncated", "replayed"}
    assert silent["truncated"] + refused["truncated"] == sent["truncated"]
    assert largest < 2 * LARGEST_FRAME


def test_frames_of_an_admitted_peer(tmp_path):
    paths = stopped_midway(tmp_path)
    check_fed(fed(paths, 1_600, 1))
    finish(paths)


@pytest.mark.long
def test_a_hundred_thousand_frames_of_an_admitted_peer(tmp_path):
    paths = stopped_midway(tmp_path)
    began = time.monotonic()
    sent, refused, silent, largest = found = fed(paths, 100_000, 2)
    print(f"\nsent {dict(sent)}\nrefused {dict(refused)}\nwithout a word {dict(silent)}")
    print(
        f"{100_000 / (time.monotonic() - began):,.0f} frames/s, at most {largest / 2**20:.1f} MiB"
    )
    check_fed(found)
    finish(paths)


def over_tls(paths, connections, seed):
    """Throw the same over real TLS at a controller that runs, with the others waiting for this
    peer.
    """
    sent, counts, held = Counter(), {}, []

    async def throw():
        parties = {path.stem: opened(path) for path in paths if path.stem != PEER}
        controller = parties["controller"]
        controller.wiring.limits = ANY_RATE
        running = asyncio.gather(*(party.run() for party in parties.values()))
        link = controller.engine.links[PEER]
        received = link.received
        context = ssl_contexts(PartyIdentity.load(paths[0].parent / PEER))[1]
        fuzz = Fuzz(seed, link, bodies_of(paths[0].parent))
        while not controller.port:
            await asyncio.sleep(0.01)
        for number in range(connections):
            kind = KINDS[number % len(KINDS)]
            while True:
                with contextlib.suppress(
                    OSError
                ):  # a busy door may close one that is still in its handshake
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", controller.port, ssl=context, server_hostname=""
                    )
                    break
            with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
                writer.write(
                    (b"" if kind == "cross-run" else fuzz.greeting()) + fuzz.bytes_of(kind)
                )
                await writer.drain()
                if kind not in ("truncated", "replayed", "mutated"):
                    await asyncio.wait_for(reader.read(), 5)  # until it hangs up on us
            writer.transport.abort()
            sent[kind] += 1
            assert link.received == received
            if number % 1000 == 0:
                held.append(rss())
        assert not running.done()
        counts.update(controller.counts)
        for party in parties.values():
            party.stop()
        await running
        for party in parties.values():
            party.engine._journal.close()

    asyncio.run(throw())
    return sent, counts, held


def test_frames_over_tls_while_the_others_wait(tmp_path):
    paths = stopped_midway(tmp_path)
    sent, counts, _ = over_tls(paths, 160, 3)
    assert counts["refused frame"] + counts["refused hello"] >= sum(
        sent[kind] for kind in ("oversize", "cross-run", "gap", "out of turn", "lying")
    )
    assert not counts.get("refused message")
    finish(paths)


@pytest.mark.long
def test_many_frames_over_tls(tmp_path, monkeypatch):
    for name in (
        "_ACCEPTS",
        "_CALM",
    ):  # one comes after the other, and none waits until the door opens again
        monkeypatch.setattr(f"posse.runtime.door.{name}", 1e6)
    paths = stopped_midway(tmp_path)
    began = time.monotonic()
    sent, counts, held = over_tls(paths, 100_000, 4)
    rate = 100_000 / (time.monotonic() - began)
    print(
        f"\nover TLS: {dict(sent)}, {counts}, {rate:,.0f}/s, memory {held[0] >> 20} to "
        f"{max(held) >> 20} MiB"
    )
    assert not counts.get("refused message")
    assert max(held) - held[len(held) // 3] < 16 << 20  # flat, once the first of them were here
    finish(paths)


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(
    "claim", [{"received": 2**62, "durable": 0}, {"received": 2**62, "durable": 2**62}]
)
def test_a_hello_that_lies_does_no_harm_beyond_its_connection(tmp_path, claim, new):
    """A peer that claims messages which were never sent gets nothing; its next hello is believed.

    A party with a new journal refuses such a hello; another one may have forgotten messages.
    """
    paths = laid_out(tmp_path, budget=BUDGET)

    async def lie():
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        party.engine.new = new
        connection = Connection(party)
        transport = Nowhere()
        connection.connection_made(transport)
        connection.data_received(pack(hello(**claim)))
        party.engine.begin()
        party._commit_and_send()
        link = party.engine.links[PEER]
        assert (link.durable_there, link.outgoing()) == (0, [])
        link.send(b"first")
        if new:
            assert transport.closed
            assert PEER not in party.connections
        else:
            assert link.outgoing() == []
        link.connected(0, 0)
        assert link.outgoing() == [(1, b"first")]
        party.engine._journal.close()

    asyncio.run(lie())
    finish(paths)


def test_a_peer_that_is_lost_is_not_paused_any_more(tmp_path):
    """When it comes back it says so again; until then nobody knows."""
    paths = laid_out(tmp_path, budget=BUDGET)

    async def pause():
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        connection = Connection(party)
        connection.connection_made(Nowhere())
        connection.data_received(pack(hello()) + pack(Kept(0, paused=True)))
        assert party.paused_peers == {PEER}
        connection.connection_lost(None)
        assert party.paused_peers == set()
        party.engine._journal.close()

    asyncio.run(pause())


def test_what_is_held_for_a_peer_is_bounded(tmp_path):
    """A peer that makes this party believe it is behind may not fill its memory with what cannot be
    taken yet.
    """
    paths = laid_out(tmp_path, budget=BUDGET)

    async def fill():
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        party.engine.begin()
        link = party.engine.links[PEER]
        connection, transport = Connection(party), Nowhere()
        connection.connection_made(transport)
        connection.data_received(pack(hello(received=2**62)))
        for number in range(1, 40):
            connection.data_received(pack(Data(number, b"\xc1" * (1 << 20))))
        assert transport.closed
        assert sum(map(len, link.held)) <= 16 << 20
        party.engine._journal.close()

    asyncio.run(fill())


def test_half_a_frame_is_let_go_with_its_connection(tmp_path):
    """A peer that begins large frames on many connections, and hangs up on none, holds one of
    them.
    """
    paths = laid_out(tmp_path, budget=BUDGET)

    async def begin():
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        half = struct.pack("<I", LARGEST_FRAME) + bytes(LARGEST_FRAME - 100)
        kept = []
        tracemalloc.start()
        try:
            for _ in range(12):
                connection = Connection(party)
                connection.connection_made(Nowhere())
                connection.data_received(pack(hello()))
                connection.data_received(half)
                kept.append(connection)
            now = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        party.engine._journal.close()
        assert now < 2 * LARGEST_FRAME

    asyncio.run(begin())


def test_nothing_is_taken_behind_a_refusal(tmp_path):
    """A message before the hello is refused, and so is the hello that comes behind it in one
    breath.
    """
    paths = stopped_midway(tmp_path)

    async def breathe():
        party = opened(paths[0])
        party.identify = lambda certificate: ("owner", PEER)
        connection, transport = Connection(party), Nowhere()
        connection.connection_made(transport)
        link = party.engine.links[PEER]
        body = bodies_of(tmp_path)[0]
        received = link.received
        connection.data_received(
            pack(Data(1, body)) + pack(hello(link.durable_there)) + pack(Data(received + 1, body))
        )
        assert transport.closed
        assert not connection.ready
        assert not party.connections
        assert link.received == received
        party.engine._journal.close()

    asyncio.run(breathe())


@pytest.mark.parametrize("times", [600, pytest.param(100_000, marks=pytest.mark.long)])
def test_messages_that_decode_and_make_no_sense(tmp_path, times):
    """Whatever an admitted peer says, the controller's role refuses it with a `ProtocolError` or
    has a use for it.
    """
    paths = stopped_midway(tmp_path)
    rng, decoder = random.Random(5), VOCABULARY.decoder()
    place = replace(open_place(paths[0]), secrets=journalled_secrets(paths[0]))
    party = opened(paths[0])
    role, saved = party.engine.role, party.engine.role.save()
    peers = list(party.engine.links)
    bodies = [body for peer in peers for body in bodies_of(tmp_path, peer)]
    outcome = Counter()
    for _ in range(times):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randint(0, 3)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            message = decoder.decode(bytes(body))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            outcome["not decoded"] += 1
            continue
        try:
            actions = role.receive(rng.choice(peers), message)
            assert all(action[1] in peers for action in actions if isinstance(action, tuple))
            outcome["taken"] += 1
            role = build(place).role
            role.load(saved)
        except ProtocolError:
            outcome["refused"] += 1
            assert role.save() == saved
    party.engine._journal.close()
    assert outcome["refused"] > times / 3
    if times > 10_000:
        print(f"\n{dict(outcome)}")


# Strangers ----------------------------------------------------------------------------------------


def noise(rng):
    """What somebody without a certificate may send before TLS."""
    record = (
        b"\x16\x03\x01"
        + struct.pack(">H", rng.randrange(1 << 16))
        + rng.randbytes(rng.randrange(200))
    )
    return rng.choice(
        (
            b"",
            rng.randbytes(rng.randrange(1, 400)),
            record,
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16",
            pack(hello()),
            b"\x16\x03\x03\x40\x00" + bytes(1 << 14),
            b"\x80\x2e\x01\x00\x02",
            b"SSH-2.0-x\r\n",
        )
    )


def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def shout(port, data, wait):
    """Connect, send, and wait a little for an end."""
    with contextlib.suppress(OSError, TimeoutError):
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 10)
        try:
            writer.write(data)
            if wait:
                await asyncio.wait_for(reader.read(), 3)
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("times", [300, pytest.param(100_000, marks=pytest.mark.long)])
def test_strangers(tmp_path, times, monkeypatch):
    monkeypatch.setattr("posse.runtime.network.connection.GREETING", 0.5)
    paths = stopped_midway(tmp_path)
    rng = random.Random(6)

    async def crowd():
        parties = [opened(path) for path in paths if path.stem != PEER]
        parties[0].wiring.limits = ANY_RATE
        running = asyncio.gather(*(party.run() for party in parties))
        while not parties[0].port:
            await asyncio.sleep(0.01)
        failures = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )
        held, left = [rss()], iter(range(times))

        async def one_after_another():
            for number in left:
                await shout(parties[0].port, noise(rng), rng.random() < 0.7)
                if number % 50 == 0:
                    held.append(rss())

        await asyncio.gather(*(one_after_another() for _ in range(50)))
        # A connection that is gone before it is accepted is not seen.
        await until(
            lambda: (
                sum(parties[0].counts[f"refused {who}"] for who in ("tls", "stranger"))
                >= 0.9 * times
            )
        )
        assert not running.done()
        counts = dict(parties[0].counts)
        for party in parties:
            party.stop()
        await running
        for party in parties:
            party.engine._journal.close()
        return counts, failures, held

    counts, failures, held = asyncio.run(crowd())
    assert not failures
    assert max(held) - held[len(held) // 3] < 16 << 20  # flat, once the first of them were here
    if times > 10_000:
        print(f"\n{counts}, memory {held[0] >> 20} to {max(held) >> 20} MiB")
    assert counts["refused tls"] > 0.3 * times
    assert not counts.get("refused hello")
    finish(paths)


def test_a_peer_that_is_gone_when_its_handshake_is_done(tmp_path, monkeypatch):
    """It is no refusal: nobody was there to be refused, then or when the time for a hello is
    over.
    """
    monkeypatch.setattr(
        "posse.runtime.network.connection.GREETING", 2.0
    )  # nobody is too slow for a handshake
    paths = laid_out(tmp_path, budget=BUDGET)
    context = ssl_contexts(PartyIdentity.load(tmp_path / PEER))[1]

    async def come_and_go():
        party = opened(paths[0])
        running = asyncio.create_task(party.run())
        while not party.port:
            await asyncio.sleep(0.01)
        for number in range(20):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", party.port, ssl=context, server_hostname=""
            )
            if number % 2:
                await asyncio.sleep(0.002 * number)
            writer.transport.abort()
        await asyncio.sleep(2.5)
        party.stop()
        await running
        party.engine._journal.close()
        return party.counts

    counts = asyncio.run(come_and_go())
    assert not counts["refused hello"]
    assert not counts["connections"]


# The other listeners ------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [150, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_control_socket(tmp_path, times):
    paths = laid_out(tmp_path, budget=BUDGET)
    rng = random.Random(7)

    async def one(folder, data, end):
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_unix_connection(folder / SOCKET)
            try:
                writer.write(data)
                if end:
                    writer.write_eof()
                return await asyncio.wait_for(reader.read(), 2 if end or b"\n" in data else 0.05)
            finally:
                writer.close()
        return b""

    async def whisper():
        party = opened(paths[0])
        running = asyncio.create_task(party.run())
        control = Control(tmp_path / "controller" / "journal", party_commands(party))
        folder = tmp_path / "controller" / "journal"
        await control.start()
        failures = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )
        try:
            assert (folder / SOCKET).stat().st_mode & 0o077 == 0
            tracemalloc.start()
            for _ in range(times):
                data = rng.choice(
                    (
                        rng.randbytes(50).replace(b"\n", b"") + b"\n",
                        b"x" * 70_000 + b"\n",
                        b"\n",
                        b"stop it now\xff\n"[5:],
                        b"\xff\xfe\n",
                        b"stop\x00\n",
                    )
                )
                answer = await one(folder, data, rng.random() < 0.5)
                assert answer == b"" or b"unknown command" in answer
            largest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert largest < 4 << 20
            for half in (b"stop", b"pause", b"st", b"x" * 70_000, b""):
                assert await one(folder, half, True) == b""
            assert await one(folder, b"half a li", False) == b""
            assert not party.paused
            assert not running.done()
            assert (await ask(folder, "status"))["party"] == "controller"
        finally:
            control.close()
            party.stop()
            await running
        party.engine._journal.close()
        return failures

    assert not asyncio.run(whisper())


def test_where_no_party_runs_that_is_all_that_is_said(tmp_path):
    with pytest.raises(LinkError) as raised:
        asyncio.run(ask(tmp_path, "status"))
    assert (
        raised.value.text
        == f"no party runs with the journal {tmp_path}. Start it with 'posse party'."
    )


@pytest.mark.parametrize("times", [300, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_enrolment_desk(tmp_path, times):
    """Mutated requests are refused, strangers at the port are let go, and the token is still good
    for its owner.
    """
    authority = Authority.init(tmp_path / "authority", "customer", "trial-1")
    token, now, rng = authority.token("owner", PEER), authority.now(), random.Random(8)
    request = prepare(token, tmp_path / PEER, now)
    desk, reasons = Desk(authority), Counter()
    for _ in range(times):
        data = bytearray(request)
        for _ in range(rng.randint(1, 3)):
            how, at = rng.randrange(3), rng.randrange(len(data))
            if how == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                del data[at:]
                data.append(rng.randrange(256))
            else:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if bytes(data) == request:
            continue
        reply = desk.answer(bytes(data))
        assert reply.reason
        reasons[reply.reason] += 1

    async def port():
        server = EnrolmentServer(desk, deadline=0.3)
        _, at = await server.start(port=0)
        for _ in range(3):
            await asyncio.gather(*(shout(at, noise(rng), rng.random() < 0.7) for _ in range(20)))
        await server.close()

    asyncio.run(port())
    complete(token, tmp_path / PEER, desk.answer(request).data, now)
    assert PartyIdentity.load(tmp_path / PEER).name == PEER
    if times > 10_000:
        print(f"\n{dict(reasons)}")


@pytest.mark.parametrize("times", [200, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_pages_for_a_monitor(tmp_path, times, monkeypatch):
    """Nothing but two paths is answered with a page, and nothing is held on to."""
    monkeypatch.setattr("posse.runtime.metrics.Limits", lambda *rooms: ANY_RATE)
    paths, rng, pages = laid_out(tmp_path, budget=BUDGET), random.Random(11), []

    async def one(port):
        line = rng.choice(
            (
                rng.randbytes(30).replace(b"\n", b"") + b"\n",
                b"GET /metric HTTP/1.1\r\n",
                b"GET\n",
                b"\n",
                b"x" * 70_000 + b"\n",
                b"POST /../health HTTP/1.1\r\n",
                b"GET /health/ HTTP/1.1\r\n",
            )
        )
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(line)
                pages.append((await asyncio.wait_for(reader.read(), 5))[:12])
            finally:
                writer.transport.abort()

    async def knock():
        party = opened(paths[0])
        door = await serve_metrics(party, "127.0.0.1", 0)
        port = door._listening[0].getsockname()[1]
        tracemalloc.start()
        for _ in range(times // 20):
            await asyncio.gather(*(one(port) for _ in range(20)))
        largest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await door.closed()
        party.engine._journal.close()
        return largest

    largest = asyncio.run(knock())
    assert set(pages) <= {b"", b"HTTP/1.1 404"}
    assert len(pages) > times / 2
    assert largest < (12 << 20) + 100 * times


def test_who_stands_at_the_door_of_a_party_that_stops(tmp_path):
    """Every socket is closed, also one that was accepted and not yet greeted."""
    paths = laid_out(tmp_path, budget=BUDGET)
    rng, ends = random.Random(10), []

    async def wait(port):
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                ends.append(await asyncio.wait_for(reader.read(), 240))
            finally:
                writer.transport.abort()

    async def stop():
        party = opened(paths[0])
        running = asyncio.create_task(party.run())
        while not party.port:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(wait(party.port)) for _ in range(10)]
        await asyncio.sleep(rng.uniform(0, 0.01))
        party.stop()
        await running
        await asyncio.gather(*waiting)  # raises where one was left waiting
        party.engine._journal.close()

    for _ in range(15):
        asyncio.run(stop())
    assert ends
    assert set(ends) == {b""}
