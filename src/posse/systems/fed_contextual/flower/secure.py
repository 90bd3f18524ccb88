"""A device's part of secure rounds: what it refuses, what it computes from, and the file that keeps
it to one answer.

A secure round is the client of `posse.privacy.aggregation` between Flower's messages, each of which
starts a process. All that a device must remember is in one file of its own (`Seat`): a step of a
round is on disk, with the answer that it gives, before the answer leaves. So whatever a server
sends, in whatever order, and whenever the device stops:
- the same message has the same answer, byte for byte, until the next round begins;
- a device gives one vector for a (run, round) and for a model: a round that is done again masks the
  recorded one;
- it helps to unmask one sum of a (run, round) and one of a model, whatever the terms, the run and
  the number of the round; after that it takes no part in another.
The file must last as long as the device does: without it, and with an old copy of it, the device
knows of nothing.

What the server says is not taken on trust: the plan must be the one that follows from its numbers,
it must suppose as many corrupt devices, leave as many honest ones in a sum and be for as many
devices as the node's own configuration demands, and have a quorum where all are neighbours. In
sparse plans, which have none, a device takes part only if its configuration says `semi-honest =
true`. Where the node has a `roster` (a file of known keys, a line each) every identity of the terms
must be in it. What the device computes from (the model, the norm, the round, the settings of the
run) must be what the terms say, which are the same for all devices of a sum: each signs their
digest with its keys and with the set of survivors, and takes part with nobody who signed another
one.

Whether a device answers depends on nothing that it has: a device whose data cannot be used sends
zeros.

Keys of the node's configuration (`key`, `roster`, `least-honest`, `least-cohort`, `corrupt`,
`semi-honest`): docs/devices.md.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Context, RecordDict

from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.files import make_private_folder
from posse.core.roles import WORLD, Action, Message, forbid_reveal
from posse.privacy.aggregation.client import SERVER, Client
from posse.privacy.aggregation.messages import Contribute, Contribution, Unmask
from posse.privacy.aggregation.terms import Plan, Terms, complete_plan, plan
from posse.privacy.crypto.keys import Identity, Secrets, fingerprint
from posse.systems.fed_contextual.flower import wire
from posse.systems.fed_contextual.flower.settings import DeviceSettings

SECURE = "secure"
"""Action of the messages of a secure round."""
LEAST_HONEST = 2
LEAST_COHORT = 16
"""Devices of a round at least, where the node's configuration does not say: the server chooses who
is in it.
"""
CORRUPT = 0.1
"""Share of devices that a plan must suppose to be with the server."""
WAIT = 3600.0
"""Seconds that a message waits for another one of the same device to be answered."""
_TABLES = """
create table if not exists present (one integer primary key check (one = 0), terms blob, root blob, saved blob);
create table if not exists begun (terms blob primary key);
create table if not exists answers (request blob primary key, reply blob);
create table if not exists rounds (run text, round integer, subject blob, primary key (run, round));
create table if not exists vectors (model blob primary key, subject blob, words blob, unmasked integer);
"""


@dataclass(frozen=True)
class Work:
    """What a server asks a device to compute: by its digest, its round, the model it begins from,
    and the words.
    """

    subject: bytes
    round: int
    model: bytes
    words: Callable[[], bytes]
    """The vector of the device, little-endian words modulo 2^32; called at most once for a
    subject.
    """


class Seat:
    """A device's place in secure rounds, in a file; every step is one transaction."""

    def __init__(self, path: Path, identity: Identity) -> None:
        make_private_folder(path.parent)
        self.name, self._path, self._identity = fingerprint(identity.public), path, identity
        with closing(self._open()) as file:
            file.executescript(_TABLES)
        path.chmod(0o600)

    def begin(self, terms: Terms) -> Message:
        """Advertise keys for a round; what was under way is given up."""
        return self._once(wire.encode(terms), lambda file: self._begin(file, terms))

    def receive(self, message: Message, work: Work | None = None) -> Message:
        """Answer a message of the round under way."""
        request = wire.encode(message) + (work.subject if work else b"")
        return self._once(request, lambda file: self._step(file, message, work))

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=WAIT, isolation_level=None)
        file.execute("pragma synchronous = full")  # of this connection alone
        return file

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(self._open()) as file:
            file.execute("begin immediate")
            try:
                yield file
            except BaseException:
                file.execute("rollback")
                raise
            file.execute("commit")

    def _once(self, request: bytes, step: Callable[[sqlite3.Connection], Message]) -> Message:
        """Repeat the recorded answer, or make the step and record it."""
        key = hashlib.sha256(request).digest()
        with self._transaction() as file:
            recorded = file.execute(
                "select reply from answers where request = ?", (key,)
            ).fetchone()
            if recorded:
                return wire.decode(recorded[0])
            reply = step(file)
            file.execute("insert into answers values (?, ?)", (key, wire.encode(reply)))
        return reply

    def _begin(self, file: sqlite3.Connection, terms: Terms) -> Message:
        if file.execute("select 1 from begun where terms = ?", (terms.digest,)).fetchone():
            raise ProtocolError(
                "this device has already begun a round with these terms, and begins each round "
                "once."
            )
        _check_round(file, terms)
        secrets = Secrets.fresh()
        client = self._client(terms, secrets)
        actions = client.start()
        file.execute("insert into begun values (?)", (terms.digest,))
        file.execute("delete from answers")
        file.execute("update vectors set words = null where subject != ?", (terms.subject,))
        self._put(file, terms, secrets, client)
        return _reply(actions)

    def _client(self, terms: Terms, secrets: Secrets) -> Client:
        client = Client(self.name, terms, self._identity, secrets)
        forbid_reveal(client)
        return client

    def _step(self, file: sqlite3.Connection, message: Message, work: Work | None) -> Message:
        terms, secrets, client = self._restored(file)
        if getattr(message, "terms", None) != terms.digest:
            raise ProtocolError(
                "the message belongs to another round than this device is in, and gets no answer."
            )
        actions = client.receive(SERVER, message)
        if any(isinstance(action, Contribute) for action in actions):
            actions = client.receive(WORLD, Contribution(terms.round, _vector(file, terms, work)))
        if isinstance(message, Unmask):
            file.execute(
                "update vectors set unmasked = 1, words = null where subject = ?", (terms.subject,)
            )
        if client.finished:  # no secret of a round outlives it
            file.execute("delete from present")
        else:
            self._put(file, terms, secrets, client)
        return _reply(actions)

    def _put(
        self, file: sqlite3.Connection, terms: Terms, secrets: Secrets, client: Client
    ) -> None:
        saved = msgspec.msgpack.encode(client.save())
        file.execute(
            "replace into present values (0, ?, ?, ?)",
            (wire.encode(terms), secrets.export(), saved),
        )

    def _restored(self, file: sqlite3.Connection) -> tuple[Terms, Secrets, Client]:
        kept = file.execute("select terms, root, saved from present").fetchone()
        if kept is None:
            raise ProtocolError(
                "this device is not in a secure round. It does not take part in this one."
            )
        terms, secrets = wire.decode_terms(kept[0]), Secrets(kept[1])
        client = self._client(terms, secrets)
        client.load(msgspec.msgpack.decode(kept[2]))
        return terms, secrets, client


def _check_round(file: sqlite3.Connection, terms: Terms) -> None:
    """Refuse a round that this device computed from something else, or has helped to unmask."""
    number, about = terms.round + 1, (terms.run, terms.round)
    bound = file.execute("select subject from rounds where run = ? and round = ?", about).fetchone()
    if bound and bound[0] != terms.subject:
        raise ProtocolError(
            f"this device has already computed round {number} with another model, norm or settings."
        )
    if file.execute(
        "select 1 from vectors where subject = ? and unmasked", (terms.subject,)
    ).fetchone():
        raise ProtocolError(
            f"this device has already helped to unmask a sum of round {number}, and helps "
            "only once."
        )


def _vector(file: sqlite3.Connection, terms: Terms, work: Work | None) -> bytes:
    """Return the device's vector of a round: the recorded one, or computed from what the terms say
    and nothing else.
    """
    if work is None or work.subject != terms.subject or work.round != terms.round:
        raise ProtocolError(
            "the model, the norm, the round or the settings are not those of this round's terms. "
            "Both ends need the "
            "same run."
        )
    _check_round(file, terms)
    found = file.execute(
        "select subject, words from vectors where model = ?", (work.model,)
    ).fetchone()
    if found and (found[0] != work.subject or found[1] is None):
        raise ProtocolError(
            "this device has already sent a vector for this model in another round, and "
            "sends only one."
        )
    words: bytes = found[1] if found else work.words()
    if not found:
        file.execute("insert into vectors values (?, ?, ?, 0)", (work.model, work.subject, words))
    file.execute(
        "insert or ignore into rounds values (?, ?, ?)", (terms.run, terms.round, terms.subject)
    )
    return words


def _reply(actions: Any) -> Message:
    sent: list[Action] = [action for action in actions if isinstance(action, tuple)]
    ((_, _, message),) = sent  # type: ignore[misc]
    return message


# Between Flower's messages ------------------------------------------------------------------------


def answer(
    sent: RecordDict, context: Context, compute: Callable[[DeviceSettings], bytes]
) -> RecordDict:
    """Answer one stage; `compute` gives the device's vector, when it is needed."""
    stage: Any = sent[wire.STAGE]
    identity = identity_from(context.node_config)
    seat = Seat(file_of(identity), identity)
    if wire.TERMS in stage:
        terms = wire.decode_terms(stage[wire.TERMS])
        if terms.run != str(context.run_id):
            raise ProtocolError(
                f"the terms are of run '{terms.run}', and this device is in run '{context.run_id}'."
            )
        check_terms(terms, context.node_config)
        reply = seat.begin(terms)
    else:
        work = _work(sent, context, compute) if wire.ROUND in sent else None
        reply = seat.receive(wire.decode(stage[wire.MESSAGE]), work)
    return RecordDict({wire.STAGE: ConfigRecord({wire.MESSAGE: wire.encode(reply)})})


def home() -> Path:
    """Return Flower's folder on this device."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")


def file_of(identity: Identity) -> Path:
    """Return the file of a device's part in secure rounds."""
    return home() / "posse-rounds" / f"{fingerprint(identity.public)}.sqlite"


def _work(sent: RecordDict, context: Context, compute: Callable[[DeviceSettings], bytes]) -> Work:
    settings = DeviceSettings.of(dict(context.run_config))
    order: Any = sent[wire.ROUND]
    limit = float(order["limit"])
    if not (math.isfinite(limit) and limit > 0):
        raise ProtocolError(f"an order must have a norm above 0, got {limit:g}.")
    subject, model = wire.subject_of(sent, settings), wire.model_digest(sent)
    return Work(subject, int(order["round"]), model, lambda: compute(settings))


def identity_from(node: Mapping[str, Any]) -> Identity:
    """Read the node's key."""
    if "key" not in node:
        raise ConfigError(
            "secure sums need 'key' in the node's configuration: the file of its private key."
        )
    path = Path(str(node["key"])).expanduser()
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"the node's key {path} cannot be read: {error}. Make one with 'ssh-keygen -t ecdsa'."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(
            f"the node's key {path} must be an ECDSA key. Make one with 'ssh-keygen -t ecdsa -b "
            "256'."
        )
    return Identity(key)


def check_terms(terms: Terms, node: Mapping[str, Any]) -> None:
    """Refuse terms that protect less than this device demands."""
    made = terms.plan
    if "roster" in node:
        unknown = set(terms.identities) - roster(Path(str(node["roster"])).expanduser())
        if unknown:
            raise ProtocolError(
                f"the terms name {len(unknown)} keys that are not in this device's roster."
            )
    if not _known(made):
        raise ProtocolError(
            "the plan of this round was not computed from its own numbers: the server is "
            "faulty or dishonest."
        )
    if made.complete and not made.quorum:
        raise ProtocolError(
            "a device demands a quorum, and this round's plan has none. Plan for fewer dropouts."
        )
    if not made.complete and not _semi_honest(node):
        raise ProtocolError(
            "a plan for more than 128 devices has no quorum, so that the server must follow the "
            "protocol. Put "
            "'semi-honest = true' into this device's configuration if you trust it to, or take "
            "fewer devices a round."
        )
    corrupt = math.ceil(_share(node) * made.clients - 1e-9)
    if made.corrupt < corrupt:
        raise ProtocolError(
            f"a plan for {made.clients} devices must suppose {corrupt} of them to be corrupt, and "
            "this one supposes "
            f"{made.corrupt}. Raise 'corrupt' of the run, or lower the node's."
        )
    least, left = (
        max(int(node.get("least-honest", LEAST_HONEST)), LEAST_HONEST),
        made.honest_survivors,
    )
    if left < least:
        raise ProtocolError(
            f"a sum must be of {least} honest devices at least, and this round's plan is for "
            f"{left}."
        )
    least = int(node.get("least-cohort", LEAST_COHORT))
    if made.clients < least:
        raise ProtocolError(
            f"a round must be of {least} devices at least, and this one is of {made.clients}. "
            "Raise 'cohort' of the "
            "run, or lower 'least-cohort' of the node."
        )


def _semi_honest(node: Mapping[str, Any]) -> bool:
    trusted = node.get("semi-honest", False)
    if not isinstance(trusted, bool):
        raise ConfigError(
            f"semi-honest must be true or false, got {trusted!r}. Correct the node's configuration."
        )
    return trusted


def _share(node: Mapping[str, Any]) -> float:
    share = node.get("corrupt", CORRUPT)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ConfigError(
            f"corrupt must be a share from 0 to below 1, got {share!r}. Correct the node's "
            "configuration."
        )
    return float(share)


def roster(path: Path) -> frozenset[bytes]:
    """Read the keys that may take part, as identities."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"the roster {path} cannot be read: {error.strerror}.") from error
    return frozenset(wire.identity_of(line) for line in lines)


def _known(given: Plan) -> bool:
    """Whether a plan is the one that follows from its numbers; of probabilities machines differ in
    the last bit.
    """
    clients, corrupt, dropouts = given.clients, given.corrupt, given.dropouts
    if given.complete:
        made = complete_plan(clients, corrupt=corrupt, dropouts=dropouts)
    else:
        made = plan(clients, corrupt=corrupt / clients, dropout=dropouts / clients)
    return replace(given, leak=made.leak, fail=made.fail) == made
