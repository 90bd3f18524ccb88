"""The paper's learner in fixed point, simulated on whole numbers modulo 2^64, for Figures 8 and 9.

A number v is held as round(v 2^L), and every product is cut back by L bits. Two things can be
chosen.

The form. `published`: W_a^-1 and b_a are kept and w_a = W_a^-1 b_a is worked out anew for all arms
in every step; the reciprocal of d = 1 + x.W^-1 x starts from 3 exp(1/2 - d) + .003, the exponential
being (1 + v / 2^8)^(2^8) by eight squarings in the same fixed point, as in CrypTen. `recursive`:
P_a and w_a as in `floats`, the reciprocal from 2.12121212 - 1.45454545 d + .32323232 d^2, which
needs contexts of norm at most 1 (d in [1, 2]).

The truncation. `published`: every party cuts its own share, and the wraps of the shares are counted
by Algorithm 3 without its last term eta. `exact`: by dealt pairs. Both round up or down by chance
so that the mean is right; the first is off by 2^(64 - L) with probability |x| / 2^64, the second
never is while |x| < 2^62.

The one-hot of the arm and the coin are 0 or 1 and cost no truncation; arms that are not pulled are
multiplied by 0 and not worked out. A step of the published form at 10 arms and 20 features makes
1,074 truncations and takes about 20 microseconds, the recursive form 287 and 6.

A. Hannun et al.: Privacy-preserving multi-party contextual bandits; Algorithms 1 and 3, Appendices
B to D.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.compiled import compiled_loops
from posse.core.random import words64
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.twins.floats import (
    Floats,
    Wholes,
    check_inputs,
    plain,
    tidy,
    winner,
)

Word = np.uint64
"""A number modulo 2^64. Compiled code takes for granted that signed sums and products do not
overflow; these may.
"""
Words = NDArray[np.uint64]

FORMS = ("published", "recursive")
TRUNCATIONS = ("published", "exact")
NEWTON = {"published": 7, "recursive": 2}
"""Newton steps of the reciprocal unless given."""
SHARES = 32
"""Purpose of the draws: the shares of every number that is cut, (seed, step), one attempt a
number.
"""
EXPONENT_SQUARINGS = 8

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_TOP, _QUARTER = np.uint64(63), np.uint64(1 << 62)
_LOW63 = np.uint64((1 << 63) - 1)


class Setup(NamedTuple):
    """What does not change during a run."""

    key: Word
    bits: Word
    exact: bool
    recursive: bool
    newton: int


class Outcome(NamedTuple):
    """What came out, a row a step."""

    arms: Wholes
    greedy: Wholes
    rewards: Floats
    weights: Floats
    """(arms, features) at the end."""
    inverses: Floats
    """(arms, features, features) at the end."""
    wraps: int
    """Truncations that were off by a multiple of 2^(64 - L), or could be: those of |x| >= 2^62
    where it is `exact`.
    """


@compiled_loops
def overflow(a: Word, b: Word) -> int:
    """Return n where a + b = c + n 2^64, all three read as signed numbers."""
    sign = a >> _TOP
    if sign != b >> _TOP or sign == (a + b) >> _TOP:
        return 0
    return 1 if sign == 0 else -1


@compiled_loops
def toward_zero(x: Word, bits: Word) -> Word:
    """Divide by 2^bits as C does a signed number."""
    up = x + (x >> _TOP) * ((_ONE << bits) - _ONE)
    return np.uint64(np.int64(up) >> np.int64(bits))


@compiled_loops
def share_wise(x: Word, share: Word, pad: Word, bits: Word) -> Word:
    """Cut x as two parties do that hold `share` and x - share (Appendix C), with eta left out.

    The result is [x]_1 / 2^f + [x]_2 / 2^f - n 2^(64-f) with n = theta_z + beta - theta_r, where r
    (`pad`) is the number that Algorithm 3 adds. Sums of signed numbers give [x]_p + [r]_p = [z]_p +
    beta_p 2^64, and so on, so that n = theta_x + eta, however r is split into shares: theta_x
    counts the wraps of [x]_1 + [x]_2, which is right, and eta those of x + r, which occur with
    probability |x| / 2^64. CrypTen does not count at all for two parties: it is off by theta_x, by
    chance as often and by as much. Apart from wraps, shares of different signs give floor(x / 2^f)
    or one more; with probability |x| / 2^64 they have the same one, and the result is up to two
    units nearer to 0.
    """
    other = x - share
    wrapped = np.uint64(overflow(share, other) + overflow(x, pad))
    return toward_zero(share, bits) + toward_zero(other, bits) - (wrapped << (np.uint64(64) - bits))


@compiled_loops
def dealt(x: Word, r: Word, bits: Word) -> Word:
    """Cut x by a dealt pair: floor(x / 2^f) or one more, for -2^62 <= x < 2^62.

    With hi = (r mod 2^63) >> f and m = msb r dealt as shares and c = x + 2^62 + r opened, the carry
    out of 63 bits is v = m xor msb c, which is linear in m, and the result ((c mod 2^63) >> f) - hi
    + v 2^(63-f) - 2^(62-f).
    """
    c = x + _QUARTER + r
    carry = (c ^ r) >> _TOP
    return (
        ((c & _LOW63) >> bits)
        - ((r & _LOW63) >> bits)
        + (carry << (_TOP - bits))
        - (_QUARTER >> bits)
    )


@compiled_loops
def cut(x: Word, bits: Word, setup: Setup, state: Wholes) -> Word:
    """Cut x by `bits` bits with fresh shares; `state` is (step, numbers cut in this step, wraps so
    far).
    """
    first, second = words64(setup.key, SHARES, 0, state[0], state[1])
    state[1] += 1
    if setup.exact:
        state[2] += (x + _QUARTER) >> _TOP != 0
        return dealt(x, first, bits)
    state[2] += overflow(x, second) != 0
    return share_wise(x, first, second, bits)


@compiled_loops
def _times(a: Word, b: Word, setup: Setup, state: Wholes) -> Word:
    return cut(a * b, setup.bits, setup, state)


@compiled_loops
def _dot(a: Words, b: Words, setup: Setup, state: Wholes) -> Word:
    """Multiply and add modulo 2^64, then cut once."""
    total = np.uint64(0)
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return cut(total, setup.bits, setup, state)


@compiled_loops
def _fixed(value: float, setup: Setup) -> Word:
    return np.uint64(round(value * float(_ONE << setup.bits)))


@compiled_loops
def _exponential_start(d: Word, setup: Setup, state: Wholes) -> Word:
    small = cut(_fixed(0.5, setup) - d, np.uint64(EXPONENT_SQUARINGS), setup, state)
    power = (_ONE << setup.bits) + small
    for _ in range(EXPONENT_SQUARINGS):
        power = _times(power, power, setup, state)
    return _THREE * power + _fixed(0.003, setup)


@compiled_loops
def _quadratic_start(d: Word, setup: Setup, state: Wholes) -> Word:
    square = _times(d, d, setup, state)
    bent = _fixed(0.32323232, setup) * square - _fixed(1.45454545, setup) * d
    return _fixed(2.12121212, setup) + cut(bent, setup.bits, setup, state)


@compiled_loops
def reciprocal(d: Word, setup: Setup, state: Wholes) -> Word:
    """Return 1 / d by y <- 2 y - d y^2, two truncations a step."""
    y = (
        _quadratic_start(d, setup, state)
        if setup.recursive
        else _exponential_start(d, setup, state)
    )
    for _ in range(setup.newton):
        y = _TWO * y - _times(_times(y, y, setup, state), d, setup, state)
    return y


@compiled_loops
def _direction(inverse: Words, x: Words, k: Words, setup: Setup, state: Wholes) -> Word:
    """Write k = W^-1 x, and return 1 / d."""
    for i in range(x.shape[0]):
        k[i] = _dot(inverse[i], x, setup, state)
    return reciprocal((_ONE << setup.bits) + _dot(k, x, setup, state), setup, state)


@compiled_loops
def _learn_published(
    inverse: Words, sums: Words, x: Words, reward: Word, k: Words, setup: Setup, state: Wholes
) -> None:
    """W^-1 -= (k k^T) (1 / d), b += r x; every product is cut by itself, so W^-1 is symmetric up to
    rounding only.
    """
    size, share = x.shape[0], _direction(inverse, x, k, setup, state)
    for i in range(size):
        for j in range(size):
            inverse[i, j] -= _times(_times(k[i], k[j], setup, state), share, setup, state)
        sums[i] += _times(x[i], reward, setup, state)


@compiled_loops
def _solve(inverses: Words, sums: Words, weights: Words, setup: Setup, state: Wholes) -> None:
    """Work out w = W^-1 b anew for all arms, as no party may know whose model has changed."""
    for a in range(weights.shape[0]):
        for i in range(weights.shape[1]):
            weights[a, i] = _dot(inverses[a, i], sums[a], setup, state)


@compiled_loops
def _learn_recursive(
    inverse: Words, weights: Words, x: Words, error: Word, k: Words, setup: Setup, state: Wholes
) -> None:
    """P -= k g^T, upper triangle and its mirror, and w += e g, with the gain g = k / d."""
    share = _direction(inverse, x, k, setup, state)
    for i in range(x.shape[0]):
        gain = _times(k[i], share, setup, state)
        weights[i] += _times(error, gain, setup, state)
        for j in range(i + 1):
            inverse[i, j] -= _times(gain, k[j], setup, state)
            inverse[j, i] = inverse[i, j]


@compiled_loops
def _simulate(
    features: Words,
    rewards: Words,
    coins: Coins,
    setup: Setup,
    inverses: Words,
    sums: Words,
    weights: Words,
    arms: Wholes,
    greedy: Wholes,
    state: Wholes,
) -> None:
    steps, size = features.shape
    scores, k = np.zeros(weights.shape[0], np.int64), np.zeros(size, np.uint64)
    for t in range(steps):
        x = features[t]
        state[0], state[1] = t, 0
        for a in range(weights.shape[0]):
            scores[a] = np.int64(_dot(weights[a], x, setup, state))
        greedy[t] = winner(scores, coins.ties[t])
        arm = arms[t] = coins.arms[t] if coins.explore[t] else greedy[t]
        if setup.recursive:
            error = rewards[t, arm] - np.uint64(scores[arm])
            _learn_recursive(inverses[arm], weights[arm], x, error, k, setup, state)
        else:
            _learn_published(inverses[arm], sums[arm], x, rewards[t, arm], k, setup, state)
            _solve(inverses, sums, weights, setup, state)


def encode(values: Floats, bits: int) -> Words:
    """Round to the nearest multiple of 2^-bits."""
    return np.rint(np.ldexp(plain(values), bits)).astype(np.int64).view(np.uint64)


def decode(numbers: Words, bits: int) -> Floats:
    """Return the values of signed fixed-point numbers."""
    return np.ldexp(numbers.view(np.int64).astype(np.float64), -bits)


def simulate(
    features: Floats,
    rewards: Floats,
    coins: Coins,
    *,
    bits: int = 20,
    form: str = "published",
    truncation: str = "published",
    newton: int | None = None,
    seed: int = 0,
) -> Outcome:
    """Run the bandit as `floats.run` does, in fixed point; shares come from `seed`."""
    steps, arms, size = check_inputs(features, rewards, coins)
    check.between(8, 30, bits=bits)
    check.one_of(FORMS, form=form)
    check.one_of(TRUNCATIONS, truncation=truncation)
    newton = NEWTON[form] if newton is None else newton
    check.at_least(0, newton=newton)
    check.between(0, 2**64 - 1, seed=seed)
    setup = Setup(
        np.uint64(seed), np.uint64(bits), truncation == "exact", form == "recursive", newton
    )
    inverses = np.tile(encode(np.eye(size), bits), (arms, 1, 1))
    sums, weights = np.zeros((arms, size), np.uint64), np.zeros((arms, size), np.uint64)
    pulled, greedy, state = (
        np.empty(steps, np.int64),
        np.empty(steps, np.int64),
        np.zeros(3, np.int64),
    )
    x, r = encode(features, bits), encode(rewards, bits)
    _simulate(x, r, tidy(coins), setup, inverses, sums, weights, pulled, greedy, state)
    earned = plain(rewards)[np.arange(steps), pulled]
    return Outcome(
        pulled, greedy, earned, decode(weights, bits), decode(inverses, bits), int(state[2])
    )
