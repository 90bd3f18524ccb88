"""Populations for the small form that need no download: digits called letters, and texts drawn from topics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from posse.problems.datasets.mnist import digits_population
from posse.problems.datasets.questions import Question, questions_population
from posse.problems.populations.population import Population

LETTERS = ("A", "B", "C", "D", "E", "a", "b", "c", "d", "e")
_TAGS, _WORDS, _TEXTS, _USERS = 20, 120, 900, 90


def letters() -> Population:
    """Call the ten digits letters of both cases, so that rewards can shift between cases.

    >>> made = letters()
    >>> made.clients, made.samples, made.arms[5]
    (60, 1797, 'a')
    """
    return replace(digits_population(), name="letters", arms=LETTERS)


def bags(seed: int = 0) -> Population:
    """Draw texts of 90 users: one or two of 20 tags each, frequent ones more often, and words that go with them.

    >>> made = bags()
    >>> made.clients, made.samples, len(made.arms), len(made.vocabulary)
    (90, 900, 20, 120)
    """
    draw = np.random.Generator(np.random.Philox(seed))
    share = 1 / np.arange(2, _TAGS + 2)
    asked = []
    for text in range(_TEXTS):
        first = int(draw.choice(_TAGS, p=share / share.sum()))
        own = sorted({first, int(draw.integers(_TAGS))}) if draw.random() < 0.3 else [first]
        near = [tag * 5 + word for tag in own for word in range(5)]
        drawn = [*draw.choice(near, 4), *draw.integers(0, _WORDS, 4)]
        user = text if text < _USERS else int(draw.integers(_USERS))
        asked.append(
            Question(f"user-{user:02d}", tuple(f"word-{word}" for word in drawn), tuple(f"tag-{tag}" for tag in own))
        )
    return questions_population(asked, _WORDS, _TAGS)
