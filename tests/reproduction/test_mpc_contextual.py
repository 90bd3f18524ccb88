"""The small forms of mpc-contextual: files, words that follow numbers, private runs equal to their
twins.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posse.privacy.dp.arms import ArmChoice
from posse.systems.mpc_contextual.program import Costs
from posse.systems.mpc_contextual.terms import PAYEE
from posse.systems.mpc_contextual.twins import floats
from reproduction.claims import FAILS, HOLDS, UNKNOWN
from reproduction.kit import Mean, mean_of, run_jobs, seeds_of, verdict
from reproduction.mpc_contextual import fig3_6, fig4_5, fig7, fig8_9, setting, table1
from reproduction.mpc_contextual.fig7 import QUANTITIES, Rows, at_checkpoint, attacked
from reproduction.mpc_contextual.fig8_9 import OURS, PAPER, RECURSIVE, Job, Kind, Result, run
from reproduction.mpc_contextual.problem import (
    EPSILONS,
    FULL,
    SMALL,
    Check,
    Place,
    check,
    check_table,
    check_words,
    world_of,
)
from tests.reproduction.small_form import Ran, column, ids, once, table_of

NAMES = (
    "setting",
    "fig2",
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "fig8",
    "fig9",
    "table1",
    "algorithm3",
)
CHECKED = {"fig2": 1, "fig3": 1, "fig6": 1, "fig8": 2, "fig9": 2}
"""Private runs of each experiment."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return once("mpc-contextual", tmp_path_factory.mktemp)


def test_ids() -> None:
    assert ids("mpc-contextual") == [f"mpc-contextual/{name}" for name in NAMES]


@pytest.mark.long
@pytest.mark.parametrize("name", CHECKED)
def test_private_runs_pull_what_the_fixed_twin_pulls(name: str, ran: Ran) -> None:
    analysis, _ = ran(name)
    table = table_of(analysis, "Private check")
    assert column(table, "all arms as the fixed twin") == ["yes"] * CHECKED[name]
    assert any(
        f"in {CHECKED[name]} of {CHECKED[name]} runs of real roles" in note
        for note in analysis.notes
    )


@pytest.mark.long
def test_failures_of_share_wise_division(ran: Ran) -> None:
    analysis, rows = ran("algorithm3")
    assert {one.claim: one.verdict for one in analysis.findings} == dict.fromkeys(
        ("two", "parties", "counted"), "holds"
    )
    for row in rows:
        alone, counted, trials = (
            int(row[name]) for name in ("failures_alone", "failures_counted", "trials")
        )
        expected = trials * 2.0 ** (int(row["log2_x"]) - 64)
        assert abs(counted - expected) < 6 * math.sqrt(expected) + 6
        assert (
            alone > trials / 5
            if int(row["parties"]) > 2
            else abs(alone - expected) < 6 * math.sqrt(expected) + 6
        )


def test_a_private_run_that_differs_is_told() -> None:
    good = Check("run 1", 100, 100, 0, 0.0, 0.5, 0.5)
    bad = replace(good, same=97, differs=2, gap=1e-6)
    assert column(check_table([good, bad]), "all arms as the fixed twin") == ["yes", "no: 3 differ"]
    assert "in 1 of 2 runs of real roles" in check_words([good, bad])


@pytest.mark.long
def test_a_check_sees_coarse_arithmetic() -> None:
    """At 12 bits and without Newton steps the float twin has other best arms along the way; the
    fixed twin has not.
    """
    made = check(Place("digits", 500).settings(epsilon="0.1", bits=12, newton=0), "12 bits", 500)
    assert made.equal
    assert made.differs > 0
    assert 0 < made.gap < 0.1


@pytest.mark.long
def test_rewards_during_training(ran: Ran) -> None:
    analysis, rows = ran("fig2")
    assert {float(row["epsilon"]) for row in rows} == set(EPSILONS)
    assert {int(row["seed"]) for row in rows} == {1, 2, 3}
    last = [float(row["average_reward"]) for row in rows if row["step"] == str(SMALL.steps)]
    assert len(last) == 12
    assert min(last) > 0.4
    table = analysis.tables[0]
    ends = column(table, f"step {SMALL.steps:,}")
    for epsilon, told in zip(EPSILONS, ends, strict=True):
        own = [
            float(r["average_reward"])
            for r in rows
            if r["epsilon"] == str(epsilon) and r["step"] == "1500"
        ]
        assert float(told.split()[0]) == pytest.approx(np.mean(own), abs=6e-5)
    etas = [float(one) for one in column(table, "eta a step")]
    assert etas == pytest.approx(
        [ArmChoice(10, epsilon).epsilon for epsilon in EPSILONS], abs=0.006
    )


@pytest.mark.long
def test_rewards_against_eta(ran: Ran) -> None:
    analysis, rows = ran("fig3")
    lengths = {int(row["steps"]) for row in rows}
    assert lengths == {200, 600, 1_500}
    assert len(rows) == (8 + 8 + 6) * 5
    assert {row["epsilon"] for row in rows if row["eta"] == "inf"} == {"0.0"}
    table = table_of(analysis, "Does exploring")
    for t, told, word in zip(
        sorted(lengths),
        *(column(table, c) for c in ("reward at eta = infinity", "so")),
        strict=True,
    ):
        own = [
            float(r["average_reward"]) for r in rows if r["eta"] == "inf" and r["steps"] == str(t)
        ]
        assert float(told.split()[0]) == pytest.approx(np.mean(own), abs=6e-5)
        assert word in (fig3_6.HELPS, fig3_6.HARMS, "no difference seen")
        assert word in analysis.notes[0]


@pytest.mark.long
def test_figure_1_is_judged_by_what_roles_send(ran: Ran) -> None:
    analysis, rows = ran("setting")
    assert analysis.findings[0].verdict == HOLDS
    assert {row["parties"] for row in rows} == {"2", "3"}
    one = setting.follow(2, 3, 1)
    assert one.as_drawn
    more = one.ways + Counter({("party", PAYEE, "Opening"): 1})
    less = Counter({way: count for way, count in one.ways.items() if way[2] != "Payoff"})
    for fault in (
        {"ways": more},
        {"ways": less},
        {"shown": 1},
        {"same": False},
        {"asked": Counter({("a", "Act"): 3})},
    ):
        assert not replace(one, **fault).as_drawn  # type: ignore[arg-type]


@pytest.mark.long
def test_arms_against_eta(ran: Ran) -> None:
    _, rows = ran("fig6")
    assert {int(row["arms"]) for row in rows} == {5, 20}
    for row in rows:
        assert float(row["epsilon"]) == pytest.approx(
            int(row["arms"]) * math.exp(-float(row["eta"]))
        )
        assert float(row["epsilon"]) <= 0.5


def line(gain: float, spread: float) -> fig3_6.Line:
    """Eight runs in which eta 5 earns so much more than infinity, and eta 3 less."""
    noise = spread * np.array([1.0, -1.0] * 4)
    rewards = np.stack([np.full(8, 0.3), 0.5 + gain + noise, np.full(8, 0.5)], axis=1)
    return fig3_6.Line("T = 10", 10, 10, (3.0, 5.0, math.inf), rewards)


def test_exploring_helps_only_where_it_does() -> None:
    assert line(0.1, 0.01).verdict == fig3_6.HELPS
    assert line(-0.1, 0.01).verdict == fig3_6.HARMS
    assert line(0.01, 0.1).verdict == "no difference seen"
    assert line(0.1, 0.01).near == (5.0,)
    assert line(0.01, 0.1).near == (5.0, math.inf)
    assert line(0.1, 0.01).benefit[0] == 5.0


def test_how_the_best_eta_moves() -> None:
    low = line(0.1, 0.001)

    def later(eta: float) -> fig3_6.Line:
        return fig3_6.Line("|A| = 20", 20, 10, (3.0, eta, math.inf), low.rewards)

    assert fig3_6.enough_eta(low, np.arange(8)) == pytest.approx(3 + 2 * 0.29 / 0.3)
    held = fig3_6.slightly([low, later(5.5)])
    assert held.verdict == HOLDS
    assert "best: 4.93 for T = 10, 5.42 for |A| = 20; it rises by 0.697" in held.measured
    # As steep as a fixed epsilon, falling, and not at all.
    assert [fig3_6.slightly([low, later(eta)]).verdict for eta in (6.0, 4.5, 5.0)] == [
        FAILS,
        FAILS,
        UNKNOWN,
    ]


def test_what_is_chosen_is_tested_on_other_runs() -> None:
    one = line(0.0, 0.0)
    lucky = one.rewards.copy()
    lucky[:4, 0] = 0.9  # eta 3 is the best of the first half, and nothing in the second
    chosen, gain = fig3_6.Line("T", 10, 10, one.etas, lucky).benefit
    assert chosen == 3.0
    assert gain.mean == pytest.approx(-0.2)


def test_rows_and_rewards_of_a_short_run_begin_a_long_one() -> None:
    world, prefix = world_of(Place("digits", 400), 3), world_of(Place("digits", 150), 3)
    assert np.array_equal(world.features[:150], prefix.features)
    assert np.array_equal(world.rewards[:150], prefix.rewards)


def test_all_lengths_come_from_one_run() -> None:
    place, etas = Place("digits", 400), (5.0, math.inf)
    both = fig3_6.rewards_of(place, etas, (150, 400), 3)
    world = world_of(place, 3)
    for i, one in enumerate(etas):
        short = world.first(150)
        found = floats.run(
            short.features, short.rewards, short.coins(fig3_6.rate(one, 10))
        ).rewards.mean()
        assert both[i, 0] == pytest.approx(found)


def test_rates_explore_in_nested_steps() -> None:
    world = world_of(SMALL, 1)
    low, high = (world.coins(epsilon).explore for epsilon in (0.05, 0.2))
    assert (low <= high).all()
    assert low.mean() == pytest.approx(0.05, abs=0.02)
    assert np.array_equal(world.coins(0.05).arms, world.coins(0.2).arms)


@pytest.mark.long
def test_times(ran: Ran) -> None:
    analysis, rows = ran("fig4")
    assert [int(row["arms"]) for row in rows] == [10, 20, 50]
    for row in rows:
        assert float(row["cpu_ms_a_party"]) > 0
        assert float(row["cpu_ms_dealer"]) > 0
    table = analysis.tables[0]
    assert column(table, "rounds")[0] == "11"
    assert int(column(table, "rounds")[-1]) > 11
    analysis, rows = ran("fig5")
    assert [int(row["parties"]) for row in rows] == [2, 3]
    sent = [int(row["bytes_sent_by_a_party"]) for row in rows]
    assert 1.8 < sent[1] / sent[0] < 2.1
    assert column(analysis.tables[0], "published") == ["2 (run-time)"]


def timed(parties: int, arms: int, ms: float) -> fig4_5.Timed:
    roles = {"party": ms * parties, "dealer": 0.1 * ms, "puller": 0.0, "payee": 0.0}
    return fig4_5.Timed(parties, arms, 10, 1, roles, Costs(11, 1000.0 * (parties - 1), 0.0, 500.0))


@pytest.mark.long
def test_growth_follows_the_numbers(tmp_path: Path) -> None:
    square = [timed(2, arms, 1e-3 * arms**2) for arms in (10, 20, 40, 80, 160)]
    assert fig4_5.grown(square, 40, 10**9) == pytest.approx(2.0)
    assert "So it does here" in fig4_5.analyse_arms(square, 0.01, tmp_path).notes[0]
    straight = [timed(2, arms, 1e-3 * arms) for arms in (10, 20, 40, 80, 160)]
    told = fig4_5.analyse_arms(straight, 0.01, tmp_path)
    assert "We disagree, to the better: |A|^1.00" in told.notes[0]
    assert "as |A|^1.00 from there on" in told.headline
    parties = [timed(count, 10, 1.0) for count in (2, 3, 4, 5)]
    assert "We find less" in fig4_5.analyse_parties(parties, tmp_path).notes[0]
    assert (
        "So it is here"
        in fig4_5.analyse_parties([timed(p, 10, p) for p in (2, 3, 4, 5)], tmp_path).notes[0]
    )


@pytest.mark.long
def test_operations(ran: Ran) -> None:
    analysis, rows = ran("table1")
    own = [row for row in rows if row["shape"] == "100"]
    assert [row["operation"] for row in own] == list(table1.PUBLISHED)
    assert [int(row["rounds"]) for row in own] == [0, 2, 6, 10]
    assert all(float(row["slowdown_with_dealing"]) > float(row["slowdown"]) > 1 for row in own)
    errors = {row["operation"]: float(row["largest_error"]) for row in own}
    assert errors["argmax"] == 0
    assert max(errors.values()) < 1e-7
    table = analysis.tables[0]
    assert column(table, "published slowdown")[:4] == ["11×", "380×", "6,000×", "34,000×"]


@pytest.mark.parametrize("operation", table1.OPERATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("parties", [2, 3])
def test_operations_are_right_between_any_parties(operation: object, parties: int) -> None:
    made = table1.measure(operation, (12,), parties, passes=3, seed=5)  # type: ignore[arg-type]
    assert made.error < 1e-7


@pytest.mark.long
def test_membership(ran: Ran) -> None:
    analysis, rows = ran("fig7")
    bandit = [row for row in rows if row["model"] == "bandit"]
    control = [row for row in rows if row["model"] != "bandit"]
    assert len(bandit) == 4 * len(EPSILONS) * 3
    # The attacks must be able to catch what learnt by heart.
    for name in ("code", "apart", "error", "same_source", "same_source_error"):
        assert np.mean([float(row[name]) for row in control]) > 0.25
    assert "The attacks catch it" in analysis.notes[-1]
    caught = table_of(analysis, "The attacks on a model")
    assert len(caught.rows) == len(QUANTITIES)
    for row in bandit:
        assert float(row["code"]) == pytest.approx(abs(float(row["signed"])))
        assert float(row["in_sample"]) >= 0
        # Nothing is left to compare with after the last row.
        assert math.isnan(float(row["same_source"])) == (row["steps"] == "1300")


def test_a_control_that_is_missed_is_told() -> None:
    values = np.zeros((3, len(EPSILONS), 2, len(QUANTITIES)))
    controls = np.zeros((3, len(QUANTITIES)))
    found = fig7.Found(SMALL, (10, 20), values, fig7.SMALL_HEART, controls, 30)
    assert not fig7.caught_all(found)
    assert "The attacks MISS it" in fig7.notes(found)[-1]
    assert fig7.caught_all(replace(found, controls=controls + 0.5))


def test_held_out_rows_are_met_by_no_run() -> None:
    place = replace(SMALL, rows=1_300, steps=1_300)
    features, rewards = place.held_out()
    assert len(features) == len(rewards) == 1_797 - 1_300
    met = {row.tobytes() for row in world_of(place, 1).features}
    assert len(met) > 1_290
    assert not met & {row.tobytes() for row in features}
    assert (rewards.sum(axis=1) == 1).all()


def test_a_model_is_attacked_as_it_was_at_the_checkpoint() -> None:
    place = replace(SMALL, rows=1_300, steps=1_300)
    held = Rows(*place.held_out())
    found = attacked(place, held, (0.1,), (200, 500), 2)
    world = world_of(place, 2)
    first = world.first(200)
    weights = floats.run(first.features, first.rewards, first.coins(0.1)).weights
    rows = Rows(world.features, world.rewards)
    later = rows.part(200, 200 + len(held))
    assert np.array_equal(
        found[0, 0], at_checkpoint(weights, rows.part(0, 200), later, held, 0.1, 2)
    )


@pytest.mark.long
def test_precision(ran: Ran) -> None:
    analysis, rows = ran("fig8")
    reward: dict[tuple[str, str, str, str], float] = {
        (row["form"], row["truncation"], row["bits"], row["seed"]): float(row["average_reward"])
        for row in rows
    }
    for form in ("published", "recursive"):
        for seed in ("1", "2"):
            # At 26 bits the paper's truncation wraps, and the exact one does not.
            assert reward[form, "exact", "26", seed] > reward[form, "published", "26", seed]
    for row in rows:
        if row["truncation"] == "exact":
            assert row["wraps"] == "0"
    assert "at L = 20, 26" in analysis.headline
    assert len(table_of(analysis, "Average reward").rows) == 3


def test_the_protocols_twin_is_what_posse_runs() -> None:
    """On its own coins the twin in the figure pulls what a fixed run of the package pulls, to
    within its coins.
    """
    jobs = [Job(Place("digits", 300), kind, 26, 2, 1) for kind in (OURS, RECURSIVE)]
    ours, simulated = (run(job) for job in jobs)
    assert ours.reward == pytest.approx(simulated.reward, abs=0.01)


def test_whole_bits_follow_the_rewards() -> None:
    def result(kind: Kind, bits: int, reward: float) -> Result:
        return Result(Job(SMALL, kind, bits, 7, 1), reward, reward, 0)

    results = [result(PAPER, bits, reward) for bits, reward in ((16, 0.1), (20, 0.83), (24, 0.3))]
    found = fig8_9.Found("bits", SMALL, results, 0.834, [])
    assert found.whole(PAPER) == [20]
    assert found.whole(OURS) == []
    out = fig8_9.Found(
        "bits",
        SMALL,
        [result(OURS, 20, 0.83), replace(result(OURS, 20, math.nan), refused=True)],
        0.834,
        [],
    )
    assert out.whole(OURS) == []
    assert out.rewards(OURS, 20) == [0.83]
    assert out.refused(OURS, 20) == 1


@pytest.mark.long
def test_newton_steps(ran: Ran) -> None:
    analysis, rows = ran("fig9")
    assert {int(row["newton"]) for row in rows} == {0, 1, 2, 3, 7}
    table = analysis.tables[0]
    ours = [float(cell.split()[0]) for cell in column(table, table.columns[-1])]
    # From a quadratic guess no number of Newton steps matters for the reward.
    assert max(ours) - min(ours) < 0.01
    assert f"{RECURSIVE.label} (26 bits): 0" in analysis.headline


def test_enough_newton_steps() -> None:
    rewards = (0.1, 0.8, 0.2, 0.83, 0.835, 0.834)
    results = [
        Result(Job(SMALL, PAPER, 20, n, 1), reward, reward, 0) for n, reward in enumerate(rewards)
    ]
    assert fig8_9.Found("newton", SMALL, results, 0.834, []).enough(PAPER) == 3


def test_means_and_verdicts() -> None:
    one = mean_of([1.0, 2.0, 3.0])
    assert (one.mean, one.half) == pytest.approx((2.0, 4.303 / math.sqrt(3)), abs=1e-3)
    assert verdict(Mean(1.0, 0.5, 3), "more", "less") == "more"
    assert verdict(Mean(-1.0, 0.5, 3), "more", "less") == "less"
    assert verdict(mean_of([1.0]), "more", "less") == "no difference seen"


def test_nobody_chose_the_runs() -> None:
    assert seeds_of(4) == (1, 2, 3, 4)
    assert (FULL.base, FULL.steps) == ("mnist", 60_000)


def test_an_interruption_ends_a_sweep() -> None:
    heard: list[str] = []

    def watch(what: str, fraction: float) -> None:
        heard.append(what)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(range(1000), lambda job: job, str, watch)
    assert heard == ["0"]
