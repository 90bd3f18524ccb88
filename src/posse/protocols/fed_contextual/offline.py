"""What another policy would earn with the deployed model, from logs of devices that acted with it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import DataError
from posse.core.interrupts import held
from posse.policies.evaluation.offline import Estimate, Log, evaluate
from posse.protocols.fed_contextual import sources
from posse.protocols.fed_contextual.client import act
from posse.protocols.fed_contextual.cohorts import draw
from posse.protocols.fed_contextual.keys import ACT, key_of
from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.rounds import Pay, Policy, State
from posse.protocols.fed_contextual.simulation import Simulation

DEVICES = 200
"""Devices whose logs are used, at most."""


def estimate(simulation: Simulation, state: State, seed: int) -> Estimate | str:
    """Estimate (SNIPS, clients as clusters) the reward a decision of the policy to evaluate, on one more cohort.

    Logs that leave choices of that policy without support give the reason instead of a number.
    """
    asked, made, plan = simulation.settings, simulation.setup, simulation.plan
    assert asked.evaluate is not None
    done, clients, arms = int(state.round), made.population.clients, len(made.population.arms)
    numbers, present = draw(seed, done, clients, min(DEVICES, clients), "fixed")
    gather = sources.host(made.population, plan.schedule.samples, asked.cap)
    gather = gather if made.own.pay is None else sources.with_contexts(gather)
    assert callable(gather)
    pays = plan.rates.pays if plan.pays is None else (jnp.asarray(plan.pays(done), jnp.float32),)
    target, other = sources.POLICIES[asked.evaluate], sources.parameters(asked.exploration(asked.evaluate), arms)
    rows: list[list[Any]] = []
    for number in numbers:
        cohort = gather(np.array([number], np.int32), present[:1], done)
        contexts, labels, mask = jax.tree.map(lambda leaf: leaf[0], (cohort.contexts, cohort.labels, cohort.mask))
        key = key_of(seed, ACT, done, int(number))
        with held():
            acted = _logged(
                plan.task.model, plan.task.policy, target, plan.task.pay, state.deployed, contexts, labels, mask, key,
                plan.rates.explore, other, pays,
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


@partial(jax.jit, static_argnames=("model", "policy", "target", "pay"))
def _logged(
    model: Model, policy: Policy, target: Policy, pay: Pay, deployed: Any, contexts: Any, labels: Any, mask: jax.Array,
    key: jax.Array, explore: Any, other: Any, pays: Any,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Act once with the deployed model; also the chances of every arm, by both policies."""
    scores = model.scores(deployed, contexts)

    def choose(given: jax.Array) -> jax.Array:
        return policy(given, *explore)

    def paid(given: Any, arms: jax.Array) -> jax.Array:
        return pay(given, arms, *pays)

    log = act(model, deployed, choose, paid, contexts, labels, mask, key)
    return log.arms, log.rewards, log.probabilities, choose(scores), target(scores, *other)
