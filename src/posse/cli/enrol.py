"""`posse enrol`: a party draws its key and gets its certificate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli.ca import read_file
from posse.cli.screen import remark
from posse.core.errors import ConfigError, EnrolmentError

if TYPE_CHECKING:
    from posse.runtime.certificates.enrolment import Enrolled
    from posse.runtime.certificates.tokens import Token

Text = Annotated[
    str,
    typer.Argument(help="The token the customer sent; '-' reads it from stdin, out of others' sight.", metavar="TOKEN"),
]
Address = Annotated[
    str | None, typer.Option(help="Where the authority listens (default: as the token says).", metavar="HOST:PORT")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the identity (default: the name).", metavar="FOLDER")
]
RequestFile = Annotated[
    Path | None, typer.Option("--request", help="Write the request here; send it yourself.", metavar="FILE")
]
AnswerFile = Annotated[
    Path | None, typer.Option("--answer", help="Read the answer that came back from here.", metavar="FILE")
]


def enrol(
    token: Text, address: Address = None, out: Out = None, request: RequestFile = None, answer: AnswerFile = None
) -> None:
    """Join a run with the customer's token: the key is drawn here and stays here."""
    from posse.runtime.certificates import enrolment
    from posse.runtime.certificates.authority import utc_now
    from posse.runtime.certificates.files import write_whole
    from posse.runtime.certificates.tokens import Token

    if sum(one is not None for one in (address, request, answer)) > 1:
        raise ConfigError("--address, --request and --answer are three ways to enrol. Pass one of them.")
    read = Token.read(_text(token))
    folder = out if out is not None else Path(read.peer.name)
    if answer is not None:
        _told(enrolment.complete(read, folder, read_file(answer, "answer"), utc_now()))
        return
    where = _where(read, address) if request is None else None
    data = enrolment.prepare(read, folder, utc_now())
    if request is not None:
        write_whole(request, data)
        remark(f"drew the key of {read.peer} in {folder} and wrote the request.")
        remark(f"send {request} to the customer, who runs: posse ca sign {request.name} --out ANSWER")
        remark(f"then: posse enrol TOKEN --answer ANSWER --out {folder}")
    elif where is not None:
        _told(_over_network(read, folder, data, *where))


def _over_network(token: Token, folder: Path, request: bytes, host: str, port: int) -> Enrolled:
    import asyncio

    from posse.runtime.certificates import enrolment
    from posse.runtime.certificates.authority import utc_now
    from posse.runtime.certificates.enrolment import ask

    return enrolment.complete(token, folder, asyncio.run(ask(token, request, host, port)), utc_now())


def _where(token: Token, address: str | None) -> tuple[str, int]:
    from posse.runtime.certificates.names import split_address

    found = address or token.address
    if not found:
        raise ConfigError(
            "the token does not say where the authority listens. Pass --address host:port, or --request FILE to send "
            "the request yourself."
        )
    return split_address(found)


def _text(token: str) -> str:
    if token != "-":
        return token
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True))
    try:
        return sys.stdin.read(4096)
    except UnicodeDecodeError as error:
        raise EnrolmentError("what came on stdin is no token. Pass the text that 'posse ca token' printed.") from error


def _told(enrolled: Enrolled) -> None:
    from posse.runtime.certificates.making import spoken

    remark(f"enrolled {enrolled.peer}, until {enrolled.expires:%Y-%m-%d} (serial {enrolled.serial}).")
    remark(f"wrote party.key, party.crt, ca.crt and crl.pem in {enrolled.folder}; party.key stays there.")
    remark(f"fingerprint of your key:      {spoken(enrolled.key_fingerprint)}")
    remark(f"fingerprint of the authority: {spoken(enrolled.authority_fingerprint)}")
