"""Figures 1 to 4 and section 5.2 of the paper on federated contextual bandits, beside its claims.

Importing this needs no JAX: what runs is imported when an experiment is run.
"""

from __future__ import annotations

from pathlib import Path

from posse.core.check import require
from posse.experiments.fed_contextual.published import REFERENCE
from posse.experiments.fed_contextual.settings import SETTINGS
from posse.experiments.kit import Analysis, Experiment, Sweep, Watch

_WHAT = {
    "scratch": "from scratch", "init": "after pre-training", "init-shift": "after pre-training on other rewards",
}  # fmt: skip


def _rewards(figure: str) -> Sweep:
    def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
        require("jax", extra="contextual")
        from posse.experiments.fed_contextual import rewards

        return rewards.sweep(figure, small, out, watch)

    return sweep


def _fig3(small: bool, out: Path, watch: Watch) -> Analysis:
    require("jax", extra="contextual")
    from posse.experiments.fed_contextual import fig3

    return fig3.sweep(small, out, watch)


def _fig4(small: bool, out: Path, watch: Watch) -> Analysis:
    require("jax", extra="contextual")
    from posse.experiments.fed_contextual import fig4

    return fig4.sweep(small, out, watch)


def _sec5_2(small: bool, out: Path, watch: Watch) -> Analysis:
    require("jax", extra="contextual")
    from posse.experiments.fed_contextual import sec5_2

    return sec5_2.sweep(small, out, watch)


def _made(name: str, title: str, place: str, tags: tuple[str, ...], sweep: Sweep) -> Experiment:
    return Experiment(
        id=f"fed-contextual/{name}", title=f"Federated contextual bandits, {title}",
        reference=f"{REFERENCE}, {place}", tags=("fed-contextual", *tags), sweep=sweep,
    )  # fmt: skip


EXPERIMENTS = (
    *(
        _made(
            name,
            f"figure {name[3]} ({name[4]}): {setting.kind}, {_WHAT[setting.scenario]}"
            + (", deployed often" if setting.often else ""),
            f"figure {name[3]}", ("reward", setting.kind), _rewards(name),
        )
        for name, setting in SETTINGS.items()
    ),
    _made("fig3", "figure 3: variation over seeds", "figure 3", ("reward",), _fig3),
    _made("fig4", "figure 4: clipping and noise", "figure 4", ("reward", "privacy"), _fig4),
    _made("sec5_2", "section 5.2: deployment, optimiser, importance weights", "section 5.2", ("reward",), _sec5_2),
)  # fmt: skip

__all__ = ["EXPERIMENTS"]
