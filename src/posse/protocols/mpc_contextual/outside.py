"""Where arms go and rewards come from: the puller's and the payee's own systems, or a simulated world.

A party that dies between an answer and its journal asks once more: a step always comes with the same arm, and must be
done once; a step always earns the same.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import to_units
from posse.core.roles import Ask, Message
from posse.core.settings import Settings
from posse.problems.contexts.contexts import Contexts
from posse.protocols.mpc_contextual.messages import Act, Acted, Earn, Earned
from posse.runtime.network.party import Source
from posse.runtime.sources import RewardSource, load_function

Pull = Callable[[int, int], Awaitable[None]]
"""Pulls an arm (second) for the context of a step (first)."""

ARM_BYTES = 2
_HEADER = b"run,step,arm\n"


class ActSettings(Settings):
    """Where the puller's arms go ([source])."""

    kind: Literal["python", "csv", "http"]
    function: str = ""
    """python: module:function, called with (run, step, arm); it may be async."""
    file: Path | None = None
    """csv: a line run,step,arm is appended for every pull, once."""
    url: str = ""
    """http: POST of {"run": ..., "step": ..., "arm": ...}."""
    timeout: float = 30.0
    """http: seconds until an attempt is given up and made again."""

    def pull(self, run: str, folder: Path) -> Pull:
        """Make what pulls; `folder` is what paths and modules are relative to."""
        needed = {"python": "function", "csv": "file", "http": "url"}[self.kind]
        if getattr(self, needed) in ("", None):
            raise ConfigError(f"a source of kind '{self.kind}' needs {needed}. Give it under [source].")
        if self.kind == "python":
            function = load_function(self.function, folder)

            async def call(step: int, arm: int) -> None:
                await function(run, step, arm)

            return call
        if self.kind == "csv":
            assert self.file is not None
            return ArmLog(folder / self.file, run)
        return ArmPost(self.url, self.timeout, run)


class ArmLog:
    """A file with a line for every pull of one run, on the disk before it is answered; a step is written once."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._file: int | None = None
        self._next = 0
        self._last = -1

    async def __call__(self, step: int, arm: int) -> None:
        """Write the line of a step, and wait for the disk."""
        await asyncio.get_running_loop().run_in_executor(None, self._write, step, arm)

    def _write(self, step: int, arm: int) -> None:
        file = self._open() if self._file is None else self._file
        if step < self._next - 1 or (step == self._next - 1 and arm == self._last):
            return
        if step == self._next - 1:
            raise DataError(f"{self._path} has arm {self._last} for step {step}, and {arm} is to be pulled. Mend it.")
        line = f"{self._run},{step},{arm}\n".encode()
        if os.write(file, line) != len(line):
            self._file = None  # the line is torn: it is cut off when the file is opened again
            os.close(file)
            raise DataError(f"{self._path} cannot be written to its end: the disk is full. Make room.")
        os.fdatasync(file)
        self._next, self._last = step + 1, arm

    def _open(self) -> int:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise DataError(f"cannot write {self._path}: {error.strerror}. Choose a place you may write to.") from error
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(file, len(whole))
        if not whole:
            os.write(file, _HEADER)
        last = whole.decode(errors="replace").rstrip("\n").rpartition("\n")[2].split(",")
        if len(last) == 3 and last[1].isdigit() and last[2].isdigit():
            if last[0] != self._run:
                os.close(file)
                raise DataError(
                    f"{self._path} has the arms of run '{last[0]}', this is '{self._run}'. Give another file."
                )
            self._next, self._last = int(last[1]) + 1, int(last[2])
        self._file = file
        return file


class ArmPost:
    """A service of the puller's own: POST with run, step and arm; run and step are the idempotency key."""

    def __init__(self, url: str, timeout: float, run: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url must begin with http:// or https://, got '{url}'.")
        check.positive(timeout=timeout)
        self._url, self._timeout, self._run = url, timeout, run

    async def __call__(self, step: int, arm: int) -> None:
        """Tell the service; what it does not take now is sent again by the party."""
        await asyncio.get_running_loop().run_in_executor(None, self._post, step, arm)

    def _post(self, step: int, arm: int) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{self._run}/{step}"}
        body = json.dumps({"run": self._run, "step": step, "arm": arm}).encode()
        request = urllib.request.Request(self._url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(f"{self._url} does not take the arm: {error}.") from None
        except (urllib.error.URLError, OSError) as error:
            raise DataError(f"{self._url} does not answer: {error}.") from error


def pulling(pull: Pull) -> Source:
    """Give what pulls as the runtime asks it."""

    async def act(ask: Ask) -> Message:
        assert isinstance(ask, Act)
        await pull(ask.step, ask.arm)
        return Acted(ask.step)

    return act


def earning(source: RewardSource, run: str) -> Source:
    """Give a source of rewards as the runtime asks it; a number outside [0, 1] is an error."""

    async def earn(ask: Ask) -> Message:
        assert isinstance(ask, Earn)
        found = await source.reward(run, ask.step)
        if not (math.isfinite(found) and 0 <= found <= 1):
            raise DataError(f"a reward must be in [0, 1], got {found} for step {ask.step}. Correct the source.")
        return Earned(ask.step, int(to_units(found)))

    return earn


class WorldArms:
    """A simulated world's arms, 2 bytes a step: written for the puller, read for the payee.

    They survive the death of processes, not of the machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    async def pull(self, step: int, arm: int) -> None:
        """Note the arm of a step."""
        os.pwrite(self._open(), arm.to_bytes(ARM_BYTES, "little"), ARM_BYTES * step)

    def at(self, step: int) -> int:
        """Return the arm of a step."""
        found = os.pread(self._open(), ARM_BYTES, ARM_BYTES * step)
        if len(found) != ARM_BYTES:
            raise DataError(f"{self._path} has no arm of step {step + 1}. Restore it, or begin another run.")
        return int.from_bytes(found, "little")

    def _open(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file


def simulated(contexts: Contexts, seed: int, steps: int, arms: WorldArms) -> Source:
    """Pay what the arm of a step earns in a simulated world."""
    rows = contexts.order(seed, steps)

    async def earn(ask: Ask) -> Message:
        assert isinstance(ask, Earn)
        return Earned(ask.step, contexts.reward(seed, int(rows[ask.step]), arms.at(ask.step)))

    return earn
