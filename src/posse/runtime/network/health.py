"""How a party is: what its operator, a monitor and a look at its folder may say of it, and nothing
that is not so.

Never shown: who was pulled, whose reward or answer is pending, how fast a peer answers. Any of them
would name the pulled arm. *Waiting for* names peers that are not connected, paused by their
operator, or silent past the heartbeat, which comes by the clock: a peer that is there and has not
answered yet is none of these. It also names parties that are not connected to a peer, as that peer
says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from posse.core.errors import JournalError
from posse.runtime import journal
from posse.runtime.network import leaving
from posse.runtime.network.party import Party
from posse.version import __version__

Status: TypeAlias = Mapping[str, Any]
"""How a party or a service is, as its socket answers."""
SHOWN = ("step", "horizon", "unit")
"""What status takes from a role's state: the rest may name who was pulled."""
OF_SERVICE = "run.json"
"""Beside the file of a party that a service runs: the proposal, and what the member made of it."""
SILENT = 2.5
"""Heartbeats without a sign of life after which a peer is called silent."""


def progress(status: Status) -> str:
    """Say how far a party is, in its system's own unit.

    >>> (
    ...     progress({"step": 120, "horizon": 2000, "unit": "pull"}),
    ...     progress({"step": 4}),
    ...     progress({"horizon": 9}),
    ... )
    ('pull 120 of 2,000', 'step 4', 'of 9 steps; this role does not see how many are done')
    """
    unit, step, horizon = str(status.get("unit", "step")), status.get("step"), status.get("horizon")
    if step is None:
        return (
            f"of {horizon:,} {unit}s; this role does not see how many are done" if horizon else ""
        )
    return f"{unit} {step:,}" + (f" of {horizon:,}" if horizon else "")


def status(party: Party) -> Status:
    """Return how far a party is, and for whom it waits."""
    engine = party.engine
    state, over = engine.role.state(), leaving.gone(party)
    shown = {key: state[key] for key in SHOWN if key in state}
    if digest := getattr(engine.role, "digest", ""):
        shown["digest"] = digest
    if engine.role.finished:
        unconfirmed = sorted(leaving.unconfirmed(party) & set(party.needed))
        waiting = dict.fromkeys(unconfirmed, "has not confirmed the last messages")
    else:
        waiting = {**leaving.waited_for(party), **_held_up(party)}
    return {
        "party": engine.role.name,
        "role": engine.role.kind,
        "run": engine.run,
        "version": __version__,
        "pid": os.getpid(),
        "healthy": not party.paused and not waiting,
        "paused": party.paused,
        "begun": engine.bound,
        "finished": engine.role.finished,
        "missing": leaving.missing(party),
        "waiting": waiting,
        "over": sorted(over),
        **shown,
    }


def _held_up(party: Party) -> dict[str, str]:
    """Peers that are connected, and paused or silent; of whom this party does not read it cannot
    say it.
    """
    found: dict[str, str] = {}
    if party.paused:
        return found
    now, longest = asyncio.get_running_loop().time(), SILENT * party.timing.heartbeat
    for peer, connection in sorted(party.connections.items()):
        if peer in party.paused_peers:
            found[peer] = "paused by its operator"
        elif (silent := now - connection.last_frame) > longest:
            found[peer] = f"silent for {silent:.0f} s"
    return found


def words(status: Status) -> str:
    """Say in a few words where a running party is.

    >>> words(
    ...     {
    ...         "finished": False,
    ...         "paused": False,
    ...         "waiting": {"comp": "silent for 6 s"},
    ...         "begun": True,
    ...     }
    ... )
    'waiting for comp'
    """
    if status.get("finished"):
        return "finished"
    if status.get("paused"):
        return "paused"
    if source := status.get("source"):
        return f"its source fails ({source['failures']} times)"
    waiting = status.get("waiting")
    return f"waiting for {', '.join(waiting)}" if waiting else "connected"


def not_answering(folder: Path) -> str:
    """Say what is known of a party whose socket does not answer, from its folder; empty where it
    does not run.
    """
    pid = journal.holder(folder)
    if not pid:
        return ""
    if is_stopped(folder):
        return (
            f"process {pid} has the journal open and is stopped; let it go on with: kill -CONT "
            f"{pid}"
        )
    return f"process {pid} has the journal open and does not answer"


def is_stopped(folder: Path) -> bool:
    """Whether the process that has a journal open is stopped by a signal or a debugger."""
    with suppress(OSError, IndexError):
        stat = Path(f"/proc/{journal.holder(folder)}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in ("T", "t")
    return False


def starts(folder: Path) -> str:
    """Return the command that starts the party of a journal: its own, or that of the service which
    has the run.
    """
    return "posse party serve" if (folder.parent / OF_SERVICE).exists() else "posse party"


def at_rest(folder: Path) -> Status:
    """Return what a look at the folder of a party says that does not answer."""
    pid = journal.holder(folder)
    try:
        found = journal.look(folder)
    except JournalError as error:
        return {"running": bool(pid), "pid": pid or None, "journal": error.text, "healthy": False}
    return {
        "running": bool(pid),
        "pid": pid or None,
        "begun": found.records > 0 or found.size > 0,
        "healthy": False,
    }
