"""Commands of Samba alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from posse.results import words
from posse.results.section import Section
from posse.systems.modules import Command, Commands

if TYPE_CHECKING:
    from posse.problems.arms.settings import ProblemSettings


def show_arms(settings: ProblemSettings) -> Iterator[Section | str]:
    """Yield the arms that settings make, with their means, and what was dropped of a table."""
    arms = settings.arms()
    rows = []
    for number, (arm, mean) in enumerate(zip(arms.names, arms.means.tolist(), strict=True), 1):
        gap = words.UNKNOWN if mean == arms.best else f"{arms.best - mean:.4f}"
        rows.append((str(number), arm, f"{mean:.4f}", gap))
    name = settings.data_name if settings.means is None else "means given"
    data = {"data": name, **arms.describe()}
    if settings.dropped:
        data["dropped"] = list(settings.dropped)
    yield Section(
        f"{name}: {len(arms)} arms, {arms.kind} rewards",
        ("", "arm", "mean", "below the best"),
        tuple(rows),
        notes=(f"Source: {arms.source}",),
        numeric=(0, 2, 3),
        data=data,
    )
    for sentence in settings.dropped:
        yield f"warning: {sentence}"


def _arms_settings() -> type[ProblemSettings]:
    from posse.problems.arms.settings import ProblemSettings

    return ProblemSettings


COMMANDS = Commands(
    commands=(
        Command(
            ("problems", "show"),
            "List the arms that data give, with their means.",
            _arms_settings,
            show_arms,
            positional=("data",),
            examples=(
                "posse problems show embedded:movielens",
                "posse problems show ratings.csv --owners 5",
            ),
        ),
    )
)
