"""The server's record of a run on devices, and figures for a monitor: what the server may know,
from its folder.

What was protected is read from the rounds themselves (`progress.jsonl`): which sums were under
masks, which carried noise, whether nodes had keys. A run is a row of the store while it goes on;
one that goes on after a stop replaces its row.

Figures are written after every round, by the writer of all that runs for long
(`posse.runtime.metrics`): the newest as Prometheus scrapes them (`metrics.prom`, for a collector of
text files), all as JSON lines (`metrics.jsonl`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import PosseError, StoreError
from posse.core.files import write_whole
from posse.policies.contextual.registry import described
from posse.results.record import Record, Traffic, new_id
from posse.results.store import RunHandle, Store
from posse.runtime.metrics import Metric, gauge, line, write
from posse.systems.base import presentation_without_settings
from posse.systems.fed_contextual.flower.deployment import Versions
from posse.systems.fed_contextual.flower.settings import (
    METRIC_LINES,
    METRICS,
    RECORD,
    RESULT,
    DeviceSettings,
    Line,
    lines_of,
)
from posse.systems.fed_contextual.levels import LEVELS, leaks, learns, level_of
from posse.systems.fed_contextual.record import sections_of
from posse.systems.fed_contextual.system import SYSTEM

SERVER = "server"
OPEN = (
    "Nodes had no registered keys: a simulation, or a SuperLink that takes any node. Whoever runs "
    "it sees everything."
)


def record_id(out: Path) -> str:
    """Return the id of the record of a folder's run; made once."""
    path = out / RECORD
    if not path.exists():
        write_whole(path, new_id().encode())
    return path.read_text().strip()


def server_record(settings: DeviceSettings, out: Path, status: str = "finished") -> Record:
    """Return what the server may know of a run, as a record."""
    lines = lines_of(out)
    result: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        result = json.loads((out / RESULT).read_text())
    happened = {
        **settings.resolved(),
        "masked": bool(lines) and all(line.get("masked") for line in lines),
        "noise": settings.noise if all(line.get("noise") for line in lines) else 0.0,
    }
    earned = np.cumsum([line["reward"] * max(1.0, line["samples"]) for line in lines])
    summary = _summary(lines, earned)
    config = {
        **settings.resolved(),
        "horizon": settings.rounds,
        "policy": described(settings.exploration()),
    }
    tables = [section.plain() for section in sections_of(summary, 1)]
    level_name = level_of(settings.noise, settings.levels)
    level = next(level for level in LEVELS if level.name == level_name)
    devices = {str(one) for line in lines for one in line["clients"]}
    stopped = {"stopped": result["stopped"]} if "stopped" in result else {}
    return Record(
        id=record_id(out),
        kind=SYSTEM.name,
        party=SERVER,
        config=config,
        problem={
            "name": Path(settings.data).name,
            "words": dict(SYSTEM.about.nouns),
            "clients": len(devices),
            "names": [str(arm) for arm in range(settings.arms)],
        },
        level=level_of(happened["noise"], happened["masked"]),
        leaks=(*leaks(happened), *_not_protected(lines)),
        seeds=(settings.seed,) if settings.seed >= 0 and lines else (),
        steps=np.arange(1, len(lines) + 1),
        reward=earned.reshape(1, -1) if lines else np.zeros((0, 0)),
        total=(float(earned[-1]),) if lines else (),
        status=status,
        traffic=tuple(
            Traffic(hop, *_moved(lines, name))
            for hop, name in (("server -> device", "sent"), ("device -> server", "came"))
        ),
        privacy=tuple(result.get("privacy", ())),
        summary=summary,
        show=presentation_without_settings(SYSTEM, level, learns(happened), tables) | stopped,
    )


def _summary(lines: Sequence[Line], earned: NDArray[np.float64]) -> dict[str, float]:
    """Return counts and averages of all rounds; `earned` are rewards so far, round by round."""
    samples = sum(line["samples"] for line in lines)
    summary = {"rounds_done": len(lines), "steps_done": len(lines), "samples": samples}
    if samples:
        summary["average_reward"] = float(earned[-1]) / samples
        summary["clip_norm"] = lines[-1]["limit"]
        summary["within_clip"] = float(np.mean([line["within"] for line in lines]))
    return summary


def _not_protected(lines: Sequence[Line]) -> Iterator[str]:
    """Say what was not protected in some rounds."""
    if not all(line.get("authenticated", True) for line in lines):
        yield OPEN
    in_the_clear = sum(not line.get("masked") for line in lines)
    if 0 < in_the_clear < len(lines):
        yield f"{in_the_clear} of {len(lines)} rounds were not under masks."


def _moved(lines: Sequence[Line], name: str) -> tuple[int, int]:
    counted = [line.get(name, (0, 0)) for line in lines]
    return sum(one[0] for one in counted), sum(one[1] for one in counted)


def write_metrics(out: Path, epsilon: float | None = None) -> None:
    """Write the figures of a run after a round; `epsilon` is what was spent so far, under noise."""
    made = list(metrics(out, epsilon))
    write_whole(out / METRICS, write(made, run=record_id(out)).encode())
    with (out / METRIC_LINES).open("a") as file:
        file.write(line(made, time.time()))


def metrics(out: Path, epsilon: float | None) -> Iterator[Metric]:
    """Give the figures of a run: rounds, devices, what was clipped and spent, the reward, versions
    held.
    """
    lines, versions = lines_of(out), Versions(out)
    yield Metric("posse_rounds_total", "counter", "Rounds done.", (({}, len(lines)),))
    lost = sum(len(one.get("lost", ())) for one in lines)
    yield Metric(
        "posse_devices_lost_total",
        "counter",
        "Devices that were asked and did not answer.",
        (({}, lost),),
    )
    if lines:
        last = lines[-1]
        yield from gauge(
            "posse_devices_present", "Devices in the sum of the last round.", len(last["clients"])
        )
        yield from gauge(
            "posse_devices_lost",
            "Devices that did not answer in the last round.",
            len(last["lost"]),
        )
        clipped = (1 - last["within"]) * len(last["clients"])
        yield from gauge(
            "posse_updates_clipped", "Updates of the last round beyond the norm.", round(clipped)
        )
        yield from gauge(
            "posse_reward_mean", "Average reward of an action in the last round.", last["reward"]
        )
        yield from gauge(
            "posse_round_seconds", "Seconds that the last round took.", last["seconds"]
        )
        yield from gauge("posse_epsilon_spent", "Epsilon spent on a device so far.", epsilon)
    wanted, held = versions.wanted, Counter(str(one["version"]) for one in versions.held.values())
    if wanted:
        yield from gauge("posse_version_wanted", "Version that devices shall have.", wanted.version)
    if held:
        samples = tuple(
            ({"version": version}, float(count)) for version, count in sorted(held.items())
        )
        yield Metric(
            "posse_devices_with_version", "gauge", "Devices that said they have a version.", samples
        )


@contextmanager
def listed(settings: DeviceSettings, out: Path) -> Iterator[Callable[[int, int], None]]:
    """List a run in the store while it goes on, and put its record there at the end; gives the
    heartbeat.

    A store that cannot be written stops no run.
    """
    try:
        store = Store()
        with suppress(StoreError):
            store.delete(record_id(out))
        handle = store.begin(server_record(settings, out, "running"))
    except PosseError as error:
        getLogger("flwr").warning("this run is not listed: %s", error)
        yield lambda done, whole: None
        return
    try:
        yield handle.beat
    except BaseException as error:
        _end(
            handle,
            settings,
            out,
            "interrupted" if isinstance(error, KeyboardInterrupt) else "failed",
        )
        raise
    _end(handle, settings, out, "finished")


def _end(handle: RunHandle, settings: DeviceSettings, out: Path, status: str) -> None:
    try:
        handle.end(server_record(settings, out, status))
    except PosseError as error:
        getLogger("flwr").warning("the record was not saved: %s", error)


def keep_interrupted(settings: DeviceSettings, out: Path) -> None:
    """Put the record of a run whose server was stopped into the store."""
    if lines_of(out):
        with suppress(PosseError):
            Store().save(server_record(settings, out, "interrupted"), replace=True)
