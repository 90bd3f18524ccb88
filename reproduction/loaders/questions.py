"""Questions with tags as bags of words, users as clients: small Stack Exchange sites, and
StackOverflow.

Stack Exchange: `Posts.xml` of a site's public dump (a `row` a post; attributes Id, PostTypeId,
OwnerUserId, Title, Body, Tags as `<one><two>`), compressed or not. Sites whose file holds no bodies
are left out. A question without an owner is a client of its own; most users have one question.
Terms: CC BY-SA, with attribution to the authors of the posts.

StackOverflow as TensorFlow Federated distributes it, for a machine with internet, not shipped
(https://storage.googleapis.com/tff-datasets-public/): `stackoverflow.sqlite` (342,477 users in
split `train`, 135,818,730 sentences), examples with texts `tokens`, `title` (words separated by
blanks) and `tags` (separated by |); `stackoverflow.word_count` (a line a word: word, count; most
frequent first) and `stackoverflow.tag_count` (JSON: tag to count), each extracted or as the
.tar.bz2 it comes in. A bag holds the words of tokens and title, as in Agarwal, McMahan, Xu, 2023.
Terms: CC BY-SA 3.0.
"""

from __future__ import annotations

import html
import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets.files import find, read_known
from posse.problems.populations.population import Population, Ragged, names_of
from posse.problems.populations.prepared import Writer, load
from posse.problems.populations.splits import natural, population
from posse.problems.tables.text import Document, FilePath, read_bytes
from reproduction.loaders import PINS, tff

_MARKUP = re.compile(r"<[^>]*>")
_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")


def words_of(text: str) -> list[str]:
    """Lower-case words of a text with HTML markup: letters and digits, with apostrophes and hyphens
    inside.

    >>> words_of("<p>What is a <b>citra-hop</b> &amp; why don't I care?</p>")
    ['what', 'is', 'a', 'citra-hop', 'why', "don't", 'i', 'care']
    """
    return _WORD.findall(html.unescape(_MARKUP.sub(" ", text)).lower())


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """The most frequent words, or as many as there are; of equally frequent ones the first in the
    alphabet.

    >>> most_frequent(Counter(["b", "a", "c", "b"]), 2)
    ('b', 'a')
    """
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:size])


def bags_of(texts: Iterable[Sequence[str]], vocabulary: Mapping[str, int]) -> Ragged:
    """Number and count the words of each text; words outside the vocabulary are left out.

    >>> bags = bags_of([["a", "b", "a"], ["z"]], {"a": 0, "b": 1})
    >>> bags.values.tolist(), bags.counts.tolist(), bags.offsets.tolist()
    ([0, 1], [2, 1], [0, 2, 2])
    """
    ids: list[int] = []
    counts: list[int] = []
    ends = [0]
    for text in texts:
        bag = Counter(number for word in text if (number := vocabulary.get(word)) is not None)
        for number in sorted(bag):
            ids.append(number)
            counts.append(bag[number])
        ends.append(len(ids))
    limit = np.iinfo(np.uint16).max
    return Ragged(
        np.array(ends, np.int64),
        np.array(ids, np.int32),
        np.minimum(counts, limit).astype(np.uint16),
    )


HOME = "https://archive.org/details/stackexchange"
SITES = ("beer-2017-Posts.xml", "matheducators-2014-Posts.xml", "quantumcomputing-2018-Posts.xml")
VOCABULARY = 10_000
TAGS = 50

_QUESTION = "1"
_TAG = re.compile(r"[^<>|]+")


@dataclass(frozen=True)
class Question:
    """A question: who asked it, its words (title, then body) and its tags."""

    user: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


def stackexchange_population(
    data_dir: FilePath | None = None, words: int = VOCABULARY, tags: int = TAGS, verify: bool = True
) -> Population:
    """Pool the sites with bodies and make users clients."""
    found = [question for file in find_sites(data_dir) for question in read_posts(file, verify)]
    return questions_population(found, words, tags)


def find_sites(data_dir: FilePath | None = None) -> list[Path]:
    """Find the posts of each site."""
    return [
        find(
            (f"stackexchange/{site}.gz", f"stackexchange/{site}", f"{site}.gz", site),
            HOME,
            data_dir,
        )
        for site in SITES
    ]


def read_posts(path: FilePath, verify: bool = True) -> list[Question]:
    """Read the questions of one site; users are named site/number."""
    file = Path(path)
    data = read_known(file, HOME, verify, PINS)
    site = file.name.removesuffix(".gz").split("-")[0].removesuffix(".xml")
    found: list[Question] = []
    try:
        for _, row in ElementTree.iterparse(BytesIO(data)):
            if row.tag == "row" and row.get("PostTypeId") == _QUESTION and row.get("Body"):
                owner = row.get("OwnerUserId") or f"question-{row.get('Id')}"
                text = f"{row.get('Title', '')} {row.get('Body', '')}"
                found.append(
                    Question(
                        f"{site}/{owner}",
                        tuple(words_of(text)),
                        tuple(_TAG.findall(row.get("Tags", ""))),
                    )
                )
            row.clear()
    except ElementTree.ParseError as error:
        raise DataError(f"{file} is not whole XML ({error}). Get it again from {HOME}.") from None
    if not found:
        raise DataError(
            f"{file} holds no question with a body. Give the Posts.xml of a dump, from {HOME}."
        )
    return found


def questions_population(
    questions: list[Question], words: int = VOCABULARY, tags: int = TAGS
) -> Population:
    """Make bags over the most frequent words, and the most frequent tags arms; a question may have
    none of them.

    >>> two = [
    ...     Question("s/1", ("red", "hops"), ("beer", "red")),
    ...     Question("s/2", ("hops",), ("beer",)),
    ... ]
    >>> made = questions_population(two, words=2, tags=2)
    >>> made.arms, made.vocabulary, made.gather([0], pad=1).y.tolist()
    (('beer', 'red'), ('hops', 'red'), [[[1, 1]]])
    """
    check.at_least(1, words=words)
    check.at_least(2, tags=tags)
    vocabulary = most_frequent(
        Counter(word for question in questions for word in question.words), words
    )
    arms = most_frequent(Counter(tag for question in questions for tag in set(question.tags)), tags)
    number = {tag: i for i, tag in enumerate(arms)}
    chosen = Ragged.of(
        [sorted({number[tag] for tag in question.tags if tag in number}) for question in questions]
    )
    bags = bags_of(
        (question.words for question in questions), {word: i for i, word in enumerate(vocabulary)}
    )
    owners = np.array([question.user for question in questions])
    return population("stackexchange", bags, chosen, arms, natural(owners), vocabulary)


STACKOVERFLOW_HOME = "https://storage.googleapis.com/tff-datasets-public/"
SAMPLES_A_CLIENT = 256
"""What the published figures cap a client at."""


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

    `cap` keeps the first sentences of a user. Memory holds one user; the full training split takes
    hours.
    """
    source = Path(data_dir)
    check.at_least(1, words=words)
    check.at_least(2, tags=tags)
    vocabulary = read_words(_counts(source, "word_count", verify), words)
    arms = read_tags(_counts(source, "tag_count", verify), tags)
    number, known = ({name: i for i, name in enumerate(names)} for names in (vocabulary, arms))
    with Writer(Path(folder), "stackoverflow", arms, vocabulary) as out:
        for user, bags, chosen in _users(
            source / "stackoverflow.sqlite", split, number, known, cap
        ):
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
                    f"{document.name}, row {line}: expected a word and its count, got "
                    f"'{row.strip()[:40]}'."
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
        raise DataError(
            f"{document.name} must be a JSON object of tag counts ({error}). Download it again."
        ) from None


def _users(
    database: Path, split: str, number: dict[str, int], known: dict[str, int], cap: int | None
) -> Iterator[tuple[str, Ragged, Ragged]]:
    for user, examples in tff.clients(database, split):
        kept = examples[:cap]
        texts = [
            f"{tff.text(example, 'tokens')} {tff.text(example, 'title')}".split()
            for example in kept
        ]
        tags = [
            {known[tag] for tag in tff.text(example, "tags").split("|") if tag in known}
            for example in kept
        ]
        yield user, bags_of(texts, number), Ragged.of([sorted(row) for row in tags], np.int32)


def _counts(folder: Path, what: str, verify: bool) -> Document:
    """Read a table of counts: the extracted file, or the archive it comes in."""
    name = f"stackoverflow.{what}"
    plain, packed = folder / name, folder / f"{name}.tar.bz2"
    if plain.exists():
        return Document(str(plain), read_bytes(plain))
    if not packed.exists():
        raise DataError(
            f"no {name} in {folder}. Get {name}.tar.bz2 from {STACKOVERFLOW_HOME} and put it there."
        )
    data = read_known(packed, STACKOVERFLOW_HOME, verify, PINS)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = next(
                part
                for part in archive.getmembers()
                if Path(part.name).name == name and part.isfile()
            )
            stream = archive.extractfile(member)
            content = b"" if stream is None else stream.read()
    except (tarfile.TarError, OSError, EOFError, StopIteration) as error:
        raise DataError(
            f"{packed} is not a whole archive of {name} ({error}). Download it again."
        ) from None
    return Document(f"{packed}:{name}", content)
