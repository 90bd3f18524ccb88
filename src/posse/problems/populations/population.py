"""Client populations: the samples of many clients in flat arrays, from which cohorts are gathered.

Samples of client c are rows offsets[c] ... offsets[c + 1] - 1. A sample is a dense array (an image
of bytes, a row of features) or a bag of words, and has one label or several tags; labels are arms.
Words of texts, tags and letters of names are rows of different lengths in two flat arrays
(`Ragged`). Arrays may be mapped from disk (`posse.problems.populations.prepared`): memory then grows
with the cohort and not with the population. Only numpy is needed.

Draws are the numbers of `posse.core.random`, many at once, with numpy alone: Philox-4x32-10 (Salmon,
Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011) over arrays. A draw is a
function of (key, purpose, party, index, attempt): the draws of a client in a round do not depend on
the other clients of its cohort, or on the number of devices that compute it. Ten rounds of
whole-array arithmetic: 0.2 microseconds per draw.

>>> uniforms(42, MISSING, [7, 8], 100).round(3).tolist()
[0.504, 0.875]
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.check import first_repeated
from posse.core.errors import ConfigError, DataError
from posse.problems.requirements import (
    Bytes,
    Floats,
    Ints,
    Mask,
    Requirement,
    check_all,
    check_entries,
)

# Purposes 32 to 47 belong to populations; `posse.core.random` numbers the others.
CAP = 32
"""Which samples of a client are kept: (seed, client, sample)."""
MISSING = 33
"""Whether a client answers in a round: (seed, client, round)."""
LATE = 34
"""Whether a client is late: (seed, client, round)."""
NEVER = 35
"""Whether a client ever answers: (seed, client)."""
INITIAL = 36
"""Order of clients for pre-training: (seed, client)."""
DRIFT = 37
"""Drift of labels and arms: (seed, arm, period)."""
LAG = 38
"""Rounds by which a deployment reaches a client late: (seed, client, deployment)."""

_MASK = np.uint64(0xFFFFFFFF)
_S32, _S11 = np.uint64(32), np.uint64(11)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85

Words = NDArray[np.uint64]


def words(
    key: int, purpose: int, party: ArrayLike, index: ArrayLike = 0, attempt: ArrayLike = 0
) -> tuple[Words, Words]:
    """Return two 64-bit words at each address; addresses broadcast. Limits as in
    `posse.core.random.words64`.
    """
    c2, c0, c1 = (
        np.atleast_1d(np.asarray(part)).astype(np.uint64) & _MASK
        for part in (party, index, attempt)
    )
    c0, c1, c2 = np.broadcast_arrays(c0, c1, c2)
    c3: Words = np.full_like(c0, np.uint64(purpose))
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _S32) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _S32) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return (c0 << _S32) | c1, (c2 << _S32) | c3


def uniforms(
    key: int, purpose: int, party: ArrayLike, index: ArrayLike = 0, attempt: ArrayLike = 0
) -> Floats:
    """Return a number in [0, 1) at each address, a multiple of 2^-53."""
    first, _ = words(key, purpose, party, index, attempt)
    return (first >> _S11).astype(np.float64) * 2.0**-53


def order(key: int, purpose: int, count: int, index: int = 0) -> Ints:
    """Return a random permutation of 0 ... count - 1, by sorting a draw each.

    >>> order(7, INITIAL, 5).tolist()
    [1, 4, 2, 0, 3]
    """
    first, _ = words(key, purpose, np.arange(count), index)
    return np.argsort(first, kind="stable").astype(np.int64)


_OFFSETS_PER_CHUNK = 1 << 18


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of whole numbers, and how often each is in its row (`counts`; once if left out).

    >>> rows = Ragged.of([[3, 1], [], [2]])
    >>> len(rows), rows.longest, rows.row(0).tolist()
    (3, 2, [3, 1])
    >>> values, mask = rows.padded(np.array([2, 0]), 2)
    >>> values.tolist(), mask.tolist()
    ([[2, 0], [3, 1]], [[True, False], [True, True]])
    """

    offsets: Ints
    values: NDArray[np.integer]
    counts: NDArray[np.integer] | None = None
    longest: int = -1
    """Length of the longest row; computed in one pass if left out."""

    def __post_init__(self) -> None:
        check_all(self, _RAGGED)
        if self.longest < 0:
            object.__setattr__(self, "longest", largest_step(self.offsets))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], dtype: type[np.integer] = np.int32) -> Ragged:
        """Make from lists."""
        arrays = [np.asarray(row, dtype) for row in rows]
        offsets = offsets_of([len(row) for row in arrays])
        return cls(offsets, np.concatenate(arrays) if arrays else np.empty(0, dtype))

    def row(self, index: int) -> NDArray[np.integer]:
        """Return one row."""
        return np.asarray(self.values[int(self.offsets[index]) : int(self.offsets[index + 1])])

    def where(self, rows: Ints, width: int) -> tuple[Ints, Mask]:
        """Return positions in the flat arrays, (*rows, width), and which belong to the row."""
        start = np.asarray(self.offsets[rows])
        length = np.asarray(self.offsets[rows + 1]) - start
        check_entries(
            length <= width,
            lambda place: DataError(
                f"a row must fit its width {width}, got {length[place]} values in row "
                f"{rows[place]}. Widen it to {self.longest}.",
                rule="problems.ragged.too-wide",
            ),
        )
        column = np.arange(width)
        mask = column < length[..., None]
        return np.where(mask, start[..., None] + column, 0), mask

    def padded(self, rows: Ints, width: int) -> tuple[NDArray[np.int32], Mask]:
        """Return rows padded with 0, (*rows, width), and which values are real.

        A longer row is an error.
        """
        where, mask = self.where(rows, width)
        return _values_at(self.values, where, mask).astype(np.int32), mask

    def padded_counts(self, rows: Ints, width: int) -> NDArray[np.float32]:
        """Return how often each value of `padded` is in its row; 0 in the padding."""
        where, mask = self.where(rows, width)
        if self.counts is None:
            return mask.astype(np.float32)
        return _values_at(self.counts, where, mask).astype(np.float32)

    def take(self, rows: ArrayLike) -> Ragged:
        """Copy some rows, in the order given."""
        chosen = np.asarray(rows, np.int64)
        start, stop = np.asarray(self.offsets[chosen]), np.asarray(self.offsets[chosen + 1])
        offsets = offsets_of(stop - start)
        at = np.repeat(start - offsets[:-1], stop - start) + np.arange(offsets[-1])
        counts = None if self.counts is None else np.asarray(self.counts[at])
        return Ragged(offsets, np.asarray(self.values[at]), counts)

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The flat arrays."""
        arrays = (self.offsets, self.values, self.counts)
        return tuple(array for array in arrays if array is not None)

    def part(self, low: int, high: int) -> Ragged:
        """View rows low ... high - 1."""
        first, last = int(self.offsets[low]), int(self.offsets[high])
        counts = None if self.counts is None else self.counts[first:last]
        return Ragged(
            np.asarray(self.offsets[low : high + 1]) - first, self.values[first:last], counts
        )


_RAGGED: tuple[Requirement[Ragged], ...] = (
    Requirement(
        "problems.ragged.not-a-list",
        lambda rows: rows.offsets.ndim == 1 and len(rows.offsets),
        lambda rows: (
            f"offsets must be a list that starts at 0, got shape {rows.offsets.shape}. Add the 0."
        ),
        DataError,
    ),
    Requirement(
        "problems.ragged.not-to-end",
        lambda rows: int(rows.offsets[0]) == 0 and int(rows.offsets[-1]) == len(rows.values),
        lambda rows: (
            f"offsets must run from 0 to the {len(rows.values)} values, got {rows.offsets[0]} to "
            f"{rows.offsets[-1]}. Give one offset per row, and the end."
        ),
        DataError,
    ),
    Requirement(
        "problems.ragged.counts",
        lambda rows: rows.counts is None or len(rows.counts) == len(rows.values),
        lambda rows: (
            f"counts must be one per value, got other counts for {len(rows.values)} values. "
            "Match them."
        ),
        DataError,
    ),
)


def offsets_of(sizes: ArrayLike) -> Ints:
    """Return where rows of these lengths begin, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def rows_at(values: NDArray[Any] | Ragged, rows: Ints) -> Any:
    """Copy some rows of an array or of ragged rows, in the order given."""
    return values.take(rows) if isinstance(values, Ragged) else values[rows]


def rows_between(values: NDArray[Any] | Ragged, low: int, high: int) -> Any:
    """View rows low ... high - 1 of an array or of ragged rows."""
    return values.part(low, high) if isinstance(values, Ragged) else values[low:high]


def largest_step(offsets: Ints) -> int:
    """Return the length of the longest row, in one pass; offsets that fall are an error."""
    most = 0
    for low in range(0, len(offsets) - 1, _OFFSETS_PER_CHUNK):
        steps = np.diff(offsets[low : low + _OFFSETS_PER_CHUNK + 1])
        row = low + int(steps.argmin())
        if offsets[row + 1] < offsets[row]:
            raise DataError(
                f"offsets must not fall, got {offsets[row]} before {offsets[row + 1]} at row "
                f"{row}. Sort.",
                rule="problems.ragged.falling",
            )
        most = max(most, int(steps.max()))
    return most


def release(*arrays: NDArray[np.generic]) -> None:
    """Release the memory of pages that were read from mapped files, if the system can.

    The pages stay in the cache of the system. A read maps many pages around it: without this, some
    twenty random cohorts would have all of a population in memory.
    """
    for array in arrays:
        mapped: object = array
        while isinstance(mapped, np.ndarray):  # a part of a mapped array is a view of it
            mapped = mapped.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def names_of(names: Iterable[str]) -> Ragged:
    """Write names as rows of UTF-8 bytes."""
    return Ragged.of([list(name.encode()) for name in names], np.uint8)


def _values_at(values: NDArray[np.integer], where: Ints, mask: Mask) -> NDArray[np.integer]:
    if not len(values):
        return np.zeros(where.shape, values.dtype)
    out = np.asarray(values[where])
    out[~mask] = 0
    return out


Dense = Bytes | NDArray[np.float32]


class Bag(NamedTuple):
    """Padded bags of words."""

    words: NDArray[np.int32]
    """(clients, pad, width): numbers of words."""
    weights: NDArray[np.float32]
    """Weights of the words, of norm 1 over a bag; 0 in the padding."""


class Cohort(NamedTuple):
    """Padded arrays of some clients. Entries are 0 and mean nothing where `mask` is False."""

    x: Dense | Bag
    """(clients, pad, ...) as stored, or bags."""
    y: NDArray[np.int32] | Bytes
    """(clients, pad) labels, or (clients, pad, arms) with 1 for each tag of the sample."""
    mask: Mask
    """(clients, pad) which samples are real."""


class Scaling(NamedTuple):
    """Constants that scale features to mean 0 and standard deviation 1: (x - shift) / spread."""

    shift: tuple[float, ...]
    spread: tuple[float, ...]

    @classmethod
    def of(cls, shift: ArrayLike, spread: ArrayLike) -> Scaling:
        """Make a scaling of two arrays."""
        return cls(*(tuple(np.asarray(part, np.float64).tolist()) for part in (shift, spread)))

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits, which differ for other constants."""
        numbers = np.array([self.shift, self.spread], "<f8")
        return hashlib.sha256(numbers.tobytes()).hexdigest()[:12]

    def __call__(self, rows: ArrayLike) -> Floats:
        """Scale rows of features."""
        return np.asarray((np.asarray(rows, np.float64) - self.shift) / self.spread)


@dataclass(frozen=True, eq=False)
class Population:
    """Samples of all clients.

    >>> pixels = np.arange(20, dtype=np.uint8).reshape(5, 2, 2)
    >>> two = Population(
    ...     "two", ("a", "b"), np.array([0, 2, 5]), pixels, np.array([0, 1, 1, 0, 1], np.int32)
    ... )
    >>> two.clients, two.largest
    (2, 3)
    >>> x, y, mask = two.gather([1, 0], pad=3)
    >>> x.shape, y.tolist(), mask.tolist()
    ((2, 3, 2, 2), [[1, 0, 1], [0, 1, 0]], [[True, True, True], [True, True, False]])
    >>> two.gather([1], pad=2)
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] every client of a cohort must fit its padding of 2 samples,
    got 3 of client-2.
    Pad to 3, or give a cap.
    """

    name: str
    arms: tuple[str, ...]
    offsets: Ints
    """(clients + 1,)"""
    inputs: Dense | Ragged
    """(samples, ...) bytes or floats, or bags of words."""
    labels: NDArray[np.int32] | Ragged
    """(samples,) the label of each, or the tags of each."""
    names: Ragged | None = None
    """Clients' names as UTF-8; client-1, client-2, ... if left out."""
    vocabulary: tuple[str, ...] = ()
    """Words by number, for bags."""
    largest: int = -1
    """Samples of the largest client; computed in one pass if left out."""
    checked: bool = False
    """Whether the contents were checked when they were written; otherwise they are checked now."""
    features: tuple[str, ...] = ()
    """Names of the numbers of an input where they come from a table, as `age` or `town=Bern`."""
    scaling: Scaling | None = None
    """Scaling of the inputs; None if they are not scaled."""

    def __post_init__(self) -> None:
        for name in ("offsets", "inputs", "labels"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, np.asarray(value))
        check_all(self, _POPULATION)
        if self.largest < 0:
            object.__setattr__(self, "largest", largest_step(self.offsets))
        if not self.checked:
            self.check()
            object.__setattr__(self, "checked", True)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.inputs)

    @property
    def bags(self) -> bool:
        """Whether samples are bags of words."""
        return isinstance(self.inputs, Ragged)

    @property
    def multilabel(self) -> bool:
        """Whether samples have tags, none or several, instead of one label."""
        return isinstance(self.labels, Ragged)

    def check(self) -> None:
        """Check every value: labels are arms, clients have samples, numbers are finite."""
        check_entries(
            np.diff(self.offsets) != 0,
            lambda client: DataError(
                f"every client must have a sample, got none for {self.client_name(client[0])}. "
                "Leave it out.",
                rule="problems.population.client-without-sample",
            ),
        )
        check_inputs(self.inputs, len(self.vocabulary))
        check_labels(self.labels, len(self.arms))

    def client_name(self, client: int) -> str:
        """Return the name of a client."""
        if self.names is None:
            return f"client-{client + 1}"
        return self.names.row(client).astype(np.uint8).tobytes().decode()

    def part(self, low: int, high: int) -> Population:
        """Return clients low ... high - 1 as a population, without a copy."""
        first, last = int(self.offsets[low]), int(self.offsets[high])
        return replace(
            self,
            offsets=np.asarray(self.offsets[low : high + 1]) - first,
            inputs=rows_between(self.inputs, first, last),
            labels=rows_between(self.labels, first, last),
            names=None if self.names is None else self.names.part(low, high),
            largest=-1,
            checked=True,
        )

    def sizes(self, clients: ArrayLike | None = None) -> Ints:
        """Return the number of samples of each client, or of some clients."""
        if clients is None:
            return np.diff(self.offsets)
        chosen = self._check_clients(clients)
        return np.asarray(self.offsets[chosen + 1]) - np.asarray(self.offsets[chosen])

    def gather(
        self,
        clients: ArrayLike,
        pad: int,
        *,
        cap: int | None = None,
        seed: int | None = None,
        width: int | None = None,
    ) -> Cohort:
        """Gather a cohort; O(clients pad) numbers are copied.

        Args:
            clients: Numbers of the clients.
            pad: Samples to which each client is padded. A client with more samples is an error,
                unless there is a `cap`.
            cap: Most samples of a client. It keeps its first ones, or with a `seed` a random set
                that depends only on (seed, client).
            seed: Seed of the random sets.
            width: Words to which bags are padded; by default the longest of the population.
        """
        chosen = self._check_clients(clients)
        if pad < 1 or (cap is not None and not 1 <= cap <= pad):
            raise ConfigError(
                f"pad must be at least 1 and cap in [1, pad], got pad {pad} and cap {cap}. Change "
                "them.",
                rule="problems.pad.out-of-range",
            )
        start = np.asarray(self.offsets[chosen])
        size = self.sizes(chosen)
        used = size if cap is None else np.minimum(size, cap)
        check_entries(
            used <= pad,
            lambda client: DataError(
                f"every client of a cohort must fit its padding of {pad} samples, got "
                f"{size[client]} of {self.client_name(int(chosen[client]))}. Pad to "
                f"{self.largest}, or give a cap.",
                rule="problems.pad.too-small",
            ),
        )
        mask = np.arange(pad) < used[:, None]
        rows = np.where(mask, start[:, None] + np.arange(pad), start[:, None])
        if seed is not None and cap is not None:
            for row in np.flatnonzero(size > cap):
                rows[row, :cap] = start[row] + _some(int(size[row]), cap, seed, int(chosen[row]))
        cohort = Cohort(self._inputs(rows, mask, width), self._labels(rows, mask), mask)
        release(self.offsets, *_flat(self.inputs), *_flat(self.labels))
        return cohort

    def _inputs(self, rows: Ints, mask: Mask, width: int | None) -> Dense | Bag:
        if not isinstance(self.inputs, Ragged):
            samples = cast("Dense", np.array(self.inputs[rows]))
            samples[~mask] = 0
            return samples
        wide = max(1, self.inputs.longest if width is None else width)
        words, real = self.inputs.padded(rows, wide)
        weights = self.inputs.padded_counts(rows, wide) * mask[..., None]
        norms = np.sqrt((weights * weights).sum(axis=-1, keepdims=True))
        norms[norms == 0] = 1
        return Bag(words * (real & mask[..., None]), weights / norms)

    def _labels(self, rows: Ints, mask: Mask) -> NDArray[np.int32] | Bytes:
        if not isinstance(self.labels, Ragged):
            return np.asarray(self.labels[rows]).astype(np.int32) * mask
        tags, real = self.labels.padded(rows, max(1, self.labels.longest))
        y = np.zeros((*rows.shape, len(self.arms)), np.uint8)
        client, sample, place = np.nonzero(real & mask[..., None])
        y[client, sample, tags[client, sample, place]] = 1
        return y

    def _check_clients(self, clients: ArrayLike) -> Ints:
        """Return numbers of clients; raise if a number is out of range."""
        chosen = np.atleast_1d(np.asarray(clients, np.int64))
        check_entries(
            (chosen >= 0) & (chosen < self.clients),
            lambda place: ConfigError(
                f"clients must be in [0, {self.clients}), got {chosen[place]}. Number them from 0.",
                rule="problems.clients.out-of-population",
            ),
        )
        return chosen

    def describe(self) -> dict[str, object]:
        """Return what a record stores of the population."""
        return {
            "name": self.name,
            "clients": self.clients,
            "samples": self.samples,
            "largest": self.largest,
            "arms": list(self.arms),
            "inputs": "bags of words"
            if isinstance(self.inputs, Ragged)
            else list(self.inputs.shape[1:]),
            "vocabulary": len(self.vocabulary),
            "multilabel": self.multilabel,
        }


_POPULATION: tuple[Requirement[Population], ...] = (
    Requirement(
        "problems.population.too-few-arms",
        lambda population: len(population.arms) >= 2,
        lambda population: (
            f"a bandit needs at least 2 arms, got {len(population.arms)}. Add another."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.arms-twice",
        lambda population: len(set(population.arms)) == len(population.arms),
        lambda population: (
            f"arm names must differ, got '{first_repeated(population.arms)}' twice. Rename one."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.no-client",
        lambda population: population.offsets.ndim == 1 and len(population.offsets) >= 2,
        lambda population: (
            f"a population needs a client, got offsets of shape {population.offsets.shape}. Give "
            "clients + 1 offsets."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.too-many-clients",
        lambda population: population.clients <= MOST_CLIENTS,
        lambda population: (
            f"a population has at most 2^24 clients, got {population.clients}. Split it."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.lengths",
        lambda population: (
            int(population.offsets[0]) == 0
            and int(population.offsets[-1]) == len(population.inputs) == len(population.labels)
        ),
        lambda population: (
            "every sample must have an input, a label and a client, got "
            f"{len(population.inputs)} inputs, {len(population.labels)} labels and offsets from "
            f"{population.offsets[0]} to {population.offsets[-1]}. Match them."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.no-vocabulary",
        lambda population: population.vocabulary or not population.bags,
        lambda population: (
            "bags of words need a vocabulary, got none. Name the words, in the order of their "
            "numbers."
        ),
        DataError,
    ),
    Requirement(
        "problems.population.names-number",
        lambda population: population.names is None or len(population.names) == population.clients,
        lambda population: (
            f"names must be one per client, got {len(population.names or ())} for "
            f"{population.clients}. Match them."
        ),
        DataError,
    ),
)


def standardised(population: Population) -> Population:
    """Scale every feature to mean 0 and standard deviation 1 over all samples.

    Features of 0 and 1 alone, as of words, and those that never change stay as they are.

    >>> rows = np.array([[60_000, 1], [80_000, 0]], np.float32)
    >>> scaled = standardised(
    ...     Population("two", ("a", "b"), [0, 1, 2], rows, np.array([0, 1], np.int32))
    ... )
    >>> scaled.inputs.tolist(), scaled.scaling
    ([[-1.0, 1.0], [1.0, 0.0]], Scaling(shift=(70000.0, 0.0), spread=(10000.0, 1.0)))
    """
    rows = np.asarray(population.inputs, np.float64)
    spread = rows.std(axis=0)
    unscaled = (spread == 0) | ((rows == 0) | (rows == 1)).all(axis=0)
    shift = np.where(unscaled, 0.0, rows.mean(axis=0))
    spread = np.where(unscaled, 1.0, spread)
    scaling = Scaling.of(shift, spread)
    return replace(
        population, inputs=scaling(rows).astype(np.float32), scaling=scaling, checked=False
    )


def _flat(values: NDArray[np.generic] | Ragged) -> tuple[NDArray[np.generic], ...]:
    return values.arrays if isinstance(values, Ragged) else (values,)


def _some(size: int, cap: int, seed: int, client: int) -> Ints:
    """Return the `cap` of `size` samples that a client keeps, in their own order."""
    first, _ = words(seed, CAP, client, np.arange(size))
    return np.sort(np.argsort(first, kind="stable")[:cap])


_CHUNK = 1 << 14
"""Samples that are checked at a time."""
MOST_CLIENTS = 1 << 24
"""Most clients: draws have no addresses for more."""


def check_inputs(inputs: Bytes | NDArray[np.float32] | Ragged, vocabulary: int) -> None:
    """Raise if numbers are not finite, or words are not in the vocabulary."""
    if isinstance(inputs, Ragged):
        _within(inputs.values, vocabulary, "words", "the vocabulary")
        return
    if inputs.dtype == np.uint8:
        return
    if inputs.dtype != np.float32:
        raise DataError(
            f"inputs must be bytes (uint8) or float32, got {inputs.dtype}. Convert them.",
            rule="problems.population.wrong-type",
        )
    for low in range(0, len(inputs), _CHUNK):
        _check_finite(inputs[low : low + _CHUNK], low)


def _check_finite(inputs: Dense, before: int) -> None:
    """Raise if numbers are not finite; `before` samples come before them."""
    check_entries(
        np.isfinite(inputs),
        lambda place: DataError(
            f"inputs must be finite numbers, got {inputs[place]} in sample "
            f"{before + place[0] + 1}. Correct it, or leave the sample out.",
            rule="problems.population.not-finite",
        ),
    )


def check_labels(labels: NDArray[np.int32] | Ragged, arms: int) -> None:
    """Raise if labels are not arms."""
    _within(labels.values if isinstance(labels, Ragged) else labels, arms, "labels", "the arms")


def _within(values: NDArray[np.integer], count: int, what: str, whose: str) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            f"{what} must be whole numbers, got {values.dtype}. Number them from 0.",
            rule="problems.population.not-whole-numbers",
        )
    for low in range(0, len(values), 64 * _CHUNK):
        _check_range(values[low : low + 64 * _CHUNK], low, count, what, whose)


def _check_range(
    values: NDArray[np.integer], before: int, count: int, what: str, whose: str
) -> None:
    """Raise if numbers are not in [0, count); `before` values come before them."""
    check_entries(
        (values >= 0) & (values < count),
        lambda place: DataError(
            f"{what} must be in [0, {count}), the number of {whose}, got {values[place]} at "
            f"position {before + place[0] + 1}. Correct it, or leave the sample out.",
            rule="problems.population.out-of-range",
        ),
    )
