"""`posse run mpc-contextual`: a contextual bandit on features that no party shows to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options, work
from posse.cli.flags import settings_of
from posse.cli.keep import Keeper
from posse.cli.screen import heading, print_json, record_json, say, table
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.protocols.mpc_contextual.settings import ContextualSettings
    from posse.protocols.mpc_contextual.terms import Terms
    from posse.results.record import Record

PlainToo = Annotated[
    bool, typer.Option("--plain-too/--no-plain-too", help="Run its twins beside it: in fixed point, and on floats.")
]
Ranges = Annotated[
    bool, typer.Option("--ranges", help="Print how large every intermediate can become, and run nothing.")
]

BESIDE = {"parties": ("fixed", "float"), "fixed": ("float",), "float": ()}
"""The twins that are run beside each path."""
NAMES = {"parties": "shared", "fixed": "fixed-point twin", "float": "float twin"}


def contextual_settings() -> type[ContextualSettings]:
    """Import the settings of contextual bandits."""
    from posse.protocols.mpc_contextual.settings import ContextualSettings

    return ContextualSettings


def mpc_contextual(
    context: typer.Context,
    config: options.Config = None,
    plain_too: PlainToo = True,
    ranges: Ranges = False,
    json: options.Json = False,
    report: options.Report = None,
    figure: options.Figure = None,
    no_save: options.NoSave = False,
    label: options.Label = None,
) -> None:
    """Run a contextual bandit on shares: each party holds some features, one role pulls, another is paid."""
    settings = settings_of(contextual_settings(), context, config)
    terms = settings.check().terms
    if ranges:
        if report or figure:
            raise ConfigError("--ranges runs nothing, so there is nothing to draw. Leave --report and --figure out.")
        _ranges(terms, json)
        return
    keeper = Keeper(save=not no_save, label=label, report=report, figure=figure)
    with keeper.on_interrupt():
        records = [keeper.name(work.contextual(settings))]
    with keeper.kept(records):  # from here on what was finished is kept, whatever happens beside it
        with keeper.on_interrupt():
            others = [settings.model_copy(update={"path": path}) for path in BESIDE[settings.path]]
            records.extend(keeper.name(work.contextual(other)) for other in (others if plain_too else ()))
        if json:
            _print_json(records, keeper)
        else:
            _show(records)
    if keeper.saves and not json:
        from posse.cli.tables import saved

        saved(records)


def _show(records: Sequence[Record]) -> None:
    from posse.cli import tables

    first, beside = records[0], _by_path(records)
    heading(f"Contextual bandit: {tables.describe(first)}")
    _side_by_side(records)
    if first is beside.get("parties") and "fixed" in beside:
        say(f"\n{tables.sameness(first, beside['fixed'], twin='its fixed-point twin')}", style="bold")
    if first is not beside.get("float") and "float" in beside:
        say(_against_floats(first, beside["float"]))
    tables.costs_of_a_step(first)
    tables.protection(first)


def _side_by_side(records: Sequence[Record]) -> None:
    """Print what was earned and what it took, a column a path."""
    from posse.results import standard_error, words

    floats = _by_path(records).get("float")
    each = [_a_step(record) for record in records]
    regrets = [None if r.regret is None or not r.regret.size else float(r.regret[:, -1].mean()) for r in records]
    rows = [
        ("earned", *(words.plus_minus(r.total_mean, standard_error(r.total)) for r in records)),
        ("earned a step", *(words.plus_minus(_mean(one), standard_error(one)) for one in each)),
        (records[0].words.regret, *(words.number(regret) for regret in regrets)),
        ("CPU time", *(words.seconds(record.seconds) for record in records)),
        ("CPU time a step, all roles", *(words.seconds(_seconds(record)) for record in records)),
    ]
    if floats is not None and len(records) > 1 and floats.seconds:
        ratios = (1.0 if record is floats else record.seconds / floats.seconds for record in records)
        rows.append(("times as long as on floats", *(words.ratio(ratio) for ratio in ratios)))
    if any(record.traffic for record in records):
        rows.append(("messages", *(f"{r.messages:,}" if r.traffic else "none" for r in records)))
        rows.append(("bytes", *(words.size(r.bytes) if r.traffic else "none" for r in records)))
    table(["", *(NAMES[_path(record)] for record in records)], rows, numeric=range(1, len(records) + 1))
    if records[0].runs > 1:
        say("Mean of the runs ± its standard error.", style="dim")


def _against_floats(record: Record, floats: Record) -> str:
    """Say what fixed point changes in the average reward."""
    from posse.results import standard_error, words

    if record.status != "finished" or floats.status != "finished":
        return "The float twin was not finished beside it: the two cannot be compared."
    differences = _differences(record, floats)
    mean = _mean(differences)
    if mean is None or not any(differences):
        return "The float twin earned the same."
    more = "less" if mean > 0 else "more"
    apart = words.plus_minus(abs(mean), standard_error(differences))
    return f"The float twin earned {apart} {more} a step: fixed point rounds, and an arm may win by a hair elsewhere."


def _ranges(terms: Terms, json: bool) -> None:
    """Print the bounds; that they hold is asserted by the fixed-point twin in every step."""
    from posse.privacy.sharing.fixed import LIMIT
    from posse.protocols.mpc_contextual.ranges import ranges
    from posse.results import words

    found = ranges(terms)
    if json:
        bounds = [
            {"name": r.name, "largest": r.largest, "fraction_bits": r.bits, "log2": r.log2, "why": r.why} for r in found
        ]
        print_json({"limit_log2": LIMIT, "fraction_bits": terms.bits, "steps": terms.steps, "ranges": bounds})
        return
    steps = words.count(terms.steps, "step")
    heading(f"How large everything can become: {steps}, {words.count(terms.arms, 'arm')}, {terms.bits} fraction bits")
    rows = [(r.name, words.number(r.largest, 4), f"2^-{r.bits}", f"{r.log2:.1f}", r.why) for r in found]
    table(("intermediate", "at most", "unit", f"bits of {LIMIT}", "why"), rows, numeric=(1, 2, 3))
    most = max(found, key=lambda one: one.log2)
    say(f"\nClosest to the limit: {most.name}, {LIMIT - most.log2:.1f} bits below 2^{LIMIT}.")
    say("Contexts have norm at most 1, rewards lie in [0, 1]; the fixed-point twin asserts every bound.", style="dim")


def _print_json(records: Sequence[Record], keeper: Keeper) -> None:
    from posse.results import identical

    first, beside = records[0], _by_path(records)
    twin, floats = beside.get("fixed"), beside.get("float")
    compared = floats is not None and floats is not first
    print_json(
        {
            "identical": identical(first, twin) if twin is not None and twin is not first else None,
            "more_a_step_than_floats": _mean(_differences(first, floats)) if compared and floats else None,
            "to_store": keeper.saves,
            "records": [record_json(record) for record in records],
        }
    )


def _by_path(records: Sequence[Record]) -> dict[str, Record]:
    return {_path(record): record for record in records}


def _path(record: Record) -> str:
    return str(record.summary["path"])


def _a_step(record: Record) -> list[float]:
    """Average reward a step of every run."""
    steps = record.steps_done / record.runs if record.runs else 0
    return [total / steps for total in record.total] if steps else []


def _differences(record: Record, floats: Record) -> list[float]:
    return [mine - theirs for mine, theirs in zip(_a_step(record), _a_step(floats), strict=False)]


def _seconds(record: Record) -> float | None:
    return record.seconds / record.steps_done if record.steps_done else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
