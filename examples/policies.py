"""Five custom policies: score only, a score that draws, matching, MOSS, and two passes.

python examples/policies.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import posse
from posse.core.exact import beta, log
from posse.core.random import OWN, uniform
from posse.policies import ARGMAX, Policy, Selection, run_horizon

# Score only ---------------------------------------------------------------------------------------


def optimistic(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """Mean plus a width that shrinks with the pulls of this arm."""
    return total / pulls + parameters[0] / math.sqrt(pulls)


@dataclass(frozen=True)
class Optimist(Policy):
    """The largest score wins; the fields are the parameters."""

    name: ClassVar[str] = "optimist"
    score = staticmethod(optimistic)
    width: float = 0.5


# A score that draws -------------------------------------------------------------------------------


def shaken(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """Mean plus a random number, drawn from the owner's own stream at (pass, step)."""
    draw = uniform(key, OWN, turn, t, 0) - 0.5
    return total / pulls + parameters[0] * draw / math.sqrt(pulls)


@dataclass(frozen=True)
class Shaken(Policy):
    """`key` is the owner's seed: no other party can compute the draw."""

    name: ClassVar[str] = "shaken"
    score = staticmethod(shaken)
    width: float = 2.0


# Matching -----------------------------------------------------------------------------------------


def mean(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """Mean reward of this arm, in [0, 1]."""
    return total / pulls


@dataclass(frozen=True)
class Proportional(Policy):
    """An arm is selected with probability proportional to exp(mean / tau)."""

    name: ClassVar[str] = "proportional"
    score = staticmethod(mean)
    tau: float = 0.05

    def passes(self) -> tuple[Selection, ...]:
        """One pass that matches probabilities; scores are between 0 and 1."""
        return (Selection("match", scale=self.tau, floor=0.0, ceiling=1.0),)


# Number of arms and horizon -----------------------------------------------------------------------


def moss(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """Mean plus a width that depends on the horizon and on the number of arms."""
    gain = log(parameters[0] / (memory * pulls))
    return total / pulls + math.sqrt(max(gain, 0.0) / pulls)


@dataclass(frozen=True)
class Moss(Policy):
    """The memory of each arm is the number of arms."""

    name: ClassVar[str] = "moss"
    score = staticmethod(moss)
    horizon: float = run_horizon()

    def start(self, owners: int) -> float:
        """Return the memory of an arm before the first step."""
        return float(owners)


# Two passes ---------------------------------------------------------------------------------------


def challenge(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """First pass: a posterior sample. Second: a new one; the leader may step back."""
    if turn == 1 and memory == 1.0 and uniform(key, OWN, 2, t, 0) < parameters[0]:
        return -1.0  # below every sample
    return beta(total + 1.0, pulls - total + 1.0, key, OWN, turn, t)


def remember(turn, chosen, memory, parameters):  # type: ignore[no-untyped-def]
    """After the first pass an arm remembers whether it was selected."""
    if turn == 0:
        return 1.0 if chosen else 0.0
    return memory


@dataclass(frozen=True)
class Challenger(Policy):
    """The arm that wins the first pass lets others go first with probability `share`."""

    name: ClassVar[str] = "challenger"
    score = staticmethod(challenge)
    learn = staticmethod(remember)
    share: float = 0.2

    def passes(self) -> tuple[Selection, ...]:
        """The last pass selects the arm that is pulled."""
        return (ARGMAX, ARGMAX)


def main() -> None:
    """Check each policy, and run it protected and plain."""
    for policy in (Optimist(), Shaken(), Proportional(), Moss(), Challenger()):
        allowed = all(result.passed for result in posse.check(policy).results)
        settings = posse.Samba(policy=policy, means=(0.38, 0.47, 0.55, 0.71), horizon=400, seed=7)
        secure, plain = posse.run(settings), posse.run(settings.plain())
        assert secure.total == plain.total
        verdict = "may run in a federation" if allowed else "is refused"
        print(f"{policy.name:12} {verdict}; earned {secure.total[0]:.0f} of 400, as its plain twin")
        assert allowed


if __name__ == "__main__":
    main()
