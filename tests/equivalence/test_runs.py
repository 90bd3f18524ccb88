"""Runs give what they gave before, bit for bit: five of each system here, and all eighty in the
long tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import jax
import pytest

from tests.equivalence.runs import SYSTEMS, Entry, differences, load, machine, run_entry

WRITTEN_ON, ENTRIES = load()


def name(entry: Entry) -> str:
    """Name an entry by its system and number."""
    return f"{entry['system']}-{ENTRIES.index(entry)}"


@pytest.fixture(autouse=True, scope="module")
def compiled_as_users_have_it() -> Iterator[None]:
    """Other tests compile quickly, which rounds last bits otherwise."""
    for quick in (False, True):
        jax.config.update("jax_disable_most_optimizations", quick)
        jax.clear_caches()
        if not quick:
            yield


def check(entry: Entry) -> None:
    assert differences(entry, run_entry(entry), machine() == WRITTEN_ON) == []


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.get("quick")], ids=name)
def test_quick_runs(entry: Entry) -> None:
    check(entry)


@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES, ids=name)
def test_all_runs(entry: Entry) -> None:
    check(entry)


def test_a_difference_is_named() -> None:
    entry = {
        "digest": "a",
        "weights": "b",
        "portable": True,
        "figures": {"average_reward": 0.5, "decisions": 10},
    }
    same = {"digest": "a", "weights": "b", "figures": {"average_reward": 0.500001, "decisions": 10}}
    assert differences(entry, same, True) == []
    assert differences(entry, {**same, "digest": "c"}, True) == ["digest"]
    assert differences(entry, {**same, "weights": "c"}, True) == ["weights"]
    assert differences(entry, {**same, "weights": "c"}, False) == []
    assert differences(entry, {**same, "digest": "c"}, False) == ["digest"]
    assert differences({**entry, "portable": False}, {**same, "digest": "c"}, False) == []
    assert (
        differences(entry, {**same, "figures": {"average_reward": 0.6, "decisions": 10}}, False)
        != []
    )


def test_twenty_runs_a_system_of_which_five_are_quick() -> None:
    assert Counter(entry["system"] for entry in ENTRIES) == dict.fromkeys(SYSTEMS, 20)
    assert Counter(entry["system"] for entry in ENTRIES if entry.get("quick")) == dict.fromkeys(
        SYSTEMS, 5
    )
    assert (
        len({entry["digest"] for entry in ENTRIES}) > 70
    )  # a twin has the digest of its secure run, nothing else
