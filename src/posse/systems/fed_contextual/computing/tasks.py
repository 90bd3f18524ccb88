"""What is learnt and how: a task that is compiled once, its numbers, policies and rewards, and all
randomness.

Every draw is a function of (seed, purpose, round, client): it depends neither on the order of
clients nor on devices. Rewards come from a table, (labels, arms), which is an argument of what is
compiled: all scenarios and the rounds of a world that drifts share one program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from posse.policies.contextual.explorations import (
    EpsilonGreedy,
    Exploration,
    Falcon,
    Greedy,
    Softmax,
    among,
)
from posse.systems.fed_contextual.computing.models import Contexts, Labels, Model, Number, Whole

if TYPE_CHECKING:
    from posse.systems.fed_contextual.computing.server import Clipping, Optimiser

Policy: TypeAlias = Callable[..., jax.Array]
"""(samples, arms) probabilities from scores and what `Rates.explore` holds."""
Pay: TypeAlias = Callable[..., jax.Array]
"""(samples,) rewards from labels, arms and what `Rates.pays` holds."""
PayAll: TypeAlias = Callable[..., jax.Array]
"""(samples, arms) rewards of all arms from labels and what `Rates.pays` holds."""
OwnPay: TypeAlias = Callable[[Contexts, Labels, jax.Array], jax.Array]
"""A user's rewards, (samples,), from contexts, labels and the arms chosen: a function that jax can
trace.
"""


class Task(NamedTuple):
    """What is learnt and how; fixed for a run. It is a static argument of what is compiled."""

    model: Model
    policy: Policy
    pay: Pay
    optimiser: Optimiser
    clipping: Clipping
    pay_all: PayAll | None = None
    """For supervised rounds."""
    batch: int = 16
    loss: str = "regression"
    lanes: int = 1
    """Clients worked on side by side."""
    levels: int = 0
    """Whole numbers from 0 to the clipping norm where sums are secure: updates are rounded to them;
    0 keeps floats.
    """
    learns: bool = True
    """Whether clients learn, or only act: a deployed model that is left as it is."""
    centralised: bool = False
    """Whether all samples of a round lie with one client: what a federation is measured against."""
    older: int = 0
    """Deployed models before the newest that are kept, since clients' logs may be of them."""


class Rates(NamedTuple):
    """Numbers that may differ from run to run without compiling again."""

    client: Number
    server: Number
    noise: Number = 0.0
    """Noise multiplier: standard deviation of the noise on the sum, in clipping norms."""
    divisor: Number = 0.0
    """What the sum is divided by; 0 for the number of clients present, which no claim of privacy
    allows.
    """
    explore: tuple[Number, ...] = ()
    """Parameters of the policy."""
    pays: tuple[jax.Array, ...] = ()
    """What rewards depend on beside labels: a table, which may differ from round to round."""
    counted: Number = 0.0
    """Standard deviation of the noise on the count of updates within the norm."""
    seen: jax.Array | None = None
    """(arms,) whose rewards supervised rounds learn from; all."""
    here: jax.Array | None = None
    """(arms,) which can be chosen; all."""

    def chances(
        self, policy: Policy, scores: jax.Array, explore: tuple[Number, ...] | None = None
    ) -> jax.Array:
        """Return the chance of every arm by a policy, with its parameters where they are not those
        of the rates.
        """

        def every(given: jax.Array) -> jax.Array:
            return policy(given, *(self.explore if explore is None else explore))

        made: jax.Array = (
            every(scores) if self.here is None else among(every, scores, self.here, jnp)
        )
        return made

    def then(self, made: Whole, age: Whole) -> Rates:
        """Return the rates of a log by how many rounds ago it was made, and how many deployments
        ago its model was.

        Rewards and arms that differ from round to round have a first axis of rounds, parameters of
        the policy one of deployments, the newest first.
        """
        return self._replace(
            explore=tuple(jnp.asarray(one)[age] if jnp.ndim(one) else one for one in self.explore),
            pays=tuple(table[made] if jnp.ndim(table) > 2 else table for table in self.pays),
            here=self.here if self.here is None or jnp.ndim(self.here) < 2 else self.here[made],
        )


# Randomness ---------------------------------------------------------------------------------------

INIT, ACT, SHUFFLE, NOISE, ROUNDING, STUDY, COUNT = range(7)
"""What is drawn: first parameters, arms, the order of training, noise, rounding to whole numbers,
the order of supervised training, noise on the count of updates within the norm.
"""


def key_of(seed: jax.Array | int, purpose: int, round_: Whole = 0, client: Whole = 0) -> jax.Array:
    """Return the key of a draw; a seed is in [0, 2^32)."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), purpose)
    return jax.random.fold_in(jax.random.fold_in(key, round_), client)


class Draws(NamedTuple):
    """The draws of one client in one round."""

    seed: jax.Array | int
    round: Whole
    client: Whole

    def key(self, purpose: int) -> jax.Array:
        """Return the key of one purpose."""
        return key_of(self.seed, purpose, self.round, self.client)


# Policies -----------------------------------------------------------------------------------------


def policy_of(kind: type[Exploration]) -> Policy:
    """Return the formula of a kind of exploration; one object a kind, since what is compiled
    depends on it.
    """
    return _traced(kind.formula)


@lru_cache(maxsize=32)
def _traced(formula: Policy) -> Policy:
    return partial(formula, xp=jnp)


greedy, epsilon_greedy, softmax, falcon = map(policy_of, (Greedy, EpsilonGreedy, Softmax, Falcon))


# Rewards ------------------------------------------------------------------------------------------


def pay(labels: jax.Array, arms: jax.Array, table: jax.Array) -> jax.Array:
    """Return table[label, arm]; of a sample with several tags (bytes of 0 and 1), the sum over
    them.
    """
    if labels.dtype == jnp.uint8:
        return (labels * table.T[arms]).sum(axis=-1)
    return table[labels, arms]


def pay_all(labels: jax.Array, table: jax.Array) -> jax.Array:
    """Return what every arm would have paid, (samples, arms)."""
    if labels.dtype == jnp.uint8:
        return jnp.matmul(labels.astype(jnp.float32), table)
    return table[labels]


def pay_labels(given: Labels, table: jax.Array) -> jax.Array:
    """Do the same where labels are (contexts, labels)."""
    return pay_all(given[1], table)


@lru_cache(maxsize=8)
def paid_by(own: OwnPay, arms: int) -> tuple[Pay, PayAll]:
    """Return what a user's own rewards pay for one arm a sample, and for all; labels are (contexts,
    labels).
    """

    def pay(given: Labels, chosen: jax.Array) -> jax.Array:
        contexts, labels = given
        return own(contexts, labels, chosen)

    def pay_all(given: Labels) -> jax.Array:
        samples = jax.tree.leaves(given)[0].shape[0]
        every = jnp.broadcast_to(jnp.arange(arms)[:, None], (arms, samples))
        return jax.vmap(lambda chosen: pay(given, chosen))(every).T

    return pay, pay_all
