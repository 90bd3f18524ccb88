"""Asking nodes and waiting for them: who is there, who is asked, who answered in time.

Sampling: with a seed the draws are the simulator's (`cohorts.draw` over the nodes in the order of their names, then
ids), else the operating system's. A node that did not answer is left out for some rounds as long as others are enough.

Under noise every node that is connected has a coin of its own, of chance cohort / devices; nobody is left out, and
nobody is drawn for being reliable.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, MessageType, RecordDict

from posse.core.errors import ProtocolError
from posse.protocols.fed_contextual.cohorts import draw
from posse.protocols.fed_contextual.flower.settings import DeviceSettings

LOOK = 0.3
"""Seconds between two looks for answers."""
REST = 5
"""Rounds for which a silent node is left out."""


@dataclass(frozen=True)
class Node:
    """A device that is connected."""

    id: int
    name: str = ""
    public: bytes = b""
    """Its registered key, as registered; empty in a simulation."""


@dataclass
class Fleet:
    """The nodes of a run; `told` is called with what goes wrong."""

    grid: Any
    settings: DeviceSettings
    told: Callable[[str], None]
    last: str = ""
    """The last thing that went wrong."""
    in_vain: int = 0
    """Rounds in a row that gave no sum; kept under noise."""
    suspected: dict[int, int] = field(default_factory=dict)
    """Round in which a node was last suspected in a secure sum, by id."""
    _silent: dict[int, int] = field(default_factory=dict)
    _begun: bool = False

    def say(self, text: str) -> None:
        """Tell what went wrong, and remember it."""
        self.last = text
        self.told(text)

    def cohort(self, round_: int) -> list[Node]:
        """Wait until there are enough nodes, and draw those of a round, in the order of the draw."""
        want, end = self.settings.cohort, time.monotonic() + self.settings.timeout
        awaited = want if self._begun else max(want, self.settings.start_with)
        while True:
            nodes = self._present()
            if len(nodes) >= awaited:
                break
            if time.monotonic() > end:
                if len(nodes) >= self.settings.enough:
                    break
                raise ProtocolError(
                    f"a round needs {self.settings.enough} nodes, got {len(nodes)} after {self.settings.timeout:g} s. "
                    "Start more SuperNodes, or look at their logs."
                )
            time.sleep(LOOK)
        self._begun = True
        return self._by_coins(nodes, round_) if self.settings.noise else self._so_many(nodes, round_)

    def _so_many(self, nodes: Sequence[Node], round_: int) -> list[Node]:
        """Draw a cohort without replacement, of those who answered lately if they are enough."""
        awake = [node for node in nodes if self._silent.get(node.id, -REST) + REST <= round_]
        nodes = awake if len(awake) >= self.settings.enough else nodes
        count = min(self.settings.cohort, len(nodes))
        if self.settings.seed < 0:
            return random.SystemRandom().sample(nodes, count)
        numbers, _ = draw(self.settings.seed, round_, len(nodes), count, "fixed")
        return [nodes[at] for at in numbers.tolist()]

    def _by_coins(self, nodes: Sequence[Node], round_: int) -> list[Node]:
        """Draw each node with the chance cohort / devices; with a seed the simulator's draw, of those who are there."""
        seed, cohort, devices = self.settings.seed, self.settings.cohort, self.settings.devices
        if seed < 0:
            drawn = [node for node in nodes if secrets.randbelow(devices) < cohort]
        else:
            numbers, here = draw(seed, round_, devices, cohort, "poisson")
            drawn = [nodes[at] for at in numbers[here > 0].tolist() if at < len(nodes)]
        if len(drawn) > self.settings.most_drawn:
            raise ProtocolError(
                f"round {round_ + 1} drew {len(drawn)} devices, and {devices} declared ones give at most "
                f"{self.settings.most_drawn}. Raise devices: cutting the cohort would void the guarantee."
            )
        return drawn

    def ask(
        self, sent: Mapping[Node, RecordDict], round_: int, kind: str = MessageType.TRAIN
    ) -> dict[Node, RecordDict]:
        """Send to nodes and wait for answers, at most until the time is over; the answers in the order of the nodes."""
        timeout = self.settings.timeout
        messages = [
            Message(content, dst_node_id=node.id, message_type=kind, ttl=timeout + 60, group_id=str(round_ + 1))
            for node, content in sent.items()
        ]
        waiting = dict(zip(self.grid.push_messages(messages), sent, strict=True))
        came: dict[int, RecordDict] = {}
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    self.say(f"round {round_ + 1}: {node.name or node.id} failed: {reply.error.reason}")
                    self._silent[node.id] = round_
                else:
                    came[node.id] = reply.content
            if waiting:
                time.sleep(LOOK)
        for node in waiting.values():
            self.say(f"round {round_ + 1}: {node.name or node.id} did not answer in {timeout:g} s")
            self._silent[node.id] = round_
        return {node: came[node.id] for node in sent if node.id in came}

    def _present(self) -> Sequence[Node]:
        try:
            found = [Node(one.node_id, one.name, one.public_key) for one in self.grid.get_nodes()]
        except (AttributeError, NotImplementedError):  # a simulation's grid
            found = [Node(one) for one in self.grid.get_node_ids()]
        return sorted(found, key=lambda node: (node.name, node.id))
