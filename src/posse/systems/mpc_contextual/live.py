"""Models that runs of mpc-contextual learnt. It does not serve decisions on demand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posse.policies.decisions import Learnt
from posse.systems.modules import Live
from posse.systems.mpc_contextual.roles.outside import features_in, gathered, read_shares


def read_model(path: Path) -> Learnt | None:
    """Add up the shares of all parties, which are files in folders below `path`, at any depth.

    Returns None if there are no shares.
    """
    if not path.is_dir() or next(path.rglob("model-*.share"), None) is None:
        return None
    model = read_shares(path).check()
    low, high = model.terms.reward_range
    weights = model.weights.T * (high - low)
    n_arms = weights.shape[1]
    arms = tuple(f"arm {number}" for number in range(1, n_arms + 1))
    bias = np.full(n_arms, float(low))
    return Learnt(arms, weights, bias, features=features_in(gathered(path)))


LIVE = Live(
    reason=(
        "its contexts lie in parts with parties that pull and pay by their own tables and "
        "sources, a step at a time. Use posse.start, or a federation whose parties have sources of "
        "their own."
    ),
    read_model=read_model,
)
