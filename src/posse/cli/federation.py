"""`posse up`, `posse party` and what an operator asks of a running party."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from posse.cli import options
from posse.cli.layouts import build_of, read_federation
from posse.cli.options import INTERRUPTED
from posse.cli.screen import bullets, print_json, remark, say, table
from posse.cli.watch import RESULT, Watch, status_of
from posse.core.errors import ConfigError, DataError, LinkError, PosseError

if TYPE_CHECKING:
    from posse.core.roles import Role
    from posse.runtime.local import Layout
    from posse.runtime.network.deployment import Deployment, Place

File = Annotated[Path, typer.Argument(help="The party's file.", metavar="FILE")]
Without = Annotated[str, typer.Option(help="Owners that are gone, with commas between.", metavar="NAME,...")]
Federation = Annotated[Path, typer.Argument(help="The federation's file.", metavar="FILE")]
Folder = Annotated[
    Path | None, typer.Option(help="Where identities, journals and logs go; beside the file if not given.")
]
BEGUN = "federation.json"
"""In the folder of `posse up`: the settings the run began with."""
STOPPING = 12.0
"""Seconds that `posse stop` waits for the party to be gone."""
_TOTAL_AT = {
    **dict.fromkeys(("owner", "controller", "comp"), "customer"),
    **dict.fromkeys(("party", "puller", "dealer"), "payee"),
}
"""Who has the total of a run, by the role that has not."""
_CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)


# One party ----------------------------------------------------------------------------------------------------------


def party(file: File) -> None:
    """Run one party of a federation until its part is over; started again, it goes on where it was."""
    from posse.runtime.network.deployment import open_place, run_party
    from posse.runtime.network.operate import json_log
    from posse.version import __version__

    try:
        place = open_place(file)
        build = build_of(place.file.protocol)
        identity, log = place.identity, json_log(place.identity.name)
        log("started", role=identity.role, run=identity.run, version=__version__)
        if _result(place.journal):
            remark("its part was over before; it stays a few seconds for others that miss its last messages.")
        made = asyncio.run(run_party(place, lambda here: _reachable(here, build(here))))
    except KeyboardInterrupt:
        remark(f"interrupted; go on with: posse party {file}")
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        _cannot_listen(error, file)
    if made.role.finished:
        told = _keep(place, made.role)
        log("finished")
        say(_sentence(told))
    else:
        log("stopped")
        say(f"stopped before the end; go on with: posse party {file}")


def _reachable(place: Place, made: Deployment) -> Deployment:
    """Refuse a file after which a peer could never be reached: the party would wait for ever."""
    lost = sorted(set(made.peers) - set(place.file.connect)) if place.file.listen is None else []
    if lost:
        raise ConfigError(
            f"there is no way to '{lost[0]}'. Give [connect] with {lost[0]} = \"host:port\", or listen where it calls."
        )
    for told in made.remarks:
        remark(told)
    return made


def _cannot_listen(error: OSError, file: Path) -> NoReturn:
    if error.errno not in _CANNOT_LISTEN:
        raise error
    raise LinkError(
        f"cannot listen as {file} says: {error.strerror}. Stop what holds the port, or change listen or metrics; "
        f"'posse doctor {file}' looks at both."
    ) from error


def _keep(place: Place, role: Role) -> dict[str, Any]:
    """Write that the part is over; the total is told where the role knows it."""
    from posse.core import files

    told: dict[str, Any] = {"run": place.identity.run, "party": role.name, "role": role.kind}
    if (total := getattr(role, "total", None)) is not None:
        told |= {"total": total, "pulls": getattr(role, "pulls", 0)}
    if (present := getattr(role, "ended_early", None)) is not None:
        told["ended_early_with"] = list(present)
    told["manifest"] = getattr(role, "digest", "")
    files.write_whole(place.journal / RESULT, json.dumps(told).encode(), mode=files.PRIVATE)
    return told


def _sentence(told: Mapping[str, Any]) -> str:
    if "parties" in told:
        return f"run {told['run']}: the parts of all {len(told['parties'])} parties are over"
    if "total" not in told:
        where = _TOTAL_AT.get(told["role"], "")
        return f"run {told['run']}: the part of {told['party']} is over{where and f'; the {where} has the total'}"
    early = told.get("ended_early_with")
    only = f", ended early: of {', '.join(early)} only" if early else ""
    return f"run {told['run']}: total reward {told['total']:g} of {told['pulls']:,} pulls{only}"


def _result(journal: Path) -> dict[str, Any]:
    """Read what a party wrote at its end; nothing before."""
    try:
        found: dict[str, Any] = json.loads((journal / RESULT).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{journal / RESULT} cannot be read: {error}. Remove it and start the party again.") from error
    return found


# A whole federation -------------------------------------------------------------------------------------------------


def up(file: Federation, folder: Folder = None, json_: options.Json = False) -> None:
    """Run a whole federation on this machine: identities, files and a process for every party."""
    from posse.runtime import local

    federation = read_federation(file)
    place, settings = folder or _folder_of(file), federation.settings.resolved()
    _check_same(place / BEGUN, settings, place, federation.may_change)
    if told := _outcome(federation, place):
        remark(f"this run is over; for another one change 'run' in {file} and pass --folder.")
        _show(told, place, federation, json_)
        return
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = federation.lay_out(place)
        _begin(place / BEGUN, settings)
    except OSError as error:
        raise DataError(f"cannot write in {place}: {error.strerror}. Pass --folder with a place you own.") from error
    _check_none_runs(paths)
    # Modules of sources are beside the federation's file, not beside the parties' files.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(file.resolve().parent), os.environ.get("PYTHONPATH"))))
    for text in (
        *federation.remarks,
        f"{len(paths)} parties in {place}; Ctrl-C stops them, and the same command goes on.",
    ):
        remark(text)
    watch = Watch(federation.steps, local.start_one, federation)
    with _children(watch):
        for path in paths:
            watch.take(local.start_one(path))
        watch.follow()
    if watch.told and not _outcome(federation, place):
        at = f" at step {watch.step:,} of {federation.steps:,}" if watch.step else ""
        remark(f"stopped{at}; go on with: posse up {file}{f' --folder {folder}' if folder else ''}")
        raise typer.Exit(128 + watch.told)
    _show(_ended(watch, federation, place), place, federation, json_)


def _outcome(federation: Layout, place: Path) -> dict[str, Any]:
    """Tell how a run ended; nothing before. Without a total it is over when everyone's part is."""
    if federation.total_at is not None:
        return _result(place / federation.total_at / "journal")
    parties = [path for path in sorted(place.glob("*.toml")) if (place / path.stem).is_dir()]
    found = [_result(place / path.stem / "journal") for path in parties]
    return {"run": found[0]["run"], "parties": [told["party"] for told in found]} if found and all(found) else {}


@contextmanager
def _children(watch: Watch) -> Iterator[None]:
    """Stop what was started, however this ends; a signal is noted, and ends the watching."""
    from posse.runtime import local

    def tell(number: int, frame: object) -> None:
        watch.told = number

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield
    finally:
        for number in numbers:  # nothing may interrupt the stopping
            signal.signal(number, signal.SIG_IGN)
        local.stop(watch.processes)
        for number, handler in before.items():
            signal.signal(number, handler)


def _folder_of(file: Path) -> Path:
    found = file.with_suffix("")
    return found if found != file else file.with_name(f"{file.name}.d")


def _check_same(begun: Path, now: Mapping[str, Any], place: Path, may_change: tuple[str, ...]) -> None:
    """A run goes on with the settings it began with: everyone has signed them."""
    try:
        before: dict[str, Any] = json.loads(begun.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DataError(f"{begun} cannot be read: {error}. Pass --folder to begin anew.") from error
    other = [key for key in {**before, **now} if key not in may_change and before.get(key) != now.get(key)]
    if other:
        was, given = (json.dumps(values.get(other[0]))[:60] for values in (before, now))
        raise ConfigError(
            f"the run in {place} began with {other[0]} = {was}, the file now says {given}. Put it back, or give the "
            "run another name and pass --folder."
        )


def _begin(begun: Path, now: Mapping[str, Any]) -> None:
    from posse.core import files

    files.write_whole(begun, json.dumps(now, indent=1).encode())


def _check_none_runs(paths: list[Path]) -> None:
    for path in paths:
        if asyncio.run(status_of(path)):
            raise ConfigError(f"'{path.stem}' runs already. Stop it first with: posse stop {path}")


def _ended(watch: Watch, federation: Layout, place: Path) -> dict[str, Any]:
    failed = [process for process in watch.processes if (process.handle.returncode or 0) > 0]
    if failed:
        with suppress(OSError):
            lines = failed[0].log.read_text(errors="replace").strip().splitlines()
        last = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "no word")
        raise PosseError(f"'{failed[0].name}' ended early: {last.removeprefix('error: ')} (its log: {failed[0].log})")
    if not (told := _outcome(federation, place)):
        raise PosseError("the parties were stopped before the end of the run. The same command goes on.")
    return told


def _show(told: Mapping[str, Any], place: Path, federation: Layout, as_json: bool) -> None:
    if as_json:
        print_json({key: value for key, value in told.items() if key not in ("party", "role")} | {"folder": str(place)})
        return
    say(_sentence(told), style="bold")
    where = [] if federation.total_at is None else [f"result: {place / federation.total_at / 'journal' / RESULT}"]
    bullets([*where, f"files and logs of the parties: {place}"])


# What an operator asks ----------------------------------------------------------------------------------------------


def _journal(file: Path) -> Path:
    from posse.runtime.network.deployment import PartyFile

    return file.resolve().parent / PartyFile.make(file=file).journal


def _command(file: Path, command: str) -> Any:
    from posse.runtime.network.operate import ask

    journal = _journal(file)
    try:
        return asyncio.run(ask(journal, command))
    except LinkError:
        if told := _result(journal):
            raise LinkError(f"it does not run any more: {_sentence(told)}.") from None
        raise


def status(file: File, json_: options.Json = False) -> None:
    """Say how far a running party is, and whom it misses."""
    found = _command(file, "status")
    if json_:
        print_json(found)
        return
    missing = found.pop("missing")
    name, state = found.pop("party"), _where(found, missing)
    digest = found.pop("digest", "")
    rows = [("state", state), *((key, str(value)) for key, value in found.items())]
    if digest:
        rows.append(("manifest", f"{digest} (all parties must see the same: compare by telephone)"))
    table(("party", name), rows)
    for peer, why in missing.items():
        say(f"missing: {peer} ({why})", style="yellow")


def _where(found: dict[str, Any], missing: Mapping[str, str]) -> str:
    paused, finished = found.pop("paused"), found.pop("finished")
    if finished:
        return "finished; it leaves when others have its last messages"
    if paused:
        return "paused"
    return f"waiting for {', '.join(missing)}" if missing else "connected"


def pause(file: File) -> None:
    """Hold a running party where it is; the others wait for it."""
    _command(file, "pause")
    say(f"paused, and the run with it; go on with: posse resume {file}")


def resume(file: File) -> None:
    """Let a paused party go on."""
    _command(file, "resume")
    say("goes on")


def end(file: File, without: Without = "") -> None:
    """End a run early at its customer, over the owners that are left; the rewards of the others are absent."""
    _command(file, f"end {without}")
    say("the run ends; the total is over the owners that are left, and is labelled so")


def stop(file: File) -> None:
    """Stop a running party; started again, it goes on where it was."""
    _command(file, "stop")
    end = time.monotonic() + STOPPING
    while asyncio.run(status_of(file)):
        if time.monotonic() > end:
            raise LinkError(f"the party was told to stop and still answers after {STOPPING:g} s. See its log.")
        time.sleep(0.1)
    say(f"stopped; go on with: posse party {file}")


def doctor(file: File, json_: options.Json = False) -> None:
    """Look a party's file, identity, journal, peers and source over, and say what to mend."""
    from posse.runtime.network.doctor import examine

    found = examine(file, build_of)
    if json_:
        print_json([{"what": one.what, "fine": one.fine, "said": one.said} for one in found])
    else:
        table(("", "what", "found"), [("ok" if one.fine else "MEND", one.what, one.said) for one in found])
    if not all(one.fine for one in found):
        raise typer.Exit(1)
