"""Plans: what the published noise proves, and calibrated noise that proves what was asked, through
the accountant.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.privacy.dp.gaussian import largest_mu
from posse.privacy.dp.guarantee import PARALLEL, SEQUENTIAL, Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.plans import BudgetSettings, Plan, paper_claims, plan, plan_of_noise
from posse.privacy.dp.schedules import SCHEDULES, UNITS, communication_rounds

ROUNDS = communication_rounds(200, 40_000, 100_000)
ASKED = Budget(1, 0.01)


@pytest.fixture(scope="module")
def paper() -> Plan:
    return plan(ASKED, "entry", "paper", rounds=ROUNDS, producers=30, horizon=100_000)


def test_what_the_published_noise_proves(paper: Plan) -> None:
    assert paper.multipliers[0] == pytest.approx(10.59, abs=5e-3)
    assert paper.guarantee().epsilon == pytest.approx(0.1458, abs=5e-5)
    assert paper.guarantee().composition == PARALLEL
    assert paper.guarantee(composition=SEQUENTIAL).epsilon == pytest.approx(0.2108, abs=5e-5)
    assert paper.guarantee("round").epsilon == pytest.approx(1.526, abs=5e-4)
    assert paper.guarantee("round", SEQUENTIAL).epsilon == pytest.approx(2.128, abs=5e-4)
    assert paper.guarantee("history").epsilon == math.inf


def test_the_published_noise_at_another_delta(paper: Plan) -> None:
    same = plan_of_noise(paper.multipliers, rounds=ROUNDS, producers=30, delta=1e-5)
    assert same.guarantee(composition=SEQUENTIAL).epsilon == pytest.approx(0.6126, abs=5e-5)


def test_a_delta_of_one_proves_nothing() -> None:
    proved = [
        paper_claims(Budget(1, 1 / messages), 100_000, 8, 40_000)[-1].proved
        for messages in (16, 17)
    ]
    assert proved == [False, True]


def test_the_published_claims(paper: Plan) -> None:
    figures = [
        (round(claim.epsilon, 3), round(claim.delta, 3), claim.proved) for claim in paper.claims()
    ]
    assert figures == [
        (1, 0.01, False),
        (0.845, 0.01, False),
        (1.195, 0.01, False),
        (1.691, 0.16, True),
        (0.211, 0.01, True),
        (0.146, 0.01, True),
    ]


@pytest.mark.parametrize("unit", ["round", "history"])
def test_the_published_schedule_is_refused_where_it_proves_less(unit: str) -> None:
    with pytest.raises(
        ConfigError, match=f"for unit {unit} .* more than the asked .* Use schedule 'tight'"
    ):
        plan(ASKED, unit, "paper", rounds=ROUNDS, producers=30, horizon=100_000)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("schedule", ["equal", "tight"])
@pytest.mark.parametrize(
    "asked", [ASKED, Budget(0.1, 1e-5), Budget(8, 1e-9), Budget(2, 1e-14)], ids=str
)
def test_calibrated_noise_proves_what_was_asked_and_hardly_more(
    unit: str, schedule: str, asked: Budget
) -> None:
    made = plan(asked, unit, schedule, rounds=ROUNDS, producers=30)
    proved = made.guarantee().epsilon
    assert proved <= asked.epsilon
    assert proved > asked.epsilon * (0.999 if asked.delta > 1e-12 else 0.95)
    ledger = Ledger(made, "agent")
    for z in range(made.messages):
        ledger.spend(z)
    assert ledger.guarantee() == made.guarantee()


@settings(max_examples=30, deadline=None)
@given(
    st.floats(-3, 2),
    st.floats(-12, -0.5),
    st.sampled_from(["equal", "tight"]),
    st.sampled_from(list(UNITS)),
)
def test_no_calibrated_plan_is_refused_by_the_ledger(
    epsilon: float, delta: float, schedule: str, unit: str
) -> None:
    made = plan(Budget(10**epsilon, 10**delta), unit, schedule, rounds=(5, 10, 20), producers=4)
    ledger = Ledger(made, "agent")
    for z in (2, 0, 1):
        ledger.spend(z)
        assert ledger.epsilon <= 10**epsilon


def test_the_least_noise() -> None:
    tight = plan(ASKED, rounds=ROUNDS, producers=30)
    exact = math.sqrt(2) / largest_mu(1, 0.01)
    assert tight.multipliers == pytest.approx([exact] * 8, rel=1e-5)
    assert tight.noise_multiplier(3) == pytest.approx(tight.multipliers[3] / math.sqrt(2))
    equal = plan(ASKED, schedule="equal", rounds=ROUNDS, producers=30)
    assert equal.multipliers[0] == pytest.approx(math.sqrt(8) * exact, rel=1e-5)
    assert equal.guarantee().composition == SEQUENTIAL


def test_a_history_takes_noise_in_proportion_to_its_windows() -> None:
    made = plan(ASKED, "history", rounds=ROUNDS, producers=30)
    shares = [noise / length for noise, length in zip(made.multipliers, made.windows, strict=True)]
    assert shares == pytest.approx([shares[0]] * 8)


def test_given_noise() -> None:
    one = plan_of_noise(2.66, rounds=ROUNDS, producers=30, delta=0.01)
    each = plan_of_noise([2.66] * 8, rounds=ROUNDS, producers=30, delta=0.01)
    assert one == each
    assert one.guarantee().epsilon == pytest.approx(0.998, abs=5e-4)
    assert (one.budget, one.schedule) == (None, "given")
    assert [claim.proved for claim in one.claims()] == [True, True]


def test_no_noise_proves_nothing() -> None:
    none = plan_of_noise(0, rounds=ROUNDS, producers=30)
    assert none.guarantee().epsilon == math.inf
    assert "no finite epsilon" in none.guarantee().sentence()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plan(ASKED, "day", rounds=ROUNDS, producers=3), "unknown unit 'day'"),
        (
            lambda: plan(ASKED, "entry", "best", rounds=ROUNDS, producers=3),
            "unknown schedule 'best'",
        ),
        (lambda: plan(ASKED, "entry", "paper", rounds=ROUNDS, producers=3), "give the horizon"),
        (lambda: plan(ASKED, rounds=ROUNDS, producers=0), "producers must be at least 1"),
        (lambda: plan(ASKED, rounds=ROUNDS, producers=3, horizon=1000), "must end by round 1000"),
        (lambda: plan(Budget(1, 1e-17), rounds=ROUNDS, producers=3), "cannot be accounted for"),
        (
            lambda: plan_of_noise([1, 2], rounds=ROUNDS, producers=3),
            "one for each of 8 messages, got 2",
        ),
        (
            lambda: plan_of_noise(-1, rounds=ROUNDS, producers=3),
            r"noise must be in \[0, 10+\], got -1",
        ),
        (lambda: plan_of_noise(1, rounds=ROUNDS, producers=3, delta=1), "delta must be above 0"),
        (
            lambda: plan_of_noise(1, rounds=ROUNDS, producers=3).guarantee("history", PARALLEL),
            "compose in sequence",
        ),
    ],
)
def test_mistakes(call: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_defaults() -> None:
    made = BudgetSettings().plan()
    assert (made.unit.name, made.schedule, made.messages, str(made.budget)) == (
        "entry",
        "tight",
        8,
        "(1, 0.01)",
    )


def test_every_unit_and_schedule_is_a_choice() -> None:
    fields = BudgetSettings.model_fields
    assert fields["unit"].annotation.__args__ == tuple(UNITS)  # type: ignore[union-attr]
    assert fields["schedule"].annotation.__args__[0].__args__ == SCHEDULES  # type: ignore[union-attr]


def test_the_stop_round_counts_the_published_messages() -> None:
    """Powers of two up to the stop round: 16 up to 40,000, 15 up to 30,000."""
    for stop, messages in ((40_000, 16), (30_000, 15)):
        claims = BudgetSettings(schedule="paper", stop=stop).plan().claims()
        assert any(
            f"{messages} messages, its algorithm as printed" in claim.how for claim in claims
        )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"epsilon": 1, "noise": [2]}, "give epsilon or noise, not both"),
        ({"schedule": "paper", "noise": [2]}, "give schedule or noise, not both"),
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"delta": 1}, "delta must be above 0 and below 1"),
        ({"unit": "day"}, "unit must be"),
        ({"schedule": "best"}, "schedule must be"),
        ({"stop": 100}, "stop 100 before start 200"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"producers": 0}, "producers must be at least 1"),
        ({"noise": [1, 2]}, "one for each of 8 messages"),
        ({"epsilonn": 1}, "unknown setting 'epsilonn'. Did you mean 'epsilon'"),
    ],
)
def test_mistakes_in_settings(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        BudgetSettings(**values).plan()
    assert "\n" not in str(caught.value)
