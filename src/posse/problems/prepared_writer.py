"""Writes a prepared population a chunk of clients at a time: the whole never lies in memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.population_checks import check_inputs, check_labels
from posse.problems.populations import Population
from posse.problems.ragged import Ragged

FORMAT = "posse population"
VERSION = 1
HEADER = "population.json"


class Column:
    """An .npy file that grows along its first axis; the number of rows is written when it is closed."""

    def __init__(self, file: Path) -> None:
        self.rows = 0
        self._file = file
        self._stream: IO[bytes] | None = None
        self._like: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        self._start = 0

    def add(self, values: NDArray[Any]) -> None:
        """Append rows."""
        like = (values.dtype, values.shape[1:])
        if self._stream is None:
            self._stream = self._file.open("xb")
            self._like = like
            self._write_header()
            self._start = self._stream.tell()
        if like != self._like:
            raise DataError(f"{self._file.name}: every chunk must be alike, got {like} after {self._like}. Convert it.")
        self._stream.write(np.ascontiguousarray(values).tobytes())
        self.rows += len(values)

    def close(self) -> dict[str, Any]:
        """Write the number of rows and give what the header keeps."""
        if self._stream is None or self._like is None:
            raise DataError("a population needs a client, got none. Add a chunk.")
        self._stream.seek(0)
        self._write_header()
        # numpy leaves room in the header for the first axis to grow.
        if self._stream.tell() != self._start:
            raise RuntimeError(f"the header of {self._file} grew")
        self._stream.close()
        return {"dtype": self._like[0].str, "shape": [self.rows, *self._like[1]]}

    def abandon(self) -> None:
        """Close without finishing."""
        if self._stream is not None:
            self._stream.close()

    def _write_header(self) -> None:
        assert self._stream is not None
        assert self._like is not None
        kind, rest = self._like
        npy.write_array_header_1_0(
            self._stream, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": (self.rows, *rest)}
        )


class Writer:
    """Writes to a new folder; the header comes last, so that a folder that was never finished is not taken for whole.

    >>> import tempfile
    >>> from posse.problems.prepared import load
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with Writer(Path(place, "small"), "small", ("no", "yes")) as out:
    ...         for client in range(3):
    ...             rows = client + 1
    ...             out.add([rows], np.zeros((rows, 4), np.uint8), np.ones(rows, np.int32))
    ...     load(Path(place, "small")).sizes().tolist()
    [1, 2, 3]
    """

    def __init__(self, folder: Path, name: str, arms: tuple[str, ...], vocabulary: tuple[str, ...] = ()) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"a population is written to a new folder, and {folder} is not empty. Choose another.")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name, self._arms, self._vocabulary = folder, name, arms, vocabulary
        self._columns: dict[str, Column] = {}
        self._ends: dict[str, int] = {}
        self._longest = {"clients": 0, "words": 0, "tags": 0, "names": 0}

    def __enter__(self) -> Writer:
        return self

    def add(
        self,
        sizes: NDArray[np.int64] | list[int],
        inputs: NDArray[np.uint8] | NDArray[np.float32] | Ragged,
        labels: NDArray[np.int32] | Ragged,
        names: Ragged | None = None,
    ) -> None:
        """Append clients: how many samples each has, and those samples; checked before anything is written."""
        sizes = np.asarray(sizes, np.int64)
        if not len(sizes) or sizes.min() < 1 or not sizes.sum() == len(inputs) == len(labels):
            raise DataError(
                f"every client must have a sample, and every sample an input and a label, got sizes from "
                f"{sizes.min(initial=0)} that add up to {sizes.sum()}, {len(inputs)} inputs and {len(labels)} labels. "
                "Leave empty clients out."
            )
        check_inputs(inputs, len(self._vocabulary))
        check_labels(labels, len(self._arms))
        if isinstance(inputs, Ragged):
            counts = np.ones(len(inputs.values), np.uint16) if inputs.counts is None else inputs.counts
            self._column("words").add(inputs.values)
            self._column("counts").add(counts)
            self._steps("word_offsets", "words", np.diff(inputs.offsets))
        else:
            self._column("inputs").add(inputs)
        if isinstance(labels, Ragged):
            self._column("tags").add(labels.values)
            self._steps("tag_offsets", "tags", np.diff(labels.offsets))
        else:
            self._column("labels").add(labels.astype(np.int32))
        if names is not None:
            self._column("names").add(names.values)
            self._steps("name_offsets", "names", np.diff(names.offsets))
        self._steps("offsets", "clients", sizes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for column in self._columns.values():
                column.abandon()
            return
        arrays = {name: column.close() for name, column in self._columns.items()}
        header = _header(self._name, self._arms, self._vocabulary, self._longest, arrays)
        (self._folder / HEADER).write_text(json.dumps(header), encoding="utf-8")

    def _column(self, name: str) -> Column:
        return self._columns.setdefault(name, Column(self._folder / f"{name}.npy"))

    def _steps(self, name: str, what: str, steps: NDArray[np.int64]) -> None:
        """Append row lengths as offsets."""
        column = self._column(name)
        if name not in self._ends:
            column.add(np.zeros(1, np.int64))
        ends = self._ends.get(name, 0) + np.cumsum(steps, dtype=np.int64)
        column.add(ends)
        if len(ends):
            self._ends[name] = int(ends[-1])
            self._longest[what] = max(self._longest[what], int(steps.max()))


def header_of(population: Population, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Give the header of a population that is written whole."""
    inputs, labels, names = population.inputs, population.labels, population.names
    longest = {
        "clients": population.largest,
        "words": inputs.longest if isinstance(inputs, Ragged) else 0,
        "tags": labels.longest if isinstance(labels, Ragged) else 0,
        "names": 0 if names is None else names.longest,
    }
    kept = {name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()}
    return _header(population.name, population.arms, population.vocabulary, longest, kept)


def _header(
    name: str, arms: tuple[str, ...], vocabulary: tuple[str, ...], longest: dict[str, int], arrays: dict[str, Any]
) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": VERSION, "name": name, "arms": list(arms), "vocabulary": list(vocabulary),
        "largest": longest["clients"], "longest": longest, "arrays": arrays,
    }  # fmt: skip
