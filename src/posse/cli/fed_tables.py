"""Records of federated contextual bandits as tables; for the command that makes them, and for `posse runs show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.cli.screen import say, table

if TYPE_CHECKING:
    from posse.results.record import Record

_ROWS = (
    ("average reward", "average_reward"), ("the same, last tenth of the rounds", "average_reward_last_tenth"),
    ("an arm at random would earn", "chance_reward"), ("the best fixed arm would earn", "best_fixed_reward"),
    ("mean probability of the chosen arm", "average_probability"), ("decisions", "samples"),
    ("rounds", "rounds_done"), ("clip norm at the end", "clip_norm"),
    ("share of updates within the clip", "within_clip"), ("rounds a second", "rounds_a_second"),
)  # fmt: skip
_RANGE = ("average_reward_smallest", "average_reward_largest")


def results(records: Sequence[Record]) -> None:
    """Print what was earned, a column a record."""
    from posse.results import standard_error, words

    rows = [("model", *(str(one.config.get("model")) for one in records))]
    rows.append(("earned", *(words.plus_minus(one.total_mean, standard_error(one.total)) for one in records)))
    for name, key in _ROWS:
        rows.append((name, *(_number(one, key) for one in records)))
        if key == "average_reward" and any(one.runs > 1 for one in records):
            rows.append(("its smallest to largest run", *(_range(one) for one in records)))
    rows.append(("CPU time", *(words.seconds(one.seconds) for one in records)))
    update = records[0].summary.get("bytes_an_update")
    if isinstance(update, int):
        rows.append(("an update, or the model", *(words.size(update) for _ in records)))
    table(["", *(one.protection for one in records)], rows, numeric=range(1, len(records) + 1))
    if records[0].runs > 1:
        say(
            "Earned: mean of the runs ± its standard error, over cohorts, arms, order and noise, not over the split. "
            "All else: over all runs together.",
            style="dim",
        )


def estimated(record: Record) -> None:
    """Print what another policy would earn, or why that cannot be told."""
    from posse.results import words

    told = record.summary
    value, error = told.get("estimated_reward"), told.get("estimated_reward_error")
    if isinstance(value, float) and isinstance(error, float):
        each = f" of {record.runs} runs" if record.runs > 1 else ""
        decisions, devices = (_number(record, f"estimated_{what}") for what in ("decisions", "devices"))
        effective = _number(record, "estimated_effective", 0)
        based = f"; from {decisions} decisions{each} on {devices} devices, effective sample size {effective}"
        based = based if "estimated_decisions" in told else ""
        say(
            f"\nOn devices' own contexts {told['evaluated']} with the deployed model would earn "
            f"{words.plus_minus(value, error)} a decision (SNIPS; ± a standard error{based})."
        )
    if refused := told.get("estimate_refused"):
        say(f"\nWhat {told['evaluated']} would earn cannot be told: {refused}", style="yellow")


def _number(record: Record, key: str, digits: int = 4) -> str:
    from posse.results import words

    value = record.summary.get(key)
    if isinstance(value, float) and digits == 0:
        return f"{value:,.0f}"
    return words.number(value if isinstance(value, int | float) else None, digits)


def _range(record: Record) -> str:
    from posse.results import words

    low, high = (record.summary.get(key) for key in _RANGE)
    if not isinstance(low, float) or not isinstance(high, float):
        return words.UNKNOWN
    return f"{words.number(low, 4)} to {words.number(high, 4)}"
