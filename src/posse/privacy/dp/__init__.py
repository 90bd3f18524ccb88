"""Differential privacy, spent through a ledger.

Read in this order: `budget` (how much may be spent), `gaussian` (the mechanism, exactly), `units` (what one unit of
protection is), `schedules` (when agents talk and with how much noise), `accountant` (what releases prove together),
`spending` (blocks of disjoint data), `guarantee` (a figure with all that goes with it), `claims` (published figures
beside proved ones), `plans` (noise coupled to its accounting), `ledger` (refuses what exceeds the budget), `noise`
(whole numbers), `audit` (does the mechanism keep its claim?), `settings` (the same from flags or a file). Where the
protection is exploration instead of noise: `choice` (what an arm shows), `arm_ledger` (arms, paid for).
"""

from posse.privacy.dp.accountant import accountant_name, basic, composed_epsilon, gaussian_event
from posse.privacy.dp.arm_ledger import ArmLedger
from posse.privacy.dp.audit import AuditResult, Canary, audit, trials_needed
from posse.privacy.dp.budget import Budget
from posse.privacy.dp.choice import ArmChoice, Total, exploration_of
from posse.privacy.dp.claims import Claim
from posse.privacy.dp.gaussian import classical_multiplier, delta_of, epsilon_of, largest_mu
from posse.privacy.dp.guarantee import Guarantee
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import Noise, SecretNoise, SeededNoise, whole_noise
from posse.privacy.dp.plans import Plan, plan, plan_of_noise
from posse.privacy.dp.schedules import SCHEDULES, communication_rounds, windows
from posse.privacy.dp.settings import BudgetSettings
from posse.privacy.dp.spending import Spending
from posse.privacy.dp.units import UNITS, Unit

__all__ = [
    "SCHEDULES",
    "UNITS",
    "ArmChoice",
    "ArmLedger",
    "AuditResult",
    "Budget",
    "BudgetSettings",
    "Canary",
    "Claim",
    "Guarantee",
    "Ledger",
    "Noise",
    "Plan",
    "SecretNoise",
    "SeededNoise",
    "Spending",
    "Total",
    "Unit",
    "accountant_name",
    "audit",
    "basic",
    "classical_multiplier",
    "communication_rounds",
    "composed_epsilon",
    "delta_of",
    "epsilon_of",
    "exploration_of",
    "gaussian_event",
    "largest_mu",
    "plan",
    "plan_of_noise",
    "trials_needed",
    "whole_noise",
    "windows",
]
