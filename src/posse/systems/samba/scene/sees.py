"""Who sees what, measured: figure 7 of the paper, for any level, policy and switches.

A small run with these settings is made and every message looked at: for each piece of data and each
observer the table says what is left between them after all that the observer's own keys open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from posse.policies.arms.base import Policy
from posse.privacy.crypto.paillier import MINIMUM_BITS, generate_key
from posse.systems.registry import system
from posse.systems.samba.levels import Switches
from posse.systems.samba.settings import Samba

TOTAL, SUM, ARM, REWARD = (
    "cumulative reward",
    "rewards and pulls of an owner",
    "arm pulled at a step",
    "reward of a step",
)
CLEAR, OWN, NOTHING = "in the clear", "its own", "no message"

_ABOUT: Mapping[str, str] = {
    "masked score": SUM,
    "score": SUM,
    "x - pad": SUM,
    "pads - A": SUM,
    "p(x) - B - A'": SUM,
    "E(s)": SUM,
    "sum": SUM,
    "(s, n) - pad": SUM,
    "pulling bit": ARM,
    "b xor pad'": ARM,
    "[place] xor C": ARM,
    "place of the largest": ARM,
    "garbled comparisons": ARM,
    "E(total)": TOTAL,
    "total": TOTAL,
    "controller's share of the total": TOTAL,
    "comp's share of the total": TOTAL,
}
"""Parts of messages, and the piece of data that each is about; a score tells of an owner's rewards
and pulls.
"""

WORDS: Mapping[str, str] = {
    "aes": "AES-GCM",
    "mask": "mask",
    "permutation": "permutation",
    "paillier": "Paillier",
    "share": "share of a secret",
    "pad": "one-time pad",
}


def sees(settings: Samba) -> dict[str, Any]:
    """Return the table: columns are observers, rows pieces of data, cells what hides one from the
    other.
    """
    found = _measured(settings.make_policy(), settings.level, settings.switches)
    kinds = (
        ["controller", "comp", "dealer"] if settings.level == "strict" else ["controller", "comp"]
    )
    columns = ["the owner", "another owner", "customer", *kinds, "the wire"]
    rows = []
    for datum in (TOTAL, SUM, ARM, REWARD):
        cells = [OWN if datum != TOTAL else NOTHING, NOTHING]
        cells += [_cell(found.get((datum, observer))) for observer in ("customer", *kinds, "wire")]
        rows.append({"data": datum, "cells": cells})
    note = (
        "Measured on a small run with these settings, message by message. 'In the clear' is what "
        "the observer reads "
        "with its own keys; what it could work out from many messages is what attacks find."
    )
    return {"columns": columns, "rows": rows, "note": note}


def _cell(left: frozenset[str] | None) -> str:
    if left is None:
        return NOTHING
    return ", ".join(WORDS[name] for name in WORDS if name in left) or CLEAR


@lru_cache(maxsize=32)
def _measured(
    policy: Policy, level: str, switches: Switches
) -> dict[tuple[str, str], frozenset[str]]:
    """Return what is left between a piece of data and an observer, where a message of the
    observer's is about it.
    """
    given: dict[str, Any] = {
        "policy": policy,
        "level": level,
        "means": (0.2, 0.5, 0.8),
        "horizon": 6,
    }
    settings = Samba(**(given | dict.fromkeys(switches.terms, False)))
    samba = system("samba")
    run = samba.start(settings, key=None if level == "strict" else generate_key(MINIMUM_BITS))
    found: dict[tuple[str, str], frozenset[str]] = {}
    while (delivery := run.deliver()) is not None:
        assert delivery.explanation is not None
        kinds = {name.partition("-")[0] for name in (delivery.sender, delivery.receiver)}
        for part in delivery.explanation["parts"]:
            datum = _ABOUT.get(part["name"].partition(", place")[0])
            for observer in (*kinds, "wire") if datum is not None else ():
                left = _left(part, observer, level)
                before = found.get((str(datum), observer))
                found[str(datum), observer] = (
                    left if before is None or len(left) < len(before) else before
                )
    return found


def _left(part: Mapping[str, Any], observer: str, level: str) -> frozenset[str]:
    """Protections of a part that an observer's own keys do not take off."""
    outer, inner = part["protection"], set(part.get("also", ()))
    if outer == "permutation":
        inner.add(outer)
    elif outer != "clear" and observer not in part["opens"]:
        return frozenset({outer} if outer != "paillier" else {outer, *inner})
    if observer == "controller" and level == "paper":
        inner -= {"permutation", "mask"}
    return frozenset(inner)
