"""What a population must be, one line for each way it can be wrong. Values are read a chunk at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.ragged import Ragged

_CHUNK = 1 << 14
"""Samples looked at a time."""
MOST_CLIENTS = 1 << 24
"""Clients that draws have addresses for."""


def check_sizes(
    arms: tuple[str, ...], offsets: NDArray[np.int64], inputs: int, labels: int, bags: bool, vocabulary: int
) -> None:
    """Refuse arrays that do not belong together."""
    if len(arms) < 2:
        raise DataError(f"a bandit needs at least 2 arms, got {len(arms)}. Add another.")
    if len(set(arms)) != len(arms):
        twice = next(name for i, name in enumerate(arms) if name in arms[:i])
        raise DataError(f"arm names must differ, got '{twice}' twice. Rename one.")
    if offsets.ndim != 1 or len(offsets) < 2:
        raise DataError(f"a population needs a client, got offsets of shape {offsets.shape}. Give clients + 1 offsets.")
    if len(offsets) - 1 > MOST_CLIENTS:
        raise DataError(f"a population has at most 2^24 clients, got {len(offsets) - 1}. Split it.")
    if inputs != labels or int(offsets[0]) != 0 or int(offsets[-1]) != inputs:
        raise DataError(
            f"every sample must have an input, a label and a client, got {inputs} inputs, {labels} labels and offsets "
            f"from {offsets[0]} to {offsets[-1]}. Match them."
        )
    if bags and not vocabulary:
        raise DataError("bags of words need a vocabulary, got none. Name the words, in the order of their numbers.")


def check_inputs(inputs: NDArray[np.uint8] | NDArray[np.float32] | Ragged, vocabulary: int) -> None:
    """Refuse numbers that are not finite, and words outside the vocabulary."""
    if isinstance(inputs, Ragged):
        _within(inputs.values, vocabulary, "words", "the vocabulary")
        return
    if inputs.dtype == np.uint8:
        return
    if inputs.dtype != np.float32:
        raise DataError(f"inputs must be bytes (uint8) or float32, got {inputs.dtype}. Convert them.")
    for low in range(0, len(inputs), _CHUNK):
        wrong = np.argwhere(~np.isfinite(inputs[low : low + _CHUNK]))
        if len(wrong):
            value = inputs[low : low + _CHUNK][tuple(wrong[0])]
            raise DataError(
                f"inputs must be finite numbers, got {value} in sample {low + wrong[0][0] + 1}. "
                "Correct it, or leave the sample out."
            )


def check_labels(labels: NDArray[np.int32] | Ragged, arms: int) -> None:
    """Refuse labels that are not arms."""
    _within(labels.values if isinstance(labels, Ragged) else labels, arms, "labels", "the arms")


def _within(values: NDArray[np.integer], count: int, what: str, whose: str) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"{what} must be whole numbers, got {values.dtype}. Number them from 0.")
    for low in range(0, len(values), 64 * _CHUNK):
        part = values[low : low + 64 * _CHUNK]
        wrong = np.flatnonzero((part < 0) | (part >= count))
        if len(wrong):
            raise DataError(
                f"{what} must be in [0, {count}), the number of {whose}, got {part[wrong[0]]} at position "
                f"{low + wrong[0] + 1}. Correct it, or leave the sample out."
            )
