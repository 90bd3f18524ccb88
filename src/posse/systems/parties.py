"""Functions that run a party of a federation, for any system, and record the party's run.

Each party writes a record to the run store of its machine. The record contains what the party may
know (`Known`), the CPU seconds of its role and its own traffic, but no seeds and no regret. The
records that the parties of one run write have the same `run_id`. While a party runs, its row in the
store shows its progress. If the store cannot be written, the party continues.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
from posse.results.record import Record, Traffic, new_id, utc_now
from posse.results.section import Section
from posse.results.store import RunHandle, Store, default_path
from posse.results.words import rounded_up
from posse.runtime.certificates import making as certificates
from posse.runtime.network.deployment import Deployment, Known, Service, make_party, run_party
from posse.runtime.network.party import Party
from posse.runtime.network.recording import RecordingEngine
from posse.runtime.network.vouching import backup_time
from posse.runtime.place import Place, open_place
from posse.systems.base import AnySystem, presentation_without_settings
from posse.systems.modules import Deploy, deploy_of
from posse.systems.registry import names, system, systems

if TYPE_CHECKING:
    from posse.runtime.federation.member import Systems
    from posse.runtime.federation.talk import Invitation
    from posse.runtime.local import Layout

T = TypeVar("T")
Warn: TypeAlias = Callable[[str], None]
"""Called with a sentence for the operator if the store cannot be written."""

RESULT = "result.json"
"""File in a party's journal folder: the party's result, written when its part is over."""
RECORD = "record.json"
"""File in a party's journal folder: id and time of its record. Restarts of the party use the same.
"""
BEAT = 5.0
"""Seconds between two updates of a party's row in the store."""
MAX_RUN_NAME = 54
"""Characters of a run's name that are in its `run_id`, so that the id has at most 63 characters."""


def deployed_systems() -> list[AnySystem]:
    """Return the systems whose parties can run at different organisations."""
    return [system for system in systems() if deploy_of(system) is not None]


def deploy_by_name(name: str) -> Deploy:
    """Return how a system runs between organisations, by the system's name.

    Raises:
        ConfigError: The system does not run between organisations.
    """
    deploy = deploy_of(system(name))
    if deploy is None:
        choices = ", ".join(each.name for each in deployed_systems())
        raise ConfigError(
            f"the system '{name}' does not run as parties over the network. Use one of {choices}.",
            rule="systems.protocol.no-parties",
        )
    return deploy


def read_federation(file: Path) -> Layout:
    """Read and check the file of a federation.

    Its entry `protocol` is the name of the system, by default the first system of all.
    """
    values = read_toml(file)
    name = str(values.get("protocol", names()[0]))
    return deploy_by_name(name).layout(values, file.resolve().parent)


def make_invitation(system_name: str, values: Mapping[str, Any]) -> Invitation:
    """Check the settings of a run in a standing federation, and return the invitation to it."""
    invite = deploy_by_name(system_name).invite
    if invite is None:
        raise ConfigError(
            f"the system '{system_name}' has no runs in a standing federation. Run it with "
            "'posse up'.",
            rule="systems.protocol.no-invitations",
        )
    # `invite` needs a folder for relative paths. These settings come without a folder and have no
    # such paths, so an empty folder is enough.
    with tempfile.TemporaryDirectory() as folder:
        return invite(dict(values), Path(folder))


async def run_and_record(
    place: Place,
    accept: Callable[[Place, Deployment], Deployment],
    warn: Warn,
    service: Service | None = None,
) -> dict[str, Any]:
    """Run a party until its part is over, or until the party is stopped; record the run.

    Args:
        place: The party's files.
        accept: Called with `place` and the deployment that the system builds from it. Returns the
            deployment to run, or raises an error to refuse the deployment.
        warn: Called with a sentence if the store cannot be written.
        service: The service that runs the party; None if the party is a separate process.

    Returns:
        The party's result; empty if the party was stopped.

    Raises:
        ProtocolError: The run is over without a result.
    """
    deploy = deploy_by_name(place.file.protocol)
    recorder: PartyRecorder | None = None

    def build_accepted(place: Place) -> Deployment:
        return accept(place, deploy.build(place))

    def make_recorder(party: Party, deployment: Deployment) -> PartyRecorder:
        nonlocal recorder
        recorder = PartyRecorder(place, deployment, party, warn)
        return recorder

    deployment = await run_party(place, build_accepted, make_recorder, service)
    # `recorder` is never None here: `run_party` has called `make_recorder`. A type checker does not
    # know this.
    if recorder is None or not deployment.role.finished:
        return {}
    failure = deployment.report().failure
    if failure:
        raise ProtocolError(
            f"the run is over without a result: {failure}", rule="systems.run.no-result"
        )
    return recorder.result()


def functions_for_service(warn: Warn) -> Systems:
    """Return the functions that a service needs to invite to runs, and to run parties."""
    from posse.runtime.federation.member import Systems

    # The service has checked the party's file already, so it accepts every deployment.
    def accept_all(place: Place, deployment: Deployment) -> Deployment:
        return deployment

    return Systems(
        make_invitation,
        lambda name: deploy_by_name(name).build,
        lambda place, service: run_and_record(place, accept_all, warn, service),
    )


def reread_inputs(file: Path) -> None:
    """Read a stopped party's inputs again, so that it continues with their present values.

    This concerns only inputs that may change during a run, such as prices. The new values are
    written to the party's journal.

    Args:
        file: The party's file.

    Raises:
        ConfigError: The party has not started yet, or no input of its role may change.
    """
    place = open_place(file)
    if not place.begun:
        raise ConfigError(
            f"'{place.identity.name}' has not started: it reads its files when it starts.",
            rule="systems.party.not-started",
        )
    # With `change=True`, the role receives its new inputs, and the journal stores them. A role whose
    # inputs may not change has no `brings`: it receives nothing, and its journal stays as it is.
    party, deployment = make_party(place, deploy_by_name(place.file.protocol).build, change=True)
    party.engine.sync()
    party.engine.close()
    inputs_may_change = hasattr(deployment.role, "brings")
    if not inputs_may_change:
        raise ConfigError(
            f"no input of a {deployment.role.kind} of {place.file.protocol} may change during a "
            "run. Start a new run.",
            rule="systems.party.nothing-changes",
        )


def run_id(place: Place) -> str:
    """Return the id that the records of all parties of one run have.

    The id begins with the name of the run. Runs of different federations may have the same name, so
    the id ends with digits that identify the federation's certificate authority.
    """
    authority_key = certificates.public_key(place.identity.authority)
    fingerprint = certificates.fingerprint(authority_key).hex()
    return f"{place.run[:MAX_RUN_NAME]}-{fingerprint[:8]}"


def make_party_record(
    place: Place, deployment: Deployment, party: Party, knowledge: Known, status: str, **fields: Any
) -> Record:
    """Make a party's record: what the party knows, its CPU seconds and its traffic."""
    seconds = party.engine.seconds
    role = deployment.role
    role_system = system(place.file.protocol)
    problem: dict[str, Any] = {"name": place.run, "names": list(knowledge.pulls)}
    words = {**role_system.about.nouns, **knowledge.words}
    if words:
        problem["words"] = words
    return Record(
        kind=role_system.name,
        config=dict(knowledge.config),
        problem=problem,
        level=knowledge.level,
        leaks=tuple(knowledge.leaks),
        total=() if knowledge.total is None else (knowledge.total,),
        pulls=np.array([list(knowledge.pulls.values())], np.int64),
        status=status,
        role_seconds={role.kind: seconds},
        seconds=seconds,
        traffic=count_traffic(deployment, party),
        privacy=tuple(knowledge.privacy),
        summary=_make_summary(party, knowledge),
        show=_make_presentation(role_system, knowledge, _cost_tables(deployment, party)),
        run_id=run_id(place),
        party=role.name,
        **fields,
    )


def _make_summary(party: Party, knowledge: Known) -> dict[str, str | int | float]:
    """Return the summary of a record: the number of steps, the path of a recorded view, facts."""
    summary: dict[str, str | int | float] = {}
    if knowledge.steps is not None:
        summary["steps_done"] = knowledge.steps
    if isinstance(party.engine, RecordingEngine):
        summary["view"] = str(party.engine.view.path.resolve())
    for name, fact in knowledge.facts.items():
        if isinstance(fact, str | int | float):
            summary[name] = fact
        else:  # several values
            summary[name] = ", ".join(map(str, fact))
    return summary


def _cost_tables(deployment: Deployment, party: Party) -> list[Mapping[str, Any]]:
    """Return tables about the cost of this party: its cryptographic calls and sent messages.

    Empty if the system makes no such tables, or if no calls were counted.
    """
    calls_by_primitive = party.engine.calls
    if deployment.costs is None or not calls_by_primitive:
        return []
    sent = sum(link.sent for link in party.engine.links.values())
    return list(deployment.costs(calls_by_primitive, sent))


def _make_presentation(
    role_system: AnySystem, knowledge: Known, costs: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a record stores only to be shown (`Record.show`)."""
    level = next((each for each in role_system.levels if each.name == knowledge.level), None)
    tables = [*knowledge.tables, *costs]
    show = presentation_without_settings(role_system, level, knowledge.learns, tables)
    if knowledge.warnings:
        show["warnings"] = list(knowledge.warnings)
    return show


def add_privacy_of_all_runs(record: Record, store: Store) -> Record:
    """Return a record with a further table: the privacy that all runs of its party have spent.

    The runs are those in the store, and the run of the record. A record without a privacy ledger is
    returned unchanged.
    """
    spent = _privacy_spent(record)
    if spent is None:
        return record
    other_ids = [
        row.id
        for row in store.list(kind=record.kind)
        if row.party == record.party and row.id != record.id
    ]
    other_records = store.heads(other_ids).values()
    # `filter` leaves out records without a privacy ledger, for which `_privacy_spent` returns None.
    spent_by_others = filter(None, map(_privacy_spent, other_records))
    table = _privacy_table(record.party, [spent, *spent_by_others])
    sections: Any = record.show["sections"]
    return record.but(show={**record.show, "sections": [*sections, table.plain()]})


def _privacy_table(party: str, spent: Sequence[tuple[float, float]]) -> Section:
    """Return a table with the sums of the pairs (epsilon, delta) that a party's runs have spent."""
    epsilons, deltas = zip(*spent, strict=True)
    rows = (
        ("runs", str(len(spent))),
        ("epsilon", rounded_up(math.fsum(epsilons))),
        ("delta", f"{math.fsum(deltas):g}"),
    )
    note = (
        f"The sum over the runs of {party} in this store. It holds for people who take part in "
        "all of them. Runs that were deleted, or are stored elsewhere, are not counted."
    )
    return Section(
        title="Privacy spent in all runs",
        columns=("", "value"),
        rows=rows,
        notes=(note,),
        numeric=(1,),
    )


def _privacy_spent(record: Record) -> tuple[float, float] | None:
    """Return the privacy (epsilon, delta) that a party's run has spent; None if it has no ledger.

    Each entry of the record's privacy ledger is a guarantee about the whole run, so entries are not
    added. The largest epsilon with the largest delta is a guarantee that follows from every entry.
    """
    own = [entry for entry in record.privacy if entry.get("party") == record.party]
    if not own:
        return None
    # An infinite epsilon is stored as None. An entry without delta guarantees delta 0.
    epsilons = [_number_or_default(entry.get("epsilon"), math.inf) for entry in own]
    deltas = [_number_or_default(entry.get("delta"), 0.0) for entry in own]
    return max(epsilons), max(deltas)


def _number_or_default(value: object, default: float) -> float:
    """Return a number as a float; the default for any other value."""
    return float(value) if isinstance(value, int | float) else default


def count_traffic(deployment: Deployment, party: Party) -> tuple[Traffic, ...]:
    """Return messages and bytes that this party sent and received, by kinds of role.

    The traffic with each single peer is not returned, because it may reveal which arm was pulled.
    """
    own = deployment.role.kind
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for peer, link in party.engine.links.items():
        kind = deployment.peers[peer]
        outgoing = f"{own} -> {kind}"
        incoming = f"{kind} -> {own}"
        messages[outgoing] += link.sent
        messages[incoming] += link.received
        sizes[outgoing] += link.bytes_sent
        sizes[incoming] += link.bytes_received
    return tuple(Traffic(hop, messages[hop], sizes[hop]) for hop in sorted(messages))


class PartyRecorder:
    """Updates a party's row in the store while the party runs; writes its record and its result.

    It also writes a *mark*: a small file next to the store that notes how many messages the journal
    has. When the party starts again, it compares the journal with the mark. If the journal has fewer
    messages, an older copy has replaced it, and the party refuses to start.
    """

    def __init__(self, place: Place, deployment: Deployment, party: Party, warn: Warn) -> None:
        self._place = place
        self._deployment = deployment
        self._party = party
        self._warn = warn
        self._identity = _record_identity(place.journal / RECORD)
        # One thread updates the row and another one saves the record, but only one at a time.
        self._lock = threading.Lock()
        self._over = False
        self._warned = False
        self._updates: asyncio.Task[None] | None = None
        # What the party knew when `_make_record` made the last record. `result` uses it.
        self._last_report = Known("")
        self._mark_path = default_path().parent / "marks" / f"{self._identity['id']}.json"

    async def __aenter__(self) -> None:
        _refuse_older_journal(self._mark_path, self._party, self._place)
        # If the party's part was over before this start, the store has the final record already.
        if not self._deployment.role.finished:
            record = self._make_record("running")
            self._updates = asyncio.create_task(self._keep_row_updated(record))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._updates is not None:
            self._updates.cancel()
            with suppress(asyncio.CancelledError):
                await self._updates
        if self._deployment.role.finished:
            record = self._make_record("finished")
            # `result` reads what the line above has stored.
            result = json.dumps(self.result()).encode()
            files.write_whole(self._place.journal / RESULT, result, mode=files.PRIVATE)
        elif error is None or isinstance(error, asyncio.CancelledError | StalledError):
            # The party was stopped, or waits for another party. It can be started again.
            record = self._make_record("interrupted")
        else:
            record = self._make_record("failed")
        await asyncio.to_thread(self._save_record, record)

    def result(self) -> dict[str, Any]:
        """Return the party's result, for its operator and for programs."""
        knowledge = self._last_report
        role = self._deployment.role
        result: dict[str, Any] = {
            "run": self._place.run,
            "party": role.name,
            "role": role.kind,
            "record": self._identity["id"],
            "outcome": knowledge.outcome,
        }
        if knowledge.total is not None:
            result["total"] = knowledge.total
            # A party that does not see which arms are pulled knows only the number of steps.
            result["pulls"] = sum(knowledge.pulls.values()) if knowledge.pulls else knowledge.steps
        return {**result, **knowledge.facts}

    def _make_record(self, status: str) -> Record:
        """Make a record of what the party knows now, and keep this knowledge for `result`."""
        self._last_report = self._deployment.report()
        return make_party_record(
            self._place, self._deployment, self._party, self._last_report, status, **self._identity
        )

    async def _keep_row_updated(self, head: Record) -> None:
        """Every few seconds, write to the store how far the run is, and write the journal's mark.

        This coroutine ends when `__aexit__` cancels it. It reads the role's state in the event loop,
        because the party changes the state there. Other threads write to the disk, because the
        party must not wait for the disk.
        """
        handle = await asyncio.to_thread(self._begin_row, head)
        if handle is None:
            return
        while True:
            state = self._deployment.role.state()
            steps = int(_number_or_default(state.get("step"), 0))
            horizon = int(_number_or_default(state.get("horizon"), 0))
            await asyncio.to_thread(handle.beat, steps, horizon)
            await asyncio.to_thread(_write_journal_mark, self._mark_path, self._journal_position())
            await asyncio.sleep(BEAT)

    def _journal_position(self) -> dict[str, Any]:
        """Return the content of a mark: the journal's id, and its number of messages of each peer.

        Only messages that are on the disk are counted.
        """
        engine = self._party.engine
        durable = {peer: link.durable for peer, link in engine.links.items()}
        return {"journal": engine.journal_id, "durable": durable}

    def _begin_row(self, head: Record) -> RunHandle | None:
        """Begin the party's row in the store.

        Returns None if the final record is saved already, or the store cannot be written.
        """

        def replace_row(store: Store) -> RunHandle | None:
            # Another thread may have saved the final record while this one waited for the lock.
            if self._over:
                return None
            # After a restart, the store still has the row of the previous start, with the same id.
            with suppress(StoreError):
                store.delete(head.id)
            return store.begin(head)

        return self._use_store(replace_row)

    def _save_record(self, record: Record) -> None:
        """Store the final record."""
        # From now on, `_begin_row` must not replace the final record by the row of a running party.
        self._over = True
        self._use_store(
            lambda store: store.save(add_privacy_of_all_runs(record, store), replace=True)
        )

    def _use_store(self, work: Callable[[Store], T]) -> T | None:
        """Call `work` with the store, and return its result.

        Returns None if the store cannot be written. The operator is warned only the first time.
        """
        with self._lock:
            try:
                return work(Store())
            except StoreError as error:
                if not self._warned:
                    self._warn(f"this run continues and leaves no record: {error.text}")
                self._warned = True
        return None


def _write_journal_mark(path: Path, mark: Mapping[str, Any]) -> None:
    """Write the journal's mark. Errors are ignored: the mark only serves an additional check."""
    with suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(path, json.dumps(mark).encode(), mode=files.PRIVATE)


def _read_journal_mark(path: Path, journal_id: str) -> dict[str, int]:
    """Return the numbers of messages that the mark of a journal notes, by peer.

    Empty if the mark is missing, cannot be read, or belongs to another journal.
    """
    with suppress(OSError, ValueError, LookupError, TypeError):
        mark = json.loads(path.read_text())
        if mark["journal"] == journal_id:
            return dict(mark["durable"])
    return {}


def _refuse_older_journal(path: Path, party: Party, place: Place) -> None:
    """Raise an error if the journal has fewer messages than the mark at `path` notes."""
    # A journal that was restored from a backup may be older: such a party asks its peers whether it
    # may continue.
    if backup_time(place.journal):
        return
    noted = _read_journal_mark(path, party.engine.journal_id)
    for peer, link in party.engine.links.items():
        if link.received < noted.get(peer, 0):
            raise JournalError(
                f"the journal in {place.journal} is an older copy: it holds {link.received} "
                f"messages of '{peer}', and this machine's store noted {noted[peer]} ({path}). Put "
                "the newest one back. If it is lost, 'posse party restore' a backup: the party "
                "then asks its peers whether the run has continued.",
                rule="systems.journal.older-copy",
            )


def _record_identity(path: Path) -> dict[str, str]:
    """Return id and time of a party's record. They are made once, and stored in a file at `path`."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text())
        return {"id": str(stored["id"]), "created": str(stored["created"])}
    identity = {"id": new_id(), "created": utc_now()}
    files.write_whole(path, json.dumps(identity).encode(), mode=files.PRIVATE)
    return identity


def read_result(journal: Path) -> dict[str, Any]:
    """Return the result that a party wrote to its journal folder when its part was over.

    Empty if the part is not over yet.
    """
    path = journal / RESULT
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {error}. Remove it and start the party again.",
            rule="systems.result.unreadable",
        ) from error
    return result
