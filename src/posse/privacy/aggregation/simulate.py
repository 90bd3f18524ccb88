"""A whole round in one process, and the ring arithmetic alone.

`simulate` plays every message of a round, with clients lost where a plan says so; it is what tests
and demonstrations run. `ring_sum` quantises, adds and decodes: the same numbers, bit for bit,
without keys and masks, for training runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from posse.core.errors import ConfigError
from posse.core.roles import WORLD, Action, Message
from posse.privacy.aggregation.client import Client
from posse.privacy.aggregation.messages import Contribute, Contribution
from posse.privacy.aggregation.quantise import Floats, Ints, Quantiser, Ring, to_ring
from posse.privacy.aggregation.server import Server
from posse.privacy.aggregation.terms import Plan, Stage, Terms
from posse.privacy.crypto.keys import Identity, Secrets


@dataclass(frozen=True)
class Cohort:
    """Clients that live in this process, with fresh identities; they may take part in any number of
    rounds.
    """

    identities: Mapping[str, Identity]

    @classmethod
    def fresh(cls, names: Iterable[str]) -> Cohort:
        """Make identities for some names."""
        return cls({name: Identity() for name in sorted(names)})

    def terms(self, plan: Plan, length: int, *, round: int = 0, run: str = "simulation") -> Terms:
        """Draw a seed for the graph and write the terms of a round for all of them."""
        publics = tuple(identity.public for identity in self.identities.values())
        return Terms(run, round, tuple(self.identities), publics, length, plan, os.urandom(32))


def simulate(
    cohort: Cohort,
    terms: Terms,
    vectors: Mapping[str, Ring],
    lost: Mapping[str, Stage] | None = None,
) -> tuple[Ring, tuple[str, ...]]:
    """Play a round; return the sum modulo 2^32 and the survivors it is of, or raise as the server
    does.

    `lost` says at which stage a client is not heard of any more: with `Stage.MASKED` it shared its
    secrets and its vector did not arrive, with `Stage.UNMASK` its vector is in the sum and others
    must take its masks off.

    Cost: all clients' work, one after the other.

    >>> from posse.privacy.aggregation.terms import complete_plan
    >>> cohort = Cohort.fresh(["ada", "bob", "eve", "joe"])
    >>> terms = cohort.terms(complete_plan(4, corrupt=0, dropouts=1), length=2)
    >>> vectors = {name: np.array([1, at], np.uint32) for at, name in enumerate(terms.clients)}
    >>> total, survivors = simulate(cohort, terms, vectors, {"bob": Stage.MASKED})
    >>> total.tolist(), survivors
    ([3, 5], ('ada', 'eve', 'joe'))
    """
    server = Server(terms)
    clients = {
        name: Client(name, terms, cohort.identities[name], Secrets.fresh())
        for name in terms.clients
    }
    gone = dict(lost or {})
    inbox: list[Action] = [action for client in clients.values() for action in client.start()]
    for stage in list(Stage)[:-1]:
        for sender, message in _answers(clients, vectors, inbox):
            if gone.get(sender, Stage.OVER) > stage:
                server.receive(sender, message)
        inbox = [action for action in server.close(stage) if isinstance(action, tuple)]
    return server.total, server.survivors


def _answers(
    clients: Mapping[str, Client], vectors: Mapping[str, Ring], inbox: Iterable[Action]
) -> Iterable[tuple[str, Message]]:
    """Hand messages of the server to the clients, and vectors to those that ask; yield what they
    answer.
    """
    for action in inbox:
        if isinstance(action, Contribute):
            words = vectors[action.party].astype("<u4").tobytes()
            answers = clients[action.party].receive(WORLD, Contribution(action.round, words))
            yield from _answers(clients, vectors, answers)
        elif isinstance(action, tuple):
            sender, receiver, message = action
            if receiver in clients:
                yield from _answers(clients, vectors, clients[receiver].receive(sender, message))
            else:
                yield sender, message


def ring_sum(
    updates: Iterable[Floats],
    quantiser: Quantiser,
    generators: Iterable[np.random.Generator],
    noise: Iterable[Ints] | None = None,
) -> Floats:
    """Sum updates as the secure round would: quantised, added modulo 2^32, decoded.

    One generator an update, so that the sum does not depend on their order; `noise` is a vector of
    integers an update, as `discrete_gaussian` draws them. Protects nothing: all is in one process.

    >>> quantiser = Quantiser(clip=1.0, scale=2.0**16, length=2, clients=2)
    >>> updates = [np.array([0.5, -0.25]), np.array([0.25, 0.5])]
    >>> ring_sum(updates, quantiser, [np.random.default_rng(i) for i in range(2)]).tolist()
    [0.75, 0.25]
    """
    total, count = np.zeros(quantiser.length, np.uint32), 0
    drawn = iter(noise) if noise is not None else repeat(np.zeros(1, np.int64))
    for update, generator in zip(updates, generators, strict=True):
        added = next(drawn, None)
        if added is None:
            raise ConfigError(
                f"expected a vector of noise an update, got {count}. Draw one for each, or none."
            )
        total += to_ring(quantiser.encode(update, generator) + added)
        count += 1
    if count > quantiser.clients:
        raise ConfigError(
            f"the quantiser has room for {quantiser.clients} clients, got {count}. Make it for the "
            "largest cohort."
        )
    return quantiser.decode(total)
