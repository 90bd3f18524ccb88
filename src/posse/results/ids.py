"""Names of runs: short, and sorted by the time they were made."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

# Crockford's alphabet: in ASCII order, and without the letters i, l, o, u that are misread or misheard.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(milliseconds: int | None = None) -> str:
    """Make an id: nine characters of time (milliseconds since 1970), a dash, four random ones.

    Ids sort as their times do; two made in the same millisecond differ with probability 1 - 2^-20, and a store
    refuses the second of two equal ones.

    >>> new_id(0).startswith("000000000-"), new_id(1) > new_id(0), len(new_id())
    (True, True, 14)
    """
    now = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    return f"{_base32(now, 9)}-{_base32(secrets.randbits(20), 4)}"


def utc_now() -> str:
    """Return the time as an ISO string in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _base32(number: int, width: int) -> str:
    return "".join(_ALPHABET[(number >> (5 * i)) & 31] for i in reversed(range(width)))
