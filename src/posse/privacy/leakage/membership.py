"""Membership inference: was a row among those that a bandit's model was learnt from?

The attacker runs the model on a row and sees the arm it pulls and the reward, or the error of its
score as well. Yeom, Giacomelli, Fredrikson, Jha: Privacy risk in machine learning: analyzing the
connection to overfitting, CSF 2018.

| attack | calls a row a member if |
|---|---|
| `BY_REWARD` | p_train(r given a) > p_test(r given a), estimated from rows known to be members and others |
| `BY_ERROR` | the error r - s of the pulled arm's score is more frequent on training rows: uses both |
| `reward_gap` | no rule: abs(mean reward on training rows - mean reward on held-out rows), as a published code has it |

A rule that is scored on the rows it was fitted on shows an advantage where there is no leak: about
sqrt(2 / pi) standard errors of a mean reward per arm. Hannun, Knott, Sengupta, van der Maaten:
Privacy-preserving multi-party contextual bandits, 2019, figure 7, reports 1-2 % early and below
0.75 % later, and does not say that rows were kept apart. Their code computes `reward_gap` over all
rows learnt so far and all held-out ones: it looks at no arm, keeps no rows apart, and its absolute
value is above 0 for any model (`gap_without_leak`). Here one half of the rows fits the rule and the
other scores it (`split`); `split=False` is the in-sample form, whose result says so and has no
interval.

Intervals are over rows, given the model: a model of another seed has another advantage. A rule is
an `Attack`: an estimate from what the adversary has, apart from its verdict; `infer` makes both of
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from posse.core.errors import ConfigError
from posse.core.roles import View
from posse.core.statistics import wilson
from posse.privacy.leakage.attack import Attack, Evidence, Score
from posse.privacy.leakage.scores import Bools, Floats, Ints

BINS = 20


@dataclass(frozen=True, eq=False)
class Pairs:
    """The arm that a model pulls and the reward it earns, for each of some rows.

    Rewards are compared as they are: round real-valued ones into a few bins first, or no value is
    ever seen twice.
    """

    arms: Ints
    rewards: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", np.asarray(self.arms, np.int64))
        object.__setattr__(self, "rewards", _finite(self.rewards, "rewards"))
        if self.arms.shape != self.rewards.shape:
            raise ConfigError(
                f"every arm needs its reward: got {self.arms.size} arms and {self.rewards.size} "
                "rewards."
            )

    def __len__(self) -> int:
        return len(self.arms)

    def take(self, rows: Ints) -> Pairs:
        """Keep some rows."""
        return Pairs(self.arms[rows], self.rewards[rows])


Rows = TypeVar("Rows", Pairs, Floats)


class Called(NamedTuple):
    """The estimate: which rows are called members, and by which rule."""

    rule: str
    rows: Bools


def call_by_reward(view: View) -> Called:
    """Call a row a member if its reward is more frequent on known members, given the arm; p(r given
    a) is counted.

    A pair of arm and reward that was never seen is called no member.
    """
    members, others, rows = _known(view)
    pairs, arms = _codes(members, others, rows)
    first, second = len(members), len(members) + len(others)
    for_member = _conditional(pairs, arms, np.arange(first))
    for_other = _conditional(pairs, arms, np.arange(first, second))
    return Called("p_train(r | a) > p_test(r | a)", (for_member > for_other)[pairs[second:]])


def call_by_error(view: View) -> Called:
    """Call a row a member if its bin of errors holds a larger share of the known members than of
    the others.

    Yeom's second adversary, with the densities of the error estimated from `BINS` quantiles instead
    of taken as normal.
    """
    members, others, rows = _known(view)
    edges = np.quantile(np.concatenate([members, others]), np.arange(1, BINS) / BINS)
    shares = [
        np.bincount(np.searchsorted(edges, some, "right"), minlength=BINS) / len(some)
        for some in (members, others)
    ]
    called = shares[0] > shares[1]
    return Called(
        f"one of {int(called.sum())} bins of {BINS}", called[np.searchsorted(edges, rows, "right")]
    )


def verdict(called: Called, truth: Mapping[str, Any]) -> Membership:
    """Count the members and the others among the rows that were called members."""
    member: Bools = truth["member"]
    inside, outside = called.rows[member], called.rows[~member]
    return Membership(
        len(inside), int(inside.sum()), len(outside), int(outside.sum()), truth["apart"]
    )


def probes(
    members: Rows, others: Rows, *, split: bool = True, seed: int = 0
) -> tuple[View, dict[str, object]]:
    """Make the view of an adversary who has asked a model about rows, and the truth to score it by.

    It knows of one random half of the rows whether they are members, and calls the other half. With
    `split=False` it knows all of them and calls the same rows: in sample.
    """
    fit, score = _rows(len(members), split, seed, 0)
    fit_others, score_others = _rows(len(others), split, seed, 1)
    own = {
        "members": members.take(fit),
        "others": others.take(fit_others),
        "rows": _joined(members.take(score), others.take(score_others)),
    }
    member = np.arange(len(score) + len(score_others)) < len(score)
    return View(("adversary",), (), {"adversary": own}, {}), {"member": member, "apart": split}


def infer(
    attack: Attack,
    members: Pairs | ArrayLike,
    others: Pairs | ArrayLike,
    *,
    split: bool = True,
    seed: int = 0,
) -> Membership:
    """Attack by a rule, given arms and rewards (`BY_REWARD`) or errors (`BY_ERROR`) of rows.

    >>> learnt_by_heart, guessed = (
    ...     Pairs(np.zeros(200), np.ones(200)),
    ...     Pairs(np.zeros(200), np.arange(200) % 2),
    ... )
    >>> round(infer(BY_REWARD, learnt_by_heart, guessed).advantage, 1)
    0.5
    >>> by_error = infer(BY_ERROR, np.linspace(0, 1, 1000), np.linspace(0, 2, 1000))
    >>> round(by_error.advantage, 1)
    0.5
    """
    some: list[Any] = [
        one if isinstance(one, Pairs) else _finite(one, "errors") for one in (members, others)
    ]
    view, truth = probes(*some, split=split, seed=seed)
    return verdict(attack.estimate(view, seed), truth)


def score_errors(scores: ArrayLike, pairs: Pairs) -> Floats:
    """Error of the score of the pulled arm: r - s_a; `scores` is an array (rows, arms).

    >>> score_errors([[0.5, 1.0]], Pairs(np.array([1]), np.array([0.0])))
    array([-1.])
    """
    table = np.asarray(scores, np.float64)
    if table.ndim != 2 or len(table) != len(pairs):
        raise ConfigError(
            f"scores must have the shape (rows, arms) with {len(pairs)} rows, got {table.shape}."
        )
    return pairs.rewards - table[np.arange(len(pairs)), pairs.arms]


def reward_gap(members: ArrayLike, others: ArrayLike) -> float:
    """abs(mean reward of members - of others), in sample: the advantage that the published code
    reports.

    For rewards of 0 and 1 and without the absolute value it is Yeom's adversary for a bounded loss,
    1 - r: one that calls every rewarded row a member.

    >>> reward_gap([1, 1, 0, 1], [0, 1, 0, 1])
    0.25
    """
    return abs(float(_finite(members, "rewards").mean() - _finite(others, "rewards").mean()))


def gap_without_leak(share: float, members: int, others: int) -> float:
    """Mean of `reward_gap` where there is no leak: sqrt(2/pi) sqrt(p (1 - p) (1/n + 1/m)), p the
    share of rewards.

    >>> [
    ...     round(gap_without_leak(p, n, 10_000), 4)
    ...     for p, n in ((0.5, 500), (0.8, 5_000), (0.9, 60_000))
    ... ]
    [0.0183, 0.0055, 0.0026]
    """
    return math.sqrt(2 / math.pi * share * (1 - share) * (1 / members + 1 / others))


@lru_cache(maxsize=8)
def _rows(count: int, split: bool, seed: int, group: int) -> tuple[Ints, Ints]:
    """Return the rows that fit the rule and those that score it: two random halves, or all rows
    twice.
    """
    if count < (2 if split else 1):
        raise ConfigError(
            f"members and others must have {2 if split else 1} rows each at least, got {count}."
        )
    if not split:
        return np.arange(count), np.arange(count)
    shuffled = np.random.default_rng((seed, group)).permutation(count)
    return shuffled[: count // 2], shuffled[count // 2 :]


def _codes(*some: Pairs) -> tuple[Ints, Ints]:
    """Number the pairs (arm, reward) and the arms that occur."""
    _, arms = np.unique(np.concatenate([pairs.arms for pairs in some]), return_inverse=True)
    values, rewards = np.unique(
        np.concatenate([pairs.rewards for pairs in some]), return_inverse=True
    )
    _, pairs = np.unique(arms * len(values) + rewards, return_inverse=True)
    return pairs, arms


def _conditional(pairs: Ints, arms: Ints, rows: Ints) -> Floats:
    """Estimate p(r | a) of every pair from some rows; 0 for what they do not hold."""
    of_pair = np.zeros(pairs.max() + 1, np.int64)
    of_pair[pairs] = arms
    seen = np.bincount(pairs[rows], minlength=len(of_pair))
    pulls = np.bincount(arms[rows], minlength=arms.max() + 1)[of_pair]
    return seen / np.maximum(pulls, 1)


def _known(view: View) -> tuple[Any, Any, Any]:
    """Return known members, known others and the rows to call: what the adversary has of its
    own.
    """
    own = next(iter(view.secrets.values()), {})
    if not {"members", "others", "rows"} <= set(own):
        raise ConfigError(
            "membership needs a model's answers on rows known to be members and on others: use "
            "probes."
        )
    return own["members"], own["others"], own["rows"]


def _joined(first: Rows, second: Rows) -> Rows:
    if isinstance(first, Pairs):
        return Pairs(
            np.concatenate([first.arms, second.arms]),
            np.concatenate([first.rewards, second.rewards]),
        )
    return np.concatenate([first, second])


def _finite(values: ArrayLike, what: str) -> Floats:
    made = np.asarray(values, np.float64)
    if made.ndim != 1 or not len(made):
        raise ConfigError(
            f"{what} must be a list with one number a row, got the shape {made.shape}."
        )
    if not np.isfinite(made).all():
        raise ConfigError(
            f"{what} must be finite, got {made[~np.isfinite(made)][0]}. Leave out rows without one."
        )
    return made


@dataclass(frozen=True)
class Membership:
    """An attack that calls rows members of the training data; its advantage is TPR - FPR (Yeom et
    al. 2018).

    >>> found = Membership(500, 300, 500, 250, apart=True)
    >>> print(f"{found.advantage:.3f} [{found.interval[0]:.3f}, {found.interval[1]:.3f}]")
    0.100 [0.038, 0.161]
    """

    members: int
    found: int
    """Members called members."""
    others: int
    accused: int
    """Others called members."""
    apart: bool
    """Whether the rule was fitted on other rows than those it was scored on."""

    @property
    def advantage(self) -> float:
        """TPR - FPR: 0 for a guess, 1 for certainty; below 0 where the rule was fitted on noise."""
        return self.found / self.members - self.accused / self.others

    @property
    def interval(self) -> tuple[float, float] | None:
        """Newcombe's interval for the advantage of this rule on this model; None in sample, where
        none covers.
        """
        if not self.apart:
            return None
        return difference_interval(self.found, self.members, self.accused, self.others)

    @property
    def score(self) -> Score:
        """The advantage as the score of an attack; in sample its interval is all of [-1, 1], since
        none covers.
        """
        counted = (
            f"{self.found:,} of {self.members:,} members and {self.accused:,} of {self.others:,} "
            "others called"
        )
        return Score(
            self.advantage,
            self.interval or (-1.0, 1.0),
            counted,
            0.0,
            self.p if self.apart else 1.0,
        )

    @property
    def p(self) -> float:
        """Probability of so large an advantage where nothing leaks: the test of two equal shares,
        by the normal law.
        """
        share = (self.found + self.accused) / (self.members + self.others)
        spread = math.sqrt(share * (1 - share) * (1 / self.members + 1 / self.others))
        return NormalDist().cdf(-self.advantage / spread) if spread else 1.0


def difference_interval(
    found: int, members: int, accused: int, others: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval for a difference of two independent shares, from Wilson's intervals (l, u) of each.

    [d - sqrt((p - l)^2 + (u' - p')^2), d + sqrt((u - p)^2 + (p' - l')^2)]. Newcombe: Interval
    estimation for the difference between independent proportions, Statistics in Medicine 1998,
    method 10: 95 % intervals cover 92 to 97 %, whatever the counts.

    >>> [round(edge, 4) for edge in difference_interval(56, 70, 48, 80)]
    [0.0524, 0.3339]
    """
    first, second = wilson(found, members, confidence), wilson(accused, others, confidence)
    p, q = found / members, accused / others
    low = p - q - math.hypot(p - first[0], second[1] - q)
    high = p - q + math.hypot(first[1] - p, q - second[0])
    return low, high


def _attack(
    name: str,
    title: str,
    adversary: tuple[str, ...],
    claim: str,
    estimate: Callable[[View], Called],
    planted: Callable[[Bools], Pairs | Floats],
) -> Attack:
    """Make a membership attack; `planted` gives the rows of a model that shows who is a member."""

    def plant(evidence: Evidence, seed: int) -> Evidence:
        view, truth = evidence.seen, evidence.truth
        members, others, _ = _known(view)
        known = (np.ones(len(members), np.bool_), np.zeros(len(others), np.bool_), truth["member"])
        own = dict(zip(("members", "others", "rows"), map(planted, known), strict=True))
        return Evidence(
            View(view.parties, view.entries, dict.fromkeys(view.secrets, own), view.public), truth
        )

    def score(called: Sequence[Called], truths: Sequence[Mapping[str, object]]) -> Score:
        rows = np.concatenate([one.rows for one in called])
        member = np.concatenate([truth["member"] for truth in truths])
        apart = all(truth["apart"] for truth in truths)
        return verdict(Called(called[0].rule, rows), {"member": member, "apart": apart}).score

    def shuffle(truths: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, object]]:
        rng = np.random.default_rng((seed, 2))
        return [{**truth, "member": rng.permutation(truth["member"])} for truth in truths]

    return Attack(
        name,
        title,
        adversary,
        (claim,),
        lambda view, seed: estimate(view),
        score,
        "advantage",
        plant,
        "models that learnt their rows by heart",
        shuffle,
        needs="runs",
        tell=lambda called: (
            f"{called.rows.sum():,} of {len(called.rows):,} rows called members, if {called.rule}"
        ),
    )


BY_REWARD = _attack(
    "membership-by-reward",
    "reward given the arm",
    ("puller", "payee"),
    "Puller and payee together hold every arm with its reward.",
    call_by_reward,
    lambda member: Pairs(np.zeros(len(member), np.int64), member.astype(np.float64)),
)
BY_ERROR = _attack(
    "membership-by-error",
    "error of the score",
    ("puller", "payee", "party"),
    "The model is held in shares; whoever brings all shares together can read it, and it carries "
    "no noise.",
    call_by_error,
    lambda member: (~member).astype(np.float64),
)
"""The attacks on a model: an adversary who sees arms and rewards, and one who can read the model as
well.
"""
