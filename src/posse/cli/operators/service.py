"""A service of a federation: `posse federation create`, `submit`, `queue` and `expel`, and
`posse party serve`, `leave` and `renew`.
"""

from __future__ import annotations

import asyncio
import json as json_module
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.operators.ca import PassphraseFile, name_for, new_passphrase, passphrase_of
from posse.cli.operators.watch import cannot_listen, outcome_line, wait_for
from posse.cli.screen import bullets, heading, print_json, remark, say, table, table_of
from posse.core.errors import ConfigError, DataError, LinkError, PosseError
from posse.core.files import forbid_core_dumps, make_private_folder
from posse.core.settings import read_toml
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import complete, prepare
from posse.runtime.federation.place import ServiceFile, check_answers, open_service
from posse.runtime.federation.service import Living
from posse.runtime.federation.talk import QUEUE, Proposal
from posse.runtime.journal import holder
from posse.runtime.local import AUTHORITY, write_party
from posse.runtime.network import health, operate
from posse.runtime.network.health import Status
from posse.runtime.place import address
from posse.systems.parties import functions_for_service, make_invitation, read_result
from posse.version import __version__

EVERY = 0.3
"""Seconds between two looks at a run."""
PATIENCE = 20.0
"""Seconds until an answer must be here."""
ANSWER = 60.0
"""Seconds in which a service answers a request: for a run's settings it may have to load a system
and its data.
"""


def create(
    name: str,
    *,
    folder: Path | None = None,
    role: str = "customer",
    called: str | None = None,
    listen: str = "127.0.0.1:7400",
    enrol: str = "127.0.0.1:7710",
    days: float = 90,
    passphrase: bool = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Create a federation: authority, your identity and service file.

    Options:
        name (NAME): Name of the federation.
        folder (PATH): Folder to make; the federation's name if not given.
        role (ROLE): Role that the founder has in runs; operator for none.
        called (NAME): Name of the founder; the name of its role if not given.
        listen (HOST:PORT): host:port where members call.
        enrol (HOST:PORT): host:port where tokens are used.
        days (NUMBER): Days for which the founder's certificate is valid.
        passphrase: Encrypt the authority's key.

    Examples:
        posse federation create hospitals
        posse federation create hospitals --listen 0.0.0.0:7400
    """
    own = name_for(role, called, "--called")
    place = folder or Path(name)
    for where in (listen, enrol):
        address(where)
    secret = new_passphrase(passphrase, passphrase_file)
    authority = Authority.init(place / AUTHORITY, own, name, passphrase=secret)
    token = authority.token(role, own, days=days)
    now = authority.now()
    request = prepare(token, place / own, now)
    complete(token, place / own, Desk(authority).answer(request).data, now)
    addresses = {"listen": listen, "enrol": enrol}
    values = {"identity": own, "founder": own, "authority": AUTHORITY, **addresses}
    file = write_party(place / f"{own}.toml", values)
    make_private_folder(place / AUTHORITY / QUEUE)
    say(f"founded '{name}' in {place}: authority, identity of {role} '{own}', and {file.name}")
    bullets(
        [
            f"start its service: posse party serve {file}",
            f"for every member: posse federation ca token --ca {place / AUTHORITY} --role ROLE "
            f"--name NAME --address {enrol}",
            f'in the file of every member: home = "{listen}" (as members reach it), founder = '
            f'"{own}"',
            f"propose a run: posse federation submit RUN.toml --at {file}",
        ]
    )


def serve(file: Path, *, passphrase_file: PassphraseFile = None) -> None:
    """Be a member of a federation: take part in run after run.

    It takes part in what the consent of its file allows, until it is stopped.

    Options:
        file (FILE): The file of a service.

    Examples:
        posse party serve clinic-b.toml
    """
    forbid_core_dumps()
    place = open_service(file)
    # Modules of sources are next to the service's file.
    sys.path.insert(0, str(file.resolve().parent))

    async def run() -> None:
        log = operate.json_log(place.identity.name, least=place.file.log)
        living = Living(file, functions_for_service(remark), log, passphrase_of(passphrase_file))
        log("started", federation=living.member.identity.run, version=__version__)
        await living.run()
        log("stopped")

    try:
        asyncio.run(run())
    except OSError as error:
        cannot_listen(error, file)


def submit(run: Path, *, at: Path, json: flags.Json = False) -> None:
    """Propose a run to a federation, and print its result.

    The same command follows the run again after an interruption.

    Options:
        run (FILE): The run's file.
        at (FILE): File of the founder's service, or a customer's.

    Examples:
        posse federation submit run.toml --at hospitals/customer.toml
        posse federation submit run.toml --at clinic-b.toml --json
    """
    values = read_toml(run)
    status = _ask(at, f"submit {json_module.dumps(values, default=str)}")
    # The founder's service reports settings that are wrong.
    with suppress(PosseError):
        proposal = Proposal.make("", values)
        remark(*make_invitation(proposal.system, proposal.values).remarks)
    try:
        status = _follow(at, status)
    except KeyboardInterrupt:
        remark(
            f"run '{status['run']}' continues; follow it with the same command, drop it with: "
            f"posse federation queue {at} --cancel {status['run']}"
        )
        raise typer.Exit(INTERRUPTED) from None
    _print_result(status, json)


def _follow(at: Path, status: Status) -> Status:
    """Print how far a run is whenever that changes, until it is over.

    A service may be restarted meanwhile.
    """
    last_line = ""
    missed = 0.0
    while status["phase"] not in ("over", "dropped", "refused"):
        line = _progress(status)
        if line != last_line:
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


def _progress(status: Status) -> str:
    line = f"run '{status['run']}' is {status['phase']}"
    if status["without"]:
        line += f", without {', '.join(status['without'])}"
    return "; ".join(filter(None, (line, _waiting(status))))


def _print_result(status: Status, json: bool) -> None:
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
    if json:
        print_json(result or {"run": status["run"]})
    else:
        outcome = {"run": status["run"], "outcome": "the parts of all are over"}
        say(outcome_line(result or outcome), style="bold")


def queue(
    file: Path, *, cancel: str = "", complete: bool = False, json: flags.Json = False
) -> None:
    """Show a service: its members, runs and limits.

    Options:
        file (FILE): The file of a service.
        cancel (RUN): Drop this run.
        complete: State that a restored queue or ledger lacks no run.

    Examples:
        posse federation queue hospitals/customer.toml
        posse federation queue hospitals/customer.toml --cancel trial-8
    """
    if complete:
        _ask(file, "complete")
    if cancel:
        status = _ask(file, f"cancel {cancel}")
        status = status and _follow(file, status)
        if status and status["phase"] != "dropped":
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
    members = [{"member": name, **each} for name, each in status.get("members", {}).items()]
    table_of(members, {"member": "member", "role": "role", "connected": "connected"})
    parts = [{"run": run, **part} for run, part in status.get("parts", {}).items()]
    table_of(parts, {"run": "run", "state": "state", "why": "text"})
    runs = [{**run, "why": run["text"] or _waiting(run)} for run in status.get("runs", ())]
    table_of(runs, {"run": "run", "system": "system", "state": "phase", "why": "why"})


def _waiting(status: Status) -> str:
    """Return for whom a run waits, and why."""
    waiting = [f"{name} ({why})" for name, why in status["waiting"].items()]
    return f"waiting for {', '.join(waiting)}" if waiting else ""


def _facts(status: Status) -> list[tuple[str, str]]:
    """Return what a service knows about itself. A service of the previous release has fewer facts."""
    spent = status["spent"]
    uncounted = ", ".join(status["uncounted"])
    facts = {
        "process": str(status["pid"]),
        "certificate until": status["until"][:16].replace("T", " "),
        "founder": status.get("home"),
        "asked of it in all": f"{spent['runs']} runs, {spent['decisions']:,} decisions, epsilon "
        f"{spent['epsilon']:g}, delta {spent['delta']:g}",
        "its file": status.get("edited"),
    }
    if uncounted:
        facts["since its backup, not counted"] = (
            f"{uncounted}: lower the limits of [consent] by what they asked, then pass --complete"
        )
    if status.get("queue_restored"):
        facts["queue"] = "of a backup: when it lacks no run that started since, pass --complete"
    return [(name, str(text)) for name, text in facts.items() if text]


def expel(name: str, *, at: Path) -> None:
    """Expel a member, and revoke its certificate.

    Runs that it is in end without it where they can.

    Options:
        name (NAME): Name of a member.
        at (FILE): The file of the founder's service.

    Examples:
        posse federation expel clinic-b --at hospitals/customer.toml
    """
    status = _ask(at, "status")
    if "members" not in status:
        raise ConfigError(
            f"only the founder expels; {at} is the file of {status['role']} '{status['service']}'.",
            rule="cli.at.not-the-founder",
        )
    _ask(at, f"expel {name}")
    say(f"expelled '{name}': all members are informed, and its connections are cut")


def leave(file: Path) -> None:
    """Leave a federation, between runs.

    The founder revokes this member's certificate, and its service stops.

    Options:
        file (FILE): The file of a service.

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


def renew(file: Path, *, new_key: bool = False) -> None:
    """Renew a member's certificate now.

    A service renews it automatically before it expires.

    Options:
        file (FILE): The file of a service.
        new_key: Draw a new key too, between runs.

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
    return holder(_runs(file))


def _runs(path: Path) -> Path:
    """Return the folder of all runs of a service."""
    return path.resolve().parent / ServiceFile.make(file=path).runs


def _ask(path: Path, command: str) -> Any:
    """Ask the service of a file; one of another member, which has the same folder of runs, is asked
    nothing.
    """
    if len(command) > 60_000:
        raise DataError(
            f"a run's file may have 60,000 characters, got {len(command):,}.",
            rule="cli.run.too-long",
        )
    status = _answer(path, "status", PATIENCE)
    check_answers(path, status)
    return status if command == "status" else _answer(path, command, ANSWER)


def _answer(path: Path, command: str, patience: float) -> Any:
    folder = _runs(path)
    try:
        return asyncio.run(operate.ask(folder, command, patience=patience))
    except LinkError as error:
        _, refused, why = error.text.partition("answers: ")
        if refused:
            raise PosseError(why, rule="cli.service.refused") from None
        if frozen := health.not_answering(folder):
            raise LinkError(
                f"the service of {path} does not answer: {frozen}.", rule="cli.service.stuck"
            ) from None
        raise LinkError(
            f"no service of {path} answers. Start it with: posse party serve {path}",
            rule="cli.service.not-running",
        ) from None
