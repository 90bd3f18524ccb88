"""The commands, put together."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Annotated, Any

import typer

from posse.cli import ca, demo, federation, lists, reproduce, runs, systems
from posse.cli.root import Root
from posse.version import __version__

FRAMED = 70
"""Columns from which on help is set in frames."""

# Locals in a traceback could print keys; markup in help texts would eat brackets.
app = typer.Typer(
    name="posse",
    cls=Root,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Bandits across organisations that will not show each other their data.",
    epilog="Start with: posse demo",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"posse {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    _help_when_alone(context)


@runs.app.callback(invoke_without_command=True)
def _runs(context: typer.Context) -> None:
    _help_when_alone(context)


def _help_when_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        # With rich the help is printed while it is made, and what comes back is empty.
        typer.echo(context.get_help(), nl=False)


def _of_systems(make: Callable[[str], Any], summary: str, **options: Any) -> typer.Typer:
    """Make a group with a command for every system."""
    group = typer.Typer(cls=systems.system_group(make, **options), help=summary)

    @group.callback(invoke_without_command=True)
    def alone(context: typer.Context) -> None:
        _help_when_alone(context)

    return group


app.command("demo")(demo.demo)
app.add_typer(_of_systems(systems.run_command, "Run a protected protocol.", first=False), name="run")
app.add_typer(
    _of_systems(systems.simulate_command, "Simulate plain bandits, many runs at once.", first=True), name="simulate"
)
app.add_typer(
    _of_systems(
        systems.compare_command,
        "Compare stored runs (ids), or policies on the same worlds (--policy A --policy B).",
        first=True,
        other=systems.stored_command,
    ),
    name="compare",
)
app.add_typer(_of_systems(systems.sweep_command, "Run a grid of settings.", first=True), name="sweep")
app.add_typer(runs.app, name="runs")
app.command("policies")(lists.policies)
app.command("problems")(lists.problems)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(ca.app, name="ca")
app.command("enrol")(ca.enrol)
app.command("up")(federation.up)
app.command("party")(federation.party)
app.command("status")(federation.status)
app.command("pause")(federation.pause)
app.command("resume")(federation.resume)
app.command("stop")(federation.stop)
app.command("end")(federation.end)
app.command("doctor")(federation.doctor)


def command() -> Any:
    """Make the command that runs everything; help in frames needs a terminal wide enough for them."""
    app.rich_markup_mode = "rich" if shutil.get_terminal_size().columns >= FRAMED else None
    return typer.main.get_command(app)
