"""Figures of the paper on private federated combinatorial bandits (P-FCB), and what they leave
open.
"""

from reproduction.dp_combinatorial import (
    exp1,
    exp2,
    exp3,
    fig2,
    naive,
    order,
    overlap,
    setting,
    theorem1,
    weights,
    when,
)

EXPERIMENTS = (
    setting.SETTING,
    theorem1.THEOREM1,
    fig2.FIG2,
    naive.NAIVE,
    exp1.EXP1,
    exp2.EXP2,
    exp3.EXP3,
    order.ORDER,
    weights.WEIGHTS,
    when.WHEN,
    overlap.OVERLAP,
)

__all__ = ["EXPERIMENTS"]
