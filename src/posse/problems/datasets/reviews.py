"""Reviews of games on Steam and of places on Google Local: published files of one record per line.

A file may be gzipped. It is read as a stream.

Steam reviews (steam_reviews.json.gz, McAuley's data sets, version 2; with names of the games in
steam_games.json.gz): 7.8 million records, one Python literal per line. They have no stars: the value
of a review is the hours that its author had played (the published Samba demo guessed stars from the
text). If a record has a `rating` or a `recommend`, that is its value.

Google Local reviews: 1 to 5 stars. The edition of 2018 (reviews.clean.json.gz, with names in
places.clean.json.gz) has Python literals, that of 2021 (review-STATE.json.gz and
review-STATE_10.json.gz, with names in meta-STATE.json.gz) JSON.

Literals are never evaluated: `fields` reads the tokens of one record.
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
from posse.problems.arms.tables import Where
from posse.problems.datasets.files import data_folder, find
from posse.problems.tables.text import FilePath, file_errors

STEAM_REVIEWS_HOME = "https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data"
GOOGLE_HOME = "https://mcauleylab.ucsd.edu/public_datasets/gdrive/googlelocal/"
STARS = (1.0, 5.0)
LONGEST = 1 << 22
"""Most bytes of a record: a line without an end is no record."""
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
_RECORD = re.compile(r"\{(?:t:[tnwv],)*(?:t:[tnwv])?\}")
"""The kinds of tokens of a record: t(ext), n(umber), w(ord), v (a nested value), and marks."""


def fields(line: str, names: Sequence[str]) -> dict[str, Scalar]:
    """Read some fields of a record that is written as a Python literal or as JSON.

    Only scalars are read. Every token is checked, nothing is evaluated, and nesting costs no stack.

    >>> fields("{u'hours': 2.5, 'text': \\"it's {fine}\\", 'tags': [1, (2,)], 'id': u'70'}", ("hours", "id"))
    {'hours': 2.5, 'id': '70'}
    >>> fields("{'hours': __import__('os')}", ("hours",))
    Traceback (most recent call last):
    ...
    ValueError: column 10: neither text, a number, None, True nor False
    """
    end = len(line.rstrip())
    place = 0
    brackets: list[str] = []
    kinds = ""
    top: list[re.Match[str]] = []
    while place < end:
        token = _TOKEN.match(line, place, end)
        if token is None:
            raise ValueError(f"column {place + 1}: neither text, a number, None, True nor False")
        place = token.end()
        mark = token["mark"] or ""
        kind = mark or str(token.lastgroup)[0]
        if mark in _CLOSES:
            if not brackets or brackets.pop() != _CLOSES[mark]:
                raise ValueError(f"column {place}: '{mark}' closes nothing")
            kind = "v" if brackets else mark
        elif mark in _CLOSES.values():
            brackets.append(mark)
        # Of a nested value only the last bracket counts.
        if len(brackets) <= 1:
            kinds += kind
            top.append(token)
    if not _RECORD.fullmatch(kinds):
        raise ValueError("a record must be names in quotes, each with a value, in braces")
    record: dict[str, Scalar] = {}
    for number in (number for number, kind in enumerate(kinds) if kind == ":"):
        name = _text(top[number - 1]["text"])
        if name in names and kinds[number + 1] != "v":
            record[name] = _scalar(top[number + 1])
    return record


def _scalar(token: re.Match[str]) -> Scalar:
    if token["text"] is not None:
        return _text(token["text"])
    return _WORDS[token["word"]] if token["word"] else float(token["number"])


def _text(token: str) -> str:
    """Read one text in quotes; a backslash has the meaning that it has in Python."""
    quoted = token.lstrip("uU")
    if "\\" not in quoted and quoted[0] in "'\"":
        return quoted[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash before a letter that needs none
            # The token was matched as one text, so nothing else is evaluated.
            value = ast.literal_eval(quoted)
    except SyntaxError as error:
        raise ValueError(f"a text cannot be read: {error.msg}") from None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Files --------------------------------------------------------------------------------------------


def records(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Scalar]]]:
    """Yield the line number and some fields of every record.

    If the first record is JSON, all records are read as JSON.
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
                "again, or delete the line.",
                rule="problems.reviews.not-a-record",
            ) from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    number = 0
    with file_errors(path):
        try:
            with path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
            with gzip.open(path) if packed else path.open("rb") as stream:
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


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_json(line: str, names: Sequence[str]) -> dict[str, Scalar]:
    record: object = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a record must be in braces")
    values = {name: record[name] for name in names if name in record}
    return {
        name: value for name, value in values.items() if isinstance(value, str | int | float | None)
    }


# Ratings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The names of fields and files of an edition."""

    what: str
    item: str
    user: tuple[str, ...]
    values: tuple[str, ...]
    """Fields that may have a value. The file's is the first that the first record has."""
    scale: tuple[float, float] | None
    """Least and largest value; None if it is from 0 to the largest of the file."""
    names_files: Callable[[str], tuple[str, ...]]
    """Returns the files that may have the names of items, by the name of the file of reviews."""
    names: tuple[str, ...]
    """Fields of a name."""
    key: str
    """Field of the item in the file of names."""

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields of a review."""
        return (self.item, *self.user, *self.values)


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
        "id",
    ),
    Form(
        "Google Local reviews 2018",
        "gPlusPlaceId",
        ("gPlusUserId",),
        ("rating",),
        STARS,
        lambda name: ("places.clean.json.gz", "places.clean.json"),
        ("name",),
        "gPlusPlaceId",
    ),
    Form(
        "Google Local reviews",
        "gmap_id",
        ("user_id",),
        ("rating",),
        STARS,
        _meta,
        ("name",),
        "gmap_id",
    ),
)


def read_reviews(path: FilePath, where: str | None = None) -> Ratings:
    """Read a file of reviews in any of these forms.

    Records without an item or a value are left out and counted. `where` keeps some of the others,
    by their fields. The ratings of the last file stay in memory while the file does not change, so
    that another threshold does not read it again.
    """
    path = Path(path)
    stamp = (0, 0)
    if path.is_file():
        state = path.stat()
        stamp = (state.st_mtime_ns, state.st_size)
    return _read(path, where, stamp)


@lru_cache(maxsize=1)
def _read(path: Path, where: str | None, stamp: tuple[int, int]) -> Ratings:
    tests = Where.read(where)
    names = {*tests.columns, *(name for form in FORMS for name in form.fields)}
    reviews: _Reviews | None = None
    for number, record in records(path, sorted(names)):
        place = f"{path.name}, line {number}"
        if reviews is None:
            reviews = _Reviews(_form(record, place), path)
        if tests.keeps(record, place):
            reviews.add(record, place)
    if reviews is not None and reviews.item:
        return reviews.ratings(tests.suffix)
    if tests.tests:
        raise tests.no_rows(path.name)
    raise DataError(
        f"{path.name} holds no review with a value. Download it again.",
        rule="problems.reviews.none",
    )


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


def _first_field(record: Mapping[str, Scalar], names: Sequence[str]) -> str:
    """Return the first of some fields that has a value; empty if none has."""
    return next((name for name in names if record.get(name) is not None), "")


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
        self._value_field = self._value_field or _first_field(record, self._form.values)
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
        author = record.get(_first_field(record, self._form.user), place)
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
    files = filter(Path.is_file, (path.parent / name for name in form.names_files(path.name)))
    file = next(files, None)
    if file is None:
        return names
    for _, record in records(file, (*form.names, form.key)):
        key = str(record.get(form.key) or "").removesuffix(".0")
        name = next((str(record[word]) for word in form.names if record.get(word)), "")
        if key in items and name:
            names.setdefault(key, name)
    return names


def find_steam_reviews(data_dir: FilePath | None = None) -> Path:
    """Find the file of Steam reviews."""
    names = ("steam_reviews.json.gz", "steam_reviews.json")
    return find(names, STEAM_REVIEWS_HOME, data_dir, ("steam-reviews", "steam", ""))


def find_google_local(data_dir: FilePath | None = None) -> Path:
    """Find the file of Google Local reviews, of 2018 or of a state.

    Raises:
        DataError: There is no such file, or there are files of several states.
    """
    folder = data_folder(data_dir)
    folders = (folder / "google-local", folder)
    states = sorted(path for part in folders for path in part.glob("review-*.json*"))
    if len(states) > 1:
        raise DataError(
            f"{folder} has reviews of several states "
            f"({', '.join(path.name for path in states[:4])}). Give the path of one of these files as data.",
            rule="problems.data_dir.several-states",
        )
    if states:
        return states[0]
    names = ("reviews.clean.json.gz", "reviews.clean.json")
    return find(names, GOOGLE_HOME, data_dir, ("google-local", ""))


def holds_records(path: Path) -> bool:
    """Return whether a file begins as a file of records does: with gzip, or with a brace."""
    with path.open("rb") as file:
        start = file.read(64)
    return start[:2] == b"\x1f\x8b" or start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"{"
