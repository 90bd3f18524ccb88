"""Figures: how much privacy may be spent, what was proved with everything that goes with it, what
could be claimed.

An epsilon never stands alone: a `Budget` is a pair (epsilon, delta), a `Guarantee` says unit,
adjacency, releases, composition, accountant, sampling and what is not covered.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from posse.core import check
from posse.core.errors import ConfigError

PARALLEL = "parallel over disjoint windows"
SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) that must not be exceeded: Pr[M(H) in S] <= e^epsilon Pr[M(H') in S] +
    delta.

    >>> str(Budget(1, 0.01))
    '(1, 0.01)'
    >>> Budget(1, 1)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] delta must be above 0 and below 1, got 1. 1 / (number of
    rounds) is usual.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check_delta(self.delta)

    def __str__(self) -> str:
        return f"({self.epsilon:g}, {self.delta:g})"


def check_delta(delta: float) -> None:
    """Refuse a delta that promises nothing (1 or more) or that Gaussian noise cannot keep (0)."""
    if not 0 < delta < 1:
        raise ConfigError(
            f"delta must be above 0 and below 1, got {delta}. 1 / (number of rounds) is usual."
        )


SIMULATION = (
    "a simulation: its noise comes from the recorded world seed, and whoever has the record can "
    "take it off"
)
"""What is not covered where noise follows from a seed."""


@dataclass(frozen=True)
class Guarantee:
    """What was proved: (epsilon, delta) for one unit, and what goes with it.

    >>> made = Guarantee(
    ...     0.99999,
    ...     0.01,
    ...     "entry",
    ...     "replace: another quantity",
    ...     8,
    ...     PARALLEL,
    ...     "an accountant",
    ...     "one agent's purchase",
    ...     ("capacities",),
    ... )
    >>> print(made.sentence())
    (1, 0.01)-differential privacy for one agent's purchase (unit entry; replace: another quantity); 8 releases,
    composition parallel over disjoint windows, accountant an accountant, sampling none. Not covered: capacities.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    releases: int
    composition: str
    accountant: str
    covers: str
    not_covered: tuple[str, ...]
    sampling: str = "none"

    @property
    def figure(self) -> str:
        """Epsilon, rounded up, and delta; or that there is none."""
        return figure(self.epsilon, self.delta)

    @property
    def terms(self) -> str:
        """What the figure rests on."""
        return (
            f"{self.releases} release{'' if self.releases == 1 else 's'}, composition "
            f"{self.composition}, "
            f"accountant {self.accountant}, sampling {self.sampling}"
        )

    def simulated(self, why: str = SIMULATION) -> Guarantee:
        """Return the same of a simulation, and why it covers nobody who has its record."""
        return replace(self, not_covered=(*self.not_covered, why))

    def sentence(self) -> str:
        """Say all of it in one paragraph."""
        proved = (
            f"{self.figure}-differential privacy"
            if math.isfinite(self.epsilon)
            else f"{self.figure}"
        )
        return (
            f"{proved} for {self.covers} (unit {self.unit}; {self.adjacency}); {self.terms}. "
            f"Not covered: {'; '.join(self.not_covered)}."
        )

    def entry(self) -> dict[str, str | int | float | list[str] | None]:
        """Return plain values for a record; epsilon is None where no finite one is proved."""
        return {
            **asdict(self),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "not_covered": list(self.not_covered),
            "sentence": self.sentence(),
        }


@dataclass(frozen=True)
class Claim:
    """A figure that could be claimed, how it comes about, and whether it is proved for the
    mechanism at hand.
    """

    how: str
    epsilon: float
    delta: float
    proved: bool

    @property
    def figure(self) -> str:
        """Epsilon, rounded up, and delta."""
        return figure(self.epsilon, self.delta)


def figure(epsilon: float, delta: float) -> str:
    """Write a figure; epsilon never looks smaller than it is.

    >>> figure(0.14583, 0.01), figure(1.0, 1e-5), figure(1234.5, 0.01), figure(math.inf, 0.01)
    ('(0.1459, 0.01)', '(1, 1e-05)', '(1235, 0.01)', 'no finite epsilon at delta 0.01')
    """
    if not math.isfinite(epsilon):
        return f"no finite epsilon at delta {delta:g}"
    return f"({rounded_up(epsilon):g}, {delta:g})"


def rounded_up(value: float) -> float:
    """Round up to four significant digits.

    >>> rounded_up(0.14581), rounded_up(2.0), rounded_up(0.0), rounded_up(0.999999)
    (0.1459, 2.0, 0.0, 1.0)
    """
    if value <= 0:
        return 0.0
    near = float(f"{value:.3e}")
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return near if near >= value else float(f"{near + step:.3e}")
