"""One pass of the bandit on shares: 11 rounds, the same program at every party and at the dealer.

For every arm the model holds w (weights) and the upper triangle of P (inverse of I + sum of x x'),
from P = I, w = 0:

    1      context x and model are opened under masks
    2      scores s = w.x and directions k = P x, truncated
    3-6    arg max of the scores, ties in a secret order, with the exploration coin          | beside it, for every arm,
    7      the arm is revealed to the puller, which pulls it                                 | 1 / (1 + x.k)
    8      the puller returns the one-hot vector o under a mask
    9      o k and the chosen 1 / (1 + x.k) under masks; the payee's reward r comes under a mask
    10     gain g = k / (1 + x.k) of the chosen arm, truncated; o (r - s) under a mask
    11     P - o k g' + o 2^-(bits + 2) and w + o (r - s) g, truncated

This is recursive least squares (Sherman and Morrison), the same as solving with the inverse and w =
P b at every step, but for a quarter of a unit on the diagonal of P at every pull, which keeps it
positive (`largest_steps`).

Scores are compared before they are truncated where all their bits fit (`Terms.early`), in rounds 2
to 5: the puller then has the arm after round 6, not 7.

With a bonus, width sqrt(x.k) (LinUCB) or that times a normal number (Thompson), a table gives it
before the arg max: one round more. A batch of b contexts is chosen for with the same model; what is
learnt from them all at once is what would be learnt one after the other (Woodbury), with the
inverse of I + S, S_ij = x_i.P x_j where both chose the same arm and 0 elsewhere, in the place of 1
/ (1 + x.k). Arrays have an axis of b contexts in front, of one without a batch.

With `overlap` a pass chooses for one context and learns, beside it, from the context, arm and
reward before: 7 rounds. The arm to learn from is known when the pass begins, so that its row of the
model is picked first:

    1      both contexts, the puller's o and the model are opened under masks
    2      the row of the model that o picks, under a mask       | arg max for the context of now,
    3      score s = w.x and direction k = P x of it, truncated  | rounds 2 to 5
    4      o k under a mask; 1 / (1 + x.k) by a table of lines   |
    5      that truncated; the payee's reward r comes            |
    6      gain g truncated; o (r - s) under a mask              | the arm of now is revealed
    7      P - o k g' + o 2^-(bits + 2) and w + o (r - s) g, truncated

A `frozen` run ends a pass after round 6 (or 7), when the arm is revealed, and one more in which the
puller says that it pulled: nothing is learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from posse.privacy.crypto.streams import keystream
from posse.privacy.sharing.comparison import argmax
from posse.privacy.sharing.dealing import Plan, plan_of
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.reciprocal import inverse, line_bits, reciprocal, reciprocal_lines
from posse.privacy.sharing.session import Rounds, Session, together
from posse.privacy.sharing.tape import Shape
from posse.privacy.sharing.values import Bits, Masked, Shared
from posse.systems.mpc_contextual.coins import Dealt
from posse.systems.mpc_contextual.terms import LIFT, PAYEE, PULLER, WIDTH_BITS, Terms

GRID = 10
"""Bits of q = x.P x that the table of a bonus sees."""
_STEP = 32


@dataclass(frozen=True)
class Hand:
    """What a party brings to a step: its masked features, and where to read the coins."""

    features: Words
    """(contexts, own features): with overlap those of now, and of the step before"""
    turns: NDArray[np.int64]
    """(contexts, 4)"""
    pad: NDArray[np.uint16] | None = None
    """(contexts, arms) what this party adds to its share of what is revealed; the pads of all
    parties cancel.
    """


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

    @cached_property
    def diagonal(self) -> Words:
        """Return 1 on the diagonal of P, and 0 elsewhere: (size)."""
        return np.append(self.left == self.right, np.zeros(self.dimension)).astype(np.uint64)

    def start(self, arms: int, bits: int) -> Words:
        """Return the model before the first step: P = I, w = 0."""
        return np.tile(self.diagonal << np.uint64(bits), (arms, 1))


def step(
    s: Session, terms: Terms, layout: Layout, model: Shared, hand: Hand | None, deals: Deals | None
) -> Rounds[Shared]:
    """Choose an arm for every context of a batch and learn from their rewards; returns the new
    model.
    """
    x = _context(s, terms, hand, deals)
    if terms.overlap:
        o = _choice(s, terms, deals)
        known = s.mask(model)
        yield
        _, learnt = yield from together(
            _decide(
                s,
                terms,
                layout.rows if terms.bonus else layout.rows[-1:],
                known,
                x[..., :1, :],
                hand,
                deals,
            ),
            _learn_before(s, terms, layout, model, known, x[..., 1:, :], o, deals),
        )
        return learnt  # type: ignore[no-any-return]
    if terms.frozen:
        return (yield from _only_decide(s, terms, layout, model, x, hand, deals))
    known = s.mask(model)
    yield
    raw = s.product(known[..., None, :, layout.rows], x[..., None, None, :], contract=True)
    if terms.early:
        o, (k, score, beside) = yield from together(
            _select(s, terms, raw[..., -1], None, hand, deals), _truncate_then(s, terms, x, raw)
        )
    else:
        scored = yield from _truncated(s, raw, terms.bits, "scores and directions")
        k, score = scored[..., :-1], scored[..., -1]
        variance = _variance(s, x, k) if terms.batch == 1 or terms.bonus else None
        o, beside = yield from together(
            _select(s, terms, score.shared, variance, hand, deals),
            _beside(s, terms, x, k, variance),
        )
    learn = _learn_one if terms.batch == 1 else _learn_batch
    chosen, gain, error = yield from learn(s, terms, k, score, o, beside, deals)
    return (yield from _update(s, terms, layout, model, o, chosen, gain, error))


def _update(
    s: Session,
    terms: Terms,
    layout: Layout,
    model: Shared,
    o: Masked,
    chosen: Masked,
    gain: Masked,
    error: Masked,
) -> Rounds[Shared]:
    """Return P - o k g' + o 2^-(bits + 2) and w + o (r - s) g: 1 round."""
    f, pulls = terms.bits, o.shared.sum(-2)
    chosen, gain = chosen.swap(-3, -2).swap(-2, -1), gain.swap(-2, -1)
    inverse_change = s.product(
        chosen[..., layout.left, :], gain[..., None, layout.right, :], contract=True
    )
    weight_change = s.product(
        error.swap(-2, -1)[..., None, :], gain[..., None, :, :], contract=True
    )
    lift = (pulls[..., None] * layout.diagonal) << (f - LIFT)
    learnt = s.truncate((model << f) + (-inverse_change).join(weight_change) + lift, f, "model")
    yield
    return learnt.shared


def _variance(s: Session, x: Masked, k: Masked) -> Shared:
    return s.product(x[..., None, :], k, contract=True)


def _beside(
    s: Session, terms: Terms, x: Masked, k: Masked, variance: Shared | None
) -> Rounds[Masked]:
    """Compute what needs no choice: 1 / (1 + x.k) of every arm, or what couples the contexts of a
    batch.
    """
    if terms.batch == 1:
        assert variance is not None
        return (yield from reciprocal(s, variance, terms.bits, terms.newton))
    coupled = s.product(x[..., :, None, None, :], k[..., None, :, :, :], contract=True)
    return (yield from _truncated(s, coupled, terms.bits, "coupling"))


def _truncate_then(
    s: Session, terms: Terms, x: Masked, raw: Shared
) -> Rounds[tuple[Masked, Masked, Masked]]:
    """Truncate scores and directions, which are chosen by meanwhile, and compute what needs no
    choice.
    """
    scored = yield from _truncated(s, raw, terms.bits, "scores and directions")
    k = scored[..., :-1]
    beside = yield from _beside(s, terms, x, k, _variance(s, x, k) if terms.batch == 1 else None)
    return k, scored[..., -1], beside


Learnt = tuple[Masked, Masked, Masked]
"""o k (contexts, arms, features), gains (contexts, features), and o (r - s) (contexts, arms)."""


def _learn_one(
    s: Session,
    terms: Terms,
    k: Masked,
    score: Masked,
    o: Masked,
    inverse_: Masked,
    deals: Deals | None,
) -> Rounds[Learnt]:
    """Learn from one context, given 1 / (1 + x.k) of every arm."""
    chosen = s.mask(s.product(o[..., None], k))
    shrink = s.mask(s.product(o[..., None, :], inverse_[..., None, :], contract=True))
    reward = _reward(s, terms, deals)
    yield
    gain = s.truncate(s.product(chosen.sum(-2), shrink), terms.bits, "gain")
    error = s.mask(s.product(o, reward[..., None]) - s.product(o, score))
    yield
    return chosen, gain, error


def _learn_batch(
    s: Session,
    terms: Terms,
    k: Masked,
    score: Masked,
    o: Masked,
    coupling: Masked,
    deals: Deals | None,
) -> Rounds[Learnt]:
    """Learn from all contexts of a batch: invert what couples those that chose the same arm."""
    f = terms.bits
    chosen = s.mask(s.product(o[..., None], k))
    half = s.mask(s.product(o[..., None, :, :], coupling))
    reward = _reward(s, terms, deals)
    yield
    same = s.mask(s.product(half, o[..., :, None, :], contract=True))
    error = s.mask(s.product(o, reward[..., None]) - s.product(o, score))
    yield
    inverted = yield from inverse(s, same, f)
    directions = chosen.sum(-2).swap(-1, -2)
    gain = s.truncate(
        s.product(directions[..., None, :, :], inverted[..., :, None, :], contract=True), f, "gain"
    )
    yield
    return chosen, gain, error


def _learn_before(
    s: Session,
    terms: Terms,
    layout: Layout,
    model: Shared,
    known: Masked,
    x: Masked,
    o: Masked,
    deals: Deals | None,
) -> Rounds[Shared]:
    """Learn from the context before, whose arm is known: 6 rounds."""
    f = terms.bits
    picked = s.mask(s.product(o[..., 0, None, :], known.swap(-1, -2), contract=True))
    yield
    raw = s.product(picked[..., None, layout.rows], x[..., None, :], contract=True)
    scored = yield from _truncated(s, raw, f, "learnt score and direction")
    k, score = scored[..., :-1], scored[..., -1]
    chosen = s.mask(s.product(o[..., None], k[..., None, :]))
    rough = reciprocal_lines(s, s.product(k, x, contract=True), f)
    yield
    inverse_, reward = (
        s.truncate(rough.shared, sum(line_bits(f)) - f, "reciprocal"),
        _reward(s, terms, deals),
    )
    yield
    gain = s.truncate(s.product(k, inverse_[..., None]), f, "gain")
    error = s.mask(s.product(o, reward[..., None]) - s.product(o, score[..., None]))
    yield
    return (yield from _update(s, terms, layout, model, o, chosen, gain, error))


def _only_decide(
    s: Session,
    terms: Terms,
    layout: Layout,
    model: Shared,
    x: Masked,
    hand: Hand | None,
    deals: Deals | None,
) -> Rounds[Shared]:
    """Reveal the arms of a frozen run, and wait until they are pulled; the model stays as it is.

    Without a bonus weights alone are opened under masks.
    """
    known = s.mask(model if terms.bonus else model[..., layout.triangle :])
    yield
    rows = layout.rows if terms.bonus else layout.rows[-1:] - layout.triangle
    yield from _decide(s, terms, rows, known, x, hand, deals)
    _choice(s, terms, deals)
    yield
    return model


def _decide(
    s: Session,
    terms: Terms,
    rows: NDArray[np.int64],
    known: Masked,
    x: Masked,
    hand: Hand | None,
    deals: Deals | None,
) -> Rounds[None]:
    """Reveal arms for contexts: 5 rounds for up to 11 arms, 1 more where scores are truncated
    first.

    `rows` are the rows of the model that are multiplied with a context, that of the weights last.
    """
    raw = s.product(known[..., None, :, rows], x[..., None, None, :], contract=True)
    if terms.early:
        yield from _reveal(s, terms, raw[..., -1], None, hand, deals)
        return
    scored = yield from _truncated(s, raw, terms.bits, "scores and directions")
    variance = _variance(s, x, scored[..., :-1]) if terms.bonus else None
    yield from _reveal(s, terms, scored[..., -1].shared, variance, hand, deals)


def _truncated(s: Session, x: Shared, bits: int, label: str) -> Rounds[Masked]:
    cut = s.truncate(x, bits, label)
    yield
    return cut


def _select(
    s: Session,
    terms: Terms,
    score: Shared,
    variance: Shared | None,
    hand: Hand | None,
    deals: Deals | None,
) -> Rounds[Masked]:
    """Let the puller pull, and take its one-hot vector in under a mask."""
    yield from _reveal(s, terms, score, variance, hand, deals)
    o = _choice(s, terms, deals)
    yield
    return o


def _choice(s: Session, terms: Terms, deals: Deals | None) -> Masked:
    shape = (terms.batch, terms.arms)
    return s.input(PULLER, shape, lambda: _deals(deals).inputs(PULLER, shape))


def _reveal(
    s: Session,
    terms: Terms,
    score: Shared,
    variance: Shared | None,
    hand: Hand | None,
    deals: Deals | None,
) -> Rounds[None]:
    """Reveal to the puller, and nobody else, the arm with the best score, or the coin's."""
    shape = (terms.batch, terms.arms)
    ties = s.dealt(shape, lambda: _deals(deals).coins.ties.astype(np.uint64))
    explores, explored = _coin(s, terms, hand, deals)
    ranked = (score << terms.tie_bits) + _turned(ties, hand, 2)
    if terms.bonus:
        assert variance is not None
        seen = _turned(variance, hand, 3) if terms.bonus == "thompson" else variance
        table = s.tabulate(
            seen,
            2 * terms.bits - GRID,
            GRID + 1,
            lambda at: _bonus(terms, _deals(deals), at),
            "bonus",
        )
        yield
        bonus = (
            _turned(table.shared, hand, 3, back=True) if terms.bonus == "thompson" else table.shared
        )
        ranked = (ranked << terms.spare_bits) + bonus
    best = yield from argmax(s, ranked, unless=explores)
    revealed = best ^ explored
    if hand is not None and hand.pad is not None:
        # Shares come from dealt tables: without a pad the dealer could tell from them how the arms
        # ranked.
        revealed = Bits(s, revealed.share ^ hand.pad)
    s.reveal(PULLER, revealed)
    yield


def _turned(numbers: Shared, hand: Hand | None, which: int, *, back: bool = False) -> Shared:
    """Rotate the arms of every context by a number that the parties know and the dealer does
    not.
    """
    if hand is None:
        return numbers
    turns = -hand.turns[:, which] if back else hand.turns[:, which]
    arms = numbers.share.shape[-1]
    index = (np.arange(arms) - turns[:, None]) % arms
    return Shared(numbers.session, np.take_along_axis(numbers.share, index, axis=-1))


@lru_cache(maxsize=16)
def root_table(terms: Terms) -> NDArray[np.float64]:
    """Return width sqrt(q) in units of 2^-bonus_bits at every place; places above 3/4 stand for q a
    little below 0.

    The places are 2^-10 apart, and q is rounded at random to one of its two neighbours: the table's
    error is below .016 for q >= 2^-10, and below .032 everywhere.
    """
    places = np.arange(2 << GRID)
    q = np.where(places >= 3 << (GRID - 1), 0, np.minimum(places, 1 << GRID)) / float(1 << GRID)
    return np.asarray(np.sqrt(q) * (terms.width / 2.0**WIDTH_BITS) * 2.0**terms.bonus_bits)


def _bonus(terms: Terms, deals: Deals, at: Words) -> NDArray[np.uint32]:
    """Return the bonus at places of its table."""
    root = root_table(terms)[at.astype(np.int64)]
    if terms.bonus == "thompson":
        root = root * deals.coins.normals[..., None]
    return np.rint(root).astype(np.int64).astype(np.uint32)


def _reward(s: Session, terms: Terms, deals: Deals | None) -> Masked:
    return s.input(PAYEE, (terms.batch,), lambda: _deals(deals).inputs(PAYEE, (terms.batch,)))


def _context(s: Session, terms: Terms, hand: Hand | None, deals: Deals | None) -> Masked:
    """Take in every party's features, one behind the other: (contexts, features); with overlap of
    now and before.
    """

    def block(party: str, size: int) -> Masked:
        shape = (terms.batch + terms.lag, size)
        own = hand.features if hand is not None and party == s.name else None
        return s.input(party, shape, lambda: _deals(deals).inputs(party, shape), own)

    return s.join(
        [block(party, size) for party, size in zip(terms.parties, terms.features, strict=True)]
    )


def _coin(s: Session, terms: Terms, hand: Hand | None, deals: Deals | None) -> tuple[Bits, Bits]:
    """Return whether each context explores (a last axis of one), and the explored arm's one-hot
    vector if so.
    """
    many, arms, batch = terms.explore[1], terms.arms, terms.batch
    table = s.dealt_bytes((batch, many, (arms + 8) // 8), lambda: _deals(deals).coins.packed(arms))
    if hand is None:
        return s.unknown_bits((batch, 1), 1), s.unknown_bits((batch, arms), 1)
    rows = np.unpackbits(table[np.arange(batch), hand.turns[:, 0]], axis=-1, bitorder="little")
    index = (np.arange(arms) - hand.turns[:, 1, None]) % arms + 1
    bits = rows.astype(np.uint16)
    return Bits(s, bits[:, :1]), Bits(s, np.take_along_axis(bits, index, axis=-1))


def _deals(deals: Deals | None) -> Deals:
    assert deals is not None
    return deals


# What a pass takes --------------------------------------------------------------------------------


def plan(terms: Terms) -> Plan:
    """Return what one step takes: tapes, rounds and bytes."""
    many = terms.explore[1]
    arms, batch = terms.arms, terms.batch
    coins = Dealt(
        np.zeros((1, batch, many), bool),
        np.zeros((1, batch, many), np.int64),
        np.zeros((1, batch, arms), np.int64),
        np.zeros((1, batch, arms)),
    )
    deals = Deals(coins, lambda owner, shape: np.zeros((1, *shape), np.uint64))
    return plan_of(lambda s: blind(s, terms, Layout(terms.dimension), deals))


def blind(s: Session, terms: Terms, layout: Layout, deals: Deals) -> Rounds[Shared]:
    """Run the program without anybody's numbers: as the dealer does, and to count what it takes."""
    model = Shared(s, s.nothing((*s.lead, terms.arms, layout.size)))
    return step(s, terms, layout, model, None, deals)


def input_masks(key: bytes, number: int, count: int) -> Words:
    """Return the masks of an owner's inputs in a step; the owner and the dealer know them."""
    return np.frombuffer(keystream(key, number << _STEP, 8 * count), "<u8")


@dataclass(frozen=True)
class Costs:
    """What one step costs one party: rounds and bytes, counted from the program; bytes without
    frames and headers.
    """

    rounds: float
    """Fewer than the rounds of a pass where it is a batch of steps."""
    sent: float
    """Bytes that a party sends: to every other party, and to the puller."""
    received: float
    """Bytes that a party receives from the other parties, the puller and the payee."""
    dealt: float
    """Bytes that a party receives from the dealer, on average: parties take turns."""


def costs(terms: Terms) -> Costs:
    """Return what a step costs a party, the largest of them.

    >>> one = costs(Terms("r", ("a", "b"), (10, 10), 10, 60_000, (1, 10)))
    >>> one.rounds, one.sent + one.received + one.dealt < 150_000
    (11.0, True)
    """
    made, parties, batch = plan(terms), len(terms.parties), terms.batch
    shares = sum(one.shares for one in made.rounds) / batch
    inputs = 8 * max(terms.features) * (1 + terms.lag)
    outside = 8 * (terms.arms + (0 if terms.frozen else 1))
    return Costs(
        rounds=len(made.rounds) / batch,
        sent=(parties - 1) * (shares + inputs) + terms.arms,
        received=(parties - 1) * shares + 8 * terms.dimension * (1 + terms.lag) + outside,
        dealt=made.sizes.dealt_bytes / parties / batch,
    )


def planned_seconds(one: Costs, latency: float, bandwidth: float, compute: float) -> float:
    """Estimate the time of a step: every round waits for one message, and bytes for the wire;
    `compute` is a party's.

    `latency` in milliseconds one way, `bandwidth` in megabits a second and role. What the dealer
    sends travels ahead and beside, and counts for the wire only.

    >>> round(
    ...     planned_seconds(
    ...         Costs(11, 40_000, 40_000, 40_000), latency=20, bandwidth=100, compute=0.002
    ...     ),
    ...     3,
    ... )
    0.228
    """
    wire = max(one.sent, one.received + one.dealt) * 8 / (bandwidth * 1e6)
    return one.rounds * latency / 1e3 + wire + compute
