"""Published figures, computed again: `python -m reproduction` in a checkout of Posse.

>>> from reproduction import EXPERIMENTS
>>> EXPERIMENTS["samba/fig8a"].title
'Samba, figure 8 (a): time against budget'
"""

from reproduction import dp_combinatorial, fed_contextual, mpc_contextual, samba
from reproduction.kit import Analysis, Experiment, Table, Watch

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
