"""`posse up`, `posse party` and what an operator asks of a running party."""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.operators import living
from posse.cli.operators.example import FOLDER, prepare
from posse.cli.operators.example import show as show_example
from posse.cli.operators.operations import units_with_old_names
from posse.cli.operators.watch import (
    Watch,
    cannot_listen,
    sentence,
    source_failing,
    state_of,
    status_of,
    wait_for,
)
from posse.cli.screen import bullets, print_json, remark, say, table
from posse.core.agreement import describe_difference, terms_as_texts
from posse.core.errors import (
    ConfigError,
    DataError,
    LinkError,
    PosseError,
    StalledError,
    UnconfirmedError,
)
from posse.core.files import forbid_core_dumps, write_whole
from posse.core.interrupts import handle_signals
from posse.version import __version__

if TYPE_CHECKING:
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Deployment
    from posse.runtime.network.health import Status
    from posse.runtime.place import Place

File = Annotated[Path, typer.Argument(help="The party's file.", metavar="FILE")]
RecordView = Annotated[
    bool,
    typer.Option(
        "--record-view",
        help="Record what this party sees, for 'posse audit'; give it at every start.",
    ),
]
Without = Annotated[
    str, typer.Option(help="Parties that are gone, with commas between.", metavar="NAME,...")
]
Federation = Annotated[Path | None, typer.Argument(help="The federation's file.", metavar="FILE")]
Example = Annotated[
    bool,
    typer.Option(
        "--example", help="Run an example in posse-example: four shops share 400 coupons."
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(help="Where identities, journals and logs go; next to the file if not given."),
]
BEGUN = "federation.json"
"""In the folder of `posse up`: the settings the run began with."""
STOPPING = 12.0
"""Seconds that `posse party stop` waits for the party to be gone."""


# One party ----------------------------------------------------------------------------------------


def start(file: File, record_view: RecordView = False) -> None:
    """Run one party until its part is over.

    Started again, it continues where it was.

    Examples:
        posse party clinic-b.toml
        posse party clinic-b.toml --record-view
    """
    from posse.runtime.network.operate import json_log
    from posse.runtime.place import open_place
    from posse.systems.parties import read_result, run_and_record

    forbid_core_dumps()
    place = open_place(file)
    if record_view:
        recorded = place.file.record.model_copy(update={"view": True})
        place = replace(place, file=place.file.model_copy(update={"record": recorded}))
    identity, log = place.identity, json_log(place.identity.name, least=place.file.log)
    try:
        log("started", role=identity.role, run=place.run, version=__version__)
        if read_result(place.journal):
            remark(
                "its part was over before; it stays a few seconds for others that miss its last "
                "messages."
            )
        result = asyncio.run(run_and_record(place, _reachable, remark))
    except UnconfirmedError:
        say(sentence(read_result(place.journal)))
        raise
    except KeyboardInterrupt:
        remark(f"interrupted; continue with: posse party {file}")
        raise typer.Exit(INTERRUPTED) from None
    except PosseError as error:
        log("failed", code=error.code, why=error.text)
        raise
    except OSError as error:
        cannot_listen(error, file)
    if result:
        log("finished")
        say(sentence(result))
    else:
        log("stopped")
        say(f"stopped before the end; continue with: posse party {file}")


def _reachable(place: Place, deployment: Deployment) -> Deployment:
    """Refuse a file after which a peer could never be reached: the party would wait for ever."""
    from posse.runtime.place import ONE_LISTENS

    lost = sorted(set(deployment.peers) - set(place.file.connect))
    if lost and place.file.listen is None:
        raise ConfigError(
            f"neither listen nor [connect] gives a way to '{lost[0]}'. {ONE_LISTENS}",
            rule="cli.listen.no-way-to-peer",
        )
    for text in deployment.remarks:
        remark(text)
    return deployment


# A whole federation -------------------------------------------------------------------------------


def up(
    file: Federation = None,
    folder: Folder = None,
    example: Example = False,
    json_: flags.Json = False,
) -> None:
    """Run a whole federation on this machine.

    It makes the identities and files, and starts one process for each party.

    Examples:
        posse up --example
        posse up federation.toml --folder trial --json
    """
    elsewhere = f" --folder {folder}" if folder else ""
    if example:
        if file is not None:
            raise ConfigError(
                f"--example brings its own file, got {file} too. Give one of the two.",
                rule="cli.example.with-file",
            )
        file = prepare(folder or FOLDER)
        place = _folder_of(file)
        command = f"posse up --example{elsewhere}"
        outcome, _ = _up(file, place, command, "pass --folder with a new name")
        show_example(outcome, file, place, json_)
        return
    if file is None:
        raise ConfigError(
            "a federation's file is needed. Give one, such as federation.toml, or try "
            "'posse up --example'.",
            rule="cli.file.missing",
        )
    place = folder or _folder_of(file)
    another = f"change 'run' in {file} and pass --folder"
    outcome, federation = _up(file, place, f"posse up {file}{elsewhere}", another)
    _show(outcome, place, federation, json_)


def _up(file: Path, place: Path, command: str, another: str) -> tuple[Status, Layout]:
    """Run a federation to its end and return how it ended.

    `command` continues an interrupted run; `another` describes how to start another one.
    """
    again = f"continue with: {command}"
    try:
        return _run_to_end(file, place, again, another)
    except KeyboardInterrupt:  # before its processes are watched
        if not (place / BEGUN).exists():
            raise
        remark(f"interrupted; {again}")
        raise typer.Exit(INTERRUPTED) from None


def _run_to_end(file: Path, place: Path, again: str, another: str) -> tuple[Status, Layout]:
    from posse.runtime import local
    from posse.systems.parties import read_federation

    federation = read_federation(file)
    settings = federation.settings.resolved()
    _check_same(place / BEGUN, settings, place, federation.may_change)
    if outcome := _outcome(federation, place):
        remark(f"this run is over; for another one {another}.")
        return outcome, federation
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = federation.lay_out(place)
        write_whole(place / BEGUN, json.dumps(settings, indent=1).encode())
    except OSError as error:
        raise DataError(
            f"cannot write in {place}: {error.strerror}. Pass --folder with a place you own.",
            rule="cli.folder.not-writable",
        ) from error
    _check_none_runs(paths)
    # Modules of sources are next to the federation's file, not next to the parties' files.
    python_path = [str(file.resolve().parent), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))
    for text in federation.remarks:
        remark(text)
    remark(f"{len(paths)} parties in {place}; Ctrl-C stops them, and the same command continues.")
    watch = Watch(local.start_one, federation)
    # Whatever was started is stopped, however this ends; a signal is noted, and ends the watching.
    with handle_signals(
        lambda number: setattr(watch, "signal", number), lambda: local.stop(watch.processes)
    ):
        for path in paths:
            watch.take(local.start_one(path))
        watch.follow()
    if watch.signal and not _outcome(federation, place):
        at = f" at {watch.reached}" if watch.reached else ""
        remark(f"stopped{at}; {again}")
        raise typer.Exit(128 + watch.signal)
    return _ended(watch, federation, place), federation


def _outcome(federation: Layout, place: Path) -> Status:
    """Return how a run ended; nothing before. Without a total it is over when everyone's part
    is.
    """
    from posse.systems.parties import read_result

    if federation.total_at is not None:
        return read_result(place / federation.total_at / "journal")
    parties = [path for path in sorted(place.glob("*.toml")) if (place / path.stem).is_dir()]
    results = [read_result(place / path.stem / "journal") for path in parties]
    if not results or not all(results):
        return {}
    return {"run": results[0]["run"], "parties": [result["party"] for result in results]}


def _folder_of(file: Path) -> Path:
    folder = file.with_suffix("")
    return folder if folder != file else file.with_name(f"{file.name}.d")


def _check_same(settings_file: Path, now: Status, place: Path, may_change: tuple[str, ...]) -> None:
    """A run continues with the settings it began with: everyone has signed them."""
    try:
        before: Status = json.loads(settings_file.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DataError(
            f"{settings_file} cannot be read: {error}. Pass --folder to start again.",
            rule="cli.folder.not-readable",
        ) from error
    before_texts, now_texts = (
        terms_as_texts({key: value for key, value in values.items() if key not in may_change})
        for values in (before, now)
    )
    if text := describe_difference(before_texts, now_texts, ("when it began", "in the file now")):
        raise ConfigError(
            f"the run in {place} has other settings: {text}. Put the file back, or give the run "
            "another name and pass "
            "--folder.",
            rule="cli.file.other-settings",
        )


def _check_none_runs(paths: list[Path]) -> None:
    for path in paths:
        if asyncio.run(status_of(path)):
            raise ConfigError(
                f"'{path.stem}' runs already. Stop it first with: posse party stop {path}",
                rule="cli.party.runs-already",
            )


def _ended(watch: Watch, federation: Layout, place: Path) -> Status:
    """Return how a run ended; raise the error of the first party that failed."""
    for process in watch.processes:
        code = process.handle.returncode
        if code is None or code <= 0:
            continue
        error = StalledError if code == StalledError.exit_code else PosseError
        raise error(
            f"'{process.name}' ended early: {_last_error(process.log)} (its log: {process.log})",
            rule="cli.party.ended-early",
        )
    outcome = _outcome(federation, place)
    if not outcome:
        raise PosseError(
            "the parties were stopped before the end of the run. The same command continues.",
            rule="cli.run.stopped",
        )
    return outcome


def _last_error(log: Path) -> str:
    """Return the last error in a log without its page, which the new error names."""
    lines = ["no error in its log"]
    with suppress(OSError):
        lines += log.read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("error:")] or lines
    return re.sub(r" \((rule: \S+; )?see errors/P\d+\)$", "", errors[-1].removeprefix("error: "))


def _show(outcome: Status, place: Path, federation: Layout, as_json: bool) -> None:
    from posse.systems.parties import RESULT

    if as_json:
        hidden = {"party", "role", "outcome"}
        figures = {key: outcome[key] for key in outcome if key not in hidden}
        print_json({**figures, "folder": str(place)})
        return
    say(sentence(outcome), style="bold")
    lines = [f"files and logs of the parties: {place}", "their records: posse runs list"]
    if federation.total_at is not None:
        lines.insert(0, f"result: {place / federation.total_at / 'journal' / RESULT}")
    bullets(lines)


# What an operator asks ----------------------------------------------------------------------------


def _journal(file: Path) -> Path:
    from posse.runtime.place import PartyFile

    return file.resolve().parent / PartyFile.make(file=file).journal


def _command(file: Path, command: str) -> Status:
    from posse.runtime.network.health import not_answering
    from posse.runtime.network.operate import ask
    from posse.systems.parties import read_result

    journal = _journal(file)
    try:
        answer: Status = asyncio.run(ask(journal, command))
    except LinkError:
        if (result := read_result(journal)) and not not_answering(journal):
            raise LinkError(
                f"it does not run any more: {sentence(result)}.", rule="cli.party.not-running"
            ) from None
        raise
    return answer


def status(file: File, json_: flags.Json = False) -> None:
    """Show how far a party is, and for whom it waits.

    Of a service it shows what 'posse federation queue' shows.

    Examples:
        posse party status clinic-b.toml
        posse party status clinic-b.toml --json
    """
    from posse.runtime.network.health import progress

    if living.is_service(file):
        living.queue(file, json=json_)
        return
    try:
        answer = _command(file, "status")
    except LinkError as error:
        _status_at_rest(file, error, json_)
        return
    if json_:
        print_json({"running": True, **answer})
        return
    state = state_of(answer)
    if answer["finished"]:
        state += "; it leaves when others have its last messages"
    rows = [("state", state)]
    if text := progress(answer):
        rows.append(("progress", text))
    rows += [(key, str(answer[key])) for key in ("role", "run", "version", "pid")]
    if digest := answer.get("digest"):
        rows.append(("manifest", f"{digest} (all parties must see the same: compare by telephone)"))
    table(("party", answer["party"]), rows)
    for peer, why in answer["waiting"].items():
        say(f"waiting for: {peer} ({why})", style="yellow")
    if source := answer.get("source"):
        say(source_failing(answer["party"], source, file), style="yellow")
    if answer["over"]:
        say(f"over for: {', '.join(answer['over'])}")


def _status_at_rest(file: Path, error: LinkError, as_json: bool) -> None:
    """Print what the folder of a party has that does not answer: finished is no error."""
    from posse.runtime.network.health import at_rest
    from posse.systems.parties import read_result

    journal = _journal(file)
    resting = at_rest(journal)
    result = read_result(journal)
    if result and not resting["running"]:
        if as_json:
            print_json({**resting, "finished": True, "state": "finished", "result": result})
        else:
            say(f"finished, and does not run any more: {sentence(result)}")
        return
    if not as_json:
        raise error
    state = "not answering" if resting["running"] else "not running"
    print_json({**resting, "finished": False, "state": state})
    raise typer.Exit(1)


def pause(file: File) -> None:
    """Hold a running party; the others wait for it.

    Examples:
        posse party pause clinic-b.toml
        posse party resume clinic-b.toml
    """
    _command(file, "pause")
    say(f"paused, and the run with it; continue with: posse party resume {file}")


def resume(file: File) -> None:
    """Let a paused party continue.

    Examples:
        posse party resume clinic-b.toml
    """
    _command(file, "resume")
    say("resumed")


def end(file: File, without: Without = "") -> None:
    """End a run early, with the parties that are left.

    Only some parties may do this. What absent parties earned is not in the result. Until all that
    are left have acknowledged it, another end corrects it.

    Examples:
        posse party end customer.toml
        posse party end customer.toml --without clinic-b,clinic-c
    """
    from posse.runtime.network.operate import NO_COMMAND

    try:
        _command(file, f"end {without}")
    except LinkError as error:
        if NO_COMMAND not in error.text:
            raise
        role = _command(file, "status")["role"]
        raise ConfigError(
            f"the part of this {role} cannot end the run. Ask the operator of a party that can: "
            "the deployment page of "
            "the system names it.",
            rule="cli.party.cannot-end",
        ) from None
    label = ", and a total over some of them is labelled so" if without else ""
    say(f"asked to end; it ends when all that are left have acknowledged{label}")
    if without:
        remark(
            f"if one more of them is gone after all, correct it with: posse party end {file} --without "
            "NAME,..."
        )


def update(file: File) -> None:
    """Take changed files in a run, such as a price list.

    Examples:
        posse party update producer-1.toml
    """
    from posse.systems.parties import reread_inputs

    try:
        _command(file, "change")
    except LinkError:
        if asyncio.run(status_of(file)):
            raise
        reread_inputs(file)
    say("taken: it holds from the next decision on")


def stop(file: File) -> None:
    """Stop a running party or service.

    Started again, it continues where it was.

    Examples:
        posse party stop clinic-b.toml
    """
    from posse.runtime.network.health import starts

    if living.is_service(file):
        living.stop_service(file)
        return
    _command(file, "stop")
    if not wait_for(lambda: not asyncio.run(status_of(file)), STOPPING):
        raise LinkError(
            f"the party was asked to stop and still answers after {STOPPING:g} s. See its log.",
            rule="cli.party.not-stopped",
        )
    command = starts(_journal(file))
    # A party that a service runs is started by that service.
    of_service = command != "posse party"
    whose = "with the file of its service" if of_service else str(file)
    say(f"stopped; continue with: {command} {whose}")


def doctor(file: File, json_: flags.Json = False) -> None:
    """Check a party or service, and print what to fix.

    It looks at the file, identity, journal, peers, source and systemd units.

    Examples:
        posse party doctor clinic-b.toml
        posse party doctor clinic-b.toml --json
    """
    from posse.runtime.federation import care
    from posse.runtime.network.doctor import Finding, examine
    from posse.systems.parties import deploy_by_name

    try:
        service = file.exists() and living.is_service(file)
    except PosseError:  # it cannot be read: what follows for a service is said too
        service = True
    findings = (
        care.examine(file) if service else examine(file, lambda name: deploy_by_name(name).build)
    )
    findings += [Finding("systemd", False, text) for text in units_with_old_names()]
    if json_:
        print_json([{"what": one.what, "fine": one.fine, "said": one.said} for one in findings])
    else:
        marks = {True: "ok", False: "MEND"}
        rows = [(marks[one.fine], one.what, one.said) for one in findings]
        table(("", "what", "found"), rows)
    if not all(one.fine for one in findings):
        raise typer.Exit(1)
