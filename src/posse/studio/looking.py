"""Looking closer at a run: its messages as an observer has them, what a party knows, the code of
each role.

An observer has the bytes of a message if it sent or received it, exactly those of the transcript.
The wire has the size alone: links are encrypted. No state that is shown holds a key, a mask or a
seed: it is what an operator who stands at the party may see.
"""

from __future__ import annotations

import inspect
import logging
import time as clock
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from posse.core.errors import PosseError
from posse.core.roles import View
from posse.privacy.leakage.attack import SIGNIFICANCE, WIRE, Attack, Evidence, attempt
from posse.results.audits import Row
from posse.studio.catalogue import plain
from posse.studio.guard import Refused
from posse.studio.stage import KEPT, Stage, described
from posse.systems.audit import row_of_attempt, view_of
from posse.systems.base import level_or_none, not_protected
from posse.systems.modules import attacks_of, report_of, scene_of
from posse.systems.runs import RolesRun, Run

if TYPE_CHECKING:
    from posse.systems.base import AnySystem, RunSettings

PLANTINGS = 3
"""Planted leaks that an attack's power is counted from."""
BESIDE = 2000
"""Steps for which other levels are run beside, at most."""
MEASURED = 0.4
"""Seconds for which each protection is measured."""
DRAWN = 100
"""Points of a line of time against steps."""
SHOWN = 200
"""Messages of one answer, at most."""
OPEN = ("header", "clear")
"""Protections of parts that hide nothing."""

_log = logging.getLogger(__name__)
_bytes = msgspec.msgpack.Encoder().encode


def messages(
    stage: Stage, before: int | None, count: int, observer: str | None
) -> list[dict[str, Any]]:
    """Return messages as an observer has them, the newest last."""
    party, kind = observing(stage, observer)
    return [
        {**described(number, entry, explanation), **_seen(entry, explanation, party, kind)}
        for number, entry, explanation in stage.entries(before, min(count, SHOWN))
    ]


def _seen(
    entry: Any, explanation: Mapping[str, Any] | None, party: str | None, kind: str | None
) -> dict[str, Any]:
    if party is not None and party not in (entry.sender, entry.receiver):
        return {"bytes": None, "sees": "sealed" if party == WIRE else "nothing"}
    encoded = _bytes(entry.message).hex()
    parts = (explanation or {}).get("parts", ())
    closed = [one for one in parts if one["protection"] not in OPEN and kind not in one["opens"]]
    return {"bytes": encoded, "sees": "sealed" if party is not None and closed else "all"}


def observing(stage: Stage, observer: str | None) -> tuple[str | None, str | None]:
    """Return the party that observes and its kind: a party by name, the first one of a kind, the
    wire, or everybody.
    """
    if observer is None or observer == WIRE:
        return observer, None
    found = stage.watcher(observer)
    if found is None:
        known = ", ".join(dict.fromkeys(stage.kind(one) for one in stage.run.parties))
        raise Refused(
            404, f"there is no observer '{observer[:40]}' in this run. Known: {known}, {WIRE}."
        )
    return found, stage.kind(found)


def party(stage: Stage, name: str) -> dict[str, Any]:
    """Return what a party knows, can never know and could find out, and its state as its operator
    sees it.
    """
    found, kind = observing(stage, name)
    if found is None or kind is None:
        raise Refused(404, f"there is no party '{name[:40]}' in this run.")
    said = scene_of(stage.system).knowledge(stage.settings, kind)
    return {"name": found, "kind": kind, "state": plain(stage.run.state(found)), **plain(said)}


def code(stage: Stage) -> dict[str, Any]:
    """Return the pseudocode of each kind of role, by line."""
    written = scene_of(stage.system).pseudocode(stage.settings)
    return {kind: list(lines) for kind, lines in written.items()}


def source(stage: Stage, kind: str) -> dict[str, Any]:
    """Return the real source of a kind of role."""
    place = scene_of(stage.system).sources(stage.settings)
    if kind not in place:
        raise Refused(
            404, f"there is no source for '{kind[:40]}'. Known: {', '.join(place) or 'none'}."
        )
    module, _, name = place[kind].partition(":")
    lines, first = inspect.getsourcelines(getattr(import_module(module), name))
    return {"text": "".join(lines), "file": module.replace(".", "/") + ".py", "first": first}


@dataclass(frozen=True)
class Seen:
    """What an observer saw of a run so far, taken at one moment: attacks are made on it while the
    run goes on.
    """

    system: AnySystem
    settings: RunSettings
    views: tuple[tuple[Attack, View], ...]
    truth: Mapping[str, Any]
    time: int
    stated: tuple[str, ...]
    left_out: Mapping[str, str]


def evidence(stage: Stage, observer: str) -> Seen:
    """Take the views of the attacks in which an observer has a part."""
    _, kind = observing(stage, observer)
    system, settings, run = stage.system, stage.settings, stage.run
    views, left_out = _views(run, kind or WIRE)
    stated = (
        not_protected(system, settings)
        if kind is None
        else scene_of(system).knowledge(settings, kind)["could"]
    )
    return Seen(
        system, settings, views, deepcopy(dict(run.truth())), run.time, tuple(stated), left_out
    )


def _views(run: Run, kind: str) -> tuple[tuple[tuple[Attack, View], ...], dict[str, str]]:
    """Return the attacks of a kind of role on a run with what they see, and why others say
    nothing.
    """
    views: list[tuple[Attack, View]] = []
    left_out: dict[str, str] = {}
    if level_or_none(run.system, run.settings) is None:
        return (), left_out
    for attack in attacks_of(run.system).attacks:
        if attack.needs != "view" or kind not in attack.adversary:
            continue
        if why := attack.missing(run.settings):
            left_out[attack.title] = why
            continue
        try:
            view = view_of(run, attack)
        except PosseError as error:
            left_out[attack.title] = error.text
        else:
            # Of a step that is under way nobody knows the truth yet.
            over = (
                view.entries
                if run.done
                else [entry for entry in view.entries if entry.time < run.time]
            )
            views.append((attack, replace(view, entries=over)))
    return tuple(views), left_out


def audit(seen: Seen, beside: bool = False) -> dict[str, Any]:
    """Attack what an observer saw; say what each attack finds beside a guess without it.

    With `beside` also what the same attack finds in a run as long at the other levels.
    """
    rows, left_out = [], dict(seen.left_out)
    others = _others(seen) if beside else {}
    for attack, view in seen.views:
        try:
            row = _attacked(attack, view, seen.truth, seen.time, len(seen.views))
        except PosseError as error:
            left_out[attack.title] = error.text
            continue
        rows.append(
            {
                "attack": attack.title,
                "name": attack.name,
                "at": row.at,
                "finds": row.finds,
                "says": row.says,
                "without": None if row.baseline is None else f"{row.baseline:.3g}",
                "verdict": row.verdict,
                "power": row.power,
                "planted": row.planted,
                "claims": list(row.claims),
                "beside": others.get((attack.title, row.at), []),
            }
        )
    notes = [f"{title}: {why}" for title, why in left_out.items()]
    note = (
        f"Measured on the {seen.time:,} steps so far."
        if rows
        else "No attack is measured here; this is stated."
    )
    return {
        "columns": ["attack", "finds", "guesses without", "verdict"],
        "rows": rows,
        "stated": list(seen.stated),
        "note": note,
        "notes": notes,
        "time": seen.time,
        "sees": plain(scene_of(seen.system).visibility(seen.settings)),
    }


def _attacked(attack: Attack, view: View, truth: Mapping[str, Any], time: int, attacks: int) -> Row:
    if not truth or not time:
        raise Refused(400, "nothing has happened yet.")
    try:
        return row_of_attempt(
            attempt(
                attack,
                [Evidence(view, truth)],
                significance=SIGNIFICANCE / attacks,
                plantings=PLANTINGS,
            )
        )
    except PosseError:
        raise
    except Exception as error:
        _log.exception("The attack '%s' failed on %d steps of a run.", attack.name, time)
        raise Refused(
            400, f"it cannot be made on {time:,} steps of a run ({type(error).__name__})."
        ) from error


def _others(seen: Seen) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Run the same settings as far at the other levels and attack them: by what is sought and who
    seeks it.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    if "level" not in type(seen.settings).model_fields or not seen.views:
        return found
    wanted = {attack.title: attack.adversary for attack, _ in seen.views}
    for other in seen.system.levels:
        if other.name == seen.system.level_of(seen.settings):
            continue
        try:
            run = seen.system.start(seen.settings.but(level=other.name), transcript=KEPT)
            run.advance(max(1, min(seen.time, BESIDE)))
            kinds = {kind for adversary in wanted.values() for kind in adversary}
            views = {
                attack.name: (attack, view)
                for kind in kinds
                for attack, view in _views(run, kind)[0]
            }
            for attack, view in views.values():
                if wanted.get(attack.title) == attack.adversary:
                    row = _attacked(attack, view, run.truth(), run.time, len(seen.views))
                    said = {
                        "level": other.name,
                        "finds": row.finds,
                        "verdict": row.verdict,
                        "time": run.time,
                    }
                    found.setdefault((attack.title, row.at), []).append(said)
        except PosseError:  # a level that these settings do not allow
            continue
    return found


def cost(system: AnySystem, settings: RunSettings) -> dict[str, Any]:
    """Measure what each protection costs: the same run with and without it, in turns, so that a
    busy machine is fair.

    A step's cost is the median over the turns.
    """
    runs = [
        (name, changed, system.start(changed.but(runs=1), transcript=0))
        for name, changed in scene_of(system).variants(settings)
    ]
    for _, _, run in runs:
        run.advance(1)  # what is made once, such as an agreement of keys, is not a step's cost
    turns: list[list[tuple[int, float]]] = [[] for _ in runs]
    spent = _by_roles if any(isinstance(run, RolesRun) for _, _, run in runs) else _by_process
    ends = clock.monotonic() + MEASURED * len(runs)
    while clock.monotonic() < ends and not all(run.done for _, _, run in runs):
        for (_, _, run), made in zip(runs, turns, strict=True):
            if not run.done:
                made.append(_turn(run, spent))
    rows: list[dict[str, Any]] = []
    for (name, changed, run), made in zip(runs, turns, strict=True):
        each = [used / steps for steps, used in made if steps]
        moved = run.traffic() if isinstance(run, RolesRun) else {}
        rows.append(
            {
                "name": name,
                "level": system.level_of(changed),
                "steps": run.time,
                "points": _summed(made),
                "seconds": sum(used for _, used in made),
                "per_step": median(each) if each else None,
                "messages": sum(n for n, _ in moved.values()),
                "bytes": sum(size for _, size in moved.values()),
                "roles": [
                    {"kind": kind, "seconds": used} for kind, used in run.role_seconds().items()
                ]
                if isinstance(run, RolesRun)
                else [],
            }
        )
    first, notes = rows[0], [report_of(system).workload(settings)]
    if first["messages"]:
        notes += [
            f"Counted here: {first['messages']:,} messages, {first['bytes']:,} bytes, "
            f"{first['steps']:,} steps."
        ]
    whose = "of its roles" if spent is _by_roles else "of the whole process"
    note = (
        f"CPU time {whose}, each run for about {MEASURED:g} s in turns, measured now; reading data "
        "is not in it."
    )
    return {"rows": rows, "notes": [one for one in notes if one], "note": note}


def _summed(turns: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Add turns up: CPU seconds against steps, at most `DRAWN` points."""
    points = [(0, 0.0)]
    for steps, spent in turns:
        points.append((points[-1][0] + steps, points[-1][1] + spent))
    return [*points[: -1 : max(1, len(points) // DRAWN)], points[-1]]


def _turn(run: Run, spent: Callable[[Run], float]) -> tuple[int, float]:
    """Go forward a little; return the steps made and the CPU seconds they took."""
    began, at = spent(run), run.time
    run.advance(max(1, min(run.horizon // 20, 100)))
    return run.time - at, spent(run) - began


def _by_roles(run: Run) -> float:
    """CPU seconds of roles; of a run without roles those of this thread, in which it does the same
    work.
    """
    return sum(run.role_seconds().values()) if isinstance(run, RolesRun) else clock.thread_time()


def _by_process(run: Run) -> float:
    """CPU seconds of all threads while the run went forward, where its work is not done in this
    one.
    """
    return run.seconds


def keep(stage: Stage) -> dict[str, Any]:
    """Put the record of the run so far in the store that the command line has."""
    from posse.results.store import Store

    record = stage.run.record(None if stage.run.done else "interrupted")
    return {"run": Store().save(record)}
