"""A federation that lives: `posse federation create`, `serve`, `submit`, `queue`, and what its operators ask of
a service.
"""

from __future__ import annotations

import asyncio
import json as json_module
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.operators.ca import PassphraseFile, name_for, new_passphrase, passphrase_of
from posse.cli.operators.watch import cannot_listen, sentence, wait_for
from posse.cli.screen import bullets, heading, print_json, remark, say, table
from posse.core.errors import ConfigError, DataError, LinkError, PosseError
from posse.core.files import forbid_core_dumps, make_private_folder
from posse.core.settings import read_toml
from posse.version import __version__

if TYPE_CHECKING:
    from posse.runtime.network.health import Status

File = Annotated[Path, typer.Argument(help="The file of a service.", metavar="FILE")]
At = Annotated[
    Path, typer.Option("--at", help="The file of the founder's service.", metavar="FILE")
]
Through = Annotated[
    Path,
    typer.Option("--at", help="File of the founder's service, or a customer's.", metavar="FILE"),
]
RunFile = Annotated[Path, typer.Argument(help="The run's file.", metavar="FILE")]
FederationName = Annotated[str, typer.Argument(help="Name of the federation.", metavar="NAME")]
Place = Annotated[
    Path | None, typer.Option(help="Folder to make; called as the federation if not given.")
]
FounderRole = Annotated[
    str, typer.Option(help="Role that the founder has in runs; operator for none.", metavar="ROLE")
]
FounderName = Annotated[
    str | None, typer.Option(help="Its name; that of its role if not given.", metavar="NAME")
]
Listen = Annotated[str, typer.Option(help="host:port where members call.", metavar="HOST:PORT")]
EnrolAt = Annotated[
    str, typer.Option("--enrol", help="host:port where tokens are used.", metavar="HOST:PORT")
]
Days = Annotated[
    float, typer.Option(help="Days for which the founder's certificate counts.", metavar="NUMBER")
]
Member = Annotated[str, typer.Argument(help="Name of a member.", metavar="NAME")]
Cancelled = Annotated[str, typer.Option("--cancel", help="Drop this run.", metavar="RUN")]
Complete = Annotated[
    bool, typer.Option("--complete", help="State that a restored queue or ledger lacks no run.")
]
NewKey = Annotated[bool, typer.Option("--new-key", help="Draw a new key too, between runs.")]
Protected = Annotated[bool, typer.Option("--passphrase", help="Encrypt the authority's key.")]
EVERY, PATIENCE = 0.3, 20.0
"""Seconds between two looks at a run, and until an answer must be here."""
ANSWER = 60.0
"""Seconds in which a service does what it is asked: for a run's settings it may have to load a
system and its data.
"""
UNCOUNTED = "{}: lower the limits of [consent] by what they asked, then pass --complete"
RESTORED = "of a backup: when it lacks no run that started since, pass --complete"


def create(
    name: FederationName,
    folder: Place = None,
    role: FounderRole = "customer",
    called: FounderName = None,
    listen: Listen = "127.0.0.1:7400",
    enrol: EnrolAt = "127.0.0.1:7710",
    days: Days = 90,
    passphrase: Protected = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Create a federation: authority, your identity and service file.

    Examples:
        posse federation create hospitals
        posse federation create hospitals --listen 0.0.0.0:7400
    """
    from posse.runtime.certificates.authority import Authority, Desk
    from posse.runtime.certificates.enrolment import complete, prepare
    from posse.runtime.federation.talk import QUEUE
    from posse.runtime.local import AUTHORITY, write_party
    from posse.runtime.place import address

    own = name_for(role, called, "--called")
    place = folder or Path(name)
    for where in (listen, enrol):
        address(where)
    secret = new_passphrase(passphrase, passphrase_file)
    authority = Authority.init(place / AUTHORITY, own, name, passphrase=secret)
    token = authority.token(role, own, days=days)
    now = authority.now()
    complete(token, place / own, Desk(authority).answer(prepare(token, place / own, now)).data, now)
    addresses = {"listen": listen, "enrol": enrol}
    values = {"identity": own, "founder": own, "authority": AUTHORITY, **addresses}
    file = write_party(place / f"{own}.toml", values)
    make_private_folder(place / AUTHORITY / QUEUE)
    say(
        f"founded '{name}' in {place}: its authority, the identity of {role} '{own}', and "
        f"{file.name}"
    )
    bullets(
        [
            f"start its service: posse party serve {file}",
            f"for every member: posse federation ca token --ca {place / AUTHORITY} --role ROLE --name NAME "
            f"--address {enrol}",
            f'in the file of every member: home = "{listen}" (as members reach it), founder = '
            f'"{own}"',
            f"propose a run: posse federation submit RUN.toml --at {file}",
        ]
    )


def serve(file: File, passphrase_file: PassphraseFile = None) -> None:
    """Be a member of a federation: take part in run after run.

    It takes part in what the consent of its file allows, until it is stopped.

    Examples:
        posse party serve clinic-b.toml
    """
    from posse.runtime.federation.place import open_service
    from posse.runtime.federation.service import Living
    from posse.runtime.network.operate import json_log
    from posse.systems.parties import functions_for_service

    forbid_core_dumps()
    place = open_service(file)
    sys.path.insert(
        0, str(file.resolve().parent)
    )  # modules of sources are next to the service's file

    async def run() -> None:
        log = json_log(place.identity.name, least=place.file.log)
        living = Living(file, functions_for_service(remark), log, passphrase_of(passphrase_file))
        log("started", federation=living.member.identity.run, version=__version__)
        await living.run()
        log("stopped")

    try:
        asyncio.run(run())
    except OSError as error:
        cannot_listen(error, file)


def submit(run: RunFile, at: Through, json: flags.Json = False) -> None:
    """Propose a run to a federation, and print its result.

    The same command follows the run again after an interruption.

    Examples:
        posse federation submit run.toml --at hospitals/customer.toml
        posse federation submit run.toml --at clinic-b.toml --json
    """
    values = read_toml(run)
    status = _ask(at, f"submit {json_module.dumps(values, default=str)}")
    _remark_on(values)
    try:
        status = _follow(at, status)
    except KeyboardInterrupt:
        remark(
            f"run '{status['run']}' continues; follow it with the same command, drop it with: "
            f"posse federation queue {at} --cancel {status['run']}"
        )
        raise typer.Exit(INTERRUPTED) from None
    _finish(status, json)


def _remark_on(values: Mapping[str, object]) -> None:
    """Print what the user who proposes a run should know about its settings."""
    from posse.runtime.federation.talk import Proposal
    from posse.systems.parties import make_invitation

    # The founder's service reports settings that are wrong.
    with suppress(PosseError):
        proposal = Proposal.make("", values)
        for text in make_invitation(proposal.system, proposal.values).remarks:
            remark(text)


def _follow(at: Path, status: Status) -> Status:
    """Print how far a run is whenever that changes, until it is over.

    A service may be restarted meanwhile.
    """
    last_line = ""
    missed = 0.0
    while status["phase"] not in ("over", "dropped", "refused"):
        if (line := _line(status)) != last_line:
            remark(line)
            last_line = line
        time.sleep(EVERY)
        try:
            status = _ask(at, f"follow {status['run']}")
            missed = 0.0
        except LinkError:
            missed += EVERY
            if missed > PATIENCE:
                raise
    return status


def _line(status: Status) -> str:
    line = f"run '{status['run']}' is {status['phase']}"
    if status["without"]:
        line += f", without {', '.join(status['without'])}"
    if waiting := [f"{name} ({why})" for name, why in status["waiting"].items()]:
        line += f"; waiting for {', '.join(waiting)}"
    return line


def _finish(status: Status, as_json: bool) -> None:
    from posse.systems.parties import read_result

    if status["phase"] == "refused":
        raise PosseError(
            f"run '{status['run']}' is not in the queue: {status['text']}", rule="cli.run.refused"
        )
    if status["phase"] == "dropped":
        raise PosseError(
            f"run '{status['run']}' was dropped: {status['text'].rstrip('.')}. To propose it again, "
            "change its name.",
            rule="cli.run.dropped",
        )
    result = read_result(Path(status["journal"])) if status["journal"] else {}
    if as_json:
        print_json(result or {"run": status["run"]})
    else:
        outcome = {"run": status["run"], "outcome": "the parts of all are over"}
        say(sentence(result or outcome), style="bold")


def queue(
    file: File, cancel: Cancelled = "", complete: Complete = False, json: flags.Json = False
) -> None:
    """Show a service: its members, runs and limits.

    Examples:
        posse federation queue hospitals/customer.toml
        posse federation queue hospitals/customer.toml --cancel trial-8
    """
    if complete:
        _ask(file, "complete")
    if cancel:
        status = _ask(file, f"cancel {cancel}")
        if status and (status := _follow(file, status))["phase"] != "dropped":
            raise PosseError(
                f"run '{cancel}' is not dropped: {status['text'] or 'it is over'}",
                rule="cli.run.not-dropped",
            )
        say(f"dropped run '{cancel}'")
        return
    status = _ask(file, "status")
    if json:
        print_json(status)
        return
    heading(f"{status['role']} '{status['service']}' of federation '{status['federation']}'")
    table(("service", status["service"]), _facts(status))
    if "members" in status:
        _show_queue(status)
        return
    parts = [(run, part["state"], part["text"]) for run, part in status["parts"].items()]
    table(("run", "state", "why"), parts)


def _facts(status: Status) -> list[tuple[str, str]]:
    """Return what a service says of itself; a service of the release before has fewer facts."""
    spent = status["spent"]
    limits = f"epsilon {spent['epsilon']:g}, delta {spent['delta']:g}"
    uncounted = ", ".join(status["uncounted"])
    return [
        ("process", str(status["pid"])),
        ("certificate until", status["until"][:16].replace("T", " ")),
        *_fact("founder", "{}", status.get("home")),
        ("asked of it in all", f"{spent['runs']} runs, {spent['decisions']:,} decisions, {limits}"),
        *_fact("its file", "{}", status.get("edited")),
        *_fact("since its backup, not counted", UNCOUNTED, uncounted),
        *_fact("queue", RESTORED, status.get("queue_restored")),
    ]


def _fact(name: str, text: str, value: object) -> list[tuple[str, str]]:
    return [(name, text.format(value))] if value else []


def _show_queue(status: Status) -> None:
    """Print the members and runs that a founder has."""
    connected = {True: "yes", False: "no"}
    members = [
        (name, member["role"], connected[member["connected"]])
        for name, member in status["members"].items()
    ]
    table(("member", "role", "connected"), members)
    runs = []
    for run in status["runs"]:
        waiting = [f"waiting for {name}: {why}" for name, why in run["waiting"].items()]
        runs.append((run["run"], run["system"], run["phase"], run["text"] or ", ".join(waiting)))
    table(("run", "system", "state", "why"), runs)


def expel(name: Member, at: At) -> None:
    """Expel a member, and revoke its certificate.

    Runs that it is in end without it where they can.

    Examples:
        posse federation expel clinic-b --at hospitals/customer.toml
    """
    if "members" not in (status := _ask(at, "status")):
        raise ConfigError(
            f"only the founder expels; {at} is the file of {status['role']} '{status['service']}'.",
            rule="cli.at.not-the-founder",
        )
    _ask(at, f"expel {name}")
    say(f"expelled '{name}': all members are informed, and its connections are cut")


def leave(file: File) -> None:
    """Leave a federation, between runs.

    The founder revokes this member's certificate, and its service stops.

    Examples:
        posse party leave clinic-b.toml
    """
    answer = _ask(file, "leave")
    end = time.monotonic() + PATIENCE
    while answer == "asked" and time.monotonic() < end:
        time.sleep(0.1)
        try:
            answer = _ask(file, "leave")
        except LinkError:
            answer = "left"  # its service has stopped
    if answer != "left":
        raise ConfigError(f"it has not left: {answer}", rule="cli.service.not-left")
    say("left the federation; its service has stopped, and its journals stay")


def renew(file: File, new_key: NewKey = False) -> None:
    """Renew a member's certificate now.

    A service renews it automatically before it expires.

    Examples:
        posse party renew clinic-b.toml
        posse party renew clinic-b.toml --new-key
    """
    before = _ask(file, "status")["serial"]
    _ask(file, "renew new" if new_key else "renew")
    wait_for(lambda: _ask(file, "status")["renewal"] != "asked", PATIENCE)
    status = _ask(file, "status")
    if status["serial"] == before:
        raise LinkError(
            f"the certificate is not renewed: {status['renewal']}",
            rule="cli.certificate.not-renewed",
        )
    say(f"renewed, until {status['until'][:16].replace('T', ' ')} UTC; open connections stay")


def is_service(file: Path) -> bool:
    """Return whether a file is that of a service, and not of one party in one run."""
    values = read_toml(file)
    return "protocol" not in values and bool({"home", "authority"} & set(values))


def stop_service(file: Path) -> None:
    """Stop a service and its parties; started again, it continues with all its runs."""
    _ask(file, "stop")
    if not wait_for(lambda: not _process(file), PATIENCE):
        raise LinkError(
            f"the service was asked to stop and runs still after {PATIENCE:g} s. See its log.",
            rule="cli.service.not-stopped",
        )
    say(f"stopped; continue with: posse party serve {file}")


def _process(file: Path) -> int:
    from posse.runtime.journal import holder

    return holder(_runs(file))


def _runs(path: Path) -> Path:
    """Return the folder of all runs of a service."""
    from posse.runtime.federation.place import ServiceFile

    return path.resolve().parent / ServiceFile.make(file=path).runs


def _ask(path: Path, command: str) -> Any:
    """Ask the service of a file; one of another member, which has the same folder of runs, is asked
    nothing.
    """
    from posse.runtime.federation.place import check_answers

    if len(command) > 60_000:
        raise DataError(
            f"a run's file may have 60,000 characters, got {len(command):,}.",
            rule="cli.run.too-long",
        )
    status = _answer(path, "status", PATIENCE)
    check_answers(path, status)
    return status if command == "status" else _answer(path, command, ANSWER)


def _answer(path: Path, command: str, patience: float) -> Any:
    from posse.runtime.network.health import not_answering
    from posse.runtime.network.operate import ask

    folder = _runs(path)
    try:
        return asyncio.run(ask(folder, command, patience=patience))
    except LinkError as error:
        _, refused, why = error.text.partition("answers: ")
        if refused:
            raise PosseError(why, rule="cli.service.refused") from None
        if frozen := not_answering(folder):
            raise LinkError(
                f"the service of {path} does not answer: {frozen}.", rule="cli.service.stuck"
            ) from None
        raise LinkError(
            f"no service of {path} answers. Start it with: posse party serve {path}",
            rule="cli.service.not-running",
        ) from None
