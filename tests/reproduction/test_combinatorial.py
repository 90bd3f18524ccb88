"""The small forms of dp-combinatorial: files, words that follow numbers, and instances that nobody
chose.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from posse.core.statistics import Interval
from posse.problems.markets.instances import Distribution, binds
from posse.systems.dp_combinatorial import twin
from posse.systems.dp_combinatorial.learning import nothing_known
from reproduction.claims import FAILS, HOLDS, UNKNOWN
from reproduction.dp_combinatorial import exp2, exp3, fig2, markets, order, ranking, setting
from reproduction.dp_combinatorial.exp1 import (
    PUBLISHED,
    Comparison,
    agreement,
    judged,
    published_table,
    verdict,
)
from reproduction.dp_combinatorial.markets import (
    FULL,
    SMALL,
    Job,
    Place,
    Size,
    known_market,
    run_markets,
)
from reproduction.dp_combinatorial.ranking import (
    FIRST,
    Ranking,
    breaks_of,
    fresh_instances,
    in_order,
)
from reproduction.kit import Floats
from tests.reproduction.small_form import Ran, column, ids, once

NAMES = (
    "setting",
    "theorem1",
    "fig2",
    "naive",
    "exp1",
    "exp2",
    "exp3",
    "order",
    "weights",
    "when",
    "overlap",
)
TINY = Size(agents=3, producers=8, rounds=400, start=50, stop=200, instances=2, runs=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return once("dp-combinatorial", tmp_path_factory.mktemp)


def nobody(what: str, fraction: float) -> None:
    return None


def interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate, low, high, level=0.95, resamples=4000, over="instances")


def test_ids() -> None:
    assert ids("dp-combinatorial") == [f"dp-combinatorial/{name}" for name in NAMES]


# `make test` computes one small form, `make test-long` all.
@pytest.mark.parametrize(
    "name",
    ["fig2", *(pytest.param(one, marks=pytest.mark.long) for one in NAMES[1:] if one != "fig2")],
)
def test_small_form(name: str, run: Ran) -> None:
    analysis, rows = run(name)
    assert {row["distribution"] for row in rows} == {"uniform", "normal"}
    assert {row["seed"] for row in rows} == {"1", "2"}
    assert all(float(row["regret_per_agent"]) > 0 for row in rows)
    for row in rows:
        # An epsilon never stands alone, and the published noise proves less than it claims.
        assert (row["epsilon_asked"] == "") == (row["delta"] == "") == (row["unit"] == "")
        if row["method"] == "P-FCB, paper noise":
            assert float(row["epsilon_proved"]) < float(row["epsilon_asked"])
            assert (row["delta"], row["unit"]) == ("0.01", "entry")
    assert all(table.rows for table in analysis.tables)


@pytest.mark.long
def test_figure_1_is_judged_by_what_agents_send(run: Ran) -> None:
    analysis, rows = run("setting")
    assert analysis.findings[0].verdict == HOLDS
    assert {(row["reports"], row["planned"], row["others"]) for row in rows} == {("60", "60", "0")}
    one = setting.follow(TINY.places("uniform")[0], markets.TIGHT, TINY, 1)
    assert one.as_drawn
    for fault in (
        {"others": 1},
        {"reports": one.reports - 1},
        {"alike": False},
        {"bought": False},
        {"same": False},
        {"noise": 0 * one.noise},
        {"noise": 2 * one.noise},
    ):
        assert not replace(one, **fault).as_drawn  # type: ignore[arg-type]


@pytest.mark.long
def test_exp1_has_all_methods_and_says_what_is_outside(run: Ran) -> None:
    analysis, rows = run("exp1")
    table = next(
        table for table in analysis.tables if table.title == "All methods at the last round"
    )
    named = column(table, "method")
    assert len(named) == 20
    assert len(set(named)) == 10
    privacy = dict(zip(named, column(table, "privacy"), strict=True))
    assert privacy["P-FCB, paper noise"] == "claims (1, 0.01), proved (0.1603, 0.01), unit entry"
    assert privacy[markets.MATCHED] == "proved (0.1603, 0.01), unit entry"
    assert privacy["FCB"] == "none: in the clear"
    # The ratio of the table, from the raw rows.
    mean = {
        m: np.mean([float(r["regret_per_agent"]) for r in rows if _cell(r, m)])
        for m in ("alone", "FCB")
    }
    published = next(table for table in analysis.tables if table.title.startswith("Regret over"))
    ours = published.rows[1]
    assert ours[:2] == ("uniform", "alone")
    assert float(ours[3].split()[0]) == pytest.approx(mean["alone"] / mean["FCB"], rel=0.05)
    # Three published numbers of a market three times as large are not met here, and the words say
    # so.
    outside = [word for word in column(published, "published lies") if word.startswith("outside")]
    assert f"{4 - len(outside)} of 4 published ratios" in analysis.headline
    assert ("we disagree on" in analysis.headline) == bool(outside)


def _cell(row: dict[str, str], method: str) -> bool:
    return (row["distribution"], row["method"]) == ("uniform", method)


@pytest.mark.parametrize(
    ("published", "words"),
    [
        (2.0, "inside"),
        (2.5, "inside"),
        (2.51, "outside: published is larger"),
        (1.9, "outside: published is smaller"),
    ],
)
def test_verdict(published: float, words: str) -> None:
    assert verdict(published, interval(2.2, 2.0, 2.5)) == words


def test_no_interval_no_agreement() -> None:
    nan = float("nan")
    assert verdict(2.0, interval(2.0, nan, nan)) == "no interval"


def test_agreement_names_what_disagrees() -> None:
    good = Comparison("uniform", "alone", 3.33, interval(3.0, 2.5, 3.5), interval(9.0, 8.0, 9.5))
    bad = Comparison("normal", "alone", 4.94, interval(3.6, 3.1, 4.2), interval(4.0, 3.0, 5.0))
    assert agreement((good,)).endswith("over instances).")
    assert "1 of 1" in agreement((good,))
    both = agreement((good, bad))
    assert "1 of 2 published ratios" in both
    assert "we disagree on normal, alone: published 4.94, ours 3.6 [3.1, 4.2]" in both
    rows = published_table((good, bad)).rows
    assert [(row[4], row[6]) for row in rows] == [
        ("inside", "outside: published is smaller"),
        ("outside: published is larger", "inside"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(2.5, 3.5, HOLDS), (2.0, 3.5, UNKNOWN), (3.4, 4.0, FAILS), (math.nan, math.nan, UNKNOWN)],
)
def test_an_interval_that_holds_both_published_numbers_tells_nothing(
    low: float, high: float, word: str
) -> None:
    found = judged(
        Comparison("uniform", "alone", 3.33, interval(3.3, low, high), interval(9.0, 8.0, 9.5)), 5
    )
    assert found.verdict == word
    assert (
        "2.36, the published value of P-FCB, paper noise, and about 4 instances" in found.because
    ) == (low == 2.0)


@pytest.mark.parametrize(
    ("frr", "word"),
    [
        ((0.9, 0.6, 0.5), HOLDS),
        ((0.9, 0.8, 0.1), FAILS),
        ((0.9, 0.8, 0.7), UNKNOWN),
        ((0.9, 0.8), UNKNOWN),
    ],
)
def test_a_fall_is_sub_linear_where_its_slopes_are_told_apart(
    frr: tuple[float, ...], word: str
) -> None:
    epsilons = (1.0, 2.0, 3.0)[: len(frr)]
    regret = {1.0 + k: value for k, value in enumerate(frr)}
    spread = np.array([[0.01], [-0.01], [0.02], [-0.02], [0.0]])

    class Runs(markets.Runs):
        def at_end(self, places: Sequence[Place], method: markets.Method) -> Floats:
            return 100 * (
                regret[method.epsilon] + (-1) ** method.epsilon * spread
                if method.noise
                else np.ones((5, 1))
            )

    found = exp2.bends_down("uniform", epsilons, Runs(FULL, {}, markets.Cost(1, 1, 1.0, 1.0)))
    assert found.verdict == word
    assert found.measured.startswith(f"FRR falls by {frr[0] - frr[1]:.3f} ± ")


def test_the_order_is_judged_by_medians_and_by_its_share() -> None:
    every, most = ranked([5.0] * 60, [4.0] * 60), ranked([5.0] * 58 + [11.0] * 2, [4.0] * 60)
    assert order.ordered([every]).verdict == HOLDS
    found = order.ordered([most])
    assert found.verdict == UNKNOWN
    assert found.measured.endswith("instances in order: 58 of 60, 97 % [89, 99]")
    assert found.because.endswith(
        "instances in order: the interval includes 90 %, and about 78 instances would decide"
    )
    assert order.ordered([ranked([11.0] * 60, [4.0] * 60)]).verdict == FAILS


def test_published_numbers_are_the_papers_percentages() -> None:
    more = {("uniform", "P-FCB, paper noise"): 136, ("uniform", "alone"): 233}
    more |= {("normal", "P-FCB, paper noise"): 235, ("normal", "alone"): 394}
    found = {
        (d, m): round(100 * (ratio - 1))
        for d, cells in PUBLISHED.items()
        for m, ratio in cells.items()
    }
    assert found == more


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_nobody_chose_the_fresh_instances(distribution: Distribution) -> None:
    taken = fresh_instances(distribution, Size(instances=30))
    kept = [place.seed for place in taken.kept]
    assert len(kept) == 30
    assert sorted((*kept, *taken.skipped)) == list(range(FIRST, max(*kept, *taken.skipped, 0) + 1))
    assert all(binds(Place(distribution, seed, 10, 30).market()) for seed in taken.skipped)
    assert not any(binds(place.market()) for place in taken.kept)
    # The other experiments take 1 to 5, all of them.
    assert [place.seed for place in FULL.places(distribution)] == [1, 2, 3, 4, 5]
    assert FIRST > 5


@pytest.mark.long
def test_order_runs_on_the_fresh_instances(run: Ran) -> None:
    analysis, rows = run("order")
    for distribution in ("uniform", "normal"):
        taken = fresh_instances(distribution, Size(agents=4, producers=8, instances=3))
        used = {int(row["instance"]) for row in rows if row["distribution"] == distribution}
        assert used == {place.seed for place in taken.kept}
        assert f"without {', '.join(map(str, taken.skipped))}" in analysis.notes[0]


def ranked(paper: list[float], tight: list[float]) -> Ranking:
    """Instances with regret 10 alone and 2 with FCB."""

    def runs(values: list[float]) -> Floats:
        return np.array([[v - 0.5, v + 0.5] for v in values])

    count = len(paper)
    seeds = tuple(range(FIRST, FIRST + count))
    alone, fcb = runs([10.0] * count), runs([2.0] * count)
    return Ranking("uniform", seeds, alone, runs(paper), runs(tight), runs(paper), fcb)


def test_targets_are_missed_when_they_are_missed() -> None:
    one = ranked([5.0] * 8 + [11.0, 1.0], [4.9] * 10)
    assert one.holds == (*[True] * 8, False, False)
    table = order.order_table([one])
    assert table.rows[0] == ("uniform", "8 of 10 (80 %): missed", "1009, 1010")
    assert column(order.noise_table([one], SMALL), "target: 20 % less") == ["missed", "no target"]
    assert "8 of 10 (80 %): missed" in order.headline([one])


def test_targets_are_reached_when_they_are() -> None:
    one = ranked([5.0] * 10, [3.0] * 10)
    assert all(one.holds)
    assert "10 of 10 (100 %): reached" in order.headline([one])
    assert "reached by the whole interval" in order.headline([one])
    mixed = ranked([5.0] * 10, [3.0] * 6 + [4.9] * 4)
    assert "reached by the median, not by the whole interval" in order.headline([mixed])


def test_an_instance_out_of_order_is_looked_at() -> None:
    fresh = fresh_instances("uniform", TINY)
    runs = run_markets(TINY, fresh.kept, ranking.methods(TINY), nobody)
    # As if agents alone had what FCB reached: the first instance breaks, whatever the noise does.
    alone, fcb = (Job(fresh.kept[0], method, TINY) for method in (markets.ALONE, markets.FCB))
    runs.outcomes[alone], runs.outcomes[fcb] = runs.outcomes[fcb], runs.outcomes[alone]
    (broken,) = (one for one in breaks_of(fresh, runs) if one.seed == fresh.kept[0].seed)
    assert (broken.of, broken.agents) == (2, 3)
    assert broken.paper >= broken.alone
    assert broken.worse >= 1
    assert broken.worst > 1
    assert broken.seen == ranking.spoilt(Job(fresh.kept[0], markets.PAPER, TINY))
    (row,) = order.break_table([broken]).rows
    assert row[:2] == ("uniform", str(broken.seed))
    assert "P-FCB not below alone" in row
    notes = order.notes([fresh], [broken], runs)
    assert any(
        note.startswith("1 instance out of order, in 1 because P-FCB has not less")
        for note in notes
    )


def test_fives_spread_as_their_instances_do() -> None:
    same = ranked([5.0] * 10, [3.0] * 10)
    assert order.spread_of_fives(same.paper, same.fcb) == pytest.approx((2.5, 2.5))
    found = {five.what: five for five in order.fives([same])}
    assert (found["P-FCB over FCB"].published, found["P-FCB over FCB"].where) == (2.36, "outside")
    assert found["P-FCB over alone"].published == pytest.approx(2.36 / 3.33)
    assert "0 of 3 published ratios" in order.headline([same])
    spread = ranked([4.0, 5.0] * 5, [3.0] * 10)
    assert {five.what: five.where for five in order.fives([spread])}["P-FCB over FCB"] == "inside"


def test_nearness_follows_the_numbers() -> None:
    much = ranking.Near("normal", 1, 0.6, 0.0, 0.0, 0, 10, 0.9)
    little = ranking.Near("normal", 2, 0.95, 80.0, 90.0, 2, 10, 1.5)
    words = ranking.near_words([much, little], [ranked([5.0, 11.0], [4.0, 4.0])])
    assert "2 of 20 lose by taking part" in words
    assert "2 of 4 are out of order" in words
    assert (
        "1 instance with FRR above 0.9 an agent alone buys below the threshold in 80.0 to 80.0 "
        "rounds" in words
    )
    assert "FRR is 0.60 at most" in ranking.near_words([much], [ranked([5.0], [4.0])])
    assert [row[1] for row in ranking.near_table([much, little]).rows] == ["2", "1"]


def test_equal_regrets_are_out_of_order() -> None:
    assert in_order([2.0], [2.0], [1.0]) == in_order([3.0], [1.0], [1.0]) == (False,)


def test_intervals_come_from_instances_and_not_from_runs() -> None:
    rng = np.random.default_rng(5)
    base = np.exp(rng.normal(0.0, 1.0, (12, 1))) * np.ones((12, 20))
    same = markets.ratio_of_means(2.0 * base, base)
    assert (same.low, same.estimate, same.high) == pytest.approx((2.0, 2.0, 2.0))
    factor = np.linspace(1.0, 3.0, 12)[:, None]
    few, many = (markets.ratio_of_means((factor * base)[:, :k], base[:, :k]) for k in (1, 20))
    assert (few.low, few.high) == pytest.approx((many.low, many.high))
    assert few.high - few.low > 0.3
    assert few.estimate == pytest.approx(float((factor * base)[:, 0].sum() / base[:, 0].sum()))


def test_band_is_the_bootstrap_at_every_point() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
    middle, low, high = markets.band(values, np.median)
    assert middle.tolist() == [3.0, 30.0]
    assert (10 * low[0], 10 * high[0]) == pytest.approx((low[1], high[1]))
    assert low[0] < middle[0] < high[0]
    ratio = markets.band_of_ratio(np.ones((2, 3, 2)), np.array([[[0.0, 2.0]] * 3] * 2))[0]
    assert np.isnan(ratio[0])
    assert ratio[1] == 0.5


def test_a_job_is_what_simulate_gives() -> None:
    job = Job(TINY.places("uniform")[0], markets.TIGHT, TINY)
    runs = run_markets(TINY, [job.place, job.place], [job.method], nobody)
    market, truth = known_market(job.place)
    terms = job.method.terms(market, TINY)
    again = [
        twin.in_order(twin.run_once(market, terms, seed, truth=truth)[1].regret)
        for seed in TINY.seeds
    ]
    assert np.array_equal(runs.outcomes[job].regret, again)
    assert (runs.cost.runs, runs.cost.agent_rounds) == (2, 3 * 400 * 2)


def test_an_interruption_ends_a_sweep() -> None:
    heard: list[str] = []

    def watch(what: str, fraction: float) -> None:
        heard.append(what)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_markets(Size(runs=50), FULL.places("uniform"), [markets.ALONE], watch)
    assert len(heard) == 1
    # 250 runs were in the queue; those at hand may finish, and no thread is left.
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]


def test_coefficient_reaches_the_agents() -> None:
    place = TINY.places("uniform")[0]
    runs = run_markets(TINY, [place], (markets.ALONE, markets.ALONE_HALF), nobody)
    whole, half = runs.outcomes.values()
    assert half.regret[:, -1].mean() < whole.regret[:, -1].mean()


def test_same_proved_figure_is_taken_from_the_plan() -> None:
    same = markets.matched(FULL)
    assert same.epsilon == markets.PAPER.proved(FULL)
    assert markets.PAPER.plan(FULL).guarantee().epsilon <= same.epsilon <= 0.146
    assert same.plan(FULL).guarantee().epsilon <= same.epsilon
    # At the same proved figure the least noise is the same for every report; the published one
    # starts there and rises.
    assert max(same.plan(FULL).multipliers) <= markets.PAPER.plan(FULL).multipliers[0] * 1.001


def test_a_spoilt_entry_is_found() -> None:
    job = Job(TINY.places("uniform")[0], markets.PAPER, TINY)
    market, _ = known_market(job.place)
    known = nothing_known(*market.cost.shape)
    known.units[:], known.good[:] = 1e6, 1e6 * market.quality[0]
    assert ranking.wrong_entries(job, known) == (0.0, 0.0, 0.0, 0.0)
    worth = market.quality[0] - market.cost
    (good, bad), loss = (np.argwhere(worth > 0.1)[0], np.argwhere(worth < -0.1)[0]), 0.0
    for (agent, producer), told in ((good, 0.0), (bad, 1.0)):
        known.told_units[agent, producer], known.told_good[agent, producer] = 1e9, 1e9 * told
        loss += float(market.capacity[agent, producer] * abs(worth[agent, producer])) / 3
    assert ranking.wrong_entries(job, known) == pytest.approx((2.0, 1.0, 1.0, loss))
    # Where nothing was seen nothing is known, and nothing is wrong.
    assert ranking.wrong_entries(job, nothing_known(*market.cost.shape)) == (0.0, 0.0, 0.0, 0.0)


def test_words_of_the_other_figures_follow_numbers() -> None:
    assert exp2.falls([3.0, 2.0, 1.0]) == "2 of 2"
    assert exp3.bend((2, 4, 8), [8.0, 6.0, 2.0]) == 1.0
    mixed = fig2.Ratio("uniform", "heterogeneous", interval(0.5, 0.4, 0.6), (0.4, 0.5, 0.6), 1.0)
    alike = fig2.Ratio("uniform", "homogeneous", interval(0.3, 0.2, 0.7), (0.2, 0.3, 0.7), 1.0)
    assert "lower among agents that are alike in 2 of 3 instances" in fig2.headline([mixed, alike])


def test_sizes() -> None:
    assert (FULL.agents, FULL.producers, FULL.rounds, FULL.instances, FULL.runs) == (
        10,
        30,
        100_000,
        5,
        20,
    )
    assert markets.reports_of(FULL) == (200, 400, 800, 1600, 3200, 6400, 12800, 25600)
    assert markets.POINTS == 200
