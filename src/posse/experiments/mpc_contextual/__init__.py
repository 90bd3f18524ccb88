"""Figures and the table of the paper on private multi-party contextual bandits, beside its claims."""

from posse.experiments.mpc_contextual.fig2 import FIG2
from posse.experiments.mpc_contextual.fig3 import FIG3
from posse.experiments.mpc_contextual.fig4 import FIG4
from posse.experiments.mpc_contextual.fig5 import FIG5
from posse.experiments.mpc_contextual.fig6 import FIG6
from posse.experiments.mpc_contextual.fig7 import FIG7
from posse.experiments.mpc_contextual.fig8 import FIG8
from posse.experiments.mpc_contextual.fig9 import FIG9
from posse.experiments.mpc_contextual.table1 import TABLE1

EXPERIMENTS = (FIG2, FIG3, FIG4, FIG5, FIG6, FIG7, FIG8, FIG9, TABLE1)

__all__ = ["EXPERIMENTS"]
