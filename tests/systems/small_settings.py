"""Settings of a small run of each system."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "samba": {"policy": "thompson", "owners": 3, "horizon": 40, "paillier_bits": 2048},
    "mpc-contextual": {"data": "digits", "parties": 2, "rows": 40, "horizon": 12},
    "dp-combinatorial": {
        "agents": 3,
        "producers": 6,
        "horizon": 40,
        "start": 10,
        "epsilon": 1,
        "delta": "0.01",
    },
    "fed-contextual": {
        "data": "digits",
        "clients": 12,
        "horizon": 4,
        "cohort": 4,
        "noise": 1.0,
        "delta": 1e-3,
    },
    "toy": {"horizon": 40},
}
"""A new system needs none: its demo is taken."""
