"""What a run is measured against, and signs that it did not do what was meant: numpy alone is
needed.

`baselines` are what is earned without a model; default rates of devices and server follow from how
large contexts are; the rest are remarks, one sentence each, for whoever shows a record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.problems.populations.population import Population, Ragged
from posse.problems.populations.worlds import Drift, Presence, Rewards, tag_counts

Floats = NDArray[np.float64]

REMARKS = ("diverged", "not_learnt", "large_inputs", "not_deployed", "wide_clip")
"""Keys of a summary that hold such a sentence."""
_GREW = 100.0
"""How many times its first norm the clip of a model that learns stays below."""
_LARGE = 1000.0
"""Mean squared norm of inputs up to which the usual rates of the server do; of images of 784 pixels
it is about 90.
"""
_SETTLED = 20
"""Rounds after which a clip that follows the updates has come near them."""
CLIENT_RATE, PRETRAINING_RATE = 0.1, 0.5
"""Learning rates of devices, at most, where none are given."""
STEP = 0.5
"""What the rate times the mean squared norm of a linear model's inputs is at most."""
SERVER_STEP, SERVER_RATES = 0.6, {"cnn": 0.002}
OTHER_RATE = 0.01
"""The rate of the server times the size of inputs, by `benchmarks.rates`; rates of the network, and
of others.
"""
_COMMON, _BAG = 0.2, 7.5
"""What is added to the share in common of dense inputs; how many times its sum of weights a bag of
words counts.
"""
_SAMPLES = 1000
_ROUNDS = 200
"""Rounds of a world that drifts over which baselines are averaged, at most."""


class Baselines(NamedTuple):
    """Rewards a decision, over all samples of a population."""

    chance: float
    """An arm at random, each alike."""
    best: float
    """The best arm, for all contexts; where arms come and go, the best of those that are there."""
    arm: str
    """Its name."""


def baselines(
    population: Population,
    rewards: Rewards,
    drift: Drift | None = None,
    rounds: int = 1,
    coming: Presence | None = None,
) -> Baselines:
    """Return what needs no model; where rewards or arms change, the mean over up to 200 of the
    rounds, evenly spread.

    >>> rows = np.zeros((4, 1), np.float32)
    >>> four = Population("four", ("a", "b"), [0, 4], rows, np.array([0, 1, 1, 1], np.int32))
    >>> baselines(four, Rewards(np.eye(2)))
    Baselines(chance=0.5, best=0.75, arm='b')
    """
    if isinstance(population.labels, Ragged):
        counts = tag_counts(population)
    else:
        counts = np.bincount(population.labels, minlength=len(population.arms))
    changes = drift is not None or coming is not None
    some = (
        np.unique(np.linspace(0, max(1, rounds) - 1, _ROUNDS).astype(np.int64)) if changes else [0]
    )
    every = np.array([counts @ rewards.at(drift, int(at)).table for at in some]) / max(
        1, population.samples
    )
    means, here = every.mean(axis=0), np.ones(every.shape, bool)
    if coming is not None:
        here = np.array([coming.here(int(at)) for at in some])
    best = np.where(here, means, -np.inf).argmax(axis=1)
    chance = float(every.mean(axis=1, where=here).mean())
    arm = population.arms[int(np.bincount(best).argmax())]
    return Baselines(chance, float(every[np.arange(len(every)), best].mean()), arm)


def default_client_rate(population: Population, model: str) -> float:
    """Return 0.1; of a linear model on dense inputs at most 0.5 / (mean squared norm of its
    inputs), to two digits.

    A step down the squared error of one sample multiplies the error by 1 - 2 rate |x|^2: above 1 /
    |x|^2 it grows. The mean is of up to 1,000 samples, spread evenly.

    >>> images = Population(
    ...     "two",
    ...     ("a", "b"),
    ...     [0, 1, 2],
    ...     np.full((2, 4, 4), 255, np.uint8),
    ...     np.array([0, 1], np.int32),
    ... )
    >>> default_client_rate(images, "linear"), default_client_rate(images, "cnn")
    (0.031, 0.1)
    """
    return _at_most(CLIENT_RATE, STEP, population, model)


def declared_client_rate(size: float, model: str) -> float:
    """Return 0.1; of a linear model at most 0.5 / (declared size of its inputs), to two digits:
    nothing is measured.
    """
    return min(CLIENT_RATE, float(f"{STEP / size:.2g}")) if model == "linear" else CLIENT_RATE


def declared_size(features: int, low: float, high: float) -> tuple[float, float]:
    """Return size and mean squared norm of contexts of which bounds are declared, spread evenly
    between them.

    Numbers from 0 to 1 count as a quarter of the features, as those of images do; others in
    proportion, by the rule of `input_size` and by their squares.

    >>> declared_size(64, 0, 1), declared_size(64, 0, 2)
    ((16.0, 16.0), (32.0, 64.0))
    """
    squares, middle = (low * low + low * high + high * high) / 3, (low + high) / 2
    mean = abs(middle) if low * high >= 0 else (low * low + high * high) / (2 * (high - low))
    size, unit = mean / (_COMMON + middle * middle / squares), 0.5 / (_COMMON + 0.75)
    return features / 4 * (size / unit), features / 4 * (3 * squares)


def default_pretraining_rate(population: Population, model: str) -> float:
    """Return 0.5, or less by the same rule; the loss of pre-training is a mean over arms, each of
    which steps less.
    """
    return _at_most(PRETRAINING_RATE, STEP * len(population.arms), population, model)


def _at_most(rate: float, step: float, population: Population, model: str) -> float:
    squared = squared_norm(population, model)
    return float(f"{step / squared:.2g}") if squared * rate > step else rate


def squared_norm(population: Population, model: str) -> float:
    """Return the mean squared norm of a linear model's dense inputs, of up to 1,000 samples; 0 for
    other models.
    """
    inputs = population.inputs
    if model != "linear" or not isinstance(inputs, np.ndarray) or not population.samples:
        return 0.0
    return float((_some(population) ** 2).sum(axis=1).mean())


def input_size(population: Population, model: str) -> float:
    """Return how large the inputs of a linear model or of bags of words are, to two digits; 0 for
    other models.

    A step of Adam moves every weight by about the rate, and a prediction by the rate times |x|_1:
    that is the scale. What contexts have in common moves all predictions alike, and such steps may
    be larger: the size of dense inputs is mean |x|_1 / (0.2 + |mean x|^2 / mean |x|^2), of up to
    1,000 samples, spread evenly; of bags, 7.5 times their mean sum of weights.

    >>> images = Population(
    ...     "two",
    ...     ("a", "b"),
    ...     [0, 1, 2],
    ...     np.full((2, 4, 4), 255, np.uint8),
    ...     np.array([0, 1], np.int32),
    ... )
    >>> input_size(images, "linear"), input_size(images, "cnn")
    (13.0, 0.0)
    """
    if model not in ("linear", "bag") or not population.samples:
        return 0.0
    if isinstance(population.inputs, Ragged):
        size = _BAG * float(
            np.mean([_sum_of_weights(population.inputs, at) for at in _places(population)])
        )
    else:
        flat = _some(population)
        common = float(
            (flat.mean(axis=0) ** 2).sum() / max(float((flat**2).sum(axis=1).mean()), 1e-300)
        )
        size = float(np.abs(flat).sum(axis=1).mean()) / (_COMMON + common)
    return float(f"{size:.2g}")


def default_server_rate(size: float, model: str, optimiser: str) -> float:
    """Return 1 for plain steps; 0.6 / size for linear models and bags, to two digits; 0.002 for a
    cnn, 0.01 for others.

    At most 1: a bias moves by the rate however small contexts are.

    >>> default_server_rate(22.0, "linear", "adam"), default_server_rate(0.0, "cnn", "adam")
    (0.027, 0.002)
    """
    if optimiser == "sgd":
        return 1.0
    if model in ("linear", "bag") and size > 0:
        return min(1.0, float(f"{SERVER_STEP / size:.2g}"))
    return SERVER_RATES.get(model, OTHER_RATE)


def _places(population: Population) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, population.samples - 1, _SAMPLES).astype(np.int64))


def _some(population: Population) -> Floats:
    """Return up to 1,000 dense inputs, spread evenly, as a linear model takes them."""
    inputs, places = np.asarray(population.inputs), _places(population)
    return inputs[places].astype(np.float64).reshape(len(places), -1) / (
        255 if inputs.dtype == np.uint8 else 1
    )


def _sum_of_weights(bags: Ragged, at: int) -> float:
    """Sum of a bag's weights, whose squares add up to 1."""
    first, last = int(bags.offsets[at]), int(bags.offsets[at + 1])
    counts = (
        np.ones(last - first)
        if bags.counts is None
        else np.asarray(bags.counts[first:last], np.float64)
    )
    return float(counts.sum() / max(float(np.sqrt((counts**2).sum())), 1e-300))


def diverged(limits: Floats, within: Floats, quantile: float, **rates: float) -> str | None:
    """Say that updates grew faster than the clip that follows them, or drew it along; `rates` are
    those to lower.

    >>> print(diverged(np.array([1.0, 614.0]), np.array([0.1, 0.7]), 0.8, client_rate=0.1))
    the model looks diverged: the clip went from 1 to 614. Lower client_rate (0.1), or scale the features.
    """
    if not quantile or not len(
        limits
    ):  # of a clip that stays only what is earned tells: `not_learnt`
        return None
    which = " or ".join(f"{name} ({rate:g})" for name, rate in rates.items())
    remedy = f"Lower {which}, or scale the features."
    if limits[-1] > _GREW * limits[0]:
        return (
            f"the model looks diverged: the clip went from {limits[0]:.3g} to {limits[-1]:.3g}. "
            f"{remedy}"
        )
    share = float(within[-max(1, len(within) // 10) :].mean())
    if len(within) >= _SETTLED and share < quantile / 4:
        return (
            f"the model looks diverged: at the end {share:.0%} of updates are within a clip that "
            "follows "
            f"{quantile:.0%} of them. {remedy}"
        )
    return None


def not_learnt(
    rewards: Floats, samples: Floats, chance: float, deploy_every: int, **rates: float
) -> str | None:
    """Say that devices earn at the end no more than by chance, or far less than before, whatever
    clip and noise are.

    The end is the last tenth of the rounds, before is the best tenth; four standard errors of a
    reward from 0 to 1 are allowed for.

    >>> lost = np.r_[np.full(50, 80.0), np.full(50, 11.0)]
    >>> print(not_learnt(lost, np.full(100, 100.0), 0.1, 10, server_rate=0.3))
    what was learnt was lost: devices earned 0.80 a decision, and at the end 0.11. Lower server_rate (0.3), scale the
    features, or lower the noise.
    """
    width = max(1, len(rewards) // 10)
    if len(rewards) < max(_SETTLED, 3 * deploy_every):
        return None
    tenths = [slice(low, low + width) for low in range(0, len(rewards) - width + 1, width)]
    counts = [float(samples[one].sum()) for one in tenths]
    if min(counts) < 1:
        return None
    means = [float(rewards[one].sum()) / count for one, count in zip(tenths, counts, strict=True)]
    error = 4 * 0.5 / min(counts) ** 0.5
    which = " or ".join(f"{name} ({rate:g})" for name, rate in rates.items())
    if means[-1] < 0.7 * max(means) - error:
        return (
            f"what was learnt was lost: devices earned {max(means):.2f} a decision, and at the end "
            f"{means[-1]:.2f}. "
            f"Lower {which}, scale the features, or lower the noise."
        )
    if means[-1] <= chance + min(error, 0.1 * (1 - chance)):
        return (
            f"nothing was learnt: devices earn {means[-1]:.3f} a decision at the end, and an arm "
            "at random "
            f"{chance:.3f}. Change {which}, scale the features, or lower the noise."
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


def with_flag(remark: str) -> str:
    """Name the setting that scales the features of a table, in a remark that advises it.

    >>> print(with_flag("nothing was learnt. Lower client_rate (0.1), or scale the features."))
    nothing was learnt. Lower client_rate (0.1), or scale the features (--scale standard).
    """
    named = remark.replace("scale the features", "scale the features (--scale standard)")
    return named.replace("Scale them to about 1", "Scale them (--scale standard)")


def large_inputs(squared: float, optimiser: str) -> str | None:
    """Say that inputs are too large for a server whose steps do not shrink with them, as Adam's do
    not.

    >>> print(large_inputs(7.6e6, "adam"))
    features are large (mean squared norm 7.6e+06), and adam's steps do not shrink with them. Scale them to about 1.
    """
    if squared <= _LARGE or optimiser == "sgd":
        return None
    return (
        f"features are large (mean squared norm {squared:.3g}), and {optimiser}'s steps do not "
        "shrink with them. Scale "
        "them to about 1."
    )
