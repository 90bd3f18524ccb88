"""Requirements of values and of the entries of arrays: what must hold, and the error if not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, PosseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Place = tuple[int, ...]
"""Indices of an entry of an array."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True)
class Requirement(Generic[T_contra]):
    """What a value must fulfil."""

    rule: str
    """Rule of the error, such as `problems.owners.below-two`."""
    holds: Callable[[T_contra], object]
    """Returns a true value if the requirement is fulfilled."""
    text: Callable[[T_contra], str]
    """Returns the message of the error."""
    error: type[PosseError] = ConfigError
    field: str | None = None
    """What the user must change, if it is not the field in `rule`."""


def check_all(value: T, requirements: Iterable[Requirement[T]]) -> None:
    """Raise the error of the first requirement that the value does not fulfil.

    >>> even = Requirement("problems.side.odd", lambda n: n % 2 == 0, lambda n: f"{n} is odd.")
    >>> check_all(3, [even])
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] 3 is odd.
    """
    for requirement in requirements:
        if not requirement.holds(value):
            raise requirement.error(
                requirement.text(value), rule=requirement.rule, field=requirement.field
            )


def check_entries(good: NDArray[np.bool_], error: Callable[[Place], PosseError]) -> None:
    """Raise the error about the first entry of an array that is not good.

    Args:
        good: Which entries are good.
        error: Makes the error from the place of the entry.
    """
    if not good.all():
        raise error(tuple(np.argwhere(~good)[0].tolist()))
