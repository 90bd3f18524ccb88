"""Every refusal of `problems` has its rule, and a test breaks each of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import BernoulliArms, BetaArms, EmpiricalArms
from posse.problems.arms.settings import ProblemSettings
from posse.problems.arms.tables import read_ratings
from posse.problems.contexts.contexts import MOST_ARMS, Contexts, read_block, read_features, split
from posse.problems.contexts.contexts import read_rewards as read_rewards_of_arms
from posse.problems.contexts.settings import ContextSettings
from posse.problems.datasets.files import unzip
from posse.problems.datasets.published import embedded_arms
from posse.problems.datasets.ratings import load as load_data_set
from posse.problems.datasets.ratings import read_jester, read_steam
from posse.problems.datasets.reviews import read_reviews
from posse.problems.markets.settings import read_market
from posse.problems.populations.pictures import read_pictures
from posse.problems.populations.population import Population, Ragged, standardised
from posse.problems.populations.prepared import Writer, load, save
from posse.problems.populations.settings import PopulationSettings
from posse.problems.populations.worlds import Presence, periods_of, periods_text, read_rewards
from posse.problems.recognise import recognise
from posse.problems.summary import summarise
from posse.problems.tables.mapping import read_columns_setting
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import read_encoded
from posse.problems.tables.table import open_table
from tests.kit.rules import refused, rules
from tests.problems.populations import images

HERE = Path(__file__).parent


def wrote(text: str | bytes, read: Callable[[Path], object], name: str = "r.csv") -> Any:
    """Return a mistake: a file of this text is read."""

    def mistake(folder: Path) -> object:
        path = folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read(path)

    return mistake


def arms(**values: Any) -> Any:
    """Return a mistake: settings of arms."""
    return lambda folder: ProblemSettings(**values).arms()


def clients(**values: Any) -> Any:
    """Return a mistake: settings of clients."""
    return lambda folder: PopulationSettings(**values).population()


def arms_of(**values: Any) -> Callable[[Path], object]:
    return lambda path: ProblemSettings(data=path, **values).arms()


def encoded(path: Path) -> object:
    return read_encoded(open_table(path), [], features=("age", "town=Bern"))


def parquet(**columns: Any) -> Any:
    """Return a mistake: a Parquet file of images is read."""

    def mistake(folder: Path) -> object:
        pa.parquet.write_table(pa.table(columns), folder / "r.parquet")
        return read_pictures(folder / "r.parquet")

    return mistake


def two_parties(folder: Path) -> object:
    """Two parties have no row in common, and bad rows are dropped."""
    for name, row in (("a", "1"), ("b", "2"), ("pays", "1")):
        (folder / f"{name}.csv").write_text(f"row,x,y\n{row},0,1\n")
    files = {"a": folder / "a.csv", "b": folder / "b.csv"}
    options = ReadOptions(skip_bad=True)
    return read_features(files, folder / "pays.csv", options=options, scale=True)


def idx_of_three_and_two(folder: Path) -> object:
    """Three images have two labels."""
    header = bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big") for n in (3, 6, 6))
    (folder / "t-images-idx3-ubyte").write_bytes(header + bytes(108))
    (folder / "t-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 2, 1, 2)))
    return read_pictures(folder / "t-images-idx3-ubyte")


def images_of_one_label(folder: Path) -> object:
    """All images have one label."""
    np.savez(folder / "i.npz", images=np.zeros((2, 6, 6), np.uint8), labels=np.zeros(2, int))
    return read_pictures(folder / "i.npz")


def no_images(folder: Path) -> object:
    """A table of images has no row."""
    return parquet(image=pa.array([], pa.binary()), label=pa.array([], pa.string()))(folder)


def writers(count: int, digit: int) -> Any:
    """Return a mistake: labels by writer that do not fit the images."""

    def mistake(folder: Path) -> object:
        sizes = b"".join(n.to_bytes(4, "big") for n in (2, 28, 28))
        (folder / "train-images-idx3-ubyte").write_bytes(
            bytes((0, 0, 8, 3)) + sizes + bytes(2 * 784)
        )
        (folder / "train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 2, 1, 1)))
        rows = np.full((count, 8), digit, ">i4").tobytes()
        header = b"\0\0\x0c\x02" + count.to_bytes(4, "big") + (8).to_bytes(4, "big")
        (folder / "qmnist-train-labels-idx2-int").write_bytes(header + rows)
        values = {"data": "mnist-writers", "data_dir": folder, "verify": False}
        return PopulationSettings(**values).population()

    return mistake


def scaled_population(folder: Path) -> object:
    """A population with scaled features is written."""
    features = np.array([[0.5], [2.5], [1.0]], np.float32)
    labels = np.array([0, 1, 0], np.int32)
    population = Population("p", ("a", "b"), np.array([0, 1, 3]), features, labels, features=("x",))
    return save(standardised(population), folder / "out")


def no_header_in_npz(folder: Path) -> object:
    """An .npz file has arrays and no header."""
    np.savez(folder / "p.npz", x=np.zeros(3))
    return load(folder / "p.npz")


def no_chunk(folder: Path) -> object:
    """A population is written without a client."""
    with Writer(folder / "out", "p", ("a", "b")):
        return None


def population_with(offsets: Any) -> Any:
    """Return a mistake: a population has these offsets."""

    def mistake(folder: Path) -> object:
        labels = np.array([0, 1], np.int32)
        return Population("p", ("a", "b"), offsets, np.zeros((2, 1), np.float32), labels)

    return mistake


def means_file(**values: Any) -> Any:
    """Return a mistake: settings for a file of means."""
    return wrote("name,mean\na,0.1\nb,0.2\n", arms_of(**values))


def contexts(**values: Any) -> Any:
    """Return a mistake: settings of contexts."""
    return lambda folder: ContextSettings(**values).contexts()


def jester(row: str) -> Any:
    """Return a mistake: a row of Jester."""
    return wrote(f"{row}\n", read_jester)


def zipped(folder: Path, name: str) -> Path:
    """Write a zip file with one member."""
    with zipfile.ZipFile(folder / "some.zip", "w") as archive:
        archive.writestr(name, "a,b\n1,2\n")
    return folder / "some.zip"


def parties_with_rows(one: str, other: str) -> Any:
    """Return a mistake: two parties have these rows."""

    def mistake(folder: Path) -> object:
        for name, rows in (("a", one), ("b", other), ("pays", one)):
            lines = "".join(f"{row},0,0\n" for row in rows.split())
            (folder / f"{name}.csv").write_text(f"row,x,y\n{lines}")
        files = {"a": folder / "a.csv", "b": folder / "b.csv"}
        return read_features(files, folder / "pays.csv")

    return mistake


def market(offers: str, qualities: str) -> Any:
    """Return a mistake: offers and qualities that do not belong together."""

    def mistake(folder: Path) -> object:
        lines = "".join(f"{pair},1,1\n" for pair in offers.split())
        (folder / "offers.csv").write_text(f"agent,supplier,cost,capacity\n{lines}")
        lines = "".join(f"{supplier},0.5\n" for supplier in qualities.split())
        (folder / "qualities.csv").write_text(f"supplier,quality\n{lines}")
        return read_market(folder / "offers.csv", folder / "qualities.csv", alpha=0.1)

    return mistake


THREE_ROWS = Contexts(
    "three rows", np.zeros((3, 2)), split(2, ("a", "b")), ("x", "y"), np.zeros((3, 2)), True
)

BROKEN: dict[str, Callable[[Path], object]] = {
    "problems.available.no-arm": lambda folder: Presence(("a", "b"), periods_of("a:2-,b:2-")).check(
        3
    ),
    "problems.available.not-a-pair": lambda folder: periods_text({"a": 3}),
    "problems.available.not-periods": lambda folder: periods_of("a"),
    "problems.available.rounds": lambda folder: periods_of("a:5-2"),
    "problems.available.unknown-arm": lambda folder: Presence(("a", "b"), periods_of("c:1-")),
    "problems.before.incomplete": wrote(
        "label,a\na,1\n", lambda path: read_rewards(path, ("a", "b"))
    ),
    "problems.before.unknown-name": wrote(
        "label,c\na,1\n", lambda path: read_rewards(path, ("a", "b"))
    ),
    "problems.columns.dates-only": wrote(
        "seen\n2024-01-01\n2024-01-02\n", lambda path: read_encoded(open_table(path), [])
    ),
    "problems.columns.no-header": wrote("1,2\n3,4\n", recognise),
    "problems.columns.not-pairs": lambda folder: read_columns_setting("item"),
    "problems.contexts.too-large": lambda folder: Contexts(
        "many arms",
        np.zeros((1, 2)),
        split(2, ("a", "b")),
        tuple(map(str, range(MOST_ARMS + 1))),
        np.zeros((1, MOST_ARMS + 1)),
        True,
    ),
    "problems.data.folder": lambda folder: ProblemSettings(data=folder),
    "problems.decimal.unknown": lambda folder: ReadOptions(decimal=";"),
    "problems.delimiter.not-a-character": lambda folder: ReadOptions(delimiter=", "),
    "problems.encoding.unknown": lambda folder: ReadOptions(encoding="utf-88"),
    "problems.encoding.not-utf": wrote(b"item,rating\ncaf\xe9,1\n", open_table),
    "problems.encoding.wide": wrote("item,rating\na,1\n".encode("utf-16-le"), open_table),
    "problems.encoding.wrong": wrote(b"\xff\xfeite", open_table),
    "problems.features.missing": wrote("age\n1\n", encoded),
    "problems.features.unknown": wrote("age,town,size\n1,Bern,2\n", encoded),
    "problems.features.text": wrote(
        "x\nann\nbob\n", lambda path: read_encoded(open_table(path), [])
    ),
    "problems.features.too-many-words": wrote(
        "x\n" + "a\n" * 3000 + "".join(f"w{i}\n" for i in range(100)),
        lambda path: read_encoded(open_table(path), []),
    ),
    "problems.file.binary": wrote(b"item,rating\nhe\0at,4\n", open_table),
    "problems.file.comments": wrote("# comment\n", open_table),
    "problems.file.empty": wrote(" \n", open_table),
    "problems.file.not-readable": open_table,
    "problems.file.missing": lambda folder: open_table(folder / "none.csv"),
    "problems.file.not-columnar": wrote("a", open_table, "r.parquet"),
    "problems.file.spreadsheet": wrote(b"PK\x03\x04 and more", open_table),
    "problems.file.one-of-several": wrote(
        "agent,supplier,cost,capacity\na,b,1,2\n", lambda path: summarise([path])
    ),
    "problems.first.no-client": lambda folder: PopulationSettings(first="no-*").world(
        images([2, 3])
    ),
    "problems.mnist.lengths": idx_of_three_and_two,
    "problems.images.no-columns": parquet(image=[b"x"], other=["a"]),
    "problems.images.none": no_images,
    "problems.images.not-an-image": parquet(image=[b"x"], label=["a"]),
    "problems.images.not-parquet": wrote("a", read_pictures, "r.parquet"),
    "problems.images.one-label": images_of_one_label,
    "problems.items.joined": wrote(
        "item,rating\na,1\nb,5\n", arms_of(threshold=3, items=("a, b",))
    ),
    "problems.means.count": wrote("3\n0.5\n0.1\n", arms_of()),
    "problems.means.too-few": wrote("0.5\n", arms_of()),
    "problems.name.twice": wrote("name,mean\na,0.1\na,0.2\n", arms_of()),
    "problems.names.not-means": arms(means=(0.1, 0.2), names=("a",)),
    "problems.names.without-means": arms(names=("a", "b")),
    "problems.owners.not-items": arms(owners=3, items=("a", "b")),
    "problems.owners.too-many": means_file(owners=3),
    "problems.population.no-client": population_with(np.array([0])),
    "problems.population.too-many-clients": population_with(
        np.concatenate([[0], np.full(2**24 + 1, 2)])
    ),
    "problems.prepared.no-client": no_chunk,
    "problems.prepared.not-prepared": no_header_in_npz,
    "problems.prepared.scaled": scaled_population,
    "problems.ragged.counts": lambda folder: Ragged(
        np.array([0, 2]), np.array([1, 2], np.int32), np.array([1.0], np.float32)
    ),
    "problems.ragged.not-a-list": lambda folder: Ragged(
        np.array([[0, 1]]), np.array([1], np.int32)
    ),
    "problems.rating.all-equal": wrote("item,rating\na,1\nb,1\n", arms_of(threshold=0)),
    "problems.rating.none": wrote(
        "user,a,b\nu,,\nv,,\n",
        lambda path: read_ratings(path, options=ReadOptions(columns={"item": "a|b"})),
    ),
    "problems.ratings.empty": lambda folder: Ratings(
        ("a",), np.zeros(0, np.int64), np.zeros(0), (0.0, 1.0), "nothing"
    ).means(3.0),
    "problems.reviews.not-utf": wrote(b"{'a': '\xff'}\n", read_reviews),
    "problems.reward.no-ratings": arms(means=(0.1, 0.2), reward="rating"),
    "problems.row.not-split": wrote('item,rating\n"heat,4\n', arms_of(threshold=3)),
    "problems.rows.all-bad": wrote("item,rating\na,x\n", arms_of(threshold=3, skip_bad=True)),
    "problems.rows.bad": wrote("item,rating\na,x\n", arms_of(threshold=3)),
    "problems.rows.none": wrote("item,rating\n", arms_of(threshold=3)),
    "problems.rows.none-in-common": two_parties,
    "problems.rows.several-bad": wrote("item,rating\na,x\nb,y\n", arms_of(threshold=3)),
    "problems.scale.not-ordered": wrote(
        "item,rating\na,1\n", lambda path: read_ratings(path, scale=(5, 1))
    ),
    "problems.where.not-numbers": wrote(
        "item,rating,age\na,1,old\nb,2,3\n", arms_of(threshold=1, where="age>3")
    ),
    "problems.arms.more-than-embedded": lambda folder: embedded_arms("jester", arms=101),
    "problems.cluster_seed.out-of-range": contexts(data="clusters", cluster_seed=-1),
    "problems.columns.lengths": arms(data={"item": ["a", "b"], "rating": [1]}),
    "problems.columns.no-numbers": wrote("row\nann\n", lambda path: read_block(path, 1.0)),
    "problems.columns.not-parties": contexts(parties=3, columns=(15, 5)),
    "problems.columns.unnamed": wrote("row,age,\nann,0,0\n", lambda path: read_block(path, 1.0)),
    "problems.concentration.too-small": lambda folder: BetaArms([0.1, 0.2], 0.01),
    "problems.data.frame-alone": contexts(data={"row": ["a"], "x": [1]}),
    "problems.data.missing-part": contexts(data={"rewards": "a.csv"}),
    "problems.data.no-file": arms(data="gone.csv"),
    "problems.data.no-such-file": contexts(features="a=no.csv,b=no.csv", rewards="no.csv"),
    "problems.data.not-a-source": contexts(data={"features": {"a": 3}, "rewards": "no.csv"}),
    "problems.data.not-a-table": contexts(data={"features": 3, "rewards": "no.csv"}),
    "problems.data.not-embedded": arms(data="embedded:steam"),
    "problems.data.unknown": arms(data="movielense"),
    "problems.data.unknown-data-set": lambda folder: load_data_set("jesters"),
    "problems.data.wrong-type": arms(data=3),
    "problems.data_dir.not-a-folder": lambda folder: load_data_set("jester", folder / "none"),
    "problems.file.not-a-zip": lambda folder: unzip("jester.zip", b"PK and no more"),
    "problems.jester.count": jester("2,3" + ",99" * 99),
    "problems.jester.not-one-table": lambda folder: read_jester(zipped(folder, "a.xls")),
    "problems.means.not-inside": lambda folder: BetaArms([0.0, 0.5]),
    "problems.names.arms-twice": lambda folder: BernoulliArms([0.1, 0.2], ["a", "a"]),
    "problems.names.number": lambda folder: BernoulliArms([0.1, 0.2], ["a"]),
    "problems.prepared.file-exists": wrote(
        "a", lambda path: save(images([2, 3]), path), "exists.npz"
    ),
    "problems.prepared.folder-not-empty": wrote(
        "a", lambda path: Writer(path.parent, "p", ("a", "b"))
    ),
    "problems.rewards.one-arm": wrote("row,a\n1,0\n", read_rewards_of_arms),
    "problems.rows.missing-in-file": parties_with_rows("1 2", "1"),
    "problems.rows.not-aligned": parties_with_rows("1 2", "2 1"),
    "problems.rows.out-of-range": lambda folder: THREE_ROWS.first(4),
    "problems.samples.empty": lambda folder: EmpiricalArms([[0.1], []]),
    "problems.samples.too-few": lambda folder: EmpiricalArms([]),
    "problems.steam.member-missing": lambda folder: read_steam(zipped(folder, "a.csv")),
    "problems.steam.no-row": wrote("1,Spore,purchase,1,0\n", read_steam),
    "problems.supplier.pair-twice": market("n,oak\nn,oak\n", "oak\n"),
    "problems.supplier.without-offer": market("n,oak\n", "oak\nelm\n"),
    "problems.supplier.without-quality": market("n,oak\nn,elm\n", "oak\n"),
    "problems.writers.other-digits": writers(2, 7),
    "problems.writers.too-few": writers(1, 1),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_user_can_break_the_rule(tmp_path: Path, rule: str) -> None:
    with refused(rule):
        BROKEN[rule](tmp_path)


def test_every_rule_is_broken_by_a_test() -> None:
    """By this table, or where a test of the room names the rule that it expects."""
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    named = {rule for rule in rules("problems/**/*.py") if any(f'"{rule}"' in t for t in texts)}
    assert sorted(rules("problems/**/*.py") - named) == []
