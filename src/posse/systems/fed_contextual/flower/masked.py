"""Secure sums at the server: the five stages of `posse.privacy.aggregation` as five exchanges with
the nodes.

The server moves sealed shares and adds masked words; it holds no single update. Names in the terms
are fingerprints of the nodes' registered keys. A stage is over when all have answered or the time
is; a round that lost more devices than the plan allows for, or has fewer left than `least`, gives
no sum and is done again with other terms. Devices whose shares do not open, or give no secret, are
left out of it, and of some rounds more, as long as others are enough.

A device helps to unmask one sum of a model. So the request goes to the disk before it leaves, with
the masked sum (`unmasking.msgpack`): where shares are missing, and when a server was stopped, the
same request is sent once more, and devices answer it with the same bytes until they begin another
round.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from posse.core.errors import ConfigError, ProtocolError
from posse.core.files import write_whole
from posse.privacy.aggregation.messages import Unmask
from posse.privacy.aggregation.quantise import from_ring
from posse.privacy.aggregation.server import Server, Unmasking
from posse.privacy.aggregation.terms import Stage, Terms, plan
from posse.privacy.crypto.keys import fingerprint
from posse.systems.fed_contextual.flower import wire
from posse.systems.fed_contextual.flower.secure import SECURE
from posse.systems.fed_contextual.flower.settings import FEWEST, UNMASKING, DeviceSettings

if TYPE_CHECKING:
    from posse.systems.fed_contextual.flower.fleet import Fleet, Node

KIND = f"train.{SECURE}"
REST = 5
"""Rounds for which a silent or suspected node is left out."""
Summed = tuple[NDArray[np.int64], tuple[str, ...]]
"""A sum of vectors, and whose vectors are in it."""


class Unfinished(msgspec.Struct, frozen=True):
    """A sum that devices were asked to unmask."""

    subject: bytes
    terms: Terms
    masked: Unmasking
    requests: dict[str, Unmask]


def unfinished(settings: DeviceSettings, order: RecordDict) -> Unfinished | None:
    """Return the sum of this very order that the last server was to unmask, if there is one."""
    with suppress(OSError, msgspec.MsgspecError, ConfigError):
        kept = msgspec.msgpack.decode(_file(settings).read_bytes(), type=Unfinished)
        return kept if kept.subject == wire.subject_of(order, settings) else None
    return None


def _file(settings: DeviceSettings) -> Path:
    return Path(settings.out).expanduser() / UNMASKING


def under_masks(
    fleet: Fleet,
    nodes: Sequence[Node],
    order: RecordDict,
    number: int,
    length: int,
    run_id: str,
    at: int,
) -> Summed | None:
    """Add vectors of devices under masks; None where too few were left.

    `number` is the round of the terms, `at` the round of training in which it happens.
    """
    if (kept := unfinished(fleet.settings, order)) is not None:
        return _unmasked(fleet, Server(kept.terms, kept.masked), _named(nodes), kept.requests, at)
    by_name = _named(_unsuspected(fleet, nodes, at))
    subject = wire.subject_of(order, fleet.settings)
    try:
        terms = _terms(fleet, by_name, number, length, run_id, subject)
    except ConfigError as error:
        fleet.say(f"round {at + 1}: {error}")
        return None
    server = Server(terms)
    orders = {
        name: _order(Stage.KEYS, **{wire.TERMS: wire.encode(terms)}) for name in terms.clients
    }
    try:
        while True:
            _take(fleet, server, by_name, orders, at)
            told = {
                action[1]: action[2]
                for action in server.close(server.stage)
                if isinstance(action, tuple)
            }
            _check_least(fleet, server)
            if server.stage == Stage.UNMASK:
                break
            orders = {
                name: _order(server.stage, **{wire.MESSAGE: wire.encode(one)})
                for name, one in told.items()
            }
            if server.stage == Stage.MASKED:
                for one in orders.values():
                    one.update(order)
    except ProtocolError as error:
        fleet.say(f"round {at + 1}: {error}")
        return None
    finally:
        fleet.suspected.update({by_name[name][0].id: at for name in server.suspects})
    requests = {name: one for name, one in told.items() if isinstance(one, Unmask)}
    fleet.note_unmasked(order, list(requests))
    kept = Unfinished(subject, terms, server.masked, requests)
    write_whole(_file(fleet.settings), msgspec.msgpack.encode(kept))
    return _unmasked(fleet, server, by_name, requests, at)


def _unmasked(
    fleet: Fleet,
    server: Server,
    by_name: Mapping[str, tuple[Node, bytes]],
    requests: Mapping[str, Unmask],
    at: int,
) -> Summed | None:
    """Ask for shares, twice where some are missing, and take the masks off; what fails now is lost
    for good.
    """
    orders = {
        name: _order(Stage.UNMASK, **{wire.MESSAGE: wire.encode(one)})
        for name, one in requests.items()
        if name in by_name
    }
    try:
        came = _take(fleet, server, by_name, orders, at)
        try:
            server.close(Stage.UNMASK)
        except ProtocolError:
            _take(
                fleet,
                server,
                by_name,
                {name: orders[name] for name in orders if name not in came},
                at,
            )
            server.close(Stage.UNMASK)
    except ProtocolError as error:
        fleet.say(f"round {at + 1}: {error}")
        _file(fleet.settings).unlink(missing_ok=True)
        return None
    finally:
        fleet.suspected.update(
            {by_name[name][0].id: at for name in server.suspects if name in by_name}
        )
    return from_ring(server.total), server.survivors


def _check_least(fleet: Fleet, server: Server) -> None:
    """Give a round with too few survivors up before its sum is known."""
    left, least = len(server.survivors), fleet.settings.least
    if server.stage > Stage.MASKED and left < least:
        raise ProtocolError(f"a round needs {least} answers, got {left}.")


def _unsuspected(fleet: Fleet, nodes: Sequence[Node], number: int) -> Sequence[Node]:
    """Leave out whoever was suspected lately, as long as others are enough."""
    kept = [node for node in nodes if fleet.suspected.get(node.id, -REST) + REST <= number]
    return kept if len(kept) >= max(FEWEST, fleet.settings.least) else nodes


def _named(nodes: Sequence[Node]) -> dict[str, tuple[Node, bytes]]:
    named: dict[str, tuple[Node, bytes]] = {}
    for node in nodes:
        if not node.public:
            raise ConfigError(
                "secure sums need nodes with registered keys. Start the SuperLink with "
                "--enable-supernode-auth."
            )
        public = wire.identity_of(node.public)
        named[fingerprint(public)] = (node, public)
    return dict(sorted(named.items()))


def _terms(
    fleet: Fleet, by_name: Mapping[str, Any], number: int, length: int, run_id: str, subject: bytes
) -> Terms:
    settings = fleet.settings
    made = plan(len(by_name), corrupt=settings.corrupt, dropout=settings.dropout)
    identities = tuple(public for _, public in by_name.values())
    return Terms(run_id, number, tuple(by_name), identities, length, made, os.urandom(32), subject)


def _take(
    fleet: Fleet,
    server: Server,
    by_name: Mapping[str, tuple[Node, bytes]],
    orders: Mapping[str, RecordDict],
    at: int,
) -> set[str]:
    """Send the orders of a stage and hand the answers to the server; return who gave a right
    one.
    """
    names, came = {by_name[name][0].id: name for name in orders}, set()
    sent = {by_name[name][0]: order for name, order in orders.items()}
    for node, reply in fleet.ask(sent, at, KIND, server.enough).items():
        try:
            server.receive(names[node.id], wire.decode(reply[wire.STAGE][wire.MESSAGE]))
            came.add(names[node.id])
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            fleet.say(
                f"round {at + 1}: {node.called} sent what does not belong to the round: {error}"
            )
    return came


def _order(stage: Stage, **content: bytes) -> RecordDict:
    return RecordDict({wire.STAGE: ConfigRecord({wire.STAGE: int(stage), **content})})
