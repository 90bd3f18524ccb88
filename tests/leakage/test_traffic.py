"""What travels says nothing about who pulled: frames of a network run with a slow source, counted
on the wire.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from math import comb

import pytest

from posse.runtime.network import deployment
from posse.runtime.network.party import Party
from posse.systems.samba.attacks.network import BUDGET, OWNERS, recorded
from posse.systems.samba.settings import Samba


def watched(level: str) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Run a federation whose rewards take a while.

    Return how much every owner has acknowledged and how large its frame was, pass by pass, and who
    pulled before it.
    """
    found = recorded(Samba(policy="ucb", level=level, owners=OWNERS, budget=BUDGET), seed=0)
    return (
        [marks for marks, _, _ in found.seen],
        [sizes for _, sizes, _ in found.seen],
        list(found.truth["arms"]),
    )


def telling(party: Party) -> None:
    """Plant a fault: an owner acknowledges what it has whenever a reward is on its disk."""
    engine, sync = party.engine, party.engine.sync

    def told() -> None:
        sync()
        for link in engine.links.values():
            link.durable = link.received
        party.tell_durable()

    engine.sync = told  # type: ignore[method-assign]


def guesses(seen: Sequence[Sequence[int]], seed: int = 1) -> list[int]:
    """Guess in every pass who has acknowledged most, and by chance among equals."""
    rng = random.Random(seed)
    return [rng.choice([at for at, mark in enumerate(now) if mark == max(now)]) for now in seen]


def likely_by_chance(hits: int, tries: int, p: float) -> float:
    """Probability that guessing an arm that is pulled with probability p hits so often."""
    return sum(comb(tries, n) * p**n * (1 - p) ** (tries - n) for n in range(hits, tries + 1))


def chance(marks: Sequence[Sequence[int]], pulled: Sequence[int]) -> float:
    """How likely it is to guess as often as acknowledgements do, by naming the commonest arm."""
    hits = sum(guess == arm for guess, arm in zip(guesses(marks), pulled, strict=True))
    print(f"\nthe arm was named in {hits} of {len(pulled)} steps")
    return likely_by_chance(hits, len(pulled), max(Counter(pulled).values()) / len(pulled))


def test_an_acknowledgement_that_tells_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: marks that move when a reward is on the disk name the arm."""
    make = deployment.make_party

    def faulty(*args, **named):
        party, *rest = make(*args, **named)
        if party.engine.role.kind == "owner":
            telling(party)
        return party, *rest

    monkeypatch.setattr(deployment, "make_party", faulty)
    marks, _, pulled = watched("strict")
    assert chance(marks, pulled) < 1e-6


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_neither_acknowledgements_nor_sizes_name_the_arm(level: str) -> None:
    marks, sizes, pulled = watched(level)
    assert len(pulled) == BUDGET - OWNERS - 1  # the first pass comes after the first pulls of all
    assert max(marks[-1]) > BUDGET // 2  # owners do acknowledge
    assert chance(marks, pulled) > 1e-3
    assert {len(set(one)) for one in sizes} == {1}, "frames of a pass differ in size"
