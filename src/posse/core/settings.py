"""Settings: one pydantic model, whether they come from a TOML file, from flags or from Python.

Values of flags win over the file. Unknown keys are errors that suggest the nearest known one. A
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
from posse.core.errors import ConfigError, DataError, room_of

T = TypeVar("T")
NOTHING = "(?!)"
"""Pattern that no text matches."""


@dataclass(frozen=True)
class External:
    """Marks a setting whose value can import code or open a file.

    A server that takes settings from requests checks these values before it makes the settings:
    `Annotated[str, External("linear|cnn")]`.
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
"""Marks a setting that imports what `module:name` or `file.py:name` names.

Text without a colon or a brace names nothing.
"""


def as_written(value: Any) -> Any:
    """Return a number as the text that a user wrote, so that 0.1 is one tenth.

    >>> as_written(0.1), as_written("1/3"), as_written(True)
    ('0.1', '1/3', True)
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else value


class Settings(BaseModel):
    """Base of all settings: frozen, without unknown keys, with errors of one line."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other words for settings: the field, or field.part if the field takes a table of parts."""
    absent: ClassVar[Mapping[str, str]] = {}
    """Names that a user may try and that are not settings, such as removed ones, with the remedy."""
    panel: ClassVar[str] = "The run"
    """Heading under which help lists the settings that a class declares."""
    panels: ClassVar[Mapping[str, str]] = {}
    """Headings of single settings, if they differ."""
    part_help: ClassVar[Mapping[str, str]] = {}
    """What words for parts of a setting mean."""
    _cache: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Add the words and headings of the classes that this one derives from."""
        super().__pydantic_init_subclass__(**options)
        for name in ("aliases", "absent", "panels", "part_help"):
            merged: dict[str, str] = {}
            for base in reversed(cls.__mro__):
                merged |= vars(base).get(name) or {}
            setattr(cls, name, merged)

    def __init__(self, /, **values: Any) -> None:
        """Make settings from keywords.

        Raises:
            ConfigError: A value is missing, unknown or outside its rule.
        """
        for name in values:
            if name in self.absent:
                raise ConfigError(
                    f"{name} is not a setting, got {values[name]!r}. {self.absent[name]}",
                    rule=f"{room_of(type(self).__module__)}.{name}.not-a-setting",
                    field=name,
                )
        try:
            super().__init__(**self._by_field(values))
        except ValidationError as error:
            raise self._refusal(error, values) from None

    @classmethod
    def make(
        cls, values: Mapping[str, Any] | None = None, *, file: Path | str | None = None
    ) -> Self:
        """Make settings from a TOML file and from values that win over it.

        Raises:
            ConfigError: A value is missing, unknown or outside its rule.
            DataError: The file cannot be read.
        """
        return cls(**cls.merged(read_toml(file) if file is not None else {}, values or {}))

    @classmethod
    def merged(cls, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        """Put values over others, whatever words name them; tables of parts are merged."""
        merged = dict(second)
        by_field = cls._by_field(second)
        for word, value in first.items():
            field, _, part = cls.aliases.get(word, word).partition(".")
            if field not in by_field:
                merged[word] = value
                continue
            table = by_field[field]
            if not isinstance(table, Mapping):
                continue
            if part and part not in table:
                merged[word] = value
            elif isinstance(value, Mapping) and field in cls._tables():
                rest = {name: each for name, each in value.items() if name not in table}
                merged[word] = {**rest, **merged.get(word, {})}
        return merged

    @classmethod
    def _tables(cls) -> set[str]:
        """Fields that take a table of parts, each part named by its own word."""
        return {path.partition(".")[0] for path in cls.aliases.values() if "." in path}

    @classmethod
    def _by_field(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replace aliases by the names of their fields."""
        fields = {word: value for word, value in values.items() if word not in cls.aliases}
        words = {field: field for field in fields}  # the word that named each field
        for alias in [word for word in values if word in cls.aliases]:
            field, _, part = cls.aliases[alias].partition(".")
            value = values[alias]
            if not part:
                if field in fields:
                    raise cls._named_twice(alias, words[field])
                fields[field] = value
                words[field] = alias
            elif value is not None:
                table = fields.get(field, {})
                if not isinstance(table, Mapping) or part in table:
                    raise cls._named_twice(alias, words[field])
                fields[field] = {**table, part: value}
                words.setdefault(field, alias)
        return fields

    @classmethod
    def _named_twice(cls, alias: str, word: str) -> ConfigError:
        field, _, part = cls.aliases[alias].partition(".")
        meaning = f"a part of {field}" if part else f"another word for {field}"
        both = "both" if word == field else f"{word} too"
        return ConfigError(
            f"{alias} is {meaning}, got {both}. Give one.",
            rule=f"{room_of(cls.__module__)}.{field}.named-twice",
        )

    @classmethod
    def external(cls, name: str) -> External | None:
        """Return the mark of a setting that can import code or open a file, or None.

        A type that holds a path, or takes anything, marks its setting.
        """
        field = cls.model_fields[name]
        parts = [*field.metadata, *_parts_of(field.annotation)]
        if Path in parts:
            return External(path=True)
        for part in parts:
            if isinstance(part, External):
                return part
        return External() if Any in parts or object in parts else None

    @classmethod
    def heading(cls, name: str) -> str:
        """Return the heading under which help lists a setting."""
        if name in cls.panels:
            return cls.panels[name]
        # The first class that declares it: one that adds to a setting of another keeps its heading.
        for base in reversed(cls.__mro__):
            if name in inspect.get_annotations(base):
                return str(vars(base).get("panel", Settings.panel))
        return str(vars(cls).get("panel", Settings.panel))

    def but(self, **changes: Any) -> Self:
        """Return these settings with changes, checked like new ones."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**self.merged(values, changes))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return `but(**update)`: a copy is checked, and computes again what it had cached."""
        return self.but(**(update or {}))

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": {"_cache": {}}}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about what was dropped of the data, if these settings read any."""
        return ()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` returns, called once for these settings: data are loaded once."""
        if name not in self._cache:
            self._cache[name] = make()
        return cast("T", self._cache[name])

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its value, as a record stores it."""
        return self.model_dump(mode="json")

    def _refusal(self, error: ValidationError, values: Mapping[str, Any]) -> ConfigError:
        """Return the first mistake as one error that uses the user's own words."""
        mistakes = error.errors(include_url=False)
        # A missing setting comes last: a misspelt one is often what is missing.
        first = next((each for each in mistakes if each["type"] != "missing"), mistakes[0])
        path = ".".join(str(part) for part in first["loc"])
        words = {field: alias for alias, field in self.aliases.items() if alias in values}
        name = words.get(path, path) or "configuration"
        field = str(first["loc"][0]) if first["loc"] else "configuration"
        kind = str(first["type"])
        value = first["input"]
        room = room_of(type(self).__module__)
        if kind == "extra_forbidden":
            names = (*type(self).model_fields, *self.aliases)
            text = f"unknown setting '{name}'.{nearest(name, names)}"
            return ConfigError(text, rule=f"{room}.settings.unknown", field=name)
        if kind == "missing":
            text = f"{name} is needed and was not given."
        elif kind in _BOUNDS:
            text = f"{name} must be {_BOUNDS[kind].format(**first['ctx'])}, got {value!r}."
        else:
            problem = str(first["msg"]).removeprefix("Value error, ")
            problem = problem.removeprefix("Input should be ")
            text = f"{name} must be {problem}, got {value!r}."
        if kind == "literal_error":
            choices = re.findall(r"'([^']*)'", str(first["msg"]))
            text += nearest(str(value), tuple(choices)).partition(" Known")[0]
        rule = f"{room}.{field}.{_RULES.get(kind, 'invalid')}"
        return ConfigError(text, rule=rule, field=path or "configuration")


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Yield a type and all its parts: the members of a union, of a list or of `Annotated`."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts_of(part)


_BOUNDS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "a finite number above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
}
_RULES = {
    "missing": "missing",
    "greater_than_equal": "too-small",
    "greater_than": "too-small",
    "less_than_equal": "too-large",
    "less_than": "too-large",
    "literal_error": "unknown",
    "finite_number": "not-finite",
}
"""Rules by pydantic's types of errors; a value of a wrong type is `invalid`."""


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        DataError: The file cannot be read.
        ConfigError: It is not TOML; the message names the line.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"there is no configuration file {path}.", rule="core.file.missing"
        ) from error
    except IsADirectoryError as error:
        raise DataError(
            f"the configuration file {path} cannot be read: it is a folder. Give a TOML file.",
            rule="core.file.is-a-folder",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the configuration file {path} cannot be read: {error}.", rule="core.file.not-readable"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.", rule="core.file.not-toml") from error
