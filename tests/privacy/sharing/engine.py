"""What the tests of secret sharing share: numbers at the edges, shares of them, and parties in one
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing import dealing
from posse.privacy.sharing.dealing import Dealer, Plan, Program, Supply, plan_of
from posse.privacy.sharing.local import Computed, run_sessions
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.tape import Sizes, Tape
from posse.privacy.sharing.values import Bits, Shared
from tests.kit.statistics import chi_square, chi_square_limit

LARGEST = 2**62 - 1
"""The declared range is -LARGEST to LARGEST."""
PARTIES = (1, 2, 3, 4, 5)
"""One party is the plain form."""
EDGES = sorted(
    {0, 1, -1, LARGEST, -LARGEST, 0x5555555555555555 >> 2, -(0x5555555555555555 >> 2)}
    | {
        sign * min(LARGEST, 2**place + by)
        for place in range(1, 63)
        for by in (-1, 0, 1)
        for sign in (1, -1)
    }
)
"""Ends of the range, all powers of two and their neighbours, all-ones, alternating bits."""

some = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32)
parties = st.sampled_from(PARTIES)
in_range = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-LARGEST, LARGEST),
    st.integers(0, 62).flatmap(
        lambda size: st.integers(-min(2**size, LARGEST), min(2**size, LARGEST))
    ),
)
"""Edges, uniform numbers, and numbers of every length."""


def compute(program: Program, parties: int, secrets: Secrets | None = None) -> Computed:
    """Run a program between parties in this process, with a dealer."""
    names = [f"party-{number}" for number in range(1, parties + 1)]
    secrets = Secrets.fresh() if secrets is None else secrets
    plan = plan_of(program)
    keys = {name: secrets.key(b"sharing", context=name.encode()) for name in names}
    dealt = Dealer(lambda session, _: program(session), plan, keys).deal(0)
    sessions = []
    for name in names:
        supply = Supply(plan, keys[name], name, names)
        if supply.mine(0):
            supply.take(0, dealt)
        sessions.append(Session(name, names, supply.open(0)))
    return run_sessions(sessions, [program(session) for session in sessions], plan)


def words(numbers: Any) -> np.ndarray:
    """Python integers modulo 2^64."""
    objects = np.array(numbers, dtype=object)
    return np.vectorize(lambda number: number % 2**64, otypes=[np.uint64])(objects)


def signed(array: np.ndarray) -> np.ndarray:
    """Words as Python integers, those with the top bit as negative ones."""
    return np.vectorize(lambda word: int(word) - 2**64 * (int(word) >> 63), otypes=[object])(array)


def wrapped(numbers: Any) -> np.ndarray:
    """Python integers taken modulo 2^64 into -2^63 to 2^63 - 1."""
    return np.vectorize(lambda number: (number + 2**63) % 2**64 - 2**63, otypes=[object])(
        np.array(numbers, object)
    )


def secrets(seed: int) -> Secrets:
    return Secrets(sha256(f"tests of sharing {seed}".encode()).digest())


def shared(s: Session, numbers: Any, seed: int = 0) -> Shared:
    """Share numbers: all parties but the first have random words."""
    x = words(numbers)
    if s.deals:
        return Shared(s, s.nothing((*s.lead, *x.shape)))
    random = np.random.default_rng(seed)
    parts = [random.integers(0, 2**64, x.shape, np.uint64) for _ in s.parties[1:]]
    first = x - np.sum([np.zeros_like(x), *parts], axis=0, dtype=np.uint64)
    return Shared(s, [first, *parts][s.parties.index(s.name)])


def shared_bits(s: Session, numbers: Any, width: int = 1, seed: int = 0) -> Bits:
    x = np.array(numbers, np.uint16)
    if s.deals:
        return s.unknown_bits(x.shape, width)
    random = np.random.default_rng(seed)
    parts = [random.integers(0, 2**width, x.shape).astype(np.uint16) for _ in s.parties[1:]]
    first = np.bitwise_xor.reduce([x, *parts], axis=0)
    return Bits(s, [first, *parts][s.parties.index(s.name)], width)


def added(results: Sequence[Any], *path: int) -> np.ndarray:
    """Add up the parties' results, as Python integers; `path` leads to one of a nested result."""
    total = 0
    for result in results:
        for step in path:
            result = result[step]
        total = total + signed(result.share)
    return wrapped(total)


def xored(results: Sequence[Any], *path: int) -> np.ndarray:
    total = np.uint16(0)
    for result in results:
        for step in path:
            result = result[step]
        total = total ^ result.share
    return total


def run(program: Program, parties: int, seed: int = 0) -> Computed:
    return compute(program, parties, secrets(seed))


@contextmanager
def streams(pattern: Callable[[bytes, int, int], bytes]) -> Any:
    """Take chosen bytes in the place of the AES key stream: (key, counter, length) -> bytes."""
    with mock.patch.object(dealing, "keystream", pattern):
        yield


def repeated(*blocks: bytes) -> Callable[[bytes, int, int], bytes]:
    """Give every key the same 8 bytes again and again; keys take turns in the order they are first
    seen.
    """
    seen: dict[bytes, int] = {}

    def pattern(key: bytes, counter: int, length: int) -> bytes:
        block = blocks[seen.setdefault(key, len(seen)) % len(blocks)]
        return (block * (length // len(block) + 1))[:length]

    return pattern


HARD_MASKS = [
    tuple(number.to_bytes(8, "little") for number in numbers)
    for numbers in (
        (0,),
        (2**64 - 1,),
        (2**63,),
        (2**63 - 1,),
        (2**62,),
        (2**64 - 2**62,),
        (1,),
        (0, 2**63),
        (2**64 - 1, 1),
        (0x5555555555555555, 0xAAAAAAAAAAAAAAAA),
        (2**63 - 1, 1),
        (2**63, 2**64 - 1),
    )
]
"""Key streams that give masks at the edges: 0, all ones, the top bit alone or not at all, carries
through all bits.
"""


@dataclass
class Seen:
    """What a run in one place gave, and everything that travelled, by round."""

    plan: Plan
    sessions: list[Watched]
    results: list[Any] = field(default_factory=list)
    reveals: list[dict[str, list[bytes]]] = field(default_factory=list)
    """What each role outside got from each party."""
    broadcast: list[list[int]] = field(default_factory=list)
    """Bytes that each party sent to each other one."""
    expected: list[list[dict[str, int]]] = field(default_factory=list)
    """Bytes that each party waited for."""


class Watched(Session):
    """A session that notes what is opened."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[np.ndarray] = []

    def open(self, share: np.ndarray, then: Any, *, xor: bool = False) -> None:
        def noted(total: np.ndarray) -> None:
            self.seen.append(total)
            then(total)

        super().open(share, noted, xor=xor)


def tapes(
    program: Program, plan: Plan, parties: int, seed: int, passes: Iterable[int]
) -> list[list[Tape]]:
    """Deal, and open the tapes of some passes: by pass, by party."""
    names = [f"party-{number}" for number in range(1, parties + 1)]
    keys = {name: secrets(seed).key(b"sharing", context=name.encode()) for name in names}
    dealer = Dealer(lambda session, _: program(session), plan, keys)
    supplies = [Supply(plan, keys[name], name, names) for name in names]
    found, dealt = [], set()
    for number in passes:
        chunk = number // plan.passes
        if chunk not in dealt:
            dealt.add(chunk)
            supplies[names.index(dealer.receiver(chunk))].take(chunk, dealer.deal(chunk))
        found.append([supply.open(number) for supply in supplies])
    return found


def watch(
    program: Program, parties: int, seed: int = 0, outside: Sequence[dict[str, bytes]] = ()
) -> Seen:
    """Run a program between parties and note everything that travels; `outside` has what other
    roles send, by round.
    """
    plan = plan_of(program)
    (own,) = tapes(program, plan, parties, seed, [0])
    names = [f"party-{which}" for which in range(1, parties + 1)]
    seen = Seen(plan, [Watched(name, names, tape) for name, tape in zip(names, own, strict=True)])
    programs = [program(session) for session in seen.sessions]
    while True:
        for one in programs:
            try:
                next(one)
            except StopIteration as end:
                seen.results.append(end.value)
        if seen.results:
            assert len(seen.results) == parties
            for tape in own:
                tape.finish()
            return seen
        _exchange(seen, outside)


def _exchange(seen: Seen, outside: Sequence[dict[str, bytes]]) -> None:
    number = len(seen.broadcast)
    made = {session.name: session.outgoing() for session in seen.sessions}
    seen.broadcast.append([len(one.broadcast) for one in made.values()])
    seen.expected.append([one.expected for one in made.values()])
    roles = {to for one in made.values() for to in one.reveals}
    seen.reveals.append({to: [one.reveals[to] for one in made.values()] for to in roles})
    for session in seen.sessions:
        sent = {name: one.broadcast for name, one in made.items() if name != session.name}
        session.deliver({**sent, **(outside[number] if number < len(outside) else {})})


def check_uniform(samples: np.ndarray, cells: int, alpha: float = 1e-6) -> None:
    """Chi-square of equal cells; see where it is called for its power."""
    counts = np.bincount(samples.ravel().astype(np.int64), minlength=cells)
    assert len(counts) == cells
    assert chi_square(counts) < chi_square_limit(cells - 1, alpha)


def nothing() -> np.ndarray:
    raise AssertionError("a party computes nothing of what is dealt")


def blank(sizes: Sizes, number: int = 0) -> Tape:
    data = (
        np.random.default_rng(number)
        .integers(0, 256, sizes.free_bytes + sizes.dealt_bytes)
        .astype(np.uint8)
    )
    return Tape(sizes, data, number)


def table_sizes(count: int) -> list[tuple[int, int]]:
    """Number of tables and bits in each, round by round."""
    tables = (count + 10) // 11
    size = (count + tables - 1) // tables
    return [(tables, size), *(table_sizes(tables) if tables > 1 else [])]
