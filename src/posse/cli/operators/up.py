"""`posse up`: a whole federation on this machine, such as the example of four shops.

The files of the example are data of the package. They are copied to a folder of the user, who can
read and change them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files as package_files
from pathlib import Path
from typing import NoReturn

import typer

from posse.cli import flags
from posse.cli.flags import INTERRUPTED
from posse.cli.keep import open_store
from posse.cli.operators.watch import Watch, outcome_line, status_of
from posse.cli.screen import print_json, remark, say, table
from posse.core import files
from posse.core.agreement import describe_difference, terms_as_texts
from posse.core.errors import ConfigError, DataError, PosseError, StalledError
from posse.core.interrupts import handle_signals
from posse.results.words import count, size
from posse.runtime import local
from posse.runtime.local import Layout
from posse.runtime.network.health import Status
from posse.runtime.sources import KnownRewards
from posse.systems.parties import RESULT, read_federation, read_result

Known = Mapping[str, KnownRewards | None]

BEGUN = "federation.json"
"""In the folder of `posse up`: the settings the run began with."""
EXAMPLE_FOLDER = Path("posse-example")
"""Where the example goes unless `--folder` names another place."""
FEDERATION = "federation.toml"
_SOURCE = ("examples", "coupons")


EXAMPLE = {
    "headline": "{total:.0f} of {pulls} coupons were used.",
    "customer": "the total: {total:.0f} used of {pulls}",
    "owner": "its own coupons: {total:.0f} used of {pulls}",
    "others": "An even split earns {even_split:.0f}, the best shop alone {best_alone:.0f}.",
}
"""Texts of the example."""
OTHERS = "An even split earns {even_split:,.1f}, the best owner alone {best_alone:,.1f}."
SHOWN = ("party", "role", "pulls", "total", "record", "outcome")
"""What is read of a party's result; numbers outside its knowledge are None."""


def up(
    file: Path | None = None,
    *,
    folder: Path | None = None,
    example: bool = False,
    json: flags.Json = False,
) -> None:
    """Run a whole federation on this machine.

    It makes the identities and files, and starts one process for each party.

    Options:
        file (FILE): The federation's file.
        folder (PATH): Where identities, journals and logs go; next to the file if not given.
        example: Run an example in posse-example: four shops share 400 coupons.

    Examples:
        posse up --example
        posse up federation.toml --folder trial --json
    """
    if example and file is not None:
        raise ConfigError(
            f"--example brings its own file, got {file} too. Give one of the two.",
            rule="cli.example.with-file",
        )
    elsewhere = f" --folder {folder}" if folder else ""
    command = f"posse up {file or '--example'}{elsewhere}"
    if example:
        file = prepare(folder or EXAMPLE_FOLDER)
        folder = None  # the run is next to the copied files
    if file is None:
        raise ConfigError(
            "a federation's file is needed. Give one, such as federation.toml, or try "
            "'posse up --example'.",
            rule="cli.file.missing",
        )
    place = folder or _folder_of(file)
    started = time.monotonic()
    outcome, federation = _run(file, place, f"continue with: {command}")
    seconds = time.monotonic() - started
    if json and not example:
        hidden = {"party", "role", "outcome"}
        figures = {name: value for name, value in outcome.items() if name not in hidden}
        print_json({**figures, "folder": str(place)})
        return
    parties = read_parties(place)
    rewards_by_owner = federation.known_rewards()
    others = compare(federation.steps, rewards_by_owner)
    if json:
        print_json(_example_data(outcome, parties, others, place))
        return
    print_parties(outcome, parties, others, example)
    _print_new_starts(rewards_by_owner, parties)
    _print_cost(parties, seconds)
    if federation.total_at is not None and not example:
        typer.echo(f"Result: {place / federation.total_at / 'journal' / RESULT}")
    remark(f"Their files: {place}. One record in full: posse runs show RECORD.")


# A run --------------------------------------------------------------------------------------------


def _run(file: Path, place: Path, again: str) -> tuple[Status, Layout]:
    """Run a federation to its end and return how it ended.

    Args:
        file: The federation's file.
        place: The folder of its parties.
        again: How an interrupted run continues.
    """
    try:
        federation = read_federation(file)
        settings = federation.settings.resolved()
        _check_same(place / BEGUN, settings, place, federation.may_change)
        outcome = _outcome(federation, place)
        if outcome:
            remark("this run is over; for another one pass --folder with a new name.")
            return outcome, federation
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            paths = federation.lay_out(place)
            files.write_whole(place / BEGUN, json.dumps(settings, indent=1).encode())
        except OSError as error:
            _cannot_write(place, error)
        _check_none_runs(paths)
        # Modules of sources are next to the federation's file, not next to the parties' files.
        python_path = [str(file.resolve().parent), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))
        remark(
            *federation.remarks,
            f"{len(paths)} parties in {place}; Ctrl-C stops them, and the same command continues.",
        )
        return _start_and_follow(federation, paths, place, again), federation
    except KeyboardInterrupt:  # before its processes are watched
        if not (place / BEGUN).exists():
            raise
        remark(f"interrupted; {again}")
        raise typer.Exit(INTERRUPTED) from None


def _start_and_follow(federation: Layout, paths: Sequence[Path], place: Path, again: str) -> Status:
    watch = Watch(local.start_one, federation)

    def note_signal(number: int) -> None:
        watch.signal = number

    # Whatever was started is stopped, however this ends; a signal is noted, and ends the watching.
    with handle_signals(note_signal, lambda: local.stop(watch.processes)):
        for path in paths:
            watch.processes.append(local.start_one(path))
        watch.follow()
    if watch.signal and not _outcome(federation, place):
        at = f" at {watch.reached}" if watch.reached else ""
        remark(f"stopped{at}; {again}")
        raise typer.Exit(128 + watch.signal)
    return _ended(watch, federation, place)


def _cannot_write(place: Path, error: OSError) -> NoReturn:
    raise DataError(
        f"cannot write in {place}: {files.explain_os_error(error)} Pass --folder with a place you "
        "own.",
        rule="cli.folder.not-writable",
    ) from error


def _outcome(federation: Layout, place: Path) -> Status:
    """Return how a run ended, empty before the end.

    A run without a total is over when the part of every party is over.
    """
    if federation.total_at is not None:
        return read_result(place / federation.total_at / "journal")
    results = _results(place)
    if not results or not all(results):
        return {}
    return {"run": results[0]["run"], "parties": [result["party"] for result in results]}


def _results(place: Path) -> list[Status]:
    """Read the result of every party from its own folder; empty before its part is over."""
    folders = [path.with_suffix("") for path in sorted(place.glob("*.toml"))]
    return [read_result(folder / "journal") for folder in folders if folder.is_dir()]


def _folder_of(file: Path) -> Path:
    folder = file.with_suffix("")
    return folder if folder != file else file.with_name(f"{file.name}.d")


def _check_same(
    settings_file: Path, settings: Status, place: Path, may_change: tuple[str, ...]
) -> None:
    """Check that a run continues with the settings it began with: all parties have signed them."""
    try:
        before: Status = json.loads(settings_file.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DataError(
            f"{settings_file} cannot be read: {error}. Pass --folder to start again.",
            rule="cli.folder.not-readable",
        ) from error
    before_texts = terms_as_texts(_without(before, may_change))
    texts = terms_as_texts(_without(settings, may_change))
    difference = describe_difference(before_texts, texts, ("when it began", "in the file now"))
    if difference:
        raise ConfigError(
            f"the run in {place} has other settings: {difference}. Put the file back, or give the "
            "run another name and pass --folder.",
            rule="cli.file.other-settings",
        )


def _without(settings: Status, names: tuple[str, ...]) -> dict[str, object]:
    return {name: settings[name] for name in settings if name not in names}


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
    return re.sub(r" \((rule: \S+; )?see \S+\)$", "", errors[-1].removeprefix("error: "))


# Results ------------------------------------------------------------------------------------------


def read_parties(place: Path) -> list[Status]:
    """Return what every party knows at the end: customer, owners, servers."""
    parties = [{**dict.fromkeys(SHOWN), **result} for result in filter(None, _results(place))]
    places = {"customer": 0, "owner": 1}
    return sorted(parties, key=lambda party: places.get(str(party["role"]), 2))


def compare(steps: int, rewards_by_owner: Known) -> dict[str, float]:
    """Compute what other choices earn; empty unless the rewards of all owners are in files here."""
    rewards = [each for each in rewards_by_owner.values() if each is not None]
    if not rewards or len(rewards) < len(rewards_by_owner):
        return {}
    means = [each.mean for each in rewards]
    return {"even_split": steps * sum(means) / len(means), "best_alone": steps * max(means)}


def print_parties(
    outcome: Status, parties: Sequence[Status], others: Mapping[str, float], example: bool
) -> None:
    """Print the total, what other choices earn, and what each party's own record has."""
    texts = EXAMPLE if example else {"headline": f"{outcome_line(outcome)}.", "others": OTHERS}
    headline = texts["headline"].format_map(outcome)
    if others:
        headline += f" {texts['others'].format_map(others)}"
    say(headline, style="bold")
    rows = []
    for party in parties:
        if example:
            own = texts.get(party["role"], "neither coupons nor a total")
            knowledge = own.format_map(party)
        elif party["total"] is None:
            knowledge = "neither rewards nor a total"
        elif party["role"] == "owner":
            knowledge = f"its own rewards: {party['total']:g} in {count(party['pulls'], 'pull')}"
        else:
            knowledge = party["outcome"]
        rows.append((party["party"], knowledge, party["record"]))
    table(("party", "what its own record has", "record"), rows)


def _example_data(
    outcome: Status, parties: Sequence[Status], others: Mapping[str, float], place: Path
) -> dict[str, object]:
    """Return what `posse up --example --json` prints."""
    own = []
    for party in parties:
        values = {name: party[name] for name in SHOWN[:-1]}
        if values["total"] is not None:
            values["total"] = round(values["total"])
        own.append(values)
    figures = {name: outcome[name] for name in ("run", "total", "pulls")}
    figures |= {name: round(value) for name, value in others.items()}
    return {**figures, "parties": own, "folder": str(place)}


def _print_new_starts(rewards_by_owner: Known, parties: Sequence[Status]) -> None:
    """Print which files of rewards were used up, and started again."""
    pulls = {party["party"]: party["pulls"] or 0 for party in parties}
    for name, rewards in rewards_by_owner.items():
        if rewards is not None and 0 < (rewards.rows or 0) < pulls[name]:
            remark(
                f"the file of '{name}' has {rewards.rows:,} rewards for {pulls[name]:,} pulls: "
                "after the last row it started again."
            )


def _print_cost(parties: Sequence[Status], seconds: float) -> None:
    """Print how long the run took and its traffic, from the records of all parties."""
    with suppress(PosseError):
        store = open_store()
        records = [store.get(party["record"]) for party in parties]
        # Each message is in two records: its sender's and its receiver's.
        messages = count(sum(record.messages for record in records) // 2, "message")
        traffic = size(sum(record.bytes for record in records) // 2)
        remark(
            f"It took {seconds:.1f} s and {messages} ({traffic}) between {len(parties)} parties. "
            "This is a rehearsal: one machine has the files of all of them."
        )


# The example --------------------------------------------------------------------------------------


def prepare(folder: Path) -> Path:
    """Copy the example's files to a folder, where they are missing; return the federation's file.

    The federation listens on a port that is free now, so that the example also runs next to other
    federations.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in package_files("posse").joinpath(*_SOURCE).iterdir():
            text = source.read_text(encoding="utf-8")
            if source.name == FEDERATION:
                text = text.replace("\nbudget", f'\nlisten = "127.0.0.1:{_free_port()}"\nbudget', 1)
            if not (folder / source.name).exists():
                files.write_whole(folder / source.name, text.encode(), mode=files.PUBLIC)
    except OSError as error:
        _cannot_write(folder, error)
    return folder / FEDERATION


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port
