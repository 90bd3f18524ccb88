"""Candidate learning rates, trained on logs and ranked by the lower bound of what their models
would earn.

`posse evaluate rates LOG.csv`: clients of a log are divided at random. On the logs of one part every pair of
rates trains a linear model in federated rounds, by the very functions of a run; on the other part a
doubly robust estimate says what the policy would earn with that model. A pair that earns much by
luck has a wide interval, so that its lower end is what pairs are ordered by; all lower ends
together hold with the level asked for (Bonferroni). The model of rewards inside the estimate is a
ridge regression of the first part, the same for all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.interrupts import defer_interrupt
from posse.policies.evaluation.offline import Estimate, Floats, Log, evaluate
from posse.problems.populations.population import Population
from posse.results import words
from posse.results.logs import Logged, fitted, read_logs
from posse.results.section import Section
from posse.systems.fed_contextual.computing import tasks
from posse.systems.fed_contextual.computing.cohorts import draw
from posse.systems.fed_contextual.computing.models import named_model
from posse.systems.fed_contextual.computing.rounds import Data, gather, logged_round
from posse.systems.fed_contextual.computing.server import Clipping, State, begin, optimiser
from posse.systems.fed_contextual.computing.tasks import Rates, Task
from posse.systems.fed_contextual.learning import RateSettings
from posse.systems.fed_contextual.remarks import (
    default_client_rate,
    default_server_rate,
    input_size,
)

STEPS = (0.1, 0.3, 1.0, 3.0)
"""Multiples of the default rates that are tried where none are given."""
FEWEST = 10
"""Clients that each part must have at least."""
MOST_ROWS = 256
"""Decisions of a client that a round learns from, at most: its last ones."""


@dataclass(frozen=True)
class Candidate:
    """A pair of rates, and what its model would earn; or why that cannot be told."""

    client: float
    server: float
    estimate: Estimate | None
    refused: str = ""

    @property
    def low(self) -> float:
        """What it earns at least, with all others."""
        return -math.inf if self.estimate is None else self.estimate.low


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates, the best lower bound first, and the log they were judged by."""

    logged: Logged
    candidates: tuple[Candidate, ...]
    level: float
    """Of the interval of each, so that all hold together."""
    trained: int
    held_out: int
    """Clients of both parts."""
    earned: float
    """What the held-out decisions earned."""


def rank(settings: RateSettings, source: Any = None) -> Ranking:
    """Train every pair on one part of a log and order them by the other; `source` is a frame,
    instead of the file.
    """
    logged = read_logs(settings.logs if source is None else source)
    train, rest = _divided(logged, settings)
    data, population = _data(logged, train)
    default = default_client_rate(population, "linear")
    usual = default_server_rate(input_size(population, "linear"), "linear", settings.optimiser)
    clients = settings.client_rates or tuple(default * step for step in STEPS)
    servers = settings.server_rates or tuple(usual * step for step in STEPS)
    pairs = [(client, server) for client in clients for server in servers]
    level = 1 - 2 * (1 - settings.level) / len(pairs)
    log = _part(logged.log, rest)
    predicted = fitted(logged, train, rest)
    runs = _Runs(settings, data, population, logged.contexts[rest].astype(np.float32))
    found = []
    for client, server in pairs:
        try:
            target = runs.chances(client, server)
            found.append(
                Candidate(
                    client, server, evaluate(log, target, "dr", predictions=predicted, level=level)
                )
            )
        except DataError as error:
            found.append(Candidate(client, server, None, error.text))
    found.sort(key=lambda one: -one.low)
    assert log.clients is not None
    held_out = len(np.unique(log.clients))
    return Ranking(
        logged, tuple(found), level, population.clients, held_out, float(log.rewards.mean())
    )


def _divided(logged: Logged, settings: RateSettings) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Divide the rows of a log by their clients."""
    if logged.log.clients is None:
        raise DataError(
            f"{logged.name} must have a column 'client': devices learn from their own decisions. "
            "Add it."
        )
    if not logged.features:
        raise DataError(
            f"{logged.name} must have columns beside client, arm, reward and probability: a "
            "context."
        )
    names = np.unique(logged.log.clients)
    count = round(settings.held_out * len(names))
    if min(count, len(names) - count) < FEWEST:
        raise DataError(
            f"both parts of a log need {FEWEST} clients, got {len(names) - count} to train and "
            f"{count} held out of "
            f"{words.count(len(names), 'client')} in {logged.name}. Log more, or change held_out."
        )
    drawn = np.random.Generator(np.random.Philox(settings.seed)).permutation(names)[:count]
    rest = np.isin(logged.log.clients, drawn)
    return ~rest, rest


def _part(log: Log, rows: NDArray[np.bool_]) -> Log:
    assert log.clients is not None
    return Log(log.arms[rows], log.rewards[rows], log.probabilities[rows], None, log.clients[rows])


def _data(logged: Logged, train: NDArray[np.bool_]) -> tuple[Data, Population]:
    """Put the logs of the clients that train one behind the other, the last `MOST_ROWS` decisions
    of each.
    """
    log, numbers = logged.log, np.flatnonzero(train)
    assert log.clients is not None
    order = numbers[np.argsort(log.clients[numbers], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(log.clients[order])) + 1)
    kept = [group[-MOST_ROWS:] for group in groups]
    rows, offsets = (
        np.concatenate(kept),
        np.concatenate([[0], np.cumsum([len(group) for group in kept])]),
    )
    contexts = logged.contexts[rows].astype(np.float32)
    logs = (
        log.arms[rows].astype(np.int32),
        log.rewards[rows].astype(np.float32),
        log.probabilities[rows].astype(np.float32),
    )
    labels = np.zeros(len(rows), np.int32)
    population = Population(logged.name, logged.arms, offsets, contexts, labels)
    return Data(
        jnp.asarray(contexts), jax.tree.map(jnp.asarray, logs), jnp.asarray(offsets, jnp.int32)
    ), population


class _Runs:
    """Runs of candidates on the same logs: one program, called with other rates."""

    def __init__(
        self,
        settings: RateSettings,
        data: Data,
        population: Population,
        contexts: NDArray[np.float32],
    ):
        self._settings, self._data, self._contexts = settings, data, contexts
        self._policy, self._arms = settings.exploration(), len(population.arms)
        self._samples = -(-population.largest // settings.batch) * settings.batch
        model = named_model("linear", contexts.shape[1], self._arms)
        self._task = Task(
            model,
            tasks.greedy,
            tasks.pay,
            optimiser(settings.optimiser),
            Clipping(1.0, 0.8),
            None,
            settings.batch,
            settings.loss,
        )
        cohort = min(settings.cohort, population.clients)
        drawn = [
            draw(settings.seed, at, population.clients, cohort, "fixed")
            for at in range(settings.rounds)
        ]
        self._cohorts = jnp.asarray(np.stack([numbers for numbers, _ in drawn]))

    def chances(self, client: float, server: float) -> Floats:
        """Return the chances of every arm on held-out contexts, by the model that these rates
        learnt.
        """
        task, seed = self._task, jnp.uint32(self._settings.seed)
        with defer_interrupt():
            first = begin(task, self._settings.seed)
            rates = Rates(jnp.float32(client), jnp.float32(server))
            state = _trained(task, rates, first, self._data, self._cohorts, seed, self._samples)
            scores = np.asarray(
                task.model.scores(state.params, jnp.asarray(self._contexts)), np.float64
            )
        if not np.isfinite(scores).all():
            raise DataError("its model diverged: lower these rates")
        chances = np.asarray(self._policy.probabilities(scores), np.float64)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


@partial(jax.jit, static_argnames=("task", "samples"))
def _trained(
    task: Task,
    rates: Rates,
    state: State,
    data: Data,
    cohorts: jax.Array,
    seed: jax.Array,
    samples: int,
) -> State:
    """Do the rounds of one candidate."""

    def step(now: State, numbers: jax.Array) -> tuple[State, None]:
        cohort = gather(data, numbers, jnp.ones(numbers.shape), samples)
        return logged_round(task, rates, now, cohort, seed)[0], None

    last: State = jax.lax.scan(step, state, cohorts)[0]
    return last


def rates(settings: RateSettings) -> Iterator[Section]:
    """Rank, and show the candidates."""
    yield section_of(settings, rank(settings))


def section_of(settings: RateSettings, found: Ranking) -> Section:
    """Put a ranking into a table, with what it rests on."""
    rows = []
    for place, one in enumerate((one for one in found.candidates if one.estimate is not None), 1):
        made = one.estimate
        assert made is not None
        bound = f"{made.low:.4f}" if math.isfinite(made.low) else "none"
        rows.append(
            (
                str(place),
                f"{one.client:.3g}",
                f"{one.server:.3g}",
                f"{made.value:.4f}",
                f"{made.error:.4f}",
                bound,
                f"{made.effective:,.0f}",
            )
        )
    best = found.candidates[0]
    notes = [
        f"Trained in {words.count(settings.rounds, 'round')} on the logs of {found.trained} "
        "clients; estimated with "
        f"{settings.exploration().name} on {found.held_out} others, whose decisions earned "
        f"{found.earned:.4f} each.",
        "DR: doubly robust, reward a decision. All lower bounds together hold with "
        f"{100 * settings.level:g} %: one "
        "above what the log earned speaks for that pair; pairs whose intervals overlap are not "
        "told apart.",
    ]
    if math.isfinite(best.low):
        notes.append(f"First: --client-rate {best.client:.3g} --server-rate {best.server:.3g}")
    notes += [
        f"{one.client:.3g}, {one.server:.3g}: {one.refused}"
        for one in found.candidates
        if one.refused
    ]
    notes += found.logged.dropped
    facts = [
        {
            "client_rate": one.client,
            "server_rate": one.server,
            "refused": one.refused,
            "dr": None if one.estimate is None else one.estimate.as_dict(),
        }
        for one in found.candidates
    ]
    data = {
        "candidates": facts,
        "logged": found.earned,
        "clients_trained": found.trained,
        "clients_held_out": found.held_out,
        "features": list(found.logged.features),
    }
    columns = ("", "client rate", "server rate", "DR", "± error", "lower bound", "effective rows")
    return Section(
        f"Learning rates, from {found.logged.name}",
        columns,
        tuple(rows),
        tuple(notes),
        tuple(range(7)),
        data,
    )
