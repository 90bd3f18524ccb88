"""How far the model of the contextual bandit is from breaking at the most steps that are allowed:
`make bench-range`.

For contexts that are hard for recursive least squares in fixed point (uncentred, constant, nearly
equal, as many different ones as features, unit vectors, centred), numbers of features, arms and
bits: the compiled twin, which is the private run bit for bit, with one arm that is pulled nearly
always. Prints the settings in which P lost positivity or weights their bound, and the least
eigenvalue in units of 2^-bits.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.fixed import REWARD_ONE
from posse.privacy.sharing.fixed import FixedPoint
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.dealer import DealerKeys
from posse.systems.mpc_contextual.roles.outside import Model
from posse.systems.mpc_contextual.terms import DEALER, Terms, largest_steps
from posse.systems.mpc_contextual.twins.twin import FixedTwin, coins_of, seeded

KINDS = ("uncentred", "constant", "nearly equal", "few", "unit vectors", "centred")
LOOKS = 8
"""How often the model is looked at on the way."""


class Setting(NamedTuple):
    """One run of the study."""

    kind: str
    bits: int
    features: int
    arms: int


class Found(NamedTuple):
    """How it went."""

    least: float
    """Least eigenvalue of any P at any look, in units of 2^-bits."""
    weight: float
    """Largest weight at any look."""
    broken: str
    """Why the run stopped, or nothing."""


def contexts(kind: str, steps: int, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return unit rows of a kind."""
    base = rng.random(size) + 0.1
    made = {
        "uncentred": lambda: rng.random((steps, size)),
        "constant": lambda: np.tile(base, (steps, 1)),
        "nearly equal": lambda: base + 1e-3 * rng.normal(size=(steps, size)),
        "few": lambda: rng.normal(size=(size, size))[rng.integers(0, size, steps)],
        "unit vectors": lambda: np.eye(size)[rng.integers(0, size, steps)],
        "centred": lambda: rng.normal(size=(steps, size)),
    }[kind]()
    return made / np.linalg.norm(made, axis=1, keepdims=True) * 0.9999


def play(setting: Setting, seed: int = 1, steps: int | None = None) -> Found:
    """Run one setting, by default for the most steps that are allowed."""
    kind, bits, size, arms = setting
    steps = largest_steps(bits) if steps is None else steps
    rng = np.random.default_rng(seed)
    terms = Terms("range", ("a", "b"), (size - size // 2, size // 2), arms, steps, (1, 10), bits)
    rows = FixedPoint(bits, 1.0).encode(contexts(kind, steps, size, rng))
    units = np.zeros((steps, arms), np.int64)
    units[:, 0] = np.where(rng.random(steps) < 0.9, REWARD_ONE, 0)
    keys = list(DealerKeys(terms, seeded(seed, DEALER)).tapes.values())
    twin = FixedTwin(terms, plan(terms), rows, units, coins_of(terms, seed), keys)
    least, weight, broken = np.inf, 0.0, ""
    for _ in range(LOOKS):
        try:
            twin.advance(-(-steps // LOOKS))
        except DataError as error:
            broken = error.text
        model = Model(terms, twin.time, twin.model.view(np.uint64))
        least = min(least, float(np.linalg.eigvalsh(model.inverse).min()) * 2.0**bits)
        weight = max(weight, float(np.abs(model.weights).max()))
        try:
            model.check()
        except DataError as error:
            broken = broken or error.text
        if broken:
            break
    return Found(least, weight, broken)


def settings(
    bits: tuple[int, ...], features: tuple[int, ...], arms: tuple[int, ...]
) -> Iterator[Setting]:
    """Return all combinations with all kinds of contexts."""
    for kind, bit, size, arm in itertools.product(KINDS, bits, features, arms):
        yield Setting(kind, bit, size, arm)


def main() -> None:
    """Print the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="20 bits too, and more features")
    long = parser.parse_args().long
    tried = [*settings((12, 14), (2, 5, 20, 60), (2, 10)), *settings((18,), (2, 20), (2,))]
    if long:
        tried += [*settings((20,), (2, 20, 60), (2,)), *settings((14,), (120,), (2,))]
    broken = []
    for setting in tried:
        found = play(setting)
        broken += [setting] if found.broken else []
        what = (
            f"{setting.kind:14} {setting.bits} bits {setting.features:>4} features "
            f"{setting.arms:>3} arms"
        )
        seen = f"least eigenvalue {found.least:>8.1f} units, largest weight {found.weight:>7.2f}"
        print(f"{what}: {seen} {found.broken}", flush=True)
    print(f"broken: {len(broken)} of {len(tried)} settings at the most steps that are allowed")


if __name__ == "__main__":
    main()
