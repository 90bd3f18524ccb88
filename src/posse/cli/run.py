"""`posse run` and `posse simulate`: one configuration, secure or plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options, work
from posse.cli.flags import settings_command, settings_of
from posse.cli.keep import Keeper
from posse.cli.screen import heading, print_json, record_json, say

if TYPE_CHECKING:
    from posse.results.record import Record

app = typer.Typer(help="Run a protected protocol.", no_args_is_help=False)

PlainToo = Annotated[bool, typer.Option("--plain-too/--no-plain-too", help="Run the plain twin beside it.")]

SIMULATED_RUNS = 50


@app.command("samba", cls=settings_command(options.samba_settings))
def samba(
    context: typer.Context,
    config: options.Config = None,
    plain_too: PlainToo = True,
    json: options.Json = False,
    report: options.Report = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Run Samba: one arm per data owner, nobody sees another's rewards."""
    settings = settings_of(options.samba_settings(), context, config)
    settings.load()
    keeper = Keeper(save=not no_save, label=label, report=report)
    with keeper.on_interrupt():
        secure = keeper.name(work.secure(settings))
        records = [secure, keeper.name(work.plain(settings))] if plain_too else [secure]
    with keeper.kept(records):
        if json:
            _print_json(records, keeper)
        else:
            _show(records)
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records)


def simulate(
    context: typer.Context,
    config: options.Config = None,
    json: options.Json = False,
    report: options.Report = None,
    figure: options.Figure = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Simulate the plain bandit, many runs at once (50 unless --runs says otherwise)."""
    settings = settings_of(options.samba_settings(), context, config, runs=SIMULATED_RUNS)
    settings.load()
    keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
    with keeper.on_interrupt():
        record = keeper.name(work.plain(settings))
    with keeper.kept([record]):
        if json:
            _print_json([record], keeper)
        else:
            _show_plain(record)
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved([record])


def _show(records: list[Record]) -> None:
    from posse.cli import tables

    heading(f"Samba: {tables.describe(records[0])}")
    # The plain twin first: the cost of protection is measured against it.
    tables.earned_and_cost(records[::-1])
    if len(records) > 1:
        say(f"\n{tables.sameness(*records)}", style="bold")
    tables.protection(records[0])


def _show_plain(record: Record) -> None:
    from posse.cli import tables

    heading(f"Plain simulation: {tables.describe(record)}")
    tables.earned_and_cost([record])
    say("")
    tables.pulls(record)


def _print_json(records: list[Record], keeper: Keeper) -> None:
    from posse.results import identical

    same = identical(*records) if len(records) == 2 else None
    print_json({"identical": same, "to_store": keeper.saves, "records": [record_json(record) for record in records]})
