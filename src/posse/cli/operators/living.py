"""A federation that lives: `posse federation create`, `serve`, `submit`, `queue`, and what its operators ask of
a service.
"""

from __future__ import annotations

import asyncio
import json as json_module
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.operators.ca import passphrase_of
from posse.cli.screen import bullets, heading, print_json, remark, say, table
from posse.core.errors import ConfigError, DataError, LinkError, PosseError

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
    bool, typer.Option("--complete", help="Say that a restored queue or ledger lacks no run.")
]
NewKey = Annotated[bool, typer.Option("--new-key", help="Draw a new key too, between runs.")]
Protected = Annotated[bool, typer.Option("--passphrase", help="Encrypt the authority's key.")]
PassphraseFile = Annotated[
    Path | None, typer.Option(help="File with the passphrase of the authority's key.")
]
EVERY, PATIENCE = 0.3, 20.0
"""Seconds between two looks at a run, and until an answer must be here."""
ANSWER = 60.0
"""Seconds in which a service does what it is asked: for a run's settings it may have to load a
system and its data.
"""


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
    from posse.cli.operators.ca import name_for
    from posse.core.files import make_private_folder
    from posse.runtime.certificates.authority import Authority, Desk
    from posse.runtime.certificates.enrolment import complete, prepare
    from posse.runtime.federation.talk import QUEUE
    from posse.runtime.local import AUTHORITY, write_party
    from posse.runtime.place import address

    own, place = name_for(role, called, "--called"), folder or Path(name)
    for where in (listen, enrol):
        address(where)
    secret = (
        passphrase_of(passphrase_file, confirm=True)() if passphrase or passphrase_file else None
    )
    authority = Authority.init(place / AUTHORITY, own, name, passphrase=secret)
    token = authority.token(role, own, days=days)
    now = authority.now()
    complete(token, place / own, Desk(authority).answer(prepare(token, place / own, now)).data, now)
    values = {
        "identity": own,
        "founder": own,
        "authority": AUTHORITY,
        "listen": listen,
        "enrol": enrol,
    }
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
    import sys

    from posse.core.files import forbid_core_dumps
    from posse.runtime.federation.place import open_service
    from posse.runtime.federation.service import Living
    from posse.runtime.network.operate import json_log
    from posse.systems.parties import functions_for_service
    from posse.version import __version__

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
        from posse.cli.operators.federation import cannot_listen

        cannot_listen(error, file)


def submit(run: RunFile, at: Through, json: flags.Json = False) -> None:
    """Propose a run to a federation, and print its result.

    The same command follows the run again after an interruption.

    Examples:
        posse federation submit run.toml --at hospitals/customer.toml
        posse federation submit run.toml --at clinic-b.toml --json
    """
    from posse.core.settings import read_toml

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


def _remark_on(values: Mapping[str, Any]) -> None:
    """Print what the user who proposes a run should know about its settings."""
    from posse.runtime.federation.talk import Proposal
    from posse.systems.parties import make_invitation

    # The founder's service reports settings that are wrong.
    with suppress(PosseError):
        proposal = Proposal.make("", values)
        for text in make_invitation(proposal.system, proposal.values).remarks:
            remark(text)


def _follow(at: Path, status: dict[str, Any]) -> dict[str, Any]:
    """Say how far a run is whenever that changes, until it is over; a service that is started again
    is waited for.
    """
    last_line, missed = "", 0.0
    while status["phase"] not in ("over", "dropped", "refused"):
        if (line := _line(status)) != last_line:
            remark(line)
            last_line = line
        time.sleep(EVERY)
        try:
            status, missed = _ask(at, f"follow {status['run']}"), 0.0
        except LinkError:
            missed += EVERY
            if missed > PATIENCE:
                raise
    return status


def _line(status: Status) -> str:
    waiting = ", ".join(f"{name} ({why})" for name, why in status["waiting"].items())
    without = f", without {', '.join(status['without'])}" if status["without"] else ""
    return (
        f"run '{status['run']}' is "
        f"{status['phase']}{without}{f'; waiting for {waiting}' if waiting else ''}"
    )


def _finish(status: Status, as_json: bool) -> None:
    from posse.cli.operators.federation import sentence
    from posse.systems.parties import read_result

    if status["phase"] == "refused":
        raise PosseError(
            f"run '{status['run']}' is not in the queue: {status['text']}", rule="cli.run.refused"
        )
    if status["phase"] == "dropped":
        raise PosseError(
            f"run '{status['run']}' was dropped: {status['text'].rstrip('.')}. To propose it again, "
            "give it another name.",
            rule="cli.run.dropped",
        )
    result = read_result(Path(status["journal"])) if status["journal"] else {}
    if as_json:
        print_json(result or {"run": status["run"]})
    else:
        say(
            sentence(result) if result else f"run {status['run']}: the parts of all are over",
            style="bold",
        )


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
    rows = [
        ("process", str(status["pid"])),
        ("certificate until", status["until"][:16].replace("T", " ")),
    ]
    rows += [("founder", status["home"])] if "home" in status else []
    spent = status["spent"]
    rows.append(
        (
            "asked of it in all",
            f"{spent['runs']} runs, {spent['decisions']:,} decisions, epsilon "
            f"{spent['epsilon']:g}, delta {spent['delta']:g}",
        )
    )
    if status.get("edited"):  # a service of the release before does not say it
        rows.append(("its file", status["edited"]))
    if status["uncounted"]:
        rows.append(
            (
                "since its backup, not counted",
                f"{', '.join(status['uncounted'])}: lower the limits of [consent] "
                "by what they asked, then say --complete",
            )
        )
    if status.get("queue_restored"):
        rows.append(
            ("queue", "of a backup: when it lacks no run that started since, say --complete")
        )
    table(("service", status["service"]), rows)
    if "members" in status:
        members = [
            (name, one["role"], "yes" if one["connected"] else "no")
            for name, one in status["members"].items()
        ]
        table(("member", "role", "connected"), members)
        runs = []
        for one in status["runs"]:
            waiting = ", ".join(
                f"waiting for {name}: {why}" for name, why in one["waiting"].items()
            )
            runs.append((one["run"], one["system"], one["phase"], one["text"] or waiting))
        table(("run", "system", "state", "why"), runs)
    else:
        table(
            ("run", "state", "why"),
            [(run, one["state"], one["text"]) for run, one in status["parts"].items()],
        )


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
    say(f"expelled '{name}': all members are told, and its connections are cut")


def leave(file: File) -> None:
    """Leave a federation, between runs.

    The founder revokes this member's certificate, and its service stops.

    Examples:
        posse party leave clinic-b.toml
    """
    answer = _wait(file, "leave", "left")
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
    answer = _ask(file, f"renew {'new' if new_key else ''}".strip())
    end = time.monotonic() + PATIENCE
    while answer == "asked" and time.monotonic() < end:
        time.sleep(0.1)
        answer = _ask(file, "status")["renewal"]
    status = _ask(file, "status")
    if status["serial"] == before:
        raise LinkError(
            f"the certificate is not renewed: {answer}", rule="cli.certificate.not-renewed"
        )
    say(f"renewed, until {status['until'][:16].replace('T', ' ')} UTC; open connections stay")


def is_service(file: Path) -> bool:
    """Say whether a file is that of a service, and not of one party in one run."""
    from posse.core.settings import read_toml

    values = read_toml(file)
    return "protocol" not in values and bool({"home", "authority"} & set(values))


def stop_service(file: Path) -> None:
    """Stop a service and its parties; started again, it continues with all its runs."""
    _ask(file, "stop")
    end = time.monotonic() + PATIENCE
    while _process(file):
        if time.monotonic() > end:
            raise LinkError(
                f"the service was asked to stop and runs still after {PATIENCE:g} s. See its log.",
                rule="cli.service.not-stopped",
            )
        time.sleep(0.1)
    say(f"stopped; continue with: posse party serve {file}")


def _process(file: Path) -> int:
    from posse.runtime.journal import holder

    return holder(file.resolve().parent / _file(file).runs)


def _wait(file: Path, command: str, expected: str) -> str:
    """Ask until the founder has answered; a service that has stopped has done what was asked."""
    answer, end = str(_ask(file, command)), time.monotonic() + PATIENCE
    while answer == "asked" and time.monotonic() < end:
        time.sleep(0.1)
        try:
            answer = str(_ask(file, command))
        except LinkError:
            return expected
    return answer


def _file(path: Path) -> Any:
    from posse.runtime.federation.place import ServiceFile

    return ServiceFile.make(file=path)


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

    folder = path.resolve().parent / _file(path).runs
    try:
        return asyncio.run(ask(folder, command, patience=patience))
    except LinkError as error:
        if "answers: " in error.text:
            raise PosseError(
                error.text.partition("answers: ")[2], rule="cli.service.refused"
            ) from None
        if frozen := not_answering(folder):
            raise LinkError(
                f"the service of {path} does not answer: {frozen}.", rule="cli.service.stuck"
            ) from None
        raise LinkError(
            f"no service of {path} answers. Start it with: posse party serve {path}",
            rule="cli.service.not-running",
        ) from None
