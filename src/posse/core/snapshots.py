"""Snapshots: the saved states of roles, each with the party and the run that it belongs to.

Each class of roles has its own subclass of `Snapshot` for the state of a role. `pack` turns a
snapshot into plain values, and `unpack` turns these values back into a snapshot. `unpack` raises an
error for values of a wrong type, and for the snapshot of another party or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from posse.core.errors import JournalError

VERSION = 1
"""Format of the snapshots that this version of Posse writes and reads."""
Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of at least 0."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The saved state of a role; subclasses add the fields of their roles."""

    version: int
    """Format of the snapshot: `VERSION`."""
    kind: str
    """Kind of the role."""
    name: str
    """Name of the party."""
    run: bytes
    """A public identifier of the party's run and of the party's secrets."""


S = TypeVar("S", bound=Snapshot)


def pack(snapshot: Snapshot) -> dict[str, Any]:
    """Turn a snapshot into plain values that msgpack can encode.

    >>> pack(Snapshot(version=1, kind="agent", name="ada", run=b"7"))
    {'version': 1, 'kind': 'agent', 'name': 'ada', 'run': b'7'}
    """
    packed: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot))
    return packed


def unpack(
    saved: Mapping[str, Any], snapshot_class: type[S], *, kind: str, name: str, run: bytes
) -> S:
    """Make a snapshot from what `pack` returned.

    Args:
        saved: What `pack` returned. The values may have been stored with msgpack.
        snapshot_class: The class of the snapshot.
        kind: Kind of the role that reads the snapshot.
        name: Name of the party that reads the snapshot.
        run: The identifier `Snapshot.run` of the party that reads the snapshot.

    Raises:
        JournalError: `saved` is damaged, or of another format, party or run.

    >>> saved = pack(Snapshot(version=1, kind="agent", name="ada", run=b"7"))
    >>> unpack(saved, Snapshot, kind="agent", name="bob", run=b"7")
    Traceback (most recent call last):
    ...
    posse.core.errors.JournalError: [P800] the snapshot is of agent 'ada', this is agent 'bob'. Give
    each party and run
    a separate journal.
    """
    version = saved.get("version")
    if version != VERSION:
        raise JournalError(
            f"expected a snapshot of format {VERSION}, got one of {version}. "
            "Continue with the version of Posse that made it.",
            rule="core.snapshot.other-format",
        )
    saved_party = f"{saved.get('kind')} '{saved.get('name')}'"
    party = f"{kind} '{name}'"
    if saved_party != party:
        raise JournalError(
            f"the snapshot is of {saved_party}, this is {party}. "
            "Give each party and run a separate journal.",
            rule="core.snapshot.other-party",
        )
    if saved.get("run") != run:
        raise JournalError(
            f"the snapshot of {party} is of another run, or was made with other secrets. "
            "Give each party and run a separate journal, and keep its secrets with it.",
            rule="core.snapshot.other-run",
        )
    try:
        return msgspec.convert(saved, snapshot_class, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise damaged_snapshot(kind, name, error) from error


def damaged_snapshot(kind: str, name: str, why: object) -> JournalError:
    """Return the error for a snapshot with wrong values.

    `why` is a sentence about the wrong value. It ends with a full stop.
    """
    return JournalError(
        f"the snapshot of {kind} '{name}' is damaged: {why} Restore the journal from a copy.",
        rule="core.snapshot.damaged",
    )
