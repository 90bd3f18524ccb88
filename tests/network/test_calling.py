"""Owners that may only dial out through a proxy, and listeners of both address families."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import socket
import ssl
import warnings

import pytest

from posse.core.errors import CertificateError, ConfigError
from posse.core.settings import read_toml
from posse.runtime import local
from posse.runtime.door import Door
from posse.runtime.local import write_party
from posse.runtime.network.calling import Proxy, ProxyError, call, opened
from posse.runtime.network.doctor import examine
from posse.runtime.place import open_place
from posse.systems.parties import deploy_by_name
from tests.kit.federations import laid_out, run, run_all
from tests.kit.federations import opened as party_of
from tests.kit.parties import close

USER, PASSWORD = "ada", "p:ss wörd"


class SmallProxy:
    """A proxy of either kind, as little as its standard asks for; it remembers where it let whom
    go.
    """

    def __init__(self, kind, *, asks=False, refuses=False):
        self.kind, self.asks, self.refuses = kind, asks, refuses
        self.went, self.bytes, self.port = [], b"", 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error):
        self._server.close()

    def address(self, user="", password=""):
        from urllib.parse import quote

        who = f"{quote(user)}:{quote(password)}@" if user else ""
        return f"{self.kind}://{who}127.0.0.1:{self.port}"

    async def _serve(self, reader, writer):
        try:
            where = await (self._http if self.kind == "http" else self._socks)(reader, writer)
            if where is None:
                return
            self.went.append(where)
            there, back = await asyncio.open_connection(*where)
            await asyncio.gather(self._move(reader, back, True), self._move(there, writer, False))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _move(self, reader, writer, out):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.bytes += data if out and len(self.bytes) < 10_000 else b""
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _http(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, where, version = head.split("\r\n")[0].split(" ")
        assert (method, version) == ("CONNECT", "HTTP/1.1")
        secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.asks and f"Proxy-Authorization: Basic {secret}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return None
        if self.refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return None
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: small\r\n\r\n")
        host, _, port = where.rpartition(":")
        return host.strip("[]"), int(port)

    async def _socks(self, reader, writer):
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        assert version == 5
        wanted = 2 if self.asks else 0
        writer.write(bytes([5, wanted if wanted in methods else 255]))
        if wanted not in methods:
            return None
        if self.asks:
            assert await reader.readexactly(1) == b"\x01"
            user = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            fine = (user.decode(), password.decode()) == (USER, PASSWORD)
            writer.write(bytes([1, 0 if fine else 1]))
            if not fine:
                return None
        assert await reader.readexactly(3) == b"\x05\x01\x00"
        kind = (await reader.readexactly(1))[0]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(
            b"\x05" + bytes([2 if self.refuses else 0]) + b"\x00\x01\x00\x00\x00\x00\x00\x00"
        )
        return None if self.refuses else (host, port)


@pytest.mark.parametrize("kind", ["http", "socks5"])
@pytest.mark.parametrize("asks", [False, True])
def test_owners_behind_a_proxy_take_part_and_the_proxy_reads_nothing(tmp_path, kind, asks):
    expected = run(tmp_path / "straight", budget=20)
    paths = {path.stem: path for path in laid_out(tmp_path / "behind", budget=20)}
    listens = open_place(paths["controller"]).file.listen

    async def go():
        async with SmallProxy(kind, asks=asks) as proxy:
            for name in ("clinic-1", "clinic-3"):
                given = proxy.address(USER, PASSWORD) if asks else proxy.address()
                by_name = {"controller": f"localhost:{listens.rpartition(':')[2]}"}
                write_party(
                    paths[name], {**read_toml(paths[name]), "proxy": given, "connect": by_name}
                )
                paths[name].chmod(0o600)
            notes = []
            parties = [party_of(path, notes) for path in paths.values()]
            await run_all(parties)
            close(*parties)
            owners = [
                party.engine.role.state() for party in parties if party.engine.role.kind == "owner"
            ]
            (total,) = [note.value for note in notes if note.kind == "total"]
            return (total, [(state["pulls"], state["reward"]) for state in owners]), proxy

    result, proxy = asyncio.run(go())
    assert result == expected
    assert len(proxy.went) >= 2
    assert {host for host, _ in proxy.went} == {"localhost"}  # the proxy resolves the name
    assert b"clinic" not in proxy.bytes  # certificates and greetings are inside TLS


def test_a_call_that_is_given_up_as_it_succeeds_leaves_no_socket():
    async def go():
        held = []
        server = await asyncio.start_server(lambda *both: held.append(both), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for turn in range(240):
            task = asyncio.ensure_future(call(asyncio.Protocol, "127.0.0.1", port, context))
            for _ in range(turn % 12):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await asyncio.sleep(0.05)
        for _, writer in held:
            writer.close()
        server.close()
        return port

    context = ssl.create_default_context()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        port = asyncio.run(go())
        gc.collect()
    assert [
        str(one.message) for one in noted if f"raddr=('127.0.0.1', {port})" in str(one.message)
    ] == []


@pytest.mark.parametrize("kind", ["http", "socks5"])
def test_what_a_proxy_refuses_is_said(tmp_path, kind):
    async def go(user="", **how):
        async with SmallProxy(kind, **how) as proxy:
            given = Proxy.parse(proxy.address(user, "wrong") if user else proxy.address())
            await asyncio.wait_for(opened("127.0.0.1", 9, given), 120)

    with pytest.raises(ProxyError, match=r"407|user and a password"):
        asyncio.run(go(asks=True))
    with pytest.raises(ProxyError, match=r"407|refuses this user"):
        asyncio.run(go(USER, asks=True))
    with pytest.raises(ProxyError, match=r"403 Forbidden|its rules forbid it"):
        asyncio.run(go(refuses=True))


def test_something_else_that_answers_is_no_proxy():
    async def go(said, kind):
        async def serve(reader, writer):
            await reader.read(10)
            writer.write(said)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await asyncio.wait_for(
                opened("a.example", 7400, Proxy.parse(f"{kind}://127.0.0.1:{port}")), 120
            )
        finally:
            server.close()

    for said, kind in (
        (b"", "http"),
        (b"HTTP/1.1 200", "http"),
        (b"SSH-2.0-x\r\n\r\n", "http"),
        (b"x" * 20_000, "http"),
        (b"", "socks5"),
        (b"\x04\x00", "socks5"),
        (b"\x05\x00\x05\x01", "socks5"),
    ):
        with pytest.raises(OSError):
            asyncio.run(go(said, kind))


@pytest.mark.parametrize(
    "text", ["proxy:80", "ftp://a:1", "http://a", "http://:1", "socks5://a:x", "http://a:1/path"]
)
def test_addresses_of_proxies_are_checked(text):
    with pytest.raises(ConfigError, match=r"proxy must be http://host:port"):
        Proxy.parse(text)


def test_a_password_is_kept_from_others_and_from_logs(tmp_path):
    path = next(path for path in laid_out(tmp_path) if path.stem == "clinic-1")
    write_party(path, {**read_toml(path), "proxy": "http://ada:secret@10.0.0.1:3128"})
    path.chmod(0o644)
    with pytest.raises(CertificateError, match="can be used by others"):
        open_place(path)
    path.chmod(0o600)
    assert open_place(path).file.proxy is not None
    assert "secret" not in repr(Proxy.parse("http://ada:secret@10.0.0.1:3128"))


def test_doctor_and_a_process_go_through_the_proxy(tmp_path, monkeypatch):
    monkeypatch.setattr("posse.runtime.network.doctor.PATIENCE", 60.0)
    paths = {path.stem: path for path in laid_out(tmp_path, budget=2000)}
    path = paths["clinic-1"]

    async def go():
        async with SmallProxy("socks5") as proxy:
            write_party(path, {**read_toml(path), "proxy": proxy.address()})
            controller = party_of(paths["controller"])
            running = asyncio.create_task(controller.run())
            process = await asyncio.to_thread(local.start_one, path)
            try:
                async with asyncio.timeout(120):
                    while "clinic-1" not in controller.connections:
                        await asyncio.sleep(0.05)
                went = len(proxy.went)
                await asyncio.to_thread(local.stop, [process])
                said = await asyncio.to_thread(
                    examine, path, lambda name: deploy_by_name(name).build
                )
            finally:
                await asyncio.to_thread(local.stop, [process])
                controller.stop()
                await running
                close(controller)
            return went, len(proxy.went), {one.what: one for one in said}

    went, after, said = asyncio.run(go())
    assert went >= 1
    assert after > went
    assert said["way to controller"].fine, json.dumps(said["way to controller"].said)


@pytest.mark.parametrize("host", ["*", "::"])
def test_a_listener_for_all_addresses_is_reached_by_both_families(host):
    async def go():
        came = []

        async def serve(one, address):
            came.append(address)
            one.close()

        door = Door(serve, lambda address, why: None)
        _, port = await door.open(host, 0)
        for family, at in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            if family == socket.AF_INET6 and not has_six():
                continue
            with socket.socket(family) as caller:
                caller.setblocking(False)
                await asyncio.get_running_loop().sock_connect(caller, (at, port))
                await asyncio.get_running_loop().sock_sendall(caller, b"x")
                before = len(came)
                async with asyncio.timeout(120):
                    while len(came) == before:
                        await asyncio.sleep(0.01)
        await door.closed()
        return came

    came = asyncio.run(go())
    assert (
        came[0] == "127.0.0.1"
    )  # and no address of version 6 that stands for it: limits count by address
    assert came[1:] == (["::1"] if has_six() else [])


def test_a_listener_that_cannot_have_all_its_addresses_has_none(monkeypatch):
    """The second address of the name is no address of this machine (of the block for
    documentation).
    """

    async def go():
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, 0))
            for at in ("127.0.0.1", "192.0.2.1")
        ]

        async def resolved(*given, **named):
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved, raising=False)
        door, before = (
            Door(lambda one, address: None, lambda address, why: None),
            len(os.listdir("/proc/self/fd")),
        )
        with pytest.raises(OSError, match="assign"):
            await door.open("two.example.org", 0)
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(go())


def has_six():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
