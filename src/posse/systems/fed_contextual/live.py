"""Decisions of devices on demand, and linear models that a run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.core.interrupts import defer_interrupt
from posse.systems.modules import Live

if TYPE_CHECKING:
    from posse.policies.decisions import Learnt
    from posse.systems.fed_contextual.settings import FedContextual
    from posse.systems.live import Serving


def serve(
    settings: FedContextual, arms: tuple[str, ...] | None, horizon: int | None, **options: Any
) -> Serving:
    """Serve decisions of devices, from which a server learns in rounds.

    Args:
        settings: What to serve.
        arms: Names of the arms; by default those of the data.
        horizon: Not used here: a bandit in use has as many rounds as it needs.
        options: `features`, the numbers of a context if `arms` are named; `every`, the decisions
            between two rounds, by default the cohort.
    """
    with defer_interrupt():  # jax must not be interrupted while it is imported
        from posse.systems.fed_contextual import serving
    return serving.serve(settings, arms, **options)


def read_model(path: Path) -> Learnt | None:
    """Read a linear model that `model_out`, `keep` or a fleet wrote."""
    if path.suffix != ".npz":
        return None
    from posse.systems.fed_contextual.record import learnt_in

    return learnt_in(path)


LIVE = Live(serve=serve, read_model=read_model)
