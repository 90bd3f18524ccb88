"""Questions of small Stack Exchange sites with their tags: users are clients, most with one question.

`Posts.xml` of a site's public dump (a `row` a post; attributes Id, PostTypeId, OwnerUserId, Title, Body, Tags as
`<one><two>`), compressed or not. Sites whose file holds no bodies are left out. A question whose owner is not told is a
client of its own. Terms: CC BY-SA, with attribution to the authors of the posts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets.bags import bags_of, most_frequent, words_of
from posse.problems.datasets.document import FilePath
from posse.problems.datasets.locate import Pin, check_pin, find
from posse.problems.datasets.unpacked import unpacked
from posse.problems.populations import Population
from posse.problems.ragged import Ragged
from posse.problems.splits import natural, population

HOME = "https://archive.org/details/stackexchange"
SITES = ("beer-2017-Posts.xml", "matheducators-2014-Posts.xml", "quantumcomputing-2018-Posts.xml")
VOCABULARY = 10_000
TAGS = 50

PINS = {
    "beer-2017-Posts.xml": Pin(2562658, "37a93b290a79c20ee14127febfadb18e58a172e39f732f690512c1dac4da8777"),
    "matheducators-2014-Posts.xml": Pin(3471524, "9dde5ea5bf6bed7f7b75dd9581a97005c271ee97d0ca1cb42757076fe68bee50"),
    "quantumcomputing-2018-Posts.xml": Pin(3949993, "073b5eef04721592722b8c9eb48f979cf7d95f4236cdd38517a04e1f5e27f313"),
}
"""Size and sha256 of the uncompressed files."""

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
    files = [find((f"stackexchange/{site}.gz", f"stackexchange/{site}", f"{site}.gz", site), HOME, data_dir)
             for site in SITES]  # fmt: skip
    return questions_population([question for file in files for question in read_posts(file, verify)], words, tags)


def read_posts(path: FilePath, verify: bool = True) -> list[Question]:
    """Read the questions of one site; users are named site/number."""
    file = Path(path)
    name = file.name.removesuffix(".gz")
    data = unpacked(file, HOME)
    if verify and name in PINS:
        check_pin(str(file), data, PINS[name], HOME)
    site = name.split("-")[0].removesuffix(".xml")
    found: list[Question] = []
    try:
        for _, row in ElementTree.iterparse(BytesIO(data)):
            if row.tag == "row" and row.get("PostTypeId") == _QUESTION and row.get("Body"):
                owner = row.get("OwnerUserId") or f"question-{row.get('Id')}"
                text = f"{row.get('Title', '')} {row.get('Body', '')}"
                found.append(
                    Question(f"{site}/{owner}", tuple(words_of(text)), tuple(_TAG.findall(row.get("Tags", ""))))
                )
            row.clear()
    except ElementTree.ParseError as error:
        raise DataError(f"{file} is not whole XML ({error}). Get it again from {HOME}.") from None
    if not found:
        raise DataError(f"{file} holds no question with a body. Give the Posts.xml of a dump, from {HOME}.")
    return found


def questions_population(questions: list[Question], words: int = VOCABULARY, tags: int = TAGS) -> Population:
    """Make bags over the most frequent words, and the most frequent tags arms; a question may have none of them.

    >>> asked = [Question("s/1", ("red", "hops"), ("beer", "red")), Question("s/2", ("hops",), ("beer",))]
    >>> made = questions_population(asked, words=2, tags=2)
    >>> made.arms, made.vocabulary, made.gather([0], pad=1).y.tolist()
    (('beer', 'red'), ('hops', 'red'), [[[1, 1]]])
    """
    check.at_least(1, words=words)
    check.at_least(2, tags=tags)
    vocabulary = most_frequent(Counter(word for question in questions for word in question.words), words)
    arms = most_frequent(Counter(tag for question in questions for tag in set(question.tags)), tags)
    number = {tag: i for i, tag in enumerate(arms)}
    chosen = Ragged.of([sorted({number[tag] for tag in question.tags if tag in number}) for question in questions])
    bags = bags_of((question.words for question in questions), {word: i for i, word in enumerate(vocabulary)})
    owners = np.array([question.user for question in questions])
    return population("stackexchange", bags, chosen, arms, natural(owners), vocabulary)
