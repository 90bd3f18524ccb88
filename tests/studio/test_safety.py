"""Who may use a studio, and what a request may name: wrong hosts, origins, tokens, paths, modules
and sizes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from posse.core.errors import CertificateError, ConfigError
from posse.studio import serve
from posse.studio.guard import BODY, Keys, Place
from tests.studio.conftest import Server, Visitor

CALLS = (
    ("GET", "/api/systems"),
    ("GET", "/api/stages"),
    ("GET", "/api/runs"),
    ("GET", "/api/jobs"),
    ("GET", "/api/files"),
    ("GET", "/api/budgets"),
    ("GET", "/api/data"),
    ("GET", "/api/stream"),
    ("POST", "/api/check"),
    ("POST", "/api/stages"),
    ("POST", "/api/stages/x/do"),
    ("POST", "/api/jobs"),
    ("POST", "/api/files"),
    ("DELETE", "/api/stages/x"),
    ("DELETE", "/api/runs/x"),
    ("POST", "/api/runs/x/undelete"),
    ("POST", "/api/stages/x/audit"),
)


def test_a_token_serves_one_browser_and_the_cookie_outlives_the_server(
    start: Callable[..., Server], home: Path
) -> None:
    server = start()
    token, one, other = server.token(), server.visitor(enter=False), server.visitor(enter=False)
    answer = one.client.post("/api/enter", json={"token": token})
    assert answer.status_code == 204
    flags = answer.headers["set-cookie"]
    assert "HttpOnly" in flags
    assert "SameSite=Strict" in flags
    assert other.client.post("/api/enter", json={"token": token}).status_code == 403
    assert other.client.get("/api/systems").json()["enter"] == "token"
    assert one.client.get("/api/stages").status_code == 200
    value = one.client.cookies[f"posse-{server.port}"]
    server.stop()
    again = start()
    kept = again.visitor(enter=False)
    assert kept.client.post("/api/enter", json={"token": token}).status_code == 403
    kept.client.cookies.set(f"posse-{again.port}", value)
    assert kept.client.get("/api/stages").status_code == 200
    assert stat.S_IMODE(os.stat(home / "studio" / "key").st_mode) == 0o600


def test_forged_and_old_tokens_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys(tmp_path / "studio")
    good = keys.token()
    assert not keys.spend(good[:-1] + ("0" if good[-1] != "0" else "1"))
    assert not keys.admits(good)
    assert not keys.spend(keys.cookie())
    assert not keys.spend("")
    assert not keys.spend("a.b.c")
    assert not Keys(tmp_path / "other").spend(good)
    monkeypatch.setattr("posse.studio.guard.TOKEN_LIFE", -1)
    assert not keys.spend(keys.token())
    (tmp_path / "studio" / "key").chmod(0o644)
    with pytest.raises(CertificateError, match="chmod"):
        Keys(tmp_path / "studio")


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_nothing_is_answered_to_strangers(
    server: Server, visitor: Visitor, method: str, path: str
) -> None:
    stranger = server.visitor(enter=False).client
    assert stranger.request(method, path).status_code == 401
    for headers in ({"host": "evil.example"}, {"host": f"localhost.evil.example:{server.port}"}):
        assert visitor.client.request(method, path, headers=headers).status_code == 421
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{server.port + 1}",
        f"https://127.0.0.1:{server.port}",
    ):
        assert visitor.client.request(method, path, headers={"origin": origin}).status_code == 403
    assert (
        visitor.client.request(method, path, headers={"sec-fetch-site": "cross-site"}).status_code
        == 403
    )
    if method != "GET":
        request = visitor.client.build_request(method, path)
        del request.headers["origin"]
        assert visitor.client.send(request).status_code == 403


def test_the_page_needs_no_cookie_and_runs_nothing_of_others(server: Server) -> None:
    answer = server.visitor(enter=False).client.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for path in (
        "/docs",
        "/redoc",
        "/openapi.json",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
    ):
        assert server.visitor(enter=False).client.get(path).status_code in (404, 401), path


def test_a_request_names_no_path_and_no_module(visitor: Visitor, tmp_path: Path) -> None:
    secret = tmp_path / "means.csv"
    secret.write_text("name,mean\na,0.1\nb,0.9\n")
    wrong: list[dict[str, Any]] = [
        {"data": str(secret)},
        {"data": "means.csv"},
        {"data": "../means.csv"},
        {"data": f"file:{'0' * 64}"},
        {"data": "file:../key"},
        {"data_dir": str(tmp_path)},
        {"policy": "os:system"},
        {"policy": "mine.py:Mine"},
        {"policy": {"name": "os:system"}},
        {"policy": {"class": "os:system", "name": "ucb"}},
        {"policy": "{name = 'os:system'}"},
        {"policy": {"name": {"name": "os:system"}}},
        {"horizon": 10**12},
        {"owners": 10**6},
        {"means": [0.5] * 5000},
        {"data": ["embedded:jester"]},
        {"policy": ["os:system"]},
    ]
    for settings in wrong:
        said = visitor.post("/api/check", {"system": "samba", "settings": settings}, 400)
        assert said["field"] == next(iter(settings)), settings
    mistake = {"policy": ["ucb"]}
    assert not visitor.post("/api/check", {"system": "samba", "settings": mistake}, 200)["ok"]
    for settings in [*wrong, mistake]:
        assert (
            visitor.client.post(
                "/api/stages", json={"system": "samba", "settings": settings}
            ).status_code
            == 400
        ), settings
        job = {"kind": "run", "system": "samba", "settings": settings}
        assert visitor.client.post("/api/jobs", json=job).status_code == 400, settings
    for over in (
        {"policy": ["os:system"]},
        {"data": [str(secret)]},
        {"policy": "ucb"},
        {"horizon": [10**12]},
    ):
        job = {
            "kind": "sweep",
            "system": "samba",
            "settings": {"owners": 3, "horizon": 20},
            "over": over,
        }
        assert visitor.client.post("/api/jobs", json=job).status_code == 400, over
    assert visitor.get("/api/stages") == []
    assert visitor.get("/api/jobs") == []


def test_a_policy_of_ones_own_is_one_named_at_the_start(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    file, named = tmp_path / "mine.py", "tests.kit.policies:Tuned"
    file.write_text("raise SystemExit")
    visitor = start(allowed=(named,)).visitor()
    systems = {one["name"]: one for one in visitor.get("/api/systems")}
    mine = next(policy for policy in systems["samba"]["policies"] if policy["name"] == named)
    assert mine["parameters"] == {"width": 0.5}
    assert named not in [policy["name"] for policy in systems["fed-contextual"]["policies"]]
    said = visitor.post(
        "/api/check",
        {"system": "samba", "settings": {"policy": named, "owners": 3, "horizon": 20}},
        200,
    )
    assert said["ok"], said
    other = {"system": "samba", "settings": {"policy": f"{file}:Other"}}
    assert visitor.post("/api/check", other, 400)["field"] == "policy"


def test_uploads_are_tables_by_digest(visitor: Visitor) -> None:
    headers = {"content-type": "application/octet-stream"}
    table = b"item,rating\n" + b"".join(
        b"%c,%d\n" % (name, stars) for name in b"abc" for stars in (1, 3, 4, 5)
    )
    kept = visitor.client.post(
        "/api/files", params={"name": "../../stars.csv"}, content=table, headers=headers
    ).json()
    assert kept["name"] == "stars.csv"
    settings = {"data": f"file:{kept['id']}", "threshold": 3.5, "horizon": 20}
    said = visitor.post("/api/check", {"system": "samba", "settings": settings}, 200)
    assert said["ok"], said
    assert said["settings"]["data"] == f"file:{kept['id']}"
    assert len(said["preview"]["arms"]) == 3
    id = visitor.stage("samba", **settings)
    state = visitor.get(f"/api/stages/{id}")
    assert state["settings"]["data"] == f"file:{kept['id']}"
    assert str(visitor.server.folder) not in json.dumps(state)
    for bad in (b"", b"\x00\x01\x02", b"\xff\xfe", os.urandom(100)):
        assert visitor.client.post("/api/files", content=bad, headers=headers).status_code == 400
    assert [one["id"] for one in visitor.get("/api/files")] == [kept["id"]]


def test_elsewhere_needs_a_password_and_tls(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.4", "studio.example.org"):
        for password, certificate in ((None, False), ("p" * 20, False), (None, True)):
            with pytest.raises(ConfigError, match="--password-file"):
                serve.place_of(host, 8750, password, certificate, None)
        assert serve.place_of(host, 8750, "p" * 20, True, None).secure
    with pytest.raises(ConfigError, match="password"):
        serve.place_of("127.0.0.1", 8750, None, False, "https://studio.example.org")
    for proxy in (
        "http://studio.example.org",
        "studio.example.org",
        "https://a.example/b",
        "https://x@a.example",
    ):
        with pytest.raises(ConfigError, match="--behind-proxy"):
            serve.place_of("127.0.0.1", 8750, "p" * 20, False, proxy)
    place = serve.place_of("127.0.0.1", 8750, "p" * 20, False, "https://studio.example.org")
    assert (place.hosts, place.origins) == (
        ("studio.example.org",),
        ("https://studio.example.org",),
    )
    file = tmp_path / "password"
    file.write_text("short")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="at least"):
        serve.read_password(file)
    file.write_text("a long enough password")
    assert serve.read_password(file) == "a long enough password"
    file.chmod(0o644)
    with pytest.raises(CertificateError, match="chmod"):
        serve.read_password(file)


def test_a_password_is_not_guessed(tmp_path: Path) -> None:
    from posse.studio.guard import TRIES, Door, Refused

    place = Place(("a:1",), ("https://a:1",), 1, True, "correct horse battery")
    door = Door(place, Keys(tmp_path / "studio"))
    assert "Secure" in door.enter("", "correct horse battery")
    statuses = []
    for _ in range(TRIES + 1):
        with pytest.raises(Refused) as refused:
            door.enter("", "wrong")
        statuses.append(refused.value.status)
    assert statuses == [403] * TRIES + [429]
    with pytest.raises(Refused):
        door.enter("", "correct horse battery")


# Malformed requests -------------------------------------------------------------------------------

WORDS = (
    "",
    "x",
    "../../etc/passwd",
    "%00",
    "é" * 50,
    "'; DROP TABLE runs; --",
    "<script>",
    "file:..",
    "NaN",
    "-1",
    "1e999",
)
PATHS = (
    "/api/check",
    "/api/stages",
    "/api/jobs",
    "/api/runs/compare",
    "/api/budgets/arms",
    "/api/budgets/none",
    "/api/stages/none/do",
    "/api/stages/{id}/do",
    "/api/stages/{id}/audit",
    "/api/enter",
    "/api/runs/none/undelete",
)


def values(draw: random.Random, depth: int = 0) -> Any:
    """Anything that JSON has."""
    plain = [None, True, -1, 0, 2**70, -(2**63), 1.5, 1e300, *WORDS]
    kind = draw.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return draw.choice(plain)
    if kind < 7:
        names = [
            "system",
            "settings",
            "action",
            "n",
            "time",
            "speed",
            "ids",
            "kind",
            "over",
            "at",
            "observer",
            *WORDS,
        ]
        return {draw.choice(names): values(draw, depth + 1) for _ in range(draw.randrange(6))}
    return [values(draw, depth + 1) for _ in range(draw.randrange(5))]


def malformed(draw: random.Random, server: Server, id: str, cookie: str) -> bytes:
    """One request that nobody should answer."""
    good = {
        "host": f"127.0.0.1:{server.port}",
        "origin": server.origin,
        "cookie": cookie,
        "content-type": "application/json",
    }
    method, path = "POST", draw.choice(PATHS).replace("{id}", id)
    body = b"{}"
    match draw.randrange(9):
        case 0:
            body = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 200)))
        case 1:
            body = b"[" * draw.randrange(2, 100_000)
        case 2:
            good["host"] = draw.choice(
                ("evil.example", "", "127.0.0.1", f"127.0.0.1:{server.port}@evil")
            )
        case 3:
            good["origin"] = draw.choice(("http://evil.example", "null", "", "file://"))
        case 4:
            good["cookie"] = draw.choice(
                ("", "posse=1", f"posse-{server.port}=a.b.c", cookie[:-2] + "zz", "=;;;" * 50)
            )
            path = path if path != "/api/enter" else "/api/check"
        case 5:
            method = draw.choice(("PUT", "PATCH", "TRACE", "OPTIONS", "FOO", "GET"))
            path = draw.choice(
                (
                    "/api/enter",
                    "/api/none",
                    f"/api/stages/{id}/do",
                    f"/api/%2e%2e/{draw.choice(WORDS[:3])}",
                    "/x" * 500,
                )
            )
        case 6:
            path, body = "/api/files", b"\x00" + bytes(draw.randrange(256) for _ in range(20))
        case 7:
            good["content-length"] = str(draw.choice((BODY + 1, 1 << 40, 10**30)))
        case _:
            body = json.dumps(wrong(draw, path)).encode()
    good.setdefault("content-length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in good.items())
    return (
        f"{method} {path} HTTP/1.1\r\n{head}connection: close\r\n\r\n".encode("utf-8", "replace")
        + body
    )


def wrong(draw: random.Random, path: str) -> Any:
    """JSON that no call takes; a check answers what is wrong with settings, so it gets no
    system.
    """
    made = values(draw)
    if path == "/api/check" and isinstance(made, dict):
        made["system"] = draw.choice((1, None, "none", []))
    if path.endswith("/do") and isinstance(made, dict):
        made["action"] = draw.choice((1, None, "explode", {}))
    if path.startswith("/api/budgets/arms") and isinstance(made, dict):
        made["nonsense"] = 1
    return made if made != {} else []


def status_of(server: Server, request: bytes) -> int:
    """Send bytes and read the status of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
            line.sendall(request)
        answer = b""
        with suppress(ConnectionResetError):
            while b"\r\n" not in answer and (part := line.recv(4096)):
                answer += part
    return int(answer.split()[1]) if answer else 0


def torment(server: Server, visitor: Visitor, count: int, home: Path) -> None:
    """Send malformed requests: each gets 4xx, and nothing has changed."""
    id = visitor.stage("toy", horizon=50)
    visitor.do(id, "jump", time=20)
    cookie = f"posse-{server.port}={visitor.client.cookies[f'posse-{server.port}']}"

    def standing() -> Any:
        files = sorted(
            str(path) for path in home.rglob("*") if path.is_file() and "sqlite" not in path.name
        )
        return (
            visitor.get(f"/api/stages/{id}"),
            visitor.get("/api/stages")[0]["time"],
            visitor.get("/api/jobs"),
            visitor.get("/api/runs"),
            visitor.get("/api/files"),
            files,
        )

    before, draw = standing(), random.Random(20)
    for number in range(count):
        request = malformed(draw, server, id, cookie)
        status = status_of(server, request)
        assert 400 <= status < 500, (number, status, request[:300])
    assert standing() == before


def test_malformed_requests_change_nothing(server: Server, visitor: Visitor, home: Path) -> None:
    torment(server, visitor, 300, home)


@pytest.mark.long
def test_ten_thousand_malformed_requests_change_nothing(
    server: Server, visitor: Visitor, home: Path
) -> None:
    torment(server, visitor, 10_000, home)


def test_giant_bodies_are_cut_off(server: Server, visitor: Visitor) -> None:
    """A body that says nothing of its size is cut off where the limit is."""

    def endless() -> Any:
        for _ in range(80):
            yield b"a" * (1 << 20)

    for path in ("/api/check", "/api/files"):
        with suppress(
            httpx.NetworkError, httpx.ProtocolError
        ):  # the connection was closed while it was sending
            answer = visitor.client.post(
                path, content=endless(), headers={"content-type": "application/json"}
            )
            assert answer.status_code == 413, path
    assert visitor.get("/api/files") == []
