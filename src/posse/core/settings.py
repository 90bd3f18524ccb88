"""Settings: one pydantic model for values from a TOML file, from flags and from Python.

A value of a flag wins over a value in the file. An unknown key is an error, which suggests the
nearest known key.

A setting may have *aliases*: other words for the setting, such as `budget` for `horizon`, which is
the word of a paper. The value of a setting may be a table. The *parts* of the table may have
aliases too, such as `offers` for `data.offers`.
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
from pydantic_core import ErrorDetails

from posse.core.check import did_you_mean, suggestion
from posse.core.errors import ConfigError, DataError, room_of

T = TypeVar("T")
MATCH_NOTHING = "(?!)"
"""Pattern that matches no text."""


@dataclass(frozen=True)
class External:
    """Marks a setting whose value can import code or open a file.

    For example, `Annotated[str, External("linear|cnn")]` marks a setting for which only 'linear' and
    'cnn' are safe. A server that takes settings from requests checks the values of such settings
    before it makes the settings.
    """

    built_in: str = MATCH_NOTHING
    """Pattern of the safe values, which name something in Posse. By default no value is safe."""
    path: bool = False
    """Whether the type of the setting contains Path."""

    @classmethod
    def except_for(cls, names: Iterable[str]) -> External:
        """Return a mark for a setting that has only these names as safe values.

        >>> External.except_for(["uniform", "embedded:jester"]).built_in
        'uniform|embedded:jester'
        """
        return cls("|".join(re.escape(name) for name in names))


IMPORTS = External(r"[^:{]*")
"""Marks a setting that imports what `module:name` or `file.py:name` names.

Text without a colon and without a brace imports nothing.
"""


def number_as_text(value: Any) -> Any:
    """Return a number as its shortest text, so that 0.1 is read as exactly one tenth.

    Other values are returned unchanged.

    >>> number_as_text(0.1), number_as_text("1/3"), number_as_text(True)
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
    """Other words for settings, each with the field or the part (`field.part`) that it means."""
    absent: ClassVar[Mapping[str, str]] = {}
    """Names that a user may try although they are not settings, with the remedy for each name."""
    panel: ClassVar[str] = "The run"
    """Heading under which help lists the settings that a class declares."""
    panels: ClassVar[Mapping[str, str]] = {}
    """Headings of single settings that are not listed under `panel`."""
    part_help: ClassVar[Mapping[str, str]] = {}
    """Help for the parts of settings, by the aliases of the parts."""
    _cache: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Add the aliases, headings and help of the base classes to those of a new class."""
        super().__pydantic_init_subclass__(**options)
        for name in ("aliases", "absent", "panels", "part_help"):
            merged: dict[str, str] = {}
            # From the most general base to `cls` itself, so that a derived class wins.
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
            super().__init__(**self._resolve_aliases(values))
        except ValidationError as error:
            raise self._first_mistake(error, values) from None

    @classmethod
    def make(
        cls, values: Mapping[str, Any] | None = None, *, file: Path | str | None = None
    ) -> Self:
        """Make settings from a TOML file and from `values`, which win over the file.

        Raises:
            ConfigError: A value is missing, unknown or outside its rule.
            DataError: The file cannot be read.
        """
        values_of_file = {} if file is None else read_toml(file)
        return cls(**cls.merged(values_of_file, values or {}))

    @classmethod
    def merged(cls, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values in `base`, changed by `changes`.

        A field and its aliases count as the same setting. An alias may mean a part of a table
        (`field.part`); a table whose parts have aliases is merged part by part. The keys of the
        result are the words that the user chose, because errors repeat these words.
        """
        merged = dict(changes)
        changed_fields = cls._resolve_aliases(changes)
        for word, value in base.items():
            field, _, part = cls.aliases.get(word, word).partition(".")
            if field not in changed_fields:
                merged[word] = value
                continue
            new_value = changed_fields[field]
            # A new value that is not a table replaces the whole field: drop the old value.
            if not isinstance(new_value, Mapping):
                continue
            if part and part not in new_value:
                # `word` means one part of the table, and this part does not change.
                merged[word] = value
            elif isinstance(value, Mapping) and field in cls._fields_with_parts():
                # `value` is the whole table: keep its parts that do not change. If the changes
                # have a word for the table, use this word, because two words would be an error.
                table_word = cls._word_for_field(field, changes) or word
                kept_parts = {name: old for name, old in value.items() if name not in new_value}
                merged[table_word] = {**kept_parts, **merged.get(table_word, {})}
        return merged

    @classmethod
    def _word_for_field(cls, field: str, values: Mapping[str, Any]) -> str | None:
        """Return the key in `values` that means a field; None if no key does.

        The key is the name of the field or an alias.
        """
        for word in values:
            if cls.aliases.get(word, word) == field:
                return word
        return None

    @classmethod
    def _fields_with_parts(cls) -> set[str]:
        """Return the fields whose value may be a table with parts that have aliases."""
        return {path.partition(".")[0] for path in cls.aliases.values() if "." in path}

    @classmethod
    def _resolve_aliases(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values, with each alias replaced by the name of its field.

        The value of an alias of a part is put into the table of the field: `offers` with the value
        5 becomes `data` with the value {"offers": 5}.

        Raises:
            ConfigError: Two words name the same field or the same part. Or one word names a part of
                a field, and the value of the field itself is not a table.
        """
        field_values = {word: value for word, value in values.items() if word not in cls.aliases}
        # For each field, the word that the user gave for it.
        user_words = {field: field for field in field_values}
        for alias in [word for word in values if word in cls.aliases]:
            field, _, part = cls.aliases[alias].partition(".")
            value = values[alias]
            if not part:
                if field in field_values:
                    raise cls._named_twice_error(alias, user_words[field])
                field_values[field] = value
                user_words[field] = alias
            elif value is not None:  # None means that the part is not set
                table = field_values.get(field, {})
                if not isinstance(table, Mapping) or part in table:
                    raise cls._named_twice_error(alias, user_words[field])
                field_values[field] = {**table, part: value}
                user_words.setdefault(field, alias)
        return field_values

    @classmethod
    def _named_twice_error(cls, alias: str, word: str) -> ConfigError:
        """Return the error for an alias of a field that the user has already named by `word`."""
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

        A setting whose type contains Path counts as marked. A setting whose type contains Any or
        object counts as marked too, because its value may be anything.
        """
        field = cls.model_fields[name]
        types_and_marks = [*field.metadata, *_types_in(field.annotation)]
        if Path in types_and_marks:
            return External(path=True)
        for member in types_and_marks:
            if isinstance(member, External):
                return member
        may_be_anything = Any in types_and_marks or object in types_and_marks
        return External() if may_be_anything else None

    @classmethod
    def heading(cls, name: str) -> str:
        """Return the heading under which help lists a setting."""
        if name in cls.panels:
            return cls.panels[name]
        # A derived class may declare a setting again. The class that declared the setting first
        # decides, by its own `panel` and not by an inherited one.
        bases = reversed(cls.__mro__)
        declared_by = next((base for base in bases if name in inspect.get_annotations(base)), cls)
        return str(vars(declared_by).get("panel", Settings.panel))

    def but(self, **changes: Any) -> Self:
        """Return a copy with these values changed. The copy is checked like new settings."""
        # Fields that were not set get their default again.
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**self.merged(values, changes))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return `but(**update)`. The copy of pydantic would keep the cache.

        `deep` has no effect, because settings do not change.
        """
        return self.but(**(update or {}))

    def __getstate__(self) -> dict[Any, Any]:
        # The cache is not pickled: its values follow from the settings.
        return {**super().__getstate__(), "__pydantic_private__": {"_cache": {}}}

    def __eq__(self, other: object) -> bool:
        # pydantic would compare the caches too.
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        # Values such as lists have no hash, but every value has a text.
        return hash(repr(self))

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about rows and columns that were left out when the data was read."""
        return ()

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Return the result of `make`, which is called only once for each `name`.

        Use this for a result that depends on these settings alone and takes long to make, such as
        data that is read from a file.
        """
        if name not in self._cache:
            self._cache[name] = make()
        return cast("T", self._cache[name])

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its value, as a record stores it."""
        return self.model_dump(mode="json")

    def _first_mistake(self, error: ValidationError, values: Mapping[str, Any]) -> ConfigError:
        """Return an error for the first mistake that pydantic found.

        The message has the user's words, and the error's `field` has the path of the setting.
        """
        mistakes = error.errors(include_url=False)
        # Report a missing setting last: if its name is misspelt, the unknown name is the mistake.
        mistake = next((each for each in mistakes if each["type"] != "missing"), mistakes[0])
        # A mistake that concerns several settings has no location.
        path = ".".join(map(str, mistake["loc"])) or "configuration"
        user_words = {field: alias for alias, field in self.aliases.items() if alias in values}
        user_word = user_words.get(path, path)
        room = room_of(type(self).__module__)
        if mistake["type"] == "extra_forbidden":
            known_words = (*type(self).model_fields, *self.aliases)
            text = f"unknown setting '{user_word}'.{suggestion(user_word, known_words)}"
            return ConfigError(text, rule=f"{room}.settings.unknown", field=user_word)
        # The rule names only the setting; the error's `field` is the path to the wrong part of it.
        field = path.partition(".")[0]
        problem = _PROBLEMS.get(mistake["type"], "invalid")
        text = _describe_mistake(user_word, mistake)
        return ConfigError(text, rule=f"{room}.{field}.{problem}", field=path)


def _describe_mistake(name: str, mistake: ErrorDetails) -> str:
    """Return the message of an error about a mistake that pydantic found in the setting `name`."""
    kind = mistake["type"]
    if kind == "missing":
        return f"{name} is needed and was not given."
    value = mistake["input"]
    if kind in _BOUNDS:
        return f"{name} must be {_BOUNDS[kind].format(**mistake['ctx'])}, got {value!r}."
    message = mistake["msg"]
    expected = message.removeprefix("Value error, ").removeprefix("Input should be ")
    # pydantic's message about a choice lists all choices. Only the nearest choice is added to it.
    choices = re.findall(r"'([^']*)'", message) if kind == "literal_error" else []
    nearest = did_you_mean(str(value), tuple(choices))
    return f"{name} must be {expected}, got {value!r}.{nearest}"


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
_PROBLEMS = {
    "missing": "missing",
    "greater_than_equal": "too-small",
    "greater_than": "too-small",
    "less_than_equal": "too-large",
    "less_than": "too-large",
    "literal_error": "unknown",
    "finite_number": "not-finite",
}
"""Last part of an error's `rule`, by pydantic's type of the error; other types are `invalid`."""


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        DataError: The file cannot be read.
        ConfigError: The file is not TOML; the message names the line.
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
