"""What a step costs: rounds and bytes, from the program itself, and the time that they take over a network."""

from __future__ import annotations

from dataclasses import dataclass

from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.terms import Terms


@dataclass(frozen=True)
class Costs:
    """Of one step and one party; bytes without the few of frames and headers."""

    rounds: float
    """Fewer than the rounds of a pass where it is a batch of steps."""
    sent: float
    """Bytes that a party sends: to every other party, and to the puller."""
    received: float
    """Bytes that a party receives from the other parties, the puller and the payee."""
    dealt: float
    """Bytes that a party receives from the dealer, on average: parties take turns."""

    @property
    def total(self) -> float:
        """Everything that a party sends and receives."""
        return self.sent + self.received + self.dealt


def costs(terms: Terms) -> Costs:
    """Return what a step costs a party, the largest of them.

    >>> one = costs(Terms("r", ("a", "b"), (10, 10), 10, 60_000, (1, 10)))
    >>> one.rounds, one.total < 150_000
    (11.0, True)
    """
    made, parties, batch = plan(terms), len(terms.parties), terms.batch
    shares = sum(one.shares for one in made.rounds) / batch
    inputs = 8 * max(terms.features)
    outside = 8 * (terms.arms + 1)
    return Costs(
        rounds=len(made.rounds) / batch,
        sent=(parties - 1) * (shares + inputs) + terms.arms,
        received=(parties - 1) * shares + 8 * terms.dimension + outside,
        dealt=made.sizes.dealt_bytes / parties / batch,
    )


def planned_seconds(one: Costs, latency: float, bandwidth: float, compute: float) -> float:
    """Estimate the time of a step: every round waits for one message, and bytes for the wire; `compute` is a party's.

    `latency` in milliseconds one way, `bandwidth` in megabits a second and role. What the dealer sends travels ahead
    and beside, and counts for the wire only.

    >>> round(planned_seconds(Costs(11, 40_000, 40_000, 40_000), latency=20, bandwidth=100, compute=0.002), 3)
    0.228
    """
    wire = max(one.sent, one.received + one.dealt) * 8 / (bandwidth * 1e6)
    return one.rounds * latency / 1e3 + wire + compute
