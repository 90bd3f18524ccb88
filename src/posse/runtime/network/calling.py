"""How a party calls a peer: straight, or through the proxy of its organisation, where it may only
dial out so.

A proxy moves bytes and no more: TLS begins behind it, between the two parties. `proxy` in a party's
file is `http://host:port` (the CONNECT method) or `socks5://host:port` (RFC 1928), with
`user:password@` where it asks for them (RFC 1929, or basic authentication). The peer's name is
resolved by the proxy.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import random
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from posse.core.errors import ConfigError
from posse.runtime.network import tls
from posse.runtime.network.connection import SHUTTING, Connection, Timing

UNREACHABLE = "cannot reach "
"""Begins why a peer could not be called; an address follows."""
LONGEST_ANSWER = 8 << 10
"""Bytes of a proxy's answer."""
EYEBALLS = 0.25
"""Seconds after which the other address family of a name is tried too."""
_SOCKS = {
    1: "it failed",
    2: "its rules forbid it",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "the peer refused the connection",
    6: "the time to live expired",
    7: "it does not know the command",
    8: "it does not know that kind of address",
}


class ProxyError(OSError):
    """A proxy does not let this party through; the party tries again, as with any peer that cannot
    be reached.
    """


@dataclass(frozen=True)
class Proxy:
    """A proxy through which peers are called."""

    kind: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Read a proxy's address.

        >>> Proxy.parse("socks5://10.0.0.1:1080")
        Proxy(kind='socks5', host='10.0.0.1', port=1080, user='', password='')
        """
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if (
            host is None
            or port is None
            or parts.scheme not in ("http", "socks5")
            or parts.path not in ("", "/")
        ):
            raise ConfigError(
                "proxy must be http://host:port or socks5://host:port, with user:password@ if it "
                "asks."
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if len(user.encode()) > 255 or len(password.encode()) > 255:
            raise ConfigError("user and password of a proxy may have 255 bytes each.")
        return cls(parts.scheme, host, port, user, password)

    def __repr__(self) -> str:
        hidden = ", user='...'" if self.user else ", user='', password=''"
        return f"Proxy(kind={self.kind!r}, host={self.host!r}, port={self.port}{hidden})"


async def opened(host: str, port: int, proxy: Proxy) -> socket.socket:
    """Return a socket that a proxy has connected to a peer."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    family, kind, number, _, where = found[0]
    tunnel = socket.socket(family, kind, number)
    try:
        tunnel.setblocking(False)
        await loop.sock_connect(tunnel, where)
        await (_connect if proxy.kind == "http" else _socks)(tunnel, host, port, proxy)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def keep_connected(
    make: Callable[[], Connection],
    host: str,
    port: int,
    context: ssl.SSLContext,
    proxy: Proxy | None,
    timing: Timing,
    failed: Callable[[str], None],
) -> None:
    """Call a peer, and again when the connection is lost; calls `failed` with the reason of each
    failed attempt.
    """
    loop = asyncio.get_running_loop()
    wait = timing.first_wait
    while True:
        began = loop.time()
        try:
            async with asyncio.timeout(timing.patience):
                connection = await call(make, host, port, context, proxy)
            await connection.closed
            if connection.ready and loop.time() - began > timing.longest_wait:
                wait = timing.first_wait
        except OSError as error:  # a TimeoutError is one
            failed(f"{UNREACHABLE}{host}:{port}: {error or 'no answer'}")
        await asyncio.sleep(wait * random.uniform(0.5, 1.5))
        wait = min(2 * wait, timing.longest_wait)


async def call(
    make: Callable[[], Connection],
    host: str,
    port: int,
    context: ssl.SSLContext,
    proxy: Proxy | None = None,
) -> Connection:
    """Open a connection to a peer, through a proxy if there is one; TLS is with the peer."""
    if proxy is None:
        # An address is one way only: asyncio loses the socket of a call by several ways that is
        # given up as it succeeds
        delay = EYEBALLS if _address(host) is None else None
        return await tls.call(
            make, context, shutting=SHUTTING, host=host, port=port, happy_eyeballs_delay=delay
        )
    tunnel = await opened(host, port, proxy)
    try:
        return await tls.call(make, context, shutting=SHUTTING, sock=tunnel)
    except BaseException:
        tunnel.close()
        raise


async def _connect(tunnel: socket.socket, host: str, port: int, proxy: Proxy) -> None:
    """Ask an HTTP proxy for a tunnel."""
    loop = asyncio.get_running_loop()
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if proxy.user:
        secret = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    await loop.sock_sendall(tunnel, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):  # one byte at a time: what is behind it belongs to TLS
        byte = await loop.sock_recv(tunnel, 1)
        if not byte or len(head) > LONGEST_ANSWER:
            raise ProxyError(f"the proxy {proxy.host}:{proxy.port} gave no answer to CONNECT")
        head += byte
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or words[1] != "200":
        said = "".join(letter for letter in " ".join(words[1:])[:100] if letter.isprintable())
        raise ProxyError(
            f"the proxy {proxy.host}:{proxy.port} does not let it through: {said or 'no HTTP'}"
        )


async def _socks(tunnel: socket.socket, host: str, port: int, proxy: Proxy) -> None:
    """Ask a SOCKS proxy of version 5 for a connection."""
    loop = asyncio.get_running_loop()

    async def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await loop.sock_recv(tunnel, count - len(data))
            if not more:
                raise ProxyError(f"the proxy {proxy.host}:{proxy.port} hung up")
            data += more
        return data

    await loop.sock_sendall(tunnel, b"\x05\x02\x00\x02" if proxy.user else b"\x05\x01\x00")
    version, method = await exactly(2)
    if version != 5 or method not in ((0, 2) if proxy.user else (0,)):
        asks = (
            "asks for a user and a password that it was not given"
            if method in (2, 255)
            else "is no SOCKS 5 proxy"
        )
        raise ProxyError(f"the proxy {proxy.host}:{proxy.port} {asks}")
    if method == 2:
        parts = (proxy.user.encode(), proxy.password.encode())
        await loop.sock_sendall(
            tunnel, b"\x01" + b"".join(bytes([len(part)]) + part for part in parts)
        )
        if (await exactly(2))[1] != 0:
            raise ProxyError(f"the proxy {proxy.host}:{proxy.port} refuses this user and password")
    await loop.sock_sendall(tunnel, b"\x05\x01\x00" + _where(host) + port.to_bytes(2, "big"))
    _, reply, _, kind = await exactly(4)
    if reply != 0:
        why = _SOCKS.get(reply, f"reason {reply}")
        raise ProxyError(f"the proxy {proxy.host}:{proxy.port} does not let it through: {why}")
    size = {1: 4, 4: 16}.get(kind)
    await exactly(((await exactly(1))[0] if size is None else size) + 2)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address; None where the host has a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _where(host: str) -> bytes:
    ip = _address(host)
    if ip is None:
        name = host.encode("idna")
        return b"\x03" + bytes([len(name)]) + name
    return (b"\x01" if ip.version == 4 else b"\x04") + ip.packed
