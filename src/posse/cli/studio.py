"""`posse studio`: the page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posse.cli.flags import NONE_GIVEN
from posse.core.check import require
from posse.core.errors import ConfigError

Port = Annotated[
    int | None,
    typer.Option(help="Port; else 8750, or a free one.", metavar="INTEGER", min=1, max=65535),
]
Allowed = Annotated[
    list[str],
    typer.Option(
        "--allow",
        "--policy",
        help="Code (module:name, file.py:name) or a file that the page may name; repeat it.",
        metavar="NAME",
    ),
]


def studio(
    *,
    no_browser: bool = False,
    port: Port = None,
    host: str = "127.0.0.1",
    password_file: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    behind_proxy: str | None = None,
    token: bool = False,
    allow: Allowed = NONE_GIVEN,
) -> None:
    """Open the studio in the browser: watch and compare runs.

    Options:
        no_browser: Do not open a browser.
        host (TEXT): Address to listen at; another than loopback needs a password and TLS.
        password_file (FILE): File (mode 0600) with the password to ask for.
        certificate (FILE): TLS certificate of the studio (PEM).
        key (FILE): Key of the certificate (PEM).
        behind_proxy (ADDRESS): Address of the TLS proxy in front: https://NAME.
        token: Print an address for one more browser, and exit.

    Examples:
        posse studio
        posse studio --no-browser --port 8800
    """
    require("fastapi", extra="studio")
    require("uvicorn", extra="studio")
    from posse.studio import serve
    from posse.studio.guard import Keys

    if token:
        place = serve.place_of(host, port or serve.running(), None, False, None)
        typer.echo(serve.launch_address(place, Keys(serve.folder())))
        return
    names = tuple(allow)
    for name in names:
        _check(name)
    serve.serve(
        host=host,
        port=port,
        browser=not no_browser,
        password_file=password_file,
        certificate=certificate,
        key=key,
        proxy=behind_proxy,
        allowed=names,
    )


def _check(name: str) -> None:
    """Import code now, and look for a file: a mistake is one line before the page is there."""
    from posse.policies import own

    if own.is_own(name):
        own.load(name, "name")
    elif not Path(name).is_file():
        raise ConfigError(
            f"--allow takes module:name, file.py:name or a file that exists, got '{name}'. Check "
            "it.",
            rule="cli.allow.not-found",
        )
