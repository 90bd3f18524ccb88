"""Where data files are, and whether they are the files that published numbers were computed from.

The package ships no data set. It looks in the folder given as `data_dir`, else in the one that the environment
variable POSSE_DATA names, checks size and sha256 of the files it knows, and says where to get one that is missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posse.core.errors import DataError
from posse.problems.datasets.document import Document, FilePath, read_bytes

VARIABLE = "POSSE_DATA"


@dataclass(frozen=True)
class Pin:
    """What a known file must be, byte for byte."""

    size: int
    sha256: str


# MovieLens names the files of every edition alike, so its pins go with the folder of one edition.
PINS = {
    "ml-latest-small/ratings.csv": Pin(2483723, "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646"),
    "ml-latest-small/movies.csv": Pin(494431, "5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07"),
    "jester-data-1.zip": Pin(3400621, "4adf783a1e03bd3be063315cb6e0a064fe63e983fd289d01b8e401a8e6c41e5f"),
    "jester-data-1.csv": Pin(11712553, "4692895acc91263ec11592cb94687725e28afdd451845ab46c2ac6ba3ebc414e"),
    "steam.zip": Pin(823340, "befdc608cb06f83b97f9d7a34437ca3d76a8ad648dd9304d837ebe3fdf92a77e"),
    "game_play.dat": Pin(954135, "86ac428985a323da0c6cee634b2c8d8851bb028048426a6381c68c96554d0b14"),
    "game_purchase.dat": Pin(1713633, "d353d441b6325862be2162292b6ad6b501fa16380b9625a96daa8fa456c4ec52"),
    "item_info.dat": Pin(138405, "0f799721e472a14ef3c7a06e0771532d47611ec18e87c158e4864074ed5c5c60"),
}


def data_folder(data_dir: FilePath | None = None) -> Path:
    """Give the folder of data files: the argument, else POSSE_DATA."""
    given = os.environ.get(VARIABLE, "") if data_dir is None else os.fspath(data_dir)
    if not given:
        raise DataError(f"no folder of data files is set. Give data_dir (--data-dir), or set {VARIABLE} to the folder.")
    if not Path(given).is_dir():
        told = f"{VARIABLE} names" if data_dir is None else "data_dir is"
        raise DataError(f"{told} {given}, which is not a folder. Give the folder that holds the data sets.")
    return Path(given)


def find(candidates: Sequence[str], home: str, data_dir: FilePath | None = None) -> Path:
    """Give the first candidate (a path below the folder of data files) that exists, or say where to get it."""
    folder = data_folder(data_dir)
    for candidate in candidates:
        if (folder / candidate).exists():
            return folder / candidate
    raise DataError(
        f"no {candidates[0]} in {folder}. Get it from {home} (mind its terms), put it there, "
        f"or give another folder by data_dir (--data-dir) or {VARIABLE}."
    )


def read_known(path: Path, home: str, verify: bool = True) -> bytes:
    """Read a file and, where it is one that is pinned, check that it is the same."""
    data = read_bytes(path)
    pin = PINS.get(f"{path.parent.name}/{path.name}") or PINS.get(path.name)
    if verify and pin is not None:
        check_pin(os.fspath(path), data, pin, home)
    return data


def read_known_text(path: Path, home: str, verify: bool = True) -> Document:
    """Read a text file in the same way."""
    return Document(os.fspath(path), read_known(path, home, verify))


def check_pin(name: str, data: bytes, pin: Pin, home: str) -> None:
    """Refuse a file that is not the pinned one.

    >>> check_pin("a.csv", b"one", Pin(3, "0" * 64), "example.org")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] a.csv is not the known file: expected 3 bytes with sha256 000000000000..., found
    3 bytes with 7692c3ad3540.... Download it again from example.org, or pass verify=False to use it as it is.
    """
    found = hashlib.sha256(data).hexdigest()
    if len(data) != pin.size or found != pin.sha256:
        raise DataError(
            f"{name} is not the known file: expected {pin.size} bytes with sha256 {pin.sha256[:12]}..., "
            f"found {len(data)} bytes with {found[:12]}.... "
            f"Download it again from {home}, or pass verify=False to use it as it is."
        )
