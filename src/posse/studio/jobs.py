"""Runs, sweeps and choices in the background: one process a job, so that the page stays quick and
cancelling is final.

A **choice** runs a grid of policies and levels on the chosen data, attacks each, and says in a
sentence which to take. Each run of a job stands in the store from its beginning, as one of the
command line does.
"""

from __future__ import annotations

import multiprocessing
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from posse.core.errors import PosseError
from posse.core.statistics import band
from posse.policies.listing import listing
from posse.privacy.leakage.attack import FINDS, LITTLE, NOTHING
from posse.results.store import Store
from posse.results.words import listed
from posse.studio.guard import Refused
from posse.sweeps import grid_of, plain_where_equal
from posse.systems import registry
from posse.systems.audit import audit
from posse.systems.base import level_or_none
from posse.systems.modules import attacks_of, scene_of

if TYPE_CHECKING:
    from posse.results.record import Progress, Record
    from posse.systems.base import AnySystem, RunSettings

AT_ONCE = 2
"""Jobs that run at once; others wait."""
JOBS, CELLS, RUNS = 20, 100, 200
"""Jobs that are remembered, cells of one, and runs of a cell, at most."""
ATTACKED = 1000
"""Steps of the run that a choice attacks, at most."""
KINDS = ("run", "sweep", "choose")
PLAIN = "plain"
"""The column without protection."""


@dataclass
class Cell:
    """One setting of a job."""

    policy: str
    level: str
    settings: RunSettings
    attacked: bool = False
    found: dict[str, Any] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """Return it for a page."""
        return {"policy": self.policy, "level": self.level, "done": False, **self.found}


class Job:
    """Settings that are run one after the other in a process of its own."""

    def __init__(
        self,
        kind: str,
        system: AnySystem,
        cells: Sequence[Cell],
        given: Mapping[str, Any],
        tell: Callable[[], None],
    ) -> None:
        """`given` are the settings that all cells share, as a page gives them."""
        self.id, self.kind, self.system, self.given = (
            secrets.token_hex(4),
            kind,
            system,
            dict(given),
        )
        self.cells, self._tell = list(cells), tell
        self.share, self.text, self.error = 0.0, "waiting", ""
        self.finished = self.cancelled = False
        self._process: Any = None
        self._lock = threading.Lock()

    def shown(self) -> dict[str, Any]:
        """Return it for a page."""
        done = sum(bool(cell.found.get("done")) for cell in self.cells)
        made = {
            "id": self.id,
            "kind": self.kind,
            "system": self.system.name,
            "done": done,
            "of": len(self.cells),
            "share": self.share,
            "text": self.text,
            "finished": self.finished,
            "cancelled": self.cancelled,
            "settings": self.given,
            "cells": [cell.shown() for cell in self.cells],
        }
        says = answer(self.cells) if self.kind == "choose" and self.finished and done else ""
        return {
            **made,
            **({"error": self.error} if self.error else {}),
            **({"says": says} if says else {}),
        }

    def run(self, gate: threading.Semaphore) -> None:
        """Work it off, in a thread that reads what the process says."""
        with gate:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe(duplex=False)
            with self._lock:
                if self.cancelled:
                    return
                tasks = [(cell.settings, cell.attacked) for cell in self.cells]
                self._process = context.Process(target=work, args=(theirs, tasks), daemon=True)
                self._process.start()
                self.text = "starting"
            self._tell()
            theirs.close()
            with suppress(EOFError, OSError):
                while True:
                    self._take(*ours.recv())
            ours.close()
            self._process.join()
            if not self.cancelled and any(not cell.found for cell in self.cells) and not self.error:
                self.error = "its process ended early."
        self._end("cancelled" if self.cancelled else "done")

    def _take(self, number: int, share: float, text: str, found: dict[str, Any]) -> None:
        self.share, self.text = (number + share) / len(self.cells), text
        if found:
            self.cells[number].found = found
            self.error = self.error or str(found.get("error", ""))
        self._tell()

    def cancel(self) -> None:
        """End it now; what was finished stays in the store."""
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.terminate()
        if self._process is None:
            self._end("cancelled")

    def _end(self, text: str) -> None:
        if self.cancelled and self._process is not None:
            with suppress(PosseError):
                store = Store()
                mine = [
                    row.id
                    for row in store.list(50)
                    if row.pid == self._process.pid and row.time is not None
                ]
                store.delete(mine)
        self.finished, self.text = (
            True,
            text,
        )  # when nothing of it is left to be done: whoever reads it may look then
        self._tell()


class Jobs:
    """All jobs of a studio."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """`tell` is called, in any thread, when something changed."""
        self._jobs: dict[str, Job] = {}
        self._tell, self._gate = tell, threading.Semaphore(AT_ONCE)

    def shown(self) -> list[dict[str, Any]]:
        """Return all, the newest first."""
        return [job.shown() for job in reversed(self._jobs.values())]

    def begin(
        self, kind: str, system: AnySystem, cells: Sequence[Cell], given: Mapping[str, Any]
    ) -> Job:
        """Begin a job; `given` are the settings that all cells share, as a page gives them."""
        if not cells or len(cells) > CELLS:
            raise Refused(400, f"a job has 1 to {CELLS} settings, got {len(cells)}.")
        over = [id for id, job in self._jobs.items() if job.finished]
        for id in over[: max(0, len(self._jobs) + 1 - JOBS)]:
            del self._jobs[id]
        if len(self._jobs) >= JOBS:
            raise Refused(409, f"{JOBS} jobs wait already. Cancel one.")
        job = Job(kind, system, cells, given, self._tell)
        self._jobs[job.id] = job
        threading.Thread(
            target=job.run, args=(self._gate,), daemon=True, name=f"job-{job.id}"
        ).start()
        self._tell()
        return job

    def cancel(self, id: str) -> None:
        """Cancel a job, or forget one that is over."""
        job = self._jobs.get(id)
        if job is None:
            raise Refused(404, "there is no such job.")
        if job.finished:
            del self._jobs[id]
            self._tell()
        else:
            job.cancel()

    def shut(self) -> None:
        """End all."""
        for job in list(self._jobs.values()):
            if not job.finished:
                job.cancel()


def cells_of(
    kind: str,
    system: AnySystem,
    given: Mapping[str, Any],
    settings: RunSettings,
    over: Mapping[str, Sequence[Any]],
    runs: int | None,
) -> list[Cell]:
    """Return the settings of a job, each checked; `given` are those of the request."""
    base, more = (settings, {}) if runs is None else (settings.but(runs=runs), {"runs": runs})
    if kind == "run":
        return [_cell(system, base)]
    if kind == "sweep":
        grid = list(grid_of(type(settings), {**given, **more}, over))
        return [_cell(system, one) for one in plain_where_equal(grid)]
    made: list[Cell] = []
    refused: PosseError | None = None
    for policy in policies_of(system, over):
        try:
            columns = columns_of(system, base.but(policy=policy))
        except PosseError as error:  # one that does not go with the other settings
            refused = error
            continue
        word = _name_of(policy)
        made += [
            Cell(word, name, one, attacked=level_or_none(system, one) is not None)
            for name, one in columns
        ]
    if refused is not None and not made:
        raise refused
    return made


def _cell(system: AnySystem, settings: RunSettings) -> Cell:
    return Cell(_name_of(getattr(settings, "policy", "")), system.level_of(settings), settings)


def _name_of(policy: Any) -> str:
    return str(policy.get("name", policy) if isinstance(policy, Mapping) else policy)


def policies_of(system: AnySystem, over: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return the policies of a choice: those that are asked for, else all that the system ships."""
    if "policy" in over:
        return list(
            over["policy"]
        )  # as they were checked: the text of a table would be read as another policy
    shipped = listing(system.about.policies)
    return [] if shipped is None else [str(entry["name"]) for entry in shipped.entries]


def columns_of(system: AnySystem, settings: RunSettings) -> list[tuple[str, RunSettings]]:
    """Return the levels of a choice: plain and all of the system's, or its variants where it
    derives them.
    """
    if "level" not in type(settings).model_fields:
        named = scene_of(system).variants(settings)
        return [
            (system.level_of(one) if number == 0 else name, one)
            for number, (name, one) in enumerate(named)
        ]
    made = []
    for name in (known.name for known in system.levels):
        with suppress(PosseError):  # a policy that a level does not allow
            made.append((name, settings.but(level=name)))
    return [*made, (PLAIN, system.twin(settings))]


# In the process of a job --------------------------------------------------------------------------


def work(told: Connection, tasks: Sequence[tuple[RunSettings, bool]]) -> None:
    """Run settings one after the other, keep the records, and say how far it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number, (settings, attacked) in enumerate(tasks):
        try:
            found = _one(
                settings,
                attacked,
                lambda share, text, at=number: told.send((at, share, text, {})),  # type: ignore[misc]
            )
        except PosseError as error:
            found = {"done": True, "error": error.text}
        told.send((number, 1.0, "", found))
    told.close()


def _one(
    settings: RunSettings, attacked: bool, tell: Callable[[float, str], None]
) -> dict[str, Any]:
    """Run settings to the end as `posse run` does; attack a run of them where that is asked for."""
    system, store = registry.system_of(settings), Store()
    going = registry.start(settings, transcript=0)
    listed, told = store.begin(going.record()), 0.0

    def watch(progress: Progress) -> None:
        nonlocal told
        listed.beat(going.time, going.horizon)
        if time.monotonic() - told > 0.1:
            told = time.monotonic()
            tell(
                progress.fraction * (0.7 if attacked else 1.0),
                f"{system.about.title}: run {progress.run + 1}",
            )

    with listed:
        going.finish(watch)
        record = replace(going.record(), id=listed.id, run_id=listed.id)
        listed.end(record)
    found = _earned(record)
    if attacked:
        tell(0.7, "attacking")
        found |= _attacked(settings)
    return found


def _earned(record: Record) -> dict[str, Any]:
    made, means = band(record.total), record.problem.get("means")
    best = max(means) * record.horizon if isinstance(means, list) and means else None
    steps = max(1, record.horizon * max(1, record.runs))
    return {
        "done": True,
        "run": record.id,
        "arms": record.arms,
        "best": best,
        "seconds": record.seconds,
        "per_step": record.seconds / steps,
        "reward": {
            "mean": float(made.mean),
            "low": float(made.low),
            "high": float(made.high),
            "what": made.what,
        },
    }


def _attacked(settings: RunSettings) -> dict[str, Any]:
    """Say what the best placed party finds out alone in one run, and what several find out
    together.
    """
    horizon = getattr(settings, "horizon", None)
    fewer = {"horizon": ATTACKED} if isinstance(horizon, int) and horizon > ATTACKED else {}
    try:
        rows = audit(settings.but(runs=1, **fewer), plantings=2).rows
    except PosseError as error:
        return {"finds": None, "verdict": "not attacked", "why": error.text}
    joined = {
        attack.name
        for attack in attacks_of(registry.system_of(settings)).attacks
        if len(attack.adversary) > 1
    }
    found: dict[str, Any] = {"finds": None, "verdict": "not attacked", "attacks": len(rows)}
    if together := [row for row in rows if row.attack in joined and row.verdict in (FINDS, LITTLE)]:
        found["together"] = f"{together[0].at}: {together[0].title}"
    for verdict in (FINDS, LITTLE, NOTHING):
        if hit := [row for row in rows if row.attack not in joined and row.verdict == verdict]:
            return found | {
                "finds": "" if verdict == NOTHING else f"{hit[0].at}: {hit[0].title}",
                "verdict": verdict,
            }
    return found


def answer(cells: Sequence[Cell]) -> str:
    """Say which policy and level to take: the best reward among the levels at which least is found
    out.
    """
    known = [cell for cell in cells if "reward" in cell.found]
    if not known:
        return ""
    order = [NOTHING, LITTLE, FINDS]
    ranks = {
        id(cell): order.index(v) if (v := cell.found.get("verdict")) in order else len(order)
        for cell in known
    }
    least = min(ranks.values())
    best = max(
        (cell for cell in known if ranks[id(cell)] == least),
        key=lambda cell: cell.found["reward"]["mean"],
    )
    found, reward = best.found, best.found["reward"]["mean"]
    share = (
        f"{reward / found['best']:.0%} of the best arm"
        if found.get("best")
        else f"a reward of {reward:,.4g}"
    )
    plain = [
        cell.found["reward"]["mean"]
        for cell in known
        if cell.policy == best.policy and cell.level == PLAIN
    ]
    if plain and best.level != PLAIN:
        same = reward == plain[0]
        share += (
            ", as much as in the clear"
            if same
            else f", where {plain[0]:,.4g} is earned in the clear"
        )
    owners = found.get("arms") or 1
    each = f"{found['per_step'] / owners * 1e6:,.3g} us of CPU a step and arm"
    said = [share, each if owners > 1 else f"{found['per_step'] * 1e6:,.3g} us of CPU a step"]
    if found.get("verdict") == NOTHING:
        said.append(f"nothing found by any party alone ({found['attacks']} attacks)")
    elif found.get("finds"):
        said.append(f"{found['verdict']}: {found['finds']}")
    return f"{best.policy} at {best.level}: {listed(said)}."
