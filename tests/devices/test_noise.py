"""Noise on devices: the simulator's model, the accountant's figures, and a ledger that never
forgets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)
pytest.importorskip(
    "dp_accounting", reason="dp-accounting is not installed: pip install 'posse-bandits[dp]'"
)

from flwr.app import Message

from posse.core.errors import BudgetError, ConfigError, DataError, PosseError, ProtocolError
from posse.privacy.dp.sampled import SampledGaussian
from posse.systems.fed_contextual.computing.models import size_of
from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.flower import noise, server_app
from posse.systems.fed_contextual.flower.device import model_of, task_of
from posse.systems.fed_contextual.flower.fleet import Fleet
from posse.systems.fed_contextual.flower.settings import (
    PROGRESS,
    RESULT,
    SPENT,
    STATE,
    DeviceSettings,
)

from .grids import FakeGrid, leaves
from .simulator import simulated

SIZE = 64 * 10 + 10


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {
        "rounds": 3,
        "cohort": 3,
        "seed": 5,
        "samples": 64,
        "timeout": 0.2,
        "noise": 1.0,
        "devices": 5,
    }
    return DeviceSettings.of({**usual, "out": str(folder / "out"), **values})


def play(made: DeviceSettings, folder: Path, nodes: int = 5, **more: Any) -> FakeGrid:
    grid = FakeGrid(made, nodes, folder, **more)
    server_app.run(grid, made, "1")
    return grid


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / RESULT).read_text())
    return found


def paid(folder: Path) -> int:
    return int(json.loads((folder / "out" / SPENT).read_text())["rounds"])


def cohorts(folder: Path) -> list[list[Any]]:
    return [
        json.loads(line)["clients"] for line in (folder / "out" / PROGRESS).read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("values", "apart"),
    [({}, 1e-6), ({"levels": 1 << 16, "optimiser": "sgd"}, 1e-5)],
    ids=["floats", "whole numbers"],
)
def test_noisy_model_is_the_simulators(
    tmp_path: Path, values: dict[str, Any], apart: float
) -> None:
    made = settings(tmp_path, **values)
    play(made, tmp_path)
    assert len({len(one) for one in cohorts(tmp_path)}) > 1, "drawn by coins"
    spent = json.loads((tmp_path / "out" / RESULT).read_text())["privacy"][0]["epsilon"]
    figures = (tmp_path / "out/metrics.prom").read_text().split("posse_epsilon_spent{")[1].split()
    assert float(figures[1]) == pytest.approx(spent)
    for ours, theirs in zip(leaves(tmp_path / "out"), simulated(made, 5), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=apart)


def test_secure_sums_carry_the_same_noise_as_plain_ones(tmp_path: Path) -> None:
    shared = {"devices": 4, "cohort": 4, "rounds": 2, "optimiser": "sgd"}
    play(settings(tmp_path / "plain", levels=1 << 16, **shared), tmp_path / "plain", nodes=4)
    play(settings(tmp_path / "secure", secure=True, **shared), tmp_path / "secure", nodes=4)
    for ours, theirs in zip(
        leaves(tmp_path / "secure/out"), leaves(tmp_path / "plain/out"), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_figures_are_the_accountants(tmp_path: Path) -> None:
    play(settings(tmp_path), tmp_path)
    told, made = result(tmp_path), SampledGaussian(5, 3, 1.0, "poisson")
    by_pld, by_rdp = told["privacy"]
    assert by_pld["epsilon"] == made.epsilon(3, 1e-6, "pld")
    assert by_rdp["epsilon"] == made.epsilon(3, 1e-6, "rdp")
    assert (by_pld["delta"], by_pld["releases"], told["paid_rounds"]) == (1e-6, 3, 3)
    assert by_pld["adjacency"].startswith("zero out")
    assert "the server: it adds the noise" in by_pld["not_covered"][0]
    assert any("seed" in text for text in by_pld["not_covered"])


def test_rounding_makes_noise_count_less(tmp_path: Path) -> None:
    """Rounding to levels lengthens an update by a part of sqrt(numbers) / levels at most."""
    made = settings(tmp_path, levels=4096)
    assert size_of(model_of(made)) == SIZE
    assert made.mechanism(made.devices, SIZE).noise == 1.0 / (1 + SIZE**0.5 / 4096)
    assert settings(tmp_path, secure=True).mechanism(5, SIZE).noise == 1.0 / (1 + SIZE**0.5 / 65536)


def test_limit_stops_training_in_time(tmp_path: Path) -> None:
    limit = SampledGaussian(5, 3, 1.0).epsilon(2, 1e-6, "pld") + 1e-6
    play(settings(tmp_path, rounds=10, limit=limit), tmp_path)
    told = result(tmp_path)
    assert (told["rounds"], told["paid_rounds"]) == (2, 2)
    assert told["privacy"][0]["epsilon"] <= limit
    assert "limit" in told["stopped"]
    with pytest.raises(BudgetError, match="not even one round fits the limit"):
        play(settings(tmp_path / "other", limit=0.5), tmp_path)


def test_resume_does_not_spend_less(tmp_path: Path) -> None:
    play(settings(tmp_path, rounds=2), tmp_path)

    def crash(node: int, sent: Message, reply: Message | None) -> Message | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(settings(tmp_path, rounds=3, cohort=3), tmp_path, meddle=crash)
    assert paid(tmp_path) == 3, "the round that was begun is paid for"
    play(settings(tmp_path, rounds=4), tmp_path)
    told = result(tmp_path)
    assert (told["rounds"], told["paid_rounds"]) == (4, 5)
    assert told["privacy"][0]["epsilon"] == SampledGaussian(5, 3, 1.0).epsilon(5, 1e-6, "pld")


def test_limit_spent_without_a_round_is_told(tmp_path: Path) -> None:
    def crash(node: int, sent: Message, reply: Message | None) -> Message | None:
        raise KeyboardInterrupt

    limit = SampledGaussian(5, 3, 1.0).epsilon(1, 1e-6, "pld") + 1e-6
    with pytest.raises(KeyboardInterrupt):
        play(settings(tmp_path, limit=limit), tmp_path, meddle=crash)
    with pytest.raises(BudgetError, match="spent on rounds that were never finished"):
        play(settings(tmp_path, limit=limit), tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"noise": 2.0}, r"began with noise = 1\.0 \(now 2\.0\)"),
        ({"devices": 6}, r"began with devices = 5 \(now 6\)"),
        ({"noise": 0.0, "devices": 0}, r"began with noise = 1\.0 \(now 0\.0\)"),
    ],
)
def test_run_goes_on_as_it_began(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    play(settings(tmp_path, rounds=1), tmp_path)
    with pytest.raises(ConfigError, match=words):
        play(settings(tmp_path, rounds=2, **values), tmp_path)


def test_account_that_was_lost_is_not_begun_anew(tmp_path: Path) -> None:
    play(settings(tmp_path, rounds=1), tmp_path)
    spent = tmp_path / "out" / SPENT
    less = json.dumps({**json.loads(spent.read_text()), "rounds": 0})
    for text in (less, "x"):
        spent.write_text(text)
        with pytest.raises(DataError):
            play(settings(tmp_path, rounds=2), tmp_path)
    spent.unlink()
    with pytest.raises(ConfigError, match="1 rounds that were not paid for"):
        play(settings(tmp_path, rounds=2), tmp_path)


def test_round_counts_as_it_is_and_is_never_drawn_again(tmp_path: Path) -> None:
    """Nobody answers in the first round: it is noise alone, of one deviation over the expected
    cohort.
    """
    asked: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        return None

    made = settings(
        tmp_path, rounds=1, cohort=5, optimiser="sgd", server_rate=1.0, seed=-1, clip=0.5, noise=2.0
    )
    play(made, tmp_path, meddle=meddle)
    assert sorted(asked) == [0, 1, 2, 3, 4]
    assert cohorts(tmp_path) == [[]]
    bias, table = leaves(tmp_path / "out")
    moved = np.concatenate([bias.ravel(), table.ravel()])
    scale = 2.0 * 0.5 / 5
    # 650 normal numbers: their deviation is within 5 / sqrt(2 * 650) = 14 % but once in a million
    # runs
    assert abs(moved.std() / scale - 1) < 0.14


def test_devices_that_do_not_answer_are_asked_again_and_end_the_run_in_the_end(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        return None

    with pytest.raises(ProtocolError, match="5 rounds in a row gave no sum"):
        play(
            settings(tmp_path, rounds=9, cohort=2, devices=2, timeout=0.02),
            tmp_path,
            nodes=2,
            meddle=meddle,
        )
    assert len(asked) == 2 * 5, "nobody is left out for failing"
    assert paid(tmp_path) == 5


@pytest.mark.parametrize("seed", [-1, 5])
def test_chance_of_a_device_depends_on_the_declared_number_alone(tmp_path: Path, seed: int) -> None:
    """Ten of forty are connected, and each is drawn with the chance 8 / 40."""
    made = settings(tmp_path, seed=seed, cohort=8, devices=40, timeout=0.01)
    fleet = Fleet(FakeGrid(made, 10, tmp_path), made, lambda text: None)
    first = begin(task_of(made), 5)
    drawn = sum(len(fleet.cohort(first._replace(round=at))) for at in range(2000))
    # 20,000 coins of 1/5: 5 deviations are 283
    assert abs(drawn - 4000) < 283


def test_more_devices_than_declared_are_told(tmp_path: Path) -> None:
    made = settings(tmp_path, seed=-1, cohort=2, devices=2)
    with pytest.raises(ProtocolError, match="drew 4 devices, and 2 declared ones"):
        play(made, tmp_path, nodes=4)


def test_secret_normals_are_normal() -> None:
    drawn = noise.secret_normals(200_001)
    assert drawn.shape == (200_001,)
    assert abs(drawn.mean()) < 5 / 200_001**0.5
    assert abs(drawn.var() - 1) < 5 * (2 / 200_001) ** 0.5
    assert abs(np.mean(np.abs(drawn) > 1.959964) - 0.05) < 5 * (0.05 * 0.95 / 200_001) ** 0.5
    assert not np.array_equal(drawn, noise.secret_normals(200_001))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"quantile": 0.5}, "got quantile 0.5 and noise 1. Set quantile = 0"),
        ({"delta": 0.2}, "delta must be below 1 / devices = 0.2, got 0.2"),
        ({"delta": 0.0}, "delta must be above 0"),
        (
            {"noise": 0.0, "devices": 0, "limit": 3.0},
            "limit goes with noise, got limit 3 and noise 0",
        ),
        ({"noise": 0.0}, "devices goes with noise, got devices 5 and noise 0"),
        (
            {"devices": 0},
            "the number of devices that a cohort of 3 is drawn from, got 0",
        ),
        ({"least": 2}, "least must be 1 with noise, got 2"),
        ({"levels": 1 << 24, "noise": 20.0}, "below 2\\^31"),
    ],
)
def test_settings_that_void_the_claim_are_refused(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(PosseError, match=words) as caught:
        settings(tmp_path, **values)
    assert "\n" not in str(caught.value)


def test_state_without_noise_is_not_gone_on_with(tmp_path: Path) -> None:
    play(settings(tmp_path, rounds=1, noise=0.0, devices=0), tmp_path)
    assert (tmp_path / "out" / STATE).exists()
    assert not (tmp_path / "out" / SPENT).exists()
    with pytest.raises(ConfigError, match=r"began with noise = 0\.0 \(now 1\.0\)"):
        play(settings(tmp_path, rounds=2), tmp_path)
