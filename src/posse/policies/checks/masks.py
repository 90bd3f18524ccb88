"""Masks do not change choices: the arm selected by true scores is selected behind the masks of both levels."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np

from posse.core.exact import gumbel
from posse.core.fixed import SCORE_BITS, bounded, comparable, tie_bits
from posse.policies.base import Selection
from posse.policies.checks.subject import Subject, Value, call, source

TRIALS = 40
ARMS = 5
SEPARATION = 2.0**-30
"""Scores of one step closer than this part of the largest are left out: no choice between them is the right one."""


def masks_keep_choices(subject: Subject) -> str | None:
    """Find scores that are selected otherwise once they are integers, or behind a mask."""
    draws = random.Random(3)
    for turn, selection in enumerate(subject.policy.passes()):
        for _ in range(TRIALS):
            scores = _separated(subject, turn, selection, draws)
            if scores is not None and (reason := _changes(scores, turn, selection, draws)):
                return reason
    return None


def _separated(subject: Subject, turn: int, selection: Selection, draws: random.Random) -> list[float] | None:
    """Draw the scores of five arms at one step; None when they are not finite or not well separated."""
    t = draws.randrange(10**4, 10**6)
    scores = []
    for _ in range(ARMS):
        pulls = draws.randrange(1, 2000)
        memory, key = draws.choice(subject.memories), np.uint64(draws.getrandbits(63))
        state = (t, turn, pulls * draws.random(), pulls, memory, key, subject.policy.parameters())
        value = call(subject.source["score"], *state)
        if isinstance(value, str) or not math.isfinite(value):
            return None
        scores.append(value + (selection.scale * gumbel(draws.random()) if selection.kind == "match" else 0.0))
    ordered = sorted(scores)
    gap = min(high - low for low, high in itertools.pairwise(ordered))
    return scores if gap > SEPARATION * max(abs(ordered[0]), abs(ordered[-1])) else None


def _changes(scores: list[float], turn: int, selection: Selection, draws: random.Random) -> str | None:
    u, bits = draws.random(), tie_bits(len(scores))
    places = draws.sample(range(1 << bits), len(scores))
    xs = [int(comparable(bounded(value, bits), place, bits)) for value, place in zip(scores, places, strict=True)]
    chosen = _selected(selection, scores, u)
    if _selected(selection, _ranks(xs), u) != chosen:
        return (
            f"pass {turn + 1} selects another arm when scores such as {scores[0]:.6g} become integers; scores must be "
            f"below 2^{62 - SCORE_BITS - bits} in size and differ by more than 2^-{SCORE_BITS}."
        )
    # The affine mask of level `standard`, written out here because policies do not know the layer that holds it.
    alpha = (1 << 63 | draws.getrandbits(63)) << draws.randrange(64)
    beta = draws.randrange(1 << 190)
    masked = [alpha * (x + (1 << 62)) + beta + draws.randrange(alpha) for x in xs]
    if _selected(selection, _ranks(masked), u) != chosen:
        return f"pass {turn + 1} selects another arm behind the affine mask of level 'standard'."
    # The masks of level `paper` are in (0, 1], the smallest 2^-53.
    for factor in (1.0, draws.uniform(0.01, 1.0), 2.0**-53):
        if _selected(selection, [factor * score for score in scores], u) != chosen:
            return f"pass {turn + 1} selects another arm behind a mask of {factor:.3g} at level 'paper'."
    return None


def _ranks(values: Sequence[int]) -> list[float]:
    ordered = sorted(values)
    return [float(ordered.index(value)) for value in values]


def _selected(selection: Selection, scores: Sequence[float], u: float) -> Value:
    """Position a pass selects; matching is an argmax, its noise being in the scores."""
    if selection.choose is not None:
        return call(source(selection.choose), np.array(scores), u)
    return max(range(len(scores)), key=scores.__getitem__)
