"""A federation one message at a time: what moves, and what each party knows meanwhile.

python examples/step_by_step.py
"""

from __future__ import annotations

from posse.policies import UCB
from posse.problems import BernoulliArms
from posse.protocols.samba.federation import SimulatedWorld, federation
from posse.runtime.memory import MemoryRun


def main() -> None:
    """Move thirty messages, look around, then run to the end."""
    arms = BernoulliArms([0.2, 0.5, 0.8])
    run = MemoryRun(federation(arms, UCB(), budget=50, seed=1), SimulatedWorld(arms, 1, 50), transcript=10_000)
    for _ in range(30):
        delivery = run.deliver()
        assert delivery is not None
        print(f"{delivery.sender:>10} -> {delivery.receiver:<10} {type(delivery.message).__name__}")
    print("\nowner-2 knows", run.roles["owner-2"].state())
    print("comp knows   ", run.roles["comp"].state())
    for event in run:
        if event.kind == "total":
            print(f"\nthe customer decrypts {event.value}")
    assert run.transcript is not None
    print(f"comp saw {len(run.transcript.view('comp'))} of {len(run.transcript)} messages")
    for (sender, receiver), hop in run.hops.items():
        print(f"{sender:>10} -> {receiver:<10} {hop.messages:>5} messages {hop.bytes:>8} bytes")


if __name__ == "__main__":
    main()
