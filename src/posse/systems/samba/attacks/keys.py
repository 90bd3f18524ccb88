"""A search for the owners' common key, from which coins and tie orders come, as if it were short.

Comp sees which steps explore, and whoever has the key knows these steps beforehand: a key can be
checked without any owner's help. Between organisations it has 256 bits, and no search ends. In a
simulation the seed of the world stands in its place, so a run with a seed of a few bits shows
whether a view holds what such a search needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posse.core.roles import View
from posse.policies.arms.base import Policy
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import hits
from posse.systems.samba.attacks.many import GAMES, LENGTH
from posse.systems.samba.attacks.reading import Bools, plant_share, read, short_key
from posse.systems.samba.attacks.watching import HIDDEN, PLANTED, exploring, never_explores
from posse.systems.samba.kernels import tossed

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

BITS = 10
"""Length of the key that is searched.

A run without a leak gives the right one with probability 2^-10, and two or more of 16 runs do with
probability .00011, which is below .01 over all attacks together; one of 16 does in an audit of 64,
and is no finding.
"""


@lru_cache(maxsize=2)
def coins(policy: Policy, owners: int, steps: int) -> Bools:
    """Which steps explore, by key: (keys, steps)."""
    made = np.zeros((1 << BITS, steps), bool)
    explore, parameters = type(policy).explore, policy.parameters()
    for t in range(owners + 1, steps + 1):
        share = explore(t, owners, parameters)
        made[:, t - 1] = [tossed(np.uint64(key), t, share) for key in range(1 << BITS)]
    return made


def search(view: View, seed: int) -> int:
    """The key whose exploring steps are those that look least like scores.

    A tenth of the steps explore, so the largest ranks count most: -log(1 - rank) instead of the
    rank.
    """
    passes, seen = read(view).turn(0), exploring(view, seed)
    known = coins(passes.policy, passes.owners, passes.horizon)[:, seen["steps"] - 1].astype(
        np.float64
    )
    ranks: NDArray[Any] = np.argsort(np.argsort(seen["scores"], kind="stable")).astype(np.float64)
    strange = -np.log1p(-(ranks + 0.5) / (len(ranks) + 0.5))
    fits = (known @ (strange - strange.mean())) / (known.std(axis=1) + 1e-9)
    return int(fits.argmax())


def stage(settings: Samba, seed: int) -> Iterator[Evidence]:
    """Runs with keys drawn at random."""
    from posse.systems.samba.federation import SambaRun
    from posse.systems.samba.system import SYSTEM

    for key in np.random.default_rng((seed, 149)).integers(1 << BITS, size=GAMES).tolist():
        made = settings.but(horizon=min(settings.horizon, LENGTH), runs=1, seed=key)
        run = SambaRun(
            SYSTEM,
            made,
            transcript=100_000_000,
            key=None if made.level == "strict" else short_key(),
        )
        run.finish()
        yield Evidence(run.view("comp"), {**run.truth(), "key": key})


def score(guesses: Sequence[int], truths: Sequence[Truth]) -> Score:
    """Keys that are found."""
    right = sum(guess == truth["key"] for guess, truth in zip(guesses, truths, strict=True))
    return hits(right, len(truths), 2.0**-BITS, "keys")


def shuffle(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Keys drawn at random."""
    rng = np.random.default_rng((seed, 151))
    return [{**truth, "key": int(rng.integers(1 << BITS))} for truth in truths]


def missing(settings: Samba) -> str:
    """Why no key is searched for here."""
    if settings.level == "paper":
        return "as published, the controller draws the coins and comp is given which steps explore."
    return never_explores(settings)


ATTACKS = (
    Attack(
        "common-key",
        f"the owners' key of coins and ties, if it had {BITS} bits instead of 256",
        ("comp",),
        (HIDDEN,),
        search,
        score,
        "right",
        plant_share,
        PLANTED,
        shuffle,
        needs="runs",
        stage=stage,
        seconds=lambda settings: 0.01 * GAMES * min(settings.horizon, LENGTH),
        missing=missing,
        tell=lambda one: f"key {one}",
    ),
)
