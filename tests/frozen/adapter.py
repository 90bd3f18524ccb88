"""Everything that the fixture needs of the package and that has no public entry: the one file to change with names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Secure rounds of aggregation -----------------------------------------------------------------------------------------

ROUNDS: Sequence[tuple[str, int, dict[str, str]]] = (
    ("everybody stays", 4, {}),
    ("one shares secrets and sends no vector", 5, {"client-2": "MASKED"}),
    ("one sends a vector and shows no mask", 5, {"client-4": "UNMASK"}),
)
"""Name, number of clients, and the stage at which some are not heard of any more."""


def secure_round(count: int, lost: dict[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Play a round and yield all its messages with sender and receiver."""
    from posse.core.roles import WORLD
    from posse.privacy.aggregation.client import Client
    from posse.privacy.aggregation.messages import Contribute, Contribution
    from posse.privacy.aggregation.server import Server
    from posse.privacy.aggregation.simulate import Cohort
    from posse.privacy.aggregation.terms import Stage, complete_plan
    from posse.privacy.crypto.keys import Secrets

    names = [f"client-{number + 1}" for number in range(count)]
    cohort = Cohort.fresh(names)
    terms = cohort.terms(complete_plan(count, corrupt=1, dropouts=1), length=6)
    server = Server(terms)
    clients = {name: Client(name, terms, cohort.identities[name], Secrets.fresh()) for name in names}
    last = {name: Stage[stage] for name, stage in lost.items()}
    waiting = [action for client in clients.values() for action in client.start()]
    for stage in list(Stage)[:-1]:
        while waiting:
            action = waiting.pop(0)
            if isinstance(action, Contribute):
                words = np.arange(6, dtype="<u4") * (1 + names.index(action.party))
                answer = Contribution(action.round, words.tobytes())
                yield WORLD, action.party, answer
                waiting.extend(clients[action.party].receive(WORLD, answer))
            elif isinstance(action, tuple):
                sender, receiver, message = action
                if sender in clients and last.get(sender, Stage.OVER) <= stage:
                    continue
                yield sender, receiver, message
                if receiver in clients:
                    waiting.extend(clients[receiver].receive(sender, message))
                else:
                    server.receive(sender, message)
        waiting = [action for action in server.close(stage) if isinstance(action, tuple)]
    assert server.total.tolist() == _sum(names, server.survivors)


def _sum(names: list[str], survivors: Sequence[str]) -> list[int]:
    whole = sum(1 + names.index(name) for name in survivors)
    return [at * whole for at in range(6)]
