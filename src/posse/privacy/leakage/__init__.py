"""What a role could learn: estimators over what it saw, pure functions of a view.

`attack` (an estimate from a view, apart from its score, with baseline and control), `membership` (was a row among those
a model was learnt from?).
"""

from posse.privacy.leakage.attack import Attack, Attempt, Score, attempt
from posse.privacy.leakage.membership import (
    BY_ERROR,
    BY_LOSS,
    BY_REWARD,
    Membership,
    Pairs,
    difference_interval,
    error_attack,
    gap_without_leak,
    loss_attack,
    probes,
    reward_attack,
    reward_gap,
    score_errors,
)

__all__ = [
    "BY_ERROR",
    "BY_LOSS",
    "BY_REWARD",
    "Attack",
    "Attempt",
    "Membership",
    "Pairs",
    "Score",
    "attempt",
    "difference_interval",
    "error_attack",
    "gap_without_leak",
    "loss_attack",
    "probes",
    "reward_attack",
    "reward_gap",
    "score_errors",
]
