"""How long a slot lasts, and the clock that ends it: the one place of samba where time is read.

A role asks for a tick as an owner asks for a reward, and the answer is journalled: replayed, it
needs no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.roles import Ask, Message
from posse.systems.samba.strict.messages import Tick, Tock

SLOT = 0.1
"""Seconds of a slot, and of an owner's slowest pull, where none are given."""
DISK = 0.1
"""Part of a slot that is kept for writing: a reward that comes in it waits for the next slot."""


def seconds(slot: float | None, slowest: float | None, level: str, *, simulated: bool) -> float:
    """Return the seconds of a slot from what a party's file says; 0 where there are none."""
    if level != "strict":
        if slot is not None or slowest is not None:
            raise ConfigError(
                "slot and slowest_pull are settings of level 'strict'. Remove them, or set level."
            )
        return 0.0
    check.at_least(0, slot=slot or 0)
    check.at_least(0, slowest_pull=slowest or 0)
    return (0.0 if simulated else SLOT) if slot is None else slot


def check_slot(slot: float, slowest: float | None, owner: str) -> None:
    """Refuse a slot that is shorter than an owner's slowest pull; with slots off, one that an owner
    asks for.
    """
    needed = SLOT if slowest is None and slot else slowest or 0.0
    if slot < needed:
        lasts = f"lasts {slot:g} s" if slot else "is off"
        raise ConfigError(
            f"the slot {lasts}, and the slowest pull of '{owner}' takes {needed:g} s: its "
            f"late answers would identify it. Set slot = {needed:g} or more in the files of "
            f"all parties, or correct slowest_pull of '{owner}'."
        )


class Clock:
    """An owner's source with ticks: a reward is handed over at the beginning of a slot, never while
    one ends.

    Taking a reward in waits for the disk. Near the end of a slot that would delay this owner's
    answer, and between two slots the beginning of its next one.
    """

    def __init__(self, pull: Callable[[Ask], Awaitable[Message]]) -> None:
        self.pull = pull
        """Answers a pull, whatever the clock says."""
        self._inside = asyncio.Event()

    async def __call__(self, ask: Ask) -> Message:
        """Answer a tick when its slot is over, a pull when its reward is there and a slot has time
        left.
        """
        if isinstance(ask, Tick):
            loop = asyncio.get_running_loop()
            end = loop.time() + ask.seconds
            self._inside.set()
            loop.call_at(end - DISK * ask.seconds, self._inside.clear)
            await asyncio.sleep(end - loop.time())
            return Tock(ask.number)
        reward = await self.pull(ask)
        await self._inside.wait()
        return reward
