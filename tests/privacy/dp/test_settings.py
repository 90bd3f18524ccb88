"""Settings of a budget: one line for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from posse.core.errors import ConfigError
from posse.privacy.dp import SCHEDULES, UNITS, BudgetSettings


def test_defaults() -> None:
    made = BudgetSettings().plan()
    assert (made.unit.name, made.schedule, made.messages, str(made.budget)) == ("entry", "tight", 8, "(1, 0.01)")


def test_every_unit_and_schedule_is_a_choice() -> None:
    fields = BudgetSettings.model_fields
    assert fields["unit"].annotation.__args__ == tuple(UNITS)  # type: ignore[union-attr]
    assert fields["schedule"].annotation.__args__[0].__args__ == SCHEDULES  # type: ignore[union-attr]


def test_the_stop_round_counts_the_published_messages() -> None:
    """Powers of two up to the stop round: 16 up to 40,000, 15 up to 30,000."""
    for stop, messages in ((40_000, 16), (30_000, 15)):
        claims = BudgetSettings(schedule="paper", stop=stop).plan().claims()
        assert any(f"{messages} messages, its algorithm as printed" in claim.how for claim in claims)


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
def test_mistakes(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        BudgetSettings(**values).plan()
    assert "\n" not in str(caught.value)
