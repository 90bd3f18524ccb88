"""What arms, rewards and opened words tell about features: estimators for an adversary who knows
similar rows.

| estimator | from | says |
|---|---|---|
| `by_group` | a label of every row (its arm; its arm and reward) | the mean features of known rows with that label |
| `along` | the whole sequence of arms, and of rewards | the mean of known rows by how likely they explain each step |
| `recognise` | words that were opened for every row | which of two candidate rows is the true one |
| `nearest_class` | numbers that stand beside every row, such as delays | its class |

`along` follows the bandit: it keeps a few guesses of the model (particles), asks at every step
which of the known rows would have been pulled that arm and paid that reward, and lets every
particle learn from one of them, drawn by weight.

`r_squared` scores features: 1 - sum |x - found|^2 / sum |x - m|^2, with m the mean of the rows that
the adversary knows anyway. 0 is what it has without a view, 1 is everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.errors import ConfigError
from posse.privacy.leakage.attack import Score
from posse.privacy.leakage.scores import Bools, Floats, Ints

Words = NDArray[np.uint64]

SHRINK = 1.0
"""Rows that stand for the overall mean in the mean of a group: a group of few rows says little."""
PARTICLES = 8


@dataclass(frozen=True, eq=False)
class Known:
    """Rows of the same source that the adversary has: features, and what every arm pays there."""

    features: Floats
    """(rows, features)"""
    pays: Floats
    """(rows, arms)"""

    def __post_init__(self) -> None:
        if len(self.features) != len(self.pays) or not len(self.features):
            raise ConfigError(
                "known rows need features and pays of one length from 1 on, got "
                f"{len(self.features)} and "
                f"{len(self.pays)}."
            )


def by_group(known: ArrayLike, known_groups: ArrayLike, groups: ArrayLike) -> Floats:
    """Estimate the features of rows by the mean of known rows of their group, drawn a little to the
    overall mean.

    A group that no known row has gets the overall mean.

    >>> by_group([[0.0], [0.0], [3.0], [3.0]], [0, 0, 1, 1], [1, 2]).round(2).tolist()
    [[2.5], [1.5]]
    """
    rows, labels, wanted = (
        np.asarray(known, np.float64),
        np.asarray(known_groups),
        np.asarray(groups),
    )
    overall = rows.mean(axis=0)
    means = {
        label: (rows[labels == label].sum(axis=0) + SHRINK * overall)
        / ((labels == label).sum() + SHRINK)
        for label in np.unique(labels).tolist()
    }
    return np.array([means.get(label, overall) for label in wanted.tolist()]).reshape(
        len(wanted), -1
    )


def along(
    known: Known,
    arms: ArrayLike,
    rewards: ArrayLike | None,
    rate: float,
    *,
    seed: int = 0,
    particles: int = PARTICLES,
) -> Floats:
    """Estimate the features of every step from the whole sequence of arms, and of rewards where
    they were seen.

    `rate` is the public rate of exploration. One step costs `particles` products of the known rows
    with a model.
    """
    pulled, rows, pays = np.asarray(arms, np.int64), known.features, known.pays
    paid = None if rewards is None else np.asarray(rewards, np.float64)
    many = pays.shape[1]
    rng, size = np.random.default_rng((seed, 20)), rows.shape[1]
    weights = np.zeros((particles, many, size))
    inverses = np.tile(np.eye(size), (particles, many, 1, 1))
    found = np.empty((len(pulled), size))
    every = np.arange(particles)
    for step, arm in enumerate(pulled.tolist()):
        scores = rows @ weights.transpose(0, 2, 1)
        best = scores >= scores.max(axis=2, keepdims=True) - 1e-12
        likely = (1 - rate) * best[:, :, arm] / best.sum(axis=2) + rate / many + 1e-9
        if paid is not None:
            near = np.abs(pays[:, arm] - paid[step])
            likely = likely * np.exp(-0.5 * (near / 0.1) ** 2) + 1e-9
        chances = likely / likely.sum(axis=1, keepdims=True)
        found[step] = (chances @ rows).mean(axis=0)
        drawn = np.minimum(
            (chances.cumsum(axis=1) < rng.random((particles, 1))).sum(axis=1), len(rows) - 1
        )
        x = rows[drawn]
        reward = pays[drawn, arm] if paid is None else np.full(particles, paid[step])
        direction = np.einsum("pij,pj->pi", inverses[every, arm], x)
        gain = direction / (1 + np.einsum("pi,pi->p", direction, x))[:, None]
        weights[:, arm] += gain * (reward - np.einsum("pi,pi->p", weights[:, arm], x))[:, None]
        inverses[:, arm] -= gain[:, :, None] * direction[:, None, :]
    return found


def r_squared(found: Floats, truth: ArrayLike, mean: ArrayLike, confidence: float = 0.95) -> Score:
    """Score estimated features, with an interval over rows: the error of a ratio of means, by the
    delta method.

    >>> r_squared(np.array([[1.0], [0.0], [2.0]]), [[1.0], [0.0], [2.0]], [1.0]).value
    1.0
    """
    rows = np.asarray(truth, np.float64)
    if found.shape != rows.shape or len(rows) < 2:
        raise ConfigError(
            f"an estimate of {rows.shape} features is needed, from 2 rows on, got {found.shape}."
        )
    wrong = ((rows - found) ** 2).sum(axis=1)
    without = ((rows - np.asarray(mean, np.float64)) ** 2).sum(axis=1)
    if not without.sum():
        raise ConfigError(
            "all rows are as the mean: there is nothing to find out of their features."
        )
    ratio = float(wrong.sum() / without.sum())
    spread = float(
        np.sqrt(((wrong - ratio * without) ** 2).sum() * len(rows) / (len(rows) - 1))
        / without.sum()
    )
    half, value = NormalDist().inv_cdf((1 + confidence) / 2) * spread, 1 - ratio
    # Sums of squares are rounded: what is within rounding of 0 is nothing.
    p = NormalDist().cdf(-value / spread) if spread > 1e-12 else float(value < 1e-9)
    return Score(
        value,
        (value - half, value + half),
        f"{rows.shape[1]} features of {len(rows):,} rows",
        0.0,
        p,
    )


# Which of two rows was opened ---------------------------------------------------------------------


def recognise(words: Words, pairs: ArrayLike, known: ArrayLike, *, signed: bool = True) -> Bools:
    """Guess of every row which of two candidates is the true one, from the words that were opened
    for it.

    `words` is (rows, words), `pairs` (rows, 2, features), `known` 0 or 1 for rows of which the
    adversary knows the answer and -1 for others. The rule is the pair of a word and a feature that
    correlate most over the known rows, read as a signed number (`signed`) or by its highest bit
    alone; it is fitted on known rows and used on the others. Returns whether the second candidate
    is guessed.
    """
    candidates, answers = np.asarray(pairs, np.float64), np.asarray(known, np.int64)
    fit = np.flatnonzero(answers >= 0)
    if len(fit) < 4 or len(answers) != len(words) or candidates.shape[:2] != (len(words), 2):
        raise ConfigError(
            f"a rule needs 4 known rows at least and two candidates a row, got {len(fit)} known of "
            f"{len(words)} rows "
            f"and candidates of shape {candidates.shape}."
        )
    values = (
        words.view(np.int64).astype(np.float64)
        if signed
        else (words >> np.uint64(63)).astype(np.float64)
    )
    true = candidates[fit, answers[fit]]
    table = _correlations(values[fit], true)
    word, feature = np.unravel_index(int(np.abs(table).argmax()), table.shape)
    slope = table[word, feature]
    # The known rows give the line from word to feature; the candidate nearer to it is guessed.
    spread = values[fit, word].std() or 1.0
    predicted = true[:, feature].mean() + slope * true[:, feature].std() / spread * (
        values[:, word] - values[fit, word].mean()
    )
    away = np.abs(candidates[:, :, feature] - predicted[:, None])
    return np.asarray(away[:, 1] < away[:, 0])


def _correlations(values: Floats, features: Floats) -> Floats:
    """Correlate every word with every feature: (words, features); 0 where one of them never
    changes.
    """
    first, second = values - values.mean(axis=0), features - features.mean(axis=0)
    sizes = np.sqrt((first**2).sum(axis=0))[:, None] * np.sqrt((second**2).sum(axis=0))[None, :]
    return np.where(sizes > 0, first.T @ second / np.where(sizes > 0, sizes, 1.0), 0.0)


# A class from what stands beside it ---------------------------------------------------------------


def nearest_class(values: ArrayLike, known: ArrayLike) -> Ints:
    """Guess the class of every row by the nearest median of rows whose class is known (-1 where it
    is not).

    Columns are compared in units of their own spread; one that never changes counts for nothing.

    >>> nearest_class([[0.0], [0.1], [5.0], [5.2], [4.9], [0.3]], [0, 0, 2, 2, -1, -1]).tolist()
    [0, 0, 2, 2, 2, 0]
    """
    rows, classes = np.asarray(values, np.float64), np.asarray(known, np.int64)
    labels = np.unique(classes[classes >= 0])
    if rows.ndim != 2 or len(rows) != len(classes) or not len(labels):
        raise ConfigError(
            f"classes are learnt from rows whose class is known, got values of shape {rows.shape} "
            f"and {len(labels)} "
            "known classes."
        )
    spread = rows[classes >= 0].std(axis=0)
    scaled = np.where(spread > 0, rows / np.where(spread > 0, spread, 1.0), 0.0)
    middles = np.stack([np.median(scaled[classes == label], axis=0) for label in labels])
    return np.asarray(
        labels[((scaled[:, None, :] - middles[None]) ** 2).sum(axis=2).argmin(axis=1)]
    )
