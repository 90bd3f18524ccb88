"""States of runs in a folder, from which the same command goes on; a folder belongs to one configuration."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.protocols.fed_contextual.rounds import Measured, State
from posse.protocols.fed_contextual.training import load, save

FORMAT = "posse fed-contextual 1"
HEADER = "run.json"
FREE = ("keep", "rounds", "runs", "points", "limit", "evaluate")
"""Settings that may change when a run goes on."""
_EVERY = 10.0
"""Seconds between two states that are kept."""


class Kept:
    """A folder of states, one file a seed."""

    def __init__(self, folder: Path, config: dict[str, Any], population: dict[str, Any]) -> None:
        self._folder, self._last = folder, 0.0
        own = {name: value for name, value in config.items() if name not in FREE}
        header = json.loads(json.dumps({"format": FORMAT, "settings": own, "population": population}))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / HEADER
        if path.exists():
            _agree(_read(path), header, folder)
        else:
            path.write_text(json.dumps(header, indent=1), encoding="utf-8")

    def load(self, seed: int, like: State, rounds: int) -> tuple[State, Measured] | None:
        """Return the state of a seed and what its rounds showed; nothing where none was kept."""
        path = self._path(seed)
        if not path.exists():
            return None
        try:
            state, seen = load(path, like)
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise DataError(f"{path} cannot be read ({error}). Remove it to begin that run anew.") from None
        if int(state.round) > rounds:
            raise ConfigError(
                f"{path} holds {int(state.round)} rounds, and {rounds} are asked for. Ask for more, or keep elsewhere."
            )
        return state, Measured(*(np.asarray(leaf) for leaf in seen))

    def save(self, seed: int, state: State, seen: Measured) -> None:
        """Keep a state."""
        save(self._path(seed), state, seen)
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to keep a state again."""
        return time.monotonic() - self._last >= _EVERY

    def _path(self, seed: int) -> Path:
        return self._folder / f"seed-{seed}.npz"


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
