"""What an owner infers from its own pulls and rewards, alone and with the customer: in the output,
at every level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.fixed import REWARD_ONE
from posse.core.roles import WORLD
from posse.privacy.leakage import linking
from posse.privacy.leakage.attack import FINDS, Attempt, attempt
from posse.systems.audit import audit
from posse.systems.modules import attacks_of
from posse.systems.registry import system
from posse.systems.samba.attacks.owners import beyond, own_arm, regression
from posse.systems.samba.attacks.reading import short_key
from posse.systems.samba.messages import Reply
from posse.systems.samba.scene.picture import knowledge
from posse.systems.samba.twin import Twin

ATTACKS = {attack.name: attack for attack in attacks_of(system("samba")).attacks}
LEVELS = ("strict", "paper")


def settings(level: str = "strict", **more: Any) -> Any:
    given = {"policy": "ucb", "owners": 3, "horizon": 400, "seed": 1, **more}
    return posse.Samba(
        level=level, **({} if level == "strict" else {"paillier_bits": 2048}), **given
    )


def ended(level: str, **more: Any) -> Any:
    key = {} if level == "strict" else {"key": short_key()}
    run = posse.start(settings(level, **more), transcript=10**6, **key)
    run.finish()
    return run


def played(name: str, **more: Any) -> Attempt:
    attack = ATTACKS[name]
    assert attack.stage is not None
    return attempt(attack, list(attack.stage(settings(**more), 0)), plantings=1)


# The owner's own view -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy", "pursuit"])
def test_the_owner_uses_what_its_own_view_holds_and_it_is_what_the_twin_gives(
    policy: str, level: str
) -> None:
    """Attacks are scored on runs of the twin, so the same owner must have the same in a run of
    roles.
    """
    run = ended(level, policy=policy, owners=4, horizon=90)
    own = own_arm(run.view("owner-3"), None)
    setup = run.settings.load()
    twin = Twin(setup.arms, setup.policy, 90, [1], level=level)
    for step, pulls, total in zip(own.terms.points, own.pulls, own.sums, strict=True):
        twin.advance(step - twin.step)
        assert (pulls, total) == (twin.pulls[0, 2], twin.units[0, 2] / REWARD_ONE)
    assert own.terms.points[-1] == 90
    assert own.total is None
    assert own_arm(run.view("owner-3", "customer"), None).total == run.truth()["total"]


def test_the_owner_needs_its_own_rewards_and_their_steps_and_nothing_else_of_its_view() -> None:
    """Neither secrets nor what a reply says, nor times, which an owner between organisations does
    not record.
    """
    run = ended("strict", owners=4, horizon=90)
    view = run.view("owner-3")
    bare = [
        entry._replace(time=0, message=Reply(entry.message.index, b""))
        if isinstance(entry.message, Reply)
        else entry
        for entry in view.entries
        if isinstance(entry.message, Reply) or entry.sender == WORLD
    ]
    secrets = {"owner-3": {"kind": "owner"}}
    whole, less = (
        own_arm(one, None) for one in (view, replace(view, entries=bare, secrets=secrets))
    )
    np.testing.assert_array_equal(whole.pulls, less.pulls)
    np.testing.assert_array_equal(whole.sums, less.sums)


def test_a_recorded_view_is_estimated_from_and_one_that_ends_early_is_left_out() -> None:
    run = ended("strict")
    made = audit(run.view("owner-3"))
    assert made["owner-alone"].value is None
    mean, total = (
        float(part.split()[-1].replace(",", ""))
        for part in made["owner-alone"].says.split(", total")
    )
    assert abs(mean - max(run.truth()["means"])) < 0.1
    assert abs(total - run.truth()["total"]) < 40
    assert audit(run.view("owner-3", "customer"))["customer-and-owner"].says
    view = run.view("owner-3")
    early = replace(view, entries=[entry for entry in view.entries if entry.time < 300])
    assert "owner-alone" in audit(early).left_out


# What is found ------------------------------------------------------------------------------------


def test_an_owner_alone_finds_the_largest_mean_and_the_total_beyond_its_own_rewards() -> None:
    made = played("owner-alone")
    assert (made.verdict, made.power) == (FINDS, 1.0)
    assert made.score.interval is not None
    assert made.score.interval[0] > 0.9
    assert made.score.baseline < 0.6
    total = float(made.score.text.partition("total R2 ")[2].split()[0])
    assert total > 0.95


def test_an_owner_alone_finds_nothing_where_pulls_follow_coins_alone() -> None:
    """Its own rewards tell something of the largest mean, and that is no finding."""
    made = played("owner-alone", policy="epsilon-greedy", epsilon=1.0, horizon=200)
    assert not made.succeeded
    assert made.power == 1.0
    assert made.score.value > 0.1


@pytest.mark.parametrize("owners", [2, 3, 6])
def test_the_customer_and_an_owner_estimate_the_sums_of_any_number_of_others(owners: int) -> None:
    made = played("customer-and-owner", owners=owners)
    assert made.succeeded
    assert (made.power, made.honest) == (1.0, True)
    assert all(len(guess.values) == owners - 1 for guess in made.estimates)
    words = made.score.text.replace(",", "").split()
    error, from_the_total = float(words[words.index("sum") + 1]), float(words[-1])
    assert error == 0 if owners == 2 else error < 0.7 * from_the_total


def test_with_two_owners_what_is_left_of_the_total_is_the_others_sum() -> None:
    attack = ATTACKS["customer-and-owner"]
    assert attack.stage is not None
    evidence = list(attack.stage(settings(owners=2, horizon=60), 0))
    for one in evidence:
        np.testing.assert_allclose(
            attack.estimate(one.seen, 0).values, one.truth["others"], atol=1e-3
        )


@pytest.mark.parametrize("level", LEVELS)
def test_both_are_in_the_audit_that_nobody_asked_for(level: str) -> None:
    """With the user's own owners, steps and policy, and no more steps than those."""
    made = audit(settings(level, horizon=100), plantings=1)
    assert {"owner-alone", "customer-and-owner"} <= {row.attack for row in made}
    assert made["owner-alone"].interval is not None
    assert "of 60)" in made["owner-alone"].says


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "owners", "least"),
    [
        ("ucb", 2, 0.98),
        ("ucb", 5, 0.96),
        ("ucb", 10, 0.88),
        ("thompson", 2, 0.95),
        ("thompson", 10, 0.7),
        ("softmax", 2, 0.93),
        ("epsilon-greedy", 2, 0.5),
    ],
)
def test_how_well_an_owner_infers_by_policy_and_number_of_owners(
    policy: str, owners: int, least: float
) -> None:
    """N = 2,000; the page of samba has the figures. Each is beyond what the owner's mean reward gives."""
    made = played("owner-alone", policy=policy, owners=owners, horizon=2000)
    assert made.succeeded
    assert made.score.value > least


# How it is scored ---------------------------------------------------------------------------------


def test_what_the_owners_mean_reward_gives_is_no_finding() -> None:
    """Estimates that follow the truth as far as the mean reward does and no further."""
    rng = np.random.default_rng(3)
    less = rng.random(200)
    truths = less + 0.3 * rng.random(200)
    copy = beyond(less + 0.001 * rng.random(200), less, truths)
    better = beyond(0.5 * (less + truths), less, truths)
    assert not copy.above(0.01)
    assert copy.baseline == pytest.approx(copy.value, abs=0.01)
    assert better.above(0.01 / 30)


def test_a_regression_on_noise_says_little_more_than_the_mean() -> None:
    rng = np.random.default_rng(4)
    predict = regression(rng.normal(size=(200, 5)), rng.normal(size=(200, 1)))
    assert predict(rng.normal(size=(100, 5))).std() < 0.3


# Sentences ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("means", [(0.2, 0.6), (0.2, 0.5, 0.7)])
def test_what_an_owner_infers_is_said_with_its_attack_and_denied_nowhere(
    means: tuple[float, ...], level: str
) -> None:
    given = settings(level, owners=None, means=means)
    said = [*given.learns(), *given.leaks()]
    others = "With two owners" if len(means) == 2 else "The customer together with any one owner"
    for name, claim in (("owner-alone", "Any owner alone"), ("customer-and-owner", others)):
        assert claim in ATTACKS[name].claims
        assert any(text.startswith(claim) for text in given.leaks()), claim
    assert not any("neither other scores nor the total" in text for text in said)
    for kind in ("owner", "customer"):
        known = knowledge(given, kind)
        assert not {"The total.", "Rewards, pulls or scores of any other owner."} & set(
            known["never"]
        )
        assert any(text.startswith(ATTACKS["customer-and-owner"].claims) for text in known["could"])


# Rows of scores -----------------------------------------------------------------------------------


def test_rows_of_scores_are_told_from_drawn_numbers_where_one_in_ten_is_seen() -> None:
    """Two of six means move between two rows that are seen; every fifth row is drawn anew, and none
    is stranger.
    """
    rng = np.random.default_rng(6)
    means, rows = rng.random(6), []
    for row in range(60):
        means[rng.integers(6, size=2)] += rng.normal(size=2) / 50
        shown = rng.random(6) if row % 5 == 0 else means
        rows.append(rng.permutation(rng.uniform(1, 2) * shown + rng.random()))
    strange = linking.strangeness(np.array(rows))
    drawn = np.arange(60) % 5 == 0
    assert strange[drawn].min() > strange[~drawn].max()
