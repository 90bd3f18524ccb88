"""A listener for strangers: few connections at a time, none for long, and descriptors left for the
party's own files.

Whoever connects waits until its first byte is here, which costs a descriptor and little memory;
then it is served (a TLS handshake, a request), which costs more, so that fewer are. Both rooms are
shared fairly between addresses: where one is full the oldest connection of the address with most of
them has to go, and not the newest, for an honest caller is through in a few milliseconds. How often
an address is served is limited too. What is turned away is closed at once, with a reset that leaves
nothing behind in the kernel.

Behind one address everyone shares its limits: an honest party that has the address of a flood of
handshakes waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

BACKLOG = 256
"""Connections that the kernel holds until they are accepted."""
RESERVE = 64
"""Descriptors that no stranger gets: the journal opens new files, and an operator asks."""
_ACCEPTS, _TURN = 1000.0, 64
"""Connections accepted in a second, and in one turn of the loop: more would take the time of the
run.
"""
_CALM, _PAUSE = 50.0, 0.02
"""Where more come in a second, they are accepted together, so many seconds apart."""
_ADDRESSES = 1024
"""Addresses whose rate is remembered."""
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Limits:
    """What strangers may take of a listener."""

    waiting: int = 256
    """Connections that have sent nothing yet."""
    waiting_each: int = 64
    """The same, of one address."""
    served: int = 48
    """Connections that are served at once."""
    served_each: int = 24
    """The same, of one address."""
    rate: float = 5.0
    """Connections of one address served in a second, over a while; twice as many of all."""
    burst: float = 16.0
    """Of one address at once, after a pause; twice as many of all."""
    silence: float = 5.0
    """Seconds until the first byte."""

    @classmethod
    def for_peers(cls, peers: int) -> Limits:
        """Let as many come at once, from one address, as there are peers: they may all be on one
        machine.
        """
        return cls(rate=5 + peers / 8, burst=10 + 2.0 * peers)


class Bucket:
    """How often something may happen: `rate` times a second, and `burst` times at once after a
    pause.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, burst, 0.0

    def take(self, now: float) -> bool:
        """Return whether it may happen now, and count it.

        >>> bucket = Bucket(rate=1, burst=2)
        >>> [bucket.take(0.0), bucket.take(0.0), bucket.take(0.5), bucket.take(1.0)]
        [True, True, False, True]
        """
        self._left = min(self._burst, self._left + self._rate * max(0.0, now - self._at))
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Room(Generic[T]):
    """Things of addresses, at most `most` and `each` of one address; keeps the newest."""

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each, self._count = most, each, 0
        self._of: dict[str, OrderedDict[T, None]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, address: str, one: T) -> T | None:
        """Take one in; return who has to go for it.

        >>> room = Room(most=3, each=2)
        >>> [room.add(*one) for one in [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("a", 5)]]
        [None, None, None, 1, 2]
        """
        mine = self._of.setdefault(address, OrderedDict())
        mine[one] = None
        self._count += 1
        if len(mine) > self._each:
            return self._oldest(address)
        return (
            self._oldest(max(self._of, key=lambda each: len(self._of[each])))
            if self._count > self._most
            else None
        )

    def remove(self, address: str, one: T) -> bool:
        """Take one out; False if it is not here."""
        mine = self._of.get(address)
        if mine is None or one not in mine:
            return False
        del mine[one]
        self._count -= 1
        if not mine:
            del self._of[address]
        return True

    def all(self) -> list[tuple[str, T]]:
        """Return everything that is here, with its address."""
        return [(address, one) for address, mine in self._of.items() for one in mine]

    def _oldest(self, address: str) -> T:
        one = next(iter(self._of[address]))
        self.remove(address, one)
        return one


def origin(address: str) -> str:
    """Return what counts as one address: of version 6 the network, of which anybody has all
    addresses.

    >>> origin("10.0.0.5"), origin("2001:db8:1:2:3:4:5:6"), origin("::1")
    ('10.0.0.5', '2001:db8:1:2', '0:0:0:0')
    """
    if ":" not in address:
        return address
    packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    return ":".join(
        f"{high << 8 | low:x}" for high, low in zip(packed[0:8:2], packed[1:8:2], strict=True)
    )


class Door:
    """Accepts connections for `serve`, which makes a transport of each and is cancelled where
    others need its place.

    `refused` is called with an address and why it was turned away.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket, str], Coroutine[object, None, None]],
        refused: Callable[[str, str], None],
        limits: Limits | None = None,
        *,
        expected: int = 0,
    ) -> None:
        """Expect so many connections that stay, beside those at the door: descriptors are provided
        for them.
        """
        self._serve, self._refused, self._limits, self._expected = (
            serve,
            refused,
            limits or Limits(),
            expected,
        )
        self._waiting: Room[socket.socket] = Room(self._limits.waiting, self._limits.waiting_each)
        self._served: Room[asyncio.Task[None]] = Room(self._limits.served, self._limits.served_each)
        self._since: dict[socket.socket, float] = {}
        self._rates: OrderedDict[str, Bucket] = OrderedDict()
        self._all = Bucket(2 * self._limits.rate, 2 * self._limits.burst)
        self._accepts, self._calm = (
            Bucket(_ACCEPTS, 2.0 * _TURN),
            Bucket(_CALM, 2 * _CALM + expected),
        )
        self._listening: list[socket.socket] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._highest = 0

    @property
    def busy(self) -> bool:
        """Whether somebody is being served."""
        return bool(self._served)

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen, on every address that the host name has; port 0 takes a free one. Returns where.

        `*` and `::` are all addresses of both families, as far as this machine has them.
        """
        loop, both = asyncio.get_running_loop(), host in ("*", "::")
        name = None if both else host
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self._highest = (
            _descriptors(self._expected + self._limits.waiting + self._limits.served) - RESERVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                where = (
                    str(address[0]),
                    port or (self._listening[0].getsockname()[1] if self._listening else 0),
                )
                try:
                    self._listening.append(
                        socket.create_server(where, family=family, backlog=BACKLOG)
                    )
                except OSError as error:
                    if not both or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
            if not self._listening:
                raise OSError(errno.EADDRNOTAVAIL, "this machine has no address to listen on")
        except OSError:
            self.close()
            raise
        for listening in self._listening:
            listening.setblocking(False)
            loop.add_reader(listening.fileno(), self._accept, listening)
        self._sweep()
        bound = self._listening[0].getsockname()
        return str(bound[0]), int(bound[1])

    def close(self) -> None:
        """Stop listening and turn everyone out who is at the door."""
        loop = asyncio.get_running_loop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for listening in self._listening:
            loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        for address, one in self._waiting.all():
            loop.remove_reader(one.fileno())
            one.close()
            self._waiting.remove(address, one)
        for _, task in self._served.all():
            task.cancel()

    async def closed(self) -> None:
        """Close, and wait until nobody is served any more."""
        tasks = [task for _, task in self._served.all()]
        self.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Who comes ------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        now, calm = time.monotonic(), True
        for _ in range(_TURN):
            if not self._accepts.take(now):
                self._rest(listening, _TURN / _ACCEPTS)
                return
            try:
                one, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._refused("", "this machine has no descriptors or memory left")
                    self._rest(listening, 0.5)
                    return
                continue  # gone before it was accepted
            one.setblocking(False)
            # Without it a small message waits up to 40 ms for the answer to the one before. asyncio
            # sets it where a party calls, and not on what is accepted here. A peer that has hung up
            # is noticed when it is read.
            with contextlib.suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            calm = self._calm.take(now) and calm
            self._take_in(one, str(peer[0]), now)
        if not calm:
            self._rest(listening, _PAUSE)

    def _take_in(self, one: socket.socket, address: str, now: float) -> None:
        if one.fileno() >= self._highest:
            self._turn_out(one, address, "the last descriptors are for the party itself")
            return
        from_ = origin(address)
        if self._begin(one, address, from_, now):
            return
        if (gone := self._waiting.add(from_, one)) is not None:
            self._leave_room(gone)
            self._turn_out(gone, address, "too many connections that say nothing")
            if gone is one:
                return
        self._since[one] = now
        asyncio.get_running_loop().add_reader(one.fileno(), self._first_byte, one, address, from_)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        """Leave callers to the kernel for a while."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())

        def go_on() -> None:
            if listening in self._listening:
                loop.add_reader(listening.fileno(), self._accept, listening)

        loop.call_later(seconds, go_on)

    def _leave_room(self, one: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(one.fileno())
        self._since.pop(one, None)

    def _turn_out(self, one: socket.socket, address: str, why: str) -> None:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        one.close()
        self._refused(address, why)

    def _sweep(self) -> None:
        """Close those that have been silent for too long."""
        longest = time.monotonic() - self._limits.silence
        for address, one in self._waiting.all():
            if self._since.get(one, longest) <= longest:
                self._waiting.remove(address, one)
                self._leave_room(one)
                self._turn_out(one, address, f"silent for {self._limits.silence:g} s")
        self._sweeping = asyncio.get_running_loop().call_later(
            min(1.0, self._limits.silence / 4), self._sweep
        )

    # Who is served --------------------------------------------------------------------------------

    def _first_byte(self, one: socket.socket, address: str, from_: str) -> None:
        self._waiting.remove(from_, one)
        self._leave_room(one)
        self._begin(one, address, from_, time.monotonic())

    def _begin(self, one: socket.socket, address: str, from_: str, now: float) -> bool:
        """Serve a caller that has sent something, or turn it away; return False if it has sent
        nothing yet.
        """
        try:
            if not one.recv(1, socket.MSG_PEEK):
                self._turn_out(one, address, "it hung up before it said anything")
                return True
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._turn_out(one, address, f"it hung up ({error.strerror})")
            return True
        if not self._rate(from_).take(now) or not self._all.take(now):
            self._turn_out(one, address, "it calls too often")
            return True
        begun: list[bool] = []

        async def served() -> None:
            begun.append(True)
            await self._serve(one, address)

        task = asyncio.get_running_loop().create_task(served())
        task.add_done_callback(lambda done: self._done(done, one, from_, bool(begun)))
        if (gone := self._served.add(from_, task)) is not None:
            gone.cancel()
            self._refused(address, "too many unfinished greetings; the oldest is given up")
        return True

    def _done(self, task: asyncio.Task[None], one: socket.socket, from_: str, begun: bool) -> None:
        self._served.remove(from_, task)
        if not begun:
            one.close()
        elif task.cancelled():
            # A transport may hold it: closed under it, its number would go to another connection.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _rate(self, from_: str) -> Bucket:
        bucket = self._rates.get(from_) or Bucket(self._limits.rate, self._limits.burst)
        self._rates[from_] = bucket
        self._rates.move_to_end(from_)
        if len(self._rates) > _ADDRESSES:
            self._rates.popitem(last=False)
        return bucket


class Throttle:
    """A log that passes on the first few events of a kind in a minute, and says later how many more
    there were.

    >>> log = Throttle(lambda event, **fields: print(event, fields), most=1)
    >>> for _ in range(3):
    ...     log("a stranger", "refused", why="no TLS")
    refused {'why': 'no TLS'}
    >>> log.flush(all_of_them=True)
    more {'of': 'a stranger', 'times': 2}
    """

    def __init__(self, log: Callable[..., None], most: int = 5, seconds: float = 60.0) -> None:
        self._log, self._most, self._seconds = log, most, seconds
        self._kinds: dict[str, tuple[float, int]] = {}

    def __call__(self, kind: str, event: str, **fields: object) -> None:
        """Log an event of a kind; there must be few kinds."""
        self.flush()
        since, times = self._kinds.get(kind, (time.monotonic(), 0))
        self._kinds[kind] = since, times + 1
        if times < self._most:
            self._log(event, **fields)

    def flush(self, *, all_of_them: bool = False) -> None:
        """Say how many events were left out, of kinds whose minute is over."""
        over = time.monotonic() - self._seconds
        for kind, (since, times) in list(self._kinds.items()):
            if all_of_them or since <= over:
                del self._kinds[kind]
                if times > self._most:
                    self._log("more", of=kind, times=times - self._most)


def _descriptors(wanted: int) -> int:
    """Return how many descriptors this process may have; raised, as far as it may, to what is
    wanted and a reserve.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 2 * RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft
