"""A user's own table as a population: a CSV file with a column of clients, one of labels, and numbers for the rest.

Rows of one client are its samples, in the order of the file; labels are arms, in the order of the alphabet.
"""

from __future__ import annotations

import csv

import numpy as np

from posse.core.errors import DataError
from posse.problems.datasets.columns import read_columns
from posse.problems.datasets.document import Document, FilePath, read_document
from posse.problems.datasets.header import first_line, layout
from posse.problems.populations import Population
from posse.problems.splits import Split, dirichlet, natural, population

CLIENT = "client"
LABEL = "label"


def read_population(
    path: FilePath,
    client: str | None = CLIENT,
    label: str = LABEL,
    *,
    clients: int = 10,
    alpha: float = 0.3,
    seed: int = 0,
    name: str = "own",
) -> Population:
    """Read a table; without a column of clients (`client=None`), split it over `clients` Dirichlet ones.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "visits.csv")
    ...     _ = file.write_text("client,age,dose,label\\nann,0.3,1,wait\\nbob,0.7,2,treat\\nann,0.1,3,treat\\n")
    ...     made = read_population(file)
    >>> made.arms, made.client_name(0), made.sizes().tolist(), made.gather([0], pad=2).y.tolist()
    (('treat', 'wait'), 'ann', [2, 1], [[1, 0]])
    """
    document = read_document(path)
    words = [label] if client is None else [client, label]
    mark, numbers = _numbers(document, words)
    table = read_columns(document, words, numbers, delimiter=mark)
    arms = tuple(sorted(table.words[label].distinct))
    place = np.array([arms.index(word) for word in table.words[label].distinct])
    labels = place[table.words[label].code]
    inputs = np.stack([table.numbers[column] for column in numbers], axis=1).astype(np.float32)
    split: Split
    if client is None:
        split = dirichlet(labels, clients, alpha, seed)
    else:
        split = natural(np.array(table.words[client].distinct)[table.words[client].code])
    return population(name, inputs, labels, arms, split)


def _numbers(document: Document, words: list[str]) -> tuple[str, list[str]]:
    """Give the delimiter, and the columns beside those of words."""
    with document.open() as stream:
        plan = layout(stream, document.name, words, (), None, None)
    with document.open() as stream:
        line, number = first_line(stream, document.name)
    cells = [cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")], delimiter=plan.delimiter))]
    taken = {plan.position[name] for name in words}
    rest = [cell for at, cell in enumerate(cells) if at not in taken]
    if not rest or "" in rest:
        raise DataError(
            f"{document.name}, row {number}: beside {' and '.join(words)} there must be named columns of numbers, got "
            f"{', '.join(cells)}. Add the features."
        )
    return plan.delimiter, rest
