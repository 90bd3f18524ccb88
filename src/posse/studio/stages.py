"""The live runs of a studio: how many there may be, what moves them, and the stream that shows
them.

Runs are moved by worker threads, a short while at a time, so that the event loop stays free and a
press of pause is answered at once. Whatever changed is put together into at most `FRAMES` frames a
second.
"""

from __future__ import annotations

import asyncio
import secrets
import time as clock
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from posse.core.errors import ConfigError, PosseError
from posse.studio.guard import Refused
from posse.studio.stage import Stage, Unit
from posse.systems.modules import scene_of

if TYPE_CHECKING:
    from posse.systems.base import AnySystem, RunSettings

T = TypeVar("T")
LIVE = 16
"""Runs that may be live at once."""
MEMORY = 4 << 30
"""Bytes of memory of the whole studio from which on no run is begun."""
FRAMES = 22
"""Frames a second, at most."""
CHUNK = 0.04
"""Seconds that a run is moved before its stage is drawn."""
BEHIND = 0.3
"""Seconds of playing that are made up for, where a machine was too busy."""
PATIENCE = 1.0
"""Seconds that a request waits for a move to end."""
UNSEEN = 10.0
"""Seconds without a reader after which a run that plays is paused."""
FORGOTTEN = 900.0
"""Seconds without a reader after which a run is closed; its address takes it up again."""
SPARE = 60.0
"""The same where there are too many."""


class Hub:
    """Counts changes, and wakes up whoever waits for one."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(4)
        """Names this life of the server: numbers of another one mean nothing."""
        self.count = 0
        self._changed = asyncio.Event()

    def touch(self) -> int:
        """Number a change."""
        self.count += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return self.count

    async def wait(self, after: int, seconds: float) -> bool:
        """Wait for a change after the one of this number; whether there was one in time."""
        if self.count > after:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(
                seconds
            ):  # wait_for loses a cancellation that comes with a change
                await self._changed.wait()
        return self.count > after


class Live:
    """A stage with who looks at it and what moves it."""

    def __init__(self, stage: Stage, at: int, settings: Mapping[str, Any]) -> None:
        self.stage, self.settings = stage, settings
        self.phase = "starting"
        self.refused: str | None = None
        self.doing = ""
        """What is being set up, while it starts."""
        self.speed, self.unit = 0.0, "time"
        self.shown: dict[str, Any] = {"time": 0, "done": False}
        self.changed = at
        """Number of the last change (`Hub`)."""
        self.readers = 0
        self.seen = clock.monotonic()
        """When it was last looked at."""
        self.motion: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Held while the run itself is used."""
        self.turn = asyncio.Lock()
        """Held while a press is carried out: the last one decides."""

    @property
    def idle(self) -> float:
        """Seconds since somebody looked at it; none while somebody does."""
        return 0.0 if self.readers else clock.monotonic() - self.seen

    def state(self, *, curves: bool = True) -> dict[str, Any]:
        """Return the state as it was last drawn, with the curves where they are wanted."""
        stage = self.stage
        lines = {name: list(line) for name, line in stage.curves.items()}
        said = {} if self.refused is None else {"refused": self.refused}
        if self.phase == "starting":
            said["doing"] = self.doing
        return {
            "id": stage.id,
            "system": stage.system.name,
            "settings": self.settings,
            "level": stage.system.level_of(stage.settings),
            "phase": self.phase,
            "playing": self.phase == "playing",
            "speed": self.speed,
            "play_unit": self.unit,
            "change": self.changed,
            **said,
            **self.shown,
            **({"curves": {"from": dict.fromkeys(lines, 0), "lines": lines}} if curves else {}),
        }


class Stages:
    """All live runs."""

    def __init__(
        self, hub: Hub, *, limit: int = LIVE, memory: int = MEMORY, say: Callable[[str], str] = str
    ) -> None:
        """`say` writes what went wrong for a page."""
        self.hub, self.limit, self.memory, self._words = hub, limit, memory, say
        self.live: dict[str, Live] = {}
        self._threads = ThreadPoolExecutor(max_workers=limit + 2, thread_name_prefix="stage")

    async def off(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do work in a thread, away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def get(self, id: str) -> Live:
        """Return a live run."""
        found = self.live.get(id)
        if found is None:
            raise Refused(404, "this run is no longer live. Open it again from its address.")
        found.seen = clock.monotonic()
        return found

    def begin(
        self,
        system: AnySystem,
        settings: RunSettings,
        at: tuple[int, int | None] | None,
        shown: Mapping[str, Any],
        scenario: str = "",
    ) -> Live:
        """Put a run on a stage and set it up in the background; at a moment of it, where one is
        given.

        `shown` are its settings as a page has them. A scenario of this name adds its options.
        """
        self._make_room()
        options = {one.name: one.options for one in scene_of(system).scenarios}.get(scenario, {})
        stage = Stage(secrets.token_hex(6), system, settings, **options)
        live = self.live[stage.id] = Live(stage, self.hub.touch(), shown)
        self._move(live, "starting", partial(self._set_up, live, at))
        return live

    def _make_room(self) -> None:
        self.close(
            [one for one in self.live.values() if one.idle > FORGOTTEN and one.phase != "starting"]
        )
        if len(self.live) >= self.limit:
            spare = [
                one for one in self.live.values() if one.idle > SPARE and one.phase != "starting"
            ]
            self.close(sorted(spare, key=lambda one: -one.idle)[:1])
        if len(self.live) >= self.limit:
            said = f"{self.limit} runs are live, and there may be no more. Stop one of them."
            raise Refused(409, said, live=self.listed())
        if self.live and resident() > self.memory:
            used = f"{resident() >> 20:,} MB are used"
            said = f"{used}, and no run is begun above {self.memory >> 20:,}. Stop one."
            raise Refused(409, said, live=self.listed())

    def listed(self) -> list[dict[str, Any]]:
        """Say in a line each which runs are live."""
        return [
            {
                "id": id,
                "system": one.stage.system.name,
                "level": one.stage.system.level_of(one.stage.settings),
                "phase": one.phase,
                "time": one.shown["time"],
                "horizon": one.shown.get("horizon"),
                "idle": one.idle,
                "readers": one.readers,
            }
            for id, one in self.live.items()
        ]

    def close(self, which: Iterable[Live]) -> None:
        """Stop runs and forget them."""
        for live in list(which):
            self.live.pop(live.stage.id, None)
            if live.motion is not None:
                live.motion.cancel()
            self.hub.touch()

    # Moving ---------------------------------------------------------------------------------------

    async def do(
        self, id: str, action: str, unit: Unit, n: int, speed: float, to: tuple[int, int | None]
    ) -> Live:
        """Carry out what was pressed; wait for it to end, but not for long."""
        live = self.get(id)
        async with live.turn:
            await self._halt(live)
            if live.phase == "starting":
                raise ConfigError("this run is still being set up. Try again in a moment.")
            if action == "pause":
                await self._draw(live, "paused")
                return live
            if action == "play":
                live.speed, live.unit = speed, unit
                self._move(live, "playing", partial(self._play, live, unit, speed))
                return live
            if action == "forward":
                work = partial(self._forward, live, unit, n)
            elif action == "back":
                work = partial(self._back, live, unit, n)
            else:
                work = (
                    partial(self._finish, live) if action == "end" else partial(self._go, live, *to)
                )
            self._move(live, "moving", work)
        if live.motion is not None:
            await asyncio.wait([live.motion], timeout=PATIENCE)
        return live

    async def _inside(self, live: Live, work: Callable[..., T], *arguments: Any) -> T:
        """Use a stage in a thread; one use at a time, also where the one before was given up while
        it went on.
        """

        async def use() -> T:
            async with live.lock:
                return await self.off(work, *arguments)

        using = asyncio.ensure_future(use())
        using.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(using)

    async def look(self, id: str, work: Callable[..., T], *arguments: Any) -> T:
        """Read something of a stage between two moves; `work` takes the stage first."""
        live = self.get(id)
        return await self._inside(live, work, live.stage, *arguments)

    def shut(self) -> None:
        """Stop everything."""
        self.close(self.live.values())
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _halt(self, live: Live) -> None:
        if live.motion is not None and live.phase != "starting":
            live.motion.cancel()
            with suppress(asyncio.CancelledError):
                await live.motion
            live.motion = None

    def _move(self, live: Live, phase: str, work: Callable[[], Awaitable[None]]) -> None:
        live.phase = phase
        live.changed = self.hub.touch()
        live.motion = asyncio.ensure_future(self._guarded(live, work))

    async def _guarded(self, live: Live, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            if live.phase != "failed":
                await self._draw(live, "done" if live.stage.run.done else "paused")
        except PosseError as error:
            live.phase, live.refused = "failed", self._words(error.text)
            live.changed = self.hub.touch()
        except Exception as error:
            live.phase, live.refused = (
                "failed",
                f"the run failed: {type(error).__name__}. The server's screen says more.",
            )
            live.changed = self.hub.touch()
            raise

    async def _draw(self, live: Live, phase: str | None = None) -> None:
        live.shown = await self._inside(live, live.stage.state)
        if phase is not None:
            live.phase = "done" if live.shown["done"] else phase
        live.changed = self.hub.touch()

    async def _set_up(self, live: Live, at: tuple[int, int | None] | None) -> None:
        self._say(live, "Reading the data; what runs for the first time is compiled")
        await self._inside(live, live.stage.settings.load)
        self._say(
            live,
            "Starting the parties and making their keys; what runs for the first time is compiled",
        )
        await self._inside(live, live.stage.open)
        if at is not None:
            self._say(live, f"Playing as far as t = {at[0]:,}")
            await self._draw(live)
            await self._go(live, *at)

    def _say(self, live: Live, doing: str) -> None:
        live.doing = doing
        live.changed = self.hub.touch()

    async def _forward(self, live: Live, unit: Unit, n: int) -> None:
        while n > 0 and not live.stage.run.done:
            n -= await self._inside(live, live.stage.forward, unit, n, CHUNK)
            await self._draw(live)

    async def _go(self, live: Live, time: int, message: int | None) -> None:
        """Go to a moment; the last time, without a message, is the end."""
        if time >= live.stage.run.horizon and message is None:
            await self._finish(live)
        else:
            await self._seek(live, time, message)

    async def _seek(self, live: Live, time: int, message: int | None) -> None:
        await self._inside(live, live.stage.aim, time, message)
        await self._approach(live, time, message)
        if (behind := await self._inside(live, live.stage.unexplained)) is not None:
            await self._inside(live, live.stage.aim, behind, None)
            await self._approach(live, behind + 1, None)
            await self._approach(live, time, message)

    async def _approach(self, live: Live, time: int, message: int | None) -> None:
        while not await self._inside(live, live.stage.approach, time, message, CHUNK):
            await self._draw(live)

    async def _back(self, live: Live, unit: Unit, n: int) -> None:
        time = live.stage.run.time
        await self._seek(live, *await self._inside(live, live.stage.before, unit, n))
        if live.stage.run.time >= time > 0 and unit == "time":  # several decisions are one moment
            await self._seek(live, *await self._inside(live, live.stage.before, "message", 1))

    async def _finish(self, live: Live) -> None:
        while not live.stage.run.done:
            await self._inside(
                live, live.stage.forward, "time", max(1, live.stage.run.horizon), CHUNK
            )
            await self._draw(live)

    async def _play(self, live: Live, unit: Unit, speed: float) -> None:
        """Go forward at a speed, in units a second; at 0 as fast as it goes."""
        due, last = 1.0, clock.monotonic()
        while not live.stage.run.done and live.idle < UNSEEN:
            now = clock.monotonic()
            due, last = due + (now - last) * speed, now
            n = int(due) if speed else live.stage.run.horizon
            if n:
                made = await self._inside(live, live.stage.forward, unit, n, CHUNK)
                due = min(due - made, max(1.0, speed * BEHIND))
                await self._draw(live)
            await asyncio.sleep(max(1 / FRAMES, (1 - due) / speed if speed else 0.0))


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    with (
        suppress(OSError, ValueError, IndexError),
        open("/proc/self/statm", encoding="ascii") as file,
    ):
        return int(file.read().split()[1]) * 4096
    return 0
