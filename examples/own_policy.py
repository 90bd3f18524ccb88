"""A policy of your own, checked, simulated, and run in a secure federation.

python examples/own_policy.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from posse.policies import Policy
from posse.policies.arms.checks import check
from posse.problems import BernoulliArms
from posse.protocols.samba.federation import SimulatedWorld, federation
from posse.protocols.samba.twin import simulate
from posse.runtime.memory import MemoryRun


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

    def parameters(self) -> tuple[float, ...]:
        """What `bound` reads."""
        return (self.width,)


def main() -> None:
    """Check, simulate, federate."""
    policy = Narrow()
    for result in check(policy).results:
        print(f"{'ok' if result.passed else 'REFUSED':8} {result.name}")
    arms = BernoulliArms([0.3, 0.5, 0.6, 0.65])
    plain = simulate(arms, policy, budget=2000, seeds=range(20))
    print(f"plain, 20 worlds: {sum(plain.total) / 20:.1f} earned of {2000 * arms.best:.0f} that the best arm pays")
    run = MemoryRun(federation(arms, policy, budget=2000, seed=0), SimulatedWorld(arms, 0, 2000))
    (secure,) = [note.value for note in run if note.kind == "total"]
    print(f"secure, world 0:  {secure} earned; plain, world 0: {plain.total[0]}")
    assert secure == plain.total[0]


if __name__ == "__main__":
    main()
