"""Algorithm 3: how often a shared number divided share by share comes out wrong, by the number of
parties.

Every party divides its own share, a signed number modulo 2^64. The sum of the shares is x plus
theta 2^64, and the result is wrong by theta 2^(64 - L) where theta is not 0. Algorithm 3 counts
theta with a dealt random number whose own wraps are known, and leaves out one term (whether z is
below that number), which is not 0 with probability |x| / 2^64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.results import plots
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Row, Table, Watch, progress, write_files
from reproduction.mpc_contextual.problem import REFERENCE
from reproduction.mpc_contextual.published import Words

PARTIES = (2, 3, 5)
SIZES = (48, 52, 56, 58, 60, 62)
"""log2 |x|."""
SEED = 1
TRIALS, CHUNKS = 50_000, 80


@dataclass(frozen=True)
class Cell:
    """Failures in so many divisions of numbers of one size."""

    parties: int
    size: int
    trials: int
    bare: int
    """Shares divided alone."""
    counted: int
    """With the wraps that Algorithm 3 counts."""

    @property
    def predicted(self) -> float:
        """|x| / Q."""
        return 2.0 ** (self.size - 64)

    def z(self, failures: int) -> float:
        """Standard errors between the measured and the predicted share."""
        p = self.predicted
        return (failures / self.trials - p) / math.sqrt(p * (1 - p) / self.trials)

    def row(self) -> Row:
        """The cell as a row of the raw file."""
        return {
            "parties": self.parties,
            "log2_x": self.size,
            "trials": self.trials,
            "failures_alone": self.bare,
            "failures_counted": self.counted,
            "predicted_two_parties": self.predicted,
        }


def wraps(shares: Words) -> np.ndarray:
    """Return theta of signed shares (parties, trials): what their sum is above their value, in
    multiples of 2^64.

    >>> wraps(np.array([[2**63 - 1], [2**63 - 1]], np.uint64)).tolist()
    [1]
    """
    # Each share apart in its upper and lower half, so that nothing overflows.
    signed = shares.view(np.int64)
    high, low = signed >> 32, signed & 0xFFFFFFFF
    below = low.sum(axis=0)
    above = high.sum(axis=0) + (below >> 32)
    theta: np.ndarray = (above + (1 << 31)) >> 32
    return theta


def drawn(x: Words, parties: int, rng: np.random.Generator) -> Words:
    """Share numbers between parties."""
    others = rng.integers(0, 2**64, (parties - 1, len(x)), np.uint64)
    return np.concatenate([others, (x - others.sum(axis=0, dtype=np.uint64))[None]])


def failures(parties: int, size: int, trials: int, number: int) -> Cell:
    """Divide numbers +-2^size; `number` is that of a chunk, which is its seed."""
    rng = np.random.default_rng((SEED, parties, size, number))
    x = np.where(rng.random(trials) < 0.5, np.int64(1) << size, -(np.int64(1) << size)).view(
        np.uint64
    )
    shares, random = (
        drawn(x, parties, rng),
        drawn(rng.integers(0, 2**64, trials, np.uint64), parties, rng),
    )
    theta = wraps(shares)
    # beta: each party's own wrap as it adds its shares; z is opened, and its wraps are public.
    summed = shares + random
    beta = sum(wraps(np.stack([shares[p], random[p]])) for p in range(parties))
    counted = wraps(summed) + beta - wraps(random)
    return Cell(parties, size, trials, int((theta != 0).sum()), int((theta != counted).sum()))


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Count failures for every number of parties and every size."""
    chunks = 1 if small else CHUNKS
    plan = [(parties, size) for parties in PARTIES for size in SIZES]
    done = []
    for parties, size in progress(plan, lambda one: f"{one[0]} parties, |x| = 2^{one[1]}", watch):
        cells = [failures(parties, size, TRIALS, number) for number in range(chunks)]
        bare, counted = sum(cell.bare for cell in cells), sum(cell.counted for cell in cells)
        done.append(Cell(parties, size, chunks * TRIALS, bare, counted))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[Cell], out: Path) -> Analysis:
    """Write rows and figure, and judge both sentences."""
    files = write_files(out, "algorithm3", [cell.row() for cell in done], picture(done))
    two = [cell for cell in done if cell.parties == 2]
    far = max((abs(cell.z(cell.bare)) for cell in two), default=0.0)
    more = [min(c.bare / c.trials for c in done if c.parties == p) for p in PARTIES[1:]]
    text = ", ".join(
        f"{p} parties at least {100 * share:.1f} %"
        for p, share in zip(PARTIES[1:], more, strict=True)
    )
    most = max(cell.bare / cell.trials for cell in two if cell.size < 60)
    rest = max(abs(cell.z(cell.counted)) for cell in done)
    findings = (
        Finding(
            "two",
            f"within {far:.1f} standard errors of |x| / 2^64 at {len(two)} sizes",
            HOLDS if far < 4 else FAILS,
        ),
        Finding(
            "parties",
            f"{text}; 2 parties at most {100 * most:.2f} % for |x| below 2^60",
            HOLDS if min(more) > most else FAILS,
        ),
        Finding(
            "counted",
            f"within {rest:.1f} standard errors of |x| / 2^64 at {len(done)} combinations of size "
            "and number of parties",
            HOLDS if rest < 4 else FAILS,
        ),
    )
    rows = tuple(
        (
            str(c.parties),
            f"2^{c.size}",
            f"{c.bare / c.trials:.3g}",
            f"{c.counted / c.trials:.3g}",
            f"{c.predicted:.3g}",
        )
        for c in done
    )
    columns = ("parties", "|x|", "failures, shares alone", "with wraps counted", "|x| / 2^64")
    notes = (
        "Real roles of this package truncate by dealt pairs, which are exact for any number of "
        "parties below 2^62.",
        "Algorithm 3 is run with its last term left out, as the paper does.",
    )
    return Analysis(
        f"Failures of share-wise division: {text}.",
        (Table("Failures", columns, rows),),
        notes,
        files,
        findings,
    )


def picture(done: Sequence[Cell]) -> plots.Figure:
    """Draw failures against the size of the number."""
    figure, (ax,) = kit.panels(1)
    plots.style(ax, x="log2 |x|", y="share of wrong divisions (logarithmic)")
    for number, parties in enumerate(PARTIES):
        own = [cell for cell in done if cell.parties == parties and cell.bare]
        kit.line(
            ax,
            [c.size for c in own],
            [c.bare / c.trials for c in own],
            number,
            f"{parties} parties, shares alone",
        )
        own = [cell for cell in done if cell.parties == parties and cell.counted]
        label = f"{parties} parties, wraps counted"
        kit.line(ax, [c.size for c in own], [c.counted / c.trials for c in own], number + 3, label)
    ax.set_yscale("log")
    kit.legend(figure, ax, 2)
    return figure


ALGORITHM3 = REFERENCE.experiment(
    "algorithm3",
    "Private contextual bandits, Algorithm 3 (appendix C): failures of share-wise division",
    ("precision",),
    sweep,
)
