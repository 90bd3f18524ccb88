"""A bandit in use: the twin, the roles and the simulation choose the same arms, whatever happens to
the rewards.
"""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import posse
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import REWARD_ONE
from posse.policies.arms.registry import POLICIES
from posse.privacy.crypto.paillier import generate_key
from posse.results.document import sections
from posse.systems.live import POINTS, Bandit
from posse.systems.samba.settings import Samba
from posse.systems.samba.twin import simulate

LEVELS = ("paper", "strict")
KEY = generate_key(2048)
"""Of no run outside these tests."""


def make(level: str = "strict", path: str = "roles", **changes: Any) -> Samba:
    values = {
        "policy": "ucb",
        "means": (0.3, 0.6, 0.5),
        "seed": 4,
        "paillier_bits": 2048,
        **changes,
    }
    return Samba(level=level, path=path, **values)


def serve(given: Samba, **options: Any) -> Bandit:
    if given.level != "strict" and given.path == "roles":
        options["key"] = KEY
    return posse.live(given, **options)


def play(bandit: Bandit, steps: int) -> list[int]:
    """Answer every decision at once with the reward that a simulation would give."""
    given: Any = bandit.settings
    arms, pulls, chosen = given.load().arms, [0] * len(bandit.names), []
    for _ in range(steps):
        made = bandit.decide()
        chosen.append(made.arm)
        assert bandit.reward(
            made.id, arms.reward(given.seed, made.arm, pulls[made.arm]) / REWARD_ONE
        )
        pulls[made.arm] += 1
    return chosen


@pytest.mark.parametrize("path", ["plain", "roles"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES)
def test_without_delays_it_is_the_simulation(policy: str, level: str, path: str) -> None:
    given = make(level, path, policy=policy)
    setup = given.load()
    outcome = simulate(setup.arms, setup.policy, 40, [given.seed], level=level, keep_arms=True)
    for rewards in ("wait", "fold"):
        bandit = serve(given, horizon=40, rewards=rewards)
        assert outcome.arms is not None
        assert play(bandit, 40) == outcome.arms[0].tolist()
        record = bandit.finish()
        assert record.total == outcome.total
        assert record.pulls.tolist() == outcome.pulls.tolist()
        assert record.level == ("plain" if path == "plain" else level)
        assert bool(record.traffic) == (path == "roles")


def test_exploring_as_described_and_prices_in_use() -> None:
    given = make("paper", policy="epsilon-greedy", epsilon=0.5, shortcut=False, price=0.1)
    bandit = serve(given, horizon=40)
    chosen = play(bandit, 40)
    assert chosen == play(serve(given.but(path="plain"), horizon=40), 40)
    assert chosen == play(serve(given.but(shortcut=True), horizon=40), 40)
    (owed,) = [one for one in sections(bandit.finish()) if one.title == "What owners are owed"]
    assert [float(row[3]) for row in owed.rows] == [chosen.count(arm) / 10 for arm in range(3)]


EVENTS = st.lists(
    st.tuples(st.sampled_from("ddddrrrxgs"), st.integers(0, 7), st.floats(0, 1, width=32)),
    min_size=12,
    max_size=40,
)
"""Decide, reward, drop, reward once more, save and load; which of those that are open; what it
pays.
"""


def torment(
    bandit: Bandit, events: list[tuple[str, int, float]], again: Any = None
) -> tuple[list[int], list[Any]]:
    """Let things happen to a bandit; `again` makes it anew where it is saved. Return arms and what
    counted.
    """
    chosen, counted = [], []
    for what, place, value in events:
        waiting = bandit.pending
        if what == "d":
            chosen.append(bandit.decide().arm)
        elif what == "g" and bandit.decisions:
            old = place % bandit.decisions
            counted.append(old not in waiting and bandit.reward(old, value))
        elif what == "s" and again is not None:
            with TemporaryDirectory() as folder:
                bandit.save(Path(folder) / "bandit")
                bandit = again().load(Path(folder) / "bandit")
        elif what in "rx" and waiting:
            id = waiting[place % len(waiting)]
            counted.append(bandit.reward(id, value) if what == "r" else bandit.drop(id))
    record = bandit.finish()
    return chosen, [*counted, record.pulls.tolist(), record.total]


def check_torment(level: str, policy: str, events: list[tuple[str, int, float]]) -> None:
    secure, plain = (
        make(level, policy=policy, epsilon=0.4 if policy == "epsilon-greedy" else None),
        "plain",
    )
    expected = torment(serve(secure.but(path=plain), rewards="fold"), events)
    assert (
        torment(serve(secure, rewards="fold"), events, lambda: serve(secure, rewards="fold"))
        == expected
    )
    twin = secure.but(path=plain)
    assert (
        torment(serve(twin, rewards="fold"), events, lambda: serve(twin, rewards="fold"))
        == expected
    )


@pytest.mark.parametrize(
    ("level", "policy"),
    [("paper", "epsilon-greedy"), ("strict", "thompson"), ("strict", "pursuit")],
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS)
def test_delays_losses_duplicates_and_restarts_change_roles_as_they_change_the_twin(
    level: str, policy: str, events: list[tuple[str, int, float]]
) -> None:
    check_torment(level, policy, events)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS)
def test_every_policy_at_every_level_is_tormented(
    level: str, policy: str, events: list[tuple[str, int, float]]
) -> None:
    check_torment(level, policy, events)


def test_a_reward_that_has_not_come_is_in_no_score() -> None:
    for path in ("plain", "roles"):
        bandit = serve(make(path=path, policy="epsilon-greedy", epsilon=0), rewards="fold")
        first = bandit.decide_many(3)
        assert [made.name for made in first] == ["arm-1", "arm-2", "arm-3"]
        bandit.reward_many({first[0].id: 0.25, first[2].id: 0.5})
        # The second has no reward: it is taken for a good arm, until it is known to be none.
        late = bandit.decide_many(4)
        assert {made.arm for made in late} == {1}
        assert bandit.reward(late[0].id, 0.0)
        assert bandit.decide().arm == 2
        assert bandit.pending == (first[1].id, *(made.id for made in late[1:]), 7)


def test_of_a_world_outside_no_regret_is_known() -> None:
    assert posse.start(make(horizon=9), world="outside").record().regret is None


def test_with_wait_a_pending_reward_stops_the_next_decision() -> None:
    bandit = posse.live(make(path="plain"))
    made = bandit.decide()
    with pytest.raises(ConfigError, match=r"reward\(0, value\), or drop\(0\)") as error:
        bandit.decide()
    assert error.value.rule == "systems.rewards.pending"
    assert bandit.drop(made.id)
    assert not bandit.drop(made.id)
    assert not bandit.reward(made.id, 1)
    with pytest.raises(ConfigError) as error:
        bandit.decide_many(2)
    assert error.value.rule == "systems.rewards.batch-must-wait"
    assert bandit.decide().id == 1


def test_without_a_horizon_the_customer_has_the_total_at_the_end() -> None:
    bandit = serve(make("strict"), rewards="fold")
    made = bandit.decide_many(9)
    bandit.reward_many({one.id: 0.5 for one in made[2:]})
    record = bandit.finish()
    assert record.total == (3.5,)
    assert int(record.pulls.sum()) == 7
    run = bandit._serving._roles  # type: ignore[attr-defined]
    assert run.memory.roles["customer"].total == 3.5
    with pytest.raises(ConfigError) as error:
        bandit.decide()
    assert error.value.rule == "systems.bandit.finished"


def test_twin_and_roles_go_on_from_each_other(tmp_path: Path) -> None:
    secure = make(policy="thompson")
    for steps in (2, 12):  # while arms are pulled for the first time, and later
        twin = serve(secure.but(path="plain"), rewards="fold")
        twin.reward_many({made.id: 0.25 * made.arm for made in twin.decide_many(steps)[1:]})
        twin.save(tmp_path / "bandit")
        state = json.loads((tmp_path / "bandit").read_text())
        state["settings"]["path"] = "roles"  # a file is of one configuration
        (tmp_path / "bandit").write_text(json.dumps(state))
        roles = serve(secure, rewards="fold").load(tmp_path / "bandit")
        assert roles.pending == (0,)
        assert [made.arm for made in roles.decide_many(10)] == [
            made.arm for made in twin.decide_many(10)
        ]
        for one in (roles, twin):
            one.reward(0, 1)
        assert [made.arm for made in roles.decide_many(5)] == [
            made.arm for made in twin.decide_many(5)
        ]


def test_what_is_saved_holds_no_key_and_belongs_to_its_owner(tmp_path: Path) -> None:
    path, bandit = tmp_path / "bandit", serve(make("paper"), rewards="fold")
    bandit.decide_many(5)
    bandit.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(path.read_text())["serving"]) == {"steps", "arms"}
    for other, field in (
        (serve(make(), rewards="fold"), "level"),
        (serve(make("paper")), "rewards"),
    ):
        with pytest.raises(ConfigError) as error:
            other.load(path)
        assert (error.value.rule, error.value.field) == ("systems.saved.other-settings", field)
    path.write_text(path.read_text().replace('"made"', '"maid"'))
    with pytest.raises(DataError) as error:
        serve(make("paper"), rewards="fold").load(path)
    assert error.value.rule == "systems.saved.damaged"
    path.write_text("{}")
    with pytest.raises(DataError) as error:
        bandit.load(path)
    assert error.value.rule == "systems.saved.not-a-bandit"
    with pytest.raises(DataError) as error:
        bandit.load(tmp_path / "other")
    assert error.value.rule == "systems.saved.unreadable"


def test_mistakes_are_one_line_with_a_remedy() -> None:
    bandit = posse.live(make(path="plain"), horizon=4)
    with pytest.raises(ConfigError) as error:
        bandit.reward(0, 1)
    assert error.value.rule == "systems.id.unknown"
    made = bandit.decide()
    for value, rule in ((1.5, "from 0 to 1"), (float("nan"), "finite"), ("much", "finite")):
        with pytest.raises(ConfigError, match=rule):
            bandit.reward(made.id, value)  # type: ignore[arg-type]
    assert bandit.pending == (0,)  # a refused reward leaves the decision open
    assert bandit.reward(made.id, True)
    with pytest.raises(ConfigError, match="without context"):
        bandit.decide([1, 2])
    for _ in range(3):
        bandit.drop(bandit.decide().id)
    with pytest.raises(ConfigError) as error:
        bandit.decide()
    assert error.value.rule == "systems.horizon.reached"
    with pytest.raises(ConfigError) as error:
        posse.live(make(path="plain", runs=2))
    assert error.value.rule == "systems.runs.more-than-one"
    with pytest.raises(ConfigError) as error:
        posse.live(make(path="plain"), rewards="later")  # type: ignore[arg-type]
    assert error.value.rule == "systems.rewards.unknown"
    with pytest.raises(ConfigError) as error:
        posse.live(Samba(path="plain"), arms=("a", "a"))
    assert error.value.rule == "systems.arms.not-names"


def test_arms_have_the_names_that_they_are_given() -> None:
    bandit = posse.live(Samba(policy="ucb", path="plain"), arms=("tea", "coffee"))
    assert bandit.decide().name == "tea"
    record = bandit.record()
    assert record.problem["names"] == ["tea", "coffee"]
    assert "means" not in record.config
    assert record.status == "running"


@pytest.mark.parametrize("level", ["paper", "strict"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_twin_in_use_chooses_bit_for_bit_as_a_seed_among_others(
    policy: str, level: str
) -> None:
    given = make(level, "plain", policy=policy)
    setup = given.load()
    among = simulate(setup.arms, setup.policy, 60, [7, given.seed, 9], level=level, keep_arms=True)
    alone = simulate(setup.arms, setup.policy, 60, [given.seed], level=level, keep_arms=True)
    assert among.arms is not None
    assert alone.arms is not None
    assert play(serve(given, horizon=60), 60) == among.arms[1].tolist() == alone.arms[0].tolist()
    assert alone.units[0].tolist() == among.units[1].tolist()
    assert alone.regret[0].tolist() == among.regret[1].tolist()


def test_decisions_of_the_twin_start_no_thread_and_load_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bandit = serve(make(path="plain"))
    play(bandit, 4)  # what is compiled is compiled
    threads, loads = [], []
    start, load, here = threading.Thread.start, Samba.load, threading.get_ident()

    def count_start(thread: threading.Thread) -> None:
        if threading.get_ident() == here:
            threads.append(thread.name)
        start(thread)

    def count_load(given: Samba) -> Any:
        loads.append(given)
        return load(given)

    monkeypatch.setattr(threading.Thread, "start", count_start)
    monkeypatch.setattr(Samba, "load", count_load)
    for _ in range(20):
        bandit.reward(bandit.decide().id, 0.5)
    assert bandit.decisions == 24
    assert threads == []
    assert loads == []


def test_the_curve_of_a_long_use_stays_short() -> None:
    bandit = posse.live(Samba(policy="ucb", path="plain"), arms=("tea", "coffee"))
    for _ in range(5 * POINTS):
        bandit.reward(bandit.decide().id, 1)
    record = bandit.record()
    assert POINTS <= len(record.steps) <= 2 * POINTS
    assert record.reward[0].tolist() == record.steps.tolist()
    assert record.steps[-1] == 5 * POINTS


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_on_demand_can_be_taken_back(level: str) -> None:
    bandit = serve(make(level, policy="epsilon-greedy", epsilon=0.5), rewards="fold")
    bandit.decide_many(8)
    run = bandit._serving._roles  # type: ignore[attr-defined]
    moment, first = run.save(), max(run.asks)

    def ahead() -> list[str]:
        for _ in range(8):
            run.step()
        return [ask.party for _, ask in run.asked_since(first)]

    once = ahead()
    assert len(set(once)) > 1
    run.load(moment)
    assert ahead() == once


@pytest.mark.parametrize("name", ["MpcContextual", "DpCombinatorial"])
def test_others_say_why_they_do_not_serve(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"does not serve decisions in a process: .* Use posse.start"
    ):
        posse.live(getattr(posse, name)())
