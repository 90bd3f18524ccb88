from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from posse.core.errors import ConfigError, DataError
from posse.problems.populations.prepared import save
from posse.systems.fed_contextual import study
from posse.systems.fed_contextual.computing.server import SERIES
from posse.systems.fed_contextual.jobs import Job, Pretraining, job_of, read, read_jobs, write
from posse.systems.fed_contextual.levels import leaks
from posse.systems.fed_contextual.record import sections_of
from posse.systems.fed_contextual.study import Bench, device_of
from tests.systems.fed_contextual.toys import close, population, questions, same

BASE = Job(
    "base",
    rounds=6,
    cohort=4,
    deploy_every=2,
    batch=4,
    client_rate=0.2,
    server_rate=0.05,
    pretraining=Pretraining(rounds=20, clients=6, client_rate=0.3, server_rate=1.0),
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(population())


def test_arrays_are_over_rates_seeds_and_rounds(bench: Bench) -> None:
    job = replace(BASE, client_rate=(0.1, 0.2), server_rate=(0.05, 0.1), seeds=(0, 3))
    told: list[tuple[int, int]] = []
    result = bench.run(job, lambda job, done, total, rate: told.append((done, total)))
    assert result.seen.reward.shape == (4, 2, 6)
    assert told[-1] == (48, 48)
    alone = bench.run(replace(BASE, client_rate=0.2, server_rate=0.05, seeds=(3,)))
    assert job.pairs[2] == (0.2, 0.05)
    same(alone.seen.reward[0, 0], result.seen.reward[2, 1])
    running = result.averages
    assert running.shape == (4, 2, 6)
    assert np.allclose(running[..., 0], result.seen.reward[..., 0] / result.seen.samples[..., 0])


@pytest.mark.parametrize(
    "changes", [{}, {"scenario": "init"}, {"drift": {"kind": "labels", "every": 2}}]
)
def test_runs_side_by_side_are_the_runs_alone(bench: Bench, changes: dict[str, Any]) -> None:
    job = replace(BASE, client_rate=(0.1, 0.2), server_rate=(0.05, 0.1), seeds=(0, 3), **changes)
    alone, side = (Bench(bench.population, side=side).run(job) for side in (1, 3))
    close(side.seen, alone.seen, 1e-4)
    assert side.averages.shape == (4, 2, 6)


def test_pulls_are_counted_over_rounds(bench: Bench, tmp_path: Path) -> None:
    result = bench.run(replace(BASE, seeds=(0, 3)))
    pulls = result.seen.pulls
    assert pulls is not None
    assert pulls.shape == (1, 2, 3)
    same(pulls.sum(axis=-1), result.seen.samples.sum(axis=-1))
    write(tmp_path / "new.npz", result)
    same(read(tmp_path / "new.npz").seen, result.seen)


def test_results_from_before_pulls_were_counted_are_read(bench: Bench, tmp_path: Path) -> None:
    result = bench.run(BASE)
    write(tmp_path / "old.npz", result._replace(seen=result.seen._replace(pulls=None, best=None)))
    with np.load(tmp_path / "old.npz") as found:
        assert set(found.files) == {*SERIES, "job", "about"}
    old = read(tmp_path / "old.npz")
    assert old.seen.pulls is None
    same(old.averages, result.averages)


def test_pre_training_helps_and_the_first_model_can_be_left_as_it_is(bench: Bench) -> None:
    first = bench.run(replace(BASE, scenario="init", policy="greedy", learns=False, seeds=(0, 1)))
    scratch = bench.run(replace(BASE, policy="greedy", learns=False, seeds=(0, 1)))
    assert first.averages[..., -1].mean() > 0.8
    assert scratch.averages[..., -1].mean() < 0.6
    assert (first.seen.moved == 0).all()
    assert len(bench._pretrained) == 2  # kept for jobs that pre-train alike
    bench.run(replace(BASE, scenario="init", seeds=(1,)))
    assert len(bench._pretrained) == 2


def test_a_world_that_drifts_pays_other_arms(bench: Bench) -> None:
    still = replace(BASE, scenario="init-shift", policy="greedy", learns=False)
    before, after = (
        bench.run(still),
        bench.run(replace(still, drift={"kind": "labels", "every": 3})),
    )
    same(before.seen.reward[..., :3], after.seen.reward[..., :3])
    assert after.seen.reward[..., 3:].sum() < 0.7 * before.seen.reward[..., 3:].sum()


def test_a_table_for_every_round_is_made_where_the_world_drifts(bench: Bench) -> None:
    world = study.scenario("init-shift", bench.population, 6)
    plans = [
        bench.plan(replace(BASE, drift=drift), world)
        for drift in (BASE.drift, {"kind": "labels", "every": 3})
    ]
    assert [plan.pays is None for plan in plans] == [True, False]


def test_noise_coins_and_absence_run(bench: Bench) -> None:
    noisy = replace(
        BASE, noise=0.01, quantile=0.0, sampling="poisson", availability={"missing": 0.3}
    )
    seen = bench.run(noisy).seen
    assert np.asarray(seen.clients).std() > 0
    same(bench.run(noisy).seen, seen)


def test_bags_of_words_with_tags_pay_by_rarity() -> None:
    tags = Bench(questions())
    result = tags.run(
        replace(BASE, scenario="init-shift", policy="falcon", parameters={"gamma": 10.0})
    )
    assert (result.seen.reward >= 0).all()
    assert result.seen.reward.max() > 0


def test_a_study_skips_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(population(), tmp_path / "toy.npz")
    job: dict[str, Any] = {
        "name": "line",
        "rounds": 4,
        "cohort": 4,
        "batch": 4,
        "seeds": [0, 1],
        "policy": "softmax",
        "parameters": {"beta": 0.1},
        "pretraining": {"rounds": 5},
    }
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    command = [
        "--data",
        str(tmp_path / "toy.npz"),
        "--jobs",
        str(tmp_path / "jobs.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert study.main(command) == 0
    first = capsys.readouterr().out
    assert "rounds/s" in first
    written = (tmp_path / "out" / "line.npz").stat().st_mtime_ns
    result = read(tmp_path / "out" / "line.npz")
    assert result.seen.reward.shape == (1, 2, 4)
    assert result.job["parameters"] == {"beta": 0.1}
    assert study.main(command) == 0
    assert "rounds/s" not in capsys.readouterr().out
    assert (tmp_path / "out" / "line.npz").stat().st_mtime_ns == written
    (tmp_path / "jobs.json").write_text(json.dumps([job | {"rounds": 5}]))
    assert study.main(command) == 2
    assert "another job of that name" in capsys.readouterr().err
    assert study.main([*command, "--device", "tpu"]) == 2
    assert "device must be one of cpu, gpu, got 'tpu'" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str) -> list[object]:
        raise RuntimeError("Unknown backend")

    monkeypatch.setattr(jax, "devices", none)
    with pytest.raises(ConfigError, match=r"sees no gpu here.*Use --device cpu"):
        device_of("gpu")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a/b"}, "letters, digits"),
        ({"round": 4}, "unknown key 'round' of job. Did you mean 'rounds'?"),
        ({"parameters": {"betta": 1}}, "unknown key 'betta' of policy. Did you mean 'beta'?"),
        ({"pretraining": {"epochs": 1}}, "unknown key 'epochs' of pretraining"),
        ({"noise": 0.5}, "not accounted for under noise, got quantile 0.8 and noise 0.5"),
        ({"centralised": True, "levels": 9}, "no clients to protect"),
        ({"seeds": [-1]}, "seeds must be in"),
        ({"policy": "ucb"}, "unknown policy 'ucb'"),
        ({"drift": {"kind": "slow"}}, "unknown drift 'slow'"),
    ],
)
def test_wrong_jobs_are_refused(wrong: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        job_of({"name": "line"} | dict(wrong)).drifts(3)


def test_files_of_jobs_are_lists_of_different_names(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    for text, message in (
        ("{}", "a JSON list"),
        ("[", "a JSON list"),
        ('[{"name":"a"},{"name":"a"}]', "'a' twice"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_jobs(path)
    path.write_text('[{"name": "a", "client_rate": [0.1, 0.2], "seeds": [1, 2]}]')
    assert read_jobs(path)[0].runs == (
        (0.1, 0.002, 1),
        (0.1, 0.002, 2),
        (0.2, 0.002, 1),
        (0.2, 0.002, 2),
    )
    assert job_of(json.loads(read_jobs(path)[0].to_json())) == read_jobs(path)[0]


def test_a_result_that_is_not_whole_is_named(tmp_path: Path) -> None:
    (tmp_path / "half.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match="no whole result"):
        read(tmp_path / "half.npz")


def test_one_run_has_no_note_on_several_and_a_fleet_is_described_as_one() -> None:
    assert sections_of({"average_reward": 0.5}, 1)[0].notes == ()
    assert sections_of({"average_reward": 0.5}, 2)[0].notes
    fleet = " ".join(leaks({"masked": True}))
    assert "Updates reach the server as they are" not in fleet
    assert "Updates reach the server as they are" in " ".join(leaks({"masked": False}))
    assert "decisions for each arm" not in fleet
    assert "decisions for each arm" in " ".join(leaks({"levels": 0}))


def test_what_is_compiled_is_kept_where_the_user_did_not_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", found.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    study.keep_compiled()
    assert not found
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    study.keep_compiled()
    assert Path(str(found["jax_compilation_cache_dir"])).parent == tmp_path / "posse"
