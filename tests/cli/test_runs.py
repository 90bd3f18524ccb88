"""The store from the command line."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from posse.results import Row, Store
from posse.results.document import document, seconds_per_step
from posse.results.export import filtered
from tests.kit.commands import Call, one_line
from tests.kit.records import example_market_record, example_record


@pytest.fixture
def store() -> Store:
    store = Store()
    store.save(example_record(id="0a-first"))
    store.save(example_record(id="0b-second", level="plain", summary={"label": "mine"}))
    return store


def test_an_empty_list_says_how_to_begin(posse: Call) -> None:
    assert "posse demo" in posse("runs", "list").out
    assert json.loads(posse("runs", "list", "--json").out) == []
    assert "no run in" in one_line(posse("runs", "show", "last"))


@pytest.mark.usefixtures("store")
def test_list(posse: Call) -> None:
    out = posse("runs", "list").out
    assert out.index("0b-second") < out.index("0a-first")
    assert "mine" in out
    rows = json.loads(posse("runs", "list", "--json", "--limit", "1").out)
    assert [(row["id"], row["label"]) for row in rows] == [("0b-second", "mine")]
    assert "the last 1 of 2" in posse("runs", "list", "--limit", "1").err


def test_a_damaged_record_is_listed_and_named(posse: Call, store: Store) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE arrays SET data = x'00ff' WHERE name = 'pulls' AND run = '0a-first'")
    db.close()
    assert "0a-first" in posse("runs", "list").out
    assert "run 0a-first" in one_line(posse("runs", "show", "0a"))
    assert posse("runs", "delete", "0a", "--yes").code == 0


def test_a_damaged_curve_takes_no_figure_from_other_runs(posse: Call, store: Store) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE arrays SET data = x'00ff' WHERE name = 'regret' AND run = '0a-first'")
    db.close()
    figures = {row["id"]: row["figures"] for row in json.loads(posse("runs", "list", "--json").out)}
    assert figures["0b-second"]["regret_mean"] == store.get("0b-second").regret_mean
    assert figures["0a-first"]["total_mean"] > 0
    assert figures["0a-first"]["regret_mean"] is None
    rows = json.loads(
        posse("runs", "list", "--json", "--where", "total_mean>0", "--sort", "id").out
    )
    assert [row["record"] for row in rows] == ["0a-first", "0b-second"]


@pytest.mark.usefixtures("store")
def test_show_by_prefix_and_last(posse: Call) -> None:
    shown = posse("runs", "show", "0a", "--full").out
    for word in (
        "0a-first",
        "clinic-c",
        "owner → controller",
        "CPU time by role",
        "What is not protected",
    ):
        assert word in shown
    for words in (("last",), ()):
        assert json.loads(posse("runs", "show", *words, "--json").out)["id"] == "0b-second"
    assert "begins several ids" in one_line(posse("runs", "show", "0"))
    assert "no run 'zz'" in one_line(posse("runs", "show", "zz"))


def test_delete_never_asks_where_nobody_answers(posse: Call, store: Store) -> None:
    assert "Pass --yes" in one_line(posse("runs", "delete", "0a"))
    assert len(store) == 2
    assert "no run 'zz'" in one_line(posse("runs", "delete", "0a", "zz", "--yes"))
    assert len(store) == 2
    assert "deleted 2 runs" in posse("runs", "delete", "0a", "last", "--yes").err
    assert len(store) == 0


@pytest.mark.usefixtures("store")
def test_export_and_report(posse: Call, tmp_path: Path) -> None:
    assert posse("runs", "export", "0a", "0b", "--out", "curves.csv").code == 0
    assert (tmp_path / "curves.csv").read_text().count("\n") > 100
    assert "cannot export to '.xlsx'" in one_line(
        posse("runs", "export", "0a", "--out", "curves.xlsx")
    )
    assert posse("runs", "report", "0a", "0b").code == 0
    assert "<html" in (tmp_path / "posse-report.html").read_text()
    assert "does not exist" in one_line(posse("runs", "report", "0a", "--out", "nowhere/r.html"))


def test_a_list_shows_what_is_off_what_was_done_and_last_first(posse: Call) -> None:
    made = "2026-01-01T00:00:0{}+00:00"
    twin = example_record(
        id="0d", level="plain", created=made.format(2), summary={"twin_of": "paper"}
    )
    off = {"config": {"policy": "ucb", "budget": 200, "runs": 9}, "show": {"off": ["aes", "mask"]}}
    Store().save(twin)
    Store().save(
        example_record(id="0c", level="paper", **off, status="interrupted", created=made.format(1))
    )
    out = posse("runs", "list", COLUMNS="200").out
    assert out.index("0c") < out.index("0d")
    for words in (
        "plain, twin of paper",
        "paper, aes and mask off (interrupted after 800 of 1,800 steps)",
    ):
        assert words in out
    assert "three clinics" in out
    assert "2026-01-01 00:00" in out
    assert "three clinics" not in posse("runs", "list", COLUMNS="60").out
    shown = posse("runs", "show", "0c", COLUMNS="200").out
    assert "interrupted after 800 of 1,800 steps" in shown
    assert Store().get("last").id == "0c"


def test_a_list_shows_what_differs_and_what_is_running(posse: Call) -> None:
    store = Store()
    for tau in (0.1, 0.5):
        store.save(
            example_record(
                id=f"0t-{tau * 10:.0f}", config={"policy": {"name": "softmax", "tau": tau}}
            )
        )
    nothing = {"total": (), "pulls": (), "steps": (), "reward": (), "regret": None}
    config = {"policy": {"name": "softmax", "tau": 0.9}, "horizon": 800}
    handle = store.begin(example_record(id="0run", config=config, party="customer", **nothing))
    handle.beat(120, 800)
    out = posse("runs", "list", COLUMNS="200").out
    head, *lines = out.splitlines()
    assert "settings" in head
    assert "party" in head
    shown = {id: next(line for line in lines if id in line) for id in ("0run", "0t-1", "0t-5")}
    assert "standard (running, 120 of 800)" in shown["0run"]
    assert "customer" in shown["0run"]
    assert ("tau 0.1" in shown["0t-1"], "tau 0.5" in shown["0t-5"]) == (True, True)
    rows = {row["id"]: row for row in json.loads(posse("runs", "list", "--json").out)}
    assert (rows["0run"]["status"], rows["0run"]["time"], rows["0run"]["whole"]) == (
        "running",
        120,
        800,
    )
    assert rows["0t-5"]["settings"] == {"policy": "softmax", "policy.tau": 0.5}
    assert "running: 120 of 800 steps" in posse("runs", "show", "0run", COLUMNS="200").out


def test_what_a_party_recorded_is_shown_without_what_it_does_not_know(posse: Call) -> None:
    nothing = {"total": (), "pulls": (), "steps": (), "reward": (), "regret": None, "seeds": ()}
    store = Store()
    for party in ("controller", "customer"):
        known = {"total": (120.0,)} if party == "customer" else {}
        store.save(
            example_record(id=f"0p-{party}", run_id="0run", party=party, **{**nothing, **known})
        )
    listed = posse("runs", "list", COLUMNS="200").out
    assert [word in listed for word in ("controller", "customer", "120")] == [True] * 3
    shown = posse("runs", "show", "0p-controller", COLUMNS="200").out
    assert "ucb · three clinics · 200 steps\n" in shown
    assert "party controller" in shown
    assert "run 0run" in shown
    assert (
        "ucb (standard), customer"
        in posse("compare", "0p-controller", "0p-customer", COLUMNS="200").out
    )
    assert posse("runs", "report", "0p-controller", "0p-customer").code == 0


@pytest.fixture
def market() -> Store:
    store = Store()
    for level in ("plain", "alone", "tight"):
        store.save(example_market_record(id=f"0m-{level}", level=level))
    return store


@pytest.mark.usefixtures("market")
def test_a_market_is_shown_in_its_own_words(posse: Call) -> None:
    listed = posse("runs", "list", COLUMNS="120").out
    assert all(word in listed for word in ("producers", "rounds", "12,042 EUR", "alone"))
    shown = posse("runs", "show", "0m-tight", "--full", COLUMNS="120").out
    for words in (
        "4 agents · 6 producers · 1,000 rounds · 6 runs",
        "revenue (EUR)",
        "per round and agent",
        "What each agent earned",
        "Units",
        "Protection: tight",
        "ε = 1 at δ = 1e-05 for one purchase",
        "an agent's own later choices",
    ):
        assert words in shown, words
    assert "owner" not in shown
    assert "reward" not in shown
    assert "alone: nothing is shared" in posse("runs", "show", "0m-alone", COLUMNS="120").out
    assert "no protection" in posse("runs", "show", "0m-plain", COLUMNS="120").out
    assert "revenue (EUR)" in posse("compare", "0m-alone", "0m-tight", COLUMNS="120").out


@pytest.mark.usefixtures("market", "store")
def test_a_mixed_list_has_the_common_words(posse: Call) -> None:
    listed = posse("runs", "list", COLUMNS="140").out
    assert all(word in listed for word in ("arms", "steps", "12,042 EUR"))
    assert "producers" not in listed


@pytest.mark.usefixtures("market", "store")
def test_what_parties_earned_is_exported(posse: Call, tmp_path: Path) -> None:
    assert (
        posse("runs", "export", "0m-tight", "0m-alone", "--parties", "--out", "parties.csv").code
        == 0
    )
    lines = (tmp_path / "parties.csv").read_text().splitlines()
    assert lines[0] == "record,label,run,seed,party,total,regret,policy,horizon,runs"
    assert len(lines) == 1 + 2 * 6 * 4
    assert "Known: .csv, .parquet" in one_line(
        posse("runs", "export", "0m-tight", "--parties", "--out", "a.json")
    )
    assert "none of these records" in one_line(
        posse("runs", "export", "0a", "--parties", "--out", "a.csv")
    )


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_what_joining_is_worth_fits_and_names_the_loser(
    posse: Call, market: Store, columns: str
) -> None:
    words = ("compare", "0m-alone", "0m-tight")
    short = posse(*words, COLUMNS=columns).out
    assert "isles" in short
    full = posse(*words, "--full", COLUMNS=columns).out
    assert "loses" in full
    for out in (short, full):
        assert max(len(line) for line in out.splitlines()) <= int(columns)


def test_seconds_are_divided_among_parties() -> None:
    record = example_market_record(seconds=24.0)
    assert seconds_per_step(record) == pytest.approx(24.0 / (6 * 1000 * 4))
    samba = example_record()
    assert seconds_per_step(samba) == pytest.approx(samba.seconds / (800 * 3))


@pytest.fixture
def swept() -> Store:
    store = Store()
    for i, (policy, horizon) in enumerate((p, h) for p in ("ucb", "thompson") for h in (100, 200)):
        config = {
            "policy": {"name": policy, "parameters": {"tau": 0.5 + i}},
            "horizon": horizon,
            "owners": 3,
        }
        store.save(
            example_record(
                id=f"0s-{i}", policy=policy, horizon=horizon, config=config, level="plain"
            )
        )
    return store


@pytest.mark.usefixtures("swept")
def test_a_list_in_json_has_all_settings_and_figures(posse: Call) -> None:
    rows = json.loads(posse("runs", "list", "--json").out)
    assert len(rows) == 4
    figures = {row["id"]: row["figures"] for row in rows}
    whole = Store().get("0s-3")
    assert figures["0s-3"]["policy.tau"] == 3.5
    assert figures["0s-3"]["regret_mean"] == whole.regret_mean
    assert figures["0s-3"]["total_error"] > 0
    assert {"owners", "seconds", "bytes", "messages"} <= figures["0s-0"].keys()


@pytest.mark.usefixtures("swept")
def test_a_list_is_filtered_sorted_and_grouped(posse: Call) -> None:
    def ids(*words: str) -> list[str]:
        return [row["record"] for row in json.loads(posse("runs", "list", "--json", *words).out)]

    assert ids("--where", "policy=ucb", "--sort", "horizon") == ["0s-0", "0s-1"]
    assert ids("--where", "horizon>=150", "--where", "tau>2", "--sort", "-id") == ["0s-3"]
    assert ids("--where", "policy==ucb", "--where", "horizon==200") == ["0s-1"]
    assert ids("--where", "policy~THOMP", "--sort", "-total_mean") == ["0s-3", "0s-2"]
    assert ids("--sort", "-horizon,policy.tau", "--limit", "2") == ["0s-1", "0s-3"]
    shown = posse("runs", "list", "--columns", "id,tau,earned")
    assert "policy.tau" in shown.out
    assert "4 rows" in shown.err
    assert "Did you mean 'horizon'" in one_line(posse("runs", "list", "--sort", "horizn"))
    assert "must be like policy=ucb" in one_line(posse("runs", "list", "--where", "policy"))
    for twice in ("horizon>>3", "horizon=>3", "policy===ucb"):
        assert "must be like policy=ucb" in one_line(posse("runs", "list", "--where", twice))
    assert "Give a number" in one_line(posse("runs", "list", "--where", "horizon>many"))
    assert "Give a number" in one_line(posse("runs", "list", "--where", "tau=0,5"))


def test_a_column_of_numbers_and_words_compares_numbers_as_numbers() -> None:
    rows: list[Row] = [{"h": x, "made": "2026-11-16"} for x in ("10000", "2500", "3000.0", "auto")]
    assert [row["h"] for row in filtered(rows, ["h>=3000"])] == ["10000", "3000.0"]
    assert [row["h"] for row in filtered(rows, ["h=3000"])] == ["3000.0"]
    assert [row["h"] for row in filtered(rows, ["h!=3000", "h~0"])] == ["10000", "2500"]
    assert [row["h"] for row in filtered(rows, ["h==auto", "made>=2026"])] == ["auto"]


@pytest.mark.usefixtures("store")
def test_the_short_form_has_25_lines_and_names_the_command_for_the_rest(posse: Call) -> None:
    short = posse("runs", "show", "0a", COLUMNS="80").out
    assert len(short.splitlines()) <= 25
    command = re.search(r"posse (runs show \S+ --full)", short)
    assert command is not None
    full = posse(*command[1].split()).out
    shown = document(Store().get("0a"))
    assert len(full) > 2 * len(short)
    for part in shown.details:
        assert part.heading in " ".join(full.split())
    for text in (short, full):
        assert shown.headline in " ".join(text.split())
        assert all(name in text for name, _ in shown.protection[0].lines)


def test_the_flag_of_the_short_form_names_the_other_one(posse: Call) -> None:
    Store().save(example_record(id="0a-first"))
    for words in (("runs", "show", "0a"), ("simulate", "--horizon", "20"), ("demo",)):
        assert "--full" in one_line(posse(*words, "--brief"))


def test_a_run_that_is_not_saved_names_no_id_to_look_up(posse: Call) -> None:
    out = " ".join(posse("run", "--plain", "--horizon", "20", "--no-save").out.split())
    assert "--full" in out
    assert "posse runs show" not in out


def test_dropped_rows_are_named_by_show_and_arms(posse: Call, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("item,rating\nheat,4\nalien,1\nheat,x\nheat,N/A\n")
    words = ("--data", "r.csv", "--threshold", "3", "--skip-bad")
    assert posse("run", "samba", "--plain", *words, "--horizon", "20", "--runs", "1").code == 0
    for full in ((), ("--full",)):
        assert "r.csv: 2 of 4 rows were dropped as bad" in " ".join(
            posse("runs", "show", "last", *full).out.split()
        )
    shown = posse("problems", "show", *words)
    assert "warning: r.csv: 2 of 4 rows were dropped as bad" in shown.err
    assert (
        "2 of 4 rows"
        in json.loads(posse("problems", "show", "r.csv", *words[2:], "--json").out)["dropped"][0]
    )
    both = posse("problems", "show", "r.csv", *words)
    assert both.code == 2
    assert "unexpected extra argument (r.csv)" in both.err


@pytest.fixture
def mixed() -> Store:
    """Runs of two systems, one of them on a file of the user's."""
    store = Store()
    own = {"policy": {"name": "ucb"}, "horizon": 100, "data": "dev.csv"}
    problem = {"name": "own", "words": {"step": "round"}}
    store.save(
        example_record(
            id="0x-own", kind="devices", horizon=100, config=own, problem=problem, level="plain"
        )
    )
    store.save(example_record(id="0x-named", created="2025-06-01T00:00:00+00:00"))
    return store


@pytest.mark.usefixtures("mixed")
def test_names_that_a_list_shows_are_names_to_filter_by(posse: Call) -> None:
    def ids(*words: str) -> list[str]:
        return [row["record"] for row in json.loads(posse("runs", "list", "--json", *words).out)]

    assert ids("--where", "steps>=150") == ids("--where", "rounds>=150") == ["0x-named"]
    assert ids("--sort", "-steps") == ["0x-named", "0x-own"]
    assert ids("--where", "made<2026") == ["0x-named"]
    assert ids("--where", "data=dev.csv") == ids("--where", "system=devices") == ["0x-own"]
    assert ids("--where", "data=three clinics") == ["0x-named"]
    head, _, *lines = posse(
        "runs", "list", "--columns", "data,problem,steps", "--sort", "id"
    ).out.splitlines()
    assert head.split() == ["data", "problem", "steps"]
    assert [line.split()[-2:] for line in lines] == [["clinics", "200"], ["own", "100"]]
    unknown = one_line(posse("runs", "list", "--where", "stps>1"))
    assert "Did you mean 'steps'?" in unknown


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_filtered_list_has_the_columns_of_a_list(posse: Call, columns: str) -> None:
    whole = posse("runs", "list", COLUMNS=columns).out.splitlines()[0].split()
    assert whole[:4] == ["id", "system", "policy", "level"]
    assert (
        {"steps", "runs", "earned", "data", "made"} <= {*whole}
        if columns == "120"
        else "earned" in whole
    )
    assert (
        posse("runs", "list", "--where", "runs>0", COLUMNS=columns).out.splitlines()[0].split()
        == whole
    )
    one = posse(
        "runs", "list", "--where", "data~dev", "--sort", "-seconds", COLUMNS=columns
    ).out.splitlines()
    assert "system" not in one[0]  # the runs that are left are of one
    assert {"rounds", "seconds"} <= {*one[0].split()}
    assert len(one) == 3


@pytest.mark.usefixtures("mixed")
def test_a_kind_that_no_run_has_is_not_an_empty_store(posse: Call) -> None:
    out = " ".join(posse("runs", "list", "--kind", "nosuch").out.split())
    assert "No runs of 'nosuch' in" in out
    assert "It has runs of: clinics, devices." in out
