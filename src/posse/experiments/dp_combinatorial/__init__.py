"""Figures of the paper on private federated combinatorial bandits (P-FCB), and what they leave open."""

from posse.experiments.dp_combinatorial import exp1, exp2, exp3, fig2, order, overlap

EXPERIMENTS = (fig2.FIG2, exp1.EXP1, exp2.EXP2, exp3.EXP3, order.ORDER, overlap.OVERLAP)

__all__ = ["EXPERIMENTS"]
