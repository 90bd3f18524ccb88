"""Building blocks for pictures and explanations, which the modules `scene` of systems use.

The functions describe the parts of a message and lines of pseudocode, compute bars, and format
numbers. They return plain dicts, lists and texts, which the studio sends to its page as JSON.
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

A `clear` part is not protected. A `header` part is *framing*: the types, lengths and keys that the
encoding adds to the values.
"""
FRAMING = "type and lengths"
"""Name of the parts that are framing. No other part has this name."""


class Part(NamedTuple):
    """Consecutive bytes of a message."""

    name: str
    protection: str
    length: int
    opens: tuple[str, ...]
    """Kinds of role that can read these bytes, because they have the keys, or need no key."""
    why: str = ""
    """Why the bytes have this protection; empty if no explanation is needed."""
    also: tuple[str, ...] = ()
    """Further protections on the same bytes."""

    def as_dict(self) -> dict[str, Any]:
        """Return the part as a dict, without empty values of `why` and `also`."""
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

The arguments are the name of the message, the name of the field, and the value. For a value in a
dict, the name of the field is `field:key`. For a value in a list, it is the name of the field that
contains the list.

A value of bytes may have several parts; the sum of their lengths must be the number of bytes. Any
other value has one part, whose length is ignored.
"""

_encode = msgspec.msgpack.Encoder().encode


def message_parts(
    message: msgspec.Struct, describe: Describe, kinds: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the parts of an encoded message, in order. Each byte belongs to one part.

    Args:
        message: The message.
        describe: Returns the parts of each field.
        kinds: All kinds of role. Each of them can read the framing.

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


class _NestedValue(NamedTuple):
    """A value inside a struct, dict or list."""

    key: bytes
    """The encoded key of a value in a dict; empty for other values."""
    value: Any
    field: str
    """Name of the field that has the value.

    For a value in a list: the field that has the list. For a value in a dict: `field:key`.
    """


class _PartCollector:
    """Collects the parts of an encoded message: values of fields, and framing between values."""

    def __init__(self, describe: Describe, kinds: tuple[str, ...]) -> None:
        self.parts: list[Part] = []
        self._describe = describe
        self._kinds = kinds

    def add_parts(self, value: Any, message: str, field: str) -> None:
        """Add the parts of a value, which is in `field` of the message named `message`."""
        if isinstance(value, msgspec.Struct):
            # The value is a message, or a struct in a message. `Describe` gets the struct's name.
            message = type(value).__name__
        nested = _nested_values(value, field)
        if nested is None:
            self._add_single_value(value, message, field)
            return
        # The encoded bytes are, in order: a head with the type and the number of nested values, then
        # each nested value, in a dict with its key before it. Head and keys are framing.
        nested_size = sum(len(item.key) + len(_encode(item.value)) for item in nested)
        head_size = len(_encode(value)) - nested_size
        self._add_framing(head_size)
        for item in nested:
            self._add_framing(len(item.key))
            self.add_parts(item.value, message, item.field)

    def _add_single_value(self, value: Any, message: str, field: str) -> None:
        """Add the parts of a value that contains no other values."""
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
        else:  # a value that is not bytes has one part, which is as long as the encoded value
            self.parts.append(described[0]._replace(length=size))

    def _add_framing(self, size: int) -> None:
        """Add bytes of framing. If the last part is framing, it becomes longer."""
        if self.parts and self.parts[-1].name == FRAMING:
            last = self.parts[-1]
            self.parts[-1] = last._replace(length=last.length + size)
        elif size:
            self.parts.append(Part(FRAMING, "header", size, self._kinds))


def _nested_values(value: Any, field: str) -> list[_NestedValue] | None:
    """Return the values inside a struct, dict or list in `field`; None for any other value."""
    if isinstance(value, msgspec.Struct):
        return [_NestedValue(b"", getattr(value, name), name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [_NestedValue(_encode(key), item, f"{field}:{key}") for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_NestedValue(b"", item, field) for item in value]
    return None


Code = Mapping[str, Sequence[tuple[str, str]]]
"""Pseudocode by kind of role. Each line is a pair: a key that names the line, and its text."""


def line_texts(code: Code) -> dict[str, list[str]]:
    """Return the lines of pseudocode without their keys, by kind of role."""
    return {kind: [text for _, text in lines] for kind, lines in code.items()}


def line_numbers(code: Code, keys_run: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return the numbers of the lines of pseudocode that a step has run, by kind of role.

    The first line has number 1. `keys_run` has the keys of the lines that the step has run. Keys
    that are not in the code are ignored.

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

    A number of 1e15 or more gets `decimals` significant digits instead, but at least one. So does a
    number that is not 0, but so small that it would be shown as 0.

    >>> format_number(0.50), format_number(1339.431), format_number(25), format_number(300, 0)
    ('0.5', '1339.431', '25', '300')
    >>> format_number(3e-7), format_number(0.3, 0), format_number(2**70)
    ('3e-07', '0.3', '1.181e+21')
    """
    shown_as_zero = 0 < abs(value) < 0.5 * 10**-decimals
    if shown_as_zero or abs(value) >= 1e15:
        return f"{value:.{decimals}g}"
    text = f"{value:z.{decimals}f}"  # with z, -0.0 is shown without its sign
    # Without decimals, zeros at the end belong to the number.
    return text.rstrip("0").rstrip(".") if decimals else text


def join_first(texts: Sequence[str], most: int = 12) -> str:
    """Join the first `most` texts with commas; "..." replaces all texts after these."""
    if len(texts) <= most:
        return ", ".join(texts)
    return ", ".join([*texts[:most], "..."])


def mean_bar(total: float, count: int, truth: float | None = None) -> dict[str, float]:
    """Return what the studio draws as a bar: the estimate of a mean in [0, 1], and its interval.

    The figures are rounded to four decimals, which is enough for a bar of a hundred pixels. The
    studio sends many bars per second to the page, so the messages must be short.

    Args:
        total: Sum of the values.
        count: Number of the values. If it is 0, the estimate is 0.5.
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
