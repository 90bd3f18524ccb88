"""`posse up`, `posse party` and what an operator asks of a running party."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import options
from posse.cli.screen import bullets, heading, print_json, remark, say, table
from posse.core.errors import ConfigError, PosseError

if TYPE_CHECKING:
    from posse.runtime.local import Process
    from posse.runtime.network.deployment import Build

File = Annotated[Path, typer.Argument(help="The party's file.", metavar="FILE")]
Federation = Annotated[Path, typer.Argument(help="The federation's file.", metavar="FILE")]
Folder = Annotated[
    Path | None, typer.Option(help="Where identities, journals and logs go; beside the file if not given.")
]
RESULT = "result.json"


def party(file: File) -> None:
    """Run one party of a federation until its part is over; started again, it goes on where it was."""
    from posse.runtime.network.deployment import open_place, run_party

    place = open_place(file)
    build = _protocol(place.file.protocol)
    result = place.journal / RESULT

    def watch(note: Any) -> None:
        if note.kind == "total":
            from posse.runtime.certificates import files

            told = {"run": place.identity.run, "total": note.value, "pulls": note.step}
            files.write_whole(result, json.dumps(told).encode())

    asyncio.run(run_party(place, build, watch=watch))
    if result.exists():
        told = json.loads(result.read_text())
        say(f"run {told['run']}: total reward {told['total']:g} of {told['pulls']:,} pulls")


def up(file: Federation, folder: Folder = None, json_: options.Json = False) -> None:
    """Run a whole federation on this machine: identities, files and a process for every party."""
    from posse.core.settings import read_toml
    from posse.protocols.samba.deploy import FederationFile, lay_out
    from posse.runtime import local

    values = read_toml(file)
    if values.get("protocol", "samba") != "samba":
        raise ConfigError(f"posse up knows the protocol samba, got '{values['protocol']}'.")
    federation = FederationFile.make(values)
    place = folder or file.with_suffix("")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = lay_out(federation, place)
    remark(f"{len(paths)} parties in {place}; Ctrl-C stops them, and the same command goes on.")
    processes = local.start(paths)
    try:
        _follow(processes, federation.budget)
    finally:
        local.stop(processes)
    _ended(processes, place / "customer" / "journal" / RESULT, json_)


def _follow(processes: list[Process], budget: int) -> None:
    """Show how far everyone is until all have ended; one that fails ends the others."""
    from posse.cli.progress import Doing

    with Doing("starting") as doing:
        began, first = 0.0, 0
        while any(process.handle.poll() is None for process in processes):
            if any(process.handle.poll() not in (None, 0) for process in processes):
                return
            time.sleep(0.3)
            found = _status(next(process for process in processes if process.name == "controller").file)
            step = int(found.get("step", 0)) if found else 0
            if not step:
                continue
            if not began:
                began, first = time.monotonic(), step
            rate = (step - first) / max(0.1, time.monotonic() - began)
            missing = f", without {', '.join(found['missing'])}" if found.get("missing") else ""
            doing.at(step / budget, f"step {step:,} of {budget:,}, {rate:,.0f} steps/s{missing}")


def _ended(processes: list[Process], result: Path, as_json: bool) -> None:
    failed = [process for process in processes if process.handle.returncode != 0]
    if failed:
        lines = failed[0].log.read_text(errors="replace").strip().splitlines()
        last = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "no word")
        raise PosseError(f"'{failed[0].name}' ended early: {last.removeprefix('error: ')} (its log: {failed[0].log})")
    told = json.loads(result.read_text())
    if as_json:
        print_json(told)
        return
    heading(f"Run {told['run']}")
    say(f"total reward {told['total']:g} of {told['pulls']:,} pulls")
    bullets(f"{process.name}: {process.log}" for process in processes)


def _status(file: Path) -> dict[str, Any]:
    from posse.runtime.network.deployment import PartyFile
    from posse.runtime.network.operate import ask

    try:
        journal = file.resolve().parent / PartyFile.make(file=file).journal
        found: dict[str, Any] = asyncio.run(ask(journal, "status"))
    except PosseError:
        return {}
    return found


def _command(file: Path, command: str) -> Any:
    from posse.runtime.network.deployment import PartyFile
    from posse.runtime.network.operate import ask

    return asyncio.run(ask(file.resolve().parent / PartyFile.make(file=file).journal, command))


def status(file: File, json_: options.Json = False) -> None:
    """Say how far a running party is, and whom it misses."""
    found = _command(file, "status")
    if json_:
        print_json(found)
        return
    missing = found.pop("missing")
    table(("", ""), [(key, str(value)) for key, value in found.items()])
    for peer, why in missing.items():
        say(f"missing: {peer} ({why})", style="yellow")


def pause(file: File) -> None:
    """Hold a running party where it is; the others wait for it."""
    _command(file, "pause")
    say("paused")


def resume(file: File) -> None:
    """Let a paused party go on."""
    _command(file, "resume")
    say("goes on")


def stop(file: File) -> None:
    """Stop a running party; started again, it goes on where it was."""
    _command(file, "stop")
    say("stopped; start it again with 'posse party'")


def doctor(file: File, json_: options.Json = False) -> None:
    """Look a party's file, identity, journal, peers and source over, and say what to mend."""
    from posse.runtime.network.doctor import examine

    found = examine(file, _protocol)
    if json_:
        print_json([{"what": one.what, "fine": one.fine, "said": one.said} for one in found])
    else:
        table(("", "what", ""), [("ok" if one.fine else "MEND", one.what, one.said) for one in found])
    if not all(one.fine for one in found):
        raise typer.Exit(1)


def _protocol(name: str) -> Build:
    if name == "samba":
        from posse.protocols.samba.deploy import build

        return build
    raise ConfigError(f"unknown protocol '{name}'. Known: samba.")
