"""`posse run fed-contextual`: one reward model on many devices, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options, work
from posse.cli.flags import settings_of
from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, record_json, remark

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.settings import FedSettings
    from posse.results.record import Record

PlainToo = Annotated[
    bool, typer.Option("--plain-too", help="Run the same without noise and rounding beside it, on the same cohorts.")
]


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
    from posse.protocols.fed_contextual import remarks

    settings = settings_of(fed_settings(), context, config)
    keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
    with Doing("reading data and checking"):
        setup = settings.check()
    with keeper.on_interrupt(settings.keep, _told_json if json else None):
        records = [keeper.name(work.fed(settings, setup))]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens beside it
        if plain_too and records[0].protected:
            with keeper.on_interrupt(show=_told_json if json else None):
                plain = _plain(settings, setup.sampling, setup.rounds)
                records.append(keeper.name(work.fed(plain, plain.check())))
        if json:
            _told_json(records, saves=keeper.saves)
        else:
            _show(records)
    if stopped := records[0].summary.get("stopped"):
        remark(f"stopped early: {stopped}. More noise, a smaller cohort or a larger limit allow more.")
    for sentence in dict.fromkeys(sentence for record in records for sentence in remarks.told(record.summary)):
        remark(f"warning: {sentence}")
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records)


def _plain(settings: FedSettings, sampling: str, rounds: int) -> FedSettings:
    """Return the settings without protection: the same rounds, and the same cohorts."""
    fixed = 0.0 if settings.noise else settings.quantile
    changes = {"noise": 0.0, "levels": 0, "limit": None, "keep": None, "model_out": None, "quantile": fixed}
    return settings.model_copy(update={**changes, "sampling": sampling, "rounds": rounds})


def _told_json(records: Sequence[Record], *, saves: bool) -> None:
    told = {"stopped": records[0].summary.get("stopped"), "to_store": saves}
    print_json({**told, "records": [record_json(record) for record in records]})


def _show(records: Sequence[Record]) -> None:
    from posse.cli import fed_tables, tables
    from posse.protocols.fed_contextual.levels import learns

    first = records[0]
    heading(f"Federated contextual bandit: {tables.describe(first)}")
    fed_tables.results(records)
    if first.arms:
        heading("Decisions")
        tables.pulls(first)
    fed_tables.estimated(first)
    heading("What each role learns")
    bullets(learns(first.config), style="green" if first.protected else "yellow")
    tables.protection(first)
