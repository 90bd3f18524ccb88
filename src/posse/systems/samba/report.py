"""What reports of Samba contain beside its records."""

from __future__ import annotations

from posse.systems.modules import Report
from posse.systems.samba.settings import Samba


def workload(settings: Samba) -> str:
    """Return what Theorem 4 of the paper states for these settings."""
    setup = settings.load()
    arms = len(setup.arms)
    passes = len(setup.policy.passes())
    rounds = (settings.horizon - arms) * passes
    return (
        f"Theorem 4 of the paper, for level 'paper' with K = {arms} and N = "
        f"{settings.horizon:,}: (N - K) x {passes} = {rounds:,} times 2 K AES-GCM encryptions and "
        f"decryptions and 4 lists of K numbers, {4 * arms * rounds:,} numbers in all; then K "
        "Paillier encryptions, one decryption and K + 1 messages."
    )


REPORT = Report(workload=workload)
