"""`posse run fed-contextual`: one reward model on many devices, simulated."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options, work
from posse.cli.flags import settings_of
from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, record_json, remark, say, table

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.settings import FedSettings
    from posse.results.record import RunRecord

PlainToo = Annotated[
    bool, typer.Option("--plain-too", help="Run the same without noise and rounding beside it, on the same cohorts.")
]

_ROWS = (
    ("average reward", "average_reward"), ("the same, last tenth of the rounds", "average_reward_last_tenth"),
    ("mean probability of the chosen arm", "average_probability"), ("decisions", "samples"),
    ("rounds", "rounds_done"), ("clip norm at the end", "clip_norm"), ("updates within it", "within_clip"),
    ("rounds a second", "rounds_a_second"),
)  # fmt: skip


def fed_settings() -> type[FedSettings]:
    """Import the settings of federated contextual bandits."""
    from posse.protocols.fed_contextual.settings import FedSettings

    return FedSettings


def fed_contextual(
    context: typer.Context,
    config: options.Config = None,
    plain_too: PlainToo = False,
    json: options.Json = False,
    report: options.Report = None,
    figure: options.Figure = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Run a federated contextual bandit: devices act, log and learn, a server sums their updates."""
    # dp-accounting warns of every order of Renyi's divergence that it leaves out; leaving some out is safe.
    logging.getLogger("absl").setLevel(logging.ERROR)
    settings = settings_of(fed_settings(), context, config)
    keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
    with Doing("reading data and checking"):
        setup = settings.check()
    with keeper.on_interrupt():
        records = [keeper.name(work.fed(settings, setup))]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens beside it
        if plain_too and records[0].protected:
            with keeper.on_interrupt():
                plain = _plain(settings, setup.sampling, setup.rounds)
                records.append(keeper.name(work.fed(plain, plain.check())))
        if json:
            told = {"stopped": records[0].summary.get("stopped"), "to_store": keeper.saves}
            print_json({**told, "records": [record_json(record) for record in records]})
        else:
            _show(records)
    if stopped := records[0].summary.get("stopped"):
        remark(f"stopped early: {stopped}. More noise, a smaller cohort or a larger limit allow more.")
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records)


def _plain(settings: FedSettings, sampling: str, rounds: int) -> FedSettings:
    """Return the settings without protection: the same rounds, and the same cohorts."""
    fixed = 0.0 if settings.noise else settings.quantile
    changes = {"noise": 0.0, "levels": 0, "limit": None, "keep": None, "quantile": fixed}
    return settings.model_copy(update={**changes, "sampling": sampling, "rounds": rounds})


def _show(records: Sequence[RunRecord]) -> None:
    from posse.cli import tables
    from posse.protocols.fed_contextual.levels import learns

    first = records[0]
    heading(f"Federated contextual bandit: {tables.describe(first)}")
    _results(records)
    _estimated(first)
    heading("What each role learns")
    bullets(learns(first.config), style="green" if first.protected else "yellow")
    tables.protection(first)


def _results(records: Sequence[RunRecord]) -> None:
    """Print what was earned, a column a record."""
    from posse.results import standard_error, words

    rows = [("model", *(str(one.config.get("model")) for one in records))]
    rows.append(("earned", *(words.plus_minus(one.total_mean, standard_error(one.total)) for one in records)))
    for name, key in _ROWS:
        found = [one.summary.get(key) for one in records]
        numbers = [value if isinstance(value, int | float) else None for value in found]
        rows.append((name, *(words.number(value, 4) for value in numbers)))
    rows.append(("CPU time", *(words.seconds(one.seconds) for one in records)))
    update = records[0].summary.get("bytes_an_update")
    if isinstance(update, int):
        rows.append(("an update, or the model", *(words.size(update) for _ in records)))
    table(["", *(one.protection for one in records)], rows, numeric=range(1, len(records) + 1))
    if records[0].runs > 1:
        say("Earned: mean of the runs ± its standard error. All else: over all runs together.", style="dim")


def _estimated(record: RunRecord) -> None:
    """Print what another policy would earn, or why that cannot be told."""
    from posse.results import words

    told = record.summary
    value, error = told.get("estimated_reward"), told.get("estimated_reward_error")
    if isinstance(value, float) and isinstance(error, float):
        much = words.plus_minus(value, error)
        say(f"\nWith the last model {told['evaluated']} would earn {much} a decision (SNIPS on devices' logs).")
    if refused := told.get("estimate_refused"):
        say(f"\nWhat {told['evaluated']} would earn cannot be told: {refused}", style="yellow")
