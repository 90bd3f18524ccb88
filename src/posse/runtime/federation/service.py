"""`posse party serve`: one process that is a member of a federation, and at the founder its queue, until
it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import ConfigError, PosseError, ProtocolError
from posse.runtime.certificates.authority import Desk
from posse.runtime.certificates.enrolment import EnrolmentServer
from posse.runtime.certificates.making import lifetime
from posse.runtime.certificates.names import check_name
from posse.runtime.federation.care import serve_pages
from posse.runtime.federation.founder import Founder, open_founder
from posse.runtime.federation.listener import Control, Listener
from posse.runtime.federation.member import Member, Systems
from posse.runtime.federation.talk import (
    Leave,
    Left,
    Proposal,
    Propose,
    Recall,
    Recalled,
    Renew,
    Renewed,
    Report,
    Sheet,
    Shown,
    Signed,
    Told,
    Wanted,
)
from posse.runtime.network import operate
from posse.runtime.network.calling import Proxy
from posse.runtime.network.connection import printable
from posse.runtime.network.health import SHOWN
from posse.runtime.network.health import status as status_of
from posse.runtime.network.operate import source_trouble, waits
from posse.runtime.place import address
from posse.version import __version__

TICK = 1.0
"""Seconds between two looks at the revocation list and the certificate."""


class Living:
    """A service: its member, at the founder the queue, and the connections between them."""

    def __init__(
        self,
        path: Path,
        systems: Systems,
        log: Callable[..., None],
        passphrase: Callable[[], bytes] | None = None,
    ) -> None:
        self.log = log
        self.member = Member(path, systems, log)
        try:
            self._set_up(path, log, passphrase)
        except BaseException:
            self.member.close()
            raise

    def _set_up(
        self, path: Path, log: Callable[..., None], passphrase: Callable[[], bytes] | None
    ) -> None:
        file = self.member.file
        if (file.authority is None) == (file.home is None):
            raise ConfigError(
                f"{path.name} needs home, where the founder's service listens; or, at the founder, "
                "authority. Give one."
            )
        if file.authority is not None and file.listen is None:
            raise ConfigError("members call the founder: give listen, such as 0.0.0.0:7400.")
        self.founder: Founder | None = None
        if file.authority is not None:
            self.founder = open_founder(self.member, passphrase, self._tell)
        self.control = Control(
            self.member.identity.run,
            self.member.name,
            self.member.check,
            self._take,
            self._connected,
            log,
        )
        self.member.changed = self._awake  # type: ignore[method-assign]
        self._sheet: Sheet | None = None
        self._wake, self._over = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self._renewal = self._left = ""
        self._renew_after = 0.0
        """When a certificate that is due is asked for next, by the loop's clock."""
        self._recalls: set[str] = set()
        """Restored members that wait until a restored queue is complete."""
        self._asked: dict[str, Shown | None] = {}
        """What the founder said last of runs that this member proposed."""

    async def run(self) -> None:
        """Serve until it is stopped; raises what stopped it otherwise."""
        member, file = self.member, self.member.file
        socket = operate.Control(member.runs, self._commands())
        await socket.start()
        listener = Listener(
            member.contexts[0],
            member.check,
            None if self.founder is None else self.control,
            member.parties,
            member.absent,
            self.log,
        )
        desk = monitor = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        try:
            if file.listen is not None:
                host, port = await listener.open(*address(file.listen))
                self.log("listening", address=f"{host}:{port}")
            if self.founder is not None and file.enrol is not None:
                desk = EnrolmentServer(Desk(self.founder.authority))
                await desk.start(*address(file.enrol))
            if file.home is not None:
                proxy = None if file.proxy is None else Proxy.parse(file.proxy)
                self._begin(
                    self.control.dial(file.founder, *address(file.home), member.contexts[1], proxy)
                )
            if self.founder is not None and member.ledger.restored and not self.founder.restored:
                member.recalled(self.founder.history(member.name))
            if file.metrics is not None:
                monitor = await serve_pages(self, *address(file.metrics))
            for part in member.parts.values():
                if part.began and part.state == "started":
                    member.launch(part)
            for work in (self.control.keep_alive(), self._follow(), self._look()):
                self._begin(work)
            self._awake()
            await self._over.wait()
        finally:
            socket.close()
            if monitor is not None:
                monitor.close()
            await listener.close()
            if desk is not None:
                await desk.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.control.close()
            await member.stop()
            member.close()
        if self._failed is not None:
            raise self._failed

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = self._failed or error
            self._over.set()

    # Sheets and reports ---------------------------------------------------------------------------

    def _awake(self) -> None:
        self._wake.set()

    async def _follow(self) -> None:
        """Do what the newest sheet says, whenever it or this member's part has changed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            founder, member = self.founder, self.member
            sheet = self._sheet if founder is None else founder.sheet(member.name)
            if sheet is None or member.ledger.restored:
                continue
            try:
                report = await member.take(sheet)
            except (PosseError, OSError) as error:
                self.log("sheet refused", why=str(error))
                continue
            if founder is None:
                self.control.send(member.file.founder, report)
            else:
                founder.take(member.name, report)

    def _tell(self, name: str) -> None:
        """Send a member its sheet; the founder's own member reads it by itself."""
        if name == self.member.name:
            self._awake()
        elif self.founder is not None and name in self.control.connections:
            self.control.send(name, self.founder.sheet(name))

    def _connected(self, peer: str) -> None:
        if (
            self.founder is not None
            and (connection := self.control.connections.get(peer)) is not None
        ):
            with suppress(PosseError):
                self.founder.revoke_older(peer, connection.certificate or b"")
            self._tell(peer)
        elif self.member.ledger.restored:
            self.control.send(peer, Recall())

    def _take(self, peer: str, message: Told) -> None:
        """Take what comes on a control connection."""
        if self.founder is None:
            self._take_from_founder(peer, message)
        else:
            self._take_from_member(self.founder, peer, message)

    def _take_from_member(self, founder: Founder, peer: str, message: Told) -> None:
        match message:
            case Report():
                founder.take(peer, message)
            case Renew():
                self.control.send(peer, self._renewed(founder, peer, message.csr))
            case Leave():
                self.control.send(peer, _left(founder, peer))
            case Recall() if founder.restored:
                # The queue may lack runs: the member is answered when its operator says that it
                # does not.
                self._recalls.add(peer)
            case Recall():
                self.control.send(peer, Recalled(founder.history(peer)))
            case Propose() | Wanted():
                self.control.send(peer, self._answer(founder, peer, message))
            case _:
                raise _unexpected(peer, message)

    def _take_from_founder(self, peer: str, message: Told) -> None:
        match message:
            case Sheet():
                self._sheet = message
                self._awake()
            case Shown():
                if message.run in self._asked:
                    self._asked[message.run] = message
            case Recalled():
                if self.member.ledger.restored:
                    self.member.recalled(message.runs)
                    self._awake()
            case Renewed():
                self._renewal = message.reason or "renewed"
                if not message.reason:
                    self.member.renewed(message.certificate)
            case Left():
                self._left = message.reason or "left"
                if not message.reason:
                    self._over.set()
            case _:
                raise _unexpected(peer, message)

    def _renewed(self, founder: Founder, peer: str, csr: bytes) -> Renewed:
        try:
            shown = self.control.connections[peer].certificate or b""
            return Renewed(founder.renew(peer, shown, csr))
        except PosseError as error:
            return Renewed(b"", error.text)

    async def _look(self) -> None:
        """Follow the revocation list, and renew the certificate when it is time."""
        loop = asyncio.get_running_loop()
        while True:
            if self.founder is not None and self.founder.list_changed():
                await asyncio.to_thread(self._adopt, self.founder)
                self.member.cut_revoked()
                self.founder.advance()
                present = self.founder.members()
                for name in list(self.control.connections):
                    if name in present:
                        self._tell(name)
                    else:
                        self.control.connections[name].hang_up("it is no member any more")
            if self.member.renewal_due and loop.time() >= self._renew_after:
                self._renew_after = loop.time() + min(
                    60.0, lifetime(self.member.identity.certificate) / 20
                )
                try:
                    self._renew(None)
                except PosseError as error:
                    self._renewal = error.text
                    self.log("not renewed", why=error.text)
            await asyncio.sleep(TICK)

    def _adopt(self, founder: Founder) -> None:
        self.member.adopt(founder.authority.current_crl().public_bytes(Encoding.DER))

    def _renew(self, new_key: bool | None) -> str:
        """Ask for a new certificate, or sign it here."""
        member = self.member
        csr = member.request(new_key=new_key)
        self._renewal = "asked"
        if self.founder is not None:
            shown = member.identity.certificate.public_bytes(Encoding.DER)
            member.renewed(self.founder.renew(member.name, shown, csr))
            self._renewal = "renewed"
        elif not self.control.send(member.file.founder, Renew(csr)):
            self._renewal = f"the founder is not connected: {self.control.trouble}"
        return self._renewal

    # What an operator asks ------------------------------------------------------------------------

    def _commands(self) -> dict[str, Callable[[str], object]]:
        commands: dict[str, Callable[[str], object]] = {
            "status": lambda _: self.status(),
            "stop": lambda _: asyncio.get_running_loop().call_soon(self._over.set) and None,
            "renew": lambda text: self._renew(True if text == "new" else None),
            "leave": lambda _: self._leave(),
            "complete": lambda _: self._complete(),
            "submit": self._submit,
            "follow": self._follow_run,
            "cancel": lambda run: self._follow_run(run, drop=True),
        }
        if (founder := self.founder) is not None:
            commands |= {
                "submit": lambda text: self._shown(founder, founder.submit(json.loads(text)).run),
                "follow": lambda run: self._shown(founder, run),
                "cancel": founder.cancel,
                "expel": founder.expel,
            }
        return commands

    def _complete(self) -> None:
        """Take the operator's word for what a backup lacks: for the queue, then for runs that
        nobody can count.
        """
        member, founder = self.member, self.founder
        if founder is not None and founder.restored:
            founder.complete()
            if member.ledger.restored:
                member.recalled(founder.history(member.name))
            for peer in self._recalls & set(self.control.connections):
                self.control.send(peer, Recalled(founder.history(peer)))
        elif member.uncounted:
            member.recalled(())  # nothing more to count: it is whole
        elif member.ledger.restored:
            raise ConfigError(
                "the ledger is from a backup, and the founder has not yet sent the runs since "
                f"then: {self.control.trouble or 'wait'}."
            )
        else:
            raise ConfigError(
                "there is nothing to complete: the queue and the ledger already have all runs."
            )
        self._awake()

    def _leave(self) -> str:
        if self.founder is not None:
            raise ConfigError("the founder cannot leave: the others would have no authority.")
        if self._left != "left":
            sent = self.control.send(self.member.file.founder, Leave())
            self._left = (
                "asked" if sent else f"the founder is not connected: {self.control.trouble}"
            )
        return self._left

    def _answer(self, founder: Founder, peer: str, message: Propose | Wanted) -> Shown:
        """Answer a member that proposes a run, or asks for one that it proposed."""
        run = message.run if isinstance(message, Wanted) else ""
        try:
            if isinstance(message, Propose):
                run = message.signed.proposal.run
                item = founder.propose(peer, message.signed)
            else:
                own = (each for each in founder.items if (each.run, each.proposer) == (run, peer))
                if (
                    found := next(own, None)
                ) is None:  # the same words for a run of another: names are not shown
                    raise ConfigError(f"you proposed no run '{printable(run)}'.")
                item = found
                if message.drop:
                    founder.cancel(run)
            return Shown(run, json.dumps(founder.shown(item, self.control.connections)))
        except PosseError as error:
            return Shown(run, "", error.text)

    def _submit(self, text: str) -> dict[str, Any]:
        """Propose a run to the founder's queue, in this member's name."""
        proposal = Proposal.make(self.member.identity.run, json.loads(text))
        self._asked[proposal.run] = None
        signed = Signed.sign(proposal, self.member.identity)
        if not self.control.send(self.member.file.founder, Propose(signed)):
            raise ConfigError(f"the founder is not connected: {self.control.trouble}")
        return self._follow_run(proposal.run, ask=False)

    def _follow_run(self, run: str, *, ask: bool = True, drop: bool = False) -> dict[str, Any]:
        """Return what the founder said last of a run that this member proposed, and ask again."""
        check_name(run=run)
        known = self._asked.setdefault(run, None)
        connected = not ask or self.control.send(self.member.file.founder, Wanted(run, drop))
        shown: dict[str, Any] = {
            "run": run,
            "phase": "asked",
            "text": "",
            "without": [],
            "waiting": {},
        }
        if known is not None:
            shown |= (
                {"phase": "refused", "text": known.reason}
                if known.reason
                else json.loads(known.state)
            )
        if not connected:
            shown["waiting"] = {
                self.member.file.founder: f"is not connected: {self.control.trouble}"
            }
        journal = self.member.runs / run / "journal"
        return {**shown, "journal": str(journal) if journal.exists() else None}

    def _shown(self, founder: Founder, run: str) -> dict[str, Any]:
        """Return how far a run is at the founder, as its queue and its own party say."""
        item = founder.find(run)
        party = self.member.parties.get(run)
        state = {} if party is None else status_of(party)
        progress = {key: state[key] for key in (*SHOWN, "waiting", "digest") if state.get(key)}
        shown = founder.shown(item, self.control.connections)
        waiting = {**progress.pop("waiting", {}), **shown.pop("waiting")}
        journal = self.member.runs / run / "journal" if self.member.name in item.members else None
        return {**shown, **progress, "waiting": waiting, "journal": journal and str(journal)}

    def status(self) -> dict[str, Any]:
        """Return how the service is."""
        member, connected = self.member, self.control.connections
        identity = member.identity
        home = {}
        if self.founder is None:
            there = member.file.founder in connected
            home = {"home": "connected" if there else self.control.trouble}
        queue = {} if self.founder is None else self.founder.overview(connected)
        return {
            "service": member.name,
            "role": identity.role,
            "federation": identity.run,
            "pid": os.getpid(),
            "version": __version__,
            "until": identity.certificate.not_valid_after_utc.isoformat(),
            "serial": f"{identity.certificate.serial_number:x}",
            "renewal": self._renewal,
            **home,
            "parts": {
                part.run: {
                    "state": part.state,
                    "text": part.text or source_trouble(part.party) or waits(part.party),
                }
                for part in member.parts.values()
            },
            "restored": member.ledger.restored,
            "uncounted": list(member.uncounted),
            "edited": member.place.edited(),
            "spent": asdict(member.ledger.spent),
            **queue,
        }


def _left(founder: Founder, name: str) -> Left:
    """Let a member leave the federation, or say why it may not now."""
    try:
        founder.leave(name)
    except PosseError as error:
        return Left(error.text)
    return Left()


def _unexpected(peer: str, message: Told) -> ProtocolError:
    return ProtocolError(f"{type(message).__name__} does not come from '{peer}'.")
