"""What a record of a contextual bandit on shares says of its costs."""

from __future__ import annotations

from posse.systems.mpc_contextual.federation import costs_section
from posse.systems.mpc_contextual.settings import MpcContextual

SECONDS = {"party": 2.4, "puller": 0.05, "payee": 0.03, "dealer": 0.5}
SUMMARY = {
    "rounds_a_step": 11,
    "bytes_a_step_sent_by_a_party": 41_303,
    "bytes_a_step_dealt_to_a_party": 41_208,
}


def settings(**changes: object) -> MpcContextual:
    return MpcContextual(**{"rows": 100, "components": 6, "horizon": 100, **changes})  # type: ignore[arg-type]


def test_what_a_step_costs() -> None:
    planned = {**SUMMARY, "planned_seconds_a_step": 0.23}
    (section,) = costs_section(settings(latency=20.0, bandwidth=100.0), planned, SECONDS, 600)
    rows = dict(section.rows)
    assert rows["rounds"] == "11"
    assert rows["bytes that a party sends"] == "41.3 kB"
    assert rows["CPU time of each party"] == "2 ms"  # 2.4 s, two parties, 600 steps
    assert rows["CPU time of the dealer"] == "833 µs"
    assert rows["estimated time at 20 ms one way and 100 Mbit/s"] == "230 ms"
    assert rows["the same for all 100 steps"] == "23.0 s"


def test_steps_that_go_together_are_counted_and_no_estimate_is_made_up() -> None:
    (section,) = costs_section(settings(batch=4), {**SUMMARY, "rounds_a_step": 2.875}, SECONDS, 600)
    assert section.rows[:2] == (("rounds", "2.88"), ("steps that share rounds and a model", "4"))
    assert not [what for what, _ in section.rows if "estimated" in what]
    assert costs_section(settings(), SUMMARY, SECONDS, 0) == ()
