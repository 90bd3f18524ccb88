"""The attacks on dp-combinatorial: reading reports, and canaries against the ledger's claim on real
agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import posse
from posse.core.errors import BudgetError, PosseError
from posse.core.roles import WORLD, View
from posse.privacy.crypto.keys import Secrets
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.noise import SecretNoise
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.leakage.attack import Attack, Attempt, Evidence, attempt
from posse.systems.dp_combinatorial.agent import Agent
from posse.systems.dp_combinatorial.attacks import (
    CURIOUS,
    canary_count,
    canary_reports,
    entry_mu,
    honest_reports,
    reports_in,
)
from posse.systems.dp_combinatorial.messages import Delivered, Report
from posse.systems.runs import Run

BY_NAME = {attack.name: attack for attack in CURIOUS}
MARKET = {"agents": 4, "producers": 12, "horizon": 500}


def ran(**settings: object) -> Run:
    run = posse.start(posse.DpCombinatorial(**{**MARKET, **settings}), transcript=1 << 20)
    run.finish()
    return run


def attacked(name: str, run: Run) -> Attempt:
    return attempt(BY_NAME[name], [Evidence(run.view("agent-1"), run.truth())])


def test_without_noise_every_purchase_is_read_and_under_noise_none_to_the_unit() -> None:
    for settings, verdict in (
        ({"noise": "none"}, "finds it out"),
        ({"policy": "fcb", "horizon": 60}, "finds it out"),
        ({}, "nothing found"),
        ({"policy": "placebo"}, "nothing found"),
        ({"policy": "alone"}, "nothing found"),
    ):
        made = attacked("reconstruction", ran(**settings))
        assert (made.verdict, made.power) == (verdict, 1.0), settings


def test_trends_show_through_the_noise_and_not_in_a_placebo() -> None:
    """Sums of 400 rounds under noise for one entry: nearly everything of who buys how much
    where.
    """
    tight, placebo = attacked("trends", ran()), attacked("trends", ran(policy="placebo"))
    assert tight.verdict == "finds it out"
    assert tight.score.value > 0.95
    assert placebo.verdict == "nothing found"


def test_fused_reports_tell_every_capacity() -> None:
    run = ran(rule="fuse")
    made = attacked("capacities", run)
    assert (made.score.value, made.verdict) == (1.0, "finds it out")
    assert "not fused" in BY_NAME["capacities"].missing(posse.DpCombinatorial(**MARKET))


# Canaries -----------------------------------------------------------------------------------------

PLAN = plan(Budget(1, 0.01), rounds=(200, 400), producers=12)
Reports = Callable[[Agent, Callable[[], Agent], Delivered], Sequence[Report]]


class HalfNoise:
    """Noise of half the deviation, fresh for every agent."""

    def __init__(self) -> None:
        self._noise = SecretNoise(Secrets.fresh().key(b"dp-combinatorial noise"))

    def pair(self, release: int, producer: int, sigma: float) -> tuple[float, float]:
        return self._noise.pair(release, producer, sigma / 2)


def half_the_noise(
    agent: Agent, restored: Callable[[], Agent], delivered: Delivered
) -> list[Report]:
    """Fault: less noise than the ledger is paid for."""
    agent._noise = HalfNoise()  # type: ignore[assignment]
    return reports_in(agent.receive(WORLD, delivered))


def fresh_after_a_restart(
    agent: Agent, restored: Callable[[], Agent], delivered: Delivered
) -> list[Report]:
    """Fault: the restarted agent has lost its secrets, and draws other noise for the same
    window.
    """
    again = restored()
    again._noise = SecretNoise(Secrets.fresh().key(b"dp-combinatorial noise"))
    return [
        *reports_in(agent.receive(WORLD, delivered)),
        *reports_in(again.receive(WORLD, delivered)),
    ]


def fresh_for_every_receiver(
    agent: Agent, restored: Callable[[], Agent], delivered: Delivered
) -> list[Report]:
    """Fault: the window is released twice, once to each receiver."""
    return fresh_after_a_restart(agent, restored, delivered)[::2]


def noise_on_units_alone(
    agent: Agent, restored: Callable[[], Agent], delivered: Delivered
) -> list[Report]:
    """Claim 1 of the paper: units under noise, and good units as they are."""
    (report, *_) = reports_in(agent.receive(WORLD, delivered))
    return [Report(report.number, report.units, delivered.good)]


def audited(made: Plan, count: int, seed: int, reports: Reports = honest_reports) -> Attempt:
    return attempt(
        BY_NAME["canaries"], list(canary_reports(made, count, seed, reports)), seed, plantings=2
    )


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (half_the_noise, 6000),
        (fresh_after_a_restart, 14400),
        (fresh_for_every_receiver, 14400),
        (noise_on_units_alone, 3200),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_real_agents_with_a_fault_are_found(fault: Reports, count: int) -> None:
    """A quarter as many canaries have power .95 against each; so many have .9999. Two double a
    release: the weakest.
    """
    made = audited(PLAN, count, 2, fault)
    assert made.verdict == "finds it out"
    assert made.score.value > made.score.baseline


def test_honest_agents_stay_within_their_claim_also_after_restarts_and_for_two_receivers() -> None:
    made = audited(PLAN, 3600, 3)
    if (
        made.verdict != "nothing found"
    ):  # once in a hundred audits; twice running once in ten thousand
        made = audited(PLAN, 3600, 4)
    assert (made.verdict, made.power) == ("nothing found", 1.0)
    assert made.score.value <= made.score.baseline == pytest.approx(1.0, abs=1e-4)
    assert canary_count(PLAN) == pytest.approx(3600, rel=0.05)


@pytest.mark.long
def test_honest_audits_are_above_the_proved_figure_in_one_of_a_hundred() -> None:
    """300 audits of 800 canaries: 10 is the upper .001 point of .01."""
    made = [audited(PLAN, 800, seed).score for seed in range(300)]
    assert sum(one.value > one.baseline for one in made) <= 10


@pytest.mark.parametrize("unit", ["entry", "round"])
@pytest.mark.parametrize("schedule", ["tight", "paper"])
def test_the_claim_is_that_of_the_unit_in_its_window_of_least_noise(
    unit: str, schedule: str
) -> None:
    made = plan(Budget(2, 0.01), unit, schedule, rounds=(200, 400), producers=4, horizon=2000)
    (evidence,) = canary_reports(made, 60, 1)
    assert (
        evidence.truth["mu"]
        == entry_mu(made)
        == 1 / min(made.noise_multiplier(z) for z in range(2))
    )
    assert evidence.seen.values.shape == (
        60,
        8,
    )  # two counts, two receivers, before and after a restart
    np.testing.assert_array_equal(evidence.seen.values[:, :4], evidence.seen.values[:, 4:])


def test_a_ledger_refuses_what_an_honest_agent_would_send_twice() -> None:
    def twice(agent: Agent, restored: Callable[[], Agent], delivered: Delivered) -> list[Report]:
        agent.ledger.spend(agent._terms.number_at(delivered.round))  # type: ignore[union-attr, arg-type]
        return reports_in(agent.receive(WORLD, delivered))

    with pytest.raises(BudgetError, match="once more"):
        list(canary_reports(PLAN, 10, 1, twice))


# All of them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", CURIOUS, ids=lambda attack: attack.name)
def test_attacks_are_functions_of_what_was_seen(attack: Attack) -> None:
    """The same answer twice, without any truth; what is foreign or cut off is refused in one
    line.
    """
    if attack.needs == "view":
        view = ran(rule="fuse").view("agent-1")
        cut = replace(
            view, entries=[one for one in view.entries if getattr(one.message, "number", 1) != 0]
        )
    else:
        (evidence,) = canary_reports(PLAN, 60, 1)
        view = evidence.seen
        cut = replace(view, values=view.values[:10])
    first, again = (attack.estimate(view, 4) for _ in range(2))
    np.testing.assert_equal(first, again)
    foreign = View(("comp",), (), {"comp": {"kind": "comp"}}, {"system": "samba"})
    for wrong in (foreign, cut) if attack.name != "capacities" else (foreign,):
        with pytest.raises(PosseError) as refused:
            attack.estimate(wrong, 4)
        assert "\n" not in str(refused.value)
