"""Levels declare whom they protect against, what breaks them, and the attacks that test both."""

from __future__ import annotations

import pytest

import posse
from posse.results.document import document
from posse.systems import base
from posse.systems.modules import attacks_of
from posse.systems.registry import BUILT_IN, system

LEVELS = [(name, level) for name in BUILT_IN for level in system(name).levels]


@pytest.mark.parametrize(("name", "level"), LEVELS, ids=lambda value: getattr(value, "name", value))
def test_a_level_names_attacks_that_exist(name: str, level: base.Level) -> None:  # type: ignore[type-arg]
    known = {attack.name for attack in attacks_of(system(name)).attacks}
    assert set(level.attacks) <= known
    if level.name not in base.UNPROTECTED_LEVELS:
        assert level.against
        assert level.broken_by
        assert level.attacks


def test_fed_contextual_names_the_command_for_sums_and_noise() -> None:
    settings = posse.FedContextual(data="digits", clients=12, cohort=3, rounds=2)
    (protection,) = document(posse.run(settings)).protection
    assert "only locality" in protection.against
    command = dict(protection.lines)["stronger"]
    assert command.startswith("posse run fed-contextual ")
    stronger = posse.FedContextual(noise=1, levels=65536)
    assert stronger.protection == "noise and secure-sums"
    assert command.split()[3:] == ["--noise", "1", "--levels", "65536"]


def test_a_centralised_baseline_is_not_called_local() -> None:
    settings = posse.FedContextual(data="digits", clients=12, cohort=3, rounds=2, centralised=True)
    (protection,) = document(posse.run(settings)).protection
    assert "locality" not in protection.against
    assert "one place" in protection.against


def test_a_run_from_ratings_names_their_number(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.csv").write_text("item,rating\nheat,4\nheat,5\nalien,1\nalien,5\nalien,2\n")
    settings = posse.Samba(data=str(tmp_path / "r.csv"), threshold=3, horizon=20)
    for record in (posse.run(settings), posse.run(settings.plain())):
        assert sorted(record.show["ratings"]) == [2, 3]  # type: ignore[type-var, arg-type]
        assert "Simulated from 5 ratings." in document(record).sentences
