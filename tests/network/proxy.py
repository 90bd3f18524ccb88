"""A TCP proxy that delays, cuts and blocks connections."""

from __future__ import annotations

import asyncio
import contextlib
import random


class Proxy:
    """Carries one party's connections; each chunk waits a while, and all of them can be cut or
    blocked.
    """

    def __init__(self, port: int, rng: random.Random, power: int) -> None:
        """Chunks wait 0 to 200 ms; a higher power makes long waits rarer."""
        self._target, self._rng, self._power = port, rng, power
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self.port = self.chunks = self.connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def partition(self, seconds: float, *, cut: bool) -> None:
        """Let nothing through for a while; what was on the way arrives then, or is lost with its
        connection.
        """
        self._open.clear()
        await asyncio.sleep(seconds)
        if cut:
            self.cut()
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        other = None
        with contextlib.suppress(OSError):
            there, other = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(other)
            await asyncio.gather(self._pump(reader, other), self._pump(there, writer))
        for one in (writer, other):
            if one is not None:
                self._writers.discard(one)
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read at once and write after a while: nothing that a side sent before it hung up is lost
        with its reset.
        """
        chunks: asyncio.Queue[bytes] = asyncio.Queue()

        async def read() -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 14):
                    chunks.put_nowait(data)
            chunks.put_nowait(b"")

        async def write() -> None:
            while data := await chunks.get():
                self.chunks += 1
                await asyncio.sleep(0.2 * self._rng.random() ** self._power)
                await self._open.wait()
                writer.write(data)
            with contextlib.suppress(OSError):
                writer.write_eof()

        await asyncio.gather(read(), write())
