"""Results of jobs: arrays over rates, seeds and rounds, one file a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.protocols.fed_contextual.rounds import SERIES, Measured


class Result(NamedTuple):
    """What a job showed: every array is (pairs of rates, seeds, rounds), and pulls are (pairs, seeds, arms)."""

    job: dict[str, Any]
    """As JSON has it."""
    seen: Measured
    """Pulls are none in files that were written before they were counted."""
    about: dict[str, Any]
    """Device, seconds, versions."""


def write(path: Path, result: Result) -> None:
    """Keep a result in one file that is written whole."""
    arrays = {name: np.asarray(leaf) for name, leaf in result.seen._asdict().items() if leaf is not None}
    whole = path.with_name(path.name + ".part")
    with whole.open("wb") as stream:
        np.savez(
            stream, allow_pickle=False, job=np.array(json.dumps(result.job, sort_keys=True)),
            about=np.array(json.dumps(result.about)), **arrays,
        )  # fmt: skip
    whole.replace(path)


def read(path: Path) -> Result:
    """Read what `write` kept."""
    try:
        with np.load(path, allow_pickle=False) as found:
            seen = Measured(*(found[name] for name in SERIES))._replace(pulls=found.get("pulls"))
            return Result(json.loads(str(found["job"])), seen, json.loads(str(found["about"])))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is no whole result of a job ({error}). Remove it and run the job again.") from None


def average_rewards(result: Result) -> NDArray[np.float64]:
    """Return running average rewards, (pairs, seeds, rounds)."""
    reward, samples = (
        np.asarray(leaf, np.float64).cumsum(axis=-1) for leaf in (result.seen.reward, result.seen.samples)
    )
    running: NDArray[np.float64] = reward / np.maximum(samples, 1)
    return running
