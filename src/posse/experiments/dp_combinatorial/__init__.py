"""Figures of the paper on private federated combinatorial bandits (P-FCB), and what they leave open."""

from posse.experiments.dp_combinatorial.exp1 import EXP1
from posse.experiments.dp_combinatorial.exp2 import EXP2
from posse.experiments.dp_combinatorial.exp3 import EXP3
from posse.experiments.dp_combinatorial.fig2 import FIG2
from posse.experiments.dp_combinatorial.order import ORDER
from posse.experiments.dp_combinatorial.overlap import OVERLAP

EXPERIMENTS = (FIG2, EXP1, EXP2, EXP3, ORDER, OVERLAP)

__all__ = ["EXPERIMENTS"]
