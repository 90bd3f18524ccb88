"""A federation moved by hand: every message can be looked at, withheld or altered before it
arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from posse.core.roles import WORLD, Action, Message, Note, Pull, Role, SendMany
from posse.policies import Policy
from posse.privacy.crypto.frames import Frames
from posse.privacy.crypto.paillier import PrivateKey
from posse.privacy.crypto.streams import Words
from posse.problems import BernoulliArms
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.strict.messages import Tick, Tock


class Federation:
    """Roles, and the actions they have asked for."""

    def __init__(
        self,
        policy: Policy,
        key: PrivateKey,
        *,
        owners: int = 4,
        budget: int = 20,
        level: str = "paper",
        seed: int | None = 3,
        **options: Any,
    ) -> None:
        arms = BernoulliArms(np.linspace(0.2, 0.8, owners))
        made = federation(arms, policy, budget, seed=seed, level=level, key=key, **options)
        self.roles: dict[str, Role] = {role.name: role for role in made}
        self.world = SimulatedWorld(arms, 3, budget, keep_arms=True)
        self.notes: list[Note] = []
        self.queue: deque[Action] = deque()
        for role in made:
            self.queue.extend(role.start())

    def deliveries(self) -> Iterator[tuple[str, str, Message]]:
        """Yield every message just before it arrives; it arrives when the caller asks for the
        next.
        """
        ticks: list[Tick] = []
        while self.queue or ticks:
            if not self.queue:  # all wait: the slot ends
                for tick in ticks:
                    self.queue.extend(self.roles[tick.party].receive(WORLD, Tock(tick.number)))
                ticks = []
                continue
            action = self.queue.popleft()
            if isinstance(action, tuple):
                yield action
                sender, receiver, message = action
                self.queue.extend(self.roles[receiver].receive(sender, message))
            elif isinstance(action, SendMany):
                self.queue.extendleft(reversed(action.sends))
            elif isinstance(action, Pull):
                self.queue.extend(self.roles[action.party].receive(WORLD, self.world(action)))
            elif isinstance(action, Tick):
                ticks.append(action)
            else:
                self.notes.append(action)

    def until(self, wanted: Callable[[str, str, Message], bool]) -> tuple[str, str, Message]:
        """Run until a message is about to arrive that the caller wants."""
        for sender, receiver, message in self.deliveries():
            if wanted(sender, receiver, message):
                self.queue.appendleft((sender, receiver, message))
                return sender, receiver, message
        raise AssertionError("no such message was sent")

    def finish(self) -> Any:
        """Run to the end; return the customer's total."""
        for _ in self.deliveries():
            pass
        return [note.value for note in self.notes if note.kind == "total"]


def snapshot(value: object) -> object:
    """Everything a role holds that can be compared, however deep."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (bytes, str, int, float, bool, type(None))):
        return value
    if isinstance(value, dict):
        return {str(key): snapshot(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [snapshot(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (Frames, Words)):
        return None  # keys and what is drawn ahead from them: caches
    if type(value).__module__.startswith("posse."):
        names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
        return {name: snapshot(getattr(value, name, None)) for name in names if name != "_handlers"}
    return None


def secrets_of(value: object, found: set[bytes] | None = None, depth: int = 0) -> set[bytes]:
    """Byte strings of some entropy that a role holds in private attributes: keys, masks, tokens,
    plaintexts.
    """
    found = set() if found is None else found
    if isinstance(value, np.ndarray):
        value = value.tobytes()
    if isinstance(value, bytes) and len(set(value)) >= 6:
        found.add(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            secrets_of(item, found, depth + 1)
    elif type(value).__module__.startswith("posse.") and depth < 6:
        for name in [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]:
            if name not in {"_handlers", "_manifest", "_customer", "_digest", "public"}:
                secrets_of(getattr(value, name, None), found, depth + 1)
    return found
