"""Commands that every system has, made from what it declares: `posse run SYSTEM`, `compare`,
`sweep`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import flags
from posse.cli.check import ask_for_settings
from posse.cli.flags import flags_given, settings_command, settings_of
from posse.cli.groups import StoredCommand
from posse.cli.help import make_command
from posse.cli.keep import Keeper, check_place, open_store
from posse.cli.progress import Doing
from posse.cli.screen import details, print_json, remark, saved, say, show
from posse.core.errors import ConfigError, PosseError
from posse.core.interrupts import save_on_interrupt
from posse.core.settings import read_toml
from posse.systems.registry import names, system_of

if TYPE_CHECKING:
    from typer.core import TyperCommand

    from posse.results.record import Progress, Record
    from posse.systems.base import AnySystem, RunSettings

SIMULATED_RUNS = 50
MOST_IDS = 2
"""Ids that are printed as a command."""

Beside = Annotated[
    bool | None,
    typer.Option(
        "--beside/--no-beside",
        help="Run its twins, or what it is compared with, too.",
        show_default=False,
    ),
]
PlainToo = Annotated[bool | None, typer.Option("--plain-too/--no-plain-too", hidden=True)]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help=f"Simulate it without protection; {SIMULATED_RUNS} runs unless --runs is given.",
    ),
]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="A policy; repeat it.", metavar="NAME")
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        help="Vary a setting: NAME=VALUE,VALUE,... A list or table is a value in brackets, as in TOML. Repeat "
        "it for a grid.",
        metavar="NAME=VALUES",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of processes (default: number of cores).", metavar="INTEGER"),
]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler to run on.", metavar="ADDRESS")
]


# One configuration --------------------------------------------------------------------------------


def run_command(system: AnySystem) -> TyperCommand:
    """Make `posse run NAME`."""

    def run(
        context: typer.Context,
        config: flags.Config = None,
        plain: Plain = False,
        compared: Beside = None,
        plain_too: PlainToo = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        from posse.systems.modules import report_of

        own_report = report_of(system)
        if plain:
            settings = settings_of(system.Settings, context, config, runs=SIMULATED_RUNS).plain()
        else:
            settings = settings_of(system.Settings, context, config)
        # The last answer counts: --beside over --plain-too over the default of the system.
        by_default = own_report.compared_by_default and not plain
        answers = [one for one in (by_default, plain_too, compared) if one is not None]
        settings = _check(settings)
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
        twins = own_report.comparisons(settings) if answers[-1] else ()
        _run(system, settings, keeper, twins, json, full)

    examples = (
        f"posse run {system.name} --policy NAME --seed 7",
        f"posse run {system.name} --plain",
    )
    return make_command(system.name, system.about.summary, examples, system_command(system), run)


def system_command(system: AnySystem, *without: str, **defaults: Any) -> type[TyperCommand]:
    """Make a command with a flag for each setting of a system, except those `without` one."""
    from posse.systems.modules import commands_of

    skip = (*commands_of(system).without_flag, *without)
    return settings_command(lambda: system.Settings, skip=skip, **defaults)


def _check(settings: RunSettings) -> RunSettings:
    """Read the data and check everything, before a store is opened or a run begins."""
    try:
        _load(settings)
    except PosseError as error:
        settings = ask_for_settings(settings, error)
        _load(settings)
    return settings


def _load(settings: RunSettings) -> None:
    from posse.problems.data import DataSettings

    with Doing("reading data and checking") as doing:
        source: object = settings
        if isinstance(source, DataSettings):
            source.watch_reading(doing.at)
        settings.load()


def _run(
    system: AnySystem,
    settings: RunSettings,
    keeper: Keeper,
    twins: Sequence[RunSettings],
    json: bool,
    full: bool,
) -> None:
    """Run settings and what they are compared with, show the records and keep them."""
    from posse.results import identical

    with keeper.on_interrupt(json):
        records = [go(settings, keeper)]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens next
        with keeper.on_interrupt(json):
            records.extend(go(other, keeper) for other in twins)
        exact = system.about.exact and settings.plain() in twins[:1]
        if json:
            same = identical(*records[:2]) if exact else None
            print_json(_document(system, records, keeper, identical=same))
        else:
            _show(system, records, exact, full, keeper.saves)
    warnings: dict[str, None] = {}
    for record in records:
        if stopped := record.show.get("stopped"):
            remark(f"stopped early: {stopped}")
        warnings |= dict.fromkeys((*record.shown("dropped"), *record.shown("warnings")))
    for sentence in warnings:
        remark(f"warning: {sentence}")
    if keeper.saves and not json:
        saved(records)


def go(settings: RunSettings, keeper: Keeper) -> Record:
    """Run settings to the end, with progress shown on the screen and in the store."""
    from posse.results.record import Interrupted
    from posse.systems.registry import start

    name = title(settings)
    with Doing(f"{name}: preparing") as doing:
        going = start(settings, transcript=0)
        handle = keeper.begin(going.record())

        def watch(progress: Progress) -> None:
            doing.at(progress.fraction, f"{name}{_place_of(progress)}")
            if handle is not None:
                handle.beat(going.time, going.horizon)

        def keep() -> str:
            return keeper.interrupted(keeper.name(going.record_interrupted(), handle))

        try:
            with save_on_interrupt(keep, lambda: going.records_while_running or not going.time):
                going.finish(watch)
        except KeyboardInterrupt as stop:
            raise Interrupted(keeper.name(going.record("interrupted"), handle)) from stop
        except BaseException:
            if handle is not None:
                handle.drop()
            raise
        return keeper.name(going.record(), handle)


def _place_of(progress: Progress) -> str:
    """Return which of several runs is under way."""
    if progress.runs == 1:
        return ""
    first = progress.run + 1
    last = progress.run + progress.together
    which = f"runs {first} to {last}" if last > first else f"run {first}"
    return f", {which} of {progress.runs}"


def title(settings: RunSettings) -> str:
    """Name a run while it runs: its system and its protection."""
    system = system_of(settings)
    return f"{system.about.title} ({system.level_of(settings)})"


def _document(
    system: AnySystem, records: Sequence[Record], keeper: Keeper, **more: object
) -> dict[str, object]:
    from posse.systems.modules import report_of

    sections = report_of(system).sections(records)
    remarks = [section.data or section.plain() for section in sections]
    return {
        **more,
        "to_store": keeper.saves,
        "remarks": remarks,
        "records": [one.document() for one in records],
    }


def _show(
    system: AnySystem, records: Sequence[Record], exact: bool, full: bool, stored: bool
) -> None:
    """Print the document of a run and of what it is compared with."""
    from posse.results.document import document, sameness
    from posse.systems.modules import report_of

    notes = [sameness(*records[:2])] if exact else []
    show(document(records, report_of(system).sections(records), notes), full=full)
    if exact and not full and notes[0].startswith("NOT"):
        say(notes[0], style="bold red")
    if not stored and not full:
        details("the same command with")


# Several configurations ---------------------------------------------------------------------------


def compare_command(system: AnySystem) -> TyperCommand:
    """Make `posse compare NAME --policy A --policy B`: policies on the same worlds."""

    def compare(
        context: typer.Context,
        policy: Policies = None,
        config: flags.Config = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        policies = policy or []
        if len(policies) < 2:
            raise ConfigError(
                f"a comparison needs at least 2 runs, got {len(policies)}. Give two ids ('posse runs list'), or "
                "--policy twice, as in: posse compare --policy ucb --policy thompson",
                rule="cli.policy.too-few",
            )
        if len(set(policies)) < len(policies):
            raise ConfigError(
                "a policy is given twice. To compare parameters: posse sweep --over NAME=VALUE,VALUE",
                rule="cli.policy.twice",
            )
        each = _varied(system, context, config, {"policy": policies})
        each = [_check(settings) for settings in each]
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
        _show_comparison([], keeper, json, full, [settings.plain() for settings in each])

    summary = "Compare policies on the same worlds, by their plain twins."
    command = system_command(system, "policy", "path", runs=SIMULATED_RUNS)
    examples = (f"posse compare {system.name} --policy NAME --policy NAME", "posse compare ID ID")
    return make_command(system.name, summary, examples, command, compare)


def compare_stored_command() -> TyperCommand:
    """Make `posse compare ID ID ...`."""

    def stored(
        ids: flags.Ids,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        full: flags.Full = False,
    ) -> None:
        if len(ids) < 2:
            what = f"Systems: {', '.join(names())}."
            raise ConfigError(
                f"a comparison needs at least 2 runs, got {len(ids)}. Give two ids. {what}",
                rule="cli.ids.too-few",
            )
        keeper = Keeper(save=False, report=report, figure=figure)
        store = open_store()
        _show_comparison([store.get(id) for id in ids], keeper, json, full)

    return make_command("compare", "Compare stored runs.", (), StoredCommand, stored)


def _show_comparison(
    records: list[Record], keeper: Keeper, json: bool, full: bool, each: Sequence[RunSettings] = ()
) -> None:
    """Compare stored records, or run settings and compare these; what was finished is kept."""
    from posse.results import compare
    from posse.results.document import document

    with keeper.kept(records):
        with keeper.on_interrupt(json):
            records.extend(go(settings, keeper) for settings in each)
        compared = compare(records)
        if json:
            rows = [asdict(row) for row in compared.rows]
            metadata = [record.metadata() for record in records]
            print_json({"rows": rows, "notes": compared.notes, "records": metadata})
        else:
            show(document(records), full=full)
            if not keeper.saves and not full:
                details("the same command with")
    if keeper.saves and not json:
        again = f"posse compare {' '.join(record.id for record in records)}"
        saved(records, "the same command with" if len(records) > MOST_IDS else again)


def sweep_command(system: AnySystem) -> TyperCommand:
    """Make `posse sweep NAME --over policy=ucb,thompson --over horizon=1000,10000`."""

    def sweep(
        context: typer.Context,
        over: Over = None,
        workers: Workers = None,
        cluster: Cluster = None,
        config: flags.Config = None,
        out: Annotated[
            Path | None, typer.Option(help="Write a tidy table here (.csv).", metavar="FILE")
        ] = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        full: flags.Full = False,
    ) -> None:
        from posse.sweeps import SweepInterrupted, changed_by_twin, plain_where_equal
        from posse.sweeps import sweep as run_sweep

        grid = _grid(over or ())
        if not grid:
            raise ConfigError(
                "a sweep varies something. Give --over, as in: --over policy=ucb,thompson",
                rule="cli.over.missing",
            )
        check_place(out)
        keeper = Keeper(save=not no_save, report=report, figure=figure)
        varied = _varied(system, context, config, grid)
        settings = plain_where_equal(varied)
        if settings != varied:
            name = next(iter(changed_by_twin(varied[0])))
            remark(
                "these are plain simulations, which earn the same as the protocol, bit for bit; "
                f"--{name} {getattr(varied[0], name)} runs the protocol."
            )
        finished = 0

        def progress() -> str:
            also = "the same command continues" if keeper.saves else "nothing was saved (--no-save)"
            return f"{finished} of {len(settings)} settings are done; {also}"

        def watch(done: int, total: int) -> None:
            nonlocal finished
            finished = done
            doing.at(done / total, f"{system.about.title}: {done} of {total} settings")

        try:
            with (
                Doing(f"{system.about.title}: {len(settings)} settings") as doing,
                save_on_interrupt(progress),
            ):
                results = run_sweep(
                    settings, store=keeper.store, executor=cluster, workers=workers, watch=watch
                )
        except SweepInterrupted:
            remark(f"interrupted; {progress()}.")
            raise typer.Exit(flags.INTERRUPTED) from None
        if out is not None:
            results.write(out)
            remark(f"table: {out}")
        keeper.draw(results.records)
        if json:
            documents = [record.document() for record in results.records]
            print_json({"records": documents, "run": results.run, "kept": results.kept})
            return
        from posse.results.document import document

        remark(
            f"{system.about.title}: {len(results.records)} settings, {results.run} run now, "
            f"{results.kept} found in the store"
        )
        show(document(results.records), full=full)
        if not full:
            details("the same command with")

    summary = (
        "Run a grid of settings, on processes or a cluster; what was run before is not run again."
    )
    command = system_command(system, runs=SIMULATED_RUNS)
    examples = (
        f"posse sweep {system.name} --over policy=NAME,NAME",
        f"posse sweep {system.name} --over seed=1,2,3 --out table.csv",
    )
    return make_command(system.name, summary, examples, command, sweep)


def _grid(over: Iterable[str]) -> dict[str, list[Any]]:
    """Read what --over says; commas within brackets do not separate values."""
    grid: dict[str, list[Any]] = {}
    for text in over:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigError(
                f"expected NAME=VALUE,VALUE,... after --over, got '{text}'.",
                rule="cli.over.not-a-list",
            )
        name = name.strip().replace("-", "_")
        if name in grid:
            raise ConfigError(
                f"{name} is varied twice. Give all its values in one --over, with commas.",
                rule="cli.over.twice",
            )
        grid[name] = list(_values(values))
    return grid


def _values(text: str) -> Iterator[object]:
    """Take values apart at commas; a list or table, as TOML writes it, is one value."""
    parts = text.split(",")
    while parts:
        end, value = _value(parts)
        yield value
        del parts[:end]


def _value(parts: Sequence[str]) -> tuple[int, object]:
    """Return the value that some parts begin with, and how many of them it takes."""
    if parts[0].lstrip().startswith(("[", "{")):
        for end in range(1, len(parts) + 1):
            with suppress(tomllib.TOMLDecodeError):
                read = tomllib.loads(f"value = {','.join(parts[:end]).strip()}")
                if list(read) == ["value"]:
                    return end, read["value"]
    return 1, parts[0].strip()


def _varied(
    system: AnySystem, context: typer.Context, config: Path | None, grid: dict[str, list[Any]]
) -> list[Any]:
    """Build the settings of a grid; a parameter that a policy lacks is left out where another one
    has it.
    """
    from posse.sweeps import grid_of

    file: dict[str, object] = {"runs": SIMULATED_RUNS}
    if config is not None:
        file |= read_toml(config)
    return list(grid_of(system.Settings, system.Settings.merged(file, flags_given(context)), grid))
