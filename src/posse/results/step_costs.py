"""What one step costs, where a record counts its rounds: messages that wait for each other, bytes, and time by role."""

from __future__ import annotations

from posse.results import words
from posse.results.record import RunRecord

_PARTY = "party"


def step_costs(record: RunRecord) -> list[tuple[str, str]]:
    """Return lines of a table, what and how much; none for a record that does not count rounds.

    >>> from posse.results.example import example_record
    >>> step_costs(example_record())
    []
    >>> made = example_record(summary={"rounds_a_step": 11, "bytes_a_step_sent_by_a_party": 41_303})
    >>> step_costs(made)[:2]
    [('rounds', '11'), ('bytes that a party sends', '41.3 kB')]
    """
    rounds, steps = record.summary.get("rounds_a_step"), record.steps_done
    if not isinstance(rounds, int | float) or not steps:
        return []
    rows = [("rounds", words.number(rounds, 3))]
    together = record.summary.get("model_frozen_for_steps")
    if together is not None:
        rows.append((f"{words.plural(record.words.step)} that share rounds and a model", str(together)))
    for what, key in (("sends", "bytes_a_step_sent_by_a_party"), ("is dealt", "bytes_a_step_dealt_to_a_party")):
        size = record.summary.get(key)
        rows += [(f"bytes that a party {what}", words.size(int(size)))] if isinstance(size, int | float) else []
    return [*rows, *_times(record, steps), *_planned(record)]


def _times(record: RunRecord, steps: int) -> list[tuple[str, str]]:
    parties = max(1, len(record.party_names))
    found = []
    for role, spent in record.role_seconds.items():
        each = spent / steps / (parties if role == _PARTY else 1)
        found.append((f"CPU time of {'each' if role == _PARTY else 'the'} {role}", words.seconds(each)))
    return found


def _planned(record: RunRecord) -> list[tuple[str, str]]:
    """Tell what the same rounds would take between machines; an estimate, and called one."""
    latency, one = (record.summary.get(key) for key in ("latency_ms", "planned_seconds_a_step"))
    if not isinstance(latency, int | float) or not isinstance(one, int | float):
        return []
    bandwidth = record.config.get("bandwidth")
    wire = f" and {bandwidth:g} Mbit/s" if isinstance(bandwidth, int | float) else ""
    every = words.count(record.budget, record.words.step)
    there = f"estimated time at {latency:g} ms one way{wire}"
    return [(there, words.seconds(one)), (f"the same for all {every}", words.seconds(one * record.budget))]
