"""The shape of every struct of the package on the wire and on disk: tag, names, order, types and
defaults of fields.

Structs are found by their base class and named by their tags, or by their fields where they have
none: what they are called in Python, and where they are defined, does not count.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import posse

_HAS_STRUCTS = re.compile(r"\bmsgspec\b|array_like=True|kw_only=True")


def _modules() -> Iterator[str]:
    home = Path(posse.__file__).parent
    for path in sorted(home.rglob("*.py")):
        if _HAS_STRUCTS.search(path.read_text(encoding="utf-8")):
            parts = ("posse", *path.relative_to(home).with_suffix("").parts)
            yield ".".join(part for part in parts if part != "__init__")


def _subclasses(of: type) -> Iterator[type]:
    for kind in of.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _key(kind: Any) -> str:
    tag = kind.__struct_config__.tag
    return f"tag {tag}" if tag is not None else "fields " + " ".join(kind.__struct_encode_fields__)


def _words(hint: Any) -> str:
    """Write a type without names of the package."""
    if typing.get_origin(hint) is typing.Annotated:
        kept = [part for part in typing.get_args(hint)[1:] if isinstance(part, msgspec.Meta)]
        return " ".join([_words(typing.get_args(hint)[0]), *map(repr, kept)])
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(sorted(map(_words, arguments)))
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + " ".join(map(repr, arguments))
    if arguments:
        name = getattr(typing.get_origin(hint), "__name__", str(hint))
        return f"{name}[{', '.join('...' if each is ... else _words(each) for each in arguments)}]"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"<{_key(hint)}>"
    if isinstance(hint, type) and hint.__module__.startswith("posse."):
        if dataclasses.is_dataclass(hint):
            hints = typing.get_type_hints(hint, include_extras=True)
            return (
                "{"
                + ", ".join(
                    f"{each.name}: {_words(hints[each.name])}" for each in dataclasses.fields(hint)
                )
                + "}"
            )
        return f"{hint.__mro__[1].__name__} of posse"
    return getattr(hint, "__name__", str(hint))


def _default(value: Any) -> str:
    if isinstance(value, type(msgspec.NODEFAULT)) or value is msgspec.NODEFAULT:
        return "needed"
    factory = getattr(value, "factory", None)
    return f"{factory.__name__}()" if factory is not None else repr(value)


def _shape(kind: Any) -> dict[str, Any]:
    config = kind.__struct_config__
    hints = typing.get_type_hints(kind, include_extras=True)
    defaults = kind.__struct_defaults__
    names = kind.__struct_fields__
    missing = [msgspec.NODEFAULT] * (len(names) - len(defaults))
    fields = [
        [wire, _words(hints[name]), _default(value)]
        for name, wire, value in zip(
            names, kind.__struct_encode_fields__, [*missing, *defaults], strict=True
        )
    ]
    return {
        "fields": fields if config.array_like else sorted(fields),
        "array": config.array_like,
        "tag": config.tag,
        "tag field": config.tag_field,
        "strict": config.forbid_unknown_fields,
        "leaves defaults out": config.omit_defaults,
        "sample": _encoded(kind),
    }


def _sample(hint: Any) -> Any:
    """Make a value of a type, always the same."""
    if typing.get_origin(hint) is typing.Annotated:
        return _sample(typing.get_args(hint)[0])
    arguments = [each for each in typing.get_args(hint) if each is not type(None)]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        # The first by its description: the order in which a union is written does not count.
        return _sample(min(arguments, key=_words))
    if origin is typing.Literal:
        return arguments[0]
    if origin is dict:
        return {_sample(arguments[0]): _sample(arguments[1])}
    if origin is tuple:
        return tuple(_sample(each) for each in arguments if each is not ...)
    if origin is list:
        return [_sample(arguments[0])]
    if hint in _SAMPLES:
        return _SAMPLES[hint]
    if issubclass(hint, msgspec.Struct):
        return _instance(hint)
    if issubclass(hint, enum.Enum):
        return next(iter(hint))
    hints = typing.get_type_hints(hint, include_extras=True)
    names = [each.name for each in dataclasses.fields(hint)]
    return hint(**{name: _sample(hints[name]) for name in names})


_SAMPLES: dict[Any, Any] = {
    int: 3,
    float: 0.75,
    bool: True,
    str: "ab",
    bytes: bytes(range(32)),
    object: 7,
    Any: 7,
    type(None): None,
    datetime.datetime: datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
}


def _instance(kind: Any) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(**{name: _sample(hints[name]) for name in kind.__struct_fields__})


def _encoded(kind: Any) -> str:
    """Encode a sample of a struct, and check that it decodes to the same."""
    try:
        sample = _instance(kind)
    except Exception as error:  # it checks its values, which a sample does not meet
        return type(error).__name__
    data = msgspec.msgpack.encode(sample)
    try:
        again = msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError:  # it holds what is decoded by itself
        again = sample
    assert msgspec.msgpack.encode(again) == data, kind
    # Fields of a map come in the order of the class, which nobody relies on.
    if not kind.__struct_config__.array_like:
        data = msgspec.msgpack.encode(
            ordered(msgspec.msgpack.decode(data, strict=False)), order="sorted"
        )
    return data.hex()


def ordered(value: Any) -> Any:
    """Keys as text, so that they can be sorted, and numbers of any size."""
    if isinstance(value, int) and abs(value) >= 1 << 62:
        return str(value)
    if isinstance(value, dict):
        return {str(key): ordered(each) for key, each in value.items()}
    return [ordered(each) for each in value] if isinstance(value, list | tuple) else value


def shapes() -> Mapping[str, list[dict[str, Any]]]:
    """Shapes of all structs, by tag or fields; some tags are used by several systems."""
    for module in _modules():
        importlib.import_module(module)
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in set(_subclasses(msgspec.Struct)):
        base = not kind.__struct_fields__ and kind.__subclasses__()
        if kind.__module__.split(".")[0] == "posse" and not base:
            found.setdefault(_key(kind), []).append(_shape(kind))
    return {key: sorted(found[key], key=repr) for key in sorted(found)}
