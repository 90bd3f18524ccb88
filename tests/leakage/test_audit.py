"""Audits of Samba: attacks succeed where a level says so, fail where it promises, and find what is
planted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.core.roles import View
from posse.privacy.leakage.attack import SIGNIFICANCE, Attack, Evidence, attempt, check_view
from posse.results import render_report
from posse.results.audits import Audit, audits
from posse.systems import base
from posse.systems.audit import AuditInterrupted, audit, view_of
from posse.systems.modules import attacks_of, scene_of
from posse.systems.registry import system, systems
from posse.systems.samba.attacks.reading import plant_passes, plant_share, short_key
from posse.systems.samba.attacks.watching import track
from posse.systems.samba.levels import Switches, check_switches, leaks, who_sees

ATTACKS = {attack.name: attack for attack in attacks_of(system("samba")).attacks}
ONE_VIEW = [name for name, attack in ATTACKS.items() if attack.needs == "view"]
READ_PASSES = ("tracker", "last-place", "exploring", "late-join")


def settings(
    level: str, policy: str = "epsilon-greedy", horizon: int = 500, seed: int = 1, **more: Any
) -> Any:
    given = {"owners": 10} if "means" not in more else {}
    return posse.Samba(
        policy=policy, level=level, horizon=horizon, seed=seed, paillier_bits=2048, **given, **more
    )


@cache
def played(level: str, policy: str, horizon: int, seed: int, reward: str = "bernoulli") -> Any:
    run = posse.start(
        settings(level, policy, horizon, seed, reward=reward), transcript=10**8, **key_of(level)
    )
    run.finish()
    return run


def key_of(level: str) -> dict[str, Any]:
    return {} if level == "strict" else {"key": short_key()}


def evidence(run: Any, attack: Attack) -> Evidence:
    return Evidence(view_of(run, attack), run.truth())


# What comp recovers -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy", "pursuit"])
def test_comp_recovers_the_total_within_one_and_the_pulls(policy: str) -> None:
    """The last reward is never seen; pulls are exact but for an exploring step at the end, and for
    Pursuit's ties.
    """
    for seed in (1, 2):
        run = played("paper", policy, 1000, seed)
        found, truth = track(run.view("comp"), 0), run.truth()
        assert abs(found["total"] - truth["total"]) <= 1
        right = int((found["pulls"] == np.sort(truth["pulls"])).sum())
        assert right == 10 if policy == "ucb" else right >= (8 if policy == "epsilon-greedy" else 4)


def test_comp_recovers_the_total_of_softmax_as_published() -> None:
    run = played("paper", "softmax", 500, 1)
    assert abs(track(run.view("comp"), 0)["total"] - run.truth()["total"]) <= 1


@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy"])
def test_rewards_between_zero_and_one_are_told_apart_too(policy: str) -> None:
    attack = ATTACKS["tracker"]
    made = attempt(attack, [evidence(played("paper", policy, 500, 1, "beta"), attack)], plantings=0)
    assert made.succeeded
    assert made.honest


def test_exploring_steps_are_recognised_without_a_false_one() -> None:
    """Told at level `paper`; at `strict` by the shape of scores, were they not hidden."""
    attack = ATTACKS["exploring"]
    made = attempt(
        attack, [evidence(played("paper", "epsilon-greedy", 500, seed), attack) for seed in (1, 2)]
    )
    assert made.score.value == 1.0
    assert made.verdict == "finds it out"
    run = played("strict", "epsilon-greedy", 500, 1)
    shown = plant_share(evidence(run, attack), 0, share=1.0)
    assert attempt(attack, [shown], plantings=0).score.value == 1.0


def test_a_late_comer_reads_pulls_and_sum_of_the_leader() -> None:
    attack = ATTACKS["late-join"]
    made = attempt(
        attack, [evidence(played("paper", "epsilon-greedy", 1500, 2), attack)], plantings=0
    )
    assert made.verdict == "finds it out"
    right = int(made.score.text.partition("exact in ")[2].partition(" of")[0])
    assert right >= 3


SUCCEED = {
    "paper": (
        "tracker",
        "last-place",
        "exploring",
        "late-join",
        "both-servers",
        "owner-and-controller",
        "owner-on-the-wire",
        "customer-and-controller",
        "owner-alone",
        "customer-and-owner",
    ),
    "strict": ("both-servers", "owner-alone", "customer-and-owner"),
}


@pytest.mark.parametrize("level", SUCCEED)
def test_attacks_on_one_view_succeed_and_fail_as_the_level_says(level: str) -> None:
    """Family-wise .01 over the attacks of an audit; 500 steps, and 5 planted leaks each."""
    run = played(level, "epsilon-greedy", 500, 1)
    made = posse.audit(run, plantings=2)
    assert {row.attack for row in made if row.verdict in ("finds it out", "a little")} == set(
        SUCCEED[level]
    )
    assert all(row.shuffled is None or row.shuffled > SIGNIFICANCE / len(made) for row in made)
    assert all(row.power == 1.0 for row in made if row.attack not in READ_PASSES)


@pytest.mark.parametrize(
    ("off", "finder"),
    [
        ("aes", "wire-tap"),
        ("aes", "controller-alone"),
        ("paillier", "sums-at-the-controller"),
        ("mask", "tracker"),
    ],
)
def test_a_protection_that_is_off_is_found(off: str, finder: str) -> None:
    made = audit(settings("paper", horizon=200, **{off: False}), attacks=finder, plantings=1)
    assert made[finder].verdict == "finds it out"


# Power --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy"])
def test_one_pass_in_ten_that_shows_scores_is_found_at_strict(policy: str) -> None:
    """5,000 steps, 40 plantings: 38 found are a power of .95."""
    run = played("strict", policy, 5000, 3)
    for name in READ_PASSES:
        attack = ATTACKS[name]
        if attack.missing(run.settings):
            continue
        made = attempt(
            attack, [evidence(run, attack)], significance=SIGNIFICANCE / len(ONE_VIEW), plantings=40
        )
        assert not made.succeeded
        assert sum(one.above(SIGNIFICANCE / len(ONE_VIEW)) for one in made.planted) >= 38, name


def test_planted_passes_are_found() -> None:
    run = played("strict", "epsilon-greedy", 1500, 1)
    for name in ("last-place", "exploring", "late-join"):
        attack = ATTACKS[name]
        made = attempt(attack, [evidence(run, attack)], plantings=2)
        assert (made.succeeded, made.power) == (False, 1.0)


# Purity and refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_VIEW)
@pytest.mark.parametrize("level", ["paper", "strict"])
def test_an_estimate_needs_no_truth_and_is_the_same_twice(name: str, level: str) -> None:
    attack, run = ATTACKS[name], played(level, "epsilon-greedy", 500, 1)
    if attack.missing(run.settings):
        return
    view = evidence(run, attack).seen
    copies = [View(view.parties, list(view.entries), view.secrets, view.public) for _ in range(2)]
    first, second = (attack.tell(attack.estimate(one, 5)) for one in copies)
    assert first == second
    row = audit(copies[0], attacks=name)[name]
    assert (row.verdict, row.value) == ("not scored", None)


def test_truncated_and_foreign_views_get_one_line() -> None:
    run = posse.start(settings("paper", horizon=60), transcript=100, **key_of("paper"))
    run.finish()
    with pytest.raises(DataError, match="has lost its first"):
        check_view(ATTACKS["tracker"], run.view("comp"))
    whole = played("paper", "epsilon-greedy", 500, 1)
    with pytest.raises(ConfigError, match="by comp, got a view of controller"):
        check_view(ATTACKS["tracker"], whole.view("controller"))
    view = whole.view("comp")
    with pytest.raises(DataError, match="samba's comp"):
        ATTACKS["tracker"].estimate(replace(view, public={**view.public, "system": "toy"}), 0)
    with pytest.raises(DataError, match="holds no pass"):
        ATTACKS["tracker"].estimate(replace(view, entries=view.entries[:5]), 0)
    other = {**view.secrets, "comp": {**view.secrets["comp"], "k_frame": bytes(32)}}
    with pytest.raises(DataError, match="does not open"):
        ATTACKS["tracker"].estimate(replace(view, secrets=other), 0)
    made = audit(whole.view("controller"))
    assert "by comp, got a view of controller" in made.left_out["tracker"]


def test_a_growing_view_is_attacked_as_far_as_it_is() -> None:
    run = posse.start(settings("paper", "ucb", horizon=400), **key_of("paper"))
    run.advance(150)
    found = track(run.view("comp"), 0)
    assert abs(found["total"] - run.truth()["total"]) <= 2


def test_an_audit_is_kept_shown_and_read_again() -> None:
    record = posse.run(settings("paper", horizon=120), **key_of("paper"))
    made = audit(record, attacks=["controller-alone", "both-servers"], plantings=1)
    assert Audit.of(made.plain()).rows == made.rows
    kept = replace(record, audits=(made.plain(),))
    assert audits(kept)[0].rows == made.rows
    assert "both-servers" in render_report(kept)
    assert "finds it out" in made._repr_html_()
    with pytest.raises(ConfigError, match="tracker") as error:
        audit(record, attacks="trackr")
    assert error.value.rule == "systems.attack.unknown"
    with pytest.raises(ConfigError) as error:
        audit(settings("paper").plain())
    assert error.value.rule == "systems.what.plain-run"


# Every sentence -----------------------------------------------------------------------------------


def sentences(of: Any, given: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    for one in given:
        level = base.level_or_none(of, one)
        assert level is not None
        found |= {*level.learns(one), *level.not_protected(one)}
    return found


def test_every_sentence_of_samba_has_an_attack_or_a_reason() -> None:
    of, given = system("samba"), []
    switches = [
        dict(zip(("aes", "paillier", "permutation", "mask"), one, strict=True))
        for one in product((True, False), repeat=4)
    ]
    for level, policy, means in product(
        ("strict", "paper"),
        ("ucb", "epsilon-greedy", "thompson", "softmax"),
        ((0.2, 0.5), (0.2, 0.5, 0.7)),
    ):
        for off in switches if level == "paper" else [{}]:
            given.append(settings(level, policy, 20, means=means, **off))
    given.append(
        settings("paper", "epsilon-greedy", 20, means=(0.2, 0.5, 0.7), shortcut=False, price=0.1)
    )
    found = sentences(of, given)
    for overruns in (None, 0, 1, 5):
        found |= set(
            leaks("strict", Switches(), 3, given[0].make_policy(), slot=0.1, overruns=overruns)
        )
    behind = {claim for attack in attacks_of(of).attacks for claim in attack.claims}
    bare = [one for one in found if not one.startswith((*behind, *attacks_of(of).unattacked))]
    assert bare == []
    idle = [
        claim
        for claim in (*behind, *attacks_of(of).unattacked)
        if not any(one.startswith(claim) for one in found)
    ]
    assert idle == []


@pytest.mark.parametrize("name", [one.name for one in systems() if one.name != "samba"])
def test_every_sentence_of_a_default_run_has_an_attack_or_a_reason(name: str) -> None:
    of = system(name)
    values = [of.about.demo.settings, *(one.settings for one in scene_of(of).scenarios)]
    given = [of.Settings(**one) for one in values]
    found = sentences(of, [one for one in given if base.level_or_none(of, one) is not None])
    behind = {claim for attack in attacks_of(of).attacks for claim in attack.claims}
    assert [one for one in found if not one.startswith((*behind, *attacks_of(of).unattacked))] == []


def test_who_planted_what_does_not_change_the_run() -> None:
    run = played("paper", "epsilon-greedy", 500, 1)
    view = run.view("comp")
    made = plant_passes(Evidence(view, run.truth()), 3)
    assert len(made.seen.entries) < len(view.entries)
    assert view.entries == run.view("comp").entries


# Words --------------------------------------------------------------------------------------------


def test_the_table_of_who_sees_what_follows_level_and_switches() -> None:
    def cell(level: str, datum: str, role: str, **off: bool) -> str:
        made = who_sees(level, Switches(**off))
        return next(row for row in made.rows if row[0] == datum)[made.columns.index(role)]

    assert cell("paper", "scores of others", "wire") == "no: AES"
    assert cell("paper", "scores of others", "wire", aes=False) == "yes: AES is off"
    assert cell("paper", "the total", "controller", paillier=False) == "yes: Paillier is off"
    assert (
        cell("paper", "which arm is pulled", "comp", permutation=False)
        == "yes: the permutation is off"
    )
    assert cell("paper", "scores of others", "comp", mask=False) == "yes: the mask is off"
    assert cell("paper", "the total", "comp") == "recovers it"
    assert cell("strict", "scores of others", "comp").startswith("no")
    for level in ("strict", "paper"):
        assert cell(level, "scores of others", "owner") == "infers the largest mean"
        assert cell(level, "the total", "owner") == "infers it"
        assert "with an owner estimates them" in cell(level, "each owner's sum", "customer")
    record = posse.run(settings("paper", horizon=20), **key_of("paper"))
    assert "Who sees what, and what hides it" in render_report(record)


@pytest.mark.parametrize("name", ["aes", "mask", "permutation", "paillier"])
def test_a_deployment_that_names_a_switch_is_refused_with_the_levels(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"'{name}' can be switched off in simulations only.*strict, paper"
    ):
        check_switches({"level": "paper", name: False})


def test_ctrl_c_keeps_the_attacks_that_are_done() -> None:
    run = played("paper", "epsilon-greedy", 500, 1)

    def stop(share: float, doing: str) -> None:
        if "both-servers" in doing:
            raise KeyboardInterrupt

    with pytest.raises(AuditInterrupted) as stopped:
        audit(
            run, attacks=["controller-alone", "both-servers", "wire-tap"], plantings=1, watch=stop
        )
    made = stopped.value.audit
    assert ([row.attack for row in made], made.status) == (["controller-alone"], "interrupted")


@pytest.mark.parametrize(
    ("given", "first", "second"),
    [
        (posse.DpCombinatorial(agents=3, producers=12, horizon=300), "reconstruction", "trends"),
        (posse.MpcContextual(rows=40, horizon=20), "exploring", "sizes"),
        (
            posse.FedContextual(levels=65536, clients=40, cohort=10, horizon=2),
            "inversion",
            "cohort-of-one",
        ),
    ],
)
def test_ctrl_c_keeps_what_is_done_in_every_system(given: Any, first: str, second: str) -> None:
    """With progress that rises from 0 to the attack that is stopped."""
    shares: list[float] = []

    def stop(share: float, doing: str) -> None:
        shares.append(share)
        if second in doing:
            raise KeyboardInterrupt

    with pytest.raises(AuditInterrupted) as stopped:
        audit(given, attacks=[first, second], plantings=1, watch=stop)
    made = stopped.value.audit
    assert ([row.attack for row in made], made.status) == ([first], "interrupted")
    assert shares == sorted(shares)
    assert 0 < shares[-1] < 1
