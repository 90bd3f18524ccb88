"""What each party finds in its own record: what its role may know, in tables that anyone can read,
and nothing else.
"""

from __future__ import annotations

import json

import pytest

import posse
from posse.core.errors import DisagreementError
from posse.results.document import sections
from posse.results.store import Store
from posse.runtime.sources import SourceSettings
from posse.systems.dp_combinatorial.deploy import MarketFederation, lay_out
from posse.systems.samba.layout import layout
from tests.kit import market, mpc
from tests.kit.federations import free_port, laid_out
from tests.kit.parties import edit, run_and_record_all

OWN, OWED, BOUGHT, ARMS, REWARDS, BROUGHT, ALL, COST = (
    "Its own arm",
    "What it is owed",
    "What was bought",
    "Arms that it pulled",
    "Rewards that came in",
    "What it brought",
    "Privacy spent in all runs",
    "Cost in primitives",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))


def records():
    store = Store()
    return {row.party: store.get(row.id) for row in store.list()}


def titles(record):
    return [section.title for section in sections(record)]


def values(record, title):
    (section,) = [one for one in sections(record) if one.title == title]
    return {row[0]: row[1:] for row in section.rows}


def rated(folder, name, ratings):
    lines = [f"{age},{rating}" for age, rating in ratings]
    (folder / f"{name}.csv").write_text("\n".join(["age,rating", *lines, ""]))
    return {"kind": "ratings", "file": str(folder / f"{name}.csv")}


def test_owners_hold_ratings_and_every_record_holds_what_its_role_may_know(tmp_path):
    """Adults rate the first arm well and children badly; its owner counts adults only."""
    adults = rated(
        tmp_path, "clinic-1", [(30, 5), (40, 4), (50, 5), (9, 1), (8, 1), (7, 2), (6, 1), (5, 1)]
    )
    others = [rated(tmp_path, f"clinic-{i}", [(20, 3), (30, 2), (40, 4), (50, 1)]) for i in (2, 3)]
    sources = [{**adults, "where": "age >= 18"}, *others]
    owners = [{"name": f"clinic-{i + 1}", "source": source} for i, source in enumerate(sources)]
    paths = laid_out(tmp_path, world=None, owner=owners, threshold=3, budget=80, price=0.3)
    ends, _ = run_and_record_all(paths)
    found = records()
    first = found["clinic-1"]
    pulls = int(first.pulls.sum())
    assert first.total == (pulls,)  # every adult's rating is above 3
    assert values(first, OWN)["pulls"] == (str(pulls),)
    assert values(first, OWED)["owed"] == (f"{3 * pulls / 10:.15g}",)
    assert (
        sum(record.total[0] for name, record in found.items() if name.startswith("clinic"))
        == ends["customer"]["total"]
    )
    assert values(found["customer"], BOUGHT)["pulls"] == ("80",)
    assert values(found["customer"], BOUGHT)["owed to all owners"] == ("24",)
    assert titles(found["controller"]) == titles(found["comp"]) == []
    assert found["controller"].total == found["comp"].total == ()
    for name, record in found.items():
        assert list(record.problem["names"]) == ([name] if name.startswith("clinic") else [])
        assert titles(record) == {"customer": [BOUGHT, COST], "controller": [], "comp": []}.get(
            name, [OWN, OWED, COST]
        )
        assert ("owed" in record.summary) is name.startswith("clinic")
        rows = json.dumps([section.rows for section in sections(record)])
        assert not [other for other in found if other != name and other in rows]


def test_owners_and_customer_find_their_part_of_theorem_4(tmp_path):
    """What all of them count together is what a simulation of the same run counts for their
    kinds.
    """
    run_and_record_all(laid_out(tmp_path, budget=30))
    found = {
        name: values(record, COST) for name, record in records().items() if COST in titles(record)
    }
    owners = [name for name in found if name != "customer"]
    assert len(owners) == 3
    simulated = posse.run(posse.Samba(owners=3, budget=30, seed=7, level="paper", policy="ucb"))
    (table,) = [one for one in sections(simulated) if one.title == COST]
    for row in table.rows[:4]:
        counted = dict(zip(table.columns, row, strict=True))
        assert sum(int(found[name][row[0]][1]) for name in owners) == int(
            counted["owner"].replace(",", "")
        )
        assert found["customer"][row[0]][1] == counted["customer"]
    assert {found[name]["AES-GCM encryptions"] for name in owners} == {("27", "27")}
    assert found["customer"]["Paillier decryptions"] == ("1", "1")


def test_a_threshold_that_differs_is_named_before_anything_is_pulled(tmp_path):
    sources = [rated(tmp_path, f"clinic-{i}", [(20, 3), (30, 5)]) for i in (1, 2, 3)]
    owners = [{"name": f"clinic-{i + 1}", "source": source} for i, source in enumerate(sources)]
    paths = laid_out(tmp_path, world=None, owner=owners, threshold=3.0, budget=20)
    edit(tmp_path / "clinic-2.toml", "threshold = 3.0", "threshold = 4.0")
    ends, _ = run_and_record_all(paths)
    assert {type(end) for end in ends.values()} == {DisagreementError}
    assert any("threshold" in str(end) for end in ends.values())


def test_a_price_that_an_owner_did_not_agree_to_is_refused(tmp_path):
    paths = laid_out(tmp_path, budget=20, price=[0.1, 0.2, 0.3])
    edit(tmp_path / "clinic-2.toml", "price = [0.1, 0.2, 0.3]", "price = [0.1, 0.5, 0.3]")
    ends, _ = run_and_record_all(paths)
    assert {type(end) for end in ends.values()} == {DisagreementError}
    assert any("price" in str(end) for end in ends.values())
    given = {
        "run": "r",
        "level": "strict",
        "budget": 10,
        "price": [0.1, 0.2],
        "world": {"owners": 3},
    }
    with pytest.raises(Exception, match="one number, or one an owner, got 2 for 3 owners"):
        layout({**given, "owner": [{"name": f"clinic-{i}"} for i in (1, 2, 3)]}, tmp_path)


def test_puller_payee_and_parties_find_what_each_may_know(tmp_path):
    for number in (1, 2):  # two runs of the same parties: what the arms gave away adds up
        folder = tmp_path / str(number)
        folder.mkdir()
        run_and_record_all(mpc.laid_out(folder, steps=20, run=f"trial-{number}"))
    store = Store()
    runs = [store.get(row.id) for row in store.list()]
    for record in runs:
        may = {"puller": {ARMS, ALL}, "payee": {REWARDS}, "dealer": set()}.get(
            record.party, {BROUGHT}
        )
        assert set(titles(record)) == may
        assert bool(record.total) == (record.party == "payee")
        assert bool(record.pulls.sum()) == (record.party == "puller")
        assert bool(record.privacy) == (record.party == "puller")
        assert "seed" not in json.dumps(
            record.privacy
        )  # coins are the parties' and the dealer's own
    last, first = (record for record in runs if record.party == "puller")
    assert sum(int(row[0]) for row in values(last, ARMS).values()) == 20
    assert values(first, ALL)["runs"] == ("1",)
    assert values(last, ALL)["runs"] == ("2",)
    once, twice = (
        float(values(record, ALL)["epsilon"][0].replace(",", "")) for record in (first, last)
    )
    assert twice == pytest.approx(2 * once, rel=0.01)


def test_an_agent_finds_what_it_bought_learnt_earned_and_spent(tmp_path):
    run_and_record_all(market.laid_out_with_own_files(tmp_path))
    found = records()
    assert found.keys() == {"ada", "bob", "eve"}
    for name, record in found.items():
        assert titles(record) == ["What it bought", "Money", ALL]
        bought = values(record, "What it bought")
        assert [int(row[0].replace(",", "")) for row in bought.values()] == record.pulls.sum(
            axis=0
        ).tolist()
        assert all(0 <= float(row[2]) <= 1 for row in bought.values() if row[2])
        assert set(values(record, "Money")) == {
            "earned",
            "alone (estimate)",
            "more than alone (estimate)",
        }
        assert values(record, ALL)["runs"] == ("1",)
        rows = json.dumps([section.rows for section in sections(record)])
        assert not [other for other in found if other != name and other in rows]


SUMS = "What noise in every round adds up to"


@pytest.mark.parametrize(
    "given", [{"reports": [1, 2, 4, 8], "start": None}, {"method": "naive", "start": None}]
)
def test_an_agent_finds_how_large_its_first_noise_was_and_what_rounds_add_up_to(tmp_path, given):
    """Each from its own report and ledger; no sentence about a simulation, for its noise is its
    own.
    """
    own = market.laid_out_with_own_files(tmp_path, **given)
    run_and_record_all(own)
    for record in records().values():
        (warning,) = record.warnings
        assert "Noise of its first report (round 1) is" in warning
        assert (SUMS in titles(record)) is ("method" in given)
        assert "seed" not in json.dumps([entry.get("not_covered") for entry in record.privacy])
    if "method" in given:
        assert "basic composition of 12 rounds, unit entry" in values(record, SUMS)


def test_agents_of_a_simulated_market_say_where_their_noise_comes_from(tmp_path):
    names = [f"agent {i}" for i in (1, 2)]
    members = [
        {"name": name.replace(" ", "-"), "listen": f"127.0.0.1:{free_port()}"} for name in names
    ]
    given = {
        "run": "m1",
        "sync": False,
        "rounds": 12,
        "start": 3,
        "agents": 2,
        "producers": 3,
        "alpha": 0.3,
        "agent": members,
    }
    run_and_record_all(lay_out(MarketFederation.make(given), tmp_path))
    found = records()
    assert found.keys() == {"agent-1", "agent-2"}
    for record in found.values():
        assert "comes from the recorded world seed" in json.dumps(record.privacy[0]["not_covered"])


def test_ratings_need_a_threshold_that_the_run_names(tmp_path):
    source = rated(tmp_path, "own", [(20, 3), (30, 5)])
    with pytest.raises(Exception, match="needs a threshold that the run names"):
        SourceSettings(**source).source(7, tmp_path)
    owners = [{"name": f"clinic-{i}", "source": source} for i in (1, 2)]
    with pytest.raises(Exception, match="ratings need a threshold that all agree on"):
        layout({"run": "r", "level": "strict", "budget": 10, "owner": owners}, tmp_path)
