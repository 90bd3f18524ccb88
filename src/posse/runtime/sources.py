"""Where rewards come from: a function, a file of rewards or of raw ratings, a chance, or an owner's own service.

A source is asked for the reward of a pull by (run, number) and must give the same answer whenever it is asked again: a
party that dies between the answer and its journal asks once more. The first answer that was journalled stands.
A source may take as long as it needs; the run waits.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import math
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import to_units
from posse.core.random import REWARD, uniform
from posse.core.roles import Ask, Message, Pull, Reward
from posse.core.settings import Settings

RewardSource = Callable[[str, int], Awaitable[float]]
"""Gives the reward in [0, 1] of pull `number` (from 0) of a run; the same one when asked again."""


class SourceSettings(Settings):
    """Where an owner's rewards come from."""

    kind: Literal["python", "csv", "ratings", "bernoulli", "http"]
    function: str = ""
    """python: module:function, called with (run, number); it may be async."""
    file: Path | None = None
    """csv: one reward a line, or a column of a table; replayed in order, and again from the start after the last.
    ratings: a table with a header and a rating a row, of which every pull draws one; it earns 1 above the threshold
    that the signed manifest names, and else 0."""
    column: str | None = None
    """csv: the column of rewards, where the file has a header (reward); ratings: that of the ratings (rating)."""
    where: str | None = None
    """ratings: tests on columns of the file that must all hold, such as "age >= 18, city = Lyon"; other rows are left
    out. Nobody else learns of them."""
    mean: float | None = None
    """bernoulli: chance of a reward of 1."""
    url: str = ""
    """http: POST of {"run": ..., "pull": ...} that answers {"reward": ...}."""
    timeout: float = 30.0
    """http: seconds until an attempt is given up and made again."""

    def source(self, seed: int, folder: Path, threshold: float | None = None) -> RewardSource:
        """Make the source; `seed` is the owner's own, `folder` what paths and modules are relative to.

        `threshold` is the one that all parties of the run agreed on.
        """
        needed = {"python": "function", "csv": "file", "ratings": "file", "bernoulli": "mean", "http": "url"}[self.kind]
        if getattr(self, needed) in ("", None):
            raise ConfigError(f"a source of kind '{self.kind}' needs {needed}. Give it under [source].")
        if self.where is not None and self.kind != "ratings":
            raise ConfigError(f"where belongs to a source of kind 'ratings', got one of kind '{self.kind}'. Remove it.")
        if self.kind == "ratings":
            assert self.file is not None
            if threshold is None:
                raise ConfigError(
                    "a source of kind 'ratings' needs a threshold that the run names. Where the system has one, add "
                    "threshold to the options of all parties, such as threshold = 3."
                )
            return _drawn(own_ratings(folder / self.file, self.column or "rating", self.where) > threshold, seed)
        if self.kind == "python":
            return load_function(self.function, folder)
        if self.kind == "csv":
            assert self.file is not None
            return _replayed(_read(folder / self.file, self.column or "reward"))
        if self.kind == "bernoulli":
            assert self.mean is not None
            return _chance(self.mean, seed)
        return _service(Service(self.url, self.timeout))


def _chance(mean: float, seed: int) -> RewardSource:
    """1 with probability `mean`, a function of (seed, pull number)."""
    check.between(0, 1, mean=mean)

    async def reward(run: str, number: int) -> float:
        return 1.0 if uniform(np.uint64(seed), REWARD, 0, number, 0) < mean else 0.0

    return reward


def own_ratings(path: Path, column: str, where: str | None) -> NDArray[np.float64]:
    """Read an owner's own ratings, of the rows for which `where` holds."""
    from posse.problems.arms.tables import Where
    from posse.problems.datasets.columns import read_columns
    from posse.problems.datasets.frames import read_table

    asked = Where.read(where)
    table = read_columns(read_table(path), [name for name in asked.columns if name != column], [column])
    return np.asarray(table.numbers[column][asked.kept(table)])


def _drawn(good: NDArray[np.bool_], seed: int) -> RewardSource:
    """Whether a rating is good that is drawn for every pull, with replacement: a function of (seed, pull number)."""

    async def reward(run: str, number: int) -> float:
        return float(good[int(uniform(np.uint64(seed), REWARD, 0, number, 0) * len(good))])

    return reward


def _replayed(rewards: tuple[float, ...]) -> RewardSource:
    """A list of rewards, in order and again from the start."""

    async def reward(run: str, number: int) -> float:
        return rewards[number % len(rewards)]

    return reward


def load_function(where: str, folder: Path) -> Callable[..., Awaitable[Any]]:
    """Import `module:function`, from a folder or installed; one that is not async runs beside the loop."""
    module, colon, name = where.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"function must be module:function, got '{where}'.")
    try:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        function = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"there is no module '{error.name}' beside {folder} or installed.") from error
    except AttributeError:
        raise ConfigError(f"module '{module}' has no function '{name}'.") from None
    except Exception as error:
        raise ConfigError(f"module '{module}' cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(function):
        raise ConfigError(f"{where} must be a function, got {type(function).__name__}.")

    async def call(*arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        answer = await asyncio.to_thread(function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer

    return call


class Service:
    """A service of a party's own, asked by POST of JSON; `refused` says what it means that it returns an error."""

    def __init__(self, url: str, timeout: float, refused: str = "does not answer") -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url must begin with http:// or https://, got '{url}'.")
        check.positive(timeout=timeout)
        self.url, self._timeout, self._refused = url, timeout, refused

    async def post(self, key: str, values: Mapping[str, Any]) -> bytes:
        """Send values under an idempotency key and return the answer; the party asks again after a `DataError`."""
        return await asyncio.to_thread(self._post, key, values)

    def _post(self, key: str, values: Mapping[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self.url, json.dumps(values).encode(), headers, method="POST")
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
        answer = await service.post(f"{run}/{number}", {"run": run, "pull": number})
        try:
            body = json.loads(answer)
        except ValueError as error:
            raise DataError(f"{service.url} must answer with JSON such as {{'reward': 0.5}}: {error}.") from error
        if not isinstance(body, dict) or not isinstance(body.get("reward"), int | float):
            raise DataError(f"{service.url} must answer with JSON such as {{'reward': 0.5}}, got {str(body)[:80]}.")
        return float(body["reward"])

    return reward


async def units(source: RewardSource, run: str, number: int, what: str = "pull") -> int:
    """Ask for a reward, in units of 2^-24; a number outside [0, 1] is an error."""
    reward = float(await source(run, number))
    if not 0 <= reward <= 1:
        raise DataError(f"a reward must be in [0, 1], got {reward} for {what} {number}. Correct the source.")
    return int(to_units(reward))


def answering(source: RewardSource, run: str) -> Callable[[Ask], Awaitable[Message]]:
    """Return a source as the runtime asks it: a pull in, a reward in units out."""

    async def answer(pull: Ask) -> Message:
        assert isinstance(pull, Pull)
        return Reward(pull.number, await units(source, run, pull.number))

    return answer


def _read(path: Path, column: str) -> tuple[float, ...]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as error:
        raise DataError(f"cannot read rewards from {path}: {error.strerror}.") from error
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith("#")]
    if not rows:
        raise DataError(f"{path.name} holds no reward. Write one a line.")
    at = 0
    header = [cell.strip() for cell in rows[0][1].split(",")]
    if not _number(header[0]) or column in header:
        if column not in header:
            raise DataError(f"{path.name} has no column '{column}', got {', '.join(header)}. Give column.")
        at = header.index(column)
        rows = rows[1:]
    values = []
    for number, line in rows:
        cells = line.split(",")
        cell = cells[at].strip() if at < len(cells) else ""
        if not _number(cell) or not 0 <= float(cell) <= 1:
            raise DataError(
                f"{path.name}, row {number}: a reward must be a number in [0, 1], got '{cell}'. Correct it."
            )
        values.append(float(cell))
    if not values:
        raise DataError(f"{path.name} has a header and no rows. Write one reward a line.")
    return tuple(values)


def _number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
