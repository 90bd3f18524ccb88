"""`posse studio`: the page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posse.core.check import require
from posse.core.errors import ConfigError

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]
Port = Annotated[int | None, typer.Option(help="Port; else 8750, or a free one.", metavar="INTEGER", min=1, max=65535)]
Host = Annotated[str, typer.Option(help="Address to listen at; another than loopback needs a password and TLS.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help="File (mode 0600) with the password to ask for.", metavar="FILE")
]
Certificate = Annotated[Path | None, typer.Option(help="TLS certificate of the studio (PEM).", metavar="FILE")]
Key = Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).", metavar="FILE")]
Proxy = Annotated[
    str | None,
    typer.Option("--behind-proxy", help="Address that a TLS proxy gives it: https://NAME.", metavar="ADDRESS"),
]
Token = Annotated[bool, typer.Option("--token", help="Print an address for one more browser, and leave.")]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", help="A policy of yours that the page may use; repeat it.", metavar="MODULE:CLASS"),
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
    policy: Policies = None,
) -> None:
    """Open the studio: watch runs, compare them, choose a policy and its protection."""
    require("fastapi", extra="studio")
    require("uvicorn", extra="studio")
    from posse.studio import serve
    from posse.studio.guard import Keys

    if token:
        place = serve.place_of(host, port or serve.running(), None, False, None)
        typer.echo(serve.launch_address(place, Keys(serve.folder())))
        return
    for one in policy or ():
        _check(one)
    serve.serve(
        host=host, port=port, browser=not no_browser, password_file=password_file, certificate=certificate, key=key,
        proxy=behind_proxy, policies=tuple(policy or ()),
    )  # fmt: skip


def _check(where: str) -> None:
    """Import a policy now: a mistake is one line before the page is there."""
    from posse.policies import own

    if not own.is_own(where):
        raise ConfigError(f"--policy takes one of yours, module:Class or file.py:Class, got '{where}'.")
    own.load(where)
