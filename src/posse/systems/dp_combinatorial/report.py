"""What markets are compared with: agents alone, and agents that share everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.results import words
from posse.results.joining import joining
from posse.results.record import Record
from posse.results.section import Section
from posse.systems.modules import Report

if TYPE_CHECKING:
    from posse.systems.dp_combinatorial.settings import DpCombinatorial

PATHS = {"agents": "real agents", "compiled": "simulated"}
"""How the report names the paths."""


def comparisons(settings: DpCombinatorial) -> list[DpCombinatorial]:
    """Return the same market and seeds without a federation, and with everything shared."""
    if len(settings.load().market.agents) < 2:
        return []
    # The compiled path has the greedy oracle only. A run with another oracle is compared with
    # agents that use it too.
    path = "compiled" if settings.oracle == "greedy" else "agents"
    policies = [policy for policy in ("alone", "fcb") if policy != settings.policy]
    return [settings.instead(policy=policy, path=path) for policy in policies]


def sections(records: Sequence[Record]) -> tuple[Section]:
    """Return what sharing is worth, one row per record.

    A row shows how much more the agents earned than alone, how often the threshold was missed, and
    the regret over that of the same agents alone.
    """
    joined_records = {
        id(joined.record): joined for joined in joining(records) if joined.baseline is not None
    }
    rows = []
    for record in sorted(records, key=_extent_of_sharing):
        joined = joined_records.get(id(record))
        gain = words.UNKNOWN
        ratio = words.UNKNOWN
        if joined is not None:
            gain = words.plus_minus(joined.whole.difference, joined.whole.error)
            if joined.ratio is not None:
                ratio = str(joined.ratio)
        if record.level == "alone":
            ratio = "1"
        missed = words.number(float(record.summary.get("missed", 0)))
        path = PATHS.get(str(record.summary.get("path")), words.UNKNOWN)
        rows.append((record.label, gain, missed, ratio, path))
    notes: tuple[str, ...] = ()
    if records[0].runs > 1:
        notes = ("From 3 runs on the ratio has its 95 % interval.",)
    return (
        Section(
            "What sharing is worth",
            (
                "",
                f"{records[0].words.earned} more than alone",
                "purchases below the threshold",
                "regret, of that alone",
                "how",
            ),
            tuple(rows),
            notes,
            numeric=(1, 2, 3),
        ),
    )


def _extent_of_sharing(record: Record) -> int:
    """Return 0 for agents alone, 2 for agents that share everything, else 1."""
    return {"alone": 0, "fcb": 2}.get(record.policy, 1)


REPORT = Report(comparisons=comparisons, sections=sections)
