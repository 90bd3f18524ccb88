"""Texts as bags of words: lower-case words, a vocabulary of the most frequent ones, counts in a bag."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from posse.problems.ragged import Ragged

_MARKUP = re.compile(r"<[^>]*>")
_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")


def words_of(text: str) -> list[str]:
    """Lower-case words of a text with HTML markup: letters and digits, with apostrophes and hyphens inside.

    >>> words_of("<p>What is a <b>citra-hop</b> &amp; why don't I care?</p>")
    ['what', 'is', 'a', 'citra-hop', 'why', "don't", 'i', 'care']
    """
    return _WORD.findall(html.unescape(_MARKUP.sub(" ", text)).lower())


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """The most frequent words, or as many as there are; of equally frequent ones the first in the alphabet.

    >>> most_frequent(Counter(["b", "a", "c", "b"]), 2)
    ('b', 'a')
    """
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:size])


def bags_of(texts: Iterable[Sequence[str]], vocabulary: Mapping[str, int]) -> Ragged:
    """Number and count the words of each text; words outside the vocabulary are left out.

    >>> bags = bags_of([["a", "b", "a"], ["z"]], {"a": 0, "b": 1})
    >>> bags.values.tolist(), bags.counts.tolist(), bags.offsets.tolist()
    ([0, 1], [2, 1], [0, 2, 2])
    """
    ids: list[int] = []
    counts: list[int] = []
    ends = [0]
    for text in texts:
        bag = Counter(number for word in text if (number := vocabulary.get(word)) is not None)
        for number in sorted(bag):
            ids.append(number)
            counts.append(bag[number])
        ends.append(len(ids))
    limit = np.iinfo(np.uint16).max
    return Ragged(np.array(ends, np.int64), np.array(ids, np.int32), np.minimum(counts, limit).astype(np.uint16))
