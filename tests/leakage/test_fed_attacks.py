"""The attacks on fed-contextual: what the server reads with and without secure sums and noise, and
canary devices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import posse
from posse.core.errors import PosseError
from posse.core.roles import View
from posse.privacy.leakage.attack import Attack, Attempt, Evidence, attempt
from posse.privacy.leakage.inversion import matches
from posse.systems.runs import Run

pytest.importorskip("jax")

from posse.systems.fed_contextual.attacks import CURIOUS, canary_devices, updates_in
from posse.systems.fed_contextual.run import Total, Update

BY_NAME = {attack.name: attack for attack in CURIOUS}
SMALL = {
    "clients": 150,
    "cohort": 10,
    "horizon": 3,
    "deploy_every": 1,
    "optimiser": "sgd",
    "server_rate": 1.0,
    "quantile": 0.0,
    "clip": 0.05,
    "sampling": "fixed",
}
NOISY = {"noise": 1.0}
SUMS = {"levels": 65536, "noise": 1.0}
"""Few programs to compile: noise and none, and secure sums."""


@cache
def ran(**settings: object) -> Run:
    run = posse.start(posse.FedContextual(**{**SMALL, **settings}))
    run.finish()
    return run


def inverted(**settings: object) -> Attempt:
    run = ran(**settings)
    return attempt(BY_NAME["inversion"], [Evidence(run.view("server"), run.truth())])


def staged(name: str, **settings: object) -> Attempt:
    attack = BY_NAME[name]
    return attempt(attack, list(attack.stage(posse.FedContextual(**{**SMALL, **settings}), 0)))


def test_what_reaches_the_server_is_what_moved_the_model() -> None:
    """Plain steps of rate 1 and a fixed norm: the mean of the updates is how the model moved in the
    last round.
    """
    run = posse.start(posse.FedContextual(**SMALL))
    run.advance(2)
    before = [
        np.frombuffer(one["data"], np.float32)
        for one in run.view("server").secrets["server"]["params"]
    ]
    run.advance(1)
    view = run.view("server")
    after = [np.frombuffer(one["data"], np.float32) for one in view.secrets["server"]["params"]]
    read = updates_in(view)
    assert (
        read.devices.tolist()
        == run.truth()["devices"].tolist()
        == run.state("cohort")["last_devices"]
    )
    for old, new, updates in zip(before, after, (read.bias, read.weights), strict=True):
        np.testing.assert_allclose(updates.mean(axis=0).ravel(), new - old, rtol=0, atol=1e-7)
    assert not [
        one for one in run.view("cohort").entries if isinstance(one.message, Update | Total)
    ]


def test_under_secure_sums_the_view_holds_the_sum_alone() -> None:
    exact, summed = (updates_in(ran(**more).view("server")) for more in (NOISY, SUMS))
    assert (len(exact.devices), len(summed.devices), len(summed.bias)) == (10, 0, 1)
    observed = ran(**SUMS).observe()
    np.testing.assert_array_equal(observed.updates[1].sum(axis=0), summed.weights[0])


def test_one_sample_of_an_arm_is_read_exactly_and_noise_comes_too_late() -> None:
    """Of devices with many samples for an arm a mean is read; the server adds its noise after it
    has seen updates.
    """
    made, truth = inverted(**NOISY), ran(**NOISY).truth()
    assert made.verdict in ("a little", "finds it out")
    assert made.power == 1.0
    _, found = made.estimates[0]
    pairs = Counter(zip(truth["owner"].tolist(), truth["arms"].tolist(), strict=True))
    single = np.array(
        [pairs[pair] == 1 for pair in zip(found.owner.tolist(), found.arms.tolist(), strict=True)]
    )
    hit = matches(found, truth["contexts"], truth["owner"], truth["arms"])
    assert single.sum() >= 10
    assert hit[single].all()
    assert made.score.value >= single.mean()


def test_a_sum_tells_a_sample_that_alone_moved_an_arm_and_later_none() -> None:
    """From zeros only rewarded samples move a model: of ten devices there is one for some arms.
    Later all move it.
    """
    first, later = inverted(**SUMS, horizon=1), inverted(**SUMS, horizon=40, server_rate=20.0)
    assert first.succeeded
    assert (later.verdict, later.power) == ("nothing found", 1.0)


def test_the_update_tells_its_samples_and_the_sum_less() -> None:
    clear, summed = staged("membership"), staged("membership", **SUMS)
    assert (clear.verdict, clear.power) == ("a little", 1.0)
    assert summed.power == 1.0
    assert clear.score.value > max(0.65, summed.score.value)


def test_the_model_tells_who_took_part_and_noise_hides_it_as_far_as_it_claims() -> None:
    clear, noisy = staged("participants"), staged("participants", **NOISY)
    assert (clear.score.value, clear.verdict) == (1.0, "finds it out")
    assert noisy.verdict == "a little"
    assert 0.6 < noisy.score.value < 0.8  # Phi(1 / 2) = 0.69
    assert staged("noise", **NOISY).verdict == "nothing found"


def test_half_of_the_noise_that_is_paid_for_is_found() -> None:
    """Power .95 at least by its size; the round is a real one with half of the noise."""
    settings = posse.FedContextual(**{**SMALL, **NOISY})
    for seed in (1, 2):
        made = attempt(
            BY_NAME["noise"], list(canary_devices(settings, seed, noise=0.5)), plantings=1
        )
        assert made.verdict == "finds it out"
        assert made.score.value > made.score.baseline


@pytest.mark.long
def test_honest_rounds_stay_within_their_claim() -> None:
    """60 audits at .01: 5 or more above the claim have probability 1e-3 at most."""
    settings = posse.FedContextual(**{**SMALL, **NOISY})
    made = [
        attempt(BY_NAME["noise"], list(canary_devices(settings, seed)), plantings=1).score
        for seed in range(60)
    ]
    assert sum(one.value > one.baseline for one in made) < 5


def test_arms_that_devices_show_tell_about_contexts() -> None:
    made = staged("arms", horizon=241, deploy_every=120, server_rate=5.0)
    assert (made.verdict, made.power) == ("a little", 1.0)
    assert made.score.value > 0.1
    assert "[" not in made.attack.tell(made.estimates[0])


def test_models_that_are_not_linear_are_left_out_with_the_reason() -> None:
    cnn = posse.FedContextual(model="cnn", hidden=4, channels=(1, 1))
    assert "only updates of linear models" in BY_NAME["inversion"].missing(cnn)
    assert "one place holds all samples" in BY_NAME["inversion"].missing(
        posse.FedContextual(centralised=True)
    )
    assert "no claim to test" in BY_NAME["noise"].missing(posse.FedContextual(**SMALL))


@pytest.mark.parametrize("attack", CURIOUS, ids=lambda attack: attack.name)
def test_attacks_are_functions_of_what_was_seen(attack: Attack) -> None:
    """The same answer twice, without any truth; what is foreign or cut off is refused in one
    line.
    """
    settings = posse.FedContextual(**{**SMALL, **NOISY})
    seen = (
        ran(**NOISY).view("server")
        if attack.needs == "view"
        else next(iter(attack.stage(settings, 0))).seen
    )
    first, again = (attack.estimate(seen, 4) for _ in range(2))
    if attack.name == "inversion":
        np.testing.assert_array_equal(first[1].contexts, again[1].contexts)
    else:
        np.testing.assert_array_equal(first, again)
    wrong = [View(("comp",), (), {"comp": {"kind": "comp"}}, {"system": "samba"})]
    if isinstance(seen, View):
        wrong.append(replace(seen, entries=seen.entries[:2]))
        wrong.append(replace(seen, public={**seen.public, "model": "cnn"}))
    for one in wrong:
        with pytest.raises(PosseError) as refused:
            attack.estimate(one, 4)
        assert "\n" not in str(refused.value)
