"""Devices and servers of fed-contextual that do not follow the protocol.

| attack | by | does | seeks |
|---|---|---|---|
| `poison` | device | half of the devices learn that one arm is always right | that the model prefers it |
| `cohort-of-one` | server | names one device, or all but one, as those whose sum it wants | one device's update |
| `asks-twice` | server | has one sum unmasked and asks for another one that lacks one device | the same |

The server's games are on real clients of a secure round (`posse.privacy.aggregation`). A coin is
the vector of one of them; what the server is shown decides whether it reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD, Action
from posse.privacy.aggregation import messages
from posse.privacy.aggregation.client import SERVER as AGGREGATOR
from posse.privacy.aggregation.client import Client, kinds
from posse.privacy.aggregation.simulate import Cohort
from posse.privacy.aggregation.terms import complete_plan
from posse.privacy.crypto.keys import Secrets
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import hits
from posse.systems.fed_contextual.levels import DEVICE, SERVER, not_linear
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.registry import system_of

if TYPE_CHECKING:
    from posse.problems.populations.population import Population
    from posse.systems.fed_contextual.run import FedRun
    from posse.systems.runs import Run

ROUNDS = 40
"""Rounds of a run with devices that poison, at most."""
POISON = 2
"""One device of so many poisons."""
GAMES, CLIENTS = 20, 6


def start_shorter(
    settings: FedContextual, rounds: int, seed: int, population: Population | None = None
) -> FedRun:
    """Finish a run of so many rounds, with a seed of its own."""
    from posse.systems.fed_contextual.run import FedRun

    run = FedRun(
        system_of(settings),
        settings.shorter(rounds),
        [(settings.seed + seed) % 2**32],
        population=population,
    )
    run.finish()
    return run


def deployed_model(run: Run) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return bias and weights of the linear model that devices of a run have in the end."""
    bias, weights = (
        np.frombuffer(leaf["data"], np.float32).reshape(leaf["shape"])
        for leaf in run.view("cohort").secrets["cohort"]["deployed"]
    )
    return bias, weights


# Devices that poison ------------------------------------------------------------------------------


def _preferred(settings: FedContextual, seed: int, arm: int | None) -> NDArray[np.int64]:
    """Let every other device learn that one arm is right for all its samples; the arms preferred on
    the others.
    """
    population = settings.load().population
    owner = np.repeat(np.arange(population.clients), np.diff(population.offsets))
    poisons, labels = owner % POISON == 0, np.asarray(population.labels)
    made = (
        population
        if arm is None
        else replace(population, labels=np.where(poisons, arm, labels).astype(np.int32))
    )
    run = start_shorter(settings, min(ROUNDS, settings.load().rounds), seed, made)
    bias, weights = deployed_model(run)
    rows = np.asarray(population.inputs)[~poisons]
    flat = rows.reshape(len(rows), -1) / (255.0 if rows.dtype == np.uint8 else 1.0)
    return np.asarray((flat @ weights + bias).argmax(axis=1))


def stage_poison(settings: FedContextual, seed: int) -> Iterator[Evidence]:
    """Play a run with devices that poison for one arm, and without."""
    arms = len(settings.load().population.arms)
    arm = int(np.random.default_rng((seed, 70)).integers(arms))
    seen = (_preferred(settings, seed, arm), _preferred(settings, seed, None))
    yield Evidence(seen, {"arm": arm, "arms": arms})


def _score_poison(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], truths: Sequence[Truth]
) -> Score:
    with_, without = (
        np.concatenate([one[at] == truth["arm"] for one, truth in zip(found, truths, strict=True)])
        for at in range(2)
    )
    return hits(
        int(with_.sum()), len(with_), max(float(without.mean()), 1e-3), "contexts that get the arm"
    )


def _always(evidence: Evidence, seed: int) -> Evidence:
    """Plant: the model prefers the arm everywhere."""
    honest = evidence.seen[1]
    return replace(evidence, seen=(np.full(len(honest), evidence.truth["arm"]), honest))


def _other_arm(truths: Sequence[Truth], seed: int) -> list[Truth]:
    return [
        {**truth, "arm": (truth["arm"] + 1 + seed % (truth["arms"] - 1)) % truth["arms"]}
        for truth in truths
    ]


def _no_poison(settings: FedContextual) -> str:
    if why := not_linear(settings):
        return why
    population = settings.load().population
    return (
        "it is for images or numbers with one label each."
        if population.bags or population.multilabel
        else ""
    )


# A server that singles out ------------------------------------------------------------------------


def _masked(coin: int) -> dict[str, Client]:
    """Bring real clients of a secure round to where all vectors are in; the first one's vector is a
    coin.
    """
    cohort = Cohort.fresh(f"device-{at}" for at in range(CLIENTS))
    terms = cohort.terms(complete_plan(CLIENTS, corrupt=1, dropouts=1), length=1)
    clients = {
        name: Client(name, terms, cohort.identities[name], Secrets.fresh())
        for name in terms.clients
    }
    keys = {name: _first_message(client.start()) for name, client in clients.items()}
    frames: dict[str, dict[str, bytes]] = {name: {} for name in clients}
    for name, client in clients.items():
        others = tuple((one, keys[one]) for one in clients if one != name)
        sent = _first_message(client.receive(AGGREGATOR, messages.Keys(terms.digest, others)))
        for to, frame in sent.frames:
            frames[to][name] = frame
    for at, (name, client) in enumerate(clients.items()):
        client.receive(
            AGGREGATOR, messages.Delivery(terms.digest, tuple(sorted(frames[name].items())))
        )
        word = np.array([coin if at == 0 else 1 + at], "<u4").tobytes()
        client.receive(WORLD, messages.Contribution(terms.round, word))
    return clients


def _first_message(actions: Sequence[Action]) -> Any:
    return actions[0][2]  # type: ignore[index]


def shown(clients: Mapping[str, Client], survivors: tuple[str, ...]) -> int:
    """Ask for the sum of some clients; return how many of them show what takes their masks off."""
    terms = next(iter(clients.values())).terms
    signed, answers = [], 0
    for name in survivors:
        with suppress(ProtocolError):
            survived = messages.Survivors(terms.digest, survivors)
            sent = _first_message(clients[name].receive(AGGREGATOR, survived))
            signed.append((name, sent.signature))
    for name in survivors:
        own, others = kinds(clients, survivors)
        with suppress(ProtocolError):
            clients[name].receive(
                AGGREGATOR, messages.Unmask(terms.digest, own, others, tuple(signed))
            )
            answers += 1
    return answers


def stage_sums(settings: FedContextual, seed: int, *, twice: bool) -> Iterator[Evidence]:
    """Ask for the sums of two sets that differ by one device, or for that device alone.

    A set whose clients show enough is a sum that the server reads; with both, or with the sum of
    one, it has the coin.
    """
    for number in range(GAMES):
        coin = number % 2
        clients = _masked(coin)
        names, need = tuple(clients), next(iter(clients.values())).terms.plan.threshold
        if twice:
            reads = [shown(clients, names) >= need, shown(clients, names[1:]) >= need]
        else:
            reads = [shown(clients, names[:1]) >= 1]
        yield Evidence(coin if all(reads) else None, {"coin": coin, "sums": sum(reads)})


def _score_coins(found: Sequence[int | None], truths: Sequence[Truth]) -> Score:
    right = sum((one or 0) == truth["coin"] for one, truth in zip(found, truths, strict=True))
    return hits(right, len(truths), 0.5, "vectors of one device")


def _other_coins(truths: Sequence[Truth], seed: int) -> list[Truth]:
    rng = np.random.default_rng((seed, 71))
    return [{**truth, "coin": int(rng.integers(2))} for truth in truths]


def _no_sums(settings: FedContextual) -> str:
    return (
        ""
        if settings.levels
        else "updates reach the server as they are: it need not single out anybody."
    )


def _server(name: str, title: str, *, twice: bool) -> Attack:
    return Attack(
        name,
        title,
        (SERVER,),
        ("The server learns the sum",),
        lambda seen, seed: seen,
        _score_coins,
        "share of games",
        lambda evidence, seed: replace(evidence, seen=evidence.truth["coin"]),
        "clients that answer everything",
        _other_coins,
        needs="runs",
        stage=partial(stage_sums, twice=twice),
        seconds=lambda settings: 5.0,
        missing=_no_sums,
        tell=lambda found: "nothing" if found is None else f"the vector {found}",
    )


DEVIATIONS = (
    Attack(
        "poison",
        "that the model prefers one arm, by learning that it is always right",
        (DEVICE,),
        ("Devices that send wrong updates",),
        lambda seen, seed: seen,
        _score_poison,
        "share of contexts",
        _always,
        "models that prefer it everywhere",
        _other_arm,
        finds=0.5,
        needs="runs",
        stage=stage_poison,
        seconds=lambda settings: 20.0,
        missing=_no_poison,
        tell=lambda found: f"{len(found[0]):,} contexts asked",
    ),
    _server("cohort-of-one", "one device's update, by naming it alone", twice=False),
    _server("asks-twice", "one device's update, by two sums that differ by it", twice=True),
)
