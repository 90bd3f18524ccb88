"""Learning rates of devices where none are given: small enough that steps of a linear model do not grow."""

from __future__ import annotations

import numpy as np

from posse.problems.populations.population import Population

CLIENT_RATE, PRETRAINING_RATE = 0.1, 0.5
"""Learning rates of devices, at most, where none are given."""
STEP = 0.5
"""What the rate times the mean squared norm of a linear model's inputs is at most."""
_SAMPLES = 1000


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
