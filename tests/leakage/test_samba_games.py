"""Attacks on Samba that play games of their own: each succeeds or fails as its level says, beside
both controls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ProtocolError
from posse.privacy.leakage.attack import SIGNIFICANCE, Attempt, Evidence, attempt
from posse.systems.audit import audit
from posse.systems.modules import Attacks, attacks_of
from posse.systems.registry import system
from posse.systems.samba.attacks import network
from posse.systems.samba.attacks.endings import Clocked
from posse.systems.samba.attacks.reading import plant_share
from posse.systems.samba.roles.customer import Customer
from posse.systems.samba.strict.messages import Shares

ATTACKS = {attack.name: attack for attack in attacks_of(system("samba")).attacks}


def test_the_interval_of_few_passes_on_the_network_is_students() -> None:
    # The owner that pulled stands out most in two passes, and least in a third: 1, 1 and 0.
    guess = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    score = network.score([guess], [{"arms": np.array([0, 2, 0])}])
    assert score.value == pytest.approx(2 / 3)
    # 4.30 standard errors of 1/3 on each side; the normal interval began at 0.13.
    assert score.interval == (0.0, 1.0)
    many = network.score([guess] * 10, [{"arms": np.array([0, 2, 0])}] * 10)
    assert many.interval == pytest.approx((0.4877, 0.8457), abs=1e-4)


def settings(level: str, **more: Any) -> Any:
    given = {"policy": "ucb", "horizon": 40, "owners": 4, "seed": 1, **more}
    return posse.Samba(
        level=level, **({} if level == "strict" else {"paillier_bits": 2048}), **given
    )


def played(name: str, level: str) -> Attempt:
    attack = ATTACKS[name]
    assert attack.stage is not None
    made = attempt(attack, list(attack.stage(settings(level), 0)))
    assert made.power == 1.0
    assert made.honest
    return made


def test_a_comp_that_flips_the_ready_bit_learns_who_pulls() -> None:
    assert played("flipped-ready", "strict").verdict == "finds it out"


def test_games_that_a_level_does_not_have_are_left_out_with_the_reason() -> None:
    made = audit(settings("paper"), attacks=("flipped-ready", "early-end", "arrivals-in-slots"))
    assert not made.rows
    assert (
        made.left_out["flipped-ready"]
        == made.left_out["arrivals-in-slots"]
        == "slots are of level 'strict'."
    )
    assert "no early end" in made.left_out["early-end"]
    with pytest.raises(ProtocolError, match="ended before its question"):
        Clocked(settings("paper"), 0).until(Shares)


def test_an_early_end_names_nobody_with_slots() -> None:
    assert played("early-end", "strict").verdict == "nothing found"


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_a_refused_total_says_nothing_at_any_level(level: str) -> None:
    made = played("refused-total", level)
    assert made.verdict == "nothing found"


def test_a_customer_that_is_silent_when_it_refuses_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conclude = Customer._conclude

    def silent(self: Any, opened: Any) -> Any:
        actions = conclude(self, opened)
        return actions[:-1] if self.refused else actions

    monkeypatch.setattr(Customer, "_conclude", silent)
    attack = ATTACKS["refused-total"]
    assert attack.stage is not None
    assert attempt(attack, list(attack.stage(settings("paper"), 0)), plantings=0).succeeded


def test_a_short_common_key_is_found_where_comp_sees_scores() -> None:
    attack = ATTACKS["common-key"]
    assert attack.stage is not None
    seen = attack.stage(settings("strict", policy="epsilon-greedy", horizon=200, owners=6), 0)
    shown = [plant_share(one, number, share=1.0) for number, one in enumerate(seen)]
    made = attempt(attack, shown, significance=SIGNIFICANCE / len(ATTACKS), plantings=0)
    assert (made.succeeded, made.honest) == (True, True)
    assert "no exploring steps" in attack.missing(settings("strict"))
    assert "the controller draws the coins" in attack.missing(settings("paper"))


@pytest.mark.long
def test_a_short_common_key_is_not_found_at_strict_but_in_one_pass_in_ten() -> None:
    """At the level of an audit of all attacks: two of 16 keys, and one by chance is none."""
    attack = ATTACKS["common-key"]
    assert attack.stage is not None
    seen = list(attack.stage(settings("strict", policy="epsilon-greedy", horizon=600, owners=6), 0))
    made = attempt(attack, seen, significance=SIGNIFICANCE / len(ATTACKS), plantings=5)
    assert (made.succeeded, made.power, made.honest) == (False, 1.0, True)


# What travels -------------------------------------------------------------------------------------


def rows(late: float, seed: int = 0) -> Evidence:
    """Arrivals of 120 passes in which the last owner is always 50 ms after the others, and who
    pulls is `late`.
    """
    rng = np.random.default_rng(seed)
    arms = np.where(rng.random(120) < 0.6, 3, rng.integers(4, size=120))
    times = (
        rng.random((120, 4)) * 0.01
        + 0.05 * (np.arange(4) == 3)
        + late * (np.arange(4) == arms[:, None])
    )
    return Evidence([([0] * 4, [30] * 4, one.tolist()) for one in times], {"arms": arms})


def test_an_owner_that_is_always_last_and_often_pulled_is_no_finding() -> None:
    for seed in range(5):
        assert attempt(ATTACKS["arrival-times"], [rows(0.0, seed)]).verdict == "nothing found"
    assert attempt(ATTACKS["arrival-times"], [rows(0.02)]).succeeded


@pytest.mark.long
def test_arrivals_say_who_pulls_without_slots_and_nothing_with_them() -> None:
    given = settings("strict")
    assert (
        attempt(ATTACKS["arrival-times"], list(network.stage(given, 0))).verdict == "finds it out"
    )
    assert (
        attempt(ATTACKS["arrivals-in-slots"], list(network.stage_slots(given, 0))).verdict
        == "nothing found"
    )


# Runs under way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 5, 17])
def test_every_attack_takes_a_run_under_way(steps: int) -> None:
    """The pass of the next step may be seen already; its coin is known, its arm is not."""
    run = posse.start(settings("strict", policy="epsilon-greedy"), transcript=10**6)
    run.advance(steps)
    made = audit(run, plantings=1)
    assert not [name for name, why in made.left_out.items() if "needs more of it" in why]
    assert made["exploring"].value is not None


def broken(*arguments: Any) -> Any:
    raise IndexError("index 3 is out of bounds")


def test_an_attack_that_needs_more_of_a_run_under_way_says_so_and_a_bug_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attack = replace(ATTACKS["controller-alone"], estimate=broken)
    monkeypatch.setattr("posse.systems.audit.attacks_of", lambda _: Attacks(attacks=(attack,)))
    run = posse.start(settings("strict"), transcript=10**6)
    run.advance(5)
    why = audit(run).left_out["controller-alone"]
    assert (
        why == "the run is at 5 of 40, and the attack needs more of it (index 3 is out of bounds)."
    )
    run.finish()
    with pytest.raises(IndexError):
        audit(run)
