"""`posse federation ca`, the customer's authority, which certifies the parties of a run, and
`posse party enrol`, by which a party joins it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.screen import heading, in_terminal, print_json, remark, say, table
from posse.core.check import suggestion
from posse.core.errors import ConfigError, DataError, EnrolmentError
from posse.core.files import PRIVATE, check_private, forbid_core_dumps, read_credential, write_whole

if TYPE_CHECKING:
    from datetime import datetime

    from posse.runtime.certificates.authority import Authority, Desk, Reply
    from posse.runtime.certificates.enrolment import Enrolled
    from posse.runtime.certificates.register import CertificateRow, TokenRow
    from posse.runtime.certificates.tokens import Token

Folder = Annotated[Path, typer.Option("--ca", help="Folder of the authority.", metavar="FOLDER")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="File with the passphrase of the authority's key.", metavar="FILE"),
]
Ask = Annotated[bool, typer.Option("--passphrase", help="Encrypt the key; asks for a passphrase.")]
Run = Annotated[str, typer.Option(help="The run it is for: a-z, 0-9 and -.", metavar="TEXT")]
Named = Annotated[
    str, typer.Option(help="What the authority is called: a-z, 0-9 and -.", metavar="TEXT")
]
Role = Annotated[
    str,
    typer.Option(
        help="Its role in its system; an unknown one is answered with those there are.",
        metavar="TEXT",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="Name of the party: a-z, 0-9 and -. Default: the role, where one party has it."
    ),
]
Host = Annotated[
    list[str] | None,
    typer.Option(help="DNS name or IP address its certificate may show.", metavar="HOST"),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Where the party reaches 'posse federation ca serve'; goes into the token.",
        metavar="HOST:PORT",
    ),
]
Minutes = Annotated[int, typer.Option(help="How long the token can be used.", metavar="INTEGER")]
Days = Annotated[float, typer.Option(help="How long the certificate will count.", metavar="NUMBER")]
Bind = Annotated[
    str, typer.Option(help="Address to listen on; 0.0.0.0 for all.", metavar="ADDRESS")
]
Port = Annotated[
    int,
    typer.Option(help="Port to listen on; 0 for a free one.", min=0, max=65535, metavar="INTEGER"),
]
Keep = Annotated[bool, typer.Option("--keep", help="Continue when no token is open, until Ctrl-C.")]
Asked = Annotated[
    Path, typer.Argument(help="What 'posse party enrol --request' wrote.", metavar="FILE")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Where to write the answer.", metavar="FILE")
]
ListOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Where to write the list (default: stdout).", metavar="FILE"),
]
Which = Annotated[
    str, typer.Argument(help="Name of a party, or serial of a certificate.", metavar="NAME")
]
TokenText = Annotated[
    str | None,
    typer.Argument(
        help="The token the customer sent; '-' reads it from stdin, out of others' sight.",
        metavar="TOKEN",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the token, which only you may read.", metavar="FILE")
]
TokenOut = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Write the token to a new file for you alone.", metavar="FILE"
    ),
]
AuthorityAddress = Annotated[
    str | None,
    typer.Option(
        help="Where the authority listens (default: as the token says).", metavar="HOST:PORT"
    ),
]
IdentityFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Folder of the identity (default: the name).", metavar="FOLDER"
    ),
]
RequestFile = Annotated[
    Path | None,
    typer.Option("--request", help="Write the request here; send it yourself.", metavar="FILE"),
]
AnswerFile = Annotated[
    Path | None,
    typer.Option("--answer", help="Read the answer that came back from here.", metavar="FILE"),
]

HERE = Path("posse-ca")


def init(
    run: Run,
    ca: Folder = HERE,
    name: Named = "customer",
    passphrase: Ask = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the authority of a run.

    Examples:
        posse federation ca init --run trial-7
        posse federation ca init --run trial-7 --passphrase
    """
    from posse.runtime.certificates.authority import Authority

    secret = new_passphrase(passphrase, passphrase_file)
    created = Authority.init(ca, name, run, passphrase=secret)
    remark(
        f"made the authority '{name}' of run '{run}' in {ca}, until "
        f"{created.certificate.not_valid_after_utc:%Y-%m-%d}."
    )
    remark(f"fingerprint: {_fingerprint(created)}")
    if secret is None:
        remark(
            f"{ca / 'ca.key'} is not encrypted (--passphrase): who reads it can pose as any party."
        )
    remark(f"next, for every party: posse federation ca token --ca {ca} --role ROLE --name NAME")


def token(
    role: Role,
    name: Name = None,
    ca: Folder = HERE,
    host: Host = None,
    address: Address = None,
    minutes: Minutes = 15,
    days: Days = 90,
    out: TokenOut = None,
    json: flags.Json = False,
) -> None:
    """Make a token that lets one party enrol once.

    Only the token goes to stdout.

    Examples:
        posse federation ca token --role owner --name clinic-b
        posse federation ca token --role comp --out comp.token
    """
    from posse.runtime.federation.talk import QUEUE

    authority = _authority(ca)
    created = authority.token(
        role,
        name_for(role, name),
        minutes=minutes,
        hosts=host or (),
        days=days,
        address=address or "",
    )
    if json:
        print_json(
            {
                "token": created.text(),
                "run": created.peer.run,
                "role": created.peer.role,
                "name": created.peer.name,
                "expires": created.expires.isoformat(),
                "authority": created.fingerprint.hex(),
                "address": created.address,
                "hosts": host or [],
            }
        )
        return
    if out is None:
        print(created.text(), flush=True)
    else:
        write_whole(out, f"{created.text()}\n".encode(), mode=PRIVATE, replace=False)
    remark(f"for {created.peer}, once, until {created.expires:%H:%M} UTC ({minutes} min).")
    remark(
        "send it to that party by a channel you trust, not over this network: who has it first can "
        "enrol."
    )
    where = "" if address else " --address HOST:PORT"
    serve = f"posse federation ca serve --ca {ca}"
    if (ca / QUEUE).is_dir():
        serve = "posse party serve, with the founder's file"
    remark(f"they run: posse party enrol --token-file FILE{where}; here runs: {serve}")


def serve(
    ca: Folder = HERE,
    bind: Bind = "127.0.0.1",
    port: Port = 7710,
    keep: Keep = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Answer requests on a port until all open tokens are used.

    It also ends when they have expired, or by Ctrl-C.

    Examples:
        posse federation ca serve
        posse federation ca serve --bind 0.0.0.0 --keep
    """
    from posse.runtime.certificates.authority import Desk

    authority = _authority(ca, passphrase_file)
    if not keep and not authority.register.open_tokens(authority.now()):
        raise ConfigError(
            "no token is open. Make one with 'posse federation ca token', or pass --keep to wait for one.",
            rule="cli.token.none-open",
        )
    try:
        asyncio.run(_serve(Desk(authority), bind, port, keep))
    except KeyboardInterrupt:
        names = [row.name for row in authority.register.open_tokens(authority.now())]
        remark(f"stopped. Open tokens: {', '.join(names) or 'none'}.")
        raise typer.Exit(flags.INTERRUPTED) from None
    remark(f"done: no token is open any more. See: posse federation ca list --ca {ca}")


async def _serve(desk: Desk, bind: str, port: int, keep: bool) -> None:
    from posse.runtime.certificates.enrolment import EnrolmentServer

    server = EnrolmentServer(desk, decided=_say_decision)
    try:
        host, bound = await server.start(bind, port)
        shown_host = f"[{host}]" if ":" in host else host
        remark(
            f"taking requests on {shown_host}:{bound}; the authority's fingerprint is "
            f"{_fingerprint(desk.authority)}."
        )
        if host in ("127.0.0.1", "::1"):
            remark("only this machine reaches that address; --bind 0.0.0.0 lets others in.")
        for row in desk.authority.register.open_tokens(desk.authority.now()):
            remark(f"waiting for {row.role} '{row.name}', until {row.expires:%H:%M} UTC.")
        await (asyncio.Event().wait() if keep else server.until_used())
    finally:
        await server.close()


def _say_decision(reply: Reply, address: str) -> None:
    if not reply.reason:
        again = " again: its first answer was lost" if reply.repeated else ""
        remark(f"enrolled {reply.peer}{again} (serial {reply.serial}), from {address}.")
        return
    remark(f"refused a {_request(reply)} from {address}: {reply.reason}.")
    if reply.reason == "used":
        remark("somebody else may hold that token: ask that party.")


def _request(reply: Reply) -> str:
    """Name a request by its party; one that names no open token has none."""
    return "request" if reply.peer is None else f"request for {reply.peer}"


def sign(file: Asked, out: Out, ca: Folder = HERE, passphrase_file: PassphraseFile = None) -> None:
    """Answer a request that came as a file.

    Examples:
        posse federation ca sign clinic-b.request --out clinic-b.answer
    """
    from posse.runtime.certificates.authority import Desk
    from posse.runtime.certificates.tokens import Refused, refused

    data = _read(file, "request")
    reply = Desk(_authority(ca, passphrase_file)).answer(data)
    if reply.reason:
        raise EnrolmentError(
            f"the {_request(reply)} is refused: {refused(Refused(reply.reason)).text}",
            reply.reason,
            rule="cli.request.refused",
        )
    write_whole(out, reply.data)
    remark(f"enrolled {reply.peer} (serial {reply.serial}).")
    remark(f"send {out} back; they run: posse party enrol TOKEN --answer {out.name}")


def list_all(ca: Folder = HERE, json: flags.Json = False) -> None:
    """List tokens and certificates.

    Examples:
        posse federation ca list
        posse federation ca list --json
    """
    authority = _authority(ca)
    tokens, certificates = authority.list()
    if json:
        print_json(
            {
                "run": authority.run,
                "authority": authority.fingerprint.hex(),
                "tokens": [_token_entry(row) for row in tokens],
                "certificates": [_certificate_entry(row, authority.now()) for row in certificates],
            }
        )
        return
    heading(f"Run {authority.run}, authority {authority.name} ({_fingerprint(authority)})")
    if not tokens and not certificates:
        say("No parties yet. Make a token with: posse federation ca token --role ROLE --name NAME")
        return
    if certificates:
        heading("Certificates")
        rows = [
            (
                row.name,
                row.role,
                _state(row, authority.now()),
                f"{row.expires:%Y-%m-%d}",
                row.serial,
            )
            for row in certificates
        ]
        table(("name", "role", "state", "until (UTC)", "serial"), rows)
    if tokens:
        heading("Tokens")
        rows = [
            (row.name, row.role, row.state, f"{row.expires:%Y-%m-%d %H:%M}", _refusals(row))
            for row in tokens
        ]
        table(("name", "role", "state", "until (UTC)", "refused requests"), rows)


def revoke(which: Which, ca: Folder = HERE, passphrase_file: PassphraseFile = None) -> None:
    """Revoke a certificate, or all of a party and its open tokens.

    Examples:
        posse federation ca revoke clinic-b
        posse federation ca crl --out crl.pem
    """
    serials = _authority(ca, passphrase_file).revoke(which)
    remark(f"revoked {', '.join(serials)}." if serials else f"withdrew the open tokens of {which}.")
    remark(
        f"give every party the new list {ca / 'crl.pem'}: it takes the place of crl.pem in its "
        "folder."
    )


def crl(ca: Folder = HERE, out: ListOut = None, passphrase_file: PassphraseFile = None) -> None:
    """Sign the present revocation list, for every party's crl.pem.

    Examples:
        posse federation ca crl
        posse federation ca crl --out crl.pem
    """
    pem = _authority(ca, passphrase_file).crl()
    if out is None:
        sys.stdout.write(pem.decode())
        return
    write_whole(out, pem)
    remark(f"wrote {out}; it takes the place of crl.pem in every party's folder.")


# The party's side ---------------------------------------------------------------------------------


def enrol(
    token: TokenText = None,
    token_file: TokenFile = None,
    address: AuthorityAddress = None,
    out: IdentityFolder = None,
    request: RequestFile = None,
    answer: AnswerFile = None,
) -> None:
    """Join a run with the customer's token.

    The key is drawn on this machine and stays here.

    Examples:
        posse party enrol --token-file token
        posse party enrol --token-file token --request clinic-b.request
    """
    from posse.runtime.certificates.authority import utc_now
    from posse.runtime.certificates.enrolment import ask, complete, prepare
    from posse.runtime.certificates.tokens import Token

    if [address, request, answer].count(None) < 2:
        raise ConfigError(
            "--address, --request and --answer are three ways to enrol. Pass one of them.",
            rule="cli.address.several-ways",
        )
    forbid_core_dumps()
    read = Token.read(_given(token, token_file))
    folder = out or Path(read.peer.name)
    if request is not None:
        write_whole(request, prepare(read, folder, utc_now()))
        remark(f"drew the key of {read.peer} in {folder} and wrote the request.")
        remark(
            f"send {request} to the customer, who runs: posse federation ca sign {request.name} --out ANSWER"
        )
        remark(f"then: posse party enrol TOKEN --answer ANSWER --out {folder}")
        return
    if answer is not None:
        data = _read(answer, "answer")
    else:
        where = _where(read, address)
        data = asyncio.run(ask(read, prepare(read, folder, utc_now()), *where))
    _say_enrolled(complete(read, folder, data, utc_now()))


def _where(token: Token, address: str | None) -> tuple[str, int]:
    from posse.runtime.certificates.names import split_address

    where = address or token.address
    if not where:
        raise ConfigError(
            "the token does not say where the authority listens. Pass --address host:port, or "
            "--request FILE to send "
            "the request yourself.",
            rule="cli.address.missing",
        )
    return split_address(where)


def _given(token: str | None, file: Path | None) -> str:
    """Return the token; on a command line every user of the machine sees it."""
    if (token is None) == (file is None):
        raise ConfigError(
            "a token is needed, once. Pass --token-file FILE, or - to read it from stdin.",
            rule="cli.token.missing",
        )
    if token is not None:
        return _text(token)
    assert file is not None
    check_private(file)
    data = read_credential(file, "the token", "Save there what the customer sent.")
    return data[:4096].decode("utf-8", "replace")


def _text(token: str) -> str:
    if token != "-":
        return token
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True))
    try:
        return sys.stdin.read(4096)
    except UnicodeDecodeError as error:
        raise EnrolmentError(
            "what came on stdin is no token. Pass the text that 'posse federation ca token' printed.",
            rule="cli.token.not-a-token",
        ) from error


def _say_enrolled(enrolled: Enrolled) -> None:
    from posse.runtime.certificates.making import spoken

    remark(
        f"enrolled {enrolled.peer}, until {enrolled.expires:%Y-%m-%d} (serial {enrolled.serial})."
    )
    remark(
        f"wrote party.key, party.crt, ca.crt and crl.pem in {enrolled.folder}; party.key stays "
        "there."
    )
    remark(f"fingerprint of your key:      {spoken(enrolled.key_fingerprint)}")
    remark(f"fingerprint of the authority: {spoken(enrolled.authority_fingerprint)}")


# What both need -----------------------------------------------------------------------------------


def _read(path: Path, what: str) -> bytes:
    """Read a request or an answer; no more of it than one can have."""
    from posse.runtime.certificates.tokens import LONGEST

    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise DataError(
            f"cannot read the {what} {path}: {error.strerror}.", rule="cli.request.not-readable"
        ) from error
    if len(data) > LONGEST:
        raise DataError(
            f"{path} is too long for an enrolment {what}: it has more than {LONGEST} bytes.",
            rule="cli.request.too-long",
        )
    return data


def _authority(folder: Path, passphrase_file: Path | None = None) -> Authority:
    from posse.runtime.certificates.authority import Authority

    forbid_core_dumps()
    return Authority(folder, passphrase=passphrase_of(passphrase_file))


def passphrase_of(file: Path | None, *, confirm: bool = False) -> Callable[[], bytes]:
    """Return what asks for the passphrase of an authority's key: in a file, or at the terminal."""

    def ask() -> bytes:
        if file is not None:
            try:
                return file.read_bytes().rstrip(b"\r\n")
            except OSError as error:
                raise DataError(
                    f"cannot read the passphrase file {file}: {error.strerror}.",
                    rule="cli.passphrase_file.not-readable",
                ) from error
        if not in_terminal():
            raise ConfigError(
                "a passphrase is needed, and this is not a terminal. Pass --passphrase-file FILE.",
                rule="cli.passphrase.no-terminal",
            )
        return str(
            typer.prompt(
                "Passphrase of the authority",
                hide_input=True,
                confirmation_prompt=confirm,
                err=True,
            )
        ).encode()

    return ask


def new_passphrase(requested: bool, file: Path | None) -> bytes | None:
    """Return the passphrase for a new key; None for a key that is not encrypted."""
    if not requested and file is None:
        return None
    return passphrase_of(file, confirm=True)()


def name_for(role: str, name: str | None, flag: str = "--name") -> str:
    """Return the party's name, given by a flag: the only party of its role goes by the name of the
    role.
    """
    from posse.runtime.certificates.names import NO_PART
    from posse.systems.parties import deployed_systems

    kinds = [kind for system in deployed_systems() for kind in system.roles if kind.party]
    roles = (*dict.fromkeys(kind.kind for kind in kinds), NO_PART)
    if role not in roles:
        raise ConfigError(
            f"unknown role '{role}'.{suggestion(role, roles)}", rule="cli.role.unknown"
        )
    sole = {kind.kind for kind in kinds if kind.sole}
    if role in sole:
        if name not in (None, role):
            raise ConfigError(
                f"the {role} of a run is called '{role}', got '{name}'. Leave {flag} out.",
                rule="cli.name.given-to-sole-role",
            )
        return role
    if name is None:
        raise ConfigError(
            f"the role {role} needs a name. Pass {flag}, such as {flag} clinic-b.",
            rule="cli.name.missing",
        )
    if name in {*sole, NO_PART}:
        raise ConfigError(
            f"'{name}' is the name of a role, got it for the role {role}. Choose another name.",
            rule="cli.name.is-a-role",
        )
    return name


def _token_entry(row: TokenRow) -> dict[str, object]:
    return {
        "name": row.name,
        "role": row.role,
        "state": row.state,
        "made": row.made.isoformat(),
        "expires": row.expires.isoformat(),
        "hosts": list(row.hosts),
        "serial": row.serial,
        "refusals": row.refusals,
        "last_refusal": row.last_refusal,
    }


def _certificate_entry(row: CertificateRow, now: datetime) -> dict[str, object]:
    return {
        "serial": row.serial,
        "name": row.name,
        "role": row.role,
        "state": _state(row, now),
        "key": row.key.hex(),
        "issued": row.issued.isoformat(),
        "expires": row.expires.isoformat(),
        "revoked": row.revoked and row.revoked.isoformat(),
    }


def _state(row: CertificateRow, now: datetime) -> str:
    if row.revoked is not None:
        return "revoked"
    return "valid" if now < row.expires else "expired"


def _refusals(row: TokenRow) -> str:
    return f"{row.refusals} ({row.last_refusal})" if row.refusals else ""


def _fingerprint(authority: Authority) -> str:
    from posse.runtime.certificates.making import spoken

    return spoken(authority.fingerprint)
