"""What an application on a device does: decide by the deployed model, and log what was earned.

A node of a fleet hands the deployed model over in a file and learns from a file of logs (`model`
and `log` of its configuration): an `OnDevice` reads the one and writes the other. numpy alone is
needed for linear models.
"""

from __future__ import annotations

import io
import math
import os
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.files import PRIVATE, explain_os_error, write_whole
from posse.policies.contextual.explorations import draw
from posse.policies.contextual.registry import exploration
from posse.policies.decisions import Decision
from posse.systems.fed_contextual.export import Read

LOGGED = ("contexts", "arms", "rewards", "probabilities")
"""What a log holds, one row a decision."""
LARGEST = float(np.finfo(np.float32).max)
"""Largest number of a context, and largest reward: devices compute with 32 bits."""
OPEN = 10_000
"""Decisions that wait for a reward; the oldest are given up."""


class OnDevice:
    """Decides and logs, as devices do.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(
    ...     folder / "model.npz",
    ...     leaf0=np.zeros(2),
    ...     leaf1=np.eye(2),
    ...     arms=np.array(["tea", "coffee"]),
    ... )
    >>> app = OnDevice(folder / "model.npz", folder / "log.npz", policy="greedy")
    >>> choice = app.decide([0.2, 0.7])
    >>> choice.name, choice.probability, app.log(choice, 1.0), app.log(choice, 1.0)
    ('coffee', 1.0, True, False)
    """

    def __init__(
        self,
        model: str | Path,
        log: str | Path,
        policy: Any = None,
        *,
        keep: int = 1000,
        scale: float = 0.0,
        **parameters: float,
    ) -> None:
        """Decide by the model in a file, which may be replaced at any time, and log to another.

        `policy` and its parameters are those of the run. A deployed model says them: without
        `policy` they are taken from it (softmax where it is silent), and others than the model's
        are refused. The log keeps the last `keep` actions; several objects, also of several
        processes, may write one. `scale` is what contexts are divided by where the file does not
        say it: 255 for bytes of images.
        """
        check.at_least(1, keep=keep)
        check.at_least(0, scale=scale)
        self._given = policy is not None or bool(parameters)
        self.policy = exploration("softmax" if policy is None else policy, parameters)
        self._keep, self._scale = keep, scale
        self._model, self._log = Path(model).expanduser(), Path(log).expanduser()
        self._stamp: tuple[int, int] | None = None
        self._read: Read | None = None
        self._open: OrderedDict[int, tuple[NDArray[Any], int, float]] = OrderedDict()
        self._made = secrets.randbits(
            52
        )  # no number of another process, whose rewards may still come
        self._past()  # one that cannot be read is named now

    @property
    def model(self) -> Read:
        """The deployed model, read again where its file was replaced."""
        try:
            now = os.stat(self._model)
        except OSError as error:
            why = error.strerror
            raise DataError(
                f"no model was deployed to {self._model} yet ({why}). Wait for a round."
            ) from None
        stamp = (now.st_mtime_ns, now.st_ino)
        if self._read is None or stamp != self._stamp:
            read = Read(self._model, scale=self._scale)
            if read.kind == "bag":
                raise DataError(
                    f"{self._model} holds a bag of words; an application decides by linear models "
                    "and cnns."
                )
            if read.policy is not None and self._given and read.policy != self.policy:
                raise DataError(
                    f"{self._model} was deployed for {read.policy}, and the application has "
                    f"{self.policy}."
                )
            self.policy, self._read, self._stamp = read.policy or self.policy, read, stamp
        return self._read

    def scores(self, context: Any) -> NDArray[np.float32]:
        """Predict the reward of every arm."""
        model, given = self.model, self._context(context)
        if model.kind == "linear":
            flat = model.scaled(given.reshape(-1))
            return np.asarray(flat @ model.leaves[1] + model.leaves[0], np.float32)
        import jax
        import jax.numpy as jnp

        from posse.systems.fed_contextual.computing.models import named_model, shape_of, tree_of

        one, two = len(model.leaves[0]), len(model.leaves[2])
        network = named_model(
            "cnn", model.shape[0], len(model.names), len(model.leaves[4]), (one, two)
        )
        params = tree_of([jnp.asarray(leaf) for leaf in model.leaves], shape_of(network))
        image = jnp.asarray(model.scaled(given))
        return np.asarray(jax.jit(network.scores)(params, image[None])[0])

    def decide(self, context: Any) -> Decision:
        """Choose an arm for a context, by the policy and a number from the operating system."""
        given, names = self._context(context), self.model.names
        chances = self.policy.probabilities(self.scores(given)[None])
        arms, chosen = draw(chances, np.array([secrets.randbits(53) * 2.0**-53]))
        made, self._made = self._made, self._made + 1
        self._open[made] = given, int(arms[0]), float(chosen[0])
        while len(self._open) > OPEN:
            self._open.popitem(last=False)
        return Decision(made, int(arms[0]), names[int(arms[0])], float(chosen[0]))

    def log(self, decision: Decision | int, reward: float) -> bool:
        """Write what a decision earned into the log; False where it is known already, or was given
        up.
        """
        value, made = _number(reward), decision.id if isinstance(decision, Decision) else decision
        if not isinstance(made, int | np.integer):
            raise ConfigError(
                f"a reward is for a decision, or for its id, got {decision!r}. Give what decide "
                "returned."
            )
        with self._alone():
            found = self._open.get(int(made))
            if found is None:
                return False
            context, arm, chance = found
            rows = [*self._past(), (context, arm, value, chance)][-self._keep :]
            before, now = _kind(rows[0][0]), _kind(context)
            if before != now:
                raise DataError(
                    f"the log {self._log} holds contexts of {before}, and this decision is for "
                    f"{now}. Move the log "
                    "away to begin anew."
                )
            file, columns = io.BytesIO(), [np.array(column) for column in zip(*rows, strict=True)]
            np.savez(file, allow_pickle=False, **dict(zip(LOGGED, columns, strict=True)))
            write_whole(self._log, file.getvalue(), mode=PRIVATE)
            del self._open[int(made)]
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others who write this log out until its new row is in it; the lock goes when the
        process does.
        """
        import fcntl

        try:
            file = os.open(
                self._log.with_name(f".{self._log.name}.lock"), os.O_RDWR | os.O_CREAT, PRIVATE
            )
        except OSError as error:
            raise DataError(f"cannot write {self._log}: {explain_os_error(error)}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(
                file, fcntl.LOCK_UN
            )  # a process that was forked meanwhile has the file open too
            os.close(file)

    def _context(self, context: Any) -> NDArray[Any]:
        wanted, whole = self.model.shape, self.model.shift is None and self.model.scale == 255
        size = int(np.prod(wanted))
        try:
            given = np.asarray(context, np.float64)
        except (TypeError, ValueError):
            raise ConfigError(
                f"a context must be numbers of shape {wanted}, got {context!r}."
            ) from None
        if given.size != size:
            raise ConfigError(
                f"a context must be {size} finite numbers, got {given.size}. Give as many."
            )
        wrong = np.flatnonzero(~(np.abs(given.reshape(-1)) <= LARGEST))
        if len(wrong):
            value = given.reshape(-1)[wrong[0]]
            raise ConfigError(
                f"a context must be {size} finite numbers, got {value:g} as number {wrong[0] + 1}."
            )
        if whole and ((given < 0) | (given > 255) | (given % 1 != 0)).any():
            raise ConfigError(
                "a context of bytes must be whole numbers from 0 to 255. Scale it as the data are."
            )
        return given.reshape(wanted).astype(np.uint8 if whole else np.float32)

    def _past(self) -> list[tuple[NDArray[Any], int, float, float]]:
        """Read the log that was written before."""
        if not self._log.exists():
            return []
        try:
            with self._log.open("rb") as file, np.load(file, allow_pickle=False) as found:
                columns = [found[name] for name in LOGGED]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise DataError(
                f"the log {self._log} cannot be read ({error}). Move it away to begin anew."
            ) from None
        return [
            (x, int(arm), float(reward), float(p))
            for x, arm, reward, p in zip(*columns, strict=True)
        ]


def _number(reward: Any) -> float:
    """Return a reward; raise where it is no number that devices can learn from."""
    try:
        value = math.nan if isinstance(reward, str | bytes) else float(reward)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not abs(value) <= LARGEST:
        raise ConfigError(f"a reward must be a finite number, got {reward!r}.")
    return value


def _kind(context: NDArray[Any]) -> str:
    return (
        f"{' x '.join(map(str, context.shape))} "
        f"{'bytes' if context.dtype == np.uint8 else 'numbers'}"
    )
