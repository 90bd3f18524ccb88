"""What an update of a linear model tells: the contexts it was learnt from, and whether a given one
is among them.

A linear model scores an arm by x.w_a + b_a, and squared error at the chosen arm moves w_a by a
multiple of the context and b_a by that multiple. However many steps an update took, sum c_i x_i
stands in w_a and sum c_i in b_a over the same samples: their ratio is a weighted mean of the
contexts that had the arm, and with one such sample it is that context, to rounding (`invert`).
Clipping scales both alike. A sum over devices has the ratio of all of them together.

`aligned` looks how far an update moves the score of a sample's own label against those of other
arms, as a step on that sample does (Nasr, Shokri, Houmansadr: Comprehensive privacy analysis of
deep learning, IEEE S&P 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posse.core.errors import ConfigError
from posse.privacy.leakage.scores import Bools, Floats, Ints

NEAR = 0.1
"""Relative distance below which a context counts as found."""


@dataclass(frozen=True, eq=False)
class Inverted:
    """Contexts read from updates of linear models."""

    owner: Ints
    """Which update each was read from."""
    arms: Ints
    contexts: Floats
    """(found, features)"""


def invert(bias: Floats, weights: Floats) -> Inverted:
    """Read a context for every arm that an update moved.

    `bias` is (updates, arms), `weights` (updates, features, arms).

    >>> one = invert(np.array([[0.0, 0.2]]), np.array([[[0.0, 0.1], [0.0, 0.4]]]))
    >>> one.owner.tolist(), one.arms.tolist(), one.contexts.round(6).tolist()
    ([0], [1], [[0.5, 2.0]])
    """
    if bias.ndim != 2 or weights.ndim != 3 or weights.shape[::2] != bias.shape:
        raise ConfigError(
            f"updates of a linear model have a bias and a column an arm, got {bias.shape} and "
            f"{weights.shape}."
        )
    largest = np.abs(bias).max(axis=1, keepdims=True, initial=0.0)
    owner, arms = np.nonzero(np.abs(bias) > 1e-6 * np.maximum(largest, 1e-30))
    return Inverted(owner, arms, weights[owner, :, arms] / bias[owner, arms][:, None])


def matches(found: Inverted, contexts: Floats, owner: Ints | None, arms: Ints) -> Bools:
    """Return which contexts are near a true one of the same owner and arm; of anybody, where
    `owner` is None.
    """
    hit = np.zeros(len(found.arms), np.bool_)
    for at, (who, arm) in enumerate(zip(found.owner.tolist(), found.arms.tolist(), strict=True)):
        rows = contexts[(arms == arm) & (True if owner is None else owner == who)]
        if len(rows):
            away = np.linalg.norm(rows - found.contexts[at], axis=1)
            hit[at] = bool((away <= NEAR * np.maximum(np.linalg.norm(rows, axis=1), 1e-9)).any())
    return hit


def aligned(bias: Floats, weights: Floats, contexts: Floats, labels: Ints) -> Floats:
    """Return how far an update moves each sample's own label above the other arms, for its size.

    `bias` is (arms,), `weights` (features, arms).
    """
    moved = contexts @ weights + bias
    own = moved[np.arange(len(labels)), labels]
    others = (moved.sum(axis=1) - own) / max(1, moved.shape[1] - 1)
    size = np.linalg.norm(weights) + np.linalg.norm(bias)
    return np.asarray(
        (own - others)
        / max(float(size), 1e-30)
        / np.maximum(np.linalg.norm(contexts, axis=1), 1e-9)
    )
