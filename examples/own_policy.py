"""Check a custom policy, simulate it, and run it in a secure federation.

python examples/own_policy.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import posse
from posse.policies import Policy


def bound(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """UCB-V-like: the width shrinks for arms whose rewards vary little."""
    mean = total / pulls
    return mean + parameters[0] * math.sqrt((mean * (1.0 - mean) + 0.05) / pulls)


@dataclass(frozen=True)
class Narrow(Policy):
    """A policy is a score of one arm from that arm's own variables."""

    name: ClassVar[str] = "narrow"
    score = staticmethod(bound)
    width: float = 2.0
    """Parameter 0 of `bound`: parameters are the fields."""


def main() -> None:
    """Check, simulate, federate."""
    for result in posse.check(Narrow()).results:
        print(f"{'ok' if result.passed else 'REFUSED':8} {result.name}")
    settings = posse.Samba(policy=Narrow(), means=(0.3, 0.5, 0.6, 0.65), horizon=2000, seed=0)
    plain = posse.run(settings.but(runs=20).plain())
    print(
        f"plain, 20 worlds: {plain.total_mean:.1f} earned of {2000 * 0.65:.0f} that the best arm pays"
    )
    secure = posse.run(settings)
    print(f"secure, world 0:  {secure.total[0]} earned; plain, world 0: {plain.total[0]}")
    assert secure.total[0] == plain.total[0]


if __name__ == "__main__":
    main()
