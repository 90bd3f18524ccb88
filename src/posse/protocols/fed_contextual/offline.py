"""What another policy would earn with the last model, from logs of devices that acted with it: nothing is run anew."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import DataError
from posse.policies.evaluation import Estimate, Log, evaluate
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.client import act
from posse.protocols.fed_contextual.cohorts import draw
from posse.protocols.fed_contextual.keys import ACT, key_of
from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.rounds import Policy, State
from posse.protocols.fed_contextual.simulation import Simulation, parameters

DEVICES = 200
"""Devices whose logs are used, at most."""


def estimate(simulation: Simulation, state: State, seed: int) -> Estimate | str:
    """Estimate (SNIPS, clients as clusters) the reward a decision of the policy to evaluate, on one more cohort.

    Logs that leave choices of that policy without support give the reason instead of a number.
    """
    asked, made = simulation.settings, simulation.setup
    assert asked.evaluate is not None
    done, clients, arms = int(state.round), made.population.clients, len(made.population.arms)
    numbers, present = draw(seed, done, clients, min(DEVICES, clients), "fixed")
    gather = sources.host(made.population, simulation.schedule.samples, asked.cap)
    assert callable(gather)
    pays = simulation.rates.pays if simulation.pays is None else (jnp.asarray(simulation.pays(done), jnp.float32),)
    target, other = sources.POLICIES[asked.evaluate], parameters(asked.exploration(asked.evaluate), arms)
    rows: list[list[Any]] = []
    for number in numbers:
        cohort = gather(np.array([number], np.int32), present[:1], done)
        contexts, labels, mask = jax.tree.map(lambda leaf: leaf[0], (cohort.contexts, cohort.labels, cohort.mask))
        key = key_of(seed, ACT, done, int(number))
        acted = _logged(
            simulation.task.model, simulation.task.policy, target, state.deployed, contexts, labels, mask, key,
            simulation.rates.explore, other, pays,
        )  # fmt: skip
        real = np.asarray(mask) > 0
        rows.append([np.full(real.sum(), number), *(np.asarray(one)[real] for one in acted)])
    who, chosen, rewards, chances, logging, wanted = (np.concatenate(column) for column in zip(*rows, strict=True))
    floats = (np.asarray(one, np.float64) for one in (rewards, chances, logging))
    reward, chance, every = floats
    wanted = np.asarray(wanted, np.float64)
    try:
        log = Log(chosen.astype(np.int64), reward, chance, every, who.astype(np.int64))
        return evaluate(log, wanted / wanted.sum(axis=1, keepdims=True), "snips")
    except DataError as error:
        return str(error)


@partial(jax.jit, static_argnames=("model", "policy", "target"))
def _logged(
    model: Model, policy: Policy, target: Policy, deployed: Any, contexts: Any, labels: Any, mask: jax.Array,
    key: jax.Array, explore: Any, other: Any, pays: Any,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Act once with the deployed model; also the chances of every arm, by both policies."""
    scores = model.scores(deployed, contexts)

    def choose(given: jax.Array) -> jax.Array:
        return policy(given, *explore)

    def pay(given: Any, arms: jax.Array) -> jax.Array:
        return sources.pay(given, arms, *pays)

    log = act(model, deployed, choose, pay, contexts, labels, mask, key)
    return log.arms, log.rewards, log.probabilities, choose(scores), target(scores, *other)
