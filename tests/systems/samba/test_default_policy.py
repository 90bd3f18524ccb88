"""Simulations have Thompson sampling by default; a federation whose file names no policy keeps
UCB, with a warning.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import posse
from posse.core.errors import ConfigError
from posse.core.settings import read_toml
from posse.runtime.network.deployment import Deployment
from posse.runtime.place import open_place
from posse.systems.live import Bandit
from posse.systems.parties import make_invitation
from posse.systems.registry import run
from posse.systems.samba.deploy import NO_POLICY, build
from posse.systems.samba.layout import layout
from posse.systems.samba.settings import Samba
from tests.kit.federations import laid_out
from tests.kit.parties import edit

LOCAL: dict[str, Any] = {
    "run": "trial-1",
    "level": "paper",
    "budget": 30,
    "owner": [{"name": "clinic-1"}, {"name": "clinic-2"}],
    "world": {"owners": 2},
}
RUN: dict[str, Any] = {
    "level": "strict",
    "budget": 30,
    "owners": ["clinic-1", "clinic-2"],
    "world": {"owners": 2},
}


def built(path: Path) -> Deployment:
    place = open_place(path)
    place.journal.mkdir(parents=True, exist_ok=True)
    return build(place)


def test_a_simulation_without_a_policy_has_thompson_sampling() -> None:
    assert Samba().policy == "thompson"
    record = run(Samba(path="plain", owners=2, horizon=20))
    assert isinstance(record.config["policy"], dict)
    assert record.config["policy"]["name"] == "thompson"


def test_thompson_sends_more_pulls_to_the_best_film_than_ucb() -> None:
    shares = {}
    for policy in ("thompson", "ucb"):
        settings = Samba(path="plain", owners=10, horizon=10_000, runs=5, policy=policy)
        record = run(settings)
        means = settings.load().arms.means
        shares[policy] = float(record.pulls[:, means.argmax()].sum() / record.pulls.sum())
    assert shares["thompson"] > 0.9
    assert shares["ucb"] < 0.8


def test_a_local_federation_without_a_policy_keeps_ucb_and_warns(tmp_path: Path) -> None:
    silent, named = layout(LOCAL, tmp_path), layout({**LOCAL, "policy": "ucb"}, tmp_path)
    assert silent.settings == named.settings
    assert (silent.remarks, named.remarks) == ((NO_POLICY,), ())
    # The files of its parties name the policy, so that none of them warns again.
    for path in silent.lay_out(tmp_path / "parties"):
        assert read_toml(path)["options"]["policy"] == "ucb"
        assert built(path).remarks == ()


def test_a_proposal_without_a_policy_keeps_ucb_and_warns() -> None:
    silent = make_invitation("samba", RUN)
    named = make_invitation("samba", {**RUN, "policy": "ucb"})
    assert replace(silent, remarks=(), demand=named.demand) == named
    assert silent.demand() == named.demand()
    assert silent.remarks == (NO_POLICY,)


@pytest.mark.parametrize("name", ["clinic-1", "controller", "comp", "customer"])
def test_a_party_without_a_policy_keeps_ucb_and_warns(tmp_path: Path, name: str) -> None:
    path = next(path for path in laid_out(tmp_path) if path.stem == name)
    named = built(path)
    edit(path, 'policy = "ucb"\n', "")
    silent = built(path)
    assert (silent.remarks, named.remarks) == ((NO_POLICY,), ())
    assert (silent.terms, silent.inputs) == (named.terms, named.inputs)


def test_a_bandit_that_0_1_saved_without_a_policy_goes_on_with_ucb(tmp_path: Path) -> None:
    arms = ("red", "green", "blue")

    def bandit(**given: Any) -> Bandit:
        return posse.live(Samba(path="plain", **given), arms=arms)

    def used(made: Bandit) -> list[int]:
        chosen = []
        for _ in range(20):
            decision = made.decide()
            made.reward(decision.id, decision.arm / 2)
            chosen.append(decision.arm)
        return chosen

    saved = bandit(policy="ucb")
    used(saved)
    saved.save(tmp_path / "bandit.json")
    wanted = used(bandit(policy="ucb").load(tmp_path / "bandit.json"))
    silent = bandit().load(tmp_path / "bandit.json")
    assert used(silent) == wanted
    assert silent.record().policy == "ucb"
    with pytest.raises(ConfigError, match=r"was saved with policy .*'ucb'.*, got .*'thompson'"):
        bandit(policy="thompson").load(tmp_path / "bandit.json")
    bandit(policy="softmax").save(tmp_path / "other.json")
    with pytest.raises(ConfigError, match=r"was saved with policy .*'softmax'.*, got .*'thompson'"):
        bandit().load(tmp_path / "other.json")
