"""Membership inference on checkpoints of a run, and on a model that learnt its few rows by heart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from posse.experiments.mpc_contextual.problem import Floats, Place, World, world_of
from posse.privacy.leakage import Pairs, error_attack, gap_without_leak, reward_attack, reward_gap, score_errors
from posse.protocols.mpc_contextual import floats

QUANTITIES = (
    "code", "floor", "signed", "in_sample", "apart", "error", "same_source", "same_source_error",
)  # fmt: skip
"""Of every checkpoint: what the authors' code computes and its mean without a leak, the same with its sign, the attack
of the paper's text in sample and with rows kept apart, the attack by the error of the score, and the last two against
rows of the training set that the run has not met yet."""

SCALE = 100
"""Everything is told in percent points."""
_PULLS = 8
"""Purpose of the coins with which a model is asked."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Contexts, and what every arm pays there."""

    features: Floats
    rewards: Floats

    def __len__(self) -> int:
        return len(self.features)

    def part(self, low: int, high: int) -> Rows:
        """Keep some rows."""
        return Rows(self.features[low:high], self.rewards[low:high])


def asked(weights: Floats, rows: Rows, epsilon: float, rng: np.random.Generator) -> tuple[Pairs, Floats]:
    """Ask a model about rows: the arm that it pulls, exploring as it did when it learnt, the reward, and the error."""
    scores = rows.features @ weights.T
    explore = rng.random(len(rows)) < epsilon
    arms = np.where(explore, rng.integers(0, scores.shape[1], len(rows)), scores.argmax(axis=1))
    pairs = Pairs(arms, rows.rewards[np.arange(len(rows)), arms])
    return pairs, score_errors(scores, pairs)


def at_checkpoint(weights: Floats, met: Rows, later: Rows, held: Rows, epsilon: float, seed: int) -> Floats:
    """Return all quantities of one model, in the order of `QUANTITIES`."""
    rng = np.random.default_rng((seed, _PULLS))
    (inside, errors), (outside, other_errors) = (asked(weights, rows, epsilon, rng) for rows in (met, held))
    share = float(np.concatenate([inside.rewards, outside.rewards]).mean())
    found = [
        reward_gap(inside.rewards, outside.rewards),
        gap_without_leak(share, len(inside), len(outside)),
        float(inside.rewards.mean() - outside.rewards.mean()),
        reward_attack(inside, outside, split=False).advantage,
        reward_attack(inside, outside, seed=seed).advantage,
        error_attack(errors, other_errors, seed=seed).advantage,
    ]
    if len(later) < 2:
        return np.array([*found, math.nan, math.nan])
    fresh, fresh_errors = asked(weights, later, epsilon, rng)
    found += [
        reward_attack(inside, fresh, seed=seed).advantage,
        error_attack(errors, fresh_errors, seed=seed).advantage,
    ]
    return np.array(found)


def attacked(place: Place, held: Rows, epsilons: tuple[float, ...], stages: tuple[int, ...], seed: int) -> Floats:
    """Train for every exploration rate, and attack every checkpoint: (epsilons, stages, quantities)."""
    world = world_of(place, seed)
    rows = Rows(world.features, world.rewards)
    found = np.empty((len(epsilons), len(stages), len(QUANTITIES)))
    for i, epsilon in enumerate(epsilons):
        kept = floats.run(world.features, world.rewards, world.coins(epsilon), checkpoints=stages).kept
        for j, stage in enumerate(stages):
            later = rows.part(stage, stage + len(held))
            found[i, j] = at_checkpoint(kept[j], rows.part(0, stage), later, held, epsilon, seed)
    return found


@dataclass(frozen=True)
class Heart:
    """A control: few rows, more features than rows, and many sweeps, so that the model learns them by heart.

    It learns from arms drawn at random, so that it meets every arm of every row, and is asked without exploration.
    """

    rows: int = 150
    others: int = 1_000
    """Rows of the same source that it does not learn."""
    features: int = 300
    sweeps: int = 40
    bandwidth: float = 3.0


def by_heart(place: Place, held: Rows, heart: Heart, seed: int) -> Floats:
    """Train the same bandit on random features of few rows, again and again, and attack it: one value a quantity."""
    rng = np.random.default_rng((seed, _PULLS))
    world = world_of(place, seed).first(heart.rows + heart.others)
    directions = heart.bandwidth * rng.normal(size=(world.features.shape[1], heart.features))
    turns = rng.uniform(0, 2 * math.pi, heart.features)

    def lifted(features: Floats) -> Floats:
        waves = np.cos(features @ directions + turns)
        return np.asarray(waves / np.linalg.norm(waves, axis=1, keepdims=True))

    rows = Rows(lifted(world.features), world.rewards)
    met, later = rows.part(0, heart.rows), rows.part(heart.rows, heart.rows + heart.others)
    steps = heart.rows * heart.sweeps
    arms = world.rewards.shape[1]
    again = World(
        np.tile(met.features, (heart.sweeps, 1)), np.tile(met.rewards, (heart.sweeps, 1)), rng.random(steps),
        rng.integers(0, arms, steps), rng.permuted(np.tile(np.arange(arms), (steps, 1)), axis=1),
    )  # fmt: skip
    run = floats.run(again.features, again.rewards, again.coins(1.0))
    others = Rows(lifted(held.features), held.rewards)
    return at_checkpoint(run.weights, met, later, others, 0.0, seed)
