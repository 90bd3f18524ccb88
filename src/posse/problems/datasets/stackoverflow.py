"""StackOverflow as TensorFlow Federated distributes it: sentences with the tags of their question, users as clients.

For a machine with internet, not shipped (https://storage.googleapis.com/tff-datasets-public/): `stackoverflow.sqlite`
(342,477 users in split `train`, 135,818,730 sentences), examples with texts `tokens`, `title` (words separated by
blanks) and `tags` (separated by |); `stackoverflow.word_count` (a line a word: word, count; most frequent first) and
`stackoverflow.tag_count` (JSON: tag to count), each extracted or as the .tar.bz2 it comes in. A bag holds the words of
tokens and title, as in Agarwal, McMahan, Xu, 2023. Terms: CC BY-SA 3.0.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets import tff
from posse.problems.datasets.bags import bags_of, most_frequent
from posse.problems.datasets.document import Document, FilePath, read_bytes
from posse.problems.populations import Population
from posse.problems.prepared import load
from posse.problems.prepared_writer import Writer
from posse.problems.ragged import Ragged, names_of

HOME = "https://storage.googleapis.com/tff-datasets-public/"
VOCABULARY = 10_000
TAGS = 50
SAMPLES_A_CLIENT = 256
"""What the published figures cap a client at."""

SHA256 = {
    "stackoverflow.word_count.tar.bz2": "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
    "stackoverflow.tag_count.tar.bz2": "6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d",
}
"""Digests that TensorFlow Federated checks; the database has none."""


def prepare_stackoverflow(
    data_dir: FilePath,
    folder: FilePath,
    split: str = "train",
    words: int = VOCABULARY,
    tags: int = TAGS,
    cap: int | None = SAMPLES_A_CLIENT,
    verify: bool = True,
) -> Population:
    """Write the database of `data_dir` to a prepared folder, a user at a time, and map it.

    `cap` keeps the first sentences of a user. Memory holds one user; the full training split takes hours.
    """
    source = Path(data_dir)
    check.at_least(1, words=words)
    check.at_least(2, tags=tags)
    vocabulary = read_words(_counts(source, "word_count", verify), words)
    arms = read_tags(_counts(source, "tag_count", verify), tags)
    number, known = ({name: i for i, name in enumerate(names)} for names in (vocabulary, arms))
    with Writer(Path(folder), "stackoverflow", arms, vocabulary) as out:
        for user, bags, chosen in _users(source / "stackoverflow.sqlite", split, number, known, cap):
            out.add([len(bags)], bags, chosen, names_of([user]))
    return load(folder)


def read_words(document: Document, size: int) -> tuple[str, ...]:
    """Read the most frequent words: a line a word, most frequent first."""
    found: list[str] = []
    with document.open() as stream:
        for line, row in enumerate(stream, start=1):
            cells = row.split()
            if len(cells) != 2 or not cells[1].isdecimal():
                raise DataError(
                    f"{document.name}, row {line}: expected a word and its count, got '{row.strip()[:40]}'."
                )
            found.append(cells[0])
            if len(found) == size:
                break
    return tuple(found)


def read_tags(document: Document, size: int) -> tuple[str, ...]:
    """Read the most frequent tags from a JSON object of counts."""
    try:
        counts = json.loads(document.data)
        return most_frequent({str(tag): int(count) for tag, count in counts.items()}, size)
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{document.name} must be a JSON object of tag counts ({error}). Download it again.") from None


def _users(
    database: Path, split: str, number: dict[str, int], known: dict[str, int], cap: int | None
) -> Iterator[tuple[str, Ragged, Ragged]]:
    for user, examples in tff.clients(database, split):
        kept = examples[:cap]
        texts = [f"{tff.text(example, 'tokens')} {tff.text(example, 'title')}".split() for example in kept]
        tags = [{known[tag] for tag in tff.text(example, "tags").split("|") if tag in known} for example in kept]
        yield user, bags_of(texts, number), Ragged.of([sorted(row) for row in tags], np.int32)


def _counts(folder: Path, what: str, verify: bool) -> Document:
    """Read a table of counts: the extracted file, or the archive it comes in."""
    name = f"stackoverflow.{what}"
    plain, packed = folder / name, folder / f"{name}.tar.bz2"
    if plain.exists():
        return Document(str(plain), read_bytes(plain))
    if not packed.exists():
        raise DataError(f"no {name} in {folder}. Get {name}.tar.bz2 from {HOME} and put it there.")
    data = read_bytes(packed)
    found = hashlib.sha256(data).hexdigest()
    if verify and found != SHA256[packed.name]:
        raise DataError(
            f"{packed} is not the known file: expected sha256 {SHA256[packed.name][:12]}..., found {found[:12]}.... "
            f"Download it again from {HOME}, or pass verify=False to use it as it is."
        )
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = next(part for part in archive.getmembers() if Path(part.name).name == name and part.isfile())
            stream = archive.extractfile(member)
            content = b"" if stream is None else stream.read()
    except (tarfile.TarError, OSError, EOFError, StopIteration) as error:
        raise DataError(f"{packed} is not a whole archive of {name} ({error}). Download it again.") from None
    return Document(f"{packed}:{name}", content)
