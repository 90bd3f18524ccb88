"""The figures of a report, chosen by what the records hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from posse.results import costs, plots, svg
from posse.results.levels import ALONE, PLACEBO, PLAIN
from posse.results.markup import Safe, join, tag
from posse.results.record import RunRecord
from posse.results.vocabulary import common
from posse.results.words import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNTWINNED = (PLAIN, ALONE, PLACEBO)
"""Levels that protect nothing, and so have no plain twin to be set beside."""


def figures(records: Sequence[RunRecord]) -> Safe:
    """Return a section with every figure that these records allow, each with a caption."""
    parts = [
        tag("figure", Safe(svg.inline(figure, prefix=f"f{i}", title=caption)), tag("figcaption", caption))
        for i, (figure, caption) in enumerate(_drawn(records))
    ]
    return join([tag("h2", "Figures"), *parts]) if parts else Safe("")


def twins(records: Sequence[RunRecord]) -> tuple[RunRecord, RunRecord] | None:
    """Find a protected record and the plain one of the same policy and problem, in this order."""
    for secure in records:
        for plain in records:
            alike = secure.policy == plain.policy and secure.problem == plain.problem
            # The twin of another level breaks ties elsewhere: it is not what this run would be without protection.
            alike = alike and plain.summary.get("twin_of", secure.level) == secure.level
            if secure.level not in UNTWINNED and plain.level == PLAIN and alike and secure.runs and plain.runs:
                return secure, plain
    return None


def _drawn(records: Sequence[RunRecord]) -> Iterator[tuple[Figure, str]]:
    ran = [record for record in records if record.runs]
    curved = [record for record in ran if record.steps.size]
    said = common(record.words for record in ran)
    pair = twins(curved)
    if pair:
        yield (
            costs.secure_against_plain(*pair),
            f"{_beside(pair[0])} against plain: {said.reward} over the {plural(said.step)}, and time taken.",
        )
    if curved:
        yield plots.reward_curves(curved), f"Cumulative {said.reward}, the mean over runs."
    regretful = [record for record in curved if record.regret is not None]
    if regretful:
        yield plots.regret_curves(regretful), _regret_told(regretful)
    for group in _same_arms([record for record in ran if 0 < record.arms <= 200]):
        names = "" if len(group) > 1 else f" by {group[0].label}"
        yield plots.pulls_per_arm(group), f"{common(record.words for record in group).pulled}{names}."
    # Shares of one role alone are all 100 %.
    if len({role for record in records for role, taken in record.role_seconds.items() if taken > 0}) > 1:
        yield costs.role_times(records), "CPU time by role."


def _regret_told(records: Sequence[RunRecord]) -> str:
    told = common(record.words for record in records).regret_told
    best = "the best arm of every context"
    return told.replace("the best arm", best) if all(record.contextual for record in records) else told


def _beside(record: RunRecord) -> str:
    return "Protected" if record.protected else f"Level {record.protection},"


def _same_arms(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.arm_names, []).append(record)
    return list(groups.values())
