"""A round that is played by hand, one stage at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np

from posse.core.roles import WORLD, Action, Message
from posse.privacy.aggregation.client import Client
from posse.privacy.aggregation.messages import Contribute, Contribution
from posse.privacy.aggregation.quantise import Ring
from posse.privacy.aggregation.server import Server
from posse.privacy.aggregation.simulate import Cohort
from posse.privacy.aggregation.terms import Plan, Stage, Terms, complete_plan
from posse.privacy.crypto.keys import Identity, Secrets

LENGTH = 5


@cache
def identity(number: int) -> Identity:
    return Identity()


def cohort(n: int) -> Cohort:
    return Cohort({f"c{at:03}": identity(at) for at in range(n)})


def vectors(names, seed: int = 0, length: int = LENGTH) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 1 << 32, length, dtype=np.uint32) for name in names}


def plain_sum(given: dict[str, np.ndarray], names) -> np.ndarray:
    return np.sum([given[name] for name in names], axis=0, dtype=np.uint32)


class Round:
    """Server and clients; `sent` is what each client last sent to the server and nobody has
    delivered yet.
    """

    def __init__(self, n: int = 5, plan: Plan | None = None, round: int = 0) -> None:
        self.cohort = cohort(n)
        self.terms = self.cohort.terms(
            plan or complete_plan(n, corrupt=1, dropouts=1), LENGTH, round=round
        )
        self.vectors = vectors(self.terms.clients)
        self.roots = {name: Secrets.fresh() for name in self.terms.clients}
        self.clients = {name: self.client(name) for name in self.terms.clients}
        self.server = Server(self.terms)
        self.told: dict[str, Message] = {}
        """What the server last said to each client."""
        self.sent = {name: client.start()[0][2] for name, client in self.clients.items()}

    def client(self, name: str) -> Client:
        return Client(name, self.terms, self.cohort.identities[name], self.roots[name])

    def deliver(self, skip=()) -> None:
        """Give the server what the clients have sent."""
        for name, message in self.sent.items():
            if name not in skip:
                self.server.receive(name, message)
        self.sent = {}

    def close(self) -> None:
        """Close the stage; keep what the server says to each client."""
        actions = self.server.close(self.server.stage)
        self.told = {action[1]: action[2] for action in actions if isinstance(action, tuple)}

    def answer(self, skip=()) -> None:
        """Let clients answer what they were told, with their vectors where they are asked for."""
        for name, message in self.told.items():
            if name not in skip:
                self.sent[name] = self.say(name, message)

    def say(self, name: str, message: Message) -> Message:
        (action,) = self.clients[name].receive("server", message)
        if not isinstance(action, tuple):
            words = self.vectors[name].astype("<u4").tobytes()
            (action,) = self.clients[name].receive(WORLD, Contribution(self.terms.round, words))
        return action[2]

    def until(self, stage: Stage, skip=()) -> Round:
        """Play until the clients have been told what begins a stage; `skip` are lost from the stage
        before on.
        """
        while self.server.stage < stage:
            last = self.server.stage == stage - 1
            self.deliver(skip if last else ())
            self.close()
            if self.server.stage < stage:
                self.answer()
        return self


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
