"""Building blocks for pictures and explanations, which the modules `scene` of systems use.

They describe the parts of a message, lines of pseudocode, bars, and numbers as text. The studio
gets plain dicts and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from posse.core.statistics import wilson

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
"""How a part of a message may be protected.

`clear` parts are not protected. `header` stands for framing: types, lengths and keys of the encoded
values.
"""
FRAMING = "type and lengths"
"""Name of the parts that are framing. No other part has this name."""


class Part(NamedTuple):
    """Consecutive bytes of a message."""

    name: str
    protection: str
    length: int
    opens: tuple[str, ...]
    """Kinds of role that can read these bytes: they have the keys, or no key is needed."""
    why: str = ""
    """Why the bytes are protected in this way; empty if that is clear."""
    also: tuple[str, ...] = ()
    """Further protections on the same bytes."""

    def as_dict(self) -> dict[str, Any]:
        """Return the part as a dict, without empty values."""
        part = {
            "name": self.name,
            "protection": self.protection,
            "length": self.length,
            "opens": list(self.opens),
        }
        optional = {"why": self.why, "also": list(self.also)}
        return part | {name: value for name, value in optional.items() if value}


Describe = Callable[[str, str, Any], Sequence[Part] | None]
"""Returns the parts of a field's value; None if the value is framing.

A value of bytes may have several parts, and their lengths add up to its length. Any other value has
one part, whose length is ignored. The arguments are the name of the message, the name of the field
(`field:key` in a dict), and the value.
"""

_encode = msgspec.msgpack.Encoder().encode


def message_parts(
    message: msgspec.Struct, describe: Describe, kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the parts of an encoded message in their order; together they are all its bytes.

    Args:
        message: The message.
        describe: Returns the parts of each field.
        kinds: All kinds of role: each of them can read the framing.

    >>> class Hello(msgspec.Struct, array_like=True, tag="Hello"):
    ...     number: int
    ...     body: bytes
    >>> def describe(message, field, value):
    ...     return [Part("body", "aes", 3, ())] if field == "body" else None
    >>> parts = message_parts(Hello(7, b"abc"), describe, ("a",))
    >>> [(part["name"], part["length"]) for part in parts]
    [('type and lengths', 10), ('body', 3)]
    >>> len(msgspec.msgpack.encode(Hello(7, b"abc")))
    13
    """
    collector = _PartCollector(describe, kinds)
    collector.add_parts(message, "", "")
    return [part.as_dict() for part in collector.parts]


class _Child(NamedTuple):
    """A value inside a struct, dict or list."""

    key: bytes
    """The encoded key, for values of a dict; empty for others."""
    value: Any
    field: str
    """Name of the field, as `Describe` takes it."""


class _PartCollector:
    """Collects the parts of an encoded message: field values, and the framing between them."""

    def __init__(self, describe: Describe, kinds: tuple[str, ...]) -> None:
        self.parts: list[Part] = []
        self._describe = describe
        self._kinds = kinds

    def add_parts(self, value: Any, message: str, field: str) -> None:
        """Add the parts of a value, which is in `field` of the message named `message`."""
        if isinstance(value, msgspec.Struct):
            message = type(value).__name__
        children = _children_of(value, field)
        if children is None:
            self._add_leaf(value, message, field)
            return
        # The first bytes encode the type and the number of the children. The others are the keys,
        # which are framing too, and the values.
        others = sum(len(child.key) + len(_encode(child.value)) for child in children)
        self._add_framing(len(_encode(value)) - others)
        for child in children:
            self._add_framing(len(child.key))
            self.add_parts(child.value, message, child.field)

    def _add_leaf(self, value: Any, message: str, field: str) -> None:
        """Add the parts of a value without children."""
        size = len(_encode(value))
        described = self._describe(message, field, value)
        if described is None:
            self._add_framing(size)
        elif isinstance(value, bytes):
            lengths = [part.length for part in described]
            if sum(lengths) != len(value):
                raise ValueError(f"the parts of {len(value)} bytes have {lengths}")
            # Bytes are encoded as a length, followed by the bytes themselves.
            self._add_framing(size - len(value))
            self.parts.extend(part for part in described if part.length)
        else:  # other values are one part, whose length is that of the encoded value
            self.parts.append(described[0]._replace(length=size))

    def _add_framing(self, size: int) -> None:
        """Add a number of bytes of framing; consecutive framing becomes one part."""
        if self.parts and self.parts[-1].name == FRAMING:
            last = self.parts[-1]
            self.parts[-1] = last._replace(length=last.length + size)
        elif size:
            self.parts.append(Part(FRAMING, "header", size, self._kinds))


def _children_of(value: Any, field: str) -> list[_Child] | None:
    """Return the values inside a struct, dict or list; None for any other value."""
    if isinstance(value, msgspec.Struct):
        return [_Child(b"", getattr(value, name), name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [_Child(_encode(key), item, f"{field}:{key}") for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_Child(b"", item, field) for item in value]
    return None


Code = Mapping[str, Sequence[tuple[str, str]]]
"""Pseudocode of each kind of role: a key and a text for every line."""


def line_texts(code: Code) -> dict[str, list[str]]:
    """Return the texts of the lines of pseudocode of each kind of role."""
    return {kind: [text for _, text in lines] for kind, lines in code.items()}


def line_numbers(code: Code, keys_run: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return the numbers, from 1, of the lines of pseudocode that a step has run, by kind of role.

    `keys_run` has the keys of these lines. Keys that are not in the code are ignored.

    >>> code = {"owner": [("loop", "for t"), ("send", "send v")]}
    >>> line_numbers(code, {"owner": ["send", "mask"]})
    {'owner': [2]}
    """
    numbers: dict[str, list[int]] = {}
    for kind, keys in keys_run.items():
        for number, (key, _) in enumerate(code.get(kind, ()), 1):
            if key in keys:
                numbers.setdefault(kind, []).append(number)
    return numbers


def format_number(value: float, decimals: int = 4) -> str:
    """Format a number with at most `decimals` decimals, without zeros at the end.

    A number of 1e15 or more, or one so small that 0 would be shown, has `decimals` significant
    digits instead, and at least one.

    >>> format_number(0.50), format_number(1339.431), format_number(25), format_number(300, 0)
    ('0.5', '1339.431', '25', '300')
    >>> format_number(3e-7), format_number(0.3, 0), format_number(2**70)
    ('3e-07', '0.3', '1.181e+21')
    """
    shown_as_zero = 0 < abs(value) < 0.5 * 10**-decimals
    if shown_as_zero or abs(value) >= 1e15:
        return f"{value:.{decimals}g}"
    text = f"{value:z.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def join_first(texts: Sequence[str], most: int = 12) -> str:
    """Join the first `most` texts with commas; an ellipsis replaces the others."""
    if len(texts) <= most:
        return ", ".join(texts)
    return ", ".join([*texts[:most], "..."])


def mean_bar(total: float, count: int, truth: float | None = None) -> dict[str, float]:
    """Return what the studio draws as a bar: the estimate of a mean in [0, 1], and its interval.

    The values are rounded to four decimals. That is enough for a bar of a hundred pixels, and keeps
    the messages to the page short: there are many of them per second.

    Args:
        total: Sum of the values.
        count: Number of the values; without any, the estimate is 0.5.
        truth: The true mean; None if it is unknown.

    >>> mean_bar(8, 10, 0.7)
    {'estimate': 0.8, 'low': 0.4902, 'high': 0.9433, 'truth': 0.7}
    """
    low, high = wilson(total, count)
    figures = {"estimate": 0.5, "low": low, "high": high}
    if count:
        figures["estimate"] = total / count
    if truth is not None:
        figures["truth"] = truth
    return {name: round(value, 4) for name, value in figures.items()}
