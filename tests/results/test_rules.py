"""Every refusal of results has a rule, and user input raises each."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import posse.results
from posse.core.errors import PosseError
from posse.policies.decisions import Learnt
from posse.results import (
    Record,
    Store,
    Traffic,
    export,
    pulls_per_arm,
    render_report,
    reward_curves,
    role_times,
    to_pandas,
)
from posse.results.export import column, filtered, split
from posse.results.logs import evaluate_logs, read_logs
from posse.results.store import arrays_of, build, store_errors
from tests.kit.records import example_market_record, example_record

ROOM = Path(posse.results.__file__).parent
OTHERS = ("statistics.py", "compare.py")
"""Modules whose rules are tested next to them."""


def changed(**changes: object) -> Callable[[Path], object]:
    """Validate a record with other values of some fields."""
    return lambda folder: example_record(**changes).validate()


def edited(change: str) -> Callable[[Path], object]:
    """Read from a store that was edited."""

    def read(folder: Path) -> Record:
        store = Store(folder / "runs.sqlite")
        store.save(example_record(id="0a"))
        with sqlite3.connect(store.path) as db:
            db.execute(change)
        db.close()
        return store.get("0a")

    return read


def saved_twice(folder: Path) -> None:
    store = Store(folder / "runs.sqlite")
    store.save(example_record(id="0a"))
    store.save(example_record(id="0a"))


def ambiguous(folder: Path) -> None:
    store = Store(folder / "runs.sqlite")
    store.save(example_record(id="0a-1"))
    store.save(example_record(id="0a-2"))
    store.get("0a")


def without_pandas(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "pandas", None)
        to_pandas(example_record())


def full_disk(folder: Path) -> None:
    with store_errors(folder):
        raise OSError(28, "No space left on device")


def other_program(folder: Path) -> None:
    path = folder / "runs.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    Store(path)


def random_file(folder: Path) -> None:
    path = folder / "runs.sqlite"
    path.write_bytes(b"x" * 5000)
    Store(path)


LOG = [{"arm": "ab"[i % 2], "reward": float(i % 2), "probability": 0.5} for i in range(8)]
NOTHING = {"steps": (), "reward": (), "regret": None, "total": (), "seeds": ()}
TIMES = {"created": "2024-01-01T00:00:00"}
BAD_ROLE = {"roles": {"owner": {"colour": ["red", "blue"]}}}
BAD_TABLE = {"sections": [{"columns": ["a"], "rows": [["1", "2"]]}]}

CASES: dict[str, Callable[[Path], object]] = {
    "results.value.not-json": changed(config={"x": {1, 2}}),
    "results.key.not-a-string": changed(config={"x": [{3: 1}]}),
    "results.text.not-unicode": changed(problem={"name": "\ud800"}),
    "results.reward.not-finite": changed(reward=[[np.nan]]),
    "results.pulls.not-integers": changed(pulls=[[0.5]]),
    "results.steps.not-an-array": changed(steps=["x" * 3, [1]]),
    "results.reward.wrong-dimensions": changed(reward=[1.0, 2.0]),
    "results.regret.wrong-shape": changed(regret=[[1.0]]),
    "results.seeds.wrong-number": changed(seeds=(1, 2)),
    "results.seeds.out-of-range": changed(seeds=(-1, 0, 1, 2)),
    "results.steps.not-increasing": changed(steps=[2, 1], reward=[[0, 1]] * 4, regret=None),
    "results.pulls.negative": changed(pulls=[[-1, 1, 2]] * 4),
    "results.total.not-finite": changed(total=(1.0, 2.0, 3.0, float("nan"))),
    "results.seconds.negative": changed(seconds=-1.0),
    "results.parties.not-distinct": lambda folder: example_market_record(
        parties=("a", "b", "a", "c")
    ).validate(),
    "results.id.malformed": changed(id="../etc"),
    "results.kind.empty": changed(kind=""),
    "results.created.not-a-time": changed(created="yesterday"),
    "results.created.no-time-zone": changed(**TIMES),
    "results.show.wrong-type": changed(show={"learns": "everything"}),
    "results.show.no-colours": changed(show=BAD_ROLE),
    "results.show.not-a-table": changed(show=BAD_TABLE),
    "results.status.unknown": changed(status="finish"),
    "results.traffic.negative": lambda folder: Traffic("owner -> comp", -1, 0),
    "results.regret.not-known": lambda folder: example_record(regret=None).regret_band(),
    "results.words.not-a-table": changed(problem={"words": ["round"]}),
    "results.words.not-a-noun": changed(problem={"words": {"step": ""}}),
    "results.word.unknown": changed(problem={"words": {"steps": "rounds"}}),
    "results.records.none": lambda folder: render_report([]),
    "results.arms.different": lambda folder: pulls_per_arm(
        [example_record(), example_market_record()]
    ),
    "results.runs.none": lambda folder: reward_curves(example_record(**NOTHING, pulls=())),
    "results.curve.not-known": lambda folder: reward_curves(
        example_record(**{**NOTHING, "total": (1.0,)}, pulls=())
    ),
    "results.role_seconds.not-known": lambda folder: role_times(example_record(level="plain")),
    "results.condition.malformed": lambda folder: split("policy"),
    "results.condition.not-a-number": lambda folder: filtered([{"n": 1}], ["n>many"]),
    "results.column.unknown": lambda folder: column("m", [{"n": 1}]),
    "results.suffix.unknown": lambda folder: export(example_record(), folder / "a.xlsx"),
    "results.parties.none": lambda folder: export(example_record(), folder / "a.csv", parties=True),
    "results.frames.not-installed": without_pandas,
    "results.array.missing": edited("DELETE FROM arrays WHERE name = 'steps'"),
    "results.array.damaged": edited("UPDATE arrays SET data = x'00ff' WHERE name = 'pulls'"),
    "results.record.damaged": lambda folder: build("{", arrays_of(example_record()), "run 0a"),
    "results.id.taken": saved_twice,
    "results.id.none": lambda folder: Store(folder / "runs.sqlite").get("last"),
    "results.id.ambiguous": ambiguous,
    "results.id.unknown": lambda folder: Store(folder / "runs.sqlite").get("0a"),
    "results.store.other-program": other_program,
    "results.store.newer": edited("PRAGMA user_version = 99"),
    "results.store.sqlite": random_file,
    "results.store.disk": full_disk,
    "results.arm.wrong-count": lambda folder: read_logs([{**row, "arm": "a"} for row in LOG]),
    "results.model.other-arms": lambda folder: evaluate_logs(
        LOG, Learnt.read({}, ("a", "b", "c"), [1, 2, 3])
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_user_input_raises_the_rule(rule: str, tmp_path: Path) -> None:
    with pytest.raises(PosseError) as error:
        CASES[rule](tmp_path)
    assert error.value.rule == rule
    assert error.value.field


def test_every_refusal_has_a_rule_that_is_raised_above() -> None:
    for path in ROOM.glob("*.py"):
        if path.name in OTHERS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                (rule,) = [word.value for word in node.keywords if word.arg == "rule"]
                pattern = re.sub(r"\{[^}]*\}", "[a-z_]+", ast.unparse(rule).strip("f'\""))
                assert any(re.fullmatch(pattern, each) for each in CASES), (path.name, pattern)


ERRORS = ("ConfigError", "DataError", "StoreError", "MissingExtraError", "ensure")
