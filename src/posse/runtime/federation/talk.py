"""A signed proposal, what a system makes of it, and what founder and member tell each other.

A proposal holds a run's settings as its file has them, the federation and a nonce; its proposer's
certificate goes with it. Its digest is its name everywhere. It names no file and no code: what a
member reads lies with that member.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Union

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import ConfigError, ProtocolError
from posse.core.settings import Settings
from posse.privacy.crypto.keys import verify
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.certificates.names import check_name
from posse.runtime.federation.consent import Demand
from posse.runtime.network.wire import WireError

FEDERATION = "federation"
"""What a hello on a control connection has in place of a system's name."""
QUEUE = "queue"
"""Folder of the founder's runs, in that of the authority."""
_PURPOSE = b"proposal of a run"
_PATH, _FRACTION = re.compile(r"[/\\~]|\.\."), re.compile(r" *[0-9]+ */ *([0-9]+|[nNtT]) *")


@dataclass(frozen=True)
class Invitation:
    """What a system makes of a run's settings: who takes part, as what, and with which options."""

    settings: Settings
    files: Mapping[str, Mapping[str, Any]]
    """Of each party, by name: `role`, `options`, `connect` (peers that it calls) and `listens`, as
    in its file; and `certificates`, where it reads those of others beside its file, as
    <name>/party.crt.
    """
    demand: Callable[[], Demand]
    """Gives what the run asks of each of them."""
    total_at: str | None = None
    """Party that knows the total at the end; None where each has its own."""
    simulated: bool = False
    """Whether the world is simulated: members then bring no source."""
    ends_at: str | None = None
    """Party whose command `end` ends the run without others; None where none can."""
    remarks: tuple[str, ...] = ()
    """What the user who proposes the run reads."""

    @property
    def members(self) -> dict[str, str]:
        """Role of every party, by name."""
        return {name: str(part["role"]) for name, part in self.files.items()}


Invite = Callable[[str, Mapping[str, Any]], Invitation]
"""Makes an invitation of a system's name and a run's settings; raises a `PosseError` that says what
is wrong.
"""


class Proposal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A run that somebody proposes."""

    federation: str
    run: str
    system: str
    settings: str
    """JSON of the run's settings."""
    nonce: bytes

    @classmethod
    def make(cls, federation: str, values: Mapping[str, Any]) -> Proposal:
        """Propose what a run's file says."""
        given = dict(values)
        run, system = given.pop("run", ""), given.pop("protocol", None)
        if not isinstance(run, str) or not isinstance(system, str):
            raise ConfigError(
                "a run's file needs the name of its system and of the run. Give protocol and run "
                '= "..."'
            )
        check_name(run=run)
        _check_settings(given)
        return cls(federation, run, system, json.dumps(given, sort_keys=True), os.urandom(16))

    @property
    def values(self) -> dict[str, Any]:
        """The settings, checked: an object that names no file and no code."""
        try:
            made = json.loads(self.settings)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("the settings of a proposal do not decode.") from error
        if not isinstance(made, dict):
            raise ProtocolError("the settings of a proposal must be a table.")
        _check_settings(made)
        return made


def _check_settings(values: Mapping[str, Any]) -> None:
    for key in ("source", "listen", "connect", "identity", "journal", "consent"):
        if key in values:
            raise ConfigError(
                f"{key} belongs to the file of a member, not to that of a run. Remove it."
            )
    check_portable(values)


def check_portable(value: object, name: str = "") -> None:
    """Refuse settings that name a file, or code: no member reads or imports what another one names.

    >>> check_portable({"policy": "mine.py:Best"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] policy names custom code, 'mine.py:Best', and members import
    no code of others. Use a policy that ships with Posse.
    """
    match value:
        case Mapping():
            for key, each in value.items():
                check_portable(each, f"{name}.{key}" if name else str(key))
        case list() | tuple():
            for each in value:
                check_portable(each, name)
        case str():
            if name.split(".")[0] == "policy" and ":" in value:
                raise ConfigError(
                    f"{name} names custom code, '{value[:80]}', and members import no code of others. "
                    "Use a policy that ships with Posse."
                )
            if _PATH.search(value) and not _FRACTION.fullmatch(value):
                raise ConfigError(
                    f"{name} names a file, '{value[:80]}', that other members do not have. Use "
                    "embedded data."
                )


class Signed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A proposal as it travels: encoded, signed by its proposer, whose certificate goes with it."""

    body: bytes
    signature: bytes
    certificate: bytes

    @classmethod
    def sign(cls, proposal: Proposal, identity: PartyIdentity) -> Signed:
        """Sign a proposal."""
        body = msgspec.msgpack.encode(proposal)
        certificate = identity.certificate.public_bytes(Encoding.DER)
        return cls(body, identity.signing.sign(_PURPOSE, body), certificate)

    @classmethod
    def read(cls, word: str) -> Signed:
        """Read what `word` wrote."""
        return msgspec.msgpack.decode(base64.b64decode(word), type=cls)

    @property
    def word(self) -> str:
        """Write it as one word, for a file."""
        return base64.b64encode(msgspec.msgpack.encode(self)).decode()

    @property
    def digest(self) -> str:
        """Name of the proposal; 128 bits of SHA-256 over all that was signed."""
        return hashlib.sha256(self.body).hexdigest()[:32]

    @property
    def proposal(self) -> Proposal:
        """Decode it; who signed it is not looked at."""
        try:
            return msgspec.msgpack.decode(self.body, type=Proposal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError("a proposal does not decode.") from error

    def check(self, identity: PartyIdentity, now: datetime) -> tuple[Proposal, str]:
        """Return the proposal and who made it, or raise unless a member in force signed it for this
        federation.
        """
        peer = identity.check(self.certificate, now)
        verify(peer.public, _PURPOSE, self.body, self.signature)
        proposal = self.proposal
        if proposal.federation != identity.run:
            raise ProtocolError(
                f"the proposal is for federation '{proposal.federation}', this is '{identity.run}'."
            )
        check_name(run=proposal.run)
        return proposal, peer.name


# What travels -------------------------------------------------------------------------------------

PROPOSED, STARTED, DROPPED, OVER = "proposed", "started", "dropped", "over"
"""How far the founder is with a run."""
ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"
"""What a member says of it besides: it has started it, its part is over, or it has dropped it."""
ENDED = (REFUSED, OVER, FAILED, DROPPED)
"""States after which a member does nothing more for a run."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag="Told", forbid_unknown_fields=True):
    """Base of what travels on a control connection."""


class Line(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One run on a sheet."""

    signed: Signed
    phase: str
    addresses: dict[str, str]
    """Where parties of the run listen, by name."""
    without: tuple[str, ...] = ()
    """Parties that were expelled since it started."""
    certificates: dict[str, bytes] = {}
    """Certificates (DER) of others that this member's part reads, by name."""


class Sheet(Told, frozen=True, array_like=True, tag="Sheet", forbid_unknown_fields=True):
    """From the founder: every run that this member has still to do with, and the revocation list
    (DER).
    """

    lines: tuple[Line, ...]
    revoked: bytes


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a member made of one run."""

    digest: str
    state: str
    text: str = ""
    """Why it refused or failed; of one that has started, why its part stands still."""


class Report(Told, frozen=True, array_like=True, tag="Report", forbid_unknown_fields=True):
    """From a member: where it listens, and what it made of the runs on its sheet."""

    address: str
    entries: tuple[Entry, ...]


class Renew(Told, frozen=True, array_like=True, tag="Renew", forbid_unknown_fields=True):
    """From a member: sign this key again, or a new one."""

    csr: bytes


class Renewed(Told, frozen=True, array_like=True, tag="Renewed", forbid_unknown_fields=True):
    """From the founder: the new certificate (DER), or why there is none."""

    certificate: bytes
    reason: str = ""


class Leave(Told, frozen=True, array_like=True, tag="Leave", forbid_unknown_fields=True):
    """From a member: revoke its certificate, it leaves the federation."""


class Left(Told, frozen=True, array_like=True, tag="Left", forbid_unknown_fields=True):
    """From the founder: the member has left, or why it may not now."""

    reason: str = ""


class Propose(Told, frozen=True, array_like=True, tag="Propose", forbid_unknown_fields=True):
    """From a member: put this run into the queue."""

    signed: Signed


class Wanted(Told, frozen=True, array_like=True, tag="Wanted", forbid_unknown_fields=True):
    """From a member that proposed a run: say how far it is, or drop it."""

    run: str
    drop: bool = False


class Shown(Told, frozen=True, array_like=True, tag="Shown", forbid_unknown_fields=True):
    """From the founder: how far a run is that this member proposed (JSON), or why it is not in the
    queue.
    """

    run: str
    state: str
    reason: str = ""


class Recall(Told, frozen=True, array_like=True, tag="Recall", forbid_unknown_fields=True):
    """From a member whose ledger came from a backup: which runs was it in?"""


class Past(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A run that started, as the founder remembers it."""

    run: str
    digest: str
    state: str
    """What the member last said of it."""
    demand: Demand | None
    """What it asked of the member; None where its settings cannot be read any more."""


class Recalled(Told, frozen=True, array_like=True, tag="Recalled", forbid_unknown_fields=True):
    """From the founder: every run that started with this member in it."""

    runs: tuple[Past, ...]


_Any = Union[Sheet, Report, Renew, Renewed, Leave, Left, Propose, Wanted, Shown, Recall, Recalled]  # noqa: UP007
_decode = msgspec.msgpack.Decoder(_Any).decode
encode = msgspec.msgpack.Encoder().encode


def decode(body: bytes) -> Told:
    """Decode what came on a control connection, strictly."""
    try:
        return _decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"what came on the control connection does not decode: {error}.") from error
