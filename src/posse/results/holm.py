"""Several tests in one table: p-values that allow for all of them."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float]:
    r"""Return p-values adjusted by Holm (1979), in the order given; a test that was not made (None) stays out, at 1.

    The i-th smallest of m is multiplied by $m - i + 1$ and is never below one before it. What is then at most
    $\alpha$ holds together: with probability $1 - \alpha$ none of it is chance, however the tests hang together.

    >>> holm([0.04, 0.01, None])
    [0.04, 0.02, 1.0]
    """
    made = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, (p, i) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p))
        adjusted[i] = largest
    return adjusted
