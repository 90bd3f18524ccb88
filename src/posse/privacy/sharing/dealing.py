"""The dealer: it runs the parties' program on masks, many passes at once, and shares what they will
need.

Every party expands a seed of its own into its tape of a pass (AES-256-CTR, the counter begins at
pass 2^40). Of the computed tracks one party, in turn, is sent what the seeds of the others leave
over: `dealt_bytes` a pass. A `Supply` is what a party has of the dealer: its tapes, each opened
once and in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.privacy.crypto.streams import keystream
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.tape import TRACKS, Deal, ReuseError, Shape, Sizes, Tape, padded

Program = Callable[[Session], Rounds[object]]
"""What parties and dealer run alike."""
_PASS = 40
_CHUNK = 256 << 10


@dataclass(frozen=True)
class Opens:
    """What travels in one round."""

    shares: int
    """Bytes that every party sends to every other."""
    inputs: dict[str, int]
    """Bytes that an owner of inputs sends to every party but itself, beside it."""
    reveals: dict[str, int]
    """Bytes that every party sends to a role outside."""

    def expected(self, sender: str, *, party: bool) -> int:
        """Bytes that a party, or a role outside, sends to a party."""
        return self.inputs.get(sender, 0) + (self.shares if party else 0)


@dataclass(frozen=True)
class Plan:
    """What one pass of a program takes."""

    sizes: Sizes
    rounds: tuple[Opens, ...]
    truncations: dict[str, tuple[int, Shape]]
    """Where the masks of a truncation lie on the mask track, by label."""

    @property
    def passes(self) -> int:
        """Passes that are dealt together: about 256 KiB, at least one."""
        return int(max(1, min(64, _CHUNK // max(1, self.sizes.dealt_bytes))))

    def stream(self, key: bytes, number: int) -> NDArray[np.uint8]:
        """Expand a party's seed into its whole tape of a pass, and nothing else."""
        size = self.sizes.free_bytes + self.sizes.dealt_bytes
        return np.frombuffer(keystream(key, number << _PASS, size), np.uint8)

    def free(self, keys: Sequence[bytes], number: int) -> Words:
        """Return the masks of a pass, which all seeds together give away: for the dealer and for a
        twin.
        """
        found = [
            np.frombuffer(keystream(key, number << _PASS, 8 * self.sizes.mask), "<u8")
            for key in keys
        ]
        return np.asarray(np.sum(found, axis=0, dtype=np.uint64))


def plan_of(program: Program) -> Plan:
    """Run a program on empty masks and see what it takes."""
    tape = _Dealing(None, 1)
    session = Session("", ("",), tape)
    rounds: list[Opens] = []
    for _ in program(session):
        asked = session.outgoing()
        rounds.append(
            Opens(
                len(asked.broadcast),
                asked.expected,
                {to: len(data) for to, data in asked.reveals.items()},
            )
        )
        session.skip()
    return Plan(
        Sizes(**{name: tape.at[name] for name in TRACKS}),
        tuple(rounds),
        {label: (at, shape) for label, shape, at in session.reads if label},
    )


class Dealer:
    """Deals passes for the parties whose seeds it made."""

    def __init__(
        self,
        program: Callable[[Session, int], Rounds[object]],
        plan: Plan,
        keys: Mapping[str, bytes],
    ) -> None:
        """Take the program as a function of a session and the number of the first pass."""
        self._program, self._plan = program, plan
        self._names, self._keys = tuple(keys), dict(keys)

    def receiver(self, chunk: int) -> str:
        """Name the party that a chunk is sent to."""
        return self._names[chunk % len(self._names)]

    def deal(self, chunk: int) -> bytes:
        """Return what is sent for a chunk of passes: the corrections of its receiver, `dealt_bytes`
        a pass.
        """
        plan, sizes = self._plan, self._plan.sizes
        numbers = range(chunk * plan.passes, (chunk + 1) * plan.passes)
        tracks = {
            name: sizes.cut(np.stack([plan.stream(key, number) for number in numbers]))
            for name, key in self._keys.items()
        }
        free = {
            "mask": np.sum([each["mask"] for each in tracks.values()], axis=0, dtype=np.uint64),
            "bits": np.bitwise_xor.reduce([each["bits"] for each in tracks.values()], axis=0),
        }
        tape = _Dealing(free, plan.passes)
        for _ in self._program(Session("", ("",), tape), numbers[0]):
            pass
        others = [each for name, each in tracks.items() if name != self.receiver(chunk)]
        return _corrections(sizes, tape.finished(sizes), others, plan.passes)


def _corrections(
    sizes: Sizes,
    values: Mapping[str, NDArray[np.generic]],
    others: Sequence[Mapping[str, NDArray[Any]]],
    passes: int,
) -> bytes:
    """Return values less what the others have, track by track, a row a pass."""
    data = np.zeros((passes, sizes.dealt_bytes), np.uint8)
    at = 0
    for name in TRACKS[2:]:
        left = values[name].copy()
        for other in others:
            left = left ^ other[name] if name == "table" else left - other[name]
        raw = left.view(np.uint8)
        data[:, at : at + raw.shape[-1]] = raw
        at += padded(raw.shape[-1])
    return data.tobytes()


class _Dealing:
    """The dealer's tape: free tracks are given, computed ones are computed as the program asks for
    them.
    """

    deals = True

    def __init__(self, free: Mapping[str, NDArray[np.generic]] | None, passes: int) -> None:
        self.opens = free is None
        self.lead: Shape = (passes,)
        self.at = dict.fromkeys(TRACKS, 0)
        self._free = free
        self._dealt: dict[str, list[NDArray[np.generic]]] = {name: [] for name in TRACKS[2:]}

    def mask(self, shape: Shape) -> Words:
        return self._next("mask", shape, np.uint64)

    def bits(self, shape: Shape) -> NDArray[np.uint8]:
        return self._next("bits", shape, np.uint8)

    def wide(self, shape: Shape, deal: Deal) -> Words:
        return self._compute("wide", shape, deal, np.uint64)

    def narrow(self, shape: Shape, deal: Deal) -> Words:
        return self._compute("narrow", shape, deal, np.uint32).astype(np.uint64)

    def table(self, shape: Shape, deal: Deal) -> NDArray[np.uint8]:
        return self._compute("table", shape, deal, np.uint8)

    def finished(self, sizes: Sizes) -> dict[str, NDArray[np.generic]]:
        """Return everything computed, a row a pass; raises where the program took something else
        than planned.
        """
        for name in TRACKS:
            if self.at[name] != getattr(sizes, name):
                raise ReuseError(
                    f"the program took {self.at[name]} of {getattr(sizes, name)} items of '{name}'."
                )
        kinds = {"wide": np.uint64, "narrow": np.uint32, "table": np.uint8}
        empty = {name: np.zeros((*self.lead, 0), kind) for name, kind in kinds.items()}
        return {
            name: np.concatenate([empty[name], *parts], axis=-1)
            for name, parts in self._dealt.items()
        }

    def _next(self, name: str, shape: Shape, kind: Any) -> NDArray[Any]:
        size = math.prod(shape)
        at, self.at[name] = self.at[name], self.at[name] + size
        if self._free is None:
            return np.zeros((*self.lead, *shape), kind)
        if at + size > self._free[name].shape[-1]:
            raise ReuseError(
                f"the program took {at + size} of {self._free[name].shape[-1]} items of '{name}'."
            )
        return self._free[name][:, at : at + size].reshape(*self.lead, *shape)

    def _compute(self, name: str, shape: Shape, deal: Deal, kind: Any) -> NDArray[Any]:
        found = np.asarray(deal()).astype(kind, copy=False)
        whole = np.broadcast_to(found, (*self.lead, *shape))
        self._dealt[name].append(whole.reshape(*self.lead, -1))
        self.at[name] += math.prod(shape)
        return whole


class Supply:
    """One party's tapes: those whose corrections have come or that need none, each opened once and
    in order.
    """

    def __init__(self, plan: Plan, key: bytes, name: str, parties: Sequence[str]) -> None:
        self._plan, self._key = plan, key
        self._turn, self._parties = list(parties).index(name), len(parties)
        self._corrections: dict[int, NDArray[np.uint8]] = {}
        self._next = 0

    def mine(self, chunk: int) -> bool:
        """Whether this party is sent the corrections of a chunk."""
        return chunk % self._parties == self._turn

    def take(self, chunk: int, data: bytes) -> None:
        """Take the corrections of a chunk."""
        sizes, passes = self._plan.sizes, self._plan.passes
        first = chunk * passes
        if not self.mine(chunk) or chunk in self._corrections or first + passes <= self._next:
            raise ReuseError(
                f"chunk {chunk} of the dealer's was dealt before, or to another party."
            )
        if len(data) != passes * sizes.dealt_bytes:
            raise ProtocolError(
                f"a chunk must have {passes * sizes.dealt_bytes} bytes, got {len(data)}."
            )
        self._corrections[chunk] = np.frombuffer(data, np.uint8).reshape(passes, sizes.dealt_bytes)

    @property
    def ready(self) -> bool:
        """Whether the next pass can begin; if not, it waits."""
        chunk = self._next // self._plan.passes
        return not self.mine(chunk) or chunk in self._corrections

    def whole(self, last: int) -> bool:
        """Whether all corrections up to a chunk are here."""
        left = range(self._next // self._plan.passes, last + 1)
        return all(chunk in self._corrections for chunk in left if self.mine(chunk))

    def open(self, number: int) -> Tape:
        """Return the tape of a pass: the next one or a later one, and never one that was opened
        before.
        """
        if number < self._next:
            raise ReuseError(f"the randomness of pass {number} was used; the next is {self._next}.")
        chunk = number // self._plan.passes
        data = self._plan.stream(self._key, number)
        if self.mine(chunk):
            if chunk not in self._corrections:
                raise ReuseError(f"the dealer has not dealt pass {number} yet. Wait for it.")
            free = self._plan.sizes.free_bytes
            data = np.concatenate(
                [data[:free], self._corrections[chunk][number % self._plan.passes]]
            )
        self._next = number + 1
        for old in [
            each for each in self._corrections if (each + 1) * self._plan.passes <= self._next
        ]:
            del self._corrections[old]
        return Tape(self._plan.sizes, data, number)

    def save(self) -> tuple[int, dict[int, NDArray[np.uint8]]]:
        """Return what a snapshot keeps; the arrays never change."""
        return self._next, dict(self._corrections)

    def load(self, next_: int, corrections: Mapping[int, bytes]) -> None:
        """Take up what a snapshot kept."""
        self._next = next_
        sizes, passes = self._plan.sizes, self._plan.passes
        self._corrections = {
            int(chunk): np.frombuffer(data, np.uint8).reshape(passes, sizes.dealt_bytes)
            for chunk, data in corrections.items()
        }
