"""What a run is measured against, and signs that it did not do what was meant: numpy alone is needed.

`baselines` are what is earned without a model; the default rates of devices are small enough that steps of a linear
model do not grow; the rest are remarks, one sentence each, for whoever shows a record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.problems.populations.population import Population
from posse.problems.populations.ragged import Ragged
from posse.problems.populations.worlds import Drift, Rewards, tag_counts

Floats = NDArray[np.float64]

REMARKS = ("diverged", "large_inputs", "not_deployed", "wide_clip")
"""Keys of a summary that hold such a sentence."""
_GREW = 100.0
"""How many times its first norm the clip of a model that learns stays below."""
_LARGE = 1000.0
"""Mean squared norm of inputs up to which the usual rates of the server do; of images of 784 pixels it is about 90."""
_SETTLED = 20
"""Rounds after which a clip that follows the updates has come near them."""
CLIENT_RATE, PRETRAINING_RATE = 0.1, 0.5
"""Learning rates of devices, at most, where none are given."""
STEP = 0.5
"""What the rate times the mean squared norm of a linear model's inputs is at most."""
_SAMPLES = 1000
_ROUNDS = 200
"""Rounds of a world that drifts over which baselines are averaged, at most."""


class Baselines(NamedTuple):
    """Rewards a decision, over all samples of a population."""

    chance: float
    """An arm at random, each alike."""
    best: float
    """The best arm, for all contexts."""
    arm: str
    """Its name."""


def baselines(population: Population, rewards: Rewards, drift: Drift | None = None, rounds: int = 1) -> Baselines:
    """Return what needs no model; in a world that drifts, the mean over up to 200 of its rounds, evenly spread.

    >>> rows = np.zeros((4, 1), np.float32)
    >>> four = Population("four", ("a", "b"), [0, 4], rows, np.array([0, 1, 1, 1], np.int32))
    >>> baselines(four, Rewards(np.eye(2)))
    Baselines(chance=0.5, best=0.75, arm='b')
    """
    if isinstance(population.labels, Ragged):
        counts = tag_counts(population)
    else:
        counts = np.bincount(population.labels, minlength=len(population.arms))
    some = np.unique(np.linspace(0, max(1, rounds) - 1, _ROUNDS).astype(np.int64)) if drift is not None else [0]
    table = np.mean([rewards.at(drift, int(at)).table for at in some], axis=0)
    means = counts @ table / max(1, population.samples)
    best = int(means.argmax())
    return Baselines(float(means.mean()), float(means[best]), population.arms[best])


def default_client_rate(population: Population, model: str) -> float:
    """Return 0.1; of a linear model on dense inputs at most 0.5 / (mean squared norm of its inputs), to two digits.

    A step down the squared error of one sample multiplies the error by 1 - 2 rate |x|^2: above 1 / |x|^2 it grows. The
    mean is of up to 1,000 samples, spread evenly.

    >>> images = Population("two", ("a", "b"), [0, 1, 2], np.full((2, 4, 4), 255, np.uint8), np.array([0, 1], np.int32))
    >>> default_client_rate(images, "linear"), default_client_rate(images, "cnn")
    (0.031, 0.1)
    """
    return _at_most(CLIENT_RATE, STEP, population, model)


def default_pretraining_rate(population: Population, model: str) -> float:
    """Return 0.5, or less by the same rule; the loss of pre-training is a mean over arms, each of which steps less."""
    return _at_most(PRETRAINING_RATE, STEP * len(population.arms), population, model)


def _at_most(rate: float, step: float, population: Population, model: str) -> float:
    squared = squared_norm(population, model)
    return float(f"{step / squared:.2g}") if squared * rate > step else rate


def squared_norm(population: Population, model: str) -> float:
    """Return the mean squared norm of a linear model's dense inputs, of up to 1,000 samples; 0 for other models."""
    inputs = population.inputs
    if model != "linear" or not isinstance(inputs, np.ndarray) or not population.samples:
        return 0.0
    some = np.unique(np.linspace(0, population.samples - 1, _SAMPLES).astype(np.int64))
    flat = np.asarray(inputs[some], np.float64).reshape(len(some), -1) / (255 if inputs.dtype == np.uint8 else 1)
    return float((flat**2).sum(axis=1).mean())


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
    present = within[clients > 0]
    if not noise or not len(present) or present.min() < 1:
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
