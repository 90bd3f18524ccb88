"""All parties in one place: to try a computation, to test it, and to count what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.tape import Tape


@dataclass(frozen=True)
class Computed:
    """What a computation gave each party, and what it cost."""

    results: tuple[Any, ...]
    rounds: int
    sent: int
    """Bytes that one party sent to each other one, the largest."""
    plan: Plan


def run_sessions(sessions: Sequence[Session], programs: Sequence[Any], plan: Plan) -> Computed:
    """Move what sessions send until their programs end."""
    results: list[object] = [None] * len(sessions)
    sent = 0
    while True:
        ended = 0
        for number, program in enumerate(programs):
            try:
                next(program)
            except StopIteration as end:
                results[number], ended = end.value, ended + 1
        if ended:
            assert ended == len(sessions)
            for session in sessions:
                assert isinstance(session.tape, Tape)
                session.tape.finish()
            return Computed(tuple(results), sessions[0].rounds, sent, plan)
        rounds = {session.name: session.outgoing() for session in sessions}
        sent += max(len(one.broadcast) for one in rounds.values())
        for session in sessions:
            session.deliver(
                _received(session, {name: one.broadcast for name, one in rounds.items()})
            )


def _received(session: Session, sent: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in sent.items() if name != session.name}


def opened(shares: Sequence[Words]) -> Words:
    """Add up the shares of all parties.

    >>> opened([np.array([2**64 - 1], np.uint64), np.array([3], np.uint64)])
    array([2], dtype=uint64)
    """
    return np.asarray(np.sum(shares, axis=0, dtype=np.uint64))
