"""Prepared populations: a folder of .npy files and a header, written once and mapped ever after; or
one .npz file.

A folder holds `offsets.npy` (clients + 1), then `inputs.npy` (samples, ...) or `words.npy`,
`counts.npy` and `word_offsets.npy`, then `labels.npy` (samples) or `tags.npy` and
`tag_offsets.npy`, perhaps `names.npy` and `name_offsets.npy`, and last `population.json`: format,
version, what the arrays are. A folder without that header was never finished. Loading a folder maps
its files, so that memory does not grow with the population; an .npz is read whole; a folder is also
written a chunk of clients at a time (`Writer`), so that the whole never lies in memory. numpy alone
is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import Dense, Population, check_inputs, check_labels
from posse.problems.populations.ragged import Ragged
from posse.problems.tables.text import FilePath

Arrays = Mapping[str, NDArray[Any]]

FORMAT = "posse population"
VERSION = 1
HEADER = "population.json"

_OFFSETS = {
    "clients": "offsets",
    "words": "word_offsets",
    "tags": "tag_offsets",
    "names": "name_offsets",
}
"""Where the offsets of what has rows of different lengths stand."""

_CLIENTS_A_CHUNK = 4096


def save(population: Population, path: FilePath) -> Path:
    """Write to a new folder, a few thousand clients at a time, or to one file where the path ends
    in .npz.
    """
    target = Path(path)
    if population.scaling is not None:
        raise ConfigError(
            "a population is written with its features as they are, got scaled ones. Leave scale "
            "out.",
            rule="problems.prepared.scaled",
        )
    if target.suffix == ".npz":
        _save_file(population, target)
        return target
    with Writer(
        target, population.name, population.arms, population.vocabulary, population.features
    ) as out:
        for low in range(0, population.clients, _CLIENTS_A_CHUNK):
            part = population.part(low, min(low + _CLIENTS_A_CHUNK, population.clients))
            out.add(part.sizes(), part.inputs, part.labels, part.names)
    return target


def _save_file(population: Population, file: Path) -> None:
    if file.exists():
        raise ConfigError(
            f"a population is written to a new file, and {file} exists. Choose another.",
            rule="problems.prepared.file-exists",
        )
    arrays, ragged = _arrays(population.inputs, population.labels, population.names)
    arrays["offsets"] = np.asarray(population.offsets)
    longest = {"clients": population.largest}
    for what, rows in ragged.items():
        arrays[_OFFSETS[what]] = rows.offsets
        longest[what] = rows.longest
    header = _header(
        population.name,
        population.arms,
        population.vocabulary,
        longest,
        {name: _described(array.dtype, array.shape) for name, array in arrays.items()},
        population.features,
    )
    with file.open("xb") as stream:
        write: Any = np.savez  # whose annotation takes every keyword for its own
        write(stream, header=np.array(json.dumps(header)), **arrays)


def load(path: FilePath, *, check: bool = False) -> Population:
    """Map a folder, or read an .npz; with `check` every value is looked at again, else the writer's
    is trusted.
    """
    target = Path(path)
    header, arrays = _read_file(target) if target.suffix == ".npz" else _map_folder(target)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise DataError(
            f"{target} must be a prepared population of version {VERSION}, got "
            f"{header.get('format')!r} version "
            f"{header.get('version')!r}. Prepare it again.",
            rule="problems.prepared.other-version",
        )
    shapes = {name: _described(array.dtype, array.shape) for name, array in arrays.items()}
    for name, expected in header["arrays"].items():
        if shapes.get(name) != expected:
            raise DataError(
                f"{target}: array {name} must be {expected} by the header, got "
                f"{shapes.get(name)}. Prepare it again.",
                rule="problems.prepared.wrong-array",
            )
    columns: dict[str, Any] = dict(arrays)
    for what in _OFFSETS.keys() & arrays.keys():
        counts = arrays.get("counts") if what == "words" else None
        offsets = arrays[_OFFSETS[what]]
        columns[what] = Ragged(offsets, arrays[what], counts, header["longest"][what])
    return Population(
        header["name"],
        tuple(header["arms"]),
        arrays["offsets"],
        columns["words"] if "words" in columns else columns["inputs"],
        columns["tags"] if "tags" in columns else columns["labels"],
        columns.get("names"),
        tuple(header["vocabulary"]),
        header["largest"],
        checked=not check,
        features=tuple(header.get("features", ())),
    )


def _arrays(
    inputs: Dense | Ragged, labels: NDArray[np.int32] | Ragged, names: Ragged | None
) -> tuple[dict[str, NDArray[Any]], dict[str, Ragged]]:
    """Flat arrays by their names in a file, and which of them have rows of different lengths."""
    arrays: dict[str, NDArray[Any]] = {}
    ragged: dict[str, Ragged] = {}
    if isinstance(inputs, Ragged):
        ragged["words"] = inputs
        counts = inputs.counts
        arrays["counts"] = np.ones(len(inputs.values), np.uint16) if counts is None else counts
    else:
        arrays["inputs"] = inputs
    if isinstance(labels, Ragged):
        ragged["tags"] = labels
    else:
        arrays["labels"] = labels.astype(np.int32, copy=False)
    if names is not None:
        ragged["names"] = names
    for what, rows in ragged.items():
        arrays[what] = rows.values
    return arrays, ragged


def _map_folder(folder: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        names = list(header["arrays"])
    except FileNotFoundError:
        raise DataError(
            f"no {HEADER} in {folder}: not a prepared population, or never finished. Prepare it.",
            rule="problems.prepared.no-header",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / HEADER} cannot be read ({error}). Prepare the population again.",
            rule="problems.prepared.broken-header",
        ) from None
    try:
        return header, {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in names
        }
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder} is not whole ({error}). Prepare the population again.",
            rule="problems.prepared.not-whole",
        ) from None


def _read_file(file: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if "header" not in arrays:
            raise DataError(
                f"{file} is not a prepared population: it holds {', '.join(arrays) or 'nothing'} "
                "and no header. Make a "
                "Population of these arrays and write it with "
                "posse.problems.populations.prepared.save.",
                rule="problems.prepared.not-prepared",
            )
        header: dict[str, Any] = json.loads(str(arrays.pop("header")))
    except FileNotFoundError:
        raise DataError(
            f"no file {file}. Check the path.", rule="problems.prepared.missing"
        ) from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{file} is not a whole prepared population ({error}). Prepare it again.",
            rule="problems.prepared.broken-file",
        ) from None
    return header, arrays


class Column:
    """An .npy file that grows along its first axis; the number of rows is written when it is
    closed.
    """

    def __init__(self, file: Path, like: tuple[np.dtype[np.generic], tuple[int, ...]]) -> None:
        self.rows = 0
        self._file = file
        self._like = like
        """Type of the numbers, and shape of a row."""
        self._stream = file.open("xb")
        self._write_header()
        self._start = self._stream.tell()

    def add(self, values: NDArray[np.generic]) -> None:
        """Append rows."""
        like = (values.dtype, values.shape[1:])
        if like != self._like:
            raise DataError(
                f"{self._file.name}: every chunk must have the same type and shape, got {like} after {self._like}. "
                "Convert it.",
                rule="problems.prepared.chunks-differ",
            )
        self._stream.write(np.ascontiguousarray(values).tobytes())
        self.rows += len(values)

    def close(self) -> dict[str, object]:
        """Write the number of rows and return the entry of the header."""
        self._stream.seek(0)
        self._write_header()
        # numpy leaves room in the header for the first axis to grow.
        if self._stream.tell() != self._start:
            raise RuntimeError(f"the header of {self._file} grew")
        self._stream.close()
        kind, rest = self._like
        return _described(kind, (self.rows, *rest))

    def abandon(self) -> None:
        """Close without finishing."""
        self._stream.close()

    def _write_header(self) -> None:
        kind, rest = self._like
        npy.write_array_header_1_0(
            self._stream,
            {
                "descr": npy.dtype_to_descr(kind),
                "fortran_order": False,
                "shape": (self.rows, *rest),
            },
        )


class Writer:
    """Writes to a new folder; the header comes last, so that an unfinished folder does not look
    complete.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        arms: tuple[str, ...],
        vocabulary: tuple[str, ...] = (),
        features: tuple[str, ...] = (),
    ) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"a population is written to a new folder, and {folder} is not empty. Choose "
                "another.",
                rule="problems.prepared.folder-not-empty",
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name, self._arms, self._vocabulary = folder, name, arms, vocabulary
        self._features = features
        self._columns: dict[str, Column] = {}
        self._ends: dict[str, int] = {}
        self._longest: dict[str, int] = {}

    def __enter__(self) -> Writer:
        return self

    def add(
        self,
        sizes: NDArray[np.int64] | list[int],
        inputs: Dense | Ragged,
        labels: NDArray[np.int32] | Ragged,
        names: Ragged | None = None,
    ) -> None:
        """Append clients: how many samples each has, and those samples; checked before anything is
        written.
        """
        sizes = np.asarray(sizes, np.int64)
        if not len(sizes) or sizes.min() < 1 or not sizes.sum() == len(inputs) == len(labels):
            raise DataError(
                "every client must have a sample, and every sample an input and a label, got "
                "sizes from "
                f"{sizes.min(initial=0)} that add up to {sizes.sum()}, {len(inputs)} inputs and "
                f"{len(labels)} labels. "
                "Leave empty clients out.",
                rule="problems.prepared.sizes",
            )
        check_inputs(inputs, len(self._vocabulary))
        check_labels(labels, len(self._arms))
        arrays, ragged = _arrays(inputs, labels, names)
        for name, array in arrays.items():
            self._add(name, array)
        for what, rows in ragged.items():
            self._steps(what, np.diff(rows.offsets))
        self._steps("clients", sizes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for column in self._columns.values():
                column.abandon()
            return
        if not self._columns:
            raise DataError(
                "a population needs a client, got none. Add a chunk.",
                rule="problems.prepared.no-client",
            )
        arrays = {name: column.close() for name, column in self._columns.items()}
        header = _header(
            self._name, self._arms, self._vocabulary, self._longest, arrays, self._features
        )
        (self._folder / HEADER).write_text(json.dumps(header), encoding="utf-8")

    def _add(self, name: str, rows: NDArray[np.generic]) -> None:
        if name not in self._columns:
            file = self._folder / f"{name}.npy"
            self._columns[name] = Column(file, (rows.dtype, rows.shape[1:]))
        self._columns[name].add(rows)

    def _steps(self, what: str, steps: NDArray[np.int64]) -> None:
        """Append row lengths as offsets."""
        name = _OFFSETS[what]
        if name not in self._columns:
            self._add(name, np.zeros(1, np.int64))
        ends = self._ends.get(what, 0) + np.cumsum(steps, dtype=np.int64)
        self._add(name, ends)
        if len(ends):
            self._ends[what] = int(ends[-1])
            self._longest[what] = max(self._longest.get(what, 0), int(steps.max()))


def _described(kind: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, object]:
    """Return what the header says of an array."""
    return {"dtype": kind.str, "shape": list(shape)}


def _header(
    name: str,
    arms: tuple[str, ...],
    vocabulary: tuple[str, ...],
    longest: dict[str, int],
    arrays: dict[str, Any],
    features: tuple[str, ...],
) -> dict[str, object]:
    longest = dict.fromkeys(_OFFSETS, 0) | longest
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "arms": list(arms),
        "vocabulary": list(vocabulary),
        "largest": longest["clients"],
        "longest": longest,
        "arrays": arrays,
        "features": list(features),
    }
