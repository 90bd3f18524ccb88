"""A party's loop: what must not be lost, and what must stop it with a clear word."""

from __future__ import annotations

import asyncio
import io

import msgspec
import pytest

from posse.core.errors import DataError, DisagreementError, LinkError, UnconfirmedError
from posse.core.roles import Reward
from posse.runtime.journal import Journal
from posse.runtime.network.connection import Connection, Timing, Wiring
from posse.runtime.network.engine import Engine
from posse.runtime.network.operate import json_log
from posse.runtime.network.party import Party
from posse.runtime.network.wire import WIRE_VERSION, Data, Hello, Kept, Refused, pack
from posse.version import PROTOCOL_VERSION
from tests.kit.federations import until
from tests.kit.toy_roles import WORDS, Done, Hub, Leaf, Work
from tests.network.toy_parties import Nowhere, encoded, greeted, hub_of, party_of


@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 1])
def test_a_result_is_told_again_to_who_died_before_it_looked(tmp_path, snapshot_bytes):
    engine = hub_of(tmp_path, snapshot_bytes=snapshot_bytes)
    engine.begin()
    engine.receive("a", 1, encoded(Done(0, 5)))
    engine.commit()
    engine._journal.close()  # killed: nobody has looked at the notes
    again = hub_of(tmp_path)
    assert [(note.kind, note.value) for note in again.notes] == [("total", 5)]
    again._journal.close()


def test_after_a_crash_only_the_last_note_of_a_kind_is_told(tmp_path):
    engine = hub_of(tmp_path, steps=5)
    engine.begin()
    for number in range(4):
        engine.receive("a", number + 1, encoded(Done(number, 5)))
    engine.commit()
    engine._journal.close()
    again = hub_of(tmp_path, steps=5)
    assert [(note.kind, note.step) for note in again.notes] == [("step", 4)]
    again._journal.close()


def test_what_is_held_is_taken_when_the_world_answers(tmp_path):
    """A machine that died asks the world again, and the next message of its peer is there before
    the answer is.
    """
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r", sync_answers=False)
    engine.begin()
    link = engine.links["hub"]
    link.connected(2, 0)  # the hub has two messages that this party does not remember sending
    engine.role.receive = strict(engine.role)
    assert engine.receive("hub", 1, encoded(Work(0)))
    assert not engine.receive("hub", 2, encoded(Work(1)))
    engine.answer(1, Reward(0, 5))
    assert link.received == 2
    assert not link.held
    assert not engine.refusals
    engine._journal.close()


def strict(leaf):
    """Let a leaf refuse work while it waits for a reward."""
    from posse.core.errors import ProtocolError

    def receive(sender, message):
        if isinstance(message, Work) and leaf._step is not None:
            raise ProtocolError("a leaf does one thing at a time.")
        return type(leaf).receive(leaf, sender, message)

    return receive


def test_a_result_that_cannot_be_written_stops_the_party_and_comes_again(tmp_path):
    def full(note):
        raise DataError("cannot write result.json: No space left on device.")

    async def run(watch):
        party = party_of(tmp_path, watch=watch, timing=Timing(linger=0.2, closing=0.3))
        running = asyncio.create_task(party.run())
        await asyncio.sleep(0.01)
        connection, _ = greeted(party)
        if watch is full:
            connection.data_received(pack(Data(1, encoded(Done(0, 5)))))
        try:
            await asyncio.wait_for(running, 240)
        finally:
            party.engine._journal.close()

    with pytest.raises(DataError, match="No space"):
        asyncio.run(run(full))
    seen = []
    with pytest.raises(
        UnconfirmedError, match="part of 'hub' is over, but a has not confirmed"
    ) as stopped:
        asyncio.run(run(seen.append))
    assert stopped.value.exit_code == 3
    assert [note.value for note in seen] == [5]


def test_a_bug_in_a_role_stops_the_party_with_its_traceback(tmp_path):
    """The role may be half way: going on with it would go on from a state that no journal gives."""

    async def run():
        party = party_of(tmp_path)
        party.engine.role.receive = lambda sender, message: 1 // 0
        running = asyncio.create_task(party.run())
        await asyncio.sleep(0.01)
        connection, transport = greeted(party)
        while not party.engine.started:
            await asyncio.sleep(0)
        connection.data_received(pack(Data(1, encoded(Done(0, 5)))))
        assert transport.closed
        try:
            await asyncio.wait_for(running, 240)
        finally:
            party.engine._journal.close()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    again = hub_of(tmp_path)
    assert again.links["a"].received == 0  # it was not journalled, and comes again
    again._journal.close()


def test_a_peer_that_was_set_back_is_refused_and_the_party_goes_on(tmp_path):
    async def run():
        party = party_of(tmp_path)
        running = asyncio.create_task(party.run())
        await asyncio.sleep(0.01)
        connection, _ = greeted(party)
        link = party.engine.links["a"]
        async with asyncio.timeout(240):
            while link.unsent < 2:  # until the work is on its way
                await asyncio.sleep(0.001)
        connection.data_received(pack(Kept(1)) + pack(Data(1, encoded(Done(0, 5)))))
        _, transport = greeted(party)  # with nothing on its disk
        assert transport.closed
        assert b"set back to an older copy" in transport.told
        assert party.connections == {"a": connection}
        assert not party._over.is_set()
        party.stop()
        await running
        party.engine._journal.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("wrong", "counted"),
    [
        ({}, ""),
        ({"role": "hub"}, "certificate"),
        ({"name": "b"}, "certificate"),
        ({"dialled": "c"}, "certificate"),
        ({"said": "c"}, "hello"),
        ({"run": "other"}, "hello"),
    ],
)
def test_a_peer_is_who_its_certificate_says_in_its_part_of_this_run(tmp_path, wrong, counted):
    given = {"role": "leaf", "name": "a", "dialled": "a", "said": "a", "run": "r", **wrong}

    async def run():
        wiring = Wiring("toy", {"a": "leaf", "c": "leaf"})
        engine = Engine(Hub(["a", "c"], 1), Journal(tmp_path), ["a", "c"], WORDS, run="r")
        party = Party(engine, wiring, lambda certificate: (given["role"], given["name"]))
        connection, transport = Connection(party, dialled=given["dialled"]), Nowhere()
        connection.connection_made(transport)
        hello = Hello(WIRE_VERSION, "0", "toy", PROTOCOL_VERSION, given["run"], given["said"], 0, 0)
        connection.data_received(pack(hello))
        assert (set(party.connections), transport.closed) == (
            (set(), True) if wrong else ({"a"}, False)
        )
        assert party.counts[f"refused {counted}"] == bool(wrong)
        engine.close()

    asyncio.run(run())


def test_all_peers_are_told_of_terms_that_one_of_them_has_otherwise(tmp_path):
    async def run():
        wiring = Wiring("toy", {"a": "leaf", "c": "leaf"})
        engine = Engine(
            Hub(["a", "c"], 1), Journal(tmp_path), ["a", "c"], WORDS, run="r", terms={"budget": "1"}
        )
        names = iter(("a", "c"))
        party = Party(engine, wiring, lambda certificate: ("leaf", next(names)))
        told = {}
        for name, budget in (("a", "1"), ("c", "2")):
            connection, told[name] = Connection(party), Nowhere()
            connection.connection_made(told[name])
            hello = Hello(WIRE_VERSION, "0", "toy", PROTOCOL_VERSION, "r", name, 0, 0)
            terms = msgspec.structs.replace(hello, terms={"budget": budget})
            connection.data_received(pack(terms))
        code = DisagreementError.code.encode()
        assert {name: (code in one.told, one.closed) for name, one in told.items()} == {
            "a": (True, True),
            "c": (True, True),
        }
        for task in list(party._tasks):
            task.cancel()
        engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("begun", [False, True])
def test_a_party_whose_journal_is_new_does_not_follow_one_that_was_lost(tmp_path, begun):
    """The peer has messages that the lost journal sent; a journal that only lost its end goes on."""
    if begun:
        engine = hub_of(tmp_path)
        engine.begin()
        engine.commit()
        engine.close()

    async def run():
        party = party_of(tmp_path)
        _, transport = greeted(party, received=1)
        assert (b"journal" in transport.told.lower(), transport.closed) == (not begun,) * 2
        assert ("a" in party.connections) == begun
        party.engine.close()

    asyncio.run(run())


def test_a_new_connection_is_sent_what_may_be_lost_and_a_party_that_is_over_says_so(tmp_path):
    async def run():
        party = party_of(tmp_path, timing=Timing(heartbeat=1000.0, linger=240, closing=240))
        running = asyncio.create_task(party.run())
        await asyncio.sleep(0.01)
        _, first = greeted(party)
        await until(lambda: encoded(Work(0)) in first.told)
        connection, second = greeted(party)
        for _ in range(5):
            await asyncio.sleep(0)
        assert encoded(Work(0)) in second.told
        connection.data_received(pack(Data(1, encoded(Done(0, 5)))) + pack(Kept(1)))
        await asyncio.wait_for(running, 240)
        assert pack(Kept(1, leaves=True)) in second.told
        party.engine.close()

    asyncio.run(run())


def test_a_paused_party_asks_the_world_nothing(tmp_path):
    asked = []

    async def world(ask):
        asked.append(ask)
        return Reward(0, 5)

    async def run():
        engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
        party = Party(
            engine, Wiring("toy", {"hub": "hub"}), lambda certificate: ("hub", "hub"), source=world
        )
        engine.begin()
        engine.receive("hub", 1, encoded(Work(0)))
        party.pause(True)
        for _ in range(2):
            party._commit_and_send()
            await asyncio.sleep(0.01)
            assert len(asked) == (not party.paused)
            party.paused = False
        for task in list(party._tasks):
            task.cancel()
        await asyncio.gather(*party._tasks, return_exceptions=True)
        engine.close()

    asyncio.run(run())


def test_claims_of_a_peer_are_bounded_by_what_was_sent(tmp_path):
    engine = hub_of(tmp_path)
    engine.begin()
    link = engine.links["a"]
    link.connected(0, 0)
    assert [number for number, _ in link.outgoing()] == [1]
    for durable in (2, 2**63):
        with pytest.raises(LinkError, match="only 1 were sent to it"):
            link.acknowledged(durable)
    link.acknowledged(-5)
    assert link.durable_there == 0
    link.acknowledged(1)
    assert link.durable_there == 1
    engine._journal.close()


def test_a_log_that_cannot_be_written_stops_nothing():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    json_log("a", Full())("connected", peer="hub")


def test_a_refusal_of_the_other_ends_the_connection_and_nothing_behind_it_is_taken(tmp_path):
    async def run():
        party = party_of(tmp_path)
        party.engine.begin()
        connection, transport = greeted(party)
        connection.data_received(pack(Refused("no")) + pack(Data(1, encoded(Done(0, 5)))))
        assert transport.closed
        assert party.engine.links["a"].received == 0
        party.engine._journal.close()

    asyncio.run(run())


class Old(Nowhere):
    """A TLS transport as Python 3.11.2 has it: a second close forgets the connection, and then
    abort raises.
    """

    def __init__(self):
        super().__init__()
        self.closes, self.aborted = 0, False

    def close(self):
        super().close()
        self.closes += 1

    def abort(self):
        if self.closes > 1:
            raise AttributeError("'NoneType' object has no attribute '_abort'")
        self.aborted = True


@pytest.mark.parametrize("closed_underneath", [0, 1, 2])
def test_a_party_hangs_up_at_once_on_a_transport_that_is_already_closed(
    tmp_path, closed_underneath
):
    """A connection that a newer one replaced is closed again, and then aborted, when the party
    stops.
    """

    async def run():
        party = party_of(tmp_path)
        party.engine.begin()
        connections = []
        for _ in range(2):
            connection, transport = Connection(party), Old()
            connection.connection_made(transport)
            connection.data_received(
                pack(Hello(WIRE_VERSION, "0", "toy", PROTOCOL_VERSION, "r", "a", 0, 0))
            )
            connections.append((connection, transport))
        assert connections[0][1].closed  # the newer one took its place
        for _ in range(closed_underneath):
            for _, transport in connections:
                transport.close()
        await party._hang_up()
        assert all(transport.aborted or closed_underneath for _, transport in connections)
        party.engine._journal.close()

    asyncio.run(run())
