"""Canaries: entries that are in what was released or are not, by coins that an auditor tossed and
an adversary guesses.

Noise of mu = sensitivity / sigma lets nobody guess a coin with accuracy above Phi(mu / 2). The
adversary knows some of the coins, learns from them in which direction canaries show (Fisher's), and
guesses the others. Of n guesses at most Binomial(n, Phi(mu / 2)) are right under the claim
(`posse.privacy.dp.audit`): `claim_score` turns the count into the probability of so many, and into
a lower bound on epsilon at the claim's delta, which is above the proved figure with probability
`SIGNIFICANCE` at most where the claim is true.

A release that comes more than once about the same data, in whatever form, is one more column:
copies that are equal say nothing new and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from posse.core.errors import ConfigError
from posse.privacy.dp import audit
from posse.privacy.dp.gaussian import epsilon_of
from posse.privacy.leakage.attack import Evidence, Score
from posse.privacy.leakage.scores import Bools, Floats, Ints, tail

SIGNIFICANCE = 0.01
"""Probability that the lower bound of an audit is above a true claim."""
KNOWN = 0.2
"""Share of the coins that the adversary knows."""
_NORMAL = NormalDist()


@dataclass(frozen=True, eq=False)
class Canaries:
    """What an adversary sees of canaries: a row of numbers each, and the coins it knows."""

    values: Floats
    """(canaries, numbers): all that is seen of each, several releases one behind the other."""
    known: Ints
    """1 or 0 where the adversary knows whether it is in; else -1."""


def tossed(values: Floats, coins: Ints, shift: Floats, mu: float, delta: float) -> Evidence:
    """Make evidence of canaries: the first ones are known. `shift` is what one adds to its row,
    `mu` is claimed.
    """
    many = max(4, round(KNOWN * len(coins)))
    known = np.where(np.arange(len(coins)) < many, coins, -1)
    truth = {"coins": coins, "asked": known < 0, "shift": shift, "mu": mu, "delta": delta}
    return Evidence(Canaries(values, known), truth)


def coins_of(count: int, seed: int) -> Ints:
    """Toss coins, as many of one side as of the other among known and unknown ones alike."""
    many = max(4, round(KNOWN * count))
    rng = np.random.default_rng((seed, 30))
    halves = [rng.permutation(np.arange(size) % 2) for size in (many, count - many)]
    return np.concatenate(halves).astype(np.int64)


def guess(seen: Canaries, seed: int) -> Bools:
    """Guess of every canary whether it is in; the rule is learnt from those that are known."""
    if not isinstance(seen, Canaries):
        raise ConfigError("this attack needs canaries in what is released: audit settings.")
    values, known = np.asarray(seen.values, np.float64), seen.known
    if values.ndim != 2 or len(values) != len(known) or {0, 1} - set(known.tolist()):
        raise ConfigError(
            "canaries need a row each and some known ones of both kinds, got values of shape "
            f"{values.shape} and "
            f"{len(known)} coins."
        )
    _, first = np.unique(values, axis=1, return_index=True)  # copies that are equal say nothing new
    values = values[:, np.sort(first)]
    return audit.rule(values[known == 0], values[known == 1])(values)


def claim_score(found: Sequence[Bools], truths: Sequence[Mapping[str, Any]]) -> Score:
    """Score guesses against the claim: the epsilon that they prove at least, beside the epsilon
    that is claimed.

    >>> truth = {
    ...     "coins": np.arange(1000) % 2,
    ...     "asked": np.full(1000, True),
    ...     "mu": 0.53,
    ...     "delta": 0.01,
    ... }
    >>> fair = claim_score([np.arange(1000) % 2 == (np.arange(1000) % 10 < 6)], [truth])
    >>> fair.value < fair.baseline, fair.above()
    (True, False)
    """
    right = guesses = 0
    for called, truth in zip(found, truths, strict=True):
        agrees = (called == (truth["coins"] == 1))[truth["asked"]]
        right, guesses = right + int(agrees.sum()), guesses + len(agrees)
    mu, delta = float(np.mean([truth["mu"] for truth in truths])), truths[0]["delta"]
    made = audit.AuditResult(
        mu, guesses, right, SIGNIFICANCE, audit.lower_bound(right, guesses, SIGNIFICANCE)
    )
    p = tail(right, guesses, _NORMAL.cdf(mu / 2))
    power = power_of(mu, guesses)
    text = f"{right:,} of {guesses:,} coins right; finds halved noise with probability {power:.2f}"
    return Score(made.gaussian_epsilon_low(delta), None, text, epsilon_of(mu, delta), p)


def power_of(mu: float, guesses: float, factor: float = 2.0, level: float = SIGNIFICANCE) -> float:
    """Probability that so many guesses find noise out that is `factor` times too small, by the
    normal law.

    A fifth of the guesses is taken off, for the direction that must be learnt.

    >>> round(power_of(0.53, 600), 3), round(power_of(0.53, 100), 3)
    (0.985, 0.281)
    """
    guesses = 0.8 * guesses
    claimed, true = _NORMAL.cdf(mu / 2), _NORMAL.cdf(factor * mu / 2)
    edge = claimed + _NORMAL.inv_cdf(1 - level) * (claimed * (1 - claimed) / guesses) ** 0.5
    return 1 - _NORMAL.cdf((edge - true) / max((true * (1 - true) / guesses) ** 0.5, 1e-12))


def halve_the_noise(evidence: Evidence, seed: int) -> Evidence:
    """Plant: the same canaries under half of the noise."""
    seen, truth = evidence.seen, evidence.truth
    exact = truth["coins"][:, None] * truth["shift"]
    return replace(evidence, seen=replace(seen, values=exact + (seen.values - exact) / 2))


def toss_again(truths: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Exchange the coins for others, which nothing seen can tell."""
    rng = np.random.default_rng((seed, 31))
    return [{**truth, "coins": rng.integers(2, size=len(truth["coins"]))} for truth in truths]
