"""`posse compare`: stored runs side by side, or several policies simulated on the same worlds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posse.cli import options, work
from posse.cli.flags import flags_given
from posse.cli.keep import Keeper
from posse.cli.run import SIMULATED_RUNS
from posse.cli.screen import heading, print_json
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.protocols.samba.settings import Samba
    from posse.results.compare import Comparison
    from posse.results.record import Record

Ids = Annotated[list[str] | None, typer.Argument(help="Stored runs to compare.", metavar="[ID]...")]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="Simulate this policy; repeat it.", metavar="NAME")
]


def compare(
    context: typer.Context,
    ids: Ids = None,
    policy: Policies = None,
    config: options.Config = None,
    json: options.Json = False,
    report: options.Report = None,
    figure: options.Figure = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Compare stored runs (ids), or policies on the same worlds (--policy A --policy B)."""
    from posse.results import compare as compare_records

    chosen = _asked(context, ids or [], policy or [], config is not None)
    settings = [_settings(context, config, name, chosen) for name in chosen]
    for setting in settings:
        setting.load()
    keeper = Keeper(save=bool(chosen) and not no_save, label=label, report=report, figure=figure)
    with keeper.on_interrupt():
        records = [keeper.name(work.plain(setting)) for setting in settings] if chosen else _stored(ids or [])
    compared = compare_records(records)
    with keeper.kept(records):
        if json:
            metadata = [record.metadata() for record in records]
            print_json({"rows": [asdict(row) for row in compared.rows], "notes": compared.notes, "records": metadata})
        else:
            _show(records, compared)
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records, f"posse compare {' '.join(record.id for record in records)}")


def _asked(context: typer.Context, ids: list[str], policies: list[str], file: bool) -> list[str]:
    """Give the policies to simulate, or none where ids were given; both at once, or neither, is a mistake."""
    if ids and (policies or file or flags_given(context)):
        raise ConfigError("compare takes either ids of stored runs or --policy with settings, got both.")
    if len(ids or policies) < 2:
        what = (
            "Give two ids ('posse runs list'), or --policy twice, as in: posse compare --policy ucb --policy thompson"
        )
        raise ConfigError(f"a comparison needs at least 2 runs, got {len(ids or policies)}. {what}")
    if len(set(policies)) < len(policies):
        raise ConfigError("a policy is given twice. To compare parameters, simulate each and compare their ids.")
    return policies


def _settings(context: typer.Context, config: Any, name: str, all_names: list[str]) -> Samba:
    """Build the settings of one policy: a parameter goes to the policies that have it, and one that none has fails."""
    from posse.core.settings import read_toml
    from posse.policies.arms.registry import PARAMETERS, parameters_of

    values = {"runs": SIMULATED_RUNS, **(read_toml(config) if config else {}), **flags_given(context), "policy": name}
    takes = {policy: parameters_of(policy) for policy in all_names}
    for parameter in PARAMETERS:
        others = any(parameter in names for names in takes.values())
        if others and parameter not in takes[name]:
            values.pop(parameter, None)
    return options.samba_settings().make(values)


def _stored(ids: list[str]) -> list[Record]:
    from posse.results.store import Store

    store = Store()
    return [store.get(id) for id in ids]


def _show(records: list[Record], compared: Comparison) -> None:
    from posse.cli import tables

    names = list(dict.fromkeys(tables.describe(record).partition(" · ")[2] for record in records))
    heading(names[0] if len(names) == 1 else f"{len(records)} runs")
    tables.comparison(compared)
