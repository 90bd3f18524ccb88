"""Nonces, length and order of the frames of a real federation are independent of the owner.

Ten owners, level `paper`, without a world seed. Significance .001 a test. The operating system's randomness is
replaced by a fixed stream, so the answer is the same every time. Each test is shown a planted leak
too, which it finds with power above .99.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import numpy as np
import pytest

from posse.policies import UCB
from posse.privacy.crypto.paillier import generate_key
from posse.problems import BernoulliArms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.messages import Batch, Reply, Score
from tests.kit.statistics import chi_square, chi_square_limit, contingency

OWNERS, BUDGET = 10, 1510
ALPHA = 1e-6
"""Chance that a test fails without a leak: keys are drawn anew in every run."""
NAMES = [f"owner-{i + 1}" for i in range(OWNERS)]


class Seen(NamedTuple):
    """What the servers saw: (pass, owner, byte) arrays, and at which place each owner's frame was
    forwarded.
    """

    frames: np.ndarray
    replies: np.ndarray
    places: np.ndarray
    lengths: set[int]
    batches: set[int]


@pytest.fixture(scope="module")
def seen() -> Seen:
    counter = iter(range(1 << 40))

    def fixed(length: int) -> bytes:
        return hashlib.shake_256(b"a fixed stream" + next(counter).to_bytes(8, "little")).digest(
            length
        )

    with pytest.MonkeyPatch.context() as patch:
        arms = BernoulliArms(np.linspace(0.1, 0.9, OWNERS))
        key = generate_key(2048)
        patch.setattr(os, "urandom", fixed)
        roles = federation(arms, UCB(), BUDGET, seed=None, level="paper", key=key)
        run = MemoryRun(roles, SimulatedWorld(arms, 3, BUDGET), transcript=10**6)
        run.finish()
    assert run.transcript is not None
    return collected(run)


def collected(run: MemoryRun) -> Seen:
    frames: dict[tuple[int, str], bytes] = {}
    replies: dict[tuple[int, str], bytes] = {}
    batches: dict[int, bytes] = {}
    for entry in run.transcript or ():
        if isinstance(entry.message, Score):
            frames[entry.message.index, entry.sender] = entry.message.frame
        elif isinstance(entry.message, Reply):
            replies[entry.message.index, entry.receiver] = entry.message.reply
        elif isinstance(entry.message, Batch):
            batches[entry.message.index] = entry.message.frames
    size = len(next(iter(frames.values())))

    def place(index: int, name: str) -> int:
        at = batches[index].index(frames[index, name])
        assert at % size == 0
        return at // size

    def table(values: dict[tuple[int, str], bytes]) -> np.ndarray:
        return np.array(
            [[list(values[index, name]) for name in NAMES] for index in sorted(batches)]
        )

    return Seen(
        table(frames),
        table(replies),
        np.array([[place(index, name) for name in NAMES] for index in sorted(batches)]),
        {len(frame) for frame in frames.values()},
        {len(batch) for batch in batches.values()},
    )


def by_owner(values: np.ndarray) -> np.ndarray:
    """Counts of byte values by owner, all positions of the bytes together."""
    return np.array(
        [np.bincount(values[:, owner].ravel(), minlength=256) for owner in range(OWNERS)]
    )


def names_its_sender(values: np.ndarray) -> bool:
    """Chi-square test of independence of byte value and owner, for each position alone and for all
    together.
    """
    tables = [by_owner(values), *(by_owner(values[:, :, at]) for at in range(values.shape[2]))]
    limits = [contingency(table) for table in tables]
    # The positions share one significance, the total has its own.
    alphas = [ALPHA] + [ALPHA / values.shape[2]] * values.shape[2]
    return any(
        statistic > chi_square_limit(freedom, alpha)
        for (statistic, freedom), alpha in zip(limits, alphas, strict=True)
    )


def permuted(counts: np.ndarray) -> float:
    """Chi-square of (K - 1)^2 degrees of freedom, of the sum of K x K permutations: Pearson's
    statistic is K / (K - 1) times as large, since the counts of a permutation vary less than those
    of independent draws.
    """
    return chi_square(counts) * (OWNERS - 1) / OWNERS


def leaking(values: np.ndarray) -> np.ndarray:
    """Plant a leak: in every tenth pass the first byte is the owner's number."""
    out = values.copy()
    out[::10, :, 0] = np.arange(OWNERS)
    return out


def test_all_frames_and_replies_have_one_length(seen: Seen) -> None:
    assert seen.frames.shape[:2] == (BUDGET - OWNERS, OWNERS)
    assert len(seen.lengths) == 1
    assert len(seen.batches) == 1
    assert seen.replies.shape[2] == 30


def test_nonces_do_not_depend_on_the_owner(seen: Seen) -> None:
    """The leak adds 150 to an expected count of 6 in one of 256 classes of each owner:
    noncentrality above 8000.
    """
    nonces = seen.frames[:, :, 1:13]
    assert not names_its_sender(nonces)
    assert names_its_sender(leaking(nonces))
    flat = nonces.reshape(-1, 12)
    assert len(np.unique(flat, axis=0)) == len(flat)


def test_ciphertexts_do_not_depend_on_the_owner(seen: Seen) -> None:
    """Tags are left out: they depend on the parties' long-term keys, which no stream of ours
    fixes.
    """
    sealed = seen.frames[:, :, 13:-16]
    assert not names_its_sender(sealed)
    assert names_its_sender(leaking(sealed))


def test_replies_do_not_depend_on_the_owner_nor_repeat(seen: Seen) -> None:
    """Nonce and sealed bit; the bit itself says who is pulled, and no byte of it may."""
    sealed = seen.replies[:, :, 1:-16]
    assert not names_its_sender(sealed)
    assert names_its_sender(leaking(sealed))
    nonces = sealed[:, :, :12].reshape(-1, 12)
    assert len(np.unique(nonces, axis=0)) == len(nonces)


def test_version_bytes_are_all_the_same(seen: Seen) -> None:
    assert set(seen.frames[:, :, 0].ravel().tolist()) == {1}


def test_frames_are_forwarded_at_a_place_that_does_not_depend_on_the_owner(seen: Seen) -> None:
    """10 x 10 counts, rows and columns fixed: 81 degrees of freedom, 150 expected in each.

    The planted leak does not permute one pass in ten: 135 more in each of ten cells, noncentrality
    above 1000.
    """
    assert (np.sort(seen.places, axis=1) == np.arange(OWNERS)).all()

    def statistic(places: np.ndarray) -> float:
        counts = [np.bincount(places[:, owner], minlength=OWNERS) for owner in range(OWNERS)]
        return permuted(np.array(counts))

    limit = chi_square_limit((OWNERS - 1) ** 2, ALPHA)
    assert statistic(seen.places) < limit
    planted = seen.places.copy()
    planted[::10] = np.arange(OWNERS)
    assert statistic(planted) > limit


def test_the_place_of_one_pass_says_nothing_about_the_next(seen: Seen) -> None:
    """Places of all owners in successive passes, 10 x 10 classes; fresh permutations, 81 degrees of
    freedom.
    """

    def statistic(places: np.ndarray) -> float:
        classes = OWNERS * places[:-1] + places[1:]
        return permuted(np.bincount(classes.ravel(), minlength=OWNERS**2))

    limit = chi_square_limit((OWNERS - 1) ** 2, ALPHA)
    assert statistic(seen.places) < limit
    stuck = np.repeat(seen.places[::20], 20, axis=0)[: len(seen.places)]
    half = np.where(
        np.arange(len(seen.places))[:, None] % 10 < 9, seen.places, np.roll(seen.places, 1, axis=0)
    )
    assert statistic(stuck) > limit
    assert statistic(half) > limit
