"""`posse devices`: a federated contextual bandit on devices, through Flower."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import options
from posse.cli.flags import flags_given, settings_of
from posse.cli.screen import bullets, heading, print_json, remark, say
from posse.core.check import at_least
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.flower.settings import DeviceSettings
    from posse.protocols.fed_contextual.flower.trial import Trial

app = typer.Typer(name="devices", help="Run a contextual bandit on devices, through Flower.")

Nodes = Annotated[int, typer.Option(help="Devices.", metavar="INTEGER")]
Folder = Annotated[Path, typer.Option(help="Where keys, logs, the state and the model go.", metavar="DIR")]
Target = Annotated[Path, typer.Argument(help="A new folder for the project.", metavar="DIR")]
Publisher = Annotated[str, typer.Option(help="Who publishes the app.", metavar="TEXT")]
MOST = 64
"""Devices on one machine at most: each takes two processes and some 250 MB."""
TRIAL_SEED = 1
NAMES = ("PLD", "RDP")
"""Accountants, in the order of the figures."""


def device_settings() -> type[DeviceSettings]:
    """Import the settings."""
    from posse.protocols.fed_contextual.flower.settings import DeviceSettings

    return DeviceSettings


@app.callback(invoke_without_command=True)
def _devices(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def up(
    context: typer.Context,
    nodes: Nodes = 3,
    folder: Folder = Path("posse-devices"),
    config: options.Config = None,
    json_: options.Json = False,
) -> None:
    """Try a fleet on this machine: a SuperLink, nodes with keys of their own, TLS; the same command goes on."""
    if nodes > MOST:
        raise ConfigError(f"nodes on one machine must be at most {MOST}, got {nodes}. Try 'posse devices simulate'.")
    trial = _trial(context, config, nodes, folder)
    _needs("flwr")
    _check(trial)
    with _stopping(trial):
        trial.start()
        trial.submit()
        _follow(trial)
    _show(trial, json_)


def simulate(
    context: typer.Context,
    nodes: Nodes = 100,
    folder: Folder = Path("posse-simulation"),
    config: options.Config = None,
    json_: options.Json = False,
) -> None:
    """Simulate a fleet with Flower's own engine, which spreads it over a cluster; no TLS and no keys."""
    trial = _trial(context, config, nodes, folder)
    _needs("flwr")
    _needs("ray", "flower-simulation")
    if trial.settings.secure:
        raise ConfigError("a simulation has no keys, so that its sums cannot be secure. Take 'posse devices up'.")
    _check(trial)
    with _stopping(trial):
        trial.start_simulation()
        trial.submit("--federation-config", f"num-supernodes={nodes}")
        _follow(trial)
    _show(trial, json_)


def write(
    context: typer.Context, folder: Target, config: options.Config = None, publisher: Publisher = "posse"
) -> None:
    """Write the Flower app for a real fleet: an installable project with these settings."""
    from posse.protocols.fed_contextual.flower.project import write_project

    made = write_project(folder, settings_of(device_settings(), context, config).checked(), publisher)
    say(f"Flower app in {made}", style="bold")
    bullets([
        f"start it on a fleet with: flwr run {made} CONNECTION --stream",
        "certificates, keys and what the server sees: docs/devices.md",
    ])  # fmt: skip


def _trial(context: typer.Context, config: Path | None, nodes: int, folder: Path) -> Trial:
    """Make the settings: all nodes take part in a round, and the model fits the data, where nothing else is said."""
    from posse.core.settings import read_toml
    from posse.protocols.fed_contextual.flower.trial import Trial

    at_least(1, nodes=nodes)
    given = {**(read_toml(config) if config is not None else {}), **flags_given(context)}
    usual = {"cohort": min(nodes, 64), "seed": TRIAL_SEED, "devices": nodes}
    settings = device_settings().make({**usual, **_fitting(given), **given})
    if not settings.noise and "devices" not in given:
        settings = settings.model_copy(update={"devices": 0})
    settings.checked()
    if settings.cohort > nodes:
        raise ConfigError(f"cohort must be at most nodes = {nodes}, got {settings.cohort}. Lower it.")
    if settings.noise and settings.devices < nodes:
        raise ConfigError(f"devices must be at least nodes = {nodes}, got {settings.devices}. Raise it.")
    if settings.start:
        settings = settings.model_copy(update={"start": str(Path(settings.start).expanduser().resolve())})
    return Trial(folder, settings, nodes, remark)


def _fitting(given: dict[str, Any]) -> dict[str, Any]:
    if not given.get("data"):
        return {}
    from posse.protocols.fed_contextual.flower.samples import fitting

    return dict(fitting(str(given["data"])))


def _needs(module: str, extra: str = "flower") -> None:
    from posse.core.extras import require

    require(module, extra=extra)
    require("jax", extra="contextual")


def _check(trial: Trial) -> None:
    """Read the first model and look at what a round costs before anything is started."""
    from posse.protocols.fed_contextual.flower.account import check_folder, ledger_of, size_of
    from posse.protocols.fed_contextual.flower.first import first_model
    from posse.protocols.fed_contextual.flower.places import STATE

    settings = trial.settings
    check_folder(settings, trial.out)
    if not (trial.out / STATE).exists():
        first_model(settings)
    if settings.noise:
        # dp-accounting warns of every order of Renyi's divergence that it leaves out; leaving some out is safe.
        logging.getLogger("absl").setLevel(logging.ERROR)
        ledger_of(settings, size_of(settings))


@contextmanager
def _stopping(trial: Trial) -> Iterator[None]:
    """Stop what was started, however this ends; a signal is noted, and ends the waiting."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    told: list[int] = []

    def tell(number: int, frame: object) -> None:
        told.append(number)
        trial.told = True

    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        if not told:
            raise
    finally:
        for number in numbers:  # nothing may interrupt the stopping
            signal.signal(number, signal.SIG_IGN)
        trial.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        remark(f"stopped; the same command goes on from {trial.out}")
        raise typer.Exit(128 + told[0])


def _follow(trial: Trial) -> None:
    for line in trial.follow():
        came = (
            f"{len(line['clients'])} devices, average reward {line['reward']:.4f}" if line["clients"] else "noise alone"
        )
        remark(f"round {line['round']} of {line['of']}: {came}, {line['seconds']:.1f} s")


def _show(trial: Trial, as_json: bool) -> None:
    from posse.results.words import count

    result = trial.result()
    if as_json:
        print_json({**result, "nodes": trial.nodes, "folder": str(trial.folder)})
        return
    rounds, devices = count(result["rounds"], "round"), count(trial.nodes, "device")
    say(f"{rounds} on {devices}: average reward {result['average_reward']:.4f}", "bold")
    protected = "sums were secure: the server saw no single update"
    if not result["secure"]:
        protected = "the server saw every device's update; --secure hides them in sums"
    if trial.link is None:
        protected = "a simulation: nothing was protected"
    seeded = ["run from a seed, for repeating it: no protection of what devices drew"] if result["reproducible"] else []
    bullets([f"model: {result['model']}", protected, *seeded, f"logs, and keys: {trial.folder}"])
    if "privacy" in result:
        _spent(result)


def _spent(result: dict[str, Any]) -> None:
    """Print what was proved of a run under noise, and what not."""
    first = result["privacy"][0]
    figures = ", ".join(f"{one['figure']} by {name}" for name, one in zip(NAMES, result["privacy"], strict=True))
    heading("Differential privacy, epsilon and delta")
    bullets([
        f"{figures}, for {first['covers']}",
        first["adjacency"],
        f"sampling: {first['sampling']}; noise on a sum counts as {first['noise_multiplier']:g} clips",
        f"rounds paid for: {result['paid_rounds']}",
    ], style="green")  # fmt: skip
    heading("Not covered")
    bullets(first["not_covered"], style="yellow")
    if "stopped" in result:
        remark(f"stopped early: {result['stopped']}. More noise, more devices or a larger limit allow more.")
