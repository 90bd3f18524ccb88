"""Slots: time that does not say who pulls.

Before every pass, and after the last, each owner waits one slot and then answers, whether it pulls or not, with two
words modulo 2^64: its score less its pad and less a pad of the slot, and a *ready word* less another pad of the slot.
The ready word is 0, or while the owner pulls a nonzero word at random from its own secret. Comp derives the pads. The
controller adds the second words up, comp adds its pads: the sum is 0 if all are ready, and otherwise a uniform nonzero
word, so the servers learn whether all are ready and neither who is not nor how many. Only if all are does comp reveal
the slot's pads of the scores; otherwise these are never used, and everybody answers again a slot later.

From the second pull on one owner pulls at a time and the test is exact. While all make their first pull, the words of
two or more that are not ready cancel with probability 2^-64; such an owner refuses the reply and the run stops.

A pad belongs to one slot of one run and start of an owner, and slots are counted through the run: no pad hides two
values. It costs one message each way between the servers and 8 bytes more an owner, a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.roles import Ask, Message
from posse.privacy.crypto.streams import Words
from posse.protocols.samba.strict.messages import Tick, Tock

SLOT = 0.1
"""Seconds of a slot, and of an owner's slowest pull, where none are given."""
DISK = 0.1
"""Part of a slot that is kept for writing: a reward that comes in it waits for the next slot."""
WORD = 1 << 64


def slot_pads(stream: bytes) -> Words:
    """Return an owner's pads of slots: two words a slot, for its score and its ready word."""
    return Words(stream, b"posse strict slots", 2)


def ready_words(secret: bytes) -> Words:
    """Return what an owner that is not ready sends, a slot: its ready word (1 for 0), and noise for a score."""
    return Words(secret, b"posse strict ready", 2)


def answer(score: bytes, ready: int, pads: Words, slot: int) -> bytes:
    """Return what an owner sends in a slot."""
    first, second = (int(word) for word in pads.rows(slot, 1)[0])
    return b"".join(
        ((value - pad) % WORD).to_bytes(8, "little")
        for value, pad in ((int.from_bytes(score, "little"), first), (ready, second))
    )


class Gate(msgspec.Struct, forbid_unknown_fields=True):
    """Where a server stands between the answers of a slot and the scores of a pass."""

    slot: int = 0
    """Slots that were opened, or overrun."""
    overruns: int = 0
    """Slots at the end of which one owner or more was not ready."""
    open: bool = False
    """Whether all were ready, so that the pass goes on."""
    word: int = 0
    """The sum that was asked about last."""


def seconds(slot: float | None, slowest: float | None, level: str, *, simulated: bool) -> float:
    """Return the seconds of a slot from what a party's file says; 0 where there are none."""
    if level != "strict":
        if slot is not None or slowest is not None:
            raise ConfigError("slot and slowest_pull are settings of level 'strict'. Remove them, or set level.")
        return 0.0
    check.at_least(0, slot=slot or 0)
    check.at_least(0, slowest_pull=slowest or 0)
    return (0.0 if simulated else SLOT) if slot is None else slot


def check_slot(slot: float, slowest: float | None, owner: str) -> None:
    """Refuse a slot that is shorter than an owner's slowest pull; with slots off, one that an owner asks for."""
    needed = SLOT if slowest is None and slot else slowest or 0.0
    if slot < needed:
        lasts = f"lasts {slot:g} s" if slot else "is off"
        raise ConfigError(
            f"the slot {lasts}, the slowest pull of '{owner}' {needed:g} s: the time of its answers would name it. Set "
            f"slot = {needed:g} or more in the files of all parties, or slowest_pull of '{owner}' if its pulls are "
            "faster."
        )


class Clock:
    """An owner's source with ticks: a reward is handed over at the beginning of a slot, never while one ends.

    Taking a reward in waits for the disk. Near the end of a slot that would delay this owner's answer, and between two
    slots the beginning of its next one.
    """

    def __init__(self, pull: Callable[[Ask], Awaitable[Message]]) -> None:
        self._pull = pull
        self._inside = asyncio.Event()

    async def __call__(self, ask: Ask) -> Message:
        """Answer a tick when its slot is over, a pull when its reward is there and a slot has time left."""
        if isinstance(ask, Tick):
            loop = asyncio.get_running_loop()
            end = loop.time() + ask.seconds
            self._inside.set()
            loop.call_at(end - DISK * ask.seconds, self._inside.clear)
            await asyncio.sleep(end - loop.time())
            return Tock(ask.number)
        reward = await self._pull(ask)
        await self._inside.wait()
        return reward
