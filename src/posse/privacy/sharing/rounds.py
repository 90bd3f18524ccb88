"""Computations side by side: their rounds are the same rounds."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Rounds: TypeAlias = Generator[None, None, T]
"""A computation that yields once a communication round and returns its result."""


def together(*computations: Rounds[Any]) -> Rounds[tuple[Any, ...]]:
    """Run computations side by side; takes as many rounds as the longest of them.

    >>> def count(rounds):
    ...     for _ in range(rounds):
    ...         yield
    ...     return rounds
    >>> both = together(count(2), count(3))
    >>> [None for _ in both]
    [None, None, None]
    """
    results: list[Any] = [None] * len(computations)
    running = dict(enumerate(computations))
    while True:
        for number, computation in list(running.items()):
            try:
                next(computation)
            except StopIteration as end:
                results[number] = end.value
                del running[number]
        if not running:
            return tuple(results)
        yield
