"""A party whose journal came from a backup goes on only if its peers say that it went no further
than that.

What a party sends is hidden by randomness that its journal gives, so a party that was set back and
learnt other things than the first time would use it twice. Before it takes or sends anything it
therefore greets its peers as *restored*:

* a peer that remembers a message which the copy has not sent, or that the copy had more of its own
  on the disk, has gone on: the party refuses to;
* a peer that is restored itself vouches for nobody, for the two may have gone on together;
* when all have vouched without which it cannot finish, nobody has seen anything that the copy has
  not: it goes on.

It relies on the peers' word, as they are honest but curious. Peers of wire version 2 cannot be
restored in this way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from posse.core.errors import JournalError, LinkError
from posse.runtime.network.connection import Connection
from posse.runtime.network.party import Party
from posse.runtime.network.wire import AnyFrame, Hello

RESTORED = "restored.json"
"""In a journal that came from a backup, until all peers have vouched for it."""
REMEDY = (
    "Nothing was sent. Put the newest journal back if there is one; without it this party's part "
    "in the run is over: "
    "end the run without it where the system can, or begin a new one ('posse party restore "
    "--without-journal' keeps the "
    "identity)."
)


class Vouching(Party):
    """Greets all peers of a party, takes nothing from them, and stops when all have vouched."""

    def __init__(self, party: Party) -> None:
        super().__init__(
            party.engine,
            party.wiring,
            party.identify,
            timing=party.timing,
            log=party.log,
            give_up=party.give_up,
            stalled_after=party.stalled_after,
            needs=lambda: party.needed,
        )
        self._vouched: set[str] = set()

    def greeting(self, peer: str) -> Hello:
        """Say that this journal was restored."""
        return msgspec.structs.replace(super().greeting(peer), restored=True)

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """See from a peer's hello whether it has gone on."""
        peer = connection.peer
        assert peer is not None
        self.check_hello(peer, connection, hello)
        link = self.engine.links[peer]
        if hello.restored:
            self._refuse(
                f"'{peer}' was restored from a backup too, and the two may have gone on together "
                "before."
            )
        if hello.received > link.sent:
            has = (
                f"'{peer}' has {hello.received} messages of it, and the backup remembers "
                f"{link.sent}"
            )
            self._refuse(
                f"the run has gone on since the backup of '{self.engine.role.name}': {has}."
            )
        self.connections[peer] = connection
        self.troubles.pop(peer, None)

    def _refuse(self, why: str) -> None:
        error = JournalError(f"{why} It would use its randomness a second time. {REMEDY}")
        self.stop(error)
        raise error

    def frame(self, connection: Connection, frame: AnyFrame) -> None:
        """Count a peer that goes on with this party, for it has compared what it knows; what it
        sends comes again.
        """
        self._vouched.add(connection.peer or "")
        if self.complete:
            self.stop()

    def batch(self, connection: Connection) -> None:
        """Answer nothing."""

    def refused_by(self, peer: str, reason: str) -> None:
        """Stop where a peer knows that this journal is an older copy."""
        if reason.startswith((f"[{LinkError.code}]", f"[{JournalError.code}]")):
            self.stop(
                JournalError(
                    f"'{peer}' refuses the backup of '{self.engine.role.name}': {reason} {REMEDY}"
                )
            )

    def _soon(self) -> None:
        """Begin nothing."""

    @property
    def complete(self) -> bool:
        """Whether all peers have vouched that are needed to finish; one that is not may have left
        for good.
        """
        return self._vouched >= set(self.needed)


def backup_time(journal: Path) -> str:
    """Return when the backup was made from which a journal was restored; empty for any other."""
    try:
        return str(json.loads((journal / RESTORED).read_text())["made"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError):
        return "an unknown time"


async def vouch(
    party: Party, journal: Path, turn: Callable[[Party], None] = lambda _: None
) -> None:
    """Let all peers vouch for a restored journal, if it is one, or until the party is stopped.

    `turn` is called with who takes the party's connections: first who asks, then the party again.
    Raises a `PosseError` where one has gone on; the mark stays, so that the next start asks again.
    """
    if not (made := backup_time(journal)):
        return
    party.log("restored", backup=made, why="asks every peer whether the run has gone on since")
    asked = Vouching(party)
    party.troubles = asked.troubles
    turn(asked)
    asking, stopped = asyncio.create_task(asked.run()), asyncio.create_task(party.stopped())
    await asyncio.wait((asking, stopped), return_when=asyncio.FIRST_COMPLETED)
    asked.stop()
    stopped.cancel()
    await asking
    if asked.complete:
        (journal / RESTORED).unlink()
    else:
        party.stop()
    turn(party)
