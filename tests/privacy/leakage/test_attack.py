"""The interface of attacks: an estimate sees a view alone, and no outcome stands without baseline
and control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError, DataError
from posse.core.roles import Entry, Message, View
from posse.privacy.leakage.attack import (
    BLIND,
    FINDS,
    LITTLE,
    NOTHING,
    Attack,
    Evidence,
    Score,
    attempt,
    check_view,
)
from posse.privacy.leakage.membership import BY_ERROR, BY_REWARD, Pairs, probes, verdict
from posse.privacy.leakage.scores import hits, permuted

NUMBERS = 400


class Word(Message, frozen=True, array_like=True, tag=True, gc=False):
    number: int


def seen(numbers: list[int]) -> View:
    """What a clerk saw: one word a step."""
    entries = [
        Entry(at, "owner", "clerk", Word(number), 3, at) for at, number in enumerate(numbers)
    ]
    return View(
        ("clerk",), entries, {"clerk": {"kind": "clerk", "key": 7}}, {"steps": len(numbers)}
    )


def guess_bits(view: View, seed: int = 0) -> list[int]:
    """Take the low bit of every word for the owner's bit."""
    return [entry.message.number & 1 for entry in view.entries if isinstance(entry.message, Word)]


def share_right(guesses: Sequence[list[int]], truths: Sequence[Mapping[str, Any]]) -> Score:
    pairs = [
        (bit, true)
        for bits, truth in zip(guesses, truths, strict=True)
        for bit, true in zip(bits, truth["bits"], strict=True)
    ]
    return hits(sum(bit == true for bit, true in pairs), len(pairs), 0.5, "bits")


def tell(evidence: Evidence, seed: int) -> Evidence:
    """Plant the leak: every word is the bit."""
    return Evidence(
        replace(evidence.seen, entries=seen(evidence.truth["bits"]).entries), evidence.truth
    )


def shuffled(truths: Sequence[Mapping[str, Any]], seed: int) -> list[Mapping[str, Any]]:
    return [{"bits": permuted(truth["bits"], seed).tolist()} for truth in truths]


TOY = Attack(
    "low-bits",
    "the owner's bits",
    ("clerk",),
    ("A clerk learns nothing of the owner's bits.",),
    guess_bits,
    share_right,
    "bits right",
    tell,
    "words that are the bit",
    shuffled,
)


def world(leak: bool, secret: int = 3) -> Evidence:
    rng = np.random.default_rng(secret)
    bits, masks = rng.integers(2, size=(2, NUMBERS)).tolist()
    view = seen(bits if leak else [bit ^ mask for bit, mask in zip(bits, masks, strict=True)])
    return Evidence(view, {"bits": bits})


def test_a_leak_is_found() -> None:
    outcome = attempt(TOY, [world(leak=True)])
    assert outcome.succeeded
    assert outcome.honest
    assert (outcome.verdict, outcome.power, outcome.score.value) == (FINDS, 1.0, 1.0)
    assert outcome.sentence() == (
        "the owner's bits, by clerk: finds it out. 1 [0.991, 1], without a view 0.5; finds 100% of "
        "planted leaks. "
        "Tests: A clerk learns nothing of the owner's bits."
    )


def test_part_of_a_leak_is_a_little() -> None:
    """Six words in ten are the bit, others are nothing: .8 right."""
    whole, none = world(leak=True), world(leak=False)
    pairs = enumerate(zip(whole.seen.entries, none.seen.entries, strict=True))
    mixed = [one if at % 10 < 6 else other for at, (one, other) in pairs]
    assert attempt(TOY, [replace(whole, seen=replace(whole.seen, entries=mixed))]).verdict == LITTLE


def test_where_nothing_leaks_the_planted_leak_is_found_and_the_attack_fails() -> None:
    outcome = attempt(TOY, [world(leak=False), world(leak=False, secret=4)])
    assert (outcome.succeeded, outcome.verdict, outcome.power) == (False, NOTHING, 1.0)
    assert outcome.score.text.endswith(f"of {2 * NUMBERS} bits")
    assert outcome.score.value == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "blind", [replace(TOY, plant=None), replace(TOY, estimate=lambda view, seed: [0] * NUMBERS)]
)
def test_a_failure_without_a_control_that_is_found_says_nothing(blind: Attack) -> None:
    outcome = attempt(blind, [world(leak=False)])
    assert (outcome.succeeded, outcome.conclusive, outcome.verdict) == (False, False, BLIND)


def test_an_attack_that_beats_a_truth_it_cannot_know_says_nothing() -> None:
    """Its score counts everything as right, so that the negative control succeeds too."""
    cheat = replace(TOY, score=lambda guesses, truths: hits(NUMBERS, NUMBERS, 0.5, "bits"))
    outcome = attempt(cheat, [world(leak=False)])
    assert outcome.succeeded
    assert not outcome.honest
    assert outcome.verdict == BLIND


def test_the_estimate_sees_the_view_alone() -> None:
    given: list[object] = []
    evidence = world(leak=False)
    spy = replace(
        TOY, estimate=lambda *seen: (given.append(seen), guess_bits(*seen))[1], plant=None
    )
    attempt(spy, [evidence], 8)
    assert given == [(evidence.seen, 8)]


def test_an_adversary_is_not_given_the_secrets_of_another_role() -> None:
    view = world(leak=True).seen
    stranger = replace(
        view, parties=("clerk", "owner"), secrets={**view.secrets, "owner": {"kind": "owner"}}
    )
    with pytest.raises(
        ConfigError, match="attack 'low-bits' is by clerk, got a view of owner 'owner'"
    ):
        check_view(TOY, stranger)
    other = replace(view, parties=("owner",), secrets={"owner": {"kind": "owner"}})
    with pytest.raises(ConfigError, match="by clerk, got a view of owner"):
        check_view(TOY, other)
    with pytest.raises(ConfigError, match="needs a view of clerk"):
        check_view(TOY, replace(view, parties=(), secrets={}))
    with pytest.raises(DataError, match="has lost its first 12 messages"):
        check_view(TOY, replace(view, forgotten=12))


@pytest.mark.parametrize("attack", [BY_REWARD, BY_ERROR], ids=lambda attack: attack.name)
def test_membership_is_an_attack_with_its_baseline_and_control(attack: Attack) -> None:
    """Rows of one distribution: nothing to find, and the planted leak is found for certain."""
    rng = np.random.default_rng(4)
    rows = [Pairs(rng.integers(3, size=600), rng.integers(2, size=600)) for _ in range(2)]
    values = rows if attack is BY_REWARD else [rng.random(600) for _ in range(2)]
    view, truth = probes(values[0], values[1], seed=5)
    outcome = attempt(attack, [Evidence(view, truth)])
    assert (outcome.succeeded, outcome.verdict, outcome.power) == (False, NOTHING, 1.0)
    assert outcome.planted[0].value == 1.0
    assert outcome.score == verdict(attack.estimate(view, 0), truth).score


def test_in_sample_nothing_succeeds() -> None:
    """The rule knows every row by heart: an advantage of 1 without any leak, and no interval that
    covers.
    """
    rng = np.random.default_rng(5)
    members, others = (Pairs(rng.integers(3, size=300), rng.normal(size=300)) for _ in range(2))
    outcome = attempt(BY_REWARD, [Evidence(*probes(members, others, split=False))])
    assert outcome.score.value == 1.0
    assert not outcome.succeeded
