"""What a paper with five instances could have found: random fives, drawn from many instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.experiments.dp_combinatorial.agreement import PUBLISHED
from posse.experiments.dp_combinatorial.methods import ALONE, PAPER
from posse.experiments.dp_combinatorial.ranking import Ranking
from posse.experiments.dp_combinatorial.statistics import Floats
from posse.experiments.kit import Table
from posse.results import words

FIVES = 4000
"""Random fives drawn."""


@dataclass(frozen=True)
class Five:
    """Where a published ratio lies among those of random fives."""

    distribution: str
    what: str
    low: float
    high: float
    published: float

    @property
    def where(self) -> str:
        """Inside the range of 95 % of random fives, or outside."""
        return "inside" if self.low <= self.published <= self.high else "outside"


def fives(rankings: Sequence[Ranking]) -> list[Five]:
    """Every published ratio; that of P-FCB over alone follows from the two that are printed."""
    made = []
    for one in rankings:
        printed = PUBLISHED[one.distribution]
        paper, alone = printed[PAPER.name], printed[ALONE.name]
        for what, mine, base, published in (
            ("P-FCB over FCB", one.paper, one.fcb, paper),
            ("alone over FCB", one.alone, one.fcb, alone),
            ("P-FCB over alone", one.paper, one.alone, paper / alone),
        ):
            made.append(Five(one.distribution, what, *spread_of_fives(mine, base), published))
    return made


def spread_of_fives(mine: Floats, base: Floats) -> tuple[float, float]:
    """Range that holds 95 % of the ratios of means of random fives, or of all where there are fewer."""
    a, b = mine.mean(axis=1), base.mean(axis=1)
    rng = np.random.default_rng(0)
    five = min(5, len(a))
    chosen = np.array([rng.choice(len(a), five, replace=False) for _ in range(FIVES)])
    low, high = np.quantile(a[chosen].mean(axis=1) / b[chosen].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def fives_table(rankings: Sequence[Ranking]) -> Table:
    """What a paper with five instances could have found, drawn from ours."""
    rows = tuple(
        (five.distribution, five.what, f"{five.low:.2f} to {five.high:.2f}", f"{five.published:.3g}", five.where)
        for five in fives(rankings)
    )
    columns = ("distribution", "ratio of regrets", "95 % of random fives", "published", "published lies")
    return Table("Ratios of means of five instances drawn from ours", columns, rows)


def published_words(made: Sequence[Five]) -> str:
    """Say which published ratios five of our instances would hardly give."""
    out = [f"{one.distribution} {one.what} ({one.published:.3g})" for one in made if one.where == "outside"]
    inside = f"{len(made) - len(out)} of {len(made)} published ratios lie within 95 % of random fives of our instances"
    return f"{inside}{'; not ' + words.listed(out) if out else ''}."
