"""Looking closer at a run: its messages as an observer has them, what a party knows, the code of each role.

An observer has the bytes of a message if it sent or received it, exactly those of the transcript. The wire has the size
alone: links are encrypted. No state that is shown holds a key, a mask or a seed: it is what an operator who stands at
the party may see.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import msgspec

from posse.studio.catalogue import knowledge, plain
from posse.studio.guard import Refused
from posse.studio.stage import Stage, described

WIRE = "wire"
SHOWN = 200
"""Messages of one answer, at most."""
OPEN = ("header", "clear")
"""Protections of parts that hide nothing."""

_bytes = msgspec.msgpack.Encoder().encode


def messages(stage: Stage, before: int | None, count: int, observer: str | None) -> list[dict[str, Any]]:
    """Return messages as an observer has them, the newest last."""
    party, kind = observing(stage, observer)
    return [
        {**described(number, entry, explanation), **_seen(entry, explanation, party, kind)}
        for number, entry, explanation in stage.entries(before, min(count, SHOWN))
    ]


def _seen(entry: Any, explanation: Mapping[str, Any] | None, party: str | None, kind: str | None) -> dict[str, Any]:
    if party is not None and party not in (entry.sender, entry.receiver):
        return {"bytes": None, "sees": "sealed" if party == WIRE else "nothing"}
    encoded = _bytes(entry.message).hex()
    parts = (explanation or {}).get("parts", ())
    closed = [one for one in parts if one["protection"] not in OPEN and kind not in one["opens"]]
    return {"bytes": encoded, "sees": "sealed" if party is not None and closed else "all"}


def observing(stage: Stage, observer: str | None) -> tuple[str | None, str | None]:
    """Return the party that observes and its kind: a party by name, the first one of a kind, the wire, or everybody."""
    if observer is None or observer == WIRE:
        return observer, None
    parties = stage.run.parties
    found = [name for name in parties if name == observer] or [one for one in parties if stage.kind(one) == observer]
    if not found:
        known = ", ".join(dict.fromkeys(stage.kind(one) for one in parties))
        raise Refused(404, f"there is no observer '{observer[:40]}' in this run. Known: {known}, {WIRE}.")
    return found[0], stage.kind(found[0])


def party(stage: Stage, name: str) -> dict[str, Any]:
    """Return what a party knows, can never know and could find out, and its state as its operator sees it."""
    found, kind = observing(stage, name)
    if found is None or kind is None:
        raise Refused(404, f"there is no party '{name[:40]}' in this run.")
    said = knowledge(stage.system, stage.settings, kind)
    return {"name": found, "kind": kind, "state": plain(stage.run.state(found)), **plain(said)}


def code(stage: Stage) -> dict[str, Any]:
    """Return the pseudocode of each kind of role, by line."""
    return {kind: list(lines) for kind, lines in stage.system.pseudocode(stage.settings).items()}


def source(stage: Stage, kind: str) -> dict[str, Any]:
    """Return the real source of a kind of role."""
    named: Callable[[Any], Mapping[str, str]] | None = getattr(stage.system, "sources", None)
    place = {} if named is None else named(stage.settings)
    if kind not in place:
        raise Refused(404, f"there is no source for '{kind[:40]}'. Known: {', '.join(place) or 'none'}.")
    module, _, name = place[kind].partition(":")
    lines, first = inspect.getsourcelines(getattr(import_module(module), name))
    return {"text": "".join(lines), "file": module.replace(".", "/") + ".py", "first": first}


def audit(stage: Stage, observer: str) -> dict[str, Any]:
    """Return what is stated, until attacks are measured."""
    _, kind = observing(stage, observer)
    said = knowledge(stage.system, stage.settings, kind or observer)
    rows = [
        {"attack": one, "at": stage.run.time, "finds": None, "without": None, "verdict": "stated"}
        for one in said["could"]
    ]
    return {"columns": ["attack", "finds", "guesses without", "verdict"], "rows": rows, "note": "Stated, not measured."}


def keep(stage: Stage) -> dict[str, Any]:
    """Put the record of the run so far in the store that the command line has."""
    from posse.results.store import Store

    record = stage.run.record(None if stage.run.done else "interrupted")
    return {"run": Store().save(record)}
