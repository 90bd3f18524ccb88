"""The studio's application: what every address answers. All of it is JSON but for the page itself and exports."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from posse.core.errors import PosseError
from posse.studio import looking
from posse.studio.catalogue import Catalogue
from posse.studio.guard import App, Door, Guard, Keys, Place, Refused
from posse.studio.stages import Hub, Live, Stages
from posse.studio.stream import Stream, encode

STATIC = Path(__file__).parent / "static"
ACTIONS = ("play", "pause", "forward", "back", "jump", "end")
UNITS = ("message", "step", "time")
FASTEST = 10_000.0
MOST = 1 << 40

log = logging.getLogger("posse.studio")


def make_app(folder: Path, place: Place, policies: tuple[str, ...] = (), *, live: int | None = None) -> App:
    """Make the application of a studio whose key and files lie in a folder."""
    keys = Keys(folder)
    door, catalogue = Door(place, keys), Catalogue(folder / "files", policies)
    hub = Hub()
    stages = Stages(hub) if live is None else Stages(hub, limit=live)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        stages.shut()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.stages, app.state.hub = stages, hub

    # The page and who may use it ------------------------------------------------------------------------------------

    @app.get("/")
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    app.mount("/static", StaticFiles(directory=STATIC))

    @app.post("/api/enter")
    async def enter(request: Request) -> Response:
        given = await table(request)
        made = door.enter(word(given, "token", ""), word(given, "password", ""))
        return Response(status_code=204, headers={"set-cookie": made})

    # Setting up -----------------------------------------------------------------------------------------------------

    @app.get("/api/systems")
    async def systems() -> Response:
        return answer(await stages.off(catalogue.systems))

    @app.post("/api/check")
    async def check(request: Request) -> Response:
        given = await table(request)
        return answer(await stages.off(catalogue.check, given.get("system"), given.get("settings", {})))

    @app.get("/api/files")
    async def files() -> Response:
        return answer(await stages.off(catalogue.uploads.listed))

    @app.post("/api/files")
    async def upload(request: Request) -> Response:
        name, data = request.query_params.get("name", "data.csv"), await request.body()
        return answer(await stages.off(catalogue.uploads.put, name, data))

    @app.get("/api/budgets")
    async def budgets() -> Response:
        return answer(await stages.off(catalogue.budgets))

    @app.post("/api/budgets/{name}")
    async def budget(name: str, request: Request) -> Response:
        return answer(await stages.off(catalogue.budget, name, await table(request)))

    # Stages ---------------------------------------------------------------------------------------------------------

    @app.get("/api/stages")
    async def listed() -> Response:
        return answer(stages.listed())

    @app.post("/api/stages")
    async def begin(request: Request) -> Response:
        given = await table(request)
        system = await stages.off(catalogue.system, given.get("system"))
        settings = await stages.off(catalogue.settings, system, given.get("settings", {}))
        at = given.get("at")
        moment = None if at is None else (whole(at, "time"), whole(at, "message", None))
        live = stages.begin(system, settings, moment)
        return answer({"id": live.stage.id, "state": shown(live)}, 201)

    @app.get("/api/stages/{id}")
    async def stage(id: str) -> Response:
        return answer(shown(stages.get(id)))

    @app.delete("/api/stages/{id}")
    async def close(id: str) -> Response:
        stages.close([stages.get(id)])
        return Response(status_code=204)

    @app.post("/api/stages/{id}/do")
    async def do(id: str, request: Request) -> Response:
        given = await table(request)
        action, unit = one_of(given, "action", ACTIONS, None), one_of(given, "unit", UNITS, "time")
        speed = given.get("speed", 0)
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 <= speed <= FASTEST:
            raise Refused(400, f"speed must be from 0 to {FASTEST:,.0f} {unit}s a second.", field="speed")
        to = (whole(given, "time", 0), whole(given, "message", None)) if action == "jump" else (0, None)
        live = await stages.do(id, action, unit, max(1, whole(given, "n", 1)), float(speed), to)
        return answer({"state": shown(live)})

    def shown(live: Live) -> dict[str, Any]:
        state = live.state()
        return {**state, "settings": catalogue.shown(live.stage.settings)}

    # Looking closer -------------------------------------------------------------------------------------------------

    @app.get("/api/stages/{id}/messages")
    async def messages(id: str, request: Request) -> Response:
        asked = request.query_params
        before = number(asked.get("before"), "before", None)
        count = number(asked.get("count"), "count", 20)
        return answer(await stages.look(id, looking.messages, before, count, asked.get("observer")))

    @app.get("/api/stages/{id}/party/{name}")
    async def party(id: str, name: str) -> Response:
        return answer(await stages.look(id, looking.party, name))

    @app.get("/api/stages/{id}/code")
    async def code(id: str) -> Response:
        return answer(await stages.look(id, looking.code))

    @app.get("/api/stages/{id}/source")
    async def source(id: str, request: Request) -> Response:
        return answer(await stages.look(id, looking.source, request.query_params.get("kind", "")))

    @app.post("/api/stages/{id}/audit")
    async def audit(id: str, request: Request) -> Response:
        given = await table(request)
        return answer(await stages.look(id, looking.audit, word(given, "observer", "")))

    @app.post("/api/stages/{id}/keep")
    async def keep(id: str) -> Response:
        return answer(await stages.look(id, looking.keep), 201)

    @app.get("/api/stream")
    async def stream(request: Request) -> Response:
        ids = request.query_params.getlist("stage")[:32]
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        return Passed(Stream(hub, stages, ids, last, zipped, {}))

    # What goes wrong ------------------------------------------------------------------------------------------------

    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, Refused):
            return answer({"error": error.text, **error.more}, error.status)
        if isinstance(error, PosseError):
            return answer({"error": error.text}, 400)
        status = error.status_code if isinstance(error, HTTPException) else 400
        return answer(
            {"error": {404: "there is nothing at this address.", 405: "not in this way."}.get(status, "no.")}, status
        )

    for kind in (PosseError, HTTPException):
        app.add_exception_handler(kind, refused)
    return Guard(app, place, keys)


class Passed(Response):
    """An answer that writes itself."""

    def __init__(self, inner: App) -> None:
        super().__init__()
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let it."""
        await self._inner(scope, receive, send)


def answer(value: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(encode(value), status, media_type="application/json")


async def table(request: Request) -> dict[str, Any]:
    """Read the JSON of a request, which must be a table; nothing is a table without entries."""
    body = await request.body()
    if not body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "send JSON, with the content type application/json.")
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Refused(400, f"that is no JSON: {str(error)[:100]}.") from None
    if not isinstance(given, dict):
        raise Refused(400, "send a JSON object.")
    return given


def word(given: Any, name: str, default: str) -> str:
    """Read a text."""
    value = given.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, f"{name} must be text.", field=name)
    return value


def whole(given: Any, name: str, default: Any = 0) -> Any:
    """Read a whole number from 0 on."""
    value = given.get(name, default) if isinstance(given, dict) else None
    if value is default and isinstance(given, dict):
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise Refused(400, f"{name} must be a whole number from 0 on.", field=name)
    return value


def number(text: str | None, name: str, default: Any) -> Any:
    """Read a whole number of a query."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise Refused(400, f"{name} must be a whole number from 0 on.", field=name)
    return int(text)


def one_of(given: Any, name: str, known: tuple[str, ...], default: str | None) -> Any:
    """Read one of some words."""
    value = given.get(name, default)
    if value not in known:
        raise Refused(400, f"{name} must be one of {', '.join(known)}.", field=name)
    return value
