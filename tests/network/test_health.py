"""What status, health and doctor say is so, in words and as JSON; and never names whose answer is
pending.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.core.errors import JournalError, LinkError
from posse.runtime import journal as journals
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import complete, prepare
from posse.runtime.journal import Journal
from posse.runtime.network.connection import Timing
from posse.runtime.network.deployment import make_party
from posse.runtime.network.doctor import examine
from posse.runtime.network.health import at_rest, not_answering, status, words
from posse.runtime.network.operate import ask, metrics, serve_metrics
from posse.runtime.network.wire import Data, Kept, pack
from posse.runtime.place import open_place
from posse.systems.mpc_contextual.deploy import build as build_mpc
from posse.systems.parties import deploy_by_name, run_and_record
from tests.kit import mpc
from tests.kit.federations import QUICK, free_port, laid_out, opened, run_all, until
from tests.kit.parties import LAY_OUT, close, finish
from tests.kit.toy_roles import Done
from tests.network.toy_parties import encoded, greeted, party_of


def over(folder, check, heartbeat=0.1, **how):
    """Let a hub meet a leaf, and look at it."""

    async def go():
        party = party_of(
            folder,
            timing=Timing(heartbeat=heartbeat, patience=500 * heartbeat, linger=0.2, closing=50),
            **how,
        )
        running = asyncio.create_task(party.run())
        await asyncio.sleep(0.01)
        connection, _ = greeted(party)
        await until(lambda: party.engine.started)
        try:
            await asyncio.wait_for(check(party, connection, running), 240)
        finally:
            party.stop()
            await asyncio.gather(running, return_exceptions=True)
            party.engine.close()

    asyncio.run(go())


# Who is waited for --------------------------------------------------------------------------------


def test_a_silent_peer_is_named_and_one_that_answers_is_not(tmp_path):
    async def check(party, connection, running):
        assert status(party)["waiting"] == {}
        assert status(party)["healthy"]
        assert status(party)["pid"] == os.getpid()
        connection.last_frame -= 70
        (why,) = status(party)["waiting"].values()
        assert why.startswith("silent for 7")
        assert words(status(party)) == "waiting for a"
        assert not status(party)["healthy"]
        connection.data_received(pack(Kept(0)))
        assert status(party)["waiting"] == {}

    over(
        tmp_path, check, heartbeat=10
    )  # so that nobody is silent only because this machine is busy


def test_a_frozen_peer_is_lost_after_the_patience_and_a_second(tmp_path):
    """Before, TLS waited half a minute for the other to close it too."""

    async def go():
        paths = {path.stem: path for path in laid_out(tmp_path, budget=20)}
        controller, comp = (opened(paths[name]) for name in ("controller", "comp"))
        running = [asyncio.create_task(party.run()) for party in (controller, comp)]
        await until(lambda: "comp" in controller.connections and "controller" in comp.connections)
        comp.connections["controller"].pause(
            True
        )  # it reads nothing, sends nothing and does not hang up either
        comp.timing = replace(comp.timing, patience=600)
        comp.tell_durable = lambda **how: None
        began = asyncio.get_running_loop().time()
        await until(lambda: "comp" not in controller.connections)
        took = asyncio.get_running_loop().time() - began
        for party in (controller, comp):
            party.stop()
        await asyncio.gather(*running)
        close(controller, comp)
        return took, controller.troubles["comp"]

    took, why = asyncio.run(go())
    assert "no sign of life" in why
    assert took < 30  # TLS alone waited for 30 s, behind 2 s of patience


def test_a_paused_party_says_so_to_its_peers_and_is_not_healthy(tmp_path):
    async def go():
        paths = {path.stem: path for path in laid_out(tmp_path, budget=2000)}
        parties = {name: opened(path) for name, path in paths.items()}
        running = [asyncio.create_task(party.run()) for party in parties.values()]
        controller, comp = parties["controller"], parties["comp"]
        await until(lambda: controller.engine.role.state()["step"] > 2)
        comp.pause(True)
        # Where this machine itself stood still for a while, others are called silent until their
        # heartbeats are read.
        await until(lambda: status(controller)["waiting"] == {"comp": "paused by its operator"})
        assert status(controller)["missing"] == {}
        assert not status(controller)["healthy"]
        assert not status(comp)["healthy"]
        assert words(status(comp)) == "paused"
        comp.pause(False)
        await until(lambda: not status(controller)["waiting"])
        assert status(controller)["healthy"]
        for party in parties.values():
            party.stop()
        await asyncio.gather(*running)
        close(*parties.values())

    asyncio.run(go())


def test_nobody_is_named_while_a_reward_is_awaited(tmp_path):
    """At the controller that name would be the pulled arm."""

    async def go():
        parties = {path.stem: opened(path) for path in laid_out(tmp_path, budget=50)}
        asked = []

        async def never(ask):
            asked.append(ask)
            await asyncio.Event().wait()

        for name in ("clinic-1", "clinic-2", "clinic-3"):
            parties[name].source = never
        running = [asyncio.create_task(party.run()) for party in parties.values()]
        await until(lambda: asked)
        loop, late = asyncio.get_running_loop(), True
        while (
            late
        ):  # whoever stood still itself would call others silent: then it is looked at once more
            wakes = loop.time() + 4 * QUICK.heartbeat
            await asyncio.sleep(4 * QUICK.heartbeat)
            late = loop.time() > wakes + QUICK.heartbeat / 2
        seen = {name: status(party) for name, party in parties.items()}
        figures = {
            name: metrics(party, tmp_path / name / "journal", tmp_path / name)
            for name, party in parties.items()
        }
        for party in parties.values():
            party.stop()
        await asyncio.gather(*running)
        close(*parties.values())
        return seen, figures

    seen, figures = asyncio.run(go())
    for name, text in figures.items():
        assert "posse_certificate_expiry_timestamp_seconds" in text
        assert "posse_journal_bytes" in text
        assert not any(
            f'"{other}"' in text for other in figures if other != name
        )  # no figure of one peer
        assert "source" not in text.replace("posse_source_failures_total", "") or name.startswith(
            "clinic"
        )
    for shown in seen.values():
        assert shown["waiting"] == shown["missing"] == {}
        assert shown["healthy"]
        assert not set(shown) - {
            "party",
            "role",
            "run",
            "version",
            "pid",
            "healthy",
            "paused",
            "begun",
            "finished",
            "missing",
            "waiting",
            "over",
            "step",
            "horizon",
            "unit",
            "digest",
        }


def test_a_peer_whose_part_is_over_is_not_missing_and_is_not_waited_for(tmp_path):
    """It left: whatever it has not confirmed it does not need; before, the other stayed for two
    minutes and failed.
    """

    async def check(party, connection, running):
        connection.data_received(pack(Data(1, encoded(Done(0, 5)))))
        await until(lambda: party.engine.role.finished)
        assert status(party)["waiting"] == {"a": "has not confirmed the last messages"}
        connection.data_received(pack(Kept(0, leaves=True)))
        connection.connection_lost(None)
        assert status(party)["over"] == ["a"]
        assert status(party)["missing"] == status(party)["waiting"] == {}
        assert status(party)["healthy"]
        await running  # with closing = 50 s it would not come to its end here

    over(tmp_path, check)
    again = party_after(tmp_path)
    assert (
        again.engine.links["a"].durable_there == again.engine.links["a"].sent
    )  # and it is remembered
    again.engine.close()


def party_after(folder):
    async def make():
        return party_of(folder)

    return asyncio.run(make())


def test_a_dealer_that_has_dealt_everything_is_over_also_for_who_starts_later(tmp_path):
    paths = {path.stem: path for path in mpc.laid_out(tmp_path, steps=4)}

    async def go():
        parties = {
            name: make_party(open_place(path), build_mpc, timing=QUICK)[0]
            for name, path in paths.items()
        }
        payee = parties["payee"]
        answer = payee.source
        hold = asyncio.Event()

        async def last_is_slow(ask):
            if ask.step == 3:
                await hold.wait()
            return await answer(ask)

        payee.source = last_is_slow
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        await asyncio.wait_for(running.pop("dealer"), 240)
        await until(lambda: all("dealer" not in party.connections for party in parties.values()))
        seen = {name: status(party) for name, party in parties.items() if name != "dealer"}
        for party in parties.values():
            party.left.clear()  # as after a start
        later = {name: status(party) for name, party in parties.items() if name != "dealer"}
        hold.set()
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        close(*parties.values())
        return seen, later

    for statuses in asyncio.run(go()):
        for name, shown in statuses.items():
            assert "dealer" in shown["over"], name
            assert shown["missing"] == {}, name


# The needs of a finished party --------------------------------------------------------------------


@pytest.mark.parametrize("name", LAY_OUT)
def test_who_has_finished_needs_only_those_that_it_sends_to(tmp_path, name):
    for party in finish(LAY_OUT[name](tmp_path)):
        sent = {peer for peer, link in party.engine.links.items() if link.sent}
        assert party._needs is not None
        assert set(party.needed) <= sent, party.engine.role.name


# The journal --------------------------------------------------------------------------------------


def synced(folder, records):
    journal = Journal(folder)
    for record in records:
        journal.append(record)
        journal.write()
        journal.sync()
    journal.append(b"the last")
    journal.write()
    journal.close()
    return folder / "journal-00000000.log"


@pytest.mark.parametrize("at", [0, 5, 12, 400, -60])
def test_a_flipped_bit_before_what_was_on_the_disk_is_refused(tmp_path, at):
    path = synced(tmp_path, [bytes([i]) * 50 for i in range(9)])
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    with pytest.raises(JournalError, match="is damaged at byte"):
        Journal(tmp_path)
    with pytest.raises(JournalError, match="is damaged at byte"):
        journals.look(tmp_path)
    assert path.read_bytes() == data


def test_a_torn_end_is_still_cut_off_and_counted(tmp_path):
    path = synced(tmp_path, [b"x" * 50, b"y" * 50])
    path.write_bytes(path.read_bytes()[:-3])
    assert journals.look(tmp_path).torn == len(b"the last") + 8 - 3
    journal = Journal(tmp_path)
    assert list(journal.records()) == [b"x" * 50, b"y" * 50]
    assert journal.torn == len(b"the last") + 8 - 3
    journal.close()


def test_the_doctor_looks_at_the_journal_the_disk_and_the_process(tmp_path, monkeypatch):
    paths = laid_out(tmp_path, budget=20)
    finish(paths)
    build = lambda name: deploy_by_name(name).build  # noqa: E731
    found = {one.what: one for one in examine(paths[0], build)}
    assert found["journal"].fine
    assert "begun, " in found["journal"].said
    assert "MiB free" in found["disk"].said
    assert found["process"].said.startswith("none")
    monkeypatch.setattr("posse.runtime.network.doctor.LEAST_FREE", 1 << 60)
    assert not {one.what: one for one in examine(paths[0], build)}["disk"].fine
    log = tmp_path / "controller" / "journal" / "journal-00000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3] ^= 1
    log.write_bytes(data)
    journal = {one.what: one for one in examine(paths[0], build)}["journal"]
    assert not journal.fine
    assert "is damaged at byte" in journal.said


HOLDS = """
import sys, time
from pathlib import Path
from posse.runtime.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_process_that_is_stopped_and_one_that_does_not_answer(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        assert (tmp_path / "lock").read_text() == f"{holder.pid}\n"
        assert (
            not_answering(tmp_path)
            == f"process {holder.pid} has the journal open and does not answer"
        )
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        assert f"kill -CONT {holder.pid}" in not_answering(tmp_path)
        with pytest.raises(LinkError, match=f"kill -CONT {holder.pid}"):
            asyncio.run(ask(tmp_path, "status"))
        assert at_rest(tmp_path)["pid"] == holder.pid
        with pytest.raises(JournalError, match=f"in use by another process .{holder.pid}"):
            Journal(tmp_path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert not_answering(tmp_path) == ""


# A party that is over, and a customer after a revocation ------------------------------------------


def test_the_status_of_a_party_that_has_finished_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    file, runner = str(paths["customer"]), CliRunner()
    before = runner.invoke(app, ["party", "status", file, "--json"])
    assert before.exit_code == 1
    assert json.loads(before.output)["state"] == "not running"

    async def go():
        others = [opened(path) for name, path in paths.items() if name != "customer"]
        own = run_and_record(
            open_place(paths["customer"]), lambda place, made: made, lambda text: None
        )
        await asyncio.wait_for(asyncio.gather(own, run_all(others)), 240)

    asyncio.run(go())
    said = runner.invoke(app, ["party", "status", file])
    assert said.exit_code == 0
    assert "finished, and does not run any more: run trial-1: total reward" in said.output.replace(
        "\n", " "
    )
    shown = json.loads(runner.invoke(app, ["party", "status", file, "--json"]).output)
    assert shown["finished"]
    assert not shown["running"]
    assert shown["result"]["pulls"] == 12


@pytest.mark.parametrize("anew", [False, True])
def test_a_customer_starts_after_an_owner_was_revoked_or_enrolled_anew(tmp_path, anew):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=200)}

    async def a_while():
        parties = [opened(path) for path in paths.values()]
        running = [asyncio.create_task(party.run()) for party in parties]
        await until(lambda: parties[0].engine.role.state()["step"] > 5)
        for party in parties:
            party.stop()
        await asyncio.gather(*running)
        close(*parties)

    asyncio.run(a_while())
    authority = Authority(tmp_path / "authority")
    authority.revoke("clinic-2")
    if anew:
        token, now = authority.token("owner", "clinic-2"), authority.now()
        folder = tmp_path / "clinic-2-anew"
        complete(token, folder, Desk(authority).answer(prepare(token, folder, now)).data, now)
    customer = opened(paths["customer"])
    assert customer.engine.role.digest
    close(customer)


# For a monitor ------------------------------------------------------------------------------------


def test_pages_for_a_monitor_have_their_types_and_health_is_true(tmp_path):
    async def check(party, connection, running):
        port = free_port()
        door = await serve_metrics(party, "127.0.0.1", port)

        def get(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
                    return page.status, page.headers["Content-Type"], page.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.headers["Content-Type"], error.read().decode()

        code, kind, text = await asyncio.to_thread(get, "/metrics")
        assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "posse_peers_waited_for{" in text
        code, kind, text = await asyncio.to_thread(get, "/health")
        assert (code, kind) == (200, "application/json")
        assert json.loads(text)["healthy"]
        connection.last_frame -= 1000
        code, _, text = await asyncio.to_thread(get, "/health")
        assert code == 503
        assert json.loads(text)["waiting"]
        connection.data_received(pack(Kept(0)))
        assert (await asyncio.to_thread(get, "/health"))[0] == 200
        party.paused = True
        assert (await asyncio.to_thread(get, "/health"))[0] == 503
        assert (await asyncio.to_thread(get, "/other"))[0] == 404
        await door.closed()

    over(tmp_path, check, heartbeat=100)  # longer than a page takes on a busy machine
