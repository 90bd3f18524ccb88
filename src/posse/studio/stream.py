"""The stream of a tab: one connection with the states of its runs, jobs and the list of runs, as
server-sent events.

A frame has what changed since the frame before. Each event has a number; a tab that comes back with
the last one it got (`Last-Event-ID`) is sent nothing that it has. Frames are compressed where the
browser takes that: they are much alike.
"""

from __future__ import annotations

import asyncio
import time as clock
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from posse.studio.guard import Receive, Scope, Send
from posse.studio.stages import FRAMES, Hub, Live, Stages

BEAT = 10.0
"""Seconds after which an idle stream says that it is there, by an event: a page does not see
comments.
"""
RETRY = 1000
"""Milliseconds after which a browser tries again."""

encode = msgspec.json.Encoder(enc_hook=str).encode


class Stream:
    """An answer that does not end until its reader goes."""

    def __init__(
        self,
        hub: Hub,
        stages: Stages,
        ids: Sequence[str],
        last: str,
        zipped: bool,
        lists: Mapping[str, Callable[[], tuple[int, Callable[[], Any]]]],
    ) -> None:
        """`lists` gives, for each further event, the number of its last change and what reads
        it.
        """
        self._hub, self._stages, self._lists = hub, stages, lists
        self._open = dict.fromkeys(ids)
        boot, _, number = last.partition(".")
        known = boot == hub.boot and number.isascii() and number.isdigit()
        self._since = min(int(number[:18]), hub.count) if known else -1
        self._sent: dict[str, dict[str, bytes]] = {}
        self._points: dict[str, dict[str, list[tuple[int, float]]]] = {}
        self._zip = zlib.compressobj(6, zlib.DEFLATED, 31) if zipped else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader goes."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        if self._zip is not None:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(self._run(send))
        leaving = asyncio.ensure_future(self._left(receive))
        watched = [live for id in self._open if (live := self._stages.live.get(id)) is not None]
        for live in watched:
            live.readers += 1
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task
            for live in watched:
                live.readers -= 1
                live.seen = clock.monotonic()

    async def _left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _run(self, send: Send) -> None:
        await self._write(send, [f"retry: {RETRY}\n\n".encode()])
        seen = self._since
        while True:
            number = self._hub.count
            events = self._events(seen, number)
            if events:
                await self._write(send, events)
            seen = max(seen, number)
            await asyncio.sleep(1 / FRAMES)
            if not await self._hub.wait(seen, BEAT):
                await self._write(send, [b"event: beat\ndata: 0\n\n"])

    def _events(self, seen: int, number: int) -> list[bytes]:
        found: list[bytes] = []

        def event(name: str, data: bytes) -> None:
            found.append(
                b"event: %b\nid: %b.%d\ndata: %b\n\n"
                % (name.encode(), self._hub.boot.encode(), number, data)
            )

        for id in list(self._open):
            live = self._stages.live.get(id)
            if live is None:
                del self._open[id]
                event("gone", encode({"id": id}))
            elif live.changed > seen:
                event("state", self._frame(id, live))
        for name, read in self._lists.items():
            changed, shown = read()
            if changed > seen:
                event(name, encode(shown()))
        return found

    def _frame(self, id: str, live: Live) -> bytes:
        """Encode what changed since the last frame of this stage; of curves the points that
        came.
        """
        before = self._sent.setdefault(id, {})
        lines = {name: list(line) for name, line in live.stage.curves.items()}
        had = self._points.get(id, {})
        since = {name: _alike(had.get(name, []), line) for name, line in lines.items()}
        changed = {name: encode(value) for name, value in live.state(curves=False).items()}
        frame = {
            name: value
            for name, value in changed.items()
            if before.get(name) != value or name == "id"
        }
        if "refused" in before and "refused" not in changed:
            frame["refused"] = b"null"
        self._sent[id] = changed
        if had != lines or not before:
            cut = {name: line[since[name] :] for name, line in lines.items()}
            frame["curves"] = encode({"from": since, "lines": cut})
        self._points[id] = lines
        return b"{%b}" % b",".join(
            b'"%b":%b' % (name.encode(), value) for name, value in frame.items()
        )

    async def _write(self, send: Send, parts: Sequence[bytes]) -> None:
        body = b"".join(parts)
        if self._zip is not None:
            body = self._zip.compress(body) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _alike(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how many points two lines have in common from their beginning."""
    least = min(len(a), len(b))
    return least if a[:least] == b[:least] else next(i for i in range(least) if a[i] != b[i])
