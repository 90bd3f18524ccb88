"""A secure round at the server: the five stages of `posse.privacy.aggregation` as five exchanges with the nodes.

The server moves sealed shares and adds masked words; it holds no single update. Names in the terms are fingerprints of
the nodes' registered keys. A stage is over when all have answered or the time is; a round that lost more devices than
the plan allows for, or has fewer left than `least`, gives no sum and is done again with other terms. Devices whose
shares do not open, or give no secret, are left out of it, and of some rounds more, as long as others are enough.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flwr.app import ConfigRecord, RecordDict

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.aggregation import Server, Stage, Terms, from_ring, plan
from posse.privacy.crypto.keys import fingerprint
from posse.protocols.fed_contextual.flower.client_app import SECURE
from posse.protocols.fed_contextual.flower.fleet import REST, Fleet, Node
from posse.protocols.fed_contextual.flower.secure_wire import (
    MEASURED,
    MESSAGE,
    STAGE,
    TERMS,
    decode,
    encode,
    identity_of,
    split,
    subject_of,
)  # fmt: skip
from posse.protocols.fed_contextual.flower.settings import FEWEST

KIND = f"train.{SECURE}"


def secure_sum(
    fleet: Fleet, nodes: Sequence[Node], number: int, sent: RecordDict, run_id: str, like: Any
) -> tuple[Any, list[float], list[Any]] | None:
    """Add the updates of a cohort under masks; None where too few were left.

    Returns the sum as a tree of whole numbers, what was measured, and the names of those in the sum.
    """
    shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(like)]
    length = sum(int(leaf.size) for leaf in jax.tree.leaves(like)) + MEASURED
    by_name = _named(_unsuspected(fleet, nodes, number))
    try:
        terms = _terms(fleet, by_name, number, length, run_id, subject_of(sent, fleet.settings))
    except ConfigError as error:
        fleet.say(f"round {number + 1}: {error}")
        return None
    server = Server(terms)
    orders = {name: _order(Stage.KEYS, **{TERMS: encode(terms)}) for name in terms.clients}
    for stage in list(Stage)[:-1]:
        _take(fleet, server, by_name, orders, number)
        try:
            actions = server.close(stage)
            _check_least(fleet, server)
        except ProtocolError as error:
            fleet.say(f"round {number + 1}: {error}")
            return None
        finally:
            fleet.suspected.update({by_name[name][0].id: number for name in server.suspects})
        orders = {
            action[1]: _order(server.stage, **{MESSAGE: encode(action[2])})
            for action in actions
            if isinstance(action, tuple)
        }
        if server.stage == Stage.MASKED:
            for order in orders.values():
                order.update(sent)
    leaves, (reward, samples, probability, within) = split(from_ring(server.total), shapes)
    told = [reward, samples, probability, float(len(server.survivors)), within]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), told, list(server.survivors)


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
    found: dict[str, tuple[Node, bytes]] = {}
    for node in nodes:
        if not node.public:
            raise ConfigError(
                "secure sums need nodes with registered keys. Start the SuperLink with --enable-supernode-auth."
            )
        public = identity_of(node.public)
        found[fingerprint(public)] = (node, public)
    return dict(sorted(found.items()))


def _terms(fleet: Fleet, by_name: Mapping[str, Any], number: int, length: int, run_id: str, subject: bytes) -> Terms:
    settings = fleet.settings
    made = plan(len(by_name), corrupt=settings.corrupt, dropout=settings.dropout)
    identities = tuple(public for _, public in by_name.values())
    return Terms(run_id, number, tuple(by_name), identities, length, made, os.urandom(32), subject)


def _take(
    fleet: Fleet, server: Server, by_name: Mapping[str, tuple[Node, bytes]], orders: Mapping[str, RecordDict], at: int
) -> None:  # fmt: skip
    """Send the orders of a stage and hand the answers to the server; a wrong one counts as none."""
    names = {by_name[name][0].id: name for name in orders}
    for node, reply in fleet.ask({by_name[name][0]: order for name, order in orders.items()}, at, KIND).items():
        try:
            server.receive(names[node.id], decode(reply[STAGE][MESSAGE]))
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            fleet.say(f"round {at + 1}: {node.name or node.id} sent what does not belong to the round: {error}")


def _order(stage: Stage, **content: bytes) -> RecordDict:
    return RecordDict({STAGE: ConfigRecord({STAGE: int(stage), **content})})
