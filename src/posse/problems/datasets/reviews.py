"""Reviews, a record a line: Steam reviews and Google Local reviews, as published; gzipped or not,
read as a stream.

Steam reviews (steam_reviews.json.gz, McAuley's data sets, version 2; with names of the games in
steam_games.json.gz): 7.8 million records, one Python literal a line. They have no stars: a review's
value is the hours that its author had played (the published Samba demo guessed stars from the
text). A record with a `rating` or a `recommend` is taken at that word.

Google Local reviews: 1 to 5 stars. The edition of 2018 (reviews.clean.json.gz, with names in
places.clean.json.gz) has Python literals, that of 2021 (review-STATE.json.gz and
review-STATE_10.json.gz, with names in meta-STATE.json.gz) JSON.

Literals are never evaluated: `fields` reads the tokens of one record and keeps those that are asked
for.
"""

from __future__ import annotations

import ast
import gzip
import json
import math
import re
import warnings
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from posse.core.errors import DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.where import Where
from posse.problems.datasets.files import data_folder, find
from posse.problems.tables.text import FilePath

STEAM_REVIEWS_HOME = "https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data"
GOOGLE_HOME = "https://mcauleylab.ucsd.edu/public_datasets/gdrive/googlelocal/"
STARS = (1.0, 5.0)
LONGEST = 1 << 22
"""Bytes of a record at most: a line without an end is no record."""
Scalar = str | float | bool | None

# One record ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>[uUbB]?'[^'\\]*(?:\\.[^'\\]*)*'|[uUbB]?"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)L?
    |(?P<word>None|True|False|null|true|false)
    |(?P<mark>[{}\[\](),:])
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Mapping[str, bool | None] = {
    "None": None,
    "null": None,
    "True": True,
    "true": True,
    "False": False,
    "false": False,
}
_CLOSES = {"}": "{", "]": "[", ")": "("}


def fields(line: str, names: Sequence[str]) -> dict[str, Scalar]:
    """Read the wanted fields of a record that is written as a Python literal or as JSON.

    Only scalars are read. Every token is checked, nothing is evaluated, and nesting costs no stack.

    >>> fields("{u'hours': 2.5, 'text': \\"it's {fine}\\", 'tags': [1, (2,)], 'id': u'70'}", ("hours", "id"))
    {'hours': 2.5, 'id': '70'}
    >>> fields("{'hours': __import__('os')}", ("hours",))
    Traceback (most recent call last):
    ...
    ValueError: column 10: neither text, a number, None, True nor False
    """
    parser = _RecordParser(line, frozenset(names))
    place = 0
    while place < parser.end:
        token = _TOKEN.match(line, place, parser.end)
        if token is None:
            raise ValueError(f"column {place + 1}: neither text, a number, None, True nor False")
        place = token.end()
        parser.take(token)
    if parser.open or not place:
        raise ValueError("the record does not end")
    return parser.fields


class _RecordParser:
    """Reads a record token by token."""

    def __init__(self, line: str, names: frozenset[str]) -> None:
        self.end = len(line.rstrip())
        self.open: list[str] = []
        """Brackets that are open."""
        self.fields: dict[str, Scalar] = {}
        self._line = line
        self._wanted = names
        self._key = ""
        self._before = ""
        """What came last at the top: a mark, or "value"."""

    def take(self, token: re.Match[str]) -> None:
        """Take the next token."""
        mark = token["mark"]
        if mark is None:
            self._take_scalar(token)
        elif mark in "{[(":
            self._open(mark, token.end())
        elif mark in _CLOSES:
            self._close(mark, token.end())
        elif len(self.open) == 1:
            self._before = mark

    def _take_scalar(self, token: re.Match[str]) -> None:
        if not self.open:
            raise ValueError("a record must be in braces")
        if len(self.open) == 1:
            if self._before == ":":
                if self._key in self._wanted:
                    self.fields[self._key] = _scalar(token)
                self._key = ""
            elif token["text"] is None or self._before == "value":
                raise ValueError(f"column {token.start() + 1}: a name in quotes must stand here")
            else:
                self._key = _text(token["text"])
        self._before = "value"

    def _open(self, mark: str, place: int) -> None:
        if not self.open and mark != "{":
            raise ValueError("a record must be in braces")
        if len(self.open) == 1 and self._before != ":":
            raise ValueError(f"column {place}: a name in quotes must stand here")
        self.open.append(mark)
        if len(self.open) == 1:
            self._before = mark

    def _close(self, mark: str, place: int) -> None:
        if not self.open or self.open.pop() != _CLOSES[mark]:
            raise ValueError(f"column {place}: '{mark}' closes nothing")
        if not self.open and self._line[place : self.end].strip():
            raise ValueError(f"column {place + 1}: something follows the record")


def _scalar(token: re.Match[str]) -> Scalar:
    if token["text"] is not None:
        return _text(token["text"])
    return _WORDS[token["word"]] if token["word"] else float(token["number"])


def _text(token: str) -> str:
    """Read one text in quotes; a backslash means what it means in Python."""
    quoted = token.lstrip("uU")
    if "\\" not in quoted and quoted[0] in "'\"":
        return quoted[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash before a letter that needs none
            value = ast.literal_eval(
                quoted
            )  # one text and nothing else: the token was matched as such
    except SyntaxError as error:
        raise ValueError(f"a text that does not read: {error.msg}") from None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Files --------------------------------------------------------------------------------------------


def records(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Scalar]]]:
    """Give line number and wanted fields of every record, one at a time; a file of JSON is read as
    JSON.
    """
    read: Callable[[str, Sequence[str]], dict[str, Scalar]] | None = None
    for number, line in _lines(path):
        try:
            if read is None:
                read = _from_json if _is_json(line) else fields
            yield number, read(line, names)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path.name}, line {number}: not a record ({str(error)[:120]}). Download the file "
                "again, or delete "
                "the line.",
                rule="problems.reviews.not-a-record",
            ) from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        number = 0
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            while line := stream.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise DataError(
                        f"{path.name}, line {number} is longer than {LONGEST >> 20} MB: not a "
                        "record.",
                        rule="problems.reviews.line-too-long",
                    )
                if line.strip():
                    yield number, line.decode("utf-8")
    except FileNotFoundError:
        raise DataError(
            f"no file {path}. Check the path.", rule="problems.reviews.missing"
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path.name}, line {number} is not UTF-8. Download it again.",
            rule="problems.reviews.not-utf",
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path.name} is not a whole gzip file ({error}). Download it again.",
            rule="problems.reviews.not-gzip",
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}. Give a file you may read.",
            rule="problems.reviews.not-readable",
        ) from None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_json(line: str, names: Sequence[str]) -> dict[str, Scalar]:
    record: object = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a record must be in braces")
    return {
        name: record[name]
        for name in names
        if isinstance(record.get(name, ()), str | int | float | None)
    }


# Ratings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How an edition names what it holds."""

    what: str
    item: str
    user: tuple[str, ...]
    values: tuple[str, ...]
    """Fields that may have a value; the first that the first record has is the file's."""
    scale: tuple[float, float] | None
    """None: from 0 to the largest."""
    named: Callable[[str], tuple[str, ...]]
    """Files in the same folder that may have the names of items, by the name of the file."""
    names: tuple[str, ...]
    """Fields of a name."""
    key: tuple[str, ...]
    """Fields of the item in the file of names."""


def _meta(name: str) -> tuple[str, ...]:
    state = re.sub(r"^review-|(_10)?\.json(\.gz)?$", "", name)
    return f"meta-{state}.json.gz", f"meta-{state}.json"


FORMS = (
    Form(
        "Steam reviews",
        "product_id",
        ("user_id", "username"),
        ("rating", "recommend", "hours"),
        None,
        lambda name: ("steam_games.json.gz", "steam_games.json"),
        ("app_name", "title"),
        ("id",),
    ),
    Form(
        "Google Local reviews 2018",
        "gPlusPlaceId",
        ("gPlusUserId",),
        ("rating",),
        STARS,
        lambda name: ("places.clean.json.gz", "places.clean.json"),
        ("name",),
        ("gPlusPlaceId",),
    ),
    Form(
        "Google Local reviews",
        "gmap_id",
        ("user_id",),
        ("rating",),
        STARS,
        _meta,
        ("name",),
        ("gmap_id",),
    ),
)


def read_reviews(path: FilePath, where: str | None = None) -> Ratings:
    """Read a file of reviews of any of these forms.

    Records without an item or a value are left out and counted. `where` keeps some of the others,
    by their fields. The file that was read last is kept while it does not change, so that another
    threshold does not read it again.
    """
    path = Path(path)
    stamp = path.stat() if path.is_file() else None
    return _read(path, where, None if stamp is None else (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=1)
def _read(path: Path, where: str | None, stamp: tuple[int, int] | None) -> Ratings:
    tests = Where.read(where)
    field_names = {name for form in FORMS for name in (form.item, *form.user, *form.values)}
    reviews: _Reviews | None = None
    for number, record in records(path, sorted(field_names | set(tests.columns))):
        place = f"{path.name}, line {number}"
        if reviews is None:
            reviews = _Reviews(_form(record, place), path)
        if tests.tests and not tests.keeps(record, place):
            continue
        reviews.add(record, place)
    if reviews is None or not reviews.item:
        if tests.tests:
            raise tests.nothing_kept(path.name)
        raise DataError(
            f"{path.name} holds no review with a value. Download it again.",
            rule="problems.reviews.none",
        )
    return reviews.ratings(tests.suffix)


def _form(record: Mapping[str, Scalar], place: str) -> Form:
    """Return the form of a file by its first record."""
    for form in FORMS:
        if form.item in record:
            return form
    raise DataError(
        f"{place}: no field {', '.join(form.item for form in FORMS)}: neither Steam nor Google "
        "Local reviews. Give one of these files, or a CSV with columns item,rating.",
        rule="problems.reviews.unknown-form",
    )


def _first(record: Mapping[str, Scalar], names: Sequence[str]) -> Scalar:
    """Return the value of the first of some fields that has one."""
    return next((record[name] for name in names if record.get(name) is not None), None)


class _Reviews:
    """The reviews of a file, as they are read."""

    def __init__(self, form: Form, path: Path) -> None:
        self.item = array("q")
        self._user = array("q")
        self._value = array("d")
        self._form = form
        self._path = path
        self._value_field = ""
        self._items: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._skipped = 0

    def add(self, record: Mapping[str, Scalar], place: str) -> None:
        """Add a review, or count it if it has no item or no value."""
        if not self._value_field:
            fields = (name for name in self._form.values if record.get(name) is not None)
            self._value_field = next(fields, "")
        item = record.get(self._form.item)
        value = record.get(self._value_field)
        if item is None or not isinstance(value, int | float) or not math.isfinite(value):
            self._skipped += 1
            return
        low, high = self._form.scale or (0.0, math.inf)
        if not low <= value <= high:
            raise DataError(
                f"{place}: {self._value_field} is {value:g}, which no review can have.",
                rule="problems.reviews.out-of-range",
            )
        author = _first(record, self._form.user)
        author = place if author is None else author
        self.item.append(self._items.setdefault(str(item), len(self._items)))
        self._user.append(self._users.setdefault(str(author), len(self._users)))
        self._value.append(float(value))

    def ratings(self, where: str) -> Ratings:
        """Return the ratings; items are called by the file of names, if there is one."""
        largest = max(self._value)
        if self._value_field == "recommend" or largest <= 0:
            largest = 1.0
        names = _names(self._path, self._form, self._items)
        source = f"{self._form.what} ({self._value_field}) of {self._path.name}{where}"
        if self._skipped:
            source += f"; {self._skipped:,} without a value left out"
        return Ratings(
            tuple(self._items),
            np.array(self.item, np.int64),
            np.array(self._value),
            self._form.scale or (0.0, largest),
            source,
            user=np.array(self._user, np.int64),
            names=tuple(names.get(item, item) for item in self._items),
        )


def _names(path: Path, form: Form, items: Mapping[str, int]) -> dict[str, str]:
    """Return the names of items from the file of names in the same folder."""
    names: dict[str, str] = {}
    files = [path.parent / name for name in form.named(path.name)]
    present = list(filter(Path.is_file, files))
    if not present:
        return names
    for _, record in records(present[0], (*form.names, *form.key)):
        key = str(_first(record, form.key) or "").removesuffix(".0")
        name = next((str(record[word]) for word in form.names if record.get(word)), "")
        if key in items and name:
            names.setdefault(key, name)
    return names


def find_steam_reviews(data_dir: FilePath | None = None) -> Path:
    """Find the file of Steam reviews."""
    names = ("steam_reviews.json.gz", "steam_reviews.json")
    return find(names, STEAM_REVIEWS_HOME, data_dir, ("steam-reviews", "steam", ""))


def find_google_local(data_dir: FilePath | None = None) -> Path:
    """Find the one file of Google Local reviews, of 2018 or of a state; of several, raise with a
    remedy.
    """
    folder = data_folder(data_dir)
    states = sorted(
        path
        for part in (folder / "google-local", folder)
        for path in part.glob("review-*.json*")
        if path.is_file()
    )
    if len(states) == 1:
        return states[0]
    if len(states) > 1:
        raise DataError(
            f"{folder} has reviews of several states "
            f"({', '.join(path.name for path in states[:4])}). Give one as "
            "data, with its folder.",
            rule="problems.data_dir.several-states",
        )
    names = ("reviews.clean.json.gz", "reviews.clean.json")
    return find(names, GOOGLE_HOME, data_dir, ("google-local", ""))


def holds_records(path: Path) -> bool:
    """Whether a file begins like one of records: gzip, or a brace."""
    with path.open("rb") as file:
        start = file.read(64)
    return start[:2] == b"\x1f\x8b" or start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"{"
