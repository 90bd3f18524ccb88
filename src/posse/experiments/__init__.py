"""Published figures, reproduced.

>>> from posse.experiments import EXPERIMENTS
>>> EXPERIMENTS["samba/fig8a"].title
'Samba, figure 8 (a): time against budget'
"""

from posse.experiments import dp_combinatorial, fed_contextual, mpc_contextual, samba
from posse.experiments.kit import Analysis, Experiment, Table, Watch

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        *samba.EXPERIMENTS,
        *dp_combinatorial.EXPERIMENTS,
        *mpc_contextual.EXPERIMENTS,
        *fed_contextual.EXPERIMENTS,
    )
}
"""Every experiment by its id."""

__all__ = ["EXPERIMENTS", "Analysis", "Experiment", "Table", "Watch"]
