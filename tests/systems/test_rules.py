"""Every refusal of `systems` has its rule, and users can break each of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import posse
from posse.systems.runs import Run
from tests.kit.rules import Broken, check_broken, rules


@cache
def twin() -> Run:
    """A run without roles."""
    return posse.start(posse.Samba(path="plain", means=(0.2, 0.8), horizon=4))


@cache
def market() -> Run:
    """A run of roles that stores no messages."""
    settings = posse.DpCombinatorial(agents=3, producers=12, horizon=300)
    return posse.start(settings, transcript=0)


BROKEN: dict[str, Broken] = {
    # Runs
    "systems.deliver.no-messages": Broken("P100", "deliver", lambda _: twin().deliver()),
    "systems.world.simulated": Broken("P100", "world", lambda _: twin().answer(1, 0.5)),
    "systems.state.no-parties": Broken("P100", "state", lambda _: twin().state("comp")),
    "systems.view.no-parties": Broken("P100", "view", lambda _: twin().view("comp")),
    "systems.tap.no-messages": Broken("P100", "tap", lambda _: twin().tap()),
    "systems.number.not-open": Broken("P100", "number", lambda _: market().answer(7, 0.5)),
    "systems.transcript.missing": Broken("P100", "transcript", lambda _: market().tap()),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_mistake_breaks_its_rule(rule: str, tmp_path: Path) -> None:
    check_broken(rule, BROKEN[rule], tmp_path)


def test_every_rule_of_systems_is_broken_by_a_user() -> None:
    assert rules("systems/*.py") == set(BROKEN)
