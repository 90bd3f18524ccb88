"""What a party has of the dealer: its tapes, each opened once and in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.tape import ReuseError, Tape


class Supply:
    """One party's tapes: those whose corrections have come or that need none, each opened once and in order."""

    def __init__(self, plan: Plan, key: bytes, name: str, parties: Sequence[str]) -> None:
        self._plan, self._key = plan, key
        self._turn, self._parties = list(parties).index(name), len(parties)
        self._corrections: dict[int, NDArray[np.uint8]] = {}
        self._next = 0

    @property
    def next(self) -> int:
        """Number of the next pass."""
        return self._next

    def mine(self, chunk: int) -> bool:
        """Whether this party is sent the corrections of a chunk."""
        return chunk % self._parties == self._turn

    def take(self, chunk: int, data: bytes) -> None:
        """Take the corrections of a chunk."""
        sizes, passes = self._plan.sizes, self._plan.passes
        first = chunk * passes
        if not self.mine(chunk) or chunk in self._corrections or first + passes <= self._next:
            raise ReuseError(f"chunk {chunk} of the dealer's was dealt before, or to another party.")
        if len(data) != passes * sizes.dealt_bytes:
            raise ProtocolError(f"a chunk must have {passes * sizes.dealt_bytes} bytes, got {len(data)}.")
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
        """Return the tape of a pass: the next one or a later one, and never one that was opened before."""
        if number < self._next:
            raise ReuseError(f"the randomness of pass {number} was used; the next is {self._next}.")
        chunk = number // self._plan.passes
        data = self._plan.stream(self._key, number)
        if self.mine(chunk):
            if chunk not in self._corrections:
                raise ReuseError(f"the dealer has not dealt pass {number} yet. Wait for it.")
            free = self._plan.sizes.free_bytes
            data = np.concatenate([data[:free], self._corrections[chunk][number % self._plan.passes]])
        self._next = number + 1
        for old in [each for each in self._corrections if (each + 1) * self._plan.passes <= self._next]:
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
