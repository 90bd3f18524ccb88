"""Prepared populations: a folder of .npy files and a header, written once and mapped ever after; or one .npz file.

A folder holds `offsets.npy` (clients + 1), then `inputs.npy` (samples, ...) or `words.npy`, `counts.npy` and
`word_offsets.npy`, then `labels.npy` (samples) or `tags.npy` and `tag_offsets.npy`, perhaps `names.npy` and
`name_offsets.npy`, and last `population.json`: format, version, what the arrays are. A folder without that header was
never finished. Loading a folder maps its files, so that memory does not grow with the population; an .npz is read
whole. numpy alone is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.populations import Population
from posse.problems.prepared_writer import FORMAT, HEADER, VERSION, Writer, header_of
from posse.problems.ragged import Ragged

FilePath = str | os.PathLike[str]
Arrays = Mapping[str, NDArray[Any]]

_CLIENTS_A_CHUNK = 4096


def save(population: Population, path: FilePath) -> Path:
    """Write to a new folder, a few thousand clients at a time, or to one file where the path ends in .npz."""
    target = Path(path)
    if target.suffix == ".npz":
        if target.exists():
            raise ConfigError(f"a population is written to a new file, and {target} exists. Choose another.")
        arrays = _arrays(population)
        text = json.dumps(header_of(population, arrays))
        with target.open("xb") as stream:
            write: Any = np.savez  # whose annotation takes every keyword for its own
            write(stream, header=np.array(text), **arrays)
        return target
    with Writer(target, population.name, population.arms, population.vocabulary) as out:
        for low in range(0, population.clients, _CLIENTS_A_CHUNK):
            high = min(low + _CLIENTS_A_CHUNK, population.clients)
            first, last = int(population.offsets[low]), int(population.offsets[high])
            inputs, labels, names = population.inputs, population.labels, population.names
            out.add(
                np.diff(population.offsets[low : high + 1]),
                inputs.part(first, last) if isinstance(inputs, Ragged) else inputs[first:last],
                labels.part(first, last) if isinstance(labels, Ragged) else labels[first:last],
                None if names is None else names.part(low, high),
            )
    return target


def load(path: FilePath, *, check: bool = False) -> Population:
    """Map a folder, or read an .npz; with `check` every value is looked at again, else the writer's is trusted."""
    target = Path(path)
    header, arrays = _read_file(target) if target.suffix == ".npz" else _map_folder(target)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise DataError(
            f"{target} must be a prepared population of version {VERSION}, got {header.get('format')!r} version "
            f"{header.get('version')!r}. Prepare it again."
        )
    expected = {name: (what["dtype"], tuple(what["shape"])) for name, what in header["arrays"].items()}
    found = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    for name in expected:
        if found.get(name) != expected[name]:
            raise DataError(
                f"{target}: array {name} must be {expected[name]} by the header, got {found.get(name)}. "
                "Prepare it again."
            )
    longest = header["longest"]
    inputs = (
        Ragged(arrays["word_offsets"], arrays["words"], arrays["counts"], longest["words"])
        if "words" in arrays
        else arrays["inputs"]
    )
    labels = (
        Ragged(arrays["tag_offsets"], arrays["tags"], None, longest["tags"]) if "tags" in arrays else arrays["labels"]
    )
    names = Ragged(arrays["name_offsets"], arrays["names"], None, longest["names"]) if "names" in arrays else None
    return Population(
        header["name"], tuple(header["arms"]), arrays["offsets"], inputs, labels, names,
        tuple(header["vocabulary"]), header["largest"], checked=not check,
    )  # fmt: skip


def _arrays(population: Population) -> dict[str, NDArray[Any]]:
    """Give the flat arrays by their names in a file."""
    inputs, labels, names = population.inputs, population.labels, population.names
    arrays: dict[str, NDArray[Any]] = {"offsets": np.asarray(population.offsets)}
    if isinstance(inputs, Ragged):
        counts = np.ones(len(inputs.values), np.uint16) if inputs.counts is None else inputs.counts
        arrays |= {"words": inputs.values, "counts": counts, "word_offsets": inputs.offsets}
    else:
        arrays["inputs"] = inputs
    if isinstance(labels, Ragged):
        arrays |= {"tags": labels.values, "tag_offsets": labels.offsets}
    else:
        arrays["labels"] = labels
    return arrays if names is None else {**arrays, "names": names.values, "name_offsets": names.offsets}


def _map_folder(folder: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        names = list(header["arrays"])
    except FileNotFoundError:
        raise DataError(f"no {HEADER} in {folder}: not a prepared population, or never finished. Prepare it.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / HEADER} cannot be read ({error}). Prepare the population again.") from None
    try:
        return header, {name: _mapped(folder / f"{name}.npy") for name in names}
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} is not whole ({error}). Prepare the population again.") from None


def _mapped(file: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


def _read_file(file: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if "header" not in arrays:
            raise DataError(
                f"{file} is not a prepared population: it holds {', '.join(arrays) or 'nothing'} and no header. Make a "
                "Population of these arrays and write it with posse.problems.prepared.save."
            )
        header: dict[str, Any] = json.loads(str(arrays.pop("header")))
    except FileNotFoundError:
        raise DataError(f"no file {file}. Check the path.") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{file} is not a whole prepared population ({error}). Prepare it again.") from None
    return header, arrays
