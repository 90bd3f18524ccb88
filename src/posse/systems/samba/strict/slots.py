"""Slots: time that does not say who pulls.

Before every pass, and after the last, each owner waits one slot and then answers, whether it pulls
or not, with two words modulo 2^64: its score less its pad and less a pad of the slot, and a *ready
word* less another pad of the slot. The ready word is 0, or while the owner pulls a nonzero word at
random from its own secret. Comp derives the pads. The controller adds the second words up, comp
adds its pads: the sum is 0 if all are ready, and otherwise a uniform nonzero word, so the servers
learn whether all are ready and neither who is not nor how many. Only if all are does comp reveal
the slot's pads of the scores; otherwise these are never used, and everybody answers again a slot
later.

From the second pull on one owner pulls at a time and the test is exact. While all make their first
pull, the words of two or more that are not ready cancel with probability 2^-64; such an owner
refuses the reply and the run stops.

A pad belongs to one slot of one run and start of an owner, and slots are counted through the run:
no pad hides two values. It costs one message each way between the servers and 8 bytes more an
owner, a slot.
"""

from __future__ import annotations

import msgspec

from posse.privacy.crypto.streams import Words

WORD = 1 << 64


def slot_pads(stream: bytes) -> Words:
    """Return an owner's pads of slots: two words a slot, for its score and its ready word."""
    return Words(stream, b"posse strict slots", 2)


def ready_words(secret: bytes) -> Words:
    """Return what an owner that is not ready sends, a slot: its ready word (1 for 0), and noise for
    a score.
    """
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
