"""Figures 1 to 4 and sections 5.2, 5.3 and 6 of the paper on federated contextual bandits, beside
its claims.

Importing this needs no JAX: what runs is imported when an experiment is run.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from posse.core.check import require
from reproduction.fed_contextual.problem import REFERENCE, SETTINGS
from reproduction.kit import Analysis, Compute, Experiment, Watch

_WHAT = {
    "scratch": "from scratch",
    "init": "after pre-training",
    "init-shift": "after pre-training on other rewards",
}


def _sweep(module: str, *figure: str) -> Compute:
    """The sweep of a module that is imported when it is run."""

    def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
        require("jax", extra="contextual")
        made: Analysis = import_module(f"{__name__}.{module}").sweep(*figure, small, out, watch)
        return made

    return sweep


def _accounting(small: bool, out: Path, watch: Watch) -> Analysis:
    """Compute figures of privacy; imported when it is run."""
    require("dp_accounting", extra="dp")
    made: Analysis = import_module(f"{__name__}.noise").accounting(small, out, watch)
    return made


def _made(name: str, what: str, tags: tuple[str, ...], sweep: Compute) -> Experiment:
    where = what.partition(":")[0].partition(" (")[0]
    return REFERENCE.experiment(name, f"Federated contextual bandits, {what}", tags, sweep, where)


EXPERIMENTS = (
    *(
        _made(
            name,
            f"figure {name[3]} ({name[4]}): {setting.kind}, {_WHAT[setting.scenario]}"
            + (", deployed often" if setting.often else ""),
            ("reward", setting.kind),
            _sweep("fig1_2", name),
        )
        for name, setting in SETTINGS.items()
    ),
    _made("fig3", "figure 3: variation over seeds", ("reward",), _sweep("fig3")),
    _made("fig4", "figure 4: clipping and noise", ("reward", "privacy"), _sweep("fig4")),
    _made(
        "noise",
        "section 5.3: noise and clients of a round scaled together",
        ("reward", "privacy"),
        _sweep("noise"),
    ),
    _made("accounting", "section 5.3: what noise proves", ("privacy",), _accounting),
    _made(
        "algorithms",
        "algorithms 1 to 4: written out and compared with a run",
        ("protocol",),
        _sweep("algorithms"),
    ),
    _made(
        "sec5_2",
        "section 5.2: deployment, optimiser, importance weights",
        ("reward",),
        _sweep("sec5_2"),
    ),
    _made(
        "theory",
        "section 6: bounds and regret, 1 to 40 clients",
        ("regret", "theory"),
        _sweep("theory"),
    ),
)

__all__ = ["EXPERIMENTS"]
