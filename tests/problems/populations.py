"""Small populations with images and with texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from posse.problems.populations.population import Population, Ragged, names_of

ARMS = ("a", "b", "c")


def images(sizes: list[int], seed: int = 0, **changes: Any) -> Population:
    draw = np.random.default_rng(seed)
    total = sum(sizes)
    made: dict[str, Any] = {
        "name": "images",
        "arms": ARMS,
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "inputs": draw.integers(1, 256, (total, 3, 2)).astype(np.uint8),
        "labels": draw.integers(0, 3, total).astype(np.int32),
    }
    return Population(**(made | changes))


def texts() -> Population:
    bags = Ragged(
        np.array([0, 2, 2, 5]),
        np.array([3, 1, 0, 2, 4], np.int32),
        np.array([1, 2, 1, 2, 2], np.uint16),
    )
    return Population(
        "texts",
        ARMS,
        np.array([0, 2, 3]),
        bags,
        Ragged.of([[0, 2], [], [1]]),
        names_of(["é", "bob"]),
        tuple("vwxyz"),
    )
