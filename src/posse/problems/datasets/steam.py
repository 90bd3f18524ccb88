"""Steam: hours that people played games, and the games they bought.

Two layouts hold the same 200,000 rows: game_play.dat, game_purchase.dat and item_info.dat (in a folder or in
steam.zip, tab separated), and the single file steam-200k.csv without a header. The value of a play is hours, so a
threshold on it is in hours; the value of a purchase is always 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets.columns import read_columns
from posse.problems.datasets.document import Document, FilePath, unzip
from posse.problems.datasets.items import by_number, name_of
from posse.problems.datasets.locate import find, read_known, read_known_text
from posse.problems.ratings import Ratings

HOME = "https://www.kaggle.com/datasets/tamber/steam-video-games"
Table = Literal["plays", "purchases"]
TABLES: tuple[str, ...] = ("plays", "purchases")

_SINGLE = "steam-200k.csv"
_FILES = {"plays": ("game_play.dat", "Hours"), "purchases": ("game_purchase.dat", "Purchase")}
_BEHAVIOUR = {"plays": "play", "purchases": "purchase"}
_CANDIDATES = ("steam.zip", _SINGLE, "game_play.dat", "steam/game_play.dat")


def load_steam(data_dir: FilePath | None = None, verify: bool = True, table: Table = "plays") -> Ratings:
    """Find the data in either layout and read them: 70,489 plays of 3,600 games, or 129,511 purchases of 5,155."""
    found = find((*(f"steam/{file}" for file in _CANDIDATES), *_CANDIDATES), HOME, data_dir)
    return read_steam(found.parent if found.suffix == ".dat" else found, table, verify)


def read_steam(path: FilePath, table: Table = "plays", verify: bool = True) -> Ratings:
    """Read plays or purchases from a zip, from a folder, or from steam-200k.csv.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "steam-200k.csv")
    ...     _ = file.write_text("7,Spore,purchase,1.0,0\\n7,Spore,play,14.9,0\\n8,Spore,play,0.3,0\\n")
    ...     read_steam(file).means(1.0).tolist()
    [0.5]
    """
    check.one_of(TABLES, table=table)
    path = Path(path)
    if path.is_dir():
        if (path / _SINGLE).exists() and not (path / _FILES[table][0]).exists():
            return _single(read_known_text(path / _SINGLE, HOME, verify), table)
        return _pair(lambda file: read_known_text(path / file, HOME, verify), table)
    if path.suffix.lower() != ".zip":
        return _single(read_known_text(path, HOME, verify), table)
    inside = unzip(str(path), read_known(path, HOME, verify))
    if _SINGLE in inside:
        return _single(inside[_SINGLE], table)
    return _pair(lambda file: _member(path, inside, file), table)


def _member(path: Path, inside: dict[str, Document], file: str) -> Document:
    if file not in inside:
        raise DataError(
            f"{path} holds no {file} (it holds: {', '.join(sorted(inside)) or 'no table'}). Get it from {HOME}."
        )
    return inside[file]


def _pair(document: Callable[[str], Document], table: str) -> Ratings:
    file, column = _FILES[table]
    rows = read_columns(document(file), words=["User_ID", "Game_ID"], numbers=[column], delimiter="\t")
    rows.check_between(0.0, np.inf, column=column)
    items, item = by_number(rows, "Game_ID")
    games = read_columns(document("item_info.dat"), words=["Game_ID", "Game Name"], delimiter="\t")
    names = name_of(games, "Game_ID", "Game Name")
    value = rows.numbers[column]
    return Ratings(
        items=items,
        item=item,
        value=value,
        scale=(0.0, float(value.max())),
        source=f"Steam {table}",
        user=rows.words["User_ID"].code,
        names=tuple(names.get(game, f"game {game}") for game in items),
    )


def _single(document: Document, table: str) -> Ratings:
    header = ("user", "game", "behaviour", "value", "unused")
    rows = read_columns(document, words=["user", "game", "behaviour"], numbers=["value"], delimiter=",", header=header)
    rows.check_between(0.0, np.inf, column="value")
    behaviour = rows.words["behaviour"]
    unknown = [word for word in behaviour.distinct if word not in _BEHAVIOUR.values()]
    if unknown:
        row = int(np.argmax(behaviour.code == behaviour.distinct.index(unknown[0])))
        raise DataError(
            f"{rows.place(row, 'behaviour')}: must be 'play' or 'purchase', got '{unknown[0]}'. Correct it."
        )
    if _BEHAVIOUR[table] not in behaviour.distinct:
        raise DataError(f"{document.name} has no row of '{_BEHAVIOUR[table]}'. Ask for the other table.")
    kept = behaviour.code == behaviour.distinct.index(_BEHAVIOUR[table])
    codes, item = np.unique(rows.words["game"].code[kept], return_inverse=True)
    value = rows.numbers["value"][kept]
    return Ratings(
        items=tuple(rows.words["game"].distinct[code] for code in codes),
        item=item,
        value=value,
        scale=(0.0, float(value.max())),
        source=f"Steam {table}",
        user=rows.words["user"].code[kept],
    )
