"""The attack on the toy: a listener adds up what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posse.core.fixed import REWARD_ONE
from posse.core.roles import View
from posse.privacy.leakage.attack import Attack, Score
from posse.privacy.leakage.scores import hits
from posse.systems.modules import Attacks
from tests.systems.toy.system import LISTENER, Tell


def add_up(view: View, seed: int) -> float:
    """Return the sum of the rewards in a listener's view."""
    messages = [entry.message for entry in view.entries]
    return sum(message.units for message in messages if isinstance(message, Tell)) / REWARD_ONE


def score_totals(totals: Sequence[float], truths: Sequence[Mapping[str, Any]]) -> Score:
    """Count the runs whose total was found."""
    pairs = zip(totals, truths, strict=True)
    right = sum(total == truth["total"] for total, truth in pairs)
    return hits(right, len(truths), 0.001, "runs")


ATTACKS = Attacks(
    attacks=(
        Attack(
            name="add-up",
            title="the total",
            adversary=(LISTENER,),
            claims=("The listener learns",),
            estimate=add_up,
            score=score_totals,
            statistic="runs right",
        ),
    )
)
