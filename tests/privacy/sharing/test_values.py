"""What is local: adding, scaling, indexing, summing of shared and masked numbers and bits; opening
under masks.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.privacy.sharing.local import opened
from posse.privacy.sharing.values import words_of
from tests.privacy.sharing.engine import (
    EDGES,
    HARD_MASKS,
    LARGEST,
    PARTIES,
    added,
    in_range,
    parties,
    repeated,
    run,
    seeds,
    shared,
    shared_bits,
    signed,
    some,
    streams,
    watch,
    words,
    wrapped,
    xored,
)

lists = st.lists(in_range, min_size=1, max_size=40)
factors = st.one_of(
    st.integers(-(2**64), 2**64), st.sampled_from([0, 1, -1, 2**63, -(2**63), 2**64 - 1])
)


@some
@given(parties, seeds, lists)
@example(2, 0, EDGES)
@example(5, 1, [2**63 - 1, -(2**63), *EDGES])
def test_masking_keeps_the_number_and_costs_8_bytes(n: int, seed: int, x: list[int]) -> None:
    def program(s):
        masked = s.mask(shared(s, x, seed))
        yield
        return masked.shared

    done = run(program, n, seed)
    assert added(done.results).tolist() == x
    assert (done.rounds, done.sent) == (1, 8 * len(x))
    assert (done.plan.sizes.mask, done.plan.sizes.dealt_bytes) == (len(x), 0)


@pytest.mark.parametrize("masks", HARD_MASKS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_masks_at_the_edges(n: int, masks: tuple[bytes, ...]) -> None:
    def program(s):
        masked = s.mask(shared(s, EDGES))
        yield
        return masked.shared

    with streams(repeated(*masks)):
        seen = watch(program, n)
    mask = sum(int.from_bytes(masks[party % len(masks)], "little") for party in range(n))
    assert added(seen.results).tolist() == EDGES
    assert signed(seen.sessions[0].seen[0]).tolist() == wrapped([x - mask for x in EDGES]).tolist()


@some
@given(parties, seeds, lists, factors)
@example(3, 0, EDGES, 2**63)
@example(2, 0, EDGES, -1)
def test_local_operations(n: int, seed: int, x: list[int], factor: int) -> None:
    y = x[::-1]
    shift = seed % 64

    def program(s):
        a, b = shared(s, x, seed), shared(s, y, seed + 1)
        yield from ()
        return (
            a + b,
            a - b,
            -a,
            a * factor,
            a * words(y),
            a << shift,
            a + factor,
            a + words(y),
            a[..., ::2],
            a[..., None, :].sum(),
            a.join(b),
            s.constant(words(x)),
            (a + b)[..., None] * 3,
        )

    wanted = [
        [p + q for p, q in zip(x, y, strict=True)],
        [p - q for p, q in zip(x, y, strict=True)],
        [-p for p in x],
        [p * factor for p in x],
        [p * q for p, q in zip(x, y, strict=True)],
        [p << shift for p in x],
        [p + factor for p in x],
        [p + q for p, q in zip(x, y, strict=True)],
        x[::2],
        [sum(x)],
        x + y,
        x,
        [[3 * (p + q)] for p, q in zip(x, y, strict=True)],
    ]
    done = run(program, n, seed)
    assert (done.rounds, done.sent) == (0, 0)
    for place, numbers in enumerate(wanted):
        assert added(done.results, place).tolist() == wrapped(numbers).tolist(), place


@some
@given(parties, seeds, lists, st.integers(1, 31), factors)
@example(2, 0, EDGES, 31, 2**63)
@example(3, 7, EDGES, 1, -(2**62))
def test_masked_numbers_are_indexed_negated_shifted_and_added_to(
    n: int, seed: int, x: list[int], bits: int, add: int
) -> None:
    """With a wrap (after a truncation) and without."""
    shift = seed % 33

    def program(s):
        plain, cut = s.mask(shared(s, x, seed)), s.truncate(shared(s, x, seed), bits)
        yield
        made = [
            [
                one,
                one[..., ::-1],
                -one,
                one + add,
                one + words(x),
                one << shift,
                -(one + add) << shift,
            ]
            for one in (plain, cut)
        ]
        return [
            *([each.shared for each in ones] for ones in made),
            plain[..., None, :].sum().shared,
        ]

    done = run(program, n, seed)
    for which in (0, 1):
        one = added(done.results, which, 0).tolist()
        assert which or one == x
        wanted = [
            one,
            one[::-1],
            [-a for a in one],
            [a + add for a in one],
            [a + b for a, b in zip(one, x, strict=True)],
            [a << shift for a in one],
            [-(a + add) << shift for a in one],
        ]
        for place, numbers in enumerate(wanted):
            assert added(done.results, which, place).tolist() == wrapped(numbers).tolist(), (
                which,
                place,
            )
    assert added(done.results, 2).tolist() == wrapped([sum(x)]).tolist()


@pytest.mark.parametrize("n", PARTIES)
def test_axes_are_swapped(n: int) -> None:
    x = np.array(EDGES[:24], dtype=object).reshape(2, 3, 4)

    def program(s):
        plain, cut = s.mask(shared(s, x)), s.truncate(shared(s, x), 7)
        yield
        return (
            plain.swap(-1, -2).shared,
            cut.shared,
            cut.swap(-1, -2).shared,
            s.product(cut.swap(-1, -2), -cut.swap(-2, -1)),
        )

    done = run(program, n)
    assert added(done.results, 0).tolist() == x.swapaxes(1, 2).tolist()
    swapped = added(done.results, 1).swapaxes(1, 2)
    assert added(done.results, 2).tolist() == swapped.tolist()
    assert added(done.results, 3).tolist() == wrapped(-swapped * swapped).tolist()


@some
@given(parties, seeds, st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_bits_are_flipped_split_packed_and_joined(
    n: int, seed: int, rows: int, size: int, width: int
) -> None:
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, 2**width, (rows, 3 * size)).tolist() for _ in range(2))
    flip = random.integers(0, 2**width, (rows, 3 * size))

    def program(s):
        a, b = shared_bits(s, x, width, seed), shared_bits(s, y, width, seed + 1)
        yield from ()
        pieces = a.split(size)
        assert (pieces.width, pieces.packed().width) == (width, width * size)
        return a, a ^ b, a ^ flip, a ^ 1, a.join(b), pieces, pieces.packed(), a[..., ::-1]

    each = [[row[i : i + size] for i in range(0, 3 * size, size)] for row in x]
    wanted = [
        x,
        [[p ^ q for p, q in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)],
        [
            [p ^ q for p, q in zip(*rows, strict=True)]
            for rows in zip(x, flip.tolist(), strict=True)
        ],
        [[p ^ 1 for p in row] for row in x],
        [p + q for p, q in zip(x, y, strict=True)],
        each,
        [[sum(p << (width * i) for i, p in enumerate(piece)) for piece in row] for row in each],
        [row[::-1] for row in x],
    ]
    done = run(program, n, seed)
    for place, numbers in enumerate(wanted):
        assert xored(done.results, place).tolist() == numbers, place


@pytest.mark.parametrize("n", PARTIES)
def test_inputs_of_parties_and_of_roles_outside(n: int) -> None:
    """The owner sends 8 bytes a number to every party; a party that brings inputs sends nothing
    else for them.
    """
    random = np.random.default_rng(n)
    owners = [f"party-{number}" for number in range(1, n + 1)]
    brought = {owner: EDGES[number::7] for number, owner in enumerate([*owners, "outsider"])}
    pads = {owner: random.integers(0, 2**64, len(x), np.uint64) for owner, x in brought.items()}

    def taken(s, owner):
        own = words(brought[owner]) - pads[owner] if s.name == owner else None
        return s.input(owner, (len(brought[owner]),), lambda: pads[owner], own)

    def program(s):
        parts = [taken(s, owner) for owner in owners]
        whole = s.join(parts)
        last = taken(s, "outsider")
        known = s.mask(shared(s, EDGES[:5]))
        yield
        return whole.shared, last.shared, known.shared, [part.shared for part in parts]

    sent = (words(brought["outsider"]) - pads["outsider"]).tobytes()
    seen = watch(program, n, outside=[{"outsider": sent}])
    assert added(seen.results, 0).tolist() == [x for owner in owners for x in brought[owner]]
    assert added(seen.results, 1).tolist() == brought["outsider"]
    assert added(seen.results, 2).tolist() == EDGES[:5]
    for number, owner in enumerate(owners):
        assert added(seen.results, 3, number).tolist() == brought[owner]
    assert seen.broadcast == [[8 * len(brought[owner]) + 8 * 5 for owner in owners]]
    (travels,) = seen.plan.rounds
    assert travels.shares == 8 * 5
    assert travels.inputs == {owner: 8 * len(x) for owner, x in brought.items()}
    assert all(
        travels.expected(owner, party=True) == 8 * len(brought[owner]) + 40 for owner in owners
    )
    assert travels.expected("outsider", party=False) == len(sent)
    for number, waits in enumerate(seen.expected[0]):
        others = [owner for owner in owners if owner != owners[number]]
        wanted = {owner: travels.expected(owner, party=True) for owner in others}
        assert waits == {**wanted, "outsider": len(sent)}
    assert all(session.rounds == 1 for session in seen.sessions)


@pytest.mark.parametrize("n", PARTIES)
def test_bits_are_revealed_to_one_role_and_to_nobody_else(n: int) -> None:
    first, second = [1, 0, 0, 1, 1], [0, 1, 1]

    def program(s):
        s.reveal("puller", shared_bits(s, first, seed=1))
        s.reveal("payee", shared_bits(s, second, seed=2))
        s.reveal("puller", shared_bits(s, second, seed=3))
        yield
        s.reveal("payee", shared_bits(s, first, seed=4))
        yield
        return ()

    seen = watch(program, n)
    assert seen.broadcast == [[0] * n, [0] * n]
    wanted = [{"puller": first + second, "payee": second}, {"payee": first}]
    for got, bits in zip(seen.reveals, wanted, strict=True):
        assert {
            to: np.bitwise_xor.reduce([list(one) for one in data]).tolist()
            for to, data in got.items()
        } == bits
    assert [one.reveals for one in seen.plan.rounds] == [
        {to: len(one) for to, one in round_.items()} for round_ in wanted
    ]


def test_what_is_not_opened_yet_cannot_be_read() -> None:
    def early(read):
        def program(s):
            x = shared(s, [1, 2])
            masked, cut, found = s.mask(x), s.truncate(x, 3), None
            inside = s.input(
                "party-1",
                (2,),
                lambda: words([0, 0]),
                words([1, 2]) if s.name == "party-1" else None,
            )
            found = s.look_up(
                shared_bits(s, [1, 0]), lambda mask: np.zeros((*mask.shape, 1), np.uint8), 1
            )
            if not s.deals:
                read(s, masked, cut, inside, found)
            yield
            return ()

        return program

    reads = [
        lambda s, masked, cut, inside, found: masked.public,
        lambda s, masked, cut, inside, found: masked.shared,
        lambda s, masked, cut, inside, found: cut.public,
        lambda s, masked, cut, inside, found: inside.shared,
        lambda s, masked, cut, inside, found: s.join([inside]).public,
        lambda s, masked, cut, inside, found: masked[..., :1].public,
        lambda s, masked, cut, inside, found: (-masked + 1).public,
        lambda s, masked, cut, inside, found: found.bits,
    ]
    for read in reads:
        with pytest.raises(RuntimeError, match="yield first"):
            run(early(read), 2)
    with pytest.raises((RuntimeError, AssertionError)):
        run(early(lambda s, masked, cut, inside, found: cut.shared), 2)

    def multiplying(s):
        masked = s.mask(shared(s, [1, 2]))
        s.product(masked, masked)
        yield
        return ()

    with pytest.raises(RuntimeError, match="yield first"):
        run(multiplying, 2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_only_plain_masks_are_summed_and_joined(n: int) -> None:
    def summing(s):
        cut = s.truncate(shared(s, [5, 6]), 1)
        yield
        return cut[..., None, :].sum().shared

    def joining(s):
        whole = s.join([s.truncate(shared(s, [5, 6]), 1)])
        yield
        return whole.shared

    for program in (summing, joining):
        with pytest.raises(AssertionError):
            run(program, n)


def test_public_numbers_are_twos_complement() -> None:
    for number in (0, 1, -1, LARGEST, -LARGEST, -(2**63), 2**64 + 5, -(2**64)):
        assert words_of(number).tolist() == [number % 2**64]
    assert opened([words([-1]), words([3])]).tolist() == [2]
