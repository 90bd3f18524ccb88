"""The shape of what a role saves: plain values, and whose they are.

A role describes its state as a `Snapshot` of its own; `pack` makes plain values of it and `unpack`
reads them strictly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from posse.core.errors import JournalError

VERSION = 1
Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number that a snapshot must not hold below 0."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every snapshot begins with."""

    version: int
    kind: str
    name: str
    run: bytes
    """What is different in every run of this party; public."""


S = TypeVar("S", bound=Snapshot)


def pack(snapshot: Snapshot) -> dict[str, Any]:
    """Make plain values of a snapshot: what msgpack encodes.

    >>> pack(Snapshot(version=1, kind="agent", name="ada", run=b"7"))
    {'version': 1, 'kind': 'agent', 'name': 'ada', 'run': b'7'}
    """
    packed: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot))
    return packed


def unpack(saved: Mapping[str, Any], shape: type[S], *, kind: str, name: str, run: bytes) -> S:
    """Read what `pack` made; raise `JournalError` if it is another party's, of another run, or
    damaged.

    >>> saved = pack(Snapshot(version=1, kind="agent", name="ada", run=b"7"))
    >>> unpack(saved, Snapshot, kind="agent", name="bob", run=b"7")
    Traceback (most recent call last):
    ...
    posse.core.errors.JournalError: [P800] the snapshot is of agent 'ada', this is agent 'bob'. Give
    each party and run
    a journal of its own.
    """
    version, whose = saved.get("version"), (saved.get("kind"), saved.get("name"))
    if version != VERSION:
        raise JournalError(
            f"expected a snapshot of format {VERSION}, got one of {version}. Go on with the Posse "
            "that made it."
        )
    if whose != (kind, name):
        raise JournalError(
            f"the snapshot is of {whose[0]} '{whose[1]}', this is {kind} '{name}'. "
            "Give each party and run a journal of its own."
        )
    if saved.get("run") != run:
        raise JournalError(
            f"the snapshot of {kind} '{name}' is of another run, or was made with other secrets. "
            "Give each party and run a journal of its own, and keep its secrets with it."
        )
    try:
        return msgspec.convert(saved, shape, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise damaged(kind, name, error) from error


def damaged(kind: str, name: str, why: object) -> JournalError:
    """Make the error of a snapshot that no role can have saved."""
    return JournalError(
        f"the snapshot of {kind} '{name}' is damaged: {why} Restore the journal from a copy."
    )
