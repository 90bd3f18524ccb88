"""What the tests of the studio share: a real server on loopback in a thread of this process, and
browsers for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import uvicorn

from posse.studio.app import make_app
from posse.studio.guard import Keys, Place
from posse.studio.serve import bind

T = TypeVar("T")


def until(look: Callable[[], T], seconds: float = 300.0) -> T:
    """Look again and again until something is found, and return it; fail after so many seconds."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.02)
    return found


class Server:
    """A studio that runs in a thread."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, listening = folder, bind("127.0.0.1", 0)
        self.port: int = listening.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.app = make_app(folder, Place.loopback(self.port), **options)
        self.app.studio.stages.memory = (
            1 << 40
        )  # this process also holds what other tests have compiled
        config = uvicorn.Config(
            self.app,
            http="h11",
            loop="asyncio",
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._visitors: list[Visitor] = []
        self._listening = listening

        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[listening])

        self._thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
        self._thread.start()
        until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started

    def token(self) -> str:
        """A launch token."""
        return Keys(self.folder).token()

    def visitor(self, *, enter: bool = True) -> Visitor:
        """Another visitor, which has entered."""
        made = Visitor(self)
        self._visitors.append(made)
        if enter:
            assert made.client.post("/api/enter", json={"token": self.token()}).status_code == 204
        return made

    def tasks(self) -> int:
        """Tasks of its event loop."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(10)

    def stop(self) -> None:
        """End it, and close what was used with it."""
        for visitor in self._visitors:
            visitor.client.close()
        self._server.should_exit = True
        self._thread.join(20)
        self._listening.close()
        assert not self._thread.is_alive()


def resting(state: Any) -> Any:
    """The state of a run, unless it still moves."""
    return state if state["phase"] not in ("starting", "moving") else None


class Visitor:
    """A client that keeps its cookie and names its origin, as a page's requests do."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = httpx.Client(
            base_url=server.origin, headers={"origin": server.origin}, timeout=120
        )

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        """Get JSON."""
        answer = self.client.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int | None = None) -> Any:
        """Post JSON."""
        answer = self.client.post(path, json={} if body is None else body)
        assert answer.status_code == status if status is not None else answer.status_code < 300, (
            answer.text
        )
        return answer.json() if answer.content else None

    def stage(self, system: str, at: dict[str, int] | None = None, **settings: Any) -> str:
        """Put a run on a stage, and wait until it is set up."""
        asked = {"system": system, "settings": settings} | ({} if at is None else {"at": at})
        id = str(self.post("/api/stages", asked, 201)["id"])
        self.settled(id)
        return id

    def settled(self, id: str) -> Any:
        """Wait until nothing moves; the state."""
        state = until(lambda: resting(self.get(f"/api/stages/{id}")))
        assert state["phase"] != "failed", state
        return state

    def do(self, id: str, action: str, **more: Any) -> Any:
        """Press something, and wait until it is done; the state."""
        state = self.post(f"/api/stages/{id}/do", {"action": action, **more})["state"]
        return self.settled(id) if state["phase"] == "moving" else state


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in a fresh folder; the user's own is never touched."""
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POSSE_SYSTEMS", "tests.systems.toy.system")
    return tmp_path / "home"


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Server]]:
    """Start servers, which end with the test."""
    started: list[Server] = []

    def begin(folder: Path | None = None, **options: Any) -> Server:
        started.append(Server(folder or home / "studio", **options))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    """A studio."""
    return start()


@pytest.fixture
def visitor(server: Server) -> Visitor:
    """A visitor that has entered."""
    return server.visitor()
