"""A service's file and what lies beside it: its identity, and the folder of its runs, which one
process has open.

    runs/lock           the process that serves
    runs/member.json    whose runs these are: federation and name

Of the file, [consent] is read at every decision; the rest holds from one start of the service to
the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from posse.core import files
from posse.core.errors import ConfigError, JournalError, PosseError
from posse.core.settings import Settings
from posse.runtime.certificates.identity import PartyIdentity, named
from posse.runtime.federation.consent import Consent
from posse.runtime.journal import Disk
from posse.runtime.network.calling import Proxy
from posse.runtime.network.health import Status

MEMBER = "member.json"
"""In the folder of runs: whose they are."""
_APART = 'Give each member a folder of its own: runs = "FOLDER" in its file.'


class ServiceFile(Settings):
    """What the file of a service says; paths are relative to the file."""

    identity: Path
    """Folder that 'posse party enrol' or 'posse federation create' wrote."""
    runs: Path = Path("runs")
    """Folder of all runs; each has a folder of its own in it."""
    founder: str = "customer"
    """Name of the member that founded the federation."""
    home: str | None = None
    """host:port where the founder's service listens; at the founder itself, none."""
    authority: Path | None = None
    """Folder of the authority; at the founder."""
    enrol: str | None = None
    """host:port where tokens are used; at the founder, in place of 'posse federation ca serve'."""
    at_once: int = 1
    """Runs that go on at the same time, at the founder; the others wait in its queue."""
    proxy: str | None = None
    """Through which the founder and peers are called: http://host:port or socks5://host:port."""
    listen: str | None = None
    """host:port where others call: the founder, and members that listen in their runs."""
    address: str | None = None
    """host:port under which others reach `listen`, where it differs."""
    connect: dict[str, str] = Field(default_factory=dict)
    """Addresses of members that this one calls, where they differ from what these say
    themselves.
    """
    metrics: str | None = None
    """host:port where a monitor reads /metrics and /health."""
    sync: bool = True
    """Wait for the disk before anything that follows from a reward leaves."""
    renew: float = 30.0
    """Days before its end at which a certificate is renewed; a third of its time, where that is
    less.
    """
    key_days: float = 365.0
    """Days after which a renewal between runs draws a new key."""
    log: Literal["info", "warning", "error"] = "info"
    """Least level of the events that are logged."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of this member's own, such as its features or its slowest pull ([options])."""
    source: dict[str, Any] | None = None
    """Where rewards come from ([source])."""
    consent: Consent | None = None
    """What this member agrees to ([consent]); without it, to nothing but what it proposes
    itself.
    """


@dataclass(frozen=True)
class ServicePlace:
    """What a service finds when it starts."""

    path: Path
    file: ServiceFile
    folder: Path
    identity: PartyIdentity
    runs: Path

    def check_private(self) -> None:
        """Raise where others may read a file with the password of a proxy."""
        if self.file.proxy is not None and Proxy.parse(self.file.proxy).password:
            files.check_private(self.path)

    def consent(self) -> Consent | None:
        """Read [consent] as the file has it now; one that cannot be read agrees to nothing."""
        try:
            return ServiceFile.make(file=self.path).consent
        except PosseError as error:
            # The founder and who proposed it read this: what stands in the file, such as a
            # password, is not theirs.
            raise ConfigError(
                f"the file of '{self.identity.name}' cannot be read now. Its operator sees why "
                "with 'posse party doctor'."
            ) from error

    def edited(self) -> str:
        """Say what was edited since the service started and is not in force, or cannot be; empty
        where nothing was.
        """
        try:
            now = ServiceFile.make(file=self.path)
        except PosseError as error:
            return f"it cannot be read, so every proposal is refused: {error.text}"
        before, settled = self.file, (name for name in type(now).model_fields if name != "consent")
        other = ", ".join(name for name in settled if getattr(now, name) != getattr(before, name))
        return (
            other
            and f"{other} changed since the service started; stop and start it to take that up"
        )

    def absolute(self, table: Mapping[str, Any] | None) -> dict[str, Any]:
        """Make the files that this member's own tables name absolute: the party's file lies
        elsewhere.
        """

        def whole(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: whole(each) for key, each in value.items()}
            return (
                str(self.folder / value)
                if isinstance(value, str) and (self.folder / value).is_file()
                else value
            )

        return {key: whole(value) for key, value in (table or {}).items()}

    def check_whose(self) -> bool:
        """Raise where the runs are another member's; returns whether the folder says whose they
        are.
        """
        return check_whose(self.runs, self.identity.run, self.identity.name, self.path)

    def check_answers(self, status: Status) -> None:
        """Raise where the service that answered is another member's."""
        _check_served(status, self.runs, self.identity.run, self.identity.name, self.path)

    def take(self) -> int:
        """Lock the folder of runs, and say in it whose they are; nothing of them is read or changed
        before.
        """
        self.check_whose()  # another member's lock is not even touched
        files.make_private_folder(self.runs)
        lock = Disk().take(self.runs)
        try:
            if not self.check_whose():  # a new folder, or one that an older release wrote
                own = {"federation": self.identity.run, "name": self.identity.name}
                files.write_whole(self.runs / MEMBER, json.dumps(own).encode(), mode=files.PRIVATE)
        except BaseException:
            Disk.close(lock)
            raise
        return lock


def check_whose(runs: Path, federation: str, name: str, file: Path) -> bool:
    """Raise where a folder of runs is not this member's; returns whether it says whose it is."""
    path = runs / MEMBER
    try:
        kept = json.loads(path.read_text())
        whose = _named(kept["federation"], kept["name"])
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise JournalError(f"{path} cannot be read: {error}. Restore it from a copy.") from error
    if whose != (own := _named(federation, name)):
        raise JournalError(
            f"{runs} holds the runs of {whose}, and {file.name} is the file of {own}. {_APART}"
        )
    return True


def check_answers(path: Path, status: Status) -> None:
    """Raise where the service that answered is not that of a file, whose certificate may be over or
    revoked.
    """
    file, folder = ServiceFile.make(file=path), path.resolve().parent
    own = named(folder / file.identity)
    _check_served(status, folder / file.runs, own.run, own.name, path)


def _check_served(status: Status, runs: Path, federation: str, name: str, file: Path) -> None:
    served = _named(status.get("federation"), status.get("service"))
    if status and served != (own := _named(federation, name)):
        raise JournalError(
            f"process {status.get('pid')} has {runs} open and serves {served}, and {file.name} is "
            f"the file of {own}. "
            f"{_APART}"
        )


def _named(federation: object, name: object) -> str:
    return f"'{name}' of federation '{federation}'"


def open_service(path: Path) -> ServicePlace:
    """Read a service's file and its identity; nothing is written."""
    file, folder = ServiceFile.make(file=path), path.resolve().parent
    identity = PartyIdentity.load(folder / file.identity)
    return ServicePlace(path.absolute(), file, folder, identity, folder / file.runs)
