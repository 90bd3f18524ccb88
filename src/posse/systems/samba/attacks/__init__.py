"""Attacks on Samba, by who makes them: `reading` (what comp sees of a pass), `watching` (comp
alone), `together` (collusions, taps, parties alone), `owners` (what an owner infers from its own
arm, alone or with the customer), `many` (many runs, parties that deviate), `endings` (games about
time and the end), `keys` (a search for a short key), `network` (what travels over sockets).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posse.systems.modules import Attacks
from posse.systems.samba.attacks import endings, keys, many, network, owners, together, watching
from posse.systems.samba.settings import Samba

REPLACED = "A party that replaces a total changes a result and reads nothing."


def similar_settings(public: Mapping[str, Any]) -> Samba | None:
    """Return settings with the level, policy, owners and horizon of a recorded view.

    Returns None for a view that ends before its parties have agreed on the terms.
    """
    if not public["horizon"]:
        return None
    policy = public["policy"]
    values = {
        "level": public["level"],
        "horizon": public["horizon"],
        "policy": {"name": policy["name"], **policy["parameters"]},
        "means": (0.5,) * public["owners"],
    }
    switched_off = dict.fromkeys(public["off"], False)
    return Samba.make(values | switched_off)


ATTACKS = Attacks(
    attacks=(
        *watching.ATTACKS,
        *together.ATTACKS,
        *owners.ATTACKS,
        *many.ATTACKS,
        *endings.ATTACKS,
        *keys.ATTACKS,
        *network.ATTACKS,
    ),
    unattacked={
        "The total is not authenticated against the controller": REPLACED,
        "A server with an owner's help can replace the total": REPLACED,
        "All roles ran in one process": (
            "A party that runs a simulation has `run.truth()`: there is nothing to infer."
        ),
        "An owner's statement of what it is owed": (
            "It is a price times the pulls: a reader of the statement needs no attack."
        ),
        "At level 'paper' the controller knows the exploration coins": "It draws them itself.",
    },
    similar_settings=similar_settings,
)
