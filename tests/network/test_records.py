"""What a party leaves in the store of its machine: one record over all its lives, whatever ends
them.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from posse.core.errors import ConfigError, DisagreementError
from posse.results.record import Record
from posse.results.store import Store
from posse.runtime.place import open_place
from posse.systems import parties
from posse.systems.parties import RECORD, deploy_by_name, deployed_systems, run_id
from tests.kit.federations import laid_out
from tests.kit.parties import edit, run_and_record_all

pytestmark = pytest.mark.usefixtures("home")


def test_a_run_that_fails_at_the_start_and_then_goes_on_has_one_record_a_party(tmp_path):
    paths = laid_out(tmp_path, budget=40)
    edit(tmp_path / "clinic-2.toml", 'policy = "ucb"', 'policy = "thompson"')
    ends, remarks = run_and_record_all(paths)
    assert {type(end) for end in ends.values()} == {DisagreementError}
    before = {row.party: row.id for row in Store().list()}
    assert len(before) == len(paths)
    assert {row.status for row in Store().list()} == {"failed"}
    edit(tmp_path / "clinic-2.toml", 'policy = "thompson"', 'policy = "ucb"')
    ends, more = run_and_record_all(paths)
    assert {row.party: row.id for row in Store().list()} == before
    assert {row.status for row in Store().list()} == {"finished"}
    assert ends["customer"]["pulls"] == 40
    assert not remarks
    assert not more


def test_records_of_one_run_belong_together_and_those_of_another_of_its_name_do_not(tmp_path):
    first, second = (tmp_path / name for name in ("first", "second"))
    ids = []
    for folder in (first, second):
        folder.mkdir()
        ids.append({run_id(open_place(path)) for path in laid_out(folder)})
    assert [len(each) for each in ids] == [1, 1]
    assert ids[0] != ids[1]
    assert all(each.startswith("trial-1-") for each in ids[0] | ids[1])


def test_a_damaged_note_of_the_record_is_made_anew(tmp_path):
    (tmp_path / RECORD).write_text("{")
    made = parties._record_identity(tmp_path / RECORD)
    assert (
        parties._record_identity(tmp_path / RECORD)
        == made
        == json.loads((tmp_path / RECORD).read_text())
    )


def test_a_store_that_fails_is_remarked_once_and_stops_nothing(tmp_path, home):
    home.write_text("no folder")
    ends, remarks = run_and_record_all(laid_out(tmp_path, budget=20))
    assert ends["customer"]["pulls"] == 20
    assert len(remarks) == 6
    assert all("leaves no record" in text for text in remarks)


def test_rows_say_how_far_a_party_is(tmp_path, monkeypatch):
    monkeypatch.setattr(parties, "BEAT", 0.02)
    monkeypatch.setattr("posse.results.store.EVERY", 0.0)
    seen = []
    beat = Store.note_progress
    monkeypatch.setattr(
        Store, "note_progress", lambda store, *what: seen.append(what) or beat(store, *what)
    )
    run_and_record_all(laid_out(tmp_path, budget=200))
    assert {whole for _, done, whole in seen if done} == {200}
    assert all(done <= 200 for _, done, _ in seen)


def test_systems_that_do_not_run_as_parties_are_named(tmp_path):
    assert "samba" in [system.name for system in deployed_systems()]
    with pytest.raises(ConfigError) as error:
        deploy_by_name("fed-contextual")
    assert error.value.rule == "systems.protocol.no-parties"


def test_the_privacy_spent_holds_for_every_entry_of_the_party():
    record = Record(kind="toy", level="strict", config={}, problem={}, party="ada")

    def spent(*entries):
        return parties._privacy_spent(replace(record, privacy=entries))

    once = {"party": "ada", "epsilon": 2.0, "delta": 0.0}
    assert spent(once, {"party": "ada", "epsilon": 1.0, "delta": 1e-5}) == (2.0, 1e-5)
    assert spent(once, {"party": "bob", "epsilon": 3.0, "delta": 1e-3}) == (2.0, 0.0)
    assert spent(once, {"party": "ada", "epsilon": None, "delta": 1e-6}) == (float("inf"), 1e-6)
    assert spent({"party": "bob", "epsilon": 3.0, "delta": 1e-3}) is None
