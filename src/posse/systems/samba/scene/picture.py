"""Who stands where with which numbers, what each role knows, and what protections cost: Samba as a
picture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posse.core.fixed import REWARD_ONE
from posse.problems.arms.ratings import Ratings
from posse.systems.samba.federation import SambaRun, owner_names
from posse.systems.samba.settings import Samba
from posse.systems.samba.twin import SambaTwinRun
from posse.systems.scenes import format_number, mean_bar

LINKS = (
    ("owner", "controller"),
    ("controller", "comp"),
    ("dealer", "controller"),
    ("controller", "customer"),
)


def scene(run: SambaRun | SambaTwinRun) -> dict[str, Any]:
    """Return the picture of this moment: owners with rewards / pulls, estimate and truth; servers;
    customer.
    """
    arms = run.settings.load().arms
    units, pulls, last = _numbers(run)
    owners = [
        {
            "name": name,
            "kind": "owner",
            "label": label,
            "text": f"{format_number(total, 1)} / {count}",
            "weight": count,
            "bar": mean_bar(total, count, truth),
        }
        for name, label, total, count, truth in zip(
            owner_names(len(arms)),
            arms.names,
            (units / REWARD_ONE).tolist(),
            pulls.tolist(),
            arms.means.tolist(),
            strict=True,
        )
    ]
    time, earned = int(pulls.sum()), float(units.sum()) / REWARD_ONE
    best, middle, expected = (
        arms.best * time,
        float(arms.means.mean()) * time,
        float(arms.means @ pulls),
    )
    favourite = int(arms.means.argmax())
    share = pulls[favourite] / time if time else 0.0
    return {
        "parties": [*owners, *_sole(run)],
        "links": [
            list(link) for link in LINKS if run.settings.level == "strict" or "dealer" not in link
        ]
        if isinstance(run, SambaRun)
        else [],
        "now": {"chosen": [owner_names(len(arms))[last]] if last >= 0 else []},
        "figures": [
            {
                "name": "reward",
                "value": earned,
                "of": best,
                "text": f"{format_number(earned, 1)}; the best arm alone pays {format_number(best, 1)} on average",
            },
            {
                "name": "regret",
                "value": best - expected,
                "text": f"{format_number(best - expected, 1)} less, on average, than the best arm",
            },
            {
                "name": "best arm",
                "value": share,
                "of": 1.0,
                "text": f"{arms.names[favourite]} pulled in {share:.0%} of the steps",
            },
            *_moved(run),
        ],
        "curves": {"reward": earned, "best arm": best, "at random": middle},
    }


def _numbers(run: SambaRun | SambaTwinRun) -> tuple[Any, Any, int]:
    """Return units, pulls, and the arm pulled last, of the current seed; of the twin, of its first
    seed.
    """
    if isinstance(run, SambaRun):
        return run.world.units, run.world.pulls, run.world.last
    return run.twin.units[0], run.twin.pulls[0], -1


def _sole(run: SambaRun | SambaTwinRun) -> list[dict[str, Any]]:
    """The parties that there is one of, with a few words each."""
    if not isinstance(run, SambaRun):
        return []
    roles: Mapping[str, Any] = run.memory.roles
    strict, off = run.settings.level == "strict", run.settings.switches.off
    sealed = "reads what it forwards" if "aes" in off else "forwards what it cannot open"
    masked = "compares true scores" if "mask" in off else "compares masked scores"
    total = roles["customer"].total
    words = {
        "controller": "holds one share of each score" if strict else sealed,
        "comp": "holds the other share" if strict else masked,
        "dealer": "deals random numbers",
        "customer": "waits for the total" if total is None else f"total {format_number(total, 1)}",
    }
    return [
        {
            "name": name,
            "kind": name,
            "label": "data customer" if name == "customer" else name,
            "text": words[name],
        }
        for name in ("controller", "comp", "dealer", "customer")
        if name in roles
    ]


# Who knows what -----------------------------------------------------------------------------------

_OWN = "Its own rewards, pulls and scores, and when it is pulled."
_UNSENT = "A message that shows rewards, pulls or scores of another owner, or the total."
_NEVER_STRICT = {
    "owner": (_UNSENT,),
    "controller": ("A score, an order of owners, a tie, or who is pulled.", "The total."),
    "comp": ("A score, an order of owners, a tie, or who is pulled.", "The total."),
    "dealer": ("Any number that depends on a score, a reward or a pull.",),
    "customer": ("Without an owner's help: what a single owner earned, or who was pulled.",),
}


def knowledge(settings: Samba, kind: str) -> dict[str, Sequence[str]]:
    """Say what a kind of role knows, can never know and could find out at these settings."""
    if settings.path == "plain":
        return {
            "knows": ["Everything: this is the plain twin, in which one party sees all."],
            "never": [],
            "could": [],
        }
    off = settings.switches.off
    knows, never = _known(kind, settings.level, off)
    server = "|servers?" if kind in ("controller", "comp") else ""
    named = re.compile(rf"\b({kind}s?{server}|all roles)\b", re.IGNORECASE)
    could = [text for text in settings.leaks() if named.search(text)]
    if settings.level == "paper" and kind == "controller" and "aes" in off:
        could.append(
            "Who is pulled at every step, from the pulling bits that it forwards in the clear."
        )
    return {"knows": knows, "never": never, "could": could}


def _known(kind: str, level: str, off: tuple[str, ...]) -> tuple[list[str], list[str]]:
    terms = "The budget, the policy and who takes part."
    if level == "strict":
        strictly = {
            "owner": [_OWN],
            "controller": [
                "One share of every score, which alone is a random number, and a fresh random "
                "order a pass."
            ],
            "comp": [
                "The other share of every score, which alone is a random number, and a random "
                "place a pass."
            ],
            "dealer": [
                "The randomness of the servers, the number of owners, passes and comparisons, and "
                "the pace."
            ],
            "customer": ["The total and the number of pulls."],
        }
        return [*strictly[kind], terms], list(_NEVER_STRICT[kind])
    aes, paillier, permutation, mask = (
        name not in off for name in ("aes", "paillier", "permutation", "mask")
    )
    if kind == "owner":
        return [_OWN, terms], [_UNSENT]
    if kind == "customer":
        return ["The total.", terms], ["Who was pulled at a step."]
    if kind == "controller":
        scores = "sealed scores" if aes else "masked scores" if mask else "true scores"
        knows = [
            f"Which owner sends which of the {scores}, and the permutation."
            if permutation
            else f"Which owner sends which of the {scores}.",
            terms,
        ]
        never = ["A score, or who is pulled: it has no key of the frames."] if aes else []
        if not aes:
            knows.append("Who is pulled at every step: the bits pass in the clear.")
        knows.append("The seeds of masks and coins, which it draws.")
        if paillier:
            never.append("The total, or any owner's sum: it has no Paillier key.")
        else:
            knows.append("Every owner's sum and the total.")
        return knows, never
    shown = "multiplied by one number a pass" if mask else "as they are"
    knows = [
        f"All scores of a pass, {shown}.",
        "Which place it chose.",
        terms,
    ]
    never = ["The total and the sums in the clear: they do not pass it."]
    if permutation:
        never.append("From one pass alone: whose a score is.")
    else:
        knows.append("Which owner sent which score, and who is pulled.")
    if mask:
        never.append("From one pass alone: the true scale of the scores.")
    return knows, never


# The data -----------------------------------------------------------------------------------------

BINS = 20
"""Bars of a histogram where ratings have many values."""


def preview(settings: Samba) -> dict[str, Any]:
    """Return the arms, a histogram of the ratings they are made of, and what preprocessing in one
    place would show.
    """
    arms, ratings = settings.arms(), settings.ratings()
    counts = (
        {} if ratings is None else dict(zip(ratings.names, ratings.counts.tolist(), strict=True))
    )
    found: dict[str, Any] = {
        "arms": [
            {"name": name, "mean": mean, "ratings": counts.get(name)}
            for name, mean in zip(arms.names, arms.means.tolist(), strict=True)
        ],
        "histogram": [],
        "note": f"{arms.source[:1].upper()}{arms.source[1:]}.",
    }
    if ratings is not None:
        found["threshold"] = threshold = settings.used(arms)["threshold"]
        found["histogram"] = _histogram(ratings, float(threshold or 0.0))
        found["note"] = f"{len(ratings):,} ratings of {len(ratings.items):,} items. {found['note']}"
    people = settings.people()
    if people is not None:
        share = (
            f"{people.alone:,} of {people.users:,} people are named by "
            f"{' and '.join(people.columns)} alone"
        )
        found["central"] = {
            "rows": people.rows,
            "users": people.users,
            "alone": people.alone,
            "columns": ["user", *people.columns, "item", "rating"],
            "sample": [list(row) for row in people.sample],
            "note": f"Done in one place, preprocessing shows that place all {people.rows:,} rows, and {share}. Done at "
            "the owners, each reads its own rows and nothing leaves it.",
        }
        found["note"] += f" {found['central']['note']}"
    return found


def _histogram(ratings: Ratings, threshold: float) -> list[dict[str, Any]]:
    """Count the values; hours and the like in bars up to the 99th percentile, the last one with all
    above.

    A bar pays where more of its ratings lie above the threshold than not.
    """
    values, counts = np.unique(ratings.value, return_counts=True)
    if len(values) <= 2 * BINS:
        return [
            {"value": float(value), "count": int(count), "pays": bool(value > threshold)}
            for value, count in zip(values, counts, strict=True)
        ]
    low, high = float(values[0]), float(np.quantile(ratings.value, 0.99))
    edges = np.linspace(low, high if high > low else float(values[-1]), BINS + 1)
    within = np.minimum(ratings.value, edges[-1])
    bars, _ = np.histogram(within, edges)
    above, _ = np.histogram(within[ratings.value > threshold], edges)
    return [
        {
            "value": float(edge),
            "count": int(count),
            "pays": bool(2 * paid > count if count else edge > threshold),
        }
        for edge, count, paid in zip(edges[:-1], bars, above, strict=True)
    ]


# What protections cost ----------------------------------------------------------------------------


def variants(settings: Samba) -> list[tuple[str, Samba]]:
    """Return settings with and without each protection: at level `paper` its switches, else level
    `paper`.
    """
    if settings.path == "plain":
        return [("as set", settings)]
    found, plain = [("as set", settings)], ("plain", settings.but(path="plain"))
    if settings.level == "paper":
        for name, long in _LONG.items():
            on = getattr(settings, name)
            found.append(
                (
                    f"{'without' if on else 'with'} {long}",
                    settings.but(**{name: not on}),
                )
            )
        if settings.make_policy().explores:
            way = f"{'without' if settings.shortcut else 'with'} the shortcut of exploring steps"
            found.append((way, settings.but(shortcut=not settings.shortcut)))
        return [*found, plain]
    return [*found, ("level paper", settings.but(level="paper")), plain]


_LONG = {"aes": "AES-GCM", "mask": "masks", "permutation": "permutation", "paillier": "Paillier"}


def theorem4(settings: Samba) -> dict[str, int]:
    """Return what the paper's Theorem 4 counts for a run, with its proof's constants.

    Each of N - K steps (twice for a policy of two passes) takes 2 K AES-GCM encryptions and 2 K
    decryptions and sends 4 lists of K encrypted numbers; the end takes K Paillier encryptions, one
    decryption, and K + 1 numbers.
    """
    setup = settings.load()
    owners = len(setup.arms)
    rounds = (settings.horizon - owners) * len(setup.policy.passes())
    return {
        "AES-GCM calls": 4 * owners * rounds,
        "Paillier calls": owners + 1,
        "encrypted numbers": 4 * owners * rounds + owners + 1,
    }


def _moved(run: SambaRun | SambaTwinRun) -> list[dict[str, Any]]:
    """Messages so far, beside what the paper counts for the whole run."""
    if not isinstance(run, SambaRun):
        return []
    moved = sum(messages for messages, _ in run.traffic().values())
    counted = theorem4(run.settings)["encrypted numbers"] * len(run.seeds)
    text = (
        f"{moved:,} messages; the paper counts {counted:,} encrypted numbers for the whole run "
        "(Theorem 4)"
    )
    return [{"name": "messages", "value": moved, "text": text}]
