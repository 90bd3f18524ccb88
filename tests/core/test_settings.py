"""Settings: one model for files, flags and Python; every mistake is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from posse.core.errors import ConfigError, DataError
from posse.core.settings import Settings, read_toml


class Example(Settings):
    budget: int
    policy: str = "ucb"
    level: Literal["standard", "paper"] = "standard"
    tau: float | None = None
    means: tuple[float, ...] = ()


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_and_given_values_win_over_it(tmp_path: Path) -> None:
    file = written(tmp_path, 'budget = 100\npolicy = "softmax"\nmeans = [0.1, 0.2]\n')
    made = Example.make({"budget": 7}, file=file)
    assert made == Example(budget=7, policy="softmax", means=(0.1, 0.2))
    assert Example.make(file=str(file)).budget == 100


def test_resolved_settings_make_the_same_settings_again() -> None:
    made = Example.make({"budget": 3, "tau": 0.1, "means": [0.5]})
    assert made.resolved() == {
        "budget": 3,
        "policy": "ucb",
        "level": "standard",
        "tau": 0.1,
        "means": [0.5],
    }
    assert Example.make(made.resolved()) == made


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 1, "bugdet": 2}, r"unknown setting 'bugdet'\. Did you mean 'budget'\?"),
        ({}, r"budget is needed and was not given\."),
        ({"budget": "many"}, r"budget must be .*integer.*, got 'many'\."),
        ({"budget": 1, "level": "strict"}, r"level must be 'standard' or 'paper', got 'strict'\."),
        ({"budget": 1, "tau": float("nan")}, r"tau must be .*finite.*, got nan\."),
        ({"budget": 1, "tau": float("inf")}, r"tau must be .*finite.*, got inf\."),
        ({"budget": 1, "means": [0.1, "x"]}, r"means\.1 must be .*number.*, got 'x'\."),
    ],
)
def test_a_mistake_is_one_line_with_name_rule_and_value(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Example.make(values)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=message):
        Example(**values)  # type: ignore[arg-type]


def test_unknown_keys_of_a_file_are_errors_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'polcy'"):
        Example.make(file=written(tmp_path, 'budget = 5\npolcy = "ucb"\n'))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Example(budget=1).budget = 2  # type: ignore[misc]


def test_a_file_that_is_missing_unreadable_or_not_toml_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no configuration file .*gone\.toml"):
        read_toml(tmp_path / "gone.toml")
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'name = "\xe9"\n')
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(latin)
    with pytest.raises(ConfigError, match=r"run\.toml is not TOML: .*line 1"):
        read_toml(written(tmp_path, "budget = = 3\n"))
