"""States of runs in a folder, from which the same command goes on; a folder belongs to one configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.protocols.fed_contextual.rounds import Measured, State
from posse.protocols.fed_contextual.training import load, save

FORMAT = "posse fed-contextual 1"
HEADER = "run.json"
FREE = ("keep", "rounds", "runs", "points", "limit", "evaluate", "model_out")
"""Settings that may change when a run goes on."""
_EVERY = 10.0
"""Seconds between two states that are kept."""


class Kept:
    """A folder of states, one file a seed."""

    def __init__(
        self, folder: Path, config: dict[str, Any], population: dict[str, Any], defaults: dict[str, Any] | None = None
    ) -> None:
        """Open a folder; `defaults` stand for settings that a run from before them does not name."""
        self._folder, self._last = folder, 0.0
        own, usual = ({k: v for k, v in some.items() if k not in FREE} for some in (config, defaults or {}))
        header = json.loads(json.dumps({"format": FORMAT, "settings": own, "population": population}))
        path = folder / HEADER
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            there = path.exists()
            if not there:
                path.write_text(json.dumps(header, indent=1), encoding="utf-8")
        if there:
            found = _read(path)
            _agree({**found, "settings": {**usual, **found.get("settings", {})}}, header, folder)

    def load(self, seed: int, like: State, rounds: int) -> tuple[State, Measured] | None:
        """Return the state of a seed and what its rounds showed; nothing where none was kept."""
        path = self._path(seed)
        if not path.exists():
            return None
        try:
            state, seen = load(path, like)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            raise DataError(
                f"{path} is damaged, or not of a run with these settings. Remove it to begin that run anew."
            ) from None
        if int(state.round) > rounds:
            raise ConfigError(
                f"{path} holds {int(state.round)} rounds, and {rounds} are asked for. Ask for more, or keep elsewhere."
            )
        return state, seen

    def save(self, seed: int, state: State, seen: Measured) -> None:
        """Keep a state."""
        with _writing(self._folder):
            save(self._path(seed), state, seen)
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to keep a state again."""
        return time.monotonic() - self._last >= _EVERY

    def _path(self, seed: int) -> Path:
        return self._folder / f"seed-{seed}.npz"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError(f"a run cannot be kept in {folder}: {why}. Name another folder.") from error


def write_model(path: Path, state: State) -> None:
    """Write the newest model as a fleet does: arrays leaf0, leaf1, ... in jax's order, and the rounds behind it."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            leaves = {f"leaf{at}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(state.params))}
            np.savez(file, allow_pickle=False, deployment=np.array(int(state.round)), **leaves)
        part.replace(path)
    except OSError as error:
        raise DataError(f"the model cannot be written to {path}: {error.strerror}. Choose another place.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Keep the run in another folder.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{path} is not of a kept run. Keep the run in another folder.")
    return found


def _agree(found: dict[str, Any], header: dict[str, Any], folder: Path) -> None:
    """Name the first setting in which a kept run differs."""
    for part in ("settings", "population"):
        before, now = found.get(part, {}), header[part]
        name = next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
        if name is not None:
            raise ConfigError(
                f"{folder} holds a run with {name} {before.get(name)!r}, got {now.get(name)!r}. Go on with the former, "
                "or keep this one in another folder."
            )
