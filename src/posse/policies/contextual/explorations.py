"""Exploration as probabilities: from the predicted rewards of all arms to the chance of each.

Formulas are over an array namespace `xp` (numpy or jax.numpy) and over any leading axes, so that
one source serves a device, a cohort and a test. The greedy arm is the first of those with the
largest score. numpy alone is needed.

| kind | chance of arm a, greedy arm a*, K arms |
|---|---|
| `greedy` | 1 for a*, else 0 |
| `epsilon-greedy` | epsilon / K, and 1 - epsilon more for a* |
| `softmax` | proportional to exp(f(a) / beta) |
| `falcon` | 1 / (mu + gamma (f(a*) - f(a))) for a != a*, the rest for a* |

Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023,
algorithm 2; FALCON: Simchi-Levi, Xu: Bypassing the monster, 2022, with constant mu and gamma as in
Foster, Rakhlin: Beyond UCB, 2020. Where FALCON's chances of other arms add up to more than 1 (mu
below K - 1) they are divided by their sum, as the authors do. Defaults are the paper's: epsilon
0.05, beta 0.05, gamma 1000, and mu = K / 5 (12 for 62 arms, 10 for 50).

A kind is a frozen dataclass whose `formula` gives the chances; its parameters are its fields. A
user's own function becomes such a class (`adopt`).

>>> Softmax(beta=0.1).probabilities(np.array([0.3, 0.3])).tolist()
[0.5, 0.5]
>>> Falcon(mu=0)
Traceback (most recent call last):
...
posse.core.errors.ConfigError: [P100] mu must be a finite number above 0, got 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field, make_dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np

from posse.core import check
from posse.core.errors import PolicyError
from posse.policies.own import Revision, explain, parameter, policy_digest

Array: TypeAlias = Any
"""An array of numpy or of jax; neither names the other's type."""


def greedy(scores: Array, xp: Any = np) -> Array:
    """1 for the first of the largest scores, else 0.

    >>> greedy(np.array([0.1, 0.9, 0.9])).tolist()
    [0.0, 1.0, 0.0]
    """
    return _best(scores, xp).astype(scores.dtype)


def epsilon_greedy(scores: Array, epsilon: float, xp: Any = np) -> Array:
    """Give epsilon / K to every arm and the rest to the greedy one.

    >>> epsilon_greedy(np.array([0.1, 0.9]), 0.2).tolist()
    [0.1, 0.9]
    """
    other = epsilon / scores.shape[-1]
    return xp.where(_best(scores, xp), 1 - epsilon + other, other).astype(scores.dtype)


def softmax(scores: Array, beta: float, xp: Any = np) -> Array:
    """Give exp(f / beta) / sum of those; the largest score is subtracted first, so that nothing
    overflows.

    >>> softmax(np.array([0.0, np.log(3.0)]), 1.0).round(6).tolist()
    [0.25, 0.75]
    """
    raised = xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) / beta)
    return raised / xp.sum(raised, axis=-1, keepdims=True)


def falcon(scores: Array, mu: float, gamma: float, xp: Any = np) -> Array:
    """Give 1 / (mu + gamma gap) to every other arm, divided by their sum where that is above 1; the
    rest is greedy.

    >>> falcon(np.array([0.5, 0.25, 0.0]), mu=4.0, gamma=8.0).round(6).tolist()
    [0.708333, 0.166667, 0.125]
    """
    best = _best(scores, xp)
    gap = xp.max(scores, axis=-1, keepdims=True) - scores
    others = xp.where(best, 0.0, 1.0 / (mu + gamma * gap))
    others = others / xp.maximum(1.0, xp.sum(others, axis=-1, keepdims=True))
    # Rounding may leave the sum of the others above 1 by one unit in the last place.
    rest = xp.maximum(1.0 - xp.sum(others, axis=-1, keepdims=True), 0.0)
    return xp.where(best, rest, others).astype(scores.dtype)


def among(policy: Callable[[Array], Array], scores: Array, here: Array, xp: Any = np) -> Array:
    """Give the chances of a policy where some arms are absent: 0 for these, and the others' divided
    by their sum.

    The policy is given a score below all others for an absent arm: low - 1 - |low|, low the lowest
    of those that are here. Where it has no chance for any arm that is here, the greedy one of these
    has all.

    >>> half = np.array([True, False, True])
    >>> among(lambda scores: epsilon_greedy(scores, 0.3), np.array([0.1, 0.9, 0.2]), half).round(
    ...     3
    ... ).tolist()
    [0.111, 0.0, 0.889]
    """
    low = xp.min(xp.where(here, scores, xp.inf), axis=-1, keepdims=True)
    seen = xp.where(here, scores, low - 1 - xp.abs(low)).astype(scores.dtype)
    chances = xp.where(here, policy(seen), 0.0)
    total = xp.sum(chances, axis=-1, keepdims=True)
    return xp.where(total > 0, chances / xp.where(total > 0, total, 1.0), greedy(seen, xp)).astype(
        scores.dtype
    )


def draw(probabilities: Array, u: Array, xp: Any = np) -> tuple[Array, Array]:
    """Draw an arm from each row by a number u in [0, 1) a row; return the arm and its own
    probability.

    Inverse CDF: the number of arms whose cumulated chance is at most u times the last. An arm of
    chance 0 is never drawn, whatever the rounding of the sums. What is returned is the row's entry
    of the arm drawn, bit for bit.

    >>> arm, chance = draw(np.array([[0.0, 0.25, 0.75]] * 3), np.array([0.0, 0.3, 0.9999]))
    >>> arm.tolist(), chance.tolist()
    ([1, 2, 2], [0.25, 0.75, 0.75])
    """
    reached = xp.cumsum(probabilities, axis=-1)
    last = reached[..., -1:]
    passed = xp.sum(reached <= u[..., None] * last, axis=-1)
    # u times the last sum may round up to it: then the last arm that has a chance is meant.
    arm = xp.minimum(passed, xp.sum(reached < last, axis=-1))
    return arm, xp.take_along_axis(probabilities, arm[..., None], axis=-1)[..., 0]


def _best(scores: Array, xp: Any) -> Array:
    """Whether an arm is the first of the largest."""
    return xp.arange(scores.shape[-1]) == xp.argmax(scores, axis=-1)[..., None]


@dataclass(frozen=True)
class Exploration:
    """A kind of exploration and its parameters, checked once; hashable, so that a compiled function
    may depend on it.

    `formula(scores, *values, xp)` gives the chance of every arm, (..., K), over the array namespace
    `xp` (numpy or jax.numpy); `values` are numbers, so that another value of a parameter does not
    compile it again.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    formula: ClassVar[Callable[..., Array]]

    def values(self, arms: int) -> tuple[float, ...]:
        """The numbers that `formula` takes after the scores, for so many arms."""
        return astuple(self)

    def probabilities(self, scores: Array, xp: Any = np) -> Array:
        """Give the chance of every arm, (..., K)."""
        return type(self).formula(scores, *self.values(scores.shape[-1]), xp=xp)

    def describe(self) -> dict[str, Any]:
        """Name, parameters and a digest of what it computes, as records keep them and parties
        compare them.
        """
        kind = type(self)
        own = getattr(kind, "function", None)
        sources = (own,) if own is not None else (kind, kind.formula)
        return {
            "name": self.name or kind.__name__,
            "parameters": asdict(self),
            "digest": policy_digest(kind, *sources),
        }


@dataclass(frozen=True)
class Greedy(Exploration):
    """The arm of largest predicted reward."""

    name: ClassVar[str] = "greedy"
    revision: ClassVar[Revision] = Revision(
        1, "e796e012ca76a46ebd052f916978158df1b2a27001860b64567e6ee4cfb35d26"
    )
    summary: ClassVar[str] = "the arm of largest predicted reward"
    formula = staticmethod(greedy)


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """The greedy arm, or any arm with probability epsilon."""

    name: ClassVar[str] = "epsilon-greedy"
    revision: ClassVar[Revision] = Revision(
        1, "eaa93c1f703d6dd06a0ab3a9a341badccf5b172ec71740ce05a1b61854cc1663"
    )
    summary: ClassVar[str] = "the greedy arm, or any arm with probability epsilon"
    formula = staticmethod(epsilon_greedy)

    epsilon: float = parameter(
        0.05, "exploration rate: how often any arm is taken; no privacy epsilon"
    )

    def __post_init__(self) -> None:
        check.between(0, 1, epsilon=self.epsilon)


@dataclass(frozen=True)
class Softmax(Exploration):
    """Chances in proportion to exp(f / beta)."""

    name: ClassVar[str] = "softmax"
    revision: ClassVar[Revision] = Revision(
        1, "75c9d14e9bbb629b5f96bcd195cddbdf22a127f2cb86cca9427464bf17bef7d1"
    )
    summary: ClassVar[str] = "chances in proportion to exp(predicted reward / beta)"
    formula = staticmethod(softmax)

    beta: float = parameter(0.05, "temperature: small for the greedy arm, large for any arm")

    def __post_init__(self) -> None:
        check.positive(beta=self.beta)


@dataclass(frozen=True)
class Falcon(Exploration):
    """Chances of other arms fall with their gap; the greedy arm has the rest."""

    name: ClassVar[str] = "falcon"
    revision: ClassVar[Revision] = Revision(
        1, "048345fbea2903b4d5e8f136f37399a89cad83d965e397bc320fb4e9fcab3cbd"
    )
    summary: ClassVar[str] = "other arms by 1 / (mu + gamma gap), the greedy arm the rest"
    formula = staticmethod(falcon)

    mu: float | None = parameter(
        None, "chance of another arm without a gap is 1 / mu; a fifth of the arms if left out"
    )
    gamma: float = parameter(1000.0, "how fast the chance of an arm falls with its gap")

    def __post_init__(self) -> None:
        if self.mu is not None:
            check.positive(mu=self.mu)
        check.at_least(0, gamma=self.gamma)

    def values(self, arms: int) -> tuple[float, ...]:
        """Mu and gamma."""
        return (arms / 5 if self.mu is None else self.mu, self.gamma)


EXPLORATIONS: dict[str, type[Exploration]] = {
    kind.name: kind for kind in (Greedy, EpsilonGreedy, Softmax, Falcon)
}
"""The kinds that ship, by name."""


@lru_cache(maxsize=64)
def adopt(function: Any) -> type[Exploration] | None:
    """Make a class of a function `f(scores, ...)` that gives chances; what is not callable gives
    None.

    Parameters are its arguments after the scores, with their defaults; it gets the array namespace
    if it takes `xp`.

    >>> def flat(scores, width=1.0, xp=np):
    ...     return xp.ones_like(scores) / scores.shape[-1]
    >>> adopt(flat)(width=2.0).probabilities(np.array([0.1, 0.9])).tolist()
    [0.5, 0.5]
    """
    if not callable(function) or isinstance(function, type):
        return None
    name = getattr(function, "__name__", type(function).__name__)
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except ValueError:
        raise PolicyError(
            f"the arguments of {name} cannot be read. Give a function f(scores, ...)."
        ) from None
    if not arguments:
        raise PolicyError(f"{name} must take the scores of all arms, (..., K), got no argument.")
    takes_xp = any(each.name == "xp" for each in arguments)

    def formula(scores: Array, *values: float, xp: Any = np) -> Array:
        return function(scores, *values, **({"xp": xp} if takes_xp else {}))

    numbers = [
        (each.name, float, field(default=each.default, metadata={"meaning": "parameter"}))
        if each.default is not inspect.Parameter.empty
        else (each.name, float)
        for each in arguments[1:]
        if each.name != "xp"
    ]
    members = {
        "name": name,
        "function": staticmethod(function),
        "formula": staticmethod(formula),
        "__post_init__": lambda self: _check_chances(self, name),
    }
    return make_dataclass(name, numbers, bases=(Exploration,), frozen=True, namespace=members)


def _check_chances(made: Exploration, name: str) -> None:
    """Try a user's function on scores of a few shapes: chances of every arm that add up to 1."""
    draws = np.random.default_rng(1)
    for shape in ((2,), (4, 5), (2, 3, 62)):
        scores = draws.normal(size=shape).astype(np.float32)
        before = scores.copy()
        try:
            chances = np.asarray(made.probabilities(scores))
        except Exception as error:
            raise PolicyError(
                f"{name} fails on scores of shape {shape}: {explain(error)}."
            ) from error
        if chances.shape != shape:
            raise PolicyError(
                f"{name} must give a chance for every arm, {shape}, got shape {chances.shape}."
            )
        if not (np.isfinite(chances).all() and (chances >= 0).all()):
            raise PolicyError(f"{name} must give chances of at least 0, got {chances.min():g}.")
        if np.abs(chances.sum(axis=-1) - 1).max() > 1e-4:
            raise PolicyError(
                f"{name} must give chances that add up to 1, got "
                f"{chances.sum(axis=-1).ravel()[0]:.6g}."
            )
        if not np.array_equal(scores, before):
            raise PolicyError(f"{name} changes the scores it is given. Return new ones.")
