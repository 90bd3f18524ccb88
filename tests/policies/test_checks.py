"""The check-suite: every policy that ships passes, and every counter-example is refused by the
property it violates.
"""

from __future__ import annotations

import pytest

from posse.core.errors import PolicyError
from posse.policies import POLICIES, EpsilonDecreasing, Policy, Pursuit, Softmax
from posse.policies.arms.checks import CHECKS, check, refuse
from tests.kit import policies
from tests.policies import counterexamples

LOCALITY, OBLIVIOUS, MASKS, PURITY, PICKLABLE, COMPILES, FINITE = CHECKS


@pytest.mark.parametrize("name", POLICIES)
def test_every_registered_policy_passes(name: str) -> None:
    report = check(POLICIES[name]())
    assert report.passed, [result for result in report.results if not result.passed]
    assert [result.name for result in report.results] == list(CHECKS)
    assert all(result.reason == "" for result in report.results)


@pytest.mark.parametrize(
    "policy",
    [
        Softmax(tau=1e-3),
        Softmax(tau=20.0),
        Pursuit(beta=1.0),
        Pursuit(beta=1e-6),
        EpsilonDecreasing("inverse", 1e6),
        EpsilonDecreasing("inverse-sqrt", 0.1),
        policies.Tuned(2.0),
        policies.SecondBest(),
        policies.Looked(),
        policies.Moss(),
    ],
    ids=repr,
)
def test_extreme_parameters_and_sound_policies_of_users_pass(policy: Policy) -> None:
    refuse(policy)


REFUSED = [
    # Reinforcement Comparison needs the reference reward over all arms, however it gets it.
    (counterexamples.ComparisonAsked(), LOCALITY, "score asks for 'reference'"),
    (counterexamples.ComparisonGlobal(), LOCALITY, "score writes 'reference'"),
    (counterexamples.ComparisonList(), LOCALITY, "score reads 'REFERENCES', a list"),
    (counterexamples.ComparisonHelper(), LOCALITY, "score reads 'ARRAY', a ndarray"),
    (counterexamples.ComparisonHidden(), LOCALITY, "changes when other arms are scored in between"),
    (counterexamples.ComparisonNonlocal(), LOCALITY, "score writes 'value'"),
    (counterexamples.ComparisonClosure(), LOCALITY, "score reads 'cell', a dict"),
    (counterexamples.ComparisonDefault(), LOCALITY, "score asks for 'seen'"),
    (counterexamples.NosyLearner(), LOCALITY, "learn asks for 'all_totals'"),
    (policies.Scoreless(), LOCALITY, "there is no score"),
    (policies.Method(), LOCALITY, "make it a staticmethod"),
    # The filter by index, by time and by value.
    (counterexamples.OddFilter(), OBLIVIOUS, "depends on positions"),
    (counterexamples.CoinFilter(), OBLIVIOUS, "depends on positions"),
    (counterexamples.ValueFilter(), OBLIVIOUS, "depends on values"),
    (counterexamples.LargeValueFilter(), OBLIVIOUS, "depends on values"),
    (counterexamples.ProportionalFilter(), OBLIVIOUS, "depends on values"),
    (counterexamples.TimedFilter(), OBLIVIOUS, "asks for 't'"),
    (counterexamples.FarFilter(), OBLIVIOUS, "must give a position"),
    (counterexamples.NoChoose(), OBLIVIOUS, "kind 'custom'"),
    (policies.Huge(), MASKS, r"below 2\^19 in size"),
    (policies.Tiny(), MASKS, r"differ by more than 2\^-40"),
    (policies.Dicing(), PURITY, "two results for the same arguments"),
    (policies.Rounding(), PURITY, "in Python and gives 0.0 compiled"),
    (policies.Careless(3.0), PICKLABLE, "another one after pickling"),
    (policies.Worded(), COMPILES, "numba does not compile score: "),
    (policies.Dividing(), FINITE, r"score raises ZeroDivisionError: .* at t = 3"),
    (policies.Endless(), FINITE, "score gives inf"),
    (policies.Growing(), FINITE, "learn does not keep memory"),
    (policies.Restless(), FINITE, "explore gives"),
    (policies.Overflowing(), FINITE, "above the ceiling 0.5"),
]


@pytest.mark.parametrize(
    ("policy", "violated", "why"), REFUSED, ids=[policy.name for policy, *_ in REFUSED]
)
def test_a_counter_example_is_refused_by_the_property_it_violates(
    policy: Policy, violated: str, why: str
) -> None:
    with pytest.raises(PolicyError, match=why) as caught:
        refuse(policy)
    message = str(caught.value)
    assert message.startswith(
        f"[P110] policy '{policy.name}' cannot run in a federation. It violates {violated}: "
    )
    assert message.endswith(".")
    assert "\n" not in message


def test_functions_whose_last_bit_depends_on_the_machine_give_warnings() -> None:
    report = check(policies.Inexact())
    assert report.passed
    warned = {warning.partition(",")[0]: warning for warning in report.warnings}
    assert set(warned) == {
        "score uses math.log",
        "learn uses the power **",
        "explore uses numpy.exp",
        "wave uses math.sin",
    }
    assert warned["score uses math.log"].endswith("Use log of posse.core.exact.")
    assert warned["explore uses numpy.exp"].endswith("Use exp of posse.core.exact.")


@pytest.mark.parametrize("name", POLICIES)
def test_policies_that_ship_give_no_warnings(name: str) -> None:
    assert check(POLICIES[name]()).warnings == check(policies.Tuned()).warnings == ()


def test_a_policy_defined_inside_a_function_does_not_pickle() -> None:
    class Local(policies.Runner):
        name = "local"

    with pytest.raises(
        PolicyError, match=r"violates picklable: .* define its class at the top of a module\."
    ):
        refuse(Local())


def test_what_the_policy_itself_raises_is_a_finding() -> None:
    report = check(policies.Raising())
    assert not report.passed
    assert "the policy raises RuntimeError: no start." in {
        result.reason for result in report.results
    }


def test_after_a_wrong_signature_the_other_checks_are_left_out() -> None:
    report = check(counterexamples.ComparisonAsked())
    assert [result.name for result in report.results] == [LOCALITY]
    assert len(check(policies.Endless()).results) == len(CHECKS)


def test_state_is_found_in_the_source_for_numba_freezes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled function sees a global array as it was when it was compiled: calling it would show
    nothing.
    """
    policy = counterexamples.Compiled()
    state = (20, 0, 1.0, 2, 0.0, 7, (0.0,))
    before = policy.score(*state)
    monkeypatch.setattr(counterexamples, "ARRAY", counterexamples.ARRAY + 9.0)
    assert policy.score(*state) == before
    with pytest.raises(PolicyError, match="violates arm score locality: score reads 'ARRAY'"):
        refuse(policy)
