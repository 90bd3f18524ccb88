"""Whether logs can answer: a target's choices that the logging policy never made cannot be valued.

Where the chance of every arm was logged, the share without support is the mean of pi's chance on arms of logged chance
0: exact. Where only the drawn arm's chance was, two things show: a row logged with probability 1 gave no other arm a
chance, so that all of pi elsewhere is without support; and importance weights have mean 1 where there is support, so
that in `ENOUGH` rows a mean far below 1 (`SIGMAS` standard errors) tells of arms that were never drawn, or so rarely
that the log does not know them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError

SIGMAS = 5.0
"""Standard errors below 1 at which the mean weight is evidence: a false alarm in 3.5 million."""
ENOUGH = 100
"""Rows from which on the mean weight is looked at."""
ROUNDING = 1e-6
"""Share that float32 probabilities may seem to lack."""


@dataclass(frozen=True)
class Support:
    """How much of a target's choices the logs never made."""

    share: float
    """Share of the target's choices without support."""
    rows: int
    """Rows in which some choice has none."""
    exact: bool
    """Whether the chances of all arms were known."""
    mean_weight: float
    """Mean importance weight: 1 in expectation where there is support."""


def support_of(
    arms: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    target: NDArray[np.float64],
    logging: NDArray[np.float64] | None = None,
) -> Support:
    """Measure support.

    >>> support_of(np.array([0, 0]), np.array([1.0, 1.0]), np.array([[0.5, 0.5], [1.0, 0.0]]))
    Support(share=0.25, rows=1, exact=False, mean_weight=0.75)
    """
    drawn = target[np.arange(len(arms)), arms]
    weights = drawn / probabilities
    mean = float(weights.mean())
    if logging is not None:
        if logging.shape != target.shape:
            raise DataError(f"logged chances must be rows x arms like the target {target.shape}, got {logging.shape}.")
        lacking = np.where(logging > 0, 0.0, target).sum(axis=1)
        return Support(float(lacking.mean()), int((lacking > ROUNDING).sum()), True, mean)
    lacking = np.where(probabilities >= 1, 1 - drawn, 0.0)
    share = float(lacking.mean())
    # About 1, the mean that support would give: weights that are all 0 have no spread about their own.
    error = float(((weights - 1) ** 2).mean() / len(weights)) ** 0.5
    if len(weights) >= ENOUGH and 1 - mean > SIGMAS * error + ROUNDING:
        share = max(share, 1 - mean)
    return Support(share, int((lacking > ROUNDING).sum()), False, mean)


def check_support(
    arms: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    target: NDArray[np.float64],
    logging: NDArray[np.float64] | None = None,
    tolerance: float = 0.0,
) -> Support:
    """Refuse logs that leave more than `tolerance` of the target's choices without support.

    >>> check_support(np.array([0, 0]), np.array([1.0, 1.0]), np.array([[0.5, 0.5], [1.0, 0.0]]))
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] the logs must support the policy's choices, got none for 25 % of them (in 1 of 2
    rows; mean importance weight 0.75). Log with exploration, or evaluate a policy closer to the logged one.
    """
    check.between(0, 1, tolerance=tolerance)
    found = support_of(arms, probabilities, target, logging)
    if found.share > tolerance + ROUNDING:
        raise DataError(
            f"the logs must support the policy's choices, got none for {100 * found.share:.3g} % of them (in "
            f"{found.rows} of {len(arms)} rows; mean importance weight {found.mean_weight:.3g}). Log with exploration, "
            "or evaluate a policy closer to the logged one."
        )
    return found
