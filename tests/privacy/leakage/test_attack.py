"""The interface of attacks: an estimate sees a view alone, and no outcome stands without baseline and control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.core.roles import Entry, Message, View
from posse.privacy.leakage.attack import Attack, Score, attempt
from posse.privacy.leakage.membership import BY_ERROR, BY_LOSS, BY_REWARD, Pairs, probes, verdict

NUMBERS = 400


class Word(Message, frozen=True, array_like=True, tag=True, gc=False):
    number: int


def seen(numbers: list[int]) -> View:
    """What a clerk saw: one word a step."""
    entries = [Entry(at, "owner", "clerk", Word(number), 3, at) for at, number in enumerate(numbers)]
    return View(("clerk",), entries, {"clerk": {"kind": "clerk", "key": 7}}, {"steps": len(numbers)})


def guess_bits(view: View) -> list[int]:
    """Take the low bit of every word for the owner's bit."""
    return [entry.message.number & 1 for entry in view.entries if isinstance(entry.message, Word)]


def share_right(bits: list[int], truth: Mapping[str, Any]) -> Score:
    right = sum(bit == true for bit, true in zip(bits, truth["bits"], strict=True))
    share = right / len(bits)
    return Score(share, (share - 0.1, share + 0.1), f"{right} of {len(bits)} bits right")


def tell(view: View, truth: Mapping[str, Any]) -> View:
    """Plant the leak: every word is the bit."""
    return replace(view, entries=seen(truth["bits"]).entries)


TOY = Attack(
    "low-bits", "Low bits", ("clerk",), "A clerk learns nothing of the owner's bits.", guess_bits, share_right,
    lambda truth: 0.5, tell,
)  # fmt: skip


def world(leak: bool) -> tuple[View, dict[str, Any]]:
    rng = np.random.default_rng(3)
    bits, masks = rng.integers(2, size=(2, NUMBERS)).tolist()
    return seen(bits if leak else [bit ^ mask for bit, mask in zip(bits, masks, strict=True)]), {"bits": bits}


def test_a_leak_is_found() -> None:
    outcome = attempt(TOY, *world(leak=True))
    assert outcome.succeeded
    assert outcome.conclusive
    assert outcome.score.value == 1
    assert outcome.sentence() == (
        "Low bits, by clerk: succeeds. Score 1 [0.9, 1.1], without a view 0.5, with a planted leak 1 [0.9, 1.1]. "
        "Tests: A clerk learns nothing of the owner's bits."
    )


def test_where_nothing_leaks_the_control_is_found_and_the_attack_fails() -> None:
    outcome = attempt(TOY, *world(leak=False))
    assert not outcome.succeeded
    assert outcome.conclusive
    assert outcome.control is not None
    assert outcome.control.above(outcome.baseline)
    assert outcome.score.value == pytest.approx(0.5, abs=0.1)
    assert "Low bits, by clerk: fails. Score" in outcome.sentence()


@pytest.mark.parametrize("blind", [replace(TOY, control=None), replace(TOY, estimate=lambda view: [0] * NUMBERS)])
def test_a_failure_without_a_control_that_is_found_says_nothing(blind: Attack) -> None:
    outcome = attempt(blind, *world(leak=False))
    assert (outcome.succeeded, outcome.conclusive) == (False, False)
    assert "fails, and says nothing" in outcome.sentence()


def test_the_estimate_sees_the_view_alone() -> None:
    given: list[object] = []
    view, truth = world(leak=False)
    spy = replace(TOY, estimate=lambda one: (given.append(one), guess_bits(one))[1], control=None)
    attempt(spy, view, truth)
    assert given == [view]


def test_an_adversary_is_not_given_the_secrets_of_another_role() -> None:
    view, truth = world(leak=True)
    stranger = replace(view, parties=("clerk", "owner"), secrets={**view.secrets, "owner": {"kind": "owner"}})
    with pytest.raises(ConfigError, match="attack 'low-bits' is by clerk, got a view of owner 'owner'"):
        attempt(TOY, stranger, truth)


def test_plain_numbers_are_scores() -> None:
    plain = replace(TOY, score=lambda bits, truth: float(bits == truth["bits"]), baseline=lambda truth: 0.0)
    assert attempt(plain, *world(leak=True)).score == Score(1.0)


@pytest.mark.parametrize("attack", [BY_REWARD, BY_LOSS, BY_ERROR], ids=lambda attack: attack.name)
def test_membership_is_an_attack_with_its_baseline_and_control(attack: Attack) -> None:
    """Rows of one distribution: nothing to find, and the planted leak is found for certain."""
    rng = np.random.default_rng(4)
    rows = [Pairs(rng.integers(3, size=600), rng.integers(2, size=600)) for _ in range(2)]
    values = rows if attack is BY_REWARD else [rng.random(600) for _ in range(2)]
    view, truth = probes(values[0], values[1], seed=5)
    outcome = attempt(attack, view, truth)
    assert (outcome.succeeded, outcome.conclusive, outcome.baseline.value) == (False, True, 0.0)
    assert outcome.control is not None
    assert outcome.control.value == 1.0
    assert outcome.score == verdict(attack.title, attack.estimate(view), truth).score


def test_in_sample_nothing_succeeds() -> None:
    """The rule knows every row by heart: an advantage of 1 without any leak, and no interval that covers."""
    rng = np.random.default_rng(5)
    members, others = (Pairs(rng.integers(3, size=300), rng.normal(size=300)) for _ in range(2))
    outcome = attempt(BY_REWARD, *probes(members, others, split=False))
    assert outcome.score.value == 1.0
    assert not outcome.succeeded
