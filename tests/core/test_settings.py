"""Settings: one model for files, flags and Python (`test_errors` has the mistakes)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from posse.core.errors import ConfigError
from posse.core.settings import Settings


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
    settings = Example.make({"budget": 7}, file=file)
    assert settings == Example(budget=7, policy="softmax", means=(0.1, 0.2))
    assert Example.make(file=str(file)).budget == 100


def test_resolved_settings_make_the_same_settings_again() -> None:
    settings = Example.make({"budget": 3, "tau": 0.1, "means": [0.5]})
    assert settings.resolved() == {
        "budget": 3,
        "policy": "ucb",
        "level": "standard",
        "tau": 0.1,
        "means": [0.5],
    }
    assert Example.make(settings.resolved()) == settings


def test_a_suggestion_uses_the_words_of_the_user() -> None:
    with pytest.raises(ConfigError) as caught:
        Example.make({"bugdet": 2})
    assert "unknown setting 'bugdet'. Did you mean 'budget'?" in caught.value.text


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Example(budget=1).budget = 2  # type: ignore[misc]


class Table(Settings):
    data: dict[str, str] | str = "none"
    aliases: ClassVar[Mapping[str, str]] = {
        "problem": "data",
        "features": "data.features",
        "rewards": "data.rewards",
    }


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        ({"data": {"features": "a", "rewards": "b"}}, {"problem": {"rewards": "c"}}),
        ({"problem": {"features": "a", "rewards": "b"}}, {"data": {"rewards": "c"}}),
        ({"data": {"features": "a", "rewards": "b"}}, {"rewards": "c"}),
        ({"features": "a", "rewards": "b"}, {"problem": {"rewards": "c"}}),
    ],
)
def test_tables_of_parts_are_merged_whatever_words_name_them(
    base: dict[str, object], changes: dict[str, object]
) -> None:
    assert Table(**Table.merged(base, changes)).data == {"features": "a", "rewards": "c"}
    assert Table(**base).but(**changes).data == {"features": "a", "rewards": "c"}
