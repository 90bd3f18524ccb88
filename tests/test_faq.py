"""Answers of docs/faq.md, checked against the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import posse
from posse.core.errors import PosseError
from posse.core.settings import Settings
from posse.runtime.sources import SourceSettings
from posse.systems import registry
from posse.systems.samba.layout import FederationFile
from posse.systems.samba.strict import clock

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")


def answer(question: str) -> str:
    """The text below a question, as one line."""
    assert f"## {question}\n" in PAGE
    return " ".join(PAGE.partition(f"## {question}\n")[2].partition("\n## ")[0].split())


def means_of(**settings: object) -> dict[str, float]:
    """Arms of a table in which "new" has three good ratings of three, and others have 80 ratings."""
    table = {
        "item": ["new"] * 3 + ["old"] * 80 + ["other"] * 80,
        "rating": [5] * 63 + [1] * 20 + [5] * 40 + [1] * 40,
    }
    record = posse.run(posse.Samba(data=table, threshold=3, horizon=20, **settings).plain())
    return dict(zip(record.problem["names"], record.problem["means"], strict=True))


def test_there_are_at_least_ten_questions() -> None:
    assert len(re.findall(r"^## .*\?", PAGE, re.MULTILINE)) >= 10


def test_three_good_ratings_of_three_have_the_mean_1_until_a_minimum_leaves_them_out() -> None:
    assert "--minimum 30" in answer("Why did an arm with three ratings win?")
    assert means_of(minimum=1) == {"new": 1.0, "old": 0.75, "other": 0.5}
    assert means_of(minimum=30) == {"old": 0.75, "other": 0.5}


def test_an_owner_infers_the_mean_and_every_record_says_so() -> None:
    assert "infer the largest mean" in answer("What can a shop infer about the others?")
    record = posse.run(posse.Samba(means=(0.2, 0.8), horizon=20, seed=7))
    said = " ".join(record.leaks)
    assert "Any owner alone can infer the largest mean and the total" in said
    assert "Any two of controller, comp and dealer together learn every score" in said


def test_a_simulation_has_a_seed_and_repeats_exactly() -> None:
    first, again = (posse.run(posse.Samba(means=(0.2, 0.8), horizon=50, seed=7)) for _ in range(2))
    assert first.seeds == again.seeds == (7,)
    assert first.total == again.total


def test_a_deployment_has_no_seed() -> None:
    assert "has no seed" in answer("Why is the total different each time?")
    assert "seed" not in FederationFile.model_fields
    with pytest.raises(PosseError, match="seed"):
        FederationFile.make({"run": "trial", "seed": 7})


def test_two_numbers_are_called_epsilon() -> None:
    answer("What does epsilon mean here?")
    explored = posse.run(posse.Samba(policy="epsilon-greedy", epsilon=0.2, horizon=20).plain())
    assert explored.privacy == ()
    market = {"agents": 5, "producers": 12, "horizon": 500, "path": "compiled"}
    spent = posse.run(posse.DpCombinatorial(**market, epsilon=1, delta="0.01", unit="entry"))
    assert all(entry["delta"] and entry["unit"] for entry in spent.privacy)


def test_the_dealer_learns_counts_and_the_pace() -> None:
    said = answer("What does the dealer see?")
    record = posse.run(posse.Samba(means=(0.2, 0.8), horizon=20, seed=7))
    (sentence,) = (line for line in _sentences(record.show) if line.startswith("The dealer"))
    for word in ("owners", "passes", "comparisons", "pace"):
        assert word in sentence
        assert word in said


def _sentences(value: object) -> list[str]:
    """All texts in a record's presentation."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [line for part in value for line in _sentences(part)]
        if isinstance(value, list | tuple)
        else []
    )


def test_a_slot_lasts_a_tenth_of_a_second() -> None:
    assert "a slot, 0.1 s by default" in answer("How much does protection cost?")
    assert clock.SLOT == 0.1


def test_the_times_are_those_of_the_page_of_benchmarks() -> None:
    said = answer("How much does protection cost?")
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert "| 38 / 10.6 / 8.3 µs per (step, owner) |" in page
    assert "38 µs per owner with ten owners" in said
    assert "median 260" in page
    assert "260 steps per second" in said


def test_sources_are_those_of_the_answer() -> None:
    said = answer("Can I use my own rewards?")
    kinds = SourceSettings.model_fields["kind"].annotation
    for kind, words in {
        "csv": "CSV file",
        "ratings": "table of ratings",
        "python": "Python function",
        "http": "HTTP service",
    }.items():
        assert kind in str(kinds)
        assert words in said


def test_python_blocks_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1
    done = subprocess.run(
        [sys.executable, "-c", blocks[0]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_settings_that_the_answers_name_exist() -> None:
    fields: set[str] = set()
    for system in registry.systems():
        settings: type[Settings] = system.Settings
        fields |= set(settings.model_fields)
    assert {"minimum", "owners", "items", "threshold", "epsilon", "seed"} <= fields
