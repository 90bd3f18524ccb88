"""`posse studio`: the page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posse.core.check import require
from posse.core.errors import ConfigError

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]
Port = Annotated[
    int | None,
    typer.Option(help="Port; else 8750, or a free one.", metavar="INTEGER", min=1, max=65535),
]
Host = Annotated[
    str, typer.Option(help="Address to listen at; another than loopback needs a password and TLS.")
]
PasswordFile = Annotated[
    Path | None, typer.Option(help="File (mode 0600) with the password to ask for.", metavar="FILE")
]
Certificate = Annotated[
    Path | None, typer.Option(help="TLS certificate of the studio (PEM).", metavar="FILE")
]
Key = Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).", metavar="FILE")]
Proxy = Annotated[
    str | None,
    typer.Option(
        "--behind-proxy", help="Address of the TLS proxy in front: https://NAME.", metavar="ADDRESS"
    ),
]
Token = Annotated[
    bool, typer.Option("--token", help="Print an address for one more browser, and leave.")
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        "--policy",
        help="Code (module:name, file.py:name) or a file that the page may name; repeat it.",
        metavar="NAME",
    ),
]


def studio(
    no_browser: NoBrowser = False,
    port: Port = None,
    host: Host = "127.0.0.1",
    password_file: PasswordFile = None,
    certificate: Certificate = None,
    key: Key = None,
    behind_proxy: Proxy = None,
    token: Token = False,
    allow: Allowed = None,
) -> None:
    """Open the studio in the browser: watch and compare runs.

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
    for name in allow or ():
        _check(name)
    serve.serve(
        host=host,
        port=port,
        browser=not no_browser,
        password_file=password_file,
        certificate=certificate,
        key=key,
        proxy=behind_proxy,
        allowed=tuple(allow or ()),
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
