"""The float twin: linear models, one an arm, by recursive least squares, compiled.

Arm a keeps P_a = (I + X_a^T X_a)^-1 and w_a = P_a X_a^T r_a. Its score of a context x is s_a =
w_a.x; a reward r after pulling it gives, with k = P_a x and q = x.k,

    P_a -= k k^T / (1 + q) - lift I,    w_a += (r - s_a) k / (1 + q).

The lift is 0 by default; as a twin of a run in fixed point it has that of the run (`Terms.lift`).

Coins are given, so that a private run and its twin see the same ones. About .4 microseconds a step
at 10 arms and 20 features; the lock of the interpreter is not held, so that threads run several
seeds at once.

>>> rng = np.random.default_rng(1)
>>> x = rng.normal(size=(500, 3))
>>> rewards = (x > 0).astype(float)  # arm a pays where feature a is positive
>>> coins = Coins(
...     rng.random(500) < 0.1,
...     rng.integers(0, 3, 500),
...     rng.permuted(np.tile(np.arange(3), (500, 1)), axis=1),
... )
>>> found = run(x, rewards, coins)
>>> bool(found.rewards[-100:].mean() > 0.8), found.weights.argmax(axis=1).tolist()
(True, [0, 1, 2])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.compiled import compiled_loops
from posse.core.errors import ConfigError
from posse.systems.mpc_contextual.coins import Coins

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]

EXPLORATIONS = ("greedy", "ucb", "thompson")
GREEDY, UCB, THOMPSON = range(3)
FREE = np.empty(0, np.int64)
"""No arms to follow."""


class Rule(NamedTuple):
    """What is added to the score s_a, where q_a = x.P_a x.

    `ucb`: width sqrt(q_a) (LinUCB). `thompson`: width sqrt(q_a) z with z standard normal. That is
    exact Thompson sampling: arms have models of their own, so that weights drawn from N(w_a,
    width^2 P_a) matter through their scores alone, which are independent and N(s_a, width^2 q_a).
    """

    kind: int
    width: float
    normals: Floats
    """(steps, arms) for `thompson`, or nothing."""
    lift: float = 0.0
    """What every pull adds to the diagonal of P."""
    learns: bool = True


class Run(NamedTuple):
    """What came out, a row a step."""

    arms: Wholes
    greedy: Wholes
    """The arm of the best score, whether pulled or not."""
    rewards: Floats
    margins: Floats
    """Best score less the second best; infinite with one arm."""
    gaps: Floats
    """Best score less that of the arm that was pulled."""
    weights: Floats
    """(arms, features) at the end."""
    inverses: Floats
    """(arms, features, features) P at the end; symmetric to the bit."""
    kept: Floats
    """(checkpoints, arms, features) the weights after so many contexts."""


@compiled_loops
def winner(scores: NDArray[np.generic], ties: Wholes) -> int:
    """Return the arm with the best score, of equals that with the largest tie number."""
    best = 0
    for a in range(1, scores.shape[0]):
        if scores[a] > scores[best] or (scores[a] == scores[best] and ties[a] > ties[best]):
            best = a
    return best


@compiled_loops
def _margin(scores: Floats, best: int) -> float:
    second = -math.inf
    for a in range(scores.shape[0]):
        if a != best:
            second = max(second, scores[a])
    return float(scores[best] - second)


@compiled_loops
def _direction(inverse: Floats, x: Floats, out: Floats) -> float:
    """Write k = P x into `out` and return q = x.k; sums run over rows, which the compiler can do
    several at once.
    """
    out[:] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            out[j] += x[i] * inverse[i, j]
    q = 0.0
    for i in range(x.shape[0]):
        q += x[i] * out[i]
    return q


@compiled_loops
def _score(weights: Floats, x: Floats) -> float:
    s = 0.0
    for i in range(x.shape[0]):
        s += weights[i] * x[i]
    return s


@compiled_loops
def _scores(
    weights: Floats, inverses: Floats, x: Floats, rule: Rule, t: int, k: Floats, out: Floats
) -> None:
    """Write the scores of all arms: 2 K D operations, and 2 K D^2 more where the rule needs q."""
    for a in range(out.shape[0]):
        out[a] = _score(weights[a], x)
        if rule.kind != GREEDY:
            spread = rule.width * math.sqrt(max(_direction(inverses[a], x, k), 0.0))
            out[a] += spread if rule.kind == UCB else spread * rule.normals[t, a]


@compiled_loops
def learn(
    weights: Floats, inverse: Floats, x: Floats, reward: float, k: Floats, lift: float
) -> None:
    """Add one row to an arm's least squares: 6 D^2 operations; `k` is room to work in."""
    share = 1.0 / (1.0 + _direction(inverse, x, k))
    error = (reward - _score(weights, x)) * share
    for i in range(x.shape[0]):
        weights[i] += error * k[i]
        for j in range(x.shape[0]):
            inverse[i, j] -= k[i] * k[j] * share  # (k_i k_j) first: the same number at (j, i)
        inverse[i, i] += lift


@compiled_loops
def _copy(rows: Floats, out: Floats) -> None:
    """Copy rows: an assignment of arrays compiles seconds of code for its error message."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = rows[i, j]


@compiled_loops
def _simulate(
    first: int,
    last: int,
    features: Floats,
    rewards: Floats,
    coins: Coins,
    followed: Wholes,
    rule: Rule,
    batch: int,
    lag: int,
    points: Wholes,
    run: Run,
) -> None:
    """Run steps `first` to `last` - 1, or follow the arms of `followed` where it has any: `rewards`
    has one column.

    A step between two batches goes on from what `run` holds. With a `lag` of 1 the model learns
    from step t - 1 after it has met step t.
    """
    steps, size = features.shape
    given = followed.shape[0] > 0
    scores, k = np.zeros(run.weights.shape[0]), np.zeros(size)
    point = np.searchsorted(points, first)
    for start in range(first, last, batch):
        end = min(start + batch, last)
        for t in range(start, end):
            while point < points.shape[0] and points[point] == t:
                _copy(run.weights, run.kept[point])
                point += 1
            _scores(run.weights, run.inverses, features[t], rule, t, k, scores)
            best = winner(scores, coins.ties[t])
            drawn = coins.arms[t] if coins.explore[t] else best
            arm = followed[t] if given else drawn
            run.greedy[t], run.arms[t] = best, arm
            run.rewards[t] = rewards[t, 0 if given else arm]
            run.margins[t] = _margin(scores, best)
            run.gaps[t] = scores[best] - scores[arm]
        for t in range(
            max(start - lag, 0), (end - lag if end < steps else end) if rule.learns else 0
        ):
            arm = run.arms[t]
            learn(run.weights[arm], run.inverses[arm], features[t], run.rewards[t], k, rule.lift)
    if last == steps:
        for left in range(point, points.shape[0]):
            _copy(run.weights, run.kept[left])


def run(features: Floats, rewards: Floats, coins: Coins, **options: Any) -> Run:
    """Run the bandit over (steps, features) contexts to the end; `options` are those of
    `FloatTwin`.
    """
    twin = FloatTwin(features, rewards, coins, **options)
    twin.advance(len(features))
    return twin.run


class FloatTwin:
    """The bandit of one seed, which goes forward by whole batches."""

    def __init__(
        self,
        features: Floats,
        rewards: Floats,
        coins: Coins,
        *,
        batch: int = 1,
        exploration: str = "greedy",
        width: float = 1.0,
        normals: Floats | None = None,
        checkpoints: Sequence[int] = (),
        followed: Wholes | None = None,
        lift: float = 0.0,
        overlap: bool = False,
        start: tuple[Floats, Floats] | None = None,
        frozen: bool = False,
    ) -> None:
        """Take (steps, features) contexts in their order; `rewards` (steps, arms) are drawn
        already.

        The model stands still for `batch` contexts and then learns from them one after the other.
        `normals` (steps, arms) belong to `thompson`. A checkpoint c holds the weights that meet
        context c, counted from 0. Where arms are `followed`, `rewards` (steps, 1) are theirs. With
        `overlap`, for batches of one, the model learns from every context after it has chosen for
        the next. The model starts from the weights and inverses of `start`, and with `frozen` stays
        as it is.
        """
        steps, arms, size = check_inputs(features, rewards, coins, one_column=followed is not None)
        check.at_least(1, batch=batch)
        points = np.sort(np.asarray(checkpoints, np.int64))
        if points.size and not 0 <= points[0] <= points[-1] <= steps:
            raise ConfigError(
                f"checkpoints must be in [0, {steps}], got {points[0]} to {points[-1]}."
            )
        rule = _rule(exploration, width, normals, steps, arms)._replace(
            lift=lift, learns=not frozen
        )
        if overlap:
            check.between(1, 1, batch=batch)
        self.time, self._steps, self._batch, self._lag = 0, steps, batch, int(overlap)
        self._fixed = (
            plain(features),
            plain(rewards),
            tidy(coins),
            FREE if followed is None else followed,
            rule,
        )
        self._points = points
        weights, inverses = (
            _start(arms, size) if start is None else (np.array(start[0]), np.array(start[1]))
        )
        self.run = Run(
            np.empty(steps, np.int64),
            np.empty(steps, np.int64),
            np.empty(steps),
            np.empty(steps),
            np.empty(steps),
            weights,
            inverses,
            np.empty((len(points), arms, size)),
        )

    @property
    def arms(self) -> Wholes:
        """The arms that were pulled, in the first `time` places."""
        return self.run.arms

    def advance(self, steps: int) -> None:
        """Take so many contexts more, up to the end of a batch."""
        first, self.time = (
            self.time,
            min(self._steps, self.time - (-steps // self._batch) * self._batch),
        )
        _simulate(first, self.time, *self._fixed, self._batch, self._lag, self._points, self.run)


def replay(features: Floats, arms: Wholes, rewards: Floats, ties: Wholes, **options: Any) -> Run:
    """Follow the arms and rewards (steps,) of another run, and tell which arm was the best at every
    step.

    Where a private run pulled another arm than `greedy` and did not explore, `gaps` is how far
    apart the two scores were: at most twice the error of its scores. `options` are those of
    `FloatTwin`.
    """
    followed = np.ascontiguousarray(arms, np.int64)
    coins = Coins(np.zeros(len(_table(ties=ties)), np.bool_), followed, ties)
    _shape(followed.shape, rewards=rewards)
    return run(features, np.reshape(rewards, (-1, 1)), coins, followed=followed, **options)


def _rule(exploration: str, width: float, normals: Floats | None, steps: int, arms: int) -> Rule:
    check.one_of(EXPLORATIONS, exploration=exploration)
    check.at_least(0, width=width)
    kind = EXPLORATIONS.index(exploration)
    if kind != THOMPSON:
        return Rule(kind, width, np.empty((0, 0)))
    if normals is None:
        raise ConfigError(
            f"thompson needs normals of shape ({steps}, {arms}), one a step and arm, got none."
        )
    _shape((steps, arms), normals=normals)
    return Rule(kind, width, plain(normals))


def _start(arms: int, size: int) -> tuple[Floats, Floats]:
    """Weights and inverses before the first step."""
    return np.zeros((arms, size)), np.tile(np.eye(size), (arms, 1, 1))


def plain(numbers: ArrayLike) -> Floats:
    """Make float64 in order of rows, for which the loops are compiled."""
    return np.ascontiguousarray(numbers, np.float64)


def tidy(coins: Coins) -> Coins:
    """Make the arrays of coins of the kind for which the loops are compiled."""
    return Coins(
        np.ascontiguousarray(coins.explore, np.bool_),
        np.ascontiguousarray(coins.arms, np.int64),
        np.ascontiguousarray(coins.ties, np.int64),
    )


def check_inputs(
    features: Floats, rewards: Floats, coins: Coins, *, one_column: bool = False
) -> tuple[int, int, int]:
    """Return the numbers of steps, arms and features; refuse arrays that do not agree on them.

    Compiled loops do not look where they read. With `one_column` rewards are those of the arms that
    were pulled.
    """
    (steps, arms), size = _table(rewards=rewards).shape, _table(features=features).shape[1]
    if one_column:
        arms = _table(ties=coins.ties).shape[1]
    _shape((steps, size), features=features)
    _shape((steps,), explore=coins.explore)
    _shape((steps,), arms=coins.arms)
    _shape((steps, arms), ties=coins.ties)
    if steps and not 0 <= np.min(coins.arms) <= np.max(coins.arms) < arms:
        raise ConfigError(
            f"arms must be in 0 to {arms - 1}, got {np.min(coins.arms)} to {np.max(coins.arms)}."
        )
    return steps, arms, size


def _shape(shape: tuple[int, ...], **arrays: NDArray[np.generic]) -> None:
    ((name, array),) = arrays.items()
    if array.shape != shape:
        raise ConfigError(f"{name} must have shape {shape}, got {array.shape}.")


def _table(**arrays: NDArray[np.generic]) -> NDArray[np.generic]:
    ((name, array),) = arrays.items()
    if array.ndim != 2 or array.shape[1] == 0:
        raise ConfigError(
            f"{name} must be a table of steps and at least one column, got shape {array.shape}."
        )
    return array
