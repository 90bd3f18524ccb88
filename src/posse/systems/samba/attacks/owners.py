"""What an owner infers from its own pulls and rewards, alone or with the customer: at every level,
for any policy.

Which arm is pulled next depends on all arms. So an owner who knows the policy learns about the
others from when its own arm is pulled, however scores are protected. This owner simulates the
policy on means that it draws, looks at its own place in these runs, and learns by regression what
follows from what it sees there. The attack is scored on other runs, with other seeds and other
means. So a score is about a policy, a number of owners and a horizon, over means that are uniform
on [0, 1]: with means that are nearer to each other, errors differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Reward, View
from posse.policies.arms.base import Policy
from posse.policies.arms.shipped import UCB
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import determination
from posse.problems.arms.rewards import BernoulliArms
from posse.systems.samba.attacks.many import other_runs
from posse.systems.samba.attacks.reading import policy_of
from posse.systems.samba.messages import Reply
from posse.systems.samba.twin import Twin

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

Floats = NDArray[np.float64]

RUNS = 60
"""Runs that are scored."""
TRAINING = 300
"""Runs that the owner simulates to learn from."""
POINTS = 8
"""Moments of a run at which the owner looks at its pulls and rewards."""
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridge penalties that the regression chooses from."""


class Terms(NamedTuple):
    """What an owner knows of a run before it begins."""

    policy: Policy
    owners: int
    horizon: int
    level: str

    @property
    def points(self) -> list[int]:
        """The steps after which the owner looks at its own arm: more at the beginning, the last at
        the end.
        """
        first = min(2 * self.owners, self.horizon)
        return sorted(set(np.geomspace(first, self.horizon, POINTS).round().astype(int).tolist()))


class OwnArm(NamedTuple):
    """What one owner has of a run, and the total where the customer helps it."""

    terms: Terms
    pulls: Floats
    """Its pulls up to each of the `Terms.points`."""
    sums: Floats
    """Its rewards up to each of them, added up."""
    total: float | None = None


class Inferred(NamedTuple):
    """Estimates from all that the owner has, and the same from less, for comparison."""

    values: Floats
    """The largest mean and the total; with the customer the sums of the others, the largest
    first.
    """
    less: Floats
    """The same from the owner's mean reward alone; with the customer from what is left of the total
    alone.
    """


def own_arm(view: View, like: Samba | None) -> OwnArm:
    """Read the pulls and rewards of one owner off its own view, and the total where the customer's
    is part of it.
    """
    policy = policy_of(view.public) if like is None else like.make_policy()
    terms = Terms(
        policy, int(view.public["owners"]), int(view.public["horizon"]), str(view.public["level"])
    )
    rewards = []
    step = terms.owners
    for entry in view.entries:
        # A reward belongs to the reply before it; the first one comes before all replies.
        if isinstance(entry.message, Reply):
            step = entry.message.index // len(policy.passes())
        elif isinstance(entry.message, Reward):
            rewards.append((step, entry.message.units))
    if step < terms.horizon:
        raise DataError(
            f"the view ends at step {step:,} of {terms.horizon:,}, and the attack needs all of "
            "them."
        )
    steps, units = np.array(rewards, np.int64).T
    pulls = np.searchsorted(steps, terms.points, side="right")
    sums = units.cumsum()[pulls - 1] / REWARD_ONE
    return OwnArm(
        terms, pulls.astype(np.float64), sums, view.secrets.get("customer", {}).get("total")
    )


# Runs with other means ----------------------------------------------------------------------------


def play(terms: Terms, rng: np.random.Generator) -> tuple[OwnArm, dict[str, Any]]:
    """Run the plain twin on means drawn from [0, 1]; return what the last owner has, and the
    truth.
    """
    arms = BernoulliArms(rng.random(terms.owners))
    twin = Twin(arms, terms.policy, terms.horizon, [int(rng.integers(2**31))], level=terms.level)
    seen = []
    for step in terms.points:
        twin.advance(step - twin.step)
        seen.append((float(twin.pulls[0, -1]), float(twin.units[0, -1]) / REWARD_ONE))
    pulls, sums = np.array(seen).T
    earned = twin.units[0] / REWARD_ONE
    truth = {"best": arms.best, "total": float(earned.sum()), "others": np.sort(earned[:-1])[::-1]}
    return OwnArm(terms, pulls, sums), truth


def stage(settings: Samba, seed: int, *, customer: bool) -> Iterator[Evidence]:
    """Runs of the user's policy, number of owners and horizon, on means drawn at random."""
    setup = settings.load()
    rng = np.random.default_rng((seed, 157))
    for _ in range(RUNS):
        own, truth = play(
            Terms(setup.policy, len(setup.arms), settings.horizon, settings.level), rng
        )
        yield Evidence(_with_total(own, truth, customer), truth)


def plant(evidence: Evidence, seed: int) -> Evidence:
    """Play another run with UCB, whose pulls follow the largest mean closely."""
    own: OwnArm = evidence.seen
    rng = np.random.default_rng((seed, int(evidence.truth["total"] * REWARD_ONE), 163))
    planted, truth = play(own.terms._replace(policy=UCB()), rng)
    return Evidence(_with_total(planted, truth, own.total is not None), truth)


def _with_total(own: OwnArm, truth: Truth, customer: bool) -> OwnArm:
    return own._replace(total=truth["total"]) if customer else own


# The regression -----------------------------------------------------------------------------------


def features_alone(own: OwnArm) -> tuple[Floats, Floats]:
    """What the owner has of its arm at each point; and less, to compare with: its mean reward at
    the end.
    """
    means = own.sums / own.pulls
    return np.concatenate([means, np.log(own.pulls), own.pulls**-0.5]), means[-1:]


def features_together(own: OwnArm) -> tuple[Floats, Floats]:
    """What is left of the total, and how it divides among the others if all bounds are equal; and
    the former alone.

    UCB keeps the bounds m + sqrt(w / n) of all arms near a common height h, which the owner reads
    off its own arm. So an arm of n pulls earned n h - sqrt(w n), and with the number of all other
    pulls and what is left of the total the owner has the sum of the n and of their square roots.
    Two owners follow from that; of more it gives how many share the pulls. Where another policy
    leaves bounds apart, the regression learns what these numbers mean there.
    """
    pulls = own.pulls[-1]
    policy, _, horizon, _ = own.terms
    width = np.log(horizon) * (policy.coefficient if isinstance(policy, UCB) else 2.0)
    height = own.sums[-1] / pulls + np.sqrt(width / pulls)
    others = horizon - pulls
    left = _left(own)
    roots = max(height * others - left, 0.0) / np.sqrt(width)
    larger = (roots + np.sqrt(max(2 * others - roots**2, 0.0))) / 2
    first = min(max(larger**2, others / 2), others)
    earned = first * height - np.sqrt(width * first)
    whole = np.array([left / horizon, height, roots**2 / others, first / others, earned / horizon])
    return whole, whole[:1]


def regression(inputs: Floats, outputs: Floats) -> Callable[[Floats], Floats]:
    """Ridge regression with a Gaussian kernel; the penalty is the one that predicts left-out rows
    best.
    """
    middle = inputs.mean(axis=0)
    spread = inputs.std(axis=0) + 1e-9
    mean = outputs.mean(axis=0)
    deviation = outputs.std(axis=0) + 1e-9

    def kernel(asked: Floats) -> Floats:
        # Limits keep a row that is unlike all others from being told nothing but the mean.
        rows = np.clip((asked - middle) / spread, -4.0, 4.0)
        apart = (rows[:, None, :] - known[None, :, :]) ** 2
        return np.asarray(np.exp(-apart.mean(axis=-1) / 2.0))

    known = np.clip((inputs - middle) / spread, -4.0, 4.0)
    values, vectors = np.linalg.eigh(kernel(inputs))
    turned = vectors.T @ ((outputs - mean) / deviation)

    def weights(penalty: float) -> Floats:
        return np.asarray(vectors @ (turned / (values + penalty)[:, None]))

    def missed(penalty: float) -> float:
        diagonal = vectors**2 @ (1.0 / (values + penalty))
        return float(((weights(penalty) / diagonal[:, None]) ** 2).sum())

    chosen = weights(min(PENALTIES, key=missed))
    return lambda asked: mean + deviation * (kernel(asked) @ chosen)


def _left(own: OwnArm) -> float:
    """What the other owners earned together."""
    return 0.0 if own.total is None else own.total - float(own.sums[-1])


def _outputs(own: OwnArm, truth: Truth) -> Floats:
    """What the regression learns: the largest mean and the mean reward, or the others' shares of
    what is left.
    """
    if own.total is None:
        return np.array([truth["best"], truth["total"] / own.terms.horizon])
    # With the smallest reward for each, there are shares where nothing is left.
    others = truth["others"] + 1.0 / REWARD_ONE
    return np.asarray(others / others.sum())


@lru_cache(maxsize=4)
def practice(terms: Terms, seed: int) -> tuple[tuple[OwnArm, Truth], ...]:
    """Runs that the owner simulates to learn from."""
    rng = np.random.default_rng((seed, 167))
    return tuple(play(terms, rng) for _ in range(TRAINING))


@lru_cache(maxsize=8)
def learnt(terms: Terms, customer: bool, seed: int) -> tuple[Callable[[Floats], Floats], ...]:
    """Learn what follows from all that the owner has, and what from less."""
    runs = [(_with_total(own, truth, customer), truth) for own, truth in practice(terms, seed)]
    whole, less = (
        np.array(inputs) for inputs in zip(*(_features(own) for own, _ in runs), strict=True)
    )
    outputs = np.array([_outputs(own, truth) for own, truth in runs])
    return regression(whole, outputs), regression(less, outputs)


def _features(own: OwnArm) -> tuple[Floats, Floats]:
    return features_alone(own) if own.total is None else features_together(own)


def infer(own: OwnArm, seed: int) -> Inferred:
    """Estimate the largest mean and the total; with the customer what each of the others earned."""
    predictors = learnt(own.terms, own.total is not None, seed)
    unit: Any = np.array([1.0, own.terms.horizon]) if own.total is None else _left(own)
    whole, less = (
        predictor(features[None])[0] * unit
        for predictor, features in zip(predictors, _features(own), strict=True)
    )
    return Inferred(whole, less)


# Scores -------------------------------------------------------------------------------------------


def beyond(estimates: Floats, less: Floats, truths: Floats) -> Score:
    """R2 of estimates beside that of estimates from less; p is of their correlation apart from what
    less explains.
    """

    def apart(values: Floats) -> Floats:
        return np.asarray(values - np.polyval(np.polyfit(less, values, 1), less))

    p = determination(apart(estimates), apart(truths), "").p
    return replace(
        determination(estimates, truths, ""), baseline=determination(less, truths, "").value, p=p
    )


def score_alone(guesses: Sequence[Inferred], truths: Sequence[Truth]) -> Score:
    """R2 of the largest mean, beside what the owner's mean reward alone gives; R2 of the total is
    in the text.
    """
    values, less = (np.array(one) for one in zip(*guesses, strict=True))
    best, total = (
        beyond(values[:, column], less[:, column], np.array([truth[name] for truth in truths]))
        for column, name in enumerate(("best", "total"))
    )
    # Either of the two would be a finding.
    p = min(1.0, 2.0 * min(best.p or 0.0, total.p or 0.0))
    text = (
        f"{len(truths):,} runs with means drawn from [0, 1]; of the total R2 {total}, without "
        f"{total.baseline:.3g}"
    )
    return replace(best, text=text, p=p)


def score_together(guesses: Sequence[Inferred], truths: Sequence[Truth]) -> Score:
    """R2 of the largest sum of another owner; the median error of all sums is in the text."""
    others = np.array([truth["others"] for truth in truths])
    values, less = (np.array(one) for one in zip(*guesses, strict=True))
    error, rough = (float(np.median(np.abs(sums - others))) for sums in (values, less))
    best = determination(values[:, 0], others[:, 0], "runs with means drawn from [0, 1]")
    return replace(
        best,
        text=f"{best.text}; median error of a sum {error:,.1f}, from the total alone {rough:,.1f}",
    )


ATTACKS = (
    Attack(
        "owner-alone",
        "the largest mean and the total, from when it is pulled",
        ("owner",),
        ("An owner learns when its own arm is pulled", "Any owner alone", "Owners know"),
        infer,
        score_alone,
        "R2 of the largest mean",
        plant,
        "runs of UCB",
        other_runs,
        finds=0.8,
        needs="twin",
        stage=partial(stage, customer=False),
        of_view=own_arm,
        seconds=lambda settings: 2.0 + 1e-5 * settings.horizon * len(settings.load().arms),
        tell=lambda guess: f"largest mean {guess.values[0]:.3f}, total {guess.values[1]:,.0f}",
    ),
    Attack(
        "customer-and-owner",
        "what each other owner earned, from the total and when it is pulled",
        ("customer", "owner"),
        (
            "The customer together with any one owner",
            "With two owners",
            "A customer that puts owners of its own",
        ),
        infer,
        score_together,
        "R2 of the largest sum",
        plant,
        "runs of UCB",
        other_runs,
        finds=0.8,
        needs="twin",
        stage=partial(stage, customer=True),
        of_view=own_arm,
        seconds=lambda settings: 2.0 + 1e-5 * settings.horizon * len(settings.load().arms),
        tell=lambda guess: (
            "largest first: " + ", ".join(f"{max(one, 0.0):,.0f}" for one in guess.values[:20])
        ),
    ),
)
