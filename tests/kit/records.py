"""Small records with invented numbers, for tests of what reads a record."""

from __future__ import annotations

import numpy as np

from posse.results.record import Record, Traffic
from posse.results.values import JSON

_NAMES = ("clinic-a", "clinic-b", "clinic-c")
_MEANS = (0.3, 0.5, 0.7)
_LEAKS = (
    "The controller learns how many steps were run and how many owners there are.",
    "Comp learns the order of masked scores, under a permutation that it cannot undo.",
)
_ROLES = {
    "owner": {"label": "data owner", "colour": ["#2f7fd6", "#4f95e3"]},
    "controller": {"label": "controller", "colour": ["#d9662b", "#d9662b"]},
    "comp": {"label": "comp", "colour": ["#8b5fd0", "#9a74d8"]},
    "customer": {"label": "customer", "colour": ["#1f9d6b", "#1f9d6b"]},
}
_LEARNS = ["The controller sees sealed frames of one size.", "The customer learns the total."]


def example_record(
    *,
    runs: int = 4,
    horizon: int = 200,
    policy: str = "ucb",
    level: str = "standard",
    **changes: object,
) -> Record:
    """Make a record of a world that is the same for every level; any field can be replaced by
    keyword.

    >>> example_record(level="plain").total == example_record(level="standard").total
    True
    >>> example_record(runs=2, kind="other").kind
    'other'
    """
    steps = np.unique(np.linspace(1, horizon, 50).astype(np.int64))
    # Half of the early pulls go to a worse arm, fewer and fewer later: enough to look like
    # learning.
    rng = np.random.default_rng(sum(policy.encode()))
    worse = rng.random((runs, horizon)) < 0.7 / np.sqrt(1 + 0.1 * np.arange(horizon))
    arm = np.where(worse, rng.integers(0, 2, (runs, horizon)), 2)
    means = np.array(_MEANS)[arm]
    reward = (rng.random((runs, horizon)) < means).cumsum(axis=1).astype(np.float64)
    protected = level != "plain"
    values: dict[str, object] = {
        "kind": "clinics",
        "level": level,
        "config": {"policy": {"name": policy}, "horizon": horizon, "owners": 3},
        "problem": {
            "name": "three clinics",
            "names": _NAMES,
            "means": _MEANS,
            "source": "made up",
            "words": {"party": "owner"},
        },
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": reward[:, steps - 1],
        "regret": (max(_MEANS) - means).cumsum(axis=1)[:, steps - 1],
        "total": tuple(reward[:, -1]),
        "pulls": np.stack([(arm == k).sum(axis=1) for k in range(3)], axis=1),
        "leaks": _LEAKS if protected else ("Nothing is protected: the server sees every reward.",),
        "role_seconds": {"owner": 1.9, "controller": 0.6, "comp": 1.2, "customer": 0.05}
        if protected
        else {},
        "traffic": _traffic(horizon) if protected else (),
        "seconds": 4.1 if protected else 0.02,
        "show": {"title": "Clinics", "roles": _ROLES, "learns": _LEARNS if protected else []},
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def _traffic(horizon: int) -> tuple[Traffic, ...]:
    return (
        Traffic("owner -> controller", 3 * horizon, 3 * horizon * 812),
        Traffic("controller -> comp", horizon, horizon * 2436),
        Traffic("comp -> controller", horizon, horizon * 64),
        Traffic("controller -> customer", 1, 768),
    )


_HOUSES = ("clinic", "lab")
_ARMS = ("wait", "treat", "refer")
_SHARED_LEAKS = {
    "shared": ("Puller and payee together hold every arm with its reward.",),
    "plain": ("Nothing is protected: one place sees everything.",),
}
_COUNTED = {
    "rounds_a_step": 11,
    "bytes_a_step_sent_by_a_party": 41_303,
    "bytes_a_step_dealt_to_a_party": 41_208,
}
_NEVER = ["rewards, which carry no noise"]


def example_contextual_record(
    *,
    runs: int = 2,
    horizon: int = 300,
    path: str = "parties",
    latency: float | None = None,
    **changes: object,
) -> Record:
    """Make a record of two parties and three arms, in a world that is the same for every path.

    `path` is "parties" (on shares) or one of the twins, "fixed" and "float". Any field can be
    replaced by keyword.

    >>> shared, floats = example_contextual_record(), example_contextual_record(path="float")
    >>> shared.label, floats.label, shared.total == floats.total
    ('epsilon-greedy (shared)', 'epsilon-greedy (plain, float twin of shared)', True)
    >>> shared.parties, shared.party_names
    ((), ('clinic', 'lab'))
    """
    steps = np.unique(np.linspace(1, horizon, 40).astype(np.int64))
    rng = np.random.default_rng(11)
    right = rng.random((runs, horizon)) < 0.9 - 0.5 / np.sqrt(1 + 0.1 * np.arange(horizon))
    reward = right.cumsum(axis=1).astype(np.float64)
    arm = rng.integers(0, len(_ARMS), (runs, horizon))
    protected = path == "parties"
    counted: dict[str, object] = {"path": path, "steps_done": runs * horizon}
    counted |= _COUNTED if protected else {"twin_of": "shared"}
    if protected and latency is not None:
        counted |= {"latency_ms": latency, "planned_seconds_a_step": 11 * latency / 1e3 + 0.01}
    values: dict[str, object] = {
        "kind": "houses",
        "level": "shared" if protected else "plain",
        "config": {
            "policy": {"name": "epsilon-greedy"},
            "horizon": horizon,
            "runs": runs,
            "bandwidth": 100.0,
        },
        "problem": {
            "name": "two houses",
            "names": _ARMS,
            "features": 5,
            "words": {"party": "party"},
            "parties": [{"name": name, "features": 2 + i} for i, name in enumerate(_HOUSES)],
        },
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": reward[:, steps - 1],
        "regret": (1.0 - right).cumsum(axis=1)[:, steps - 1],
        "total": tuple(reward[:, -1]),
        "pulls": np.stack([(arm == k).sum(axis=1) for k in range(len(_ARMS))], axis=1),
        "leaks": _SHARED_LEAKS["shared" if protected else "plain"],
        "privacy": _scores(horizon) if protected else (),
        "role_seconds": {"party": 2.4, "puller": 0.05, "payee": 0.03, "dealer": 0.5}
        if protected
        else {},
        "traffic": (Traffic("party -> party", 22 * runs * horizon, 82_000 * runs * horizon),)
        if protected
        else (),
        "seconds": {"parties": 3.1, "fixed": 0.05}.get(path, 0.006),
        "summary": counted,
        "show": {
            "title": "Two houses",
            "protection": {
                "fixed": "plain, fixed-point twin of shared",
                "float": "plain, float twin of shared",
            }.get(path, ""),
            "sections": _step_costs(latency) if protected else [],
        },
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def _step_costs(latency: float | None) -> list[JSON]:
    rows: list[JSON] = [["rounds", "11"], ["bytes that a party sends", "41.3 kB"]]
    rows += [] if latency is None else [[f"estimated time at {latency:g} ms one way", "230 ms"]]
    return [
        {"title": "What a step costs", "columns": ["cost", "a step"], "rows": rows, "numeric": [1]}
    ]


def _scores(horizon: int) -> tuple[dict[str, JSON], ...]:
    both: dict[str, JSON] = {"party": "puller", "releases": horizon, "sampling": "none"}
    return (
        {
            **both,
            "epsilon": 3.332,
            "delta": 0.0,
            "unit": "score",
            "adjacency": "replace: other scores in one round",
            "composition": "parallel over rounds",
            "accountant": "closed form",
            "covers": "the scores of one round",
            "not_covered": ["later rounds", *_NEVER],
        },
        {
            **both,
            "epsilon": 912.4,
            "delta": 1e-5,
            "unit": "context",
            "adjacency": "replace: another row",
            "composition": "sequential",
            "accountant": "PLD",
            "covers": "one row and all that follows from it",
            "not_covered": list(_NEVER),
        },
    )


BASELINE = ["coefficient", "margin", "drift", "instance_seed", "offers"]
_TOWNS = ("north", "south", "harbour", "isles")
_PRODUCERS = ("mill", "forge", "quarry", "dairy", "orchard", "kiln")
_QUALITY = (0.91, 0.62, 0.74, 0.83, 0.55, 0.88)
_WORDS = {
    "step": "round",
    "arm": "producer",
    "pull": "unit",
    "reward": "revenue",
    "party": "agent",
    "money": "EUR",
}
_POLICIES = {"plain": "fcb", "alone": "alone", "placebo": "placebo"}
_REGRET = {"alone": 1.0, "placebo": 0.95, "paper": 0.72, "equal": 0.66, "tight": 0.55, "plain": 0.4}
_RELEASES = 6
_TOWN_LEAKS = {
    "alone": (),
    "plain": (
        "Every agent sees the purchases and the realised qualities of every other, as they are.",
    ),
    "placebo": ("An agent learns which others take part, and when they send.",),
}
_NOISY = (
    "An agent learns which others take part, and when they send.",
    "What an agent buys later depends on what it learnt; a producer sees what is bought from it.",
)


def example_market_record(
    *,
    runs: int = 6,
    horizon: int = 1000,
    level: str = "tight",
    policy: str | None = None,
    **changes: object,
) -> Record:
    """Make a record of four agents and six producers, in a world that is the same for every level.

    At the levels that federate all agents regret less but the last, which loses by joining. Any
    field can be replaced by keyword.

    >>> record = example_market_record(runs=2)
    >>> record.label, record.parties, record.words.money, record.party_total.shape
    ('p-fcb (tight)', ('north', 'south', 'harbour', 'isles'), 'EUR', (2, 4))
    """
    steps = np.unique(np.linspace(1, horizon, 40).astype(np.int64))
    rng = np.random.default_rng(7)
    # The same luck at every level, as world seeds would have it.
    luck = rng.normal(0, 1, (runs, len(_TOWNS), horizon)).cumsum(axis=2)[:, :, steps - 1]
    pace = rng.uniform(0.8, 1.2, (runs, len(_TOWNS), 1)) * np.array([6.0, 9.0, 7.5, 4.0])[:, None]
    factor = np.full((len(_TOWNS), 1), _REGRET.get(level, 0.55))
    factor[-1] = 1.0 if level == "alone" else 1.25
    regret = pace * factor * np.sqrt(steps) * np.log1p(steps) / 2
    revenue = np.array([3.0, 4.5, 4.0, 2.5])[:, None] * steps - regret + luck
    noisy = level not in ("alone", "plain", "placebo")
    values: dict[str, object] = {
        "kind": "towns",
        "level": level,
        "config": {
            "policy": {"name": policy or _POLICIES.get(level, "p-fcb")},
            "horizon": horizon,
            "runs": runs,
        },
        "problem": {
            "name": "four towns",
            "names": _PRODUCERS,
            "means": _QUALITY,
            "source": "made up",
            "words": _WORDS,
        },
        "seeds": tuple(range(runs)),
        "steps": steps,
        "reward": revenue.sum(axis=1),
        "regret": regret.sum(axis=1),
        "total": tuple(revenue[:, :, -1].sum(axis=1)),
        "pulls": rng.multinomial(
            40 * horizon, np.array(_QUALITY) ** 4 / np.sum(np.array(_QUALITY) ** 4), size=runs
        ),
        "parties": _TOWNS,
        "party_total": revenue[:, :, -1],
        "party_regret": regret[:, :, -1],
        "leaks": _TOWN_LEAKS.get(level, _NOISY),
        "privacy": _noise() if noisy else (),
        "role_seconds": {"agent": 0.8 + noisy},
        "traffic": (Traffic("agent -> agent", 72 * runs, 72 * runs * 660),)
        if level != "alone"
        else (),
        "seconds": 0.8 + noisy,
        "summary": {"steps_done": runs * horizon},
        "show": {"title": "Towns", "baseline": BASELINE},
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def _noise() -> tuple[dict[str, JSON], ...]:
    composed: dict[str, JSON] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "unit": "entry",
        "adjacency": "replace: another quantity, other qualities",
        "releases": _RELEASES,
        "composition": "parallel over disjoint windows",
        "accountant": "PLD",
        "covers": "one purchase of an agent from a producer in a round",
        "not_covered": ["a whole purchase of one round", "an agent's own later choices"],
        "sampling": "none",
    }
    sent: dict[str, JSON] = {
        "noise_multiplier": 2.66,
        "unit": "entry",
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    each = [
        {"party": party, "release": z + 1, "round": 20 * 2**z, **sent}
        for party in _TOWNS
        for z in range(_RELEASES)
    ]
    return (*({"party": party, **composed} for party in _TOWNS), *each)
