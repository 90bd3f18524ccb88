"""A market of agents or compiled: by strides of any size, back to any moment, with the world
outside.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import posse
from posse.core.errors import ConfigError
from posse.results.record import ARRAYS, Record
from posse.systems.dp_combinatorial.messages import Buy
from posse.systems.dp_combinatorial.report import REPORT
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.registry import system

SMALL = {"agents": 3, "producers": 6, "rounds": 90, "start": 10, "seed": 3}
SYSTEM = system("dp-combinatorial")


def same(a: Record, b: Record) -> bool:
    alike = all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ARRAYS)
    return alike and a.total == b.total and a.seeds == b.seeds and a.privacy == b.privacy


@pytest.mark.parametrize("path", ["agents", "compiled"])
@pytest.mark.parametrize(
    "more", [{}, {"method": "fcb"}, {"rule": "fuse", "runs": 2}, {"noise": "none"}]
)
def test_strides_and_going_back_change_nothing(path: str, more: dict[str, Any]) -> None:
    settings = DpCombinatorial(**SMALL, path=path).instead(**settings_of(more))
    whole, run, draw, saved, back = (
        posse.run(settings),
        posse.start(settings),
        random.Random(2),
        None,
        0,
    )
    while not run.done:
        run.advance(draw.choice((1, 3, 20)))
        if draw.random() < 0.3:
            saved = run.save()
        elif saved is not None and draw.random() < 0.3:
            run.load(saved)
            back += 1
    assert back
    assert run.time == run.horizon == 90 * settings.runs
    assert same(run.record(), whole)


def settings_of(more: dict[str, Any]) -> dict[str, Any]:
    return {DpCombinatorial.aliases.get(name, name): value for name, value in more.items()}


def test_one_step_is_one_round_of_every_agent() -> None:
    run = posse.start(DpCombinatorial(**SMALL))
    for wanted in range(1, 31):
        run.step()
        assert run.time == wanted
        rounds = [
            run.state(agent)["step"] for agent in run.parties
        ]  # some may be ahead, as far as they need not wait
        assert wanted <= min(rounds) <= max(rounds) <= wanted + 2
    record = run.record()
    assert record.status == "running"
    assert record.summary["steps_done"] == 30
    assert [entry["release"] for entry in record.privacy if "release" in entry] == [
        1,
        2,
    ] * 3  # after 10 and 20


def test_the_compiled_twin_pays_for_what_was_sent_so_far() -> None:
    settings = DpCombinatorial(**SMALL, path="compiled")
    run, agents = posse.start(settings), posse.start(settings.but(path="agents"))
    for each in (run, agents):
        each.advance(30)
    assert run.record().privacy == agents.record().privacy


def test_a_world_outside_delivers() -> None:
    settings = DpCombinatorial(**SMALL)
    run, asked = posse.start(settings, world="outside"), 0
    while not run.done:
        run.advance()
        for number, ask in dict(run.asks).items():
            assert isinstance(ask, Buy)
            asked += 1
            with pytest.raises(ConfigError, match="good units must be one number a producer"):
                run.answer(number, [units + 1 for units in ask.units])
            run.answer(number, [units // 2 for units in ask.units])
    record = run.record()
    assert asked == 3 * 90
    assert record.regret is record.party_regret is None
    assert "missed" not in record.summary
    assert record.total[0] == pytest.approx(record.party_total.sum())


def test_twins_and_what_runs_beside() -> None:
    settings = DpCombinatorial(**SMALL, epsilon=0.5, delta="0.02", unit="round")
    plain = settings.plain()
    assert (plain.policy, plain.noise, plain.path, plain.level) == (
        "p-fcb",
        "none",
        "compiled",
        "plain",
    )
    assert settings.but(policy="placebo").plain().policy == "alone"
    assert DpCombinatorial(method="fcb").plain().policy == "fcb"
    assert [(other.policy, other.path) for other in REPORT.comparisons(settings)] == [
        ("alone", "compiled"),
        ("fcb", "compiled"),
    ]
    assert all(other.plain() == other for other in (plain, *REPORT.comparisons(settings)))
    exact = DpCombinatorial(agents=2, producers=5, rounds=60, start=20, oracle="exact")
    assert exact.plain().path == "agents"
    records = [posse.run(each) for each in (settings, *REPORT.comparisons(settings))]
    (section,) = REPORT.sections(records)
    assert [row[0] for row in section.rows] == ["alone", "p-fcb (tight)", "fcb (plain)"]


def test_a_policy_is_a_name_or_a_table_and_never_a_function() -> None:
    assert DpCombinatorial(policy={"name": "p-fcb", "coefficient": 0.5}) == DpCombinatorial(
        coefficient=0.5
    )
    for own in ("mine:Policy", object()):
        with pytest.raises(ConfigError, match="a policy of yours could send more"):
            DpCombinatorial(policy=own)
