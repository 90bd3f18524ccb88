"""The studio's application: what every address answers. All of it is JSON but for the page itself
and exports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from posse.core.errors import PosseError
from posse.studio import looking
from posse.studio.catalogue import Catalogue
from posse.studio.guard import App, Door, Guard, Keys, Place, Refused
from posse.studio.jobs import KINDS, RUNS, Jobs, cells_of
from posse.studio.runs import Runs
from posse.studio.stages import LIVE, Hub, Stages
from posse.studio.stream import Stream, encode

STATIC = Path(__file__).parent / "static"
ACTIONS = ("play", "pause", "forward", "back", "jump", "end")
UNITS = ("message", "step", "time")
FASTEST = 10_000.0
MOST = 1 << 40
LOOK = 1.0
"""Seconds between two looks at the store, while somebody reads the stream."""
REPORT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""What the page of a report may do: show itself."""


class Studio:
    """What a studio consists of."""

    def __init__(self, folder: Path, place: Place, allowed: tuple[str, ...], live: int) -> None:
        self.keys = Keys(folder)
        self.door = Door(place, self.keys)
        self.catalogue = Catalogue(folder / "files", allowed)
        self.hub = Hub()
        self.stages = Stages(self.hub, limit=live, say=self.catalogue.uploads.said)
        self.runs = Runs(self.catalogue)
        self.jobs = Jobs(self._jobs_changed)
        self.streams = 0
        self._changed = {"runs": 0, "jobs": 0}
        self._loop: asyncio.AbstractEventLoop | None = None

    def _jobs_changed(self) -> None:
        """Note a change of a job, which its own thread says."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.note, "jobs")

    def note(self, what: str) -> None:
        """Note a change of a list."""
        self._changed[what] = self.hub.touch()

    def lists(self) -> dict[str, Any]:
        """What streams show beside stages: when it changed, and how it is read."""
        return {
            "jobs": lambda: (self._changed["jobs"], self.jobs.shown),
            "runs": lambda: (self._changed["runs"], lambda: {"changed": self._changed["runs"]}),
        }

    async def follow(self) -> None:
        """Look at the store now and then, for runs of the command line too."""
        self._loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK)
            with suppress(PosseError):
                if self.streams and await self.stages.off(self.runs.moved):
                    self.note("runs")


def make_app(
    folder: Path, place: Place, allowed: tuple[str, ...] = (), *, live: int = LIVE
) -> Entrance:
    """Make the application of a studio whose key and files lie in a folder; requests may name what
    is `allowed`.
    """
    studio = Studio(folder, place, allowed, live)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.ensure_future(studio.follow())
        yield
        following.cancel()
        studio.jobs.shut()
        studio.stages.shut()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.add_middleware(GZipMiddleware, minimum_size=1000)  # streams compress themselves
    _setting_up(app, studio)
    _staging(app, studio)
    _keeping(app, studio)
    for kind in (PosseError, HTTPException):
        app.add_exception_handler(kind, partial(_refused, studio.catalogue.uploads.said))
    app.add_exception_handler(Exception, _failed)  # which is logged with its traceback too
    return Entrance(app, place, studio)


class Entrance(Guard):
    """The guard, with the studio behind it."""

    def __init__(self, app: App, place: Place, studio: Studio) -> None:
        super().__init__(app, place, studio.keys)
        self.studio = studio


def _setting_up(app: FastAPI, studio: Studio) -> None:
    """The page, who may use it, systems, data and budgets."""
    off, catalogue = studio.stages.off, studio.catalogue

    @app.get("/")
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    app.mount("/static", StaticFiles(directory=STATIC))

    @app.post("/api/enter")
    async def enter(request: Request) -> Response:
        given = await table(request, "token", "password")
        made = studio.door.enter(word(given, "token", ""), word(given, "password", ""))
        return Response(status_code=204, headers={"set-cookie": made})

    @app.get("/api/systems")
    async def systems() -> Response:
        return answer(await off(catalogue.systems))

    @app.get("/api/data")
    async def data() -> Response:
        return answer(await off(catalogue.data))

    @app.post("/api/check")
    async def check(request: Request) -> Response:
        given = await table(request, "system", "settings")
        return answer(await off(catalogue.check, given.get("system"), given.get("settings", {})))

    @app.get("/api/files")
    async def files() -> Response:
        return answer(await off(catalogue.uploads.listed))

    @app.post("/api/files")
    async def upload(request: Request) -> Response:
        name, data = request.query_params.get("name", "data.csv"), await request.body()
        return answer(await off(catalogue.uploads.put, name, data))

    @app.get("/api/budgets")
    async def budgets() -> Response:
        return answer(await off(catalogue.budgets))

    @app.post("/api/budgets/{name}")
    async def budget(name: str, request: Request) -> Response:
        return answer(await off(catalogue.budget, name, await table(request)))


def _staging(app: FastAPI, studio: Studio) -> None:
    """Live runs: moving them, looking closer, the stream."""
    stages, catalogue = studio.stages, studio.catalogue

    @app.get("/api/stages")
    async def listed() -> Response:
        return answer(stages.listed())

    @app.post("/api/stages")
    async def begin(request: Request) -> Response:
        given = await table(request, "system", "settings", "at", "scenario")
        system = await stages.off(catalogue.system, given.get("system"))
        scenario = word(given, "scenario", "")
        settings = await stages.off(catalogue.settings, system, given.get("settings", {}))
        at = given.get("at")
        moment = None if at is None else (whole(at, "time"), whole(at, "message", None))
        live = stages.begin(system, settings, moment, catalogue.shown(settings), scenario)
        return answer({"id": live.stage.id, "state": live.state()}, 201)

    @app.get("/api/stages/{id}")
    async def stage(id: str) -> Response:
        return answer(stages.get(id).state())

    @app.delete("/api/stages/{id}")
    async def close(id: str) -> Response:
        stages.close([stages.get(id)])
        return Response(status_code=204)

    @app.post("/api/stages/{id}/do")
    async def do(id: str, request: Request) -> Response:
        given = await table(request, "action", "unit", "n", "speed", "time", "message")
        action, unit = one_of(given, "action", ACTIONS, None), one_of(given, "unit", UNITS, "time")
        speed = given.get("speed", 0)
        if (
            isinstance(speed, bool)
            or not isinstance(speed, int | float)
            or not 0 <= speed <= FASTEST
        ):
            raise Refused(
                400, f"speed must be from 0 to {FASTEST:,.0f} {unit}s a second.", field="speed"
            )
        to = (
            (whole(given, "time", 0), whole(given, "message", None))
            if action == "jump"
            else (0, None)
        )
        live = await stages.do(id, action, unit, max(1, whole(given, "n", 1)), float(speed), to)
        return answer({"state": live.state()})

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
        given = await table(request, "observer", "beside")
        seen = await stages.look(id, looking.evidence, word(given, "observer", ""))
        return answer(await stages.off(looking.audit, seen, given.get("beside") is True))

    @app.post("/api/stages/{id}/cost")
    async def cost(id: str) -> Response:
        stage = stages.get(id).stage
        return answer(await stages.off(looking.cost, stage.system, stage.settings))

    @app.post("/api/stages/{id}/keep")
    async def keep(id: str) -> Response:
        return answer(await stages.look(id, looking.keep), 201)

    @app.get("/api/stream")
    async def stream(request: Request) -> Response:
        ids = request.query_params.getlist("stage")[:32]
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        return Streaming(Stream(studio.hub, stages, ids, last, zipped, studio.lists()), studio)


def _keeping(app: FastAPI, studio: Studio) -> None:
    """Runs of the store, and jobs in the background."""
    off, runs, jobs = studio.stages.off, studio.runs, studio.jobs

    @app.get("/api/runs")
    async def listed(request: Request) -> Response:
        asked = request.query_params
        return answer(await off(runs.listed, asked.get("filter", ""), asked.get("sort", "-when")))

    @app.get("/api/runs/export")
    async def export(request: Request) -> Response:
        form = request.query_params.get("format", "csv")
        data, kind = await off(runs.exported, ids_of(request), form)
        return Response(
            data,
            media_type=kind,
            headers={"content-disposition": f'attachment; filename="posse-runs.{form}"'},
        )

    @app.get("/api/runs/report")
    async def reports(request: Request) -> Response:
        return page_of(await off(runs.report, ids_of(request)))

    @app.post("/api/runs/compare")
    async def compare(request: Request) -> Response:
        given = await table(request, "ids")
        return answer(await off(lambda: runs.compared(runs.several(given.get("ids")))))

    @app.get("/api/runs/{id}")
    async def run(id: str) -> Response:
        return answer(await off(runs.shown, id))

    @app.get("/api/runs/{id}/report")
    async def report(id: str) -> Response:
        return page_of(await off(runs.report, [id]))

    @app.delete("/api/runs/{id}")
    async def delete(id: str) -> Response:
        return answer(await off(runs.delete, id))

    @app.post("/api/runs/{id}/undelete")
    async def undelete(id: str) -> Response:
        return answer(await off(runs.undelete, id))

    @app.get("/api/jobs")
    async def all_jobs() -> Response:
        return answer(jobs.shown())

    @app.post("/api/jobs")
    async def begin(request: Request) -> Response:
        given, catalogue = (
            await table(request, "kind", "system", "settings", "over", "runs"),
            studio.catalogue,
        )
        kind, count = one_of(given, "kind", KINDS, None), whole(given, "runs", None)
        if count is not None and not 1 <= count <= RUNS:
            raise Refused(400, f"runs must be from 1 to {RUNS} here, got {count}.", field="runs")

        def cells() -> Any:
            system = catalogue.system(given.get("system"))
            settings = catalogue.settings(system, given.get("settings", {}))
            over = catalogue.over(system, given.get("over") or {})
            safe = catalogue.safe(system.Settings, given.get("settings", {}))
            made = cells_of(kind, system, safe, settings, over, count)
            for cell in made:
                cell.settings.load()
            return system, made

        system, made = await off(cells)
        return answer({"id": jobs.begin(kind, system, made, given.get("settings", {})).id}, 201)

    @app.delete("/api/jobs/{id}")
    async def cancel(id: str) -> Response:
        await off(jobs.cancel, id)
        return Response(status_code=204)


class Streaming(Response):
    """A stream that is counted while it is read."""

    def __init__(self, inner: Stream, studio: Studio) -> None:
        super().__init__()
        self._inner, self._studio = inner, studio

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send until the reader goes."""
        self._studio.streams += 1
        try:
            await self._inner(scope, receive, send)
        finally:
            self._studio.streams -= 1


# Answers and requests -----------------------------------------------------------------------------


async def _refused(say: Callable[[str], str], _: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return answer({"error": say(error.text), **error.more}, error.status)
    if isinstance(error, PosseError):
        return answer({"error": say(error.text)}, 400)
    status = error.status_code if isinstance(error, HTTPException) else 400
    said = {404: "there is nothing at this address.", 405: "this address is not used in this way."}
    return answer({"error": said.get(status, "this request cannot be read.")}, status)


async def _failed(_: Request, error: Exception) -> Response:
    said = f"this could not be done: {type(error).__name__}. The server's screen says more."
    return answer({"error": said}, 409)


def answer(value: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(encode(value), status, media_type="application/json")


def page_of(text: str) -> Response:
    """Answer with the page of a report, which may run nothing."""
    return Response(text, media_type="text/html", headers={"content-security-policy": REPORT})


def ids_of(request: Request) -> list[str]:
    """Read ids of a query, with commas between."""
    return [one for one in request.query_params.get("ids", "").split(",") if one]


async def table(request: Request, *known: str) -> dict[str, Any]:
    """Read the JSON of a request, which must be a table of known words; nothing is a table without
    entries.
    """
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
    for name in given:
        if known and name not in known:
            raise Refused(400, f"unknown word '{name[:40]}'. Known: {', '.join(known)}.")
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
