"""Roles that do not follow the protocol gain what a level says, and no more; each game has both
controls.
"""

from __future__ import annotations

from typing import Any

import pytest

import posse
from posse.privacy.aggregation.client import Client
from posse.privacy.aggregation.terms import Stage
from posse.privacy.leakage.attack import Attempt, attempt
from posse.systems.base import RunSettings
from posse.systems.fed_contextual import deviations as fed
from posse.systems.modules import attacks_of
from posse.systems.mpc_contextual import deviations as mpc
from posse.systems.registry import system_of

MARKET = posse.DpCombinatorial(agents=3, producers=12, horizon=300, start=100)
PARTIES = posse.MpcContextual(rows=120, batch=4)
DEVICES = posse.FedContextual(levels=65536, clients=40, cohort=10)
FINDS, NOTHING = "finds it out", "nothing found"


def played(settings: RunSettings, name: str) -> Attempt:
    (attack,) = (one for one in attacks_of(system_of(settings)).attacks if one.name == name)
    assert attack.stage is not None
    assert attack.missing(settings) == ""
    made = attempt(attack, list(attack.stage(settings, 0)), plantings=1)
    assert (made.power, made.honest) == (1.0, True)
    return made


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, NOTHING),
        ({"noise": "none"}, NOTHING),
        ({"rule": "fuse"}, FINDS),
        ({"policy": "fcb", "horizon": 60}, FINDS),
    ],
)
def test_a_lie_is_believed_for_good_but_where_others_accept_what_is_near(
    changes: Any, verdict: str
) -> None:
    settings = posse.DpCombinatorial(agents=3, producers=12, horizon=60, policy="fcb")
    made = played(settings if "policy" in changes else MARKET.but(**changes), "lies")
    assert made.verdict == verdict
    times = float(made.score.text.rpartition("is ")[2].split()[0])
    assert times > 5 if verdict == FINDS else times < 2


@pytest.mark.parametrize("name", ["replays", "without-noise"])
def test_a_replay_counts_once_and_leaving_noise_out_shows_nothing_of_others(name: str) -> None:
    assert played(MARKET, name).verdict == NOTHING


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("wrong-shares", FINDS),
        ("two-arms", FINDS),
        ("loaded-coins", FINDS),
        ("replayed", NOTHING),
        ("other-arm", None),
        ("other-reward", FINDS),
    ],
)
def test_roles_that_deviate_falsify_what_is_learnt(name: str, verdict: str | None) -> None:
    made = played(PARTIES, name)
    assert made.succeeded == (verdict != NOTHING)
    assert verdict in (None, made.verdict)


def test_arms_are_compared_in_the_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpc, "LONG", 12)
    assert [len(arms) for arms in mpc._arms(PARTIES, 0, lambda run: None)] == [6, 6]


def test_a_party_that_takes_a_message_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from posse.systems.mpc_contextual.roles.puller_and_payee import Payee

    receive = Payee.receive
    monkeypatch.setattr(
        Payee, "receive", lambda self, *given: receive(self, *given) if not self.step else ()
    )
    rows = list(mpc.stage_replayed(PARTIES, 0))
    assert any(one.seen for one in rows)


def test_devices_that_poison_turn_the_model_and_nobody_singles_out_a_device() -> None:
    assert played(DEVICES, "poison").succeeded
    for name in ("cohort-of-one", "asks-twice"):
        made = played(DEVICES, name)
        assert made.verdict == NOTHING
    sums = {one.truth["sums"] for one in fed.stage_sums(DEVICES, 0, twice=True)}
    assert sums == {1}  # the honest sum is read, and the second one is not


def test_clients_that_answer_every_question_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that forgets which round it is in shows both sums."""
    show = Client._show

    def again(self: Any, message: Any) -> Any:
        held, survivors = self._held, self._survivors
        sent = show(self, message)
        self._held, self._survivors, self.stage = held, survivors, Stage.SURVIVORS
        return sent

    monkeypatch.setattr(Client, "_show", again)
    (attack,) = (one for one in fed.DEVIATIONS if one.name == "asks-twice")
    assert (
        attempt(attack, list(fed.stage_sums(DEVICES, 0, twice=True)), plantings=0).verdict == FINDS
    )
