"""Differential privacy, spent through a ledger.

Read in this order: `guarantee` (how much may be spent, and a figure with all that goes with it), `gaussian` (noise,
exactly), `accountant` (what releases prove together), `ledger` (one `Ledger` over any `Mechanism`: refuses what exceeds
the budget). The mechanisms: `plans` (messages under Gaussian noise, with `schedules` and `noise`, which draws it in
whole numbers), `arms` (exploration instead of noise), `sampled` (rounds of federated training). `audit` asks whether a
mechanism keeps its claim.
"""

from posse.privacy.dp.accountant import accountant_name, basic, composed_epsilon, gaussian_event, largest_epsilon
from posse.privacy.dp.arms import ArmChoice, Arms, Total, exploration_of
from posse.privacy.dp.audit import AuditResult, Canary, audit, trials_needed
from posse.privacy.dp.gaussian import classical_multiplier, delta_of, epsilon_of, largest_mu
from posse.privacy.dp.guarantee import Budget, Claim, Guarantee
from posse.privacy.dp.ledger import Ledger, Mechanism
from posse.privacy.dp.noise import Noise, SecretNoise, SeededNoise, whole_noise
from posse.privacy.dp.plans import BudgetSettings, Plan, plan, plan_of_noise
from posse.privacy.dp.sampled import SampledGaussian, Training
from posse.privacy.dp.schedules import SCHEDULES, UNITS, Unit, communication_rounds, windows

__all__ = [
    "SCHEDULES",
    "UNITS",
    "ArmChoice",
    "Arms",
    "AuditResult",
    "Budget",
    "BudgetSettings",
    "Canary",
    "Claim",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "Noise",
    "Plan",
    "SampledGaussian",
    "SecretNoise",
    "SeededNoise",
    "Total",
    "Training",
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
    "largest_epsilon",
    "largest_mu",
    "plan",
    "plan_of_noise",
    "trials_needed",
    "whole_noise",
    "windows",
]
