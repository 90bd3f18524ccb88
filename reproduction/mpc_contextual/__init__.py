"""Figures and the table of the paper on private multi-party contextual bandits, beside its
claims.
"""

from reproduction.mpc_contextual import (
    algorithm3,
    fig2,
    fig3_6,
    fig4_5,
    fig7,
    fig8_9,
    setting,
    table1,
)

EXPERIMENTS = (
    setting.SETTING,
    fig2.FIG2,
    fig3_6.FIG3,
    fig4_5.FIG4,
    fig4_5.FIG5,
    fig3_6.FIG6,
    fig7.FIG7,
    fig8_9.FIG8,
    fig8_9.FIG9,
    table1.TABLE1,
    algorithm3.ALGORITHM3,
)

__all__ = ["EXPERIMENTS"]
