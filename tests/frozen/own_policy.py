"""A custom policy whose source is frozen: its digest is in manifests. Do not edit its class and functions."""

from __future__ import annotations

from dataclasses import dataclass

from posse.policies import Policy


def prior_mean(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    return (total + parameters[0]) / (pulls + 2.0 * parameters[0])


@dataclass(frozen=True)
class PriorMean(Policy):
    """The mean of an arm with some rewards of 1/2 before the first."""

    name = "prior-mean"
    score = staticmethod(prior_mean)

    weight: float = 1.5


def flat(scores, width=1.0, xp=None):  # type: ignore[no-untyped-def]
    return (scores * 0 + width) / (width * scores.shape[-1])
