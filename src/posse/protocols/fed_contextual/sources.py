"""From a population to what rounds work on: cohorts gathered on the host, or the whole population on the device.

Rewards come from a table, (labels, arms): it is an argument of what is compiled, so that all scenarios and the rounds
of a world that drifts share one program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.policies.contextual import probabilities
from posse.policies.contextual.probabilities import Exploration
from posse.problems.populations.population import Bag, Population
from posse.protocols.fed_contextual.models import Model, bag_of_words, cnn, linear
from posse.protocols.fed_contextual.resident import Data
from posse.protocols.fed_contextual.rounds import Cohort, Pay, PayAll, Policy
from posse.protocols.fed_contextual.training import Source
from posse.protocols.fed_contextual.trees import Number

OwnPay: TypeAlias = Callable[[Any, Any, jax.Array], jax.Array]
"""A user's rewards, (samples,), from contexts, labels and the arms chosen: a function that jax can trace."""

MODELS = ("auto", "cnn", "linear", "bag")
_CLIENTS = 512
"""Clients gathered at a time when a population is put on a device."""


def padding(population: Population, cap: int, batch: int = 16) -> int:
    """Samples that a client is padded to: those of the largest, or the cap, in whole batches."""
    return -(-min(population.largest, cap) // batch) * batch


def host(population: Population, samples: int, cap: int, *, seed: int = 0) -> Source:
    """Return a function that gathers the cohort of a round; memory does not grow with the population."""

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = population.gather(numbers, samples, cap=min(cap, samples), seed=seed)
        return Cohort(_contexts(found.x), found.y, found.mask.astype(np.float32), numbers, present)  # type: ignore[arg-type]

    return cohort


def resident(population: Population, cap: int, *, seed: int = 0) -> Data:
    """Put all clients' samples on the device, at most `cap` of each: the same that `host` gathers."""
    contexts, labels, sizes = [], [], []
    pad = min(population.largest, cap)
    for low in range(0, population.clients, _CLIENTS):
        numbers = np.arange(low, min(low + _CLIENTS, population.clients))
        found = population.gather(numbers, pad, cap=pad, seed=seed)
        real = found.mask
        contexts.append(jax.tree.map(lambda leaf, real=real: leaf[real], _contexts(found.x)))
        labels.append(found.y[real])
        sizes.append(real.sum(axis=1))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    if offsets[-1] >= 2**31:
        raise ConfigError(f"a device holds fewer than 2^31 samples, got {offsets[-1]}. Gather cohorts on the host.")
    joined = jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *contexts)
    return Data(joined, jnp.asarray(np.concatenate(labels)), jnp.asarray(offsets, jnp.int32))


def resident_bytes(population: Population, cap: int) -> int:
    """How much `resident` takes, at most."""
    inputs = population.inputs
    if isinstance(inputs, np.ndarray):
        each = inputs.dtype.itemsize * int(np.prod(inputs.shape[1:], dtype=np.int64))
    else:
        each = 8 * max(1, inputs.longest)
    return min(population.samples, population.clients * cap) * (
        each + (len(population.arms) if population.multilabel else 4)
    )


def model_of(
    population: Population, name: str = "auto", hidden: int = 128, channels: tuple[int, int] = (32, 64)
) -> Model:
    """Return the reward model of a population: of bags of words, of square images, or linear in flat features."""
    if name not in MODELS:
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, got {name!r}. Choose one.")
    arms = len(population.arms)
    if not isinstance(population.inputs, np.ndarray):
        if name not in ("auto", "bag"):
            raise ConfigError(f"samples of {population.name} are bags of words, got model {name!r}. Use 'bag'.")
        return _model("bag", len(population.vocabulary), arms, 0, (0, 0))
    shape = population.inputs.shape[1:]
    square = len(shape) == 2 and shape[0] == shape[1] and population.inputs.dtype == np.uint8
    if name == "bag" or (name == "cnn" and not square):
        raise ConfigError(f"model {name!r} does not fit samples of shape {shape} in {population.name}. Use 'linear'.")
    if name == "linear" or not square:
        return _model("linear", int(np.prod(shape)), arms, 0, (0, 0))
    return _model("cnn", int(shape[0]), arms, hidden, channels)


@lru_cache(maxsize=32)
def _model(kind: str, size: int, arms: int, hidden: int, channels: tuple[int, int]) -> Model:
    """One object a kind: what is compiled depends on it."""
    if kind == "cnn":
        return cnn(arms, size, hidden, channels)
    return (bag_of_words if kind == "bag" else linear)(size, arms)


def pay(labels: jax.Array, arms: jax.Array, table: jax.Array) -> jax.Array:
    """Return table[label, arm]; of a sample with several tags (bytes of 0 and 1), the sum over them."""
    if labels.dtype == jnp.uint8:
        return (labels * table.T[arms]).sum(axis=-1)
    return table[labels, arms]


def pay_all(labels: jax.Array, table: jax.Array) -> jax.Array:
    """Return what every arm would have paid, (samples, arms)."""
    if labels.dtype == jnp.uint8:
        return jnp.matmul(labels.astype(jnp.float32), table)
    return table[labels]


@lru_cache(maxsize=8)
def paid_by(own: OwnPay, arms: int) -> tuple[Pay, PayAll]:
    """Return what a user's own rewards pay for one arm a sample, and for all; for sources `with_contexts`."""

    def pay(given: Any, chosen: jax.Array) -> jax.Array:
        contexts, labels = given
        return own(contexts, labels, chosen)

    def pay_all(given: Any) -> jax.Array:
        samples = jax.tree.leaves(given)[0].shape[0]
        every = jnp.broadcast_to(jnp.arange(arms)[:, None], (arms, samples))
        return jax.vmap(lambda chosen: pay(given, chosen))(every).T

    return pay, pay_all


def with_contexts(source: Source) -> Source:
    """Return a source whose labels are (contexts, labels): rewards may depend on both."""
    if isinstance(source, Data):
        return source._replace(labels=(source.contexts, source.labels))

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = source(numbers, present, round_)
        return found._replace(labels=(found.contexts, found.labels))

    return cohort


def greedy(scores: jax.Array) -> jax.Array:
    """Choose the arm of the largest score."""
    chosen: jax.Array = probabilities.greedy(scores, jnp)
    return chosen


def epsilon_greedy(scores: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Choose any arm by a coin, else the greedy one."""
    chosen: jax.Array = probabilities.epsilon_greedy(scores, epsilon, jnp)  # type: ignore[arg-type]
    return chosen


def softmax(scores: jax.Array, beta: jax.Array) -> jax.Array:
    """Choose in proportion to exp(score / beta)."""
    chosen: jax.Array = probabilities.softmax(scores, beta, jnp)  # type: ignore[arg-type]
    return chosen


def falcon(scores: jax.Array, mu: jax.Array, gamma: jax.Array) -> jax.Array:
    """Choose other arms by 1 / (mu + gamma gap)."""
    chosen: jax.Array = probabilities.falcon(scores, mu, gamma, jnp)  # type: ignore[arg-type]
    return chosen


POLICIES: dict[str, Policy] = {
    "greedy": greedy, "epsilon-greedy": epsilon_greedy, "softmax": softmax, "falcon": falcon,
}  # fmt: skip
"""Policies whose parameters are arguments: another value does not compile again."""


def parameters(chosen: Exploration, arms: int) -> tuple[Number, ...]:
    """Return a policy's parameters in the order of its function."""
    mu = arms / 5 if chosen.mu is None else chosen.mu
    return {
        "greedy": (), "epsilon-greedy": (chosen.epsilon,), "softmax": (chosen.beta,), "falcon": (mu, chosen.gamma),
    }[chosen.kind]  # fmt: skip


def _contexts(x: Any) -> Any:
    return (x.words, x.weights) if isinstance(x, Bag) else x
