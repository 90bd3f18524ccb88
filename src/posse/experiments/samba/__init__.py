"""Figure 8 of the Samba paper: times, rewards and shares, beside the published numbers."""

from posse.experiments.samba.fig8a import FIG8A
from posse.experiments.samba.fig8b import FIG8B
from posse.experiments.samba.fig8c import FIG8C
from posse.experiments.samba.fig8d import FIG8D

EXPERIMENTS = (FIG8A, FIG8B, FIG8C, FIG8D)

__all__ = ["EXPERIMENTS"]
