"""Run a federation one message at a time, and show messages and the state of each party.

python examples/step_by_step.py
"""

from __future__ import annotations

import posse


def main() -> None:
    """Move thirty messages, look around, then run to the end."""
    run = posse.start(posse.Samba(policy="ucb", means=(0.2, 0.5, 0.8), horizon=50, seed=1))
    for _ in range(30):
        delivery = run.deliver()
        assert delivery is not None
        print(f"{delivery.sender:>10} -> {delivery.receiver:<10} {type(delivery.message).__name__}")
    print("\nowner-2 knows", run.state("owner-2"))
    print("comp knows   ", run.state("comp"))
    saved = run.save()  # a moment to come back to
    run.finish()
    print(
        f"\nthe customer decrypts {run.record().total[0]}; comp saw "
        f"{len(run.view('comp').entries)} messages"
    )
    for hop in run.record().traffic:
        print(f"{hop.hop:>24} {hop.messages:>5} messages {hop.bytes:>8} bytes")
    run.load(saved)
    print(f"back at step {run.time} of {run.horizon}")


if __name__ == "__main__":
    main()
