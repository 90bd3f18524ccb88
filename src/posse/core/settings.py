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

from posse.core.check import did_you_mean, suggestion
from posse.core.errors import ConfigError, DataError, room_of

T = TypeVar("T")
NOTHING = "(?!)"
"""Pattern that matches no text."""


@dataclass(frozen=True)
class External:
    """Marks a setting whose value can import code or open a file.

    A server that takes settings from requests checks these values before it makes the settings:
    `Annotated[str, External("linear|cnn")]`.
    """

    built_in: str = NOTHING
    """Pattern of the values that name nothing outside Posse; by default every value may do so."""
    path: bool = False
    """Whether the type of the setting holds a path."""

    @classmethod
    def named(cls, names: Iterable[str]) -> External:
        """Return a mark for a setting in which these values alone are built in.

        Every other value may import code or open a file.

        >>> External.named(["uniform", "embedded:jester"]).built_in
        'uniform|embedded:jester'
        """
        return cls("|".join(re.escape(name) for name in names))


IMPORTS = External(r"[^:{]*")
"""Marks a setting that imports what `module:name` or `file.py:name` names.

Text without a colon and without a brace imports nothing.
"""


def exact_text(value: Any) -> Any:
    """Return a number as its shortest text, so that 0.1 is read as one tenth.

    Other values are returned unchanged.

    >>> exact_text(0.1), exact_text("1/3"), exact_text(True)
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
    """Other words for settings, each with the field that it means, or with field.part.

    Such a field takes a table of parts.
    """
    absent: ClassVar[Mapping[str, str]] = {}
    """Names that a user may try although they are not settings (any more), each with the remedy."""
    panel: ClassVar[str] = "The run"
    """Heading under which help lists the settings that a class declares."""
    panels: ClassVar[Mapping[str, str]] = {}
    """Headings of single settings that are not listed under `panel`."""
    part_help: ClassVar[Mapping[str, str]] = {}
    """Help for the parts of settings, by the aliases of the parts."""
    _cache: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Add the aliases, headings and help of the classes that this one derives from."""
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
        """Make settings from a TOML file and from `values`, which win over the file.

        Raises:
            ConfigError: A value is missing, unknown or outside its rule.
            DataError: The file cannot be read.
        """
        return cls(**cls.merged(read_toml(file) if file is not None else {}, values or {}))

    @classmethod
    def merged(cls, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return `base` with `changes`, which win.

        A field and its aliases count as the same setting. Tables of parts are merged part by part.
        Settings keep the words that the user chose, for errors.
        """
        merged = dict(changes)
        by_field = cls._by_field(changes)
        for word, value in base.items():
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
                # One word for the whole table: two would be refused as named twice.
                words = (name for name in changes if cls.aliases.get(name, name) == field)
                whole = next(words, word)
                merged[whole] = {**rest, **merged.get(whole, {})}
        return merged

    @classmethod
    def _tables(cls) -> set[str]:
        """Return the fields that take a table of parts; each part has an alias."""
        return {path.partition(".")[0] for path in cls.aliases.values() if "." in path}

    @classmethod
    def _by_field(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replace aliases by the names of their fields.

        Raises:
            ConfigError: Two words name the same field, or the same part.
        """
        fields = {word: value for word, value in values.items() if word not in cls.aliases}
        words = {field: field for field in fields}  # the user's word for each field
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
    def external_mark(cls, name: str) -> External | None:
        """Return the `External` mark of a setting; None if its values are only data.

        A type that contains Path comes first, then the setting's own mark. A setting without a mark is
        treated as marked if its type contains Any or object.
        """
        field = cls.model_fields[name]
        types_and_marks = [*field.metadata, *_types_in(field.annotation)]
        if Path in types_and_marks:
            return External(path=True)
        for member in types_and_marks:
            if isinstance(member, External):
                return member
        return External() if Any in types_and_marks or object in types_and_marks else None

    @classmethod
    def heading(cls, name: str) -> str:
        """Return the heading under which help lists a setting."""
        if name in cls.panels:
            return cls.panels[name]
        # The first class that declares the setting decides, even if a later one declares it again.
        for base in reversed(cls.__mro__):
            if name in inspect.get_annotations(base):
                return str(vars(base).get("panel", Settings.panel))
        return str(vars(cls).get("panel", Settings.panel))

    def but(self, **changes: Any) -> Self:
        """Return a copy with changes, checked like new settings."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**self.merged(values, changes))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return `but(**update)`, so that pydantic's copy is checked and has an empty cache.

        `deep` has no effect: settings do not change.
        """
        return self.but(**(update or {}))

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": {"_cache": {}}}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about data that were dropped while they were read; empty without any."""
        return ()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` returns, and call it only once for these settings and this `name`.

        So data are loaded once.
        """
        if name not in self._cache:
            self._cache[name] = make()
        return cast("T", self._cache[name])

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its value, as a record stores it."""
        return self.model_dump(mode="json")

    def _refusal(self, error: ValidationError, values: Mapping[str, Any]) -> ConfigError:
        """Return one error for the first mistake, in the words that the user chose."""
        mistakes = error.errors(include_url=False)
        # A missing setting is reported last: often the user gave it, misspelt.
        mistake = next((each for each in mistakes if each["type"] != "missing"), mistakes[0])
        path = ".".join(str(part) for part in mistake["loc"])
        words = {field: alias for alias, field in self.aliases.items() if alias in values}
        name = words.get(path, path) or "configuration"
        field = str(mistake["loc"][0]) if mistake["loc"] else "configuration"
        kind = str(mistake["type"])
        value = mistake["input"]
        room = room_of(type(self).__module__)
        if kind == "extra_forbidden":
            names = (*type(self).model_fields, *self.aliases)
            text = f"unknown setting '{name}'.{suggestion(name, names)}"
            return ConfigError(text, rule=f"{room}.settings.unknown", field=name)
        if kind == "missing":
            text = f"{name} is needed and was not given."
        elif kind in _BOUNDS:
            text = f"{name} must be {_BOUNDS[kind].format(**mistake['ctx'])}, got {value!r}."
        else:
            problem = str(mistake["msg"]).removeprefix("Value error, ")
            problem = problem.removeprefix("Input should be ")
            text = f"{name} must be {problem}, got {value!r}."
        if kind == "literal_error":
            # pydantic's message lists the choices, so only the nearest one is added.
            choices = re.findall(r"'([^']*)'", str(mistake["msg"]))
            text += did_you_mean(str(value), tuple(choices))
        rule = f"{room}.{field}.{_RULES.get(kind, 'invalid')}"
        return ConfigError(text, rule=rule, field=path or "configuration")


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield a type and all types in it: the members of a union, of a list or of `Annotated`."""
    yield annotation
    for member in typing.get_args(annotation):
        yield from _types_in(member)


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
"""Last word of an error's `rule`, by pydantic's type of the error; other types are `invalid`."""


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
