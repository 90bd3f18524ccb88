"""A grid without processes: messages go straight to the client app, each node with a context of its
own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from posse.systems.fed_contextual.flower.client_app import make
from posse.systems.fed_contextual.flower.fleet import DEPLOY
from posse.systems.fed_contextual.flower.project import make_node
from posse.systems.fed_contextual.flower.settings import FEWEST, DeviceSettings

Meddle = Callable[[int, Message, Message | None], Message | None]
"""Called with the node, what it was sent and what it answered; returns what arrives, None for
nothing.
"""


class FakeNode:
    """What `Grid.get_nodes` tells of a node."""

    def __init__(self, at: int, public: bytes) -> None:
        self.node_id, self.name, self.public_key = 1000 - at, f"node-{at:04d}", public


class FakeGrid:
    """Nodes in this process, numbered from 0; Flower's ids run the other way."""

    def __init__(
        self,
        settings: DeviceSettings,
        nodes: int,
        folder: Path,
        meddle: Meddle | None = None,
        **config: Any,
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = (
            1,
            1,
            1,
        )  # as Flower's processes do
        self.app, self.meddle, self.sent = make(), meddle, []
        self.deployments: list[int] = []
        """Nodes that were sent a version, one after the other."""
        keys = [make_node(folder / f"keys-{at}") for at in range(nodes)]
        roster = folder / "roster"
        roster.write_bytes(b"".join(one.public.read_bytes() for one in keys))
        self.nodes = [FakeNode(at, keys[at].public.read_bytes()) for at in range(nodes)]
        run_config = json.loads(json.dumps(settings.resolved()))
        self.contexts = {
            node.node_id: Context(
                run_id=1,
                node_id=node.node_id,
                state=RecordDict(),
                run_config=run_config,
                node_config={
                    "partition-id": at,
                    "num-partitions": nodes,
                    "key": str(keys[at].private),
                    "roster": str(roster),
                    "secure": settings.secure,
                    "least-cohort": FEWEST,
                    **({} if settings.data == "digits" else {"data": settings.data}),
                    **config,
                },
            )
            for at, node in enumerate(self.nodes)
        }
        self._replies: dict[str, Message] = {}
        self._count = 0
        self.reach = True
        """Whether devices get what is deployed."""

    def get_nodes(self) -> list[FakeNode]:
        return self.nodes[::-1]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            self._count += 1
            ids.append(f"message-{self._count}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            if message.metadata.message_type == DEPLOY:
                self.deployments.append(1000 - message.metadata.dst_node_id)
                reply = (
                    self.app(message, self.contexts[message.metadata.dst_node_id])
                    if self.reach
                    else None
                )
            else:
                self.sent.append(message)
                reply = self._answer(message)
            if reply is not None:
                self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(one) for one in ids if one in self._replies]

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        reply: Message | None
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:
            reply = Message(
                Error(code=0, reason=f"{type(error).__name__}: {error}"), reply_to=message
            )
        return reply if self.meddle is None else self.meddle(1000 - node, message, reply)


def leaves(folder: Path) -> list[np.ndarray[Any, Any]]:
    """Read a model."""
    with np.load(folder / "model.npz") as found:
        return [
            found[f"leaf{at}"] for at in range(sum(name.startswith("leaf") for name in found.files))
        ]
