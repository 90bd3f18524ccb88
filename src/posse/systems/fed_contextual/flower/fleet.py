"""The fleet as the server sees it: which nodes are there, which are asked, which answer in time,
and sums of them.

Sampling: with a seed the draws are the simulator's (`cohorts.draw` over the nodes in the order of
their names, then ids), else the operating system's. A round that has enough answers waits a grace
period for the others, and names who is missing. A node that did not answer is left out for some
rounds as long as others are enough; one that is gone is waited for once. Under noise every node
that is connected has a coin of its own, of chance cohort / devices; nobody is left out, and nobody
is drawn for being reliable.

A device helps to unmask one sum of a model (`masked`): who was asked to is noted on disk first
(`unmasked.json`) and left out of whatever begins from that model again.
"""

from __future__ import annotations

import json
import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.app import Message, MessageType, RecordDict
from numpy.typing import NDArray

from posse.core.errors import DataError, ProtocolError
from posse.core.files import write_whole
from posse.privacy.crypto.keys import fingerprint
from posse.systems.fed_contextual.computing.cohorts import draw
from posse.systems.fed_contextual.computing.models import Leaves, Tree, tree_of
from posse.systems.fed_contextual.computing.server import State
from posse.systems.fed_contextual.flower import masked, wire
from posse.systems.fed_contextual.flower.deployment import Versions
from posse.systems.fed_contextual.flower.settings import UNMASKED, DeviceSettings

DEPLOY = f"query.{wire.DEPLOY}"
LOOK = 0.3
"""Seconds between two looks for answers."""
EVERY = 60.0
"""Seconds between two deployments to devices at least."""
FIRST = 30.0
"""Seconds for the first answer to a deployed model at least: devices start a process for it."""
MODELS = 4
"""Models of which it is noted who helped to unmask a sum: that of a round, a candidate's, and those
before.
"""
MOST = 1e30
"""Rewards of a device, added up, are smaller."""


class Sum(NamedTuple):
    """A sum of updates, and how it came about."""

    total: Tree
    sums: list[float]
    """Rewards, samples, probabilities, devices, and updates within the norm."""
    devices: Sequence[Any] = ()
    """Who is in it: numbers, or names under masks."""
    masked: bool = False
    """Whether the server saw the sum alone."""
    noise: float = 0.0
    """Noise multiplier of what was added to it."""


@dataclass(frozen=True)
class Node:
    """A device that is connected."""

    id: int
    name: str = ""
    public: bytes = b""
    """Its registered key, as registered; empty in a simulation."""

    @property
    def called(self) -> str:
        """Its name, or its id where it has none."""
        return self.name or str(self.id)


@dataclass
class Fleet:
    """The nodes of a run; `warn` is called with what goes wrong."""

    grid: Any
    settings: DeviceSettings
    warn: Callable[[str], None]
    last: str = ""
    """The last thing that went wrong."""
    in_vain: int = 0
    """Rounds in a row that gave no sum; kept under noise."""
    suspected: dict[int, int] = field(default_factory=dict)
    """Round in which a node was last suspected in a secure sum, by id."""
    authenticated: bool = True
    """Whether all nodes that answered have registered keys."""
    sent: list[int] = field(default_factory=lambda: [0, 0])
    """Messages to nodes, and their bytes."""
    came: list[int] = field(default_factory=lambda: [0, 0])
    """Answers, and their bytes."""
    lost: set[str] = field(default_factory=set)
    """Devices that were asked in this round and did not answer."""
    _silent: dict[int, int] = field(default_factory=dict)
    _deploying: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    """Device, version and time of versions that were sent and not answered yet, by message."""
    _deployed: float = -math.inf
    """When versions were last sent."""
    _begun: bool = False
    _left: float = math.inf
    """Nodes of the last round that began with fewer than it wanted: later ones wait for no more."""

    def say(self, text: str) -> None:
        """Report what went wrong, and remember it."""
        self.last = text
        self.warn(text)

    def order(self, state: State) -> RecordDict:
        """Return what devices are sent in a round of training."""
        return wire.order_of(
            state, int(state.round) // self.settings.deploy_every * self.settings.deploy_every
        )

    def cohort(self, state: State, order: RecordDict | None = None) -> list[Node]:
        """Wait until there are enough nodes, and draw those of a round, in the order of the draw.

        `order` is what they will be sent, if it is not that of a round of training. Of a sum that
        was not unmasked when the server stopped, the cohort is its own.
        """
        round_, order = int(state.round), self.order(state) if order is None else order
        want, began, known = self.settings.cohort, time.monotonic(), self._begun
        awaited = min(want, self._left) if known else max(want, self.settings.start_with)
        while True:
            nodes, waited = self._present(), time.monotonic() - began
            if len(nodes) >= awaited:
                self._left = max(self._left, len(nodes))
                break
            if len(nodes) >= self.settings.enough and waited > (
                min(self.settings.grace, self.settings.timeout) if known else self.settings.timeout
            ):
                self.say(f"round {round_ + 1}: {len(nodes)} of {awaited} devices are connected")
                self._left = len(nodes)
                break
            if waited > self.settings.timeout:
                raise ProtocolError(
                    f"a round needs {self.settings.enough} nodes, got {len(nodes)} after "
                    f"{self.settings.timeout:g} s. "
                    "Start more SuperNodes, or look at their logs."
                )
            time.sleep(LOOK)
        self._begun = True
        if self.settings.secure and (again := masked.unfinished(self.settings, order)):
            return [node for node in nodes if node.public and _key(node) in again.requests]
        if self.settings.noise:
            return self._free(self._by_coins(nodes, round_), order, round_)
        return self._so_many(self._free(nodes, order, round_), round_)

    def _free(self, nodes: Sequence[Node], order: RecordDict, round_: int) -> list[Node]:
        """Leave out devices that were asked to unmask a sum of this very model: they do so once."""
        model = wire.model_digest(order).hex() if self.settings.secure else ""
        if not (helped := self._helped().get(model)):
            return list(nodes)
        free = [node for node in nodes if _key(node) not in helped]
        if len(free) < self.settings.enough and not self.settings.noise:
            raise ProtocolError(
                f"round {round_ + 1} needs {self.settings.enough} devices, and "
                f"{len(nodes) - len(free)} of "
                f"{len(nodes)} have helped to unmask a sum of this model, which a device does "
                "once. Start others, or a "
                "new run with 'start'."
            )
        return free

    def was_unmasked(self, state: State) -> bool:
        """Say whether devices were asked to unmask a sum of this model, of which they give no
        other.
        """
        return self.settings.secure and wire.model_digest(self.order(state)).hex() in self._helped()

    def note_unmasked(self, order: RecordDict, names: Sequence[str]) -> None:
        """Note who is asked to help with the sum of a model, before anyone is."""
        found, model = self._helped(), wire.model_digest(order).hex()
        found[model] = sorted({*found.pop(model, ()), *names})
        last = json.dumps(dict([*found.items()][-MODELS:]))
        write_whole(Path(self.settings.out).expanduser() / UNMASKED, last.encode())

    def _helped(self) -> dict[str, list[str]]:
        with suppress(OSError, ValueError):
            return dict(json.loads((Path(self.settings.out).expanduser() / UNMASKED).read_text()))
        return {}

    def _so_many(self, nodes: Sequence[Node], round_: int) -> list[Node]:
        """Draw a cohort without replacement, of those who answered lately if they are enough."""
        awake = [
            node
            for node in nodes
            if self._silent.get(node.id, -masked.REST) + masked.REST <= round_
        ]
        nodes = awake if len(awake) >= self.settings.enough else nodes
        count = min(self.settings.cohort, len(nodes))
        if self.settings.seed < 0:
            return random.SystemRandom().sample(nodes, count)
        numbers, _ = draw(self.settings.seed, round_, len(nodes), count, "fixed")
        return [nodes[at] for at in numbers.tolist()]

    def _by_coins(self, nodes: Sequence[Node], round_: int) -> list[Node]:
        """Draw each node with the chance cohort / devices; with a seed the simulator's draw, of
        those who are there.
        """
        seed, cohort, devices = self.settings.seed, self.settings.cohort, self.settings.devices
        if seed < 0:
            drawn = [node for node in nodes if secrets.randbelow(devices) < cohort]
        else:
            numbers, here = draw(seed, round_, devices, cohort, "poisson")
            drawn = [nodes[at] for at in numbers[here > 0].tolist() if at < len(nodes)]
        if len(drawn) > self.settings.most_drawn:
            raise ProtocolError(
                f"round {round_ + 1} drew {len(drawn)} devices, and {devices} declared ones give "
                "at most "
                f"{self.settings.most_drawn}. Raise devices: cutting the cohort would void the "
                "guarantee."
            )
        return drawn

    def ask(
        self,
        sent: Mapping[Node, RecordDict],
        round_: int,
        kind: str = MessageType.TRAIN,
        enough: int = 0,
    ) -> dict[Node, RecordDict]:
        """Send to nodes and wait for answers, the answers in the order of the nodes.

        Until the time is over, or with `enough` answers (0: the run's least) until the others had
        their grace period.
        """
        settings, waiting = self.settings, self._push(sent, kind, str(round_ + 1))
        began = time.monotonic()
        for content in sent.values():
            _count(self.sent, content)
        came: dict[int, RecordDict] = {}
        end, met = began + settings.timeout, False
        while waiting:
            over = (
                time.monotonic() >= end
            )  # what has come by then is taken, also where nobody could look before
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    self._missing(node, round_, f"failed: {reply.error.reason}")
                else:
                    came[node.id] = reply.content
                    self.authenticated &= bool(node.public)
                    _count(self.came, reply.content)
            if not met and len(came) >= (enough or settings.least):
                met, now = True, time.monotonic()
                end = min(end, now + max(settings.grace, now - began))
            if over:
                break
            if waiting:
                time.sleep(LOOK)
        for node in waiting.values():
            self._missing(node, round_, f"did not answer in {time.monotonic() - began:.3g} s")
        return {node: came[node.id] for node in sent if node.id in came}

    def _push(self, sent: Mapping[Node, RecordDict], kind: str, group: str) -> dict[str, Node]:
        messages = [
            Message(
                content,
                dst_node_id=node.id,
                message_type=kind,
                ttl=self.settings.timeout + 60,
                group_id=group,
            )
            for node, content in sent.items()
        ]
        return dict(zip(self.grid.push_messages(messages) if messages else (), sent, strict=True))

    def _missing(self, node: Node, round_: int, why: str) -> None:
        self.say(f"round {round_ + 1}: {node.called} {why}")
        self._silent[node.id] = round_
        self.lost.add(node.called)

    def spread(self, versions: Versions, *, wait: bool = False) -> None:
        """Send devices that are connected the version they shall have and have not, and note what
        they answer.

        One that has none gets it as it connects, others once in `EVERY` seconds at most. With
        `wait` all get it now; those that did not answer before are asked again. When the first has
        answered, the others have their grace period, no less than it took.
        """
        self._take_answers(versions)
        now = time.monotonic()
        all_ = wait or now >= self._deployed + EVERY
        late = now - (0 if wait else self.settings.timeout)
        self._deploying = {one: about for one, about in self._deploying.items() if about[2] > late}
        nodes = {node.called: node for node in self._present()}
        under_way = {(device, version) for device, version, _ in self._deploying.values()}
        held = versions.held
        missing = [
            device
            for device, at in versions.missing(nodes).items()
            if (device, at) not in under_way and (all_ or device not in held)
        ]
        if missing:
            self._send_version(versions, [nodes[name] for name in missing], now)
        self._deployed = now if all_ else self._deployed
        if wait:
            self._await_answers(versions, now)

    def _send_version(self, versions: Versions, nodes: Sequence[Node], now: float) -> None:
        """Send nodes the version that is wanted."""
        assert versions.wanted is not None
        version = versions.wanted.version
        try:
            order = wire.version_order(versions.read(version))
        except DataError as error:  # training goes on; it is sent when its file is back
            self.say(f"version {version} is not deployed: {error}")
            return
        for one, node in self._push(dict.fromkeys(nodes, order), DEPLOY, "deploy").items():
            self._deploying[one] = (node.called, version, now)

    def _await_answers(self, versions: Versions, began: float) -> None:
        """Wait for devices that were sent a version, and name those that did not answer."""
        most, grace = began + self.settings.timeout, self.settings.grace
        end, sent = min(most, began + max(grace, FIRST)), len(self._deploying)
        while self._deploying and (now := time.monotonic()) < end:
            self._take_answers(versions)
            if len(self._deploying) < sent:
                end, sent = min(most, now + max(grace, now - began)), 0  # the first answers
            if self._deploying:
                time.sleep(LOOK)
        if self._deploying:
            names = sorted(device for device, _, _ in self._deploying.values())
            self.say(
                f"no answer to the deployed model from {', '.join(names)}; they get it when the "
                "run goes on"
            )

    def waiting(self, versions: Versions) -> dict[str, int]:
        """Return who was seen and has not the version to have, without those that refuse it, and
        which it is.
        """
        return versions.missing(
            sorted({*versions.held, *(node.called for node in self._present())})
        )

    def _take_answers(self, versions: Versions) -> None:
        hash_of = cache(lambda at: versions.read(at).hash)
        for reply in self.grid.pull_messages(list(self._deploying)) if self._deploying else ():
            device, version, _ = self._deploying.pop(reply.metadata.reply_to_message_id)
            try:
                if reply.has_error():
                    raise ProtocolError(str(reply.error.reason))
                versions.note(device, **wire.held_of(reply.content, version, hash_of))
            except (KeyError, TypeError, ValueError, ProtocolError) as error:
                self.say(f"{device} did not take version {version}: {error}")

    def _present(self) -> Sequence[Node]:
        try:
            nodes = [Node(one.node_id, one.name, one.public_key) for one in self.grid.get_nodes()]
        except (AttributeError, NotImplementedError):  # a simulation's grid
            nodes = [Node(one) for one in self.grid.get_node_ids()]
        return sorted(nodes, key=lambda node: (node.name, node.id))


def _key(node: Node) -> str:
    """Name a node as the terms of a secure round do."""
    return fingerprint(wire.identity_of(node.public))


def _count(moved: list[int], content: RecordDict) -> None:
    """Count a message and its bytes."""
    moved[0] += 1
    moved[1] += sum(record.count_bytes() for record in content.values())


# Sums ---------------------------------------------------------------------------------------------


def sum_of(fleet: Fleet, nodes: Sequence[Node], state: State, run_id: str) -> Sum | None:
    """Ask devices for their updates and add them; None where too few answered."""
    order = fleet.order(state)
    return (
        secure_sum(fleet, nodes, state, order, run_id)
        if fleet.settings.secure
        else _sum(fleet, nodes, state, order)
    )


def _sum(fleet: Fleet, nodes: Sequence[Node], state: State, order: RecordDict) -> Sum | None:
    """Add updates one after the other in the order of the draw, as the simulator adds a cohort."""
    like, number = jax.tree.leaves(state.params), int(state.round)
    kind = np.int32 if fleet.settings.rounded_to else np.float32
    total, sums, who = [np.zeros(leaf.shape, kind) for leaf in like], np.zeros(5, np.float32), []
    for node, reply in fleet.ask(dict.fromkeys(nodes, order), number).items():
        try:
            update, measured, client = _read(reply, fleet.settings, like, float(state.limit))
        except Exception as error:  # whatever one device sends, it ends no run
            fleet.say(
                f"round {number + 1}: {node.called} sent what does not belong to the round: {error}"
            )
            continue
        total = [one + other for one, other in zip(total, update, strict=True)]
        sums += measured
        who.append(client)
    return (
        None
        if len(who) < fleet.settings.least
        else Sum(tree_of(total, state.params), sums.tolist(), who)
    )


def _read(
    reply: RecordDict, settings: DeviceSettings, like: list[Any], limit: float
) -> tuple[Leaves, NDArray[np.float32], int]:
    """Read a device's answer: its update, what it measured, its number; what no honest device sends
    is refused.
    """
    metrics: Any = reply[wire.TOLD]
    known: Any = reply[wire.ROUND]
    update = wire.unpacked(reply[wire.UPDATE])
    wire.check_update(update, like, limit, settings.rounded_to)
    reward, samples, probability, within = (
        float(metrics[name]) for name in ("reward", "samples", "probability", "within")
    )
    if not (
        0 <= probability <= samples + 1 <= settings.samples + 1
        and 0 <= within <= 1
        and abs(reward) < MOST
    ):
        raise ProtocolError("what is measured must be of at most as many samples as a device has.")
    return (
        update,
        np.array([reward, samples, probability, 1.0, within], np.float32),
        int(known["client"]),
    )


def secure_sum(
    fleet: Fleet, nodes: Sequence[Node], state: State, order: RecordDict, run_id: str
) -> Sum | None:
    """Add the updates of a cohort under masks, as whole numbers; None where too few were left."""
    like = jax.tree.leaves(state.params)
    length = sum(int(leaf.size) for leaf in like) + wire.MEASURED
    found = masked.under_masks(
        fleet, nodes, order, int(state.round), length, run_id, int(state.round)
    )
    if found is None:
        return None
    leaves, (reward, samples, probability, within) = wire.split(
        found[0], [tuple(leaf.shape) for leaf in like]
    )
    sums = [reward, samples, probability, float(len(found[1])), within]
    return Sum(tree_of(leaves, state.params), sums, list(found[1]), masked=True)
