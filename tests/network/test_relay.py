"""A mesh where only some can listen: the others meet at one that can, and it reads nothing."""

from __future__ import annotations

import asyncio
import json
import ssl

import pytest

from posse.core.errors import ConfigError
from posse.core.settings import read_toml
from posse.runtime import local
from posse.runtime.certificates.identity import PartyIdentity, relay_context
from posse.runtime.local import write_party
from posse.runtime.network import leaving
from posse.runtime.network.relay import Leg, Relay
from posse.runtime.place import PartyFile, relayed_by
from posse.systems.mpc_contextual.terms import PAYEE, PULLER
from tests.network import mpc
from tests.network.federations import run_all, until
from tests.network.test_fuzz_listener import Nowhere
from tests.network.test_inputs import close, finish, market_of_their_own, opened

MESHES = {
    "mpc-contextual": (lambda folder: mpc.laid_out(folder, parties=3, steps=8), "clinic-1"),
    "dp-combinatorial": (market_of_their_own, "ada"),
}


def came(parties):
    return {
        party.engine.role.name: {
            peer: (link.sent, link.received) for peer, link in party.engine.links.items()
        }
        for party in parties
    }


def only_one_listens(paths, hub):
    """Take the listener from everyone but the hub; whoever called another now meets it there."""
    files = {path.stem: read_toml(path) for path in paths}
    listen, names = files[hub]["listen"], sorted(files)
    for path in paths:
        values = {
            key: value
            for key, value in files[path.stem].items()
            if key not in ("listen", "connect")
        }
        if path.stem == hub:
            write_party(path, {**values, "listen": listen, "relays": True})
        else:
            others = {name: f"relay:{hub}" for name in names if name not in (hub, path.stem)}
            write_party(path, {**values, "connect": {hub: listen, **others}})


def met(paths, files_hub):
    """How many pairs can only meet at the hub."""
    others = len(paths) - 1
    return others * (others - 1)


@pytest.mark.parametrize("name", MESHES)
def test_a_mesh_in_which_one_listens_ends_as_the_other(tmp_path, name, monkeypatch):
    lay, hub = MESHES[name]
    (tmp_path / "mesh").mkdir(), (tmp_path / "star").mkdir()
    expected = came(finish(lay(tmp_path / "mesh")))
    paths = lay(tmp_path / "star")
    only_one_listens(paths, hub)
    moved, take = [], Leg.data_received

    def noted(self, data):
        if self.other is not None:
            moved.append(data)
        take(self, data)

    monkeypatch.setattr(Leg, "data_received", noted)

    async def go():
        parties = [opened(path) for path in paths]
        relay = next(party.relay for party in parties if party.engine.role.name == hub)
        running = asyncio.create_task(run_all(parties))
        most = 0
        while not running.done():
            most = max(most, sum(leg.other is not None for leg in relay.legs.values()))
            await asyncio.sleep(0.005)
        await running
        close(*parties)
        return came(parties), most

    result, most = asyncio.run(go())
    assert result == expected
    assert most == met(paths, hub)  # every pair of the others went through it
    through = b"".join(moved)
    assert len(through) > 1000
    for path in paths:
        assert path.stem.encode() not in through  # certificates and greetings are inside TLS


def test_a_relay_stays_while_others_talk_through_it(tmp_path, monkeypatch):
    lay, hub = MESHES["mpc-contextual"]
    paths = lay(tmp_path)
    only_one_listens(paths, hub)
    take, lose = Leg.data_received, Leg.connection_lost

    async def go():
        parties, slow = {party.engine.role.name: party for party in map(opened, paths)}, set()

        def late(do):
            """What two others say is slow, once they have met: the relay's own part is over before
            theirs.
            """

            def later(self, given):
                if PAYEE in parties[PULLER].connections and PULLER in parties[PAYEE].connections:
                    slow.add(True)
                if slow and {self.name, self.wanted} == {PULLER, PAYEE}:
                    asyncio.get_running_loop().call_later(0.5, do, self, given)
                else:
                    do(self, given)

            return later

        monkeypatch.setattr(Leg, "data_received", late(take))
        monkeypatch.setattr(Leg, "connection_lost", late(lose))
        await run_all(parties.values())
        close(*parties.values())
        return {
            name: leaving.unconfirmed(party) & set(party.needed) for name, party in parties.items()
        }

    assert not any(asyncio.run(asyncio.wait_for(go(), 120)).values())


@pytest.mark.parametrize("name", MESHES)
def test_as_processes(tmp_path, name):
    lay, hub = MESHES[name]
    paths = lay(tmp_path)
    only_one_listens(paths, hub)
    started = [local.start_one(path) for path in paths]
    try:
        for process in started:
            assert process.handle.wait(240) == 0, process.log.read_text()[-2000:]
    finally:
        local.stop(started)
    for path in paths:
        assert (
            json.loads((tmp_path / path.stem / "journal" / "result.json").read_text())["party"]
            == path.stem
        )


def test_a_relay_joins_members_of_its_run_that_ask_and_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setattr("posse.runtime.network.relay.GREETING", 0.5)
    paths = {path.stem: path for path in market_of_their_own(tmp_path)}
    only_one_listens(list(paths.values()), "ada")

    async def ask(port, context, wanted):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=""
        )
        writer.write(wanted)
        return reader, writer

    async def go():
        hub = opened(paths["ada"])
        running = asyncio.create_task(hub.run())
        await until(lambda: hub.port)
        bob, eve = (relay_context(PartyIdentity.load(tmp_path / name)) for name in ("bob", "eve"))
        for wrong in (b"\x03bob", b"\x03ada", b"\x06nobody", b"\x03eve and more", b"\x00"):
            reader, writer = await ask(hub.port, bob, wrong)
            assert await asyncio.wait_for(reader.read(), 120) == b""
            writer.transport.abort()
        reader, writer = await ask(
            hub.port, bob, b""
        )  # who does not say whom it wants is not waited for
        assert await asyncio.wait_for(reader.read(), 120) == b""
        writer.transport.abort()
        reader, writer = await ask(hub.port, bob, b"\x03eve")
        other, back = await ask(hub.port, eve, b"\x03bob")
        assert await asyncio.wait_for(reader.readexactly(1), 120) == b"\x01"
        assert await asyncio.wait_for(other.readexactly(1), 120) == b"\x01"
        writer.write(b"x" * 3_000_000)
        assert await asyncio.wait_for(other.readexactly(3_000_000), 120) == b"x" * 3_000_000
        writer.transport.abort()
        assert await asyncio.wait_for(other.read(), 120) == b""  # the other is not left behind
        back.transport.abort()
        await until(lambda: not hub.relay.legs)
        hub.stop()
        await running
        close(hub)
        quiet = opened(paths["bob"])
        assert quiet.relay is None
        close(quiet)

    asyncio.run(go())


def test_a_relay_that_closes_hangs_up_on_who_waits():
    async def go():
        relay, transport = (
            Relay({"a": "agent", "b": "agent"}, lambda certificate: ("agent", "a")),
            Nowhere(),
        )
        relay.meet(Leg(relay, "a", transport), "b")
        before = transport.closed
        relay.close()
        return before, transport.closed

    assert asyncio.run(go()) == (False, True)


def test_a_relay_is_needed_while_one_waits_two_are_joined_or_may_come_again():
    async def go():
        relay = Relay({"a": "agent", "b": "agent"}, lambda certificate: ("agent", "a"))
        one, other = Leg(relay, "a", Nowhere()), Leg(relay, "b", Nowhere())
        found = [relay.needed(set())]
        relay.meet(one, "b")
        found += [relay.needed(set()), relay.needed({"b"})]  # who is gone is not waited for
        relay.meet(other, "a")
        found += [relay.needed({"a", "b"})]
        for leg in (one, other):
            leg.connection_lost(None)
        return [*found, relay.needed(set()), relay.needed({"a"})]

    assert asyncio.run(go()) == [False, True, False, True, True, False]


def test_a_party_that_does_not_relay_says_so(tmp_path):
    paths = {path.stem: path for path in market_of_their_own(tmp_path)}

    async def go():
        party = opened(paths["ada"])
        running = asyncio.create_task(party.run())
        await until(lambda: party.port)
        context = relay_context(PartyIdentity.load(tmp_path / "bob"))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", party.port, ssl=context, server_hostname=""
        )
        assert isinstance(writer.get_extra_info("ssl_object"), ssl.SSLObject)
        said = await asyncio.wait_for(reader.read(), 120)
        writer.transport.abort()
        party.stop()
        await running
        close(party)
        return said

    assert b"relays = true" in asyncio.run(go())


def test_a_hub_must_have_an_address():
    for connect in ({"b": "relay:hub"}, {"b": "relay:c", "c": "relay:b"}):
        file = PartyFile.make(
            {"protocol": "toy", "identity": "i", "journal": "j", "connect": connect}
        )
        with pytest.raises(ConfigError, match="has no address"):
            relayed_by(file)
