"""Configuration: one pydantic model, whether it comes from a TOML file, from flags or from Python.

Values given by flags win over the file. Unknown keys are errors, with the nearest known one. A paper's own word for a
setting is an alias: `budget` for `horizon`, or `offers` for the part `data.offers`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError

T = TypeVar("T")


class Settings(BaseModel):
    """Base of every configuration: frozen, strict about unknown keys, errors in one line."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other words for settings: the field, or field.part where the field takes a table of named parts."""
    panel: ClassVar[str] = "The run"
    """Heading under which help lists the settings that a class declares."""
    panels: ClassVar[Mapping[str, str]] = {}
    """Headings of single settings, where they differ."""
    _kept: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        """Build from keywords; a mistake is one `ConfigError` of one line."""
        try:
            super().__init__(**self._named(values))
        except ValidationError as error:
            known = (*type(self).model_fields, *self.aliases)
            said = {field: alias for alias, field in self.aliases.items() if alias in values}
            raise ConfigError(_explain(error, known, said)) from None

    @classmethod
    def make(cls, values: Mapping[str, Any] | None = None, *, file: Path | str | None = None) -> Self:
        """Build from a TOML file and values that win over it; a mistake is one `ConfigError`."""
        given = dict(values or {})
        if file is not None:
            fields = cls._named(given)
            given = {
                **{word: value for word, value in read_toml(file).items() if cls._field(word) not in fields},
                **given,
            }
        return cls(**given)

    @classmethod
    def _field(cls, word: str) -> str:
        """The field that a word stands for; a part stands for itself."""
        field = cls.aliases.get(word, word)
        return word if "." in field else field

    @classmethod
    def _named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replace aliases by the fields they stand for."""
        named = {name: value for name, value in values.items() if name not in cls.aliases}
        for alias in (name for name in values if name in cls.aliases):
            field, _, part = cls.aliases[alias].partition(".")
            if not part and field in named:
                raise ConfigError(f"{alias} is another word for {field}, got both. Give one.")
            if not part:
                named[field] = values[alias]
            elif values[alias] is not None:
                whole = named.get(field) or {}
                if not isinstance(whole, Mapping) or part in whole:
                    raise ConfigError(f"{alias} is a part of {field}, got both. Give one.")
                named[field] = {**whole, part: values[alias]}
        return named

    def but(self, **changes: Any) -> Self:
        """Return these settings with changes, checked like new ones."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        changes = self._named(changes)
        return type(self)(**{**given, **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return `but(**update)`: a copy is checked, and loads anew what follows from its settings."""
        return self.but(**(update or {}))

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": {"_kept": {}}}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made at most once for these settings: data are loaded once and not at every use."""
        if what not in self._kept:
            self._kept[what] = make()
        return cast("T", self._kept[what])

    def resolved(self) -> dict[str, Any]:
        """Every setting with its value, as a record keeps it."""
        return self.model_dump(mode="json")


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it and where."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"there is no configuration file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the configuration file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error


_BOUNDS = {
    "greater_than_equal": "at least {ge:g}", "greater_than": "a finite number above {gt:g}",
    "less_than_equal": "at most {le:g}", "less_than": "below {lt:g}",
}  # fmt: skip


def _explain(error: ValidationError, known: tuple[str, ...], said: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "configuration"
    name = said.get(name, name)
    if first["type"] == "extra_forbidden":
        return f"unknown setting '{name}'.{nearest(name, known)}"
    if first["type"] == "missing":
        return f"{name} is needed and was not given."
    if first["type"] in _BOUNDS:
        return f"{name} must be {_BOUNDS[first['type']].format(**first['ctx'])}, got {first['input']!r}."
    if first["type"] == "literal_error":
        meant = nearest(str(first["input"]), tuple(re.findall(r"'([^']*)'", str(first["msg"])))).partition(" Known")[0]
    else:
        meant = ""
    problem = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name} must be {problem}, got {first['input']!r}.{meant}"
