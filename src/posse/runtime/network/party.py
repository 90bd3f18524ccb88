"""A party as a process: an engine, its connections, and where the world's answers come from.

The loop is: frames arrive, the engine takes them, the journal is written, what follows is sent. The
disk is waited for in a thread beside the loop; peers learn how far it is and keep what they sent
until then. A lost connection is dialled again, after a while that doubles up to a few seconds with
a random part.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial

from posse.core.agreement import check_terms
from posse.core.errors import BudgetError, DisagreementError, LinkError, PosseError, ProtocolError
from posse.core.roles import Ask, Message, Note
from posse.runtime.door import Door, Limits, Throttle
from posse.runtime.network import leaving
from posse.runtime.network.calling import keep_connected
from posse.runtime.network.connection import Admit, Connection, Timing, Wiring, greet, printable
from posse.runtime.network.engine import Engine
from posse.runtime.network.wire import (
    WIRE_VERSION,
    AnyFrame,
    Data,
    Hello,
    Kept,
    Missing,
    WireError,
    check_versions,
    pack,
    pack_data,
    takes_missing,
)
from posse.version import PROTOCOL_VERSION, __version__

Source = Callable[[Ask], Awaitable[Message]]
"""Where the world's answers come from; the same ask must get the same answer again."""

LATE = 10.0
"""Seconds after which the party's own log says that a source has not answered."""


class Party:
    """Runs an engine until its role has finished."""

    def __init__(
        self,
        engine: Engine,
        wiring: Wiring,
        admit: Admit,
        source: Source | None = None,
        *,
        timing: Timing | None = None,
        log: Callable[..., None] | None = None,
        watch: Callable[[Note], None] | None = None,
        give_up: float | None = None,
        stalled_after: float = 0.0,
        needs: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """Stop after `give_up` seconds without a peer of those that `needs` names, if that is
        wished.

        With `stalled_after`, stop when the run has waited so many seconds for a party that is
        missing or refused, here or at a peer. A party that has finished stays until the peers that
        `needs` then names have its last messages.
        """
        self.engine, self.wiring = engine, wiring
        self.counts: Counter[str] = Counter()
        """What happened, for metrics: connections, refusals by kind, messages."""
        self.connections: dict[str, Connection] = {}
        self._open: set[Connection] = set()
        self.lost_at: dict[str, float] = {}
        """When each peer was last connected, unless that connection was refused."""
        self.troubles: dict[str, str] = {}
        """Why a peer is not connected, as far as it is known."""
        self.refused_caller = ""
        """Why the certificate of a caller without a name was refused last, or this party's by
        it.
        """
        self.reports: dict[str, Missing] = {}
        """What each peer said last of the parties that are not connected to it."""
        self.paused = False
        self.identify = admit
        """Returns the role and name that a certificate is for."""
        self.source = source
        self.timing = timing or Timing()
        self.log = log or (lambda event, **fields: None)
        self.often = Throttle(self.log)
        """For what others can make this party log."""
        self.give_up = give_up
        self._watch, self._needs = watch, needs
        self.stalled_after = stalled_after
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: set[int] = set()
        self._flushing = False
        self._over: asyncio.Event = asyncio.Event()
        self._failed: BaseException | None = None
        self._disagreement: DisagreementError | None = None
        self._informed: set[str] = set()
        """Peers that know of the disagreement."""
        self._agreed = set(wiring.peers) if engine.bound else set()
        """Peers with the same terms; the role begins when all have them."""
        self.left: set[str] = set()
        """Peers that have left because their part is over."""
        self.paused_peers: set[str] = set()
        """Peers that their operators hold."""
        self.source_seconds, self.source_answers, self.source_trouble = 0.0, 0, (0, "")
        """How long its own source took, over all answers; how often it has failed in a row, and why
        the last time.
        """
        self.port = 0

    async def run(self) -> None:
        """Run to the end of the role's part; raises what stopped it before."""
        door = await self._listen()
        self._soon()
        self.begin(leaving.keep_alive(self))
        self.begin(self._keep_durable())
        if self.give_up is not None:
            self.begin(leaving.miss(self, self.give_up))
        for peer in self.wiring.addresses:
            self.begin(self._dial(peer))
        try:
            await self.stopped()
        finally:
            if door is not None:
                await door.closed()
            while self._tasks:
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._hang_up()
            self.often.flush(all_of_them=True)
        if self._failed is not None:
            raise self._failed
        leaving.check(self)

    async def stopped(self) -> None:
        """Wait until the party has been stopped, or its part is over."""
        await self._over.wait()

    async def _hang_up(self) -> None:
        """Close all connections gracefully, then force them."""
        for at_once in (False, True):
            for connection in list(self._open):
                connection.hang_up("this party stops", at_once=at_once)
            if self._open:
                await asyncio.wait([connection.closed for connection in self._open], timeout=0.5)

    def stop(self, error: BaseException | None = None) -> None:
        """End at once; what came in is in the journal."""
        self._failed = self._failed or error
        self._over.set()

    def pause(self, paused: bool) -> None:
        """Hold the party where it is, or let it go on."""
        self.paused = paused
        for connection in self.connections.values():
            connection.pause(paused)
        self.tell_durable()
        if not paused:
            self._soon()

    @property
    def needed(self) -> Collection[str]:
        """Peers without which this party cannot finish; when it has, those that cannot finish
        without it.
        """
        return self.wiring.peers if self._needs is None else self._needs()

    def instruct(self, message: Message) -> None:
        """Let the role hear what this party's own operator asks for."""
        self.engine.instruct(message, self.needed)
        self._soon()

    # What connections ask -------------------------------------------------------------------------

    def admit(self, certificate: bytes | None, connection: Connection) -> str:
        """Return the peer's name from its certificate, if it has a part here."""
        self._open.add(connection)
        role, name = self.identify(certificate)
        if connection.dialled is not None and name != connection.dialled:
            raise ProtocolError(
                f"called '{connection.dialled}', and '{name}' answered. Check its address."
            )
        if self.wiring.peers.get(name) != role:
            raise ProtocolError(
                f"'{name}' ({role}) is not a party of this run, or has another role in it. Check "
                "the federation file."
            )
        greeting = [
            each
            for each in self._open
            if each.peer == name and not each.ready and each is not connection
        ]
        for other in greeting:
            other.hang_up(
                "it called once more", at_once=True
            )  # a peer has one greeting, and one connection
        return name

    def greeting(self, peer: str) -> Hello:
        """Say who this is, and what it has of the peer's messages."""
        link = self.engine.links[peer]
        return Hello(
            WIRE_VERSION,
            __version__,
            self.wiring.protocol,
            PROTOCOL_VERSION,
            self.engine.run,
            self.engine.role.name,
            link.received,
            link.durable,
            self.engine.terms,
        )

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """Begin where the peer is; refuse one of another version or run, or with other terms."""
        peer = connection.peer
        assert peer is not None
        if self._disagreement is not None:
            self._informed.add(peer)
            raise self._disagreement
        try:
            self.check_hello(peer, connection, hello)
        except DisagreementError as error:
            if not self.engine.bound:  # a run that has begun waits for that peer to be corrected
                self._disagree(error, peer)
            raise
        self._check_journal(peer, hello)
        self._agreed.add(peer)
        self.left.discard(peer)
        self.engine.links[peer].connected(hello.received, hello.durable)
        earlier = self.connections.get(peer)
        self.connections[peer] = connection
        self.engine.touched.add(peer)
        if earlier is not None:
            earlier.hang_up("a newer connection took its place")
        self.troubles.pop(peer, None)
        self.refused_caller = ""
        self.counts["connections"] += 1
        self.often(f"connected {peer}", "connected", peer=peer)
        if self.paused:
            connection.pause(True)

    def check_hello(self, peer: str, connection: Connection, hello: Hello) -> None:
        """Refuse a peer of another version or run, or with other terms."""
        check_versions(peer, hello, connection.wire, self.wiring.protocol)
        if hello.run != self.engine.run or hello.name != peer:
            raise ProtocolError(
                f"'{hello.name}' is in run {hello.run}, and this party is in run "
                f"{self.engine.run}. Check run in both files."
            )
        check_terms(self.engine.role.name, self.engine.terms, peer, hello.terms)

    def _check_journal(self, peer: str, hello: Hello) -> None:
        """Refuse to go on with a new journal in the place of one that was lost: the peer knows
        messages of that one.

        A party that lost the end of its journal says the same again; one with a new journal has
        other secrets.
        """
        name = self.engine.role.name
        if self.engine.new and hello.received > self.engine.links[peer].sent:
            raise LinkError(
                f"'{peer}' has messages of '{name}' that are not in the journal of '{name}': the "
                "journal that the run began with was deleted or lost. Restore it, or end the run "
                f"without '{name}'."
            )

    def frame(self, connection: Connection, frame: AnyFrame) -> None:
        """Take a message or a sign of life."""
        peer = connection.peer
        assert peer is not None
        if self.connections.get(peer) is not connection or self._disagreement is not None:
            return  # left over from a connection that was replaced, or nothing is taken any more
        match frame:
            case Data():
                self.counts["messages in"] += 1
                self._receive(peer, frame)
            case Kept():
                self.engine.links[peer].acknowledged(frame.durable)
                (self.paused_peers.add if frame.paused else self.paused_peers.discard)(peer)
                if frame.leaves:
                    self.left.add(peer)
            case Missing():
                peers = {printable(name): printable(why) for name, why in frame.peers.items()}
                self.reports[peer] = Missing(peers, frame.paused)
            case _:
                raise WireError("a hello must come once.")

    def _receive(self, peer: str, frame: Data) -> None:
        try:
            self.engine.receive(peer, frame.number, frame.body)
        except PosseError as error:
            if isinstance(error, DisagreementError):
                self._disagree(error, peer)
            raise
        except Exception as error:  # a bug: the role may be half way, and the journal is not
            self.stop(error)
            raise ProtocolError("this party has stopped.") from error

    def batch(self, connection: Connection) -> None:
        """Answer what has arrived, or go on sending to who was slow."""
        if connection.peer is not None and self.engine.links[connection.peer].waiting:
            self.engine.touched.add(connection.peer)
        if self._idle:
            return  # what has arrived is written with the next thing that follows from it, or by the clock
        if len(self.wiring.peers) == 1:
            self._flush()  # nobody else can have arrived in this turn of the loop
        else:
            self._soon()

    def lost(self, connection: Connection, why: str) -> None:
        """Forget a connection; whoever called calls again."""
        self._open.discard(connection)
        peer = connection.peer
        if peer is not None and self.connections.get(peer) is connection:
            del self.connections[peer]
            self.paused_peers.discard(peer)
            # A peer that is refused calls again and again, and stays missing.
            if not why.startswith((leaving.MESSAGE_REFUSED, "refused: ", "it refused us: ")):
                self.lost_at[peer] = asyncio.get_running_loop().time()
            self.troubles[peer] = why = "its part is over" if peer in self.left else why
            # At the end of a run every peer hangs up; that is no warning.
            is_end = peer in self.left or self.engine.role.finished
            self.often(f"lost {peer}", "left" if is_end else "lost", peer=peer, why=why)
        elif connection.dialled is not None and connection.dialled not in self.connections:
            self._trouble(connection.dialled, why)

    def refused(self, peer: str, why: str, *, counted: str) -> None:
        """Count and log somebody who was refused."""
        self.counts[f"refused {counted}"] += 1
        if peer in self.wiring.peers and peer not in self.connections:
            self.troubles[peer] = f"refused: {why}"
        elif counted == "certificate" or (counted == "tls" and "certificate" in why):
            self.refused_caller = why
        kind = f"refused {counted} {peer if peer in self.wiring.peers else ''}".strip()
        self.often(kind, "refused", peer=peer, why=why)

    def refused_by(self, peer: str, reason: str) -> None:
        """Stop where a peer has found that the parties' files differ: nobody can go on before one
        is corrected.
        """
        code = f"[{DisagreementError.code}] "
        if reason.startswith(code) and not self.engine.role.finished:
            self._disagree(DisagreementError(reason.removeprefix(code)), peer)

    def _disagree(self, error: DisagreementError, peer: str) -> None:
        """Stop, and pass on why: to the peers that are connected now, and to those that connect
        within a while.
        """
        self._informed.add(peer)
        if self._disagreement is not None:
            return
        self._disagreement = error
        for other, connection in list(self.connections.items()):
            if other != peer:
                self._informed.add(other)
                connection.refuse(error, "terms")
        self.begin(self._inform(error))

    async def _inform(self, error: DisagreementError) -> None:
        for _ in range(int(self.timing.linger / 0.02)):
            if self._informed >= set(self.wiring.peers):
                break
            await asyncio.sleep(0.02)
        self.stop(error)

    # The loop -------------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        """Whether nothing follows from what has arrived: no message, question to the world, note or
        refusal.
        """
        engine = self.engine
        waits = (
            engine.touched
            or engine.refusals
            or engine.notes
            or not engine.started
            or engine.role.finished
        )
        return not waits and engine.asks.keys() <= self._asking

    def _soon(self) -> None:
        """Commit and send after everything that has arrived in this turn of the loop."""
        if not self._flushing and not self._over.is_set() and self._disagreement is None:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._over.is_set() or self._disagreement is not None:
            return
        try:
            self._commit_and_send()
        except Exception as error:
            self.stop(error)

    def _commit_and_send(self) -> None:
        if not self.engine.started and self._agreed >= self.wiring.peers.keys():
            self.engine.begin()
        self.engine.commit()
        for peer, why in self.engine.refusals:
            self.refused(peer, why, counted="message")
            if (connection := self.connections.get(peer)) is not None:
                connection.hang_up(f"{leaving.MESSAGE_REFUSED}{why}")
        self.engine.refusals.clear()
        touched, self.engine.touched = self.engine.touched, set()
        for peer in sorted(touched):
            if (connection := self.connections.get(peer)) is not None:
                self._send(peer, connection)
        self._ask()
        notes, self.engine.notes = self.engine.notes, []
        for note in notes:
            if self._watch is not None:
                self._watch(note)
        if self.engine.role.finished:
            self._start_once_finished()

    def _send(self, peer: str, connection: Connection) -> None:
        link = self.engine.links[peer]
        while connection.ready and connection.writable and link.unsent <= link.sent:
            frames = [pack_data(number, body) for number, body in link.outgoing()]
            data = b"".join(frames)
            self.counts["messages out"] += len(frames)
            self.counts["bytes out"] += len(data)
            connection.write(data)

    def _ask(self) -> None:
        if self.source is None or self.paused:
            return
        for number, ask in self.engine.asks.items():
            if number not in self._asking:
                self._asking.add(number)
                self.begin(self._answer(number, ask))

    async def _answer(self, number: int, ask: Ask) -> None:
        """Ask the world until it answers; a source that fails is asked again."""
        assert self.source is not None
        wait, failures = self.timing.first_wait, 0
        while True:
            late = asyncio.get_running_loop().call_later(
                LATE, self.log, f"waiting for {ask.awaits}"
            )
            began = time.monotonic()
            try:
                answer = await self.source(ask)
                self.source_seconds += time.monotonic() - began
                self.source_answers += 1
                if failures:  # with slots, ticks are answered all the time while a pull fails
                    self.source_trouble = 0, ""
                self.engine.answer(number, answer)
                break
            except BudgetError as error:
                self.stop(error)  # the answer was fine, and what follows from it may not be sent
                return
            except Exception as error:
                self.counts["source failures"] += 1
                failures += 1
                self.source_trouble = failures, f"{type(error).__name__}: {error}"
                self.log("source", why=self.source_trouble[1])
                await asyncio.sleep(wait * random.uniform(0.5, 1.5))
                wait = min(2 * wait, self.timing.longest_wait)
            finally:
                late.cancel()
        self._asking.discard(number)
        self._soon()

    async def _dial(self, peer: str) -> None:
        """Keep a connection to a peer that this party calls."""
        assert self.wiring.client is not None
        await keep_connected(
            partial(Connection, self, dialled=peer),
            *self.wiring.addresses[peer],
            self.wiring.client,
            self.wiring.proxy,
            self.timing,
            partial(self._trouble, peer),
        )

    def _trouble(self, peer: str, why: str) -> None:
        if self.troubles.get(peer) != why and not self.engine.role.finished:
            self.often(f"unreachable {peer}", "unreachable", peer=peer, why=why)
        self.troubles[peer] = why

    async def _keep_durable(self) -> None:
        """Wait for the disk by the clock, beside the loop, and tell peers how far it is."""
        while True:
            await asyncio.sleep(self.timing.sync_every)
            if not self.engine.durable:
                with self.engine.syncing() as wait:
                    await asyncio.get_running_loop().run_in_executor(None, wait)
                self.tell_durable()

    def tell_durable(self, *, leaves: bool = False, missing: dict[str, str] | None = None) -> None:
        """Tell peers which of their messages are on the disk.

        `leaves` says that this is the last word. A heartbeat also says who is `missing` here, and
        why.
        """
        for peer, connection in self.connections.items():
            data = pack(Kept(self.engine.links[peer].durable, leaves, self.paused))
            if missing is not None and takes_missing(connection.wire, connection.release):
                data += pack(Missing(missing, self.paused or bool(self.paused_peers)))
            connection.write(data)

    def _start_once_finished(self) -> None:
        if "finish" not in {task.get_name() for task in self._tasks}:
            self.begin(leaving.finish(self, self.timing, self.give_up), "finish")

    def begin(
        self, work: Coroutine[object, None, None], name: str | None = None
    ) -> asyncio.Task[None]:
        """Run something beside the loop; what goes wrong in it stops the party."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.stop(error)

    async def _listen(self) -> Door | None:
        if self.wiring.listen is None:
            return None
        assert self.wiring.server is not None
        peers = len(self.wiring.peers)
        door = Door(
            partial(greet, self, self.wiring.server),
            lambda address, why: self.refused(address or "somebody", why, counted="stranger"),
            self.wiring.limits or Limits.for_peers(peers),
            expected=2 * peers,
        )
        host, self.port = await door.open(*self.wiring.listen)
        self.log("listening", address=f"{host}:{self.port}")
        return door
