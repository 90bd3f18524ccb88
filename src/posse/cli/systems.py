"""Commands that every system has, made from what it declares: `posse run SYSTEM`, `compare`,
`sweep`.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from posse.cli import flags
from posse.cli.flags import flags_given, settings_command, settings_of
from posse.cli.help import Command, make_command, text_of
from posse.cli.keep import Keeper, check_place, open_store
from posse.cli.progress import Doing
from posse.cli.screen import details, in_terminal, print_json, remark, saved, show
from posse.core.errors import ConfigError, PosseError
from posse.core.interrupts import save_on_interrupt
from posse.core.settings import read_toml
from posse.problems.data import DataSettings, TableSettings
from posse.results import Interrupted, Progress, Record, Store, identical
from posse.results import compare as compare_records
from posse.results.document import Document, document, sameness
from posse.systems import registry
from posse.systems.base import AnySystem, RunSettings
from posse.systems.modules import commands_of, report_of
from posse.systems.registry import names, system_of

if TYPE_CHECKING:
    from posse.sweeps import Sweep

SIMULATED_RUNS = 50
MOST_IDS = 2
"""Ids that are printed as a command."""
SAME = "the same command with"

R = TypeVar("R", bound=RunSettings)
Compared = Annotated[
    bool | None,
    typer.Option(
        "--beside/--no-beside",
        "--plain-too/--no-plain-too",
        help="Run its twins, or what it is compared with, too.",
        show_default=False,
    ),
]


# One path: settings, run, store, output -----------------------------------------------------------


def system_command(system: AnySystem, *without: str, **defaults: Any) -> type[TyperCommand]:
    """Make a command with a flag for each setting of a system, except those `without` one."""
    skip = (*commands_of(system).without_flag, *without)
    return settings_command(lambda: system.Settings, skip=skip, **defaults)


def check(settings: R) -> R:
    """Read the data and check everything, before a store is opened or a run begins."""
    try:
        load(settings)
    except PosseError as error:
        settings = _ask_for_settings(settings, error)
        load(settings)
    return settings


def _ask_for_settings(settings: R, error: PosseError) -> R:
    """Ask whether a table is to be read with the settings that fit it.

    Args:
        settings: Rettings whose table cannot be read.
        error: Why not.

    Raises:
        PosseError: `error`, if nobody can be asked, nothing else fits, or the answer is no.
    """
    from posse.problems.summary import as_flags, summarise

    source: object = settings
    may_ask = error.rule.startswith("problems.") and in_terminal()
    if not may_ask or not isinstance(source, TableSettings):
        raise error
    try:
        summary = summarise(list(source.data_files()), source.columns)
    except PosseError:
        raise error from None
    if summary.flags:
        words = shlex.join(as_flags(summary.flags))
        typer.echo(error.text, err=True)
        if typer.confirm(f"Read it with {words}?", default=True, err=True):
            return settings.but(**summary.flags)
    raise error


def load(settings: RunSettings) -> None:
    """Read the data of settings and check them, with progress."""
    with Doing("reading data and checking") as doing:
        source: object = settings
        if isinstance(source, DataSettings):
            source.watch_reading(doing.at)
        settings.load()


def go(settings: RunSettings, keeper: Keeper) -> Record:
    """Run settings to the end, with progress shown on the screen and in the store."""
    name = title(settings)
    with Doing(f"{name}: preparing") as doing:
        going = registry.start(settings, transcript=0)
        handle = keeper.begin(going.record())

        def watch(progress: Progress) -> None:
            doing.at(progress.fraction, f"{name}{_place_of(progress)}")
            if handle is not None:
                handle.beat(going.time, going.horizon)

        def save() -> str:
            return keeper.save_interrupted(keeper.name(going.record_interrupted(), handle))

        try:
            with save_on_interrupt(save, lambda: going.records_while_running or not going.time):
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


def run_and_print(
    each: Iterable[RunSettings],
    records: list[Record],
    keeper: Keeper,
    present: Callable[[], Document | dict[str, object]],
    full: bool,
    again: Callable[[], str] = lambda: "",
) -> None:
    """Run settings, print their records and keep them; what was finished is always kept.

    Args:
        each: The settings.
        records: Records that exist; those of the settings are added.
        keeper: Where records go.
        present: Returns what is printed: a document, or plain data with --json.
        full: Whether all of a document is printed.
        again: Returns the command that prints the stored records.
    """
    with keeper.keep(records):
        with keeper.on_interrupt():
            records.extend(go(settings, keeper) for settings in each)
        content = present()
        if isinstance(content, Document):
            print_document(content, full, keeper.again)
        else:
            print_json(content)
    if keeper.saves and isinstance(content, Document):
        saved(records, again())


def print_document(content: Document, full: bool, command: str = SAME) -> None:
    """Print a document, and below a short one the command that prints all of it."""
    show(content, full=full)
    if command and not full:
        details(command)


# One configuration --------------------------------------------------------------------------------


def run_command(system: AnySystem) -> TyperCommand:
    """Make `posse run NAME`."""

    def run(
        context: typer.Context,
        *,
        config: flags.Config = None,
        plain: bool = False,
        compared: Compared = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        """Run settings of a system.

        Options:
            plain: Simulate it without protection; 50 runs unless --runs is given.
        """
        own_report = report_of(system)
        if plain:
            settings = settings_of(system.Settings, context, config, runs=SIMULATED_RUNS).plain()
        else:
            settings = settings_of(system.Settings, context, config)
        settings = check(settings)
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure, json=json)
        twins: Sequence[RunSettings] = ()
        if compared is None:
            compared = own_report.compared_by_default and not plain
        if compared:
            twins = own_report.comparisons(settings)
        is_exact = system.about.exact and settings.plain() in twins[:1]
        records: list[Record] = []

        def present() -> Document | dict[str, object]:
            content = _data if json else _document
            return content(system, records, is_exact, keeper.saves)

        run_and_print((settings, *twins), records, keeper, present, full)
        _print_warnings(records)

    examples = (
        f"posse run {system.name} --policy NAME --seed 7",
        f"posse run {system.name} --plain",
    )
    text = text_of(system.about.summary, examples)
    return make_command(system.name, system_command(system), run, text)


def _data(
    system: AnySystem, records: Sequence[Record], is_exact: bool, stored: bool
) -> dict[str, object]:
    """Return what `posse run --json` prints."""
    sections = report_of(system).sections(records)
    return {
        "identical": identical(*records[:2]) if is_exact else None,
        "to_store": stored,
        "remarks": [section.data or section.plain() for section in sections],
        "records": [record.document() for record in records],
    }


def _document(
    system: AnySystem, records: Sequence[Record], is_exact: bool, stored: bool
) -> Document:
    """Return the document of a run and of what it is compared with."""
    from posse.results.document import document

    notes = [sameness(*records[:2])] if is_exact else []
    content = document(records, report_of(system).sections(records), notes)
    failed = [note for note in notes if note.startswith("NOT")]
    return replace(content, warnings=(*failed, *content.warnings))


def _print_warnings(records: Sequence[Record]) -> None:
    """Print each warning of the records once."""
    warnings: dict[str, None] = {}
    for record in records:
        stopped = record.show.get("stopped")
        if stopped:
            remark(f"stopped early: {stopped}")
        warnings |= dict.fromkeys((*record.shown("dropped"), *record.shown("warnings")))
    for sentence in warnings:
        remark(f"warning: {sentence}")


# Several configurations ---------------------------------------------------------------------------


def compare_command(system: AnySystem) -> TyperCommand:
    """Make `posse compare NAME --policy A --policy B`: policies on the same worlds."""

    def compare(
        context: typer.Context,
        *,
        policy: list[str] = flags.NONE_GIVEN,
        config: flags.Config = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        label: flags.Label = None,
        full: flags.Full = False,
    ) -> None:
        """Compare policies of a system.

        Options:
            policy (NAME): A policy; repeat it.
        """
        if len(policy) < 2:
            raise ConfigError(
                f"a comparison needs at least 2 runs, got {len(policy)}. Give two ids ('posse "
                "runs list'), or --policy twice: posse compare --policy ucb --policy thompson",
                rule="cli.policy.too-few",
            )
        if len(set(policy)) < len(policy):
            raise ConfigError(
                "a policy is given twice. To compare parameters: posse sweep --over "
                "NAME=VALUE,VALUE",
                rule="cli.policy.twice",
            )
        varied = _varied(system, context, config, {"policy": policy})
        each = [check(settings).plain() for settings in varied]
        keeper = Keeper(save=not no_save, label=label, report=report, figure=figure, json=json)
        _compare(each, [], keeper, json, full)

    summary = "Compare policies on the same worlds, by their plain twins."
    command = system_command(system, "policy", "path", runs=SIMULATED_RUNS)
    examples = (f"posse compare {system.name} --policy NAME --policy NAME", "posse compare ID ID")
    return make_command(system.name, command, compare, text_of(summary, examples))


def compare_stored_command() -> TyperCommand:
    """Make `posse compare ID ID ...`."""

    def stored(
        ids: list[str],
        *,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        full: flags.Full = False,
    ) -> None:
        """Compare stored runs.

        Options:
            ids (ID...): Ids, beginnings of ids, or 'last'.
        """
        if len(ids) < 2:
            raise ConfigError(
                f"a comparison needs at least 2 runs, got {len(ids)}. Give two ids. Systems: "
                f"{', '.join(names())}.",
                rule="cli.ids.too-few",
            )
        keeper = Keeper(save=False, report=report, figure=figure, json=json)
        _compare((), list(map(open_store().get, ids)), keeper, json, full)

    return make_command("compare", Command, stored)


def _compare(
    each: Sequence[RunSettings], records: list[Record], keeper: Keeper, json: bool, full: bool
) -> None:
    """Compare stored records, or run settings and compare these."""

    def present() -> Document | dict[str, object]:
        compared = compare_records(records)
        if not json:
            return document(records)
        rows = [asdict(row) for row in compared.rows]
        metadata = [record.metadata() for record in records]
        return {"rows": rows, "notes": compared.notes, "records": metadata}

    def again() -> str:
        ids = " ".join(record.id for record in records)
        return SAME if len(records) > MOST_IDS else f"posse compare {ids}"

    run_and_print(each, records, keeper, present, full, again)


def sweep_command(system: AnySystem) -> TyperCommand:
    """Make `posse sweep NAME --over policy=ucb,thompson --over horizon=1000,10000`."""

    def sweep(
        context: typer.Context,
        *,
        over: list[str] = flags.NONE_GIVEN,
        workers: int | None = None,
        cluster: str | None = None,
        config: flags.Config = None,
        out: Path | None = None,
        json: flags.Json = False,
        report: flags.Report = None,
        figure: flags.Figure = None,
        no_save: flags.NoSave = False,
        full: flags.Full = False,
    ) -> None:
        """Run a grid of settings.

        Options:
            over (NAME=VALUES): Vary a setting: NAME=VALUE,VALUE,... A list or table is a value in
                brackets, as in TOML. Repeat it for a grid.
            workers (INTEGER): Number of processes (default: number of cores).
            cluster (ADDRESS): Address of a Dask scheduler to run on.
            out (FILE): Write a tidy table here (.csv).
        """
        from posse.sweeps import changed_by_twin, plain_where_equal

        grid = _grid(over)
        if out is not None:
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
        results = _sweep(
            system.about.title, settings, store=keeper.store, executor=cluster, workers=workers
        )
        if out is not None:
            results.write(out)
            remark(f"table: {out}")
        keeper.draw(results.records)
        if json:
            documents = [record.document() for record in results.records]
            print_json({"records": documents, "run": results.run, "kept": results.kept})
            return
        remark(
            f"{system.about.title}: {len(results.records)} settings, {results.run} run now, "
            f"{results.kept} found in the store"
        )
        print_document(document(results.records), full)

    summary = (
        "Run a grid of settings, on processes or a cluster; what was run before is not run again."
    )
    command = system_command(system, runs=SIMULATED_RUNS)
    examples = (
        f"posse sweep {system.name} --over policy=NAME,NAME",
        f"posse sweep {system.name} --over seed=1,2,3 --out table.csv",
    )
    return make_command(system.name, command, sweep, text_of(summary, examples))


def _sweep(
    name: str, settings: Sequence[RunSettings], store: Store | None, **options: Any
) -> Sweep:
    """Run settings with progress; after Ctrl-C print how many are done."""
    from posse.sweeps import SweepInterrupted, sweep

    finished = 0

    def progress() -> str:
        also = "nothing was saved (--no-save)" if store is None else "the same command continues"
        return f"{finished} of {len(settings)} settings are done; {also}"

    def watch(done: int, total: int) -> None:
        nonlocal finished
        finished = done
        doing.at(done / total, f"{name}: {done} of {total} settings")

    try:
        with Doing(f"{name}: {len(settings)} settings") as doing, save_on_interrupt(progress):
            return sweep(settings, store=store, watch=watch, **options)
    except SweepInterrupted:
        remark(f"interrupted; {progress()}.")
        raise typer.Exit(flags.INTERRUPTED) from None


def _grid(over: Sequence[str]) -> dict[str, list[Any]]:
    """Read what --over says: the values of each setting that varies."""
    if not over:
        raise ConfigError(
            "a sweep varies something. Give --over, as in: --over policy=ucb,thompson",
            rule="cli.over.missing",
        )
    grid: dict[str, list[Any]] = {}
    for text in over:
        name, _, values = text.partition("=")
        if not values:
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
    """Take values apart at commas; a list or table, as TOML writes it, is one value.

    >>> list(_values("ucb, [1,2]"))
    ['ucb', [1, 2]]
    """
    parts = text.split(",")
    while parts:
        first = parts.pop(0).strip()
        table = first
        rest = list(parts)
        while table.startswith(("[", "{")):
            with suppress(tomllib.TOMLDecodeError):
                (value,) = tomllib.loads(f"value = {table}").values()
                yield value
                parts = rest
                break
            if not rest:
                yield first
                break
            table = f"{table},{rest.pop(0)}"
        else:
            yield first


def _varied(
    system: AnySystem, context: typer.Context, config: Path | None, grid: dict[str, list[Any]]
) -> list[Any]:
    """Build the settings of a grid.

    A parameter that a policy lacks is left out where another policy has it.
    """
    from posse.sweeps import grid_of

    file = {} if config is None else read_toml(config)
    values = {"runs": SIMULATED_RUNS, **file}
    return list(
        grid_of(system.Settings, system.Settings.merged(values, flags_given(context)), grid)
    )
