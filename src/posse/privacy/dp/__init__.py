"""Differential privacy, spent through a ledger.

Read in this order: `guarantee` (how much may be spent, and a figure with all that goes with it),
`gaussian` (noise, exactly), `accountant` (what releases prove together), `ledger` (one `Ledger`
over any `Mechanism`: refuses what exceeds the budget). The mechanisms: `plans` (messages under
Gaussian noise, with `schedules` and `noise`, which draws it in whole numbers), `arms` (exploration
instead of noise), `sampled` (rounds of federated training). `audit` asks whether a mechanism keeps
its claim.
"""
