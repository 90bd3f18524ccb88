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
from posse.problems.datasets.files import FilePath, data_folder, find

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


def fields(line: str, wanted: Sequence[str]) -> dict[str, Scalar]:
    """Read the wanted fields of a record that is written as a Python literal or as JSON; scalars
    only.

    Every token is checked, nothing is evaluated, and nesting costs no stack.

    >>> fields("{u'hours': 2.5, 'text': \\"it's {fine}\\", 'tags': [1, (2,)], 'id': u'70'}", ("hours", "id"))
    {'hours': 2.5, 'id': '70'}
    >>> fields("{'hours': __import__('os')}", ("hours",))
    Traceback (most recent call last):
    ...
    ValueError: column 10: neither text, a number, None, True nor False
    """
    found: dict[str, Scalar] = {}
    open_: list[str] = []
    key, after = "", ""
    at, end = 0, len(line.rstrip())
    while at < end:
        token = _TOKEN.match(line, at, end)
        if token is None:
            raise ValueError(f"column {at + 1}: neither text, a number, None, True nor False")
        at = token.end()
        mark = token["mark"]
        if mark is None:
            if not open_:
                raise ValueError("a record must be in braces")
            if open_ == ["{"]:
                key = _scalar(key, after, token, wanted, found)
            after = "value"
        elif mark in "{[(":
            if not open_ and mark != "{":
                raise ValueError("a record must be in braces")
            if open_ == ["{"] and after != ":":
                raise ValueError(f"column {at}: a name in quotes must stand here")
            open_.append(mark)
            after = mark if len(open_) == 1 else after
        elif mark in _CLOSES:
            if not open_ or open_.pop() != _CLOSES[mark]:
                raise ValueError(f"column {at}: '{mark}' closes nothing")
            if not open_ and line[at:end].strip():
                raise ValueError(f"column {at + 1}: something follows the record")
            if len(open_) == 1:
                key = ""
        elif len(open_) == 1:
            after = mark
    if open_ or not at:
        raise ValueError("the record does not end")
    return found


def _scalar(
    key: str, after: str, token: re.Match[str], wanted: Sequence[str], found: dict[str, Scalar]
) -> str:
    """Take a key, or the value of one; return the key that waits for its value."""
    if after != ":":
        if token["text"] is None or after == "value":
            raise ValueError(f"column {token.start() + 1}: a name in quotes must stand here")
        return _text(token["text"])
    if key in wanted:
        if token["text"] is not None:
            found[key] = _text(token["text"])
        else:
            found[key] = float(token["number"]) if token["word"] is None else _WORDS[token["word"]]
    return ""


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


def records(path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Scalar]]]:
    """Give line number and wanted fields of every record, one at a time; a file of JSON is read as
    JSON.
    """
    as_json: bool | None = None
    for number, line in _lines(path):
        try:
            if as_json is None:
                as_json = _is_json(line)
            yield number, _from_json(line, wanted) if as_json else fields(line, wanted)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path.name}, line {number}: not a record ({str(error)[:120]}). Download the file "
                "again, or delete "
                "the line."
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
                        "record."
                    )
                if line.strip():
                    yield number, line.decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"no file {path}. Check the path.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path.name}, line {number} is not UTF-8. Download it again.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path.name} is not a whole gzip file ({error}). Download it again."
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}. Give a file you may read."
        ) from None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_json(line: str, wanted: Sequence[str]) -> dict[str, Scalar]:
    record: object = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a record must be in braces")
    return {
        name: record[name]
        for name in wanted
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
    """Fields a value may stand in; the first that the first record has is the file's."""
    scale: tuple[float, float] | None
    """None: from 0 to the largest."""
    named: Callable[[str], tuple[str, ...]]
    """Files beside it that may hold the names of items, by its own name."""
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


def read_reviews(path: FilePath) -> Ratings:
    """Read a file of reviews of any of these forms; records without an item or a value are left out
    and counted.

    The file that was read last is kept while it does not change: a threshold that moves does not
    read it again.
    """
    path = Path(path)
    stamp = path.stat() if path.is_file() else None
    return _read(path, None if stamp is None else (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=1)
def _read(path: Path, stamp: tuple[int, int] | None) -> Ratings:
    wanted = sorted({name for form in FORMS for name in (form.item, *form.user, *form.values)})
    form, value_of = None, ""
    items: dict[str, int] = {}
    users: dict[str, int] = {}
    item, user, value = array("q"), array("q"), array("d")
    skipped = 0
    for number, record in records(path, wanted):
        if form is None:
            form = next((one for one in FORMS if one.item in record), None)
            if form is None:
                raise DataError(
                    f"{path.name}, line {number}: no field {', '.join(one.item for one in FORMS)}: "
                    "neither Steam nor "
                    "Google Local reviews. Give one of these files, or a CSV with columns "
                    "item,rating."
                )
        value_of = value_of or next(
            (name for name in form.values if record.get(name) is not None), ""
        )
        given, rated = record.get(form.item), record.get(value_of)
        if given is None or not isinstance(rated, int | float) or not math.isfinite(rated):
            skipped += 1
            continue
        if not _inside(float(rated), form.scale):
            raise DataError(
                f"{path.name}, line {number}: {value_of} is {rated:g}, which no review can have."
            )
        author = next(
            (record[name] for name in form.user if record.get(name) is not None), f"line {number}"
        )
        item.append(items.setdefault(str(given), len(items)))
        user.append(users.setdefault(str(author), len(users)))
        value.append(float(rated))
    if form is None or not item:
        raise DataError(f"{path.name} holds no review with a value. Download it again.")
    return _ratings(path, form, value_of, (items, item, user, value), skipped)


def _inside(rated: float, scale: tuple[float, float] | None) -> bool:
    return rated >= 0 if scale is None else scale[0] <= rated <= scale[1]


Kept = tuple[dict[str, int], "array[int]", "array[int]", "array[float]"]
"""Items by number, and item, user and value of every review."""


def _ratings(path: Path, form: Form, value_of: str, kept: Kept, skipped: int) -> Ratings:
    items, item, user, value = kept
    largest = float(max(value))
    scale = form.scale or (0.0, 1.0 if value_of == "recommend" else largest if largest > 0 else 1.0)
    left = f"; {skipped:,} without a value left out" if skipped else ""
    names = _names(path, form, items)
    source = f"{form.what} ({value_of}) of {path.name}{left}"
    return Ratings(
        tuple(items),
        np.array(item, np.int64),
        np.array(value),
        scale,
        source,
        user=np.array(user, np.int64),
        names=tuple(names.get(one, one) for one in items),
    )


def _names(path: Path, form: Form, items: Mapping[str, int]) -> dict[str, str]:
    """Return the names of items from the file beside, where there is one."""
    beside = next(
        (path.parent / name for name in form.named(path.name) if (path.parent / name).is_file()),
        None,
    )
    found: dict[str, str] = {}
    for _, record in records(beside, (*form.names, *form.key)) if beside is not None else ():
        key = next((str(record[name]) for name in form.key if record.get(name) is not None), "")
        name = next((str(record[word]) for word in form.names if record.get(word)), "")
        key = key.removesuffix(".0")
        if key in items and name:
            found.setdefault(key, name)
    return found


def find_steam_reviews(data_dir: FilePath | None = None) -> Path:
    """Find the file of Steam reviews."""
    names = ("steam_reviews.json.gz", "steam_reviews.json")
    candidates = (
        *(f"{folder}/{name}" for folder in ("steam-reviews", "steam") for name in names),
        *names,
    )
    return find(candidates, STEAM_REVIEWS_HOME, data_dir)


def find_google_local(data_dir: FilePath | None = None) -> Path:
    """Find the one file of Google Local reviews, of 2018 or of a state; of several, say how to name
    one.
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
            "data, with its folder."
        )
    names = ("reviews.clean.json.gz", "reviews.clean.json")
    return find((*(f"google-local/{name}" for name in names), *names), GOOGLE_HOME, data_dir)


def holds_records(path: Path) -> bool:
    """Whether a file begins like one of records: gzip, or a brace."""
    with path.open("rb") as file:
        start = file.read(64)
    return start[:2] == b"\x1f\x8b" or start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"{"
