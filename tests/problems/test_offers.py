"""Markets from a user's own files, and one clear line for each way they can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posse.core.errors import DataError
from posse.core.random import PARTIAL, uniform
from posse.problems.markets.settings import read_market
from posse.problems.tables.options import ReadOptions
from tests.kit.rules import refused

Write = Callable[[str, str], Path]

OFFERS = "agent,supplier,cost,capacity\nnorth,oak,2.5,10\nsouth,elm,1,8\nsouth,oak,2,4\n"
QUALITIES = "supplier,quality\nelm,0.5\noak,0.9\n"
RECORDS = "supplier,quality\noak,1\nelm,0\noak,0.25\noak,0.5\nelm,1\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str, name: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return written


def test_offers_and_qualities(write: Write) -> None:
    offers, qualities = write(OFFERS, "offers.csv"), write(QUALITIES, "qualities.csv")
    market = read_market(offers, qualities, alpha=0.6, rho=4)
    assert market.agents == ("north", "south")
    assert market.producers == ("oak", "elm")
    assert market.quality.tolist() == [[0.9, 0.5]]
    assert market.cost.tolist() == [[2.5, 0.0], [2.0, 1.0]]
    assert market.capacity.tolist() == [[10, 0], [4, 8]]
    assert (market.alpha, market.rho) == (0.6, 4.0)
    assert market.source == f"{offers}, {qualities}"


def test_records_are_kept_in_the_order_of_their_rows(write: Write) -> None:
    market = read_market(
        write(OFFERS, "offers.csv"), records=write(RECORDS, "records.csv"), alpha=0.5
    )
    assert market.quality.tolist() == [[1.75 / 3, 0.5]]
    values = [1.0, 0.25, 0.5]
    begin = int(uniform(np.uint64(3), PARTIAL, 1, 0, 0) * 3)
    found = [market.good(3, 1, 0, t, t - 1, 1) for t in range(1, 7)]
    assert found == [values[(begin + n) % 3] for n in range(6)]


@pytest.mark.parametrize(
    ("offers", "qualities"),
    [
        (OFFERS.replace(",", ";"), QUALITIES.replace(",", "\t")),
        ("\ufeff# our offers\n" + OFFERS.replace("\n", "\r\n"), "# by hand\n\n" + QUALITIES),
        (
            "Cost,Supplier,note,Capacity,Agent\n2.5,oak,x,10,north\n1,elm,,8.0,south\n2,oak,,4e0,south\n",
            QUALITIES,
        ),
    ],
)
def test_the_same_market_written_otherwise(write: Write, offers: str, qualities: str) -> None:
    market = read_market(write(offers, "offers.csv"), write(qualities, "qualities.csv"), alpha=0.6)
    assert market.cost.tolist() == [[2.5, 0.0], [2.0, 1.0]]
    assert market.capacity.tolist() == [[10, 0], [4, 8]]


def test_a_delimiter_can_be_told(write: Write) -> None:
    files = (
        write(OFFERS.replace(",", "^"), "offers.csv"),
        write(QUALITIES.replace(",", "^"), "qualities.csv"),
    )
    assert read_market(*files, alpha=0.6, options=ReadOptions(delimiter="^")).producers == (
        "oak",
        "elm",
    )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            "west,oak,-1,5",
            r"offers.csv, row 5, column 'cost': must not be negative, got -1. Give the price",
        ),
        (
            "west,oak,1,-5",
            r"offers.csv, row 5, column 'capacity': must not be negative, got -5. Give the most",
        ),
        (
            "west,oak,1,2.5",
            r"offers.csv, row 5, column 'capacity': must be a whole number of units, got 2.5. "
            r"Round it",
        ),
        (
            "west,oak,1,2e9",
            r"offers.csv, row 5, column 'capacity': must be at most 10\^9 .* got 2000000000. Count",
        ),
        ("west,oak,1,few", r"offers.csv, row 5, column 'capacity': 'few' is not a number"),
        ("west,oak,,3", r"offers.csv, row 5, column 'cost': the cell is empty"),
        (",oak,1,3", r"offers.csv, row 5, column 'agent': the cell is empty"),
        (
            "south,oak,1,3",
            r"row 5, column 'supplier': agent 'south' and supplier 'oak' are on row 4 too. Keep "
            r"one",
        ),
        (
            "west,ash,1,3",
            r"files do not match: .*offers.csv, row 5, column 'supplier': 'ash' is not in "
            r".*qualities.csv",
        ),
    ],
)
def test_wrong_offers_are_refused_in_one_line(write: Write, row: str, says: str) -> None:
    offers, qualities = write(f"{OFFERS}{row}\n", "offers.csv"), write(QUALITIES, "qualities.csv")
    with pytest.raises(DataError, match=says) as caught:
        read_market(offers, qualities, alpha=0.1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["qualities", "records"])
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("oak,1.5", r"row 4, column 'quality': must be in \[0, 1\], got 1.5"),
        ("oak,-0.5", r"row 4, column 'quality': must be in \[0, 1\], got -0.5"),
        ("oak,good", r"row 4, column 'quality': 'good' is not a number"),
        (
            "ash,0.5",
            r"files do not match: .*row 4, column 'supplier': no agent deals with 'ash' in "
            r".*offers.csv. Add an",
        ),
    ],
)
def test_wrong_qualities_are_refused_in_one_line(
    write: Write, name: str, row: str, says: str
) -> None:
    offers, other = write(OFFERS, "offers.csv"), write(f"{QUALITIES}{row}\n", f"{name}.csv")
    with pytest.raises(DataError, match=says) as caught:
        read_market(offers, alpha=0.1, **{name: other})
    assert f"{name}.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_supplier_has_one_quality_and_many_records(write: Write) -> None:
    offers, other = write(OFFERS, "offers.csv"), write(f"{QUALITIES}oak,0.1\n", "qualities.csv")
    with refused("problems.supplier.twice"):
        read_market(offers, other, alpha=0.1)
    assert read_market(offers, records=other, alpha=0.1).quality[0, 0] == pytest.approx(
        0.5, abs=1e-7
    )


def test_a_missing_column_or_file_is_named(write: Write, tmp_path: Path) -> None:
    offers, qualities = write(OFFERS, "offers.csv"), write(QUALITIES, "qualities.csv")
    with refused("problems.columns.missing"):
        read_market(write("agent,supplier,cost\na,b,1\n", "short.csv"), qualities, alpha=0.1)
    with refused("problems.file.missing"):
        read_market(tmp_path / "gone.csv", qualities, alpha=0.1)
    with pytest.raises(DataError, match="has a header and no rows"):
        read_market(offers, write("supplier,quality\n", "empty.csv"), alpha=0.1)


def test_one_of_qualities_and_records(write: Write) -> None:
    offers, qualities = write(OFFERS, "offers.csv"), write(QUALITIES, "qualities.csv")
    with refused("problems.qualities.missing"):
        read_market(offers, alpha=0.1)
    with refused("problems.qualities.and-records"):
        read_market(offers, qualities, qualities, alpha=0.1)


def test_a_threshold_out_of_reach_names_the_best_supplier(write: Write) -> None:
    with refused("problems.alpha.out-of-reach"):
        read_market(write(OFFERS, "offers.csv"), write(QUALITIES, "qualities.csv"), alpha=0.95)
