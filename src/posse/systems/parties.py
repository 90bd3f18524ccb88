"""One party of a federation as a run: found by its system's name, and recorded as far as it may
know.

Every party keeps a record in the store of its own machine. Records of one run share their `run_id`,
which all parties know and no other run has: the run's name, and the first digits of its authority's
fingerprint. A record has what its party may know (`Known`), CPU seconds of its role and its own
traffic; it has no seeds and no regret. While the party runs, its row of the store says how far it
is. A store that cannot be written stops no party.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from posse.core import files
from posse.core.errors import (
    ConfigError,
    DataError,
    JournalError,
    ProtocolError,
    StalledError,
    StoreError,
)
from posse.core.settings import read_toml
from posse.results.database import default_path
from posse.results.record import Record, Traffic, new_id, utc_now
from posse.results.reports.sections import Section, up
from posse.results.store import RunHandle, Store
from posse.results.values import JSON
from posse.runtime.certificates import making
from posse.runtime.network.deployment import Deployment, Known, Service, make_party, run_party
from posse.runtime.network.party import Party
from posse.runtime.network.recording import RecordingEngine
from posse.runtime.network.vouching import backup_time
from posse.runtime.place import Place, open_place
from posse.systems.base import AnySystem, presentation_at
from posse.systems.modules import Parties, deploy_of
from posse.systems.registry import names, system, systems

if TYPE_CHECKING:
    from posse.runtime.federation.member import Systems
    from posse.runtime.federation.talk import Invitation
    from posse.runtime.local import Layout

T = TypeVar("T")
RESULT = "result.json"
"""In a party's journal: what came out for it, written at the end of its part."""
RECORD = "record.json"
"""In a party's journal: id and time of its record, the same in all lives of the party."""
BEAT = 5.0
"""Seconds between two updates of a party's row in the store."""


def deployed() -> list[AnySystem]:
    """Systems that run between organisations as parties."""
    return [system for system in systems() if deploy_of(system) is not None]


def parties_of(name: str) -> Parties:
    """Return how a system runs between organisations."""
    deployment = deploy_of(system(name))
    if deployment is None:
        known = ", ".join(each.name for each in deployed())
        raise ConfigError(
            f"the system '{name}' does not run as parties over the network. Those that do: {known}."
        )
    return deployment


def read_federation(file: Path) -> Layout:
    """Read a federation's file, whatever its system, and say what is wrong with it."""
    values = read_toml(file)
    name = values.get("protocol", names()[0])
    if not isinstance(name, str):
        raise ConfigError(f"protocol must be the name of a system, got {name!r}.")
    return parties_of(name).layout(values, file.resolve().parent)


def invite(name: str, values: Mapping[str, Any]) -> Invitation:
    """Read the settings of a run in a federation that lives; they name no file, so they lie in no
    folder.
    """
    made = parties_of(name).invite
    if made is None:
        raise ConfigError(
            f"the system '{name}' has no runs in a federation that lives. Run it with 'posse up'."
        )
    with tempfile.TemporaryDirectory() as nowhere:
        return made(dict(values), Path(nowhere))


async def run_and_record(
    place: Place,
    accept: Callable[[Place, Deployment], Deployment],
    remark: Callable[[str], None],
    service: Service | None = None,
) -> dict[str, Any]:
    """Run a party until its part is over or it is stopped; return its result, which is empty where
    it was stopped.

    `accept` may refuse what was built, before anything is begun. `remark` is called when the store
    cannot be written.
    """
    parties = parties_of(place.file.protocol)
    kept: list[Keeper] = []

    @asynccontextmanager
    async def beside(party: Party, made: Deployment) -> AsyncIterator[None]:
        kept.append(Keeper(place, made, party, remark))
        async with kept[0]:
            yield

    made = await run_party(place, lambda here: accept(here, parties.build(here)), beside, service)
    if made.role.finished and (failure := made.report().failure):
        raise ProtocolError(f"the run is over without a result: {failure}")
    return kept[0].result() if made.role.finished else {}


def serving(remark: Callable[[str], None]) -> Systems:
    """Return what a service asks of the systems."""
    from posse.runtime.federation.member import Systems

    return Systems(
        invite,
        lambda name: parties_of(name).build,
        lambda place, service: run_and_record(place, lambda _, made: made, remark, service),
    )


def change_stopped(file: Path) -> None:
    """Let a party that does not run take what it may change in a run as its files have it now."""
    place = open_place(file)
    if not place.begun:
        raise ConfigError(
            f"'{place.identity.name}' has not begun: it takes its files as they are when it starts."
        )
    party, made = make_party(place, parties_of(place.file.protocol).build, change=True)
    party.engine.sync()
    party.engine.close()
    if not hasattr(made.role, "brings"):
        raise ConfigError(
            f"nothing that {place.file.protocol} has may change for a {made.role.kind} in a run."
        )


def run_id(place: Place) -> str:
    """Return what all records of one run share."""
    fingerprint = making.fingerprint(making.public_key(place.identity.authority))
    return f"{place.run[:54]}-{fingerprint.hex()[:8]}"


def record_of(
    place: Place, made: Deployment, party: Party, known: Known, status: str, **fields: Any
) -> Record:
    """Make the record of what a party knows, and of what it spent."""
    role, of = made.role, system(place.file.protocol)
    summary: dict[str, Any] = {} if known.steps is None else {"steps_done": known.steps}
    if isinstance(party.engine, RecordingEngine):
        summary["view"] = str(party.engine.view.path.resolve())
    for key, value in known.facts.items():
        summary[key] = value if isinstance(value, str | int | float) else ", ".join(map(str, value))
    sent = sum(link.sent for link in party.engine.links.values())
    calls = party.engine.calls
    costs = () if made.costs is None or not calls else made.costs(calls, sent)
    level = next((level for level in of.levels if level.name == known.level), None)
    show = presentation_at(of, level, known.learns, (*known.tables, *costs))
    if known.warnings:
        show["warnings"] = list(known.warnings)
    vocabulary = {**of.about.nouns, **known.words}
    problem = {"name": place.run, "names": list(known.pulls)} | (
        {"words": vocabulary} if vocabulary else {}
    )
    return Record(
        kind=of.name,
        config=dict(known.config),
        problem=problem,
        level=known.level,
        leaks=tuple(known.leaks),
        total=() if known.total is None else (known.total,),
        pulls=np.array([list(known.pulls.values())], np.int64),
        status=status,
        role_seconds={role.kind: party.engine.seconds},
        seconds=party.engine.seconds,
        traffic=traffic(made, party),
        privacy=tuple(known.privacy),
        summary=summary,
        show=show,
        run_id=run_id(place),
        party=role.name,
        **fields,
    )


def with_all_runs(record: Record, store: Store) -> Record:
    """Add what all runs of this party in a store have spent of its privacy, where this one spent
    some.
    """
    if (mine := _spent(record)) is None:
        return record
    rows = [
        row.id
        for row in store.list(kind=record.kind)
        if row.party == record.party and row.id != record.id
    ]
    others = [found for each in store.heads(rows).values() if (found := _spent(each)) is not None]
    epsilon, delta = (math.fsum(values) for values in zip(mine, *others, strict=True))
    table = Section(
        "Privacy spent in all runs",
        ("", "value"),
        (("runs", str(1 + len(others))), ("epsilon", up(epsilon)), ("delta", f"{delta:g}")),
        (
            f"Added up over the runs of {record.party} in this store: it holds for who takes part "
            "in all of them. Runs "
            "that were deleted, or are kept elsewhere, are not counted.",
        ),
        (1,),
    )
    kept = record.show.get("sections")
    sections: list[JSON] = [*(kept if isinstance(kept, list | tuple) else ()), table.plain()]
    return replace(record, show={**record.show, "sections": sections})


def _spent(record: Record) -> tuple[float, float] | None:
    """Return epsilon and delta of a party's whole run, the largest of its figures; nothing where
    there is none.
    """
    figures = []
    for one in record.privacy:
        epsilon, delta = one.get("epsilon"), one.get("delta")
        if one.get("party") == record.party:
            figures.append(
                (
                    float(epsilon) if isinstance(epsilon, int | float) else math.inf,
                    float(delta) if isinstance(delta, int | float) else 0.0,
                )
            )
    return max(figures, default=None)


def traffic(made: Deployment, party: Party) -> tuple[Traffic, ...]:
    """Add up what this party sent and received, by kinds of role: which peer it was may say who was
    pulled.
    """
    sums: dict[str, list[int]] = {}
    mine = made.role.kind
    for peer, link in party.engine.links.items():
        kind = made.peers[peer]
        for hop, messages, size in (
            (f"{mine} -> {kind}", link.sent, link.bytes_sent),
            (f"{kind} -> {mine}", link.received, link.bytes_received),
        ):
            moved = sums.setdefault(hop, [0, 0])
            moved[0] += messages
            moved[1] += size
    return tuple(Traffic(hop, *moved) for hop, moved in sorted(sums.items()))


class Keeper:
    """Keeps a party's row of the store while it runs, and its record and its result at the end."""

    def __init__(
        self, place: Place, made: Deployment, party: Party, remark: Callable[[str], None]
    ) -> None:
        self._place, self._made, self._party, self._remark = place, made, party, remark
        self._whose = _identity(place.journal / RECORD)
        self._lock, self._over, self._refused = threading.Lock(), False, False
        self._beating: asyncio.Task[None] | None = None
        self._known = Known("")
        self._marks = default_path().parent / "marks" / f"{self._whose['id']}.json"

    async def __aenter__(self) -> None:
        _check_newest(self._marks, self._party, self._place)
        if not self._made.role.finished:  # one whose part was over has its record
            self._beating = asyncio.create_task(self._follow(self._record("running")))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        finished = self._made.role.finished
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        failed = error is not None and not isinstance(error, asyncio.CancelledError | StalledError)
        record = self._record("finished" if finished else "failed" if failed else "interrupted")
        if finished:
            files.write_whole(
                self._place.journal / RESULT, json.dumps(self.result()).encode(), mode=files.PRIVATE
            )
        await asyncio.to_thread(self._end, record)

    def result(self) -> dict[str, Any]:
        """What came out for this party, for its operator and for programs."""
        known, role = self._known, self._made.role
        pulls = sum(known.pulls.values()) if known.pulls else known.steps
        earned = {} if known.total is None else {"total": known.total, "pulls": pulls}
        whose = {
            "run": self._place.run,
            "party": role.name,
            "role": role.kind,
            "record": self._whose["id"],
        }
        return {**whose, "outcome": known.outcome, **earned, **known.facts}

    def _record(self, status: str) -> Record:
        self._known = self._made.report()
        return record_of(self._place, self._made, self._party, self._known, status, **self._whose)

    async def _follow(self, head: Record) -> None:
        """Say in the store how far the party is; its state is read in the loop, and written beside
        it.
        """
        handle = await asyncio.to_thread(self._begin, head)
        while handle is not None:
            state = self._made.role.state()
            done, whole = (
                value if isinstance(value, int) else 0
                for value in map(state.get, ("step", "horizon"))
            )
            durable = {peer: link.durable for peer, link in self._party.engine.links.items()}
            await asyncio.to_thread(handle.beat, done, whole)
            await asyncio.to_thread(
                _mark, self._marks, {"journal": self._party.engine.journal_id, "durable": durable}
            )
            await asyncio.sleep(BEAT)

    def _begin(self, head: Record) -> RunHandle | None:
        def begin(store: Store) -> RunHandle | None:
            if self._over:
                return None
            with suppress(StoreError):
                store.delete(head.id)  # of an earlier life
            return store.begin(head)

        return self._stored(begin)

    def _end(self, record: Record) -> None:
        self._over = True
        self._stored(lambda store: store.save(with_all_runs(record, store), replace=True))

    def _stored(self, work: Callable[[Store], T]) -> T | None:
        """Write in the store; one that cannot be written is remarked once."""
        with self._lock:
            try:
                return work(Store())
            except StoreError as error:
                if not self._refused:
                    self._remark(f"this run goes on and leaves no record: {error.text}")
                self._refused = True
        return None


def _mark(path: Path, mark: Mapping[str, Any]) -> None:
    """Note beside the store how many messages of each peer are in a journal: one set back by itself
    then shows.
    """
    with suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(path, json.dumps(mark).encode(), mode=files.PRIVATE)


def _check_newest(path: Path, party: Party, place: Place) -> None:
    """Refuse a journal that holds less than was noted of it, unless it was restored and its peers
    are yet to vouch.
    """
    noted: dict[str, int] = {}
    with suppress(OSError, ValueError, LookupError, TypeError):
        mark = json.loads(path.read_text())
        noted = dict(mark["durable"]) if mark["journal"] == party.engine.journal_id else {}
    links = party.engine.links
    behind = next(
        (peer for peer, link in links.items() if link.received < noted.get(peer, 0)), None
    )
    if behind is not None and not backup_time(place.journal):
        raise JournalError(
            f"the journal in {place.journal} is an older copy: it holds {links[behind].received} "
            "messages of "
            f"'{behind}', and this machine's store noted {noted[behind]} ({path}). Put the newest "
            "one back; where it "
            "is lost, 'posse restore' a backup: the party then asks its peers whether the run has "
            "gone on."
        )


def _identity(path: Path) -> dict[str, str]:
    """Read id and time of a party's record, or choose them: a party that is started again keeps one
    record.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        return {"id": str(kept["id"]), "created": str(kept["created"])}
    made = {"id": new_id(), "created": utc_now()}
    files.write_whole(path, json.dumps(made).encode(), mode=files.PRIVATE)
    return made


def read_result(journal: Path) -> dict[str, Any]:
    """Read what a party wrote at its end; nothing before."""
    try:
        result: dict[str, Any] = json.loads((journal / RESULT).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{journal / RESULT} cannot be read: {error}. Remove it and start the party again."
        ) from error
    return result
