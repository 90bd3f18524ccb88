"""All attacks on Samba, and the sentences that none stands behind."""

from __future__ import annotations

from posse.systems.samba.attacks import endings, keys, many, network, owners, together, watching

ATTACKS = (
    *watching.ATTACKS,
    *together.ATTACKS,
    *owners.ATTACKS,
    *many.ATTACKS,
    *endings.ATTACKS,
    *keys.ATTACKS,
    *network.ATTACKS,
)
UNATTACKED = {
    "The total is not authenticated against the controller": "Who replaces a total changes a result and reads nothing.",
    "A server with an owner's help can replace the total": "Who replaces a total changes a result and reads nothing.",
    "All roles ran in one process": "Whoever runs a simulation has `run.truth()`: there is nothing to find out.",
    "An owner's statement of what it is owed": "It is a price times the pulls: whoever is shown it needs no attack.",
    "At level 'paper' the controller knows the exploration coins": "It draws them itself.",
}
