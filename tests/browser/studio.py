"""A studio in this process that tests can stop and start again, and a browser in which nothing may
go wrong.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from posse.studio.app import make_app
from posse.studio.guard import Keys, Place
from posse.studio.serve import bind
from posse.studio.stages import LIVE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=InitialWebUI,WebUIReloadButton,WebUIToolbar,WebUIOmniboxPopup,TabSearchPreload,WebUITabStrip,"
    "PreloadTopChromeWebUI,OptimizationGuideOnDeviceModel,OnDeviceModelService,OptimizationGuideModelExecution,"
    "Translate,MediaRouter,PaintHolding,BackForwardCache",
)
"""The last ones are pages of the browser's own, which it would draw anew in every window, and
models of language.
"""
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
FOUR = "system=samba&policy=ucb&means=0.38,0.55,0.47,0.71&names=Mill,Harbour,Green,Station&seed=7"
"""Four shops, as an address has them."""


class Studio:
    """A server on a port that it keeps."""

    def __init__(self, folder: Path, *, live: int = LIVE) -> None:
        self.folder, self.live = folder, live
        self._socket = bind("127.0.0.1", None)
        self.port = int(self._socket.getsockname()[1])
        self.keys = Keys(folder)
        self.start()

    @property
    def origin(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, in a thread."""
        if self._socket.fileno() < 0:
            self._socket = bind("127.0.0.1", self.port)
        app = make_app(self.folder, Place.loopback(self.port), live=self.live)
        self.parts = app.studio
        self.parts.stages.memory = 1 << 40  # this process also holds what other tests have compiled
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            log_level="error",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        ready = threading.Event()
        begin = self._server.startup

        async def startup(sockets: Any = None) -> None:
            await begin(sockets)
            ready.set()

        self._server.startup = startup  # type: ignore[method-assign]
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )
        self._thread.start()
        assert ready.wait(30)

    def stop(self) -> None:
        """End it, as a machine that is switched off."""
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        assert not self._thread.is_alive()


class Visit:
    """A page of the studio with everything that went wrong on it."""

    def __init__(self, studio: Studio, context: Any, allowed: str) -> None:
        self.studio, self.context, self._allowed = (
            studio,
            context,
            re.compile(allowed) if allowed else None,
        )
        self.page = context.new_page()
        self.page.set_default_timeout(300_000)
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self._say(str(error)))
        self.page.on("request", self._ask)
        self.page.on("response", self._answer)

    def _say(self, text: str) -> None:
        if not self._allowed or not self._allowed.search(text):
            self.errors.append(text)

    def _note(self, said: Any) -> None:
        if said.type in ("error", "warning") and "responded with a status of" not in said.text:
            self._say(said.text)

    def _answer(self, response: Any) -> None:
        if response.status >= 400:
            self._say(f"{response.status} {response.request.method} {response.url}")

    def _ask(self, request: Any) -> None:
        if not request.url.startswith(
            (self.studio.origin + "/", "data:", "blob:" + self.studio.origin)
        ):
            self.outside.append(request.url)

    def enter(self, fragment: str = "") -> Any:
        """Come in, and go to an address; without one, as the address that the studio prints lets
        one in.
        """
        if not fragment:
            self.page.goto(f"{self.studio.origin}/#token={self.studio.keys.token()}")
            self.page.wait_for_function("() => !location.hash.includes('token')")
            return self.page
        answer = self.context.request.post(
            f"{self.studio.origin}/api/enter",
            data={"token": self.studio.keys.token()},
            headers={"Origin": self.studio.origin},
        )
        assert answer.status == 204
        self.page.goto(f"{self.studio.origin}/#{fragment}")
        return self.page


Visits = Callable[..., Visit]
