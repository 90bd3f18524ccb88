"""`posse run dp-combinatorial`: agents that buy from common producers and learn together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options, work
from posse.cli.flags import settings_of
from posse.cli.keep import Keeper
from posse.cli.screen import heading, print_json, record_json, say, table

if TYPE_CHECKING:
    from posse.protocols.dp_combinatorial.settings import MarketRunSettings
    from posse.results.record import Record

Beside = Annotated[
    bool,
    typer.Option("--beside/--no-beside", help="Simulate no federation and open federation beside it, same seeds."),
]


def market_settings() -> type[MarketRunSettings]:
    """Import the settings of markets."""
    from posse.protocols.dp_combinatorial.settings import MarketRunSettings

    return MarketRunSettings


def dp_combinatorial(
    context: typer.Context,
    config: options.Config = None,
    beside: Beside = True,
    json: options.Json = False,
    report: options.Report = None,
    figure: options.Figure = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Run a market: competing agents buy from common producers and share what they learn, with noise."""
    settings = settings_of(market_settings(), context, config)
    settings.check()
    keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
    with keeper.on_interrupt():
        records = [keeper.name(work.market(settings))]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens beside it
        with keeper.on_interrupt():
            records.extend(keeper.name(work.market(one)) for one in (_others(settings) if beside else ()))
        if json:
            print_json({"to_store": keeper.saves, "records": [record_json(record) for record in records]})
        else:
            _show(records)
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records)


def _others(settings: MarketRunSettings) -> list[MarketRunSettings]:
    """The same market and seeds without federation, and with everything shared."""
    methods = [method for method in ("alone", "fcb") if method != settings.method]
    if len(settings.check().market.agents) < 2:
        methods = []
    # The compiled path has the greedy oracle only; a run with another is compared with agents that use it too.
    path = "compiled" if settings.oracle == "greedy" else "agents"
    return [settings.with_method(method).model_copy(update={"path": path}) for method in methods]


def _show(records: Sequence[Record]) -> None:
    from posse.cli import tables

    heading(f"Market: {tables.describe(records[0])}")
    # From nothing shared to everything shared.
    order = {"alone": 0, "fcb": 2}
    _side_by_side(sorted(records, key=lambda record: order.get(record.policy, 1)))
    tables.joining([record for record in records if record is records[0] or record.level == "alone"])
    tables.protection(records[0])


def _side_by_side(records: Sequence[Record]) -> None:
    """Print what was earned and lost, a column a method."""
    from posse.results import standard_error, words
    from posse.results.joining import joining

    ratios = {id(joined.record): joined.ratio for joined in joining(records) if joined.baseline is not None}
    said = records[0].words
    paths = {"agents": "real agents", "compiled": "simulated"}
    rows = [
        (said.earned, *(words.plus_minus(r.total_mean, standard_error(r.total)) for r in records)),
        (said.regret, *(words.number(_regret(r)) for r in records)),
        ("regret, of that alone", *(_ratio(r, ratios.get(id(r))) for r in records)),
        ("purchases below the threshold", *(words.number(float(r.summary.get("missed", 0))) for r in records)),
        ("how", *(paths.get(str(r.summary.get("path")), words.UNKNOWN) for r in records)),
        ("messages", *(f"{r.messages:,}" if r.traffic else words.UNKNOWN for r in records)),
        ("bytes", *(words.size(r.bytes) if r.traffic else words.UNKNOWN for r in records)),
        ("CPU time", *(words.seconds(r.seconds) for r in records)),
    ]
    table(["", *(record.label for record in records)], rows, numeric=range(1, len(records) + 1))
    if records[0].runs > 1:
        say("Mean of the runs ± its standard error; from 3 runs on the ratio has its 95 % interval.", style="dim")


def _regret(record: Record) -> float | None:
    return None if record.party_regret is None or not record.runs else float(record.party_regret.sum(axis=1).mean())


def _ratio(record: Record, found: object) -> str:
    from posse.results import words

    if record.level == "alone":
        return "1"
    return words.UNKNOWN if found is None else str(found)
