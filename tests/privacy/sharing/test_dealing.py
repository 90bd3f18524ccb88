"""The dealer: shares add up to what it computed, come once, and hide it from all parties but all
together.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from posse.privacy.sharing.comparison import argmax, choose, less
from posse.privacy.sharing.dealing import Dealer, Plan, Supply, plan_of
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.tape import TRACKS, Sizes
from tests.privacy.sharing.engine import (
    LARGEST,
    check_uniform,
    run,
    secrets,
    shared,
    shared_bits,
    watch,
    words,
)

FEW = range(2, 6)


def names_of(n: int) -> list[str]:
    return [f"party-{number}" for number in range(1, n + 1)]


def keys_of(n: int, seed: int = 0) -> dict[str, bytes]:
    return {name: secrets(seed).key(b"sharing", context=name.encode()) for name in names_of(n)}


class Recorder:
    """A program that takes items of every track, and what the dealer computed and saw when it
    ran.
    """

    def __init__(self, scale: int = 1) -> None:
        self.random = np.random.default_rng(7)
        self.computed: dict[str, list[np.ndarray]] = {}
        self.free: dict[str, list[np.ndarray]] = {}
        self.firsts: list[int] = []
        self._scale = scale

    def __call__(self, s: Session, first: int = 0) -> Any:
        self.computed, self.free = (
            {name: [] for name in TRACKS[2:]},
            {name: [] for name in TRACKS[:2]},
        )
        self.firsts.append(first)

        def deal(name: str, high: int, kind: Any, shape: tuple[int, ...]) -> Any:
            def drawn() -> np.ndarray:
                made = self.random.integers(0, high, (*s.lead, *shape), dtype=kind)
                made[..., 0] = high - 1
                self.computed[name].append(made)
                return made

            return drawn

        for _ in range(2):
            size = 5 * self._scale
            self.free["mask"].append(s.tape.mask((size,)))
            s.tape.wide((2, size), deal("wide", 2**64, np.uint64, (2, size)))
            self.free["bits"].append(s.tape.bits((3, 3)))
            s.tape.narrow((7,), deal("narrow", 2**32, np.uint64, (7,)))
            s.tape.table((2, 9), deal("table", 2**8, np.uint8, (2, 9)))
        yield

    def track(self, name: str, passes: int) -> np.ndarray:
        """What the dealer had of a track, a row a pass."""
        parts = self.computed.get(name) or self.free[name]
        return np.concatenate([part.reshape(passes, -1) for part in parts], axis=-1)


def take_all(tape: Any, sizes: Sizes) -> dict[str, np.ndarray]:
    free = {"mask": tape.mask((sizes.mask,)), "bits": tape.bits((sizes.bits,))}
    return {
        **free,
        **{name: getattr(tape, name)((getattr(sizes, name),), None) for name in TRACKS[2:]},
    }


@pytest.mark.parametrize("n", [1, *FEW])
@pytest.mark.parametrize("scale", [1, 1000])
def test_shares_add_up_to_what_was_computed(n: int, scale: int) -> None:
    """For every track, pass, chunk and receiver; Python adds."""
    program = Recorder(scale)
    plan = plan_of(program)
    assert plan.passes == (64 if scale == 1 else 1)
    names, keys = names_of(n), keys_of(n)
    dealer = Dealer(program, plan, keys)
    supplies = [Supply(plan, keys[name], name, names) for name in names]
    for chunk in range(2 * n):
        dealt = dealer.deal(chunk)
        had = {name: program.track(name, plan.passes) for name in TRACKS}
        assert program.firsts[-1] == chunk * plan.passes
        assert len(dealt) == plan.passes * plan.sizes.dealt_bytes
        assert dealer.receiver(chunk) == names[chunk % n]
        assert [supply.mine(chunk) for supply in supplies] == [
            name == dealer.receiver(chunk) for name in names
        ]
        supplies[chunk % n].take(chunk, dealt)
        for place in range(0, plan.passes, 9):
            number = chunk * plan.passes + place
            tracks = [take_all(supply.open(number), plan.sizes) for supply in supplies]
            for name, modulus in (("mask", 2**64), ("wide", 2**64), ("narrow", 2**32)):
                total = [
                    sum(map(int, each)) % modulus
                    for each in zip(*(one[name] for one in tracks), strict=True)
                ]
                assert total == had[name][place].tolist(), name
            for name in ("bits", "table"):
                assert (
                    np.bitwise_xor.reduce([one[name] for one in tracks]).tolist()
                    == had[name][place].tolist()
                ), name
            assert plan.free(list(keys.values()), number).tolist() == had["mask"][place].tolist()


def test_passes_dealt_together_make_about_256_kibibytes() -> None:
    for table, passes in (
        (0, 64),
        (16, 64),
        (4096, 64),
        (4112, 63),
        (100_000, 2),
        (2**18, 1),
        (2**20, 1),
    ):
        assert Plan(Sizes(table=table), (), {}).passes == passes


def fixed(s: Session) -> Any:
    """Numbers and tables that are the same in every pass."""
    s.mask(s.constant(words([1, 2])))
    s.dealt((4,), lambda: words([1, 2, 3, 4]))
    s.dealt_bytes((5,), lambda: np.arange(5, dtype=np.uint8))
    yield


def fixed_dealer(plan: Plan, keys: dict[str, bytes]) -> Dealer:
    return Dealer(lambda s, _: fixed(s), plan, keys)


@pytest.mark.parametrize("n", FEW)
def test_corrections_are_determined_by_keys_and_chunk(n: int) -> None:
    plan = plan_of(fixed)
    one, again, other = (fixed_dealer(plan, keys_of(n, seed)) for seed in (0, 0, 1))
    dealt = [one.deal(chunk) for chunk in range(4)]
    assert [again.deal(chunk) for chunk in (3, 2, 1, 0)] == dealt[::-1]
    assert [one.deal(chunk) for chunk in range(4)] == dealt
    assert len({*dealt, *(other.deal(chunk) for chunk in range(4))}) == 8


@pytest.mark.parametrize("n", FEW)
def test_corrections_leave_out_the_key_of_their_receiver(n: int) -> None:
    """What it is sent does not depend on its own seed, where what is dealt does not depend on
    masks.
    """
    plan = plan_of(fixed)
    for chunk in range(n):
        for place, name in enumerate(names_of(n)):
            keys = keys_of(n)
            before = fixed_dealer(plan, keys).deal(chunk)
            keys[name] = bytes(32)
            assert (fixed_dealer(plan, keys).deal(chunk) == before) == (place == chunk)


def test_no_block_of_the_key_streams_comes_twice() -> None:
    """Over keys and passes, far apart too; blocks of 16 bytes, 1 in 2^100 are equal by chance."""
    plan = plan_of(lambda s: argmax(s, shared(s, list(range(10)))))
    numbers = [0, 1, 2, 3, 63, 64, 2**20, 2**32, 2**40, 2**40 + 1]
    blocks = [
        plan.stream(key, number)[: size // 16 * 16].reshape(-1, 16)
        for seed in (0, 1)
        for key in keys_of(3, seed).values()
        for number in numbers
        for size in [plan.sizes.free_bytes + plan.sizes.dealt_bytes]
    ]
    found = [block.tobytes() for blocks_ in blocks for block in blocks_]
    assert len(found) > 60_000
    assert len(set(found)) == len(found)


# What shares and openings give away ---------------------------------------------------------------

SAMPLES = 8192
"""Dealt words that a chi-square with 16 cells looks at, at level 1e-6: a seed in a million fails.

A distribution that is .1 away in total variation has noncentrality 4 .1^2 8192 = 328 at least, and
the limit is 56: it is found with a chance above 1 - 1e-9.
"""
SECRETS = [0, 1, -1, LARGEST, -LARGEST, 0x0123456789ABCDEF]


def check_words(found: np.ndarray) -> None:
    """Look at the highest, the middle and the lowest four bits."""
    assert found.size >= SAMPLES
    width = 8 * found.dtype.itemsize
    for place in {0, max(0, width // 2 - 2), width - 4}:
        check_uniform((found >> found.dtype.type(place)) & found.dtype.type(15), 16)


def strict_subsets(n: int) -> list[tuple[int, ...]]:
    return [some for size in range(1, n) for some in itertools.combinations(range(n), size)]


def sharing(secret: int) -> Any:
    """Everything by which a party comes to a share of a secret."""
    x = [secret] * SAMPLES

    def program(s: Session) -> Any:
        dealt = s.dealt((SAMPLES,), lambda: words(x))
        tables = s.dealt_bytes((SAMPLES,), lambda: np.full(SAMPLES, secret % 256, np.uint8))
        masked, cut = s.mask(shared(s, x)), s.truncate(shared(s, x), 13)
        yield
        return dealt, masked.shared, cut.shared, s.product(masked, cut), tables

    return program


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("n", FEW)
def test_all_parties_but_one_know_nothing(n: int, secret: int) -> None:
    """The shares of every strict subset add up to uniform words, whatever is shared, and by
    whatever operation.
    """
    done = run(sharing(secret), n, seed=secret % 1000)
    for subset in strict_subsets(n):
        for place in range(4):
            check_words(
                np.sum(
                    [done.results[party][place].share for party in subset], axis=0, dtype=np.uint64
                )
            )
        check_words(np.bitwise_xor.reduce([done.results[party][4] for party in subset]))


def test_all_parties_together_know_it() -> None:
    """The same statistic does see the secret in the sum of all shares."""
    done = run(sharing(LARGEST), 3)
    with pytest.raises(AssertionError):
        check_words(np.sum([result[0].share for result in done.results], axis=0, dtype=np.uint64))
    with pytest.raises(AssertionError):
        check_words(np.bitwise_xor.reduce([result[4] for result in done.results]))


@pytest.mark.parametrize("n", FEW)
def test_a_share_over_many_passes_is_uniform(n: int) -> None:
    """One secret dealt again and again, by the key streams and corrections of successive passes and
    chunks.
    """

    def program(s: Session) -> Any:
        s.dealt((32,), lambda: words([LARGEST] * 32))
        yield

    plan, keys, names = plan_of(program), keys_of(n), names_of(n)
    dealer = Dealer(lambda s, _: program(s), plan, keys)
    supplies = [Supply(plan, keys[name], name, names) for name in names]
    shares = []
    for number in range(SAMPLES // 32):
        if number % plan.passes == 0:
            chunk = number // plan.passes
            supplies[chunk % n].take(chunk, dealer.deal(chunk))
        shares.append(
            [supply.open(number).wide((32,), lambda: np.zeros(0, np.uint64)) for supply in supplies]
        )
    words_ = np.array(shares)
    assert set(words_.sum(axis=1, dtype=np.uint64).ravel().tolist()) == {LARGEST}
    for subset in strict_subsets(n):
        check_words(words_[:, list(subset)].sum(axis=1, dtype=np.uint64))


def opening(secret: int) -> Any:
    """Open a secret in every way in which one is opened."""
    x = [[secret, secret // 3]] * (SAMPLES // 2)

    def program(s: Session) -> Any:
        s.truncate(shared(s, x), 20)
        masked = s.mask(shared(s, x))
        yield
        yield from less(s, masked)
        rows = s.look_up(shared_bits(s, [secret % 2048] * SAMPLES, 11), _no_table(256), 1)
        s.look_up(shared_bits(s, [secret % 16] * SAMPLES, 4), _no_table(2), 1)
        yield
        return rows.bits

    return program


def _no_table(size: int) -> Any:
    return lambda mask: np.zeros((*mask.shape, size), np.uint8)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_what_is_opened_is_uniform(n: int, secret: int) -> None:
    seen = watch(opening(secret), n, seed=secret % 1000).sessions[0].seen
    cut, masked, blocks, last, eleven, four = seen
    for found in (cut, masked, blocks):
        check_words(found)
    assert last.size == SAMPLES // 2
    check_words(np.concatenate([last.ravel(), blocks.ravel()[: SAMPLES // 2]]))
    check_uniform(last & 15, 16)
    check_uniform(last >> 4, 16)
    assert eleven.max() < 2**11
    assert four.max() < 2**4
    check_uniform(eleven & 15, 16)
    check_uniform(eleven >> 7, 16)
    check_uniform(four, 16)


@pytest.mark.parametrize("n", FEW)
def test_what_is_opened_is_uniform_to_all_parties_but_one(n: int) -> None:
    """A coalition takes its own masks off what was opened; what the one outside added is left
    over.
    """
    x = [LARGEST] * SAMPLES

    def program(s: Session) -> Any:
        masked = s.mask(shared(s, x))
        yield
        return masked

    done = run(program, n)
    for outside in range(n):
        masks = [result.mask for party, result in enumerate(done.results) if party != outside]
        check_words(done.results[0].public + np.sum(masks, axis=0, dtype=np.uint64))
    everyone = np.sum([result.mask for result in done.results], axis=0, dtype=np.uint64)
    assert set((done.results[0].public + everyone).tolist()) == {LARGEST}


@pytest.mark.parametrize("bit", [0, 1])
def test_what_choosing_opens_is_a_fair_bit(bit: int) -> None:
    """Of 8,192 bits: 5 standard deviations are 226; a bias of .05 gives 410, found with a chance
    above 1 - 1e-4.
    """

    def program(s: Session) -> Any:
        masked = s.mask(shared(s, [[3] * SAMPLES]))
        yield
        return (yield from choose(s, shared_bits(s, [[bit] * SAMPLES]), masked))

    found = watch(program, 2, seed=bit).sessions[0].seen[1]
    assert set(np.unique(found).tolist()) == {0, 1}
    assert abs(int(found.sum()) - SAMPLES // 2) < 226


@pytest.mark.parametrize("place", [0, 4, 9])
def test_the_revealed_vector_is_shared_evenly(place: int) -> None:
    """Each party's share of the winner's vector is uniform: all shares together give their XOR and
    nothing else.
    """
    x = [[9 if i == place else i - 20 for i in range(10)]] * 1024

    def program(s: Session) -> Any:
        best = yield from argmax(s, shared(s, x))
        s.reveal("puller", best)
        yield
        return best

    (shares,) = [one["puller"] for one in watch(program, 2, seed=place).reveals if one]
    bits = np.array([list(data) for data in shares]).reshape(2, 1024, 10)
    assert np.bitwise_xor.reduce(bits)[:, place].all()
    assert np.bitwise_xor.reduce(bits).sum() == 1024
    for party in range(2):
        for column in range(10):
            assert abs(int(bits[party, :, column].sum()) - 512) < 5 * 16
        check_uniform(bits[party, :, :4] @ [1, 2, 4, 8], 16)
