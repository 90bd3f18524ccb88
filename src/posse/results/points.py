"""The steps at which curves are sampled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def points_of(steps: int, points: int = 200) -> NDArray[np.int64]:
    """At most `points` steps, evenly spread, the last one included: a curve's size does not grow with a run's length.

    >>> points_of(100, 5)
    array([  1,  26,  50,  75, 100])
    """
    return np.unique(np.linspace(1, steps, min(points, steps)).round().astype(np.int64))
