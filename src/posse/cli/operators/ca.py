"""`posse federation ca`, the customer's authority, which certifies the parties of a run, and
`posse party enrol`, by which a party joins it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from posse.cli import flags
from posse.cli.screen import heading, in_terminal, print_json, remark, say, table_of
from posse.core.check import suggestion
from posse.core.errors import ConfigError, DataError, EnrolmentError
from posse.core.files import PRIVATE, check_private, forbid_core_dumps, read_credential, write_whole
from posse.runtime.certificates.authority import Authority, Desk, Reply, utc_now
from posse.runtime.certificates.enrolment import EnrolmentServer, ask, complete, prepare
from posse.runtime.certificates.making import spoken
from posse.runtime.certificates.names import NO_PART, split_address
from posse.runtime.certificates.register import CertificateRow, TokenRow
from posse.runtime.certificates.tokens import LONGEST, Refused, Token, refused
from posse.runtime.federation.talk import QUEUE
from posse.systems.parties import deployed_systems

PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="File with the passphrase of the authority's key.", metavar="FILE"),
]
Folder = Annotated[Path, typer.Option("--ca", help="Folder of the authority.", metavar="FOLDER")]
Port = Annotated[
    int,
    typer.Option(help="Port to listen on; 0 for a free one.", min=0, max=65535, metavar="INTEGER"),
]
HERE = Path("posse-ca")
TOKEN = (
    "name",
    "role",
    "state",
    "made",
    "expires",
    "hosts",
    "serial",
    "refusals",
    "last_refusal",
)
CERTIFICATE = ("serial", "name", "role", "issued", "expires", "revoked")
"""What lists show of a token and of a certificate."""
COLUMNS = {"name": "name", "role": "role", "state": "state", "until (UTC)": "until"}


def init(
    *,
    run: str,
    ca: Folder = HERE,
    name: str = "customer",
    passphrase: bool = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the authority of a run.

    Options:
        run (TEXT): Name of the run: a-z, 0-9 and -.
        name (TEXT): Name of the authority: a-z, 0-9 and -.
        passphrase: Encrypt the key; asks for a passphrase.

    Examples:
        posse federation ca init --run trial-7
        posse federation ca init --run trial-7 --passphrase
    """
    secret = new_passphrase(passphrase, passphrase_file)
    authority = Authority.init(ca, name, run, passphrase=secret)
    expires = authority.certificate.not_valid_after_utc
    remark(
        f"made the authority '{name}' of run '{run}' in {ca}, valid until {expires:%Y-%m-%d}.",
        f"fingerprint: {_fingerprint(authority)}",
    )
    if secret is None:
        remark(
            f"{ca / 'ca.key'} is not encrypted (--passphrase): who reads it can pose as any party."
        )
    remark(f"next, for every party: posse federation ca token --ca {ca} --role ROLE --name NAME")


def token(
    *,
    role: str,
    name: str | None = None,
    ca: Folder = HERE,
    host: list[str] = flags.NONE_GIVEN,
    address: str = "",
    minutes: int = 15,
    days: float = 90,
    out: Path | None = None,
    json: flags.Json = False,
) -> None:
    """Make a token that lets one party enrol once.

    Only the token goes to stdout.

    Options:
        role (TEXT): Role of the party in its system; an error lists the roles.
        name (TEXT): Name of the party: a-z, 0-9 and -. Default: the role, where one party has it.
        host (HOST): DNS name or IP address that its certificate may show.
        address (HOST:PORT): Where the party reaches 'posse federation ca serve'; goes into the
            token.
        minutes (INTEGER): How long the token can be used.
        days (NUMBER): How long the certificate will be valid.
        out (-o FILE): Write the token to a new file that only you can read.

    Examples:
        posse federation ca token --role owner --name clinic-b
        posse federation ca token --role comp --out comp.token
    """
    name = name_for(role, name)
    ticket = _authority(ca).token(
        role, name, minutes=minutes, hosts=host, days=days, address=address
    )
    if json:
        values = {"token": ticket.text(), "run": ticket.peer.run, "role": role, "name": name}
        values |= {"expires": ticket.expires.isoformat(), "authority": ticket.fingerprint.hex()}
        print_json({**values, "address": ticket.address, "hosts": host})
        return
    if out is None:
        print(ticket.text(), flush=True)
    else:
        write_whole(out, f"{ticket.text()}\n".encode(), mode=PRIVATE, replace=False)
    where = "" if address else " --address HOST:PORT"
    serve = f"posse federation ca serve --ca {ca}"
    if (ca / QUEUE).is_dir():
        serve = "posse party serve, with the founder's file"
    remark(
        f"for {ticket.peer}, once, until {ticket.expires:%H:%M} UTC ({minutes} min).",
        "send it to that party by a channel you trust, not over this network: who has it first can "
        "enrol.",
        f"they run: posse party enrol --token-file FILE{where}; here runs: {serve}",
    )


def serve(
    *,
    ca: Folder = HERE,
    bind: str = "127.0.0.1",
    port: Port = 7710,
    keep: bool = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Answer requests on a port until all open tokens are used.

    It also ends when they have expired, or by Ctrl-C.

    Options:
        bind (ADDRESS): Address to listen on; 0.0.0.0 for all.
        keep: Continue when no token is open, until Ctrl-C.

    Examples:
        posse federation ca serve
        posse federation ca serve --bind 0.0.0.0 --keep
    """
    authority = _authority(ca, passphrase_file)
    if not keep and not authority.register.open_tokens(authority.now()):
        raise ConfigError(
            "no token is open. Make one with 'posse federation ca token', or pass --keep to wait "
            "for one.",
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
    authority = desk.authority
    server = EnrolmentServer(desk, decided=_print_decision)
    try:
        host, bound = await server.start(bind, port)
        shown_host = f"[{host}]" if ":" in host else host
        remark(
            f"taking requests on {shown_host}:{bound}; the authority's fingerprint is "
            f"{_fingerprint(authority)}."
        )
        if host in ("127.0.0.1", "::1"):
            remark("only this machine reaches that address; --bind 0.0.0.0 lets others in.")
        for row in authority.register.open_tokens(authority.now()):
            remark(f"waiting for {row.role} '{row.name}', until {row.expires:%H:%M} UTC.")
        await (asyncio.Event().wait() if keep else server.until_used())
    finally:
        await server.close()


def _print_decision(reply: Reply, address: str) -> None:
    if reply.reason:
        remark(f"refused a {_request(reply)} from {address}: {reply.reason}.")
        if reply.reason == "used":
            remark("somebody else may hold that token: ask that party.")
        return
    again = " again: its first answer was lost" if reply.repeated else ""
    remark(f"enrolled {reply.peer}{again} (serial {reply.serial}), from {address}.")


def _request(reply: Reply) -> str:
    """Return words for a request: with its party, if the request has an open token."""
    return "request" if reply.peer is None else f"request for {reply.peer}"


def sign(
    file: Path, *, out: Path, ca: Folder = HERE, passphrase_file: PassphraseFile = None
) -> None:
    """Answer a request that came as a file.

    Options:
        file (FILE): What 'posse party enrol --request' wrote.
        out (-o FILE): Where to write the answer.

    Examples:
        posse federation ca sign clinic-b.request --out clinic-b.answer
    """
    data = _read(file, "request")
    reply = Desk(_authority(ca, passphrase_file)).answer(data)
    if reply.reason:
        raise EnrolmentError(
            f"the {_request(reply)} is refused: {refused(Refused(reply.reason)).text}",
            reply.reason,
            rule="cli.request.refused",
        )
    write_whole(out, reply.data)
    remark(
        f"enrolled {reply.peer} (serial {reply.serial}).",
        f"send {out} back; they run: posse party enrol TOKEN --answer {out.name}",
    )


def list_all(*, ca: Folder = HERE, json: flags.Json = False) -> None:
    """List tokens and certificates.

    Examples:
        posse federation ca list
        posse federation ca list --json
    """
    authority = _authority(ca)
    rows, issued = authority.list()
    tokens = [_plain(row, TOKEN) for row in rows]
    certificates = [_certificate(row, authority.now()) for row in issued]
    if json:
        values = {"run": authority.run, "authority": authority.fingerprint.hex()}
        print_json({**values, "tokens": tokens, "certificates": certificates})
        return
    heading(f"Run {authority.run}, authority {authority.name} ({_fingerprint(authority)})")
    if not tokens and not certificates:
        say("No parties yet. Make a token with: posse federation ca token --role ROLE --name NAME")
    more = {
        "Certificates": (certificates, {"serial": "serial"}),
        "Tokens": (tokens, {"refused requests": "refusals", "last refusal": "last_refusal"}),
    }
    for title, (entries, columns) in more.items():
        if entries:
            heading(title)
            dated = [{**each, "until": each["expires"][:16].replace("T", " ")} for each in entries]
            table_of(dated, {**COLUMNS, **columns})


def _certificate(row: CertificateRow, now: datetime) -> dict[str, Any]:
    state = "valid" if now < row.expires else "expired"
    if row.revoked is not None:
        state = "revoked"
    return {**_plain(row, CERTIFICATE), "key": row.key.hex(), "state": state}


def _plain(row: TokenRow | CertificateRow, names: Sequence[str]) -> dict[str, Any]:
    """Return values of a row as JSON has them; other values stay with the authority."""
    values: dict[str, Any] = {}
    for name in names:
        value = getattr(row, name)
        values[name] = value.isoformat() if isinstance(value, datetime) else value
    return values


def revoke(which: str, *, ca: Folder = HERE, passphrase_file: PassphraseFile = None) -> None:
    """Revoke a certificate, or all certificates and open tokens of a party.

    Options:
        which (NAME): Name of a party, or serial of a certificate.

    Examples:
        posse federation ca revoke clinic-b
        posse federation ca crl --out crl.pem
    """
    serials = _authority(ca, passphrase_file).revoke(which)
    done = f"withdrew the open tokens of {which}."
    if serials:
        done = f"revoked {', '.join(serials)}."
    remark(
        done,
        f"give every party the new list {ca / 'crl.pem'}: it replaces crl.pem in its folder.",
    )


def crl(
    *, ca: Folder = HERE, out: Path | None = None, passphrase_file: PassphraseFile = None
) -> None:
    """Sign the present revocation list, for every party's crl.pem.

    Options:
        out (-o FILE): Where to write the list (default: stdout).

    Examples:
        posse federation ca crl
        posse federation ca crl --out crl.pem
    """
    pem = _authority(ca, passphrase_file).crl()
    if out is None:
        sys.stdout.write(pem.decode())
        return
    write_whole(out, pem)
    remark(f"wrote {out}; it replaces crl.pem in every party's folder.")


# The party's side ---------------------------------------------------------------------------------


def enrol(
    token: str | None = None,
    *,
    token_file: Path | None = None,
    address: str | None = None,
    out: Path | None = None,
    request: Path | None = None,
    answer: Path | None = None,
) -> None:
    """Join a run with the customer's token.

    The key is drawn on this machine and stays here.

    Options:
        token (TOKEN): The token that the customer sent; '-' reads it from stdin, out of others'
            sight.
        token_file (FILE): File with the token, which only you may read.
        address (HOST:PORT): Where the authority listens (default: as the token says).
        out (-o FOLDER): Folder of the identity (default: the name).
        request (FILE): Write the request here; send it yourself.
        answer (FILE): Read the answer that came back from here.

    Examples:
        posse party enrol --token-file token
        posse party enrol --token-file token --request clinic-b.request
    """
    if [address, request, answer].count(None) < 2:
        raise ConfigError(
            "--address, --request and --answer are three ways to enrol. Pass one of them.",
            rule="cli.address.several-ways",
        )
    forbid_core_dumps()
    ticket = Token.read(_token_text(token, token_file))
    folder = out or Path(ticket.peer.name)
    if request is not None:
        write_whole(request, prepare(ticket, folder, utc_now()))
        remark(
            f"drew the key of {ticket.peer} in {folder} and wrote the request.",
            f"send {request} to the customer, who runs: posse federation ca sign {request.name} "
            "--out ANSWER",
            f"then: posse party enrol TOKEN --answer ANSWER --out {folder}",
        )
        return
    if answer is not None:
        data = _read(answer, "answer")
    else:
        where = _address_of(ticket, address)
        data = asyncio.run(ask(ticket, prepare(ticket, folder, utc_now()), *where))
    enrolled = complete(ticket, folder, data, utc_now())
    remark(
        f"enrolled {enrolled.peer}, valid until {enrolled.expires:%Y-%m-%d} (serial "
        f"{enrolled.serial}).",
        f"wrote party.key, party.crt, ca.crt and crl.pem in {folder}; party.key stays there.",
        f"fingerprint of your key:      {spoken(enrolled.key_fingerprint)}",
        f"fingerprint of the authority: {spoken(enrolled.authority_fingerprint)}",
    )


def _address_of(ticket: Token, address: str | None) -> tuple[str, int]:
    where = address or ticket.address
    if not where:
        raise ConfigError(
            "the token does not have the authority's address. Pass --address host:port, or "
            "--request FILE to send the request yourself.",
            rule="cli.address.missing",
        )
    return split_address(where)


def _token_text(token: str | None, file: Path | None) -> str:
    """Return the token; on a command line every user of the machine sees it."""
    if (token is None) == (file is None):
        raise ConfigError(
            "one token is needed. Pass --token-file FILE, or - to read it from stdin.",
            rule="cli.token.missing",
        )
    if file is not None:
        check_private(file)
        data = read_credential(file, "the token", "Save there what the customer sent.")
        return data[:4096].decode("utf-8", "replace")
    if token != "-":
        return str(token)
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True))
    try:
        return sys.stdin.read(4096)
    except UnicodeDecodeError as error:
        raise EnrolmentError(
            "the bytes on stdin are not a token. Pass the text that 'posse federation ca token' "
            "printed.",
            rule="cli.token.not-a-token",
        ) from error


# What both need -----------------------------------------------------------------------------------


def _read(path: Path, what: str) -> bytes:
    """Read a request or an answer; no more of it than one can have."""
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
        prompt = "Passphrase of the authority"
        text = typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True)
        return str(text).encode()

    return ask


def new_passphrase(requested: bool, file: Path | None) -> bytes | None:
    """Return the passphrase for a new key; None for a key that is not encrypted."""
    return passphrase_of(file, confirm=True)() if requested or file is not None else None


def name_for(role: str, name: str | None, flag: str = "--name") -> str:
    """Return the party's name; the only party of its role has the name of the role.

    Args:
        role: Its role.
        name: The name that the user gave, if any.
        flag: The flag with the name, for errors.
    """
    kinds = [kind for system in deployed_systems() for kind in system.roles if kind.party]
    sole = {kind.kind for kind in kinds if kind.sole}
    roles = (*dict.fromkeys(kind.kind for kind in kinds), NO_PART)
    if role not in roles:
        raise ConfigError(
            f"unknown role '{role}'.{suggestion(role, roles)}", rule="cli.role.unknown"
        )
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


def _fingerprint(authority: Authority) -> str:
    return spoken(authority.fingerprint)
