"""Commands that every system has, made from what it declares: `posse run SYSTEM`, `simulate`,
`compare`, `sweep`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from posse.cli import flags
from posse.cli.flags import flags_given, settings_command, settings_of
from posse.cli.keep import Keeper, check_place
from posse.cli.progress import Doing
from posse.cli.screen import details, print_json, remark, saved, say, show
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt, end_on_interrupt, save_on_interrupt

if TYPE_CHECKING:
    from posse.results.record import Progress, Record
    from posse.systems.base import AnySystem, RunSettings

SIMULATED_RUNS = 50
MOST_IDS = 2
"""Ids that are printed as a command."""
STORED = "stored"
"""Command of `compare` for records of the store."""
STORED_FLAGS = ("--json", "--report", "--figure", "--full", "--help", "-h")

S = TypeVar("S", bound="RunSettings")

Beside = Annotated[
    bool | None,
    typer.Option(
        "--beside/--no-beside",
        help="Run its twins, or what it is compared with, beside it.",
        show_default=False,
    ),
]
PlainToo = Annotated[bool | None, typer.Option("--plain-too/--no-plain-too", hidden=True)]
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
    int | None, typer.Option(help="Processes; the machine's cores if not given.", metavar="INTEGER")
]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler to run on.", metavar="ADDRESS")
]


def system_group(
    make: Callable[[AnySystem], Any],
    *,
    first: bool = True,
    other: Callable[[], Any] | None = None,
    takes: Sequence[str] = STORED_FLAGS,
) -> type[TyperGroup]:
    """Make a group with a command for every system; `first`: without a name the registry's first is
    meant.

    `other` makes the command that takes arguments which are no system's name; `takes` are its
    flags.
    """

    class Group(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            from posse.systems.registry import systems

            return [known.name for known in systems()]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            from posse.systems.registry import names, system

            if other is not None and cmd_name == STORED:
                return other()
            with (
                end_on_interrupt(),
                defer_interrupt(),
            ):  # what is imported may compile, and a compiler loses a Ctrl-C
                return make(system(cmd_name)) if cmd_name in names() else None

        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            from posse.systems.registry import names

            word = next((arg for arg in args if not arg.startswith("-")), None)
            leading = args[0] if args else ""
            if leading in names() or leading in ("--help", "-h"):
                return super().parse_args(ctx, args)
            if other is not None and word is not None and not leading.startswith("-"):
                extra = [
                    arg
                    for arg in args
                    if arg.startswith("-") and arg.partition("=")[0] not in takes
                ]
                if extra:
                    raise ConfigError(
                        f"ids of stored runs take no settings, got both, ids and {extra[0]}."
                    )
                args = [STORED, *args]
            elif first:
                args = [names()[0], *args]
            return super().parse_args(ctx, args)

    return Group


def command_of(name: str, summary: str, cls: type[Any], function: Callable[..., None]) -> Any:
    """Make one command of a function."""
    scratch = typer.Typer(add_completion=False, rich_markup_mode=None)
    scratch.command(name, cls=cls, help=summary)(function)
    return typer.main.get_command(scratch)


# One configuration --------------------------------------------------------------------------------


def run_command(known: AnySystem) -> Any:
    """Make `posse run NAME`."""

    def run(
        context: typer.Context,
        config: flags.Config = None,
        beside: Beside = None,
        plain_too: PlainToo = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        from posse.systems.modules import report_of

        own_report = report_of(known)
        wanted = next(
            (each for each in (beside, plain_too) if each is not None),
            own_report.compared_by_default,
        )
        settings = _checked(settings_of(known.Settings, context, config))
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
        _run(
            known, settings, keeper, own_report.comparisons(settings) if wanted else (), json, full
        )

    return command_of(known.name, known.about.summary, system_command(known), run)


def simulate_command(known: AnySystem) -> Any:
    """Make `posse simulate NAME`."""

    def simulate(
        context: typer.Context,
        config: flags.Config = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        settings = _checked(
            settings_of(known.Settings, context, config, runs=SIMULATED_RUNS).plain()
        )
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
        _run(known, settings, keeper, (), json, full)

    summary = f"Simulate the plain twin, many runs at once ({SIMULATED_RUNS} unless --runs says otherwise)."
    command = system_command(known, "path", runs=SIMULATED_RUNS)
    return command_of(known.name, summary, command, simulate)


def system_command(known: AnySystem, *without: str, **defaults: Any) -> Any:
    """Make a command with a flag for each setting of a system, except those `without` one."""
    from posse.systems.modules import commands_of

    skip = (*commands_of(known).without_flag, *without)
    return settings_command(lambda: known.Settings, skip=skip, **defaults)


def _checked(settings: S) -> S:
    """Read the data and check everything, before a store is opened or a run begins."""
    from posse.problems.datasets.reading import watching

    with Doing("reading data and checking") as doing, watching(doing.at):
        settings.load()
    return settings


def _run(
    known: AnySystem,
    settings: RunSettings,
    keeper: Keeper,
    beside: Sequence[RunSettings],
    json: bool,
    full: bool,
) -> None:
    """Run settings and what they are compared with, show the records and keep them."""
    from posse.results import identical

    with keeper.on_interrupt(json):
        records = [go(settings, keeper)]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens beside it
        with keeper.on_interrupt(json):
            records.extend(go(other, keeper) for other in beside)
        exact = known.about.exact and len(records) > 1 and beside[0] == settings.plain()
        if json:
            same = identical(*records[:2]) if exact else None
            print_json(_document(known, records, keeper, identical=same))
        else:
            _show(known, records, exact, full, keeper.saves)
    for record in records:
        if stopped := record.show.get("stopped"):
            remark(f"stopped early: {stopped}")
    for sentence in dict.fromkeys(
        one for record in records for one in (*record.shown("dropped"), *record.shown("warnings"))
    ):
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
        listed = keeper.begin(going.record())

        def watch(progress: Progress) -> None:
            first, last = progress.run + 1, progress.run + progress.together
            which = f"runs {first} to {last}" if last > first else f"run {first}"
            doing.at(
                progress.fraction,
                f"{name}, {which} of {progress.runs}" if progress.runs > 1 else name,
            )
            if listed is not None:
                listed.beat(going.time, going.horizon)

        def keep() -> str:
            return keeper.interrupted(keeper.name(going.record_interrupted(), listed))

        try:
            with save_on_interrupt(keep, lambda: going.records_while_running or not going.time):
                going.finish(watch)
        except KeyboardInterrupt as stop:
            raise Interrupted(keeper.name(going.record("interrupted"), listed)) from stop
        except BaseException:
            if listed is not None:
                listed.drop()
            raise
        return keeper.name(going.record(), listed)


def title(settings: RunSettings) -> str:
    """Name a run while it goes on: its system and its protection."""
    from posse.systems.registry import system_of

    known = system_of(settings)
    return f"{known.about.title} ({known.level_of(settings)})"


def _document(
    known: AnySystem, records: Sequence[Record], keeper: Keeper, **more: Any
) -> dict[str, Any]:
    from posse.systems.modules import report_of

    sections = report_of(known).sections(records)
    remarks = [section.data or section.plain() for section in sections]
    return {
        **more,
        "to_store": keeper.saves,
        "remarks": remarks,
        "records": [one.document() for one in records],
    }


def _show(
    known: AnySystem, records: Sequence[Record], exact: bool, full: bool, stored: bool
) -> None:
    """Print the document of a run and of what it is compared with."""
    from posse.results.document import document, sameness
    from posse.systems.modules import report_of

    notes = [sameness(*records[:2])] if exact else []
    shown = document(records, report_of(known).sections(records), notes)
    show(shown, full=full)
    if exact and not full and notes[0].startswith("NOT"):
        say(notes[0], style="bold red")
    if not stored and not full:
        details("the same command with")


# Several configurations ---------------------------------------------------------------------------


def compare_command(known: AnySystem) -> Any:
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
                "--policy twice, as in: posse compare --policy ucb --policy thompson"
            )
        if len(set(policies)) < len(policies):
            raise ConfigError(
                "a policy is given twice. To compare parameters: posse sweep --over NAME=VALUE,VALUE"
            )
        each = [
            _checked(settings) for settings in _varied(known, context, config, {"policy": policies})
        ]
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
        _show_comparison([], keeper, json, full, [settings.plain() for settings in each])

    summary = "Compare policies on the same worlds, by their plain twins."
    command = system_command(known, "policy", "path", runs=SIMULATED_RUNS)
    return command_of(known.name, summary, command, compare)


def stored_command() -> Any:
    """Make `posse compare ID ID ...`."""

    def stored(
        ids: flags.Ids,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        full: flags.Full = False,
    ) -> None:
        from posse.results.store import Store
        from posse.systems.registry import names

        if len(ids) < 2:
            what = f"Systems: {', '.join(names())}."
            raise ConfigError(
                f"a comparison needs at least 2 runs, got {len(ids)}. Give two ids. {what}"
            )
        keeper = Keeper(save=False, report=report, figure=figure)
        store = Store()
        _show_comparison([store.get(id) for id in ids], keeper, json, full)

    return command_of(STORED, "Compare stored runs.", typer.core.TyperCommand, stored)


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
            metadata = [record.metadata() for record in records]
            print_json(
                {
                    "rows": [asdict(row) for row in compared.rows],
                    "notes": compared.notes,
                    "records": metadata,
                }
            )
        else:
            show(document(records), full=full)
            again = f"posse compare {' '.join(record.id for record in records)}"
            if not keeper.saves and not full:
                details("the same command with" if each else again)
    if keeper.saves and not json:
        saved(records, "the same command with" if len(records) > MOST_IDS else again)


def sweep_command(known: AnySystem) -> Any:
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
        from posse.sweeps import SweepInterrupted
        from posse.sweeps import sweep as run_sweep

        grid = _grid(over or ())
        if not grid:
            raise ConfigError(
                "a sweep varies something. Give --over, as in: --over policy=ucb,thompson"
            )
        check_place(out)
        keeper = Keeper(save=not no_save, report=report, figure=figure)
        settings = _varied(known, context, config, grid)
        at = [0]

        def kept() -> str:
            also = "the same command goes on" if keeper.saves else "nothing was saved (--no-save)"
            return f"{at[0]} of {len(settings)} settings are done; {also}"

        def watch(done: int, whole: int) -> None:
            at[0] = done
            doing.at(done / whole, f"{known.about.title}: {done} of {whole} settings")

        try:
            with (
                Doing(f"{known.about.title}: {len(settings)} settings") as doing,
                save_on_interrupt(kept),
            ):
                made = run_sweep(
                    settings, store=keeper.store, executor=cluster, workers=workers, watch=watch
                )
        except SweepInterrupted:
            remark(f"interrupted; {kept()}.")
            raise typer.Exit(flags.INTERRUPTED) from None
        if out is not None:
            made.write(out)
            remark(f"table: {out}")
        keeper.draw(made.records)
        if json:
            print_json(
                {
                    "records": [record.document() for record in made.records],
                    "run": made.run,
                    "kept": made.kept,
                }
            )
            return
        from posse.results.document import document

        remark(
            f"{known.about.title}: {len(made.records)} settings, {made.run} run now, {made.kept} "
            "found in the store"
        )
        show(document(made.records), full=full)
        if not full:
            details("the same command with")

    summary = (
        "Run a grid of settings, on processes or a cluster; what was run before is not run again."
    )
    command = system_command(known, runs=SIMULATED_RUNS)
    return command_of(known.name, summary, command, sweep)


def _grid(over: Iterable[str]) -> dict[str, list[Any]]:
    """Read what --over says; commas within brackets do not separate values."""
    grid: dict[str, list[Any]] = {}
    for text in over:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigError(f"expected NAME=VALUE,VALUE,... after --over, got '{text}'.")
        name = name.strip().replace("-", "_")
        if name in grid:
            raise ConfigError(
                f"{name} is varied twice. Give all its values in one --over, with commas."
            )
        grid[name] = list(_values(values))
    return grid


def _values(text: str) -> Iterator[Any]:
    """Take values apart at commas; a list or table, as TOML writes it, is one value."""
    parts, at = text.split(","), 0
    while at < len(parts):
        ends = range(at + 1, len(parts) + 1) if parts[at].lstrip().startswith(("[", "{")) else ()
        for end in ends:
            with suppress(tomllib.TOMLDecodeError):
                read = tomllib.loads(f"value = {','.join(parts[at:end]).strip()}")
                if list(read) == ["value"]:
                    yield read["value"]
                    at = end
                    break
        else:
            yield parts[at].strip()
            at += 1


def _varied(
    known: AnySystem, context: typer.Context, config: Path | None, grid: dict[str, list[Any]]
) -> list[Any]:
    """Build the settings of a grid; a parameter that a policy lacks is left out where another one
    has it.
    """
    from posse.core.settings import read_toml
    from posse.sweeps import grid_of

    file = {"runs": SIMULATED_RUNS, **(read_toml(config) if config is not None else {})}
    return list(grid_of(known.Settings, known.Settings.merged(file, flags_given(context)), grid))
