"""What explanations are made of: parts that cover the bytes of a message, code with keys to its
lines, numbers as text.

A system's own `scene` uses it; whoever shows an explanation sees plain dicts and lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

PROTECTIONS = (
    "header",
    "clear",
    "nonce",
    "aes",
    "tag",
    "permutation",
    "mask",
    "share",
    "pad",
    "paillier",
    "signature",
    "noise",
)
"""What may protect a part of a message; `header` is framing, `clear` is no protection at all."""


class Part(NamedTuple):
    """A run of bytes of a message: what it is, what protects it, and which kinds of role have the
    keys to open it.
    """

    name: str
    protection: str
    length: int
    opens: tuple[str, ...]
    """Kinds whose own keys open these bytes, if they have them."""
    why: str = ""
    also: tuple[str, ...] = ()
    """Further protections on the same bytes."""

    def plain(self) -> dict[str, Any]:
        """Return it as a dict."""
        found = {
            "name": self.name,
            "protection": self.protection,
            "length": self.length,
            "opens": list(self.opens),
        }
        return (
            found
            | ({"why": self.why} if self.why else {})
            | ({"also": list(self.also)} if self.also else {})
        )


Describe = Callable[[str, str, Any], Sequence[Part] | None]
"""Says what a field is, by the name of its message and its own (of a dict: `field:key`); None:
framing.
"""

_encode = msgspec.msgpack.Encoder().encode


def parts(
    message: msgspec.Struct, describe: Describe, kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Cover the encoded message with parts, in order; `kinds` are all kinds of role, which read
    what is in the clear.

    >>> class Hello(msgspec.Struct, array_like=True, tag="Hello"):
    ...     number: int
    ...     body: bytes
    >>> found = parts(
    ...     Hello(7, b"abc"),
    ...     lambda *of: [Part("body", "aes", 3, ())] if of[1] == "body" else None,
    ...     ("a",),
    ... )
    >>> (
    ...     [(part["name"], part["length"]) for part in found],
    ...     len(msgspec.msgpack.encode(Hello(7, b"abc"))),
    ... )
    ([('type and lengths', 10), ('body', 3)], 13)
    """
    found: list[Part] = []
    _walk(message, "", "", describe, kinds, found)
    return [part.plain() for part in found]


def _walk(
    value: Any, kind: str, field: str, describe: Describe, kinds: tuple[str, ...], out: list[Part]
) -> None:
    size = len(_encode(value))
    if isinstance(value, msgspec.Struct):
        kind = type(value).__name__
        children = [(name, getattr(value, name)) for name in value.__struct_fields__]
        _head(size - sum(len(_encode(child)) for _, child in children), kinds, out)
        for name, child in children:
            _walk(child, kind, name, describe, kinds, out)
    elif isinstance(value, dict):
        _head(
            size - sum(len(_encode(key)) + len(_encode(child)) for key, child in value.items()),
            kinds,
            out,
        )
        for key, child in value.items():
            _head(len(_encode(key)), kinds, out)
            _walk(child, kind, f"{field}:{key}", describe, kinds, out)
    elif isinstance(value, tuple | list):
        _head(size - sum(len(_encode(child)) for child in value), kinds, out)
        for child in value:
            _walk(child, kind, field, describe, kinds, out)
    else:
        _leaf(value, size, describe(kind, field, value), kinds, out)


def _leaf(
    value: Any, size: int, described: Sequence[Part] | None, kinds: tuple[str, ...], out: list[Part]
) -> None:
    if described is None:
        return _head(size, kinds, out)
    if not isinstance(value, bytes):
        described = [described[0]._replace(length=size)]
        size = 0
    else:
        size -= len(value)
        if sum(part.length for part in described) != len(value):
            raise ValueError(
                f"the parts of {len(value)} bytes have {[part.length for part in described]}"
            )
    if size:
        _head(size, kinds, out)
    out.extend(part for part in described if part.length)
    return None


def _head(size: int, kinds: tuple[str, ...], out: list[Part]) -> None:
    """Add framing, to the framing before it where there is some."""
    if not size:
        return
    if out and out[-1].protection == "header" and out[-1].name == HEAD:
        out[-1] = out[-1]._replace(length=out[-1].length + size)
    else:
        out.append(Part(HEAD, "header", size, kinds))


HEAD = "type and lengths"

Code = Mapping[str, Sequence[tuple[str, str]]]
"""Pseudocode of each kind of role: a key and a text for every line."""


def written(code: Code) -> dict[str, list[str]]:
    """Return the texts."""
    return {kind: [text for _, text in lines] for kind, lines in code.items()}


def lines(code: Code, ran: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return the numbers, from 1, of the lines with these keys; keys that this code does not have
    are left out.

    >>> lines({"owner": [("loop", "for t"), ("send", "send v")]}, {"owner": ["send", "mask"]})
    {'owner': [2]}
    """
    found = {}
    for kind, keys in ran.items():
        numbers = [number for number, (key, _) in enumerate(code.get(kind, ()), 1) if key in keys]
        if numbers:
            found[kind] = numbers
    return found


def number(value: float, digits: int = 4) -> str:
    """Write a number with at most so many digits after the point; very small and large ones with an
    exponent.

    >>> number(0.50), number(1339.431), number(25), number(3e-7), number(2**70), number(300, 0)
    ('0.5', '1339.431', '25', '3e-07', '1.181e+21', '300')
    """
    if not math.isfinite(value):
        return str(value)
    if value and (abs(value) < 0.5 * 10**-digits or abs(value) >= 1e15):
        return f"{value:.{digits}g}"
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text if text != "-0" else "0"


def several(texts: Sequence[str], most: int = 12) -> str:
    """Write a list, cut after so many."""
    cut = ", ..." if len(texts) > most else ""
    return ", ".join(texts[:most]) + cut


def bar(total: float, count: int, truth: float | None = None) -> dict[str, float]:
    """Return an estimate of a mean in [0, 1] with its interval, and the truth where a simulation
    knows it.

    Four digits: a line of a hundred pixels shows no more, and a page gets it many times a second.

    >>> bar(8, 10, 0.7)
    {'estimate': 0.8, 'low': 0.4902, 'high': 0.9433, 'truth': 0.7}
    """
    low, high = interval(total, count)
    found = {"estimate": total / count if count else 0.5, "low": low, "high": high}
    return {
        name: round(value, 4)
        for name, value in (found | ({} if truth is None else {"truth": truth})).items()
    }


def interval(total: float, count: int) -> tuple[float, float]:
    """Return the Wilson interval of a mean in [0, 1] at 95 %: what an owner may believe of its own
    arm.

    >>> [round(bound, 3) for bound in interval(8, 10)]
    [0.49, 0.943]
    """
    if count <= 0:
        return 0.0, 1.0
    z = 1.959964
    mean, spread = total / count, z * z / count
    middle = (mean + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(max(0.0, mean * (1 - mean) / count + spread / (4 * count)))
    return max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))
