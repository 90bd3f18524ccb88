"""`posse up --example`: a federation that anybody can run who has the wheel."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from posse.cli.operators.up import compare, prepare
from posse.core.settings import read_toml
from posse.results.store import Store
from posse.systems.parties import read_federation
from tests.kit.commands import Call, Outcome, one_line

SHOPS = ("harbour", "market", "north", "station")
SERVERS = ("comp", "controller", "dealer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("example")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> Outcome:
    from tests.kit.commands import call

    home = str(folder / "home")
    return call("up", "--example", "--folder", str(folder / "run"), POSSE_HOME=home, COLUMNS="80")


@pytest.fixture
def document(folder: Path, outcome: Outcome, posse: Call) -> dict[str, object]:
    """What the same command prints with --json when the run is over."""
    again = posse("up", "--example", "--folder", str(folder / "run"), "--json")
    assert "this run is over" in again.err
    loaded: dict[str, object] = json.loads(again.out)
    return loaded


def test_the_answer_comes_first_and_fits_a_terminal(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert re.fullmatch(
        r"\d{3} of 400 coupons were used. An even split earns 211, the best shop alone 284.",
        lines[0],
    )
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)


def test_every_party_has_a_record_with_what_it_knows_and_no_more(
    folder: Path, document: dict[str, object]
) -> None:
    parties = {party["party"]: party for party in document["parties"]}  # type: ignore[attr-defined]
    assert list(parties) == ["customer", *SHOPS, *SERVERS]
    total = parties["customer"]["total"]
    assert document["total"] == total
    assert sum(parties[shop]["total"] for shop in SHOPS) == total
    assert sum(parties[shop]["pulls"] for shop in SHOPS) == parties["customer"]["pulls"] == 400
    with Store(folder / "home" / "runs.sqlite") as store:
        for name, party in parties.items():
            record = store.get(party["record"])
            assert record.party == name
            assert record.total == (() if party["total"] is None else (party["total"],))
            known = {"customer": set(), **{shop: {shop} for shop in SHOPS}}
            assert set(record.problem["names"]) == known.get(name, set())
    for server in SERVERS:
        assert parties[server]["total"] is parties[server]["pulls"] is None


def test_a_shop_earns_what_its_own_file_says(folder: Path, document: dict[str, object]) -> None:
    for party in document["parties"]:  # type: ignore[attr-defined]
        if party["role"] == "owner":
            with (folder / "run" / f"{party['party']}.csv").open(encoding="utf-8") as lines:
                used = [int(row["used"]) for row in csv.DictReader(lines)]
            assert party["total"] == sum(used[i % len(used)] for i in range(party["pulls"]))


def rounded(file: Path) -> tuple[int, int]:
    """What an even split and the best shop alone earn."""
    federation = read_federation(file)
    comparison = compare(federation.steps, federation.known_rewards())
    return round(comparison["even_split"]), round(comparison["best_alone"])


def test_the_comparison_is_computed_from_the_files(tmp_path: Path) -> None:
    federation = prepare(tmp_path)
    assert rounded(federation) == (211, 284)
    (tmp_path / "north.csv").write_text("coupon,used\n1,1\n2,1\n", encoding="utf-8")
    assert rounded(federation) == (273, 400)


def test_the_files_name_level_and_policy_and_no_seed(tmp_path: Path) -> None:
    federation = prepare(tmp_path)
    values = read_toml(federation)
    assert (values["level"], values["policy"]) == ("strict", "thompson")
    assert "world" not in values
    assert "seed" not in federation.read_text(encoding="utf-8")
    assert read_federation(federation).steps == 400


def test_files_that_the_user_changed_stay(tmp_path: Path) -> None:
    federation = prepare(tmp_path)
    first = federation.read_text(encoding="utf-8")
    (tmp_path / "north.csv").write_text("coupon,used\n1,1\n", encoding="utf-8")
    prepare(tmp_path)
    assert (tmp_path / "north.csv").read_text(encoding="utf-8") == "coupon,used\n1,1\n"
    assert federation.read_text(encoding="utf-8") == first


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "cli.file.missing"),
        (("federation.toml", "--example"), "cli.example.with-file"),
    ],
)
def test_a_file_or_the_example_is_needed_and_not_both(
    words: tuple[str, ...], rule: str, posse: Call
) -> None:
    assert f"(rule: {rule}; see docs/errors/P100.md)" in one_line(posse("up", *words))


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, posse: Call) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = posse("up", "--example", "--folder", str(tmp_path / "file" / "below"))
    assert "(rule: cli.folder.not-writable; " in one_line(refused)
