"""The attacks on mpc-contextual: which succeed and which do not, on real runs and on runs with a
fault.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import posse
from posse.core.errors import PosseError
from posse.core.roles import Entry, View
from posse.privacy.leakage.attack import (
    LITTLE,
    SIGNIFICANCE,
    WIRE,
    Attack,
    Attempt,
    Evidence,
    attempt,
)
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Session
from posse.systems.mpc_contextual.attacks import CURIOUS, Opened, opened_words
from posse.systems.mpc_contextual.roles.messages import Opening
from posse.systems.mpc_contextual.sockets import Watched, _number_bytes
from posse.systems.runs import Run
from tests.leakage.mpc_game import Played, drawn, terms_of

SETTINGS = posse.MpcContextual(rows=360, horizon=180, seed=3)
BY_NAME = {attack.name: attack for attack in CURIOUS}
OF_VIEWS = [attack for attack in CURIOUS if attack.needs == "view"]
SOCKETS = ("delays", "acknowledgements")
STAGED = ("opened", "arms", "sequence", "membership", "membership-by-reward")


@pytest.fixture(scope="module")
def run() -> Run:
    made = posse.start(SETTINGS, transcript=1 << 20)
    made.finish()
    return made


def seen(run: Run, attack: Attack) -> Evidence:
    if WIRE in attack.adversary:
        return Evidence(run.tap(), run.truth())
    return Evidence(
        run.view(*("party-1" if kind == "party" else kind for kind in attack.adversary)),
        run.truth(),
    )


@pytest.fixture(scope="module")
def staged() -> dict[str, list[Evidence]]:
    return {name: list(BY_NAME[name].stage(SETTINGS, 0)) for name in STAGED}


def attacked(attack: Attack, evidence: list[Evidence]) -> Attempt:
    return attempt(attack, evidence, significance=SIGNIFICANCE / len(CURIOUS))


def test_all_attacks_are_tested_here() -> None:
    assert {attack.name for attack in OF_VIEWS} | set(STAGED) | set(SOCKETS) == set(BY_NAME)


def test_dealer_and_party_read_every_feature(run: Run) -> None:
    made = attacked(BY_NAME["masks"], [seen(run, BY_NAME["masks"])])
    assert made.verdict == "finds it out"
    np.testing.assert_allclose(made.estimates[0], run.truth()["features"], rtol=0, atol=2.0**-26)


@pytest.mark.parametrize("name", ["exploring", "sizes"])
def test_coins_and_sizes_tell_nothing_and_a_planted_leak_is_found(name: str, run: Run) -> None:
    made = attacked(BY_NAME[name], [seen(run, BY_NAME[name])])
    assert (made.verdict, made.power) == ("nothing found", 1.0)


def test_all_parties_but_one_recognise_no_row_and_one_number_without_mask_is_enough(
    staged: dict[str, list[Evidence]],
) -> None:
    made = attacked(BY_NAME["opened"], staged["opened"])
    assert (made.verdict, made.power) == ("nothing found", 1.0)


def _mask_but_one_number(s: Session, shape: tuple[int, ...]) -> Words:
    mask = _drawn(s, shape)
    if shape == (
        1,
        3,
        5,
    ):  # directions and scores, which at the first step are features of the second party
        mask = mask.copy()
        mask[..., 0, 2] = 0
    return mask


_drawn = Session._mask


def test_a_real_run_with_one_mask_missing_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truncation of one direction is opened without its mask; 40 guesses, a coin has 33 right
    with 2e-5.
    """
    terms = terms_of(2, 3, 80, each=2)
    for faulty in (True, False):
        if faulty:
            monkeypatch.setattr(Session, "_mask", _mask_but_one_number)
        else:
            monkeypatch.undo()
        data = drawn(terms, 5)
        played = Played(terms, data)
        view = View(
            ("party-1",),
            list(played),
            {},
            {name: getattr(terms, name) for name in terms.__struct_fields__},
        )
        words = opened_words(view, "party-2")
        rng = np.random.default_rng(6)
        true, decoys = data.contexts[:, 2:], rng.permutation(data.contexts[:, 2:])
        answers = rng.integers(2, size=80)
        pairs = np.where(
            answers[:, None, None] == 0, np.stack([true, decoys], 1), np.stack([decoys, true], 1)
        )
        known = np.where(np.arange(80) % 2, -1, answers)
        right = int(
            (BY_NAME["opened"].estimate(Opened(words, pairs, known), 0) == answers)[known < 0].sum()
        )
        assert (right >= 33) == faulty


def test_arms_tell_features_and_rewards_tell_more(staged: dict[str, list[Evidence]]) -> None:
    arms, both = (attacked(BY_NAME[name], staged[name]) for name in ("arms", "sequence"))
    for made in (arms, both):
        assert (made.verdict, made.power) == (LITTLE, 1.0)
    assert both.score.interval[0] > arms.score.value > 0.05


def test_exploring_at_every_step_leaves_nothing_in_the_arms() -> None:
    """Negative control on a real run: every arm is drawn at random."""
    made = attacked(
        BY_NAME["arms"], list(BY_NAME["arms"].stage(SETTINGS.but(epsilon="1", horizon=80), 0))
    )
    assert not made.succeeded


@pytest.mark.parametrize("name", ["membership", "membership-by-reward"])
def test_a_model_of_few_weights_tells_little_of_who_its_rows_are(
    name: str, staged: dict[str, list[Evidence]]
) -> None:
    """The advantage is below .3 with confidence .975, and a model that learnt its rows by heart is
    caught.
    """
    made = attacked(BY_NAME[name], staged[name])
    assert made.power == 1.0
    assert made.score.interval[1] < 0.3


@pytest.mark.parametrize("name", STAGED)
def test_an_estimate_is_a_line_of_words_and_no_array(
    name: str, staged: dict[str, list[Evidence]]
) -> None:
    attack = BY_NAME[name]
    words = attack.tell(attack.estimate(staged[name][0].seen, 0))
    assert not set(words) & set("[]\n")


def test_a_party_tells_arms_by_numbers_that_follow_them() -> None:
    """Delays of three arms apart by twice their spread are told, and equal ones are not."""
    rng = np.random.default_rng(8)
    arms = rng.integers(3, size=200)
    known = np.where(np.arange(200) % 2, -1, arms)
    for apart, succeeds in ((2.0, True), (0.0, False)):
        watched = Watched((apart * arms + rng.normal(size=200))[:, None], known)
        evidence = Evidence(watched, {"arms": arms, "asked": known < 0})
        made = attacked(BY_NAME["delays"], [evidence])
        assert (made.succeeded, made.power) == (succeeds, 1.0)


@pytest.mark.long
def test_rewards_that_take_longer_for_some_arms_name_them_over_sockets() -> None:
    made = attacked(BY_NAME["delays"], list(BY_NAME["delays"].stage(SETTINGS, 0)))
    assert made.succeeded
    assert made.score.value > 0.6


@pytest.mark.long
def test_with_slots_the_same_delays_name_no_arm() -> None:
    slotted = SETTINGS.but(slot=0.5)
    made = attacked(BY_NAME["delays"], list(BY_NAME["delays"].stage(slotted, 0)))
    assert (made.verdict, made.power) == ("nothing found", 1.0)


@pytest.mark.long
def test_acknowledgements_and_sizes_name_no_arm_over_sockets() -> None:
    made = attacked(
        BY_NAME["acknowledgements"], list(BY_NAME["acknowledgements"].stage(SETTINGS, 0))
    )
    assert (made.verdict, made.power) == ("nothing found", 1.0)


def _watched() -> Evidence:
    return Evidence(Watched(np.arange(8.0)[:, None], np.array([0, 1, 2, -1, 0, 1, 2, -1])), {})


@pytest.mark.parametrize("attack", CURIOUS, ids=lambda attack: attack.name)
def test_attacks_are_functions_of_what_was_seen(
    attack: Attack, run: Run, staged: dict[str, list[Evidence]]
) -> None:
    """The same answer twice, without any truth; what is foreign or cut off is refused in one
    line.
    """
    evidence = (
        staged[attack.name][0]
        if attack.name in staged
        else _watched()
        if attack.name in SOCKETS
        else None
    )
    evidence = evidence or seen(run, attack)
    first, again = (attack.estimate(evidence.seen, 4) for _ in range(2))
    np.testing.assert_equal(first, again)
    foreign = View(("comp",), (), {"comp": {"kind": "comp"}}, {"system": "samba"})
    with pytest.raises(PosseError) as refused:
        attack.estimate(foreign, 4)
    assert "\n" not in str(refused.value)
    if attack.needs == "view" and attack.name != "exploring":
        view = evidence.seen
        with pytest.raises(PosseError, match="cut off"):
            attack.estimate(replace(view, entries=view.entries[: len(view.entries) // 2]), 4)


def test_an_audit_keeps_what_attacks_read_and_little_else() -> None:
    """The same estimates from a hundredth of the bytes."""
    thinned = posse.start(SETTINGS.but(horizon=30), transcript=1 << 20)
    whole = posse.start(SETTINGS.but(horizon=30), transcript=1 << 20)
    thinned.store_only_parts_for_attacks()  # type: ignore[attr-defined]
    for one in (thinned, whole):
        one.finish()
    for attack in OF_VIEWS:
        first, second = (attack.estimate(seen(one, attack).seen, 5) for one in (thinned, whole))
        np.testing.assert_array_equal(first, second)
        assert [entry.size for entry in seen(thinned, attack).seen.entries] == [
            entry.size for entry in seen(whole, attack).seen.entries
        ]
    kept, all_of_it = (
        sum(len(getattr(entry.message, "data", b"")) for entry in one.tap().entries)
        for one in (thinned, whole)
    )
    assert kept < all_of_it / 100


@pytest.mark.parametrize("step", [0, 127, 128, 255, 256, 65535, 65536])
def test_sizes_are_less_the_bytes_of_the_number_of_the_step(step: int) -> None:
    entry = Entry(0, "party-1", "party-2", Opening(step, 0, b""), 9)
    assert _number_bytes(entry) == len(msgspec.msgpack.encode(step))
