"""Figures of the Samba papers, their theorems, worked examples and interface, beside what was
published.
"""

from reproduction.samba import fig8a, fig8b, fig8c, fig8d, interface, means, setting, theorems

EXPERIMENTS = (
    fig8a.FIG8A,
    fig8b.FIG8B,
    fig8c.FIG8C,
    fig8d.FIG8D,
    theorems.THEOREMS,
    setting.SETTING,
    means.MEANS,
    interface.INTERFACE,
)

__all__ = ["EXPERIMENTS"]
