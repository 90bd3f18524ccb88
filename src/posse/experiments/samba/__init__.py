"""Figure 8 of the Samba paper: times, rewards and shares, and its theorems, beside what was published."""

from posse.experiments.samba import fig8a, fig8b, fig8c, fig8d, theorems

EXPERIMENTS = (fig8a.FIG8A, fig8b.FIG8B, fig8c.FIG8C, fig8d.FIG8D, theorems.THEOREMS)

__all__ = ["EXPERIMENTS"]
