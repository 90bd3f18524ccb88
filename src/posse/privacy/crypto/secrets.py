"""One root from which all secrets of a party in one run are derived, so that a restarted party has them again."""

from __future__ import annotations

import os
from typing import NoReturn

from posse.core.errors import ConfigError
from posse.privacy.crypto.keys import hkdf

ROOT_BYTES = 32
LARGEST_KEY = 255 * 32
"""What HKDF-SHA256 gives at most."""
_PURPOSE = b"posse/secrets/1"


class Secrets:
    """Keys for named purposes: HKDF-SHA256(root; info = version, purpose, context, size, each preceded by its length).

    Keys for two purposes, contexts or sizes are independent: no key is the beginning of another, and no two lists of
    parts give one info.

    Make one for each party and run, and keep it where the run's journal is kept. A party that is restored from its
    journal derives the same keys and meets the same inputs, so under each key it protects the same plaintexts again:
    nobody learns more than before. What would not be safe is one root for two histories: a run begun anew, or one
    taken back to a snapshot without the inputs that came after it. Then one mask, dither or noise hides two different
    numbers, and whoever sees both reads their difference. So a key that is used when the terms of a run are known has
    their digest in its context: a root in use for two runs by mistake gives them nothing in common but the run key.

    >>> secrets = Secrets(bytes(range(32)))
    >>> secrets.key(b"tokens").hex()[:16], secrets.key(b"tokens", 8).hex()
    ('2b9b14ea1fade5b6', '1fcccc9851d648ef')
    >>> secrets
    Secrets(withheld)

    Reference: RFC 5869 (HKDF).
    """

    __slots__ = ("_root",)

    def __init__(self, root: bytes) -> None:
        if len(root) != ROOT_BYTES:
            raise ConfigError(f"a root of secrets must have {ROOT_BYTES} bytes, got {len(root)}. Take Secrets.fresh().")
        self._root = bytes(root)

    @classmethod
    def fresh(cls) -> Secrets:
        """Draw a root from the operating system."""
        return cls(os.urandom(ROOT_BYTES))

    def key(self, purpose: bytes, size: int = 32, *, context: bytes = b"") -> bytes:
        """Derive `size` bytes for a purpose; `context` says for whom and in which run."""
        if not purpose or not 1 <= size <= LARGEST_KEY:
            raise ConfigError(f"a key needs a purpose and 1 to {LARGEST_KEY} bytes, got '{purpose!r}' and {size}.")
        parts = (_PURPOSE, purpose, context, size.to_bytes(4, "big"))
        return hkdf(self._root, b"".join(len(part).to_bytes(4, "big") + part for part in parts), size)

    def number(self, purpose: bytes, *, context: bytes = b"") -> int:
        """Derive a number of 64 bits: the key of a Philox stream."""
        return int.from_bytes(self.key(purpose, 8, context=context), "little")

    def export(self) -> bytes:
        """Give the root away, to be kept with the journal and nowhere else."""
        return self._root

    def __repr__(self) -> str:
        return "Secrets(withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a root of secrets is neither pickled nor copied; call export() to keep it with the journal")
