"""Client populations: the samples of many clients in flat arrays, from which cohorts are gathered.

Samples of client c are rows offsets[c] ... offsets[c + 1] - 1. A sample is a dense array (an image
of bytes, a row of features) or a bag of words, and has one label or several tags; labels are arms.
Arrays may be mapped from disk (`posse.problems.populations.prepared`): memory then grows with the
cohort and not with the population. numpy alone is needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.check import first_repeated
from posse.core.errors import ConfigError, DataError
from posse.problems.populations.draws import CAP, words
from posse.problems.populations.ragged import Ragged, largest_step, release, rows_between

Dense = NDArray[np.uint8] | NDArray[np.float32]


class Bag(NamedTuple):
    """Bags of words, padded: word numbers (clients, pad, width), and weights of norm 1 over a bag,
    0 in the padding.
    """

    words: NDArray[np.int32]
    weights: NDArray[np.float32]


class Cohort(NamedTuple):
    """Padded arrays of some clients; whatever stands where `mask` is False is 0 and means
    nothing.
    """

    x: Dense | Bag
    """(clients, pad, ...) as stored, or bags."""
    y: NDArray[np.int32] | NDArray[np.uint8]
    """(clients, pad) labels, or (clients, pad, arms) with 1 for each tag of the sample."""
    mask: NDArray[np.bool_]
    """(clients, pad) which samples are real."""


class Scaling(NamedTuple):
    """How features were brought to mean 0 and standard deviation 1: (x - shift) / spread, by
    feature.
    """

    shift: tuple[float, ...]
    spread: tuple[float, ...]

    @classmethod
    def of(cls, shift: ArrayLike, spread: ArrayLike) -> Scaling:
        """Make a scaling of two arrays."""
        return cls(*(tuple(np.asarray(part, np.float64).tolist()) for part in (shift, spread)))

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that differ for other constants."""
        numbers = np.array([self.shift, self.spread], "<f8")
        return hashlib.sha256(numbers.tobytes()).hexdigest()[:12]

    def __call__(self, rows: ArrayLike) -> NDArray[np.float64]:
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
    offsets: NDArray[np.int64]
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
    """Samples of the largest client; found by one pass if left out."""
    checked: bool = False
    """Contents were checked before, when they were written; else every value is looked at now."""
    features: tuple[str, ...] = ()
    """Names of the numbers of an input where they come from a table, as `age` or `town=Bern`."""
    scaling: Scaling | None = None
    """How inputs were scaled; none where they are as given."""

    def __post_init__(self) -> None:
        for name in ("offsets", "inputs", "labels"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, np.asarray(value))
        self._check_sizes()
        if self.largest < 0:
            object.__setattr__(self, "largest", largest_step(self.offsets))
        if not self.checked:
            self.check()
            object.__setattr__(self, "checked", True)

    def _check_sizes(self) -> None:
        """Raise if arrays do not belong together."""
        arms = self.arms
        offsets = self.offsets
        inputs = len(self.inputs)
        labels = len(self.labels)
        if len(arms) < 2:
            raise DataError(
                f"a bandit needs at least 2 arms, got {len(arms)}. Add another.",
                rule="problems.population.too-few-arms",
            )
        twice = first_repeated(arms)
        if twice is not None:
            raise DataError(
                f"arm names must differ, got '{twice}' twice. Rename one.",
                rule="problems.population.arms-twice",
            )
        if offsets.ndim != 1 or len(offsets) < 2:
            raise DataError(
                f"a population needs a client, got offsets of shape {offsets.shape}. Give clients + 1 "
                "offsets.",
                rule="problems.population.no-client",
            )
        if len(offsets) - 1 > MOST_CLIENTS:
            raise DataError(
                f"a population has at most 2^24 clients, got {len(offsets) - 1}. Split it.",
                rule="problems.population.too-many-clients",
            )
        if inputs != labels or int(offsets[0]) != 0 or int(offsets[-1]) != inputs:
            raise DataError(
                f"every sample must have an input, a label and a client, got {inputs} inputs, {labels} "
                "labels and offsets "
                f"from {offsets[0]} to {offsets[-1]}. Match them.",
                rule="problems.population.lengths",
            )
        if self.bags and not self.vocabulary:
            raise DataError(
                "bags of words need a vocabulary, got none. Name the words, in the order of their "
                "numbers.",
                rule="problems.population.no-vocabulary",
            )
        if self.names is not None and len(self.names) != self.clients:
            raise DataError(
                f"names must be one per client, got {len(self.names)} for {self.clients}. Match "
                "them.",
                rule="problems.population.names-number",
            )

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
        """Look at every value: labels outside the arms, clients without samples, numbers that are
        not finite.
        """
        empty = np.flatnonzero(np.diff(self.offsets) == 0)
        if len(empty):
            raise DataError(
                f"every client must have a sample, got none for {self.client_name(int(empty[0]))}. "
                "Leave it out.",
                rule="problems.population.client-without-sample",
            )
        check_inputs(self.inputs, len(self.vocabulary))
        check_labels(self.labels, len(self.arms))

    def client_name(self, client: int) -> str:
        """Name of a client."""
        if self.names is None:
            return f"client-{client + 1}"
        return self.names.row(client).astype(np.uint8).tobytes().decode()

    def part(self, low: int, high: int) -> Population:
        """View clients low ... high - 1 as a population."""
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

    def sizes(self, clients: ArrayLike | None = None) -> NDArray[np.int64]:
        """Samples of each client, or of some."""
        if clients is None:
            return np.diff(self.offsets)
        chosen = self._known(clients)
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
        """Gather a cohort, padded to `pad` samples a client; O(clients pad) numbers are copied.

        A client with more samples than `pad` is an error, unless `cap` keeps at most so many of
        each client: its first ones, or with a `seed` a random set that depends on (seed, client)
        alone. Bags are padded to `width` words (the longest of the population if left out).
        """
        chosen = self._known(clients)
        if pad < 1 or (cap is not None and not 1 <= cap <= pad):
            raise ConfigError(
                f"pad must be at least 1 and cap in [1, pad], got pad {pad} and cap {cap}. Change "
                "them.",
                rule="problems.pad.out-of-range",
            )
        start, size = np.asarray(self.offsets[chosen]), self.sizes(chosen)
        used = size if cap is None else np.minimum(size, cap)
        if (used > pad).any():
            worst = int(size.argmax())
            raise DataError(
                f"every client of a cohort must fit its padding of {pad} samples, got "
                f"{size[worst]} of "
                f"{self.client_name(int(chosen[worst]))}. Pad to {self.largest}, or give a cap.",
                rule="problems.pad.too-small",
            )
        mask = np.arange(pad) < used[:, None]
        rows = np.where(mask, start[:, None] + np.arange(pad), start[:, None])
        if seed is not None and cap is not None:
            for row in np.flatnonzero(size > cap):
                rows[row, :cap] = start[row] + _some(int(size[row]), cap, seed, int(chosen[row]))
        cohort = Cohort(self._inputs(rows, mask, width), self._labels(rows, mask), mask)
        release(self.offsets, *_flat(self.inputs), *_flat(self.labels))
        return cohort

    def _inputs(
        self, rows: NDArray[np.int64], mask: NDArray[np.bool_], width: int | None
    ) -> Dense | Bag:
        if not isinstance(self.inputs, Ragged):
            x: Any = np.array(self.inputs[rows])
            x[~mask] = 0
            dense: Dense = x
            return dense
        wide = max(1, self.inputs.longest if width is None else width)
        words, real = self.inputs.padded(rows, wide)
        weights = self.inputs.padded_counts(rows, wide) * mask[..., None]
        norms = np.sqrt((weights * weights).sum(axis=-1, keepdims=True))
        norms[norms == 0] = 1
        return Bag(words * (real & mask[..., None]), weights / norms)

    def _labels(
        self, rows: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> NDArray[np.int32] | NDArray[np.uint8]:
        if not isinstance(self.labels, Ragged):
            return np.asarray(self.labels[rows]).astype(np.int32) * mask
        tags, real = self.labels.padded(rows, max(1, self.labels.longest))
        y = np.zeros((*rows.shape, len(self.arms)), np.uint8)
        client, sample, place = np.nonzero(real & mask[..., None])
        y[client, sample, tags[client, sample, place]] = 1
        return y

    def _known(self, clients: ArrayLike) -> NDArray[np.int64]:
        chosen = np.atleast_1d(np.asarray(clients, np.int64))
        wrong = np.flatnonzero((chosen < 0) | (chosen >= self.clients))
        if len(wrong):
            raise ConfigError(
                f"clients must be in [0, {self.clients}), got {chosen[wrong[0]]}. Number them from "
                "0.",
                rule="problems.clients.out-of-population",
            )
        return chosen

    def describe(self) -> dict[str, Any]:
        """What a record keeps of the population."""
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


def standardised(population: Population) -> Population:
    """Scale every feature to mean 0 and standard deviation 1 over all samples.

    Features of 0 and 1 alone, as of words, and those that never change stay as they are.

    >>> rows = np.array([[60_000, 1], [80_000, 0]], np.float32)
    >>> made = standardised(
    ...     Population("two", ("a", "b"), [0, 1, 2], rows, np.array([0, 1], np.int32))
    ... )
    >>> made.inputs.tolist(), made.scaling
    ([[-1.0, 1.0], [1.0, 0.0]], Scaling(shift=(70000.0, 0.0), spread=(10000.0, 1.0)))
    """
    rows = np.asarray(population.inputs, np.float64)
    spread = rows.std(axis=0)
    unscaled = (spread == 0) | ((rows == 0) | (rows == 1)).all(axis=0)
    shift, spread = np.where(unscaled, 0.0, rows.mean(axis=0)), np.where(unscaled, 1.0, spread)
    scaling = Scaling(tuple(shift.tolist()), tuple(spread.tolist()))
    return replace(
        population, inputs=scaling(rows).astype(np.float32), scaling=scaling, checked=False
    )


def _flat(values: NDArray[np.generic] | Ragged) -> tuple[NDArray[np.generic], ...]:
    return values.arrays if isinstance(values, Ragged) else (values,)


def _some(size: int, cap: int, seed: int, client: int) -> NDArray[np.int64]:
    """Which `cap` of `size` samples a client keeps, in their own order."""
    first, _ = words(seed, CAP, client, np.arange(size))
    return np.sort(np.argsort(first, kind="stable")[:cap])


_CHUNK = 1 << 14
"""Samples looked at a time."""
MOST_CLIENTS = 1 << 24
"""Clients that draws have addresses for."""


def check_inputs(inputs: NDArray[np.uint8] | NDArray[np.float32] | Ragged, vocabulary: int) -> None:
    """Refuse numbers that are not finite, and words outside the vocabulary."""
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
        wrong = np.argwhere(~np.isfinite(inputs[low : low + _CHUNK]))
        if len(wrong):
            value = inputs[low : low + _CHUNK][tuple(wrong[0])]
            raise DataError(
                f"inputs must be finite numbers, got {value} in sample {low + wrong[0][0] + 1}. "
                "Correct it, or leave the sample out.",
                rule="problems.population.not-finite",
            )


def check_labels(labels: NDArray[np.int32] | Ragged, arms: int) -> None:
    """Refuse labels that are not arms."""
    _within(labels.values if isinstance(labels, Ragged) else labels, arms, "labels", "the arms")


def _within(values: NDArray[np.integer], count: int, what: str, whose: str) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            f"{what} must be whole numbers, got {values.dtype}. Number them from 0.",
            rule="problems.population.not-whole-numbers",
        )
    for low in range(0, len(values), 64 * _CHUNK):
        part = values[low : low + 64 * _CHUNK]
        wrong = np.flatnonzero((part < 0) | (part >= count))
        if len(wrong):
            raise DataError(
                f"{what} must be in [0, {count}), the number of {whose}, got {part[wrong[0]]} at "
                "position "
                f"{low + wrong[0] + 1}. Correct it, or leave the sample out.",
                rule="problems.population.out-of-range",
            )
