"""One step of the bandit on shares: 11 rounds, the same program at every party and at the dealer.

For every arm the model holds w (weights) and the upper triangle of P (inverse of I + sum of x x'), from P = I, w = 0:

    1      context x and model are opened under masks
    2      scores s = w.x and directions k = P x, truncated
    3-6    arg max of the scores, ties in a secret order, with the exploration coin          | beside it, for every arm,
    7      the arm is revealed to the puller, which pulls it                                 | 1 / (1 + x.k)
    8      the puller returns the one-hot vector o under a mask
    9      o k and the chosen 1 / (1 + x.k) under masks; the payee's reward r comes under a mask
    10     gain g = k / (1 + x.k) of the chosen arm, truncated; o (r - s) under a mask
    11     P - o k g' and w + o (r - s) g, truncated

This is recursive least squares (Sherman and Morrison), the same as solving with the inverse and w = P b at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from posse.privacy.sharing.argmax import argmax
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import reciprocal
from posse.privacy.sharing.rounds import Rounds, together
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.tape import Shape
from posse.privacy.sharing.values import Bits, Masked, Shared
from posse.protocols.mpc_contextual.coins import Dealt
from posse.protocols.mpc_contextual.terms import PAYEE, PULLER, Terms

ROUNDS = 11
"""Rounds of a step with up to 10 arms."""


@dataclass(frozen=True)
class Hand:
    """What a party brings to a step: its masked features, and where to read the coins."""

    features: Words
    turns: NDArray[np.int64]
    reveal: bool = True
    """Whether the arm is revealed; not where the puller has it already."""


@dataclass(frozen=True)
class Deals:
    """What the dealer brings to some steps: coins, and the masks of inputs."""

    coins: Dealt
    inputs: Callable[[str, Shape], Words]


class Layout:
    """Where weights and the upper triangle of P lie in a row of the model: P first, w behind."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.left, self.right = np.triu_indices(dimension)
        self.triangle = len(self.left)
        self.size = self.triangle + dimension

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return P and below it w as rows of positions: (dimension + 1, dimension)."""
        square = np.zeros((self.dimension, self.dimension), np.int64)
        square[self.left, self.right] = square[self.right, self.left] = np.arange(self.triangle)
        return np.vstack([square, np.arange(self.triangle, self.size)])

    def start(self, arms: int, bits: int) -> Words:
        """Return the model before the first step: P = I, w = 0."""
        model = np.zeros((arms, self.size), np.uint64)
        model[:, : self.triangle][:, self.left == self.right] = np.uint64(1 << bits)
        return model


def step(
    s: Session, terms: Terms, layout: Layout, model: Shared, hand: Hand | None, deals: Deals | None
) -> Rounds[Shared]:
    """Choose an arm for a context and learn from its reward; returns the new model."""
    f = terms.bits
    x = _context(s, terms, hand, deals)
    known = s.mask(model)
    yield
    raw = s.product(known[..., layout.rows], x[..., None, None, :], contract=True)
    scored = s.truncate(raw, f, "scores and directions")
    yield
    k, score = scored[..., :-1], scored[..., -1]
    variance = s.product(x[..., None, :], k, contract=True)
    o, inverse = yield from together(select(s, terms, score, hand, deals), reciprocal(s, variance, f, terms.newton))
    chosen = s.mask(s.product(o[..., None], k))
    shrink = s.mask(s.product(o[..., None, :], inverse[..., None, :], contract=True))
    reward = s.input(PAYEE, (1,), lambda: _deals(deals).inputs(PAYEE, (1,)))
    yield
    gain = s.truncate(s.product(chosen.sum(-2), shrink), f, "gain")
    error = s.mask(s.product(o, reward) - s.product(o, score))
    yield
    inverse_change = s.product(chosen[..., layout.left], gain[..., None, layout.right])
    weight_change = s.product(error[..., None], gain[..., None, :])
    learnt = s.truncate((model << f) + (-inverse_change).join(weight_change), f, "model")
    yield
    return learnt.shared


def select(s: Session, terms: Terms, score: Masked, hand: Hand | None, deals: Deals | None) -> Rounds[Masked]:
    """Reveal to the puller the arm with the best score, or the coin's; it returns the one-hot vector under a mask."""
    ties = s.dealt((terms.arms,), lambda: _deals(deals).coins.ties.astype(np.uint64))
    if hand is not None:
        ties = ties.roll(int(hand.turns[2]))
    explores, explored = _coin(s, terms, hand, deals)
    best = yield from argmax(s, (score.shared << terms.tie_bits) + ties, unless=explores)
    if hand is None or hand.reveal:
        s.reveal(PULLER, best ^ explored)
    yield
    o = s.input(PULLER, (terms.arms,), lambda: _deals(deals).inputs(PULLER, (terms.arms,)))
    yield
    return o


def _context(s: Session, terms: Terms, hand: Hand | None, deals: Deals | None) -> Masked:
    """Take in every party's features, one behind the other."""

    def taken(party: str, size: int) -> Masked:
        own = hand.features if hand is not None and party == s.name else None
        return s.input(party, (size,), lambda: _deals(deals).inputs(party, (size,)), own)

    return s.join([taken(party, size) for party, size in zip(terms.parties, terms.features, strict=True)])


def _coin(s: Session, terms: Terms, hand: Hand | None, deals: Deals | None) -> tuple[Bits, Bits]:
    """Return whether this step explores (a last axis of one), and the explored arm's one-hot vector if so."""
    many, arms = terms.explore[1], terms.arms
    table = s.dealt_bytes((many, (arms + 8) // 8), lambda: _deals(deals).coins.packed(arms))
    if hand is None:
        return s.unknown_bits((1,), 1), s.unknown_bits((arms,), 1)
    bits = np.unpackbits(table[hand.turns[0]], bitorder="little")[: arms + 1].astype(np.uint16)
    return Bits(s, bits[:1]), Bits(s, np.roll(bits[1:], hand.turns[1]))


def _deals(deals: Deals | None) -> Deals:
    assert deals is not None
    return deals
