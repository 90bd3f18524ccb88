"""Who may use a studio: addresses, origins, tokens, cookies and sizes, checked before anything else
looks at a request.

A **launch token** is signed with the studio's key, is good for one browser and an hour, and is
exchanged for a **cookie** (HttpOnly, SameSite=Strict). The key lies in a file that only its owner
reads and is kept across restarts, so that browsers stay in. Requests for another host, from another
origin, without a cookie or too large are refused here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from posse.core import files
from posse.core.errors import CertificateError, PosseError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_LIFE = 3600
COOKIE_LIFE = 30 * 86_400
BODY = 1 << 20
"""Bytes of a request, at most."""
UPLOAD = 64 << 20
"""Bytes of a file that is sent, at most."""
TRIES, PAUSE = 5, 30.0
"""Wrong passwords in a row, and seconds in which no other one is looked at."""
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src "
    "'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Refused(PosseError):
    """A request is refused with a status of HTTP and one line; `more` goes beside it."""

    code = "P900"

    def __init__(self, status: int, text: str, **more: Any) -> None:
        super().__init__(text)
        self.status, self.more = status, more


class Keys:
    """The key of a studio, kept in a folder; tokens and cookies are signed with it."""

    def __init__(self, folder: Path) -> None:
        files.make_private_folder(folder)
        self._file, self._used = folder / "key", folder / "used"
        with suppress(PosseError):
            if not self._file.exists():
                files.write_whole(
                    self._file, secrets.token_hex(32).encode(), mode=files.PRIVATE, replace=False
                )
        files.check_private(self._file)
        self._key = files.read_credential(
            self._file, "the studio's key", "Remove it, and browsers enter anew."
        ).strip()
        if len(self._key) < 32:
            raise CertificateError(
                f"{self._file} is no key of a studio. Remove it, and browsers enter anew."
            )

    def token(self) -> str:
        """Make a launch token."""
        return self._signed("token", TOKEN_LIFE)

    def cookie(self) -> str:
        """Make the value of a cookie."""
        return self._signed("cookie", COOKIE_LIFE)

    def spend(self, token: str) -> bool:
        """Whether a token is good; from now on it is not."""
        if not self._holds("token", token):
            return False
        nonce, now = token.split(".")[0], time.time()
        used = self._spent()
        if nonce in used:
            return False
        used = {one: until for one, until in used.items() if until > now} | {
            nonce: now + TOKEN_LIFE
        }
        files.write_whole(self._used, json.dumps(used).encode(), mode=files.PRIVATE)
        return True

    def admits(self, cookie: str) -> bool:
        """Whether a cookie is one of this studio's."""
        return self._holds("cookie", cookie)

    def _spent(self) -> dict[str, float]:
        with suppress(OSError, ValueError, AttributeError, TypeError):
            return {
                str(one): float(until) for one, until in json.loads(self._used.read_text()).items()
            }
        return {}

    def _signed(self, what: str, life: int) -> str:
        said = f"{secrets.token_urlsafe(18)}.{int(time.time()) + life}"
        return f"{said}.{self._mark(what, said)}"

    def _holds(self, what: str, text: str) -> bool:
        said, _, mark = text.rpartition(".")
        until = said.rpartition(".")[2]
        if not hmac.compare_digest(mark.encode(), self._mark(what, said).encode()):
            return False
        return until.isascii() and until.isdigit() and int(until) > time.time()

    def _mark(self, what: str, said: str) -> str:
        return hmac.new(self._key, f"{what}.{said}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Place:
    """Where a studio is reached."""

    hosts: tuple[str, ...]
    """Values of the header Host that mean it."""
    origins: tuple[str, ...]
    """Origins of its own pages."""
    port: int
    secure: bool = False
    """Whether it is reached over TLS."""
    password: str | None = None
    """What is asked for instead of a token."""

    @property
    def cookie(self) -> str:
        """Name of the cookie; two studios on one machine have two."""
        return f"posse-{self.port}"

    @classmethod
    def loopback(cls, port: int) -> Place:
        """This machine alone."""
        hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        return cls(hosts, tuple(f"http://{host}" for host in hosts), port)


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, place: Place, keys: Keys) -> None:
        self._app, self._place, self._keys = app, place, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with a bounded body and the headers of every answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ]
        api = scope["path"].startswith("/api/")

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = {**HEADERS, "cache-control": "no-store" if api else "no-cache"}
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), v.encode()) for n, v in more.items() if n.encode() not in own),
                ]
            await send(message)

        try:
            self._check(scope, headers, api)
            limit = UPLOAD if scope["path"] == "/api/files" else BODY
            await self._app(scope, self._bounded(receive, headers, limit), answer)
        except Refused as refused:
            await refuse(refused, answer)
        except asyncio.CancelledError:  # the server ends while this goes on, such as a stream
            return

    def _check(self, scope: Scope, headers: Iterable[tuple[str, str]], api: bool) -> None:
        place, found = self._place, dict(headers)
        method, path = scope["method"], scope["path"]
        if [name for name, _ in headers].count("host") != 1 or found[
            "host"
        ].lower() not in place.hosts:
            raise Refused(421, f"this studio is not at that host. Use {place.origins[0]}.")
        origin = found.get("origin")
        if origin is not None and origin not in place.origins:
            raise Refused(403, "another page asks for this. Use the studio's own.")
        if method in UNSAFE and origin is None:
            raise Refused(403, "a change needs the header Origin of the studio's own page.")
        if found.get("sec-fetch-site", "none") not in ("same-origin", "none") and (
            api or method in UNSAFE
        ):
            raise Refused(403, "another page asks for this. Use the studio's own.")
        if (
            api
            and path != "/api/enter"
            and not self._keys.admits(self._cookie(found.get("cookie", "")))
        ):
            way = "token" if place.password is None else "password"
            said = (
                "Run 'posse studio --token' for an address to enter by."
                if way == "token"
                else "Enter the password."
            )
            raise Refused(401, f"this browser has not entered. {said}", enter=way)

    def _cookie(self, header: str) -> str:
        with suppress(CookieError):
            found = SimpleCookie(header).get(self._place.cookie)
            return "" if found is None else found.value
        return ""

    def _bounded(self, receive: Receive, headers: Iterable[tuple[str, str]], limit: int) -> Receive:
        """Refuse a body that is too large: by what it says of itself, or when so much has come."""
        stated = dict(headers).get("content-length", "0")
        said = f"a request may have {limit:,} bytes."
        if not (stated.isascii() and stated.isdigit()) or int(stated) > limit:
            raise Refused(413, said)
        came = 0

        async def bounded() -> MutableMapping[str, Any]:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > limit:
                raise Refused(413, said)
            return message

        return bounded


class Door:
    """Lets browsers in: a token or a password for a cookie, a few tries at a time."""

    def __init__(self, place: Place, keys: Keys) -> None:
        self._place, self._keys = place, keys
        self._wrong, self._until = 0, 0.0

    def enter(self, token: str, password: str) -> str:
        """Return the header of a cookie, or refuse."""
        if time.monotonic() < self._until:
            raise Refused(429, f"too many wrong tries. Wait {PAUSE:.0f} seconds.")
        place = self._place
        if place.password is None:
            good, why = (
                self._keys.spend(token),
                "this address has been used, or is too old. Run: posse studio --token",
            )
        else:
            good = hmac.compare_digest(password.encode(), place.password.encode())
            why = "that is not the password."
        if not good:
            self._wrong += place.password is not None  # a token is too long to be guessed
            if self._wrong >= TRIES:
                self._wrong, self._until = 0, time.monotonic() + PAUSE
            raise Refused(403, why)
        self._wrong = 0
        flags = f"Path=/; Max-Age={COOKIE_LIFE}; HttpOnly; SameSite=Strict" + (
            "; Secure" if place.secure else ""
        )
        return f"{place.cookie}={self._keys.cookie()}; {flags}"


async def refuse(refused: Refused, send: Send) -> None:
    """Answer with one line."""
    body = json.dumps({"error": refused.text, **refused.more}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
