"""The key operations of the learner on shares, each by itself: rounds, bytes and CPU time, beside plain numpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.experiments.output import Row
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.comparison import argmax
from posse.privacy.sharing.dealing import Dealer, Plan, Supply, plan_of
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.privacy.sharing.local import opened, run_sessions
from posse.privacy.sharing.reciprocal import reciprocal
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.values import Bits, Shared

Floats = NDArray[np.float64]
BITS = 26
NEWTON = 2
PAUSES = 7
"""How often the plain operation is timed; the median counts."""


@dataclass(frozen=True)
class Operation:
    """One operation: on shares, and in numpy."""

    name: str
    program: Callable[[Session, Shared, Shared], Rounds[Shared | Bits]]
    plain: Callable[[Floats, Floats], Floats]
    inputs: Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]
    out_bits: int
    """Fraction bits of the result; 0 for a one-hot vector of bits."""
    in_bits: int = BITS


@dataclass(frozen=True)
class Measured:
    """What an operation took: seconds of one party (online), of one party for its tape, and of the dealer."""

    name: str
    shape: tuple[int, ...]
    parties: int
    rounds: int
    sent: int
    dealt: int
    plain: float
    online: float
    tape: float
    dealing: float
    error: float
    """Largest difference from the plain result."""

    @property
    def slowdown(self) -> float:
        """One party's online time over that of the plain operation."""
        return self.online / self.plain

    @property
    def slowdown_dealt(self) -> float:
        """The same with everything that comes before: a party's expansion of its seed, and the dealer."""
        return (self.online + self.tape + self.dealing) / self.plain

    def row(self) -> Row:
        """The operation as a row of a raw file."""
        return {
            "operation": self.name, "shape": "x".join(map(str, self.shape)), "parties": self.parties,
            "rounds": self.rounds, "bytes_sent_by_a_party": self.sent, "bytes_dealt": self.dealt,
            "plain_us": 1e6 * self.plain, "online_us_a_party": 1e6 * self.online, "tape_us_a_party": 1e6 * self.tape,
            "dealer_us": 1e6 * self.dealing, "slowdown": self.slowdown, "slowdown_with_dealing": self.slowdown_dealt,
            "largest_error": self.error,
        }  # fmt: skip


def _addition(s: Session, x: Shared, y: Shared) -> Rounds[Shared]:
    yield from ()
    return x + y


def _multiplication(s: Session, x: Shared, y: Shared) -> Rounds[Shared]:
    """Mask, multiply and truncate: 2 rounds."""
    left, right = s.mask(x), s.mask(y)
    yield
    product = s.truncate(s.product(left, right), BITS)
    yield
    return product.shared


def _reciprocal(s: Session, x: Shared, y: Shared) -> Rounds[Shared]:
    """1 / (1 + x) for x in [0, 1], as the learner needs it."""
    found = yield from reciprocal(s, x, BITS, NEWTON)
    return found.shared


def _argmax(s: Session, x: Shared, y: Shared) -> Rounds[Bits]:
    """Largest number, ties in a dealt random order."""
    count = x.shape[-1]
    ties = s.dealt((count,), lambda: np.random.default_rng(1).permutation(count).astype(np.uint64)[None])
    return (yield from argmax(s, (x << (count - 1).bit_length()) + ties))


def _one_hot(x: Floats, y: Floats) -> Floats:
    found = np.zeros(len(x))
    found[x.argmax()] = 1.0
    return found


def _signed(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    return rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape)


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    return rng.uniform(0, 1, shape), np.zeros(shape)


OPERATIONS = (
    Operation("addition", _addition, np.add, _signed, BITS),
    Operation("multiplication", _multiplication, np.multiply, _signed, BITS),
    Operation("reciprocal", _reciprocal, lambda x, y: 1.0 / (1.0 + x), _unit, BITS, in_bits=2 * BITS),
    Operation("argmax", _argmax, _one_hot, _signed, 0),
)


def measure(operation: Operation, shape: tuple[int, ...], parties: int, passes: int, seed: int = 1) -> Measured:
    """Do an operation so many times between parties in this process, each on fresh shares and fresh randomness."""
    rng = np.random.default_rng(seed)
    x, y = operation.inputs(rng, shape)
    words = [_encode(value, operation.in_bits) for value in (x, y)]
    names = [f"party-{number}" for number in range(1, parties + 1)]
    plan = plan_of(lambda s: _blind(s, operation, shape))
    secrets = Secrets(b"posse table one".ljust(32, b"."))
    keys = {name: secrets.key(b"sharing", context=name.encode()) for name in names}
    dealer = Dealer(lambda s, _: _blind(s, operation, shape), plan, keys)
    supplies = [Supply(plan, keys[name], name, names) for name in names]
    spent = {"online": 0.0, "tape": 0.0, "dealing": 0.0}
    rounds = sent = 0
    error = 0.0
    for number in range(passes):
        if number % plan.passes == 0:
            spent["dealing"] += _deal(dealer, supplies, plan, number // plan.passes)
        begun = time.thread_time()
        sessions = [Session(n, names, supply.open(number)) for n, supply in zip(names, supplies, strict=True)]
        spent["tape"] += time.thread_time() - begun
        shares = [_shares(word, parties, rng) for word in words]
        given = [(Shared(s, a), Shared(s, b)) for s, a, b in zip(sessions, *shares, strict=True)]
        begun = time.thread_time()
        done = run_sessions(
            sessions, [operation.program(s, *pair) for s, pair in zip(sessions, given, strict=True)], plan
        )
        spent["online"] += time.thread_time() - begun
        rounds, sent = done.rounds, done.sent
        error = max(error, _error(operation, done.results, operation.plain(x, y)))
    dealt = -(-passes // plan.passes) * plan.passes
    return Measured(
        operation.name, shape, parties, rounds, sent, plan.sizes.dealt_bytes, _plain_seconds(operation, x, y),
        spent["online"] / passes / parties, spent["tape"] / passes / parties, spent["dealing"] / dealt, error,
    )  # fmt: skip


def _blind(s: Session, operation: Operation, shape: tuple[int, ...]) -> Rounds[Shared | Bits]:
    """The program as the dealer runs it."""
    nothing = s.nothing((*s.lead, *shape))
    return operation.program(s, Shared(s, nothing), Shared(s, nothing))


def _deal(dealer: Dealer, supplies: list[Supply], plan: Plan, chunk: int) -> float:
    begun = time.thread_time()
    data = dealer.deal(chunk)
    spent = time.thread_time() - begun
    for supply in supplies:
        if supply.mine(chunk):
            supply.take(chunk, data)
    return spent


def _encode(values: Floats, bits: int) -> Words:
    if bits <= BITS:
        return FixedPoint(bits, most=1.0).encode(values)
    return FixedPoint(BITS, most=1.0).encode(values) << np.uint64(bits - BITS)


def _shares(words: Words, parties: int, rng: np.random.Generator) -> list[Words]:
    parts = [rng.integers(0, 2**64, words.shape, np.uint64) for _ in range(parties - 1)]
    return [*parts, words - np.sum(parts, axis=0, dtype=np.uint64)]


def _error(operation: Operation, results: tuple[Shared | Bits, ...], wanted: Floats) -> float:
    """Open the result and see how far it is from the plain one."""
    shares = [result.share for result in results]
    if operation.out_bits == 0:
        found = np.bitwise_xor.reduce(shares).astype(np.float64)
    else:
        found = FixedPoint(operation.out_bits, most=2.0).decode(opened([np.asarray(one, np.uint64) for one in shares]))
    return float(np.abs(found - wanted).max())


def _plain_seconds(operation: Operation, x: Floats, y: Floats) -> float:
    """Median time of the plain operation; of arg max without making it a vector."""

    def work() -> object:
        return x.argmax() if operation.out_bits == 0 else operation.plain(x, y)

    times = []
    for _ in range(PAUSES):
        begun = time.thread_time()
        for _ in range(2_000):
            work()
        times.append((time.thread_time() - begun) / 2_000)
    return float(np.median(times))
