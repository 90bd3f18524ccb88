"""A small record of a contextual bandit on shares with made-up numbers, for doctests, tests and trying out a report."""

from __future__ import annotations

import numpy as np

from posse.results.record import RunRecord, Traffic
from posse.results.values import JSON

PARTIES = ("clinic", "lab")
_ARMS = ("wait", "treat", "refer")
_LEAKS = {
    "shared": ("Puller and payee together hold every arm with its reward.",),
    "plain": ("Nothing is protected: one place sees everything.",),
}
_COUNTED = {"rounds_a_step": 11, "bytes_a_step_sent_by_a_party": 41_303, "bytes_a_step_dealt_to_a_party": 41_208}
_NEVER = ["rewards, which carry no noise"]


def example_contextual_record(
    *, runs: int = 2, budget: int = 300, path: str = "parties", latency: float | None = None, **changes: object
) -> RunRecord:
    """Make a record of two parties and three arms, in a world that is the same for every path.

    `path` is "parties" (on shares) or one of the twins, "fixed" and "float". Any field can be replaced by keyword.

    >>> shared, floats = example_contextual_record(), example_contextual_record(path="float")
    >>> shared.label, floats.label, shared.total == floats.total
    ('epsilon-greedy (shared)', 'epsilon-greedy (plain, float twin of shared)', True)
    >>> shared.parties, shared.party_names
    ((), ('clinic', 'lab'))
    """
    steps = np.unique(np.linspace(1, budget, 40).astype(np.int64))
    rng = np.random.default_rng(11)
    right = rng.random((runs, budget)) < 0.9 - 0.5 / np.sqrt(1 + 0.1 * np.arange(budget))
    reward = right.cumsum(axis=1).astype(np.float64)
    arm = rng.integers(0, len(_ARMS), (runs, budget))
    protected = path == "parties"
    counted: dict[str, object] = {"path": path, "steps_done": runs * budget}
    counted |= _COUNTED if protected else {"twin_of": "shared"}
    if protected and latency is not None:
        counted |= {"latency_ms": latency, "planned_seconds_a_step": 11 * latency / 1e3 + 0.01}
    values: dict[str, object] = {
        "kind": "mpc-contextual",
        "level": "shared" if protected else "plain",
        "config": {"policy": {"name": "epsilon-greedy"}, "budget": budget, "runs": runs, "bandwidth": 100.0},
        "problem": {
            "name": "two houses", "names": _ARMS, "features": 5, "words": {"party": "party"},
            "parties": [{"name": name, "features": 2 + i} for i, name in enumerate(PARTIES)],
        },
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": reward[:, steps - 1],
        "regret": (1.0 - right).cumsum(axis=1)[:, steps - 1],
        "total": tuple(reward[:, -1]),
        "pulls": np.stack([(arm == k).sum(axis=1) for k in range(len(_ARMS))], axis=1),
        "leaks": _LEAKS["shared" if protected else "plain"],
        "privacy": _privacy(budget) if protected else (),
        "role_seconds": {"party": 2.4, "puller": 0.05, "payee": 0.03, "dealer": 0.5} if protected else {},
        "traffic": (Traffic("party -> party", 22 * runs * budget, 82_000 * runs * budget),) if protected else (),
        "seconds": {"parties": 3.1, "fixed": 0.05}.get(path, 0.006),
        "summary": counted,
    }  # fmt: skip
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def _privacy(budget: int) -> tuple[dict[str, JSON], ...]:
    both: dict[str, JSON] = {"party": "puller", "releases": budget, "sampling": "none"}
    return (
        {
            **both, "epsilon": 3.332, "delta": 0.0, "unit": "score", "adjacency": "replace: other scores in one round",
            "composition": "parallel over rounds", "accountant": "closed form", "covers": "the scores of one round",
            "not_covered": ["later rounds", *_NEVER],
        },
        {
            **both, "epsilon": 912.4, "delta": 1e-5, "unit": "context", "adjacency": "replace: another row",
            "composition": "sequential", "accountant": "PLD", "covers": "one row and all that follows from it",
            "not_covered": list(_NEVER),
        },
    )  # fmt: skip
