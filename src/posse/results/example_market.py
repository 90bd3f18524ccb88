"""A small record of a market with made-up numbers, for doctests, tests and trying out a report."""

from __future__ import annotations

import numpy as np

from posse.results.record import RunRecord, Traffic
from posse.results.values import JSON

PARTIES = ("north", "south", "harbour", "isles")
_PRODUCERS = ("mill", "forge", "quarry", "dairy", "orchard", "kiln")
_QUALITY = (0.91, 0.62, 0.74, 0.83, 0.55, 0.88)
_WORDS = {
    "step": "round", "arm": "producer", "pull": "unit", "reward": "revenue", "party": "agent", "money": "EUR",
}  # fmt: skip
_POLICIES = {"plain": "fcb", "alone": "alone", "placebo": "placebo"}
_REGRET = {"alone": 1.0, "placebo": 0.95, "paper": 0.72, "equal": 0.66, "tight": 0.55, "plain": 0.4}
_RELEASES = 6
_LEAKS = {
    "alone": (),
    "plain": ("Every agent sees the purchases and the realised qualities of every other, as they are.",),
    "placebo": ("An agent learns which others take part, and when they send.",),
}
_NOISY = (
    "An agent learns which others take part, and when they send.",
    "What an agent buys later depends on what it learnt; a producer sees what is bought from it.",
)


def example_market_record(
    *, runs: int = 6, budget: int = 1000, level: str = "tight", policy: str | None = None, **changes: object
) -> RunRecord:
    """Make a record of four agents and six producers, in a world that is the same for every level.

    At the levels that federate all agents regret less but the last, which loses by joining. Any field can be replaced
    by keyword.

    >>> record = example_market_record(runs=2)
    >>> record.label, record.parties, record.words.money, record.party_total.shape
    ('p-fcb (tight)', ('north', 'south', 'harbour', 'isles'), 'EUR', (2, 4))
    """
    steps = np.unique(np.linspace(1, budget, 40).astype(np.int64))
    rng = np.random.default_rng(7)
    # The same luck at every level, as world seeds would have it.
    luck = rng.normal(0, 1, (runs, len(PARTIES), budget)).cumsum(axis=2)[:, :, steps - 1]
    pace = rng.uniform(0.8, 1.2, (runs, len(PARTIES), 1)) * np.array([6.0, 9.0, 7.5, 4.0])[:, None]
    factor = np.full((len(PARTIES), 1), _REGRET.get(level, 0.55))
    factor[-1] = 1.0 if level == "alone" else 1.25
    regret = pace * factor * np.sqrt(steps) * np.log1p(steps) / 2
    revenue = np.array([3.0, 4.5, 4.0, 2.5])[:, None] * steps - regret + luck
    noisy = level not in ("alone", "plain", "placebo")
    values: dict[str, object] = {
        "kind": "dp-combinatorial",
        "level": level,
        "config": {"policy": {"name": policy or _POLICIES.get(level, "p-fcb")}, "budget": budget, "runs": runs},
        "problem": {
            "name": "four towns", "names": _PRODUCERS, "means": _QUALITY, "source": "made up", "words": _WORDS,
        },
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": revenue.sum(axis=1),
        "regret": regret.sum(axis=1),
        "total": tuple(revenue[:, :, -1].sum(axis=1)),
        "pulls": rng.multinomial(40 * budget, np.array(_QUALITY) ** 4 / np.sum(np.array(_QUALITY) ** 4), size=runs),
        "parties": PARTIES,
        "party_total": revenue[:, :, -1],
        "party_regret": regret[:, :, -1],
        "leaks": _LEAKS.get(level, _NOISY),
        "privacy": _privacy() if noisy else (),
        "role_seconds": {"agent": 0.8 + noisy},
        "traffic": (Traffic("agent -> agent", 72 * runs, 72 * runs * 660),) if level != "alone" else (),
        "seconds": 0.8 + noisy,
        "summary": {"steps_done": runs * budget},
    }  # fmt: skip
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def _privacy() -> tuple[dict[str, JSON], ...]:
    composed: dict[str, JSON] = {
        "epsilon": 1.0, "delta": 1e-5, "unit": "entry", "adjacency": "replace: another quantity, other qualities",
        "releases": _RELEASES, "composition": "parallel over disjoint windows", "accountant": "PLD",
        "covers": "one purchase of an agent from a producer in a round",
        "not_covered": ["a whole purchase of one round", "an agent's own later choices"], "sampling": "none",
    }  # fmt: skip
    sent: dict[str, JSON] = {"noise_multiplier": 2.66, "unit": "entry", "epsilon": 1.0, "delta": 1e-5}
    each = [
        {"party": party, "release": z + 1, "round": 20 * 2**z, **sent} for party in PARTIES for z in range(_RELEASES)
    ]
    return (*({"party": party, **composed} for party in PARTIES), *each)
