"""A secure round at a device: the client of `posse.privacy.aggregation` between Flower's messages.

Every message starts a process, so the client's snapshot and the root of its secrets wait in `Context.state`, until its
part of the round is over. Flower puts that state away after the answer has left; so that no message is ever answered
twice, whatever happens in between, each (round, stage) is marked in a file first, and a second message of its kind is
refused. Marks are kept for 30 days.

What the server says is not taken on trust: the plan must be the one that follows from its numbers, it must suppose as
many corrupt devices and leave as many honest ones in a sum as the node's own configuration demands, and where the node
has a `roster` (a file of known keys, a line each) every identity of the terms must be in it and the plan must have a
quorum. What the device computes from (the model, the norm, the round, the settings of the run) must be what the terms
say, which are the same for all devices of a sum: each signs their digest with its keys and with the set of survivors,
and takes part with nobody who signed another one.

| key of the node's configuration | means |
|---|---|
| `key` | the node's private key, the file given to --auth-supernode-private-key; P-256 |
| `roster` | file of the public keys that may take part, as `ssh-keygen` writes them, from whoever runs the fleet |
| `least-honest` | honest devices that must be left in a sum; 2 if not given, and at least |
| `corrupt` | share of the devices that the plan must suppose to be with the server; .1 if not given |
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Context, RecordDict

from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.roles import WORLD, Action, Message
from posse.privacy.aggregation import Client, Plan, Terms, complete_plan, plan
from posse.privacy.aggregation.client import SERVER
from posse.privacy.aggregation.messages import Contribute, Contribution
from posse.privacy.crypto.keys import Identity, Secrets, fingerprint
from posse.protocols.fed_contextual.flower.secure_wire import (
    MESSAGE,
    STAGE,
    TERMS,
    decode,
    decode_terms,
    encode,
    identity_of,
    subject_of,
    words_of,
)  # fmt: skip
from posse.protocols.fed_contextual.flower.settings import DeviceSettings

STATE = "secure"
LEAST_HONEST = 2
CORRUPT = 0.1
"""Share of devices that a plan must suppose to be with the server."""
KEPT = 30 * 86_400.0
"""Seconds for which marks of answered messages are kept."""


def answer(sent: RecordDict, context: Context) -> RecordDict:
    """Answer one stage."""
    told: Any = sent[STAGE]
    identity = identity_from(context.node_config)
    if TERMS in told:
        terms, secrets = decode_terms(told[TERMS]), Secrets.fresh()
        if terms.run != str(context.run_id):
            raise ProtocolError(f"the terms are of run '{terms.run}', and this device is in run '{context.run_id}'.")
        check_terms(terms, context.node_config)
        client = Client(fingerprint(identity.public), terms, identity, secrets)
        _mark(terms, client.name, "start")
        actions = client.start()
    else:
        terms, secrets, client = _restored(context, identity)
        message = decode(told[MESSAGE])
        if getattr(message, "terms", None) != terms.digest:
            raise ProtocolError("the message is not of the round that this device is in; it is not answered.")
        _mark(terms, client.name, type(message).__name__)
        actions = client.receive(SERVER, message)
        if any(isinstance(action, Contribute) for action in actions):
            actions = client.receive(WORLD, _contribution(sent, context, terms))
    if client.finished:  # no secret of a round outlives it
        context.state.pop(STATE, None)
    else:
        context.state[STATE] = ConfigRecord(
            {"terms": encode(terms), "root": secrets.export(), "saved": msgspec.msgpack.encode(client.save())}
        )
    return RecordDict({STAGE: ConfigRecord({MESSAGE: encode(_reply(actions))})})


def identity_from(node: Mapping[str, Any]) -> Identity:
    """Read the node's key."""
    if "key" not in node:
        raise ConfigError("secure sums need 'key' in the node's configuration: the file of its private key.")
    path = Path(str(node["key"])).expanduser()
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"the node's key {path} cannot be read: {error}. Make one with 'ssh-keygen -t ecdsa'."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"the node's key {path} must be an ECDSA key. Make one with 'ssh-keygen -t ecdsa -b 256'.")
    return Identity(key)


def check_terms(terms: Terms, node: Mapping[str, Any]) -> None:
    """Refuse terms that protect less than this device demands."""
    made = terms.plan
    if "roster" in node:
        unknown = set(terms.identities) - roster(Path(str(node["roster"])).expanduser())
        if unknown:
            raise ProtocolError(f"the terms name {len(unknown)} keys that are not in this device's roster.")
        if not made.quorum:
            raise ProtocolError(
                "a device with a roster demands a quorum, and this round's plan has none. Plan for fewer dropouts, or "
                "for at most 128 devices a round."
            )
    corrupt = math.ceil(_share(node) * made.clients - 1e-9)
    if made.corrupt < corrupt:
        raise ProtocolError(
            f"a plan for {made.clients} devices must suppose {corrupt} of them to be corrupt, and this one supposes "
            f"{made.corrupt}. Raise 'corrupt' of the run, or lower the node's."
        )
    least, left = max(int(node.get("least-honest", LEAST_HONEST)), LEAST_HONEST), made.honest_survivors
    if left < least:
        raise ProtocolError(f"a sum must be of {least} honest devices at least, and this round's plan is for {left}.")
    if not _known(made):
        raise ProtocolError("the plan of this round is not the one that follows from its numbers.")


def _share(node: Mapping[str, Any]) -> float:
    found = node.get("corrupt", CORRUPT)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1:
        raise ConfigError(
            f"corrupt must be a share from 0 to below 1, got {found!r}. Correct the node's configuration."
        )
    return float(found)


def roster(path: Path) -> frozenset[bytes]:
    """Read the keys that may take part, as identities."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"the roster {path} cannot be read: {error.strerror}.") from error
    return frozenset(identity_of(line) for line in lines)


def _known(told: Plan) -> bool:
    if told.complete:
        return told == complete_plan(told.clients, corrupt=told.corrupt, dropouts=told.dropouts)
    return told == plan(told.clients, corrupt=told.corrupt / told.clients, dropout=told.dropouts / told.clients)


def _restored(context: Context, identity: Identity) -> tuple[Terms, Secrets, Client]:
    kept: Any = context.state.get(STATE)
    if kept is None:
        raise ProtocolError("this device is in no secure round; it drops out.")
    terms, secrets = decode_terms(kept["terms"]), Secrets(kept["root"])
    client = Client(fingerprint(identity.public), terms, identity, secrets)
    client.load(msgspec.msgpack.decode(kept["saved"]))
    return terms, secrets, client


def _contribution(sent: RecordDict, context: Context, terms: Terms) -> Contribution:
    """Compute the device's vector, from what the terms say and nothing else; its integer norm is checked."""
    from posse.protocols.fed_contextual.flower import carry
    from posse.protocols.fed_contextual.flower.advance import check_update
    from posse.protocols.fed_contextual.flower.client_app import contribution

    settings = DeviceSettings.of(dict(context.run_config))
    limit = check_order(sent, settings, terms)
    learnt = contribution(settings, sent, context)
    leaves = carry.leaves_of(learnt.update)
    check_update(leaves, leaves, limit, settings.rounded_to)
    return Contribution(terms.round, words_of(learnt).astype("<u4").tobytes())


def check_order(sent: RecordDict, settings: DeviceSettings, terms: Terms) -> float:
    """Refuse an order that is not the one of the terms, or has no norm; return the norm."""
    from posse.protocols.fed_contextual.flower.carry import ROUND

    if subject_of(sent, settings) != terms.subject:
        raise ProtocolError(
            "the model, the norm or the settings are not those of this round's terms. Both ends need the same run."
        )
    told: Any = sent[ROUND]
    number, limit = int(told["round"]), float(told["limit"])
    if number != terms.round or not (math.isfinite(limit) and limit > 0):
        raise ProtocolError(
            f"an order of round {terms.round} must have its number and a norm above 0, got {number} and {limit:g}."
        )
    return limit


def _mark(terms: Terms, name: str, stage: str) -> None:
    """Note that a message of a round is being answered; refuse a second one."""
    folder = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "posse-answered"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if stage == "start":
        _prune(folder)
    mark = hashlib.sha256(terms.digest + f"{name} {stage}".encode()).hexdigest()
    try:
        os.close(os.open(folder / mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise ProtocolError(f"this device has answered '{stage}' of this round already.") from None


def _prune(folder: Path) -> None:
    old = time.time() - KEPT
    for mark in folder.iterdir():
        with suppress(FileNotFoundError):  # another device of this machine was faster
            if mark.stat().st_mtime < old:
                mark.unlink()


def _reply(actions: Sequence[Action]) -> Message:
    ((_, _, message),) = (action for action in actions if isinstance(action, tuple))
    return message
