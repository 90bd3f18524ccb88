"""Members upgrade one by one: a party speaks its wire version and the one before, and reads what
that one wrote.
"""

from __future__ import annotations

import asyncio
import base64
import re

import msgspec
import pytest

from posse.core.errors import ProtocolError
from posse.runtime.journal import Journal
from posse.runtime.network.connection import Connection
from posse.runtime.network.engine import Engine
from posse.runtime.network.wire import (
    OLDEST_WIRE,
    WIRE_VERSION,
    Hello,
    Reader,
    WireError,
    check_versions,
    pack,
)
from posse.systems.samba.roles import customer
from posse.version import PROTOCOL_VERSION
from tests.kit.federations import laid_out, opened, run, run_all, until
from tests.kit.parties import close
from tests.kit.toy_roles import WORDS, Done, Hub

HELLO = {
    "wire": WIRE_VERSION,
    "posse": "0.9",
    "protocol": "toy",
    "protocol_version": PROTOCOL_VERSION,
    "run": "r",
    "name": "a",
    "received": 0,
    "durable": 0,
    "terms": {"steps": "4"},
}


class Hello2(msgspec.Struct, frozen=True, array_like=True, tag="Hello", forbid_unknown_fields=True):
    """The hello as wire version 2 decodes it: strictly."""

    wire: int
    posse: str
    protocol: str
    protocol_version: int
    run: str
    name: str
    received: int
    durable: int
    terms: dict[str, str] = {}


def test_this_version_speaks_the_one_before():
    assert OLDEST_WIRE == WIRE_VERSION - 1


def test_a_hello_in_the_version_before_is_one_that_it_decodes():
    body = pack(Hello(**{**HELLO, "wire": 2}))[4:]
    assert msgspec.msgpack.decode(body, type=Hello2) == Hello2(**{**HELLO, "wire": 2})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(pack(Hello(**HELLO))[4:], type=Hello2)
    (read,) = Reader().feed(pack(Hello(**{**HELLO, "wire": 2})))
    assert read == Hello(**{**HELLO, "wire": 2})


@pytest.mark.parametrize(
    ("changed", "spoken", "who"),
    [
        ({"wire": 1}, 2, "Upgrade 'a'."),
        ({"wire": 2}, 3, "Upgrade 'a'."),
        ({"wire": 4}, 3, "Upgrade this party."),
        ({"wire": 3, "protocol_version": PROTOCOL_VERSION - 1}, 3, "Upgrade 'a'."),
        ({"wire": 3, "protocol_version": PROTOCOL_VERSION + 1}, 3, "Upgrade this party."),
        ({"wire": 3, "protocol": "other"}, 3, "Correct protocol"),
    ],
)
def test_who_must_upgrade_is_said(changed, spoken, who):
    check_versions("a", Hello(**{**HELLO, "wire": spoken}), spoken, "toy")
    with pytest.raises(ProtocolError, match=re.escape(who)):
        check_versions("a", Hello(**{**HELLO, **changed}), spoken, "toy")


def test_a_hello_of_a_version_to_come_says_who_must_upgrade():
    fields = ["Hello", WIRE_VERSION + 1, "9.9", "toy", 7, "r", "a", 0, 0, {}, False, "more", 1]
    body = msgspec.msgpack.encode(fields)
    with pytest.raises(WireError, match=r"posse 9\.9.*Upgrade this party"):
        list(Reader().feed(len(body).to_bytes(4, "little") + body))
    known = msgspec.msgpack.encode([*fields[:1], WIRE_VERSION, *fields[2:]])
    with pytest.raises(WireError, match="does not decode"):
        list(Reader().feed(len(known).to_bytes(4, "little") + known))


@pytest.mark.parametrize(
    "older", [("controller",), ("clinic-1", "comp"), ("controller", "clinic-2")]
)
def test_a_run_with_parties_of_the_version_before(tmp_path, older, monkeypatch):
    """Whoever listens and whoever calls: they agree on the older version, and the result is the
    same.
    """
    hellos = []
    take = Connection._take

    def noted(self, frame):
        if isinstance(frame, Hello):
            host = getattr(self, "host", None) or self._host
            hellos.append((host.engine.role.name, frame))
        return take(self, frame)

    monkeypatch.setattr(Connection, "_take", noted)
    expected = run(tmp_path / "new", budget=30)
    assert {hello.wire for _, hello in hellos} == {WIRE_VERSION}
    hellos.clear()
    paths = {path.stem: path for path in laid_out(tmp_path / "old", budget=30)}

    async def go():
        notes = []
        parties = {name: opened(path, notes) for name, path in paths.items()}
        for name in older:
            for context in (parties[name].wiring.server, parties[name].wiring.client):
                context.set_alpn_protocols(["posse/1"])  # what version 2 offers
        await run_all(list(parties.values()))
        close(*parties.values())
        owners = [
            party.engine.role.state()
            for party in parties.values()
            if party.engine.role.kind == "owner"
        ]
        (total,) = [note.value for note in notes if note.kind == "total"]
        return total, [(state["pulls"], state["reward"]) for state in owners]

    assert asyncio.run(go()) == expected
    assert {hello.wire for name, hello in hellos if name in older} == {OLDEST_WIRE}
    among_new = [hello.wire for name, hello in hellos if {name, hello.name}.isdisjoint(older)]
    assert set(among_new) <= {WIRE_VERSION}


@pytest.mark.parametrize("level", ["paper", "strict"])
def test_a_customer_that_is_upgraded_from_0_1_1_in_a_run_goes_on(tmp_path, level, monkeypatch):
    """That release named itself in the manifest, which a customer makes again from its journal."""
    expected = run(tmp_path / "undisturbed", level=level, sync=True)
    paths = laid_out(tmp_path / "upgraded", level=level, sync=True)

    async def first_part():
        parties = [opened(path) for path in paths]
        controller = next(party for party in parties if party.engine.role.kind == "controller")
        tasks = [asyncio.create_task(party.run()) for party in parties]
        await until(lambda: controller.engine.role.state()["step"] >= 3)
        for party in parties:
            party.stop()
        await asyncio.gather(*tasks)
        close(*parties)
        return next(party.engine.role for party in parties if party.engine.role.kind == "customer")

    with monkeypatch.context() as earlier:
        earlier.setattr(customer, "MANIFEST_VERSION", "0.1.1")
        before = asyncio.run(first_part())
    assert (before.manifest.version, before.finished) == ("0.1.1", False)

    notes = []
    parties = [opened(path, notes) for path in paths]
    asyncio.run(run_all(parties))
    close(*parties)
    roles = {party.engine.role.name: party.engine.role for party in parties}
    assert roles["customer"].digest == before.digest
    owners = [role.state() for role in roles.values() if role.kind == "owner"]
    (total,) = [note.value for note in notes if note.kind == "total"]
    assert (total, [(state["pulls"], state["reward"]) for state in owners]) == expected


WRITTEN = {
    "log": {
        "journal-00000000.log": "HUIzsE%uvvlmMe>bz%U-EtUiWp>m^Wbz;OIZf<UFZf<UFZf<UFZf<UFZf<UFZf<UFZf<UFZf<UF!~hfk008UMu"
        "F;eQqiA(v0K^NDfu(bFWpHz$G=L8P008(s{lt_3p<w~U2$Q5lZ*FA(1rGoK0F(;~s+0ktVFJVmlcYp%Ze;-n8vp<RETYn%aBp*SWjY{lZXk4MWgu"
        "i}b88@o000000000F0001@BFd?h0ij_7#0Zn5L~m|o0s#",
    },
    "snapshot": {
        "journal-00000001.log": "4*&oFq9V$vlmVe(1H=fEq(pCSWdZ>",
        "snapshot-00000001": "m;e9(0>;ZZn3e<sp>m^Wbz;OIZf<UFZf<UFZf<UFZf<UFZf<UFZf<UFZf<UFZf<UF!~l|krE_#;aC4zFfPtZ5mI"
        "DF+lf(y-q*rfpYXHOtlB8E}a%%y^2a=>$Z*pq_6%c>`fv0F`b98TVd6ESOk%XmiVRCeNqiA(vq-$wzWTbO+WpJc(bY*Y?rFLO#b!EWIKKVx"
        "Hw8?+~",
    },
}
"""A journal of format 4, in the middle of a run of a hub; a version that writes another format must
still read it.
"""


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_journal_that_version_0_1_wrote_is_taken_up(tmp_path, kind):
    for name, text in WRITTEN[kind].items():
        (tmp_path / name).write_bytes(base64.b85decode(text))
    engine = Engine(
        Hub(["a"], 4),
        Journal(tmp_path),
        ["a"],
        WORDS,
        run="r",
        terms={"steps": "4"},
        nonce=b"n" * 32,
    )
    assert engine.role.history == [5, 7, 1]
    assert engine.links["a"].received == 3
    assert engine.receive("a", 4, msgspec.msgpack.encode(Done(3, 2)))
    assert engine.role.finished
    engine.close()
