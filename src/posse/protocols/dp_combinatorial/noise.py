"""What an agent's noise must be so that its ledger tells the truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.privacy.dp.plans import Plan
from posse.protocols.dp_combinatorial.terms import Terms


def check_noise(plan: Plan, capacity: NDArray[np.generic]) -> None:
    """Refuse noise so large that its steps show.

    Noise of deviation sigma is made of 53-bit numbers, so its law is off by about sigma / 2^53; that must stay far
    below delta, of which a hundredth is taken here.
    """
    most = max(plan.multipliers) * float(np.max(capacity, initial=0))
    if most > plan.delta * 2.0**52 / 100:
        raise ConfigError(
            f"noise of deviation {most:.3g} is larger than 53-bit arithmetic can make for delta {plan.delta:g} "
            f"(at most {plan.delta * 2.0**52 / 100:.3g}). Count units in hundreds, or choose another unit or epsilon."
        )


def check_plan(plan: Plan, terms: Terms, capacity: NDArray[np.float64]) -> None:
    """Refuse a plan that does not pay for what these terms let an agent send."""
    dealt = int(np.count_nonzero(capacity))
    paid = (plan.rounds, plan.multipliers) == (terms.reports, terms.multipliers)
    if terms.always or not paid or plan.producers < dealt:
        raise ConfigError(
            f"the plan is for reports after rounds {list(plan.rounds)} about up to {plan.producers} producers, the "
            f"agent sends after {'every round' if terms.always else list(terms.reports)} about {dealt}, or with other "
            "noise: its ledger would not tell the truth. Make terms and plan from one another."
        )
    check_noise(plan, capacity)
