"""From settings to a record: what is refused, what is recorded, and that a run taken up again is the same run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posse.core.errors import BudgetError, ConfigError, DataError, MissingExtraError, PosseError
from posse.problems.populations import Population
from posse.problems.prepared import save
from posse.protocols.fed_contextual import simulation
from posse.protocols.fed_contextual.levels import BOTH, NOISE, SUMS, learns, level_of
from posse.protocols.fed_contextual.run import run_fed
from posse.protocols.fed_contextual.settings import FedSettings
from posse.results import RunRecord
from posse.results.interrupted import Interrupted
from posse.results.progress import Progress
from tests.protocols.fed_contextual.toys import population, questions

SMALL: dict[str, Any] = {"clients": 20, "rounds": 8, "cohort": 5, "deploy_every": 2, "points": 8}


def run(**changes: Any) -> RunRecord:
    return run_fed(FedSettings(**{**SMALL, **changes}))


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
    config = record.config
    assert (config["model"], config["sampling"], config["quantile"]) == ("linear", "fixed", 0.8)
    assert config["policy"] == {"name": "softmax", "beta": 0.05}
    assert (record.level, record.privacy) == ("plain", ())
    assert any("reach the server as they are" in leak for leak in record.leaks)


def test_it_learns() -> None:
    told = run(rounds=60, cohort=10, clients=30).summary
    assert float(told["average_reward_last_tenth"]) > 0.6  # of ten arms, so that chance gives 0.1


@pytest.mark.parametrize("at", [1, 5])
def test_a_run_taken_up_again_gives_the_same_curve(tmp_path: Path, at: int) -> None:
    whole = run(runs=2)
    kept = FedSettings(**SMALL, runs=2, keep=tmp_path / "kept")

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
    assert run(keep=tmp_path, rounds=12).reward.tobytes() == run(rounds=12, points=8).reward.tobytes()
    with pytest.raises(ConfigError, match="holds 12 rounds, and 4 are asked for"):
        run(keep=tmp_path, rounds=4)


def test_a_kept_run_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    run(keep=tmp_path, rounds=2)
    with pytest.raises(ConfigError, match=r"holds a run with client_rate 0\.1, got 0\.2"):
        run(keep=tmp_path, client_rate=0.2)
    (tmp_path / "seed-0.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="Remove it to begin that run anew"):
        run(keep=tmp_path, rounds=2)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(DataError, match="not of a kept run"):
        run(keep=tmp_path, rounds=2)


def test_an_interrupted_first_run_is_recorded_as_far_as_it_came() -> None:
    def stop(progress: Progress) -> None:
        if progress.fraction >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        run_fed(FedSettings(**SMALL, noise=1.0), watch=stop)
    record = stopped.value.record
    assert record.steps.tolist() == [1, 2, 3, 4]
    assert [entry["releases"] for entry in record.privacy] == [4, 4]


def test_training_stops_when_the_budget_is_spent() -> None:
    asked = FedSettings(**SMALL, noise=1.0, limit=6.0)
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
    free = run_fed(FedSettings(**SMALL, noise=1.0))
    assert free.reward[:, : int(done)].tobytes() == record.reward.tobytes()
    assert "stopped" not in free.summary


def test_no_round_at_all_is_refused_before_it_begins() -> None:
    with pytest.raises(BudgetError, match="not even one round fits the limit"):
        FedSettings(**SMALL, noise=0.5, limit=0.01).check()


def test_cohorts_of_fixed_size_have_their_own_figure() -> None:
    record = run(noise=2.0, sampling="fixed", rounds=2)
    (entry,) = record.privacy
    assert "RDP" in str(entry["accountant"])
    assert "without replacement" in str(entry["sampling"])


def test_levels_round_updates() -> None:
    coarse = run(levels=4)
    assert coarse.level == SUMS
    assert coarse.total != run().total
    assert any("rounded, not masked" in one for one in learns(coarse.config))


def test_rounding_counts_against_the_noise() -> None:
    assert [level_of(1.0, 0), level_of(1.0, 99)] == [NOISE, BOTH]
    made = FedSettings(**SMALL, noise=1.0, levels=100).check().mechanism
    assert made is not None
    assert made.noise == pytest.approx(1 / (1 + 650**0.5 / 100))


def test_noise_moves_the_model_and_clipping_is_fixed_under_it() -> None:
    noisy = run(noise=1.0)
    assert noisy.summary["clip_norm"] == 1.0
    assert noisy.total != run(sampling="poisson", quantile=0.0).total


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
    record = run(rounds=2, scenario="init", pretraining=2, noise=1.0)
    assert "pre-training, which carries no noise" in record.privacy[0]["not_covered"]  # type: ignore[operator]
    assert any("Pre-training carries no noise" in leak for leak in record.leaks)


def test_tags_have_a_bag_of_words(tmp_path: Path) -> None:
    save(questions(), tmp_path / "q.npz")
    record = run_fed(FedSettings(data="prepared", file=tmp_path / "q.npz", rounds=2, cohort=4))
    assert record.config["model"] == "bag-of-words"
    with pytest.raises(ConfigError, match="bags of words"):
        FedSettings(data="prepared", file=tmp_path / "q.npz", cohort=4, model="linear").check()


def test_another_policy_is_estimated_from_logs() -> None:
    told = run(rounds=30, cohort=10, evaluate="greedy").summary
    assert told["evaluated"] == "greedy"
    assert 0 < float(told["estimated_reward"]) <= 1
    own = run(rounds=30, cohort=10, evaluate="softmax").summary
    assert float(own["estimated_reward"]) > 0.2


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"noise": 1.0, "centralised": True}, "unweighted mean"),
        ({"levels": 9, "centralised": True}, "unweighted mean"),
        ({"noise": 1.0, "quantile": 0.5}, "more than is accounted for"),
        ({"limit": 1.0}, "a limit of epsilon needs noise"),
        ({"noise": 1.0, "delta": 0.05}, "delta must be below 1 / devices"),
        ({"policy": "greedy", "evaluate": "softmax"}, "every arm has a chance"),
        ({"policy": "epsilon-greedy", "epsilon": 0, "loss": "importance"}, "with epsilon 0"),
        ({"policy": "greedy", "beta": 0.1}, "beta belongs to softmax"),
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
        ({"missing": 1.0}, "somebody must answer"),
        ({"data": "own"}, "needs a CSV file"),
        ({"policy": "ucb"}, "policy must be"),
        ({"round": 3}, "unknown setting 'round'"),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(PosseError, match=what) as error:
        FedSettings(**{**SMALL, **changes}).check()
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
        FedSettings(data="own", file=tmp_path / "own.csv", cohort=1).check()


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("labels", np.full(30, 7, np.int32), "label"),
        ("inputs", np.full((30, 2), np.nan, np.float32), "finite"),
        ("offsets", np.array([0, 10, 10, 30]), "every client must have a sample"),
    ],
)
def test_prepared_files_are_looked_at_again(tmp_path: Path, field: str, value: Any, what: str) -> None:
    arrays = {
        "offsets": np.array([0, 10, 20, 30]), "inputs": np.zeros((30, 2), np.float32), "labels": np.zeros(30, np.int32),
    }  # fmt: skip
    damaged = Population("damaged", ("a", "b"), **{**arrays, field: value}, checked=True)  # type: ignore[arg-type]
    save(damaged, tmp_path / "damaged.npz")
    with pytest.raises(DataError, match=what):
        FedSettings(data="prepared", file=tmp_path / "damaged.npz", cohort=2).check()


@pytest.mark.parametrize("rates", [{"client_rate": 1e38}, {"server_rate": 1e38}])
def test_a_model_that_diverges_is_told(rates: dict[str, float]) -> None:
    with pytest.raises(DataError, match=r"the model diverged\. Lower client_rate"):
        run(rounds=30, deploy_every=1, optimiser="sgd", **rates)


@pytest.mark.parametrize(("module", "extra"), [("jax", "contextual"), ("optax", "contextual"), ("dp_accounting", "dp")])
def test_a_missing_extra_names_its_command(monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'posse\[{extra}\]'"):
        FedSettings(**SMALL, optimiser="optax-adam", noise=1.0).check()


def test_settings_need_no_jax() -> None:
    import subprocess

    program = (
        "import sys; sys.modules['jax'] = None; "
        "from posse.protocols.fed_contextual.settings import FedSettings; print(FedSettings().rounds)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "200", done.stderr


def test_a_record_goes_through_json(tmp_path: Path) -> None:
    save(population(), tmp_path / "toy.npz")
    record = run_fed(FedSettings(data="prepared", file=tmp_path / "toy.npz", rounds=2, cohort=4, noise=1.0))
    assert json.loads(json.dumps(record.metadata()))["kind"] == "fed-contextual"


def test_cohorts_gathered_on_the_host_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(rounds=4)
    monkeypatch.setattr(simulation, "_MEMORY", {"cpu": 0})
    assert run(rounds=4).reward.tobytes() == whole.reward.tobytes()
