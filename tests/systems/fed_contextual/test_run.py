"""From settings to a record: what is refused, what is recorded, and that a run taken up again is
the same run.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.core.errors import BudgetError, ConfigError, DataError, MissingExtraError, PosseError
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import save
from posse.results.record import Interrupted, Progress, Record
from posse.systems.fed_contextual import record, simulation, study
from posse.systems.fed_contextual.computing import rounds
from posse.systems.fed_contextual.computing.models import Model
from posse.systems.fed_contextual.computing.server import SERIES, Measured
from posse.systems.fed_contextual.levels import BOTH, NOISE, SUMS, learns, level_of
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.fed_contextual.study import Own
from posse.systems.registry import run as run_fed
from tests.systems.fed_contextual.toys import population, questions

SMALL: dict[str, Any] = {"clients": 20, "rounds": 8, "cohort": 5, "deploy_every": 2, "points": 8}


def run(**changes: Any) -> Record:
    return run_fed(FedContextual(**{**SMALL, **changes}))


def test_a_record_holds_running_sums_and_says_what_was_used() -> None:
    record = run(runs=2, seed=3)
    assert record.seeds == (3, 4)
    assert record.steps.tolist() == list(range(1, 9))
    assert record.reward.shape == (2, 8)
    assert (np.diff(record.reward, axis=1) >= 0).all()
    assert record.total == tuple(record.reward[:, -1])
    told = record.summary
    assert told["rounds_done"] == 16
    assert told["average_reward"] == pytest.approx(sum(record.total) / float(told["samples"]))
    assert 0 < float(told["average_probability"]) <= 1
    assert float(told["rounds_a_second"]) > 0
    assert (told["parameters"], told["bytes_an_update"]) == (650, 2600)
    assert record.pulls.shape == (2, 10)
    assert record.pulls.sum() == told["samples"]
    assert record.arm_names[3] == "3"
    each = [
        total / samples
        for total, samples in zip(record.total, record.pulls.sum(axis=1), strict=True)
    ]
    assert told["average_reward_smallest"] == pytest.approx(min(each))
    assert told["average_reward_largest"] == pytest.approx(max(each))
    assert told["chance_reward"] == pytest.approx(0.1)
    assert 0.1 < float(told["best_fixed_reward"]) < 0.12
    config = record.config
    assert config["client_rate"] == 0.033
    assert (config["model"], config["sampling"], config["quantile"]) == ("linear", "fixed", 0.8)
    assert isinstance(config["policy"], dict)
    assert (config["policy"]["name"], config["policy"]["parameters"]) == ("softmax", {"beta": 0.05})
    assert (record.level, record.privacy) == ("plain", ())
    assert any("reach the server as they are" in leak for leak in record.leaks)


def test_it_learns() -> None:
    told = run(rounds=60, cohort=10, clients=30).summary
    assert float(told["average_reward_last_tenth"]) > 0.6  # of ten arms, so that chance gives 0.1


@pytest.mark.parametrize("at", [1, 5])
def test_a_run_taken_up_again_gives_the_same_curve(tmp_path: Path, at: int) -> None:
    whole = run(runs=2)
    kept = FedContextual(**SMALL, runs=2, keep=tmp_path / "kept")

    def stop(progress: Progress) -> None:
        if progress.run == 1 and progress.fraction >= 0.5 + at / 16:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        run_fed(kept, watch=stop)
    partial = stopped.value.record
    assert (partial.status, partial.seeds) == ("interrupted", (0,))
    assert partial.reward.tobytes() == whole.reward[:1].tobytes()
    seen: list[float] = []
    again = run_fed(kept, watch=lambda progress: seen.append(progress.fraction))
    assert len(seen) == 8 - at
    assert again.reward.tobytes() == whole.reward.tobytes()
    assert again.summary["average_probability"] == whole.summary["average_probability"]


def test_more_rounds_go_on_from_a_kept_run_and_fewer_are_refused(tmp_path: Path) -> None:
    run(keep=tmp_path)
    assert (
        run(keep=tmp_path, rounds=12).reward.tobytes() == run(rounds=12, points=8).reward.tobytes()
    )
    with pytest.raises(ConfigError, match="holds 12 rounds, got a run of 4"):
        run(keep=tmp_path, rounds=4)


def test_a_kept_run_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    run(keep=tmp_path, rounds=2)
    with pytest.raises(ConfigError, match=r"holds a run with client_rate 0\.033, got 0\.2"):
        run(keep=tmp_path, client_rate=0.2)
    with np.load(tmp_path / "seed-0.npz") as kept:
        arrays = [kept[name] for name in kept.files]
    shorter = [
        one[:-1] if one.shape == (2,) else one for one in arrays
    ]  # a round that it does not show
    np.savez(tmp_path / "seed-0.npz", *shorter)
    with pytest.raises(DataError, match="is damaged"):
        run(keep=tmp_path, rounds=2)
    (tmp_path / "seed-0.npz").write_bytes(b"nothing")
    with pytest.raises(
        DataError, match=r"is damaged, or not of a run .* Remove it to begin that run anew"
    ) as error:
        run(keep=tmp_path, rounds=2)
    assert "pickle" not in str(error.value)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(DataError, match="not of a kept run"):
        run(keep=tmp_path, rounds=2)


def test_rounds_that_come_while_others_are_looked_at_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that keeps what was done after Ctrl-C looks while rounds go on."""
    one = Measured(*(np.ones(1) for _ in SERIES))
    outcome, joined = record.Outcome(0), record.joined
    outcome.add(one)

    def slowly(parts: list[Measured]) -> Measured:
        outcome.add(one)
        return joined(parts)

    with monkeypatch.context() as patched:
        patched.setattr(record, "joined", slowly)
        assert len(outcome.seen.reward) == 1
    assert len(outcome.seen.reward) == outcome.rounds == 2


def test_an_interrupted_first_run_is_recorded_as_far_as_it_came() -> None:
    def stop(progress: Progress) -> None:
        if progress.fraction >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        run_fed(FedContextual(**SMALL, noise=1.0), watch=stop)
    record = stopped.value.record
    assert record.steps.tolist() == [1, 2, 3, 4]
    assert [entry["releases"] for entry in record.privacy] == [4, 4]


def test_training_stops_when_the_budget_is_spent() -> None:
    asked = FedContextual(**SMALL, noise=1.0, limit=6.0)
    record = run_fed(asked)
    done = record.summary["rounds_done"]
    assert 1 <= int(done) < 8
    assert record.summary["stopped"] == f"privacy budget (6, 1e-06) spent after {done} of 8 rounds"
    pld, rdp = record.privacy
    assert pld["releases"] == rdp["releases"] == done
    assert float(pld["epsilon"]) <= 6 < float(rdp["epsilon"])  # type: ignore[arg-type]
    assert asked.check().mechanism is not None
    assert asked.check().mechanism.epsilon(int(done) + 1, 1e-6) > 6  # type: ignore[union-attr]
    assert record.config["sampling"] == "poisson"
    assert any("carry no noise" in one for one in pld["not_covered"])  # type: ignore[union-attr]
    free = run_fed(FedContextual(**SMALL, noise=1.0))
    assert free.reward[:, : int(done)].tobytes() == record.reward.tobytes()
    assert "stopped" not in free.summary


def test_no_round_at_all_is_refused_before_it_begins() -> None:
    with pytest.raises(BudgetError, match="not even one round fits the limit"):
        FedContextual(**SMALL, noise=0.5, limit=0.01).check()


def test_cohorts_of_fixed_size_have_their_own_figure() -> None:
    record = run(noise=2.0, sampling="fixed", rounds=2)
    (entry,) = record.privacy
    assert "RDP" in str(entry["accountant"])
    assert "without replacement" in str(entry["sampling"])


def test_figures_come_without_warnings_of_orders_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "absl"):
        made = FedContextual(**SMALL, noise=0.796844).check().mechanism
        assert made is not None
        assert made.epsilon(3, 1e-6, "rdp") > 0
        logging.getLogger("absl").warning("something else")
    assert [one.getMessage() for one in caplog.records] == ["something else"]


def test_sums_of_rounded_updates_stay_below_the_ring_to_the_unit() -> None:
    assert FedContextual(levels=1_073_740, cohort=1000).levels == 1_073_740
    with pytest.raises(ConfigError, match=r"below 2\^31, got 1073741 levels and a cohort of 1000"):
        FedContextual(levels=1_073_741, cohort=1000)


def test_levels_round_updates() -> None:
    coarse = run(levels=4)
    assert coarse.level == SUMS
    assert coarse.total != run().total
    assert any("rounded, not masked" in one for one in learns(coarse.config))


def test_rounding_counts_against_the_noise() -> None:
    assert [level_of(1.0, 0), level_of(1.0, 99)] == [NOISE, BOTH]
    made = FedContextual(**SMALL, noise=1.0, levels=100).check().mechanism
    assert made is not None
    assert made.noise == pytest.approx(1 / (1 + 650**0.5 / 100))


def test_noise_moves_the_model_and_clipping_is_fixed_under_it() -> None:
    noisy = run(noise=1.0)
    assert noisy.summary["clip_norm"] == 1.0
    assert noisy.total != run(sampling="poisson", quantile=0.0).total


def test_a_network_has_the_sizes_asked_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 16, 16)).astype(np.uint8)
    small = Population(
        "images", ("a", "b"), np.arange(0, 13, 2), images, rng.integers(0, 2, 12).astype(np.int32)
    )
    asked = FedContextual(rounds=1, cohort=2, hidden=6, channels=(2, 3))
    record = run_fed(asked, population=small)
    assert record.config["model"] == "cnn"
    assert record.summary["parameters"] == (9 * 2 + 2) + (18 * 3 + 3) + (36 * 3 * 6 + 6) + (
        6 * 2 + 2
    )


def test_pre_training_has_its_own_rates() -> None:
    some: dict[str, Any] = {
        "rounds": 1,
        "scenario": "init",
        "pretraining": 20,
        "cohort": 10,
        "policy": "greedy",
    }
    slow, quick = (
        run(**some, pretraining_client_rate=rate, pretraining_server_rate=1.0)
        for rate in (1e-6, 0.5)
    )
    assert quick.total_mean > 1.3 * slow.total_mean  # type: ignore[operator]
    adam = run(**some, pretraining_optimiser="adam", pretraining_server_rate=0.02)
    assert adam.total not in (slow.total, quick.total)


@pytest.mark.parametrize(
    "changes",
    [
        {"scenario": "init", "pretraining": 3},
        {"drift": "labels", "drift_every": 2},
        {"missing": 0.3, "late": 0.2},
        {"centralised": True},
        {"policy": "falcon", "optimiser": "optax-adam"},
        {"policy": "epsilon-greedy", "loss": "importance", "optimiser": "sgd", "server_rate": 1.0},
    ],
)
def test_every_kind_of_run_ends(changes: dict[str, Any]) -> None:
    record = run(rounds=3, **changes)
    assert record.summary["rounds_done"] == 3
    assert record.leaks


def test_pretraining_under_noise_is_said_not_to_be_covered() -> None:
    plain = run(rounds=2, scenario="init", pretraining=2)
    assert not any("figures" in leak for leak in plain.leaks)
    record = run(rounds=2, scenario="init", pretraining=2, noise=1.0)
    assert "pre-training, which carries no noise" in record.privacy[0]["not_covered"]  # type: ignore[operator]
    assert any("Pre-training carries no noise" in leak for leak in record.leaks)


def test_tags_have_a_bag_of_words(tmp_path: Path) -> None:
    save(questions(), tmp_path / "q.npz")
    record = run_fed(FedContextual(data="prepared", file=tmp_path / "q.npz", rounds=2, cohort=4))
    assert record.config["model"] == "bag-of-words"
    with pytest.raises(ConfigError, match="bags of words"):
        FedContextual(data="prepared", file=tmp_path / "q.npz", cohort=4, model="linear").check()


def test_another_policy_is_estimated_from_logs() -> None:
    told = run(rounds=30, cohort=10, evaluate="greedy").summary
    assert told["evaluated"] == "greedy"
    assert 0 < float(told["estimated_reward"]) <= 1
    own = run(rounds=30, cohort=10, evaluate="softmax").summary
    assert float(own["estimated_reward"]) > 0.2
    assert (told["estimated_decisions"], told["estimated_devices"]) == (1797, 20)
    assert 0 < float(told["estimated_effective"]) <= 1797


def test_errors_of_several_estimates_are_combined() -> None:
    some = FedContextual(**{**SMALL, "cohort": 10, "evaluate": "greedy"})
    split = some.population()  # of the first seed, for all runs of a record
    asked = ({}, {"seed": 1}, {"runs": 2})
    one, two, both = (
        run_fed(some.model_copy(update=more), population=split).summary for more in asked
    )
    first, second = (float(told["estimated_reward_error"]) for told in (one, two))
    assert both["estimated_reward_error"] == pytest.approx(np.hypot(first, second) / 2)
    assert both["estimated_decisions"] == 2 * 1797


# Rates that are left out, and remarks.


def times(scale: float) -> Population:
    """The toy with larger features."""
    toy = population()
    return replace(toy, inputs=(np.asarray(toy.inputs) * scale).astype(np.float32), checked=False)


def test_a_rate_left_out_follows_the_inputs_of_a_linear_model() -> None:
    small, large = (
        FedContextual(cohort=4, scale="none").check(population=times(scale))
        for scale in (0.01, 1000.0)
    )
    norm = float((np.asarray(times(1000.0).inputs, float) ** 2).sum(axis=1).mean())
    assert small.client_rate == 0.1
    assert large.client_rate == pytest.approx(0.5 / norm, rel=0.05)
    assert (
        FedContextual(cohort=4, client_rate=0.3).check(population=times(1000.0)).client_rate == 0.3
    )
    assert FedContextual(cohort=4).check(population=questions()).client_rate == 0.1
    assert FedContextual(cohort=4).check(Own(wide(), None), times(1000.0)).client_rate == 0.1


def test_rates_and_features_that_are_too_large_are_told() -> None:
    usual = {"rounds": 60, "cohort": 8, "deploy_every": 2, "batch": 4, "server_rate": 0.05}
    asked = FedContextual(**usual, scale="none")
    told = run_fed(asked, population=times(1.0)).summary
    assert float(told["average_reward_last_tenth"]) > 0.9
    assert not {"diverged", "large_inputs"} & set(told)
    large = run_fed(asked, population=times(1000.0)).summary
    assert "Scale them to about 1" in str(large["large_inputs"])
    wrong = run_fed(asked.model_copy(update={"client_rate": 0.1}), population=times(30.0)).summary
    assert "looks diverged" in str(wrong["diverged"])
    assert "Lower client_rate (0.1)" in str(wrong["diverged"])


def test_a_model_that_was_never_deployed_and_a_clip_too_wide_are_told() -> None:
    told = run(deploy_every=10, noise=1.0, clip=100.0).summary
    assert str(told["not_deployed"]).startswith(
        "no model was deployed in 8 rounds: deploy_every is 10"
    )
    assert str(told["wide_clip"]).startswith("all updates are within the clip")
    assert "no device acted" in str(run(deploy_every=8).summary["not_deployed"])
    fine = run(noise=1.0, clip=0.01).summary
    assert not {"not_deployed", "wide_clip", "diverged"} & set(fine)


def test_the_rewards_without_a_model_follow_a_world_that_drifts() -> None:
    still, moving = (
        run(rounds=2, **some).summary for some in ({}, {"drift": "values", "drift_share": 1.0})
    )
    assert float(moving["best_fixed_reward"]) < float(still["best_fixed_reward"])
    assert (
        "chance_reward"
        not in run_fed(
            FedContextual(rounds=2, cohort=4), population=population(), pay=by_sign
        ).summary
    )


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation.Simulation, "warm_up", lambda self: pytest.fail("compiled"))
    with pytest.raises(
        DataError, match=r"a run cannot be kept in /proc/nowhere: .* Name another folder"
    ):
        run(keep=Path("/proc/nowhere"))


def test_a_state_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(simulation, "save", full)
    with pytest.raises(DataError, match=r"cannot be kept in .*: No space left on device"):
        run(keep=tmp_path)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"noise": 1.0, "centralised": True}, "unweighted mean"),
        ({"levels": 9, "centralised": True}, "unweighted mean"),
        ({"noise": 1.0, "clip": "auto", "quantile": 0.0}, "clip auto follows the updates"),
        ({"limit": 1.0}, "limit goes with noise, got limit 1 and noise 0"),
        ({"noise": 1.0, "delta": 0.05}, "delta must be below 1 / devices"),
        ({"policy": "greedy", "evaluate": "softmax"}, "every arm has a chance"),
        ({"policy": "epsilon-greedy", "epsilon": 0, "loss": "importance"}, "with epsilon 0"),
        ({"policy": "greedy", "beta": 0.1}, "policy 'greedy' has no parameter 'beta'"),
        ({"cohort": 21}, "cohort must be at most 20"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"client_rate": 0}, "client_rate must be a finite number above 0"),
        ({"noise": float("nan")}, "noise must be"),
        ({"levels": 2**30}, r"below 2\^31"),
        ({"seed": 2**32}, "seeds must be in"),
        ({"scenario": "init", "pretrained": 21}, "pre-trains on 21 clients"),
        ({"scenario": "init-shift"}, "letters of both cases"),
        ({"model": "bag-of-words"}, "does not fit samples"),
        ({"device": "gpu"}, "sees no gpu here"),
        ({"missing": 1.0}, "some clients must answer"),
        ({"data": "own"}, "needs a CSV file"),
        ({"policy": "ucb"}, "unknown policy 'ucb'"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"hidden": 64}, "hidden applies to the cnn, got 64 for model linear"),
        (
            {"channels": (0, 4)},
            "channels must be two numbers of at least 1, such as 16,32, got 0,4",
        ),
        ({"channels": (1, 2, 3)}, "channels must be two numbers"),
        (
            {"scenario": "init", "pretraining_client_rate": -1},
            "pretraining_client_rate must be a finite number above",
        ),
        (
            {"scenario": "init", "pretraining_server_rate": 0},
            "pretraining_server_rate must be a finite number above 0",
        ),
        ({"pretraining_optimiser": "rms"}, "pretraining_optimiser must be"),
        (
            {"pretraining_server_rate": 0.1},
            "applies to scenarios with pre-training, got 0.1 for scenario scratch",
        ),
        ({"model_out": Path("model.npy")}, "ends in .npz"),
        ({"model_out": Path("nowhere/model.npz")}, "in a folder that exists"),
        ({"model_out": Path("model.npz"), "runs": 2}, "of a single run, got runs 2"),
        ({"round": 3}, "unknown setting 'round'"),
        ({"delay": 3, "late": 0.1}, "delay changes nothing here"),
        ({"delta": 0}, r"below 1, got 0\. Choose one below 1 / devices"),
        ({"drift": "labels", "drift_every": 0}, "drift_every must be at least 1"),
        ({"drift": "labels", "drift_share": 0}, "drift_share must be in"),
        ({"drift_every": 7}, "drift_every applies to worlds that drift"),
        ({"pretrained": 10}, "pretrained applies to scenarios with pre-training"),
        ({"policy": "sofmax"}, "Did you mean 'softmax'"),
        ({"client_column": "none"}, "client_column applies to own"),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(PosseError, match=what) as error:
        FedContextual(**{**SMALL, **changes}).check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("client,label,x\na,0,nan\na,1,2\n", "finite|number"),
        ("client,label,x\n", "row|sample|empty|line"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(PosseError, match=what):
        FedContextual(data="own", file=tmp_path / "own.csv", cohort=1).check()


def test_no_column_of_clients_means_dirichlet_clients(tmp_path: Path) -> None:
    rows = "".join(f"{'ab'[at % 2]},{at}\n" for at in range(40))
    (tmp_path / "own.csv").write_text("label,x\n" + rows)
    asked = FedContextual(
        data="own", file=tmp_path / "own.csv", client_column="none", clients=4, cohort=2
    )
    assert asked.client_column is None
    assert asked.check().population.clients == 4


def test_arrays_that_were_not_prepared_name_what_prepares_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", x=np.zeros((4, 2)), y=np.zeros(4), client=np.zeros(4))
    with pytest.raises(
        DataError,
        match=r"holds x, y, client and no header.*posse\.problems\.populations\.prepared\.save",
    ):
        FedContextual(data="prepared", file=tmp_path / "plain.npz", cohort=1).check()


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("labels", np.full(30, 7, np.int32), "label"),
        ("inputs", np.full((30, 2), np.nan, np.float32), "finite"),
        ("offsets", np.array([0, 10, 10, 30]), "every client must have a sample"),
    ],
)
def test_prepared_files_are_looked_at_again(
    tmp_path: Path, field: str, value: Any, what: str
) -> None:
    arrays = {
        "offsets": np.array([0, 10, 20, 30]),
        "inputs": np.zeros((30, 2), np.float32),
        "labels": np.zeros(30, np.int32),
    }
    damaged = Population("damaged", ("a", "b"), **{**arrays, field: value}, checked=True)  # type: ignore[arg-type]
    save(damaged, tmp_path / "damaged.npz")
    with pytest.raises(DataError, match=what):
        FedContextual(data="prepared", file=tmp_path / "damaged.npz", cohort=2).check()


@pytest.mark.parametrize("rates", [{"client_rate": 1e38}, {"server_rate": 1e38}])
def test_a_model_that_diverges_is_told(rates: dict[str, float]) -> None:
    with pytest.raises(DataError, match=r"the model diverged\. Lower client_rate"):
        run(rounds=30, deploy_every=1, optimiser="sgd", **rates)


@pytest.mark.parametrize(
    ("module", "extra"), [("jax", "contextual"), ("optax", "contextual"), ("dp_accounting", "dp")]
)
def test_a_missing_extra_names_its_command(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install .*\[{extra}\]'"):
        FedContextual(**SMALL, optimiser="optax-adam", noise=1.0).check()


def test_settings_need_no_jax() -> None:
    import subprocess

    program = (
        "import sys; sys.modules['jax'] = None; "
        "from posse.systems.fed_contextual.settings import FedContextual; "
        "print(FedContextual().horizon)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "200", done.stderr


def test_a_record_goes_through_json(tmp_path: Path) -> None:
    save(population(), tmp_path / "toy.npz")
    record = run_fed(
        FedContextual(data="prepared", file=tmp_path / "toy.npz", rounds=2, cohort=4, noise=1.0)
    )
    assert json.loads(json.dumps(record.metadata()))["kind"] == "fed-contextual"


def test_cohorts_gathered_on_the_host_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(rounds=4)
    monkeypatch.setattr(rounds, "MEMORY", {"cpu": 0})
    assert run(rounds=4).reward.tobytes() == whole.reward.tobytes()


# Runs side by side, as on a GPU.


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SIDE", {"cpu": 2})
    monkeypatch.setattr(simulation, "TOGETHER", {"cpu": 3})


@pytest.mark.parametrize(
    "changes", [{}, {"noise": 1.0}, {"scenario": "init", "pretraining": 3}, {"drift": "labels"}]
)
def test_runs_side_by_side_are_the_runs_one_after_the_other(
    changes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    alone = run(runs=3, **changes)
    request.getfixturevalue("side_by_side")
    seen: list[Progress] = []
    side = run_fed(FedContextual(**{**SMALL, "runs": 3, **changes}), watch=seen.append)
    assert [(one.run, one.together, one.fraction) for one in seen] == [
        (low, size, pytest.approx((low + size * upto / 8) / 3))
        for low, size in ((0, 2), (2, 1))
        for upto in (3, 6, 8)
    ]
    assert np.allclose(
        side.reward, alone.reward, rtol=0.02, atol=1
    )  # an arm or two may fall the other way
    assert side.summary["samples"] == alone.summary["samples"]
    assert side.summary["rounds_done"] == 24
    assert side.pulls.sum(axis=1).tolist() == alone.pulls.sum(axis=1).tolist()
    assert [entry["releases"] for entry in side.privacy] == [
        entry["releases"] for entry in alone.privacy
    ]


@pytest.mark.usefixtures("side_by_side")
def test_runs_side_by_side_go_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(runs=2)
    kept = FedContextual(**SMALL, runs=2, keep=tmp_path)

    def stop(progress: Progress) -> None:
        if progress.fraction >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        run_fed(kept, watch=stop)
    partial = stopped.value.record
    assert (partial.status, partial.seeds) == ("interrupted", (0, 1))
    assert partial.reward.tobytes() == np.ascontiguousarray(whole.reward[:, :6]).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.json",
        "seed-0.npz",
        "seed-1.npz",
    ]
    (tmp_path / "seed-1.npz").unlink()  # one of the two begins anew and catches up
    again = run_fed(kept)
    assert again.reward.tobytes() == whole.reward.tobytes()
    assert again.pulls.tolist() == whole.pulls.tolist()


def test_a_kept_run_from_before_settings_and_pulls_goes_on(tmp_path: Path) -> None:
    whole, first = run(), run(rounds=4, keep=tmp_path)
    assert first.arms == 10
    header = json.loads((tmp_path / "run.json").read_text())
    for name in ("hidden", "channels", "pretraining_client_rate", "own"):
        del header["settings"][name]
    (tmp_path / "run.json").write_text(json.dumps(header))
    with np.load(tmp_path / "seed-0.npz") as found:
        leaves = [found[name] for name in found.files]
    np.savez(tmp_path / "seed-0.npz", *leaves[:-2])  # what pulls and the best arm were is not there
    again = run(keep=tmp_path)
    assert again.reward.tobytes() == whole.reward.tobytes()
    assert again.pulls.shape == (1, 0)


# The model in a file, and models and rewards of a user's own.


def test_the_last_model_is_written(tmp_path: Path) -> None:
    whole = run(model_out=tmp_path / "model.npz", keep=tmp_path / "kept")
    with (
        np.load(tmp_path / "model.npz") as found,
        np.load(tmp_path / "kept" / "seed-0.npz") as kept,
    ):
        assert found.files == ["deployment", "leaf0", "leaf1", "arms", "scale"]
        assert (int(found["deployment"]), found["arms"].tolist()) == (
            8,
            [str(arm) for arm in range(10)],
        )
        assert [found[name].shape for name in ("leaf0", "leaf1")] == [(10,), (64, 10)]
        assert all(np.array_equal(found[f"leaf{at}"], kept[f"arr_{at}"]) for at in range(2))
    (tmp_path / "model.npz").unlink()
    assert run(model_out=tmp_path / "model.npz", keep=tmp_path / "kept").total == whole.total
    assert (tmp_path / "model.npz").exists()  # also where all rounds had been done
    assert [path.name for path in tmp_path.glob(".*")] == []


def wide(classes: int = 3) -> Model:
    """A network with one hidden layer, as a user writes it."""

    def init(key: jax.Array) -> Any:
        one, two = jax.random.split(key)
        return {
            "in": jax.random.normal(one, (5, 16)) / 2,
            "out": jax.random.normal(two, (16, classes)) / 4,
        }

    def scores(params: Any, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ params["in"]) @ params["out"]

    return Model(init, scores)


def by_sign(x: jax.Array, y: jax.Array, arms: jax.Array) -> jax.Array:
    """Arm 0 pays where the first feature is negative, arm 2 where it is not; labels do not
    matter.
    """
    return jnp.where(arms == jnp.where(x[:, 0] < 0, 0, 2), 1.0, 0.0)


@pytest.mark.parametrize("memory", [1 << 30, 0])
def test_models_and_rewards_of_a_users_own(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MEMORY", {"cpu": memory})
    asked = FedContextual(
        rounds=60, cohort=8, deploy_every=2, batch=4, client_rate=0.3, server_rate=0.05
    )
    record = run_fed(asked, population=population(), model=wide(), pay=by_sign)
    assert (record.config["model"], record.summary["parameters"]) == ("own", 5 * 16 + 16 * 3)
    assert record.problem["name"] == "toy"
    assert float(record.summary["average_reward_last_tenth"]) > 0.85
    assert record.pulls[0, 1] < 0.2 * record.pulls.sum()  # the arm that never pays
    told = run_fed(
        asked.model_copy(
            update={"scenario": "init", "pretrained": 8, "rounds": 2, "evaluate": "greedy"}
        ),
        population=population(),
        model=wide(),
        pay=by_sign,
    ).summary
    assert float(told["average_reward"]) > 0.85  # pre-training sees what every arm pays
    assert float(told["estimated_reward"]) > 0.85


@pytest.mark.parametrize(
    ("changes", "own", "what"),
    [
        ({}, {"model": wide(4)}, r"scores of shape \(\d+, 3\), samples x arms, got \(\d+, 4\)"),
        ({}, {"pay": lambda x, y, arms: x}, "one reward a sample"),
        ({"model": "linear"}, {"model": wide()}, "goes without another"),
        (
            {"drift": "labels"},
            {"pay": by_sign},
            "drift 'labels' changes .* rewards of your own have none",
        ),
        ({"scenario": "init-shift"}, {"pay": by_sign}, "needs those before deployment too"),
        ({"cohort": 13}, {}, "cohort must be at most 12"),
    ],
)
def test_what_does_not_fit_a_users_own(
    changes: dict[str, Any], own: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        run_fed(FedContextual(**{"cohort": 4, **changes}), population=population(), **own)
