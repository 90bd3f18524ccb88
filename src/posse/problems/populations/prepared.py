"""Prepared populations: a folder of .npy files with a header, or one .npz file.

A folder holds `offsets.npy` (clients + 1), then `inputs.npy` (samples, ...) or `words.npy`,
`counts.npy` and `word_offsets.npy`, then `labels.npy` (samples) or `tags.npy` and
`tag_offsets.npy`, perhaps `names.npy` and `name_offsets.npy`, and last `population.json`: format,
version, names, types and shapes. A folder without that header was never finished.

Loading a folder maps its files, so that memory does not grow with the population. An .npz file is
read completely. `Writer` writes a folder a chunk of clients at a time, so that the population is
never in memory as a whole. Only numpy is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import (
    Dense,
    Population,
    Ragged,
    check_inputs,
    check_labels,
)
from posse.problems.requirements import Ints
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
"""Arrays of offsets, by the arrays that have rows of different lengths."""

_CLIENTS_PER_CHUNK = 4096


@dataclass(frozen=True)
class _Names:
    """The parts of a header that are no numbers."""

    name: str
    arms: tuple[str, ...]
    vocabulary: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def header(self, longest: Mapping[str, int], arrays: Mapping[str, object]) -> dict[str, object]:
        """Return the header of a prepared population."""
        lengths = {what: longest.get(what, 0) for what in _OFFSETS}
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "arms": list(self.arms),
            "vocabulary": list(self.vocabulary),
            "largest": lengths["clients"],
            "longest": lengths,
            "arrays": dict(arrays),
            "features": list(self.features),
        }


def save(population: Population, path: FilePath) -> Path:
    """Write a population to a new folder, or to one file if the path ends in .npz.

    A folder is written a few thousand clients at a time.
    """
    target = Path(path)
    names = (population.name, population.arms, population.vocabulary, population.features)
    if population.scaling is not None:
        raise ConfigError(
            "a population is written with its features as they are, got scaled ones. Leave scale "
            "out.",
            rule="problems.prepared.scaled",
        )
    if target.suffix == ".npz":
        _save_file(population, target, _Names(*names))
        return target
    with Writer(target, *names) as out:
        for low in range(0, population.clients, _CLIENTS_PER_CHUNK):
            part = population.part(low, min(low + _CLIENTS_PER_CHUNK, population.clients))
            out.add(part.sizes(), part.inputs, part.labels, part.names)
    return target


def _save_file(population: Population, file: Path, names: _Names) -> None:
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
    header = names.header(longest, _describe_all(arrays))
    with file.open("xb") as stream:
        write: Any = np.savez  # its annotation takes every keyword for its own
        write(stream, header=np.array(json.dumps(header)), **arrays)


def load(path: FilePath, *, check: bool = False) -> Population:
    """Map a folder, or read an .npz file.

    With `check`, every value is checked again; otherwise the writer is trusted.
    """
    target = Path(path)
    header, arrays = _read_file(target) if target.suffix == ".npz" else _map_folder(target)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise DataError(
            f"{target} must be a prepared population of version {VERSION}, got "
            f"{header.get('format')!r} version {header.get('version')!r}. Prepare it again.",
            rule="problems.prepared.other-version",
        )
    shapes = _describe_all(arrays)
    for name, expected in header["arrays"].items():
        if shapes.get(name) != expected:
            raise DataError(
                f"{target}: array {name} must be {expected} by the header, got "
                f"{shapes.get(name)}. Prepare it again.",
                rule="problems.prepared.wrong-array",
            )
    ragged = {
        what: Ragged(
            arrays[_OFFSETS[what]],
            arrays[what],
            arrays.get("counts") if what == "words" else None,
            header["longest"][what],
        )
        for what in _OFFSETS.keys() & arrays.keys()
    }
    columns: dict[str, Any] = {**arrays, **ragged}
    return Population(
        header["name"],
        tuple(header["arms"]),
        columns["offsets"],
        columns["words" if "words" in columns else "inputs"],
        columns["tags" if "tags" in columns else "labels"],
        columns.get("names"),
        tuple(header["vocabulary"]),
        header["largest"],
        checked=not check,
        features=tuple(header.get("features", ())),
    )


def _arrays(
    inputs: Dense | Ragged, labels: NDArray[np.int32] | Ragged, names: Ragged | None
) -> tuple[dict[str, NDArray[Any]], dict[str, Ragged]]:
    """Return flat arrays by their names in a file, and which have rows of different lengths."""
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
    arrays |= {what: rows.values for what, rows in ragged.items()}
    return arrays, ragged


def _map_folder(folder: Path) -> tuple[dict[str, Any], Arrays]:
    file = folder / HEADER
    if not file.exists():
        raise DataError(
            f"no {HEADER} in {folder}: not a prepared population, or never finished. Prepare it.",
            rule="problems.prepared.no-header",
        )
    try:
        header: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        names = list(header["arrays"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read ({error}). Prepare the population again.",
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
                "and no header. Make a Population of these arrays and write it with "
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


class ArrayFile:
    """An .npy file that grows along its first axis. Closing it writes the number of rows."""

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
                f"{self._file.name}: every chunk must have the same type and shape, got {like} "
                f"after {self._like}. Convert it.",
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
    """Writes a new folder. It writes the header last: an unfinished folder has none."""

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
        self._folder = folder
        self._names = _Names(name, arms, vocabulary, features)
        self._columns: dict[str, ArrayFile] = {}
        self._ends: dict[str, int] = {}
        self._longest: dict[str, int] = {}

    def __enter__(self) -> Writer:
        return self

    def add(
        self,
        sizes: Ints | list[int],
        inputs: Dense | Ragged,
        labels: NDArray[np.int32] | Ragged,
        names: Ragged | None = None,
    ) -> None:
        """Append clients: the number of samples of each, and the samples.

        All are checked before anything is written.
        """
        sizes = np.asarray(sizes, np.int64)
        if sizes.min(initial=1) < 1 or not 0 < sizes.sum() == len(inputs) == len(labels):
            raise DataError(
                "every client must have a sample, and every sample an input and a label, got "
                f"sizes that add up to {sizes.sum()}, {len(inputs)} inputs and {len(labels)} "
                "labels. Leave empty clients out.",
                rule="problems.prepared.sizes",
            )
        check_inputs(inputs, len(self._names.vocabulary))
        check_labels(labels, len(self._names.arms))
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
        header = self._names.header(self._longest, arrays)
        (self._folder / HEADER).write_text(json.dumps(header), encoding="utf-8")

    def _add(self, name: str, rows: NDArray[np.generic]) -> None:
        if name not in self._columns:
            file = self._folder / f"{name}.npy"
            self._columns[name] = ArrayFile(file, (rows.dtype, rows.shape[1:]))
        self._columns[name].add(rows)

    def _steps(self, what: str, steps: Ints) -> None:
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
    """Return the entry of the header for an array."""
    return {"dtype": kind.str, "shape": list(shape)}


def _describe_all(arrays: Arrays) -> dict[str, object]:
    return {name: _described(array.dtype, array.shape) for name, array in arrays.items()}
