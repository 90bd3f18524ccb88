"""TLS between a socket and a connection, with as little between them as there can be.

A party of a run does little more than to take short messages and to answer them. asyncio's own TLS
takes about as much time for each as the party does; it also keeps a quarter of a megabyte for every
connection. Here what has arrived is opened in one call, handed on, and what is written is sealed
and sent at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

Inner = TypeVar("Inner", bound=asyncio.Protocol)

_RECEIVED = 32 << 10
"""Bytes that are taken from the socket at once."""
_RECORD = 16 << 10
"""Bytes of the largest record."""
_WAITING = 512 << 10
"""Bytes that may wait for a slow peer before the connection is asked to pause."""


class Tls(asyncio.Transport, asyncio.BufferedProtocol, Generic[Inner]):
    """The protocol of a socket, and the transport of what speaks over TLS on it."""

    def __init__(
        self, make: Callable[[], Inner], context: ssl.SSLContext, *, server: bool, shutting: float
    ) -> None:
        """Make the inner protocol after the handshake; wait so many seconds for a peer that should
        hang up too.
        """
        super().__init__()
        self._make, self._shutting, self._loop = make, shutting, asyncio.get_running_loop()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)
        self._buffer = memoryview(bytearray(_RECEIVED))
        self._raw: asyncio.Transport | None = None
        self._inner: Inner | None = None
        self._closing = self._paused = False
        self._error: Exception | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.opened: asyncio.Future[Inner] = self._loop.create_future()
        """Done after the handshake, with the inner protocol or what went wrong."""

    # What the socket says -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        transport.set_write_buffer_limits(_WAITING)
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where bytes of the socket go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Open what has arrived, and hand it on."""
        self._in.write(self._buffer[:nbytes])
        if self._inner is None:
            self._shake()
        elif not self._paused:
            self._read()

    def eof_received(self) -> None:
        """The other end is gone, with or without a word: the socket closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits that this is over."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._closing, error = True, self._error or exc
        if self._inner is not None:
            self._inner.connection_lost(error)
        elif not self.opened.done():
            self.opened.set_exception(error or ConnectionResetError("it hung up in the handshake"))

    def pause_writing(self) -> None:
        """The peer is slow."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._inner is not None:
            self._inner.resume_writing()

    # What the connection asks ---------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the TLS object as `ssl_object`, and what the socket knows."""
        if name == "ssl_object":
            return self._tls
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Seal bytes and send them."""
        if self._closing:
            return
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def pause_reading(self) -> None:
        """Leave what arrives in the socket."""
        if not self._paused and self._raw is not None:
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what was left."""
        if self._paused and self._raw is not None:
            self._paused = False
            self._raw.resume_reading()
            self._loop.call_soon(self._read)

    def close(self) -> None:
        """Say goodbye, and wait a while for the other to say it too."""
        if self._closing or self._raw is None:
            return
        self._closing = True
        self._deadline = self._loop.call_later(self._shutting, self.abort)
        self.resume_reading()  # for its goodbye
        _, ended = self._opened_bytes()
        over = ended is not None
        try:
            self._tls.unwrap()
            over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            over = True
        self._flush()
        if over:
            self._raw.close()

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        if self._raw is not None:
            self._raw.abort()

    # TLS ------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()
        if self.opened.done():
            return
        self._inner = self._make()
        self._inner.connection_made(self)
        self.opened.set_result(self._inner)
        self._read()

    def _read(self) -> None:
        """Open every record that is here; hand their bytes on together."""
        data, ended = self._opened_bytes()
        if data and not self._closing and self._inner is not None:
            self._inner.data_received(data)
        if ended is not None:
            ended()
        if self._out.pending:
            self._flush()

    def _opened_bytes(self) -> tuple[bytes, Callable[[], None] | None]:
        """Return what has arrived, and what to do after it where it is the last."""
        tls, waiting = self._tls, self._in
        data, more = b"", True
        while more:
            try:
                part = tls.read(_RECORD)  # a whole record, so that nothing is left in OpenSSL
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                return data, partial(self._fail, error)
            if not part:
                return data, self._goodbye
            data = data + part if data else part
            more = waiting.pending > 0
        return data, None

    def _goodbye(self) -> None:
        """The other has said goodbye: say it too, and close the socket behind what was written."""
        self.close()
        if self._raw is not None:
            self._raw.close()

    def _flush(self) -> None:
        if self._raw is not None and self._out.pending:
            self._raw.write(self._out.read())

    def _fail(self, error: Exception) -> None:
        if not self._closing:
            self._error = error
        self._flush()  # OpenSSL's alert: it tells the other end which certificate was refused, and why
        self.abort()


async def accept(
    make: Callable[[], Inner],
    opened: socket.socket,
    context: ssl.SSLContext,
    *,
    within: float,
    shutting: float,
) -> Inner:
    """Do the handshake of a caller within so many seconds; return what has the connection then."""
    tls = Tls(make, context, server=True, shutting=shutting)
    return await _shaken(
        tls, asyncio.get_running_loop().connect_accepted_socket(lambda: tls, opened), within
    )


async def call(
    make: Callable[[], Inner], context: ssl.SSLContext, *, shutting: float, **where: Any
) -> Inner:
    """Call somebody (`where` is what `create_connection` takes) and do the handshake; return what
    has it then.
    """
    tls = Tls(make, context, server=False, shutting=shutting)
    return await _shaken(
        tls, asyncio.get_running_loop().create_connection(lambda: tls, **where), None
    )


async def _shaken(
    tls: Tls[Inner], connecting: Coroutine[Any, Any, object], within: float | None
) -> Inner:
    try:
        async with asyncio.timeout(within):
            await connecting
            return await tls.opened
    except BaseException:
        tls.abort()
        if not tls.opened.cancel() and not tls.opened.cancelled():
            tls.opened.exception()  # something else came first: nobody asks any more
        raise
