"""A clip that follows updates under noise, clip auto, and pre-training that is public or noised."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.sampled import update_noise
from posse.results.record import Record
from posse.systems.fed_contextual.computing.server import State, advance, begin, blurred
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.registry import run as run_fed
from posse.systems.registry import start
from tests.systems.fed_contextual.toys import RATES, TASK, population

SMALL: dict[str, Any] = {
    "scale": "none",
    "rounds": 4,
    "cohort": 6,
    "batch": 4,
    "delta": 1e-2,
    "client_rate": 0.1,
    "server_rate": 0.1,
}


def ran(**changes: Any) -> Record:
    return run_fed(FedContextual(**{**SMALL, **changes}), population=population())


def test_what_settings_mean() -> None:
    for word in ("automatic", "median"):
        with pytest.raises(ConfigError, match=f"or auto, got '{word}'"):
            FedContextual(clip=word)
    auto = FedContextual(clip="auto")
    assert (auto.clip, auto.norm, auto.follows, auto.count_noise) == (0.0, 0.1, 0.5, 0.0)
    assert (FedContextual().norm, FedContextual().follows, FedContextual(noise=1.0).follows) == (
        1.0,
        0.8,
        0.0,
    )
    noisy = FedContextual(noise=1.2, clip="auto", cohort=100)
    assert (noisy.follows, noisy.count_noise) == (0.5, 5.0)
    assert FedContextual(noise=1.2, quantile=0.7, cohort=10).count_noise == 1.2
    assert FedContextual(noise=1.2, quantile=0.7, clip_noise=0.9).count_noise == 0.9
    made = noisy.mechanism(1000, 10)
    assert noisy.update_noise(made) == pytest.approx(update_noise(1.2, 5.0))
    assert (DeviceSettings(clip="auto").norm, DeviceSettings(clip="auto").follows) == (0.1, 0.5)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"clip": "auto", "quantile": 0.0}, "clip auto follows the updates, got quantile 0"),
        ({"clip": "wide"}, "clip must be a number of at least 0 or auto, got 'wide'"),
        ({"clip": -1}, "clip must be"),
        ({"clip_noise": 1.0}, "clip_noise applies to a clip that follows updates under noise"),
        ({"clip_noise": 1.0, "noise": 1.0}, "clip_noise applies to"),
        (
            {"clip_noise": 0.4, "noise": 1.0, "quantile": 0.5},
            "clip_noise must be above noise / 2 = 0.5",
        ),
        (
            {"pretraining_privacy": "public", "noise": 1.0},
            "pretraining_privacy applies to scenarios with pre-training",
        ),
        (
            {"pretraining_privacy": "noised", "scenario": "init"},
            "pretraining_privacy goes with noise",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        ran(**changes)


def test_a_fleet_accounts_for_no_count() -> None:
    with pytest.raises(ConfigError, match="a fleet with noise needs a fixed clip"):
        DeviceSettings(clip="auto", noise=1.0, devices=100).checked()


def test_the_norm_follows_a_noisy_count() -> None:
    """By hand: C exp(-0.2 ((within - clients / 2 + noise) / expected + 1/2 - quantile))."""
    task = TASK._replace(clipping=TASK.clipping._replace(quantile=0.5))
    state: State = begin(task, 3)
    rates = RATES._replace(divisor=8.0, counted=2.0)
    drawn = float(blurred(2.0, state, 5))
    assert drawn != 0
    assert float(blurred(0.0, state, 5)) == 0
    sums = jnp.array([0.0, 1.0, 0.0, 6.0, 5.0])
    total = {name: jnp.zeros_like(leaf) for name, leaf in state.params.items()}
    after, _ = advance(task, rates, state, total, sums, None, drawn)
    wanted = 0.05 * np.exp(-0.2 * ((5 - 3 + drawn) / 8 + 0.5 - 0.5))
    assert float(after.limit) == pytest.approx(wanted, rel=1e-5)
    many = np.array(
        [float(blurred(1.0, state._replace(round=jnp.int32(at)), 1)) for at in range(300)]
    )
    assert abs(many.mean()) < 0.3  # some five standard errors; draws follow from the seed
    assert 0.8 < many.std() < 1.2


def test_a_clip_that_follows_under_noise_is_paid_for() -> None:
    """The same epsilon as a fixed clip: updates carry more noise, so that both releases count as
    `noise` together.
    """
    fixed, follows = ran(noise=1.0, quantile=0.0), ran(noise=1.0, clip="auto")
    assert [one["epsilon"] for one in follows.privacy] == [one["epsilon"] for one in fixed.privacy]
    assert "a count under noise 1" in str(follows.privacy[0]["covers"])
    assert (follows.config["clip"], follows.config["clip_noise"], follows.config["quantile"]) == (
        0.1,
        1.0,
        0.5,
    )
    assert follows.summary["clip_norm"] != 0.1
    run = start(FedContextual(**SMALL, noise=1.0, clip="auto"), population=population())
    job = run.simulation.job  # type: ignore[attr-defined]
    assert (job.noise, job.clip_noise) == (pytest.approx(update_noise(1.0, 1.0)), 1.0)
    plain = FedContextual(**SMALL, noise=1.0, clip="auto").plain()
    assert (plain.noise, plain.follows, plain.sampling) == (0.0, 0.5, "poisson")  # type: ignore[attr-defined]


def test_pre_training_through_the_ledger() -> None:
    before = {"scenario": "init", "pretraining": 3, "pretrained": 8, "noise": 2.0}
    none, public, noised = (
        ran(**before, pretraining_privacy=how) for how in ("none", "public", "noised")
    )
    assert any("Pre-training carries no noise" in leak for leak in none.leaks)
    assert any("who gave them to everybody" in leak for leak in public.leaks)
    assert not any("Pre-training" in leak for leak in noised.leaks)
    assert none.total == public.total != noised.total
    cost, plain = float(noised.privacy[0]["epsilon"]), float(none.privacy[0]["epsilon"])  # type: ignore[arg-type]
    assert cost > plain
    assert "3 rounds of pre-training" in str(noised.privacy[0]["composition"])
    assert noised.privacy[0]["delta"] == 1e-2
    assert not any("pre-training" in one for one in noised.privacy[0]["not_covered"])  # type: ignore[union-attr]
    # A limit is shared: pre-training is paid first, and training stops sooner.
    limit = cost - 0.05
    short = ran(**before, pretraining_privacy="noised", limit=limit)
    assert int(short.summary["rounds_done"]) < 4
    with pytest.raises(BudgetError, match="pre-training alone costs"):
        ran(**before, pretraining_privacy="noised", limit=0.5)
