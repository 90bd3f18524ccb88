"""The commands, put together."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer

from posse.cli import (
    arms,
    budget,
    ca,
    contextual,
    demo,
    devices,
    fed,
    federation,
    market,
    policies,
    problems,
    reproduce,
    run,
    runs,
    sampled,
)
from posse.cli.compare import compare
from posse.cli.flags import settings_command
from posse.cli.options import samba_settings
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


@run.app.callback(invoke_without_command=True)
def _run(context: typer.Context) -> None:
    _help_when_alone(context)


@runs.app.callback(invoke_without_command=True)
def _runs(context: typer.Context) -> None:
    _help_when_alone(context)


def _help_when_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        # With rich the help is printed while it is made, and what comes back is empty.
        typer.echo(context.get_help(), nl=False)


app.command("demo")(demo.demo)
run.app.command("dp-combinatorial", cls=settings_command(market.market_settings))(market.dp_combinatorial)
run.app.command("mpc-contextual", cls=settings_command(contextual.contextual_settings))(contextual.mpc_contextual)
run.app.command("fed-contextual", cls=settings_command(fed.fed_settings, skip=["delay"]))(fed.fed_contextual)
app.add_typer(run.app, name="run")
app.command("simulate", cls=settings_command(samba_settings, runs=run.SIMULATED_RUNS))(run.simulate)
app.command("compare", cls=settings_command(samba_settings, skip=["policy"], runs=run.SIMULATED_RUNS))(compare)
app.add_typer(runs.app, name="runs")
app.command("policies")(policies.policies)
app.command("problems", cls=settings_command(problems.problem_settings, skip=["data"]))(problems.problems)
budget.app.command("arms", cls=settings_command(arms.arm_settings))(arms.arms)
budget.app.command("sampled", cls=settings_command(sampled.sampled_settings))(sampled.sampled)
app.add_typer(budget.app, name="budget")
app.command("reproduce")(reproduce.reproduce)
app.add_typer(ca.app, name="ca")
app.command("enrol")(ca.enrol)
devices.app.command(
    "up", cls=settings_command(devices.device_settings, skip=["out", "start_with"], seed=devices.TRIAL_SEED)
)(devices.up)
devices.app.command(
    "simulate",
    cls=settings_command(devices.device_settings, skip=["out", "start_with", "secure"], seed=devices.TRIAL_SEED),
)(devices.simulate)
devices.app.command("app", cls=settings_command(devices.device_settings))(devices.write)
app.add_typer(devices.app, name="devices")
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
