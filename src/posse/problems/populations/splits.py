"""Splits of samples over clients: by owner, by Dirichlet draws over labels, or by a table's column.

A split has an order of the samples, and the offsets of the clients in it. Only numpy is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import (
    Dense,
    Population,
    Ragged,
    names_of,
    offsets_of,
    rows_at,
)
from posse.problems.requirements import Floats, Ints
from posse.problems.tables.frames import Frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import read_encoded, words
from posse.problems.tables.table import open_table
from posse.problems.tables.text import FilePath


class Split(NamedTuple):
    """Samples in the order of their clients, where each client begins, and clients' names."""

    order: Ints
    offsets: Ints
    names: tuple[str, ...] | None = None


def natural(owners: ArrayLike) -> Split:
    """Split samples by owner (a writer, a user).

    Clients are in the order of their keys, and samples in their own order.

    >>> natural(["bob", "ann", "bob"])
    Split(order=array([1, 0, 2]), offsets=array([0, 1, 3]), names=('ann', 'bob'))
    """
    keys = np.asarray(owners)
    if keys.ndim != 1 or not len(keys):
        raise DataError(
            f"every sample must have one owner, got owners of shape {keys.shape}. Give one owner "
            "per sample.",
            rule="problems.split.owners-shape",
        )
    distinct, code = np.unique(keys, return_inverse=True)
    sizes = np.bincount(code, minlength=len(distinct))
    return Split(np.argsort(code, kind="stable"), offsets_of(sizes), tuple(map(str, distinct)))


def dirichlet(labels: ArrayLike, clients: int, alpha: float, seed: int = 0) -> Split:
    """Split samples by draws of Dirichlet(alpha), into clients of equal size (to one sample).

    Client c draws p_c ~ Dirichlet(alpha, ..., alpha) over labels and takes samples of label k with
    chance p_ck, without replacement; labels that are used up leave the mix. alpha -> 0 gives
    clients of one label, alpha -> infinity the mix of all labels. Hsu, Qi, Brown: Measuring the
    effects of non-identical data distribution for federated visual classification, 2019. Draws are
    of numpy's Philox generator with this seed: O(samples + clients labels).

    >>> split = dirichlet(np.arange(12) % 3, clients=4, alpha=0.5, seed=1)
    >>> split.offsets.tolist(), sorted(split.order.tolist()) == list(range(12))
    ([0, 3, 6, 9, 12], True)
    """
    label_of = np.asarray(labels)
    check.positive(alpha=alpha)
    if label_of.ndim != 1:
        raise ConfigError(
            "a Dirichlet split needs one label per sample, got several. Split by owner.",
            rule="problems.split.several-labels",
        )
    if not 1 <= clients <= len(label_of):
        raise ConfigError(
            f"clients must be in [1, {len(label_of)}], the number of samples, got {clients}. Ask "
            "for fewer.",
            rule="problems.clients.more-than-samples",
        )
    draw = np.random.Generator(np.random.Philox(seed))
    distinct, code = np.unique(label_of, return_inverse=True)
    shuffled = draw.permutation(len(label_of))
    pools = shuffled[np.argsort(code[shuffled], kind="stable")]
    ends = np.cumsum(np.bincount(code))
    start = ends - np.bincount(code)
    least, more = divmod(len(label_of), clients)
    sizes = np.full(clients, least) + (np.arange(clients) < more)
    order = np.empty(len(label_of), np.int64)
    at = 0
    for size in sizes.tolist():
        # Below the least number whose powers a float holds, one label takes all: the limit itself.
        mix = draw.dirichlet(np.full(len(distinct), max(alpha, 1e-3)))
        counts = _takes(draw, mix, size, ends - start)
        for label in np.flatnonzero(counts):
            count = int(counts[label])
            order[at : at + count] = pools[start[label] : start[label] + count]
            at += count
        start = start + counts
    return Split(order, offsets_of(sizes))


def population(
    name: str,
    inputs: Dense | Ragged,
    labels: ArrayLike | Ragged,
    arms: Sequence[str],
    split: Split,
    vocabulary: Sequence[str] = (),
    features: Sequence[str] = (),
) -> Population:
    """Put samples in the order of a split; the arrays are copied once."""
    samples = len(inputs)
    if len(split.order) != samples:
        raise DataError(
            f"a split must hold every sample once, got {len(split.order)} for {samples}. Split "
            "again.",
            rule="problems.split.not-every-sample",
        )
    numbers = labels if isinstance(labels, Ragged) else np.asarray(labels)
    if isinstance(numbers, np.ndarray):
        if not np.issubdtype(numbers.dtype, np.integer):
            raise DataError(
                f"labels must be whole numbers, got {numbers.dtype}. Number the arms from 0.",
                rule="problems.labels.not-whole-numbers",
            )
        numbers = numbers.astype(np.int32)
    if len(numbers) != samples:
        raise DataError(
            f"every sample must have a label, got {len(numbers)} for {samples} samples. Match "
            "them.",
            rule="problems.labels.number",
        )
    return Population(
        name,
        tuple(arms),
        split.offsets,
        rows_at(inputs, split.order),
        rows_at(numbers, split.order),
        None if split.names is None else names_of(split.names),
        tuple(vocabulary),
        features=tuple(features),
    )


def some_clients(population: Population, clients: int) -> Population:
    """Return the first clients."""
    if not 1 <= clients <= population.clients:
        raise ConfigError(
            f"clients must be in [1, {population.clients}], the number that {population.name} has, "
            f"got {clients}. Take fewer.",
            rule="problems.clients.more-than-there-are",
        )
    return population.part(0, clients)


def _takes(draw: np.random.Generator, mix: Floats, size: int, left: Ints) -> Ints:
    """Draw how many samples of each label a client takes from its mix, while there are any."""
    counts = np.zeros(len(mix), np.int64)
    while (missing := size - int(counts.sum())) > 0:
        free = left - counts
        weights = np.where(free > 0, mix, 0.0)
        # A mix that holds none of the labels left has no weight for them: the labels left decide.
        weights = weights if weights.sum() > 0 else free.astype(np.float64)
        counts += np.minimum(draw.multinomial(missing, weights / weights.sum()), free)
    return counts


CLIENT = "client"
LABEL = "label"


def read_population(
    path: FilePath | Frame,
    client: str | None = CLIENT,
    label: str = LABEL,
    *,
    clients: int = 10,
    alpha: float = 0.3,
    seed: int = 0,
    name: str = "own",
    options: ReadOptions | None = None,
) -> Population:
    """Read a table with a column of clients, a column of labels, and features.

    Args:
        path: The table.
        client: Column of clients; None splits the rows over Dirichlet clients.
        label: Column of labels, which are the arms.
        clients: Number of Dirichlet clients.
        alpha: How similar Dirichlet clients are.
        seed: Seed of the split.
        name: Name of the population.
        options: How the table is read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "visits.csv")
    ...     _ = file.write_text(
    ...         "client,age,dose,label\\nann,0.3,1,wait\\nbob,0.7,2,treat\\nann,0.1,3,treat\\n"
    ...     )
    ...     visits = read_population(file)
    >>> visits.arms, visits.client_name(0), visits.sizes().tolist()
    (('treat', 'wait'), 'ann', [2, 1])
    """
    table = open_table(path, options)
    needed = [words(name) for name in (client, label) if name is not None]
    records, names, features = read_encoded(table, needed)
    labels = records.words[label]
    arms = tuple(sorted(labels.distinct))
    numbers = np.array([arms.index(word) for word in labels.distinct])[labels.code]
    if client is None:
        split = dirichlet(numbers, clients, alpha, seed)
    else:
        owners = records.words[client]
        split = natural(np.array(owners.distinct)[owners.code])
    inputs = features.astype(np.float32)
    return population(name, inputs, numbers, arms, split, features=names)
