"""A party that is missing or refused: everybody sees who it is and why, and after a while all stop
with code 3.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import ConfigError, DataError, StalledError
from posse.core.roles import Pull
from posse.core.settings import read_toml
from posse.runtime.certificates.authority import Authority
from posse.runtime.journal import Journal
from posse.runtime.local import enrol_all, write_party
from posse.runtime.network import leaving
from posse.runtime.network.connection import Connection, Timing, Wiring
from posse.runtime.network.deployment import make_party
from posse.runtime.network.doctor import Finding, examine
from posse.runtime.network.engine import Engine
from posse.runtime.network.health import status
from posse.runtime.network.leaving import Waiting
from posse.runtime.network.operate import FAILING, Control, party_commands, serve_metrics
from posse.runtime.network.party import Party
from posse.runtime.network.wire import WIRE_VERSION, Hello, Kept, Missing, Reader, pack
from posse.runtime.place import open_place
from posse.systems import registry
from posse.systems.dp_combinatorial.deploy import MarketFederation
from posse.systems.dp_combinatorial.deploy import lay_out as lay_out_market
from posse.systems.parties import deploy_by_name
from posse.systems.samba.settings import Samba
from posse.version import PROTOCOL_VERSION
from tests.kit import mpc
from tests.kit.federations import QUICK, free_port, laid_out, until
from tests.kit.toy_roles import WORDS, Hub

BUDGET = 80


class Federation:
    """Parties over mutual TLS in one process, which are started and stopped one by one."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = {path.stem: path for path in paths}
        self.parties: dict[str, Party] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, *names: str) -> None:
        for name in names or self.paths:
            place = open_place(self.paths[name])
            self.parties[name] = make_party(
                place, deploy_by_name(place.file.protocol).build, timing=QUICK
            )[0]
            self.tasks[name] = asyncio.create_task(self.parties[name].run())

    async def stop(self, *names: str) -> None:
        """Stop parties; one that raised has done so before."""
        for name in names or list(self.tasks):
            self.parties[name].stop()
            await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
            self.parties.pop(name).engine.close()

    async def end(self) -> None:
        """Wait until all parts are over."""
        await asyncio.wait_for(asyncio.gather(*self.tasks.values()), 240)

    async def errors(self, *names: str) -> dict[str, BaseException | None]:
        tasks = [self.tasks[name] for name in names]
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 240)
        return dict(zip(names, ended, strict=True))

    def step(self, name: str) -> int:
        return int(self.parties[name].engine.role.state()["step"])  # type: ignore[call-overload]

    def why(self, missing: str) -> dict[str, str]:
        """Return what each of the others gives as the reason why a party is missing; those that do
        not name it lack.
        """
        shown = {name: status(party) for name, party in self.parties.items() if name != missing}
        return {
            name: each["waiting"][missing]
            for name, each in shown.items()
            if missing in each["waiting"] and not each["healthy"]
        }

    async def named(self, missing: str, text: str = "") -> None:
        """Wait until every other party whose part is not over names a party, with a reason that has
        this text.
        """

        def by_all() -> bool:
            waits = {
                name for name, party in self.parties.items() if not party.engine.role.finished
            } - {missing}
            return {name for name, why in self.why(missing).items() if text in why} >= waits

        await until(by_all)


def played(federation: Federation, story: Callable[[], Any]) -> None:
    async def play() -> None:
        try:
            await story()
        finally:
            await federation.stop()

    asyncio.run(play())


def samba(folder: Path, level: str = "strict", **values: Any) -> list[Path]:
    return laid_out(folder, level=level, sync=True, **{"budget": BUDGET, **values})


def market(folder: Path) -> list[Path]:
    agents = [{"name": f"agent-{i + 1}", "listen": f"127.0.0.1:{free_port()}"} for i in range(4)]
    values = {"agents": 4, "producers": 8, "rounds": 300, "start": 20, "seed": 5}
    return lay_out_market(
        MarketFederation.make({"run": "m1", "sync": False, "agent": agents, **values}), folder
    )


SYSTEMS = {
    "samba strict": (samba, "controller", "clinic-2", "comp"),
    "samba paper": (lambda folder: samba(folder, "paper"), "controller", "clinic-2", "clinic-1"),
    "mpc-contextual": (
        lambda folder: mpc.laid_out(folder, steps=60),
        "puller",
        "clinic-2",
        "payee",
    ),
    "dp-combinatorial": (market, "agent-1", "agent-3", "agent-2"),
}
"""How to lay it out, who shows how far it is, who is lost, and at whom a monitor and an operator
look.
"""


def with_values(paths: list[Path], **values: Any) -> list[Path]:
    for path in paths:
        write_party(path, {**read_toml(path), **values})
    return paths


def doctor(path: Path) -> dict[str, Finding]:
    return {one.what: one for one in examine(path, lambda name: deploy_by_name(name).build)}


def health(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as page:
            return page.status, json.loads(page.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


async def no_longer_named(lost: str, port: int) -> None:
    """Wait until `/health` does not name a party; a busy machine may be silent for a moment."""
    async with asyncio.timeout(240):
        while lost in (await asyncio.to_thread(health, port))[1]["waiting"]:
            await asyncio.sleep(0.05)


def plain_total(level: str) -> float:
    (total,) = registry.run(
        Samba(policy="ucb", owners=3, budget=BUDGET, seed=7, level=level).plain()
    ).total
    return total


# Who is missing, at everybody ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_everybody_names_a_party_that_is_lost_until_it_is_back(tmp_path, name):
    lay_out, lead, lost, other = SYSTEMS[name]
    federation = Federation(lay_out(tmp_path))

    async def story():
        federation.start()
        await until(lambda: federation.step(lead) >= 3)
        await federation.stop(lost)
        await federation.named(lost)
        party, port = federation.parties[other], free_port()
        control = Control(open_place(federation.paths[other]).journal, party_commands(party))
        await control.start()
        door = await serve_metrics(party, "127.0.0.1", port)
        code, page = await asyncio.to_thread(health, port)
        found = (await asyncio.to_thread(doctor, federation.paths[other]))["running"]
        assert (code, lost in page["waiting"]) == (503, True)
        assert (found.fine, lost in found.said) == (False, True)
        federation.start(lost)
        await until(lambda: not federation.why(lost))
        await no_longer_named(lost, port)
        await federation.end()
        control.close()
        await door.closed()

    played(federation, story)


def test_a_peer_that_is_paused_is_no_stall_and_goes_on(tmp_path):
    """Over real connections: at its peer it is named as paused, at nobody else as missing, and no
    time counts.
    """
    federation = Federation(with_values(samba(tmp_path), stalled_after=1.0))

    async def story():
        federation.start()
        await until(lambda: federation.step("controller") >= 3)
        comp, controller, owner = (
            federation.parties[name] for name in ("comp", "controller", "clinic-1")
        )
        comp.pause(True)
        await until(lambda: status(controller)["waiting"] == {"comp": "paused by its operator"})
        await federation.stop("clinic-2")
        await until(lambda: "clinic-2" in status(owner)["waiting"])
        loop = asyncio.get_running_loop()
        end = loop.time() + 3.0  # three times the limit
        await until(lambda: loop.time() > end)
        assert not any(task.done() for task in federation.tasks.values())
        comp.pause(False)
        errors = await federation.errors(*federation.tasks)
        assert {type(error) for error in errors.values()} == {StalledError}

    played(federation, story)


# Why it is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["others go on", "all are started again"])
def test_a_lost_journal_is_named_by_all(tmp_path, restarted):
    """Peers that were started again remember nothing of what was on its disk; its new journal gives
    it away.
    """
    federation = Federation(samba(tmp_path))

    async def story():
        federation.start()
        await until(lambda: federation.step("controller") >= 3)
        await federation.stop(*(federation.paths if restarted else ["clinic-2"]))
        shutil.rmtree(tmp_path / "clinic-2" / "journal")
        federation.start(*(federation.paths if restarted else ["clinic-2"]))
        await federation.named("clinic-2", "[P810]")
        await until(
            lambda: (
                "[P810]" in status(federation.parties["clinic-2"])["waiting"].get("controller", "")
            )
        )

    played(federation, story)


def test_other_terms_in_a_run_that_has_begun_are_named_by_all(tmp_path):
    federation = Federation(samba(tmp_path))

    async def story():
        federation.start()
        await until(lambda: federation.step("controller") >= 3)
        await federation.stop("clinic-2")
        shutil.rmtree(tmp_path / "clinic-2" / "journal")
        path = federation.paths["clinic-2"]
        values = read_toml(path)
        write_party(path, {**values, "options": {**values["options"], "policy": "thompson"}})
        federation.start("clinic-2")
        await federation.named("clinic-2", "[P530]")

    played(federation, story)


@pytest.mark.parametrize("kind", ["revoked", "of another authority"])
def test_a_refused_certificate_is_named_by_all(tmp_path, kind):
    """Its caller has no name in TLS: the reason stands beside the party that is missing."""
    federation = Federation(samba(tmp_path))

    async def story():
        federation.start()
        await until(lambda: federation.step("controller") >= 3)
        await federation.stop("clinic-2")
        if kind == "revoked":
            Authority(tmp_path / "authority").revoke("clinic-2")
            shutil.copy(tmp_path / "authority" / "crl.pem", tmp_path / "controller" / "crl.pem")
        else:
            other = tmp_path / "other"
            enrol_all(other, "trial-1", {"clinic-2": "owner", "customer": "customer"})
            path = federation.paths["clinic-2"]
            values = read_toml(path)
            values["options"] |= {"customer": str(other / "customer" / "party.crt")}
            write_party(
                path,
                {**values, "identity": str(other / "clinic-2"), "journal": str(other / "journal")},
            )
        federation.start("clinic-2")
        await federation.named("clinic-2", "revoked" if kind == "revoked" else "authority")

    played(federation, story)


# The time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "level"), [("set-up", "paper"), ("middle", "strict"), ("end", "strict")]
)
def test_a_run_that_stalls_ends_with_3_and_goes_on_where_it_was(tmp_path, when, level):
    lost = "customer" if when == "end" else "clinic-2"
    seconds = 0.0 if when == "end" else 2.0
    federation = Federation(with_values(samba(tmp_path, level), stalled_after=seconds))
    others = [name for name in federation.paths if name != lost]

    async def story():
        federation.start(*(others if when == "set-up" else federation.paths))
        if when != "set-up":
            await until(lambda: federation.step("controller") >= 3)
            await federation.stop(lost)
        if when == "end":  # all decisions are made without the customer, however long they take
            await until(lambda: federation.step("controller") == BUDGET)
            for party in federation.parties.values():
                party.stalled_after = 2.0
        errors = await federation.errors(*others)
        assert {type(error) for error in errors.values()} == {StalledError}
        assert all(f"waited for '{lost}'" in str(error) for error in errors.values()), errors
        assert StalledError.exit_code == 3
        if when != "set-up":
            assert (
                federation.step("controller") == BUDGET
                if when == "end"
                else federation.step("controller") < BUDGET
            )
        await federation.stop(*others)
        with_values(list(federation.paths.values()), stalled_after=0.0)
        federation.start()
        await federation.end()
        assert federation.parties["customer"].engine.role.total == plain_total(level)

    played(federation, story)


@pytest.mark.parametrize("value", [-1.0, float("inf")])
def test_a_time_that_is_none_is_refused(tmp_path, value):
    (path,) = [path for path in samba(tmp_path) if path.stem == "comp"]
    path.write_text(f"stalled_after = {value}\n{path.read_text()}")
    with pytest.raises(ConfigError, match="stalled_after"):
        make_party(open_place(path), deploy_by_name("samba").build)


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.told = b""

    def write(self, data: Any) -> None:
        self.told += data

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def missing(self) -> list[Missing]:
        """Return what was told of missing parties since the last look."""
        told, self.told = self.told, b""
        return [frame for frame in Reader().feed(told) if isinstance(frame, Missing)]


class Counted:
    """A hub of three leaves whose connections and heartbeats a test makes, without a clock."""

    def __init__(self, folder: Path, stalled_after: float) -> None:
        leaves = ("a", "b", "c")
        engine = Engine(Hub(leaves, 1), Journal(folder), leaves, WORDS, run="r")
        self._caller = ""
        self.party = Party(
            engine,
            Wiring("toy", dict.fromkeys(leaves, "leaf")),
            lambda _: ("leaf", self._caller),
            timing=Timing(heartbeat=1.0),
            stalled_after=stalled_after,
        )
        self.waiting = Waiting(self.party)

    def connect(self, name: str, release: str = "0.1.1") -> Connection:
        self._caller, connection = name, Connection(self.party)
        connection.connection_made(Wire())  # type: ignore[arg-type]
        connection.data_received(
            pack(Hello(WIRE_VERSION, release, "toy", PROTOCOL_VERSION, "r", name, 0, 0))
        )
        return connection

    def beats(self, count: int) -> bool:
        """Return whether the party has stalled after so many heartbeats."""
        for _ in range(count):
            self.waiting.beat()
        return isinstance(self.party._failed, StalledError)


def counted(folder: Path, check: Callable[[Counted], None], stalled_after: float = 5.0) -> None:
    async def go() -> None:
        hub = Counted(folder, stalled_after)
        check(hub)
        for task in list(hub.party._tasks):
            task.cancel()
        hub.party.engine.close()

    asyncio.run(go())


def test_time_counts_while_a_party_is_missing_and_nobody_is_paused(tmp_path):
    def check(hub):
        first, _ = hub.connect("a"), hub.connect("b")
        assert not hub.beats(4)
        first.data_received(pack(Kept(0, paused=True)))
        assert not hub.beats(9)
        first.data_received(pack(Kept(0)))
        hub.party.paused = True
        assert not hub.beats(9)
        hub.party.paused = False
        first.data_received(pack(Missing({"z": "it hung up"}, paused=True)))
        assert not hub.beats(9)
        first.data_received(pack(Missing({})))
        assert hub.beats(1)
        assert "'c'" in hub.party._failed.text

    counted(tmp_path, check)


def test_no_time_counts_while_all_are_connected_or_with_0(tmp_path):
    def check(hub):
        for name in ("a", "b", "c"):
            hub.connect(name)
        assert not hub.beats(50)

    counted(tmp_path / "all", check)
    counted(tmp_path / "never", lambda hub: hub.beats(50) and pytest.fail("it stalled"), 0.0)


def test_a_party_that_is_refused_again_and_again_is_missing_and_one_that_stays_is_back(tmp_path):
    def check(hub, stays):
        first = hub.connect("a")
        hub.connect("b")
        assert not hub.beats(3)
        connection = hub.connect(
            "c"
        )  # it is there at the moment of a heartbeat, and refuses this party
        assert not hub.beats(1)
        assert first._transport.missing()[-1].peers.keys() == {"c"}
        if not stays:
            connection.connection_lost(None)
        assert hub.beats(50) != stays
        assert (first._transport.missing()[-1].peers == {}) == stays

    for stays in (True, False):
        counted(tmp_path / str(stays), lambda hub, stays=stays: check(hub, stays))


@pytest.mark.parametrize(
    ("why", "longer"),
    [("it hung up", True), ("refused: [P500] no", False), ("it refused us: [P500] no", False)],
)
def test_a_peer_that_was_there_between_two_looks_is_missing_since_it_left(tmp_path, why, longer):
    """The party looks every 0.1 s; a peer that is refused again and again is missing all the time."""

    async def go() -> float:
        hub = Counted(tmp_path, 0.0)
        for name in ("a", "b"):
            hub.connect(name)
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(leaving.miss(hub.party, give_up=1.0))
        await asyncio.sleep(0.02)
        connection = hub.connect("c")
        await asyncio.sleep(0.06)
        connection.hang_up(why)
        connection.connection_lost(None)
        left = asyncio.get_running_loop().time()
        await waiting
        assert "'c' has been missing for 1 s" in hub.party._failed.text
        for task in list(hub.party._tasks):
            task.cancel()
        hub.party.engine.close()
        return asyncio.get_running_loop().time() - (left if longer else began)

    waited = asyncio.run(go())
    assert 1.0 <= waited < 2.0


def test_who_is_missing_at_a_peer_is_waited_for_with_its_last_word(tmp_path):
    """The middle of a star stops first: those around it still wait for the same party."""

    def check(hub):
        first = hub.connect("a")
        for name in ("b", "c"):
            hub.connect(name)
        first.data_received(pack(Missing({"z": "it hung up\x1b[2J", "hub": "no", "b": "no way"})))
        assert list(status(hub.party)["waiting"]) == ["b", "z"]
        assert "\x1b" not in status(hub.party)["waiting"]["z"]
        assert not hub.beats(4)
        first.connection_lost(None)
        assert list(status(hub.party)["waiting"]) == ["a", "z"]
        assert hub.beats(1)
        assert "'z'" in hub.party._failed.text
        hub.connect("a").data_received(pack(Missing({})))
        assert status(hub.party)["waiting"] == {}

    counted(tmp_path, check)


def test_addresses_and_contents_stay_and_older_versions_are_told_nothing(tmp_path):
    def check(hub):
        first, older = hub.connect("a"), hub.connect("b")
        older.wire = 2
        for why in ("cannot reach 10.1.2.3:7400: no answer", "a message was refused: reward 5"):
            hub.party.troubles["c"] = why
            hub.beats(1)
            (told,) = first._transport.missing()
            assert told.peers.keys() == {"c"}
            assert not {"10.1.2.3", "5"} & set(told.peers["c"].replace(":", " ").split())
            assert status(hub.party)["waiting"]["c"] == why
        assert older._transport.missing() == []

    counted(tmp_path, check)


def test_release_0_1_0_is_told_nothing_that_it_would_refuse(tmp_path):
    """It speaks the same wire version, and ends a connection on which such a frame comes."""

    def check(hub):
        older, newer = hub.connect("a", "0.1.0"), hub.connect("b")
        hub.beats(1)
        assert older._transport.missing() == []
        assert [each.peers.keys() for each in newer._transport.missing()] == [{"c"}]

    counted(tmp_path, check)


# What a source does stays at its owner ------------------------------------------------------------


def shown_while(folder: Path, slow: str, kind: str) -> dict[str, Any]:
    """Return what all parties show and were told while the source of one owner does not answer and
    another is lost.
    """
    federation = Federation(samba(folder, listen=f"127.0.0.1:{free_port()}"))
    seen: dict[str, Any] = {}

    async def story() -> None:
        federation.start()
        party = federation.parties[slow]
        answer, asked = party.source, asyncio.Event()
        assert answer is not None

        async def source(ask: Any) -> Any:
            if ask.number == 0:
                return await answer(ask)
            asked.set()
            if kind == "fails":
                raise DataError("the machine of the rewards is gone.")
            return await asyncio.Event().wait()

        party.source = source
        await until(asked.is_set)
        # Its last word is among what is compared.
        await until(lambda: "clinic-3" in federation.parties["controller"].reports)
        await federation.stop("clinic-3")
        await federation.named("clinic-3")
        if kind == "fails":
            await until(lambda: party.source_trouble[0] >= FAILING)
            assert "source" in party_commands(party)["status"]("")  # type: ignore[operator]
        # A busy machine may be silent for a moment.
        await until(
            lambda: "silent" not in repr([status(each) for each in federation.parties.values()])
        )
        for name, each in federation.parties.items():
            shown = {**status(each), "pid": 0, "digest": ""}
            for key in ("step", "horizon", "unit"):
                shown.pop(key, None)
            seen[name] = shown, each.reports
        # Whoever waits for its own source stops with the others.
        for each in federation.parties.values():
            each.stalled_after = 1.0
        errors = await federation.errors(*federation.tasks)
        seen["errors"] = {
            name: (type(error), "'clinic-3'" in str(error)) for name, error in errors.items()
        }

    played(federation, story)
    return seen


@pytest.mark.parametrize("kind", ["hangs", "fails"])
def test_what_is_shown_is_the_same_whoever_waits_for_its_source(tmp_path, kind):
    first, second = (shown_while(tmp_path / slow, slow, kind) for slow in ("clinic-1", "clinic-2"))
    assert first == second
    assert set(first["errors"].values()) == {(StalledError, True)}
    assert "machine of the rewards" not in repr(first)


def test_a_source_that_fails_is_shown_with_slots_too(tmp_path):
    """Ticks are answered all the time; that is no answer of the source."""
    federation = Federation(samba(tmp_path, slot=0.02, slowest_pull=0.02))

    async def story():
        federation.start()
        owner = federation.parties["clinic-1"]
        clock = owner.source
        pull, broken = clock.pull, True

        async def source(ask):
            assert isinstance(ask, Pull)
            if broken:
                raise DataError("the machine of the rewards is gone.")
            return await pull(ask)

        clock.pull = source
        await until(lambda: owner.source_trouble[0] > 2 * FAILING)
        answered, seen = owner.source_answers, []
        await until(
            lambda: seen.append(owner.source_trouble[0]) or owner.source_answers > answered + 5
        )
        assert min(seen) > 2 * FAILING  # a tick that is answered clears nothing
        control = Control(open_place(federation.paths["clinic-1"]).journal, party_commands(owner))
        await control.start()
        found = (await asyncio.to_thread(doctor, federation.paths["clinic-1"]))["source"]
        control.close()
        assert (found.fine, "machine of the rewards" in found.said) == (False, True)
        # A busy machine may be silent for a moment.
        await until(lambda: all(status(party)["healthy"] for party in federation.parties.values()))
        broken = False
        await until(lambda: owner.source_trouble == (0, ""))

    played(federation, story)
