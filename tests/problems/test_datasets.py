"""Data files: the facts of the real ones, and one clear line for each way a file can be wrong."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.tables import read_means, read_ratings
from posse.problems.datasets.files import Pin, known_files
from posse.problems.datasets.published import embedded_arms, embedded_means
from posse.problems.datasets.ratings import DATASETS, load, read_jester, read_movielens, read_steam
from posse.problems.tables.options import ReadOptions

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file (text or bytes) and give its path."""

    def written(content: str | bytes, name: str = "file.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def present(data_dir: Path, file: str) -> Path:
    path = data_dir / file
    if not path.exists():
        pytest.skip(f"no {path}; see the README of the data folder")
    return path


@pytest.fixture(scope="module")
def jester(data_dir: Path) -> Ratings:
    present(data_dir, "jester/jester-data-1.zip")
    return load("jester", data_dir)


# --- the real files -------------------------------------------------------------------------------


def test_movielens_facts(data_dir: Path) -> None:
    present(data_dir, "ml-latest-small/ratings.csv")
    films = load("movielens", data_dir)
    assert (len(films), len(np.unique(films.user)), len(films.items)) == (100_836, 610, 9_724)
    assert (films.value.min(), films.value.max()) == films.scale == (0.5, 5.0)
    assert films.items[:3] == ("1", "2", "3")
    assert films.names[0] == "Toy Story (1995)"
    # Titles with commas are quoted in the file; two films called Emma (1996) are told apart.
    assert films.names[films.items.index("318")] == "Shawshank Redemption, The (1994)"
    assert films.names[films.items.index("838")] == "Emma (1996) [838]"
    assert len(set(films.names)) == len(films.names)
    best = films.arms(3.5, minimum=50, top=2)
    assert best.names[0] == "Shawshank Redemption, The (1994)"
    # 317 people rated film 318, 274 of them with 4 stars or more.
    assert best.means[0] == 274 / 317
    assert films.arms(3.5, items=["Toy Story (1995)", "318"]).means[1] == best.means[0]


def test_jester_facts(jester: Ratings) -> None:
    assert (len(jester), len(np.unique(jester.user)), len(jester.items)) == (1_810_455, 24_983, 100)
    assert jester.value.min() >= -10
    assert jester.value.max() <= 10
    assert jester.user is not None
    assert int((np.bincount(jester.user) == 100).sum()) == 7_200


def test_authors_jester_means_divide_by_all_users(jester: Ratings) -> None:
    """Their list is (ratings above 4.5) / (all 24,983 users), to the last bit; their paper says
    ratings received.
    """
    above = np.bincount(jester.item[jester.value > 4.5], minlength=100)
    assert (above / 24_983 == embedded_means("jester")).all()
    assert (jester.means(4.5) >= embedded_means("jester")).all()


def test_steam_facts(data_dir: Path) -> None:
    present(data_dir, "steam/steam.zip")
    plays = load("steam-hours", data_dir)
    assert (len(plays), len(np.unique(plays.user)), len(plays.items)) == (70_489, 11_350, 3_600)
    assert plays.scale == (0.0, 11_754.0)
    assert plays.arms(5.0, items=["Fallout 4", "Spore"]).names == ("Fallout 4", "Spore")


def test_extracted_steam_folder_gives_the_same(data_dir: Path, tmp_path: Path) -> None:
    zipped = present(data_dir, "steam/steam.zip")
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(tmp_path)
    extracted = load("steam-hours", tmp_path)
    assert (extracted.value == read_steam(zipped).value).all()
    assert (read_steam(tmp_path / "steam").item == read_steam(zipped).item).all()


def test_pins_of_extracted_files_are_those_of_the_zip(data_dir: Path) -> None:
    for name in ("jester/jester-data-1.zip", "steam/steam.zip"):
        with zipfile.ZipFile(present(data_dir, name)) as archive:
            tables = {Path(inner).name: archive.read(inner) for inner in archive.namelist()}
        for file in tables.keys() & known_files().keys():
            assert known_files()[file] == Pin(
                len(tables[file]), hashlib.sha256(tables[file]).hexdigest()
            )


def test_pins_are_those_of_the_checksum_file(data_dir: Path) -> None:
    sums = dict(
        reversed(line.split()) for line in present(data_dir, "SHA256SUMS").read_text().splitlines()
    )
    rated = (
        "ml-latest-small/ratings.csv",
        "ml-latest-small/movies.csv",
        "jester-data-1.zip",
        "steam.zip",
    )
    listed = {name: next(file for file in sums if file.endswith("/" + name)) for name in rated}
    for name, file in listed.items():
        assert known_files()[name].sha256 == sums[file]
        assert known_files()[name].size == (data_dir / file).stat().st_size


@pytest.mark.parametrize("name", sorted(name for name, one in DATASETS.items() if not one.records))
def test_defaults_of_every_data_set_make_ten_arms(
    name: str, data_dir: Path, jester: Ratings
) -> None:
    ratings = jester if name == "jester" else load(name, data_dir)
    arms = ratings.arms(DATASETS[name].threshold, DATASETS[name].minimum, top=10)
    assert 0 < arms.means[-1] <= arms.means[0] < 1


# --- what ships -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "first"), [("movielens", 321 / 943), ("jester", 4578 / 24_983)])
def test_embedded_means(name: str, first: float, data_dir: Path) -> None:
    numbers = present(data_dir, f"samba-arms/{name}-100.txt").read_text().split()[1:]
    assert embedded_means(name).tolist() == [float(number) for number in numbers]
    assert (
        embedded_arms(name, arms=10).means.tolist()
        == sorted(map(float, numbers), reverse=True)[:10]
    )
    assert embedded_means(name)[0] == pytest.approx(first, abs=1e-15)
    assert len(embedded_arms(name, arms=10)) == 10


def test_embedded_refuses() -> None:
    with pytest.raises(DataError, match="has 100 means, got arms=101"):
        embedded_arms("jester", arms=101)
    with pytest.raises(ConfigError, match="arms must be at least 1, got 0"):
        embedded_arms("jester", arms=0)
    with pytest.raises(ConfigError, match="Did you mean 'jester'"):
        embedded_means("jestr")


# --- where files are ------------------------------------------------------------------------------


def test_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    for name, home in (
        ("movielens", "grouplens.org"),
        ("jester", "eigentaste.berkeley"),
        ("steam-hours", "tamber/steam"),
    ):
        with pytest.raises(DataError, match=f"Get it from https://.*{home}"):
            load(name, tmp_path)


def test_folder_from_the_environment(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("7,Spore,play,14.9,0\n8,Spore,play,0.3,0\n8,Fallout,play,2,0\n", "steam/steam-200k.csv")
    monkeypatch.setenv("POSSE_DATA", str(tmp_path))
    assert load("steam-hours").items == ("Spore", "Fallout")
    with pytest.raises(DataError, match=r"data_dir is .*nowhere, which is not a folder"):
        load("steam-hours", tmp_path / "nowhere")
    monkeypatch.setenv("POSSE_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"POSSE_DATA names .*gone, which is not a folder"):
        load("steam-hours")
    monkeypatch.delenv("POSSE_DATA")
    with pytest.raises(DataError, match="or set POSSE_DATA"):
        load("steam-hours")


def test_unknown_data_set_suggests() -> None:
    with pytest.raises(DataError, match="Did you mean 'jester'"):
        load("jesters")


def test_altered_file_is_refused_unless_told(write: Write, tmp_path: Path) -> None:
    write("userId,movieId,rating,timestamp\n1,5,4.0,0\n2,7,1.0,0\n", "ml-latest-small/ratings.csv")
    write(
        'movieId,title,genres\n5,"Heat, again",Crime\n7,Alien,Horror\n',
        "ml-latest-small/movies.csv",
    )
    with pytest.raises(
        DataError,
        match=r"ratings.csv is not the known file: expected 2483723 bytes .*found 52 bytes",
    ):
        load("movielens", tmp_path)
    assert load("movielens", tmp_path, verify=False).names == ("Heat, again", "Alien")


def test_same_size_other_content_is_refused(write: Write) -> None:
    path = write(b"0" * 823_340, "steam.zip")
    with pytest.raises(DataError, match="found 823340 bytes with"):
        read_steam(path)


def test_the_movielens_edition_of_943_users(write: Write, tmp_path: Path) -> None:
    """A mean is ratings above the threshold over ratings received, as the Samba paper's text
    says.
    """
    rest = "|".join(["01-Jan-1995", "", "http://x"] + ["0"] * 19)
    write(
        "1\t2\t5\t881250949\n2\t2\t3\t881250950\n3\t2\t4\t881250951\n3\t1\t1\t881250952\n",
        "ml-100k/u.data",
    )
    folder = write(
        f"1|Toy Story (1995)|{rest}\n2|Citt\xe9 (1995)|{rest}\n".encode("latin-1"), "ml-100k/u.item"
    ).parent
    films = read_movielens(folder)
    assert films.names == ("Toy Story (1995)", "Citté (1995)")
    assert films.source == "MovieLens ml-100k"
    assert films.means(3.5).tolist() == [0.0, 2 / 3]
    assert load("movielens", folder.parent).names == films.names
    write("1\t2\t6\t881250949\n", "ml-100k/u.data")
    with pytest.raises(DataError, match=r"u.data, row 1, column 'rating'"):
        read_movielens(folder)


def test_other_movielens_editions_share_the_layout(write: Write) -> None:
    write("userId,movieId,rating,timestamp\r\n1,10,4.0,0\r\n2,9,1.0,0\r\n", "ml-25m/ratings.csv")
    folder = write(
        "movieId,title,genres\r\n9,Nine,Drama\r\n11,Eleven,Drama\r\n", "ml-25m/movies.csv"
    ).parent
    films = read_movielens(folder)
    assert films.items == ("9", "10")
    assert films.names == ("Nine", "movie 10")
    assert films.source == "MovieLens ml-25m"


# --- ratings of a user's own ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "item,rating\nheat,4\nalien,2.5\n",
        "\ufeffitem,rating\r\nheat,4\r\nalien,2.5\r\n\r\n\r\n",
        "rating;other;item\n4;x;heat\n2.5;y;alien",
        "item\trating\n heat \t 4 \n\nalien\t2.5\n\t\n",
        'item|rating\n"heat"|4\nalien|2.5\n',
        "# from the archive\n\nItem,Rating\nheat,4\nalien,2.5\n",
        "item,rating\rheat,4\ralien,2.5\r",
    ],
    ids=[
        "plain",
        "bom-crlf-blank",
        "semicolon-order",
        "tab-blank",
        "pipe-quoted",
        "comment-case",
        "cr",
    ],
)
def test_ratings_in_many_dialects(content: str, write: Write) -> None:
    ratings = read_ratings(write(content))
    assert ratings.items == ("heat", "alien")
    assert ratings.value.tolist() == [4.0, 2.5]
    assert ratings.scale == (2.5, 4.0)


def test_column_names_can_be_chosen(write: Write) -> None:
    path = write('film,stars,who\n"Heat, again",4,ann\nAlien,5,bob\nAlien,1,ann\n')
    columns = {"item": "film", "rating": "stars"}
    options = ReadOptions(columns={**columns, "user": "who"})
    ratings = read_ratings(path, options=options, scale=(1, 5))
    assert ratings.items == ("Heat, again", "Alien")
    assert ratings.user is not None
    assert ratings.user.tolist() == [0, 1, 0]
    assert read_ratings(path, options=ReadOptions(columns=columns)).user is None


RATINGS = "item,rating\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "file.csv is empty"),
        (" \n\n", "file.csv is empty"),
        ("# only a comment\n", "comments only"),
        (RATINGS, "has a header and no rows"),
        ("item,score\nheat,4\n", "row 1: no column 'rating' in the header. Known: item, score"),
        ("item,ratings\nheat,4\n", "no column 'rating' in the header. Did you mean 'ratings'"),
        ("heat,4\nalien,5\n", "row 1: no column 'item'.*looks like data: add a header"),
        ("item:rating\nheat:4\n", "row 1: no column 'item' in the header. .*item:rating"),
        ("item,rating,rating\nheat,4,5\n", "column 'rating' is there more than once"),
        (
            RATINGS + "heat,4\nalien,four\n",
            "file.csv, row 3, column 'rating': 'four' is not a number",
        ),
        (RATINGS + "heat,4\n\n\nalien,4;5\n", "row 5, column 'rating': '4;5' is not a number"),
        (RATINGS + "heat,nan\n", "row 2, column 'rating': 'nan' is not a finite number"),
        (RATINGS + "heat,4\nheat,-inf\n", "row 3, column 'rating': '-inf' is not a finite number"),
        (RATINGS + "heat,1e999\n", "row 2, column 'rating': '1e999' is not a finite number"),
        (RATINGS + "heat,1_000\n", "row 2, column 'rating': '1_000' is not a number"),
        (RATINGS + "heat,\n", "row 2, column 'rating': the cell is empty"),
        (RATINGS + "heat,4\n,5\n", "row 3, column 'item': the cell is empty"),
        (
            RATINGS + "heat,4\nalien\n",
            "row 3, column 2: expected 2 columns as in the header, got 1",
        ),
        (RATINGS + "heat, again,4\n", "row 2, column 3: expected 2 columns .*got 3. Quote a field"),
        (RATINGS + 'alien,4\n"heat,4\nbrazil,3\n', "row 3: cannot split into columns"),
        (RATINGS + '"a\nb",4\nheat,x\n', "row 4, column 'rating': 'x'"),
        (RATINGS + "heat,4\nalien,4\n", "every rating is 4, which shows no scale"),
        (b"item,rating\nheat,4\ncaf\xe9,3\n", "row 3 holds byte 0xe9, which is not UTF-8"),
        (b"item,rating\nhe\0at,4\n", "row 2 holds a zero byte"),
        (gzip.compress(b"item,rating\nheat,4\n" * 9, mtime=0), "zero byte|not UTF-8"),
        (b"PK\x03\x04 and more", "a spreadsheet .such as .xlsx. or an archive, not text"),
    ],
)
def test_malformed_ratings(content: str | bytes, message: str, write: Write) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_ratings(write(content))
    assert "\n" not in str(caught.value)


def test_wrong_delimiter_names_the_right_one(write: Write) -> None:
    path = write("item;rating\nheat;4\nheat;5\n")
    with pytest.raises(
        DataError,
        match=r"when split at ',': the header is the single word 'item;rating'. Set delimiter=';'",
    ):
        read_ratings(path, options=ReadOptions(delimiter=","))
    assert len(read_ratings(path, options=ReadOptions(delimiter=";"))) == 2
    with pytest.raises(ConfigError, match="delimiter must be one character"):
        read_ratings(path, options=ReadOptions(delimiter=", "))


def test_rating_outside_the_scale(write: Write) -> None:
    path = write("item,rating\nheat,4\nalien,6\n")
    with pytest.raises(DataError, match=r"row 3, column 'rating': must be in \[1, 5\], got 6"):
        read_ratings(path, scale=(1, 5))
    with pytest.raises(ConfigError, match="lower first"):
        read_ratings(path, scale=(5, 1))


def test_missing_user_column_and_missing_file(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'who'"):
        read_ratings(write("item,rating\nheat,4\n"), options=ReadOptions(columns={"user": "who"}))
    with pytest.raises(DataError, match=r"no file .*absent.csv"):
        read_ratings(tmp_path / "absent.csv")
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read_ratings(tmp_path)


def test_errors_far_down_a_large_file_name_their_row(write: Write) -> None:
    rows = [f"item {n % 97},{n % 5}" for n in range(150_000)]
    path = write("item,rating\n" + "\n".join(rows))
    assert read_ratings(path).counts.sum() == 150_000
    rows[140_000] = "item 3,oops"
    rows[100] = ""
    with pytest.raises(DataError, match="row 140002, column 'rating': 'oops'"):
        read_ratings(write("item,rating\n" + "\n".join(rows)))


# A bare carriage return is left out: the csv writer does not quote it, so no reader could tell it
# from a line end.
words = (
    st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=12)
    .map(str.strip)
    .filter(bool)
)
finite = st.floats(-1e9, 1e9)


def written(header: list[str], rows: list[tuple[object, ...]], delimiter: str, end: str) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end)
    writer.writerows([header, *rows])
    return stream.getvalue().encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(words, finite, words), min_size=2, max_size=30),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_ratings_round_trip(
    rows: list[tuple[str, float, str]], delimiter: str, end: str, write: Write
) -> None:
    path = write(written(["item", "rating", "user"], list(rows), delimiter, end))
    ratings = read_ratings(path, scale=(-1e9, 1e9))
    assert [ratings.items[i] for i in ratings.item] == [item for item, _, _ in rows]
    assert ratings.value.tolist() == [value for _, value, _ in rows]
    assert len(np.unique(ratings.user)) == len({user for _, _, user in rows})


# --- means ----------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    means=st.dictionaries(words, st.floats(0, 1), min_size=2, max_size=30),
    delimiter=st.sampled_from(",;\t|"),
)
def test_means_round_trip(means: dict[str, float], delimiter: str, write: Write) -> None:
    arms = read_means(write(written(["name", "mean"], list(means.items()), delimiter, "\n")))
    assert dict(zip(arms.names, arms.means.tolist(), strict=True)) == means


@given(means=st.lists(st.floats(0, 1), min_size=2, max_size=30), counted=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_list_of_means_round_trip(means: list[float], counted: bool, write: Write) -> None:
    head = f"{len(means)}\n" if counted else ""
    assert read_means(write(head + "\n".join(map(repr, means)))).means.tolist() == means


def test_first_line_of_one_is_a_mean(write: Write) -> None:
    assert read_means(write("1\n0.5\n")).means.tolist() == [1.0, 0.5]


def test_published_lists_are_read_as_they_are(data_dir: Path) -> None:
    arms = read_means(present(data_dir, "samba-arms/movielens-100.txt"))
    assert arms.means.tolist() == embedded_means("movielens").tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,mean\na,0.5\nb,1.5\n", r"row 3, column 'mean': must be in \[0, 1\], got 1.5"),
        ("name,mean\na,-0.1\nb,1\n", r"row 2, column 'mean': must be in \[0, 1\], got -0.1"),
        ("name,mean\na,0.5\nb,0.1\na,0.2\n", "row 4, column 'name': 'a' is on row 2 too"),
        ("name,mean\na,0.5\nb,NaN\n", "row 3, column 'mean': 'NaN' is not a finite number"),
        ("name,mean\na,0.5\n", "has 1 mean; a bandit needs at least 2"),
        ("name,value\na,0.5\n", "no column 'mean'"),
        ("3\n0.5\n0.1\n", "row 1: the line says 3 means, the file has 2"),
        ("# two\n2\n0.5\nhalf\n", "row 4, column 'mean': 'half' is not a number"),
        ("0.5\n\n1.01\n", r"row 3, column 'mean': must be in \[0, 1\], got 1.01"),
        ("0.5\ninf\n", "row 2, column 'mean': 'inf' is not a finite number"),
        ("nan\n0.5\n", "row 1, column 'mean': 'nan' is not a finite number"),
        ("0.5\n", "has 1 mean"),
        ("2.5\n0.5\n0.1\n", r"row 1, column 'mean': must be in \[0, 1\], got 2.5"),
    ],
)
def test_malformed_means(content: str, message: str, write: Write) -> None:
    with pytest.raises(DataError, match=message):
        read_means(write(content))


# --- the layouts of the known data sets, malformed ------------------------------------------------

JOKES = "1,7.5" + ",99" * 99 + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (JOKES + "1,99,x" + ",99" * 98 + "\n", "row 2, column 'joke 2': 'x' is not a number"),
        (
            JOKES + "1,99,10.5" + ",99" * 98 + "\n",
            r"row 2, column 'joke 2': must be in \[-10, 10\], or 99 .*got 10.5",
        ),
        (
            JOKES + "2,99,3" + ",99" * 98 + "\n",
            "row 2, column 'count': must be the number of ratings in the row, 1, got 2",
        ),
        (JOKES + "1,7.5\n", "row 2, column 3: expected 101 columns"),
    ],
)
def test_malformed_jester(content: str, message: str, write: Write) -> None:
    with pytest.raises(DataError, match=message):
        read_jester(write(content, "jokes.csv"))


def test_truncated_zip(data_dir: Path, write: Write) -> None:
    whole = present(data_dir, "jester/jester-data-1.zip").read_bytes()
    path = write(whole[:100_000], "jester-data-1.zip")
    with pytest.raises(DataError, match=r"expected 3400621 bytes .*found 100000"):
        read_jester(path)
    with pytest.raises(DataError, match="not a whole zip file"):
        read_jester(path, verify=False)


def test_damaged_member_and_missing_member(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/jokes.csv", JOKES * 50)
    assert len(read_jester(path)) == 50
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    with pytest.raises(DataError, match="not a whole zip file"):
        read_jester(write(bytes(data), "damaged.zip"))
    with pytest.raises(DataError, match=r"holds no game_play.dat .it holds: jokes.csv"):
        read_steam(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("jester-data-1.xls", b"\xd0\xcf\x11\xe0")
    with pytest.raises(
        DataError, match=r"holds 0 csv files .none., expected 1. Save the spreadsheet"
    ):
        read_jester(path)


@pytest.mark.parametrize(
    ("ratings", "movies", "message"),
    [
        (
            "1,5,5.5",
            "5,Heat",
            r"ratings.csv, row 2, column 'rating': must be in \[0.5, 5\], got 5.5",
        ),
        (
            "1,five,5",
            "5,Heat",
            "ratings.csv, row 2, column 'movieId': 'five' is not a whole number",
        ),
        (
            "1,5,5",
            "5,Heat\n5,Alien",
            "movies.csv, row 3, column 'movieId': '5' is on row 2 too",
        ),
        ("1,5,5", "5,Heat, again", "movies.csv, row 2, column 3: expected 2 columns"),
    ],
)
def test_malformed_movielens(ratings: str, movies: str, message: str, write: Write) -> None:
    write(f"userId,movieId,rating\n{ratings}\n", "own/ratings.csv")
    folder = write(f"movieId,title\n{movies}\n", "own/movies.csv").parent
    with pytest.raises(DataError, match=message):
        read_movielens(folder)


def test_steam_in_one_file_has_plays_and_purchases(write: Write) -> None:
    path = write(
        '1,Dota,purchase,1,0\n1,"Spore, 2",play,3,0\n2,Dota,play,9,0\n2,"Spore, 2",play,1,0\n'
    )
    plays = read_steam(path)
    assert (plays.items, plays.item.tolist(), plays.value.tolist()) == (
        ("Dota", "Spore, 2"),
        [1, 0, 1],
        [3.0, 9.0, 1.0],
    )


def test_malformed_steam(write: Write) -> None:
    with pytest.raises(
        DataError, match="row 2, column 'behaviour': must be 'play' or 'purchase', got 'rent'"
    ):
        read_steam(write("1,Spore,play,2,0\n1,Spore,rent,2,0\n"))
    with pytest.raises(DataError, match=r"row 1, column 'value': must be in .*got -2"):
        read_steam(write("1,Spore,play,-2,0\n"))
    with pytest.raises(DataError, match="has no row of 'play'"):
        read_steam(write("1,Spore,purchase,1,0\n"))
