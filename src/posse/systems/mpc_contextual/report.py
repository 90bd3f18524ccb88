"""What runs of mpc-contextual are compared with: the twins in fixed point and on floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.core.statistics import standard_error
from posse.results import words
from posse.results.record import Record
from posse.results.section import Section
from posse.systems.modules import Report

if TYPE_CHECKING:
    from posse.systems.mpc_contextual.settings import MpcContextual

COMPARED_PATHS = {"parties": ("fixed", "float"), "fixed": ("float",), "float": ()}
"""The twins that each path is compared with."""


def comparisons(settings: MpcContextual) -> list[MpcContextual]:
    """Return the settings of the twins: in fixed point, which is equal, and on floats."""
    return [settings.but(path=path, keep_shares=None) for path in COMPARED_PATHS[settings.path]]


def sections(records: Sequence[Record]) -> tuple[Section]:
    """Return what each record earned per step, and what fixed point changes against floats."""
    rows = []
    for record in records:
        rewards = _rewards_per_step(record)
        reward = words.plus_minus(_mean(rewards), standard_error(rewards))
        rows.append((record.protection, reward, words.seconds(_seconds_per_step(record))))
    notes: tuple[str, ...] = ()
    differences: list[float] = []
    for record in records[1:]:
        if record.summary.get("path") == "float":
            differences = _differences(records[0], record)
            notes = (_compare_with_floats(records[0], record, differences),)
            break
    return (
        Section(
            "A step",
            ("", "earned a step", "CPU time a step, all roles"),
            tuple(rows),
            notes,
            numeric=(1, 2),
            data={"more_a_step_than_floats": _mean(differences)},
        ),
    )


def _compare_with_floats(record: Record, floats: Record, differences: Sequence[float]) -> str:
    """Return a sentence about what fixed point changes in the average reward."""
    if record.status != "finished" or floats.status != "finished":
        return "The run or its float twin did not finish: the two cannot be compared."
    mean = _mean(differences)
    if mean is None or not any(differences):
        return "The float twin earned the same."
    more = "less" if mean > 0 else "more"
    difference = words.plus_minus(abs(mean), standard_error(differences))
    return (
        f"The float twin earned {difference} {more} a step: fixed point rounds, and of two arms "
        "with nearly equal scores the other one may win."
    )


def _differences(record: Record, floats: Record) -> list[float]:
    """Return by how much each run earned more per step than its float twin."""
    pairs = zip(_rewards_per_step(record), _rewards_per_step(floats), strict=False)
    return [reward - float_reward for reward, float_reward in pairs]


def _rewards_per_step(record: Record) -> list[float]:
    """Return the average reward per step of every run."""
    if not record.runs or not record.steps_done:
        return []
    steps = record.steps_done / record.runs
    return [total / steps for total in record.total]


def _seconds_per_step(record: Record) -> float | None:
    return record.seconds / record.steps_done if record.steps_done else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


REPORT = Report(comparisons=comparisons, sections=sections)
