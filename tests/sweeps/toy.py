"""A setting and what a worker does with it, small enough to be run hundreds of times."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from posse.core.errors import DataError
from posse.policies.arms.base import Policy
from posse.policies.arms.registry import PolicySettings
from posse.results.record import Record
from posse.systems.base import RunSettings


class Toy(RunSettings, PolicySettings):
    """Earns `slope` times the seed; some horizons fail."""

    system: ClassVar[str] = "toy"

    horizon: int = 10
    slope: float = 1.0
    log: str = ""
    """Folder that gets one file a run."""


class Mine(Policy):
    """A policy of a user's own."""

    name: ClassVar[str] = "mine"


@dataclass(frozen=True)
class Narrow(Policy):
    """One with a parameter."""

    name: ClassVar[str] = "narrow"
    width: float = 0.5


@dataclass(frozen=True)
class Far(Policy):
    """One whose parameters are called as a setting and a measure are."""

    name: ClassVar[str] = "far"
    horizon: int = 100
    total: int = 0


class Untold(Exception):
    """An error that does not survive a journey between processes."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__("odd")


def run(settings: Toy) -> Record:
    """What a worker does."""
    if settings.log:
        Path(
            settings.log, f"{settings.digest()[:16]}-{os.getpid()}-{threading.get_ident()}"
        ).touch()
    if settings.horizon == 13:
        raise DataError("thirteen is\nno horizon.")
    if settings.horizon == 14:
        raise Untold(1, 2)
    if settings.horizon == 15:
        os._exit(3)
    if settings.horizon == 16:
        raise KeyboardInterrupt
    if settings.horizon == 17:
        time.sleep(100)
    totals = [settings.slope * seed for seed in settings.seeds]
    return Record(
        kind="toy",
        level="plain",
        config=settings.resolved(),
        problem={"name": "toy", "names": ["a"]},
        seeds=settings.seeds,
        steps=np.array([settings.horizon]),
        reward=np.array(totals)[:, None],
        regret=np.array(totals)[:, None] / 2,
        total=tuple(totals),
        pulls=np.full((settings.runs, 1), settings.horizon),
        seconds=0.5 * settings.runs,
    )
