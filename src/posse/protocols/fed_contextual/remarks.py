"""Signs that a run did not do what was meant, one sentence each, for whoever shows its record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REMARKS = ("diverged", "large_inputs", "not_deployed", "wide_clip")
"""Keys of a summary that hold such a sentence."""
_GREW = 100.0
"""How many times its first norm the clip of a model that learns stays below."""
_LARGE = 1000.0
"""Mean squared norm of inputs up to which the usual rates of the server do; of images of 784 pixels it is about 90."""
_SETTLED = 20
"""Rounds after which a clip that follows the updates has come near them."""


def diverged(limits: Floats, within: Floats, quantile: float, **rates: float) -> str | None:
    """Say that updates grew faster than the clip that follows them, or drew it along; `rates` are those to lower.

    >>> print(diverged(np.array([1.0, 614.0]), np.array([0.1, 0.7]), 0.8, client_rate=0.1))
    the model looks diverged: the clip went from 1 to 614. Lower client_rate (0.1), or scale the features.
    """
    if not quantile or not len(limits):
        return None
    which = " or ".join(f"{name} ({rate:g})" for name, rate in rates.items())
    remedy = f"Lower {which}, or scale the features."
    if limits[-1] > _GREW * limits[0]:
        return f"the model looks diverged: the clip went from {limits[0]:.3g} to {limits[-1]:.3g}. {remedy}"
    share = float(within[-max(1, len(within) // 10) :].mean())
    if len(within) >= _SETTLED and share < quantile / 4:
        return (
            f"the model looks diverged: at the end {share:.0%} of updates are within a clip that follows "
            f"{quantile:.0%} of them. {remedy}"
        )
    return None


def not_deployed(rounds: int, deploy_every: int, *, pretrained: bool = False) -> str | None:
    """Say that devices never acted with what was learnt.

    >>> print(not_deployed(8, 10))
    no model was deployed in 8 rounds: deploy_every is 10. Lower it, or run more rounds.
    """
    if not rounds or rounds > deploy_every:
        return None
    what = f"no {'newer ' if pretrained else ''}model was deployed in {rounds} rounds"
    if rounds == deploy_every:
        what = f"no device acted with what was learnt in {rounds} rounds"
    return f"{what}: deploy_every is {deploy_every}. Lower it, or run more rounds."


def wide_clip(within: Floats, clients: Floats, noise: float) -> str | None:
    """Say that noise is larger than it need be."""
    asked = within[clients > 0]
    if not noise or not len(asked) or asked.min() < 1:
        return None
    return "all updates are within the clip: a smaller clip costs less noise."


def large_inputs(squared: float, optimiser: str) -> str | None:
    """Say that inputs are too large for a server whose steps do not shrink with them, as Adam's do not.

    >>> print(large_inputs(7.6e6, "adam"))
    features are large (mean squared norm 7.6e+06), and adam's steps do not shrink with them. Scale them to about 1.
    """
    if squared <= _LARGE or optimiser == "sgd":
        return None
    return (
        f"features are large (mean squared norm {squared:.3g}), and {optimiser}'s steps do not shrink with them. Scale "
        "them to about 1."
    )


def told(summary: Mapping[str, object]) -> tuple[str, ...]:
    """Return the sentences that a record's summary holds."""
    return tuple(str(summary[key]) for key in REMARKS if key in summary)
