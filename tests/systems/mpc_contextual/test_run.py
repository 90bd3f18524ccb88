"""A run on shares or of a twin: by steps of any size, back to any moment, with the world outside,
recorded any time.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError
from posse.problems.listing import listing
from posse.results.record import ARRAYS, Record
from posse.systems.mpc_contextual.live import read_model
from posse.systems.mpc_contextual.report import REPORT
from posse.systems.mpc_contextual.roles.messages import Act, Earn
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.registry import system
from posse.systems.runs import Run

SMALL = {"rows": 48, "components": 5, "seed": 4}
SYSTEM = system("mpc-contextual")


def same(a: Record, b: Record) -> bool:
    alike = all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ARRAYS[:4])
    return alike and a.total == b.total and a.seeds == b.seeds and a.privacy == b.privacy


def wander(run: Run, draw: random.Random) -> int:
    """Run to the end by strides of any size, and now and then go back to a moment and on again;
    return how often.
    """
    back, saved = 0, run.save()
    while not run.done:
        run.advance(draw.choice((1, 2, 5, 17)))
        if draw.random() < 0.3:
            saved = run.save()
        elif draw.random() < 0.5:
            run.load(saved)
            back += 1
    return back


@pytest.mark.parametrize("path", ["fixed", "float", "parties"])
@pytest.mark.parametrize("more", [{}, {"batch": 4}, {"policy": "thompson", "batch": 3, "runs": 2}])
def test_strides_and_going_back_change_nothing(path: str, more: dict[str, Any]) -> None:
    settings = MpcContextual(**{**SMALL, **more}, path=path)
    whole, run = posse.run(settings), posse.start(settings, transcript=0)
    assert wander(run, random.Random(6)) > 1
    assert run.time == run.horizon == 48 * settings.runs
    assert same(run.record(), whole)


def test_going_back_from_the_second_seed_to_the_first() -> None:
    settings = MpcContextual(**SMALL, runs=2)
    run = posse.start(settings)
    run.advance(20)
    saved, seen = run.save(), run.view("puller").entries
    run.advance(40)
    run.advance(10)
    assert run.time == 48 + 10
    assert run.record().runs == 1  # whole runs only, where there is one
    run.load(saved)
    assert run.time == 20
    assert run.view("puller").entries == seen
    early = run.record()
    assert (early.runs, early.status, early.steps[-1]) == (1, "running", 20)
    run.finish()
    assert same(run.record(), posse.run(settings))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_world_outside_is_asked_for_every_pull_and_reward(batch: int) -> None:
    settings = MpcContextual(**SMALL, batch=batch)
    setup = settings.load()
    units = setup.units(4, setup.order(4))
    run, pulled, asked = posse.start(settings, world="outside"), {}, []
    while not run.done:
        run.advance()
        for number, ask in dict(run.asks).items():
            asked.append(type(ask))
            if isinstance(ask, Act):
                pulled[ask.step] = ask.arm
                run.answer(number, None)
            else:
                assert isinstance(ask, Earn)
                with pytest.raises(ConfigError, match=r"a reward must be in \[0, 1\]"):
                    run.answer(number, 2)
                run.answer(number, float(units[ask.step, pulled[ask.step]]) / 2**24)
    record, inside = run.record(), posse.run(settings)
    assert asked.count(Act) == asked.count(Earn) == 48
    assert record.total == inside.total
    assert np.array_equal(record.pulls, inside.pulls)
    assert record.regret is None


def test_what_a_simulation_knows_and_the_terms_that_everybody_knows() -> None:
    run = posse.start(MpcContextual(**SMALL))
    run.advance(30)
    truth, view = run.truth(), run.view("party-1", "puller")
    assert len(truth["arms"]) == len(truth["rewards"]) == run.time == 30
    assert truth["features"].shape == (48, 5)
    assert view.public["arms"] == truth["means"].shape[1] == 10
    assert set(view.secrets) == {"party-1", "puller"}


def test_twins_and_what_runs_beside() -> None:
    settings = MpcContextual(**SMALL)
    assert [SYSTEM.level_of(one) for one in (settings, settings.plain())] == ["shared", "plain"]
    assert [twin.path for twin in REPORT.comparisons(settings)] == ["fixed", "float"]
    assert settings.plain().plain() == settings.plain()
    records = [posse.run(each) for each in (settings, *REPORT.comparisons(settings))]
    (section,) = REPORT.sections(records)
    assert section.data is not None
    assert abs(section.data["more_a_step_than_floats"]) < 0.2
    assert "The float twin earned" in section.notes[0]
    (costs,) = records[0].show["sections"]
    assert ["rounds", "11"] in costs["rows"]


def test_a_policy_is_a_name_or_a_table_and_never_a_function() -> None:
    table = MpcContextual(**SMALL, policy={"name": "linucb", "width": 0.5})
    assert table == MpcContextual(**SMALL, policy="linucb", width=0.5)
    for own in ("mine:Policy", object(), {"name": "mine:Policy"}):
        with pytest.raises(ConfigError, match="cannot call a function of yours"):
            MpcContextual(policy=own)
    with pytest.raises(ConfigError, match="unknown parameter 'tau'"):
        MpcContextual(policy={"name": "linucb", "tau": 1})


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"epsilon": 0}, "--without-guarantee"),
        ({"epsilon": 2}, r"epsilon must be in \[0, 1\]"),
        ({"epsilon": "0.141592653"}, r"nearest one is 14/99\."),
        ({"width": 1}, "width belongs to linucb"),
        ({"batch": 2, "newton": 3}, "newton belongs to runs without batch"),
        (
            {"overlap": True, "newton": 3},
            "newton belongs to runs without batch and overlap, got 3 for overlap",
        ),
        ({"overlap": True, "batch": 2}, "overlap cannot be combined with a batch"),
        ({"bits": 40}, "bits must be"),
        ({"steps": 0}, "horizon must be at least 1"),
        ({"delta": 1}, "delta must be"),
    ],
)
def test_wrong_values_are_refused_when_the_settings_are_made(
    values: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        MpcContextual(**values)


def test_a_folder_without_shares_or_data_is_no_model_and_no_problem(tmp_path: Path) -> None:
    assert read_model(tmp_path) is None
    problems = listing(SYSTEM.about.problems, tmp_path)
    assert problems is not None
    assert {entry["name"]: entry["ready"] for entry in problems.entries}.items() >= {
        "mnist": False,
        "own": True,
    }.items()
