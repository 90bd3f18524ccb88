"""Configuration: one pydantic model, whether it comes from a TOML file, from flags or from Python.

Values given by flags win over the file. Unknown keys are errors, with the nearest known one. A
paper's own word for a setting is an alias: `budget` for `horizon`, or `offers` for the part
`data.offers`.
"""

from __future__ import annotations

import inspect
import re
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError

T = TypeVar("T")
NOTHING = "(?!)"
"""Pattern that no text matches."""


@dataclass(frozen=True)
class External:
    """Marks a setting whose value can import code or open a file, such as `Annotated[str,
    External("linear|cnn")]`.

    A server that takes settings from requests checks these values before it makes the settings.
    """

    built_in: str = NOTHING
    """Pattern of the texts that name nothing outside Posse; by default there are none."""
    path: bool = False
    """Whether the type of the setting holds a path."""

    @classmethod
    def named(cls, names: Iterable[str]) -> External:
        """Return the mark of a setting whose built-in values have these names.

        >>> External.named(["uniform", "embedded:jester"]).built_in
        'uniform|embedded:jester'
        """
        return cls("|".join(re.escape(name) for name in names))


IMPORTS = External(r"[^:{]*")
"""Marks a setting that imports what `module:name` or `file.py:name` names: text without a colon or
a brace does not.
"""


def as_written(given: Any) -> Any:
    """Take a number for a setting that is text as it was written, so that 0.1 is one tenth.

    >>> as_written(0.1), as_written("1/3"), as_written(True)
    ('0.1', '1/3', True)
    """
    return repr(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


class Settings(BaseModel):
    """Base of every configuration: frozen, strict about unknown keys, errors in one line."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other words for settings: the field, or field.part where the field takes a table of named
    parts.
    """
    absent: ClassVar[Mapping[str, str]] = {}
    """Names that a user may try and that are not settings (removed ones, those of another command),
    with what to do instead.
    """
    panel: ClassVar[str] = "The run"
    """Heading under which help lists the settings that a class declares."""
    panels: ClassVar[Mapping[str, str]] = {}
    """Headings of single settings, where they differ."""
    part_help: ClassVar[Mapping[str, str]] = {}
    """What words for parts of a setting mean."""
    _kept: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Other words and headings are those of the class and of all it derives from."""
        super().__pydantic_init_subclass__(**options)
        for name in ("aliases", "absent", "panels", "part_help"):
            declared = [vars(base).get(name) or {} for base in reversed(cls.__mro__)]
            setattr(
                cls, name, {word: meaning for words in declared for word, meaning in words.items()}
            )

    def __init__(self, /, **values: Any) -> None:
        """Build from keywords; a mistake is one `ConfigError` of one line."""
        for name in values:
            if name in self.absent:
                raise ConfigError(
                    f"{name} is not a setting, got {values[name]!r}. {self.absent[name]}"
                )
        try:
            super().__init__(**self._named(values))
        except ValidationError as error:
            known = (*type(self).model_fields, *self.aliases)
            said = {field: alias for alias, field in self.aliases.items() if alias in values}
            raise ConfigError(_explain(error, known, said)) from None

    @classmethod
    def make(
        cls, values: Mapping[str, Any] | None = None, *, file: Path | str | None = None
    ) -> Self:
        """Build from a TOML file and values that win over it; a mistake is one `ConfigError`."""
        return cls(**cls.merged(read_toml(file) if file is not None else {}, values or {}))

    @classmethod
    def merged(cls, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        """Put values over others, whatever words they are given by; of a table of named parts, part
        by part.
        """
        over, made = cls._named(second), dict(second)
        in_parts = {word.partition(".")[0] for word in cls.aliases.values() if "." in word}
        for word, value in first.items():
            field, _, part = cls.aliases.get(word, word).partition(".")
            whole = over.get(field)
            if field not in over or (part and isinstance(whole, Mapping) and part not in whole):
                made[word] = value
            elif field in in_parts and isinstance(value, Mapping) and isinstance(whole, Mapping):
                rest = {name: each for name, each in value.items() if name not in whole}
                made[word] = {**rest, **made.get(word, {})}
        return made

    @classmethod
    def _named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replace aliases by the fields they stand for."""
        named = {name: value for name, value in values.items() if name not in cls.aliases}
        words = {name: name for name in named}  # the word that each field was given by
        for alias in (name for name in values if name in cls.aliases):
            field, _, part = cls.aliases[alias].partition(".")
            if part and values[alias] is None:
                continue
            whole = named.get(field) if part else None
            if field in named and not (part and isinstance(whole, Mapping) and part not in whole):
                what = f"a part of {field}" if part else f"another word for {field}"
                both = "both" if words[field] == field else f"{words[field]} too"
                raise ConfigError(f"{alias} is {what}, got {both}. Give one.")
            words.setdefault(field, alias)
            named[field] = {**(whole or {}), part: values[alias]} if part else values[alias]
        return named

    @classmethod
    def external(cls, name: str) -> External | None:
        """Return the mark of a setting that can import code or open a file; None for any other.

        A type that holds a path, or takes anything, marks its setting.
        """
        field = cls.model_fields[name]
        parts = [*field.metadata, *_parts_of(field.annotation)]
        if Path in parts:
            return External(path=True)
        marks = [part for part in parts if isinstance(part, External)]
        if marks:
            return marks[0]
        return External() if Any in parts or object in parts else None

    @classmethod
    def heading(cls, name: str) -> str:
        """Return the heading under which a setting is listed: what it is about."""
        # The last class that declares it: one that says more about a setting of another keeps its
        # heading.
        owner = next(
            (base for base in reversed(cls.__mro__) if name in inspect.get_annotations(base)), cls
        )
        return str(cls.panels.get(name, vars(owner).get("panel", Settings.panel)))

    def but(self, **changes: Any) -> Self:
        """Return these settings with changes, checked like new ones."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**self.merged(given, changes))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return `but(**update)`: a copy is checked, and loads anew what follows from its
        settings.
        """
        return self.but(**(update or {}))

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": {"_kept": {}}}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made at most once for these settings: data are loaded once and
        not at every use.
        """
        if what not in self._kept:
            self._kept[what] = make()
        return cast("T", self._kept[what])

    def resolved(self) -> dict[str, Any]:
        """Every setting with its value, as a record keeps it."""
        return self.model_dump(mode="json")


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Give a type and everything it is made of: the members of a union, of a list or of
    `Annotated`.
    """
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts_of(part)


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it and where."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"there is no configuration file {path}.") from error
    except IsADirectoryError as error:
        raise DataError(
            f"the configuration file {path} cannot be read: it is a folder. Give a TOML file."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the configuration file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error


_BOUNDS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "a finite number above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
}


def _explain(error: ValidationError, known: tuple[str, ...], said: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "configuration"
    name = said.get(name, name)
    if first["type"] == "extra_forbidden":
        return f"unknown setting '{name}'.{nearest(name, known)}"
    if first["type"] == "missing":
        return f"{name} is needed and was not given."
    if first["type"] in _BOUNDS:
        return (
            f"{name} must be {_BOUNDS[first['type']].format(**first['ctx'])}, got "
            f"{first['input']!r}."
        )
    if first["type"] == "literal_error":
        meant = nearest(
            str(first["input"]), tuple(re.findall(r"'([^']*)'", str(first["msg"])))
        ).partition(" Known")[0]
    else:
        meant = ""
    problem = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name} must be {problem}, got {first['input']!r}.{meant}"
