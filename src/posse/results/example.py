"""A small record with made-up numbers, for doctests, tests and trying out a report."""

from __future__ import annotations

import numpy as np

from posse.results.example_contextual import example_contextual_record
from posse.results.example_market import example_market_record
from posse.results.record import RunRecord, Traffic

__all__ = ["example_contextual_record", "example_market_record", "example_record"]

_NAMES = ("clinic-a", "clinic-b", "clinic-c")
_MEANS = (0.3, 0.5, 0.7)
_LEAKS = (
    "The controller learns how many steps were run and how many owners there are.",
    "Comp learns the order of masked scores, under a permutation that it cannot undo.",
)


def example_record(
    *, runs: int = 4, budget: int = 200, policy: str = "ucb", level: str = "standard", **changes: object
) -> RunRecord:
    """Make a record of a world that is the same for every level; any field can be replaced by keyword.

    >>> example_record(level="plain").total == example_record(level="standard").total
    True
    >>> example_record(runs=2, kind="simulate").kind
    'simulate'
    """
    steps = np.unique(np.linspace(1, budget, 50).astype(np.int64))
    # Half of the early pulls go to a worse arm, fewer and fewer later: enough to look like learning.
    rng = np.random.default_rng(sum(policy.encode()))
    worse = rng.random((runs, budget)) < 0.7 / np.sqrt(1 + 0.1 * np.arange(budget))
    arm = np.where(worse, rng.integers(0, 2, (runs, budget)), 2)
    means = np.array(_MEANS)[arm]
    reward = (rng.random((runs, budget)) < means).cumsum(axis=1).astype(np.float64)
    protected = level != "plain"
    values: dict[str, object] = {
        "kind": "samba",
        "level": level,
        "config": {"policy": {"name": policy}, "budget": budget, "owners": 3},
        "problem": {"name": "three clinics", "names": _NAMES, "means": _MEANS, "source": "made up"},
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": reward[:, steps - 1],
        "regret": (max(_MEANS) - means).cumsum(axis=1)[:, steps - 1],
        "total": tuple(reward[:, -1]),
        "pulls": np.stack([(arm == k).sum(axis=1) for k in range(3)], axis=1),
        "leaks": _LEAKS if protected else ("Nothing is protected: the server sees every reward.",),
        "role_seconds": {"owner": 1.9, "controller": 0.6, "comp": 1.2, "customer": 0.05} if protected else {},
        "traffic": _traffic(budget) if protected else (),
        "seconds": 4.1 if protected else 0.02,
    }
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def _traffic(budget: int) -> tuple[Traffic, ...]:
    return (
        Traffic("owner -> controller", 3 * budget, 3 * budget * 812),
        Traffic("controller -> comp", budget, budget * 2436),
        Traffic("comp -> controller", budget, budget * 64),
        Traffic("controller -> customer", 1, 768),
    )
