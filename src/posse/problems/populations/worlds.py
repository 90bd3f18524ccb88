"""Worlds of clients: rewards before and after deployment, how they change, and who answers.

| scenario | pre-training | bandit phase |
|---|---|---|
| `scratch` | none | 1 for the label (for a tag of the sample), else 0 |
| `init` | 100 clients, all rewards of a sample seen | the same rewards |
| `init-shift`, images | also 0.5 for a lower-case guess of an upper-case label | 1 for the label, else 0 |
| `init-shift`, tags | the 10 most frequent tags only, 1 each | all tags, in inverse proportion to their frequency |
| `init-shift`, your own | a table of labels x arms (`read_rewards`) | 1 for the label, else 0 |

Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023,
section 4.2. The paper does not give the scale of the rewards of tags; the authors' code does: a tag
pays (count of the most frequent tag) / (its count), so the most frequent pays 1 and others more (1 to
4.9 on StackOverflow). That code pre-trains on 60 % of the tags and swaps the cases of letters; here
both follow the paper. Only numpy is needed.

Drift is a table by which the rewards of a round are multiplied. Presence lists the arms of a round.
Availability is a function of (seed, client, round).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import (
    DRIFT,
    INITIAL,
    LATE,
    MISSING,
    NEVER,
    Population,
    Ragged,
    order,
    release,
    uniforms,
)
from posse.problems.requirements import Floats, Ints, Mask
from posse.problems.tables.schema import Schema, numbers, words
from posse.problems.tables.table import open_table

SCENARIOS = ("scratch", "init", "init-shift")
INITIAL_CLIENTS = 100
PRETRAINED_TAGS = 10
NEAR = 0.5
"""Reward in pre-training for the lower-case form of an upper-case label."""

_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Rewards:
    """What every arm pays for every label: `table[label, arm]`.

    A sample with several tags is paid the sum.
    """

    table: Floats

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or not np.isfinite(self.table).all():
            raise DataError(
                "rewards must be a table of finite numbers, labels x arms, got "
                f"{self.table.shape}.",
                rule="problems.before.not-a-table",
            )
        self.table.flags.writeable = False

    def at(self, drift: Drift | None, round_number: int) -> Rewards:
        """Return the rewards of a round in a world that drifts."""
        return self if drift is None else Rewards(self.table @ drift.table(round_number))


@dataclass(frozen=True, eq=False)
class Scenario:
    """Rewards of the two phases, and the clients of pre-training; `scratch` has none."""

    name: str
    rewards: Rewards
    pretrained: int = 0
    before: Rewards | None = None
    pretrained_arms: Mask | None = None
    """(arms,): the arms whose rewards pre-training sees; the loss is only over these."""
    among: Ints | None = None
    """Clients that may be drawn for pre-training; None for all."""

    def initial(self, clients: int, seed: int) -> Ints:
        """Draw the clients of pre-training without replacement, by (seed, client); sorted.

        The bandit phase may draw any client, also these.
        """
        clients_in_order = order(seed, INITIAL, clients)
        if self.among is not None:
            clients_in_order = clients_in_order[np.isin(clients_in_order, self.among)]
        if self.pretrained > len(clients_in_order):
            raise ConfigError(
                f"scenario {self.name} pre-trains on {self.pretrained} clients, and there are "
                f"{len(clients_in_order)}. Take fewer.",
                rule="problems.pretrained.too-many",
            )
        return np.sort(clients_in_order[: self.pretrained])


class Before(NamedTuple):
    """What arms pay before deployment, and the arms whose pay is seen."""

    rewards: Rewards
    arms: Mask


def scenario(
    name: str,
    population: Population,
    pretrained: int = INITIAL_CLIENTS,
    before: Before | None = None,
    among: Ints | None = None,
) -> Scenario:
    """Make a scenario for a population, by its labels, or by the frequency of its tags.

    Args:
        name: One of `SCENARIOS`.
        population: The population.
        pretrained: Number of clients of pre-training.
        before: A user's own rewards of pre-training (init-shift).
        among: Clients that may be drawn for pre-training.
    """
    check.one_of(SCENARIOS, scenario=name)
    count = len(population.arms)
    rewards = Rewards(np.eye(count))
    if name == "scratch":
        return Scenario(name, rewards)
    check.at_least(1, pretrained=pretrained)
    every_arm = np.ones(count, bool)
    if population.multilabel and name == "init-shift" and before is None:
        counts = tag_counts(population)
        visible = np.zeros(count, bool)
        visible[np.argsort(-counts, kind="stable")[:PRETRAINED_TAGS]] = True
        rewards = Rewards(np.diag(inverse_frequency(counts)))
        before = Before(Rewards(np.diag(visible * 1.0)), visible)
    if name == "init":
        before = Before(rewards, every_arm)
    shift = before or Before(Rewards(near_case(population.arms)), every_arm)
    return Scenario(name, rewards, pretrained, *shift, among)


def read_rewards(path: Path, arms: tuple[str, ...]) -> Before:
    """Read what arms pay before deployment: a table with one row per label.

    The first column names the label; each other column is an arm. Arms without a column are not
    seen before deployment.
    """
    table = open_table(path)
    label, *columns = table.header
    _check_listed(table.name, "arm", columns, arms)
    records = Schema(words(label), *map(numbers, columns)).read(table)
    records.check_distinct(label)
    labels = records.words[label].distinct
    _check_listed(table.name, "label", labels, arms)
    unpaid = sorted(set(arms) - set(labels))
    if unpaid or not columns:
        raise DataError(
            f"{path} needs an arm, and a row for every label, got none for "
            f"{', '.join(unpaid[:4])}.",
            rule="problems.before.incomplete",
        )
    rows = list(map(arms.index, labels))
    visible = np.isin(arms, columns)
    rewards = np.zeros((len(arms), len(arms)))
    for column in columns:
        rewards[rows, arms.index(column)] = records.numbers[column]
    return Before(Rewards(rewards), visible)


def _check_listed(file: str, what: str, names: Sequence[str], arms: tuple[str, ...]) -> None:
    """Raise if a name is not an arm of the data."""
    for name in names:
        if name not in arms:
            raise DataError(
                f"{file} has the {what} '{name}', which is not an arm of the data."
                f"{check.suggestion(name, arms)}",
                rule="problems.before.unknown-name",
            )


def named_clients(population: Population, patterns: str) -> Ints:
    """Return the clients whose names fit one of some patterns, such as `clinic-*,lab-1`.

    >>> pixels = np.zeros((3, 2), np.float32)
    >>> three = Population(
    ...     "three", ("a", "b"), np.array([0, 1, 2, 3]), pixels, np.array([0, 1, 1], np.int32)
    ... )
    >>> named_clients(three, "client-[13]").tolist()
    [0, 2]
    """
    choices = [pattern.strip() for pattern in patterns.split(",")]
    chosen = clients_where(
        population, lambda name: any(fnmatchcase(name, pattern) for pattern in choices)
    )
    if not len(chosen):
        raise ConfigError(
            f"no client has a name like '{patterns}', and the first is "
            f"{population.client_name(0)}. Change the pattern.",
            rule="problems.first.no-client",
        )
    return chosen


def clients_where(population: Population, test: Callable[[str], bool]) -> Ints:
    """Return the clients whose names pass a test."""
    names = map(population.client_name, range(population.clients))
    return np.flatnonzero(np.fromiter(map(test, names), np.bool_))


def near_case(arms: tuple[str, ...]) -> Floats:
    """Return 1 for the label, 0.5 for the lower-case form of an upper-case label, else 0.

    >>> near_case(("1", "A", "a")).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]
    """
    lower = {arm: arm.lower() for arm in arms if arm.isupper() and arm.lower() in arms}
    if not lower:
        raise ConfigError(
            "init-shift needs arms that are letters of both cases, or tags, got "
            f"{', '.join(arms[:4])}, .... Give the rewards before deployment (before: a table "
            "labels x arms, or a function), or use 'init'.",
            rule="problems.before.not-letters",
        )
    table = np.eye(len(arms))
    for arm, near in lower.items():
        table[arms.index(arm), arms.index(near)] = NEAR
    return table


def tag_counts(population: Population) -> Ints:
    """Return the number of samples with each tag, in one pass."""
    if not isinstance(population.labels, Ragged):
        raise DataError(
            f"{population.name} has one label per sample, not tags. Give a population with tags.",
            rule="problems.population.no-tags",
        )
    counts, tags = np.zeros(len(population.arms), np.int64), population.labels.values
    for low in range(0, len(tags), _CHUNK):
        counts += np.bincount(tags[low : low + _CHUNK], minlength=len(counts))
    release(tags)
    return counts


def inverse_frequency(counts: ArrayLike) -> Floats:
    """Return the reward of each tag: the largest count over its own.

    >>> inverse_frequency([200, 100, 50]).tolist()
    [1.0, 2.0, 4.0]
    """
    tags = np.asarray(counts, np.float64)
    if not len(tags) or tags.min() <= 0:
        raise DataError(
            "every tag must be in a sample, got a count of 0. Leave the tag out.",
            rule="problems.tags.unused",
        )
    return np.asarray(tags.max() / tags)


@dataclass(frozen=True)
class LabelDrift:
    """Labels change their meaning: after each `every` rounds, a share of the arms swaps meaning.

    In period p = round // every the arm that pays for label l is the image of l under p successive
    permutations; each moves `share` of the arms (at least 2) in a cycle and leaves the others.
    Period 0 is the world as it is.

    >>> LabelDrift(arms=5, every=10, share=0.4, seed=3).mapping(25).tolist()
    [0, 4, 1, 3, 2]
    """

    arms: int
    every: int
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(2, arms=self.arms)
        check.at_least(1, every=self.every)
        check.between(0, 1, open_low=True, share=self.share)

    def mapping(self, round_number: int) -> Ints:
        """Return the arm that each label means in a round; O(periods arms log arms)."""
        meaning = np.arange(self.arms)
        moved = max(2, round(self.share * self.arms))
        for period in range(1, round_number // self.every + 1):
            cycle = order(self.seed, DRIFT, self.arms, period)[:moved]
            step = np.arange(self.arms)
            step[cycle] = np.roll(cycle, 1)
            meaning = step[meaning]
        return meaning

    def table(self, round_number: int) -> Floats:
        """Return the permutation as a table of 0 and 1."""
        return np.eye(self.arms)[self.mapping(round_number)]


@dataclass(frozen=True)
class ValueDrift:
    """Arms change their value: the pay of arm k is multiplied by its value in a round.

    The value is 1 - depth (1 + sin(2 pi (round / period + u_k))) / 2, in [1 - depth, 1]. u_k is a
    draw for each arm, so that arms have their seasons at different times.

    >>> ValueDrift(arms=3, period=100, depth=0.5, seed=1).values(0).round(3).tolist()
    [0.841, 0.663, 0.504]
    """

    arms: int
    period: float
    depth: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(2, arms=self.arms)
        check.positive(period=self.period)
        check.between(0, 1, depth=self.depth)

    def values(self, round_number: int) -> Floats:
        """Return the value of each arm in a round."""
        season = uniforms(self.seed, DRIFT, np.arange(self.arms)) + round_number / self.period
        return 1 - self.depth * (1 + np.sin(2 * math.pi * season)) / 2

    def table(self, round_number: int) -> Floats:
        """Return the values on a diagonal."""
        return np.diag(self.values(round_number))


Drift = LabelDrift | ValueDrift
"""A world that changes with the round; the same round gives the same table."""


@dataclass(frozen=True)
class Presence:
    """The rounds in which arms are there.

    `periods` are (arm, first round, last round), from 1 on. Arms without a period are always there.

    >>> coming = Presence(("a", "b", "c"), periods_of("b:3-,c:1-2,c:4-"))
    >>> [coming.here(at).astype(int).tolist() for at in range(4)]
    [[1, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    >>> coming.rounds("c")
    '1 to 2, 4 on'
    """

    arms: tuple[str, ...]
    periods: tuple[tuple[str, int, float], ...]

    def __post_init__(self) -> None:
        for name, _, _ in self.periods:
            if name not in self.arms:
                raise ConfigError(
                    f"available has the arm '{name}', which is not an arm of the data."
                    f"{check.suggestion(name, self.arms)}",
                    rule="problems.available.unknown-arm",
                )

    def here(self, round_number: int) -> Mask:
        """Return for each arm whether it is there in a round, which counts from 0."""
        with_periods = {name for name, _, _ in self.periods}
        there = {name for name, first, last in self.periods if first <= round_number + 1 <= last}
        return np.array([arm not in with_periods or arm in there for arm in self.arms])

    def check(self, rounds: int) -> None:
        """Raise if a round has no arm."""
        # An arm leaves after the last round of a period, so only the next rounds must be checked.
        ends = {1, *(last + 1 for _, _, last in self.periods)}
        for number in sorted(end for end in ends if end <= rounds):
            if not self.here(int(number) - 1).any():
                raise ConfigError(
                    f"every round needs an arm, and available leaves none in round {int(number)}. "
                    "Change it.",
                    rule="problems.available.no-arm",
                )

    def rounds(self, arm: str) -> str:
        """Return in words the rounds in which an arm is there."""
        own = sorted((first, last) for name, first, last in self.periods if name == arm)
        texts = [f"{first} to {last:g}" for first, last in own]
        return ", ".join(texts).replace("to inf", "on") or "all"


_PERIOD = re.compile(
    r"\s*(?P<name>\S|\S.*\S)\s*:\s*(?P<first>\d{0,18})\s*-\s*(?P<last>-?\d{1,18})?\s*"
)


def periods_of(text: str) -> tuple[tuple[str, int, float], ...]:
    """Read periods of arms, such as `a:20-,b:1-99`: the name of an arm, its first and last round.

    Either round may be missing. A name with a comma is quoted with its rounds, as in CSV files. A
    name may appear several times.
    """
    try:
        (cells,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (ValueError, csv.Error):
        cells = []
    matches = [_PERIOD.fullmatch(cell) for cell in cells or [""]]
    return tuple(_period(match, text) for match in matches)


def _period(match: re.Match[str] | None, text: str) -> tuple[str, int, float]:
    if match is None:
        raise ConfigError(
            "available must be arms with their first and last round, such as a:20-,b:1-99, "
            f"got {text!r}. Correct it.",
            rule="problems.available.not-periods",
        )
    name = match["name"]
    first = int(match["first"] or 1)
    last = float(match["last"] or math.inf)
    if not 1 <= first <= last:
        raise ConfigError(
            f"rounds of available are 1 on, first to last, got {first} to {last:g} for arm "
            f"'{name}'. Correct them.",
            rule="problems.available.rounds",
        )
    return name, first, last


def periods_text(table: object) -> object:
    """Write a table of arms as the text that `periods_of` reads; other values do not change.

    An entry of the table is {arm: (first, last)} or {arm: [(first, last), ...]}.

    >>> periods_text({"a": (20, None), "b, c": [(1, 9), (30, None)]})
    'a:20-,"b, c:1-9","b, c:30-"'
    """
    if not isinstance(table, Mapping):
        return table or None
    cells = [cell for name, value in table.items() for cell in _period_cells(name, value)]
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(cells)
    return stream.getvalue()


def _period_cells(name: str, value: object) -> list[str]:
    """Return the periods of one arm as text."""
    periods: Sequence[object] = [value]
    if isinstance(value, Sequence) and value and isinstance(value[0], Sequence):
        periods = value
    cells = []
    for period in periods:
        if not isinstance(period, Sequence) or isinstance(period, str) or len(period) != 2:
            raise ConfigError(
                f"available needs the first and last round of arm '{name}', (20, None), got "
                f"{value!r}.",
                rule="problems.available.not-a-pair",
            )
        first, last = ("" if end is None else end for end in period)
        cells.append(f"{name}:{first}-{last}")
    return cells


@dataclass(frozen=True)
class Availability:
    """How clients of a cohort answer.

    A share `never` of the clients never answers. Any other client misses each round with chance
    `missing`. An answer is late with chance `late`, and then it is lost. `delay`, the most rounds
    that an answer is late, changes nothing.

    >>> answers = Availability(missing=0.2, late=0.3, seed=1)
    >>> answers.in_time(np.arange(8), round_number=5).astype(int).tolist()
    [1, 0, 1, 0, 1, 1, 0, 1]
    """

    missing: float = 0.0
    late: float = 0.0
    delay: int = 1
    never: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check.between(0, 1, missing=self.missing)
        check.between(0, 1, late=self.late)
        check.between(0, 1, never=self.never)
        check.at_least(1, delay=self.delay)
        if self.never == 1 or self.missing == 1:
            raise ConfigError(
                "some clients must answer, got never or missing of 1. Lower it.",
                rule="problems.never.everybody",
            )

    def in_time(self, clients: ArrayLike, round_number: int) -> Mask:
        """Return which clients answer within the round."""
        numbers = np.atleast_1d(np.asarray(clients, np.int64))
        late = uniforms(self.seed, LATE, numbers, round_number) < self.late
        missing = uniforms(self.seed, MISSING, numbers, round_number) < self.missing
        never = uniforms(self.seed, NEVER, numbers) < self.never
        return np.asarray(~(late | missing | never))
