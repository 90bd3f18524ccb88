"""Servers and devices that deviate: what a device refuses, and that one bad device ends no run."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

import jax
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.aggregation.masks import PURPOSE_KEYS, _signed
from posse.privacy.aggregation.messages import Advertise, Shares, Shown, Survivors
from posse.privacy.aggregation.server import Server
from posse.privacy.aggregation.terms import Plan, Stage, Terms, complete_plan, plan
from posse.privacy.crypto.keys import Identity, fingerprint
from posse.systems.fed_contextual.computing.client import Contribution
from posse.systems.fed_contextual.computing.models import shape_of
from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.flower import client_app, fleet, secure, server_app, wire
from posse.systems.fed_contextual.flower.device import model_of, task_of
from posse.systems.fed_contextual.flower.samples import log_of
from posse.systems.fed_contextual.flower.settings import PROGRESS, DeviceSettings
from posse.systems.fed_contextual.flower.wire import (
    STAGE,
    decode,
    decode_terms,
    encode,
    identity_of,
)

from .grids import FakeGrid

Change = Callable[[RecordDict], None]


def settings(folder: Path, **values: Any) -> DeviceSettings:
    values = {
        "rounds": 1,
        "cohort": 5,
        "seed": 5,
        "samples": 64,
        "timeout": 0.1,
        "out": str(folder / "out"),
        **values,
    }
    return DeviceSettings.of({"secure": True, **values})


class Evil:
    """A server that sends what it likes, stage by stage."""

    def __init__(self, folder: Path, nodes: int = 5, **config: Any) -> None:
        self.made = settings(folder, cohort=nodes)
        self.grid = FakeGrid(self.made, nodes, folder, **config)
        self.by_name = {fingerprint(identity_of(one.public_key)): one for one in self.grid.nodes}
        self.names = tuple(sorted(self.by_name))

    def terms(
        self, made: Plan | None = None, order: RecordDict | None = None, run: str = "1"
    ) -> Terms:
        made = made or plan(len(self.names), corrupt=0.1, dropout=0.1)
        identities = tuple(identity_of(self.by_name[name].public_key) for name in self.names)
        leaves = jax.tree.leaves(shape_of(model_of(self.made)))
        length = sum(int(leaf.size) for leaf in leaves) + wire.MEASURED
        subject = wire.subject_of(order or self.order(), self.made)
        return Terms(run, 0, self.names, identities, length, made, os.urandom(32), subject)

    def order(self, **told: Any) -> RecordDict:
        order = wire.order_of(begin(task_of(self.made), 5), 0)
        for key, value in told.items():
            order[wire.ROUND][key] = value
        return order

    def context(self, name: str) -> Any:
        return self.grid.contexts[self.by_name[name].node_id]

    def ask(self, name: str, order: RecordDict | None = None, **content: bytes) -> Any:
        record = RecordDict({STAGE: ConfigRecord({STAGE: 0, **content}), **(order or {})})
        message = Message(
            record, dst_node_id=self.by_name[name].node_id, message_type="train.secure"
        )
        message.metadata.__dict__["_message_id"] = "message"
        reply = self.grid.app(message, self.context(name))
        return decode(reply.content[STAGE]["message"])

    def begin(self, terms: Terms) -> tuple[Server, dict[str, Any]]:
        """Take the keys of all, and return what each is told then."""
        server = Server(terms)
        for name in self.names:
            server.receive(name, self.ask(name, terms=encode(terms)))
        return server, _told(server)

    def until_masked(self, terms: Terms) -> tuple[Server, dict[str, Any]]:
        server, told = self.begin(terms)
        for name, message in told.items():
            server.receive(name, self.ask(name, message=encode(message)))
        return server, _told(server)

    def finish(
        self, server: Server, told: dict[str, Any], order: RecordDict | None = None
    ) -> Server:
        """Play a round to its end, from what the devices were told after their keys."""
        for _ in range(4):
            given = (order or self.order()) if server.stage == Stage.MASKED else None
            for name, message in told.items():
                server.receive(name, self.ask(name, given, message=encode(message)))
            told = _told(server)
        return server


def _told(server: Server) -> dict[str, Any]:
    return {
        action[1]: action[2] for action in server.close(server.stage) if isinstance(action, tuple)
    }


def refused(evil: Evil, made: Plan, match: str) -> None:
    """Every device refuses a plan, and does not take part."""
    terms = evil.terms(made)
    for name in evil.names:
        with pytest.raises(ProtocolError, match=match):
            evil.ask(name, terms=encode(terms))
        assert under_way(evil, name) is None


def rows(evil: Evil, name: str, query: str) -> list[Any]:
    """What the file of a device holds."""
    identity = secure.identity_from(evil.context(name).node_config)
    with closing(sqlite3.connect(secure.file_of(identity))) as file:
        try:
            return file.execute(query).fetchall()
        except sqlite3.OperationalError:  # it has none yet
            return []


def under_way(evil: Evil, name: str) -> Any:
    """The root of the secrets of the round under way, if there is one."""
    found = rows(evil, name, "select root from present")
    return found[0][0] if found else None


# servers


def test_plan_without_a_quorum_is_refused(tmp_path: Path) -> None:
    """With t = 3 of 6, two halves could be shown two sets of survivors, and both secrets of one
    device be had.
    """
    weak = complete_plan(6, corrupt=1, dropouts=3)
    assert (weak.threshold, weak.quorum) == (3, 0)
    refused(Evil(tmp_path, 6), weak, "demands a quorum, and this round's plan has none")
    trusting = Evil(tmp_path / "open", 6, **{"semi-honest": True})
    for context in trusting.grid.contexts.values():
        del context.node_config["roster"]
    refused(trusting, weak, "demands a quorum")
    with pytest.raises(
        ConfigError, match="a cohort of 6 devices must keep a quorum of 4, and may lose 3"
    ):
        settings(tmp_path, cohort=6, dropout=0.5)


def test_sparse_plan_needs_a_device_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    identities = tuple(Identity().public for _ in range(200))
    names = tuple(f"{at:03d}" for at in range(200))
    terms = Terms("1", 0, names, identities, 5, plan(200, corrupt=0.1, dropout=0.1), bytes(32))
    monkeypatch.setattr(secure, "roster", lambda path: frozenset(identities))
    for node in ({}, {"roster": "somewhere"}, {"semi-honest": False}):
        with pytest.raises(ProtocolError, match="'semi-honest = true'"):
            secure.check_terms(terms, node)
    secure.check_terms(terms, {"semi-honest": True})
    ulp = dataclasses.replace(
        terms.plan, leak=math.nextafter(terms.plan.leak, 0), fail=terms.plan.fail - 1e-12
    )
    secure.check_terms(
        dataclasses.replace(terms, plan=ulp), {"semi-honest": True}
    )  # another machine's logarithm
    with pytest.raises(ConfigError, match="semi-honest must be true or false, got 'yes'"):
        secure.check_terms(terms, {"semi-honest": "yes"})


def test_plan_that_supposes_too_few_corrupt_devices_is_refused(tmp_path: Path) -> None:
    """Of 5 with none supposed corrupt 3 make a quorum, so one that is corrupt signs two sets for
    the server.
    """
    bold = complete_plan(5, corrupt=0, dropouts=2)
    assert bold.quorum == 3
    refused(
        Evil(tmp_path / "default"),
        bold,
        "must suppose 1 of them to be corrupt, and this one supposes 0",
    )
    careful = Evil(tmp_path / "careful", corrupt=0.4)
    refused(careful, complete_plan(5, corrupt=1, dropouts=1), "must suppose 2 of them")
    careful.begin(careful.terms(complete_plan(5, corrupt=2, dropouts=0)))
    trusting = Evil(tmp_path / "trusting", corrupt=0)
    trusting.begin(trusting.terms(bold))


def test_cohort_that_a_server_can_fill_with_its_own_is_refused(tmp_path: Path) -> None:
    """The terms of a victim and two devices in league with the server follow from their numbers."""
    evil = Evil(tmp_path, 3)
    for context in evil.grid.contexts.values():
        del context.node_config["least-cohort"]
    refused(
        evil,
        complete_plan(3, corrupt=1, dropouts=0),
        "must be of 16 devices at least, and this one is of 3",
    )
    secure.check_terms(evil.terms(), {"least-cohort": 3})


@pytest.mark.parametrize("share", [1.0, -0.1, "x", True])
def test_share_of_corrupt_devices_is_checked(tmp_path: Path, share: Any) -> None:
    evil = Evil(tmp_path, 3)
    with pytest.raises(ConfigError, match="corrupt must be a share"):
        secure.check_terms(evil.terms(), {"corrupt": share})


@pytest.mark.parametrize("change", [{"threshold": 2}, {"quorum": 1}, {"degree": 2}])
def test_plan_that_does_not_follow_from_its_numbers_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    made = dataclasses.replace(plan(5, corrupt=0.1, dropout=0.1), **change)
    refused(Evil(tmp_path), made, "was not computed from its own numbers")


def test_terms_of_another_run_are_refused(tmp_path: Path) -> None:
    evil = Evil(tmp_path, 3)
    with pytest.raises(ProtocolError, match="of run '2', and this device is in run '1'"):
        evil.ask(evil.names[0], terms=encode(evil.terms(run="2")))


def _limit(order: RecordDict) -> None:
    order[wire.ROUND]["limit"] = 1e30


def _deployment(order: RecordDict) -> None:
    order[wire.ROUND]["deployment"] = 1


def _number(order: RecordDict) -> None:
    order[wire.ROUND]["round"] = 1


def _params(order: RecordDict) -> None:
    leaves = wire.unpacked(order[wire.PARAMS])
    leaves[0] = leaves[0] + np.float32(1e-6)
    order[wire.PARAMS] = wire.arrays(leaves)


def _deployed(order: RecordDict) -> None:
    order[wire.DEPLOYED] = wire.arrays([leaf + 1 for leaf in wire.unpacked(order[wire.PARAMS])])


@pytest.mark.parametrize("change", [_limit, _deployment, _number, _params, _deployed])
def test_order_that_is_not_the_terms_is_refused(
    tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another norm for all but one the sum would be that one's update. Nothing is computed
    from it either.
    """
    evil = Evil(tmp_path, 3)
    _, told = evil.until_masked(evil.terms())
    order = evil.order()
    change(order)
    monkeypatch.setattr(client_app, "contribution", lambda *told: pytest.fail("it computed"))
    with pytest.raises(ProtocolError, match="not those of this round's terms"):
        evil.ask(evil.names[0], order, message=encode(told[evil.names[0]]))


def test_settings_that_are_not_the_terms_are_refused(tmp_path: Path) -> None:
    evil = Evil(tmp_path, 3)
    _, told = evil.until_masked(evil.terms())
    evil.context(evil.names[0]).run_config["client_rate"] = 0.01
    with pytest.raises(ProtocolError, match="not those of this round's terms"):
        evil.ask(evil.names[0], evil.order(), message=encode(told[evil.names[0]]))


@pytest.mark.parametrize(
    "wrong", [{"limit": np.inf}, {"limit": 0.0}, {"limit": -1.0}, {"limit": np.nan}, {"round": 4}]
)
def test_order_without_a_norm_or_of_another_round_is_refused(
    tmp_path: Path, wrong: dict[str, float]
) -> None:
    evil = Evil(tmp_path, 3)
    order = evil.order(**wrong)
    _, told = evil.until_masked(evil.terms(order=order))
    with pytest.raises(ProtocolError, match=r"a norm above 0|are not those of this round's terms"):
        evil.ask(evil.names[0], order, message=encode(told[evil.names[0]]))


def test_devices_with_other_terms_are_not_in_one_sum(tmp_path: Path) -> None:
    """A server that tells two devices two orders, each in its own terms, has no keys for either
    that verify.
    """
    evil = Evil(tmp_path, 3)
    terms = evil.terms()
    other = dataclasses.replace(terms, subject=wire.subject_of(evil.order(limit=1e30), evil.made))
    server = Server(terms)
    for name in evil.names[:2]:
        server.receive(name, evil.ask(name, terms=encode(terms)))
    told = msgspec.structs.replace(evil.ask(evil.names[2], terms=encode(other)), terms=terms.digest)
    with pytest.raises(ProtocolError, match="signature on the aggregation keys does not verify"):
        server.receive(evil.names[2], told)


def test_update_beyond_the_norm_is_sent_as_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = Evil(tmp_path, 3)
    like = shape_of(model_of(evil.made))
    size, levels = sum(leaf.size for leaf in jax.tree.leaves(like)), evil.made.rounded_to
    for longest, right in ((int(levels + size**0.5), True), (int(levels + size**0.5) + 1, False)):
        update = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.int32), like)
        jax.tree.leaves(update)[0].flat[0] = longest
        learnt = Contribution(update, np.float32(1), np.array([1, 1, 1], np.float32))
        monkeypatch.setattr(client_app, "_learnt", lambda *told, learnt=learnt: learnt)
        given = client_app.contribution(evil.made, evil.order(), evil.context(evil.names[0]))
        assert bool(wire.words_of(given).any()) == right


def test_a_message_that_comes_again_has_the_same_answer(tmp_path: Path) -> None:
    """Byte for byte, from the file: the process may have been stopped before its answer left."""
    evil = Evil(tmp_path, 3)
    server, told = evil.begin(evil.terms())
    for stage in ("Keys", "Delivery", "Survivors", "Unmask"):
        order = evil.order() if stage == "Delivery" else None
        for name, message in told.items():
            first = evil.ask(name, order, message=encode(message))
            server.receive(name, first)
            assert encode(evil.ask(name, order, message=encode(message))) == encode(first), stage
        told = _told(server)
    assert server.finished


def test_message_of_a_round_that_was_given_up_costs_nothing(tmp_path: Path) -> None:
    evil = Evil(tmp_path, 3)
    me = evil.names[0]
    (_, stale), (_, told) = (evil.begin(evil.terms()) for _ in range(2))
    with pytest.raises(ProtocolError, match="another round than this device is in"):
        evil.ask(me, message=encode(stale[me]))
    assert isinstance(evil.ask(me, message=encode(told[me])), Shares)


def test_roots_of_secrets_are_fresh_and_none_outlives_its_round(tmp_path: Path) -> None:
    evil = Evil(tmp_path, 3)
    roots: set[Any] = set()
    for _ in range(2):
        server, told = evil.begin(evil.terms())
        roots |= {under_way(evil, name) for name in evil.names}
    assert len(roots - {None}) == 6
    evil.finish(server, told)
    assert [under_way(evil, name) for name in evil.names] == [None] * 3
    assert all(
        rows(evil, name, "select words, unmasked from vectors") == [(None, 1)]
        for name in evil.names
    )


# devices


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "LOOK", 0.01)


def clients_of(folder: Path) -> list[list[Any]]:
    return [
        json.loads(line)["clients"] for line in (folder / "out" / PROGRESS).read_text().splitlines()
    ]


def _garbled(message: Any, *about: Any) -> Any:
    if isinstance(message, Shares):
        return msgspec.structs.replace(
            message, frames=tuple((name, b"x" * 82) for name, _ in message.frames)
        )
    return message


def _cut(message: Any, *about: Any) -> Any:
    if isinstance(message, Shares):
        return msgspec.structs.replace(
            message, frames=tuple((name, frame[1:]) for name, frame in message.frames)
        )
    return message


def _small(message: Any, sent: Message, node: Any) -> Any:
    """A masking key of small order, signed as it should be."""
    if not isinstance(message, Advertise):
        return message
    identity = secure.identity_from(node)
    public = (message.sealing, bytes(32), message.commitment)
    signed = _signed(
        decode_terms(sent.content[STAGE]["terms"]), fingerprint(identity.public), *public
    )
    return Advertise(message.terms, *public, identity.sign(PURPOSE_KEYS, signed))


def _share(message: Any, *about: Any) -> Any:
    if not isinstance(message, Shown):
        return message
    (name, share), *rest = message.self_masks
    return msgspec.structs.replace(
        message, self_masks=((name, share[:-1] + bytes([share[-1] ^ 1])), *rest)
    )


@pytest.mark.parametrize(
    ("lie", "in_the_sum"),
    [
        (_garbled, False),
        (_cut, False),
        (_small, False),
        (_share, True),
        (b"\x92\xa6\xff\xfe\xff\xff\xff\xff\xc4\x00", False),
        (b"\x93\xa6Shares\xc4\x00\x91\x92\xa2\xff\xfe\xc4\x00", False),
        (b"\x94\xa6Signed\xc4\x00\xc4\x00" + b"\x91" * 100_000, False),
        ("text", False),
        ("", False),
        (None, False),
    ],
    ids=[
        "garbled",
        "cut",
        "small order",
        "wrong share",
        "tag not UTF-8",
        "name not UTF-8",
        "nested",
        "text",
        "no message",
        "no record",
    ],
)
def test_one_deviating_device_ends_no_secure_run(
    tmp_path: Path, lie: Any, in_the_sum: bool
) -> None:
    made = settings(tmp_path, cohort=6, dropout=0.3, corrupt=0.2, rounds=2)
    bad = 3

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        if node == bad and not reply.has_error():
            record = reply.content[STAGE]
            told = record["message"]
            if callable(lie):
                lied = lie(decode(told), sent, grid.contexts[1000 - bad].node_config)
                record["message"] = encode(lied)
            elif lie:
                record["message"] = lie
            elif lie is None:
                del reply.content[STAGE]
            else:
                del record["message"]
        return reply

    grid = FakeGrid(made, 6, tmp_path, meddle=meddle)
    server_app.run(grid, made, "1")
    name = fingerprint(identity_of(grid.nodes[bad].public_key))
    sums = clients_of(tmp_path)
    assert [(len(one), name in one) for one in sums] == [(5 + in_the_sum, in_the_sum)] * 2


def test_round_with_fewer_left_than_least_is_given_up_before_its_sum_is_known(
    tmp_path: Path,
) -> None:
    made = settings(tmp_path, cohort=6, least=6, dropout=0.4, corrupt=0.0)
    grid = FakeGrid(
        made, 6, tmp_path, lambda node, sent, reply: None if node in (1, 2) else reply, corrupt=0.0
    )
    with pytest.raises(ProtocolError, match="a round needs 6 answers, got 4"):
        server_app.run(grid, made, "1")
    told = [
        decode(one.content[STAGE]["message"])
        for one in grid.sent
        if "message" in one.content[STAGE]
    ]
    assert told
    assert not any(isinstance(one, Survivors) for one in told)


def test_rewards_that_a_secure_sum_has_no_room_for_are_clipped(tmp_path: Path) -> None:
    """No device drops out for what it earned."""
    path, rng = tmp_path / "log.npz", np.random.default_rng(1)
    for reward, masked, expected in (
        (1.0, True, 1),
        (5000.0, False, 5000),
        (5000.0, True, 1),
        (-1.5, True, -1),
    ):
        np.savez(
            path,
            contexts=rng.random((60, 64), np.float32),
            arms=rng.integers(0, 10, 60),
            rewards=np.full(60, reward),
            probabilities=np.full(60, 0.1),
        )
        assert log_of(settings(tmp_path, secure=masked), path)[2].sum() == 60 * expected
    for sums, expected in (([61, 60, 6], 60), ([-99, 60, 6], -60), ([np.nan, 60, 6], 0)):
        learnt = Contribution(
            {"a": np.zeros(2, np.int32)}, np.float32(1), np.array(sums, np.float32)
        )
        assert (
            wire.split(wire.words_of(learnt).view(np.int32).astype(np.int64), [(2,)])[1][0]
            == expected
        )


@pytest.mark.parametrize(
    "values", [{}, {"secure": False, "noise": 1.0, "devices": 4, "delta": 1e-3}]
)
def test_a_device_whose_data_cannot_be_used_sends_zeros(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """Else that it does not answer would tell what it has, and with noise the round would be noise
    alone.
    """
    made = settings(tmp_path, cohort=4, **values)
    grid = FakeGrid(made, 4, tmp_path)
    (tmp_path / "log.npz").write_bytes(b"no log")
    grid.contexts[grid.nodes[1].node_id].node_config["log"] = str(tmp_path / "log.npz")
    server_app.run(grid, made, "1")
    line = json.loads((tmp_path / "out" / PROGRESS).read_text())
    assert (len(line["clients"]), line["samples"]) == (4, 3 * 64)


def _array(data: bytes, **declared: Any) -> Array:
    one = Array(np.zeros(3, np.float32))
    one.data = data
    for name, value in declared.items():
        setattr(one, name, value)
    return one


def _header(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


WHOLE = _header((3,)) + bytes(12)
RECORDS = {
    "a configuration": ConfigRecord({"0": b"x", "1": b"y"}),
    "numbers": MetricRecord({"0": 1.0}),
    "other names": ArrayRecord({"0": _array(WHOLE), "2": _array(WHOLE)}),
    "empty": ArrayRecord({"0": _array(b"")}),
    "a header alone": ArrayRecord({"0": _array(_header((10**13,)), shape=(10**13,))}),
    "a shape that is not its own": ArrayRecord({"0": _array(_header((10**13,)) + bytes(12))}),
    "cut": ArrayRecord({"0": _array(WHOLE[:-1])}),
    "more": ArrayRecord({"0": _array(WHOLE + b"x")}),
    "a type that is not its own": ArrayRecord({"0": _array(WHOLE, dtype="int32")}),
    "objects": ArrayRecord({"0": _array(_header((3,), "|O") + bytes(24), dtype="object")}),
    "text": ArrayRecord({"0": _array(_header((3,), "<U1") + bytes(12), dtype="<U1")}),
    "sides below 0": ArrayRecord({"0": _array(_header((-1, -3)) + bytes(12), shape=(-1, -3))}),
    "a side beyond any": ArrayRecord({"0": _array(_header((10**30, 0)), shape=(10**30, 0))}),
    "another form": ArrayRecord({"0": _array(WHOLE, stype="torch")}),
    "an archive": ArrayRecord({"0": _array(_zip())}),
    "a header of nothing": ArrayRecord({"0": _array(b"\x93NUMPY\x01\x00v\x00" + b"-" * 118)}),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_records_that_are_no_arrays_are_refused_unread(
    record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (good,) = wire.unpacked(ArrayRecord({"0": _array(WHOLE)}))
    assert good.tolist() == [0, 0, 0]
    monkeypatch.setattr(Array, "numpy", lambda one: pytest.fail("it was read"))
    with pytest.raises(ProtocolError, match="of a round must"):
        wire.unpacked(record)


@pytest.mark.parametrize(
    "what", ["a configuration", "empty", "a header alone", "an endless number"]
)
def test_one_deviating_device_ends_no_plain_run(tmp_path: Path, what: str) -> None:
    made = settings(tmp_path, cohort=4, secure=False)

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        if node == 1:
            if what in RECORDS:
                reply.content["update"] = RECORDS[what]
            else:
                reply.content["round"] = ConfigRecord({"client": float("inf")})
        return reply

    server_app.run(FakeGrid(made, 4, tmp_path, meddle), made, "1")
    assert [sorted(one) for one in clients_of(tmp_path)] == [[0, 2, 3]]


@pytest.mark.parametrize(
    "measured",
    [{"samples": 1e9}, {"within": 2.0}, {"reward": 1e31}, {"probability": -1.0}],
    ids=str,
)
def test_what_no_honest_device_measures_is_not_added(
    tmp_path: Path, measured: dict[str, float]
) -> None:
    made = settings(tmp_path, cohort=4, secure=False)

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        if node == 1:
            for name, value in measured.items():
                reply.content[wire.TOLD][name] = value
        return reply

    server_app.run(FakeGrid(made, 4, tmp_path, meddle), made, "1")
    assert [sorted(one) for one in clients_of(tmp_path)] == [[0, 2, 3]]
