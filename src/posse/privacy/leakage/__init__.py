"""What a role could learn: estimators over what it saw, pure functions of a view.

`membership` (was a row among those a model was learnt from?), `rates` (the verdict, with an interval).
"""

from posse.privacy.leakage.membership import (
    Pairs,
    error_attack,
    gap_without_leak,
    loss_attack,
    reward_attack,
    reward_gap,
    score_errors,
)
from posse.privacy.leakage.rates import Membership, difference_interval

__all__ = [
    "Membership",
    "Pairs",
    "difference_interval",
    "error_attack",
    "gap_without_leak",
    "loss_attack",
    "reward_attack",
    "reward_gap",
    "score_errors",
]
