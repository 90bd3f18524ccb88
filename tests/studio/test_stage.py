"""What the page shows is the run: the same reward, pulls and arms as `posse.run`, forward, back and
from an address.
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

import posse
from posse.core.roles import WORLD
from posse.results import identical
from posse.results.store import Store
from posse.studio.stage import SAVES, Stage
from posse.systems.modules import scene_of
from posse.systems.registry import system
from posse.systems.runs import RolesRun
from tests.studio.conftest import Server, Visitor, resting, until

POLICIES = ("epsilon-greedy", "epsilon-decreasing", "ucb", "softmax", "pursuit", "thompson")
SMALL: dict[str, Any] = {"owners": 3, "horizon": 40, "points": 40, "paillier_bits": 2048}


def equals_run(visitor: Visitor, **settings: Any) -> None:
    """Play settings on the stage, in pieces of all units, and compare with a run of the command
    line's kind.

    A curve with a point a step says which arm each step pulled: regret grows by that arm's own gap.
    """
    id = visitor.stage("samba", **settings)
    visitor.do(id, "forward", unit="message", n=7)
    visitor.do(id, "forward", unit="step", n=3)
    visitor.do(id, "forward", unit="time", n=9)
    visitor.do(id, "back", unit="time", n=4)
    visitor.do(id, "back", unit="message", n=5)
    state = visitor.do(id, "end")
    assert state["done"]
    assert state["time"] == settings["horizon"]
    kept = Store().get(visitor.post(f"/api/stages/{id}/keep")["run"])
    record = posse.run(posse.Samba(**settings))
    assert kept.status == "finished"
    assert identical(kept, record)
    assert kept.total == record.total
    np.testing.assert_array_equal(kept.pulls, record.pulls)
    np.testing.assert_array_equal(kept.reward, record.reward)
    np.testing.assert_array_equal(kept.regret, record.regret)
    visitor.client.delete(f"/api/stages/{id}")


@pytest.mark.parametrize("policy", POLICIES)
def test_the_stage_earns_what_a_run_earns(visitor: Visitor, policy: str) -> None:
    equals_run(visitor, policy=policy, level="strict", seed=5, **SMALL)


@pytest.mark.parametrize(("policy", "level"), [("ucb", "paper"), ("softmax", "paper")])
def test_the_stage_earns_what_a_run_earns_at_other_levels(
    visitor: Visitor, policy: str, level: str
) -> None:
    equals_run(visitor, policy=policy, level=level, seed=6, **SMALL)


@pytest.mark.long
@pytest.mark.parametrize("level", ["strict", "paper"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_stage_earns_what_a_run_earns_for_more_seeds(
    visitor: Visitor, policy: str, level: str
) -> None:
    for seed in (1, 2, 3):
        equals_run(
            visitor,
            policy=policy,
            level=level,
            seed=seed,
            **{**SMALL, "horizon": 120, "points": 120},
        )


def told(rows: list[dict[str, Any]]) -> list[Any]:
    """What messages say, without their random bytes."""
    return [
        (row["number"], row["sender"], row["receiver"], row["name"], row["says"], row["clear"])
        for row in rows
    ]


def test_back_by_200_steps_and_forward_again_is_the_same(visitor: Visitor) -> None:
    id = visitor.stage("samba", policy="thompson", owners=3, horizon=400)
    before = visitor.do(id, "jump", time=300)
    said = told(visitor.get(f"/api/stages/{id}/messages", count=60))
    visitor.do(id, "back", unit="time", n=200)
    middle = visitor.get(f"/api/stages/{id}")
    assert middle["time"] == 100
    assert all(line[-1][0] <= 100 for line in middle["curves"]["lines"].values())
    after = visitor.do(id, "forward", unit="time", n=200)
    for name in ("time", "message", "scene", "curves", "done"):
        assert after[name] == before[name], name
    assert [(hop["from"], hop["to"], hop["messages"]) for hop in after["traffic"]] == [
        (hop["from"], hop["to"], hop["messages"]) for hop in before["traffic"]
    ]
    now = told(visitor.get(f"/api/stages/{id}/messages", count=60))
    assert [row[:4] for row in now] == [row[:4] for row in said]
    # What is on the way is explained where the run rests between two looks at the clock, and always
    # where it stops.
    both = [pair for pair in zip(now, said, strict=True) if all(clear for *_, clear in pair)]
    assert both
    assert all(one == other for one, other in both)


def test_a_worked_example_begins_in_the_middle_and_only_as_its_scenario(visitor: Visitor) -> None:
    samba = system("samba")
    (scenario,) = [one for one in scene_of(samba).scenarios if one.options == {"example": "ucb-68"}]
    body = {
        "system": "samba",
        "settings": {**scenario.settings, "paillier_bits": 2048},
        "scenario": scenario.name,
    }
    stages = [
        visitor.post("/api/stages", {**body, **more})["id"]
        for more in ({}, {"scenario": ""}, {"scenario": "unknown"})
    ]
    assert [visitor.settled(one)["time"] for one in stages] == [67, 0, 0]
    visitor.post("/api/stages", {**body, "scenario": 3}, 400)
    strict = {**body, "settings": {**scenario.settings, "level": "strict"}}
    id = visitor.post("/api/stages", strict)["id"]
    failed = until(lambda: resting(visitor.get(f"/api/stages/{id}")))
    assert failed["phase"] == "failed"
    assert "level 'paper' with three means" in failed["refused"]


def test_a_young_run_shows_what_is_found_out_although_no_leak_can_be_planted_in_it() -> None:
    from posse.studio.looking import audit, evidence

    samba: Any = system("samba")
    stage = Stage(
        "z",
        samba,
        samba.Settings(
            policy="ucb", means=(0.38, 0.55, 0.47, 0.71), horizon=60, level="paper", seed=7
        ),
    )
    stage.open()
    while stage.run.time < 20:
        stage.forward("time", 1)
    rows = {row["name"]: row for row in audit(evidence(stage, "comp"))["rows"]}
    assert rows["tracker"]["verdict"] == "finds it out"
    assert "pulls exact of 4 of 4 arms" in rows["tracker"]["finds"]


def test_of_two_quick_presses_the_last_decides(visitor: Visitor, server: Server) -> None:
    """A pause that is still being drawn when play is pressed does not leave a run that plays and
    says it is paused.
    """
    id = visitor.stage("samba", policy="ucb", owners=4, horizon=5000)
    stages, loop = server.app.studio.stages, server.loop
    assert loop is not None

    async def press(*actions: str) -> str:
        await asyncio.gather(
            *(stages.do(id, action, "time", 1, 20, (0, None)) for action in actions)
        )
        live = stages.get(id)
        assert (live.motion is not None) is (live.phase == "playing")
        return live.phase

    for _ in range(5):
        assert (
            asyncio.run_coroutine_threadsafe(press("play", "pause", "play"), loop).result(60)
            == "playing"
        )
        assert asyncio.run_coroutine_threadsafe(press("play", "pause"), loop).result(60) == "paused"


def test_units_go_back_what_they_went_forward(visitor: Visitor) -> None:
    id = visitor.stage("samba", policy="ucb", owners=4, horizon=60)
    visitor.do(id, "jump", time=20)
    for unit in ("message", "step", "time"):
        start = visitor.do(id, "forward", unit=unit, n=1)
        visitor.do(id, "forward", unit=unit, n=3)
        back = visitor.do(id, "back", unit=unit, n=3)
        assert (back["time"], back["message"]) == (start["time"], start["message"]), unit
    assert visitor.do(id, "jump", time=0)["message"] == 0
    # Before every arm was pulled once, and behind the end: neither loops nor is off by one.
    assert visitor.do(id, "jump", time=2)["time"] == 4
    last = visitor.do(id, "jump", time=10**9)
    assert (last["time"], last["done"]) == (60, True)
    assert visitor.do(id, "forward", unit="time", n=5)["done"]


def test_a_step_is_all_messages_of_one_kind(visitor: Visitor) -> None:
    id = visitor.stage("samba", policy="ucb", owners=5, horizon=60)
    visitor.do(id, "jump", time=30)
    names = []
    for _ in range(12):
        last = visitor.do(id, "forward", unit="step")["last"]
        names.append((last["name"], last["count"]))
        assert len(last["moved"]) == last["count"]
    assert any(count == 5 for _, count in names)
    assert all(one[0] != two[0] for one, two in pairwise(names) if one[1] == two[1] == 5)


def test_an_address_takes_a_run_up_at_its_moment(visitor: Visitor) -> None:
    settings = {"policy": "ucb", "owners": 3, "horizon": 80}
    id = visitor.stage("samba", **settings)
    visitor.do(id, "jump", time=50)
    one = visitor.do(id, "forward", unit="message", n=4)
    other = visitor.get(
        f"/api/stages/{visitor.stage('samba', at={'time': one['time'], 'message': one['message']}, **settings)}"
    )
    for name in ("time", "message", "scene", "settings"):
        assert one[name] == other[name], name
    assert told([one["last"]]) == told([other["last"]])


def test_a_jump_explains_the_last_message_also_where_it_is_old(visitor: Visitor) -> None:
    """Between two reports rounds pass without a message."""
    settings: dict[str, Any] = {
        "agents": 2,
        "producers": 6,
        "horizon": 60,
        "start": 10,
        "delta": "0.01",
    }
    id = visitor.stage("dp-combinatorial", at={"time": 17}, **settings)
    last = visitor.get(f"/api/stages/{id}")["last"]
    assert last["time"] < 15
    assert "reports to" in last["says"]
    assert visitor.get(f"/api/stages/{id}/messages", count=1, observer="agent")[0]["parts"]


def test_every_system_plays_and_goes_back(visitor: Visitor) -> None:
    """A system that the studio has never heard of too; one without messages goes by its rounds."""
    cases: dict[str, dict[str, Any]] = {
        "toy": {"horizon": 30},
        "dp-combinatorial": {"agents": 3, "producers": 6, "horizon": 300, "start": 20},
        "mpc-contextual": {"horizon": 12, "components": 4},
    }
    for name, settings in cases.items():
        id = visitor.stage(name, **settings)
        first = visitor.do(id, "forward", unit="time", n=6)
        assert first["time"] >= 6, name
        visitor.do(id, "forward", unit="step", n=2)
        again = visitor.do(id, "jump", time=first["time"])
        assert again["message"] == first["message"], name
        assert visitor.do(id, "end")["done"], name
        visitor.client.delete(f"/api/stages/{id}")
    plain = visitor.stage("toy", horizon=30, path="plain")
    assert visitor.do(plain, "forward", unit="message", n=3)["time"] == 3
    assert visitor.do(plain, "back", unit="step", n=1)["time"] == 2


def test_bytes_are_those_of_the_transcript_and_go_to_their_parties_alone(
    visitor: Visitor, server: Server
) -> None:
    """Each message's own bytes are the marker: they are found in no answer to an observer who did
    not have them.
    """
    id = visitor.stage(
        "samba", policy="ucb", owners=3, horizon=20, level="paper", paillier_bits=2048
    )
    visitor.do(id, "jump", time=12)
    rows = visitor.get(f"/api/stages/{id}/messages", count=200)
    assert len(rows) > 60
    run = _run_of(server, id)
    entries = [entry for entry in run.memory.transcript or () if entry.sender != WORLD][
        -len(rows) :
    ]
    encoded = [msgspec.msgpack.encode(entry.message).hex() for entry in entries]
    assert [row["bytes"] for row in rows] == encoded
    assert [(row["sender"], row["receiver"], row["size"]) for row in rows] == [
        (entry.sender, entry.receiver, entry.size) for entry in entries
    ]
    for observer in (*run.parties, "wire"):
        answer = visitor.client.get(
            f"/api/stages/{id}/messages", params={"count": 200, "observer": observer}
        ).text
        seen = {row["number"]: row["bytes"] for row in json.loads(answer)}
        assert len(seen) == len(rows)
        for row, marker in zip(rows, encoded, strict=True):
            has = observer in (row["sender"], row["receiver"])
            assert seen[row["number"]] == (marker if has else None)
            answer = answer.replace(marker, "") if has else answer
        markers = [one for row, one in zip(rows, encoded, strict=True) if len(one) >= 32]
        assert len(markers) > 20
        assert [one for one in markers if one in answer] == []
    assert visitor.get(f"/api/stages/{id}/messages", 404, observer="nobody")["error"].startswith(
        "there is no observer"
    )


def _run_of(server: Server, id: str) -> RolesRun:
    run = server.app.studio.stages.live[id].stage.run
    assert isinstance(run, RolesRun)
    return run


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_no_key_mask_or_seed_is_sent(visitor: Visitor, server: Server, level: str) -> None:
    """Every secret of every role, in hex, is looked for in everything that the studio says about
    the run.
    """
    id = visitor.stage(
        "samba", policy="ucb", owners=3, horizon=20, level=level, paillier_bits=2048, seed=9
    )
    visitor.do(id, "jump", time=10)
    run = _run_of(server, id)
    said = [
        visitor.client.get(f"/api/stages/{id}").text,
        visitor.client.get(f"/api/stages/{id}/code").text,
    ]
    said += [visitor.client.get(f"/api/stages/{id}/party/{name}").text for name in run.parties]
    said += [
        json.dumps(
            [
                {**row, "bytes": None}
                for row in visitor.get(f"/api/stages/{id}/messages", count=200, observer=name)
            ]
        )
        for name in (*run.parties, "wire")
    ]
    text = " ".join(said)
    secrets = {secret for role in run.memory.roles.values() for secret in _secrets(role.save())}
    assert len(secrets) > 10
    assert [one[:8] for one in secrets if one in text] == []


def _secrets(value: Any) -> list[str]:
    if isinstance(value, bytes):
        return [value.hex()] if len(value) >= 12 else []
    if isinstance(value, dict):
        return [one for part in value.values() for one in _secrets(part)]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _secrets(part)]
    return [str(value)] if isinstance(value, int) and abs(value) > 2**60 else []


def test_save_points_stay_bounded() -> None:
    toy: Any = system("toy")
    stage = Stage("x", toy, toy.Settings(horizon=60_000))
    stage.open()
    while not stage.run.done:
        stage.forward("time", 5_000)
    assert len(stage._saves) <= SAVES
    assert all(200 <= len(line) <= 402 for line in stage.curves.values())
    young = Stage("y", toy, toy.Settings(horizon=60_000))
    young.open()
    young.forward("time", 7)
    assert all(line[-1][0] == young.run.time for line in young.curves.values())
    stage.aim(100)
    while not stage.approach(100):
        pass
    assert stage.run.time == 100
