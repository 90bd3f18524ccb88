"""A studio as a whole: streams, limits, restarts, several browsers, runs, jobs, budgets and the
command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

import posse
from posse.cli.app import app
from posse.results.store import Store
from posse.studio.stages import Hub
from tests.kit.federations import free_port
from tests.studio.conftest import Server, Visitor, resting, until

TOY: dict[str, Any] = {"horizon": 200}


class Stream:
    """A tab that reads the stream, over a socket of its own."""

    def __init__(
        self, visitor: Visitor, *stages: str, last: str = "", zipped: bool = False
    ) -> None:
        port = visitor.server.port
        cookie = f"posse-{port}={visitor.client.cookies[f'posse-{port}']}"
        self._line = socket.create_connection(("127.0.0.1", port), timeout=60)
        query = "&".join(f"stage={id}" for id in stages)
        head = [f"GET /api/stream?{query} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {cookie}"]
        head += [f"Last-Event-ID: {last}"] if last else []
        head += ["Accept-Encoding: gzip"] if zipped else []
        self._line.sendall("\r\n".join([*head, "", ""]).encode())
        self._unzip = zlib.decompressobj(31) if zipped else None
        self._raw, self._text, self.bytes = b"", b"", 0
        while b"\r\n\r\n" not in self._raw:
            self._raw += self._line.recv(65536)
        self._raw = self._raw.partition(b"\r\n\r\n")[2]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def events(self) -> Iterator[tuple[str, str, Any]]:
        """Events as they come: name, number, data."""
        while True:
            self._chunks()
            while b"\n\n" in self._text:
                block, _, self._text = self._text.partition(b"\n\n")
                fields = dict(
                    line.split(": ", 1)
                    for line in block.decode().splitlines()
                    if not line.startswith(":")
                )
                if "event" in fields:
                    yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            self._raw += self._line.recv(65536)

    def _chunks(self) -> None:
        while b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            self.bytes += length
            part, self._raw = rest[:length], rest[length + 2 :]
            self._text += part if self._unzip is None else self._unzip.decompress(part)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_stream_says_what_changed_until_the_end(visitor: Visitor, zipped: bool) -> None:
    id = visitor.stage("samba", policy="ucb", owners=4, horizon=300)
    frames, state, number = 0, {}, ""
    with Stream(visitor, id, zipped=zipped) as stream:
        visitor.do(id, "play", unit="time", speed=200)
        for name, last, data in stream.events():
            if name != "state":
                continue
            frames, number = frames + 1, last
            assert ("settings" in data) == (frames == 1)
            lines = data.pop("curves", {"from": {}, "lines": {}})
            state.update(data)
            for line, points in lines["lines"].items():
                held = state.setdefault("lines", {}).setdefault(line, [])
                del held[lines["from"][line] :]
                held.extend(points)
            if state.get("done") and state["phase"] == "done":
                break
    assert frames > 10
    whole = visitor.get(f"/api/stages/{id}")
    assert whole["time"] == state["time"] == 300
    assert whole["scene"] == state["scene"]
    assert whole["curves"]["lines"] == state.get("lines", {})
    # Who comes back with the last number gets nothing again, and then what is new.
    with Stream(visitor, id, last=number) as stream:
        visitor.do(id, "jump", time=100)
        times = (
            data["time"] for name, _, data in stream.events() if name == "state" and "time" in data
        )
        now = next(time for time in times if time != 300)
        while now < 100:  # a slow machine is seen on its way there
            now = next(times)
        assert now == 100
    with Stream(visitor, "nothing") as stream:
        assert next(stream.events())[0] == "gone"


def test_an_idle_stream_says_that_it_is_there(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an event: a page does not see comments, and would take the server for gone."""
    monkeypatch.setattr("posse.studio.stream.BEAT", 0.05)
    id = visitor.stage("toy", **TOY)
    with Stream(visitor, id) as stream:
        beats = (name for name, _, _ in stream.events() if name == "beat")
        assert list(islice(beats, 2)) == ["beat", "beat"]


def test_200_streams_leave_nothing_behind(server: Server, visitor: Visitor) -> None:
    id = visitor.stage("toy", **TOY)

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    def settle(tasks: int, files: int) -> tuple[int, int]:
        """Wait until what was closed is gone on both sides, or for some seconds."""
        for _ in range(12_000 if files else 250):
            now = (server.tasks(), opened())
            if now[0] <= tasks and now[1] <= files:
                break
            time.sleep(0.02)
        return now

    def tabs(count: int) -> None:
        for group in range(count // 10):
            with contextlib.ExitStack() as stack:
                streams = [
                    stack.enter_context(Stream(visitor, id, zipped=bool(group % 2)))
                    for _ in range(10)
                ]
                for stream in streams:
                    assert next(stream.events())[0] == "state"

    before = settle(0, 0)
    tabs(200)
    after = settle(*before)
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    studio = server.app.studio
    assert studio.streams == 0
    assert studio.stages.live[id].readers == 0


@pytest.mark.parametrize("turns", range(4))
def test_a_reader_that_goes_in_the_moment_of_a_change_is_let_go(turns: int) -> None:
    async def go() -> None:
        hub = Hub()

        async def reads() -> None:
            while True:
                await hub.wait(hub.count, 60)

        reading = asyncio.ensure_future(reads())
        await asyncio.sleep(0.01)
        hub.touch()
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        done, _ = await asyncio.wait([reading], timeout=5)
        reading.cancel()
        assert done

    asyncio.run(go())


def test_a_run_that_nobody_watches_stops_playing(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posse.studio.stages.UNSEEN", 0.2)
    id = visitor.stage("toy", horizon=100_000)
    with Stream(visitor, id) as stream:
        visitor.do(id, "play", unit="time", speed=10)
        assert next(
            one for one in stream.events() if one[0] == "state" and one[2].get("time", 0) > 3
        )
    live = visitor.server.app.studio.stages.live[id]
    until(lambda: live.phase != "playing")
    assert live.phase == "paused"


def test_too_many_runs_say_which_there_are(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = start(live=2).visitor()
    ids = [visitor.stage("toy", **TOY) for _ in range(2)]
    refused = visitor.post("/api/stages", {"system": "toy"}, 409)
    assert [one["id"] for one in refused["live"]] == ids
    assert "Stop one" in refused["error"]
    assert visitor.client.delete(f"/api/stages/{ids[0]}").status_code == 204
    assert visitor.get(f"/api/stages/{ids[0]}", 404)
    visitor.stage("toy", **TOY)
    monkeypatch.setattr(
        "posse.studio.stages.SPARE", -1.0
    )  # nobody has watched them for long enough
    visitor.stage("toy", **TOY)
    visitor.server.app.studio.stages.memory = 1
    visitor.client.delete(f"/api/stages/{ids[1]}")
    assert "MB" in visitor.post("/api/stages", {"system": "toy"}, 409)["error"]


def test_browsers_and_tabs_do_not_disturb_each_other(server: Server) -> None:
    one, two = server.visitor(), server.visitor()
    mine, theirs = one.stage("toy", **TOY), two.stage("toy", seed=2, **TOY)
    with Stream(one, mine) as stream:
        one.do(mine, "jump", time=50)
        two.do(theirs, "end")
        assert one.get(f"/api/stages/{mine}")["time"] == 50
        two.do(theirs, "jump", time=10)
        assert one.get(f"/api/stages/{mine}")["time"] == 50
        seen = {data["id"] for name, _, data in _some(stream, 2) if name == "state"}
    assert seen == {mine}


def _some(stream: Stream, count: int) -> list[tuple[str, str, Any]]:
    events = stream.events()
    return [next(events) for _ in range(count)]


def test_what_is_wrong_with_settings_stands_beside_the_field(visitor: Visitor) -> None:
    cases = (
        ({"owners": 1}, "owners"),
        ({"policy": "ucbb"}, "policy"),
        ({"horizon": 0}, "horizon"),
        ({"seed": -1}, "seed"),
        ({"owners": 10, "horizon": 5}, "horizon"),
        ({"aes": False}, "aes"),
        ({"level": "x"}, "level"),
    )
    for settings, field in cases:
        said = visitor.post("/api/check", {"system": "samba", "settings": settings}, 200)
        assert not said["ok"], settings
        assert said["errors"][0]["field"] == field, (settings, said)
        assert "\n" not in said["errors"][0]["message"]
    said = visitor.post(
        "/api/check",
        {"system": "samba", "settings": {"owners": 4, "level": "paper", "mask": False}},
        200,
    )
    assert said["ok"]
    assert (said["level"], said["protection"]) == ("paper", "paper, mask off")
    assert set(said["knowledge"]) >= {"owner", "controller", "comp", "customer"}
    assert len(said["preview"]["arms"]) == 4


def test_every_system_can_be_set_up_from_what_it_declares(visitor: Visitor) -> None:
    systems = {one["name"]: one for one in visitor.get("/api/systems")}
    assert list(systems) == list(posse.systems.registry.names())
    for name, one in systems.items():
        offered = {field for group in one["groups"] for field in group["fields"]}
        assert offered <= set(one["schema"]["properties"]), name
        for scenario in one["scenarios"]:
            asked = {"system": name, "settings": scenario["settings"]}
            said = visitor.post("/api/check", asked, 200)
            assert said["ok"], (name, said)


def test_runs_are_those_of_the_command_line(visitor: Visitor) -> None:
    store = Store()
    for policy in ("ucb", "thompson"):
        store.save(posse.run(posse.Samba(policy=policy, owners=3, horizon=50, runs=3).plain()))
    rows = visitor.get("/api/runs", sort="policy")["rows"]
    assert [row["policy"] for row in rows] == ["thompson", "ucb"]
    assert all(row["interval"][0] <= row["reward"] <= row["interval"][1] for row in rows)
    assert [row["policy"] for row in visitor.get("/api/runs", filter="UCB plain")["rows"]] == [
        "ucb"
    ]
    assert visitor.get("/api/runs", 400, sort="nonsense")["error"]
    ids = [row["id"] for row in rows]
    compared = visitor.post("/api/runs/compare", {"ids": ids}, 200)
    assert [curve["name"] for curve in compared["curves"]] == ["reward", "regret"]
    assert all(
        len(series["points"]) == len(series["low"])
        for curve in compared["curves"]
        for series in curve["series"]
    )
    titles = [section["title"] for section in compared["sections"]]
    assert titles[0] == "What it earned and cost"
    assert sum("How often" in title for title in titles) == 2
    for form, start in (("csv", b"record,"), ("parquet", b"PAR1"), ("svg", b"<?xml")):
        answer = visitor.client.get(
            "/api/runs/export", params={"ids": ",".join(ids), "format": form}
        )
        assert answer.status_code == 200
        assert answer.content.startswith(start), (form, answer.content[:60])
    report = visitor.client.get(f"/api/runs/{ids[0]}/report")
    assert "sandbox" in report.headers["content-security-policy"]
    assert "<html" in report.text
    one = visitor.get(f"/api/runs/{ids[0]}")
    assert visitor.post("/api/check", {"system": "samba", "settings": one["again"]}, 200)["ok"]
    assert visitor.client.delete(f"/api/runs/{ids[0]}").json()["seconds"] >= 10
    assert [row["id"] for row in visitor.get("/api/runs")["rows"]] == [ids[1]]
    visitor.post(f"/api/runs/{ids[0]}/undelete")
    assert {row["id"] for row in visitor.get("/api/runs")["rows"]} == set(ids)
    assert visitor.post(f"/api/runs/{ids[1]}/undelete", {}, 404)["error"]
    with Stream(visitor) as stream:
        store.delete(ids[1])
        assert next(one for one in stream.events() if one[0] == "runs")


def test_tables_beside_each_other_say_whose_they_are(visitor: Visitor) -> None:
    store = Store()
    runs = [
        posse.Samba(owners=3, horizon=20, level=level, paillier_bits=2048)
        for level in ("strict", "paper")
    ]
    ids = [store.save(posse.run(one)) for one in runs]
    titles = [
        one["title"] for one in visitor.post("/api/runs/compare", {"ids": ids}, 200)["sections"]
    ]
    assert len(set(titles)) == len(titles)
    assert sum(title.startswith("Who sees what") for title in titles) == 2


def _over(visitor: Visitor) -> Any:
    """The newest job, if it is finished."""
    return job if (job := visitor.get("/api/jobs")[0])["finished"] else None


def test_a_sweep_runs_in_the_background(visitor: Visitor) -> None:
    asked = {
        "kind": "sweep",
        "system": "toy",
        "settings": {"horizon": 40},
        "over": {"seed": [1, 2], "horizon": [20, 40]},
    }
    id = visitor.post("/api/jobs", asked, 201)["id"]
    job = until(lambda: _over(visitor))
    assert job["settings"] == {"horizon": 40}
    assert (job["id"], job["done"], job["of"], job.get("error")) == (id, 4, 4, None)
    for cell in job["cells"]:
        record = Store().get(cell["run"])
        config: Any = record.config
        again = posse.run(_toy(seed=config["seed"], horizon=config["horizon"]))
        assert record.total == again.total == (cell["reward"]["mean"],)
    visitor.client.delete(f"/api/jobs/{id}")
    assert visitor.get("/api/jobs") == []


def _toy(**settings: Any) -> Any:
    from posse.systems.registry import system

    return system("toy").Settings(**settings)


def test_a_choice_compares_policies_and_levels_and_can_be_cancelled(visitor: Visitor) -> None:
    settings = {"owners": 3, "horizon": 60, "paillier_bits": 2048}
    asked = {
        "kind": "choose",
        "system": "samba",
        "settings": settings,
        "over": {"policy": ["ucb"]},
        "runs": 2,
    }
    visitor.post("/api/jobs", asked, 201)
    job = until(lambda: _over(visitor))
    assert [(cell["policy"], cell["level"]) for cell in job["cells"]] == [
        ("ucb", level) for level in ("strict", "paper", "plain")
    ]
    assert len({cell["reward"]["mean"] for cell in job["cells"]}) == 1  # protection costs no reward
    assert job["says"].startswith("ucb at ")
    assert "as much as in the clear" in job["says"]
    assert re.search(r"[\d.]+ us of CPU a step and arm", job["says"])
    long = {"kind": "run", "system": "samba", "settings": {**settings, "horizon": 1_000_000}}
    id = visitor.post("/api/jobs", long, 201)["id"]
    until(lambda: [row for row in visitor.get("/api/runs")["rows"] if row["status"] == "running"])
    assert visitor.client.delete(f"/api/jobs/{id}").status_code == 204
    until(lambda: _over(visitor))
    assert [row["status"] for row in visitor.get("/api/runs")["rows"]] == ["finished"] * 3


def test_what_is_found_out_and_what_it_costs(visitor: Visitor) -> None:
    id = visitor.stage("toy", **TOY)
    visitor.do(id, "jump", time=100)
    found = visitor.post(f"/api/stages/{id}/audit", {"observer": "listener"}, 200)
    assert found["sees"] is None  # it has not written it down
    assert [(row["attack"], row["verdict"]) for row in found["rows"]] == [
        ("the total", "finds it out")
    ]
    assert found["time"] == 100
    assert visitor.post(f"/api/stages/{id}/audit", {"observer": "teller"}, 200)["rows"] == []
    cost = visitor.post(f"/api/stages/{id}/cost", {}, 200)
    assert [row["name"] for row in cost["rows"]] == ["as set", "plain"]
    assert cost["rows"][0]["messages"] > 0
    for row in cost["rows"]:
        assert row["points"][0] == [0, 0]  # time against steps, measured
        assert row["points"] == sorted(row["points"])
        assert row["points"][-1][1] == pytest.approx(row["seconds"])
    knows = visitor.get(f"/api/stages/{id}/party/listener")
    assert knows["state"] == {"step": 99, "horizon": 200} or knows["state"]["step"] in (99, 100)
    assert knows["could"] == ["The listener learns the total."]


def test_an_attack_that_breaks_is_said_and_logged(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise TypeError("a list where a number should be")

    id = visitor.stage("toy", **TOY)
    visitor.do(id, "jump", time=20)
    with monkeypatch.context() as patch:
        patch.setattr("posse.studio.looking.attempt", broken)
        found = visitor.post(f"/api/stages/{id}/audit", {"observer": "listener"}, 200)
    assert found["rows"] == []
    assert found["notes"] == ["the total: it cannot be made on 20 steps of a run (TypeError)."]
    assert "a list where a number should be" in caplog.text
    monkeypatch.setattr("posse.studio.looking.source", broken)
    said = visitor.get(f"/api/stages/{id}/source", 409, kind="listener")
    assert said["error"] == "this could not be done: TypeError. The server's screen says more."


def test_settings_that_other_ones_rule_out_say_so_in_their_schema(visitor: Visitor) -> None:
    samba = next(one for one in visitor.get("/api/systems") if one["name"] == "samba")
    ruled = {
        name: one["only"] for name, one in samba["schema"]["properties"].items() if "only" in one
    }
    assert set(ruled) == {"aes", "paillier", "permutation", "mask", "shortcut"}
    assert all(one == {"level": ["paper"]} for one in ruled.values())


def test_budgets_are_those_of_the_command_line(visitor: Visitor) -> None:
    names = [one["name"] for one in visitor.get("/api/budgets")]
    assert "arms" in names
    said = visitor.post("/api/budgets/arms", {"arms": 4, "epsilon": 0.2}, 200)
    assert said["settings"]["arms"] == 4
    assert said["not_covered"]
    assert said["sections"][0]["rows"]
    wrong = visitor.post("/api/budgets/arms", {"epsilon": 7}, 400)
    assert wrong["field"] == "epsilon"
    assert visitor.post("/api/budgets/none", {}, 404)["error"]


# As a process -------------------------------------------------------------------------------------


def launched(home: Path, *flags: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start `posse studio`; the process, its origin and a token."""
    environment = {**os.environ, "POSSE_HOME": str(home)}
    command = [sys.executable, "-m", "posse", "studio", "--no-browser", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"(https?://127\.0\.0\.1:\d+)/(?:#token=(\S+))?", line)
    assert found, (
        line,
        process.stderr.read() if process.stderr and process.poll() is not None else "",
    )
    return process, found[1], found[2]


def _client(origin: str, token: str, trust: ssl.SSLContext | bool = True) -> httpx.Client:
    """A browser that enters as soon as the server answers."""
    port = int(origin.rpartition(":")[2])

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    until(answers)
    client = httpx.Client(base_url=origin, headers={"origin": origin}, timeout=60, verify=trust)
    if token:
        client.post("/api/enter", json={"token": token}).raise_for_status()
    return client


def _moment(client: httpx.Client, id: str) -> Any:
    """The state once nothing moves: the answer to a press is not waited for longer than a
    second.
    """
    return until(lambda: resting(client.get(f"/api/stages/{id}").json()))


def _ended(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=240)


def test_a_killed_server_is_taken_up_from_the_address(home: Path) -> None:
    process, origin, token = launched(home)
    port = origin.rpartition(":")[2]
    body = {"system": "toy", "settings": TOY}
    with contextlib.closing(_client(origin, token)) as client:
        id = client.post("/api/stages", json=body).json()["id"]
        _moment(client, id)
        client.post(f"/api/stages/{id}/do", json={"action": "jump", "time": 77}).raise_for_status()
        before = _moment(client, id)
        process.kill()
        _ended(process)
        with pytest.raises(httpx.TransportError):
            client.get("/api/stages")
        process, origin, _ = launched(home, "--port", port)
        _client(origin, "").close()
        assert (
            client.get(f"/api/stages/{id}").status_code == 404
        )  # the browser is in; the run is not there
        at = {"time": before["time"], "message": before["message"]}
        again = _moment(client, client.post("/api/stages", json={**body, "at": at}).json()["id"])
    for name in ("time", "message", "scene", "settings"):
        assert again[name] == before[name]
    process.send_signal(signal.SIGINT)
    _ended(process)


def test_a_password_and_tls_let_a_browser_in(home: Path, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("correct horse battery")
    certificate, key = _self_signed(tmp_path)
    flags = ("--password-file", str(password), "--certificate", str(certificate), "--key", str(key))
    process, origin, token = launched(home, *flags)
    assert origin.startswith("https://")
    assert token is None
    trust = ssl.create_default_context(cafile=certificate)
    with contextlib.closing(_client(origin, "", trust)) as client:
        refused = client.get("/api/systems")
        assert (refused.status_code, refused.json()["enter"]) == (401, "password")
        assert client.post("/api/enter", json={"password": "wrong"}).status_code == 403
        entered = client.post("/api/enter", json={"password": "correct horse battery"})
        assert "Secure" in entered.headers["set-cookie"]
        assert client.get("/api/stages").json() == []
    process.send_signal(signal.SIGINT)
    _ended(process)


@contextlib.contextmanager
def _tls_proxy(certificate: Path, key: Path, to: int) -> Iterator[int]:
    """A proxy that takes TLS off and passes bytes on, as operators have one in front; yields its
    port.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(passed(reader, behind_writer), passed(behind_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(visited, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


def test_behind_a_proxy_a_run_is_watched_and_only_its_name_is_answered(
    home: Path, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("correct horse battery")
    certificate, key = _self_signed(tmp_path)
    port = free_port()
    with _tls_proxy(certificate, key, port) as front:
        name = f"https://127.0.0.1:{front}"
        process, origin, token = launched(
            home, "--password-file", str(password), "--behind-proxy", name, "--port", str(port)
        )
        assert (origin, token) == (name, None)
        with contextlib.closing(
            _client(origin, "", ssl.create_default_context(cafile=certificate))
        ) as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/stages").status_code == 401
            entered = client.post("/api/enter", json={"password": "correct horse battery"})
            assert "Secure" in entered.headers["set-cookie"]
            id = client.post("/api/stages", json={"system": "toy", "settings": TOY}).json()["id"]
            with client.stream("GET", "/api/stream", params={"stage": id}) as stream:
                frames = (line for line in stream.iter_lines() if line.startswith("data:"))
                assert any(
                    '"phase":"paused"' in line.replace(" ", "") for line in islice(frames, 50)
                )
            client.post(
                f"/api/stages/{id}/do", json={"action": "jump", "time": 77}
            ).raise_for_status()
            assert _moment(client, id)["time"] == 77
            elsewhere = client.get("/api/stages", headers={"host": "studio.example.org"})
            assert elsewhere.status_code in (400, 403, 421)
        direct = httpx.get(f"http://127.0.0.1:{port}/api/stages")
        assert direct.status_code in (400, 403, 421)
        process.send_signal(signal.SIGINT)
        _ended(process)


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, made now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "studio")]),
        datetime.now(UTC),
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "studio.pem", folder / "studio.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    secret.write_bytes(key.private_bytes(*form))
    return pem, secret


def test_the_command_refuses_what_others_could_reach(home: Path) -> None:
    def call(*flags: str) -> Any:
        return CliRunner().invoke(app, ["studio", "--no-browser", *flags])

    refused = call("--host", "0.0.0.0")
    assert refused.exit_code == 2
    assert "--password-file" in refused.stderr
    assert call("--policy", "nonsense").exit_code == 2
    assert call("--certificate", "x.pem").exit_code == 2
    address = call("--token").stdout.strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:8750/#token=\S+", address)
    (home / "studio" / "port").write_text(
        "8123"
    )  # as a studio leaves it that found the usual port taken
    assert call("--token").stdout.startswith("http://127.0.0.1:8123/#token=")


def test_data_are_looked_through_again_only_where_a_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posse.studio.catalogue import Catalogue

    monkeypatch.setenv("POSSE_DATA", str(tmp_path))
    looked: list[str] = []
    monkeypatch.setattr("posse.problems.listing.listing", lambda kind, folder: looked.append(kind))
    catalogue = Catalogue(tmp_path / "studio")
    assert [one["data"] for one in catalogue.systems()] == [None] * len(catalogue.systems())
    assert looked == []
    for _ in range(2):
        catalogue.data()
    kinds = [system.about.problems for system in posse.systems.registry.systems()]
    assert looked == kinds
    assert {one["name"]: one["data"] for one in catalogue.systems()} == catalogue.data()
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    assert [one["data"] for one in catalogue.systems()] == [None] * len(catalogue.systems())
    catalogue.data()
    assert looked == kinds * 2
