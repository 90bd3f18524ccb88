"""The small forms of fed-contextual: files, tables, seeds kept apart, and words that follow
synthetic curves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from posse.core.errors import ConfigError
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.problems.populations.prepared import load, save
from posse.systems.fed_contextual.computing.server import Measured
from posse.systems.fed_contextual.jobs import Job, Result, read_jobs, write
from reproduction import EXPERIMENTS
from reproduction.fed_contextual import (
    algorithms,
    fig1_2,
    fig4,
    findings,
    runs,
    sec5_2,
    study_jobs,
)
from reproduction.fed_contextual.findings import (
    FAILS,
    HOLDS,
    UNKNOWN,
    alike,
    better,
    close_to_best,
    computed_on,
    exploring,
    no_worse,
    protocol_note,
    seeds_note,
    spread,
)
from reproduction.fed_contextual.problem import (
    BRIEF,
    FORM,
    FULL,
    KINDS,
    PAPER,
    PRINTED,
    SETTINGS,
    SMALL,
    Form,
    form_of,
    printed,
)
from reproduction.fed_contextual.runs import (
    LABELS,
    RESULTS,
    Chosen,
    Found,
    Line,
    Runs,
    all_lines,
    choice_lines,
    choose,
    figure_lines,
    line_of,
    private_lines,
    scaled_lines,
)
from reproduction.kit import mean_of
from tests.reproduction.small_form import Ran, column, ids, once, table_of

FIGURES = tuple(SETTINGS)
NAMES = (*FIGURES, "fig3", "fig4", "noise", "accounting", "algorithms", "sec5_2", "theory")
ALL = (*(form for form in FULL.values() if not form.as_printed), SMALL)
VERDICTS = {HOLDS, FAILS, UNKNOWN}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return once("fed-contextual", tmp_path_factory.mktemp)


def test_ids() -> None:
    assert ids("fed-contextual") == [f"fed-contextual/{name}" for name in NAMES]


@pytest.mark.long
@pytest.mark.parametrize("name", FIGURES)
def test_rewards_of_a_setting(name: str, ran: Ran) -> None:
    analysis, rows = ran(name)
    scratch = SETTINGS[name].scenario == "scratch"
    labels = [LABELS[policy] for policy in EXPLORATIONS] + ([] if scratch else ["Init"])
    table = table_of(analysis, "Reward")
    assert column(table, "line") == labels
    assert {int(row["seed"]) for row in rows} == set(SMALL.report)
    last = max(int(row["round"]) for row in rows)
    assert last == (40 if scratch else 30)
    for label, told in zip(labels, column(table, "average reward, all rounds"), strict=True):
        own = [
            float(r["average_reward"])
            for r in rows
            if r["label"] == label and r["round"] == str(last)
        ]
        assert len(own) == len(SMALL.report)
        assert float(told.split()[0]) == pytest.approx(np.mean(own), abs=6e-5)
    rates = table_of(analysis, "Hyper-parameters")
    assert column(rates, "line") == labels[:4]
    assert column(rates, "paper: client") == [
        f"{printed()[name][policy].client:g}" for policy in EXPLORATIONS
    ]
    told = table_of(analysis, "What the paper says")
    assert len(told.rows) == (5 if SETTINGS[name].scenario == "init-shift" else 4)
    assert set(column(told, "so")) <= VERDICTS


@pytest.mark.long
def test_learning_is_seen(ran: Ran) -> None:
    """From scratch Softmax leaves guessing behind, and before the first deployment all arms are
    alike to it.
    """
    _, rows = ran("fig1a")
    own = [row for row in rows if row["label"] == "Softmax"]
    early = [float(row["probability"]) for row in own if int(row["round"]) <= 10]
    assert early == pytest.approx([0.1] * 10 * len(SMALL.report))
    assert min(float(row["average_reward"]) for row in own if row["round"] == "40") > 0.3


@pytest.mark.long
def test_spread_over_seeds(ran: Ran) -> None:
    analysis, rows = ran("fig3")
    assert {row["line"] for row in rows} == {"fig1c-softmax", "fig2c-softmax"}
    (table,) = analysis.tables
    assert column(table, "population") == list(KINDS)
    assert set(column(table, "variation is negligible")) <= VERDICTS


@pytest.mark.long
def test_clipping_and_noise(ran: Ran) -> None:
    analysis, rows = ran("fig4")
    assert {row["line"] for row in rows} == {
        line.name for kind in KINDS for line in private_lines(SMALL, kind)
    }
    assert len(table_of(analysis, "What the paper says").rows) == 9
    assert {one.claim for one in analysis.findings} == {
        "clipping",
        "noise",
        "annealing",
        "stage",
        "rates",
    }
    for kind in KINDS:
        rates = table_of(analysis, f"{kind}: Hyper-parameters")
        assert column(rates, "paper: client") == [
            "-",
            *(f"{one.client:g}" for one in printed()[kind].values()),
        ]
        assert set(column(rates, "exploration")) == {"beta 0.05"}
        assert len(table_of(analysis, f"{kind}: probability").rows) == 4
    ends = {
        row["line"]: float(row["average_reward"])
        for row in rows
        if row["round"] == "40" and row["seed"] == "1"
    }
    assert ends["fig4-images-noise-1"] < ends["fig4-images-noise-0"] - 0.1


@pytest.mark.long
def test_noise_and_clients_together(ran: Ran) -> None:
    analysis, rows = ran("noise")
    small, loud, both = scaled_lines(SMALL)
    assert (both.fixed["cohort"], both.fixed["noise"]) == (50, 3.5)
    assert {row["line"] for row in rows} >= {small.name, loud.name, both.name}
    assert column(table_of(analysis, "Average reward by beta"), "beta") == ["0.05", "0.1"]
    assert table_of(analysis, "Probability of the chosen arm").columns == (
        "beta",
        "noise 0",
        "noise 0.3",
        "noise 0.7",
    )


@pytest.mark.long
def test_figures_of_privacy_are_as_printed(ran: Ran) -> None:
    analysis, _ = ran("accounting")
    (finding,) = analysis.findings
    assert (finding.claim, finding.verdict) == ("epsilon", HOLDS)
    assert column(analysis.tables[0], "paper") == ["15.8", "1.5", "4.13"]


@pytest.mark.long
def test_algorithms_are_judged_by_what_a_run_does(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis, rows = ran("algorithms")
    assert [(one.claim, one.verdict) for one in analysis.findings] == [
        (n, HOLDS) for n in ("one", "two", "three", "four")
    ]
    assert {(row["policy"], row["loss"]) for row in rows} == {
        ("softmax", "regression"),
        ("falcon", "importance"),
    }
    learnt = algorithms.train
    monkeypatch.setattr(algorithms, "train", lambda model, *rest: 1.001 * learnt(model, *rest))
    (wrong,) = algorithms.follow("softmax", "regression", 1, 1).rounds
    assert wrong.same
    assert wrong.moved > algorithms.CLOSE
    monkeypatch.setattr(
        algorithms, "chances", lambda policy, scores: [1.0, *[0.0] * (len(scores) - 1)]
    )
    run = algorithms.follow("softmax", "regression", 1, 1)
    assert not run.rounds[0].same
    assert not run.whole


@pytest.mark.long
def test_choices(ran: Ran) -> None:
    analysis, rows = ran("sec5_2")
    assert {row["setting"] for row in rows} == {"fig1c", "fig1d", "fig2c", "fig2d"}
    assert len(table_of(analysis, "What the paper says").rows) == 12
    table = table_of(analysis, "Average reward in init-shift, ±")
    assert column(table, "paper") == ["no change", "0.71 to 0.6", "0.81 to 0.62", "0.72 to 0.47"]


@pytest.mark.long
def test_figures_share_their_lines(ran: Ran) -> None:
    """A line is the same wherever it is shown."""
    shown = [
        {
            (row["seed"], row["round"]): row["average_reward"]
            for row in ran(name)[1]
            if row["line"] == "fig1c-softmax"
        }
        for name in ("fig1c", "fig3", "sec5_2")
    ]
    assert shown[0]
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_hyper_parameters_are_chosen_on_other_seeds(form: Form) -> None:
    assert not set(form.choose) & set(range(1, 1 + max((len(form.report), *form.more.values()))))
    for line in all_lines(form):
        tried = line.to_choose(form)
        assert {job.seeds for job in tried} <= {form.choose}
        chosen = Chosen(0.1, 0.01, {}, 0.5, "-")
        seeds = line.to_report(form, chosen if tried else None).seeds
        assert seeds == tuple(range(1, len(seeds) + 1))
        assert len(seeds) >= len(form.report)
        assert len(seeds) >= 20 or not form.more or not line.name.startswith(("fig1a-", "fig4-"))
    with pytest.raises(ConfigError, match="chosen on other seeds"):
        replace(form, choose=(form.report[0],))


def test_reported_seeds_are_enough() -> None:
    assert BRIEF.report == PAPER.report == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_every_policy_has_the_same_grid(form: Form) -> None:
    for figure in FIGURES:
        grids = {
            (job.client_rate, job.server_rate)
            for line in figure_lines(figure)
            for job in line.to_choose(form)
        }
        assert len(grids) == 1
        tried = [len(line_of(figure, policy).to_choose(form)) for policy in EXPLORATIONS]
        assert tried == [1, len(form.epsilons), len(form.betas), len(form.falcons)]
    names = [job.name for line in all_lines(form) for job in line.to_choose(form)]
    assert len(set(names)) == len(names)


def test_the_papers_form_is_the_papers() -> None:
    """Every rate and value of exploration of tables 1 to 8 is on the grid of the paper's form."""
    for figure in SETTINGS:
        size = PAPER.size(SETTINGS[figure].kind)
        for policy, theirs in printed()[figure].items():
            if policy == "init":
                client, server, _ = size.supervised[SETTINGS[figure].scenario]
                assert (client, server) == (theirs.client, theirs.server)
                continue
            tried = PAPER.explorations(policy, 5 * (size.arms // 5))
            words = [Chosen(0, 0, one, 0, "-").explore for one in tried]
            assert theirs.explore in words
            assert theirs.client in size.client_rates
            assert theirs.server in size.server_rates
        job = line_of(figure, "softmax").to_choose(PAPER)[0]
        assert job.deploy_every == (40 if figure.endswith("d") else 200)
        assert (job.rounds, job.cohort) == (
            {"scratch": size.rounds}.get(job.scenario, size.rounds - 100),
            64,
        )


def test_hyper_parameters_as_printed() -> None:
    """Lines of figures 1, 2 and 4 are run as the paper's tables say, on its rounds and clients."""
    for line in (
        *(line for figure in FIGURES for line in figure_lines(figure)),
        *private_lines(PRINTED, "tags"),
    ):
        assert line.to_choose(PRINTED) == []
        taken = line.chosen(PRINTED, [], [])
        job = line.to_report(PRINTED, taken)
        assert (job.cohort, job.seeds) == (64, PRINTED.report)
        assert job.rounds == PAPER.size(line.kind).phase(job.scenario)
        assert (taken is None) is not line.learns
    softmax, falcon = (
        line_of("fig2c", policy).to_report(PRINTED, line_of("fig2c", policy).printed(PRINTED))
        for policy in ("softmax", "falcon")
    )
    assert (softmax.client_rate, softmax.server_rate, softmax.parameters) == (
        2,
        0.02,
        {"beta": 0.1},
    )
    assert falcon.parameters == {"mu": 100, "gamma": 1000}
    noisy = private_lines(PRINTED, "images")[2]
    assert (noisy.fixed["noise"], noisy.printed(PRINTED).client) == (0.01, 0.1)
    for line in (*choice_lines("tags"), scaled_lines(PRINTED)[1]):
        with pytest.raises(ConfigError, match=f"prints no hyper-parameters for '{line.name}'"):
            line.chosen(PRINTED, [], [])


def test_the_papers_own_data_are_taken_where_they_are_found(tmp_path: Path) -> None:
    assert runs.with_whole_data(PAPER, tmp_path) == PAPER
    (tmp_path / "femnist").mkdir()
    save(runs.bags(), tmp_path / runs.PREPARED)
    found = runs.with_whole_data(PRINTED, tmp_path)
    assert (found.images.data, found.tags.data) == ("femnist", "stackoverflow")
    assert (
        found.name == "printed-femnist-stackoverflow"
    )  # which names results: others are not taken for these
    assert runs.population_of("stackoverflow", tmp_path).samples == runs.bags().samples
    assert "the paper's sentences" in protocol_note(found, "tags")
    assert "the paper's images" in protocol_note(found, "images")
    assert runs.with_whole_data(BRIEF, tmp_path) == BRIEF


def test_what_is_said_of_hyper_parameters_that_were_not_chosen() -> None:
    line = line_of("fig2c", "softmax")
    taken = line.printed(PRINTED)
    one = Found(line, taken, result(line.to_report(PRINTED, taken), [0.5]))
    assert (
        "none were chosen here"
        in findings.chosen("rates", [one], {line.name: printed()["fig2c"]["softmax"]}).because
    )
    note = protocol_note(PRINTED, "tags")
    assert "those that the paper prints" in note
    assert "grid" not in note
    assert "Chosen on seed 101" in protocol_note(BRIEF, "tags")


def test_pictures_and_rows_say_seeds_and_machine() -> None:
    lines = [found(line_of("fig1c", "softmax"), 0.5), found(line_of("fig2c", "softmax"), 0.5)]
    assert seeds_note(lines) == "Mean over 20 or 40 seeds; bands: 95 % t interval"
    assert computed_on(lines) == ""
    lines[0].result.about.update(device="gpu", machine="NVIDIA H200")
    assert computed_on(lines).startswith("one NVIDIA H200 (the table: ")


def test_jobs_of_lines() -> None:
    plain, clipped, _, much = (line.to_choose(BRIEF)[0] for line in private_lines(BRIEF, "images"))
    assert (plain.quantile, plain.noise) == (0.8, 0.0)
    assert (clipped.quantile, clipped.clip, clipped.noise) == (0.0, 0.1, 0.0)
    assert much.noise == 0.1
    sgd, weighted = (line.to_choose(BRIEF)[0] for line in choice_lines("tags"))
    assert (sgd.optimiser, sgd.server_rate, sgd.scenario) == (
        "sgd",
        BRIEF.tags.sgd_rates,
        "init-shift",
    )
    assert (weighted.loss, weighted.policy) == ("importance", "epsilon-greedy")
    first = figure_lines("fig1b")[-1]
    assert first.to_choose(BRIEF) == []
    assert not first.to_report(BRIEF, None).learns


# Claims, from synthetic curves.

SEEDS = np.array([0.001, -0.001, 0.002, -0.002, 0.0])


def around(level: float, noise: float = 1.0, turn: int = 0) -> np.ndarray:
    return level + noise * np.roll(SEEDS, turn)


def wide(level: float) -> np.ndarray:
    return level + 100 * np.roll(SEEDS, 1)


def test_more_is_told_only_where_it_is_seen() -> None:
    assert better("", around(0.6), around(0.5, turn=1)).verdict == HOLDS
    assert better("", around(0.5), around(0.6, turn=1)).verdict == FAILS
    assert better("", around(0.5), around(0.5, turn=1)).verdict == UNKNOWN
    assert better("", wide(0.6), around(0.5)).verdict == UNKNOWN


def test_no_less_needs_a_narrow_interval() -> None:
    assert no_worse("", around(0.6), around(0.5, turn=1)).verdict == HOLDS
    assert no_worse("", around(0.5), around(0.5, turn=1)).verdict == HOLDS
    assert no_worse("", around(0.45), around(0.5, turn=1)).verdict == FAILS
    assert no_worse("", wide(0.5), around(0.5)).verdict == UNKNOWN
    assert alike("", around(0.5), around(0.5, turn=1)).verdict == HOLDS
    assert alike("", around(0.6), around(0.5, turn=1)).verdict == FAILS
    assert alike("", wide(0.5), around(0.5)).verdict == UNKNOWN


def test_softmax_is_held_against_the_best() -> None:
    ends = {"Softmax": around(0.6), "FALCON": around(0.7, turn=1), "Greedy": around(0.2, turn=2)}
    told = close_to_best(ends, "Softmax", ["FALCON", "Greedy"])
    assert told.verdict == FAILS
    assert "best other policy (FALCON)" in told.claim
    assert told.difference.mean == pytest.approx(-0.1)
    assert (
        close_to_best({**ends, "Softmax": around(0.7)}, "Softmax", ["FALCON", "Greedy"]).verdict
        == HOLDS
    )
    assert [one.verdict for one in exploring(ends, "Greedy", ["Softmax", "FALCON"])] == [
        HOLDS,
        HOLDS,
    ]
    assert exploring({**ends, "Greedy": around(0.65)}, "Greedy", ["Softmax"])[0].verdict == FAILS


def test_spread_is_bounded_before_it_is_called_negligible() -> None:
    small = spread(around(0.5))
    assert small.verdict == HOLDS
    assert small.share == pytest.approx(float(SEEDS.std(ddof=1)) / 0.5)
    # Four degrees of freedom: the 5 % quantile of chi-squared is 0.711.
    assert small.bound / small.share == pytest.approx(math.sqrt(4 / 0.711), rel=0.02)
    assert spread(wide(0.5)).verdict == FAILS
    assert spread(around(0.5, 12.0)).verdict == UNKNOWN


def result(job: Job, levels: Sequence[float], probability: float = 0.5) -> Result:
    """A run of a job whose pairs of rates earn these levels in every round; seeds differ a
    little.
    """
    shape = (len(job.pairs), len(job.seeds), job.rounds)
    jitter = np.resize(SEEDS, len(job.seeds))[None, :, None]
    reward = np.broadcast_to((np.asarray(levels)[:, None, None] + jitter) * 100, shape)
    ones = np.ones(shape)
    seen = Measured(reward, 100 * ones, 100 * probability * ones, ones, ones, ones, ones)
    return Result(json.loads(job.to_json()), seen, {"device": "cpu", "seconds": 0.0, "jax": "0"})


def found(line: Line, level: float, form: Form = BRIEF) -> Found:
    chosen = Chosen(0.1, 0.01, {}, level, "-") if line.learns else None
    return Found(line, chosen, result(line.to_report(form, chosen), [level]))


def test_claims_of_a_setting_follow_the_curves() -> None:
    levels = {"Greedy": 0.5, "ε-Greedy": 0.45, "Softmax": 0.7, "FALCON": 0.6, "Init": 0.4}
    told = fig1_2.claims([found(line, levels[line.label]) for line in figure_lines("fig1c")])
    assert [one.verdict for one in told] == [HOLDS, FAILS, HOLDS, HOLDS, HOLDS]
    worse = {**levels, "Softmax": 0.3}
    told = fig1_2.claims([found(line, worse[line.label]) for line in figure_lines("fig1c")])
    assert [one.verdict for one in told] == [FAILS, FAILS, HOLDS, FAILS, FAILS]


def test_claims_of_section_5_2_follow_the_curves() -> None:
    lines = [line_of(f, p) for f in ("fig1c", "fig1d", "fig2c", "fig2d") for p in EXPLORATIONS]
    lines += [line for kind in KINDS for line in choice_lines(kind)]
    levels = {"fig1c": 0.5, "fig1d": 0.6, "fig2c": 0.5, "fig2d": 0.4}
    ran = {line.name: found(line, levels[line.figure]) for line in lines}
    assert {one.verdict for one in sec5_2.frequency_claims(BRIEF, "images", ran)} == {HOLDS}
    assert {one.verdict for one in sec5_2.frequency_claims(BRIEF, "tags", ran)} == {FAILS}
    # All earn the same: alike on images, and nothing more with Adam or without weights.
    assert sec5_2.choice_claims("images", ran)[0].verdict == HOLDS
    for line in choice_lines("tags"):
        ran[line.name] = found(line, 0.3)
    assert [one.verdict for one in sec5_2.choice_claims("tags", ran)] == [HOLDS, HOLDS]
    for line in choice_lines("tags"):
        ran[line.name] = found(line, 0.7)
    assert [one.verdict for one in sec5_2.choice_claims("tags", ran)] == [FAILS, FAILS]


def test_claims_of_figure_4_follow_the_curves() -> None:
    lines = private_lines(BRIEF, "images")
    some = [found(line, level) for line, level in zip(lines, (0.6, 0.6, 0.6, 0.3), strict=True)]
    assert [one.verdict for one in fig4.claims("images", some)][:3] == [HOLDS, HOLDS, HOLDS]
    some = [found(line, level) for line, level in zip(lines, (0.6, 0.4, 0.3, 0.5), strict=True)]
    assert [one.verdict for one in fig4.claims("images", some)][:3] == [FAILS, FAILS, FAILS]


# Choice, and studies that were run elsewhere.


def test_what_earns_most_is_chosen() -> None:
    line = line_of("fig1a", "softmax")
    tried = line.to_choose(BRIEF)
    assert [job.parameters for job in tried] == [{"beta": 0.05}, {"beta": 0.1}, {"beta": 0.02}]
    levels = [0.1, 0.2, 0.3, 0.2, 0.1, 0.0], [0.1, 0.1, 0.1, 0.1, 0.4, 0.1], [0.3] * 6
    results = [result(job, some) for job, some in zip(tried, levels, strict=True)]
    chosen = choose(BRIEF, tried, results)
    assert (chosen.client, chosen.server, chosen.parameters) == (0.2, 0.005, {"beta": 0.1})
    assert chosen.reward == pytest.approx(0.4, abs=0.01)
    assert chosen.edge == "client"


def test_reported_seeds_choose_nothing() -> None:
    line = line_of("fig1a", "softmax")
    tried = [replace(job, seeds=(1,)) for job in line.to_choose(BRIEF)]
    with pytest.raises(ConfigError, match="seeds that are reported"):
        choose(BRIEF, tried, [result(job, [0.1] * 6) for job in tried])


def test_a_study_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are written, results come back, jobs to report are written with the choice, and nothing
    is run here.
    """
    (stage,) = study_jobs.write_jobs(tmp_path, SMALL, kinds=("tags",))
    assert load(tmp_path / "tags.npz").clients == 90
    jobs = read_jobs(stage.path)
    assert (stage.jobs, stage.runs, stage.rounds) == (
        len(jobs),
        2 * len(jobs),
        sum(2 * job.rounds for job in jobs),
    )
    results = tmp_path / "results"
    results.mkdir()
    for job in jobs:
        write(
            results / f"{job.name}.npz",
            result(job, [0.2, 0.6] if job.name.endswith("1") else [0.3, 0.3]),
        )
    _, report = study_jobs.write_jobs(tmp_path, SMALL, kinds=("tags",))
    reported = read_jobs(report.path)
    assert {job.seeds for job in reported} == {SMALL.report}
    for job in reported:
        if job.learns:
            rates = SMALL.tags.sgd_rates if job.optimiser == "sgd" else SMALL.tags.server_rates
            assert job.server_rate == rates[1]
        write(results / f"{job.name}.npz", result(job, [0.5]))

    def nothing(data: str) -> None:
        raise AssertionError("a job was run that has a result")

    monkeypatch.setattr(runs, "bench_of", nothing)
    some, _ = study_jobs.write_jobs(
        tmp_path, SMALL, kinds=("tags",), only=("fig2a-*", "sec5_2-tags-sgd")
    )
    assert {job.name.split("-choose")[0] for job in read_jobs(some.path)} == {
        "small-sec5_2-tags-sgd",
        *(f"small-fig2a-{policy}" for policy in EXPLORATIONS),
    }
    with pytest.raises(ConfigError, match="no line of tags"):
        study_jobs.write_jobs(tmp_path, SMALL, kinds=("tags",), only=("fig1a-*",))
    ran = Runs(SMALL, results, lambda what, fraction: None).of(figure_lines("fig2a"))
    assert [mean_of(one.ends).mean for one in ran.values()] == pytest.approx([0.5] * 4, abs=1e-3)


def test_results_of_another_job_are_refused(tmp_path: Path) -> None:
    line = line_of("fig2a", "greedy")
    (job,) = line.to_choose(SMALL)
    write(tmp_path / f"{job.name}.npz", result(replace(job, cohort=11), [0.5, 0.5]))
    with pytest.raises(ConfigError, match="another job of that name"):
        Runs(SMALL, tmp_path, lambda what, fraction: None).of([line])


def test_where_results_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RESULTS, raising=False)
    with runs.opened(False, tmp_path / "fig1a", print) as opened:
        assert opened.folder == tmp_path / "results"
    monkeypatch.setenv(RESULTS, str(tmp_path / "elsewhere"))
    with runs.opened(False, tmp_path / "fig1a", print) as opened:
        assert opened.folder == tmp_path / "elsewhere"
    with runs.opened(True, tmp_path / "fig1a", print) as opened:
        assert opened.folder.exists()
        assert tmp_path not in opened.folder.parents
    assert not opened.folder.exists()
    monkeypatch.setenv(FORM, "paper")
    assert form_of(False) is PAPER
    monkeypatch.setenv(FORM, "papers")
    with pytest.raises(ConfigError, match="Did you mean 'paper'"):
        form_of(False)


def test_a_full_form_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full figure is made of results alone, without the data."""
    results = tmp_path / "results"
    results.mkdir()
    levels = {"Greedy": 0.5, "ε-Greedy": 0.55, "Softmax": 0.7, "FALCON": 0.6, "Init": 0.4}
    for line in figure_lines("fig1c"):
        tried = line.to_choose(BRIEF)
        made = [result(job, np.linspace(0.1, 0.2, len(job.pairs)).tolist()) for job in tried]
        for job, one in zip(tried, made, strict=True):
            write(results / f"{job.name}.npz", one)
        job = line.to_report(BRIEF, choose(BRIEF, tried, made) if tried else None)
        write(results / f"{job.name}.npz", result(job, [levels[line.label]]))
    monkeypatch.setenv(RESULTS, str(results))
    analysis = EXPERIMENTS["fed-contextual/fig1c"].run(False, tmp_path / "fig1c")
    assert "most is earned by Softmax, 0.700" in analysis.headline
    assert "5 of 5 claims hold" in analysis.headline
    assert "Small form" not in (tmp_path / "fig1c" / "analysis.md").read_text()


def test_curves_are_running_averages() -> None:
    job = Job("one", rounds=3, seeds=(1,))
    shape = (1, 1, 3)
    ones = np.ones(shape)
    seen = Measured(
        np.array([1.0, 0.0, 5.0]).reshape(shape),
        np.array([2.0, 2.0, 4.0]).reshape(shape),
        *[ones] * 5,
    )
    one = Found(line_of("fig1a", "softmax"), None, Result(json.loads(job.to_json()), seen, {}))
    assert one.curves[0].tolist() == [0.5, 0.25, 0.75]
    assert np.array_equal(one.curves, one.result.averages[0])
    assert one.probabilities[0].tolist() == [0.5, 0.5, 0.25]
