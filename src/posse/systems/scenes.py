"""Building blocks of explanations: the parts of a message, lines of pseudocode, numbers as text.

The module `scene` of a system uses them. An explanation consists of plain dicts and lists.
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
"""Protections of a part of a message; `header` is framing, `clear` is not protected."""
HEAD = "type and lengths"
"""Name of the parts that are framing."""


class Part(NamedTuple):
    """Consecutive bytes of a message."""

    name: str
    protection: str
    length: int
    opens: tuple[str, ...]
    """Kinds of role that have the keys to read these bytes."""
    why: str = ""
    also: tuple[str, ...] = ()
    """Further protections on the same bytes."""

    def plain(self) -> dict[str, Any]:
        """Return the part as a dict."""
        part: dict[str, Any] = {
            "name": self.name,
            "protection": self.protection,
            "length": self.length,
            "opens": list(self.opens),
        }
        if self.why:
            part["why"] = self.why
        if self.also:
            part["also"] = list(self.also)
        return part


Describe = Callable[[str, str, Any], Sequence[Part] | None]
"""Returns the parts of a field's value, or None if it is framing.

The arguments are the name of the message, the name of the field (`field:key` in a dict), and the
value.
"""

_encode = msgspec.msgpack.Encoder().encode


def parts(
    message: msgspec.Struct, describe: Describe, kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the parts of an encoded message in order; together they cover all its bytes.

    `kinds` are all kinds of role: they can read the framing.

    >>> class Hello(msgspec.Struct, array_like=True, tag="Hello"):
    ...     number: int
    ...     body: bytes
    >>> def describe(message, field, value):
    ...     return [Part("body", "aes", 3, ())] if field == "body" else None
    >>> covering = parts(Hello(7, b"abc"), describe, ("a",))
    >>> [(part["name"], part["length"]) for part in covering]
    [('type and lengths', 10), ('body', 3)]
    >>> len(msgspec.msgpack.encode(Hello(7, b"abc")))
    13
    """
    splitter = _Splitter(describe, kinds)
    splitter.split(message, "", "")
    return [part.plain() for part in splitter.parts]


class _Splitter:
    """Splits encoded values into parts."""

    def __init__(self, describe: Describe, kinds: tuple[str, ...]) -> None:
        self.parts: list[Part] = []
        self._describe = describe
        self._kinds = kinds

    def split(self, value: Any, message: str, field: str) -> None:
        """Add the parts of a value, which belongs to a field of a message."""
        if isinstance(value, msgspec.Struct):
            message = type(value).__name__
        children = _children(value, field)
        if children is None:
            self._split_leaf(value, message, field)
            return
        content = sum(len(key) + len(_encode(child)) for key, child, _ in children)
        self._add_framing(len(_encode(value)) - content)
        for key, child, name in children:
            self._add_framing(len(key))
            self.split(child, message, name)

    def _split_leaf(self, value: Any, message: str, field: str) -> None:
        size = len(_encode(value))
        described = self._describe(message, field, value)
        if described is None:
            self._add_framing(size)
        elif isinstance(value, bytes):
            lengths = [part.length for part in described]
            if sum(lengths) != len(value):
                raise ValueError(f"the parts of {len(value)} bytes have {lengths}")
            self._add_framing(size - len(value))
            self.parts.extend(part for part in described if part.length)
        else:
            self.parts.append(described[0]._replace(length=size))

    def _add_framing(self, size: int) -> None:
        """Add framing; it extends a part of framing before it."""
        part = Part(HEAD, "header", size, self._kinds)
        if self.parts and self.parts[-1].name == HEAD:
            part = part._replace(length=self.parts.pop().length + size)
        if part.length:
            self.parts.append(part)


def _children(value: Any, field: str) -> list[tuple[bytes, Any, str]] | None:
    """Return the children of a value: encoded key, value and field; None if it has none."""
    if isinstance(value, msgspec.Struct):
        return [(b"", getattr(value, name), name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(_encode(key), child, f"{field}:{key}") for key, child in value.items()]
    if isinstance(value, tuple | list):
        return [(b"", child, field) for child in value]
    return None


Code = Mapping[str, Sequence[tuple[str, str]]]
"""Pseudocode of each kind of role: a key and a text for every line."""


def written(code: Code) -> dict[str, list[str]]:
    """Return the texts of the lines of each kind of role."""
    return {kind: [text for _, text in lines] for kind, lines in code.items()}


def lines(code: Code, ran: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return the numbers, from 1, of the lines with the keys in `ran`.

    Keys that the code does not have are ignored.

    >>> lines({"owner": [("loop", "for t"), ("send", "send v")]}, {"owner": ["send", "mask"]})
    {'owner': [2]}
    """
    numbers: dict[str, list[int]] = {}
    for kind, keys in ran.items():
        for number, (key, _) in enumerate(code.get(kind, ()), 1):
            if key in keys:
                numbers.setdefault(kind, []).append(number)
    return numbers


def number(value: float, digits: int = 4) -> str:
    """Format a number with at most `digits` decimals; very small or large ones get an exponent.

    >>> number(0.50), number(1339.431), number(25), number(3e-7), number(2**70), number(300, 0)
    ('0.5', '1339.431', '25', '3e-07', '1.181e+21', '300')
    """
    if 0 < abs(value) < 0.5 * 10**-digits or abs(value) >= 1e15:
        return f"{value:.{digits}g}"
    text = f"{value:z.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def several(texts: Sequence[str], most: int = 12) -> str:
    """Join texts with commas; after `most` of them the rest is an ellipsis."""
    if len(texts) <= most:
        return ", ".join(texts)
    return ", ".join([*texts[:most], "..."])


def bar(total: float, count: int, truth: float | None = None) -> dict[str, float]:
    """Return the estimate of a mean in [0, 1] with its interval, and the truth if it is known.

    Four digits are enough: a bar is a hundred pixels long, and a page reads it many times a second.

    >>> bar(8, 10, 0.7)
    {'estimate': 0.8, 'low': 0.4902, 'high': 0.9433, 'truth': 0.7}
    """
    low, high = interval(total, count)
    figures = {"estimate": 0.5, "low": low, "high": high}
    if count:
        figures["estimate"] = total / count
    if truth is not None:
        figures["truth"] = truth
    return {name: round(value, 4) for name, value in figures.items()}


def interval(total: float, count: int) -> tuple[float, float]:
    """Return the Wilson interval of a mean in [0, 1] at 95 %.

    >>> [round(bound, 3) for bound in interval(8, 10)]
    [0.49, 0.943]
    """
    if count <= 0:
        return 0.0, 1.0
    z = 1.959964
    mean = total / count
    spread = z * z / count
    middle = (mean + spread / 2) / (1 + spread)
    variance = max(0.0, mean * (1 - mean) / count + spread / (4 * count))
    half = z / (1 + spread) * math.sqrt(variance)
    return max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))
