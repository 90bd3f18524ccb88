"""Where rewards come from: a function, a file of rewards or of raw ratings, a chance, or an owner's
own service.

And where features come from that arrive context by context: a file that grows, a function, or a
service.

A source is asked for the reward of a pull by (run, number) and must give the same answer whenever
it is asked again: a party that dies between the answer and its journal asks once more. The first
answer that was journalled stands. A source may take as long as it needs; the run waits.
"""

from __future__ import annotations

import asyncio
import csv
import importlib
import inspect
import json
import math
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import UNIT_RANGE, RewardRange
from posse.core.random import REWARD, uniform
from posse.core.roles import Ask, Message, Pull, Reward
from posse.core.settings import IMPORTS, External, Settings

if TYPE_CHECKING:
    from posse.problems.tables.options import ReadOptions

T = TypeVar("T")
RewardSource = Callable[[str, int], Awaitable[float]]
"""Gives the reward of pull `number` (from 0) of a run; the same one when asked again."""


class SourceSettings(Settings):
    """Where an owner's rewards come from."""

    kind: Literal["python", "csv", "ratings", "bernoulli", "http"]
    function: Annotated[str, IMPORTS] = ""
    """python: module:function, called with (run, number); it may be async."""
    file: Path | None = None
    """csv: one reward a line, or a column of a table; replayed in order, and again from the start
    after the last. ratings: a table with a header and a rating a row, of which every pull draws
    one; it earns 1 above the threshold that the signed manifest names, and else 0.
    """
    column: str | None = None
    """csv: the column of rewards, where the file has a header (reward); ratings: that of the
    ratings (rating).
    """
    where: str | None = None
    """ratings: tests on columns of the file that must all hold, such as "age >= 18, city = Lyon";
    other rows are left out. Nobody else learns of them.
    """
    mean: float | None = None
    """bernoulli: chance of a reward of 1."""
    url: str = ""
    """http: POST of {"run": ..., "pull": ...} that answers {"reward": ...}."""
    timeout: float = 30.0
    """http: seconds until an attempt is given up and made again."""
    columns: dict[str, str] | str | None = None
    """csv, ratings: names of columns in the file, as in `--columns`: reward=sold or rating=stars."""
    decimal: str = "."
    """csv, ratings: decimal mark of the file."""
    encoding: Annotated[str, External("")] = ""
    """csv, ratings: encoding of the file; empty for UTF-8."""
    skip_bad: bool = False
    """csv, ratings: drop rows that cannot be read."""

    def source(
        self,
        seed: int,
        folder: Path,
        threshold: float | None = None,
        within: RewardRange = UNIT_RANGE,
    ) -> RewardSource:
        """Make the source; `seed` is the owner's own, `folder` what paths and modules are relative
        to.

        `threshold` is the one that all parties of the run agreed on, as are the rewards that are
        `within` its range.
        """
        if self.where is not None and self.kind != "ratings":
            raise ConfigError(
                f"where belongs to a source of kind 'ratings', got one of kind '{self.kind}'. "
                "Remove it."
            )
        match self.kind:
            case "ratings":
                file = needed(self.kind, "file", self.file)
                if threshold is None:
                    raise ConfigError(
                        "a source of kind 'ratings' needs a threshold that the run names. Where "
                        "the system has one, add threshold to the options of all parties, such as "
                        "threshold = 3."
                    )
                ratings = own_ratings(folder / file, self._options("rating"), self.where)
                return _drawn(ratings > threshold, seed)
            case "python":
                return load_function(needed(self.kind, "function", self.function), folder)
            case "csv":
                file = needed(self.kind, "file", self.file)
                return _replayed(self._rewards(folder / file, within), file)
            case "bernoulli":
                return _chance(needed(self.kind, "mean", self.mean), seed)
        return _service(Service(needed(self.kind, "url", self.url), self.timeout))

    def known(
        self, folder: Path, threshold: float | None = None, within: RewardRange = UNIT_RANGE
    ) -> KnownRewards | None:
        """Return what the source's file has; None if rewards are in no file."""
        if self.file is None:
            return None
        if self.kind == "csv":
            rewards = self._rewards(folder / self.file, within)
            return KnownRewards(sum(rewards) / len(rewards), len(rewards))
        if self.kind == "ratings" and threshold is not None:
            ratings = own_ratings(folder / self.file, self._options("rating"), self.where)
            return KnownRewards(float(np.mean(ratings > threshold)), None)
        return None

    def _options(self, name: str) -> ReadOptions:
        """Return how the file is read; `name` is the column of rewards or ratings."""
        from posse.problems.tables.mapping import read_columns_setting
        from posse.problems.tables.options import ReadOptions

        columns = read_columns_setting(self.columns)
        if self.column is not None:
            columns[name] = self.column
        return ReadOptions(self.encoding, self.decimal, self.skip_bad, columns=columns)

    def _rewards(self, path: Path, within: RewardRange) -> tuple[float, ...]:
        options = self._options("reward")
        describes_table = self.encoding or self.decimal != "." or self.skip_bad
        if describes_table or self.columns is not None or self.column is not None:
            return _read_table(path, options, within)
        return _read(path, options.column("reward"), within)


class KnownRewards(NamedTuple):
    """What the file of a source has."""

    mean: float
    rows: int | None
    """Rewards in the file, which are replayed in order; None if they are drawn from it."""


def needed(kind: str, name: str, value: T | None) -> T:
    """Return a setting that a kind of source needs; raise if it was not given."""
    if value is None or value == "":
        raise ConfigError(f"a source of kind '{kind}' needs {name}. Give it under [source].")
    return value


def _chance(mean: float, seed: int) -> RewardSource:
    """1 with probability `mean`, a function of (seed, pull number)."""
    check.between(0, 1, mean=mean)

    async def reward(run: str, number: int) -> float:
        return 1.0 if uniform(np.uint64(seed), REWARD, 0, number, 0) < mean else 0.0

    return reward


def own_ratings(path: Path, options: ReadOptions, where: str | None) -> NDArray[np.float64]:
    """Read an owner's own ratings, of the rows for which `where` holds."""
    from posse.problems.arms.tables import Where, read_where
    from posse.problems.tables.schema import numbers
    from posse.problems.tables.table import open_table

    table = open_table(path, options)
    return read_where(table, Where.read(where), numbers("rating")).numbers["rating"]


def _drawn(good: NDArray[np.bool_], seed: int) -> RewardSource:
    """Whether a rating is good that is drawn for every pull, with replacement: a function of (seed,
    pull number).
    """

    async def reward(run: str, number: int) -> float:
        return float(good[int(uniform(np.uint64(seed), REWARD, 0, number, 0) * len(good))])

    return reward


def _replayed(rewards: tuple[float, ...], file: Path) -> RewardSource:
    """A list of rewards, in order and again from the start; each new start is printed."""

    async def reward(run: str, number: int) -> float:
        if number and number % len(rewards) == 0:
            text = f"{file.name} has {len(rewards):,} rewards: pull {number + 1:,} starts it again."
            print(text, file=sys.stderr, flush=True)
        return rewards[number % len(rewards)]

    return reward


def load_function(where: str, folder: Path) -> Callable[..., Awaitable[Any]]:
    """Import `module:function`, from a folder or installed; one that is not async runs beside the
    loop.
    """
    module, colon, name = where.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"function must be module:function, got '{where}'.")
    try:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        function = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"module '{module}' imports '{error.name}', which is not installed. Install it."
            ) from error
        raise ConfigError(
            f"there is no module '{error.name}' next to {folder} or installed."
        ) from error
    except AttributeError:
        raise ConfigError(f"module '{module}' has no function '{name}'.") from None
    except Exception as error:
        raise ConfigError(
            f"module '{module}' cannot be imported: {type(error).__name__}: {error}."
        ) from error
    if not callable(function):
        raise ConfigError(f"{where} must be a function, got {type(function).__name__}.")

    async def call(*arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        answer = await asyncio.to_thread(function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer

    return call


class Service:
    """A service of a party's own, asked by POST of JSON; `refused` says what it means that it
    returns an error.
    """

    def __init__(self, url: str, timeout: float, refused: str = "does not answer") -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url must begin with http:// or https://, got '{url}'.")
        check.positive(timeout=timeout)
        self.url, self._timeout, self._refused = url, timeout, refused

    async def ask(self, key: str, values: Mapping[str, object], example: str) -> object:
        """Post values and decode the JSON that comes back, such as the `example`."""
        answer = await self.post(key, values)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise DataError(
                f"{self.url} must answer with JSON such as {example}: {error}."
            ) from error

    async def post(self, key: str, values: Mapping[str, object]) -> bytes:
        """Send values under an idempotency key and return the answer; the party asks again after a
        `DataError`.
        """
        return await asyncio.to_thread(self._post, key, values)

    def _post(self, key: str, values: Mapping[str, object]) -> bytes:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(
            self.url, json.dumps(values).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                body: bytes = answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(f"{self.url} {self._refused}: {error}.") from None
        except OSError as error:
            raise DataError(f"{self.url} does not answer: {error}.") from error
        return body


def _service(service: Service) -> RewardSource:
    """What a service of the owner's own answers."""

    async def reward(run: str, number: int) -> float:
        values = {"run": run, "pull": number}
        body = await service.ask(f"{run}/{number}", values, "{'reward': 0.5}")
        if not isinstance(body, dict) or not isinstance(body.get("reward"), int | float):
            raise DataError(
                f"{service.url} must answer with JSON such as {{'reward': 0.5}}, got "
                f"{str(body)[:80]}."
            )
        return float(body["reward"])

    return reward


async def units(
    source: RewardSource,
    run: str,
    number: int,
    what: str = "pull",
    within: RewardRange = UNIT_RANGE,
) -> int:
    """Ask for a reward, in units of 2^-24 of its range; a number outside of it is an error."""
    reward = float(await source(run, number))
    if not within.contains(reward):
        raise DataError(
            f"a reward must be in {within}, got {reward} for {what} {number}. Correct the source."
        )
    return int(within.units(reward))


# Contexts that arrive -----------------------------------------------------------------------------

Arrived = tuple[str, tuple[float, ...]]
"""Identifier of the row (may be empty), and a party's features of it."""
FeatureSource = Callable[[int], Awaitable[Arrived | None]]
"""Gives the features of a step (from 0), the same when asked again; None when no context comes any
more.
"""
LOOK_AGAIN = 0.1
"""Seconds between two looks at a file that has not grown yet."""


class FeatureSettings(Settings):
    """Where a party's features come from, context by context."""

    kind: Literal["python", "csv", "http"]
    function: Annotated[str, IMPORTS] = ""
    """python: module:function, called with (run, step); returns numbers, or (row, numbers), or None
    at the end.
    """
    file: Path | None = None
    """csv: a file with a header, a column row and a column a feature, to which a line a context is
    appended; a line `end` is the last one.
    """
    url: str = ""
    """http: POST of {"run": ..., "step": ...} that answers {"features": [...], "row": ...} or
    {"over": true}.
    """
    timeout: float = 30.0
    """http: seconds until an attempt is given up and made again."""

    def features(self, run: str, folder: Path) -> FeatureSource:
        """Make the source; `folder` is what paths and modules are relative to."""
        if self.kind == "csv":
            return GrowingFile(folder / needed(self.kind, "file", self.file))
        if self.kind == "python":
            function = load_function(needed(self.kind, "function", self.function), folder)

            async def call(step: int) -> Arrived | None:
                return _arrived(await function(run, step), self.function)

            return call
        service = Service(needed(self.kind, "url", self.url), self.timeout)

        async def post(step: int) -> Arrived | None:
            values = {"run": run, "step": step}
            body = await service.ask(f"{run}/{step}", values, "{'features': [0.5]}")
            if isinstance(body, dict) and body.get("over") is True:
                return None
            given = body if isinstance(body, dict) else {}
            row = given.get("row")
            return _arrived(("" if row is None else str(row), given.get("features")), self.url)

        return post


def _arrived(given: Any, where: str) -> Arrived | None:
    """Read what a function or service gave."""
    if given is None:
        return None
    row, numbers = (
        given
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
        else ("", given)
    )
    try:
        if isinstance(numbers, str | bytes | Mapping):  # digits and keys would pass for features
            raise TypeError
        return row, tuple(map(float, numbers))
    except (TypeError, ValueError):
        raise DataError(
            f"{where} must give the features of a context as numbers, got {str(numbers)[:80]}."
        ) from None


class GrowingFile:
    """A CSV file to which contexts are appended; whole lines count, and a file that is not there
    yet is waited for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._offset, self._next, self._over = 0, 0, False
        self._names: list[str] = []
        self._rows: dict[int, list[str]] = {}
        """Lines from the step that was last asked for on."""

    async def __call__(self, step: int) -> Arrived | None:
        """Wait for the line of a step."""
        while True:
            await asyncio.to_thread(self._read, step)
            if step in self._rows:
                return self._row(step)
            if self._over:
                return None
            await asyncio.sleep(LOOK_AGAIN)

    def _read(self, step: int) -> None:
        """Read what was appended since the last look; lines before the step are not kept."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._begin()  # it was written anew
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(f"cannot read features from {self._path}: {error.strerror}.") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for cells in csv.reader(whole.decode("utf-8-sig", errors="replace").splitlines()):
            self._take([cell.strip() for cell in cells])
        for old in [number for number in self._rows if number < step]:
            del self._rows[old]

    def _take(self, cells: list[str]) -> None:
        if self._over or not any(cells):
            return
        if not self._names:
            if "row" not in cells or len(cells) < 2:
                self._begin()  # it is read anew when it is corrected
                raise DataError(
                    f"{self._path} must begin with a header: row, and a name for each feature."
                )
            self._names = cells
        elif cells == ["end"]:
            self._over = True
        else:
            self._rows[self._next] = cells
            self._next += 1

    def _row(self, step: int) -> Arrived:
        cells, at = self._rows[step], self._names.index("row")
        numbers = [cell for place, cell in enumerate(cells) if place != at]
        if len(cells) != len(self._names) or not all(map(_number, numbers)):
            expected = ", ".join(self._names)
            self._begin()  # it is read anew when it is corrected
            raise DataError(
                f"{self._path}, context {step + 1}: expected {expected}, got "
                f"'{','.join(cells)[:80]}'. Correct it."
            )
        return cells[at], tuple(map(float, numbers))


def answering(source: RewardSource, run: str) -> Callable[[Ask], Awaitable[Message]]:
    """Return a source as the runtime asks it: a pull in, a reward in units out."""

    async def answer(pull: Ask) -> Message:
        assert isinstance(pull, Pull)
        return Reward(pull.number, await units(source, run, pull.number))

    return answer


def _read(path: Path, column: str, within: RewardRange) -> tuple[float, ...]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as error:
        raise DataError(f"cannot read rewards from {path}: {error.strerror}.") from error
    rows = [
        (number, line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith("#")
    ]
    if not rows:
        raise DataError(f"{path.name} holds no reward. Write one a line.")
    at = 0
    header = [cell.strip() for cell in rows[0][1].split(",")]
    if not _number(header[0]) or column in header:
        if column not in header:
            raise DataError(
                f"{path.name} has no column '{column}', got {', '.join(header)}. Give column."
            )
        at = header.index(column)
        rows = rows[1:]
    values = []
    for number, line in rows:
        cells = line.split(",")
        cell = cells[at].strip() if at < len(cells) else ""
        if not _number(cell) or not within.contains(float(cell)):
            raise DataError(
                f"{path.name}, row {number}: a reward must be a number in {within}, got '{cell}'. "
                "Correct it."
            )
        values.append(float(cell))
    if not values:
        raise DataError(f"{path.name} has a header and no rows. Write one reward a line.")
    return tuple(values)


def _read_table(path: Path, options: ReadOptions, within: RewardRange) -> tuple[float, ...]:
    """Read rewards from a table with a header, as `--data` does."""
    from posse.problems.tables.schema import Schema, numbers
    from posse.problems.tables.table import open_table

    records = Schema(numbers("reward")).read(open_table(path, options))
    rewards = records.numbers["reward"]
    for line, reward in zip(records.line.tolist(), rewards.tolist(), strict=True):
        if not within.contains(reward):
            raise DataError(
                f"{path.name}, line {line}: a reward must be in {within}, got {reward}. Correct it."
            )
    return tuple(rewards.tolist())


def _number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
