"""Starting a studio: on loopback, or elsewhere with a password and TLS; the address to open is
printed once.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from posse.core import files
from posse.core.errors import ConfigError
from posse.results.store import default_path
from posse.studio.app import make_app
from posse.studio.guard import Keys, Place

PORT = 8750
SHORTEST = 12
"""Characters of a password, at least."""


def folder() -> Path:
    """Where a studio keeps its key and files: beside the store of runs."""
    return default_path().parent / "studio"


def running() -> int:
    """Return the port of the studio that was started last with this folder, or the usual one."""
    try:
        return int((folder() / "port").read_text())
    except (OSError, ValueError):
        return PORT


def launch_address(place: Place, keys: Keys) -> str:
    """Return an address that lets one browser in."""
    return place.origins[0] + ("/" if place.password is not None else f"/#token={keys.token()}")


def place_of(
    host: str, port: int, password: str | None, certificate: bool, proxy: str | None
) -> Place:
    """Return where a studio is reached, or say what is missing."""
    if proxy is not None:
        parts = urlsplit(proxy)
        if (
            parts.scheme != "https"
            or not parts.netloc
            or parts.path.strip("/")
            or parts.query
            or parts.username
        ):
            raise ConfigError(
                f"--behind-proxy takes the address that browsers use, https://NAME, got '{proxy}'."
            )
        if password is None:
            raise ConfigError("a studio behind a proxy needs a password. Give --password-file.")
        return Place(
            (parts.netloc.lower(),), (f"https://{parts.netloc.lower()}",), port, True, password
        )
    if is_loopback(host) and not certificate and password is None:
        return Place.loopback(port)
    if not is_loopback(host) and (password is None or not certificate):
        raise ConfigError(
            f"the host {host} can be reached by others. Give --password-file, and --certificate "
            "with --key, or "
            "--behind-proxy https://NAME where a proxy has the certificate."
        )
    scheme = "https" if certificate else "http"
    names = [host, *(("localhost", "127.0.0.1") if is_loopback(host) else ())]
    if host in ("0.0.0.0", "::"):
        names = [socket.gethostname(), socket.getfqdn(), *_addresses()]
    hosts = tuple(
        dict.fromkeys(
            f"[{name}]:{port}" if ":" in name else f"{name}:{port}".lower() for name in names
        )
    )
    return Place(hosts, tuple(f"{scheme}://{one}" for one in hosts), port, certificate, password)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _addresses() -> list[str]:
    try:
        return sorted({str(one[4][0]) for one in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        return []


def read_password(file: Path) -> str:
    """Read a password from a file that only its owner reads."""
    files.check_private(file)
    text = (
        files.read_credential(file, "the file of the password", "Check the path.")
        .decode("utf-8", "replace")
        .strip()
    )
    if len(text) < SHORTEST:
        raise ConfigError(
            f"a password has at least {SHORTEST} characters, got {len(text)}. Choose a longer one."
        )
    return text


def bind(host: str, port: int | None) -> socket.socket:
    """Take a port: the one that is asked for, else the usual one or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, wanted))
            made.listen()  # two that only bind can have one port
        except OSError as error:
            made.close()
            if port is not None:
                raise ConfigError(
                    f"cannot listen at {host}:{port}: {error.strerror}. Choose another --port."
                ) from error
        else:
            return made
    raise ConfigError(f"cannot listen at {host}: no port is free.")


def serve(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    password_file: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    proxy: str | None = None,
    allowed: tuple[str, ...] = (),
) -> None:
    """Serve until Ctrl-C."""
    password = None if password_file is None else read_password(password_file)
    if (certificate is None) != (key is None):
        raise ConfigError("a certificate and its key go together. Give --certificate and --key.")
    place_of(
        host, port or PORT, password, certificate is not None, proxy
    )  # refused before anybody can connect
    listening = bind(host, port)
    place = place_of(host, listening.getsockname()[1], password, certificate is not None, proxy)
    app = make_app(folder(), place, allowed)
    threading.Thread(
        target=app.studio.catalogue.systems, daemon=True
    ).start()  # a page asks for it first of all
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
    address = launch_address(place, Keys(folder()))
    files.write_whole(folder() / "port", str(place.port).encode(), mode=files.PRIVATE)
    print(f"The studio is at {address}", flush=True)
    if password is None:
        print(
            "This address lets one browser in; 'posse studio --token' prints another. Ctrl-C ends "
            "it.",
            flush=True,
        )
    if browser:
        threading.Timer(0.5, _show, (address,)).start()
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _show(address: str) -> None:
    """Open the page; without a display a text browser would take over the terminal."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    webbrowser.open(address)
