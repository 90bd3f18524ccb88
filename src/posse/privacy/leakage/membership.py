"""Membership inference: was a row among those that a bandit's model was learnt from?

The attacker runs the model on a row and sees the arm it pulls and the reward, or the error of its score as well. Yeom,
Giacomelli, Fredrikson, Jha: Privacy risk in machine learning: analyzing the connection to overfitting, CSF 2018.

| attack | calls a row a member if |
|---|---|
| `reward_attack` | p_train(r given a) > p_test(r given a), estimated from rows known to be members and others |
| `loss_attack` | the squared error of the pulled arm's score is small: blind where a ridge shrinks what it learnt |
| `error_attack` | the error r - s of the pulled arm's score is more frequent on training rows: uses both |
| `reward_gap` | no rule: abs(mean reward on training rows - mean reward on held-out rows), as a published code has it |

A rule that is scored on the rows it was fitted on shows an advantage where there is no leak: about sqrt(2 / pi)
standard errors of a mean reward per arm. Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party
contextual bandits, 2019, figure 7, reports 1-2 % early and below 0.75 % later, and does not say that rows were kept
apart. Their code computes `reward_gap` over all rows learnt so far and all held-out ones: it looks at no arm, keeps no
rows apart, and its absolute value is above 0 for any model (`gap_without_leak`). Here one half of the rows fits the
rule and the other scores it (`split`); `split=False` is the in-sample form, whose result says so and has no interval.

Intervals are over rows, given the model: a model of another seed has another advantage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.leakage.rates import Membership

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

REWARD = "reward given the arm"
LOSS = "loss below a threshold"
ERROR = "error of the score"


@dataclass(frozen=True, eq=False)
class Pairs:
    """The arm that a model pulls and the reward it earns, for each of some rows.

    Rewards are compared as they are: round real-valued ones into a few bins first, or no value is ever seen twice.
    """

    arms: Ints
    rewards: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", np.asarray(self.arms, np.int64))
        object.__setattr__(self, "rewards", _finite(self.rewards, "rewards"))
        if self.arms.shape != self.rewards.shape:
            raise ConfigError(f"every arm needs its reward: got {self.arms.size} arms and {self.rewards.size} rewards.")

    def __len__(self) -> int:
        return len(self.arms)

    def take(self, rows: Ints) -> Pairs:
        """Keep some rows."""
        return Pairs(self.arms[rows], self.rewards[rows])


def reward_attack(
    members: Pairs, others: Pairs, *, split: bool = True, seed: int = 0, confidence: float = 0.95
) -> Membership:
    """Attack by the reward given the arm, from empirical distributions; what was never seen is called no member.

    >>> learnt_by_heart = Pairs(np.zeros(200), np.ones(200))
    >>> guessed = Pairs(np.zeros(200), np.arange(200) % 2)
    >>> round(reward_attack(learnt_by_heart, guessed).advantage, 1)
    0.5
    """
    fit, score = _rows(len(members), split, seed, 0)
    fit_others, score_others = _rows(len(others), split, seed, 1)
    pairs, arms = _codes(members, others)
    at = len(members)
    for_member = _conditional(pairs, arms, fit)
    for_other = _conditional(pairs, arms, at + fit_others)
    called = (for_member > for_other)[pairs]
    rule = "p_train(r | a) > p_test(r | a)"
    return _verdict(REWARD, rule, called[:at][score], called[at:][score_others], split, confidence)


def loss_attack(
    members: ArrayLike, others: ArrayLike, *, split: bool = True, seed: int = 0, confidence: float = 0.95
) -> Membership:
    """Attack by the loss of each row, such as `score_errors` squared: a member if it is at most a threshold.

    The threshold is the one of largest TPR - FPR.

    >>> made = loss_attack(np.linspace(0, 1, 1000), np.linspace(0, 2, 1000))
    >>> round(made.advantage, 1), made.leaks
    (0.5, True)
    """
    inside, outside = _finite(members, "losses"), _finite(others, "losses")
    fit, score = _rows(len(inside), split, seed, 0)
    fit_others, score_others = _rows(len(outside), split, seed, 1)
    threshold = _threshold(inside[fit], outside[fit_others])
    rule = f"loss at most {threshold:.4g}"
    called, accused = inside[score] <= threshold, outside[score_others] <= threshold
    return _verdict(LOSS, rule, called, accused, split, confidence)


def error_attack(
    members: ArrayLike,
    others: ArrayLike,
    *,
    bins: int = 20,
    split: bool = True,
    seed: int = 0,
    confidence: float = 0.95,
) -> Membership:
    """Attack by the error of each row: a member if its bin holds a larger share of the members than of the others.

    Yeom's second adversary, with the densities of the error estimated from `bins` quantiles instead of taken as normal.

    >>> made = error_attack(np.linspace(0, 1, 1000), np.linspace(0, 2, 1000))
    >>> round(made.advantage, 1), made.leaks
    (0.5, True)
    """
    check.at_least(2, bins=bins)
    inside, outside = _finite(members, "errors"), _finite(others, "errors")
    fit, score = _rows(len(inside), split, seed, 0)
    fit_others, score_others = _rows(len(outside), split, seed, 1)
    pooled = np.concatenate([inside[fit], outside[fit_others]])
    edges = np.quantile(pooled, np.arange(1, bins) / bins)
    at, at_others = np.searchsorted(edges, inside, "right"), np.searchsorted(edges, outside, "right")
    shares = [np.bincount(some, minlength=bins) / len(some) for some in (at[fit], at_others[fit_others])]
    called = shares[0] > shares[1]
    rule = f"one of {int(called.sum())} bins of {bins}"
    return _verdict(ERROR, rule, called[at[score]], called[at_others[score_others]], split, confidence)


def score_errors(scores: ArrayLike, pairs: Pairs) -> Floats:
    """Error of the score of the pulled arm: r - s_a; `scores` is an array (rows, arms).

    >>> score_errors([[0.5, 1.0]], Pairs(np.array([1]), np.array([0.0])))
    array([-1.])
    """
    table = np.asarray(scores, np.float64)
    if table.ndim != 2 or len(table) != len(pairs):
        raise ConfigError(f"scores must have the shape (rows, arms) with {len(pairs)} rows, got {table.shape}.")
    found: Floats = pairs.rewards - table[np.arange(len(pairs)), pairs.arms]
    return found


def reward_gap(members: ArrayLike, others: ArrayLike) -> float:
    """abs(mean reward of members - of others), in sample: the advantage that the published code reports.

    For rewards of 0 and 1 and without the absolute value it is Yeom's adversary for a bounded loss, 1 - r: one that
    calls every rewarded row a member.

    >>> reward_gap([1, 1, 0, 1], [0, 1, 0, 1])
    0.25
    """
    return abs(float(_finite(members, "rewards").mean() - _finite(others, "rewards").mean()))


def gap_without_leak(share: float, members: int, others: int) -> float:
    """Mean of `reward_gap` where there is no leak: sqrt(2/pi) sqrt(p (1 - p) (1/n + 1/m)), p the share of rewards.

    >>> [round(gap_without_leak(p, n, 10_000), 4) for p, n in ((0.5, 500), (0.8, 5_000), (0.9, 60_000))]
    [0.0183, 0.0055, 0.0026]
    """
    return math.sqrt(2 / math.pi * share * (1 - share) * (1 / members + 1 / others))


def _rows(count: int, split: bool, seed: int, group: int) -> tuple[Ints, Ints]:
    """Return the rows that fit the rule and those that score it: two random halves, or all rows twice."""
    if count < (2 if split else 1):
        raise ConfigError(f"members and others must have {2 if split else 1} rows each at least, got {count}.")
    if not split:
        return np.arange(count), np.arange(count)
    shuffled = np.random.default_rng((seed, group)).permutation(count)
    return shuffled[: count // 2], shuffled[count // 2 :]


def _codes(members: Pairs, others: Pairs) -> tuple[Ints, Ints]:
    """Number the pairs (arm, reward) and the arms that occur."""
    _, arms = np.unique(np.concatenate([members.arms, others.arms]), return_inverse=True)
    values, rewards = np.unique(np.concatenate([members.rewards, others.rewards]), return_inverse=True)
    _, pairs = np.unique(arms * len(values) + rewards, return_inverse=True)
    return pairs, arms


def _conditional(pairs: Ints, arms: Ints, rows: Ints) -> Floats:
    """Estimate p(r | a) of every pair from some rows; 0 for what they do not hold."""
    of_pair = np.zeros(pairs.max() + 1, np.int64)
    of_pair[pairs] = arms
    seen = np.bincount(pairs[rows], minlength=len(of_pair))
    pulls = np.bincount(arms[rows], minlength=arms.max() + 1)[of_pair]
    found: Floats = seen / np.maximum(pulls, 1)
    return found


def _threshold(members: Floats, others: Floats) -> float:
    """Return the threshold of largest TPR - FPR, half-way to the next loss; below all losses if none is above 0."""
    inside, outside = np.sort(members), np.sort(others)
    gains = np.arange(1, len(inside) + 1) / len(inside) - np.searchsorted(outside, inside, "right") / len(outside)
    best = int(gains.argmax())
    if gains[best] <= 0:
        return -math.inf
    above = np.concatenate([inside[inside > inside[best]], outside[outside > inside[best]]])
    return float((inside[best] + above.min()) / 2) if len(above) else float(inside[best])


def _verdict(attack: str, rule: str, members: Bools, others: Bools, split: bool, confidence: float) -> Membership:
    found, accused = int(members.sum()), int(others.sum())
    return Membership(attack, rule, len(members), found, len(others), accused, split, confidence)


def _finite(values: ArrayLike, what: str) -> Floats:
    made = np.asarray(values, np.float64)
    if made.ndim != 1 or not len(made):
        raise ConfigError(f"{what} must be a list with one number a row, got the shape {made.shape}.")
    if not np.isfinite(made).all():
        raise ConfigError(f"{what} must be finite, got {made[~np.isfinite(made)][0]}. Leave out rows without one.")
    return made
